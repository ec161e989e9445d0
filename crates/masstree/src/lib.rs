//! Masstree: one shared tree for all cores.
//!
//! A trie with fanout 2^64 whose nodes are B+-trees, after "Cache Craftiness for Fast Multicore
//! Key-Value Storage" (Mao, Kohler, Morris, `EuroSys` 2012). Reads take no lock and write no shared
//! memory. Writers lock the border node that they change, and its ancestors when it splits or is
//! removed.
//!
//! | section of the paper | here |
//! |---|---|
//! | 3 get, put, remove, getrange | `get`, `update`, `scan`; what a command calls: `session` |
//! | 4.1 overview: layers, the three invariants, balance | `layer`, `slice` |
//! | 4.2 layout: nodes, slices, suffixes, prefetching | `node`, `slice`; `pando_block`, `pando_sync::prefetch` |
//! | 4.3 nonconcurrent modification | `split` (sequential inserts), `remove`, the list of `node` |
//! | 4.4 concurrency: no lost keys | `find` (why), `models`, `schedules`, `tests::stress` (that) |
//! | 4.5 writer–writer coordination, figures 3 and 4 | `pando_sync::version_lock`, `update`, M6 locks-upward in `node` |
//! | 4.6.1 updates | `update`; epochs: `pando_sync::epoch` |
//! | 4.6.2 border inserts | `permutation`, `update` |
//! | 4.6.3 new layers | `layer` |
//! | 4.6.4 splits, figures 5, 6, 7; stale roots | `split`, `find`, `get`, `layer` |
//! | 4.6.5 removes; cleaning up layers | `remove`, `task` |
//! | 4.7 values | `pando_block`; columns: `pando_engine` |
//! | 4.8 search within nodes, parallel lookup | `node`; `batch`, `recall` |
//! | 5 recovery | `pack` |
//! | 6.2 memory on superpages | `pando_memory::pool` |
//!
//! Not in the paper: `boundaries` and `sample` (parts of a tree for checkpoints, random keys),
//! `relocate` (values move out of memory that is to return to the system). Each departure from the
//! paper is stated, with its reason, in the module where it happens. Invariants M1 reachable-lives
//! to M8 changed-alone are in `node`.
//!
//! Memory that was replaced or removed waits for the pins of readers (§4.6.1). It is bounded by
//! [`Options::retired_bytes_max`]; large values count with what they do not share with their
//! successors. The engine collects when pins end and reports how close the bound is
//! (`Engine::pressure`). Its user then collects, slows down writers and finally refuses writes.
//! Reads continue, so a stalled reader costs at most the bound plus what one batch of every session
//! replaces beyond it.
//!
//! ```
//! use std::ops::{Bound, ControlFlow};
//! use std::sync::Arc;
//!
//! use pando_engine::{
//!     Body, Decision, Direction, Engine, EpochClock, Key, NewValue, NoHook, Ordered, Point,
//! };
//! use pando_masstree::Masstree;
//!
//! let engine = Masstree::new(Arc::new(EpochClock::self_driven()));
//! let (tree, mut session) = (engine.create_tree(), engine.session()?);
//! for key in [b"pear", b"plum", b"fig2"] {
//!     session.update(Key::new(tree, key), &mut NoHook, |_old| {
//!         Decision::Write(NewValue::new(Body::string(b"fruit")))
//!     });
//! }
//! let mut keys = Vec::new();
//! session.scan(tree, Bound::Included(b"p"), Direction::Forward, |key, _value| {
//!     keys.push(key.to_vec());
//!     ControlFlow::Continue(())
//! });
//! assert_eq!(keys, [b"pear", b"plum"]);
//! # Ok::<(), pando_engine::SessionLimit>(())
//! ```
//!
//! Deliberately absent: logging, expiry, multi-key atomicity, rebalancing (§4.6.5 does without
//! too).

mod batch;
mod boundaries;
mod canary;
mod context;
mod counters;
mod engine;
mod find;
mod get;
mod layer;
pub mod limits;
mod node;
mod pack;
mod permutation;
mod recall;
mod relocate;
mod remove;
mod sample;
mod scan;
mod session;
mod slice;
mod snapshot;
mod split;
mod task;
mod tree;
mod update;

pub use engine::{Masstree, Options};
pub use pando_memory::pool::Pages;
pub use session::MasstreeSession;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, shuttle))]
mod schedules;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
#[cfg(all(test, any(loom, shuttle)))]
mod world;
