//! memcached's protocols: text (`get`, `set`, …) and meta (`mg`, `ms`, …).
//!
//! A request is a line of words and, after a storage command, a block of data. [`Decoder`] finds
//! both and returns ranges; [`Line`] reads them; [`Verb`] is the command. The types of
//! [`arguments`] and [`meta`] parse the words of a command, and return the error line when they are
//! invalid. [`Reply`] writes replies. [`datagram`] is the framing of UDP.
//!
//! Replies, errors included, are those of memcached 1.6.18; the server's differential test compares
//! them byte by byte. What later versions have added follows their documentation.
//!
//! Deliberately absent: SASL and the binary protocol, which memcached itself has abandoned;
//! `watch`, `slabs`, `lru` and `lru_crawler`, which concern memcached's own memory.

pub mod arguments;
mod base64;
pub mod datagram;
mod decode;
mod line;
pub mod meta;
pub mod number;
mod reply;

pub use decode::{DecodeError, Decoder, DecoderLimits};
pub use line::{Line, Verb};
pub use reply::Reply;

/// Longest key in bytes.
pub const KEY_BYTES_MAX: usize = 250;

/// Error lines, without their ends.
pub mod error {
    /// No such command, or the wrong number of words for it.
    pub const ERROR: &str = "ERROR";
    /// A key or a number is out of bounds.
    pub const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
    /// The data are not followed by a line end.
    pub const BAD_DATA: &str = "CLIENT_ERROR bad data chunk";
    /// A third word of `delete` that is not 0.
    pub const BAD_DELETE: &str =
        "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";
    /// An expiry time that is no number.
    pub const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument";
    /// A delta that is no number.
    pub const BAD_DELTA: &str = "CLIENT_ERROR invalid numeric delta argument";
    /// `incr` and `decr` on something that is not a number.
    pub const NON_NUMERIC: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";
    /// An item above the limit.
    pub const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";
    /// No memory is left for an item.
    pub const OUT_OF_MEMORY: &str = "SERVER_ERROR out of memory storing object";
    /// No memory is left for a number that has become longer.
    pub const NO_MEMORY_FOR_NUMBER: &str = "SERVER_ERROR out of memory";
    /// No memory is left for an item that `ma` makes.
    pub const NO_MEMORY_FOR_NEW: &str = "SERVER_ERROR Out of memory allocating new item";
    /// The value at the key is a hash.
    pub const IS_A_HASH: &str =
        "SERVER_ERROR the value is a hash, which memcached commands do not read";
    /// A password is required.
    pub const UNAUTHENTICATED: &str = "CLIENT_ERROR unauthenticated";
    /// The data of an item from an unauthenticated client are not a user and a password.
    pub const BAD_AUTHENTICATION: &str = "CLIENT_ERROR bad authentication token format";
    /// The user and the password are not followed by a line end.
    pub const BAD_TERMINATION: &str = "CLIENT_ERROR bad command line termination";
    /// The password is wrong.
    pub const AUTHENTICATION_FAILED: &str = "CLIENT_ERROR authentication failure";
    /// The reply is too long.
    pub const REPLY_TOO_LARGE: &str = "SERVER_ERROR reply too large";
    /// The server does not execute this now.
    pub const PAUSED: &str = "SERVER_ERROR the server pauses";
    /// `stats detail` without a word that it knows.
    pub const BAD_DETAIL: &str = "CLIENT_ERROR usage: stats detail on|off|dump";
    /// `stats cachedump` without its numbers.
    pub const BAD_CACHEDUMP: &str = "CLIENT_ERROR bad command line";
    /// `stats cachedump` of a class that memcached does not have.
    pub const BAD_CLASS: &str = "CLIENT_ERROR Illegal slab id";
    /// A client of the binary protocol.
    pub const BINARY: &str = "CLIENT_ERROR the binary protocol is not spoken here";
    /// A line of many keys that does not end within its bound.
    pub const LINE_TOO_LONG: &str = "CLIENT_ERROR line too long";
}
