//! Arithmetic on strings that are numbers: INCR, DECR, INCRBY, DECRBY, INCRBYFLOAT.

use std::cell::OnceCell;

use pando_engine::{Body, BodyRef, Decision, NewValue, StringRef, ValueRef};
use pando_protocol::command::StringCommand;
use pando_protocol::number::IntegerText;
use pando_protocol::{Reply, Request, number};

use super::kept;
use crate::commands::extended::Extended;
use crate::commands::joined::{Done, Step, Subject};
use crate::encoding;
use crate::error::CommandError;
use crate::keyspace::{Keyspace, string_of};
use crate::progress::{Handled, Progress};

/// What a command adds.
fn increment_of(command: StringCommand, request: Request<'_>) -> Result<i64, CommandError> {
    use StringCommand as S;
    let number = || number::parse_i64(request.arg(2)).ok_or(CommandError::NotAnInteger);
    match command {
        S::Incr => Ok(1),
        S::Decr => Ok(-1),
        S::Incrby => number(),
        _ => number()?
            .checked_neg()
            .ok_or(CommandError::DecrementOverflow),
    }
}

/// INCR key, DECR key, INCRBY key increment, DECRBY key decrement
pub(super) fn add(
    command: StringCommand,
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let (key, increment) = (request.arg(1), increment_of(command, request)?);
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

/// The number at a key, for commands that are joined with others; `None`: they are to be executed
/// alone.
pub(in crate::commands) fn open_number(old: Option<ValueRef<'_>>) -> Option<Subject<i64>> {
    let draft = match old.map(|value| value.body) {
        None => 0,
        Some(BodyRef::String(string)) => short(string).and_then(number::parse_i64)?,
        Some(_) => return None,
    };
    Some(Subject {
        draft,
        attributes: kept(old.as_ref(), encoding::DERIVED),
        is_made: old.is_none(),
    })
}

/// One command, as a change of a number (JU1 as-if-alone).
pub(in crate::commands) fn step(
    command: StringCommand,
    number: &mut Subject<i64>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Result<Step, CommandError> {
    let sum = (number.draft)
        .checked_add(increment_of(command, request)?)
        .ok_or(CommandError::IncrementOverflow)?;
    number.draft = sum;
    reply.integer(sum);
    Done::changing(true)
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
