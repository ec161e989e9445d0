//! What the hand does with the marks that it passes.
//!
//! `Lately`: a clock. The hand lowers each mark and takes the keys at 0.
//!
//! `Often`: the hand takes the keys whose mark is at most a *threshold*, and lowers one mark in
//! [`DECAY_VISITS`] of the others. The threshold follows what it meets: it rises when the hand has
//! passed [`RISE_VISITS`] keys and taken none, and falls when more than one in [`FALL_SHARE`] was
//! taken, so that a run of keys that are all used often is passed, and the keys that are taken are
//! the least used ones of many.

use pando_engine::mark::MARK_MAX;

use super::Tracking;

const RISE_VISITS: u32 = 64;
const FALL_VISITS: u32 = 64;
const FALL_SHARE: u32 = 4;
const DECAY_VISITS: u32 = 4;

/// What becomes of a key that the hand passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It may go.
    Take,
    /// It stays, with this mark.
    Pass(u8),
}

/// See the module's header.
#[derive(Debug, Default)]
pub(super) struct Judge {
    threshold: u8,
    /// Visits since a key was taken or the threshold rose.
    passed: u32,
    /// Visits, and keys taken among them, since the threshold was looked at.
    visits: u32,
    taken: u32,
}

impl Judge {
    pub(super) fn pass(&mut self, tracking: Tracking, mark: u8) -> Verdict {
        if tracking != Tracking::Often {
            return match mark.checked_sub(1) {
                None => Verdict::Take,
                Some(less) => Verdict::Pass(less),
            };
        }
        self.visits += 1;
        let verdict = if mark <= self.threshold {
            self.taken += 1;
            self.passed = 0;
            Verdict::Take
        } else {
            self.passed += 1;
            let decay = u8::from(self.visits.is_multiple_of(DECAY_VISITS));
            Verdict::Pass(mark - decay)
        };
        if self.passed == RISE_VISITS {
            self.threshold = (self.threshold + 1).min(MARK_MAX);
            self.passed = 0;
        }
        if self.visits == FALL_VISITS {
            if self.taken * FALL_SHARE > self.visits {
                self.threshold = self.threshold.saturating_sub(1);
            }
            (self.visits, self.taken) = (0, 0);
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_finds_the_least_used_keys() {
        let mut judge = Judge::default();
        let mut random = fastrand::Rng::with_seed(3);
        let (mut cold, mut hot) = (0, 0);
        for visit in 0..10_000 {
            // Three in four are used often; runs of 64 are hot altogether.
            let is_hot = visit / 64 % 2 == 0 || random.u32(..2) == 0;
            let mark = if is_hot { random.u8(20..60) } else { 5 };
            if judge.pass(Tracking::Often, mark) == Verdict::Take && visit > 2_000 {
                *(if is_hot { &mut hot } else { &mut cold }) += 1;
            }
        }
        assert!(cold > 1_000 && hot * 100 < cold, "{cold} cold, {hot} hot");
    }

    #[test]
    fn a_clock_takes_what_was_not_used_for_its_rounds() {
        let mut judge = Judge::default();
        let mut rounds = Vec::new();
        let mut mark = 2;
        while let Verdict::Pass(less) = judge.pass(Tracking::Lately, mark) {
            rounds.push(less);
            mark = less;
        }
        assert_eq!(rounds, [1, 0]);
    }
}
