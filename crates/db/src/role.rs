//! Whether this database follows another one, whose changes it then repeats, and what is refused
//! for the sake of replicas.
//!
//! | field | writer | under | reader |
//! |---|---|---|---|
//! | `follows`, `refusal` | the server's replication, CONFIG SET | `Relaxed` | every request |
//! | `refusal`: [`AWAITS_COPY`] | a replica's link, under all gates | `Relaxed` | every request |
//!
//! A change takes effect before the next turn: [`Database::set_follows`](crate::Database) takes all
//! gates once after it, so that no turn that began before is still running.
//!
//! Invariants:
//! - **RO1 rests** While a database follows, nothing of its own changes a key: no client's write if
//!   it is read-only, no expiry, no eviction. Removals come from above.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::error::CommandError;

/// What is refused. In this order each refuses at least what the one before does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Refusal {
    /// Nothing.
    #[default]
    Nothing,
    /// Writes, because too few replicas follow (`min-replicas-to-write`).
    TooFewReplicas,
    /// Writes, because this is a replica (`replica-read-only`).
    ReadOnly,
    /// Everything that needs current data, because this is a replica without its primary
    /// (`replica-serve-stale-data no`).
    Stale,
}

/// Of `refusal`: everything that needs data is refused, because these have gone for a full copy
/// that is not in yet.
const AWAITS_COPY: u8 = 0x80;

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Role {
    follows: AtomicBool,
    refusal: AtomicU8,
}

impl Role {
    /// Whether it follows another database.
    #[inline]
    pub(crate) fn follows(&self) -> bool {
        self.follows.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub(crate) fn set_follows(&self, follows: bool) {
        self.follows.store(follows, Ordering::Relaxed);
    }

    /// Sets what is refused.
    pub(crate) fn set_refusal(&self, refusal: Refusal) {
        let changed = |old| Some(old & AWAITS_COPY | refusal as u8);
        let _ = self
            .refusal
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed);
    }

    /// Whether its data have gone for a full copy that is not in yet.
    pub(crate) fn awaits_copy(&self) -> bool {
        self.refusal.load(Ordering::Relaxed) & AWAITS_COPY != 0
    }

    /// Sets it.
    pub(crate) fn set_awaits_copy(&self, awaits: bool) {
        if awaits {
            self.refusal.fetch_or(AWAITS_COPY, Ordering::Relaxed);
        } else {
            self.refusal.fetch_and(!AWAITS_COPY, Ordering::Relaxed);
        }
    }

    /// Whether a command that writes, or one that reads, is refused: one load.
    #[inline]
    pub(crate) fn refuses(&self, writes: bool) -> bool {
        let least = if writes {
            Refusal::TooFewReplicas
        } else {
            Refusal::Stale
        };
        self.refusal.load(Ordering::Relaxed) >= least as u8
    }

    /// The answer to a refused command.
    pub(crate) fn error(&self) -> CommandError {
        match self.refusal.load(Ordering::Relaxed) {
            refusal if refusal & AWAITS_COPY != 0 => CommandError::AwaitsCopy,
            refusal if refusal == Refusal::TooFewReplicas as u8 => CommandError::TooFewReplicas,
            refusal if refusal == Refusal::Stale as u8 => CommandError::Stale,
            _ => CommandError::ReadOnly,
        }
    }
}
