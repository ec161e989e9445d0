//! Pending entries that another consumer gets: XCLAIM, and XAUTOCLAIM, which looks for them.
//!
//! Entries that were removed from the stream are no longer pending, once somebody would claim them.

use pando_engine::{
    Decision, StreamConsumer, StreamDraft, StreamGroup, StreamId, StreamPending, StreamRef,
};
use pando_protocol::{Reply, Request, number};

use super::id::reply_id;
use super::{check_name, group_of, id, replace, reply_entry, stream_of};
use crate::commands::detached::Detached;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// Entries that XAUTOCLAIM returns, unless COUNT says otherwise.
const COUNT_DEFAULT: usize = 100;

/// Most that COUNT may say.
const COUNT_MAX: i64 = i64::MAX / 16;

/// Pending entries that XAUTOCLAIM looks at for each that it may return.
const ATTEMPTS: usize = 10;

/// How entries are claimed.
#[derive(Clone, Copy, Debug)]
struct How {
    /// Only those that have been pending for so long.
    idle_min_ms: u64,
    /// When they count as delivered.
    delivered_ms: u64,
    /// How often they then were; none: once more.
    deliveries: Option<u64>,
    /// Entries that are not pending become so.
    force: bool,
    /// The reply has ids only, and they are not delivered once more.
    just_ids: bool,
}

/// An argument that is a time.
fn idle_min(argument: &[u8], command: &'static str) -> Result<u64, CommandError> {
    let what = "min-idle-time";
    let idle = number::parse_i64(argument);
    let idle = idle.ok_or(CommandError::ClaimArgument { what, command })?;
    Ok(u64::try_from(idle).unwrap_or(0))
}

