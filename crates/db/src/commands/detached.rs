//! Strings outside the engine: arguments on their way in, and values that outlive the moment in
//! which they were read.
//!
//! Closures of an update may run under a lock and more than once, and replies are written after
//! them. So a large argument is cut into chunks before the update. A closure takes out what it
//! needs without a deep copy: a short string is copied; a large one shares its chunks, which costs
//! O(1) and keeps them alive until the reply is written.

use std::borrow::Cow;
use std::ops::Range;

use pando_engine::limits::COLUMN_FLAT_BYTES_MAX;
use pando_engine::{Chunked, StringBody, StringRef};
use pando_protocol::Reply;

/// A string that no key holds.
#[derive(Debug)]
pub(crate) enum Detached<'a> {
    /// At most [`COLUMN_FLAT_BYTES_MAX`] bytes, or a value that happens to be flat.
    Flat(Cow<'a, [u8]>),
    /// The chunks of a large string.
    Chunked(Chunked),
}

impl Clone for Detached<'_> {
    /// O(1) if it is large.
    fn clone(&self) -> Self {
        match self {
            Self::Flat(bytes) => Self::Flat(bytes.clone()),
            Self::Chunked(chunked) => Self::Chunked(chunked.hand_over()),
        }
    }
}

impl<'a> Detached<'a> {
    /// A string to be stored. O(1) when short, else one copy.
    #[inline]
    pub(crate) fn new(bytes: impl Into<Cow<'a, [u8]>>) -> Self {
        let bytes = bytes.into();
        if bytes.len() <= COLUMN_FLAT_BYTES_MAX {
            Self::Flat(bytes)
        } else {
            Self::Chunked(Chunked::from_bytes(&bytes))
        }
    }

    /// A stored string, unchanged.
    pub(crate) fn take(string: StringRef<'_>) -> Self {
        match string {
            StringRef::Flat(bytes) => Self::Flat(Cow::Owned(bytes.to_vec())),
            StringRef::Chunked(chunked) => Self::Chunked(chunked.hand_over()),
        }
    }

    /// The string.
    pub(crate) fn as_ref(&self) -> StringRef<'_> {
        match self {
            Self::Flat(bytes) => StringRef::Flat(bytes),
            Self::Chunked(chunked) => StringRef::Chunked(chunked),
        }
    }

    /// The form that an update stores. O(1), however often it is called.
    #[inline]
    pub(crate) fn body(&self) -> StringBody<'_> {
        match self {
            Self::Flat(bytes) => StringBody::borrowed(bytes),
            Self::Chunked(chunked) => StringBody::Chunked(chunked.hand_over()),
        }
    }
}

/// Replies with a string, straight from where it is.
#[inline]
pub(crate) fn reply_bulk(reply: &mut Reply<'_>, string: StringRef<'_>) {
    match string {
        StringRef::Flat(bytes) => reply.bulk(bytes),
        StringRef::Chunked(_) => reply_bulk_range(reply, string, 0..string.len()),
    }
}

/// Replies with the bytes of `range`, which is within the string.
pub(crate) fn reply_bulk_range(reply: &mut Reply<'_>, string: StringRef<'_>, range: Range<usize>) {
    reply.bulk_begin(range.len());
    string.for_each_piece(range, |piece| reply.bulk_piece(piece));
    reply.bulk_end();
}
