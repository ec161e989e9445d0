//! XGROUP: groups and their consumers.

use pando_engine::{Decision, StreamDraft, StreamRef, ValueRef};
use pando_protocol::{Reply, Request};

use super::{check_name, group_in, help, id, integer, replace, stream_of, subcommand_syntax};
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

const HELP: &[&str] = &[
    "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CREATE <key> <group> <id|$> [MKSTREAM] [ENTRIESREAD <count>]",
    "    Make a group that gets the entries behind <id>. MKSTREAM makes the stream",
    "    too; <count> says how many entries are up to <id>.",
    "CREATECONSUMER <key> <group> <consumer>",
    "    Make a consumer.",
    "DELCONSUMER <key> <group> <consumer>",
    "    Remove a consumer, and what is pending for it.",
    "DESTROY <key> <group>",
    "    Remove a group.",
    "SETID <key> <group> <id|$> [ENTRIESREAD <count>]",
    "    Make a group go on behind <id>.",
    "HELP",
    "    Prints this help.",
];

/// Most arguments of XGROUP CREATE.
const CREATE_ARGUMENTS_MAX: usize = 8;

/// XGROUP subcommand [argument …]
pub(super) fn group(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    if request.is(1, "HELP") {
        return Ok(help(reply, HELP));
    }
    if request.is(1, "CREATE") {
        create(keyspace, request)?;
        reply.ok();
    } else if request.is(1, "SETID") {
        set_id(keyspace, request)?;
        reply.ok();
    } else if request.is(1, "DESTROY") {
        reply.count(destroy(keyspace, request)?);
    } else if request.is(1, "CREATECONSUMER") {
        reply.count(create_consumer(keyspace, request)?);
    } else {
        reply.count(remove_consumer(keyspace, request)?);
    }
    Ok(Progress::Done)
}

/// The options of CREATE and SETID.
#[derive(Default)]
struct Options {
    makes_stream: bool,
    read: Option<u64>,
}

impl Options {
    fn parse(request: Request<'_>, creates: bool) -> Result<Self, CommandError> {
        let mut options = Self::default();
        let mut index = 5;
        while index < request.len() {
            if creates && request.is(index, "MKSTREAM") {
                options.makes_stream = true;
                index += 1;
            } else if request.is(index, "ENTRIESREAD") && index + 1 < request.len() {
                let read = integer(request.arg(index + 1))?;
                if read < -1 {
                    return Err(CommandError::NegativeEntriesRead);
                }
                options.read = u64::try_from(read).ok();
                index += 2;
            } else {
                return Err(subcommand_syntax("XGROUP", request));
            }
        }
        Ok(options)
    }
}

/// The stream, which must be there.
fn needed(old: Option<ValueRef<'_>>) -> Result<StreamRef<'_>, CommandError> {
    let stream = old.map(stream_of).transpose()?;
    stream.ok_or(CommandError::NoStreamForGroup)
}

fn create(keyspace: &mut Keyspace<'_>, request: Request<'_>) -> Result<(), CommandError> {
    let options = Options::parse(request, true)?;
    let name = request.arg(3);
    keyspace.try_update(request.arg(2), |old| {
        let stream = match old {
            None if options.makes_stream => None,
            old => Some(needed(old)?),
        };
        if request.len() > CREATE_ARGUMENTS_MAX {
            return Err(subcommand_syntax("XGROUP", request));
        }
        check_name(name)?;
        let mut draft = StreamDraft::new(stream);
        let last = match request.arg(4) {
            b"$" => draft.head().last,
            text => id::parse(text, 0)?,
        };
        if draft.as_ref().group(name).is_some() {
            return Err(CommandError::GroupExists);
        }
        draft.add_group(name, last, options.read);
        Ok((replace(old, draft), ()))
    })
}

fn set_id(keyspace: &mut Keyspace<'_>, request: Request<'_>) -> Result<(), CommandError> {
    let options = Options::parse(request, false)?;
    let (key, name) = (request.arg(2), request.arg(3));
    keyspace.try_update(key, |old| {
        let stream = needed(old)?;
        let mut group = group_in(stream, key, name)?;
        if !matches!(request.len(), 5 | 7) {
            return Err(subcommand_syntax("XGROUP", request));
        }
        group.last = match request.arg(4) {
            b"$" => stream.head().last,
            text => id::parse_or_edge(text, 0)?,
        };
        group.read = options.read;
        let mut draft = StreamDraft::new(Some(stream));
        draft.set_group(name, group);
        Ok((replace(old, draft), ()))
    })
}

fn destroy(keyspace: &mut Keyspace<'_>, request: Request<'_>) -> Result<usize, CommandError> {
    keyspace.try_update(request.arg(2), |old| {
        let mut draft = StreamDraft::new(Some(needed(old)?));
        if draft.remove_group(request.arg(3)) {
            Ok((replace(old, draft), 1))
        } else {
            Ok((Decision::Keep, 0))
        }
    })
}

fn create_consumer(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
) -> Result<usize, CommandError> {
    let (key, name) = (request.arg(2), request.arg(4));
    let now_ms = keyspace.now().0;
    keyspace.try_update(key, |old| {
        let stream = needed(old)?;
        let group = group_in(stream, key, request.arg(3))?;
        check_name(name)?;
        if stream.consumer(group, name).is_some() {
            return Ok((Decision::Keep, 0));
        }
        let mut draft = StreamDraft::new(Some(stream));
        draft.see_consumer(group, name, now_ms);
        Ok((replace(old, draft), 1))
    })
}

/// Returns how much was pending for it.
fn remove_consumer(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
) -> Result<usize, CommandError> {
    let (key, name) = (request.arg(2), request.arg(4));
    keyspace.try_update(key, |old| {
        let stream = needed(old)?;
        let group = group_in(stream, key, request.arg(3))?;
        let Some(consumer) = stream.consumer(group, name) else {
            return Ok((Decision::Keep, 0));
        };
        let mut draft = StreamDraft::new(Some(stream));
        let pending = draft.remove_consumer(group, name, consumer);
        Ok((replace(old, draft), pending))
    })
}
