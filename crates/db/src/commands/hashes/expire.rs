//! Deadlines of fields: HEXPIRE HPEXPIRE HEXPIREAT HPEXPIREAT, HTTL HPTTL HEXPIRETIME HPEXPIRETIME,
//! HPERSIST, and HGETEX HSETEX HGETDEL, which read or write the fields, too.
//!
//! Each is one update, whatever the number of fields. A field that gets a deadline in the past is
//! removed at once. Arguments are checked before the key is looked at.

use pando_engine::{Deadline, Decision, FieldsDraft, FieldsRef};
use pando_protocol::command::{self, HashCommand};
use pando_protocol::{Reply, Request, number};

use super::{check_field, check_room, replace};
use crate::clock::Milliseconds;
use crate::commands::detached::{Detached, reply_bulk};
use crate::commands::keys::expire::{Conditions, Time};
use crate::error::CommandError;
use crate::keyspace::{Keyspace, hash_of};
use crate::progress::{Handled, Progress};

/// The latest deadline that a command gives a field, as in Redis.
const DEADLINE_MS_MAX: i64 = (1 << 46) - 1;

/// What is answered for a field.
const NO_FIELD: i64 = -2;
const NO_DEADLINE: i64 = -1;
const NOT_ALLOWED: i64 = 0;
const DONE: i64 = 1;
const REMOVED: i64 = 2;

/// Which text refuses a number of fields.
#[derive(Clone, Copy)]
enum Counted {
    Expiring,
    Reading,
    Setting,
}

impl Counted {
    fn refusal(self) -> CommandError {
        match self {
            Self::Expiring => CommandError::ExpiringFieldCount,
            Self::Reading => CommandError::ReadFieldCount,
            Self::Setting => CommandError::SetFieldCount,
        }
    }

    fn parse(self, argument: Option<&[u8]>) -> Result<usize, CommandError> {
        let count = argument.and_then(number::parse_i64);
        let count = count.and_then(|count| usize::try_from(count).ok());
        let count = count.filter(|count| *count > 0);
        count.ok_or_else(|| self.refusal())
    }
}

/// The fields behind FIELDS and their number, which are the last arguments.
fn fields(
    request: Request<'_>,
    at: usize,
    counted: Counted,
) -> Result<impl ExactSizeIterator<Item = &[u8]> + Clone, CommandError> {
    if at >= request.len() || !request.is(at, "FIELDS") {
        return Err(CommandError::NoFieldsWord);
    }
    let count = counted.parse(request.get(at + 1))?;
    let fields = request.args_from(at + 2);
    if fields.len() != count {
        return Err(CommandError::FieldCountDiffers);
    }
    Ok(fields)
}

/// The moment that an argument names.
fn moment(
    keyspace: &Keyspace<'_>,
    command: HashCommand,
    (time, argument): (Time, &[u8]),
) -> Result<Deadline, CommandError> {
    let given = number::parse_i64(argument).ok_or(CommandError::NotAnInteger)?;
    if given < 0 {
        return Err(CommandError::NegativeExpireTime);
    }
    let unit = if time.in_seconds() { 1000 } else { 1 };
    let base = if time.is_relative() {
        keyspace.now().0 as i64
    } else {
        0
    };
    let moment = given
        .checked_mul(unit)
        .filter(|moment| *moment <= DEADLINE_MS_MAX - base);
    let moment = moment.ok_or(CommandError::InvalidExpireTime {
        command: command::spec(command.id()).name,
    })?;
    Ok(Deadline((moment + base) as u64))
}

/// Gives a field that is there a deadline, or removes it if that has passed; returns whether it was
/// removed.
fn expire_field(
    draft: &mut FieldsDraft<'_>,
    field: &[u8],
    deadline: Deadline,
    now: Milliseconds,
) -> Result<bool, CommandError> {
    if deadline.has_passed(now) {
        draft.remove(field);
        return Ok(true);
    }
    draft
        .set_deadline(field, deadline)
        .map_err(|longest| CommandError::FieldTooLong {
            field_bytes: longest,
            field_bytes_max: FieldsDraft::TIMED_FIELD_BYTES_MAX,
        })?;
    Ok(false)
}

fn reply_each(reply: &mut Reply<'_>, answers: &[i64]) {
    reply.array(answers.len());
    for answer in answers {
        reply.integer(*answer);
    }
}

