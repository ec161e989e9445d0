//! Positions in a pool.

use std::fmt;

/// A position in the pool, in bytes from its beginning. 0 is the header's, hence "none" in links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Offset(u64);

impl Offset {
    /// No position.
    pub const NONE: Self = Self(0);

    /// The position of this byte.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Bytes from the pool's beginning.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The position `bytes` further.
    #[must_use]
    pub const fn plus(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }

    /// Whether it is no position.
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
