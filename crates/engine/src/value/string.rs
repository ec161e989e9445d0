//! A string as a reader sees it, and the edits that make its next version.

use std::borrow::Cow;
use std::ops::{Deref, Range};

use super::Chunked;
use super::chunked::differing;
use crate::limits::COLUMN_FLAT_BYTES_MAX;

/// A string: one flat slice, or the chunks of a large column.
#[derive(Clone, Copy, Debug)]
pub enum StringRef<'a> {
    /// All bytes in one slice.
    Flat(&'a [u8]),
    /// A large column.
    Chunked(&'a Chunked),
}

/// A string to be stored, in one of its forms; a borrowed one is copied once, into the engine's
/// block.
#[derive(Debug)]
pub enum StringBody<'d> {
    /// A small one.
    Flat(FlatString<'d>),
    /// A large column.
    Chunked(Chunked),
}

/// A flat string to be stored, borrowed from the request or owned. At most
/// [`COLUMN_FLAT_BYTES_MAX`] bytes, since only [`StringBody`] makes it.
#[derive(Debug)]
pub struct FlatString<'d>(pub(crate) Cow<'d, [u8]>);

impl Deref for FlatString<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl<'d> StringBody<'d> {
    /// These bytes, in the form for their length (D1 smallest-form). O(1) when flat, else one copy.
    #[inline]
    #[must_use]
    pub fn borrowed(bytes: &'d [u8]) -> Self {
        if bytes.len() <= COLUMN_FLAT_BYTES_MAX {
            StringBody::Flat(FlatString(Cow::Borrowed(bytes)))
        } else {
            StringBody::Chunked(Chunked::from_bytes(bytes))
        }
    }

