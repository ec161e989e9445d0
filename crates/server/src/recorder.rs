//! A worker's stopwatch: how long commands run, and how long their clients wait.
//!
//! Reading the clock costs as much as a small command, so it is not read twice for each:
//!
//! - A command that may be slow, or that has more than `UNTIMED_BYTES_MAX` bytes, is timed
//!   individually.
//! - Commands flagged fast run untimed, and so do SET, SETEX and PSETEX, which lack the flag
//!   although a small value takes no longer. The time between two readings of the clock is divided
//!   evenly among the untimed commands in between, so that INFO's `usec` add up to the time spent.
//!   An EXEC of such commands that waits for no gates is one of them.
//! - An untimed command that has moved many bytes is timed afterwards, from the last reading of the
//!   clock on: an upper bound, which may include the untimed commands before it in its batch.
//! - While `slowlog-log-slower-than` is between 0 and 1 ms, or there is a latency threshold, every
//!   command is timed individually. Above that, a fast command that moves few bytes cannot be slow
//!   unless the machine takes the processor away.
//!
//! Latency is end to end: from the arrival of the request's bytes, as reported by the worker, to
//! the end of the batch that wrote the reply. It includes queueing behind the batch's other
//! requests, pauses and the time between slices.
//!
//! Invariants:
//! - **SR1** `pending[untimed_from..]` are the untimed commands since the last reading of the
//!   clock; they are counted at the next one.

use std::sync::Arc;
use std::time::Instant;

use pando_protocol::Request;
use pando_protocol::command::CommandSpec;

use crate::limits;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::statistics::WorkerStatistics;

/// Consecutive requests of one command that arrived together. They share one latency, which is
/// unknown before their batch ends.
#[derive(Clone, Copy, Debug)]
struct Pending {
    command: u16,
    arrived_ns: u64,
    count: u64,
}

/// See the module's header. Each worker owns one.
#[derive(Debug)]
pub struct WorkerRecorder {
    statistics: Arc<WorkerStatistics>,
    /// The server's start, from which nanoseconds count.
    epoch: Instant,
    pending: Vec<Pending>,
    untimed_from: usize,
    last_reading_ns: u64,
    requests: u64,
    /// Commands that wait for the next reading of the clock (SR1).
    untimed: u64,
}

/// The timing of one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timing {
    /// Timed individually, since then.
    Since(u64),
    /// Gets a share of the time between two readings.
    Untimed,
}

/// Whether every command is timed individually.
#[inline]
pub(crate) fn times_each(settings: &Settings) -> bool {
    let slower_than_us = settings.slowlog_slower_than_us();
    (0..limits::TIMED_BELOW_US).contains(&slower_than_us) || settings.latency_threshold_ms() > 0
}

impl WorkerRecorder {
    pub(crate) fn new(statistics: Arc<WorkerStatistics>, epoch: Instant) -> Self {
        Self {
            statistics,
            epoch,
            pending: Vec::new(),
            untimed_from: 0,
            last_reading_ns: 0,
            requests: 0,
            untimed: 0,
        }
    }

    /// The worker's counters.
    #[must_use]
    pub fn statistics(&self) -> &WorkerStatistics {
        &self.statistics
    }

    /// Nanoseconds since the server's start.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// When the clock was last read: at the end of the last batch, between batches.
    pub fn last_reading_ns(&self) -> u64 {
        self.last_reading_ns
    }

    /// Begins a batch, after the worker has read its sockets; returns the time.
    pub fn begin_batch(&mut self) -> u64 {
        self.last_reading_ns = self.now_ns();
        self.untimed_from = self.pending.len();
        self.requests = 0;
        self.last_reading_ns
    }

    /// The batch's commands have run: sending counts as no command's time.
    pub fn end_execution(&mut self) {
        self.read_clock();
    }

    /// Ends a batch, after its replies were passed to the sockets.
    pub fn end_batch(&mut self, shared: &Shared) {
        let now_ns = self.read_clock();
        self.record_latencies(now_ns, &shared.settings);
        if self.requests > 0 {
            self.statistics.record_batch(self.requests);
        }
        shared.sample(now_ns / 1_000_000);
    }

    fn record_latencies(&mut self, now_ns: u64, settings: &Settings) {
        if settings.latency_tracking() {
            for pending in &self.pending {
                let latency_ns = now_ns.saturating_sub(pending.arrived_ns);
                let count = pending.count;
                self.statistics
                    .record_latency(pending.command, latency_ns, count);
            }
        }
        self.pending.clear();
        self.untimed_from = 0;
    }

