//! CRC-32C of what is short: keys, small records, epochs.
//!
//! The crate `crc32c` is made for long input: of eight bytes it takes a hundred instructions. Short
//! input goes through the processor's instruction for a word here, where there is one.

/// Longer input is the crate's, which then works on three parts at once.
const SHORT_BYTES: usize = 1024;

/// CRC-32C of these bytes.
#[inline]
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c_append(0, bytes)
}

/// CRC-32C of what `crc` is one of, and of these bytes behind it.
#[inline]
#[must_use]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= SHORT_BYTES && std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction.
        return unsafe { append_short(crc, bytes) };
    }
    crc32c::crc32c_append(crc, bytes)
}

/// CRC-32C of a word, little-endian, and of these bytes behind it.
#[inline]
#[must_use]
pub fn crc32c_behind(word: u64, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= SHORT_BYTES && std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction.
        return unsafe { short_behind(word, bytes) };
    }
    crc32c_append(crc32c(&word.to_le_bytes()), bytes)
}

/// CRC-32C of a word and further ones, little-endian.
#[inline]
#[must_use]
pub fn crc32c_words<const N: usize>(first: u64, further: [u64; N]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction.
        return unsafe { words_at_once(first, further) };
    }
    let append = |crc, word: u64| crc32c::crc32c_append(crc, &word.to_le_bytes());
    further.into_iter().fold(append(0, first), append)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn words_at_once<const N: usize>(first: u64, further: [u64; N]) -> u32 {
    use std::arch::x86_64::_mm_crc32_u64;
    let mut crc = _mm_crc32_u64(u64::from(u32::MAX), first);
    for word in &further {
        crc = _mm_crc32_u64(crc, *word);
    }
    !crc as u32
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn short_behind(word: u64, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::_mm_crc32_u64;
    !append_to(_mm_crc32_u64(u64::from(u32::MAX), word), bytes)
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse4.2")]
fn append_short(crc: u32, bytes: &[u8]) -> u32 {
    !append_to(u64::from(!crc), bytes)
}

/// What the instruction makes of these bytes.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse4.2")]
fn append_to(crc: u64, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64};
    let (words, mut rest) = bytes.as_chunks();
    let crc = words.iter().fold(crc, |crc, word| {
        _mm_crc32_u64(crc, u64::from_le_bytes(*word))
    });
    let mut crc = crc as u32;
    if let Some((half, behind)) = rest.split_first_chunk() {
        crc = _mm_crc32_u32(crc, u32::from_le_bytes(*half));
        rest = behind;
    }
    if let Some((quarter, behind)) = rest.split_first_chunk() {
        crc = _mm_crc32_u16(crc, u16::from_le_bytes(*quarter));
        rest = behind;
    }
    rest.first().map_or(crc, |byte| _mm_crc32_u8(crc, *byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_input_have_the_checksums_that_they_should() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283, "as the standard says");
        let [first, further @ ..] = [0x0123_4567_89ab_cdef, 0, u64::MAX];
        let words = [first].into_iter().chain(further);
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        assert_eq!(crc32c_words(first, further), crc32c::crc32c(&bytes));
        let bytes: Vec<u8> = (0..2 * SHORT_BYTES).map(|byte| (byte * 7) as u8).collect();
        for length in (0..40).chain([SHORT_BYTES, SHORT_BYTES + 1, 2 * SHORT_BYTES]) {
            let (bytes, cut) = (&bytes[..length], length / 3);
            assert_eq!(crc32c(bytes), crc32c::crc32c(bytes), "{length} bytes");
            let first = crc32c(&bytes[..cut]);
            assert_eq!(crc32c_append(first, &bytes[cut..]), crc32c(bytes));
            if let Some((word, behind)) = bytes.split_first_chunk() {
                let word = u64::from_le_bytes(*word);
                assert_eq!(crc32c_behind(word, behind), crc32c(bytes));
            }
        }
    }
}
