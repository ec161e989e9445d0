//! RESHARD: what `pando reshard` asks of a server (`crate::reshard` says in which order).
//!
//! The first word behind the subcommand is the mover's token. The mover that began last is heard;
//! another one, or one of before a restart, is told NOMOVER. RESHARD PUT changes no key that is
//! served here (OW2 strangers-only), whoever says it.

use std::sync::Arc;

use pando_db::{CommandError, Mover, Placed, Progress, VALUE_FORMAT, Wait};
use pando_protocol::number;
use pando_ring::RangeState;
use pando_ring::limits::RANGES;

use super::error::Echo;
use super::{AdminError, Call, Handled};
use crate::limits;
use crate::placings::Change;

/// Runs a subcommand.
pub(super) fn execute(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    let word = request.arg(1).to_ascii_lowercase();
    match word.as_slice() {
        b"begin" if request.len() == 6 => {
            let text = |at| String::from_utf8_lossy(request.arg(at)).into_owned();
            let change = Change::Begin {
                mover: request.arg(2).to_vec(),
                node: text(3),
                old: text(4),
                new: text(5),
            };
            make(call, change)
        }
        b"set" if request.len() >= 5 => set(call),
        b"forget" if request.len() == 2 || (request.len() == 3 && request.is(2, "FORCE")) => {
            let force = request.len() == 3;
            make(call, Change::Forget { force })
        }
        b"changed" if request.len() == 5 => changed(call),
        b"fetch" if request.len() >= 4 => fetch(call),
        b"put" if request.len() >= 5 && request.len() % 2 == 1 => put(call, true),
        b"drop" if request.len() >= 4 => put(call, false),
        b"status" if request.len() == 2 => status(call),
        b"help" if request.len() == 2 => call.help(
            "RESHARD",
            &[
                "BEGIN <mover> <node> <old ring> <new ring>",
                "    Tells the server its name in two rings, each the text of its file.",
                "CHANGED <mover> <range>|* <count>",
                "    Takes keys that leave and have changed: database, key, …",
                "DROP <mover> <key> [<key> ...]",
                "    Removes keys that are not served here.",
                "FETCH <mover> <key> [<key> ...]",
                "    Returns values of the selected database for PUT.",
                "FORGET [FORCE]",
                "    Lets the server take every key again.",
                "PUT <mover> <key> <value> [<key> <value> ...]",
                "    Gives keys that are not served here values; an empty one removes the key.",
                "SET <mover> OLD|FENCED|NEW <range> [<range> ...]",
                "    Changes how far ranges of keys are.",
                "STATUS",
                "    Says which keys the server has.",
            ],
        ),
        _ => Err(AdminError::wrong_subcommand("RESHARD", request.arg(1))),
    }
}

/// Begins a change, or answers one that is made.
fn make(call: &mut Call<'_, '_, '_>, change: Change) -> Handled {
    let (shared, client) = (call.shared, call.client.id);
    if let Some(outcome) = shared.placings.outcome(client) {
        return match outcome {
            Ok(status) => {
                call.reply.simple(&status);
                Ok(Progress::Done)
            }
            Err(text) => Err(AdminError::Given {
                text: Echo::of(text.as_bytes()),
            }),
        };
    }
    if shared.database.follows() {
        return Err(CommandError::ReadOnly.into());
    }
    let mailbox = shared.mailbox(call.record.origin().worker);
    let mailbox = Arc::clone(mailbox.ok_or(AdminError::NoSession)?);
    let begun = shared
        .placings
        .begin(client, &shared.database, change, mailbox);
    match begun {
        Ok(true) => Ok(Progress::Waits(Wait::Errand)),
        Ok(false) => Err(AdminError::PlacingRuns),
        Err(_) => Err(AdminError::NoSession),
    }
}

fn set(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    let state = [RangeState::Old, RangeState::Fenced, RangeState::New]
        .into_iter()
        .zip(["OLD", "FENCED", "NEW"])
        .find(|(_, word)| request.is(3, word));
    let (state, _) = state.ok_or(CommandError::Syntax)?;
    let ranges: Result<_, _> = request.args_from(4).map(range).collect();
    let change = Change::Set {
        mover: request.arg(2).to_vec(),
        state,
        ranges: ranges?,
    };
    make(call, change)
}

