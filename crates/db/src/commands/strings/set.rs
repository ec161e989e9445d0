//! Commands that store a whole string at a key: SET, SETNX, SETEX, PSETEX, GETSET.

use pando_engine::{Attributes, Decision, NewValue};
use pando_protocol::{Reply, Request};

use super::get::answer_old;
use super::new_string;
use super::options::{Condition, SetOptions, Timing, Unit};
use crate::commands::detached::Detached;
use crate::error::CommandError;
use crate::keyspace::{Keyspace, string_of};
use crate::progress::{Handled, Progress};

/// The outcome of a conditional write.
struct Written {
    written: bool,
    /// The former string, if requested.
    old: Option<Detached<'static>>,
}

/// SET key value [NX | XX] [GET] [EX seconds | PX milliseconds | EXAT seconds | PXAT milliseconds |
/// KEEPTTL]
#[inline]
pub(super) fn set(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    if request.len() > 3 {
        return set_with_options(keyspace, request, reply);
    }
    let value = new_string(keyspace, request.arg(2))?;
    keyspace.update(request.arg(1), |_| {
        Decision::Write(NewValue::new(value.body()))
    })?;
    reply.ok();
    Ok(Progress::Done)
}

fn set_with_options(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let options = SetOptions::parse(request)?;
    let done = store(keyspace, request.arg(1), request.arg(2), &options, "set")?;
    if options.get {
        return answer_old(keyspace, reply, done.old);
    }
    if done.written {
        reply.ok();
    } else {
        reply.null();
    }
    Ok(Progress::Done)
}

/// SETNX key value
pub(super) fn setnx(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let options = SetOptions {
        condition: Condition::IfAbsent,
        ..SetOptions::default()
    };
    let done = store(keyspace, request.arg(1), request.arg(2), &options, "setnx")?;
    reply.integer(i64::from(done.written));
    Ok(Progress::Done)
}

/// SETEX key seconds value
pub(super) fn setex(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    store_until(keyspace, request, reply, Unit::Seconds, "setex")
}

/// PSETEX key milliseconds value
pub(super) fn psetex(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    store_until(keyspace, request, reply, Unit::Milliseconds, "psetex")
}

fn store_until(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    unit: Unit,
    command: &'static str,
) -> Handled {
    let timing = Timing {
        text: request.arg(2),
        unit,
        absolute: false,
    };
    let options = SetOptions {
        timing: Some(timing),
        ..SetOptions::default()
    };
    store(keyspace, request.arg(1), request.arg(3), &options, command)?;
    reply.ok();
    Ok(Progress::Done)
}

/// GETSET key value
pub(super) fn getset(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let options = SetOptions {
        get: true,
        ..SetOptions::default()
    };
    let done = store(keyspace, request.arg(1), request.arg(2), &options, "getset")?;
    answer_old(keyspace, reply, done.old)
}

/// Stores `bytes` at `key` as the options say. With GET, a former value must be a string.
fn store(
    keyspace: &mut Keyspace<'_>,
    key: &[u8],
    bytes: &[u8],
    options: &SetOptions<'_>,
    command: &'static str,
) -> Result<Written, CommandError> {
    let now = keyspace.now();
    let timing = options.timing.as_ref();
    let deadline = timing
        .map(|timing| timing.deadline(now, command))
        .transpose()?;
    let value = new_string(keyspace, bytes)?;
    keyspace.try_update(key, |present| {
        let old = match present {
            Some(present) if options.get => Some(Detached::take(string_of(present)?)),
            _ => None,
        };
        let written = options.condition.allows(present.is_some());
        let kept = present.and_then(|value| value.attributes.deadline);
        let attributes = Attributes {
            deadline: if options.keep_deadline {
                kept
            } else {
                deadline
            },
            ..Attributes::default()
        };
        let decision = if written {
            Decision::Write(NewValue::new(value.body()).with(attributes))
        } else {
            Decision::Keep
        };
        Ok((decision, Written { written, old }))
    })
}
