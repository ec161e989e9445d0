//! The keeper: the thread that takes checkpoints. It does so on request, when the log is as large
//! as the data or has taken half of the space it can have, by time, and when the log has no space,
//! since a checkpoint may free some. It reports when writes are refused for that reason.
//!
//! | field | writer | under | reader |
//! |---|---|---|---|
//! | `state` | the keeper; BGSAVE, SAVE, SHUTDOWN SAVE | its mutex | the same, INFO, LASTSAVE |
//!
//! A request gets a checkpoint that begins after it, so earlier writes are in the checkpoint.
//! Requests are numbered. When one is met or has failed, all workers are woken to answer the
//! clients that wait for it (SAVE).

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pando_db::{CheckpointOptions, CheckpointReport, Database, LogState, Pace};
use tracing::{info, warn};

use crate::limits;
use crate::shared::{Shared, lock};

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The number of requested checkpoints, and how many requests are met or have failed.
    asked: u64,
    answered: u64,
    running_since: Option<Instant>,
    /// The error of the last one, if it failed.
    error: Option<String>,
    taken: u64,
    failed: u64,
    /// Commits when the last successful one began.
    commits: u64,
    /// The server is about to stop: no rests.
    hurry: bool,
    stop: bool,
}

/// INFO's facts about checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeeperFigures {
    /// For how long one has been in progress.
    pub(crate) running_for: Option<Duration>,
    /// Why the last one failed, if it did.
    pub(crate) error: Option<String>,
    /// How many were taken.
    pub(crate) taken: u64,
    /// How many were begun and failed.
    pub(crate) failed: u64,
    /// Commits that the last one certainly contains; later ones may be in it, too.
    pub(crate) commits: u64,
}

impl Keeper {
    /// What INFO says.
    pub(crate) fn figures(&self) -> KeeperFigures {
        let state = lock(&self.state);
        KeeperFigures {
            running_for: state.running_since.map(|since| since.elapsed()),
            error: state.error.clone(),
            taken: state.taken,
            failed: state.failed,
            commits: state.commits,
        }
    }

    /// Requests a checkpoint (BGSAVE); `false`: one is in progress or already requested.
    pub(crate) fn ask(&self) -> bool {
        let mut state = lock(&self.state);
        if state.running_since.is_some() || state.asked > state.answered {
            return false;
        }
        state.asked += 1;
        self.changed.notify_all();
        true
    }

    /// Requests a checkpoint that begins now (SAVE); returns the request's number.
    pub(crate) fn ask_now(&self) -> u64 {
        let mut state = lock(&self.state);
        // The one in progress began earlier.
        state.asked = state.asked.max(state.answered) + 1;
        self.changed.notify_all();
        state.asked
    }

    /// The outcome of a request, if it is met: of the last checkpoint, if there was another since.
    pub(crate) fn answer(&self, request: u64) -> Option<Result<(), String>> {
        lock(&self.state).answer(request)
    }

