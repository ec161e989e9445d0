//! The key that a scan puts together, in one buffer.

use crate::slice::SLICE_BYTES;

/// A prefix shared with the layer, a slice and a suffix.
#[derive(Debug, Default)]
pub(super) struct KeyBuffer {
    /// Room for more than the key, so that a slice is one store of eight bytes.
    room: Vec<u8>,
    bytes: usize,
}

impl KeyBuffer {
    #[inline]
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.room[..self.bytes]
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.bytes = 0;
    }

    /// Keeps the first `prefix_bytes` and appends the first `slice_bytes` of the slice.
    #[inline]
    pub(super) fn set_slice(&mut self, prefix_bytes: usize, slice: u64, slice_bytes: usize) {
        debug_assert!(prefix_bytes <= self.bytes && slice_bytes <= SLICE_BYTES);
        if self.room.len() < prefix_bytes + SLICE_BYTES {
            self.grow(prefix_bytes + SLICE_BYTES);
        }
        self.room[prefix_bytes..prefix_bytes + SLICE_BYTES].copy_from_slice(&slice.to_be_bytes());
        self.bytes = prefix_bytes + slice_bytes;
    }

    /// Appends a suffix.
    #[inline]
    pub(super) fn push(&mut self, suffix: &[u8]) {
        let end = self.bytes + suffix.len();
        if self.room.len() < end {
            self.grow(end);
        }
        copy(&mut self.room[self.bytes..end], suffix);
        self.bytes = end;
    }

    #[cold]
    fn grow(&mut self, bytes: usize) {
        self.room.resize(bytes.next_power_of_two().max(64), 0);
    }
}

/// Copies without a call when there is little: two stores that may overlap.
#[inline]
fn copy(to: &mut [u8], from: &[u8]) {
    fn ends<const N: usize>(to: &mut [u8], from: &[u8]) {
        if let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) {
            let (first, last) = (*first, *last);
            let rest = to.len() - N;
            to[..N].copy_from_slice(&first);
            to[rest..].copy_from_slice(&last);
        }
    }
    match from.len() {
        0 => {}
        1 => to[0] = from[0],
        2..4 => ends::<2>(to, from),
        4..8 => ends::<4>(to, from),
        8..=16 => ends::<8>(to, from),
        _ => to.copy_from_slice(from),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_length_are_put_together() {
        let mut key = KeyBuffer::default();
        let suffix: Vec<u8> = (0..200).collect();
        for bytes in (0..=suffix.len()).chain((0..40).rev()) {
            key.clear();
            key.set_slice(0, u64::from_be_bytes(*b"prefixed"), 8);
            key.set_slice(8, u64::from_be_bytes(*b"slice123"), 8);
            key.push(&suffix[..bytes]);
            assert_eq!(key.len(), 16 + bytes);
            assert_eq!(&key.as_slice()[..16], b"prefixedslice123");
            assert_eq!(&key.as_slice()[16..], &suffix[..bytes]);
        }
        key.set_slice(8, u64::from_be_bytes(*b"ab\0\0\0\0\0\0"), 2);
        assert_eq!(key.as_slice(), b"prefixedab");
    }
}
