//! Requests of a batch that are carried out together: neighbours that change the same collection.
//!
//! Before a run of a connection begins, and again when the run comes to a request that is followed
//! by another one for the same key, the requests from there on are looked at, whichever connections
//! they are of. As many as [`Turn::join`] takes are carried out in one update. The runs then go on
//! as ever and give out the answers where they would have executed the requests.
//!
//! Invariants:
//! - **JW1 answered-once** Every request that was carried out is answered, in the batch's order,
//!   whatever happens to its connection meanwhile: its effect is there.

use std::ptr;

use pando_db::{Answers, Joined, LogEpoch, Turn};
use pando_protocol::ArgumentRange;
use pando_protocol::command::CommandSpec;

use super::batch::{Batch, Entry};
use super::connections::Connections;
use super::holding::Holding;
use super::wire::Resolved;
use crate::recorder;
use crate::settings::Settings;

/// Requests for which room is made before it is known how many are joined.
const JOINED_SOON: usize = 16;

/// What was carried out of the current batch, and not yet answered.
#[derive(Debug, Default)]
pub(super) struct JointUpdate {
    pub(super) answers: Answers,
    /// The entries that the answers are for.
    from: usize,
    end: usize,
    /// Entries before this one are not looked at again.
    looked_until: usize,
}

impl JointUpdate {
    /// A batch begins.
    pub(super) fn begin(&mut self) {
        (self.from, self.end, self.looked_until) = (0, 0, 0);
    }

    /// The index of the answer to the entry at `next`, if it was carried out.
    #[inline]
    pub(super) fn answer_of(&self, next: usize) -> Option<usize> {
        (self.from..self.end)
            .contains(&next)
            .then(|| next - self.from)
    }

    /// Whether it is worth looking ahead from the entry at `next`, as far as its neighbour in the
    /// same segment tells.
    #[inline]
    pub(super) fn begins_at(
        &self,
        next: usize,
        (entries, ranges): (&[Entry], &[ArgumentRange]),
        bytes: &[u8],
    ) -> bool {
        let key = |entry: &Entry| entry.request(ranges, bytes).arg(1);
        self.neighbours(next, entries)
            .is_some_and(|[one, other]| one.segment == other.segment && key(one) == key(other))
    }

    /// The entry at `next` and its neighbour, if they may be joined and were not looked at yet.
    #[inline]
    fn neighbours<'e>(&self, next: usize, entries: &'e [Entry]) -> Option<[&'e Entry; 2]> {
        let both = [entries.get(next)?, entries.get(next + 1)?];
        (next >= self.looked_until && both.into_iter().all(is_joinable)).then_some(both)
    }

    /// Carries out the requests from `next` on together, as far as they can be.
    #[inline]
    pub(super) fn look(
        &mut self,
        next: usize,
        turn: &mut Turn<'_>,
        batch: &Batch<'_>,
        (connections, holding): (&Connections, &Holding),
        settings: &Settings,
    ) {
        if self.neighbours(next, batch.entries).is_some() {
            self.look_ahead(next, turn, batch, (connections, holding), settings);
        }
    }

    #[inline(never)]
    fn look_ahead(
        &mut self,
        next: usize,
        turn: &mut Turn<'_>,
        batch: &Batch<'_>,
        (connections, holding): (&Connections, &Holding),
        settings: &Settings,
    ) {
        debug_assert!(next >= self.end, "JW1 answered-once");
        if recorder::times_each(settings) {
            return;
        }
        turn.go_to(next);
        let mut first: Option<(usize, &[u8])> = None;
        let mut last: Option<Member<'_>> = None;
        let mut requests: Vec<Joined<'_>> = Vec::with_capacity(JOINED_SOON);
        for entry in &batch.entries[next..] {
            let again = last.as_ref().and_then(|last| last.again(entry, batch));
            let other = || member(entry, last.as_ref(), turn, batch, (connections, holding));
            let Some(member) = again.or_else(other) else {
                break;
            };
            let here = (member.index, member.joined.key());
            if *first.get_or_insert(here) != here {
                break;
            }
            requests.push(member.joined);
            last = Some(member);
        }
        self.looked_until = next + requests.len().max(1);
        if let (Some((index, _)), 2..) = (first, requests.len()) {
            turn.join(index, &requests, &mut self.answers);
            (self.from, self.end) = (next, next + self.answers.len());
            if !self.answers.is_empty() && self.end < self.looked_until {
                // The next one is executed alone; others may follow.
                self.looked_until = self.end + 1;
            }
        }
    }
}

/// Whether an entry's command is one that can be joined.
#[inline]
fn is_joinable(entry: &Entry) -> bool {
    matches!(entry.resolved, Resolved::Resp(Ok(spec)) if Turn::is_joinable(spec))
}

/// An entry as part of a joint update.
struct Member<'b> {
    segment: usize,
    /// The segment's bytes.
    bytes: &'b [u8],
    spec: &'static CommandSpec,
    /// Its database.
    index: usize,
    joined: Joined<'b>,
}

impl<'b> Member<'b> {
    /// The next entry, if it is as this one is but for its arguments.
    #[inline]
    fn again(&self, entry: &Entry, batch: &'b Batch<'_>) -> Option<Self> {
        let is_same = matches!(entry.resolved, Resolved::Resp(Ok(spec)) if ptr::eq(spec, self.spec))
            && entry.segment == self.segment
            && !entry.waiting;
        let request = is_same.then(|| entry.request(batch.ranges, self.bytes))?;
        let joined = self.joined.again(request)?;
        Some(Self { joined, ..*self })
    }
}

/// An entry as part of a joint update; `last` is the one before it.
fn member<'b>(
    entry: &Entry,
    last: Option<&Member<'_>>,
    turn: &Turn<'_>,
    batch: &'b Batch<'_>,
    (connections, holding): (&'b Connections, &Holding),
) -> Option<Member<'b>> {
    let Resolved::Resp(Ok(spec)) = entry.resolved else {
        return None;
    };
    let segment = &batch.segments[entry.segment];
    let connection = connections.get(segment.slot)?;
    let client = &connection.client;
    if entry.waiting || !connection.is_open() || holding.must_follow(client, LogEpoch::NONE) {
        return None;
    }
    let bytes = segment.bytes(batch.arena, connection.input.bytes());
    let request = entry.request(batch.ranges, bytes);
    let joined = match last {
        Some(last) if ptr::eq(spec, last.spec) => Turn::may_join_too(&last.joined, client, request),
        _ => turn.may_join(client, spec, request),
    }?;
    Some(Member {
        segment: entry.segment,
        bytes,
        spec,
        index: client.index(),
        joined,
    })
}
