//! The language of clients: requests, replies and the command table.
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
