//! The rules of LRU, LFU and random eviction: what the hand does with the marks it passes.
//!
//! `Lately`, LRU: a clock. The hand lowers each mark's recency and takes the keys where it is 0.
//!
//! `Nothing`, random: chance. The hand takes one key in [`CHANCE_VISITS`].
//!
//! `Often`, LFU: the hand takes the keys whose mark is at most a *threshold*, and lowers one mark
//! in [`DECAY_VISITS`] of the others if its [`DecayPace`] allows: by one, plus a part of its count,
//! so that what was once used very often does not stay much longer. The threshold follows what the
//! hand finds. It rises when the hand has passed [`RISE_VISITS`] keys and taken none, and falls
//! when it took more than one in [`FALL_SHARE`], so that the keys taken are the least used ones of
//! many. It does not fall below [`OFTEN_FIRST`]: there the hand would pass keys that were never
//! used again and lower the marks of those that were, in search of keys that are no worse.
//!
//! Adjacent keys in a tree are often alike. So that a run of frequently used keys does not raise
//! the threshold, the hand continues elsewhere after [`PLACE_VISITS`] in vain.

use pando_engine::mark::MARK_MAX;

use super::Tracking;
use super::access::{CLASSES, OFTEN_FIRST};
use super::decay::DecayPace;

const PLACE_VISITS: u32 = 64;
const RISE_VISITS: u32 = 8 * PLACE_VISITS;
const FALL_VISITS: u32 = 64;
const FALL_SHARE: u32 = 4;
const DECAY_VISITS: u32 = 8;
const DECAY_SHARE: u8 = 4;
const CHANCE_VISITS: u32 = 8;

/// What happens to a key that the hand passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may be evicted.
    Take,
    /// It stays, with this mark.
    Pass(u8),
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Judge {
    random: fastrand::Rng,
    threshold: u8,
    /// Visits since a key was taken or the threshold rose.
    passed: u32,
    /// Visits since the hand came here.
    passed_here: u32,
    /// Visits, and keys taken among them, since the threshold was last adjusted.
    visits: u32,
    taken: u32,
}

impl Default for Judge {
    fn default() -> Self {
        Self::with_seed(0)
    }
}

