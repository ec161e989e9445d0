//! Whether this database follows another one, whose changes it then repeats.
//!
//! | field | writer | under | reader |
//! |---|---|---|---|
//! | `follows`, `read_only` | the server's link, CONFIG SET | `Relaxed` | every write |
//!
//! A change takes effect before the next turn: the caller takes all gates once after it, so that no
//! turn that began before is still running.
//!
//! Invariants:
//! - **RO1 rests** While a database follows, nothing of its own changes a key: no client's write if
//!   it is read-only, no expiry, no eviction. Removals come from above.

use std::sync::atomic::{AtomicBool, Ordering};

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Role {
    follows: AtomicBool,
    read_only: AtomicBool,
}

impl Role {
    /// Whether it follows another database.
    #[inline]
    pub(crate) fn follows(&self) -> bool {
        self.follows.load(Ordering::Relaxed)
    }

    /// Whether clients' writes are refused because it does.
    #[inline]
    pub(crate) fn refuses_writes(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }

    /// Sets both; whoever does not follow takes writes.
    pub(crate) fn set(&self, follows: bool, read_only: bool) {
        self.follows.store(follows, Ordering::Relaxed);
        self.read_only
            .store(follows && read_only, Ordering::Relaxed);
    }
}
