//! Searches among the names of a block.

use std::cmp::Ordering;

use super::{Name, SHORT_OUT_OF_LINE, ShortRow};

impl ShortRow<'_> {
    /// The index of a field, or of the first one after it, by what follows bytes that all names
    /// have in common. There is at least one.
    pub(super) fn search_beyond(self, common: usize, name: Name<'_>) -> Result<usize, usize> {
        let compare = |index: usize| {
            let start = self.start(index) + common;
            name.compare_to(&self.data[start..], self.name_end(index) - start)
        };
        let below = self.count_below(common, name);
        // The first field is below those that follow it.
        let low = if below > 0 || compare(0).is_lt() {
            below + 1
        } else {
            0
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

    /// How many fields behind the first one are below a name by the word that follows the first
    /// `common` bytes, or less: of fields that the name begins with this may not tell, since what
    /// follows them is compared, too. No branch is mispredicted.
    #[inline]
    fn count_below(self, common: usize, name: Name<'_>) -> usize {
        let room = &self.data[common.min(self.data.len())..];
        self.ends[..self.ends.len() - 1].partition_point(|before| {
            let start = Self::ends(*before).1 & usize::from(!SHORT_OUT_OF_LINE);
            let Some(rest) = room.get(start..) else {
                return false;
            };
            match rest.first_chunk() {
                Some(word) => name.is_word_above(*word),
                // The last bytes of the block.
                None => name.is_prefix_above(rest, rest.len()),
            }
        })
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