    /// Requests a checkpoint that begins now, without rests, and waits for its end (SHUTDOWN SAVE).
    pub(crate) fn take_last(&self) -> Result<(), String> {
        lock(&self.state).hurry = true;
        let request = self.ask_now();
        let mut state = lock(&self.state);
        loop {
            if let Some(answer) = state.answer(request) {
                // It may have failed, and the server continues.
                state.hurry = false;
                return answer;
            }
            state = self.wait(state);
        }
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        let waited = self.changed.wait(state);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the thread, in the middle of a checkpoint if necessary.
    pub(crate) fn stop(&self, database: &Database) {
        lock(&self.state).stop = true;
        self.changed.notify_all();
        database.stop_checkpoint();
    }

    /// The thread's work.
    pub(crate) fn run(&self, shared: &Shared) {
        let database = &shared.database;
        let mut begun = Instant::now();
        let mut logged = Logged::at_start(database);
        let mut rescue = Rescue::default();
        loop {
            let interval = logged.next_look(database);
            let state = lock(&self.state);
            let idle = |state: &mut State| !state.stop && state.asked <= state.answered;
            let waited = self.changed.wait_timeout_while(state, interval, idle);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.stop {
                return;
            }
            for note in database.take_log_notes() {
                warn!("{note}");
            }
            shared.look_at_log();
            let asked = state.asked;
            let is_asked = asked > state.answered;
            let commits = database.statistics().commits;
            let is_due = rescue.is_due(database.log_state(), commits, Instant::now())
                || logged.is_due(shared, begun.elapsed());
            if !is_asked && !is_due {
                continue;
            }
            assert!(state.running_since.is_none() && state.answered <= asked);
            state.running_since = Some(Instant::now());
            let hurry = state.hurry;
            drop(state);
            begun = Instant::now();
            logged = Logged::now(database);
            let result = take(shared, hurry);
            let mut state = lock(&self.state);
            state.running_since = None;
            state.answered = asked.max(state.answered);
            match result {
                Ok(_) => {
                    state.taken += 1;
                    state.commits = logged.commits;
                    state.error = None;
                }
                Err(error) => {
                    state.failed += 1;
                    state.error = Some(error);
                    rescue.give_up();
                }
            }
            self.changed.notify_all();
            drop(state);
            shared.wake_workers();
        }
    }
}

impl State {
    fn answer(&self, request: u64) -> Option<Result<(), String>> {
        if self.answered < request {
            return self.stop.then(|| Err("the server stops".to_owned()));
        }
        Some(self.error.clone().map_or(Ok(()), Err))
    }
}

/// What to do when the log has no space: checkpoints that free segments, until there is space or
/// one fails. From then on one now and then, since the disk may have got the space that a
/// checkpoint needs, and soon after a removal, since the checkpoint may need less.
#[derive(Debug, Default)]
struct Rescue {
    is_full: bool,
    /// How many may begin at once.
    left: usize,
    /// When the last one began.
    begun: Option<Instant>,
    /// Commits by then.
    commits: u64,
}

impl Rescue {
    /// Whether a checkpoint should be taken now; reports when the log becomes full, and when it no
    /// longer is.
    fn is_due(&mut self, log: Option<LogState>, commits: u64, now: Instant) -> bool {
        let Some(LogState::Full { reason }) = log else {
            if std::mem::take(self).is_full {
                info!("the log has space again: writes are accepted");
            }
            return false;
        };
        if !self.is_full {
            warn!(
                %reason,
                "the log has no space: writes wait, and are refused if no checkpoint frees any"
            );
            self.is_full = true;
            self.left = limits::RESCUES_AT_ONCE;
        }
        let rest = Duration::from_millis(if commits == self.commits {
            limits::RESCUE_RETRY_MS
        } else {
            limits::RESCUE_AGAIN_MS
        });
        let rested = self.begun.is_some_and(|begun| now >= begun + rest);
        let due = self.left > 0 || rested;
        if due {
            self.left = self.left.saturating_sub(1);
            self.begun = Some(now);
            self.commits = commits;
        }
        due
    }

    /// One failed: the next one would, too, until something else changes.
    fn give_up(&mut self) {
        self.left = 0;
    }
}

/// The state of the log and the keyspace when the last checkpoint began.
#[derive(Debug)]
struct Logged {
    written_bytes: u64,
    /// Bytes of log replayed at the start, which count as written since.
    before_bytes: u64,
    commits: u64,
    /// Bytes written at the last check, when the log has little space.
    seen_bytes: u64,
}

impl Logged {
    fn at_start(database: &Database) -> Self {
        Self {
            before_bytes: database.recovery().map_or(0, |found| found.replayed_bytes),
            ..Self::now(database)
        }
    }

    fn now(database: &Database) -> Self {
        Self {
            written_bytes: written_bytes(database),
            before_bytes: 0,
            commits: database.statistics().commits,
            seen_bytes: 0,
        }
    }

    /// How long the keeper may sleep: a small volume fills up quickly.
    fn next_look(&mut self, database: &Database) -> Duration {
        let written = written_bytes(database);
        let grows = std::mem::replace(&mut self.seen_bytes, written) != written;
        let room = database.log_room().map_or(u64::MAX, |room| room.spare());
        let quick = grows && room < limits::SMALL_ROOM_BYTES;
        Duration::from_millis(if quick {
            limits::KEEPER_SMALL_ROOM_MS
        } else {
            limits::KEEPER_MS
        })
    }

