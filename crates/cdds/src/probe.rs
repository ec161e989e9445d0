//! What is looked for: a key, and its first bytes as words, big-endian, by which entries in nodes
//! and frames are compared.

/// A key that is looked for, and its first words.
pub(crate) struct Probe<'k> {
    pub(crate) key: &'k [u8],
    pub(crate) prefix: u64,
    pub(crate) more: [u64; 3],
}

impl<'k> Probe<'k> {
    pub(crate) fn new(key: &'k [u8]) -> Self {
        let mut first = [0; 32];
        if let Some(whole) = key.first_chunk() {
            first = *whole;
        } else {
            first[..key.len()].copy_from_slice(key);
        }
        let (words, _) = first.as_chunks();
        Self::with_words(
            key,
            std::array::from_fn(|index| u64::from_be_bytes(words[index])),
        )
    }

    /// The same where its first 32 bytes are known.
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
pub(crate) fn prefix_of(key: &[u8]) -> u64 {
    if let Some(whole) = key.first_chunk() {
        return u64::from_be_bytes(*whole);
    }
    let word = key
        .iter()
        .fold(0, |word, byte| word << 8 | u64::from(*byte));
    word.checked_shl(8 * (8 - key.len()) as u32).unwrap_or(0)
}
