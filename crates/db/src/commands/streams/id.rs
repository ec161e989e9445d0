//! Ids as they are written: `<ms>-<seq>`, `<ms>`, and in some places `-`, `+`, `(<id>`, `<ms>-*`.

use pando_engine::StreamId;
use pando_protocol::{Reply, number};

use crate::error::CommandError;

/// Longest text of an id, in bytes, as in Redis.
const TEXT_BYTES_MAX: usize = 127;

/// The number that a part of an id is: also with zeros in front, or a sign, as `strtoull` reads it.
fn part(text: &[u8]) -> Option<u64> {
    if let Some(number) = number::parse_i64(text) {
        return u64::try_from(number).ok();
    }
    let text = text.trim_ascii_start();
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let number = digits.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        let number = number.checked_mul(10)?;
        number.checked_add((digit <= 9).then_some(digit.into())?)
    })?;
    Some(if negative {
        number.wrapping_neg()
    } else {
        number
    })
}

/// The two parts of an id; the second one is what follows the first `-`.
fn split(text: &[u8]) -> Result<(u64, Option<&[u8]>), CommandError> {
    let dash = text.iter().position(|byte| *byte == b'-');
    let (first, second) = match dash {
        Some(dash) => (&text[..dash], Some(&text[dash + 1..])),
        None => (text, None),
    };
    match part(first) {
        Some(ms) if text.len() <= TEXT_BYTES_MAX => Ok((ms, second)),
        _ => Err(CommandError::InvalidStreamId),
    }
}

/// An id; where there is one part only, `seq` is the other.
pub(super) fn parse(text: &[u8], seq: u64) -> Result<StreamId, CommandError> {
    let (ms, second) = split(text)?;
    let seq = match second {
        None => seq,
        Some(second) => part(second).ok_or(CommandError::InvalidStreamId)?,
    };
    Ok(StreamId { ms, seq })
}

/// An id, or `-` or `+` for the first and the last one.
pub(super) fn parse_or_edge(text: &[u8], seq: u64) -> Result<StreamId, CommandError> {
    match text {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        text => parse(text, seq),
    }
}

/// The first id of a range.
pub(super) fn parse_start(text: &[u8]) -> Result<StreamId, CommandError> {
    match text {
        [b'(', id @ ..] if !id.is_empty() => {
            parse(id, 0)?.next().ok_or(CommandError::IntervalStart)
        }
        text => parse_or_edge(text, 0),
    }
}

/// The last id of a range.
pub(super) fn parse_end(text: &[u8]) -> Result<StreamId, CommandError> {
    match text {
        [b'(', id @ ..] if !id.is_empty() => {
            let id = parse(id, u64::MAX)?;
            id.previous().ok_or(CommandError::IntervalEnd)
        }
        text => parse_or_edge(text, u64::MAX),
    }
}

/// The id that a new entry is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The present millisecond, or the next id.
    Any,
    /// The next one of this millisecond.
    In(u64),
    /// This one.
    This(StreamId),
}

impl Wanted {
    /// What `<ms>-*` and `<id>` say.
    pub(super) fn parse(text: &[u8]) -> Result<Self, CommandError> {
        match split(text)? {
            (ms, Some(b"*")) => Ok(Self::In(ms)),
            _ => parse(text, 0).map(Self::This),
        }
    }

    /// The id in a stream whose last one is `last`.
    pub(super) fn after(self, last: StreamId, now_ms: u64) -> Result<StreamId, CommandError> {
        let next = last.next().ok_or(CommandError::StreamExhausted)?;
        let id = match self {
            Self::Any if now_ms > last.ms => StreamId { ms: now_ms, seq: 0 },
            Self::Any => next,
            Self::In(ms) if ms == last.ms && last.seq == u64::MAX => {
                return Err(CommandError::StreamEntryTooLong);
            }
            Self::In(ms) if ms == last.ms => next,
            Self::In(ms) => StreamId { ms, seq: 0 },
            Self::This(id) => id,
        };
        if id > last {
            Ok(id)
        } else {
            Err(CommandError::StreamIdTooSmall)
        }
    }
}

/// Replies with an id.
pub(super) fn reply_id(reply: &mut Reply<'_>, id: StreamId) {
    reply.bulk(format!("{}-{}", id.ms, id.seq));
}
