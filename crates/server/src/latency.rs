//! Latency events (LATENCY LATEST, HISTORY, GRAPH, DOCTOR): commands that took longer than
//! `latency-monitor-threshold`, at most one of a kind for each second.
//!
//! | event | commands |
//! |---|---|
//! | `command` | those that may be slow |
//! | `fast-command` | those that are flagged fast |
//! | `snapshot-create` | SNAPSHOT CREATE, its wait for all gates included |
//!
//! Off by default. Workers enter only slow commands, so one mutex is enough. Each kind is bounded
//! by [`SAMPLES_MAX`].

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use pando_protocol::command::{CommandSpec, Flag};

use crate::shared::lock;

/// Samples kept for each event.
pub(crate) const SAMPLES_MAX: usize = 160;

/// Names of events, see the module's header.
pub(crate) const COMMAND: &str = "command";
/// See [`COMMAND`].
pub(crate) const FAST_COMMAND: &str = "fast-command";
/// See [`COMMAND`].
const SNAPSHOT_CREATE: &str = "snapshot-create";

/// The event that a slow command is.
pub(crate) fn event(spec: &CommandSpec) -> &'static str {
    if spec.name == "snapshot|create" {
        SNAPSHOT_CREATE
    } else {
        event_of(spec.flags.has(Flag::Fast))
    }
}

/// The event of a slow command without an event of its own.
pub(crate) fn event_of(is_fast: bool) -> &'static str {
    if is_fast { FAST_COMMAND } else { COMMAND }
}

/// The longest event of one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LatencySample {
    /// Seconds since the Unix epoch.
    pub(crate) at_s: u64,
    pub(crate) latency_ms: u64,
}

/// The samples of one event, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct LatencySeries {
    pub(crate) samples: VecDeque<LatencySample>,
    /// The longest since the start or the last reset.
    pub(crate) worst_ms: u64,
}

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct LatencyMonitor {
    events: Mutex<BTreeMap<&'static str, LatencySeries>>,
}

impl LatencyMonitor {
    pub(crate) fn enter(&self, event: &'static str, at_s: u64, latency_ms: u64) {
        let mut events = lock(&self.events);
        let series = events.entry(event).or_default();
        series.worst_ms = series.worst_ms.max(latency_ms);
        if let Some(last) = series.samples.back_mut()
            && last.at_s == at_s
        {
            last.latency_ms = last.latency_ms.max(latency_ms);
            return;
        }
        if series.samples.len() == SAMPLES_MAX {
            series.samples.pop_front();
        }
        series.samples.push_back(LatencySample { at_s, latency_ms });
    }

    /// All events by name.
    pub(crate) fn events(&self) -> BTreeMap<&'static str, LatencySeries> {
        lock(&self.events).clone()
    }

    /// The samples of one event.
    pub(crate) fn series(&self, event: &[u8]) -> Option<LatencySeries> {
        let events = lock(&self.events);
        events
            .iter()
            .find(|(name, _)| name.as_bytes() == event)
            .map(|(_, series)| series.clone())
    }

    /// Forgets the events named by `chosen`; returns how many there were.
    pub(crate) fn reset(&self, chosen: impl Fn(&str) -> bool) -> usize {
        let mut events = lock(&self.events);
        let before = events.len();
        events.retain(|name, _| !chosen(name));
        before - events.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_keeps_its_longest_event() {
        let monitor = LatencyMonitor::default();
        for (at_s, latency_ms) in [(1, 5), (1, 9), (1, 7), (2, 3)] {
            monitor.enter(COMMAND, at_s, latency_ms);
        }
        let series = monitor.series(b"command").unwrap();
        assert_eq!(series.worst_ms, 9);
        assert_eq!(
            series.samples,
            [
                LatencySample {
                    at_s: 1,
                    latency_ms: 9
                },
                LatencySample {
                    at_s: 2,
                    latency_ms: 3
                }
            ]
        );
    }

    #[test]
    fn samples_are_bounded() {
        let monitor = LatencyMonitor::default();
        for at_s in 0..500 {
            monitor.enter(FAST_COMMAND, at_s, 1);
        }
        let series = monitor.series(b"fast-command").unwrap();
        assert_eq!(series.samples.len(), SAMPLES_MAX);
        assert_eq!(series.samples[0].at_s, 500 - SAMPLES_MAX as u64);
    }

    #[test]
    fn a_reset_counts_what_it_forgets() {
        let monitor = LatencyMonitor::default();
        monitor.enter(COMMAND, 1, 1);
        assert_eq!(monitor.reset(|name| name == FAST_COMMAND), 0);
        assert_eq!(monitor.reset(|_| true), 1);
        assert!(monitor.events().is_empty());
    }
}
