//! Sorted sets made of sets, sorted or not: ZUNION ZINTER ZDIFF, their STORE forms, ZINTERCARD.
//!
//! The scores in a set without scores are 1. The sets are read one after another, each whole: as
//! with MGET, a writer of another set may come in between. The STORE forms run under all gates, so
//! nothing does.

use std::cmp::Ordering;
use std::collections::HashMap;

use pando_engine::{BodyRef, HashBody, HashRef, RowTag, SortedRef};
use pando_protocol::{Reply, Request, command, number};

use super::{reply_entries, store_whole};
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// Which members the result has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Those of all sets.
    Intersection,
    /// Those of any set.
    Union,
    /// Those of the first set alone, with its scores.
    Difference,
}

/// What becomes of several scores of one member.
#[derive(Clone, Copy, Debug)]
enum Aggregate {
    Sum,
    Least,
    Most,
}

impl Aggregate {
    fn of(self, one: f64, other: f64) -> f64 {
        match self {
            Self::Sum => or_zero(one + other),
            Self::Least => {
                if other < one {
                    other
                } else {
                    one
                }
            }
            Self::Most => {
                if other > one {
                    other
                } else {
                    one
                }
            }
        }
    }
}

/// What Redis makes of infinities that cancel, and of an infinity that is weighed with 0.
fn or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// One input: a handle on a set, or nothing where there is no key.
struct Source {
    body: Option<(RowTag, HashBody)>,
    weight: f64,
}

impl Source {
    fn take(keyspace: &mut Keyspace<'_>, key: &[u8]) -> Result<Self, CommandError> {
        let body = keyspace.read(key, |value| match value.map(|value| value.body) {
            None => Ok(None),
            Some(BodyRef::Row(tag @ (RowTag::Set | RowTag::SortedSet), row)) => {
                Ok(Some((tag, row.hand_over())))
            }
            Some(_) => Err(CommandError::WrongType),
        })?;
        Ok(Self { body, weight: 1.0 })
    }

    fn view(&self) -> Option<View<'_>> {
        let (tag, body) = self.body.as_ref()?;
        let row = body.as_ref();
        Some(match tag {
            RowTag::SortedSet => View::Sorted(SortedRef::new(row)),
            _ => View::Plain(row),
        })
    }

    fn len(&self) -> usize {
        self.view().map_or(0, View::len)
    }

    /// The weighed score of a member.
    fn score(&self, member: &[u8]) -> Option<f64> {
        let score = self.view()?.score(member)?;
        Some(or_zero(score * self.weight))
    }

    /// The members with their weighed scores.
    fn entries(&self) -> impl Iterator<Item = (&[u8], f64)> {
        let weight = self.weight;
        let entries = self.view().into_iter().flat_map(View::entries);
        entries.map(move |(member, score)| (member, or_zero(score * weight)))
    }
}

#[derive(Clone, Copy)]
enum View<'a> {
    Sorted(SortedRef<'a>),
    Plain(HashRef<'a>),
}

impl<'a> View<'a> {
    fn len(self) -> usize {
        match self {
            Self::Sorted(set) => set.len(),
            Self::Plain(set) => set.len(),
        }
    }

    fn score(self, member: &[u8]) -> Option<f64> {
        match self {
            Self::Sorted(set) => set.score(member),
            Self::Plain(set) => set.get(member).map(|_| 1.0),
        }
    }

    fn entries(self) -> impl Iterator<Item = (&'a [u8], f64)> {
        let (sorted, plain) = match self {
            Self::Sorted(set) => (Some(set.iter_from_rank(0)), None),
            Self::Plain(set) => (None, Some(set.iter().map(|(member, _)| (member, 1.0)))),
        };
        let plain = plain.into_iter().flatten();
        sorted.into_iter().flatten().chain(plain)
    }
}

/// A request, its sets taken.
struct Inputs {
    sources: Vec<Source>,
    aggregate: Aggregate,
    with_scores: bool,
    limit: usize,
}

/// Which options a request may have.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Answer,
    Store,
    Count,
}

impl Inputs {
    /// Takes the sets, the number of which is the argument at `at`.
    fn take(
        keyspace: &mut Keyspace<'_>,
        request: Request<'_>,
        at: usize,
        (operation, kind): (Operation, Kind),
    ) -> Result<Self, CommandError> {
        let count = number::parse_i64(request.arg(at)).ok_or(CommandError::NotAnInteger)?;
        if count < 1 {
            let found = command::lookup(request.arg(0)).expect("it was resolved");
            return Err(CommandError::NoInputKey {
                command: found.name,
            });
        }
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let mut at = at + 1;
        if count > request.len() - at {
            return Err(CommandError::Syntax);
        }
        let keys = at..at + count;
        let sources = keys.map(|key| Source::take(keyspace, request.arg(key)));
        let mut inputs = Self {
            sources: sources.collect::<Result<_, _>>()?,
            aggregate: Aggregate::Sum,
            with_scores: false,
            limit: usize::MAX,
        };
        at += count;
        while at < request.len() {
            at += inputs.option(request, at, (operation, kind))?;
        }
        Ok(inputs)
    }

