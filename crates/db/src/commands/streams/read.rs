//! XREAD and XREADGROUP: what several streams have behind an id, or what a group has not had; both
//! can wait for it.
//!
//! XREAD takes nothing away, so each of its clients has a line of its own, and all are woken by an
//! entry. What one client of a group gets, the others do not: they stand in one line
//! (`crate::lines`). When a waiting command runs again, its streams may have gone: XREAD waits on,
//! XREADGROUP is answered with an error, both as in Redis.
//!
//! What XREADGROUP delivers of several streams is one step for all others: it runs under all gates
//! then. XREAD looks at one stream after the other: an entry that comes meanwhile is there for its
//! next call, since the client says what it has of each.

use std::ops::Range;

use pando_engine::{
    Decision, RowTag, StreamDraft, StreamGroup, StreamId, StreamPending, StreamRef, ValueRef,
};
use pando_protocol::{Reply, Request, RespVersion};

use super::{check_name, id, integer, replace, reply_entry, stream_of};
use crate::clock::Microseconds;
use crate::commands::detached::Detached;
use crate::commands::waiting;
use crate::error::CommandError;
use crate::keyspace::{Keyspace, row_of};
use crate::progress::{Handled, Progress, StreamWait};

/// Most entries of a stream for a client that has waited and gave no COUNT, as in Redis.
const COUNT_AFTER_WAIT: usize = 1000;

/// What is asked for.
struct Asked<'r> {
    /// The group and the consumer.
    group: Option<(&'r [u8], &'r [u8])>,
    /// At most so many entries of each stream.
    count: Option<usize>,
    /// Whether it waits,
    waits: bool,
    /// and until when; none is for ever.
    until: Option<Microseconds>,
    /// What the group gets is not pending.
    acknowledged: bool,
    /// The arguments that are keys; as many ids follow.
    keys: Range<usize>,
}

impl<'r> Asked<'r> {
    fn parse(
        keyspace: &Keyspace<'_>,
        request: Request<'r>,
        of_group: bool,
    ) -> Result<Self, CommandError> {
        let mut asked = Asked {
            group: None,
            count: None,
            waits: false,
            until: None,
            acknowledged: false,
            keys: 0..0,
        };
        let mut index = 1;
        while index < request.len() && asked.keys.is_empty() {
            let more = request.len() - index - 1;
            if more > 0 && request.is(index, "BLOCK") {
                index += 1;
                asked.until = waiting::until_ms(keyspace, request.arg(index))?;
                asked.waits = true;
            } else if more > 0 && request.is(index, "COUNT") {
                index += 1;
                // 0 and less is all.
                let count = usize::try_from(integer(request.arg(index))?).unwrap_or(0);
                asked.count = (count > 0).then_some(count);
            } else if more > 0 && request.is(index, "STREAMS") {
                if !more.is_multiple_of(2) {
                    return Err(CommandError::UnbalancedStreams);
                }
                asked.keys = index + 1..index + 1 + more / 2;
            } else if more > 1 && request.is(index, "GROUP") {
                if !of_group {
                    return Err(CommandError::GroupOfXread);
                }
                asked.group = Some((request.arg(index + 1), request.arg(index + 2)));
                index += 2;
            } else if request.is(index, "NOACK") {
                if !of_group {
                    return Err(CommandError::NoackOfXread);
                }
                asked.acknowledged = true;
            } else {
                return Err(CommandError::Syntax);
            }
            index += 1;
        }
        if asked.keys.is_empty() {
            return Err(CommandError::Syntax);
        }
        if of_group && asked.group.is_none() {
            return Err(CommandError::MissingGroup);
        }
        // In a snapshot nothing comes.
        asked.waits &= keyspace.view.moment().is_none();
        Ok(asked)
    }

    /// The index of the id that belongs to a key.
    fn id_of(&self, key: usize) -> usize {
        key + self.keys.len()
    }
}

/// The streams of a reply, each with its entries.
struct Served<'r, 'o> {
    reply: &'r mut Reply<'o>,
    deferred: Option<pando_protocol::reply::Deferred>,
    count: usize,
}

impl<'r, 'o> Served<'r, 'o> {
    fn new(reply: &'r mut Reply<'o>) -> Self {
        Self {
            reply,
            deferred: None,
            count: 0,
        }
    }

