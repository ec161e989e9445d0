//! A stalled disk: writes wait until a test releases them, one by one or all.

use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use pando_sync::lock;

/// Which writes wait, and how many.
#[derive(Debug, Default)]
struct Traffic {
    /// The prefix of the names of files whose writes wait.
    prefix: String,
    /// Writes that may still proceed; `None`: any number.
    permits: Option<usize>,
    waiting: usize,
}

/// Holds back writes of a simulated disk.
#[derive(Debug, Default)]
pub struct Stalls {
    traffic: Mutex<Traffic>,
    changed: Condvar,
}

impl Stalls {
    /// From now on this many writes to files whose names begin with `prefix` proceed; `None`: any
    /// number. Others wait.
    pub fn permit(&self, prefix: &str, writes: Option<usize>) {
        let mut traffic = self.lock();
        prefix.clone_into(&mut traffic.prefix);
        traffic.permits = writes;
        drop(traffic);
        self.changed.notify_all();
    }

    /// Whether a write is waiting.
    pub fn holds_a_write(&self) -> bool {
        let traffic = self.lock();
        traffic.waiting > 0 && traffic.permits == Some(0)
    }

    /// Blocks a write to a file until it may proceed. No lock is held.
    pub(super) fn pass(&self, path: &Path) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut traffic = self.lock();
        if !name.starts_with(&traffic.prefix) {
            return;
        }
        traffic.waiting += 1;
        let stands = |traffic: &mut Traffic| traffic.permits == Some(0);
        let waited = self.changed.wait_while(traffic, stands);
        let mut traffic = waited.unwrap_or_else(PoisonError::into_inner);
        traffic.waiting -= 1;
        if let Some(permits) = &mut traffic.permits {
            *permits -= 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Traffic> {
        lock(&self.traffic)
    }
}
