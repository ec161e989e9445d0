//! CLIENT PAUSE: which commands are held back, and until when.
//!
//! | field | writer | under | reader |
//! |---|---|---|---|
//! | `Pause` | CLIENT PAUSE, the thread that finds it over | `Relaxed` | every command |

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::{Clock, Microseconds};

/// The microsecond at which a pause ends, times two, plus one if all commands are held back; 0
/// means no pause.
#[derive(Debug, Default)]
pub(crate) struct Pause(AtomicU64);

impl Pause {
    /// Holds back all commands, or those that write, until `until`. A present pause that is
    /// longer or stricter stays so.
    pub(crate) fn begin(&self, now: Microseconds, until: Microseconds, all: bool) {
        let until = until.min(Microseconds(u64::MAX >> 1));
        let merge = |pause| {
            let (old_until, old_all) = match split(pause) {
                (old_until, old_all) if old_until > now => (old_until, old_all),
                _ => (Microseconds::ZERO, false),
            };
            Some(until.max(old_until).0 << 1 | u64::from(all || old_all))
        };
        // It cannot fail: every pause merges.
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, merge);
    }

    /// Ends it.
    pub(crate) fn end(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Until when a command must wait, if at all.
    #[inline]
    pub(crate) fn until(&self, writes: bool, clock: &dyn Clock) -> Option<Microseconds> {
        let pause = self.0.load(Ordering::Relaxed);
        if pause == 0 {
            return None;
        }
        self.check(pause, writes, clock)
    }

    #[cold]
    fn check(&self, pause: u64, writes: bool, clock: &dyn Clock) -> Option<Microseconds> {
        let (until, all) = split(pause);
        if clock.now() < until {
            return (writes || all).then_some(until);
        }
        // Cleared, so that later commands need not read the clock; a new pause stays.
        let _ = self
            .0
            .compare_exchange(pause, 0, Ordering::Relaxed, Ordering::Relaxed);
        None
    }
}

/// The end of a pause, and whether it holds back all commands.
fn split(pause: u64) -> (Microseconds, bool) {
    (Microseconds(pause >> 1), pause & 1 == 1)
}
