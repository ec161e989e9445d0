//! Reads and writes of a part of a string: GETRANGE, SUBSTR, SETRANGE, APPEND.

use std::ops::Range;

use pando_engine::{Body, Decision, NewValue, StringRef};
use pando_protocol::{Reply, Request, number};

use super::{check_length, kept};
use crate::commands::detached::reply_bulk_range;
use crate::encoding;
use crate::error::CommandError;
use crate::keyspace::{Keyspace, string_of};
use crate::progress::{Handled, Progress};

/// The positions from `start` to `end`, both included, of `len` positions; negative ones count from
/// the end, and the part outside is cut off.
pub(in crate::commands) fn span(start: i64, end: i64, len: usize) -> Range<usize> {
    let position = |index: i64| {
        let index = if index < 0 {
            index.saturating_add_unsigned(len as u64)
        } else {
            index
        };
        usize::try_from(index).unwrap_or(0)
    };
    let end = position(end).saturating_add(1).min(len);
    position(start).min(end)..end
}

/// Whether the positions are in the wrong order whatever the length is.
pub(in crate::commands) fn is_reversed(start: i64, end: i64) -> bool {
    start < 0 && end < 0 && start > end
}

/// GETRANGE key start end
pub(super) fn getrange(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let start = number::parse_i64(request.arg(2)).ok_or(CommandError::NotAnInteger)?;
    let end = number::parse_i64(request.arg(3)).ok_or(CommandError::NotAnInteger)?;
    keyspace.read_string(request.arg(1), |string| match string {
        Some(string) if !is_reversed(start, end) => {
            reply_bulk_range(reply, string, span(start, end, string.len()));
        }
        _ => reply.bulk(b""),
    })?;
    Ok(Progress::Done)
}

/// SETRANGE key offset value
pub(super) fn setrange(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let offset = number::parse_i64(request.arg(2)).ok_or(CommandError::NotAnInteger)?;
    let offset = usize::try_from(offset).map_err(|_| CommandError::OffsetOutOfRange)?;
    let bytes = request.arg(3);
    let fits = check_length(keyspace, offset, bytes.len());
    let len = keyspace.try_update(request.arg(1), |old| {
        let string = old.map_or(Ok(StringRef::Flat(b"")), string_of)?;
        if bytes.is_empty() {
            return Ok((Decision::Keep, string.len()));
        }
        fits.clone()?;
        let len = string.len().max(offset + bytes.len());
        let value = NewValue::new(string.with_write(offset, bytes));
        let attributes = kept(old.as_ref(), encoding::RAW);
        Ok((Decision::Write(value.with(attributes)), len))
    })?;
    reply.count(len);
    Ok(Progress::Done)
}

/// APPEND key value
pub(super) fn append(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let bytes = request.arg(2);
    let value_bytes_max = keyspace.options().value_bytes_max;
    let check_fit = keyspace.fit();
    let len = keyspace.try_update(request.arg(1), |old| {
        let string = old.map_or(Ok(StringRef::Flat(b"")), string_of)?;
        let len = string.len() + bytes.len();
        if len > value_bytes_max {
            return Err(CommandError::StringTooLong);
        }
        let held = string.heap_bytes();
        check_fit(held, held + bytes.len())?;
        let value = match old {
            // A new string is an integer if it looks like one; a changed one never is.
            None => NewValue::new(Body::string(bytes)),
            Some(_) => NewValue::new(string.with_write(string.len(), bytes))
                .with(kept(old.as_ref(), encoding::RAW)),
        };
        Ok((Decision::Write(value), len))
    })?;
    reply.count(len);
    Ok(Progress::Done)
}
