//! Log epochs: the unit of drawing versions, writing the log and waiting for the disk.

use std::fmt;

/// A log epoch; every committed write belongs to one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogEpoch(pub u64);

impl LogEpoch {
    /// Before the first epoch: nothing is written in it, and it counts as durable.
    pub const NONE: Self = Self(0);

    /// After every possible epoch.
    pub const NEVER: Self = Self(u64::MAX);

    /// The epoch after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The epoch before this one; none precedes none.
    #[must_use]
    pub const fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

impl fmt::Display for LogEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
