//! How long a transaction bears with locks that are in its way.
//!
//! Whoever holds them may be dead, or only slow. Settling it ends the wait; but a slow one is
//! aborted by that, and transactions that abort each other at once never end. So a transaction
//! settles only what it has met again and again, and its patience doubles each time.
//!
//! It tries again after a pause, longer each time: many that try at once keep a memnode so busy
//! that the decision which would free the lock waits behind them. After some of these, a pause is
//! as long as its attempts took so far, which follows the backlog of the memnode.
//!
//! A transaction that was overtaken more than once pauses, too. Where a memnode has a backlog,
//! reads are stale by the time of the commit, and attempts that fail and are made again at once
//! keep the backlog as it is, for all clients. Such a pause is as long as its attempts took from
//! the first on: while all pause as long as they ask, half of the load is gone. What was read
//! before it is forgotten: it would be stale by then, and the pause in vain.
//!
//! Pauses of what makes a snapshot or a branch follow no backlog. There is one at a time, which
//! frees no memnode by its absence, and all who want the snapshot wait for it.

use std::collections::BTreeMap;

use pando_memnode::MinitransactionId;

/// How often patience doubles at most: then the dead are found soon enough, the slow are done.
const DOUBLINGS_MAX: u32 = 6;

/// How often the span of pauses doubles at most.
const PAUSES_DOUBLE_MAX: u32 = 6;

/// Pauses for locks that follow no backlog: most locks are gone by then.
const SHORT_PAUSES: u32 = 2;

/// Ticks of attempts that a pause follows, at most: a dead memnode makes some very long.
const SHORTEST_MAX: u32 = 1 << 10;

/// Minitransactions that are counted at a time. Those that were met least are forgotten first; they
/// are the ones that end by themselves.
const COUNTED_MAX: usize = 64;

/// What one transaction has met so far.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    met: BTreeMap<MinitransactionId, u32>,
    ended: u32,
    pauses: u32,
    overtaken: u32,
}

impl Patience {
    /// A minitransaction's locks are in the way. Whether that has been so too often, when the first
    /// of them is settled after `least` times.
    pub(crate) fn ends_with(&mut self, holder: MinitransactionId, least: u32) -> bool {
        let times = self.met.entry(holder).or_default();
        *times += 1;
        if *times >= least << self.ended.min(DOUBLINGS_MAX) {
            self.met.clear();
            self.ended += 1;
            return true;
        }
        if self.met.len() > COUNTED_MAX {
            let least_met = self.met.iter().min_by_key(|(_, times)| **times);
            let id = *least_met.expect("some were met").0;
            self.met.remove(&id);
        }
        false
    }

    /// The transaction was overtaken. Whether that was more than `at_once` times, so that it is to
    /// pause.
    pub(crate) fn is_overtaken(&mut self, at_once: u32) -> bool {
        self.overtaken += 1;
        self.overtaken > at_once
    }

    /// Whether it has paused so often that pauses are to follow the backlog.
    pub(crate) fn has_paused_often(&self) -> bool {
        self.pauses >= SHORT_PAUSES
    }

    /// Ticks after which the transaction `which` of a proxy tries again: `shortest` at least, or
    /// nearly, and somewhere in a span that is as long, and doubles, so that those who met each
    /// other part.
    pub(crate) fn pause(&mut self, which: u64, shortest: u32) -> u32 {
        let shortest = shortest.min(SHORTEST_MAX);
        let span = shortest.max(1 << self.pauses.min(PAUSES_DOUBLE_MAX));
        self.pauses += 1;
        let mixed = (which << 16 | u64::from(self.pauses)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        1 + shortest + (mixed >> 32) as u32 % span
    }
}

#[cfg(test)]
mod tests {
    use pando_memnode::CoordinatorId;

    use super::*;

    fn id(number: u64) -> MinitransactionId {
        MinitransactionId {
            coordinator: CoordinatorId(1),
            number,
        }
    }

    /// Meetings until patience with `holder` ends, with a new minitransaction beside it each time.
    fn meetings(patience: &mut Patience, others: &mut u64) -> u32 {
        let mut times = 0;
        loop {
            *others += 1;
            assert!(!patience.ends_with(id(*others), 2), "it was met once");
            times += 1;
            if patience.ends_with(id(0), 2) {
                return times;
            }
        }
    }

    #[test]
    fn pauses_grow_up_to_a_bound_and_differ() {
        let pauses = |which| {
            let mut patience = Patience::default();
            [(); 40].map(|()| patience.pause(which, 0))
        };
        let (one, other) = (pauses(1), pauses(2));
        assert_eq!((one[0], other[0]), (1, 1));
        assert!(one.iter().all(|ticks| (1..=64).contains(ticks)));
        assert!(one.iter().sum::<u32>() > 500 && one != other);
        let mut patience = Patience::default();
        let often = [(); 3].map(|()| {
            patience.pause(1, 0);
            patience.has_paused_often()
        });
        assert_eq!(often, [false, true, true]);
    }

    #[test]
    fn who_is_overtaken_again_pauses_as_long_as_an_attempt_took() {
        let mut patience = Patience::default();
        let overtaken = [(); 3].map(|()| patience.is_overtaken(1));
        assert_eq!(overtaken, [false, true, true]);
        let pauses = [(); 40].map(|()| patience.pause(1, 300));
        assert!(pauses.iter().all(|ticks| (301..=600).contains(ticks)));
        assert!(patience.pause(1, u32::MAX) <= 2 * SHORTEST_MAX);
    }

    #[test]
    fn it_doubles_up_to_a_bound_and_ends_whoever_else_is_met() {
        let (mut patience, mut others) = (Patience::default(), 0);
        let times = [(); 8].map(|()| meetings(&mut patience, &mut others));
        assert_eq!(times, [2, 4, 8, 16, 32, 64, 128, 128]);
        assert!(patience.met.len() <= COUNTED_MAX);
    }
}
