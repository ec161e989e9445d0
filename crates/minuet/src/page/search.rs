//! Searching a page: which cell has a key, or would be next to it.
//!
//! A search compares hints, without branches, as these would be mispredicted. Where hints are the
//! same, as in a page whose keys share more than its fences do, it goes on in the cells.

use std::cmp::Ordering;

use super::{
    CHILD_CELL_BYTES, COUNT, DIRECTORY, HEIGHT, HINT_BYTES, PLACE_BYTES, PREFIX, cell_of, hint_at,
    hint_of, u16_at,
};

/// What a search needs of a page, read from its header once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Searched<'p> {
    bytes: &'p [u8],
    /// The directory.
    places: &'p [[u8; PLACE_BYTES]],
    prefix: usize,
    /// Bytes of a cell before its suffix.
    before: usize,
}

impl<'p> Searched<'p> {
    #[inline]
    pub(super) fn new(bytes: &'p [u8]) -> Self {
        let directory = usize::from(u16_at(bytes, DIRECTORY));
        let places = PLACE_BYTES * usize::from(u16_at(bytes, COUNT));
        Self {
            bytes,
            places: bytes[directory..][..places].as_chunks().0,
            prefix: usize::from(u16_at(bytes, PREFIX)),
            before: if bytes[HEIGHT] == 0 {
                4
            } else {
                CHILD_CELL_BYTES
            },
        }
    }

    /// Where the cell is that a search for `key` looks at, by the hints alone.
    #[inline]
    pub(super) fn likely(self, key: &[u8]) -> Option<usize> {
        let hint = hint_of(&key[self.prefix..]);
        let index = first_from(self.places, |place| hint_at(*place) < hint);
        self.places.get(index).copied().map(cell_of)
    }

    #[inline]
    fn suffix(self, index: usize) -> &'p [u8] {
        let at = cell_of(self.places[index]);
        let len = usize::from(u16_at(self.bytes, at));
        &self.bytes[at + self.before..][..len]
    }

    /// Where `key`, which the page covers, is, or would be.
    #[inline]
    pub(super) fn find(self, key: &[u8]) -> Result<usize, usize> {
        let suffix = &key[self.prefix..];
        let hint = hint_of(suffix);
        let low = first_from(self.places, |place| hint_at(*place) < hint);
        let is_same = |index: usize| {
            let place = self.places.get(index);
            place.is_some_and(|place| hint_at(*place) == hint)
        };
        // Equal hints say nothing: a suffix may end before its zeros.
        if !is_same(low) {
            return Err(low);
        }
        if is_same(low + 1) {
            return self.find_among(low, (hint, suffix));
        }
        match compare(self.suffix(low), suffix) {
            Ordering::Less => Err(low + 1),
            Ordering::Equal => Ok(low),
            Ordering::Greater => Err(low),
        }
    }

    /// The same, where the cells from `low` on have the same hint. They may be many.
    fn find_among(self, mut low: usize, (hint, suffix): (u32, &[u8])) -> Result<usize, usize> {
        let mut high = match hint.checked_add(1) {
            Some(next) => {
                let after = |place: &[u8; PLACE_BYTES]| hint_at(*place) < next;
                low + first_from(&self.places[low..], after)
            }
            None => self.places.len(),
        };
        while low < high {
            let middle = low.midpoint(high);
            match compare(self.suffix(middle), suffix) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }
}

/// The first of some entries that is not lower, by their hints.
#[inline]
pub(super) fn first_from<T>(entries: &[T], is_lower: impl Fn(&T) -> bool) -> usize {
    let (mut first, mut count) = (0, entries.len());
    while count > 1 {
        let half = count / 2;
        first += half * usize::from(is_lower(&entries[first + half - 1]));
        count -= half;
    }
    first + usize::from(entries.get(first).is_some_and(is_lower))
}

/// Compares two suffixes that have the same hint; mostly a word of each tells them apart.
#[inline]
fn compare(one: &[u8], other: &[u8]) -> Ordering {
    let word = |suffix: &[u8]| {
        let bytes = suffix.get(HINT_BYTES..)?.first_chunk()?;
        Some(u64::from_be_bytes(*bytes))
    };
    match (word(one), word(other)) {
        (Some(first), Some(second)) if first != second => first.cmp(&second),
        _ => one.cmp(other),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ptr;

    use pando_memnode::Address;

    use crate::SnapshotId;
    use crate::page::{Cell, CellBody, Fan, Node, Page};

    /// Keys that have much in common, are each other's beginnings, or end in zeros.
    #[test]
    fn a_search_ends_where_the_order_of_keys_says() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut known = 0;
        for round in 0..300 {
            let draw = |random: &mut fastrand::Rng| {
                let common = [&b""[..], b"k", b"key:00000000", b"key:000000000000"];
                let mut key = vec![0, 0, 0, random.u8(0..2)];
                key.extend_from_slice(common[random.usize(0..4)]);
                for _ in 0..random.usize(0..12) {
                    key.push(b"\0\x01a\xff"[random.usize(0..4)]);
                }
                key
            };
            let keys: BTreeSet<_> = (0..random.usize(0..60))
                .map(|_| draw(&mut random))
                .collect();
            let mut node = Node::empty(1, Address::default(), SnapshotId(1));
            node.height = u8::from(round % 2 == 0);
            for key in &keys {
                let body = if node.height == 0 {
                    CellBody::Entry {
                        version: 1,
                        value: key.clone(),
                    }
                } else {
                    CellBody::Child(Address::default())
                };
                let key = key.clone();
                node.cells.push(Cell { key, body });
            }
            let page = Page::of_slot(node.encode(8192).expect("it fits"));
            let fan = (page.height() > 0 && page.count() > 0).then(|| page.fan(|_| ptr::null()));
            let keys: Vec<_> = keys.into_iter().collect();
            let others = (0..60).map(|_| draw(&mut random));
            for key in keys.iter().cloned().chain(others) {
                assert_eq!(
                    page.find(&key),
                    keys.binary_search(&key),
                    "{key:?} in {keys:?}"
                );
                if let Some(fan) = &fan {
                    let child = Fan::of(fan).child_for(&key);
                    known += usize::from(child.is_some());
                    assert!(
                        child.is_none_or(|child| child == page.child_for(&key)),
                        "{key:?}"
                    );
                }
            }
        }
        assert!(known > 1000, "fans mostly say where a key is");
    }
}
