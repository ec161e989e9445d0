//! Commands on streams, one file per kind of operation.
//!
//! A stream is one row ([`StreamRef`]): its entries, its groups, their consumers and what is
//! pending. XREAD and XREADGROUP may wait for an entry (`crate::lines`).
//!
//! Invariants:
//! - **XS1 empty-streams** A stream stays when its last entry has gone: it keeps its last id.
//! - **XS2 attributes-stay** A change keeps the deadline.
//!
//! Costs are those of [`StreamRef`] and [`StreamDraft`]: O(log entries) to find, add or remove an
//! entry, or something pending.

mod add;
mod change;
mod claim;
mod groups;
mod id;
mod info;
mod pending;
mod range;
mod read;
#[cfg(test)]
mod tests;
mod trim;

use pando_engine::{
    Attributes, Decision, NewValue, RowTag, StreamDraft, StreamGroup, StreamId, StreamRef,
    StreamStrings, StringRef, ValueRef,
};
use pando_protocol::command::StreamCommand;
use pando_protocol::{Reply, Request, number};

use crate::error::CommandError;
use crate::keyspace::{Keyspace, row_of};
use crate::progress::{Handled, Progress};

pub(super) use range::reply_entries;

/// Runs a command of this family.
#[inline]
pub(super) fn execute(
    command: StreamCommand,
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    use StreamCommand as S;
    match command {
        S::Xadd => add::add(keyspace, request, reply),
        S::Xdel => change::remove(keyspace, request, reply),
        S::Xtrim => change::trim(keyspace, request, reply),
        S::Xsetid => change::set_id(keyspace, request, reply),
        S::Xlen => range::count(keyspace, request, reply),
        S::Xrange => range::range(keyspace, request, reply, false),
        S::Xrevrange => range::range(keyspace, request, reply, true),
        S::Xread => read::behind_ids(keyspace, request, reply),
        S::Xreadgroup => read::for_group(keyspace, request, reply),
        S::Xinfo => info::info(keyspace, request, reply),
        S::Xgroup => groups::group(keyspace, request, reply),
        S::Xack => pending::acknowledge(keyspace, request, reply),
        S::Xpending => pending::pending(keyspace, request, reply),
        S::Xclaim => claim::claim(keyspace, request, reply),
        S::Xautoclaim => claim::claim_idle(keyspace, request, reply),
    }
}

/// The stream in a value, or the error of a command that needs one.
#[inline]
fn stream_of(value: ValueRef<'_>) -> Result<StreamRef<'_>, CommandError> {
    row_of(RowTag::Stream, value).map(StreamRef::new)
}

/// Shows the stream at a key.
fn look_at<R>(
    keyspace: &mut Keyspace<'_>,
    key: &[u8],
    read: impl FnOnce(Option<StreamRef<'_>>) -> R,
) -> Result<R, CommandError> {
    keyspace.read_row(RowTag::Stream, key, |row| read(row.map(StreamRef::new)))
}

/// The decision that stores `draft` as the stream at the key (XS1, XS2).
fn replace(old: Option<ValueRef<'_>>, draft: StreamDraft<'_>) -> Decision<'static> {
    let attributes = old.map_or_else(Attributes::default, |value| value.attributes);
    Decision::Write(NewValue::new(draft.finish()).with(attributes))
}

/// The group of this name in the stream at a key, or the error of a command that needs one.
fn group_of<'s>(
    stream: Option<StreamRef<'s>>,
    key: &[u8],
    name: &[u8],
) -> Result<(StreamRef<'s>, StreamGroup), CommandError> {
    let found = stream.and_then(|stream| Some((stream, stream.group(name)?)));
    found.ok_or_else(|| {
        CommandError::no_group(&[b"No such key '", key, b"' or consumer group '", name, b"'"])
    })
}

/// The same for commands that tell a missing key from a missing group.
fn group_in(stream: StreamRef<'_>, key: &[u8], name: &[u8]) -> Result<StreamGroup, CommandError> {
    stream.group(name).ok_or_else(|| {
        let parts = [
            b"No such consumer group '",
            name,
            b"' for key name '",
            key,
            b"'",
        ];
        CommandError::no_group(&parts)
    })
}

/// Refuses the name of a group or consumer that is too long to be stored.
fn check_name(name: &[u8]) -> Result<(), CommandError> {
    let (name_bytes, name_bytes_max) = (name.len(), pando_engine::STREAM_NAME_BYTES_MAX);
    if name_bytes <= name_bytes_max {
        Ok(())
    } else {
        Err(CommandError::StreamNameTooLong {
            name_bytes,
            name_bytes_max,
        })
    }
}

/// The refusal of a subcommand's arguments.
fn subcommand_syntax(command: &'static str, request: Request<'_>) -> CommandError {
    let subcommand = request.arg(1).into();
    CommandError::SubcommandSyntax {
        command,
        subcommand,
    }
}

fn integer(argument: &[u8]) -> Result<i64, CommandError> {
    number::parse_i64(argument).ok_or(CommandError::NotAnInteger)
}

/// Replies with the lines of HELP.
fn help(reply: &mut Reply<'_>, lines: &[&str]) -> Progress {
    reply.array(lines.len());
    for line in lines {
        reply.simple(line);
    }
    Progress::Done
}

/// Replies with an entry: its id, and its fields and values.
fn reply_entry(reply: &mut Reply<'_>, id: StreamId, entry: StringRef<'_>) {
    let entry = entry.to_cow();
    let strings = StreamStrings::new(&entry);
    reply.array(2);
    id::reply_id(reply, id);
    reply.array(strings.clone().count());
    for string in strings {
        reply.bulk(string);
    }
}
