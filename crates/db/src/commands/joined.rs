//! Commands on one collection, or one number, that are carried out together, in one update of their
//! key.
//!
//! A change of a large row copies a node per level, publishes the new version and retires the old
//! one. That costs far more than what one command changes. Requests that arrived together and
//! change the same key share it: their changes are made in one draft, which copies each node once
//! ([`pando_engine::HashDraft`]), and committed as one version with one log record.
//!
//! A family of commands offers `step`: one command, as a change of the draft. It answers into
//! [`Answers`], since the closure of an update may run again. A step may decline ([`Step::Alone`]):
//! the joint update then ends before it, and the command takes its usual way. So a step knows the
//! common forms of a command alone, and nothing that is large.
//!
//! Invariants:
//! - **JU1 as-if-alone** Each command sees what the one before it has left. Its answer, and what it
//!   counts, are those that it has when it is executed alone.
//! - **JU2 no-gap** Between the commands of a joint update the key is never without a value: the
//!   update ends with the command that takes the last element, and one that makes the key ends
//!   before a command that takes elements. So a key that came or went is seen by those who watch
//!   it or wait for it.
//! - **JU3 bounded** A joint update has at most as many commands as a batch, and its answers end
//!   soon after [`limits::JOINED_REPLY_BYTES_MAX`]: it runs under the lock that orders the key's
//!   writers.
//!
//! Deliberately absent: which requests may be joined, which their clients' state decides
//! (`crate::turn`), and what each is told ([`Answers`] are given out by the host's loop).

use pando_engine::{
    Attributes, Body, BodyRef, Decision, FieldsDraft, FieldsRef, HashDraft, ListChange, ListDraft,
    ListEnds, ListRef, LogEpoch, NewValue, RowTag, Shown, SortedDraft, SortedRef, WideRow,
};
use pando_protocol::command::{
    HashCommand, KeyspaceCommand, ListCommand, SetCommand, SortedCommand, StringCommand,
};
use pando_protocol::number::IntegerText;
use pando_protocol::{Reply, Request, RespVersion};

use super::{hashes, lists, sets, sorted, strings};
use crate::clock::Milliseconds;
use crate::encoding::Thresholds;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::limits;
use crate::progress::{Handled, Progress};
use crate::statistics::add;

/// The type of what a joint update changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    List,
    Set,
    Hash,
    Sorted,
    /// A string that is an integer.
    Number,
}

/// The family of a command that has a step.
#[inline]
pub(crate) fn family(command: KeyspaceCommand) -> Option<Family> {
    use {HashCommand as H, KeyspaceCommand as K, ListCommand as L};
    use {SetCommand as S, SortedCommand as Z, StringCommand as N};
    match command {
        K::List(L::Lpush | L::Rpush | L::Lpushx | L::Rpushx | L::Lpop | L::Rpop) => {
            Some(Family::List)
        }
        K::Set(S::Sadd | S::Srem | S::Spop) => Some(Family::Set),
        K::Hash(H::Hset | H::Hmset | H::Hdel) => Some(Family::Hash),
        K::Sorted(Z::Zadd | Z::Zrem | Z::Zpopmin | Z::Zpopmax) => Some(Family::Sorted),
        K::String(N::Incr | N::Decr | N::Incrby | N::Decrby) => Some(Family::Number),
        _ => None,
    }
}

/// Whether the command has a step that may change a large row in place.
#[inline]
pub(crate) fn changes_rows(command: KeyspaceCommand) -> bool {
    family(command).is_some_and(|family| family != Family::Number)
}

/// A request of a joint update.
#[derive(Clone, Copy, Debug)]
pub struct Joined<'r> {
    /// Its command, which has a step.
    pub(crate) command: KeyspaceCommand,
    /// The request; all have the same key.
    pub(crate) request: Request<'r>,
    /// The protocol of its answer.
    pub(crate) version: RespVersion,
}

