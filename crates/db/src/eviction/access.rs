//! What access marks mean: how lately a value was used, or how often.
//!
//! | tracking | first written | used |
//! |---|---|---|
//! | `Lately` (LRU) | [`LATELY`] | [`LATELY`] |
//! | `Often` (LFU) | [`OFTEN_FIRST`] | one more, the less likely the higher |
//!
//! `Often` counts the logarithm of the uses as Redis does: from [`OFTEN_FIRST`] on, one use in
//! `10·(mark - 5) + 1` counts. What the hand does with marks is `judge`'s: marks decay at the pace
//! at which the memory is turned over, and without pressure not at all.

use pando_engine::mark::MARK_MAX;
use pando_engine::{AccessMark, Decision};

/// The mark of a value that was just used.
const LATELY: u8 = 2;

/// The mark of a value whose uses begin to be counted.
const OFTEN_FIRST: u8 = 5;

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

/// How the command in work uses values.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Access {
    pub(crate) tracking: Tracking,
    /// Its reads do not count: CLIENT NO-TOUCH, and commands that only ask about a key.
    pub(crate) quiet: bool,
}

/// One use of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    access: Access,
    /// Decides whether a counter goes up: drawn before, since an update may run twice.
    draw: u32,
}

impl Access {
    #[inline]
    pub(crate) fn touch(self, random: &mut fastrand::Rng) -> Touch {
        let draw = match self.tracking {
            Tracking::Often => random.u32(..),
            _ => 0,
        };
        Touch { access: self, draw }
    }
}

impl Touch {
    /// Notes a use.
    #[inline]
    pub(crate) fn note(self, mark: AccessMark<'_>) {
        if self.access.tracking != Tracking::Nothing && !self.access.quiet {
            mark.set(self.used(mark.get()));
        }
    }

    pub(super) fn used(self, mark: u8) -> u8 {
        match self.access.tracking {
            Tracking::Nothing => mark,
            Tracking::Lately => LATELY,
            Tracking::Often => {
                let steps = u32::from(mark.saturating_sub(OFTEN_FIRST)) * OFTEN_FACTOR;
                let counts = mark < MARK_MAX && self.draw <= u32::MAX / (steps + 1);
                mark + u8::from(counts)
            }
        }
    }

    /// Gives a value that is about to be written its mark; `old` is that of the value it replaces.
    #[inline]
    pub(crate) fn decided<'d>(
        self,
        decision: Decision<'d>,
        old: Option<AccessMark<'_>>,
    ) -> Decision<'d> {
        if self.access.tracking == Tracking::Nothing {
            return decision;
        }
        match (decision, old) {
            (Decision::Write(mut new), old) => {
                new.mark = match old {
                    Some(old) if self.access.quiet => old.get(),
                    Some(old) => self.used(old.get()),
                    // One that comes from another key, or is restored, brings its own.
                    None if new.mark > 0 => new.mark,
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
            Tracking::Lately => LATELY,
            Tracking::Often => OFTEN_FIRST,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(tracking: Tracking, draw: u32) -> Touch {
        let access = Access {
            tracking,
            quiet: false,
        };
        Touch { access, draw }
    }

    /// The counter's step from `n` is taken by one use in `10·(n - 5) + 1`.
    #[test]
    fn uses_are_counted_by_their_logarithm() {
        let mut random = fastrand::Rng::with_seed(7);
        let access = Access {
            tracking: Tracking::Often,
            quiet: false,
        };
        for (uses, least, most) in [(1, 6, 6), (10, 6, 9), (1000, 15, 24), (100_000, 63, 63)] {
            let mut mark = OFTEN_FIRST;
            for _ in 0..uses {
                mark = access.touch(&mut random).used(mark);
            }
            assert!((least..=most).contains(&mark), "{uses} uses: {mark}");
        }
    }

    #[test]
    fn what_is_restored_brings_its_mark_and_nothing_else_does() {
        use pando_engine::{Body, NewValue};
        let written = |touch: Touch, mark: u8| {
            let mut new = NewValue::new(Body::Bytes(b""));
            new.mark = mark;
            match touch.decided(Decision::Write(new), None) {
                Decision::Write(new) => new.mark,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(written(touch(Tracking::Often, 0), 0), OFTEN_FIRST);
        assert_eq!(written(touch(Tracking::Often, 0), 9), 9);
        assert_eq!(written(touch(Tracking::Lately, 0), 0), LATELY);
        assert_eq!(written(touch(Tracking::Nothing, 0), 0), 0);
    }
}
