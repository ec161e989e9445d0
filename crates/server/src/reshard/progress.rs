//! What was done so far, and what is said of it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::shared::lock;

/// What was done so far.
#[derive(Debug)]
pub(super) struct Progress {
    began: Instant,
    said: Mutex<Instant>,
    pub(super) names: AtomicU64,
    pub(super) keys: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) removed: AtomicU64,
    /// How long the ranges that were handed over were nobody's.
    pub(super) fences: Mutex<Vec<Duration>>,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            said: Mutex::new(Instant::now()),
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