    /// Begins a stream; its entries are written next.
    fn begin(&mut self, key: &[u8]) -> &mut Reply<'o> {
        if self.deferred.is_none() {
            self.deferred = Some(self.reply.deferred_array());
        }
        self.count += 1;
        if self.reply.version() == RespVersion::Resp2 {
            self.reply.array(2);
        }
        self.reply.bulk(key);
        self.reply
    }

    /// Ends the reply; returns whether there is one.
    fn finish(self) -> bool {
        let Some(deferred) = self.deferred else {
            return false;
        };
        if self.reply.version() == RespVersion::Resp2 {
            self.reply.finish_array(deferred, self.count);
        } else {
            self.reply.finish_map(deferred, self.count);
        }
        true
    }
}

/// XREAD [COUNT count] [BLOCK milliseconds] STREAMS key [key …] id [id …]
pub(super) fn behind_ids(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let mut asked = Asked::parse(keyspace, request, false)?;
    let has_waited = keyspace.has_waited();
    let from = if has_waited {
        asked.count = asked.count.or(Some(COUNT_AFTER_WAIT));
        keyspace.session.waits_behind.clone()
    } else {
        asked
            .keys
            .clone()
            .map(|key| start(keyspace, request, &asked, key))
            .collect::<Result<_, _>>()?
    };
    let mut served = Served::new(reply);
    for (index, after) in asked.keys.clone().zip(&from) {
        let key = request.arg(index);
        let result = keyspace.read_row(RowTag::Stream, key, |row| {
            let Some(stream) = row.map(StreamRef::new) else {
                return;
            };
            let Some(next) = after.next() else {
                return;
            };
            let mut ranks = stream.ranks(next..=StreamId::MAX);
            if !ranks.is_empty() {
                ranks.end = ranks.end.min(
                    ranks
                        .start
                        .saturating_add(asked.count.unwrap_or(usize::MAX)),
                );
                super::range::reply_entries(served.begin(key), stream, ranks);
            }
        });
        // It waits for a stream, whatever is there instead.
        if !has_waited {
            result?;
        }
    }
    if !served.finish() {
        if asked.waits {
            let streams = StreamWait::Behind(from);
            return Ok(waiting::for_entries(asked.keys, asked.until, streams));
        }
        reply.null_array();
    }
    Ok(Progress::Done)
}

/// The id behind which a stream is read: `$` is its last one.
fn start(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    asked: &Asked<'_>,
    key: usize,
) -> Result<StreamId, CommandError> {
    let text = request.arg(asked.id_of(key));
    let parsed = match text {
        b"$" => None,
        b">" => Some(Err(CommandError::NewOfXread)),
        text => Some(id::parse(text, 0)),
    };
    if let Some(Ok(id)) = parsed {
        return Ok(id);
    }
    // As in Redis, a value of another type is found before an id that is none.
    let mut last = StreamId::MIN;
    for index in asked.keys.start..=key {
        let head = keyspace.look(request.arg(index), |value| {
            let stream = value.map(stream_of).transpose()?;
            Ok::<_, CommandError>(stream.map(StreamRef::head).unwrap_or_default())
        });
        last = head?.last;
    }
    parsed.unwrap_or(Ok(last))
}

/// What an id of XREADGROUP asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// What the group has not had.
    New,
    /// What is pending for the consumer behind an id.
    Pending(StreamId),
}

