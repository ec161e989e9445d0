//! Key slices (§4.2): eight key bytes as one native integer, and the length codes of entries.
//!
//! Slices compare as their bytes do, because they are read big-endian; short ones are padded with
//! zeros. A length code distinguishes keys with the same padded slice.

/// Key bytes per layer.
pub(crate) const SLICE_BYTES: usize = 8;

/// Entry codes 0 to 8: the key ends in this slice, with that many bytes of it.
pub(crate) const CODE_SLICE_MAX: u8 = 8;
/// The key continues; the rest is the suffix kept with the value.
pub(crate) const CODE_SUFFIX: u8 = 9;
/// The link is the root of the next layer.
pub(crate) const CODE_LAYER: u8 = 10;
/// The entry is turning from a suffix into a layer or back; readers retry (§4.6.3).
pub(crate) const CODE_UNSTABLE: u8 = 11;
/// The slot was not used since the node was made or split: no reader can know it.
pub(crate) const CODE_NEVER: u8 = 12;

/// The order of entries with equal slices: by length; all longer keys have one rank.
#[inline]
pub(crate) const fn rank_of_code(code: u8) -> u8 {
    if code > CODE_SUFFIX {
        CODE_SUFFIX
    } else {
        code
    }
}

/// A descent's position in its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'k> {
    key: &'k [u8],
    offset: usize,
    // Computed once per layer: every node of a descent needs them.
    slice: u64,
    rank: u8,
}

impl<'k> Cursor<'k> {
    /// At the first layer.
    #[inline]
    pub(crate) fn new(key: &'k [u8]) -> Self {
        Self::at(key, 0)
    }

    /// At the layer whose keys share the first `offset` bytes.
    #[inline]
    pub(crate) fn at(key: &'k [u8], offset: usize) -> Self {
        debug_assert!(offset.is_multiple_of(SLICE_BYTES) && offset <= key.len());
        let rest = &key[offset..];
        Self {
            key,
            offset,
            slice: slice_of(rest),
            rank: rest.len().min(CODE_SUFFIX as usize) as u8,
        }
    }

    /// The whole key.
    #[inline]
    pub(crate) const fn key(self) -> &'k [u8] {
        self.key
    }

    /// Key bytes above this layer.
    #[inline]
    pub(crate) const fn offset(self) -> usize {
        self.offset
    }

    /// The slice at this layer.
    #[inline]
    pub(crate) const fn slice(self) -> u64 {
        self.slice
    }

    /// The slice of a layer above this one, counted from the first.
    #[inline]
    pub(crate) fn above(self, layer: usize) -> u64 {
        debug_assert!(layer * SLICE_BYTES < self.offset);
        slice_of(&self.key[layer * SLICE_BYTES..])
    }

    /// 0 to 8 when the key ends in this layer's slice, else [`CODE_SUFFIX`].
    #[inline]
    pub(crate) const fn rank(self) -> u8 {
        self.rank
    }

    /// What follows the slice.
    #[inline]
    pub(crate) fn suffix(self) -> &'k [u8] {
        self.key.get(self.offset + SLICE_BYTES..).unwrap_or(&[])
    }

    /// The key's last eight bytes, of a key that has as many, as a big-endian number.
    #[inline]
    pub(crate) fn last_bytes(self) -> u64 {
        self.key
            .last_chunk::<SLICE_BYTES>()
            .map_or(0, |last| u64::from_be_bytes(*last))
    }

    /// The same key at the first layer.
    #[inline]
    pub(crate) fn at_start(self) -> Self {
        Self::new(self.key)
    }

    /// The next layer; the key must continue there.
    #[inline]
    pub(crate) fn deeper(self) -> Self {
        debug_assert_eq!(self.rank(), CODE_SUFFIX);
        Self::at(self.key, self.offset + SLICE_BYTES)
    }
}

/// The slice that `bytes` begin with.
#[inline]
pub(crate) fn slice_of(bytes: &[u8]) -> u64 {
    if let Some(first) = bytes.first_chunk::<SLICE_BYTES>() {
        return u64::from_be_bytes(*first);
    }
    // Without a call to copy the bytes: two loads that may overlap.
    let absent_bits = 8 * (SLICE_BYTES - bytes.len()) as u32;
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let (first, last) = (u32::from_be_bytes(*first), u32::from_be_bytes(*last));
        return u64::from(first) << 32 | u64::from(last) << absent_bits;
    }
    let [first, .., last] = bytes else {
        return bytes.first().map_or(0, |only| u64::from(*only) << 56);
    };
    let middle = u64::from(bytes[1]) << 48;
    u64::from(*first) << 56 | middle | u64::from(*last) << absent_bits
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn slices_of_every_length_are_padded_with_zeros() {
        let bytes: Vec<u8> = (0xf1..=0xff).collect();
        for length in 0..=bytes.len() {
            let mut padded = [0; SLICE_BYTES];
            let own = length.min(SLICE_BYTES);
            padded[..own].copy_from_slice(&bytes[..own]);
            assert_eq!(slice_of(&bytes[..length]), u64::from_be_bytes(padded));
        }
    }

    #[test]
    fn slices_and_ranks_order_as_keys_do() {
        let keys: [&[u8]; 9] = [
            b"",
            b"\0",
            b"\0\0",
            b"ABCDEFG",
            b"ABCDEFG\0",
            b"ABCDEFG\0x",
            b"B",
            b"\xff",
            b"\xff\xff",
        ];
        for pair in keys.windows(2) {
            let [low, high] = [pair[0], pair[1]].map(|key| {
                let cursor = Cursor::new(key);
                (cursor.slice(), cursor.rank())
            });
            assert!(low < high, "{pair:?}");
        }
        assert_eq!(Cursor::new(b"ABCDEFGHIJ").suffix(), b"IJ");
        assert_eq!(Cursor::new(b"ABCDEFGHIJ").deeper().rank(), 2);
    }
}
