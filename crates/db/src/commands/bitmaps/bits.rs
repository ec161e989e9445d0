//! One bit: SETBIT, GETBIT.

use pando_engine::{Decision, NewValue};
use pando_protocol::{Reply, Request, number};

use super::{EMPTY, byte_at, kept, parse_offset};
use crate::encoding;
use crate::error::CommandError;
use crate::keyspace::{Keyspace, string_of};
use crate::progress::{Handled, Progress};

/// SETBIT key offset value
pub(super) fn setbit(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let (byte, mask) = locate(parse_offset(keyspace, request.arg(2), None)?);
    let set = match number::parse_i64(request.arg(3)) {
        Some(0) => false,
        Some(1) => true,
        _ => return Err(CommandError::BitValue),
    };
    let was_set = keyspace.try_update(request.arg(1), |old| {
        let string = old.map_or(Ok(EMPTY), string_of)?;
        let present = byte_at(string, byte);
        let was_set = present & mask != 0;
        // Redis calls such a string raw from now on, and WATCH does not notice; here a value that
        // is not written keeps its encoding.
        if was_set == set && byte < string.len() {
            return Ok((Decision::Keep, was_set));
        }
        let changed = if set { present | mask } else { present & !mask };
        let value = NewValue::new(string.with_write(byte, &[changed]));
        let attributes = kept(old.as_ref(), encoding::RAW);
        Ok((Decision::Write(value.with(attributes)), was_set))
    })?;
    reply.integer(i64::from(was_set));
    Ok(Progress::Done)
}

/// GETBIT key offset
pub(super) fn getbit(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let (byte, mask) = locate(parse_offset(keyspace, request.arg(2), None)?);
    let set = keyspace.read_string(request.arg(1), |string| {
        string.is_some_and(|string| byte_at(string, byte) & mask != 0)
    })?;
    reply.integer(i64::from(set));
    Ok(Progress::Done)
}

/// The byte that contains a bit, and the bit in it.
fn locate(offset: usize) -> (usize, u8) {
    (offset / 8, 0x80 >> (offset % 8))
}
