//! The keyspace and every command on it, over any engine.
//!
//! A request's path: the server's worker opens a [`Turn`] on its [`Session`] (gate and pin taken
//! once for a batch), [`Turn::warm`]s the keys of the batch, and [`Turn::execute`]s the requests in
//! arrival order. `execute` looks after arity, authentication, MULTI queues and gates; the command
//! itself works on a [`Keyspace`], whose `read` and `update` are the only ways to the engine.
//!
//! Deliberately absent: sockets, event loops and anything that waits. Commands about the server
//! (CLIENT, CONFIG, INFO, …) belong to the [`Host`] that embeds the database.

#![forbid(unsafe_code)]

mod acknowledge;
mod client;
mod clock;
mod commands;
mod cursors;
mod database;
mod dump;
mod durable;
mod error;
mod eviction;
mod expiry;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod keyspace;
pub mod limits;
mod maintenance;
mod memcached;
mod options;
mod session;
mod statistics;
mod store;
mod transaction;
mod turn;
mod watch;

pub use acknowledge::{Durability, EpochLog, Sealed};
pub use client::{Client, ReplyMode};
pub use clock::{Clock, Milliseconds, SystemClock};
pub use commands::{Progress, Slice, memory_usage};
pub use database::{Database, OpenError};
pub use dump::file::FileError;
pub use durable::{
    CheckReport, CheckpointFailure, CheckpointOptions, CheckpointReport, DurabilityOptions, Loaded,
    Malformed, OnProgress, Pace, Recovery, RecoveryError, RecoveryProgress, Stage, StreamError,
    check, expect_database,
};
pub use error::CommandError;
pub use eviction::{Accesses, EvictionPolicy, LastAccess};
pub use keyspace::Keyspace;
pub use memcached::{ListedItem, MemcachedFigures, MemcachedHost};
pub use options::{EngineKind, MemoryMeter, Options};
pub use pando_durability::disk::{Disk, Room, SimulatedDisk};
pub use pando_durability::log::{
    Due, LogError, LogRoom, LogState, LogStatistics, WriteTimes, measure_sync,
};
pub use pando_engine::LogEpoch;
pub use session::Session;
pub use statistics::Statistics;
pub use turn::{Host, HostProgress, Outcome, SlicedCommand, Turn};
