//! What is looked for: a key, and its first bytes as words, big-endian, by which entries in nodes
//! and frames are compared.

/// A key that is looked for, and its first words.
pub(crate) struct Probe<'k> {
    pub(crate) key: &'k [u8],
    pub(crate) prefix: u64,
    pub(crate) more: [u64; 3],
}

impl<'k> Probe<'k> {
    #[inline]
    pub(crate) fn new(key: &'k [u8]) -> Self {
        let words = [
            word_at(key, 0),
            word_at(key, 8),
            word_at(key, 16),
            word_at(key, 24),
        ];
        Self::with_words(key, words)
    }

    /// The same where its first 32 bytes are known.
    #[inline]
    pub(crate) fn with_words(key: &'k [u8], [prefix, more @ ..]: [u64; 4]) -> Self {
        Self { key, prefix, more }
    }

    /// Its first 32 bytes.
    #[inline]
    pub(crate) fn words(&self) -> [u64; 4] {
        let [next, third, fourth] = self.more;
        [self.prefix, next, third, fourth]
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
            let expected = std::array::from_fn(|index| u64::from_be_bytes(words[index]));
            assert_eq!(Probe::new(&key).words(), expected, "{length} bytes");
            assert_eq!(prefix_of(&key), expected[0]);
        }
    }
}
