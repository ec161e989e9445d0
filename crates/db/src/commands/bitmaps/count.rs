//! BITCOUNT, which counts a large string in slices.
//!
//! All slices count one version of the string: the command keeps that version's chunks, whatever is
//! written to the key meanwhile.

use std::ops;

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
    // As in Redis 8, the arguments are checked before the key.
    let range = Range::parse(request)?;
    let begun = keyspace.read_string(request.arg(1), |string| {
        string.map_or(Outcome::Counted(0), |string| begin(string, range))
    })?;
    match begun {
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

fn begin(string: StringRef<'_>, range: Option<Range>) -> Outcome {
    let bits = range.map_or(0..string.len() * 8, |range| range.bits(string.len()));
    if bits.is_empty() {
        return Outcome::Counted(0);
    }
    let bytes = bits.start / 8..bits.end.div_ceil(8);
    let outside = count_outside(string, &bits);
    if bytes.len() <= SLICE_BYTES_MAX {
        return Outcome::Counted(count(string, bytes) - outside);
    }
    Outcome::Begun(Counting {
        string: Detached::take(string),
        rest: bytes,
        ones: -outside,
    })
}

/// The part of a string that is counted.
#[derive(Clone, Copy, Debug)]
struct Range {
    start: i64,
    end: i64,
    unit: RangeUnit,
}

impl Range {
    /// The range of a request; `None` if it is the whole string.
    fn parse(request: Request<'_>) -> Result<Option<Self>, CommandError> {
        let integer =
            |index| number::parse_i64(request.arg(index)).ok_or(CommandError::NotAnInteger);
        match request.len() {
            2 => Ok(None),
            4 | 5 => Ok(Some(Self {
                start: integer(2)?,
                end: integer(3)?,
                unit: RangeUnit::parse(request, 4)?,
            })),
            _ => Err(CommandError::Syntax),
        }
    }

    /// Its bits in a string of `len` bytes.
    fn bits(self, len: usize) -> ops::Range<usize> {
        if is_reversed(self.start, self.end) {
            0..0
        } else {
            self.unit.bits(self.start, self.end, len)
        }
    }
}

/// A count in progress.
#[derive(Clone, Debug)]
struct Counting {
    string: Detached<'static>,
    /// The bytes that are not counted yet.
    rest: ops::Range<usize>,
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
fn count_outside(string: StringRef<'_>, bits: &ops::Range<usize>) -> i64 {
    let before = byte_at(string, bits.start / 8) & !(0xff >> (bits.start % 8));
    let after = match bits.end % 8 {
        0 => 0,
        inside => byte_at(string, bits.end / 8) & (0xff >> inside),
    };
    i64::from(before.count_ones() + after.count_ones())
}

/// The set bits of these bytes.
fn count(string: StringRef<'_>, bytes: ops::Range<usize>) -> i64 {
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
