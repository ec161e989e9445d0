//! Ranges by rank, score or member: ZRANGE and its older names, ZRANGESTORE, ZCOUNT, ZLEXCOUNT.

use std::ops::Range;

use pando_engine::SortedRef;
use pando_protocol::{Reply, Request, number};

use super::{read, reply_entries, store as store_entries};
use crate::encoding::{DERIVED, SKIPLIST};
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// What the bounds of a range are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Rank,
    Score,
    Member,
}

/// In which order members are returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Rising,
    Falling,
}

/// A bound among members.
#[derive(Clone, Copy, Debug)]
pub(super) enum Edge<'a> {
    Lowest,
    Highest,
    At(&'a [u8], bool),
}

/// A range, its bounds parsed, the lower one first.
#[derive(Clone, Copy, Debug)]
pub(super) enum Span<'a> {
    /// From the first rank in the given order; below 0 they count from the end.
    Ranks(i64, i64, Order),
    /// Scores, and whether each bound is left out.
    Scores((f64, bool), (f64, bool)),
    Members(Edge<'a>, Edge<'a>),
}

/// A score as a bound, `(` in front of it if it is left out itself. As in Redis, it ends at a byte
/// 0, there may be space in front of the number, and nothing at all is 0.
fn score_edge(text: &[u8]) -> Result<(f64, bool), CommandError> {
    let end = text.iter().position(|byte| *byte == 0);
    let (digits, excluded) = match &text[..end.unwrap_or(text.len())] {
        [b'(', digits @ ..] => (digits, true),
        digits => (digits, false),
    };
    if digits.is_empty() {
        return Ok((0.0, excluded));
    }
    let digits = digits.trim_ascii_start();
    // A bound may be out of the range of doubles; a score may not.
    let beyond = || {
        let text = std::str::from_utf8(digits).ok()?;
        text.parse::<f64>().ok().filter(|bound| !bound.is_nan())
    };
    let bound = number::parse_f64(digits).or_else(beyond);
    Ok((bound.ok_or(CommandError::ScoreBound)?, excluded))
}

fn member_edge(text: &[u8]) -> Result<Edge<'_>, CommandError> {
    Ok(match text {
        b"-" => Edge::Lowest,
        b"+" => Edge::Highest,
        [b'[', member @ ..] => Edge::At(member, false),
        [b'(', member @ ..] => Edge::At(member, true),
        _ => return Err(CommandError::RangeBound),
    })
}

impl<'a> Span<'a> {
    /// The range between two arguments. In falling order the higher bound of scores or members
    /// comes first.
    pub(super) fn parse(
        by: By,
        order: Order,
        start: &'a [u8],
        end: &'a [u8],
    ) -> Result<Self, CommandError> {
        let (low, high) = match order {
            Order::Falling if by != By::Rank => (end, start),
            _ => (start, end),
        };
        Ok(match by {
            By::Rank => {
                let rank = |text| number::parse_i64(text).ok_or(CommandError::NotAnInteger);
                Self::Ranks(rank(low)?, rank(high)?, order)
            }
            By::Score => Self::Scores(score_edge(low)?, score_edge(high)?),
            By::Member => Self::Members(member_edge(low)?, member_edge(high)?),
        })
    }

    /// The ranks of the range's members. O(log members).
    pub(super) fn ranks(self, set: SortedRef<'_>) -> Range<usize> {
        let len = set.len();
        let (start, end) = match self {
            Self::Ranks(first, last, order) => {
                let ranks = ranks(first, last, len);
                match order {
                    Order::Rising => (ranks.start, ranks.end),
                    Order::Falling => (len - ranks.end, len - ranks.start),
                }
            }
            Self::Scores((low, after), (high, before)) => (
                set.rank_of_score(low, after),
                set.rank_of_score(high, !before),
            ),
            Self::Members(low, high) => {
                (rank_of_edge(set, low, true), rank_of_edge(set, high, false))
            }
        };
        start..end.max(start)
    }
}

/// Ranks as arguments give them: below 0 from the end, both included.
fn ranks(first: i64, last: i64, len: usize) -> Range<usize> {
    let absolute = |rank: i64| {
        if rank < 0 {
            rank.saturating_add_unsigned(len as u64)
        } else {
            rank
        }
    };
    let start = usize::try_from(absolute(first)).unwrap_or(0);
    let end = usize::try_from(absolute(last)).map_or(0, |last| last.saturating_add(1));
    if start >= len || start >= end {
        0..0
    } else {
        start..end.min(len)
    }
}

