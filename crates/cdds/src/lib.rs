//! A versioned B-tree in persistent memory, changed in place without a log: the CDDS B-tree.
//!
//! Follows Venkataraman et al., "Consistent and Durable Data Structures for Non-Volatile
//! Byte-Addressable Memory" (FAST 2011), §3.2 and §3.3, on a [`pando_pmem::Pool`]. Every entry has
//! the epochs in which it began and ended. An epoch holds any number of changes and is committed by
//! one word; what a crash leaves of an epoch that was not committed is void, so recovery takes the
//! same time for a tree of any size.
//!
//! ```
//! use std::sync::Arc;
//! use pando_cdds::{Tree, limits};
//! use pando_pmem::{Pool, Shape, Simulated};
//!
//! let memory = Simulated::new(1 << 20);
//! let shape = Shape::with_nodes(limits::node_bytes(limits::ENTRIES));
//! let pool = Arc::new(Pool::create(memory, shape).unwrap());
//! let mut tree = Tree::open(pool).unwrap();
//! tree.put(b"tree", b"pando").unwrap();
//! tree.commit().unwrap();
//! let then = tree.retain().unwrap();
//! tree.put(b"tree", b"aspen").unwrap();
//! assert_eq!(tree.get(b"tree").unwrap(), Some(&b"aspen"[..]));
//! assert_eq!(tree.get_at(then, b"tree").unwrap(), Some(&b"pando"[..]));
//! // Of another thread, while this one goes on.
//! let mut reader = tree.reader().unwrap();
//! let is_aspen = reader.get(b"tree", |value| value == Some(b"aspen"));
//! assert!(is_aspen.unwrap());
//! ```
//!
//! Where this departs from the paper, or fills what it leaves open:
//!
//! - An epoch is not an operation: many changes share one commit (§3.2.1 has one each). An entry
//!   that began in the open epoch may change in place, since no other view can see it.
//! - Nodes are not sorted (§3.3.1 names both layouts): no entry that a committed epoch needs is
//!   ever moved. The binary search of Algorithm 1, which loses keys as printed, has no counterpart.
//! - Keys and values of any length are in records outside of the nodes. A leaf has the first eight
//!   bytes of each key, and one byte of its hash in a line of its own, so that a look-up reads two
//!   lines. The nodes above have the first 32 bytes of each separator.
//! - Of nodes above the leaves DRAM has a sorted copy, made when it is missed (`frame.rs`).
//! - A separator is the lowest key of its subtree, not the highest.
//! - The root is an entry of the *anchor*, a node that never moves. A change of the root ends one
//!   entry and begins another (§3.3 leaves the root out).
//! - A node that is copied is freed in the epoch of the copy. Its entries are not ended one by one
//!   (Algorithm 2, lines 41 and 42): its parent's entry is, which costs one line.
//! - Splits and merges are one mechanism: what is live in a node, or in a node and its sibling, is
//!   spread over one new node, or two if it is more than 4/5 of one. Copying from a sibling, whose
//!   steps §3.3.3 leaves out, is the case of a merge that makes two.
//! - An inner node keeps at least two live entries, where a fifth of the entries would be one:
//!   the paper's bound of the height, to the base of k/5, is none for k below ten.
//! - A slot is used again when its end is committed and no snapshot sees it, or when it began and
//!   ended in the open epoch. Allocation is `pando-pmem`'s.
//!
//! [`Table`] is the paper's second structure, a hash table.
//!
//! [`Cdds`] is the same behind the contract of all engines (`pando-engine`).
//!
//! Any number of threads read beside writers, each with a [`Reader`], without a lock. Writers of an
//! engine change different leaves at the same time, and split them (`leaf.rs`); merges and commits
//! have the tree for themselves.
//!
//! The paper's layout, with entries in order, is there to be measured (`sorted.rs`, feature
//! `sorted-nodes`).

mod ahead;
mod alike;
mod canary;
mod change;
mod check;
mod clean;
mod compact;
mod engine;
mod frame;
mod group;
mod hash;
mod latch;
mod leaf;
pub mod limits;
mod node;
mod pick;
mod probe;
mod reader;
mod record;
mod scan;
mod seal;
mod shared;
#[cfg(any(test, feature = "sorted-nodes"))]
mod sorted;
#[cfg(test)]
mod tests;
mod tree;

pub use check::{Disorder, Report};
#[cfg(feature = "simulated-memory")]
pub use pando_pmem::{Crash, Mark, Platform, Sampling, Simulated, Trace};

pub use engine::{Cdds, CddsSession, FileMedium, KeptSnapshot, Listed, NamesRead, Options, Place};
pub use hash::{Table, TableReader};
pub use pando_pmem::Protection;
pub use reader::Reader;
pub use scan::Direction;
#[cfg(any(test, feature = "sorted-nodes"))]
pub use sorted::SortedTree;
pub use tree::{Error, Snapshot, Tree};
