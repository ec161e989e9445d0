//! What was done so far, and what is said of it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::shared::lock;

/// Keys that are moved between two pauses, at most.
const PACED_KEYS: u64 = 256;

/// What was done so far.
#[derive(Debug)]
pub(super) struct Progress {
    began: Instant,
    said: Mutex<Instant>,
    /// Keys a second that are copied or removed, at most.
    rate: Option<u64>,
    /// When the next may be, by that rate.
    due: Mutex<Instant>,
    /// Keys that an attempt looks at, and those that it has looked at.
    pub(super) total: AtomicU64,
    pub(super) names: AtomicU64,
    pub(super) keys: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) removed: AtomicU64,
    /// How long the ranges that were handed over were nobody's.
    pub(super) fences: Mutex<Vec<Duration>>,
}

impl Progress {
    pub(super) fn new(rate: Option<u64>) -> Self {
        Self {
            began: Instant::now(),
            said: Mutex::new(Instant::now()),
            rate,
            due: Mutex::new(Instant::now()),
            total: AtomicU64::new(0),
            names: AtomicU64::new(0),
            keys: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            removed: AtomicU64::new(0),
            fences: Mutex::default(),
        }
    }

    /// Says something, at most once a second.
    pub(super) fn tick(&self, text: impl FnOnce() -> String) {
        let mut said = lock(&self.said);
        if said.elapsed() >= Duration::from_secs(1) {
            *said = Instant::now();
            eprintln!("{}", text());
        }
    }

    /// Waits until so many keys more may be copied or removed. All threads share the rate.
    pub(super) fn pace(&self, keys: u64) {
        let Some(rate) = self.rate else { return };
        let mut due = lock(&self.due);
        let now = Instant::now();
        let begins = now.max(*due);
        *due = begins + Duration::from_secs_f64(keys as f64 / rate as f64);
        drop(due);
        std::thread::sleep(begins - now);
    }

    /// How many keys are to be moved between two pauses, if pauses are to be made.
    pub(super) fn keys_at_once(&self) -> Option<usize> {
        let tenth = self.rate? / 10;
        Some(tenth.clamp(1, PACED_KEYS) as usize)
    }

    /// How many keys are still to be looked at, and about how long that takes, given when it began.
    pub(super) fn left(&self, began: Instant) -> String {
        let total = self.total.load(Ordering::Relaxed);
        let names = self.names.load(Ordering::Relaxed);
        let left = total.saturating_sub(names);
        let seconds = began.elapsed().as_secs_f64() * left as f64 / names.max(1) as f64;
        format!("{names} of about {total} keys looked at, {left} left for {seconds:.0} s")
    }

    pub(super) fn copied(&self) -> String {
        let keys = self.keys.load(Ordering::Relaxed);
        let bytes = self.bytes.load(Ordering::Relaxed);
        let seconds = self.began.elapsed().as_secs_f64();
        let rate = keys as f64 / seconds;
        let mebibytes = bytes as f64 / 1_048_576.0;
        format!("{keys} keys ({mebibytes:.1} MiB) copied, {rate:.0} keys/s")
    }

    /// The longest time that a hand-over took, and that which 99 of 100 took at most.
    pub(super) fn fences(&self) -> (Duration, Duration) {
        let mut fences = lock(&self.fences).clone();
        fences.sort_unstable();
        let at = |share: usize| {
            let index = (fences.len() * share).div_ceil(100).saturating_sub(1);
            fences.get(index).copied().unwrap_or_default()
        };
        (at(100), at(99))
    }
}
