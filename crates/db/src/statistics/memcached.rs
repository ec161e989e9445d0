//! What the memcached commands have done, as `stats` tells it.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{add, take_over};

/// One figure of `stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Figure {
    CmdGet,
    CmdSet,
    CmdFlush,
    CmdTouch,
    CmdMeta,
    GetHits,
    GetMisses,
    GetExpired,
    DeleteMisses,
    DeleteHits,
    IncrMisses,
    IncrHits,
    DecrMisses,
    DecrHits,
    CasMisses,
    CasHits,
    CasBadval,
    TouchHits,
    TouchMisses,
    StoreTooLarge,
    StoreNoMemory,
    AuthCmds,
    AuthErrors,
    TotalItems,
}

/// How many figures there are.
const COUNT: usize = Figure::TotalItems as usize + 1;

/// The figures' names in `stats`, in their order.
const NAMES: [&str; COUNT] = [
    "cmd_get",
    "cmd_set",
    "cmd_flush",
    "cmd_touch",
    "cmd_meta",
    "get_hits",
    "get_misses",
    "get_expired",
    "delete_misses",
    "delete_hits",
    "incr_misses",
    "incr_hits",
    "decr_misses",
    "decr_hits",
    "cas_misses",
    "cas_hits",
    "cas_badval",
    "touch_hits",
    "touch_misses",
    "store_too_large",
    "store_no_memory",
    "auth_cmds",
    "auth_errors",
    "total_items",
];

/// What one session has counted; written by that session only, `Relaxed` since each figure stands
/// for itself.
#[derive(Debug, Default)]
pub(crate) struct MemcachedCounters([AtomicU64; COUNT]);

impl MemcachedCounters {
    #[inline]
    pub(crate) fn count(&self, figure: Figure) {
        self.count_many(figure, 1);
    }

    #[inline]
    pub(crate) fn count_many(&self, figure: Figure, count: usize) {
        add(&self.0[figure as usize], count as u64);
    }
}

impl MemcachedCounters {
    /// Adds what another has counted, which then has counted nothing.
    pub(super) fn take_over(&self, other: &Self) {
        // Mostly it has counted nothing.
        let counts = other.0.iter().map(|count| count.load(Ordering::Relaxed));
        if counts.fold(0, |any, count| any | count) == 0 {
            return;
        }
        for (counter, count) in self.0.iter().zip(&other.0) {
            take_over(counter, count);
        }
    }
}

/// Sums of the sessions' counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemcachedFigures([u64; COUNT]);

impl MemcachedFigures {
    pub(crate) fn add(&mut self, counters: &MemcachedCounters) {
        for (sum, counter) in self.0.iter_mut().zip(&counters.0) {
            *sum += counter.load(Ordering::Relaxed);
        }
    }

    /// What was counted since `base`.
    #[must_use]
    pub fn since(mut self, base: &Self) -> Self {
        for (count, base) in self.0.iter_mut().zip(base.0) {
            *count -= base;
        }
        self
    }

    /// The figures with memcached's names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.into_iter().zip(self.0)
    }
}
