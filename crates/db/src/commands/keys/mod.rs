//! Commands on keys, whatever their values are.

mod copy;
mod delete;
mod dump;
pub(super) mod expire;
mod look;
mod object;
mod rename;
mod restore;
mod scan;
mod sort;

use pando_engine::{Body, BodyRef, NewValue, StringRef, TypeTag};
use pando_protocol::command::KeyCommand;
use pando_protocol::{Reply, Request};

use crate::keyspace::Keyspace;
use crate::limits;
use crate::progress::{Handled, Progress, Slice};

pub use dump::Departing;
pub use look::memory_usage;
pub use object::describe_object;

use expire::Time;

/// Runs a command of this family.
pub(super) fn execute(
    command: KeyCommand,
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    match command {
        KeyCommand::Del | KeyCommand::Unlink => delete::delete(keyspace, request, reply),
        KeyCommand::Exists | KeyCommand::Touch => look::exists(keyspace, request, reply),
        KeyCommand::Type => look::type_of(keyspace, request, reply),
        KeyCommand::Randomkey => scan::random_key(keyspace, reply),
        KeyCommand::Expire => expire::expire(keyspace, request, reply, Time::Seconds),
        KeyCommand::Pexpire => expire::expire(keyspace, request, reply, Time::Milliseconds),
        KeyCommand::Expireat => expire::expire(keyspace, request, reply, Time::UnixSeconds),
        KeyCommand::Pexpireat => expire::expire(keyspace, request, reply, Time::UnixMilliseconds),
        KeyCommand::Ttl => expire::remaining(keyspace, request, reply, Time::Seconds),
        KeyCommand::Pttl => expire::remaining(keyspace, request, reply, Time::Milliseconds),
        KeyCommand::Expiretime => expire::remaining(keyspace, request, reply, Time::UnixSeconds),
        KeyCommand::Pexpiretime => {
            expire::remaining(keyspace, request, reply, Time::UnixMilliseconds)
        }
        KeyCommand::Persist => expire::persist(keyspace, request, reply),
        KeyCommand::Sort => sort::sort(keyspace, request, reply, false),
        KeyCommand::SortRo => sort::sort(keyspace, request, reply, true),
        KeyCommand::Scan => scan::scan(keyspace, request, reply),
        KeyCommand::Keys => scan::keys(keyspace, request, reply),
        KeyCommand::Rename => rename::rename(keyspace, request, reply),
        KeyCommand::Renamenx => rename::rename_if_absent(keyspace, request, reply),
        KeyCommand::Move => rename::move_to(keyspace, request, reply),
        KeyCommand::Copy => copy::copy(keyspace, request, reply),
        KeyCommand::Object => object::object(keyspace, request, reply),
        KeyCommand::Dump => dump::dump(keyspace, request, reply),
        KeyCommand::Kdump => dump::dump_keys(keyspace, request, reply),
        KeyCommand::Restore => restore::restore(keyspace, request, reply),
    }
}

/// Shows the keys in arguments `1..` to `visit`, prefetched a portion at a time.
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
        Ok(Progress::in_slices(work))
    }
}

/// A second handle on the value for an update's closure, which may run more than once: flat data is
/// borrowed, large data handed over.
pub(crate) fn again<'v>(value: &'v NewValue<'_>) -> NewValue<'v> {
    let body = match value.body.as_ref() {
        BodyRef::String(StringRef::Flat(bytes)) => Body::string(bytes),
        BodyRef::String(string) => string.hand_over().into(),
        BodyRef::Row(tag, row) => Body::Row(tag, row.hand_over()),
    };
    NewValue {
        attributes: value.attributes,
        body,
        mark: value.mark,
    }
}

/// The reply of TYPE.
fn type_name(tag: TypeTag) -> &'static str {
    match tag {
        TypeTag::String => "string",
        TypeTag::Hash | TypeTag::TimedHash => "hash",
        TypeTag::List => "list",
        TypeTag::Set => "set",
        TypeTag::SortedSet => "zset",
        TypeTag::Stream => "stream",
    }
}

#[cfg(test)]
mod tests;
