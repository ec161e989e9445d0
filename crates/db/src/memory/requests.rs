//! Memory of requests in progress, and values that can never fit.
//!
//! A request takes memory before it runs: what has arrived of it, and what MULTI has queued. The
//! host charges that ([`Requests::charge`]). It counts as memory in use, but only up to a bound of
//! its own. Anything beyond the bound is no reason to evict keys or to refuse writes: the host
//! closes connections for it.
//!
//! A request that can never run is refused before any key is evicted for it. The reader refuses one
//! longer than the bound ([`MemoryLimit::request_bytes_max`]). The command refuses to write a value
//! that does not fit under the limit beside what the process needs without keys ([`Fit`]).
//!
//! | field | writer | ordering | reader |
//! |---|---|---|---|
//! | `Requests::held_bytes` | the host | `Relaxed` | every command |
//! | `Requests::bytes_max` | CONFIG SET | `Relaxed` | the same, the host |
//!
//! Invariants:
//! - **RQ1 charged-is-held** `held_bytes` is the sum of what the host has charged and not released.
//! - **RQ2 one-request-fits** One request alone never exceeds the bound: its own limit is a share
//!   of it.
//!
//! Deliberately absent: connections.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::MemoryLimit;
use crate::error::CommandError;
use crate::limits;

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    held_bytes: AtomicUsize,
    /// 0 is no bound.
    bytes_max: AtomicUsize,
}

impl Requests {
    /// Records that requests in progress take `more` bytes of memory than before, and returns their
    /// total. Only charged bytes are released (RQ1).
    pub(crate) fn charge(&self, more: isize) -> usize {
        let before = self
            .held_bytes
            .fetch_add(more.cast_unsigned(), Ordering::Relaxed);
        // RQ1.
        debug_assert!(before.checked_add_signed(more).is_some());
        before.wrapping_add_signed(more)
    }

    /// Bytes of requests in progress.
    pub(crate) fn bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// The bound; 0 is none.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// Sets [`Self::bytes_max`].
    pub(crate) fn set_bytes_max(&self, bytes_max: usize) {
        self.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Bytes beyond the bound.
    #[inline]
    pub(super) fn excess_bytes(&self) -> usize {
        match self.bytes_max.load(Ordering::Relaxed) {
            0 => 0,
            bytes_max => self
                .held_bytes
                .load(Ordering::Relaxed)
                .saturating_sub(bytes_max),
        }
    }
}

/// Whether a command may write as much as it is about to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fit {
    /// Bytes below which nothing is checked.
    unasked_bytes: usize,
    /// The memory in use when the command's transaction began: nothing is evicted while it runs, so
    /// its writes must fit as a whole.
    used_before: Option<usize>,
}

impl Default for Fit {
    fn default() -> Self {
        Self {
            unasked_bytes: limits::FIT_BYTES_MAX_LEAST,
            used_before: None,
        }
    }
}

impl Fit {
    /// For the commands of a transaction that begins.
    pub(crate) fn of_transaction(memory: &MemoryLimit) -> Self {
        Self {
            unasked_bytes: 0,
            used_before: Some(memory.allocated()),
        }
    }

    /// Refuses to make values of `before` bytes `after` bytes long if that can never fit.
    #[inline]
    pub(crate) fn check(
        self,
        memory: &MemoryLimit,
        before: usize,
        after: usize,
    ) -> Result<(), CommandError> {
        if after <= self.unasked_bytes || after <= before {
            return Ok(());
        }
        self.check_large(memory, after - before, after)
    }

    #[cold]
    fn check_large(
        self,
        memory: &MemoryLimit,
        more: usize,
        after: usize,
    ) -> Result<(), CommandError> {
        let written = self
            .used_before
            .map_or(0, |before| memory.allocated().saturating_sub(before));
        if after.max(written.saturating_add(more)) <= memory.fit_bytes_max() {
            Ok(())
        } else {
            Err(CommandError::OutOfMemory)
        }
    }
}