/// How many members are before this bound, the lower or the upper one, if all have one score. Where
/// they do not, Redis promises nothing; members are then compared along the ranks.
fn rank_of_edge(set: SortedRef<'_>, edge: Edge<'_>, is_lower: bool) -> usize {
    let (bound, excluded) = match edge {
        Edge::Lowest => return 0,
        Edge::Highest => return set.len(),
        Edge::At(member, excluded) => (member, excluded),
    };
    let is_before = |member: &[u8]| {
        if is_lower == excluded {
            member <= bound
        } else {
            member < bound
        }
    };
    let (mut low, mut high) = (0, set.len());
    while low < high {
        let middle = low.midpoint(high);
        let (member, _) = set.nth(middle).expect("a rank below the length");
        if is_before(member) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// The options of a range.
#[derive(Clone, Copy, Debug)]
struct Options {
    by: By,
    order: Order,
    with_scores: bool,
    /// Members to pass over, and how many to return at most; below 0: all.
    limit: (i64, i64),
}

impl Options {
    /// Parses the arguments from `at` on. `fixed`: what the command's name says already.
    fn parse(
        request: Request<'_>,
        mut at: usize,
        fixed: Option<(By, Order)>,
        stores: bool,
    ) -> Result<Self, CommandError> {
        let (by, order) = fixed.unwrap_or((By::Rank, Order::Rising));
        let mut options = Self {
            by,
            order,
            with_scores: false,
            limit: (0, -1),
        };
        while at < request.len() {
            // Each is said once.
            let may_turn = fixed.is_none() && options.order == Order::Rising;
            let may_choose = fixed.is_none() && options.by == By::Rank;
            if !stores && request.is(at, "WITHSCORES") {
                options.with_scores = true;
            } else if request.is(at, "LIMIT") && at + 2 < request.len() {
                let integer =
                    |at| number::parse_i64(request.arg(at)).ok_or(CommandError::NotAnInteger);
                options.limit = (integer(at + 1)?, integer(at + 2)?);
                at += 2;
            } else if may_turn && request.is(at, "REV") {
                options.order = Order::Falling;
            } else if may_choose && request.is(at, "BYLEX") {
                options.by = By::Member;
            } else if may_choose && request.is(at, "BYSCORE") {
                options.by = By::Score;
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        if options.limit.1 != -1 && options.by == By::Rank {
            return Err(CommandError::LimitByRank);
        }
        if options.with_scores && options.by == By::Member {
            return Err(CommandError::ScoresByMember);
        }
        Ok(options)
    }

    /// The part of the ranks that LIMIT leaves.
    fn limited(self, ranks: Range<usize>) -> Range<usize> {
        if self.by == By::Rank {
            return ranks;
        }
        let (offset, count) = self.limit;
        let skipped = usize::try_from(offset).map_or(ranks.len(), |offset| offset.min(ranks.len()));
        let left = ranks.len() - skipped;
        let count = usize::try_from(count).map_or(left, |count| count.min(left));
        match self.order {
            Order::Rising => ranks.start + skipped..ranks.start + skipped + count,
            Order::Falling => ranks.end - skipped - count..ranks.end - skipped,
        }
    }
}

/// The members at these ranks with their scores, in this order. O(log members + ranks).
pub(super) fn entries(set: SortedRef<'_>, ranks: Range<usize>, order: Order) -> Vec<(&[u8], f64)> {
    let mut entries: Vec<_> = set.iter_from_rank(ranks.start).take(ranks.len()).collect();
    if order == Order::Falling {
        entries.reverse();
    }
    entries
}

/// ZRANGE key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]
pub(super) fn any(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    answer(
        keyspace,
        request,
        reply,
        Options::parse(request, 4, None, false)?,
    )
}

/// The same, for commands whose names say what the bounds are.
pub(super) fn of(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    by: By,
    order: Order,
) -> Handled {
    let options = Options::parse(request, 4, Some((by, order)), false)?;
    answer(keyspace, request, reply, options)
}

fn answer(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    options: Options,
) -> Handled {
    let span = Span::parse(options.by, options.order, request.arg(2), request.arg(3))?;
    read(keyspace, request.arg(1), |set| {
        let Some(set) = set else {
            return reply.array(0);
        };
        let ranks = options.limited(span.ranks(set));
        if options.order == Order::Rising {
            let count = ranks.len();
            let found = set.iter_from_rank(ranks.start).take(count);
            reply_entries(reply, found, options.with_scores);
        } else {
            let found = entries(set, ranks, Order::Falling);
            reply_entries(reply, found.into_iter(), options.with_scores);
        }
    })?;
    Ok(Progress::Done)
}

/// ZRANGESTORE destination source start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count]
pub(super) fn store(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let options = Options::parse(request, 5, None, true)?;
    let span = Span::parse(options.by, options.order, request.arg(3), request.arg(4))?;
    keyspace.check_key(request.arg(1))?;
    let found = read(keyspace, request.arg(2), |set| {
        set.map_or_else(Vec::new, |set| {
            let ranks = options.limited(span.ranks(set));
            let found = entries(set, ranks, options.order).into_iter();
            found
                .map(|(member, score)| (member.to_vec(), score))
                .collect()
        })
    })?;
    // As in Redis, which knows before how many there are only if they are found by rank.
    let entries_max = keyspace.thresholds().zset_max_listpack_entries;
    let is_large = options.by == By::Rank && found.len() as u64 > entries_max;
    let encoding = if is_large { SKIPLIST } else { DERIVED };
    store_entries(keyspace, request.arg(1), &found, encoding)?;
    reply.count(found.len());
    Ok(Progress::Done)
}

/// ZCOUNT, ZLEXCOUNT key min max
pub(super) fn count(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    by: By,
) -> Handled {
    let span = Span::parse(by, Order::Rising, request.arg(2), request.arg(3))?;
    let count = read(keyspace, request.arg(1), |set| {
        set.map_or(0, |set| span.ranks(set).len())
    })?;
    reply.count(count);
    Ok(Progress::Done)
}
