//! Which keys are evicted when memory is short.

use super::access::Tracking;

/// Which keys are evicted when memory is short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum EvictionPolicy {
    /// None: writes are refused.
    #[default]
    NoEviction,
    /// Those that were not used recently.
    AllKeysLru,
    /// Those that are not used often.
    AllKeysLfu,
    /// Any.
    AllKeysRandom,
    /// Those with a deadline that were not used recently.
    VolatileLru,
    /// Those with a deadline that are not used often.
    VolatileLfu,
    /// Any with a deadline.
    VolatileRandom,
    /// Those whose deadline is near.
    VolatileTtl,
}

impl EvictionPolicy {
    /// Every policy.
    pub const ALL: [Self; 8] = [
        Self::NoEviction,
        Self::AllKeysLru,
        Self::AllKeysLfu,
        Self::AllKeysRandom,
        Self::VolatileLru,
        Self::VolatileLfu,
        Self::VolatileRandom,
        Self::VolatileTtl,
    ];

    /// The name that `maxmemory-policy` takes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoEviction => "noeviction",
            Self::AllKeysLru => "allkeys-lru",
            Self::AllKeysLfu => "allkeys-lfu",
            Self::AllKeysRandom => "allkeys-random",
            Self::VolatileLru => "volatile-lru",
            Self::VolatileLfu => "volatile-lfu",
            Self::VolatileRandom => "volatile-random",
            Self::VolatileTtl => "volatile-ttl",
        }
    }

    /// The policy of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// Whether this policy knows if a value was read since it was written.
    #[must_use]
    pub fn knows_unread(self) -> bool {
        self.tracking() == Tracking::Lately
    }

    /// Whether uses of values are noted for this policy.
    #[must_use]
    pub fn notes_uses(self) -> bool {
        self.tracking() != Tracking::Nothing
    }

    pub(crate) fn is_volatile(self) -> bool {
        matches!(
            self,
            Self::VolatileLru | Self::VolatileLfu | Self::VolatileRandom | Self::VolatileTtl
        )
    }

    pub(crate) fn tracking(self) -> Tracking {
        match self {
            Self::AllKeysLru | Self::VolatileLru => Tracking::Lately,
            Self::AllKeysLfu | Self::VolatileLfu => Tracking::Often,
            _ => Tracking::Nothing,
        }
    }
}