impl<'r> Joined<'r> {
    /// Its key.
    #[must_use]
    pub fn key(&self) -> &'r [u8] {
        self.request.arg(1)
    }

    /// Another request of the same client for the same command and key, unless it is unusual.
    #[inline]
    #[must_use]
    pub fn again(self, request: Request<'r>) -> Option<Self> {
        self.is_neighbour(request)
            .then_some(Self { request, ..self })
    }

    /// Whether a request for the same command is for the same key, and not too long.
    #[inline]
    pub(crate) fn is_neighbour(&self, request: Request<'_>) -> bool {
        request.span_bytes() <= limits::JOINED_REQUEST_BYTES_MAX && request.arg(1) == self.key()
    }
}

/// The answers to the requests of a joint update, in order. Its memory is meant to be reused.
#[derive(Debug, Default)]
pub struct Answers {
    bytes: Vec<u8>,
    each: Vec<Answer>,
    /// The epoch of the group that the update has left; none if there is none.
    pub(crate) wrote: LogEpoch,
}

/// One of [`Answers`].
#[derive(Debug)]
struct Answer {
    end: usize,
    outcome: Result<Done, CommandError>,
}

/// What a step did.
#[derive(Debug)]
pub(super) enum Step {
    /// It is done and answered.
    Done(Done),
    /// Nothing: its command is to be executed alone.
    Alone,
}

/// What a command did besides its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    /// Whether it changed the value.
    pub(super) changed: bool,
    /// For a command that also reads: whether it found the key.
    pub(super) found: Option<bool>,
}

impl Done {
    /// It may have changed something.
    pub(super) fn changing(changed: bool) -> Result<Step, CommandError> {
        let found = None;
        Ok(Step::Done(Self { changed, found }))
    }

    /// It takes something, if there is anything.
    pub(super) fn taking(found: bool) -> Result<Step, CommandError> {
        Ok(Step::Done(Self {
            changed: found,
            found: Some(found),
        }))
    }
}

impl Answers {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.each.clear();
        self.wrote = LogEpoch::NONE;
    }

    /// How many requests were carried out.
    #[must_use]
    pub fn len(&self) -> usize {
        self.each.len()
    }

    /// Whether none was.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.each.is_empty()
    }

    /// The answer to the request at `index`, and the error that it consists of.
    pub(crate) fn get(&self, index: usize) -> (&[u8], Option<&CommandError>) {
        let start = index.checked_sub(1).map_or(0, |it| self.each[it].end);
        let answer = &self.each[index];
        (
            &self.bytes[start..answer.end],
            answer.outcome.as_ref().err(),
        )
    }
}

/// What a step may need besides its request.
pub(super) struct Given<'g> {
    pub(super) thresholds: &'g Thresholds,
    pub(super) value_bytes_max: usize,
    pub(super) random: fastrand::Rng,
}

/// A collection while steps change it.
pub(super) struct Subject<D> {
    pub(super) draft: D,
    /// Those that the next version gets.
    pub(super) attributes: Attributes,
    /// The key had no value before (JU2 no-gap).
    pub(super) is_made: bool,
}

