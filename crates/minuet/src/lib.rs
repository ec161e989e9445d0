//! Minuet: serializable transactions, snapshots and branches on one B-tree over many memnodes.
//!
//! Follows Sowell, Golab and Shah, "Minuet: A Scalable Distributed Multiversion B-Tree" (VLDB
//! 2012). This crate is what the paper calls a proxy, without I/O, clock, threads or randomness.
//!
//! | module | paper | what it does |
//! |---|---|---|
//! | `transport`, `traffic` | Figure 1 | the way to memnodes, wherever they are; what goes there, counted |
//! | `proxy` | Figure 1, §2.3 | what transactions share: requests under way, cached nodes |
//! | `transaction`, `job` | §2.2, §3 | dynamic transactions with dirty reads, and their commits |
//! | `page`, `tree` | §2.3, §3, §4.1, §4.2 | nodes, and the operations on them |
//! | `snapshot`, `service` | §4 | the tip, views, and who may share a snapshot |
//! | `engine` | | all of it in one process, behind the contract of Pando's engines |
//! | `branch`, `line`, `lineage`, `catalog` | §5 | branches, where they begin, which version comes from which |
//! | `retention`, `lease`, `live`, `collect` | §4.4 | which snapshots stay, and freeing what no version has |
//!
//! A [`Program`] is a function of a [`Transaction`]. It runs as often as it must, and counts once:
//!
//! ```
//! use pando_memnode::{CoordinatorId, Limits};
//! use pando_minuet::{Config, Database, Embedded, TreeId};
//!
//! let memnodes = Embedded::new(2, Limits::default());
//! let config = Config { memnodes: 2, ..Config::default() };
//! let mut database = Database::found(CoordinatorId(1), config, memnodes).unwrap();
//! let (rows, index) = (TreeId(1), TreeId(2));
//! database
//!     .run(|transaction| {
//!         let tip = transaction.tip()?;
//!         rows.put(transaction, tip, b"ada", b"lovelace")?;
//!         index.put(transaction, tip, b"lovelace", b"ada")
//!     })
//!     .unwrap();
//! let read = database.run(|transaction| {
//!     let tip = transaction.tip()?;
//!     rows.get(transaction, tip, b"ada")
//! });
//! assert_eq!(read.unwrap().value.as_deref(), Some(&b"lovelace"[..]));
//! ```
//!
//! A branch is a tip of its own. Nothing of it is seen elsewhere until it is merged:
//!
//! ```
//! # use pando_memnode::{CoordinatorId, Limits};
//! # use pando_minuet::{Config, Database, Embedded, TreeId};
//! use pando_minuet::{BranchId, Merge, OnConflict, Origin};
//! # let memnodes = Embedded::new(1, Limits::default());
//! # let mut database = Database::found(CoordinatorId(1), Config::default(), memnodes).unwrap();
//! let prices = TreeId(1);
//! let trial = database
//!     .run(|transaction| {
//!         let main = transaction.branch(b"main")?;
//!         transaction.create_branch(b"trial", Origin::Branch(main), 4)
//!     })
//!     .unwrap();
//! database
//!     .run(|transaction| {
//!         let tip = transaction.tip_of(trial)?;
//!         prices.put(transaction, tip, b"price:7", b"12")
//!     })
//!     .unwrap();
//! let merged = database.run(|transaction| {
//!     let theirs = transaction.tip_of(trial)?;
//!     let into = transaction.tip_of(BranchId::FIRST)?;
//!     let merge = Merge {
//!         base: transaction.parting(theirs, into)?,
//!         theirs,
//!         into,
//!         tree: None,
//!         on_conflict: OnConflict::Fail,
//!         dry_run: false,
//!     };
//!     merge.run(transaction)
//! });
//! assert_eq!(merged.unwrap().keys.len(), 1);
//! database.run(|transaction| transaction.drop_branch(b"trial")).unwrap();
//! ```

#![forbid(unsafe_code)]

mod branch;
mod catalog;
mod collect;
mod database;
pub mod engine;
mod error;
mod fault;
mod job;
mod lease;
pub mod limits;
mod line;
mod lineage;
mod live;
mod page;
mod patience;
mod proxy;
mod retention;
mod service;
#[cfg(any(test, feature = "simulator"))]
pub mod simulator;
mod snapshot;
#[cfg(test)]
mod tests;
mod traffic;
mod transaction;
mod transport;
mod tree;

pub use branch::{Branch, BranchId, Origin};
pub use collect::{Collected, Collector, Done, Step};
pub use database::Database;
pub use error::{Error, Stop};
pub use job::{Ended, Job, Program};
pub use lease::{Lease, LeaseId};
pub use limits::{Config, InnerNodes};
pub use proxy::{JobId, Proxy};
pub use retention::Kept;
pub use service::{SnapshotService, Wanted};
pub use snapshot::{FIXED_SLOTS, SnapshotId, View};
pub use traffic::Traffic;
pub use transaction::Transaction;
pub use transport::{Embedded, Outbox, Ticket, Transport};
pub use tree::{
    Change, Diffed, Entry, Merge, Merged, MergedKey, OnConflict, Probe, Scanned, TreeId,
    create_snapshot, create_snapshot_of, found,
};