    /// These bytes, taken over.
    #[inline]
    #[must_use]
    pub fn owned(bytes: Vec<u8>) -> StringBody<'static> {
        if bytes.len() <= COLUMN_FLAT_BYTES_MAX {
            StringBody::Flat(FlatString(Cow::Owned(bytes)))
        } else {
            StringBody::Chunked(Chunked::from_bytes(&bytes))
        }
    }

    /// The same string, borrowing nothing and without spare capacity.
    pub(super) fn into_stored(self) -> StringBody<'static> {
        match self {
            StringBody::Flat(FlatString(bytes)) => {
                let mut bytes = bytes.into_owned();
                bytes.shrink_to_fit();
                StringBody::Flat(FlatString(Cow::Owned(bytes)))
            }
            StringBody::Chunked(column) => StringBody::Chunked(column),
        }
    }

    /// The string as a reader will see it.
    #[inline]
    #[must_use]
    pub fn as_ref(&self) -> StringRef<'_> {
        match self {
            StringBody::Flat(bytes) => StringRef::Flat(bytes),
            StringBody::Chunked(column) => StringRef::Chunked(column),
        }
    }
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

    /// The bytes of `range` in one slice: borrowed when they are in one piece, else copied.
    /// O(range) at most.
    #[must_use]
    pub fn slice(self, range: Range<usize>) -> Cow<'a, [u8]> {
        let length = range.len();
        let mut slice = Cow::Borrowed(&[][..]);
        self.for_each_piece(range, |piece| {
            if piece.len() == length {
                slice = Cow::Borrowed(piece);
            } else {
                let out = slice.to_mut();
                out.reserve_exact(length - out.len());
                out.extend_from_slice(piece);
            }
        });
        slice
    }

    /// All bytes: borrowed when flat, else copied.
    #[must_use]
    pub fn to_cow(self) -> Cow<'a, [u8]> {
        self.slice(0..self.len())
    }

    /// All bytes, if they are in one slice (short strings always are).
    #[must_use]
    pub fn as_flat(self) -> Option<&'a [u8]> {
        match self {
            StringRef::Flat(bytes) => Some(bytes),
            StringRef::Chunked(_) => None,
        }
    }

    /// The string with `bytes` written at `offset`; a gap before it is filled with zeros. For
    /// APPEND (`offset` = length), SETRANGE, SETBIT. O(length) when flat, O(log length + chunk +
    /// bytes) when chunked; bytes outside the written range are shared, not copied.
    #[must_use]
    pub fn with_write(self, offset: usize, bytes: &[u8]) -> StringBody<'static> {
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
                StringBody::owned(new)
            }
            StringRef::Flat(old) => {
                let mut new = Chunked::from_bytes(old);
                new.write(offset, bytes);
                StringBody::Chunked(new)
            }
            StringRef::Chunked(old) => StringBody::Chunked(old.with_write(offset, bytes)),
        }
    }

    /// Shows, in order, ranges outside of which this string equals `old`, up to the length of
    /// `old`; other bytes beyond that are zeros. Looks only at flat strings and at what the two do
    /// not share.
    pub fn changed_since(self, old: StringRef<'_>, mut visit: impl FnMut(Range<usize>)) {
        let chunked_old;
        let (new, old) = match (self, old) {
            (StringRef::Flat(new), StringRef::Flat(old)) => {
                let range = differing(new, old);
                let range = range.start.min(new.len())..range.end.min(new.len());
                if !range.is_empty() {
                    visit(range);
                }
                return;
            }
            (StringRef::Flat(new), StringRef::Chunked(_)) => return visit(0..new.len()),
            (StringRef::Chunked(new), StringRef::Chunked(old)) => (new, old),
            (StringRef::Chunked(new), StringRef::Flat(old)) => {
                chunked_old = Chunked::from_bytes(old);
                (new, &chunked_old)
            }
        };
        new.changed_since(old, &mut visit);
    }

    /// A copy that shares nothing with this string (COPY, RESTORE).
    #[must_use]
    pub fn to_body(self) -> StringBody<'static> {
        match self {
            StringRef::Flat(bytes) => StringBody::owned(bytes.to_vec()),
            StringRef::Chunked(chunked) => StringBody::Chunked(chunked.deep_copy()),
        }
    }

    /// The same string, handed over to the value that replaces it (D2 successors-share): RENAME, a
    /// new deadline. O(1) when chunked, else O(length).
    #[must_use]
    pub fn hand_over(self) -> StringBody<'static> {
        match self {
            StringRef::Flat(bytes) => StringBody::owned(bytes.to_vec()),
            StringRef::Chunked(chunked) => StringBody::Chunked(chunked.hand_over()),
        }
    }

    /// Heap bytes of the string. O(1).
    #[must_use]
    pub fn heap_bytes(self) -> usize {
        match self {
            StringRef::Flat(bytes) => bytes.len(),
            StringRef::Chunked(chunked) => chunked.heap_bytes(),
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Body, BodyRef};

    fn string_of<'b>(body: &'b Body<'_>) -> StringRef<'b> {
        match body.as_ref() {
            BodyRef::String(string) => string,
            BodyRef::Row(..) => panic!("a hash"),
        }
    }

    fn model(old: &[u8], offset: usize, bytes: &[u8]) -> Vec<u8> {
        let mut new = old.to_vec();
        new.resize(old.len().max(offset + bytes.len()), 0);
        new[offset..offset + bytes.len()].copy_from_slice(bytes);
        new
    }

    const ABOUT_THE_BOUND: Range<usize> = COLUMN_FLAT_BYTES_MAX - 9..COLUMN_FLAT_BYTES_MAX + 9;

    proptest! {
        #[test]
        fn writes_are_those_of_a_vector_on_both_sides_of_the_flat_bound(
            length in prop_oneof![0..30_usize, ABOUT_THE_BOUND],
            offset in prop_oneof![0..40_usize, ABOUT_THE_BOUND],
            written in 0..20_usize,
        ) {
            let old = vec![b'o'; length];
            let body = Body::string(&old);
            let new = string_of(&body).with_write(offset, &vec![b'n'; written]);
            let expected = model(&old, offset, &vec![b'n'; written]);
            let string = new.as_ref();
            prop_assert!(string == expected.as_slice());
            let chunked = length.max(offset + written) > COLUMN_FLAT_BYTES_MAX;
            prop_assert_eq!(string.as_flat().is_none(), chunked, "D1");
            prop_assert!(string_of(&body) == old.as_slice(), "the old version stays");
            let (from, to) = (expected.len() / 2, expected.len() - expected.len() / 5);
            prop_assert_eq!(&string.slice(from..to)[..], &expected[from..to]);
        }
    }

    #[test]
    fn a_slice_within_one_piece_is_borrowed() {
        let body = Body::string_owned((0..40_000).map(|at| at as u8).collect());
        let string = string_of(&body);
        assert!(
            matches!(string.slice(20_000..30_000), Cow::Borrowed(piece) if piece.len() == 10_000)
        );
        let across = string.slice(16_000..40_000);
        assert!(matches!(&across, Cow::Owned(bytes) if bytes.capacity() == 24_000));
        assert_eq!(across[384], 16_384_u32 as u8);
        assert!(string.slice(7..7).is_empty());
    }

    #[test]
    fn strings_are_compared_by_content() {
        let body = Body::string_owned(vec![1; 40_000]);
        let mut other = vec![1; 40_000];
        assert!(string_of(&body) == other.as_slice());
        other[39_999] = 2;
        assert!(string_of(&body) != other.as_slice());
        assert!(string_of(&body) != &other[..39_999]);
    }
}
