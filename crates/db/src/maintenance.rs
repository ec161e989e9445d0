//! The maintenance thread: log epochs, the tombstone horizon, expiry, deferred engine work.
//!
//! It works through a session of its own, so it passes a gate like everybody: a command that holds
//! all gates never meets half of its work. Each slice is bounded (`limits::EXPIRE_KEYS_MAX`,
//! `limits::MAINTAIN_STEPS_MAX`) and the gate is passed on between slices.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pando_engine::Point;

use crate::database::{Database, OpenError, lock};
use crate::limits;
use crate::session::SessionState;
use crate::turn::Turn;

/// The running thread; dropping it stops and joins it.
#[derive(Debug)]
pub(crate) struct Maintenance {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Stop {
    requested: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Waits for up to `limit`; whether the thread shall end.
    fn wait(&self, limit: Duration) -> bool {
        let requested = lock(&self.requested);
        let waited = self
            .changed
            .wait_timeout_while(requested, limit, |requested| !*requested);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Maintenance {
    pub(crate) fn start(database: &Arc<Database>) -> Result<Self, OpenError> {
        let stop = Arc::new(Stop::default());
        // A `Session` would keep the database alive: the thread owns the session's state only.
        let session = database.open_session()?;
        let database = Arc::downgrade(database);
        let thread = {
            let stop = Arc::clone(&stop);
            std::thread::Builder::new()
                .name("maintenance".into())
                .spawn(move || run(&database, session, &stop))?
        };
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        *lock(&self.stop.requested) = true;
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic there has been printed; there is nobody else to tell.
            let _ = thread.join();
        }
    }
}

fn run(database: &Weak<Database>, mut session: SessionState, stop: &Stop) {
    let interval = Duration::from_millis(limits::EPOCH_INTERVAL_MS);
    let (mut cursor, mut wait, mut ticked) = (0, interval, Instant::now());
    while !stop.wait(wait) {
        let Some(database) = database.upgrade() else {
            return;
        };
        // Not once a round: a busy thread would age epochs, by which WATCH measures its patience.
        if ticked.elapsed() >= interval {
            ticked = Instant::now();
            database.tick();
        }
        let more = slice(&database, &mut session, &mut cursor);
        wait = if more {
            Duration::from_millis(1)
        } else {
            interval
        };
    }
    if let Some(database) = database.upgrade() {
        database.close_session(&session);
    }
}

/// A tick and a round of slices through the caller's session; whether there is more to do at once.
pub(crate) fn round(database: &Database, session: &mut SessionState) -> bool {
    database.tick();
    let mut cursor = session.random.usize(..);
    slice(database, session, &mut cursor)
}

/// One round of bounded slices; whether there is more to do at once.
fn slice(database: &Database, session: &mut SessionState, cursor: &mut usize) -> bool {
    const SLICES: usize = 16;
    for _ in 0..SLICES {
        let expired = expire(database, session, cursor);
        let maintained = Turn::begin(database, session).maintain(limits::MAINTAIN_STEPS_MAX);
        if expired == 0 && maintained == 0 {
            return false;
        }
    }
    true
}

/// Removes up to `limits::EXPIRE_KEYS_MAX` due keys; how many entries it took.
fn expire(database: &Database, session: &mut SessionState, cursor: &mut usize) -> usize {
    if !database.active_expire() || database.paused_until(true).is_some() {
        return 0;
    }
    let mut turn = Turn::begin(database, session);
    let mut keyspace = turn.keyspace(0);
    let now = keyspace.now();
    let due = database
        .expiry
        .take_due(now, cursor, limits::EXPIRE_KEYS_MAX);
    for (tree, _, key) in &due {
        keyspace.expire(*tree, key);
    }
    due.len()
}

impl Database {
    /// Begins a log epoch and lets tombstones go that no WATCH needs any more.
    fn tick(&self) {
        self.epochs.tick();
        let current = self.epochs.current();
        self.epochs.set_horizon(self.watch_horizon.oldest(current));
    }
}

impl Turn<'_> {
    fn maintain(&mut self, steps: usize) -> usize {
        self.session_mut().store.maintain(steps)
    }
}
