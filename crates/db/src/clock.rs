//! Time, behind a trait so that tests can set it.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch.
pub type Milliseconds = u64;

/// The database's source of time; a turn reads it once.
pub trait Clock: Send + Sync {
    /// Microseconds since the Unix epoch.
    fn now_us(&self) -> u64;

    /// Microseconds since some moment, by a monotonic clock; by default [`Self::now_us`].
    fn monotonic_us(&self) -> u64 {
        self.now_us()
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_us(&self) -> u64 {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        since.as_micros() as u64
    }

    fn monotonic_us(&self) -> u64 {
        static BEGUN: OnceLock<Instant> = OnceLock::new();
        BEGUN.get_or_init(Instant::now).elapsed().as_micros() as u64
    }
}
