//! LZF: the compression of strings in the RDB format.
//!
//! A compressed string is a sequence of runs. The first byte `c` of a run:
//!
//! | c | run |
//! |---|---|
//! | below 32 | `c + 1` literal bytes follow |
//! | other | copy of `l + 2` bytes that begin `d + 1` bytes back; `l` is the high 3 bits of `c`, and if these are 7, the next byte is added; `d` is the low 5 bits of `c` and the next byte, high part first |
//!
//! A copy may overlap its output. Our compressor remembers for each hash of three bytes where it
//! last saw them, and takes the first match that it finds.

/// Bits of a distance.
const DISTANCE_BITS: u32 = 13;

/// Longest distance of a copy, in bytes.
const DISTANCE_MAX: usize = 1 << DISTANCE_BITS;

/// Shortest copy that saves a byte.
const COPY_BYTES_MIN: usize = 3;

/// Copies of this length and more use an extra byte for it.
const LONG_COPY_BYTES_MIN: usize = 7 + 2;

/// Longest copy.
const COPY_BYTES_MAX: usize = LONG_COPY_BYTES_MIN + u8::MAX as usize;

/// Longest run of literals.
const LITERAL_BYTES_MAX: usize = 32;

/// Most output bytes per input byte: the longest copy takes three.
const EXPANSION_MAX: usize = COPY_BYTES_MAX / 3;

/// Table of positions: bits of its size, for short and for long strings.
const TABLE_BITS_MIN: u32 = 6;
const TABLE_BITS_MAX: u32 = 14;

// The low five bits of a copy's first byte and the next byte hold the distance.
const _: () = assert!(DISTANCE_BITS == 5 + 8);
const _: () = assert!(EXPANSION_MAX * 3 == COPY_BYTES_MAX);

/// `input` compressed to at most `output_bytes_max` bytes, or `None` if it does not shrink that
/// much. O(length).
pub(super) fn compress(input: &[u8], output_bytes_max: usize) -> Option<Vec<u8>> {
    // The table is cleared for each string, so a short string gets a small one.
    let bits = (input.len().ilog2() + 1).clamp(TABLE_BITS_MIN, TABLE_BITS_MAX);
    let mut last_seen = vec![0_u32; 1 << bits];
    let mut output = Vec::with_capacity(output_bytes_max.min(input.len()));
    let (mut written, mut at) = (0, 0);
    while let Some(head) = input.get(at..at + COPY_BYTES_MIN) {
        let slot = slot_of(head, bits);
        let candidate = std::mem::replace(&mut last_seen[slot], at as u32) as usize;
        let distance = at - candidate;
        let matches = (1..=DISTANCE_MAX).contains(&distance)
            && input[candidate..candidate + COPY_BYTES_MIN] == *head;
        if !matches {
            at += 1;
            continue;
        }
        let length = common_bytes(&input[candidate..], &input[at..]).min(COPY_BYTES_MAX);
        write_literals(&mut output, &input[written..at]);
        write_copy(&mut output, distance, length);
        if output.len() > output_bytes_max {
            return None;
        }
        at += length;
        written = at;
    }
    write_literals(&mut output, &input[written..]);
    (output.len() <= output_bytes_max).then_some(output)
}

/// The table's slot for three bytes.
fn slot_of(head: &[u8], bits: u32) -> usize {
    let word = u32::from_le_bytes([head[0], head[1], head[2], 0]);
    // Fibonacci hashing: the high bits of the product depend on all bytes.
    (word.wrapping_mul(0x9E37_79B1) >> (u32::BITS - bits)) as usize
}

/// How many first bytes of `earlier` and `later` are equal.
fn common_bytes(earlier: &[u8], later: &[u8]) -> usize {
    let pairs = later.iter().take(COPY_BYTES_MAX).zip(earlier);
    pairs.take_while(|(one, other)| one == other).count()
}

fn write_literals(output: &mut Vec<u8>, literals: &[u8]) {
    for run in literals.chunks(LITERAL_BYTES_MAX) {
        output.push(run.len() as u8 - 1);
        output.extend_from_slice(run);
    }
}

fn write_copy(output: &mut Vec<u8>, distance: usize, length: usize) {
    let [high, low] = ((distance - 1) as u16).to_be_bytes();
    if length < LONG_COPY_BYTES_MIN {
        output.push(((length - 2) as u8) << 5 | high);
    } else {
        output.push(7 << 5 | high);
        output.push((length - LONG_COPY_BYTES_MIN) as u8);
    }
    output.push(low);
}

