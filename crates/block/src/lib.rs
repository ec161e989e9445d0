//! Value blocks: one memory block per value, with a header common to all engines and the value's
//! part of the key (the Masstree paper's §4.7; Mercury's pairs, its §2.1).
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | version |
//! | 8 | 4 | meta: form (3 bits), deadline, extras, long, external (1 bit each), length of the key part (7), of the body (12), access mark (6) |
//! | 12 | 8 | length of the key part and of the body, 4 bytes each, when *long* |
//! | … | 8 | deadline, when there is one |
//! | … | 2 to 14 | extras: which of them there are (1), then flags (4), encoding (1), cas token (8) |
//! | … | n or 8 | the key part, or a pointer to it when *external* (see [`KeyPart`]) |
//! | … | n | the body: bytes, a packed row, or (aligned to 8) a [`Chunked`] or [`WideRow`] |
//!
//! The key part is what the engine does not know of a key otherwise: the whole key in a hash table,
//! what follows the entry's slice in a Masstree. A plain 8-byte value takes 28 bytes with a key of
//! eight, 22 with two bytes of a longer one.
//!
//! Type and form are independent. A form that serves one type implies it: a flat or chunked body is
//! a string, a packed or wide row a hash. A further type that shares one of these forms is named in
//! bits 3 to 5 of the extras' first byte, so strings and hashes pay nothing for it. Two form
//! numbers are free (6 is poison).
//!
//! Invariants:
//! - **VB1 immutable-block** A published block is immutable except for its access mark, a hint in a
//!   word that is only accessed as an atomic. A change publishes a new block and retires the old
//!   one. Readers pinned before that may go on reading the old one. The one exception: a session
//!   that is alone (R4 alone of the sync crate), so that nobody reads any block, takes a large row
//!   out of its block to change it ([`BlockRef::lend`]). What is left there is an empty row, in a
//!   block that nobody finds any more before others are pinned again. Or it puts a value into the
//!   block of one that is as long ([`BlockRef::overwrite`]).
//! - **VB2 one-owner** Every body and every external key part is owned by exactly one block that is
//!   not retired, or by retired blocks only. A successor takes them over bit by bit; the retired
//!   predecessor is then reclaimed without them ([`Keep`]). Readers of the predecessor were pinned
//!   before the successor existed, hence until after it could be reclaimed.
//!
//! Holding a [`BlockRef`] gives the right to read it. Only unsafe code that knows a live block
//! makes one, and only unsafe code that knows nobody can reach it reclaims one.
//!
//! Deliberately absent: where blocks are linked from, expiry, columns (the engine crate's rows).
//!
//! [`Chunked`]: pando_engine::Chunked
//! [`WideRow`]: pando_engine::WideRow

mod block;
mod key;
mod layout;

pub use block::{BlockRef, Keep, KeyPartRef, Reclaimer, ShortValue};
pub use key::{INLINE_BYTES_MAX, KeyPart};
pub use layout::HEADER_BYTES;