    /// Reads the clock and divides the time since the last reading (SR1).
    fn read_clock(&mut self) -> u64 {
        let now_ns = self.now_ns();
        let spent_ns = now_ns.saturating_sub(self.last_reading_ns);
        // SR1.
        debug_assert_eq!(self.count_pending(), self.untimed);
        if let Some(share_ns) = spent_ns.checked_div(self.untimed) {
            for pending in &self.pending[self.untimed_from..] {
                let counters = &self.statistics.commands[usize::from(pending.command)];
                counters.calls.add(pending.count);
                counters.nanoseconds.add(share_ns * pending.count);
            }
            self.requests += self.untimed;
            self.untimed = 0;
        }
        self.untimed_from = self.pending.len();
        self.last_reading_ns = now_ns;
        now_ns
    }

    /// A command begins.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        spec: &CommandSpec,
        request: Request<'_>,
        settings: &Settings,
    ) -> Timing {
        self.begin_of(spec.is_brief(), request.span_bytes(), settings)
    }

    /// Begins a request of `bytes`, of a command that is fast while they are few, or not.
    #[inline]
    pub(crate) fn begin_of(&mut self, is_fast: bool, bytes: usize, settings: &Settings) -> Timing {
        if is_fast && !times_each(settings) && bytes <= limits::UNTIMED_BYTES_MAX {
            Timing::Untimed
        } else {
            Timing::Since(self.read_clock())
        }
    }

    /// Ends a command after moving `moved_bytes`; returns its time in nanoseconds if known.
    #[inline]
    pub(crate) fn end(
        &mut self,
        command: u16,
        timing: Timing,
        moved_bytes: usize,
        arrived_ns: u64,
        settings: &Settings,
    ) -> Option<u64> {
        if timing == Timing::Untimed && moved_bytes <= limits::UNTIMED_BYTES_MAX {
            self.untimed += 1;
            match self.pending[self.untimed_from..].last_mut() {
                Some(last) if last.command == command && last.arrived_ns == arrived_ns => {
                    last.count += 1;
                }
                _ => self.push(command, arrived_ns, settings),
            }
            return None;
        }
        Some(self.end_timed(command, timing, arrived_ns, settings))
    }

    #[inline(never)]
    fn end_timed(
        &mut self,
        command: u16,
        timing: Timing,
        arrived_ns: u64,
        settings: &Settings,
    ) -> u64 {
        let since_ns = match timing {
            Timing::Untimed => {
                let since_ns = self.last_reading_ns;
                self.count_untimed();
                since_ns
            }
            // Commands of an EXEC have already shared the time before this reading.
            Timing::Since(since_ns) => since_ns,
        };
        let elapsed_ns = self.read_clock().saturating_sub(since_ns);
        self.requests += 1;
        let counters = &self.statistics.commands[usize::from(command)];
        counters.calls.add(1);
        counters.nanoseconds.add(elapsed_ns);
        self.push(command, arrived_ns, settings);
        self.untimed_from = self.pending.len();
        elapsed_ns
    }

    /// The commands since the last reading of the clock (SR1).
    fn count_pending(&self) -> u64 {
        let since = self.pending[self.untimed_from..].iter();
        since.map(|pending| pending.count).sum()
    }

    /// Counts the untimed commands without a share of the time, which belongs to another.
    fn count_untimed(&mut self) {
        for pending in &self.pending[self.untimed_from..] {
            self.statistics.commands[usize::from(pending.command)]
                .calls
                .add(pending.count);
        }
        self.requests += self.untimed;
        self.untimed = 0;
        self.untimed_from = self.pending.len();
    }

    /// Notes a command whose latency is to be recorded, up to a bounded number.
    fn push(&mut self, command: u16, arrived_ns: u64, settings: &Settings) {
        self.pending.push(Pending {
            command,
            arrived_ns,
            count: 1,
        });
        if self.pending.len() >= limits::PENDING_LATENCIES_MAX {
            let now_ns = self.read_clock();
            self.record_latencies(now_ns, settings);
        }
    }

    /// Withdraws the latency of the command that has just ended: it continues in slices.
    pub(crate) fn postpone(&mut self) {
        self.read_clock();
        if let Some(last) = self.pending.last_mut() {
            last.count -= 1;
            if last.count == 0 {
                self.pending.pop();
            }
        }
        self.untimed_from = self.pending.len();
    }

    /// The command passed to [`Self::postpone`] has had its last slice, after `busy_ns` of work.
    pub(crate) fn finish_slices(&mut self, command: u16, busy_ns: u64, arrived_ns: u64) {
        self.statistics.commands[usize::from(command)]
            .nanoseconds
            .add(busy_ns);
        self.read_clock();
        self.pending.push(Pending {
            command,
            arrived_ns,
            count: 1,
        });
        self.untimed_from = self.pending.len();
    }
}

#[cfg(test)]
mod tests {
    use pando_protocol::RequestBuffer;
    use pando_protocol::command::{self, KeyCommand, StringCommand};

    use super::*;
    use crate::config::Config;
    use crate::testing::Shell;

    const GET: u16 = StringCommand::Get.id().number() as u16;
    const KEYS: u16 = KeyCommand::Keys.id().number() as u16;

