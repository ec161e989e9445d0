//! Scores that are given: ZADD ZINCRBY.

use pando_engine::{Decision, SortedDraft, ValueRef};
use pando_protocol::{Reply, Request, number};

use super::{kept, replace, reply_score, sorted_of};
use crate::commands::check_member;
use crate::encoding::{self, DERIVED, SKIPLIST, Thresholds};
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// The words before the scores.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a word of its own")]
pub(in crate::commands) struct Options {
    pub(in crate::commands) absent_only: bool,
    pub(in crate::commands) present_only: bool,
    greater: bool,
    less: bool,
    /// Whether changed members are counted with new ones.
    pub(in crate::commands) changed: bool,
    increment: bool,
}

impl Options {
    /// The options, and the index of the first score.
    pub(super) fn parse(request: Request<'_>) -> Result<(Self, usize), CommandError> {
        let mut options = Self::default();
        let mut at = 2;
        // Most scores begin with a digit, and no option does.
        let is_word = |at| request.arg(at).first().is_none_or(u8::is_ascii_alphabetic);
        while at < request.len() && is_word(at) {
            let option = if request.is(at, "NX") {
                &mut options.absent_only
            } else if request.is(at, "XX") {
                &mut options.present_only
            } else if request.is(at, "GT") {
                &mut options.greater
            } else if request.is(at, "LT") {
                &mut options.less
            } else if request.is(at, "CH") {
                &mut options.changed
            } else if request.is(at, "INCR") {
                &mut options.increment
            } else {
                break;
            };
            *option = true;
            at += 1;
        }
        let pairs = request.len() - at;
        if pairs == 0 || !pairs.is_multiple_of(2) {
            return Err(CommandError::Syntax);
        }
        if options.absent_only && options.present_only {
            return Err(CommandError::ZaddNxXx);
        }
        let exclusive = [options.greater, options.less, options.absent_only];
        if exclusive.into_iter().filter(|given| *given).count() > 1 {
            return Err(CommandError::ZaddGtLtNx);
        }
        if options.increment && pairs > 2 {
            return Err(CommandError::ZaddIncrement);
        }
        Ok((options, at))
    }

    /// Whether nothing decides about a score but the score that is given.
    fn is_plain(self) -> bool {
        let conditions = [self.absent_only, self.present_only, self.greater, self.less];
        !self.increment && !conditions.contains(&true)
    }

    /// The score to be stored where `old` is; none: the member stays as it is.
    fn decide(self, old: Option<f64>, given: f64) -> Result<Option<f64>, CommandError> {
        let Some(old) = old else {
            return Ok((!self.present_only).then_some(given));
        };
        if self.absent_only {
            return Ok(None);
        }
        let score = if self.increment { old + given } else { given };
        if score.is_nan() {
            return Err(CommandError::ScoreNotANumber);
        }
        let passes = !(self.less && score >= old || self.greater && score <= old);
        Ok(passes.then_some(score))
    }
}

/// What an update did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    added: usize,
    changed: usize,
    /// The last score stored, if it was.
    score: Option<f64>,
    /// Whether the set is another one now.
    pub(super) is_written: bool,
}

impl Done {
    /// Counts a member that got this score and had another one, or none.
    fn count(&mut self, old: Option<f64>, score: f64) {
        self.score = Some(score);
        let is_same = old == Some(score);
        self.added += usize::from(old.is_none());
        self.changed += usize::from(old.is_some() && !is_same);
        self.is_written |= !is_same;
    }
}

/// ZADD key [NX | XX] [GT | LT] [CH] [INCR] score member [score member …]
pub(super) fn add(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let (options, first) = Options::parse(request)?;
    let scores = request.args_from(first).step_by(2);
    let scores = scores.map(|score| number::parse_f64(score).ok_or(CommandError::NotAFloat));
    let scores = scores.collect::<Result<Vec<_>, _>>()?;
    let members = request.args_from(first + 1).step_by(2);
    add_all(keyspace, request.arg(1), options, &scores, &members, reply)
}

