//! Writes of fields: HSET HMSET HSETNX HDEL. Each is one update, whatever the number of fields.

use pando_engine::limits::{COLUMN_FLAT_BYTES_MAX, PACKED_ROW_BYTES_MAX};
use pando_engine::{Chunked, Decision, FieldsDraft, StringBody};
use pando_protocol::command::{self, HashCommand};
use pando_protocol::{Reply, Request};

use super::{amend, check_field, check_room, replace, set_field};
use crate::commands::detached::Detached;
use crate::error::CommandError;
use crate::keyspace::{Keyspace, hash_of};
use crate::progress::{Handled, Progress};

/// No small hash has more fields.
const SMALL_FIELDS_MAX: usize = PACKED_ROW_BYTES_MAX / FIELD_BYTES_MIN;

/// What a field takes at least: its two offsets.
const FIELD_BYTES_MIN: usize = 4;

/// HSET key field value [field value …], and HMSET, which replies OK instead of the number of new
/// fields.
pub(super) fn several(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    command: HashCommand,
) -> Handled {
    if !request.len().is_multiple_of(2) {
        let command = command::spec(command.id()).name;
        return Err(CommandError::Arity { command });
    }
    let pairs = || {
        request
            .args_from(2)
            .step_by(2)
            .zip(request.args_from(3).step_by(2))
    };
    let thresholds = keyspace.thresholds();
    let mut long = false;
    for (field, value) in pairs() {
        check_pair(keyspace, field, value)?;
        long |= thresholds.is_long_field(field, value.len());
    }
    let values = request.args_from(3).step_by(2);
    let large: Vec<_> = values
        .filter(|value| is_large(value))
        .map(Chunked::from_bytes)
        .collect();
    let now = keyspace.now();
    let is_one = request.len() == 4;
    // A new small hash is made of all its fields at once.
    let together: Vec<_> = if is_one || !large.is_empty() || request.len() / 2 > SMALL_FIELDS_MAX {
        Vec::new()
    } else {
        pairs().collect()
    };
    let created = keyspace.try_update(request.arg(1), |old| {
        let hash = old.map(|old| hash_of(old, now)).transpose()?;
        if is_one && let Some((old, hash)) = old.zip(hash) {
            let pair = (request.arg(2), request.arg(3));
            if let Some(decision) = amend(old, hash, pair, long, &thresholds) {
                return Ok((decision, 0));
            }
        }
        let mut draft = FieldsDraft::new(hash, now);
        for (field, _) in pairs() {
            check_room(&draft, field)?;
        }
        let created = if together.is_empty() {
            set_each(&mut draft, pairs(), &large)
        } else {
            draft.set_all(&together)
        };
        Ok((replace(old, draft, long, &thresholds), created))
    })?;
    if command == HashCommand::Hmset {
        reply.ok();
    } else {
        reply.count(created);
    }
    Ok(Progress::Done)
}

/// Sets fields one by one, the large values among theirs to `large`, in that order; returns how
/// many are new.
fn set_each<'r>(
    draft: &mut FieldsDraft<'_>,
    pairs: impl Iterator<Item = (&'r [u8], &'r [u8])>,
    large: &[Chunked],
) -> usize {
    let mut large = large.iter();
    let new = pairs.filter(|(field, value)| {
        let value = if is_large(value) {
            let chunked = large.next().expect("one for each large value");
            StringBody::Chunked(chunked.hand_over())
        } else {
            StringBody::borrowed(value)
        };
        draft.set(field, value, false)
    });
    new.count()
}

/// Whether a value is stored in chunks.
fn is_large(value: &[u8]) -> bool {
    value.len() > COLUMN_FLAT_BYTES_MAX
}

/// HSETNX key field value
pub(super) fn if_absent(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let (field, value) = (request.arg(2), request.arg(3));
    check_pair(keyspace, field, value)?;
    let value = Detached::new(value);
    let thresholds = keyspace.thresholds();
    let now = keyspace.now();
    let created = keyspace.try_update(request.arg(1), |old| {
        let hash = old.map(|old| hash_of(old, now)).transpose()?;
        if hash.is_some_and(|hash| hash.get(field).is_some()) {
            return Ok((Decision::Keep, false));
        }
        let draft = FieldsDraft::new(hash, now);
        let decision = set_field(old, draft, field, &value, &thresholds)?;
        Ok((decision, true))
    })?;
    reply.integer(i64::from(created));
    Ok(Progress::Done)
}

/// HDEL key field [field …]
pub(super) fn remove(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let thresholds = keyspace.thresholds();
    let now = keyspace.now();
    let removed = keyspace.try_update(request.arg(1), |old| {
        let hash = old.map(|old| hash_of(old, now)).transpose()?;
        let mut draft = FieldsDraft::new(hash, now);
        let removed = request
            .args_from(2)
            .filter(|field| draft.remove(field))
            .count();
        let decision = if removed == 0 {
            Decision::Keep
        } else {
            replace(old, draft, false, &thresholds)
        };
        Ok((decision, removed))
    })?;
    reply.count(removed);
    Ok(Progress::Done)
}

/// Refuses names and values that are too long.
fn check_pair(keyspace: &Keyspace<'_>, field: &[u8], value: &[u8]) -> Result<(), CommandError> {
    check_field(field)?;
    if value.len() > keyspace.options().value_bytes_max {
        return Err(CommandError::StringTooLong);
    }
    Ok(())
}
