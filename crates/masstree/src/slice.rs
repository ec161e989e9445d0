//! Key slices (§4.2): eight key bytes as one native integer, and the length codes of entries.
//!
//! A slice compares as its bytes do, because they are read big-endian; short ones are padded with
//! zeros. Keys with the same padded slice are told apart by a length code.

/// Key bytes per layer.
pub(crate) const SLICE_BYTES: usize = 8;

/// Entry codes 0 to 8: the key ends in this slice, with that many bytes of it.
pub(crate) const CODE_SLICE_MAX: u8 = 8;
/// The key goes on; the rest is the suffix kept with the value.
pub(crate) const CODE_SUFFIX: u8 = 9;
/// The link is the root of the next layer.
pub(crate) const CODE_LAYER: u8 = 10;
/// The entry is turning from a suffix into a layer or back; readers retry (§4.6.3).
pub(crate) const CODE_UNSTABLE: u8 = 11;
/// The slot was not used since the node was made or split: no reader can know it.
pub(crate) const CODE_NEVER: u8 = 12;

/// How entries with equal slices are ordered: by length, and all longer keys are one.
#[inline]
pub(crate) const fn rank_of_code(code: u8) -> u8 {
    if code > CODE_SUFFIX {
        CODE_SUFFIX
    } else {
        code
    }
}

/// Where a descent stands in its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'k> {
    key: &'k [u8],
    offset: usize,
    // Worked out once per layer: every node of a descent asks for them.
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

    /// The same key at the first layer.
    #[inline]
    pub(crate) fn at_start(self) -> Self {
        Self::new(self.key)
    }

    /// The next layer; the key must go on there.
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
    let mut padded = [0; SLICE_BYTES];
    padded[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(padded)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

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