/// HEXPIRE and the like: key time [NX | XX | GT | LT] FIELDS count field [field …]
pub(super) fn expire(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    (command, time): (HashCommand, Time),
) -> Handled {
    let deadline = moment(keyspace, command, (time, request.arg(2)))?;
    let condition = Conditions::one(request, 3);
    let at = if condition.is_some() { 4 } else { 3 };
    let condition = condition.unwrap_or_default();
    let fields = fields(request, at, Counted::Expiring)?;
    let (thresholds, now) = (keyspace.thresholds(), keyspace.now());
    let answers = keyspace.try_update(request.arg(1), |old| {
        let hash = old.map(|old| hash_of(old, now)).transpose()?;
        let mut draft = FieldsDraft::new(hash, now);
        let mut is_changed = false;
        let mut answers = Vec::with_capacity(fields.len());
        for field in fields.clone() {
            let present = draft.as_ref();
            answers.push(if present.get(field).is_none() {
                NO_FIELD
            } else if !condition.allow(present.deadline(field), deadline.0 as i64) {
                NOT_ALLOWED
            } else {
                is_changed = true;
                if expire_field(&mut draft, field, deadline, now)? {
                    REMOVED
                } else {
                    DONE
                }
            });
        }
        let decision = if is_changed {
            replace(old, draft, false, &thresholds)
        } else {
            Decision::Keep
        };
        Ok((decision, answers))
    })?;
    reply_each(reply, &answers);
    Ok(Progress::Done)
}

/// HTTL and the like: key FIELDS count field [field …]
pub(super) fn remaining(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    time: Time,
) -> Handled {
    let fields = fields(request, 2, Counted::Reading)?;
    let now = keyspace.now();
    let answer = |hash: FieldsRef<'_>, field: &[u8]| {
        if hash.get(field).is_none() {
            return NO_FIELD;
        }
        let Some(deadline) = hash.deadline(field) else {
            return NO_DEADLINE;
        };
        let milliseconds = if time.is_relative() {
            deadline.left(now).0
        } else {
            deadline.0
        };
        let unit = if time.in_seconds() { 1000 } else { 1 };
        milliseconds.div_ceil(unit) as i64
    };
    let answers: Vec<_> = keyspace.read_hash(request.arg(1), |hash| {
        fields
            .map(|field| hash.map_or(NO_FIELD, |hash| answer(hash, field)))
            .collect()
    })?;
    reply_each(reply, &answers);
    Ok(Progress::Done)
}

/// HPERSIST key FIELDS count field [field …]
pub(super) fn persist(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let fields = fields(request, 2, Counted::Reading)?;
    let (thresholds, now) = (keyspace.thresholds(), keyspace.now());
    let answers = keyspace.try_update(request.arg(1), |old| {
        let hash = old.map(|old| hash_of(old, now)).transpose()?;
        let mut draft = FieldsDraft::new(hash, now);
        let mut answers = Vec::with_capacity(fields.len());
        for field in fields.clone() {
            answers.push(if draft.as_ref().get(field).is_none() {
                NO_FIELD
            } else if draft.clear_deadline(field) {
                DONE
            } else {
                NO_DEADLINE
            });
        }
        let decision = if answers.contains(&DONE) {
            replace(old, draft, false, &thresholds)
        } else {
            Decision::Keep
        };
        Ok((decision, answers))
    })?;
    reply_each(reply, &answers);
    Ok(Progress::Done)
}

/// What a command that reads fields does to those that are there.
#[derive(Clone, Copy)]
enum Then {
    Nothing,
    Remove,
    Persist,
    Expire(Deadline),
}

/// HGETDEL key FIELDS count field [field …]
pub(super) fn take_out(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let fields = fields(request, 2, Counted::Reading)?;
    read_then(keyspace, request.arg(1), &fields, Then::Remove, reply)
}

/// HGETEX key [EX seconds | PX milliseconds | EXAT seconds | PXAT milliseconds | PERSIST] FIELDS
/// count field [field …]
pub(super) fn get_and_expire(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let (then, at) = match time_of(request, 2) {
        Some(time) => {
            let argument = (time, request.arg(3));
            let deadline = moment(keyspace, HashCommand::Hgetex, argument)?;
            (Then::Expire(deadline), 4)
        }
        None if request.is(2, "PERSIST") => (Then::Persist, 3),
        None => (Then::Nothing, 2),
    };
    let fields = fields(request, at, Counted::Reading)?;
    read_then(keyspace, request.arg(1), &fields, then, reply)
}

/// How an option gives a time, if it does.
fn time_of(request: Request<'_>, at: usize) -> Option<Time> {
    let words = [
        ("EX", Time::Seconds),
        ("PX", Time::Milliseconds),
        ("EXAT", Time::UnixSeconds),
        ("PXAT", Time::UnixMilliseconds),
    ];
    let found = words.iter().find(|(word, _)| request.is(at, word));
    found.map(|(_, time)| *time)
}