impl Judge {
    pub(crate) fn with_seed(seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            threshold: OFTEN_FIRST,
            passed: 0,
            passed_here: 0,
            visits: 0,
            taken: 0,
        }
    }

    /// Whether the hand should continue elsewhere.
    pub(crate) fn wants_another_place(&mut self) -> bool {
        let wants = self.passed_here >= PLACE_VISITS;
        self.passed_here = if wants { 0 } else { self.passed_here };
        wants
    }

    pub(crate) fn pass(&mut self, tracking: Tracking, mark: u8, pace: &DecayPace) -> Verdict {
        match tracking {
            Tracking::Nothing if self.random.u32(..CHANCE_VISITS) == 0 => Verdict::Take,
            Tracking::Nothing => Verdict::Pass(mark),
            Tracking::Lately => mark
                .checked_sub(CLASSES)
                .map_or(Verdict::Take, Verdict::Pass),
            Tracking::Often => self.pass_counter(mark, pace),
        }
    }

    fn pass_counter(&mut self, mark: u8, pace: &DecayPace) -> Verdict {
        self.visits += 1;
        // Asked for every key, so that where few stay they do not get the decays of the others.
        let decays = self.visits.is_multiple_of(DECAY_VISITS) && pace.take();
        let verdict = if mark <= self.threshold {
            self.taken += 1;
            (self.passed, self.passed_here) = (0, 0);
            Verdict::Take
        } else {
            self.passed += 1;
            self.passed_here += 1;
            let decay = 1 + mark.saturating_sub(OFTEN_FIRST) / DECAY_SHARE;
            Verdict::Pass(mark - if decays { decay } else { 0 })
        };
        if self.passed == RISE_VISITS {
            self.threshold = (self.threshold + 1).min(MARK_MAX);
            self.passed = 0;
        }
        if self.visits == FALL_VISITS {
            if self.taken * FALL_SHARE > self.visits {
                self.threshold = (self.threshold - 1).max(OFTEN_FIRST);
            }
            (self.visits, self.taken) = (0, 0);
        }
        debug_assert!((OFTEN_FIRST..=MARK_MAX).contains(&self.threshold));
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Access, Ages};
    use pando_engine::LogEpoch;

    #[test]
    fn the_threshold_finds_the_least_used_keys() {
        let (mut judge, pace) = (Judge::default(), DecayPace::default());
        let mut random = fastrand::Rng::with_seed(3);
        let (mut cold, mut hot) = (0, 0);
        for visit in 0..10_000 {
            // Three in four are used often; runs of 64 are hot altogether.
            let is_hot = visit / 64 % 2 == 0 || random.u32(..2) == 0;
            let mark = if is_hot { random.u8(20..60) } else { 5 };
            if judge.pass(Tracking::Often, mark, &pace) == Verdict::Take && visit > 2_000 {
                *(if is_hot { &mut hot } else { &mut cold }) += 1;
            }
        }
        assert!(cold > 1_000 && hot * 100 < cold, "{cold} cold, {hot} hot");
    }

    /// Below a new key's mark there is nothing to look for: keys that were never used again are
    /// evicted at the first visit, and others pay for the search at most once in this many visits.
    #[test]
    fn the_threshold_stays_at_what_new_keys_have() {
        let (mut judge, pace) = (Judge::default(), DecayPace::of_decays(u64::from(u32::MAX)));
        for visit in 0..10_000_u32 {
            assert_eq!(
                judge.pass(Tracking::Often, OFTEN_FIRST, &pace),
                Verdict::Take,
                "visit {visit}"
            );
        }
        let lowered = (0..800)
            .filter(|visit| {
                let mark = if visit % 4 == 0 {
                    OFTEN_FIRST + 1
                } else {
                    OFTEN_FIRST
                };
                judge.pass(Tracking::Often, mark, &pace) == Verdict::Pass(OFTEN_FIRST)
            })
            .count();
        assert!(lowered <= 100, "{lowered} of 200");
    }

    /// A counter decays faster the higher it is.
    #[test]
    fn what_was_used_very_often_is_forgotten_too() {
        let decays = |mut mark: u8| {
            let (mut judge, pace) = (Judge::default(), DecayPace::of_decays(100_000));
            let mut count = 0;
            while let Verdict::Pass(less) = judge.pass(Tracking::Often, mark, &pace) {
                count += u32::from(less < mark);
                mark = less;
                // Others that go keep the threshold where it is.
                for _ in 0..2 {
                    judge.pass(Tracking::Often, 0, &pace);
                }
            }
            count
        };
        let (low, high) = (decays(OFTEN_FIRST + 4), decays(MARK_MAX));
        assert!(
            (2..=4).contains(&low) && (8..=16).contains(&high),
            "{low} {high}"
        );
    }

    #[test]
    fn a_clock_takes_what_was_not_used_for_its_rounds() {
        let (mut judge, pace) = (Judge::default(), DecayPace::default());
        let mut rounds = Vec::new();
        let mut mark = 2 * CLASSES + 3;
        while let Verdict::Pass(less) = judge.pass(Tracking::Lately, mark, &pace) {
            rounds.push(less);
            mark = less;
        }
        assert_eq!(rounds, [CLASSES + 3, 3]);
    }

    const KEYS: usize = 4_000;
    const PLACES: usize = 400;

    /// The share of hits, in per mille, of a cache of [`PLACES`] keys whose hand asks `judge`,
    /// under reads that are the more likely the lower a key's rank is (about 1 / rank).
    fn hits(tracking: Tracking, mut judge: impl FnMut(u8) -> Verdict) -> usize {
        let (ages, mut random) = (Ages::default(), fastrand::Rng::with_seed(11));
        let access = Access {
            tracking,
            quiet: false,
        };
        let mut marks: Vec<Option<u8>> = vec![None; KEYS];
        let (mut held, mut hand, mut hits) = (0, 0, 0);
        let reads = 200_000;
        for read in 0..reads {
            let rank = (KEYS as f64).powf(random.f64()) as usize - 1;
            // Keys that are used as often do not stand side by side.
            let key = rank * 1_237 % KEYS;
            let touch = access.touch(&ages, &mut random);
            if let Some(mark) = marks[key] {
                hits += usize::from(read >= reads / 2);
                marks[key] = Some(touch.used(mark, LogEpoch(1)));
                continue;
            }
            while held == PLACES {
                if let Some(mark) = marks[hand] {
                    marks[hand] = match judge(mark) {
                        Verdict::Take => None,
                        Verdict::Pass(mark) => Some(mark),
                    };
                    held -= usize::from(marks[hand].is_none());
                }
                hand = (hand + 1) % KEYS;
            }
            marks[key] = Some(touch.first());
            held += 1;
        }
        hits * 1000 / (reads / 2)
    }

    /// The most popular keys would make 722 of a thousand hits. Both policies come close, chance
    /// does not, and a policy that takes the most used keys is detected.
    #[test]
    fn policies_keep_the_popular_keys() {
        let policy = |tracking| {
            let (mut judge, pace) = (Judge::default(), DecayPace::default());
            hits(tracking, move |mark| judge.pass(tracking, mark, &pace))
        };
        let (lately, often) = (policy(Tracking::Lately), policy(Tracking::Often));
        let chance = policy(Tracking::Nothing);
        assert!(
            lately > chance + 10 && often > chance + 30,
            "{lately} {often} {chance}"
        );
        assert!(often > 600, "{often} of 722");
        let (mut judge, pace) = (Judge::default(), DecayPace::default());
        let hottest = hits(Tracking::Often, move |mark| {
            match judge.pass(Tracking::Often, MARK_MAX - mark, &pace) {
                Verdict::Take => Verdict::Take,
                Verdict::Pass(_) => Verdict::Pass(mark),
            }
        });
        assert!(hottest + 10 < chance, "{hottest} {chance}");
    }
}
