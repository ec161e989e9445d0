//! What was delivered and is not acknowledged: XACK and XPENDING.

use pando_engine::{Decision, StreamDraft, StreamGroup, StreamId, StreamPending, StreamRef};
use pando_protocol::{Reply, Request};

use super::id::reply_id;
use super::{group_of, id, integer, look_at, replace, stream_of};
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// XACK key group id [id …]
pub(super) fn acknowledge(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let ids: Result<Vec<_>, _> = request.args_from(3).map(|it| id::parse(it, 0)).collect();
    let acknowledged = keyspace.try_update(request.arg(1), |old| {
        // As in Redis, ids do not matter without a group.
        let Some(stream) = old.map(stream_of).transpose()? else {
            return Ok((Decision::Keep, 0));
        };
        let Some(group) = stream.group(request.arg(2)) else {
            return Ok((Decision::Keep, 0));
        };
        let ids = ids.as_ref().map_err(CommandError::clone)?;
        let mut draft = StreamDraft::new(Some(stream));
        let removed = ids.iter().map(|id| draft.remove_pending(group, *id));
        match removed.filter(|removed| *removed).count() {
            0 => Ok((Decision::Keep, 0)),
            acknowledged => Ok((replace(old, draft), acknowledged)),
        }
    })?;
    reply.count(acknowledged);
    Ok(Progress::Done)
}

/// Which pending entries are shown.
struct Filter<'r> {
    start: StreamId,
    end: StreamId,
    count: usize,
    idle_min_ms: u64,
    consumer: Option<&'r [u8]>,
}

impl<'r> Filter<'r> {
    /// None: a summary is asked for.
    fn parse(request: Request<'r>) -> Result<Option<Self>, CommandError> {
        if request.len() == 3 {
            return Ok(None);
        }
        if !(6..=9).contains(&request.len()) {
            return Err(CommandError::Syntax);
        }
        let (mut at, mut idle_min_ms) = (3, 0);
        if request.is(3, "IDLE") {
            idle_min_ms = u64::try_from(integer(request.arg(4))?).unwrap_or(0);
            if request.len() < 8 {
                return Err(CommandError::Syntax);
            }
            at = 5;
        }
        let count = usize::try_from(integer(request.arg(at + 2))?).unwrap_or(0);
        Ok(Some(Self {
            start: id::parse_start(request.arg(at))?,
            end: id::parse_end(request.arg(at + 1))?,
            count,
            idle_min_ms,
            consumer: request.get(at + 3),
        }))
    }

    /// Those of a group.
    fn find(
        &self,
        stream: StreamRef<'_>,
        group: StreamGroup,
        now_ms: u64,
    ) -> Vec<(StreamId, StreamPending)> {
        let idles = |pending: &StreamPending| {
            now_ms.saturating_sub(pending.delivered_ms) >= self.idle_min_ms
        };
        let within = |(id, _): &(StreamId, StreamPending)| *id <= self.end;
        let Some(name) = self.consumer else {
            let pending = stream.pending(group, self.start).take_while(within);
            let pending = pending.filter(|(_, pending)| idles(pending));
            return pending.take(self.count).collect();
        };
        let Some(consumer) = stream.consumer(group, name) else {
            return Vec::new();
        };
        let ids = stream.pending_for(consumer, self.start);
        let pending = ids.filter_map(|id| Some((id, stream.pending_at(group, id)?)));
        let pending = pending
            .take_while(within)
            .filter(|(_, pending)| idles(pending));
        pending.take(self.count).collect()
    }
}

/// XPENDING key group [[IDLE milliseconds] start end count [consumer]]
pub(super) fn pending(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let filter = Filter::parse(request)?;
    let (key, name) = (request.arg(1), request.arg(2));
    let now_ms = keyspace.now().0;
    look_at(keyspace, key, |stream| {
        let (stream, group) = group_of(stream, key, name)?;
        let Some(filter) = filter else {
            summarize(reply, stream, group);
            return Ok::<_, CommandError>(());
        };
        let found = filter.find(stream, group, now_ms);
        reply.array(found.len());
        for (id, pending) in found {
            reply.array(4);
            reply_id(reply, id);
            reply.bulk(stream.name_of(pending));
            reply.integer(now_ms.saturating_sub(pending.delivered_ms) as i64);
            reply.integer(pending.deliveries as i64);
        }
        Ok(())
    })??;
    Ok(Progress::Done)
}

/// How much is pending, the first and the last id, and how much for each consumer.
fn summarize(reply: &mut Reply<'_>, stream: StreamRef<'_>, group: StreamGroup) {
    reply.array(4);
    reply.count(stream.pending_count(group));
    let first = stream.pending(group, StreamId::MIN).next();
    let (Some((first, _)), Some(last)) = (first, stream.last_pending(group)) else {
        reply.null();
        reply.null();
        reply.null_array();
        return;
    };
    reply_id(reply, first);
    reply_id(reply, last);
    let consumers = stream.consumers(group);
    let counts = consumers.map(|(name, consumer)| (name, stream.pending_count_for(consumer)));
    let counts: Vec<_> = counts.filter(|(_, count)| *count > 0).collect();
    reply.array(counts.len());
    for (name, count) in counts {
        reply.array(2);
        reply.bulk(name);
        reply.bulk_integer(count as i64);
    }
}
