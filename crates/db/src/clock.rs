//! Time, behind a trait so that tests can set it.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

pub use pando_sync::{Microseconds, Milliseconds};

/// The database's source of time; a turn reads it once.
pub trait Clock: Send + Sync {
    /// Since the Unix epoch.
    fn now(&self) -> Microseconds;

    /// Since some moment, by a monotonic clock; by default [`Self::now`].
    fn monotonic(&self) -> Microseconds {
        self.now()
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Microseconds {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Microseconds(since.as_micros() as u64)
    }

    fn monotonic(&self) -> Microseconds {
        static BEGUN: OnceLock<Instant> = OnceLock::new();
        let elapsed = BEGUN.get_or_init(Instant::now).elapsed();
        Microseconds(elapsed.as_micros() as u64)
    }
}
