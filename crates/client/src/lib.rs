//! Spreads keys over many servers: the rings and clients of Tembo.
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
//! A [`Client`], or an [`AsyncClient`] on tokio, follows the ring. Its requests go to the servers
//! of their keys' nodes, batches to all at once. What fails is told apart: a node, and with it all
//! its keys for now, or one request on one key ([`Error::is_of_node`]).
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use pando_client::{Client, Options, Ring};
//!
//! let ring = Arc::new(Ring::load("ring.toml")?);
//! let mut client = Client::new(ring, Options::default());
//! client.set("{cart7}:items", "3")?;
//! assert_eq!(client.get("{cart7}:items")?.as_deref(), Some(&b"3"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A node that fails keeps its keys: they are in its log and on its replicas, and nowhere else. No
//! key is sent to another node instead. When a replica takes a primary's place, the ring's file
//! gets its address, and [`Client::readdress`] takes the new file.
//!
//! When a ring changes so that keys move, `pando reshard` moves them while clients go on. A server
//! refuses a key that is not its own, and says where it is: the request is sent there. So clients
//! take the new ring one after the other ([`Client::replace_ring`]).
//!
//! Deliberately absent: TLS, which the servers do not speak; a server of rings. A ring is a file
//! that all clients have alike. A change of addresses may reach them one after the other; a change
//! of names or weights moves keys.

#![forbid(unsafe_code)]

#[cfg(feature = "async")]
mod asynchronous;
mod blocking;
mod error;
pub mod limits;
mod options;
mod request;
mod routes;

#[cfg(feature = "async")]
pub use asynchronous::AsyncClient;
pub use blocking::Client;
pub use error::Error;
pub use options::{Options, ReadFrom};
pub use pando_ring::{Address, Node, Ring, RingError, Scheme};
/// The crate whose commands, values and errors this one's are.
pub use redis;
pub use request::Request;
