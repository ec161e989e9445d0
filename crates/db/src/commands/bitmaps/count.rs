//! BITCOUNT, which counts a large string in slices.
//!
//! All slices count one version of the string: the command keeps that version's chunks, whatever is
//! written to the key meanwhile.

use std::ops::Range;

use pando_engine::StringRef;
use pando_protocol::{Reply, Request, number};

use super::{RangeUnit, byte_at};
use crate::commands::detached::Detached;
use crate::commands::strings::is_reversed;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::limits::SLICE_BYTES_MAX;
use crate::progress::{Handled, Progress, Slice};

/// BITCOUNT key [start end [BYTE | BIT]]
pub(super) fn bitcount(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    // As in Redis, the range of an absent key is not even parsed.
    let begun = keyspace.read_string(request.arg(1), |string| {
        string.map_or(Ok(Outcome::Counted(0)), |string| begin(string, request))
    })?;
    match begun? {
        Outcome::Counted(ones) => {
            reply.integer(ones);
            Ok(Progress::Done)
        }
        Outcome::Begun(counting) => Ok(Progress::in_slices(counting)),
    }
}

/// How far the count got at once.
enum Outcome {
    Counted(i64),
    Begun(Counting),
}

fn begin(string: StringRef<'_>, request: Request<'_>) -> Result<Outcome, CommandError> {
    let bits = parse_range(request, string.len())?;
    if bits.is_empty() {
        return Ok(Outcome::Counted(0));
    }
    let bytes = bits.start / 8..bits.end.div_ceil(8);
    let outside = count_outside(string, &bits);
    if bytes.len() <= SLICE_BYTES_MAX {
        return Ok(Outcome::Counted(count(string, bytes) - outside));
    }
    Ok(Outcome::Begun(Counting {
        string: Detached::take(string),
        rest: bytes,
        ones: -outside,
    }))
}

fn parse_range(request: Request<'_>, len: usize) -> Result<Range<usize>, CommandError> {
    match request.len() {
        2 => Ok(0..len * 8),
        4 | 5 => {
            let start = number::parse_i64(request.arg(2)).ok_or(CommandError::NotAnInteger)?;
            let end = number::parse_i64(request.arg(3)).ok_or(CommandError::NotAnInteger)?;
            if is_reversed(start, end) {
                return Ok(0..0);
            }
            Ok(RangeUnit::parse(request, 4)?.bits(start, end, len))
        }
        _ => Err(CommandError::Syntax),
    }
}

/// A count in progress.
#[derive(Clone, Debug)]
struct Counting {
    string: Detached<'static>,
    /// The bytes that are not counted yet.
    rest: Range<usize>,
    /// Set bits so far, less those of the first and last byte that are outside the range.
    ones: i64,
}

impl Slice for Counting {
    fn step(&mut self, _: &mut Keyspace<'_>, reply: &mut Reply<'_>) -> bool {
        let end = self.rest.end.min(self.rest.start + SLICE_BYTES_MAX);
        self.ones += count(self.string.as_ref(), self.rest.start..end);
        self.rest.start = end;
        let done = self.rest.is_empty();
        if done {
            reply.integer(self.ones);
        }
        done
    }

    fn again(&self) -> Box<dyn Slice> {
        Box::new(self.clone())
    }
}

/// The set bits in the first and last byte of `bits` (not empty) that are not part of it.
fn count_outside(string: StringRef<'_>, bits: &Range<usize>) -> i64 {
    let before = byte_at(string, bits.start / 8) & !(0xff >> (bits.start % 8));
    let after = match bits.end % 8 {
        0 => 0,
        inside => byte_at(string, bits.end / 8) & (0xff >> inside),
    };
    i64::from(before.count_ones() + after.count_ones())
}

/// The set bits of these bytes.
fn count(string: StringRef<'_>, bytes: Range<usize>) -> i64 {
    let mut ones = 0;
    string.for_each_piece(bytes, |piece| ones += count_ones(piece));
    ones
}

fn count_ones(bytes: &[u8]) -> i64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words = words.iter().map(|word| u64::from_ne_bytes(*word));
    let ones: u32 = words.map(u64::count_ones).sum();
    i64::from(ones + rest.iter().map(|byte| byte.count_ones()).sum::<u32>())
}
