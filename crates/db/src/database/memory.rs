//! The memory limit as the database's users see it, and whether anything may be evicted.

use super::Database;
use crate::clock::Milliseconds;
use crate::limits;
use crate::memory::{Accesses, EvictionPolicy};

impl Database {
    /// Bytes of memory beyond which keys are evicted or writes refused; 0 is no limit.
    #[must_use]
    pub fn max_memory(&self) -> usize {
        self.memory.bytes_max()
    }

    /// Sets [`Self::max_memory`].
    pub fn set_max_memory(&self, bytes: usize) {
        self.memory.set_bytes_max(bytes);
    }

    /// Which keys are removed when memory is short.
    #[must_use]
    pub fn eviction_policy(&self) -> EvictionPolicy {
        self.memory.policy()
    }

    /// Sets [`Self::eviction_policy`]. Marks of another meaning take some time to adapt.
    pub fn set_eviction_policy(&self, policy: EvictionPolicy) {
        self.memory.set_policy(policy);
    }

    /// Bytes of memory in use: what is allocated, and what an engine's pool holds.
    #[must_use]
    pub fn memory_used(&self) -> usize {
        self.memory.allocated()
    }

    /// Bytes that an engine's pool holds, those about to be free included; 0 without one.
    #[must_use]
    pub fn pool_bytes(&self) -> usize {
        self.memory.pool_bytes()
    }

    /// Whether more memory is in use than allowed: writes that need some are refused if no key can
    /// be evicted.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.memory.is_exceeded()
    }

    /// Records that requests in progress take `more` bytes of memory than before, and returns their
    /// total. Only charged bytes are released (RQ1 charged-is-held).
    pub fn charge_requests(&self, more: isize) -> usize {
        self.memory.requests.charge(more)
    }

    /// Bytes of requests in progress.
    #[must_use]
    pub fn requests_bytes(&self) -> usize {
        self.memory.requests.bytes()
    }

    /// The bound of [`Self::requests_bytes`]: bytes beyond it are no reason to evict keys. 0 is
    /// none.
    #[must_use]
    pub fn requests_bytes_max(&self) -> usize {
        self.memory.requests.bytes_max()
    }

    /// Sets [`Self::requests_bytes_max`].
    pub fn set_requests_bytes_max(&self, bytes_max: usize) {
        self.memory.requests.set_bytes_max(bytes_max);
    }

    /// Bytes of memory that one request may take before it runs (RQ2 one-request-fits).
    #[must_use]
    #[inline]
    pub fn request_bytes_max(&self) -> usize {
        self.memory.request_bytes_max()
    }

    /// Tells when values were last used.
    pub(crate) fn accesses(&self, now_ms: Milliseconds) -> Accesses<'_> {
        self.memory.accesses(now_ms)
    }

    /// Lowers marks as time passes, once per epoch.
    pub(crate) fn allow_decay(&self, now_ms: Milliseconds) {
        self.memory.pace.tick(self.keys(), now_ms);
    }

    /// The bytes below which eviction keeps the memory in use; `None` when nothing is evicted
    /// (EV3 no-eviction-unlogged, EV4 no-eviction-branched).
    fn eviction_line(&self) -> Option<usize> {
        let line = self.memory.line()?;
        (self.takes_writes() && !self.is_branched()).then_some(line)
    }

    /// Whether keys would be evicted, were there not other branches than the first.
    pub(crate) fn evicts_but_for_branches(&self) -> bool {
        self.memory.line().is_some() && self.is_branched()
    }

    /// Whether a command that needs memory may run at once.
    #[inline]
    pub(crate) fn has_memory(&self) -> bool {
        !self.memory.is_limited() || self.is_below_line()
    }

    fn is_below_line(&self) -> bool {
        // Mostly that is all: whether there are branches is not asked.
        let line = self.memory.line();
        line.is_some_and(|line| self.memory.is_below(line))
            || (self.eviction_line().is_none() && !self.is_out_of_memory())
    }

    /// Whether keys are evicted when memory is short.
    pub(crate) fn evicts(&self) -> bool {
        self.eviction_line().is_some()
    }

    /// Whether keys are to be evicted.
    pub(crate) fn is_short(&self) -> bool {
        self.excess_beside(0) > 0
    }

    /// Whether keys are to be evicted even if all scattered free memory could be used.
    pub(crate) fn is_full(&self) -> bool {
        self.excess_beside(self.store.idle_bytes()) > 0
    }

    /// Bytes to evict, not counting `idle_bytes`.
    fn excess_beside(&self, idle_bytes: usize) -> usize {
        let Some(line) = self.eviction_line() else {
            return 0;
        };
        // In this order: what is reclaimed in between counts as evicted, not as in use.
        let reclaimable = self.store.reclaimable_bytes();
        let used = self.memory.in_use();
        let of_memory = used
            .saturating_sub(reclaimable + idle_bytes)
            .saturating_sub(line);
        let of_pool = self.memory.pool_excess().saturating_sub(reclaimable);
        of_memory.max(of_pool)
    }

    /// Whether writes that need memory are refused, after everything evictable was evicted.
    pub(crate) fn refuses_writes(&self) -> bool {
        if self.evicts() {
            self.memory.is_beyond_ceiling()
        } else {
            self.is_out_of_memory()
        }
    }

    /// Updates the reserve and the ceiling, once per epoch.
    pub(crate) fn adjust_eviction(&self) {
        let reclaimable = self.evicts().then(|| self.store.reclaimable_bytes());
        self.memory.adjust(reclaimable);
    }

    /// Bytes of tombstones that WATCH may hold back: less when there is a memory limit.
    pub(crate) fn watch_buried_bytes_max(&self) -> u64 {
        let most = match (self.eviction_line(), self.max_memory()) {
            (Some(line), 1..) => line / 128,
            (_, 0) => return limits::WATCH_BURIED_BYTES_MAX,
            (None, max_memory) => max_memory / 16,
        };
        limits::WATCH_BURIED_BYTES_MAX.min(most as u64)
    }
}