    /// Takes the option at `at`; returns how many arguments it has.
    fn option(
        &mut self,
        request: Request<'_>,
        at: usize,
        (operation, kind): (Operation, Kind),
    ) -> Result<usize, CommandError> {
        let rest = request.len() - at;
        let combines = operation != Operation::Difference && kind != Kind::Count;
        if combines && rest > self.sources.len() && request.is(at, "WEIGHTS") {
            for (index, source) in self.sources.iter_mut().enumerate() {
                let weight = number::parse_f64(request.arg(at + 1 + index));
                source.weight = weight.ok_or(CommandError::WeightNotAFloat)?;
            }
            return Ok(1 + self.sources.len());
        }
        if combines && rest >= 2 && request.is(at, "AGGREGATE") {
            self.aggregate = if request.is(at + 1, "SUM") {
                Aggregate::Sum
            } else if request.is(at + 1, "MIN") {
                Aggregate::Least
            } else if request.is(at + 1, "MAX") {
                Aggregate::Most
            } else {
                return Err(CommandError::Syntax);
            };
            return Ok(2);
        }
        if kind == Kind::Answer && request.is(at, "WITHSCORES") {
            self.with_scores = true;
            return Ok(1);
        }
        if kind == Kind::Count && rest >= 2 && request.is(at, "LIMIT") {
            let limit = number::parse_i64(request.arg(at + 1));
            let limit = limit.and_then(|limit| usize::try_from(limit).ok());
            let limit = limit.ok_or(CommandError::NegativeLimit)?;
            self.limit = if limit == 0 { usize::MAX } else { limit };
            return Ok(2);
        }
        Err(CommandError::Syntax)
    }

    /// The members that all sets have, with their scores.
    fn intersection(&self) -> impl Iterator<Item = (&[u8], f64)> {
        let mut sources: Vec<&Source> = self.sources.iter().collect();
        // Redis adds scores in this order too.
        sources.sort_by_key(|source| source.len());
        let smallest = sources.remove(0);
        let aggregate = self.aggregate;
        smallest.entries().filter_map(move |(member, score)| {
            let mut others = sources.iter();
            let score = others.try_fold(score, |score, source| {
                source.score(member).map(|other| aggregate.of(score, other))
            });
            score.map(|score| (member, score))
        })
    }

    /// The members of the result with their scores, in the order of a sorted set.
    fn run(&self, operation: Operation) -> Vec<(Vec<u8>, f64)> {
        let mut found: Vec<(&[u8], f64)> = match operation {
            Operation::Intersection => self.intersection().collect(),
            Operation::Union => {
                let mut sources: Vec<&Source> = self.sources.iter().collect();
                sources.sort_by_key(|source| source.len());
                let mut scores: HashMap<&[u8], f64> = HashMap::new();
                for (member, score) in sources.into_iter().flat_map(Source::entries) {
                    let of_all = scores.entry(member);
                    of_all
                        .and_modify(|present| *present = self.aggregate.of(*present, score))
                        .or_insert(score);
                }
                scores.into_iter().collect()
            }
            Operation::Difference => {
                let (first, others) = self.sources.split_first().expect("there is a key");
                let lack = |member: &[u8]| others.iter().all(|set| set.score(member).is_none());
                first.entries().filter(|(member, _)| lack(member)).collect()
            }
        };
        found.sort_unstable_by(|one, other| {
            let by_score = one.1.partial_cmp(&other.1).unwrap_or(Ordering::Equal);
            by_score.then_with(|| one.0.cmp(other.0))
        });
        let owned = found
            .into_iter()
            .map(|(member, score)| (member.to_vec(), score));
        owned.collect()
    }
}

/// ZUNION, ZINTER, ZDIFF numkeys key [key …] [WEIGHTS …] [AGGREGATE SUM | MIN | MAX] [WITHSCORES]
pub(super) fn answer(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    operation: Operation,
) -> Handled {
    let inputs = Inputs::take(keyspace, request, 1, (operation, Kind::Answer))?;
    let found = inputs.run(operation);
    let entries = found.iter().map(|(member, score)| (&member[..], *score));
    reply_entries(reply, entries, inputs.with_scores);
    Ok(Progress::Done)
}

/// ZUNIONSTORE, ZINTERSTORE, ZDIFFSTORE destination numkeys key [key …] …
pub(super) fn store(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    operation: Operation,
) -> Handled {
    let inputs = Inputs::take(keyspace, request, 2, (operation, Kind::Store))?;
    keyspace.check_key(request.arg(1))?;
    let found = inputs.run(operation);
    store_whole(keyspace, request.arg(1), &found)?;
    reply.count(found.len());
    Ok(Progress::Done)
}

/// ZINTERCARD numkeys key [key …] [LIMIT limit]
pub(super) fn intersection_size(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let kind = (Operation::Intersection, Kind::Count);
    let inputs = Inputs::take(keyspace, request, 1, kind)?;
    let size = inputs.intersection().take(inputs.limit).count();
    reply.count(size);
    Ok(Progress::Done)
}