fn range(word: &[u8]) -> Result<usize, AdminError> {
    let number = number::parse_i64(word).and_then(|number| usize::try_from(number).ok());
    number
        .filter(|number| *number < RANGES)
        .ok_or(AdminError::Range)
}

/// The placement and its mover, if that is the one who asks and it has missed nothing.
fn known(call: &Call<'_, '_, '_>) -> Result<(Arc<Placed>, Arc<Mover>), AdminError> {
    let placed = call.shared.database.placed().ok_or(AdminError::NoMover)?;
    let mover = placed.mover.clone().ok_or(AdminError::NoMover)?;
    if *mover.token() != *call.request.arg(2) || mover.is_lost() {
        return Err(AdminError::NoMover);
    }
    Ok((placed, mover))
}

fn changed(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    let range = match request.arg(3) {
        b"*" => None,
        word => Some(range(word)?),
    };
    let count = number::parse_i64(request.arg(4)).and_then(|count| usize::try_from(count).ok());
    let count = count.filter(|count| (1..=limits::CHANGED_KEYS_MAX).contains(count));
    let count = count.ok_or(CommandError::OutOfRange)?;
    let (_, mover) = known(call)?;
    let taken = mover.take(range, count);
    // It may have lost track meanwhile.
    known(call)?;
    call.reply.array(taken.len() * 2);
    for (database, key) in taken {
        call.reply.integer(database as i64);
        call.reply.bulk(&*key);
    }
    Ok(Progress::Done)
}

fn fetch(call: &mut Call<'_, '_, '_>) -> Handled {
    known(call)?;
    let keyspace = &mut call.turn.keyspace(call.client.index());
    let (mut values, mut bytes) = (Vec::new(), 0);
    for key in call.request.args_from(3) {
        let value = keyspace.value_to_move(key);
        bytes += value.as_ref().map_or(0, Vec::len);
        values.push(value);
        if bytes >= limits::FETCHED_BYTES {
            break;
        }
    }
    call.reply.array(values.len());
    for value in values {
        match value {
            Some(value) => call.reply.bulk(value),
            None => call.reply.null(),
        }
    }
    Ok(Progress::Done)
}

/// Writes each key with its value, which is the next argument, or removes each key.
fn put(call: &mut Call<'_, '_, '_>, with_values: bool) -> Handled {
    let request = call.request;
    let keyspace = &mut call.turn.keyspace(call.client.index());
    // Under the gate that the keyspace holds: neither changes before the last key is written.
    let placed = call.shared.database.placed().ok_or(AdminError::NoMover)?;
    let mover = placed.mover.as_ref().ok_or(AdminError::NoMover)?;
    if *mover.token() != *request.arg(2) || mover.is_lost() {
        return Err(AdminError::NoMover);
    }
    for at in (3..request.len()).step_by(1 + usize::from(with_values)) {
        let value = with_values.then(|| request.arg(at + 1));
        let value = value.filter(|value| !value.is_empty());
        keyspace.put_stranger(&placed, request.arg(at), value)?;
    }
    call.ok()
}

fn status(call: &mut Call<'_, '_, '_>) -> Handled {
    let database = &call.shared.database;
    let placed = database.placed();
    let mover = placed.as_ref().and_then(|placed| placed.mover.as_ref());
    let mover = mover.filter(|mover| !mover.is_lost());
    let file = placed.as_ref().map(|placed| placed.placement.encode());
    let fields = [
        ("format", VALUE_FORMAT.to_string().into_bytes()),
        ("databases", database.databases().to_string().into_bytes()),
        (
            "mover",
            mover.map_or(Vec::new(), |mover| mover.token().to_vec()),
        ),
        ("placement", file.unwrap_or_default()),
    ];
    call.reply.array(fields.len() * 2);
    for (name, value) in fields {
        call.reply.bulk(name);
        call.reply.bulk(value);
    }
    Ok(Progress::Done)
}
