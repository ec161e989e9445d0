//! What access marks mean: how recently a value was used, or how often.
//!
//! | tracking | first written | used |
//! |---|---|---|
//! | `Lately` (LRU) | recency [`LATELY`], class 0 | the same recency, its age's class (`ages`) |
//! | `Often` (LFU) | [`OFTEN_FIRST`] | one more, the less likely the higher |
//!
//! A mark of `Lately` is a number in base [`CLASSES`]: the recency, which the hand lowers, above
//! the class, which is only reported.
//!
//! `Often` counts the logarithm of the uses as Redis does: from [`OFTEN_FIRST`] on, one use in
//! `10·(mark - 5) + 1` counts. The hand's rules are `lru_lfu`'s: marks decay at the pace at which
//! the memory is turned over, and without pressure not at all.

use pando_engine::mark::MARK_MAX;
use pando_engine::{Decision, LogEpoch, ValueRef};

use super::ages::{Ages, CLASS_MAX};

/// The recency of a value that was just used.
const LATELY: u8 = 2;

/// Classes of ages.
pub(super) const CLASSES: u8 = CLASS_MAX + 1;

const _: () = assert!((LATELY + 1) * CLASSES - 1 <= MARK_MAX);
const _: () = assert!(OFTEN_FIRST < MARK_MAX);

/// The class in a mark of [`Tracking::Lately`].
pub(super) fn class_of_mark(mark: u8) -> u8 {
    mark % CLASSES
}

/// The mark of [`Tracking::Lately`] of a value that was not used for so long before it was written
/// now: the hand takes it the sooner. Its age is not kept: ages begin when a value is written.
pub(crate) fn mark_of_idle(seconds: u64) -> u8 {
    let recency = match seconds {
        0 => LATELY,
        1..60 => 1,
        _ => 0,
    };
    recency * CLASSES
}

/// Whether a mark of [`Tracking::Often`] shows a use after the first.
pub(super) fn is_read_often(mark: u8) -> bool {
    mark > OFTEN_FIRST
}

/// The initial mark of a value whose uses are counted.
pub(super) const OFTEN_FIRST: u8 = 5;

/// How much rarer each step of the counter is.
const OFTEN_FACTOR: u32 = 10;

/// What marks are kept for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tracking {
    /// Nothing: no mark is read or written.
    #[default]
    Nothing,
    /// LRU.
    Lately,
    /// LFU.
    Often,
}

impl Tracking {
    /// Whether a value of this mark is known not to have been read since it was written. Counters
    /// of [`Self::Often`] do not tell: they decay, and are kept when a value is replaced.
    pub(crate) fn is_unread(self, mark: u8) -> bool {
        self == Self::Lately && class_of_mark(mark) == 0
    }
}

/// How the current command uses values.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Access {
    pub(crate) tracking: Tracking,
    /// Its reads do not count: CLIENT NO-TOUCH, and commands that only ask about a key.
    pub(crate) quiet: bool,
}

/// One use of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch<'d> {
    access: Access,
    ages: &'d Ages,
    /// Decides whether a counter rises: drawn before, since an update may run twice.
    draw: u32,
}

impl Access {
    #[inline]
    pub(crate) fn touch<'d>(self, ages: &'d Ages, random: &mut fastrand::Rng) -> Touch<'d> {
        let draw = match self.tracking {
            Tracking::Often => random.u32(..),
            _ => 0,
        };
        Touch {
            access: self,
            ages,
            draw,
        }
    }
}

