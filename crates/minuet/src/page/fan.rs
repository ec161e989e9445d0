//! An inner node as a search wants it: its *fan*, made of its page when it is first searched.
//!
//! What a search reads of a page lies on many lines, and each waits for the one before. A fan has
//! the hints side by side, and the addresses of children, with the place of each one's bytes: so a
//! child's slot and its bytes are asked for at the same time.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 2 | number of children |
//! | 2 | 2 | bytes that the node's fences share |
//! | 4 | 2 | bytes that the keys of all children but the first share after these |
//! | 6 | 2 | the height of the node |
//! | 8 | 16 | these bytes |
//! | 24 | | four bytes for each child but the first: the hint of what its key has after these |
//! | | | 24 bytes for each child: its address (18), and where its bytes were when the fan was made |
//!
//! Where hints are the same, a fan does not know, and the page is searched.

use std::ops::Deref;
use std::ptr;

use pando_memnode::{Address, Bytes};

use super::search::first_from;
use super::{
    ADDRESS_BYTES, HINT_BYTES, Page, decode_address, encode_address, hint_of, u16_at, u64_at,
};

const SKIP: usize = 2;
const COMMON_LEN: usize = 4;
const FAN_HEIGHT: usize = 6;
const COMMON: usize = 8;
const COMMON_MAX: usize = size_of::<u64>();
const HINTS: usize = COMMON + COMMON_MAX;
const PLACE_BYTES: usize = 6;
const CHILD_BYTES: usize = ADDRESS_BYTES + PLACE_BYTES;
/// Shorter ones, to a quarter of it, are as long: such bytes lie on huge pages.
const ROOMY_BYTES: usize = 4096;

/// See the module's header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fan<'f> {
    bytes: &'f [u8],
}

/// What a search begins with: up to so many bytes of hints.
pub(crate) const FAN_BYTES: usize = HINTS + HINT_BYTES * 100;

impl<'f> Fan<'f> {
    #[inline]
    pub(crate) fn of(bytes: &'f [u8]) -> Self {
        Self { bytes }
    }

    #[inline]
    fn count(self) -> usize {
        usize::from(u16_at(self.bytes, 0))
    }

    /// Whether the children are leaves.
    #[inline]
    pub(crate) fn is_lowest(self) -> bool {
        self.bytes[FAN_HEIGHT] == 1
    }

    /// The child that is responsible for `key`, which the node covers, if the hints say.
    #[inline]
    pub(crate) fn child_for(self, key: &[u8]) -> Option<usize> {
        let count = self.count();
        let rest = &key[usize::from(u16_at(self.bytes, SKIP))..];
        let len = usize::from(u16_at(self.bytes, COMMON_LEN));
        let after = rest.get(len..)?;
        let (first, common) = (first_bytes(rest, len), u64_at(self.bytes, COMMON));
        if first != common {
            return Some(if first < common { 0 } else { count - 1 });
        }
        let hints = &self.bytes[HINTS..][..HINT_BYTES * (count - 1)];
        let hints: &[[u8; HINT_BYTES]] = hints.as_chunks().0;
        let hint = hint_of(after);
        let child = first_from(hints, |other| u32::from_le_bytes(*other) < hint);
        let is_same = |other: &[u8; HINT_BYTES]| u32::from_le_bytes(*other) == hint;
        (!hints.get(child).is_some_and(is_same)).then_some(child)
    }

    #[inline]
    fn child_at(self, index: usize) -> usize {
        HINTS + HINT_BYTES * (self.count() - 1) + CHILD_BYTES * index
    }

    /// A child, and where its bytes are, or were.
    #[inline]
    pub(crate) fn child(self, index: usize) -> (Address, *const u8) {
        let at = self.child_at(index);
        let child = &self.bytes[at..][..CHILD_BYTES];
        let mut place = [0; 8];
        place[..PLACE_BYTES].copy_from_slice(&child[ADDRESS_BYTES..]);
        let place = ptr::without_provenance(u64::from_le_bytes(place) as usize);
        (decode_address(child), place)
    }
}

/// Makes a child of a fan another, whose bytes are at `place`.
pub(crate) fn set_child(fan: &mut Bytes, index: usize, child: Address, place: *const u8) {
    let at = Fan::of(fan).child_at(index);
    let bytes = &mut Bytes::make_mut(fan)[at..][..CHILD_BYTES];
    bytes.copy_from_slice(&encode_child(child, place));
}

fn encode_child(child: Address, place: *const u8) -> [u8; CHILD_BYTES] {
    let mut bytes = [0; CHILD_BYTES];
    let (address, at) = bytes.split_at_mut(ADDRESS_BYTES);
    address.copy_from_slice(&encode_address(child));
    at.copy_from_slice(&(place.addr() as u64).to_le_bytes()[..PLACE_BYTES]);
    bytes
}

/// The first `len` of some bytes, as a number; zeros follow.
#[inline]
fn first_bytes(bytes: &[u8], len: usize) -> u64 {
    let word = if let Some(first) = bytes.first_chunk() {
        u64::from_be_bytes(*first)
    } else {
        let mut first = [0; COMMON_MAX];
        first[..bytes.len()].copy_from_slice(bytes);
        u64::from_be_bytes(first)
    };
    // Of no bytes, none are left.
    let beyond = 8 * (COMMON_MAX - len) as u32;
    word & u64::MAX.checked_shl(beyond).unwrap_or(0)
}

impl<B: Deref<Target = [u8]>> Page<B> {
    /// The fan of an inner node. `place` says where a child's bytes are.
    pub(crate) fn fan(&self, place: impl Fn(Address) -> *const u8) -> Bytes {
        let count = self.count();
        let common = if count > 1 {
            let pairs = self.suffix(1).iter().zip(self.suffix(count - 1));
            pairs.take_while(|(one, other)| one == other).count()
        } else {
            0
        };
        let common = common.min(COMMON_MAX);
        let mut fan = Vec::with_capacity(ROOMY_BYTES);
        let header = [count, self.prefix_len(), common, usize::from(self.height())];
        fan.extend(header.map(|number| (number as u16).to_le_bytes()).concat());
        let first = if common > 0 { self.suffix(1) } else { &[] };
        fan.extend(first_bytes(first, common).to_le_bytes());
        for index in 1..count {
            fan.extend(hint_of(&self.suffix(index)[common..]).to_le_bytes());
        }
        for index in 0..count {
            let child = self.child(index);
            fan.extend(encode_child(child, place(child)));
        }
        if (ROOMY_BYTES / 4..ROOMY_BYTES).contains(&fan.len()) {
            fan.resize(ROOMY_BYTES, 0);
        }
        fan.into()
    }
}
