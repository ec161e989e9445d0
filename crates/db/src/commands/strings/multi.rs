//! Commands on several strings: MGET, MSET, MSETNX.
//!
//! MSET and MSETNX run under all gates, so they are atomic. Everything that can be wrong with them
//! is checked before the first key changes, but for the room in an engine's pool: MSETNX then takes
//! back what it has stored, and either may run again.

use pando_engine::{BodyRef, Decision, NewValue, Point};
use pando_protocol::{Reply, Request};

use super::new_string;
use crate::commands::detached::reply_bulk;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::limits::{KEYS_ALONE_MAX, WARM_KEYS_MAX};
use crate::progress::{Handled, Progress};
use crate::statistics::add;

/// MGET key [key …]
pub(super) fn mget(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    reply.array(request.len() - 1);
    let mut rest = request.args_from(1);
    while rest.len() > 0 {
        let mut keys = [&[][..]; WARM_KEYS_MAX];
        let count = rest.len().min(WARM_KEYS_MAX);
        keys.iter_mut()
            .zip(&mut rest)
            .for_each(|(slot, key)| *slot = key);
        keyspace.warm(&keys[..count]);
        for (place, key) in keys[..count].iter().enumerate() {
            if count > 1 {
                keyspace.recall(place);
            }
            keyspace.read(key, |value| match value.map(|value| value.body) {
                Some(BodyRef::String(string)) => reply_bulk(reply, string),
                Some(BodyRef::Row(..)) | None => reply.null(),
            });
        }
    }
    Ok(Progress::Done)
}

/// MSET key value [key value …]
pub(super) fn mset(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    check_pairs(keyspace, request, "mset")?;
    store_pairs(keyspace, request)?;
    reply.ok();
    Ok(Progress::Done)
}

/// MSETNX key value [key value …]
pub(super) fn msetnx(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    check_pairs(keyspace, request, "msetnx")?;
    let mut keys = request.args_from(1).step_by(2);
    let free = !keys.any(|key| keyspace.look(key, |value| value.is_some()));
    if free && let Err(error) = store_pairs(keyspace, request) {
        for key in request.args_from(1).step_by(2) {
            keyspace.remove(key);
        }
        return Err(error);
    }
    reply.integer(i64::from(free));
    Ok(Progress::Done)
}

/// Refuses what the keyspace would refuse, so that the pairs are stored all or none.
fn check_pairs(
    keyspace: &Keyspace<'_>,
    request: Request<'_>,
    command: &'static str,
) -> Result<(), CommandError> {
    if request.len().is_multiple_of(2) {
        return Err(CommandError::Arity { command });
    }
    for index in (1..request.len()).step_by(2) {
        keyspace.check_key(request.arg(index))?;
        super::check_new(keyspace, request.arg(index + 1).len())?;
    }
    Ok(())
}

fn store_pairs(keyspace: &mut Keyspace<'_>, request: Request<'_>) -> Result<(), CommandError> {
    let mut kept_out = request.len() > 3 && keyspace.session.store.keep_out();
    let stored = store_each(keyspace, request, &mut kept_out);
    if kept_out {
        keyspace.session.store.let_in();
    }
    stored
}

/// `kept_out`: whether other sessions are, who then wait for so many keys at most.
fn store_each(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    kept_out: &mut bool,
) -> Result<(), CommandError> {
    for index in (1..request.len()).step_by(2) {
        if *kept_out && index > 2 * KEYS_ALONE_MAX {
            keyspace.session.store.let_in();
            *kept_out = false;
        }
        let next = index + 2;
        if next < request.len() && request.arg(next) == request.arg(index) {
            // Nobody sees what the next pair replaces; it counts as a change.
            add(&keyspace.session.counters.commits, 1);
            continue;
        }
        let value = new_string(keyspace, request.arg(index + 1))?;
        keyspace.update(request.arg(index), |_| {
            Decision::Write(NewValue::new(value.body()))
        })?;
    }
    Ok(())
}