    /// Whether it is time for a checkpoint; the last one began `elapsed` ago.
    fn is_due(&self, shared: &Shared, elapsed: Duration) -> bool {
        let (log_bytes_max, interval_s) = shared.settings.checkpoints();
        let database = &shared.database;
        let now = Self::now(database);
        let logged = now.written_bytes - self.written_bytes + self.before_bytes;
        let changed = now.commits != self.commits || self.before_bytes > 0;
        let room = database.log_room();
        let data = room.map_or(0, |room| room.checkpoint);
        let log_bytes = data.clamp(log_bytes_max / 4, log_bytes_max);
        // A little log is not worth writing all data. On a volume of its own, the log has little
        // space besides what the older checkpoint needs.
        let is_short = room.is_some_and(|room| {
            let worth = if room.shared {
                u64::MAX
            } else {
                room.spare() / 4
            };
            room.is_short() && logged > worth.min(data / 8)
        });
        (log_bytes_max > 0 && logged > log_bytes)
            || is_short
            || (interval_s > 0 && changed && elapsed >= Duration::from_secs(interval_s))
    }
}

fn written_bytes(database: &Database) -> u64 {
    database.log().map_or(0, |log| log.written_bytes())
}

fn take(shared: &Shared, hurry: bool) -> Result<CheckpointReport, String> {
    let database = &shared.database;
    let pace = Pace {
        share_percent: shared.settings.checkpoint_share_percent(),
        ..Pace::default()
    };
    let options = CheckpointOptions {
        threads: threads(database.checkpoint_directories()),
        pace: if hurry { Pace::FULL } else { pace },
        ..CheckpointOptions::default()
    };
    match database.checkpoint(&options) {
        Ok(report) => {
            info!(
                keys = report.entries,
                bytes = report.bytes,
                milliseconds = report.took_us / 1000,
                log_files_freed = report.recycled,
                "checkpoint taken"
            );
            Ok(report)
        }
        Err(error) => {
            warn!(%error, "no checkpoint was taken");
            Err(error.to_string())
        }
    }
}

/// Threads of a checkpoint in this many directories: one for each, so that no disk waits for
/// another; otherwise most cores are left to serving.
fn threads(directories: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / 4).clamp(
        directories.max(1),
        limits::CHECKPOINT_THREADS_MAX.max(directories),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rescues_go_on_while_the_log_is_full() {
        let full = || {
            let reason = "no room".to_owned();
            Some(LogState::Full { reason })
        };
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut rescue = Rescue::default();
        assert!(!rescue.is_due(None, 0, start) && !rescue.is_due(Some(LogState::Open), 0, start));
        // What the first makes obsolete may be removed with the second.
        assert!((0..limits::RESCUES_AT_ONCE).all(|_| rescue.is_due(full(), 0, start)));
        assert!(!rescue.is_due(full(), 0, after(limits::RESCUE_RETRY_MS - 1)));
        assert!(rescue.is_due(full(), 0, after(limits::RESCUE_RETRY_MS)));
        rescue.give_up();
        assert!(!rescue.is_due(full(), 0, after(2 * limits::RESCUE_RETRY_MS - 1)));
        assert!(rescue.is_due(full(), 0, after(2 * limits::RESCUE_RETRY_MS)));
        // Starts anew once the log has had space.
        assert!(!rescue.is_due(Some(LogState::Open), 0, after(2 * limits::RESCUE_RETRY_MS)));
        assert!(rescue.is_due(full(), 0, after(2 * limits::RESCUE_RETRY_MS)));
        rescue.give_up();
        assert!(!rescue.is_due(full(), 0, after(2 * limits::RESCUE_RETRY_MS + 1)));
        // Keys removed meanwhile need not be written.
        let soon = 2 * limits::RESCUE_RETRY_MS + limits::RESCUE_AGAIN_MS;
        assert!(!rescue.is_due(full(), 1, after(soon - 1)));
        assert!(rescue.is_due(full(), 1, after(soon)));
        rescue.give_up();
        assert!(!rescue.is_due(full(), 1, after(soon + limits::RESCUE_AGAIN_MS)));
    }
}