/// Gives members these scores, and answers as ZADD does.
pub(in crate::commands) fn add_all<'m>(
    keyspace: &mut Keyspace<'_>,
    key: &[u8],
    options: Options,
    scores: &[f64],
    members: &(impl ExactSizeIterator<Item = &'m [u8]> + Clone),
    reply: &mut Reply<'_>,
) -> Handled {
    members.clone().try_for_each(check_member)?;
    let thresholds = keyspace.thresholds();
    let done = keyspace.try_update(key, |old| {
        let pairs = scores.iter().copied().zip(members.clone());
        change(old, options, pairs, &thresholds)
    })?;
    reply_given(reply, options, &done);
    Ok(Progress::Done)
}

/// The answer of ZADD.
pub(super) fn reply_given(reply: &mut Reply<'_>, options: Options, done: &Done) {
    if options.increment {
        match done.score {
            Some(score) => reply_score(reply, score),
            None => reply.null(),
        }
    } else {
        let changed = if options.changed { done.changed } else { 0 };
        reply.count(done.added + changed);
    }
}

/// ZINCRBY key increment member
pub(super) fn increment(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let score = number::parse_f64(request.arg(2)).ok_or(CommandError::NotAFloat)?;
    let member = request.arg(3);
    check_member(member)?;
    let options = Options {
        increment: true,
        ..Options::default()
    };
    let thresholds = keyspace.thresholds();
    let done = keyspace.try_update(request.arg(1), |old| {
        change(old, options, std::iter::once((score, member)), &thresholds)
    })?;
    reply_score(reply, done.score.expect("without conditions it is stored"));
    Ok(Progress::Done)
}

/// The decision that gives members scores.
fn change<'m>(
    old: Option<ValueRef<'_>>,
    options: Options,
    pairs: impl ExactSizeIterator<Item = (f64, &'m [u8])>,
    thresholds: &Thresholds,
) -> Result<(Decision<'static>, Done), CommandError> {
    let set = old.map(sorted_of).transpose()?;
    let mut draft = SortedDraft::new(set);
    let mut encoding = old.map_or(DERIVED, |value| value.attributes.encoding);
    let done = give(&mut draft, &mut encoding, options, pairs, thresholds)?;
    let decision = if done.is_written {
        replace(old, draft, encoding)
    } else {
        Decision::Keep
    };
    Ok((decision, done))
}

/// Gives members of a set of this encoding, which follows, the scores of one command. An error
/// comes before any change.
pub(super) fn give<'m>(
    draft: &mut SortedDraft<'_>,
    old_encoding: &mut u8,
    options: Options,
    pairs: impl ExactSizeIterator<Item = (f64, &'m [u8])>,
    thresholds: &Thresholds,
) -> Result<Done, CommandError> {
    let (mut done, mut encoding) = (Done::default(), *old_encoding);
    if pairs.len() as u64 > thresholds.zset_max_listpack_entries {
        encoding = SKIPLIST;
    }
    // Without conditions a score is looked for where it is replaced; 0 may have to stay as it was.
    let is_plain = options.is_plain() && draft.is_indexed() && encoding == SKIPLIST;
    for (given, member) in pairs {
        if is_plain && given != 0.0 {
            done.count(draft.replace(member, given), given);
            continue;
        }
        let old = draft.as_ref().score(member);
        let Some(score) = options.decide(old, given)? else {
            continue;
        };
        done.score = Some(score);
        match old {
            // As in Redis, a score that compares equal stays as it was: 0 does not become -0.
            #[expect(clippy::float_cmp, reason = "any other score is another one")]
            Some(old) if old == score => continue,
            Some(_) => done.changed += 1,
            None => {
                done.added += 1;
                if encoding::converts_sorted(member, draft.len(), thresholds) {
                    encoding = SKIPLIST;
                }
            }
        }
        done.is_written = true;
        draft.change(member, old, kept(score, encoding));
    }
    if done.is_written {
        *old_encoding = encoding;
    }
    Ok(done)
}
