//! Reads of one stream: XLEN XRANGE XREVRANGE.

use std::ops::Range;

use pando_engine::StreamRef;
use pando_protocol::{Reply, Request};

use super::{id, integer, look_at, reply_entry};
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// Entries that are found at once where they are shown from the last on.
const BATCH_ENTRIES: usize = 64;

/// XLEN key
pub(super) fn count(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let len = look_at(keyspace, request.arg(1), |stream| {
        stream.map_or(0, StreamRef::len)
    })?;
    reply.count(len);
    Ok(Progress::Done)
}

/// XRANGE key start end [COUNT count]; XREVRANGE key end start [COUNT count]
pub(super) fn range(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    from_last: bool,
) -> Handled {
    let (first, last) = if from_last { (3, 2) } else { (2, 3) };
    let start = id::parse_start(request.arg(first))?;
    let end = id::parse_end(request.arg(last))?;
    let count = parse_count(request)?;
    look_at(keyspace, request.arg(1), |stream| {
        let Some(stream) = stream else {
            reply.array(0);
            return;
        };
        if count == Some(0) {
            reply.null_array();
            return;
        }
        let mut ranks = stream.ranks(start..=end);
        let shown = count.unwrap_or(usize::MAX).min(ranks.len());
        if from_last {
            ranks.start = ranks.end - shown;
            reply_from_last(reply, stream, ranks);
        } else {
            ranks.end = ranks.start + shown;
            reply_entries(reply, stream, ranks);
        }
    })?;
    Ok(Progress::Done)
}

/// COUNT, if it is given, behind the two bounds.
fn parse_count(request: Request<'_>) -> Result<Option<usize>, CommandError> {
    let mut count = None;
    let mut index = 4;
    while index < request.len() {
        if !request.is(index, "COUNT") || index + 1 == request.len() {
            return Err(CommandError::Syntax);
        }
        // Below 0 it is 0; -1 is not "all" here.
        let entries = integer(request.arg(index + 1))?.max(0);
        count = Some(usize::try_from(entries).unwrap_or(usize::MAX));
        index += 2;
    }
    Ok(count)
}

/// Replies with the entries of these ranks.
pub(in crate::commands) fn reply_entries(
    reply: &mut Reply<'_>,
    stream: StreamRef<'_>,
    ranks: Range<usize>,
) {
    reply.array(ranks.len());
    for (id, entry) in stream.iter_from_rank(ranks.start).take(ranks.len()) {
        reply_entry(reply, id, entry);
    }
}

fn reply_from_last(reply: &mut Reply<'_>, stream: StreamRef<'_>, ranks: Range<usize>) {
    reply.array(ranks.len());
    let mut end = ranks.end;
    while end > ranks.start {
        let start = ranks.start.max(end.saturating_sub(BATCH_ENTRIES));
        let batch: Vec<_> = stream.iter_from_rank(start).take(end - start).collect();
        for (id, entry) in batch.into_iter().rev() {
            reply_entry(reply, id, entry);
        }
        end = start;
    }
}
