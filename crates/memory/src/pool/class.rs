//! Size classes of pool blocks.
//!
//! | bytes | step |
//! |---|---|
//! | 16–128 | 8 |
//! | 144–512 | 16 |
//! | 576–1,024 | 64 |
//! | 1,280–4,096 | 256 |
//!
//! Small steps where most blocks are, so that an 8-byte value with its header wastes nothing.

/// Bytes of the largest class.
pub const BLOCK_BYTES_MAX: usize = 4096;

/// Largest block that comes from chunks, in bytes; the bench's feature makes it none.
pub(super) const POOLED_BYTES_MAX: usize = if cfg!(feature = "program-allocator") {
    0
} else {
    BLOCK_BYTES_MAX
};

const fn count_between(above: usize, up_to: usize, step: usize) -> usize {
    (up_to - above) / step
}

const TINY: usize = 1 + count_between(16, 128, 8);
const SMALL: usize = TINY + count_between(128, 512, 16);
const MIDDLE: usize = SMALL + count_between(512, 1024, 64);

/// How many classes there are.
pub(super) const CLASS_COUNT: usize = MIDDLE + count_between(1024, BLOCK_BYTES_MAX, 256);

const _: () = assert!(
    bytes_of_class(CLASS_COUNT - 1) == BLOCK_BYTES_MAX
        && class_of_bytes(BLOCK_BYTES_MAX) == CLASS_COUNT - 1
);
const _: () = assert!(
    CLASS_COUNT < u8::MAX as usize,
    "a slab has its class and 1 in a byte"
);

/// The class whose blocks hold `bytes` bytes.
#[inline]
pub(super) const fn class_of_bytes(bytes: usize) -> usize {
    match bytes {
        // Without a branch between the smallest and the other common ones.
        0..=128 => (bytes.saturating_sub(16)).div_ceil(8),
        129..=512 => TINY - 1 + (bytes - 128).div_ceil(16),
        513..=1024 => SMALL - 1 + (bytes - 512).div_ceil(64),
        _ => MIDDLE - 1 + (bytes - 1024).div_ceil(256),
    }
}

/// The length of a class's blocks.
#[inline]
pub(super) const fn bytes_of_class(class: usize) -> usize {
    if class < TINY {
        16 + 8 * class
    } else if class < SMALL {
        128 + 16 * (class - TINY + 1)
    } else if class < MIDDLE {
        512 + 64 * (class - SMALL + 1)
    } else {
        1024 + 256 * (class - MIDDLE + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_has_the_smallest_class_that_holds_it() {
        for bytes in 1..=BLOCK_BYTES_MAX {
            let class = class_of_bytes(bytes);
            assert!(
                class < CLASS_COUNT && bytes_of_class(class) >= bytes,
                "{bytes}"
            );
            assert!(class == 0 || bytes_of_class(class - 1) < bytes, "{bytes}");
        }
        assert_eq!(bytes_of_class(CLASS_COUNT - 1), BLOCK_BYTES_MAX);
    }
}
