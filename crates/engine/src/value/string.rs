//! A string as a reader sees it, and the edits that make the next version of it.

use std::borrow::Cow;
use std::ops::Range;

use super::{Body, Chunked};
use crate::limits::COLUMN_FLAT_BYTES_MAX;

/// A string: one flat slice, or the chunks of a large column.
#[derive(Clone, Copy, Debug)]
pub enum StringRef<'a> {
    /// All bytes in one slice.
    Flat(&'a [u8]),
    /// A large column.
    Chunked(&'a Chunked),
}

impl<'a> StringRef<'a> {
    /// Length in bytes. O(1).
    #[must_use]
    pub fn len(self) -> usize {
        match self {
            StringRef::Flat(bytes) => bytes.len(),
            StringRef::Chunked(chunked) => chunked.len(),
        }
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Shows the bytes of `range` (within the length) piece by piece. O(range).
    pub fn for_each_piece(self, range: Range<usize>, mut visit: impl FnMut(&'a [u8])) {
        match self {
            StringRef::Flat(bytes) => {
                if !range.is_empty() {
                    visit(&bytes[range]);
                }
            }
            StringRef::Chunked(chunked) => chunked.for_each_piece(range, visit),
        }
    }

    /// The bytes of `range` in one slice: borrowed when flat, else copied. O(range) at most.
    #[must_use]
    pub fn slice(self, range: Range<usize>) -> Cow<'a, [u8]> {
        match self {
            StringRef::Flat(bytes) => Cow::Borrowed(&bytes[range]),
            StringRef::Chunked(_) => {
                let mut out = Vec::with_capacity(range.len());
                self.for_each_piece(range, |piece| out.extend_from_slice(piece));
                Cow::Owned(out)
            }
        }
    }

    /// All bytes: borrowed when flat, else copied.
    #[must_use]
    pub fn to_cow(self) -> Cow<'a, [u8]> {
        self.slice(0..self.len())
    }

    /// All bytes when they lie in one slice (short strings always do).
    #[must_use]
    pub fn as_flat(self) -> Option<&'a [u8]> {
        match self {
            StringRef::Flat(bytes) => Some(bytes),
            StringRef::Chunked(_) => None,
        }
    }

    /// The string with `bytes` written at `offset`, a gap before it filled with zeros: APPEND
    /// (`offset` = length), SETRANGE, SETBIT. O(length) when flat, O(log length + chunk + bytes)
    /// when chunked; bytes outside the written range are shared, not copied.
    #[must_use]
    pub fn with_write(self, offset: usize, bytes: &[u8]) -> Body<'static> {
        let end = offset + bytes.len();
        match self {
            StringRef::Flat(old) if end.max(old.len()) <= COLUMN_FLAT_BYTES_MAX => {
                let mut new = Vec::with_capacity(end.max(old.len()));
                new.extend_from_slice(&old[..offset.min(old.len())]);
                new.resize(offset, 0);
                new.extend_from_slice(bytes);
                if end < old.len() {
                    new.extend_from_slice(&old[end..]);
                }
                Body::Owned(new)
            }
            StringRef::Flat(old) => {
                Body::Chunked(Chunked::from_bytes(old).with_write(offset, bytes))
            }
            StringRef::Chunked(old) => Body::Chunked(old.with_write(offset, bytes)),
        }
    }

    /// A copy that shares nothing with this string (COPY, RESTORE).
    #[must_use]
    pub fn to_body(self) -> Body<'static> {
        match self {
            StringRef::Flat(bytes) => Body::Owned(bytes.to_vec()),
            StringRef::Chunked(chunked) => Body::Chunked(chunked.deep_copy()),
        }
    }
}

impl PartialEq<&[u8]> for StringRef<'_> {
    fn eq(&self, other: &&[u8]) -> bool {
        if self.len() != other.len() {
            return false;
        }
        let (mut rest, mut equal) = (*other, true);
        self.for_each_piece(0..self.len(), |piece| {
            let (head, tail) = rest.split_at(piece.len());
            equal &= head == piece;
            rest = tail;
        });
        equal
    }
}