/// A claimed entry.
type Claimed = (StreamId, Detached<'static>);

/// The claims of one command.
struct Claims<'o, 'r> {
    draft: StreamDraft<'o>,
    stream: StreamRef<'o>,
    group: StreamGroup,
    name: &'r [u8],
    /// The consumer, once it has claimed something.
    consumer: Option<StreamConsumer>,
    now_ms: u64,
    is_changed: bool,
}

/// What became of an attempt.
enum Outcome {
    Claimed(Claimed),
    /// The entry has gone, and is no longer pending.
    Gone,
    Passed,
}

impl Claims<'_, '_> {
    /// Tries to claim an entry. O(log entries).
    fn claim(&mut self, id: StreamId, how: How) -> Outcome {
        let pending = self.draft.as_ref().pending_at(self.group, id);
        let Some(entry) = self.stream.get(id) else {
            if pending.is_none() {
                return Outcome::Passed;
            }
            self.draft.remove_pending(self.group, id);
            self.is_changed = true;
            return Outcome::Gone;
        };
        let before = match pending {
            Some(pending) if self.now_ms.saturating_sub(pending.delivered_ms) < how.idle_min_ms => {
                return Outcome::Passed;
            }
            Some(pending) => pending.deliveries,
            None if how.force => 1,
            None => return Outcome::Passed,
        };
        let consumer = *self
            .consumer
            .get_or_insert_with(|| self.draft.see_consumer(self.group, self.name, self.now_ms));
        let more = u64::from(!how.just_ids);
        let deliveries = how.deliveries.unwrap_or(before.saturating_add(more));
        let pending = StreamPending::new(consumer, how.delivered_ms, deliveries);
        self.draft.set_pending(self.group, id, pending);
        self.is_changed = true;
        Outcome::Claimed((id, Detached::take(entry)))
    }
}

fn reply_claimed(reply: &mut Reply<'_>, claimed: &[Claimed], just_ids: bool) {
    reply.array(claimed.len());
    for (id, entry) in claimed {
        if just_ids {
            reply_id(reply, *id);
        } else {
            reply_entry(reply, *id, entry.as_ref());
        }
    }
}

/// The arguments of XCLAIM behind the consumer.
struct Options {
    how: How,
    ids: Vec<StreamId>,
    last: StreamId,
}

impl Options {
    fn parse(request: Request<'_>, now_ms: u64) -> Result<Self, CommandError> {
        let command = "XCLAIM";
        let mut how = How {
            idle_min_ms: idle_min(request.arg(4), command)?,
            delivered_ms: now_ms,
            deliveries: None,
            force: false,
            just_ids: false,
        };
        // They end where an argument is none.
        let ids: Vec<_> = request
            .args_from(5)
            .map_while(|text| id::parse(text, 0).ok())
            .collect();
        let mut last = StreamId::MIN;
        let mut index = 5 + ids.len();
        while index < request.len() {
            let (at, more) = (index, index + 1 < request.len());
            let given = |what| {
                let given = number::parse_i64(request.arg(at + 1));
                given.ok_or(CommandError::ClaimArgument { what, command })
            };
            index += 2;
            if request.is(at, "FORCE") {
                how.force = true;
                index -= 1;
            } else if request.is(at, "JUSTID") {
                how.just_ids = true;
                index -= 1;
            } else if more && request.is(at, "IDLE") {
                let then = (now_ms as i64).saturating_sub(given("IDLE option")?);
                how.delivered_ms = u64::try_from(then).unwrap_or(now_ms).min(now_ms);
            } else if more && request.is(at, "TIME") {
                let then = given("TIME option")?;
                how.delivered_ms = u64::try_from(then).unwrap_or(now_ms).min(now_ms);
            } else if more && request.is(at, "RETRYCOUNT") {
                how.deliveries = u64::try_from(given("RETRYCOUNT option")?).ok();
            } else if more && request.is(at, "LASTID") {
                last = id::parse(request.arg(at + 1), 0)?;
            } else {
                let option = request.arg(at).into();
                return Err(CommandError::ClaimOption { option });
            }
        }
        Ok(Self { how, ids, last })
    }
}

/// XCLAIM key group consumer min-idle-time id [id …] [IDLE ms] [TIME unix-ms] [RETRYCOUNT count]
/// [FORCE] [JUSTID] [LASTID id]
pub(super) fn claim(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let (key, group_name, name) = (request.arg(1), request.arg(2), request.arg(3));
    let now_ms = keyspace.now().0;
    let options = Options::parse(request, now_ms);
    let (claimed, just_ids) = keyspace.try_update(key, |old| {
        let stream = old.map(stream_of).transpose()?;
        let (stream, mut group) = group_of(stream, key, group_name)?;
        let Options { how, ids, last } = options.as_ref().map_err(CommandError::clone)?;
        check_name(name)?;
        let mut draft = StreamDraft::new(Some(stream));
        let is_changed = *last > group.last;
        if is_changed {
            group.last = *last;
            draft.set_group(group_name, group);
        }
        let mut claims = Claims {
            draft,
            stream,
            group,
            name,
            consumer: None,
            now_ms,
            is_changed,
        };
        let outcomes = ids.iter().map(|id| claims.claim(*id, *how));
        let claimed: Vec<_> = outcomes
            .filter_map(|outcome| match outcome {
                Outcome::Claimed(claimed) => Some(claimed),
                Outcome::Gone | Outcome::Passed => None,
            })
            .collect();
        let decision = if claims.is_changed {
            replace(old, claims.draft)
        } else {
            Decision::Keep
        };
        Ok((decision, (claimed, how.just_ids)))
    })?;
    reply_claimed(reply, &claimed, just_ids);
    Ok(Progress::Done)
}

/// XAUTOCLAIM key group consumer min-idle-time start [COUNT count] [JUSTID]
pub(super) fn claim_idle(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let (key, group_name, name) = (request.arg(1), request.arg(2), request.arg(3));
    let now_ms = keyspace.now().0;
    let idle_min_ms = idle_min(request.arg(4), "XAUTOCLAIM")?;
    let start = id::parse_start(request.arg(5))?;
    let (count, just_ids) = parse_count(request)?;
    check_name(name)?;
    let how = How {
        idle_min_ms,
        delivered_ms: now_ms,
        deliveries: None,
        force: false,
        just_ids,
    };
    let (next, claimed, gone) = keyspace.try_update(key, |old| {
        let stream = old.map(stream_of).transpose()?;
        let (stream, group) = group_of(stream, key, group_name)?;
        let mut claims = Claims {
            draft: StreamDraft::new(Some(stream)),
            stream,
            group,
            name,
            consumer: None,
            now_ms,
            is_changed: false,
        };
        let (mut claimed, mut gone) = (Vec::new(), Vec::new());
        let mut pending = stream.pending(group, start).map(|(id, _)| id);
        for _ in 0..count.saturating_mul(ATTEMPTS) {
            if claimed.len() + gone.len() == count {
                break;
            }
            let Some(id) = pending.next() else { break };
            match claims.claim(id, how) {
                Outcome::Claimed(entry) => claimed.push(entry),
                Outcome::Gone => gone.push(id),
                Outcome::Passed => {}
            }
        }
        let next = pending.next().unwrap_or(StreamId::MIN);
        let decision = if claims.is_changed {
            replace(old, claims.draft)
        } else {
            Decision::Keep
        };
        Ok((decision, (next, claimed, gone)))
    })?;
    reply.array(3);
    reply_id(reply, next);
    reply_claimed(reply, &claimed, just_ids);
    reply.array(gone.len());
    for id in gone {
        reply_id(reply, id);
    }
    Ok(Progress::Done)
}

/// COUNT and JUSTID of XAUTOCLAIM.
fn parse_count(request: Request<'_>) -> Result<(usize, bool), CommandError> {
    let (mut count, mut just_ids) = (COUNT_DEFAULT, false);
    let mut index = 6;
    while index < request.len() {
        if request.is(index, "COUNT") && index + 1 < request.len() {
            let given = number::parse_i64(request.arg(index + 1));
            let given = given.filter(|count| (1..=COUNT_MAX).contains(count));
            count = given.ok_or(CommandError::CountBelowOne)? as usize;
            index += 2;
        } else if request.is(index, "JUSTID") {
            just_ids = true;
            index += 1;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    Ok((count, just_ids))
}
