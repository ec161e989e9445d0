//! RESTORE.

use pando_engine::mark::MARK_MAX;
use pando_engine::{Attributes, Deadline, Decision, NewValue};
use pando_protocol::{Reply, Request, number};

use super::again;
use crate::dump::{self, Bounds, PayloadError};
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::limits;
use crate::memory::{Tracking, mark_of_idle};
use crate::progress::{Handled, Progress};

/// The options after the payload.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    replace: bool,
    absolute: bool,
    /// IDLETIME in seconds, and FREQ: how recently or often the key counts as used.
    idle_seconds: Option<u64>,
    frequency: Option<u8>,
}

impl Options {
    fn parse(request: Request<'_>) -> Result<Self, CommandError> {
        let mut options = Self::default();
        let mut at = 4;
        while at < request.len() {
            let number =
                |at: usize| number::parse_i64(request.arg(at)).ok_or(CommandError::NotAnInteger);
            let more = at + 1 < request.len();
            if request.is(at, "REPLACE") {
                options.replace = true;
            } else if request.is(at, "ABSTTL") {
                options.absolute = true;
            } else if request.is(at, "IDLETIME") && more && options.frequency.is_none() {
                at += 1;
                let seconds = u64::try_from(number(at)?);
                options.idle_seconds = Some(seconds.map_err(|_| CommandError::InvalidIdleTime)?);
            } else if request.is(at, "FREQ") && more && options.idle_seconds.is_none() {
                at += 1;
                let frequency = u8::try_from(number(at)?);
                options.frequency = Some(frequency.map_err(|_| CommandError::InvalidFrequency)?);
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        Ok(options)
    }
}

/// Makes a key from a payload of DUMP. O(size).
pub(super) fn restore(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let key = request.arg(1);
    let options = Options::parse(request)?;
    if !options.replace && keyspace.look(key, |value| value.is_some()) {
        return Err(CommandError::BusyKey);
    }
    let ttl = number::parse_i64(request.arg(2)).ok_or(CommandError::NotAnInteger)?;
    if ttl < 0 {
        return Err(CommandError::InvalidTtl);
    }
    keyspace.check_key(key)?;
    let fit_bytes_max = keyspace.database.memory.fit_bytes_max();
    let bounds = Bounds {
        value_bytes_max: keyspace.options().value_bytes_max,
        field_bytes_max: pando_engine::limits::FIELD_BYTES_MAX,
        total_bytes_max: limits::RESTORED_BYTES_MAX.min(fit_bytes_max),
    };
    let decoded = dump::decode(request.arg(3), bounds).map_err(|error| match error {
        PayloadError::TooLong { bytes_max, .. } if bytes_max == fit_bytes_max => {
            CommandError::OutOfMemory
        }
        error => error.into(),
    })?;
    let now = keyspace.now().0 as i64;
    // As in Redis, a sum beyond 64 bits wraps around to the past.
    let deadline = if options.absolute {
        ttl
    } else {
        ttl.wrapping_add(now)
    };
    let is_past = ttl != 0 && deadline <= now;
    let attributes = Attributes {
        deadline: (ttl != 0).then_some(Deadline(deadline as u64)),
        encoding: decoded.encoding(&keyspace.thresholds()),
        ..Attributes::default()
    };
    let mut value = NewValue::new(decoded.body).with(attributes);
    let tracking = keyspace.session.access.tracking;
    let given = match tracking {
        Tracking::Nothing => None,
        Tracking::Lately => options.idle_seconds.map(mark_of_idle),
        Tracking::Often => options.frequency.map(|frequency| frequency.min(MARK_MAX)),
    };
    if let Some(mark) = given {
        // It is kept as it is, whatever was there before.
        value.mark = mark;
        keyspace.session.access.tracking = Tracking::Nothing;
    }
    let restored = keyspace.try_update(key, |old| match old {
        Some(_) if !options.replace => Err(CommandError::BusyKey),
        _ if is_past => Ok((Decision::Remove, ())),
        _ => Ok((Decision::Write(again(&value)), ())),
    });
    keyspace.session.access.tracking = tracking;
    restored?;
    reply.ok();
    Ok(Progress::Done)
}

impl From<PayloadError> for CommandError {
    fn from(error: PayloadError) -> Self {
        match error {
            PayloadError::Footer => Self::PayloadFooter,
            PayloadError::Malformed { .. } => Self::PayloadFormat,
            PayloadError::Unsupported { type_name } => Self::PayloadType { type_name },
            PayloadError::TooLong { bytes, bytes_max } => Self::PayloadTooLong { bytes, bytes_max },
        }
    }
}
