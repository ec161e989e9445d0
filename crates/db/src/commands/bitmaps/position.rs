//! BITPOS: the first bit that is set, or clear. A large string is searched in slices, as in
//! BITCOUNT: all slices see one version of it.

use std::ops;

use pando_engine::StringRef;
use pando_protocol::{Reply, Request, number};

use super::{RangeUnit, byte_at};
use crate::commands::detached::Detached;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::limits::SLICE_BYTES_MAX;
use crate::progress::{Handled, Progress, Slice};

/// Bytes between two checks whether the search is over.
const STRIDE_BYTES: usize = 64 * 1024;

/// BITPOS key bit [start [end [BYTE | BIT]]]
pub(super) fn bitpos(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let wanted = match number::parse_i64(request.arg(2)) {
        Some(0) => false,
        Some(1) => true,
        Some(_) => return Err(CommandError::BitArgument),
        None => return Err(CommandError::NotAnInteger),
    };
    // As in Redis 8, the arguments are checked before the key. An absent key is endless zeros.
    let range = Range::parse(request)?;
    let begun = keyspace.read_string(request.arg(1), |string| match string {
        None if wanted => Outcome::Over(-1),
        None => Outcome::Over(0),
        Some(string) => begin(string, range, wanted),
    })?;
    match begun {
        Outcome::Over(position) => {
            reply.integer(position);
            Ok(Progress::Done)
        }
        Outcome::Begun(search) => Ok(Progress::in_slices(search)),
    }
}

/// How far the search got at once.
enum Outcome {
    Over(i64),
    Begun(Search),
}

fn begin(string: StringRef<'_>, range: Range, wanted: bool) -> Outcome {
    let mut rest = range.bits(string.len());
    if rest.is_empty() {
        return Outcome::Over(-1);
    }
    // Without an end to the range, zeros follow the string.
    let otherwise = if !wanted && range.end.is_none() {
        string.len() as i64 * 8
    } else {
        -1
    };
    if let Some(position) = find(string, take_slice(&mut rest), wanted) {
        return Outcome::Over(position as i64);
    }
    if rest.is_empty() {
        return Outcome::Over(otherwise);
    }
    Outcome::Begun(Search {
        string: Detached::take(string),
        rest,
        wanted,
        otherwise,
    })
}

/// A search in progress.
#[derive(Clone, Debug)]
struct Search {
    string: Detached<'static>,
    /// The remaining bits; not empty.
    rest: ops::Range<usize>,
    wanted: bool,
    /// The answer if none of them matches.
    otherwise: i64,
}

impl Slice for Search {
    fn step(&mut self, _: &mut Keyspace<'_>, reply: &mut Reply<'_>) -> bool {
        let bits = take_slice(&mut self.rest);
        match find(self.string.as_ref(), bits, self.wanted) {
            Some(position) => reply.integer(position as i64),
            None if self.rest.is_empty() => reply.integer(self.otherwise),
            None => return false,
        }
        true
    }

    fn again(&self) -> Box<dyn Slice> {
        Box::new(self.clone())
    }
}

/// Takes the bits of one slice from the front.
fn take_slice(rest: &mut ops::Range<usize>) -> ops::Range<usize> {
    let end = rest.end.min((rest.start / 8 + SLICE_BYTES_MAX) * 8);
    let bits = rest.start..end;
    rest.start = end;
    bits
}

/// The part of a string that is searched.
#[derive(Clone, Copy, Debug)]
struct Range {
    start: i64,
    /// To the string's end, and beyond, if there is none.
    end: Option<i64>,
    unit: RangeUnit,
}

impl Range {
    fn parse(request: Request<'_>) -> Result<Self, CommandError> {
        if request.len() > 6 {
            return Err(CommandError::Syntax);
        }
        let integer = |index: usize| match request.get(index) {
            Some(text) => number::parse_i64(text)
                .map(Some)
                .ok_or(CommandError::NotAnInteger),
            None => Ok(None),
        };
        let start = integer(3)?.unwrap_or(0);
        let unit = RangeUnit::parse(request, 5)?;
        let end = integer(4)?;
        Ok(Self { start, end, unit })
    }

    /// Its bits in a string of `len` bytes.
    fn bits(self, len: usize) -> ops::Range<usize> {
        self.unit
            .bits(self.start, self.end.unwrap_or(i64::MAX), len)
    }
}

/// The first bit of `bits` (not empty) that equals `wanted`. O(bytes up to there).
fn find(string: StringRef<'_>, bits: ops::Range<usize>, wanted: bool) -> Option<usize> {
    // A byte without a wanted bit; bits in which another byte differs from it are wanted.
    let boring = if wanted { 0x00 } else { 0xff };
    let (first, last) = (bits.start / 8, (bits.end - 1) / 8);
    let position = |byte: usize, differing: u8| {
        (differing != 0).then(|| byte * 8 + differing.leading_zeros() as usize)
    };
    let edge = |byte: usize| {
        let from = bits.start.saturating_sub(byte * 8);
        let to = (bits.end - byte * 8).min(8);
        let inside = (0xff_u8 >> from) & !(0xff_u16 >> to) as u8;
        position(byte, (byte_at(string, byte) ^ boring) & inside)
    };
    edge(first)
        .or_else(|| {
            let (byte, differing) = find_byte(string, first + 1..last, boring)?;
            position(byte, differing)
        })
        .or_else(|| if last > first { edge(last) } else { None })
}

/// The first byte of `range` that is not `boring`, and the bits in which it differs.
fn find_byte(string: StringRef<'_>, range: ops::Range<usize>, boring: u8) -> Option<(usize, u8)> {
    let mut start = range.start;
    while start < range.end {
        let end = range.end.min(start + STRIDE_BYTES);
        let (mut found, mut piece_start) = (None, start);
        string.for_each_piece(start..end, |piece| {
            if found.is_none() {
                found = find_in_slice(piece, boring).map(|(at, bits)| (piece_start + at, bits));
                piece_start += piece.len();
            }
        });
        if found.is_some() {
            return found;
        }
        start = end;
    }
    None
}

fn find_in_slice(bytes: &[u8], boring: u8) -> Option<(usize, u8)> {
    // Blocks without an exit inside, so that many bytes are compared at a time.
    let (blocks, _) = bytes.as_chunks::<64>();
    let is_boring =
        |block: &&[u8; 64]| block.iter().fold(0, |bits, byte| bits | byte ^ boring) == 0;
    let start = blocks.iter().take_while(is_boring).count() * 64;
    let at = bytes[start..].iter().position(|byte| *byte != boring)?;
    Some((start + at, bytes[start + at] ^ boring))
}
