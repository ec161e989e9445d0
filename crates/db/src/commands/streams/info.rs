//! XINFO: descriptions of streams, groups and consumers.

use pando_engine::{StreamGroup, StreamId, StreamRef};
use pando_protocol::{Reply, Request};

use super::id::reply_id;
use super::range::reply_entries;
use super::trim::BLOCK_ENTRIES;
use super::{group_in, help, integer, look_at, reply_entry, subcommand_syntax};
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

const HELP: &[&str] = &[
    "XINFO <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "CONSUMERS <key> <group>",
    "    Describe the consumers of a group.",
    "GROUPS <key>",
    "    Describe the groups of a stream.",
    "STREAM <key> [FULL [COUNT <count>]]",
    "    Describe a stream; with FULL, return it, or its first <count> entries.",
    "HELP",
    "    Prints this help.",
];

/// Entries, and pending ones, that XINFO STREAM FULL returns unless COUNT says otherwise.
const FULL_COUNT_DEFAULT: usize = 10;

/// XINFO subcommand [argument …]
pub(super) fn info(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    if request.is(1, "HELP") {
        return Ok(help(reply, HELP));
    }
    let key = request.arg(2);
    let now_ms = keyspace.now().0;
    look_at(keyspace, key, |stream| {
        let stream = stream.ok_or(CommandError::NoSuchKey)?;
        if request.is(1, "GROUPS") {
            groups(reply, stream);
        } else if request.is(1, "CONSUMERS") {
            let group = group_in(stream, key, request.arg(3))?;
            consumers(reply, stream, group, now_ms);
        } else {
            match full_count(request)? {
                None => summarize(reply, stream),
                Some(count) => show_all(reply, stream, count),
            }
        }
        Ok::<_, CommandError>(())
    })??;
    Ok(Progress::Done)
}

/// How much XINFO STREAM FULL returns; none: it is not FULL.
fn full_count(request: Request<'_>) -> Result<Option<usize>, CommandError> {
    match request.len() {
        3 => Ok(None),
        4 if request.is(3, "FULL") => Ok(Some(FULL_COUNT_DEFAULT)),
        6 if request.is(3, "FULL") && request.is(4, "COUNT") => {
            Ok(Some(match usize::try_from(integer(request.arg(5))?) {
                Ok(0) => usize::MAX,
                Ok(count) => count,
                Err(_) => FULL_COUNT_DEFAULT,
            }))
        }
        _ => Err(subcommand_syntax("XINFO", request)),
    }
}

/// The fields that both forms of XINFO STREAM begin with.
fn head(reply: &mut Reply<'_>, stream: StreamRef<'_>) {
    let head = stream.head();
    reply.bulk("length");
    reply.count(stream.len());
    // Redis' tree of blocks of entries.
    let blocks = stream.len().div_ceil(BLOCK_ENTRIES);
    reply.bulk("radix-tree-keys");
    reply.count(blocks);
    reply.bulk("radix-tree-nodes");
    reply.count(blocks + 1);
    reply.bulk("last-generated-id");
    reply_id(reply, head.last);
    reply.bulk("max-deleted-entry-id");
    reply_id(reply, head.removed);
    reply.bulk("entries-added");
    reply.integer(head.added as i64);
    reply.bulk("recorded-first-entry-id");
    reply_id(reply, stream.first().unwrap_or_default());
}

fn summarize(reply: &mut Reply<'_>, stream: StreamRef<'_>) {
    reply.map(10);
    head(reply, stream);
    reply.bulk("groups");
    reply.count(stream.group_count());
    for (name, rank) in [
        ("first-entry", Some(0)),
        ("last-entry", stream.len().checked_sub(1)),
    ] {
        reply.bulk(name);
        match rank.and_then(|rank| stream.nth(rank)) {
            Some((id, entry)) => reply_entry(reply, id, entry),
            None => reply.null(),
        }
    }
}

/// How many entries a group has read, and how many it has not, as far as these are known.
fn reply_progress(reply: &mut Reply<'_>, stream: StreamRef<'_>, group: StreamGroup) {
    reply.bulk("entries-read");
    reply_known(reply, group.read);
    reply.bulk("lag");
    reply_known(reply, stream.lag(group));
}

fn reply_known(reply: &mut Reply<'_>, number: Option<u64>) {
    match number {
        Some(number) => reply.integer(number as i64),
        None => reply.null(),
    }
}

fn groups(reply: &mut Reply<'_>, stream: StreamRef<'_>) {
    reply.array(stream.group_count());
    for (name, group) in stream.groups() {
        reply.map(6);
        reply.bulk("name");
        reply.bulk(name);
        reply.bulk("consumers");
        reply.count(stream.consumer_count(group));
        reply.bulk("pending");
        reply.count(stream.pending_count(group));
        reply.bulk("last-delivered-id");
        reply_id(reply, group.last);
        reply_progress(reply, stream, group);
    }
}

fn consumers(reply: &mut Reply<'_>, stream: StreamRef<'_>, group: StreamGroup, now_ms: u64) {
    reply.array(stream.consumer_count(group));
    for (name, consumer) in stream.consumers(group) {
        reply.map(3);
        reply.bulk("name");
        reply.bulk(name);
        reply.bulk("pending");
        reply.count(stream.pending_count_for(consumer));
        reply.bulk("idle");
        reply.integer(now_ms.saturating_sub(consumer.seen_ms) as i64);
    }
}

/// The stream with up to `count` entries, and as many pending ones of each group and consumer.
fn show_all(reply: &mut Reply<'_>, stream: StreamRef<'_>, count: usize) {
    reply.map(9);
    head(reply, stream);
    reply.bulk("entries");
    reply_entries(reply, stream, 0..stream.len().min(count));
    reply.bulk("groups");
    reply.array(stream.group_count());
    for (name, group) in stream.groups() {
        reply.map(7);
        reply.bulk("name");
        reply.bulk(name);
        reply.bulk("last-delivered-id");
        reply_id(reply, group.last);
        reply_progress(reply, stream, group);
        let pending = stream.pending_count(group);
        reply.bulk("pel-count");
        reply.count(pending);
        reply.bulk("pending");
        reply.array(pending.min(count));
        for (id, pending) in stream.pending(group, StreamId::MIN).take(count) {
            reply.array(4);
            reply_id(reply, id);
            reply.bulk(stream.name_of(pending));
            reply.integer(pending.delivered_ms as i64);
            reply.integer(pending.deliveries as i64);
        }
        reply.bulk("consumers");
        show_consumers(reply, stream, group, count);
    }
}

fn show_consumers(reply: &mut Reply<'_>, stream: StreamRef<'_>, group: StreamGroup, count: usize) {
    reply.array(stream.consumer_count(group));
    for (name, consumer) in stream.consumers(group) {
        reply.map(4);
        reply.bulk("name");
        reply.bulk(name);
        reply.bulk("seen-time");
        reply.integer(consumer.seen_ms as i64);
        let pending = stream.pending_count_for(consumer);
        reply.bulk("pel-count");
        reply.count(pending);
        reply.bulk("pending");
        reply.array(pending.min(count));
        for id in stream.pending_for(consumer, StreamId::MIN).take(count) {
            // DT2 both-sides
            let pending = stream.pending_at(group, id);
            reply.array(3);
            reply_id(reply, id);
            reply.integer(pending.map_or(0, |pending| pending.delivered_ms) as i64);
            reply.integer(pending.map_or(0, |pending| pending.deliveries) as i64);
        }
    }
}
