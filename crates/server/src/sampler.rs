//! Rates and the memory peak, sampled by workers at the end of a batch.
//!
//! | field | writer | ordering | reader |
//! |---|---|---|---|
//! | `next_ms` | the sampling thread | `Relaxed` | every batch |
//! | `samples` | the same | mutex, never waited for by a worker | INFO |
//! | `memory_peak` | the same, INFO | `Relaxed`, maximum | INFO |
//!
//! An idle server takes no samples; the rate is then that since the last one.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::shared::lock;

/// Milliseconds between samples.
const INTERVAL_MS: u64 = 100;

/// Samples from which a rate is taken: 1.6 s.
const WINDOW: usize = 16;

/// Totals at a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) at_ms: u64,
    pub(crate) calls: u64,
    pub(crate) input_bytes: u64,
    pub(crate) output_bytes: u64,
}

/// What is done in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rates {
    pub(crate) calls: f64,
    pub(crate) input_bytes: f64,
    pub(crate) output_bytes: f64,
}

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    next_ms: AtomicU64,
    samples: Mutex<VecDeque<Sample>>,
    memory_peak: AtomicUsize,
}

impl Sampler {
    /// Whether a sample is due.
    #[inline]
    pub(crate) fn is_due(&self, now_ms: u64) -> bool {
        now_ms >= self.next_ms.load(Ordering::Relaxed)
    }

    /// Takes a sample, unless somebody else is taking one.
    pub(crate) fn take(&self, sample: Sample, memory: usize) {
        self.note_memory(memory);
        let Ok(mut samples) = self.samples.try_lock() else {
            return;
        };
        self.next_ms
            .store(sample.at_ms + INTERVAL_MS, Ordering::Relaxed);
        if samples.len() == WINDOW {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// Raises the peak.
    pub(crate) fn note_memory(&self, memory: usize) {
        if memory > self.memory_peak.load(Ordering::Relaxed) {
            self.memory_peak.fetch_max(memory, Ordering::Relaxed);
        }
    }

    /// The most memory seen, in bytes.
    pub(crate) fn memory_peak(&self) -> usize {
        self.memory_peak.load(Ordering::Relaxed)
    }

    /// The rates up to `now`.
    pub(crate) fn rates(&self, now: Sample) -> Rates {
        let samples = lock(&self.samples);
        // The oldest sample of the window; of an idle server the latest one, however old.
        let window_ms = INTERVAL_MS * WINDOW as u64;
        let recent = |sample: &&Sample| sample.at_ms + window_ms >= now.at_ms;
        let Some(base) = samples.iter().find(recent).or_else(|| samples.back()) else {
            return Rates::default();
        };
        let seconds = now.at_ms.saturating_sub(base.at_ms) as f64 / 1000.0;
        if seconds == 0.0 {
            return Rates::default();
        }
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        Rates {
            calls: rate(now.calls, base.calls),
            input_bytes: rate(now.input_bytes, base.input_bytes),
            output_bytes: rate(now.output_bytes, base.output_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(at_ms: u64, calls: u64) -> Sample {
        Sample {
            at_ms,
            calls,
            input_bytes: calls * 10,
            output_bytes: 0,
        }
    }

    #[test]
    fn a_rate_is_that_of_the_window() {
        let sampler = Sampler::default();
        assert_eq!(sampler.rates(at(5, 5)), Rates::default());
        for tick in 0..100 {
            assert!(sampler.is_due(tick * 100));
            sampler.take(at(tick * 100, tick * tick), 7);
            assert!(!sampler.is_due(tick * 100 + 99));
        }
        // From 8.4 s (84² calls) to 9.9 s (99²).
        let rates = sampler.rates(at(9_900, 99 * 99));
        assert!((rates.calls - f64::from(99 * 99 - 84 * 84) / 1.5).abs() < 1.0);
        assert!((rates.input_bytes - rates.calls * 10.0).abs() < 1.0);
    }

    #[test]
    fn an_idle_server_has_the_rate_since_its_last_sample() {
        let sampler = Sampler::default();
        sampler.take(at(1_000, 50), 0);
        assert!((sampler.rates(at(11_000, 60)).calls - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_peak_stays() {
        let sampler = Sampler::default();
        sampler.note_memory(9);
        sampler.note_memory(3);
        assert_eq!(sampler.memory_peak(), 9);
    }
}
