//! Periods of the log: whoever draws versions, writes the log or waits for the disk counts in them.

use std::fmt;

/// A period of the log; every committed write belongs to one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogEpoch(pub u64);

impl LogEpoch {
    /// Before the first epoch: nothing is written in it, and it counts as durable.
    pub const NONE: Self = Self(0);

    /// After every epoch there will be.
    pub const NEVER: Self = Self(u64::MAX);

    /// The epoch after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The epoch before this one; none has none before it.
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
