//! How fast a checkpoint runs, so that clients notice little of it.
//!
//! A thread of a checkpoint takes memory bandwidth, cache and, where cores are few, time from the
//! threads that serve, in proportion to the share of time in which it works. So it works in a duty
//! cycle: after each slice it rests in proportion to the slice's duration. While nothing is served
//! it does not rest. So the cycle follows the load by itself: the fewer requests there are, the
//! more slices find that none has come. The duration of a checkpoint is at most that of one without
//! rests, divided by the share.
//!
//! A bound of bytes per second, for all threads together, may apply as well.
//!
//! A lower thread priority would be no substitute: a slice holds a gate, for which the end of an
//! epoch, EXEC and MSET wait, and a thread that seldom runs would hold it for long.
//!
//! Deliberately absent: clocks and sleeping. This module counts; the caller waits.

use std::sync::Mutex;
use std::time::Duration;

use pando_sync::lock;

use crate::limits;

/// How fast a checkpoint runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Percent of its time in which each thread works while requests are served, 1 to 100; default
    /// [`limits::CHECKPOINT_SHARE_PERCENT`].
    pub share_percent: u32,
    /// Bytes per second that all threads write together; default no bound.
    pub bytes_per_second: Option<u64>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            share_percent: limits::CHECKPOINT_SHARE_PERCENT,
            bytes_per_second: None,
        }
    }
}

impl Pace {
    /// Without rests.
    pub const FULL: Self = Self {
        share_percent: 100,
        bytes_per_second: None,
    };
}

/// The bytes that all threads of a checkpoint have written.
#[derive(Debug, Default)]
pub(super) struct Written(Mutex<u64>);

impl Written {
    /// Counts `bytes` more; returns how long to wait if the checkpoint began `elapsed` ago.
    pub(super) fn add(&self, pace: Pace, bytes: u64, elapsed: Duration) -> Duration {
        let Some(rate) = pace.bytes_per_second else {
            return Duration::ZERO;
        };
        let mut written = lock(&self.0);
        *written += bytes;
        let due = Duration::from_secs_f64(*written as f64 / rate.max(1) as f64);
        due.saturating_sub(elapsed)
            .min(Duration::from_millis(limits::CHECKPOINT_PACE_MS_MAX))
    }
}

/// The rest that one thread of a checkpoint owes.
#[derive(Debug)]
pub(super) struct Duty {
    pace: Pace,
    owed: Duration,
    /// The total served at the last check.
    served: u64,
}

impl Duty {
    /// `served` is the count of everything served so far.
    pub(super) fn new(pace: Pace, served: u64) -> Self {
        let share_percent = pace.share_percent.clamp(1, 100);
        Self {
            pace: Pace {
                share_percent,
                ..pace
            },
            owed: Duration::ZERO,
            served,
        }
    }

    /// Whether [`Self::worked`] can ask for a rest at all.
    pub(super) fn rests(&self) -> bool {
        self.pace.share_percent < 100
    }

    /// Records that the thread has worked for this long, with `served` the count of everything
    /// served since the start; returns how long to rest now. The shortest rest is worth a sleep.
    pub(super) fn worked(&mut self, took: Duration, served: u64) -> Duration {
        let idle = std::mem::replace(&mut self.served, served) == served;
        if idle {
            self.owed = Duration::ZERO;
            return Duration::ZERO;
        }
        let share = self.pace.share_percent;
        let longest = Duration::from_millis(limits::CHECKPOINT_PACE_MS_MAX);
        // A slice that was delayed, perhaps by a disk, has not worked all the time.
        self.owed = (self.owed + took * (100 - share) / share).min(longest);
        if self.owed < Duration::from_micros(limits::CHECKPOINT_REST_US_MIN) {
            return Duration::ZERO;
        }
        self.owed
    }

    /// Ends a rest; its excess counts for the next one.
    pub(super) fn rested(&mut self, took: Duration) {
        self.owed = self.owed.saturating_sub(took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    /// The percentage of working time, on a simulated clock: slices of `slice_us`, sleeps that last
    /// `late_us` too long, `served` requests per slice.
    fn share(share_percent: u32, slice_us: u64, late_us: u64, served: u64) -> u64 {
        let pace = Pace {
            share_percent,
            ..Pace::default()
        };
        let mut duty = Duty::new(pace, 1);
        let (mut now, mut work, mut count) = (Duration::ZERO, Duration::ZERO, 1);
        for _ in 0..10_000 {
            now += micros(slice_us);
            work += micros(slice_us);
            count += served;
            let rest = duty.worked(micros(slice_us), count);
            if rest > Duration::ZERO {
                let took = rest + micros(late_us);
                now += took;
                duty.rested(took);
            }
        }
        (work.as_micros() * 100 / now.as_micros()) as u64
    }

    #[test]
    fn the_share_is_kept_while_requests_are_served() {
        for percent in [1, 10, 50, 75, 99, 100] {
            for slice_us in [50, 800, 3_000] {
                let got = share(percent, slice_us, 0, 7);
                assert!(got.abs_diff(u64::from(percent)) <= 1, "{percent}: {got}");
            }
        }
    }

    #[test]
    fn sleeps_that_last_longer_than_asked_for_come_near_the_share() {
        let got = share(50, 800, 60, 1);
        assert!((45..=50).contains(&got), "{got}");
    }

    #[test]
    fn nothing_served_means_no_rest() {
        assert_eq!(share(1, 800, 0, 0), 100);
        let mut duty = Duty::new(Pace::default(), 0);
        assert!(duty.worked(micros(9_000), 5) > Duration::ZERO);
        // The debt is forgiven when nobody is served.
        assert_eq!(duty.worked(micros(9_000), 5), Duration::ZERO);
        assert_eq!(duty.worked(micros(100), 6), Duration::ZERO);
    }

    #[test]
    fn rests_are_bounded_and_a_wrong_share_is_taken_for_the_nearest() {
        let longest = Duration::from_millis(limits::CHECKPOINT_PACE_MS_MAX);
        for share_percent in [0, 1] {
            let pace = Pace {
                share_percent,
                ..Pace::default()
            };
            let mut duty = Duty::new(pace, 0);
            assert_eq!(duty.worked(Duration::from_secs(10), 1), longest);
        }
        let pace = Pace {
            share_percent: 1_000,
            ..Pace::default()
        };
        assert!(!Duty::new(pace, 0).rests() && !Duty::new(Pace::FULL, 0).rests());
    }

    #[test]
    fn all_threads_together_keep_to_the_bytes_per_second() {
        let pace = Pace {
            bytes_per_second: Some(1_000_000),
            ..Pace::default()
        };
        let written = Written::default();
        let (mut now, mut bytes) = (Duration::ZERO, 0);
        for thread in 0..1_000_u64 {
            // Two threads in turns, of which one writes more.
            let more = 10_000 + thread % 2 * 20_000;
            bytes += more;
            now += micros(100) + written.add(pace, more, now + micros(100));
        }
        let rate = bytes as f64 / now.as_secs_f64();
        assert!((990_000.0..=1_010_000.0).contains(&rate), "{rate}");
        assert_eq!(written.add(Pace::FULL, 1 << 40, now), Duration::ZERO);
        // A burst is waited for in pieces, between which the checkpoint may be given up.
        let longest = Duration::from_millis(limits::CHECKPOINT_PACE_MS_MAX);
        assert_eq!(written.add(pace, 1 << 40, now), longest);
    }
}
