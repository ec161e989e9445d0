//! The language of clients: requests, replies and the command table.
//!
//! ```
//! use pando_protocol::{Decoded, Decoder, Reply, Request, RespVersion};
//!
//! let mut input = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".to_vec();
//! let mut ranges = Vec::new();
//! let decoded = Decoder::default().next(&mut input, 0, &mut ranges)?;
//! assert_eq!(decoded, Decoded::Request { arguments: 2, end: 20 });
//! let request = Request::new(&input, &ranges);
//! assert_eq!((request.arg(0), request.arg(1)), (&b"GET"[..], &b"k"[..]));
//!
//! let mut out = Vec::new();
//! Reply::new(&mut out, RespVersion::Resp2).bulk("v");
//! assert_eq!(out, b"$1\r\nv\r\n");
//! # Ok::<(), pando_protocol::ProtocolError>(())
//! ```
//!
//! Deliberately absent: I/O and engines. A decoder gets bytes and returns ranges in them; an
//! encoder appends to a buffer.

#![forbid(unsafe_code)]

pub mod command;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod limits;
pub mod memcached;
pub mod number;
pub mod pattern;
pub mod reply;
mod request;
pub mod resp;

pub use reply::{Reply, RespVersion};
pub use request::{ArgumentRange, Request, RequestBuffer};
pub use resp::{Decoded, Decoder, DecoderLimits, ProtocolError, ReplyError, Value, ValueDecoder};
