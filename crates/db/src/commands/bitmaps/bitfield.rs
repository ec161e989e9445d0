//! BITFIELD and `BITFIELD_RO`: integers of 1 to 64 bits at any bit of a string.
//!
//! All operations of a request see the writes of earlier ones, and are stored as one change.

use pando_engine::{Decision, NewValue};
use pando_protocol::{Reply, Request, number};

use super::{EMPTY, check_length, kept, parse_offset};
use crate::commands::draft::Draft;
use crate::encoding;
use crate::error::CommandError;
use crate::keyspace::{Keyspace, string_of};
use crate::progress::{Handled, Progress};

/// What happens to a number that does not fit its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    /// Its low bits are stored.
    Wrap,
    /// The nearest number that fits is stored.
    Saturate,
    /// Nothing is stored.
    Fail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Get,
    Set(i64, Overflow),
    Increment(i64, Overflow),
}

/// One operation on one field.
#[derive(Clone, Copy, Debug)]
struct Operation {
    access: Access,
    signed: bool,
    /// Bits of the field, 1 to 64 (unsigned: 63).
    width: u32,
    /// Its first bit.
    offset: usize,
}

/// BITFIELD key [GET encoding offset | [OVERFLOW WRAP | SAT | FAIL] SET encoding offset value |
/// INCRBY encoding offset increment …]
pub(super) fn bitfield(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    read_only: bool,
) -> Handled {
    let operations = parse_operations(keyspace, request)?;
    let writes = operations
        .iter()
        .filter(|operation| operation.access != Access::Get);
    let end = writes
        .map(|write| write.offset + write.width as usize)
        .max();
    let Some(end) = end else {
        return read_fields(keyspace, request, reply, &operations);
    };
    if read_only {
        return Err(CommandError::BitfieldReadOnly);
    }
    // A field may begin at the last bit of the longest string and would end beyond it.
    let len_min = end.div_ceil(8);
    check_length(keyspace, len_min, 0).map_err(|_| CommandError::BitOffset)?;
    let results = keyspace.try_update(request.arg(1), |old| {
        let mut draft = Draft::new(old.map_or(Ok(EMPTY), string_of)?, len_min);
        let results: Vec<_> = operations.iter().map(|one| one.apply(&mut draft)).collect();
        let value = if draft.is_changed() {
            let value = NewValue::new(draft.finish());
            Decision::Write(value.with(kept(old.as_ref(), encoding::RAW)))
        } else {
            Decision::Keep
        };
        Ok((value, results))
    })?;
    reply.array(results.len());
    for result in results {
        match result {
            Some(number) => reply.integer(number),
            None => reply.null(),
        }
    }
    Ok(Progress::Done)
}

fn read_fields(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    operations: &[Operation],
) -> Handled {
    keyspace.read_string(request.arg(1), |string| {
        let draft = Draft::new(string.unwrap_or(EMPTY), 0);
        reply.array(operations.len());
        for operation in operations {
            reply.integer(operation.number_of(operation.read(&draft)) as i64);
        }
    })?;
    Ok(Progress::Done)
}

fn parse_operations(
    keyspace: &Keyspace<'_>,
    request: Request<'_>,
) -> Result<Vec<Operation>, CommandError> {
    let mut operations = Vec::new();
    let mut overflow = Overflow::Wrap;
    let mut index = 2;
    while index < request.len() {
        let left = request.len() - index - 1;
        if request.is(index, "OVERFLOW") && left >= 1 {
            overflow = parse_overflow(request, index + 1)?;
            index += 2;
            continue;
        }
        let write: Option<fn(i64, Overflow) -> Access> = if request.is(index, "GET") && left >= 2 {
            None
        } else if request.is(index, "SET") && left >= 3 {
            Some(Access::Set)
        } else if request.is(index, "INCRBY") && left >= 3 {
            Some(Access::Increment)
        } else {
            return Err(CommandError::Syntax);
        };
        let (signed, width) = parse_type(request.arg(index + 1))?;
        let offset = parse_offset(keyspace, request.arg(index + 2), Some(width))?;
        index += 3;
        let access = match write {
            None => Access::Get,
            Some(write) => {
                let number = number::parse_i64(request.arg(index));
                index += 1;
                write(number.ok_or(CommandError::NotAnInteger)?, overflow)
            }
        };
        operations.push(Operation {
            access,
            signed,
            width,
            offset,
        });
    }
    Ok(operations)
}

