//! The names that a setting takes where it takes one of several.

use pando_db::{Durability, EngineKind, EvictionPolicy, FileMedium, PoolProtection};

use super::value::LogLevel;

/// The names of all values of an enumeration.
macro_rules! names {
    ($names:ident, $kind:ty) => {
        pub(super) static $names: [&str; <$kind>::ALL.len()] = {
            let mut names = [""; <$kind>::ALL.len()];
            let mut index = 0;
            while index < names.len() {
                names[index] = <$kind>::ALL[index].name();
                index += 1;
            }
            names
        };
    };
}

names!(DURABILITIES, Durability);
names!(ENGINES, EngineKind);
names!(FILE_MEDIA, FileMedium);
names!(PROTECTIONS, PoolProtection);
names!(LOG_LEVELS, LogLevel);

/// In Redis' order.
pub(super) static EVICTION_POLICIES: [&str; EvictionPolicy::ALL.len()] = [
    EvictionPolicy::VolatileLru.name(),
    EvictionPolicy::VolatileLfu.name(),
    EvictionPolicy::VolatileRandom.name(),
    EvictionPolicy::VolatileTtl.name(),
    EvictionPolicy::AllKeysLru.name(),
    EvictionPolicy::AllKeysLfu.name(),
    EvictionPolicy::AllKeysRandom.name(),
    EvictionPolicy::NoEviction.name(),
];
