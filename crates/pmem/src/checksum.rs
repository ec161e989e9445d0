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
        // SAFETY: the processor has the instructions.
        return !unsafe { processor::append(u64::from(!crc), bytes) };
    }
    crc32c::crc32c_append(crc, bytes)
}

/// CRC-32C of a word, little-endian, and of these bytes behind it.
#[inline]
#[must_use]
pub fn crc32c_behind(word: u64, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= SHORT_BYTES && std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instructions.
        let crc = unsafe { processor::word(BEGIN, word) };
        // SAFETY: as above.
        return !unsafe { processor::append(crc, bytes) };
    }
    crc32c_append(crc32c(&word.to_le_bytes()), bytes)
}

/// CRC-32C of a word and further ones, little-endian.
#[inline]
#[must_use]
pub fn crc32c_words<const N: usize>(first: u64, further: [u64; N]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instructions.
        let begun = unsafe { processor::word(BEGIN, first) };
        // SAFETY: as above.
        let next = |crc, next| unsafe { processor::word(crc, next) };
        let crc = further.into_iter().fold(begun, next);
        return !crc as u32;
    }
    let append = |crc, word: u64| crc32c::crc32c_append(crc, &word.to_le_bytes());
    further.into_iter().fold(append(0, first), append)
}

/// What a checksum begins with.
#[cfg(target_arch = "x86_64")]
const BEGIN: u64 = u32::MAX as u64;

/// The processor's instructions. The compiler's own functions for them are never made part of one
/// that may run without them, and a call costs more than what it calls.
#[cfg(target_arch = "x86_64")]
mod processor {
    use std::arch::asm;

    /// What they make of bytes.
    ///
    /// # Safety
    /// The processor has the instructions.
    #[inline]
    pub(super) unsafe fn append(crc: u64, bytes: &[u8]) -> u32 {
        let (words, mut rest) = bytes.as_chunks();
        let begun = crc;
        let crc = words.iter().fold(begun, |crc, next| {
            // SAFETY: as the caller promises.
            unsafe { word(crc, u64::from_le_bytes(*next)) }
        });
        let mut crc = crc as u32;
        if let Some((half, behind)) = rest.split_first_chunk() {
            let half = u32::from_le_bytes(*half);
            // SAFETY: it reads and writes two registers; the caller promises the instruction.
            unsafe {
                asm!("crc32 {crc:e}, {half:e}", crc = inout(reg) crc, half = in(reg) half,
                    options(pure, nomem, nostack, preserves_flags));
            }
            rest = behind;
        }
        for byte in rest {
            // SAFETY: as above.
            unsafe {
                asm!("crc32 {crc:e}, {byte}", crc = inout(reg) crc, byte = in(reg_byte) *byte,
                    options(pure, nomem, nostack, preserves_flags));
            }
        }
        crc
    }

    /// What they make of a word.
    ///
    /// # Safety
    /// As [`append`].
    #[inline]
    pub(super) unsafe fn word(mut crc: u64, word: u64) -> u64 {
        // SAFETY: as in `append`.
        unsafe {
            asm!("crc32 {crc}, {word}", crc = inout(reg) crc, word = in(reg) word,
                options(pure, nomem, nostack, preserves_flags));
        }
        crc
    }
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
