//! Commands on keys, whatever their values are.

mod copy;
mod delete;
mod dump;
mod expire;
mod look;
mod object;
mod rename;
mod restore;
mod scan;

use pando_engine::{Body, HashRef, NewValue, TypeTag};
use pando_protocol::command::CommandId;
use pando_protocol::{Reply, Request};

use super::{Handled, Progress, Slice};
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::limits;

pub use look::memory_usage;

/// Runs a command of this family.
pub(super) fn execute(
    id: CommandId,
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    match id {
        CommandId::Del | CommandId::Unlink => delete::delete(keyspace, request, reply),
        CommandId::Exists | CommandId::Touch => look::exists(keyspace, request, reply),
        CommandId::Type => look::type_of(keyspace, request, reply),
        CommandId::Randomkey => look::random_key(keyspace, reply),
        CommandId::Expire | CommandId::Pexpire | CommandId::Expireat | CommandId::Pexpireat => {
            expire::expire(id, keyspace, request, reply)
        }
        CommandId::Ttl | CommandId::Pttl | CommandId::Expiretime | CommandId::Pexpiretime => {
            expire::remaining(id, keyspace, request, reply)
        }
        CommandId::Persist => expire::persist(keyspace, request, reply),
        CommandId::Scan => scan::scan(keyspace, request, reply),
        CommandId::Keys => scan::keys(keyspace, request, reply),
        CommandId::Rename => rename::rename(keyspace, request, reply),
        CommandId::Renamenx => rename::rename_if_absent(keyspace, request, reply),
        CommandId::Move => rename::move_to(keyspace, request, reply),
        CommandId::Copy => copy::copy(keyspace, request, reply),
        CommandId::Object => object::object(keyspace, request, reply),
        CommandId::Dump => dump::dump(keyspace, request, reply),
        CommandId::Restore => restore::restore(keyspace, request, reply),
        _ => Err(CommandError::NoHost),
    }
}

/// Shows the keys that are arguments `1..` to `visit`, fetched into the cache a portion at a time.
fn for_each_key(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    mut visit: impl FnMut(&mut Keyspace<'_>, &[u8]),
) {
    if request.len() == 2 {
        return visit(keyspace, request.arg(1));
    }
    let mut keys = request.args_from(1);
    let mut portion = Vec::with_capacity(keys.len().min(limits::WARM_KEYS_MAX));
    while keys.len() > 0 {
        portion.clear();
        portion.extend(keys.by_ref().take(limits::WARM_KEYS_MAX));
        keyspace.warm(&portion);
        for key in &portion {
            visit(keyspace, key);
        }
    }
}

/// Runs the first slice of `work` at once; the rest, if any, in later turns.
pub(super) fn begin(
    mut work: impl Slice + 'static,
    keyspace: &mut Keyspace<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    if work.step(keyspace, reply) {
        Ok(Progress::Done)
    } else {
        Ok(Progress::Slices(Box::new(work)))
    }
}

/// The same value once more, as an update's closure needs it that may run more than once: what is
/// flat is borrowed, what is large is handed over.
pub(crate) fn again<'v>(value: &'v NewValue<'_>) -> NewValue<'v> {
    let body = match &value.body {
        Body::Bytes(bytes) => Body::Bytes(bytes),
        Body::Owned(bytes) => Body::Bytes(bytes),
        Body::Chunked(chunked) => Body::Chunked(chunked.hand_over()),
        Body::Packed(row) => HashRef::Packed(row.as_bytes()).hand_over(),
        Body::Wide(row) => Body::Wide(row.hand_over()),
    };
    NewValue {
        attributes: value.attributes,
        body,
        mark: value.mark,
    }
}

/// The name that TYPE answers.
fn type_name(tag: TypeTag) -> &'static str {
    match tag {
        TypeTag::String => "string",
        TypeTag::Hash => "hash",
    }
}

#[cfg(test)]
mod tests;
