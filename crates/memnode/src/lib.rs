//! A memnode: slots of bytes, and minitransactions over them.
//!
//! Follows Sinfonia as Aguilera, Golab and Shah, "A Practical Scalable Distributed B-Tree" and
//! "Minuet: A Scalable Distributed Multiversion B-Tree" (VLDB 2012) use it, §2.1. A memnode is a
//! deterministic state machine: it takes a [`Request`] and gives [`Reply`]s, and it knows no clock,
//! no network and no randomness. So one process may hold all memnodes, a simulator may run them
//! under any order of messages, and a cluster may replicate one by replaying its requests.
//!
//! Where we depart from the paper:
//! - What a minitransaction touches are slots, not ranges of bytes. A slot has a [`Sequence`],
//!   which increases with each write, over free and reuse too; so a comparison of sequences is one
//!   of contents, and an [`Address`] names one use of a slot (`allocator`).
//! - Minitransactions that only read, over several memnodes, take no locks and leave no trace. Who
//!   reads compares once more after all reads (`minitransaction`).
//! - There is no recovery coordinator. Whoever meets a lock may settle its holder (`ledger`).
//!
//! ```
//! use pando_memnode::{
//!     CoordinatorId, Items, Limits, Memnode, MinitransactionId, Outcome, Reply, Request, Slot,
//!     Write,
//! };
//!
//! let mut memnode = Memnode::new(Limits::default());
//! let id = MinitransactionId { coordinator: CoordinatorId(1), number: 1 };
//! let mut items = Items::default();
//! items.writes.push(Write::Whole(Slot(7), b"seven".as_slice().into()));
//! let mut replies = Vec::new();
//! memnode.handle(0, Request::Execute { id, settled: 1, items, wait: 0 }, &mut replies);
//! assert!(matches!(replies[0].1, Reply::Outcome(Outcome::Done(_))));
//! assert_eq!(&*memnode.slot(Slot(7)).bytes, b"seven");
//! ```

#![forbid(unsafe_code)]

mod address;
mod allocator;
mod ledger;
pub mod limits;
mod locks;
mod memnode;
mod message;
mod minitransaction;
mod slots;
#[cfg(test)]
mod tests;

pub use address::{Address, CoordinatorId, MemnodeId, MinitransactionId, Sequence, Slot};
pub use limits::Limits;
pub use memnode::Memnode;
pub use message::{InDoubt, Outcome, Reply, Request, Standing};
pub use minitransaction::{Bytes, Compare, Items, Piece, Write};
pub use slots::{Beside, Latch, Seen, SlotState};
