//! Rings: which of many servers has which key, and how one ring takes another's place.
//!
//! A [`Ring`] gives every key one of its nodes, by the node's *name*. Follows Venkataraman et al.,
//! "Consistent and Durable Data Structures for Non-Volatile Byte-Addressable Memory" (FAST 2011),
//! §3.5: keys are spread by consistent hashing. Weighted rendezvous hashing is the default;
//! [`Scheme`] says when to take which.
//!
//! ```
//! let ring = pando_ring::Ring::from_toml(
//!     r#"
//!     [[node]]
//!     name = "oak"
//!     address = "10.0.0.1:6379"
//!     [[node]]
//!     name = "ash"
//!     address = "10.0.0.3:6379"
//!     "#,
//! )?;
//! assert_eq!(ring.node_of(b"{cart7}:items"), ring.node_of(b"cart7"));
//! # Ok::<(), pando_ring::RingError>(())
//! ```
//!
//! A [`Placement`] is what one server knows while the keys of a changed ring move: both rings, its
//! own name, and which ranges of keys have been handed over.
//!
//! Deliberately absent: sockets, servers, moving anything.

#![forbid(unsafe_code)]

mod address;
mod error;
mod file;
mod ketama;
pub mod limits;
mod placement;
mod rendezvous;
mod ring;
mod tag;

pub use address::Address;
pub use error::RingError;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub use placement::fuzz;
pub use placement::{Begun, PLACEMENT_BYTES_MAX, Placement, PlacementError, RangeState, Verdict};
pub use ring::{Node, Ring, Scheme};