/// A [`Subject`] of one of the families.
enum Collection<'o, 'r> {
    List(Box<Subject<ListEnds<'o, 'r>>>),
    Set(Subject<HashDraft<'o>>),
    Hash(Subject<FieldsDraft<'o>>),
    Sorted(Subject<SortedDraft<'o>>),
    Number(Subject<i64>),
}

impl<'o, 'r> Collection<'o, 'r> {
    /// The collection at a key; `None`: its value is none that steps change. A large row is taken
    /// if it can be: then nothing of it is copied.
    fn open(family: Family, shown: &'o mut Shown<'_>, now: Milliseconds) -> Option<Self> {
        let tag = match family {
            Family::List => RowTag::List,
            Family::Set => RowTag::Set,
            Family::Hash => RowTag::Hash,
            Family::Sorted => RowTag::SortedSet,
            Family::Number => return strings::open_number(shown.value()).map(Self::Number),
        };
        let found = shown.value();
        let is_made = found.is_none();
        let attributes = found.map_or_else(Attributes::default, |value| value.attributes);
        if found.is_some_and(|value| !matches!(value.body, BodyRef::Row(found, _) if found == tag))
        {
            return None;
        }
        // The ends of a list are kept apart from its row, which is taken in the end.
        if family != Family::List
            && let Some(row) = shown.take()
        {
            return Some(Self::of(family, row, attributes, now));
        }
        let row = match shown.value().map(|value| value.body) {
            Some(BodyRef::Row(_, row)) => Some(row),
            _ => None,
        };
        Some(match family {
            Family::List => Self::List(Box::new(Subject {
                draft: ListEnds::new(row.map(ListRef::new)),
                attributes,
                is_made,
            })),
            Family::Set => Self::Set(Subject {
                draft: HashDraft::new(row),
                attributes,
                is_made,
            }),
            Family::Hash => Self::Hash(Subject {
                draft: FieldsDraft::new(row.map(|row| FieldsRef::new(tag, row, now)), now),
                attributes,
                is_made,
            }),
            Family::Sorted => Self::Sorted(Subject {
                draft: SortedDraft::new(row.map(SortedRef::new)),
                attributes,
                is_made,
            }),
            Family::Number => unreachable!("it is no row"),
        })
    }

    /// The collection of a large row that was taken.
    fn of(family: Family, row: WideRow, attributes: Attributes, now: Milliseconds) -> Self {
        let is_made = false;
        match family {
            Family::List | Family::Number => unreachable!("theirs is not taken"),
            Family::Set => Self::Set(Subject {
                draft: HashDraft::of(row),
                attributes,
                is_made,
            }),
            Family::Hash => Self::Hash(Subject {
                draft: FieldsDraft::of(row, now),
                attributes,
                is_made,
            }),
            Family::Sorted => Self::Sorted(Subject {
                draft: SortedDraft::of(row),
                attributes,
                is_made,
            }),
        }
    }

    /// The row of one that was not changed, if it is large.
    fn into_row(self) -> Option<WideRow> {
        match self {
            Self::List(_) | Self::Number(_) => None,
            Self::Set(set) => set.draft.into_row(),
            Self::Hash(hash) => hash.draft.into_row(),
            Self::Sorted(set) => set.draft.into_row(),
        }
    }

    fn step(
        &mut self,
        command: KeyspaceCommand,
        given: &mut Given<'_>,
        request: Request<'r>,
        reply: &mut Reply<'_>,
    ) -> Result<Step, CommandError> {
        use KeyspaceCommand as K;
        match (self, command) {
            (Self::List(list), K::List(command)) => {
                lists::step(command, list, given, request, reply)
            }
            (Self::Set(set), K::Set(command)) => sets::step(command, set, given, request, reply),
            (Self::Hash(hash), K::Hash(command)) => {
                hashes::step(command, hash, given, request, reply)
            }
            (Self::Sorted(set), K::Sorted(command)) => {
                sorted::step(command, set, given, request, reply)
            }
            (Self::Number(number), K::String(command)) => {
                strings::step(command, number, request, reply)
            }
            _ => Ok(Step::Alone),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::List(list) => list.draft.is_empty(),
            Self::Set(set) => set.draft.is_empty(),
            Self::Hash(hash) => hash.draft.is_empty(),
            Self::Sorted(set) => set.draft.is_empty(),
            Self::Number(_) => false,
        }
    }

    /// What is to be stored.
    fn finish(self) -> Finished<'r> {
        if self.is_empty() {
            return Finished::Decided(Decision::Remove);
        }
        let (body, attributes) = match self {
            Self::List(list) => {
                return Finished::Ends(list.draft.into_change(), list.attributes);
            }
            Self::Set(set) => (set.draft.finish_as(RowTag::Set), set.attributes),
            Self::Hash(hash) => (hash.draft.finish(), hash.attributes),
            Self::Sorted(set) => (set.draft.finish(), set.attributes),
            Self::Number(number) => {
                let text = IntegerText::of(number.draft);
                let body = Body::string_owned(text.as_bytes().to_vec());
                (body, number.attributes)
            }
        };
        Finished::Decided(Decision::Write(NewValue::new(body).with(attributes)))
    }
}

/// What has become of a collection.
enum Finished<'r> {
    Decided(Decision<'static>),
    /// Of a list, whose old elements nothing refers to any more.
    Ends(ListChange<'r>, Attributes),
}

impl Finished<'_> {
    /// The decision that stores it: a list's large row is taken if it can be.
    fn decide(self, shown: &mut Shown<'_>) -> Decision<'static> {
        let (change, attributes) = match self {
            Self::Decided(decision) => return decision,
            Self::Ends(change, attributes) => (change, attributes),
        };
        let body = if let Some(row) = shown.take() {
            change.make(ListDraft::of(row))
        } else {
            let old = match shown.value().map(|value| value.body) {
                Some(BodyRef::Row(_, row)) => Some(ListRef::new(row)),
                _ => None,
            };
            change.make(ListDraft::new(old))
        };
        Decision::Write(NewValue::new(body).with(attributes))
    }
}

/// Carries out as many of the requests as one update can, in order, and answers them. All have the
/// key of the first one; it may be none.
pub(crate) fn carry_out(
    keyspace: &mut Keyspace<'_>,
    requests: &[Joined<'_>],
    answers: &mut Answers,
) {
    let Some((first, family)) = requests
        .first()
        .and_then(|first| Some((first, family(first.command)?)))
    else {
        return;
    };
    let (thresholds, now) = (keyspace.thresholds(), keyspace.now());
    let value_bytes_max = keyspace.options().value_bytes_max;
    let seed = keyspace.random();
    let updated = keyspace.change(first.request.arg(1), |shown| {
        answers.clear();
        let mut given = Given {
            thresholds: &thresholds,
            value_bytes_max,
            // The closure may run again, and then draws the same.
            random: fastrand::Rng::with_seed(seed),
        };
        let Some(mut collection) = Collection::open(family, shown, now) else {
            return Decision::Keep;
        };
        if answer_all(&mut collection, requests, &mut given, answers) {
            return collection.finish().decide(shown);
        }
        let row = collection.into_row();
        if let Some(row) = row.filter(|_| shown.is_taken()) {
            shown.give_back(row);
        }
        Decision::Keep
    });
    let Ok(version) = updated else {
        // Nothing was committed.
        answers.clear();
        return;
    };
    let done = || {
        answers
            .each
            .iter()
            .filter_map(|it| it.outcome.as_ref().ok())
    };
    for found in done().filter_map(|done| done.found) {
        keyspace.count_read(found);
    }
    let changes = done().filter(|done| done.changed).count();
    debug_assert!(changes == 0 || version.is_some(), "JU2 no-gap");
    // The commit itself is counted.
    let others = changes.saturating_sub(1);
    add(&keyspace.session.counters.commits, others as u64);
}

/// Carries out one request, as a joint update of its own: its large row is changed in place if it
/// may be.
pub(crate) fn carry_out_alone(
    keyspace: &mut Keyspace<'_>,
    joined: Joined<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let mut answers = Answers::default();
    carry_out(keyspace, &[joined], &mut answers);
    match answers.each.pop() {
        Some(answer) => {
            answer.outcome?;
            reply.raw(&answers.bytes);
            Ok(Progress::Done)
        }
        None => super::execute(joined.command, keyspace, joined.request, reply),
    }
}

/// Takes the requests' steps as far as they go; returns whether one has changed something.
fn answer_all<'r>(
    collection: &mut Collection<'_, 'r>,
    requests: &[Joined<'r>],
    given: &mut Given<'_>,
    answers: &mut Answers,
) -> bool {
    let mut changed = false;
    for joined in requests {
        let start = answers.bytes.len();
        let mut reply = Reply::new(&mut answers.bytes, joined.version);
        let step = collection.step(joined.command, given, joined.request, &mut reply);
        let outcome = match step {
            Ok(Step::Alone) => {
                reply.rewind(start);
                break;
            }
            Ok(Step::Done(done)) => Ok(done),
            Err(error) => {
                reply.rewind(start);
                reply.error(error.text());
                Err(error)
            }
        };
        let has_changed = matches!(outcome, Ok(Done { changed: true, .. }));
        changed |= has_changed;
        let end = answers.bytes.len();
        answers.each.push(Answer { end, outcome });
        // JU2 no-gap, JU3 bounded.
        if has_changed && collection.is_empty() || end > limits::JOINED_REPLY_BYTES_MAX {
            break;
        }
    }
    changed
}

#[cfg(test)]
mod tests;
