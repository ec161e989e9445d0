//! The keeper: the thread that takes checkpoints, on request, by the size of the log, by time.
//!
//! | field | writer | under | reader |
//! |---|---|---|---|
//! | `state` | the keeper; BGSAVE, SAVE, SHUTDOWN SAVE | its mutex | the same, INFO, LASTSAVE |
//!
//! Whoever asks for a checkpoint gets one that begins after the request: what was written before is
//! in it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pando_db::{CheckpointOptions, CheckpointReport, Database};
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
    /// Checkpoints that were asked for, and how many of the requests are met or have failed.
    asked: u64,
    answered: u64,
    running_since: Option<Instant>,
    /// The error of the last one, if it failed.
    error: Option<String>,
    taken: u64,
    stop: bool,
}

/// What INFO says of checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeeperFigures {
    /// For how long one has been being taken.
    pub(crate) running_for: Option<Duration>,
    /// Why the last one failed, if it did.
    pub(crate) error: Option<String>,
    /// How many were taken.
    pub(crate) taken: u64,
}

impl Keeper {
    /// What INFO says.
    pub(crate) fn figures(&self) -> KeeperFigures {
        let state = lock(&self.state);
        KeeperFigures {
            running_for: state.running_since.map(|since| since.elapsed()),
            error: state.error.clone(),
            taken: state.taken,
        }
    }

    /// Asks for a checkpoint (BGSAVE); `false`: one is being taken, or was asked for.
    pub(crate) fn ask(&self) -> bool {
        let mut state = lock(&self.state);
        if state.running_since.is_some() || state.asked > state.answered {
            return false;
        }
        state.asked += 1;
        self.changed.notify_all();
        true
    }

    /// Asks for a checkpoint that begins now, and waits for its end (SAVE).
    pub(crate) fn take_now(&self) -> Result<(), String> {
        let mut state = lock(&self.state);
        // What is being taken began before.
        let wanted = state.asked.max(state.answered) + 1;
        state.asked = wanted;
        self.changed.notify_all();
        while state.answered < wanted && !state.stop {
            state = self.wait(state);
        }
        match &state.error {
            _ if state.answered < wanted => Err("the server stops".to_owned()),
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    fn wait<'s>(&self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        let waited = self.changed.wait(state);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the thread, in the middle of a checkpoint if need be.
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
        loop {
            let interval = Duration::from_millis(limits::KEEPER_MS);
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
            let asked = state.asked;
            if asked <= state.answered && !logged.is_due(shared, begun.elapsed()) {
                continue;
            }
            state.running_since = Some(Instant::now());
            drop(state);
            begun = Instant::now();
            logged = Logged::now(database);
            let result = take(database);
            let mut state = lock(&self.state);
            state.running_since = None;
            state.answered = asked.max(state.answered);
            match result {
                Ok(_) => {
                    state.taken += 1;
                    state.error = None;
                }
                Err(error) => state.error = Some(error),
            }
            self.changed.notify_all();
        }
    }
}

/// How far the log and the keyspace were when the last checkpoint began.
#[derive(Debug)]
struct Logged {
    written_bytes: u64,
    /// Bytes of log that were replayed at the start, which count as written since.
    before_bytes: u64,
    commits: u64,
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
            written_bytes: database.log_statistics().unwrap_or_default().written_bytes,
            before_bytes: 0,
            commits: database.statistics().commits,
        }
    }

    /// Whether it is time for a checkpoint; the last one began `elapsed` ago.
    fn is_due(&self, shared: &Shared, elapsed: Duration) -> bool {
        let (log_bytes_max, interval_s) = shared.settings.checkpoints();
        let now = Self::now(&shared.database);
        let logged = now.written_bytes - self.written_bytes + self.before_bytes;
        let changed = now.commits != self.commits || self.before_bytes > 0;
        (log_bytes_max > 0 && logged > log_bytes_max)
            || (interval_s > 0 && changed && elapsed >= Duration::from_secs(interval_s))
    }
}

fn take(database: &Database) -> Result<CheckpointReport, String> {
    let options = CheckpointOptions {
        threads: threads(),
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

/// Threads of a checkpoint: most cores are left to those who serve.
fn threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (cores / 4).clamp(1, limits::CHECKPOINT_THREADS_MAX)
}
