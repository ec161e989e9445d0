//! Searches among the names of a block.

use std::cmp::Ordering;

use super::{Name, ShortRow};

/// See [`ShortRow::search_beyond`].
const PLACES: usize = 8;

impl ShortRow<'_> {
    /// The index of a field, or of the first one after it, by what follows bytes that all names
    /// have in common.
    ///
    /// Looks at several places at a time: their lines are fetched in parallel, and no branch is
    /// mispredicted.
    pub(super) fn search_beyond(self, common: usize, name: Name<'_>) -> Result<usize, usize> {
        let rest = |index: usize| {
            let start = self.start(index) + common;
            (&self.data[start..], self.name_end(index) - start)
        };
        let is_below = |index: usize| {
            let (room, bytes) = rest(index);
            usize::from(name.is_prefix_above(room, bytes))
        };
        let (mut low, mut high) = (0, self.ends.len());
        while high - low > PLACES {
            let step = (high - low) / PLACES;
            let places = (1..PLACES).map(|place| low + place * step);
            let below: usize = places.map(is_below).sum();
            if below + 1 < PLACES {
                high = low + (below + 1) * step;
            }
            low += below * step;
        }
        low += (low..high).map(is_below).sum::<usize>();
        let compare = |index: usize| {
            let (room, bytes) = rest(index);
            name.compare_to(room, bytes)
        };
        if low == self.ends.len() {
            return Err(low);
        }
        match compare(low) {
            Ordering::Equal => Ok(low),
            Ordering::Greater => Err(low),
            // Others begin with the same bytes.
            Ordering::Less => {
                let count = self.ends.len() - low;
                let found = find(count, |index| compare(low + index));
                found.map(|at| low + at).map_err(|at| low + at)
            }
        }
    }
}

/// How many bytes two names have in common at their beginning.
#[inline]
pub(super) fn common_bytes(one: &[u8], other: &[u8]) -> usize {
    const WORD_BYTES: usize = size_of::<u64>();
    let (words, _) = one.as_chunks::<WORD_BYTES>();
    let (others, _) = other.as_chunks::<WORD_BYTES>();
    let mut equal = 0;
    for (one, other) in words.iter().zip(others) {
        let differ = u64::from_le_bytes(*one) ^ u64::from_le_bytes(*other);
        if differ != 0 {
            return equal + differ.trailing_zeros() as usize / 8;
        }
        equal += WORD_BYTES;
    }
    let rest = one[equal..].iter().zip(&other[equal..]);
    equal + rest.take_while(|(one, other)| one == other).count()
}

/// Binary-searches `count` fields for one that compares as equal; returns it, or where it would be.
#[inline]
pub(super) fn find(count: usize, compare: impl Fn(usize) -> Ordering) -> Result<usize, usize> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        match compare(middle) {
            Ordering::Less => low = middle + 1,
            Ordering::Equal => return Ok(middle),
            Ordering::Greater => high = middle,
        }
    }
    Err(low)
}