    fn nanoseconds(shell: &Shell, number: u16) -> u64 {
        shell.shared.figures().commands[usize::from(number)].nanoseconds
    }

    fn waited(shell: &Shell, number: u16) -> u64 {
        let figures = shell.shared.figures();
        let latencies = &figures.commands[usize::from(number)].latencies;
        latencies
            .as_ref()
            .map_or(0, crate::histogram::Counts::total)
    }

    fn timing(shell: &mut Shell, arguments: &[Vec<u8>]) -> Timing {
        let request = RequestBuffer::from_args(arguments);
        let spec = command::lookup(&arguments[0]).expect("it is in the table");
        let settings = &shell.shared.settings;
        shell.recorder.begin(spec, request.as_request(), settings)
    }

    #[test]
    fn only_what_may_be_slow_is_timed_by_itself() {
        let mut shell = Shell::new(Config::default());
        let get = [b"GET".to_vec(), b"k".to_vec()];
        assert_eq!(timing(&mut shell, &get), Timing::Untimed);
        let big = [
            b"SET".to_vec(),
            b"k".to_vec(),
            vec![0; limits::UNTIMED_BYTES_MAX],
        ];
        for arguments in [&[b"KEYS".to_vec(), b"*".to_vec()][..], &big] {
            assert!(matches!(timing(&mut shell, arguments), Timing::Since(_)));
        }
        for (setting, timed) in [
            ("slowlog-log-slower-than 0", true),
            ("slowlog-log-slower-than 999", true),
            ("slowlog-log-slower-than 1000", false),
            ("slowlog-log-slower-than -1", false),
            ("latency-monitor-threshold 1", true),
        ] {
            shell.ask(&format!("CONFIG SET {setting}"));
            let timing = timing(&mut shell, &get);
            assert_eq!(matches!(timing, Timing::Since(_)), timed, "{setting}");
        }
    }

    #[test]
    fn untimed_commands_share_the_time_between_two_readings() {
        let mut shell = Shell::new(Config::default());
        let Shell {
            shared, recorder, ..
        } = &mut shell;
        let begin_ns = recorder.begin_batch();
        for _ in 0..10 {
            assert_eq!(
                recorder.end(GET, Timing::Untimed, 0, begin_ns, &shared.settings),
                None
            );
        }
        recorder.end_execution();
        let spent_ns = recorder.last_reading_ns - begin_ns;
        recorder.end_batch(shared);
        assert_eq!(nanoseconds(&shell, GET), spent_ns / 10 * 10);
        assert_eq!(waited(&shell, GET), 10);
    }

    #[test]
    fn a_fast_command_that_moved_much_is_timed_afterwards() {
        let mut shell = Shell::new(Config::default());
        let Shell {
            shared, recorder, ..
        } = &mut shell;
        let begin_ns = recorder.begin_batch();
        let moved = limits::UNTIMED_BYTES_MAX + 1;
        let elapsed_ns = recorder.end(GET, Timing::Untimed, moved, begin_ns, &shared.settings);
        assert_eq!(elapsed_ns, Some(recorder.last_reading_ns - begin_ns));
        recorder.end_batch(shared);
        assert_eq!(Some(nanoseconds(&shell, GET)), elapsed_ns);
    }

    #[test]
    fn a_command_in_slices_waits_until_its_last_one() {
        let mut shell = Shell::new(Config::default());
        let Shell {
            shared, recorder, ..
        } = &mut shell;
        let begin_ns = recorder.begin_batch();
        recorder.end(KEYS, Timing::Since(begin_ns), 0, begin_ns, &shared.settings);
        recorder.postpone();
        recorder.end_batch(shared);
        assert_eq!(waited(&shell, KEYS), 0);
        let before_ns = nanoseconds(&shell, KEYS);
        let Shell {
            shared, recorder, ..
        } = &mut shell;
        recorder.begin_batch();
        recorder.finish_slices(KEYS, 5_000, begin_ns);
        recorder.end_batch(shared);
        assert_eq!(
            (waited(&shell, KEYS), nanoseconds(&shell, KEYS)),
            (1, before_ns + 5_000)
        );
    }

    #[test]
    fn latencies_that_wait_are_bounded() {
        let mut shell = Shell::new(Config::default());
        let Shell {
            shared, recorder, ..
        } = &mut shell;
        let begin_ns = recorder.begin_batch();
        for _ in 0..=limits::PENDING_LATENCIES_MAX / 2 {
            for command in [GET, KEYS] {
                recorder.end(command, Timing::Untimed, 0, begin_ns, &shared.settings);
            }
        }
        assert_eq!(recorder.pending.len(), 2);
        let recorded = waited(&shell, GET) + waited(&shell, KEYS);
        assert_eq!(recorded, limits::PENDING_LATENCIES_MAX as u64);
    }
}
