//! Random picks from a collection: HRANDFIELD, SRANDMEMBER, ZRANDMEMBER, SPOP.

use std::collections::HashSet;

use pando_protocol::number;

use crate::error::CommandError;

/// From this share of the members on, walking all of them is cheaper than picking by rank.
pub(super) const WALK_SHARE: usize = 4;

/// The count in an argument; below 0 the same member may be picked again.
pub(super) fn count(argument: &[u8]) -> Result<i64, CommandError> {
    match number::parse_i64(argument).ok_or(CommandError::NotAnInteger)? {
        i64::MIN => Err(CommandError::CountBetween {
            least: -i64::MAX,
            most: i64::MAX,
        }),
        count => Ok(count),
    }
}

/// How many picks such a count asks for.
pub(super) fn how_many(count: i64) -> usize {
    usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX)
}

/// `count` different numbers below `bound` in rising order, every choice equally likely. O(count
/// log count): Floyd's algorithm, which draws each number once.
pub(super) fn distinct_ranks(count: usize, bound: usize, random: &mut fastrand::Rng) -> Vec<usize> {
    let mut chosen = HashSet::with_capacity(count);
    for highest in bound - count..bound {
        let rank = random.usize(..=highest);
        if !chosen.insert(rank) {
            chosen.insert(highest);
        }
    }
    let mut ranks: Vec<_> = chosen.into_iter().collect();
    ranks.sort_unstable();
    ranks
}
