//! What is looked for: a key, and its first bytes as words, big-endian, by which entries in nodes
//! and frames are compared.

/// The first 32 bytes of a key, and zeros behind them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstBytes([u64; 5]);

impl FirstBytes {
    #[inline]
    pub(crate) fn new([first, second, third, fourth]: [u64; 4]) -> Self {
        Self([first, second, third, fourth, 0])
    }

    #[inline]
    pub(crate) fn of(key: &[u8]) -> Self {
        Self::new([
            word_at(key, 0),
            word_at(key, 8),
            word_at(key, 16),
            word_at(key, 24),
        ])
    }

    #[inline]
    pub(crate) fn prefix(&self) -> u64 {
        self.0[0]
    }

    /// Those behind the first eight.
    #[inline]
    pub(crate) fn more(&self) -> [u64; 3] {
        let [_, more @ .., _] = self.0;
        more
    }

    /// One of the words.
    #[inline]
    pub(crate) fn word(&self, index: usize) -> u64 {
        self.0[index]
    }

    /// The eight bytes behind the first `skip`, of which there are at most 24.
    #[inline]
    pub(crate) fn window(&self, skip: usize) -> u64 {
        let (index, bits) = ((skip / 8) & 3, 8 * (skip % 8) as u32);
        // In two steps: none is as long as a word.
        self.0[index] << bits | self.0[index + 1] >> 1 >> (63 - bits)
    }
}

/// A key that is looked for, and its first bytes.
pub(crate) struct Probe<'k> {
    pub(crate) key: &'k [u8],
    pub(crate) first: FirstBytes,
}

impl<'k> Probe<'k> {
    #[inline]
    pub(crate) fn new(key: &'k [u8]) -> Self {
        let first = FirstBytes::of(key);
        Self { key, first }
    }
}

/// The first bytes of a key, so that most comparisons need no record.
#[inline]
pub(crate) fn prefix_of(key: &[u8]) -> u64 {
    word_at(key, 0)
}

/// Eight bytes of a key; where it has ended, zeros.
#[inline]
fn word_at(key: &[u8], at: usize) -> u64 {
    let left = key.len().saturating_sub(at);
    if let Some(whole) = key.get(at..).and_then(<[u8]>::first_chunk) {
        return u64::from_be_bytes(*whole);
    }
    let word = match key.last_chunk() {
        Some(last) => u64::from_be_bytes(*last),
        None => key
            .iter()
            .fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    word.checked_shl(8 * (8 - left) as u32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_key_end_with_zeros() {
        for length in 0..40 {
            let key: Vec<u8> = (1..=length).collect();
            let padded: Vec<u8> = key.iter().copied().chain([0; 32]).collect();
            let (words, _) = padded.as_chunks();
            let expected: [_; 4] = std::array::from_fn(|index| u64::from_be_bytes(words[index]));
            let first = FirstBytes::of(&key);
            let found: [_; 4] = std::array::from_fn(|index| first.word(index));
            assert_eq!(found, expected, "{length} bytes");
            assert_eq!(prefix_of(&key), expected[0]);
        }
    }
}
