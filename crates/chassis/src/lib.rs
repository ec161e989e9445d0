//! The chassis of engines whose sessions share trees in memory: everything that does not depend on
//! how a tree finds its keys.
//!
//! | module | what it is |
//! |---|---|
//! | [`Shared`] | reclamation epochs, memory and counters, one of each per engine |
//! | [`Context`] | a session's part of these: its pins, its pool, its counters |
//! | [`KeyCounts`] | how many keys and tombstones a tree has |
//! | [`Graves`] | tombstones that wait for the horizon |
//! | [`Snapshots`] | the list of snapshots, and the shadow trees that hold their images |
//! | [`DroppedTrees`] | trees that wait for readers before their memory is freed |
//! | [`counters!`], [`canary!`] | what an engine counts, and the faults that its tests plant |
//!
//! An engine is a directory of trees, a [`Shared`] and its own deferred work. Its session is a
//! [`Context`] and whatever it remembers between calls. Everything on an operation's path is
//! generic or inlined, so it costs what it would if each engine had its own.
//!
//! Deliberately absent: nodes, tables, and anything else that locates a key.

mod canary;
mod context;
mod counters;
mod dropped;
mod graves;
mod shared;
mod snapshots;
mod tree;

pub use canary::Planted;
pub use context::{Context, maintain_some};
pub use counters::{Counter, CounterSet};
pub use dropped::{DroppedTrees, Freed};
pub use graves::{Buried, Graves};
pub use shared::Shared;
pub use snapshots::{Frozen, SnapshotFault, Snapshots};
pub use tree::{KeyCounts, KeySums};
