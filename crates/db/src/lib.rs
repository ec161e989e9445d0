//! The keyspace and every command on it, over any engine.
//!
//! A request's path: the server's worker opens a [`Turn`] on its [`Session`] (gate and pin are
//! taken once per batch), [`Turn::warm`]s the keys of the batch, and [`Turn::execute`]s the
//! requests in arrival order. `execute` handles arity, authentication, MULTI queues and gates. The
//! command itself works on a [`Keyspace`], whose `read` and `update` are the only ways to the
//! engine.
//!
//! Deliberately absent: sockets, event loops and anything that waits. Commands about the server
//! (CLIENT, CONFIG, INFO, …) belong to the [`Host`] that embeds the database.

#![forbid(unsafe_code)]

mod acknowledge;
mod alive;
mod background;
mod branches;
mod client;
mod clock;
mod commands;
mod cursors;
mod database;
mod dump;
mod durable;
mod effects;
mod encoding;
mod entries;
mod epoch_log;
mod error;
mod eviction;
mod expiry;
mod freeze;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod grove;
mod kept;
mod keyspace;
mod lender;
pub mod limits;
mod lines;
mod maintenance;
mod mapping;
mod memcached;
mod memory;
mod open;
mod options;
mod pause;
mod persistence;
mod placing;
mod pool;
mod progress;
mod remapping;
mod replication;
mod role;
mod session;
mod session_state;
mod settings;
mod snapshots;
mod statistics;
mod store;
mod transaction;
mod turn;
mod view;
mod watch;
mod watchers;

pub use acknowledge::{Durability, Replicated};
pub use client::{Client, ReplyMode};
pub use clock::{Clock, Microseconds, Milliseconds, SystemClock};
pub use commands::joined::{Answers, Joined};
pub use commands::{Departing, VALUE_FORMAT, describe_object, memory_usage, string_to_move};
pub use database::Database;
pub use dump::file::FileError;
pub use durable::{
    CheckpointReport, DurabilityOptions, Malformed, OnProgress, Recovery, RecoveryProgress, Stage,
};
pub use encoding::Thresholds;
#[cfg(any(test, feature = "hand-log"))]
pub use epoch_log::HandLog;
pub use error::CommandError;
pub use freeze::SnapshotFigures;
pub use keyspace::Keyspace;
pub use lines::Ended;
pub use memcached::{ListedItem, MemcachedHost};
pub use memory::{Accesses, EvictionPolicy, LastAccess};
pub use open::OpenError;
pub use options::{EngineKind, MemoryMeter, Options};
pub use pando_cdds::{
    Error as PoolError, FileMedium, Options as PoolOptions, Place, Protection as PoolProtection,
};
pub use pando_durability::disk::{Access, Disk, DiskFile, Fault, RealDisk, Room, SimulatedDisk};
pub use pando_durability::log::{
    FollowedEpoch, LogError, LogRoom, LogState, LogStatistics, WriteTimes, measure_sync,
};
pub use pando_engine::{LogEpoch, SessionLimit};
pub use persistence::{
    CheckReport, CheckpointFailure, CheckpointOptions, CloseError, DumpWriter, Loaded, Pace,
    RecoveryError, StreamError, check, expect_database, small_file,
};
pub use placing::{Mover, Placed};
pub use progress::{KeyWait, Progress, ReplicaWait, Slice, Slices, Wait};
pub use replication::{
    Acknowledged, CheckStep, CheckWish, CopyReason, Difference, Framer, Joiner, Position,
    REPLICATION_FORMAT, Replica, ReplicationError, Sent, Source, Told, Verdict,
};
pub use role::Refusal;
pub use session::Session;
pub use statistics::{MemcachedFigures, Statistics};
pub use turn::{Host, Turn};