/// Decompresses `input` to `length` bytes; `None` if it is not the compressed form of so many.
/// O(length).
pub(super) fn decompress(input: &[u8], length: usize) -> Option<Vec<u8>> {
    // A length that the input cannot reach is refused before memory is allocated.
    if length > input.len().saturating_mul(EXPANSION_MAX) {
        return None;
    }
    let mut output = Vec::with_capacity(length);
    let mut rest = input;
    while let Some((&first, tail)) = rest.split_first() {
        if usize::from(first) < LITERAL_BYTES_MAX {
            let (literals, tail) = tail.split_at_checked(usize::from(first) + 1)?;
            output.extend_from_slice(literals);
            rest = tail;
        } else {
            rest = copy(&mut output, first, tail)?;
        }
        if output.len() > length {
            return None;
        }
    }
    (output.len() == length).then_some(output)
}

/// Performs the copy that `first` begins; returns what follows it.
fn copy<'i>(output: &mut Vec<u8>, first: u8, mut rest: &'i [u8]) -> Option<&'i [u8]> {
    let mut length = usize::from(first >> 5) + 2;
    if length == LONG_COPY_BYTES_MIN {
        let (&more, tail) = rest.split_first()?;
        length += usize::from(more);
        rest = tail;
    }
    let (&low, rest) = rest.split_first()?;
    let distance = usize::from(u16::from_be_bytes([first & 0x1F, low])) + 1;
    let start = output.len().checked_sub(distance)?;
    if length <= distance {
        output.extend_from_within(start..start + length);
    } else {
        for offset in start..start + length {
            output.push(output[offset]);
        }
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(input: &[u8]) {
        if let Some(compressed) = compress(input, input.len()) {
            assert_eq!(decompress(&compressed, input.len()).as_deref(), Some(input));
        }
    }

    #[test]
    fn runs_of_all_lengths_round_trip() {
        for length in 1..1200 {
            let same = vec![b'a'; length];
            round_trip(&same);
            if length > 8 {
                assert!(
                    compress(&same, length / 2).is_some(),
                    "{length} equal bytes"
                );
            }
            let stripes: Vec<u8> = (0..length).map(|index| (index % 7) as u8).collect();
            round_trip(&stripes);
        }
    }

    #[test]
    fn copies_reach_back_as_far_as_the_format_allows() {
        for gap in [
            DISTANCE_MAX - 12,
            DISTANCE_MAX - 11,
            DISTANCE_MAX - 10,
            3 * DISTANCE_MAX,
        ] {
            let mut input = b"needle-12345".to_vec();
            let mut random = fastrand::Rng::with_seed(gap as u64);
            input.extend(std::iter::repeat_with(|| random.u8(..)).take(gap));
            input.extend_from_slice(b"needle-12345");
            round_trip(&input);
        }
    }

    #[test]
    fn random_mixtures_round_trip() {
        let seed = crate::commands::testing::seed();
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..300 {
            let letters = random.u8(1..=8);
            let length = random.usize(1..5000);
            let input: Vec<u8> = (0..length).map(|_| random.u8(..letters)).collect();
            let compressed = compress(&input, usize::MAX).expect("no bound");
            let output = decompress(&compressed, length);
            assert_eq!(output.as_deref(), Some(&input[..]), "seed {seed}");
        }
    }

    #[test]
    fn what_does_not_shrink_is_left_alone() {
        let mut random = fastrand::Rng::with_seed(1);
        let noise: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(500).collect();
        assert_eq!(compress(&noise, noise.len() - 4), None);
    }

    #[test]
    fn damaged_input_is_refused() {
        // A run of literals that ends too early; a copy from before the beginning; a copy cut off;
        // a length that is not reached, passed, or impossible.
        for (input, length) in [
            (&[2, b'a', b'b'][..], 3),
            (&[0, b'a', 0x20, 1], 4),
            (&[0, b'a', 0xE0], 12),
            (&[0, b'a', 0xE0, 0], 12),
            (&[0, b'a', 0x20, 0], 5),
            (&[0, b'a', 0x20, 0], 3),
            (&[0, b'a'], usize::MAX),
            (&[], 1),
        ] {
            assert_eq!(decompress(input, length), None, "{input:?} {length}");
        }
        assert_eq!(
            decompress(&[0, b'a', 0x20, 0], 4).as_deref(),
            Some(&b"aaaa"[..])
        );
        assert_eq!(decompress(&[], 0).as_deref(), Some(&b""[..]));
    }
}
