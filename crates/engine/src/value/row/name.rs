//! Names to look for in a row: eight bytes of them are compared at once.

use std::cmp::Ordering;

use super::GUESS_BITS;

/// Bytes of a name that are compared at once.
const PREFIX_BYTES: usize = size_of::<u64>();

/// A name to look for.
#[derive(Clone, Copy, Debug)]
pub(in crate::value) struct Name<'n> {
    bytes: &'n [u8],
    prefix: u64,
    /// The bytes of `prefix` that belong to the name.
    mask: u64,
}

impl<'n> Name<'n> {
    #[inline]
    pub(in crate::value) fn bytes(self) -> &'n [u8] {
        self.bytes
    }

    /// Which of the [`super::GUESSES`] belongs to this name, in a row of this many fields.
    #[inline]
    pub(super) fn guess(&self, count: usize) -> usize {
        /// An odd number without a pattern: the golden ratio.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let last = self.bytes.last_chunk::<PREFIX_BYTES>();
        let last = last.map_or(0, |word| u64::from_le_bytes(*word).rotate_left(1));
        let mixed = (self.prefix ^ last ^ count as u64).wrapping_mul(SPREAD);
        (mixed >> (u64::BITS - GUESS_BITS)) as usize
    }

    #[inline]
    pub(in crate::value) fn new(bytes: &'n [u8]) -> Self {
        let prefix = prefix(bytes, bytes.len());
        let others = 8 * PREFIX_BYTES.saturating_sub(bytes.len()) as u32;
        let mask = u64::MAX.checked_shl(others).unwrap_or(0);
        Self {
            bytes,
            prefix,
            mask,
        }
    }

    /// Whether another name, the first `bytes` bytes of `room`, equals this one.
    #[inline]
    pub(super) fn is(&self, room: &[u8], bytes: usize) -> bool {
        if bytes != self.bytes.len() {
            return false;
        }
        match room.first_chunk() {
            Some(word) => {
                let differ = (u64::from_be_bytes(*word) ^ self.prefix) & self.mask;
                differ == 0 && (bytes <= PREFIX_BYTES || room[..bytes] == *self.bytes)
            }
            None => room[..bytes] == *self.bytes,
        }
    }

    /// Whether another name, the first `bytes` bytes of `room`, is below this one by its first
    /// bytes.
    #[inline]
    pub(super) fn is_prefix_above(self, room: &[u8], bytes: usize) -> bool {
        prefix(room, bytes) < self.prefix
    }

    /// Whether another name that begins with this word, or is shorter and followed by the rest of
    /// it, is known to be below this one.
    #[inline]
    pub(super) fn is_word_above(self, word: [u8; PREFIX_BYTES]) -> bool {
        u64::from_be_bytes(word) < self.prefix
    }

    /// The order of another name, the first `bytes` bytes of `room`, and this one.
    #[inline]
    pub(super) fn compare_to(self, room: &[u8], bytes: usize) -> Ordering {
        prefix(room, bytes).cmp(&self.prefix).then_with(|| {
            if bytes <= PREFIX_BYTES && self.bytes.len() <= PREFIX_BYTES {
                // The padding of the shorter one may equal the last bytes of the longer one.
                return bytes.cmp(&self.bytes.len());
            }
            room[..bytes].cmp(self.bytes)
        })
    }
}

/// The first eight bytes of a name, itself the first `bytes` bytes of `room`, padded with zeros.
/// They order as names do, except that names with equal prefixes compare as equal.
#[inline]
fn prefix(room: &[u8], bytes: usize) -> u64 {
    match room.first_chunk() {
        Some(word) if bytes >= PREFIX_BYTES => u64::from_be_bytes(*word),
        // What follows the name is cut off, in two steps, so that an empty name works too.
        Some(word) => {
            let others = 8 * (PREFIX_BYTES - bytes) as u32 - 1;
            u64::from_be_bytes(*word) >> 1 >> others << others << 1
        }
        None => short_prefix(&room[..bytes]),
    }
}

/// [`prefix`] of a name of less than eight bytes with nothing after it.
#[inline]
fn short_prefix(name: &[u8]) -> u64 {
    const HALF_BYTES: usize = PREFIX_BYTES / 2;
    let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) else {
        let word = |word, byte: &u8| word << 8 | u64::from(*byte);
        let others = 8 * (HALF_BYTES - name.len()) as u32;
        return name.iter().fold(0, word) << others << u32::BITS;
    };
    // Two halves, which overlap in the same bytes.
    let others = 8 * (PREFIX_BYTES - name.len()) as u32;
    u64::from(u32::from_be_bytes(*first)) << u32::BITS
        | u64::from(u32::from_be_bytes(*last)) << others
}
