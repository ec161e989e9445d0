//! Spreads keys over many servers: the rings of Tembo.
//!
//! A [`Ring`] gives every key one of its nodes, by the node's *name*. Follows Venkataraman et al.,
//! "Consistent and Durable Data Structures for Non-Volatile Byte-Addressable Memory" (FAST 2011),
//! §3.5: clients spread keys by consistent hashing. Weighted rendezvous hashing is the default;
//! [`Scheme`] says when to take which.
//!
//! ```
//! use pando_client::Ring;
//!
//! let ring = Ring::from_toml(
//!     r#"
//!     scheme = "rendezvous"                # the default; or "ketama"
//!     tags = true                          # the default: of `{cart7}:items`, `cart7` is hashed
//!
//!     [[node]]
//!     name = "oak"                         # decides on keys, for ever
//!     address = "10.0.0.1:6379"            # or "[::1]:6379", or "unix:/run/pando.sock"
//!     replicas = ["10.0.0.2:6379"]         # for reads
//!
//!     [[node]]
//!     name = "ash"
//!     address = "10.0.0.3:6379"
//!     weight = 2                           # of all keys, 2 in 3
//!     "#,
//! )?;
//! assert_eq!(ring.node_of(b"{cart7}:items"), ring.node_of(b"cart7"));
//! # Ok::<(), pando_client::RingError>(())
//! ```
//!
//! Deliberately absent: a server of rings. A ring is a file that all clients have alike. A change
//! of addresses may reach them one after the other; a change of names or weights moves keys.

#![forbid(unsafe_code)]

mod error;
pub mod limits;
mod ring;

pub use error::RingError;
pub use ring::{Address, Node, Ring, Scheme};
