//! EXPIRE PEXPIRE EXPIREAT PEXPIREAT, TTL PTTL EXPIRETIME PEXPIRETIME, PERSIST.

use pando_engine::{Deadline, Decision, ValueRef};
use pando_protocol::{Reply, Request, number};

use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

const MILLISECONDS_PER_SECOND: i64 = 1000;

/// The options NX, XX, GT and LT.
#[derive(Clone, Copy, Debug, Default)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "four options, most of which combine"
)]
pub(in crate::commands) struct Conditions {
    absent: bool,
    present: bool,
    greater: bool,
    less: bool,
}

impl Conditions {
    /// Reads the arguments after the time.
    fn parse(request: Request<'_>) -> Result<Self, CommandError> {
        let mut conditions = Self::default();
        for (index, option) in (3..).zip(request.args_from(3)) {
            let condition = match index {
                _ if request.is(index, "NX") => &mut conditions.absent,
                _ if request.is(index, "XX") => &mut conditions.present,
                _ if request.is(index, "GT") => &mut conditions.greater,
                _ if request.is(index, "LT") => &mut conditions.less,
                _ => {
                    let option = option.into();
                    return Err(CommandError::UnsupportedOption { option });
                }
            };
            *condition = true;
        }
        if conditions.absent && (conditions.present || conditions.greater || conditions.less) {
            return Err(CommandError::IncompatibleNx);
        }
        if conditions.greater && conditions.less {
            return Err(CommandError::IncompatibleGtLt);
        }
        Ok(conditions)
    }

    /// The one option that an argument is, if it is one.
    pub(in crate::commands) fn one(request: Request<'_>, index: usize) -> Option<Self> {
        let mut conditions = Self::default();
        let condition = if request.is(index, "NX") {
            &mut conditions.absent
        } else if request.is(index, "XX") {
            &mut conditions.present
        } else if request.is(index, "GT") {
            &mut conditions.greater
        } else if request.is(index, "LT") {
            &mut conditions.less
        } else {
            return None;
        };
        *condition = true;
        Some(conditions)
    }

    /// Whether a key, or field, with this deadline may get `when`. No deadline counts as an
    /// infinite one.
    pub(in crate::commands) fn allow(self, present: Option<Deadline>, when: i64) -> bool {
        match present {
            None => !self.present && !self.greater,
            Some(Deadline(present)) => {
                let when = i128::from(when);
                let present = i128::from(present);
                !(self.absent || self.greater && when <= present || self.less && when >= present)
            }
        }
    }
}

/// How a command gives a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::commands) enum Time {
    /// Seconds from now.
    Seconds,
    /// Milliseconds from now.
    Milliseconds,
    /// Seconds since the Unix epoch.
    UnixSeconds,
    /// Milliseconds since the Unix epoch.
    UnixMilliseconds,
}

impl Time {
    pub(in crate::commands) fn is_relative(self) -> bool {
        matches!(self, Self::Seconds | Self::Milliseconds)
    }

    pub(in crate::commands) fn in_seconds(self) -> bool {
        matches!(self, Self::Seconds | Self::UnixSeconds)
    }
}

/// The moment that a request names, in milliseconds since the Unix epoch; it may be in the past.
fn moment(time: Time, keyspace: &Keyspace<'_>, argument: &[u8]) -> Result<i64, CommandError> {
    let given = number::parse_i64(argument).ok_or(CommandError::NotAnInteger)?;
    let unit = if time.in_seconds() {
        MILLISECONDS_PER_SECOND
    } else {
        1
    };
    let base = if time.is_relative() {
        keyspace.now().0 as i64
    } else {
        0
    };
    let moment = given
        .checked_mul(unit)
        .and_then(|given| given.checked_add(base));
    moment.ok_or(CommandError::InvalidExpireTime {
        command: match time {
            Time::Seconds => "expire",
            Time::Milliseconds => "pexpire",
            Time::UnixSeconds => "expireat",
            Time::UnixMilliseconds => "pexpireat",
        },
    })
}

/// Gives a key a deadline, or removes it when the deadline is past; 1 if so, 0 if the key is absent
/// or a condition does not hold.
pub(super) fn expire(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    time: Time,
) -> Handled {
    let conditions = Conditions::parse(request)?;
    let when = moment(time, keyspace, request.arg(2))?;
    let now = keyspace.now().0 as i64;
    let changed = keyspace.try_update(request.arg(1), |old| {
        let old = old.filter(|old| conditions.allow(old.attributes.deadline, when));
        Ok(match old {
            None => (Decision::Keep, false),
            Some(_) if when <= now => (Decision::Remove, true),
            Some(old) => (with_deadline(old, Some(Deadline(when as u64))), true),
        })
    })?;
    reply.integer(changed.into());
    Ok(Progress::Done)
}

/// The same value with another deadline.
fn with_deadline(old: ValueRef<'_>, deadline: Option<Deadline>) -> Decision<'static> {
    let mut value = old.hand_over();
    value.attributes.deadline = deadline;
    Decision::Write(value)
}

/// When a key expires, or in how long; -1 if never, -2 if the key is absent. Seconds are rounded.
pub(super) fn remaining(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    time: Time,
) -> Handled {
    let now = keyspace.now();
    let found = keyspace.read(request.arg(1), |value| {
        value.map(|value| value.attributes.deadline)
    });
    let answer = match found {
        None => -2,
        Some(None) => -1,
        Some(Some(deadline)) => {
            let milliseconds = if time.is_relative() {
                deadline.left(now).0
            } else {
                deadline.0
            };
            if time.in_seconds() {
                ((milliseconds + 500) / 1000) as i64
            } else {
                milliseconds as i64
            }
        }
    };
    reply.integer(answer);
    Ok(Progress::Done)
}

/// Removes a key's deadline; 1 if it had one.
pub(super) fn persist(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let changed = keyspace.try_update(request.arg(1), |old| {
        let old = old.filter(|old| old.attributes.deadline.is_some());
        Ok(match old {
            None => (Decision::Keep, false),
            Some(old) => (with_deadline(old, None), true),
        })
    })?;
    reply.integer(changed.into());
    Ok(Progress::Done)
}