impl Touch<'_> {
    /// Notes a use.
    #[inline]
    pub(crate) fn note(self, value: &ValueRef<'_>) {
        if self.access.tracking != Tracking::Nothing && !self.access.quiet {
            let mark = value.mark;
            mark.set(self.used(mark.get(), value.version.epoch()));
        }
    }

    /// The mark of a value of this mark and epoch when it is used now.
    pub(super) fn used(self, mark: u8, written: LogEpoch) -> u8 {
        match self.access.tracking {
            Tracking::Nothing => mark,
            Tracking::Lately => LATELY * CLASSES + self.ages.class(written, class_of_mark(mark)),
            Tracking::Often => {
                let steps = u32::from(mark.saturating_sub(OFTEN_FIRST)) * OFTEN_FACTOR;
                let counts = mark < MARK_MAX && self.draw <= u32::MAX / (steps + 1);
                mark + u8::from(counts)
            }
        }
    }

    /// Sets the mark of a value about to be written; `old` is the value that it replaces.
    #[inline]
    pub(crate) fn decided<'d>(
        self,
        decision: Decision<'d>,
        old: Option<&ValueRef<'_>>,
    ) -> Decision<'d> {
        if self.access.tracking == Tracking::Nothing {
            return decision;
        }
        self.marked(decision, old)
    }

    fn marked<'d>(self, decision: Decision<'d>, old: Option<&ValueRef<'_>>) -> Decision<'d> {
        let replacing = |old: &ValueRef<'_>| {
            let mark = old.mark.get();
            self.unread(if self.access.quiet {
                mark
            } else {
                self.used(mark, old.version.epoch())
            })
        };
        match (decision, old) {
            (Decision::Amend(mut amendment), Some(old)) => {
                amendment.mark = replacing(old);
                Decision::Amend(amendment)
            }
            (Decision::Write(mut new), old) => {
                new.mark = match old {
                    Some(old) => replacing(old),
                    // One that comes from another key, or is restored, brings its own.
                    None if new.mark > 0 => self.unread(new.mark),
                    None => self.first(),
                };
                Decision::Write(new)
            }
            (Decision::Keep, Some(old)) => {
                self.note(old);
                Decision::Keep
            }
            (decision, _) => decision,
        }
    }

    pub(super) fn first(self) -> u8 {
        match self.access.tracking {
            Tracking::Nothing => 0,
            Tracking::Lately => LATELY * CLASSES,
            Tracking::Often => OFTEN_FIRST,
        }
    }

    /// The mark of a value written now: ages begin anew.
    fn unread(self, mark: u8) -> u8 {
        match self.access.tracking {
            Tracking::Lately => mark - class_of_mark(mark),
            _ => mark,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(ages: &Ages, tracking: Tracking, draw: u32) -> Touch<'_> {
        let access = Access {
            tracking,
            quiet: false,
        };
        Touch { access, ages, draw }
    }

    /// The counter's step from `n` is taken by one use in `10·(n - 5) + 1`.
    #[test]
    fn uses_are_counted_by_their_logarithm() {
        let (ages, mut random) = (Ages::default(), fastrand::Rng::with_seed(7));
        let access = Access {
            tracking: Tracking::Often,
            quiet: false,
        };
        for (uses, least, most) in [(1, 6, 6), (10, 6, 9), (1000, 15, 24), (100_000, 63, 63)] {
            let mut mark = OFTEN_FIRST;
            for _ in 0..uses {
                mark = access.touch(&ages, &mut random).used(mark, LogEpoch(1));
            }
            assert!((least..=most).contains(&mark), "{uses} uses: {mark}");
        }
    }

    #[test]
    fn an_amended_row_has_the_mark_of_a_written_one() {
        use pando_engine::{Body, BodyRef, HashDraft, NewValue, ValueVersion};
        let mut draft = HashDraft::new(None);
        draft.set(b"field", b"old");
        let row = NewValue::new(draft.finish());
        let old = row.view(ValueVersion::from_bits(1));
        let BodyRef::Row(_, hash) = old.body else {
            unreachable!("a row was made")
        };
        let ages = Ages::default();
        for tracking in [Tracking::Nothing, Tracking::Lately, Tracking::Often] {
            let touch = touch(&ages, tracking, 0);
            let amendment = hash.amend(b"field", b"new").expect("as long");
            let new = NewValue::new(Body::string(b""));
            let decided = |decision| match touch.decided(decision, Some(&old)) {
                Decision::Amend(amendment) => amendment.mark,
                Decision::Write(new) => new.mark,
                other => panic!("{other:?}"),
            };
            assert_eq!(
                decided(Decision::Amend(amendment)),
                decided(Decision::Write(new)),
                "{tracking:?}"
            );
        }
    }

    /// RESTORE with IDLETIME: what was not used for a minute goes at the hand's first visit.
    #[test]
    fn what_is_idle_is_taken_the_sooner() {
        use crate::memory::{DecayPace, Judge, Verdict};
        let (mut judge, pace) = (Judge::default(), DecayPace::default());
        let mut visits = |mut mark: u8| {
            let mut visits = 1;
            while let Verdict::Pass(less) = judge.pass(Tracking::Lately, mark, &pace) {
                (mark, visits) = (less, visits + 1);
            }
            visits
        };
        let idle = [0, 1, 59, 60, u64::MAX];
        assert_eq!(
            idle.map(|seconds| visits(mark_of_idle(seconds))),
            [3, 2, 2, 1, 1]
        );
        assert!(Tracking::Lately.is_unread(mark_of_idle(60)));
    }

    #[test]
    fn what_is_restored_brings_its_mark_and_nothing_else_does() {
        use pando_engine::{Body, NewValue};
        let ages = Ages::default();
        let written = |tracking: Tracking, mark: u8| {
            let mut new = NewValue::new(Body::string(b""));
            new.mark = mark;
            match touch(&ages, tracking, 0).decided(Decision::Write(new), None) {
                Decision::Write(new) => new.mark,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(written(Tracking::Often, 0), OFTEN_FIRST);
        assert_eq!(written(Tracking::Often, 9), 9);
        assert_eq!(written(Tracking::Lately, 0), LATELY * CLASSES);
        assert_eq!(written(Tracking::Lately, CLASSES + 7), CLASSES);
        assert_eq!(written(Tracking::Nothing, 0), 0);
    }
}
