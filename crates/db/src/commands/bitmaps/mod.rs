//! Commands on the bits of strings, one file per operation family.
//!
//! Bit 0 is the highest bit of the first byte. A write keeps the string's deadline. One that
//! changes nothing is not a write: it draws no version, unless it changes the string's encoding
//! (`encoding.rs`).

mod bitfield;
mod bitop;
mod bits;
mod count;
mod position;

use pando_engine::StringRef;
use pando_protocol::command::BitmapCommand;
use pando_protocol::{Reply, Request, number};

use super::strings::{check_length, kept, span};
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::Handled;

/// The value of an absent key.
const EMPTY: StringRef<'static> = StringRef::Flat(b"");

/// Runs a command of this family.
#[inline]
pub(super) fn execute(
    command: BitmapCommand,
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    match command {
        BitmapCommand::Setbit => bits::setbit(keyspace, request, reply),
        BitmapCommand::Getbit => bits::getbit(keyspace, request, reply),
        BitmapCommand::Bitcount => count::bitcount(keyspace, request, reply),
        BitmapCommand::Bitpos => position::bitpos(keyspace, request, reply),
        BitmapCommand::Bitop => bitop::bitop(keyspace, request, reply),
        BitmapCommand::Bitfield => bitfield::bitfield(keyspace, request, reply, false),
        BitmapCommand::BitfieldRo => bitfield::bitfield(keyspace, request, reply, true),
    }
}

/// A bit's offset, within the limit of a string. `#n` is the offset of the n-th field of `width`
/// bits, if a width is given.
fn parse_offset(
    keyspace: &Keyspace<'_>,
    text: &[u8],
    width: Option<u32>,
) -> Result<usize, CommandError> {
    let (number, factor) = match (text, width) {
        ([b'#', number @ ..], Some(width)) => (number, i64::from(width)),
        _ => (text, 1),
    };
    // A product beyond 64 bits wraps, as it does in Redis.
    let offset = number::parse_i64(number).map(|offset| offset.wrapping_mul(factor));
    let offset = offset.and_then(|offset| usize::try_from(offset).ok());
    offset
        .filter(|offset| offset / 8 < keyspace.options().value_bytes_max)
        .ok_or(CommandError::BitOffset)
}

/// The byte at `index`, 0 beyond the end. O(log length).
fn byte_at(string: StringRef<'_>, index: usize) -> u8 {
    let mut byte = 0;
    if index < string.len() {
        string.for_each_piece(index..index + 1, |piece| byte = piece[0]);
    }
    byte
}

/// The unit of a range's offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RangeUnit {
    Byte,
    Bit,
}

impl RangeUnit {
    /// The word at `index`, bytes if there is none.
    fn parse(request: Request<'_>, index: usize) -> Result<Self, CommandError> {
        if request.len() <= index || request.is(index, "BYTE") {
            Ok(Self::Byte)
        } else if request.is(index, "BIT") {
            Ok(Self::Bit)
        } else {
            Err(CommandError::Syntax)
        }
    }

    /// The bits from `start` to `end` (included) of a string of `len` bytes.
    fn bits(self, start: i64, end: i64, len: usize) -> std::ops::Range<usize> {
        match self {
            Self::Bit => span(start, end, len * 8),
            Self::Byte => {
                let bytes = span(start, end, len);
                bytes.start * 8..bytes.end * 8
            }
        }
    }
}

#[cfg(test)]
mod tests;
