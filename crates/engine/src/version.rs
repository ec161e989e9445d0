//! Log epochs and value versions.
//!
//! A [`ValueVersion`] is 64 bits: the log epoch in the high 44, a sequence in the low 20. The
//! versions of one (tree, key) strictly increase, across removal and re-insertion too. Ten years at
//! fifty thousand epochs a second fit. A key that is written more often within an epoch than the
//! sequence can count borrows from the next epoch; a reader that saw it then waits for that epoch
//! instead.
//!
//! | field | writer | ordering | readers |
//! |---|---|---|---|
//! | `current` | the maintenance thread ([`EpochClock::tick`]) | `AcqRel` | every commit, `Acquire` |
//! | `borrowed` | a commit that borrows: under its key's lock, `Relaxed` | [`EpochClock::end_all`], while nobody commits |
//! | `horizon` | the maintenance thread ([`EpochClock::set_horizon`]) | `Release` | engines purging tombstones |
//!
//! A log and watchers need a clock that somebody drives. Without them, an engine drives it itself
//! ([`EpochClock::self_driven`]): removed keys are forgotten at once.
//!
//! - **V1 version-draw** A commit draws `max(old + 1, first of the current epoch)` under the lock
//!   of the key's node or bucket; `old` is the version of the value or of its tombstone.
//! - **V2 tombstone-horizon** A tombstone is removed only when its epoch is below the horizon, and
//!   the horizon never exceeds the current epoch. The next insert of the key then draws a version
//!   of a later epoch, so versions increase although the tombstone is gone.
//! - **V3 self-driven-removal** Under a self-driven clock a removal draws `old + 1` and leaves no
//!   tombstone. Before it releases the key's lock, the current epoch is above that version's
//!   ([`EpochClock::forget`]). The next insert of the key, under the same lock, draws from a later
//!   epoch. Most removals find the epoch there already and write nothing: the epoch moves only when
//!   a value written in it is removed in it.

use pando_sync::shim::unmodelled::{AtomicU64, Ordering};

pub use pando_sync::LogEpoch;

const SEQUENCE_BITS: u32 = 20;
const EPOCH_MAX: u64 = u64::MAX >> SEQUENCE_BITS;

/// The version of one value: log epoch, then sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueVersion(u64);

impl ValueVersion {
    /// The first version of an epoch.
    #[must_use]
    pub const fn first_of(epoch: LogEpoch) -> Self {
        assert!(epoch.0 <= EPOCH_MAX);
        Self(epoch.0 << SEQUENCE_BITS)
    }

    /// The version that follows `old` (a value's or a tombstone's) in `epoch` (V1).
    #[must_use]
    pub fn after(old: Option<Self>, epoch: LogEpoch) -> Self {
        let first = Self::first_of(epoch);
        match old {
            Some(old) if old >= first => Self(old.0 + 1),
            _ => first,
        }
    }

    /// The log epoch in which the value was written.
    #[must_use]
    pub const fn epoch(self) -> LogEpoch {
        LogEpoch(self.0 >> SEQUENCE_BITS)
    }

    /// The 64 bits.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The inverse of [`Self::to_bits`].
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// The current log epoch and the horizon below which tombstones may go.
#[derive(Debug)]
pub struct EpochClock {
    current: AtomicU64,
    horizon: AtomicU64,
    /// The highest epoch that a commit has borrowed from before it was current.
    borrowed: AtomicU64,
    self_driven: bool,
}

impl EpochClock {
    /// A clock that starts at `first` (1 on an empty database, else above everything on disk).
    #[must_use]
    pub fn starting_at(first: LogEpoch) -> Self {
        assert!(first > LogEpoch::NONE);
        Self {
            current: AtomicU64::new(first.0),
            horizon: AtomicU64::new(first.0),
            borrowed: AtomicU64::new(0),
            self_driven: false,
        }
    }

    /// A clock that needs no driver, for an engine in a program without a log: nobody asks for the
    /// version of a removed key, so removals free their memory themselves.
    #[must_use]
    pub fn self_driven() -> Self {
        Self {
            self_driven: true,
            ..Self::starting_at(LogEpoch(1))
        }
    }

    /// Whether engines advance this clock.
    #[inline]
    #[must_use]
    pub fn is_self_driven(&self) -> bool {
        self.self_driven
    }

    /// The version of the removal of a value of version `old` that nobody has to remember (V3), or
    /// `None` if the clock has a driver, who decides how long. The caller holds the key's lock.
    #[inline]
    #[must_use]
    pub fn forget(&self, old: ValueVersion) -> Option<ValueVersion> {
        if !self.self_driven {
            return None;
        }
        let version = ValueVersion(old.0 + 1);
        let later = version.epoch().0 + 1;
        if self.current.load(Ordering::Relaxed) < later {
            self.current.fetch_max(later, Ordering::AcqRel);
        }
        Some(version)
    }

    /// The epoch that a commit belongs to now.
    #[must_use]
    pub fn current(&self) -> LogEpoch {
        // Acquire pairs with `tick`: a commit that sees epoch e sees everything that made e begin.
        LogEpoch(self.current.load(Ordering::Acquire))
    }