/// Entries that a consumer gets; none is one that was removed.
type Entries = Vec<(StreamId, Option<Detached<'static>>)>;

/// XREADGROUP GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key …]
/// id [id …]
pub(super) fn for_group(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let mut asked = Asked::parse(keyspace, request, true)?;
    let (group, consumer) = asked.group.ok_or(CommandError::MissingGroup)?;
    let has_waited = keyspace.has_waited();
    if has_waited {
        asked.count = asked.count.or(Some(COUNT_AFTER_WAIT));
    }
    let mut wanted = Vec::with_capacity(asked.keys.len());
    for index in asked.keys.clone() {
        let (key, id) = (request.arg(index), request.arg(asked.id_of(index)));
        keyspace.look(key, |value| find(value, key, group, has_waited).map(drop))?;
        wanted.push(match id {
            b"$" => return Err(CommandError::LastOfGroup),
            b">" => Wanted::New,
            id => match id::parse(id, 0)? {
                // As in Redis.
                StreamId::MAX => Wanted::New,
                id => Wanted::Pending(id),
            },
        });
    }
    check_name(consumer)?;
    let mut served = Served::new(reply);
    for (index, wanted) in asked.keys.clone().zip(wanted) {
        let key = request.arg(index);
        if wanted == Wanted::New && asked.waits && !keyspace.is_first_of_group(key, group) {
            continue;
        }
        let now_ms = keyspace.now().0;
        let entries = keyspace.try_update(key, |old| {
            let (stream, found) = find(old, key, group, has_waited)?;
            let mut turn = Delivery {
                draft: StreamDraft::new(Some(stream)),
                stream,
                group: found,
                names: (group, consumer),
                now_ms,
            };
            let count = asked.count.unwrap_or(usize::MAX);
            let entries = match wanted {
                Wanted::Pending(id) => turn.pending(id, count),
                Wanted::New if stream.final_id().is_none_or(|last| last <= found.last) => {
                    return Ok((Decision::Keep, None));
                }
                Wanted::New => turn.unread(count, asked.acknowledged),
            };
            Ok((replace(old, turn.draft), Some(entries)))
        });
        let entries = match entries {
            // What the group has had is answered: it does not get it again.
            Err(CommandError::PoolFull) if served.count > 0 => break,
            entries => entries?,
        };
        keyspace.count_read(true);
        if let Some(entries) = entries {
            reply_entries(served.begin(key), &entries);
        }
    }
    if !served.finish() {
        if asked.waits {
            let streams = StreamWait::Group(group.into());
            return Ok(waiting::for_entries(asked.keys, asked.until, streams));
        }
        reply.null_array();
    }
    Ok(Progress::Done)
}

fn reply_entries(reply: &mut Reply<'_>, entries: &Entries) {
    reply.array(entries.len());
    for (id, entry) in entries {
        if let Some(entry) = entry {
            reply_entry(reply, *id, entry.as_ref());
        } else {
            reply.array(2);
            id::reply_id(reply, *id);
            reply.null_array();
        }
    }
}

/// The stream in a value and its group; the errors differ for a client that has waited.
fn find<'v>(
    value: Option<ValueRef<'v>>,
    key: &[u8],
    name: &[u8],
    has_waited: bool,
) -> Result<(StreamRef<'v>, StreamGroup), CommandError> {
    let stream = value.map(|value| row_of(RowTag::Stream, value).map(StreamRef::new));
    let stream = match stream {
        Some(Ok(stream)) => Some(stream),
        None | Some(Err(_)) if has_waited => return Err(CommandError::StreamHasGone),
        other => other.transpose()?,
    };
    let found = stream.and_then(|stream| Some((stream, stream.group(name)?)));
    found.ok_or_else(|| {
        if has_waited {
            return CommandError::GroupHasGone;
        }
        CommandError::no_group(&[
            b"No such key '",
            key,
            b"' or consumer group '",
            name,
            b"' in XREADGROUP with GROUP option",
        ])
    })
}

/// A consumer gets entries of one stream.
struct Delivery<'o, 'r> {
    draft: StreamDraft<'o>,
    stream: StreamRef<'o>,
    group: StreamGroup,
    /// The group's, and the consumer's.
    names: (&'r [u8], &'r [u8]),
    now_ms: u64,
}

impl Delivery<'_, '_> {
    /// What the group has not had.
    fn unread(&mut self, count: usize, acknowledged: bool) -> Entries {
        let (group_name, name) = self.names;
        let (stream, mut group) = (self.stream, self.group);
        let consumer = self.draft.see_consumer(group, name, self.now_ms);
        let from = group
            .last
            .next()
            .map_or(stream.len(), |next| stream.rank(next));
        let pending = StreamPending::new(consumer, self.now_ms, 1);
        let entries: Entries = stream
            .iter_from_rank(from)
            .take(count)
            .map(|(id, entry)| {
                stream.pass(&mut group, id);
                if !acknowledged {
                    self.draft.set_pending(group, id, pending);
                }
                (id, Some(Detached::take(entry)))
            })
            .collect();
        self.draft.set_group(group_name, group);
        entries
    }

    /// What is pending for the consumer behind an id; that counts as one more delivery.
    fn pending(&mut self, after: StreamId, count: usize) -> Entries {
        let consumer = self
            .draft
            .see_consumer(self.group, self.names.1, self.now_ms);
        let ids = after
            .next()
            .into_iter()
            .flat_map(|from| self.stream.pending_for(consumer, from));
        ids.take(count)
            .map(|id| {
                let entry = self.stream.get(id).map(Detached::take);
                if entry.is_some()
                    && let Some(pending) = self.stream.pending_at(self.group, id)
                {
                    let deliveries = pending.deliveries.saturating_add(1);
                    let pending = StreamPending::new(consumer, self.now_ms, deliveries);
                    self.draft.set_pending(self.group, id, pending);
                }
                (id, entry)
            })
            .collect()
    }
}
