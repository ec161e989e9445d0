//! Masstree: one shared tree for all cores.
//!
//! A trie with fanout 2^64 whose nodes are B+-trees, after "Cache Craftiness for Fast Multicore
//! Key-Value Storage" (Mao, Kohler, Morris, `EuroSys` 2012). Reads take no lock and write no shared
//! memory; writers lock the border node that they change, and its ancestors when it splits or goes.
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
//! Not of the paper: `boundaries` and `sample` (parts of a tree for checkpoints, random keys),
//! `relocate` (values leave memory that is to go back to the system). Each departure from the paper
//! is said, with its reason, in the module where it happens; the invariants M1 reachable-lives to
//! M7 slot-reuse-marked stand in `node`.
//!
//! Memory that was replaced or removed waits for the pins of readers (§4.6.1) and is bounded by
//! [`Options::retired_bytes_max`], large values counted with what they do not share with their
//! successors. The engine collects at the end of pins and says how close the bound is
//! (`Engine::pressure`); whoever feeds it writes collects, slows writers and then refuses writes.
//! Reads go on, so a stalled reader costs at most the bound and what one batch of every session
//! replaces beyond it.
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