fn parse_overflow(request: Request<'_>, index: usize) -> Result<Overflow, CommandError> {
    if request.is(index, "WRAP") {
        Ok(Overflow::Wrap)
    } else if request.is(index, "SAT") {
        Ok(Overflow::Saturate)
    } else if request.is(index, "FAIL") {
        Ok(Overflow::Fail)
    } else {
        Err(CommandError::BitfieldOverflow)
    }
}

/// Whether a field is signed, and its bits: `i16`, `u8`.
fn parse_type(text: &[u8]) -> Result<(bool, u32), CommandError> {
    let (signed, width, width_max) = match text {
        [b'i', width @ ..] => (true, width, 64),
        [b'u', width @ ..] => (false, width, 63),
        _ => return Err(CommandError::BitfieldType),
    };
    match number::parse_i64(width) {
        Some(width) if (1..=width_max).contains(&width) => Ok((signed, width as u32)),
        _ => Err(CommandError::BitfieldType),
    }
}

impl Operation {
    /// Performs the operation; returns its reply, none if it failed.
    fn apply(&self, draft: &mut Draft<'_>) -> Option<i64> {
        let old_bits = self.read(draft);
        let old = self.number_of(old_bits);
        let (number, overflow) = match self.access {
            Access::Get => return Some(old as i64),
            Access::Set(number, overflow) => (self.number_to_set(number, overflow), overflow),
            Access::Increment(increment, overflow) => (old + i128::from(increment), overflow),
        };
        let bits = self.fit(number, overflow)?;
        if bits != old_bits {
            self.write(draft, bits);
        }
        match self.access {
            Access::Increment(..) => Some(self.number_of(bits) as i64),
            _ => Some(old as i64),
        }
    }

    /// The number that SET stores for `number`, which differs where Redis computes in 64 bits.
    fn number_to_set(&self, number: i64, overflow: Overflow) -> i128 {
        if !self.signed {
            // To an unsigned field a negative number is a large one.
            return i128::from(number as u64);
        }
        // So is one to a saturating signed field, if the space above it wraps to less than zero.
        let headroom = (i64::MAX >> (u64::BITS - self.width)).wrapping_sub(number);
        if overflow == Overflow::Saturate && self.width < u64::BITS && headroom < 0 {
            return i128::from(i64::MAX);
        }
        i128::from(number)
    }

    /// The bits that are stored for a number.
    fn fit(&self, number: i128, overflow: Overflow) -> Option<u64> {
        let (least, most) = if self.signed {
            (
                -(1_i128 << (self.width - 1)),
                (1_i128 << (self.width - 1)) - 1,
            )
        } else {
            (0, (1_i128 << self.width) - 1)
        };
        let fitting = match overflow {
            _ if (least..=most).contains(&number) => number,
            Overflow::Wrap => number,
            Overflow::Saturate => number.clamp(least, most),
            Overflow::Fail => return None,
        };
        Some(fitting as u64 & self.mask())
    }

    /// The number that the field's bits stand for.
    fn number_of(&self, bits: u64) -> i128 {
        let unused = u64::BITS - self.width;
        if self.signed {
            i128::from((bits << unused) as i64 >> unused)
        } else {
            i128::from(bits)
        }
    }

    fn mask(&self) -> u64 {
        u64::MAX >> (u64::BITS - self.width)
    }

    /// How far the field is from the low end of the nine bytes that start with its first one.
    fn shift(&self) -> u32 {
        72 - (self.offset % 8) as u32 - self.width
    }

    fn read(&self, draft: &Draft<'_>) -> u64 {
        (u72_from(draft.read(self.offset / 8)) >> self.shift()) as u64 & self.mask()
    }

    fn write(&self, draft: &mut Draft<'_>, bits: u64) {
        let start = self.offset / 8;
        let others = u72_from(draft.read(start)) & !(u128::from(self.mask()) << self.shift());
        let bytes = (others | u128::from(bits) << self.shift()).to_be_bytes();
        let touched = (self.offset % 8 + self.width as usize).div_ceil(8);
        draft.write(start, &bytes[16 - 9..][..touched]);
    }
}

fn u72_from(bytes: [u8; 9]) -> u128 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u128::from(*byte))
}