fn read_then<'r>(
    keyspace: &mut Keyspace<'_>,
    key: &[u8],
    fields: &(impl ExactSizeIterator<Item = &'r [u8]> + Clone),
    then: Then,
    reply: &mut Reply<'_>,
) -> Handled {
    let (thresholds, now) = (keyspace.thresholds(), keyspace.now());
    let (values, was_there) = keyspace.try_update(key, |old| {
        let hash = old.map(|old| hash_of(old, now)).transpose()?;
        let mut draft = FieldsDraft::new(hash, now);
        let mut values = Vec::with_capacity(fields.len());
        let mut is_changed = false;
        for field in fields.clone() {
            let value = draft.as_ref().get(field).map(Detached::take);
            let is_there = value.is_some();
            values.push(value);
            if !is_there {
                continue;
            }
            is_changed |= match then {
                Then::Nothing => false,
                Then::Remove => draft.remove(field),
                Then::Persist => draft.clear_deadline(field),
                Then::Expire(deadline) => {
                    expire_field(&mut draft, field, deadline, now)?;
                    true
                }
            };
        }
        let decision = if is_changed {
            replace(old, draft, false, &thresholds)
        } else {
            Decision::Keep
        };
        Ok((decision, (values, hash.is_some())))
    })?;
    keyspace.count_read(was_there);
    reply.array(values.len());
    for value in values {
        match value {
            Some(value) => reply_bulk(reply, value.as_ref()),
            None => reply.null(),
        }
    }
    Ok(Progress::Done)
}

/// Which fields must be there, for HSETEX.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Present {
    Any,
    All,
    None,
}

/// The options of HSETEX.
struct Setting {
    present: Present,
    deadline: Option<Deadline>,
    keeps_deadlines: bool,
    /// The index of the first field.
    first: usize,
}

impl Setting {
    fn parse(keyspace: &Keyspace<'_>, request: Request<'_>) -> Result<Self, CommandError> {
        let arity = || CommandError::Arity { command: "hsetex" };
        let mut setting = Self {
            present: Present::Any,
            deadline: None,
            keeps_deadlines: false,
            first: 0,
        };
        let mut at = 2;
        while at < request.len() {
            if request.is(at, "FIELDS") {
                if at + 3 >= request.len() {
                    return Err(arity());
                }
                let count = Counted::Setting.parse(request.get(at + 1))?;
                let rest = request.len() - at - 2;
                if !rest.is_multiple_of(2) || count != rest / 2 {
                    return Err(arity());
                }
                setting.first = at + 2;
                return Ok(setting);
            }
            let time = time_of(request, at);
            let keeps = request.is(at, "KEEPTTL");
            if time.is_some() || keeps {
                if setting.deadline.is_some() || setting.keeps_deadlines {
                    return Err(CommandError::SeveralFieldTimes);
                }
                setting.keeps_deadlines = keeps;
            }
            let present = if request.is(at, "FXX") {
                Present::All
            } else if request.is(at, "FNX") {
                Present::None
            } else {
                Present::Any
            };
            if let Some(time) = time {
                at += 1;
                let argument = request.get(at).ok_or(CommandError::NoFieldTime)?;
                let deadline = moment(keyspace, HashCommand::Hsetex, (time, argument))?;
                setting.deadline = Some(deadline);
            } else if present != Present::Any {
                if setting.present != Present::Any {
                    return Err(CommandError::SeveralFieldConditions);
                }
                setting.present = present;
            } else if !keeps {
                let argument = request.arg(at);
                let shown = argument.split(|byte| *byte == 0).next().unwrap_or_default();
                let argument = shown.into();
                return Err(CommandError::UnknownArgument { argument });
            }
            at += 1;
        }
        Err(CommandError::NoFieldsWord)
    }
}

/// HSETEX key [FNX | FXX] [EX seconds | PX milliseconds | EXAT seconds | PXAT milliseconds |
/// KEEPTTL] FIELDS count field value [field value …]
pub(super) fn set_and_expire(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let setting = Setting::parse(keyspace, request)?;
    let names = request.args_from(setting.first).step_by(2);
    let values = request.args_from(setting.first + 1).step_by(2);
    let (thresholds, now) = (keyspace.thresholds(), keyspace.now());
    let mut pairs = Vec::with_capacity(names.len());
    let mut long = false;
    for (field, value) in names.zip(values) {
        check_field(field)?;
        if value.len() > keyspace.options().value_bytes_max {
            return Err(CommandError::StringTooLong);
        }
        long |= thresholds.is_long_field(field, value.len());
        pairs.push((field, Detached::new(value)));
    }
    let is_set = keyspace.try_update(request.arg(1), |old| {
        let hash = old.map(|old| hash_of(old, now)).transpose()?;
        let is_there = |field| hash.is_some_and(|hash| hash.get(field).is_some());
        let is_allowed = pairs.iter().all(|(field, _)| match setting.present {
            Present::Any => true,
            Present::All => is_there(field),
            Present::None => !is_there(field),
        });
        if !is_allowed {
            return Ok((Decision::Keep, false));
        }
        let mut draft = FieldsDraft::new(hash, now);
        for (field, value) in &pairs {
            check_room(&draft, field)?;
            draft.set(field, value.body(), setting.keeps_deadlines);
            if let Some(deadline) = setting.deadline {
                expire_field(&mut draft, field, deadline, now)?;
            }
        }
        Ok((replace(old, draft, long, &thresholds), true))
    })?;
    reply.integer(is_set.into());
    Ok(Progress::Done)
}

#[cfg(test)]
mod tests;
