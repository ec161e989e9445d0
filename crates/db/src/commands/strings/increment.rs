//! Arithmetic on strings that are numbers: INCR, DECR, INCRBY, DECRBY, INCRBYFLOAT.

use std::cell::OnceCell;

use pando_engine::{Body, Decision, NewValue, StringRef};
use pando_protocol::number::IntegerText;
use pando_protocol::{Reply, Request, number};

use super::kept;
use crate::commands::extended::Extended;
use crate::encoding;
use crate::error::CommandError;
use crate::keyspace::{Keyspace, string_of};
use crate::progress::{Handled, Progress};

/// INCR key, DECR key
pub(super) fn step(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    increment: i64,
) -> Handled {
    add(keyspace, request.arg(1), increment, reply)
}

/// INCRBY key increment
pub(super) fn incrby(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let increment = number::parse_i64(request.arg(2)).ok_or(CommandError::NotAnInteger)?;
    add(keyspace, request.arg(1), increment, reply)
}

/// DECRBY key decrement
pub(super) fn decrby(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let decrement = number::parse_i64(request.arg(2)).ok_or(CommandError::NotAnInteger)?;
    let increment = decrement
        .checked_neg()
        .ok_or(CommandError::DecrementOverflow)?;
    add(keyspace, request.arg(1), increment, reply)
}

fn add(keyspace: &mut Keyspace<'_>, key: &[u8], increment: i64, reply: &mut Reply<'_>) -> Handled {
    let borrowed = OnceCell::new();
    let sum = keyspace.try_update(key, |old| {
        let number = match old.map(string_of).transpose()? {
            None => 0,
            Some(string) => short(string)
                .and_then(number::parse_i64)
                .ok_or(CommandError::NotAnInteger)?,
        };
        let sum = number
            .checked_add(increment)
            .ok_or(CommandError::IncrementOverflow)?;
        // Only where the closure runs again the text is allocated.
        let body = match borrowed.set(IntegerText::of(sum)) {
            Ok(()) => Body::string(borrowed.get().map_or(&[], IntegerText::as_bytes)),
            Err(text) => Body::string_owned(text.as_bytes().to_vec()),
        };
        let value = NewValue::new(body);
        let attributes = kept(old.as_ref(), encoding::DERIVED);
        Ok((Decision::Write(value.with(attributes)), sum))
    })?;
    reply.integer(sum);
    Ok(Progress::Done)
}

/// INCRBYFLOAT key increment
pub(super) fn incrbyfloat(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let increment = Extended::parse(request.arg(2));
    let sum = keyspace.try_update(request.arg(1), |old| {
        let number = match old.map(string_of).transpose()? {
            None => Some(Extended::ZERO),
            Some(string) => short(string).and_then(Extended::parse),
        };
        let (Some(number), Some(increment)) = (number, increment) else {
            return Err(CommandError::NotAFloat);
        };
        let sum = number.checked_add(increment)?.to_human();
        let value = NewValue::new(Body::string_owned(sum.clone().into_bytes()));
        let attributes = kept(old.as_ref(), encoding::TEXT);
        Ok((Decision::Write(value.with(attributes)), sum))
    })?;
    reply.bulk(sum);
    Ok(Progress::Done)
}

/// The bytes of a string that may be a number: none is long enough to be chunked.
fn short(string: StringRef<'_>) -> Option<&[u8]> {
    string.as_flat()
}