    /// The version of a commit now to a key whose value or tombstone has version `old`
    /// (V1 version-draw). The caller holds the key's lock.
    #[inline]
    #[must_use]
    pub fn draw(&self, old: Option<ValueVersion>) -> ValueVersion {
        let epoch = self.current();
        let version = ValueVersion::after(old, epoch);
        if version.epoch() > epoch {
            self.note_borrowed(version.epoch());
        }
        version
    }

    #[cold]
    fn note_borrowed(&self, epoch: LogEpoch) {
        // Relaxed: the caller excludes all commits, which orders the two.
        self.borrowed.fetch_max(epoch.0, Ordering::Relaxed);
    }

    /// Whether every version drawn so far is of an epoch that has ended (SN2 frozen-epoch of
    /// `snapshot`). Nobody commits meanwhile.
    #[must_use]
    pub fn is_above_all(&self) -> bool {
        self.borrowed.load(Ordering::Relaxed) < self.current().0
    }

    /// Ends the current epoch, and those that keys have borrowed from. Returns the last ended
    /// epoch, at which a snapshot can be made. Nobody commits meanwhile.
    pub fn end_all(&self) -> LogEpoch {
        self.tick();
        while !self.is_above_all() {
            self.tick();
        }
        LogEpoch(self.current().0 - 1)
    }

    /// Begins the next epoch and returns it.
    pub fn tick(&self) -> LogEpoch {
        let ended = self.current.fetch_add(1, Ordering::AcqRel);
        assert!(ended < EPOCH_MAX);
        LogEpoch(ended + 1)
    }

    /// Makes `epoch` the current one, unless a later one is. The caller excludes all commits.
    pub fn rise_to(&self, epoch: LogEpoch) {
        self.current.fetch_max(epoch.0, Ordering::AcqRel);
    }

    /// Tombstones of epochs below this one may be removed (V2).
    #[must_use]
    pub fn horizon(&self) -> LogEpoch {
        if self.self_driven {
            return self.current();
        }
        // Acquire pairs with `set_horizon`: what was written before the horizon moved is seen.
        LogEpoch(self.horizon.load(Ordering::Acquire))
    }

    /// Moves the horizon; it never moves back, nor past the current epoch (V2).
    pub fn set_horizon(&self, horizon: LogEpoch) {
        let bounded = horizon.0.min(self.current().0);
        let before = self.horizon.fetch_max(bounded, Ordering::Release);
        debug_assert!(before <= self.current().0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_increase_within_and_across_epochs() {
        let first = ValueVersion::after(None, LogEpoch(3));
        let second = ValueVersion::after(Some(first), LogEpoch(3));
        let third = ValueVersion::after(Some(second), LogEpoch(4));
        assert!(first < second && second < third);
        assert_eq!((first.epoch(), third.epoch()), (LogEpoch(3), LogEpoch(4)));
    }

    #[test]
    fn a_key_that_is_written_often_borrows_from_the_next_epoch() {
        let last = ValueVersion::from_bits(ValueVersion::first_of(LogEpoch(4)).to_bits() - 1);
        assert_eq!(last.epoch(), LogEpoch(3));
        let next = ValueVersion::after(Some(last), LogEpoch(3));
        assert_eq!(next, ValueVersion::first_of(LogEpoch(4)));
        assert!(ValueVersion::after(Some(next), LogEpoch(4)) > next);
    }

    #[test]
    fn all_epochs_that_were_borrowed_from_can_be_ended() {
        let clock = EpochClock::starting_at(LogEpoch(3));
        assert_eq!(clock.end_all(), LogEpoch(3));
        let full = |epoch| ValueVersion::from_bits(first_bits(epoch) - 1);
        assert_eq!(clock.draw(Some(full(5))).epoch(), LogEpoch(5));
        assert_eq!(clock.draw(Some(full(9))).epoch(), LogEpoch(9));
        assert!(!clock.is_above_all());
        assert_eq!(clock.end_all(), LogEpoch(9));
        assert!(clock.is_above_all());
        assert_eq!(clock.draw(None).epoch(), LogEpoch(10));
    }

    fn first_bits(epoch: u64) -> u64 {
        ValueVersion::first_of(LogEpoch(epoch)).to_bits()
    }

    #[test]
    fn a_self_driven_clock_forgets_and_versions_still_increase() {
        assert!(
            EpochClock::starting_at(LogEpoch(1))
                .forget(ValueVersion(7))
                .is_none()
        );
        let clock = EpochClock::self_driven();
        let mut version = ValueVersion::after(None, clock.current());
        for round in 0..5 {
            let epoch = clock.current();
            let removed = clock.forget(version).unwrap();
            assert_eq!(clock.horizon(), clock.current());
            assert!(clock.current() > removed.epoch(), "round {round}");
            // Removing values of older epochs moves nothing.
            assert_eq!(clock.forget(version), Some(removed));
            assert_eq!(clock.current(), LogEpoch(epoch.0 + 1));
            version = ValueVersion::after(None, clock.current());
            assert!(version > removed);
        }
    }

    #[test]
    fn horizon_stays_at_or_below_the_current_epoch() {
        let clock = EpochClock::starting_at(LogEpoch(1));
        clock.set_horizon(LogEpoch(9));
        assert_eq!(clock.horizon(), LogEpoch(1));
        clock.tick();
        clock.set_horizon(LogEpoch(2));
        clock.set_horizon(LogEpoch(1));
        assert_eq!(clock.horizon(), LogEpoch(2));
    }
}
