//! The background threads: maintenance (the tombstone horizon, expiry, deferred engine work), and
//! with a log the epoch thread.
//!
//! Maintenance works through its own session, so it takes a gate like everybody: a command that
//! holds all gates never sees half of its work. Each slice is bounded (`limits::EXPIRE_KEYS_MAX`,
//! `limits::MAINTAIN_STEPS_MAX`) and the gate is released between slices.

use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use pando_durability::log::Due;
use pando_engine::{Direction, Point};
use pando_sync::lock;

use crate::background::{Background, Stop};
use crate::branches::Expirer;
use crate::database::Database;
use crate::epoch_log::EpochLog;
use crate::eviction::{evict_ahead, tidy};
use crate::expiry::Of;
use crate::limits;
use crate::session_state::SessionState;
use crate::store::Listing;
use crate::turn::Turn;

/// Starts the threads; `session` is the maintenance thread's.
pub(crate) fn start(
    database: &Arc<Database>,
    session: SessionState,
) -> std::io::Result<Background> {
    let log = database.acknowledgement.log().cloned();
    // A `Session` would keep the database alive: the thread owns only the session's state.
    let database = Arc::downgrade(database);
    let mut threads = Background::default();
    if let Some(log) = log {
        let database = Weak::clone(&database);
        threads.spawn("epochs", move |stop| end_epochs(&database, &log, stop))?;
    }
    threads.spawn("maintenance", move |stop| run(&database, session, stop))?;
    Ok(threads)
}

/// Ends epochs: when somebody waits for the disk, and from time to time when something was written.
fn end_epochs(database: &Weak<Database>, log: &EpochLog, stop: &Stop) {
    let interval = Duration::from_millis(limits::LOG_INTERVAL_MS);
    // Workers end epochs, too: durability, not this thread's ticks, shows writes.
    let (mut durable, mut since) = (log.durable(), Instant::now());
    loop {
        let due = log.wait_until_due(interval);
        let Some(database) = database.upgrade() else {
            return;
        };
        if due == Due::Stopped || stop.wait(Duration::ZERO) {
            return;
        }
        if due == Due::Wanted || log.has_open_writes() {
            database.end_epoch();
        }
        let now = log.durable();
        if now != durable {
            (durable, since) = (now, Instant::now());
        } else if since.elapsed() >= Duration::from_millis(limits::LOG_REST_MS) {
            if let Some(files) = log.files() {
                files.rest();
            }
            since = Instant::now();
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
        // Not once per pass: WATCH measures its patience by it.
        if ticked.elapsed() >= interval {
            ticked = Instant::now();
            database.tick();
        }
        let more = slice(&database, &mut session, &mut cursor);
        // A backlog is memory: it is processed as fast as writers produce it, with gates released
        // in between.
        wait = if more { Duration::ZERO } else { interval };
    }
    if let Some(database) = database.upgrade() {
        database.close_session(&session);
    }
}

/// A tick and a round of slices through the caller's session; returns whether there is more to do
/// at once.
pub(crate) fn round(database: &Database, session: &mut SessionState) -> bool {
    database.tick();
    let mut cursor = session.random.usize(..);
    slice(database, session, &mut cursor)
}

/// One round of bounded slices; returns whether there is more to do at once.
fn slice(database: &Database, session: &mut SessionState, cursor: &mut usize) -> bool {
    const SLICES: usize = 16;
    // It is a write: it waits like the others.
    if database.takes_writes() && database.take_due_flush() {
        let mut turn = Turn::begin(database, session);
        // If the write of a flush is refused, all writes are: there is nobody to tell.
        let _ = turn.flush(0);
    }
    let mut turn = Turn::begin(database, session);
    let dropped = turn.drop_overdue_snapshot() | turn.settle_snapshots() | turn.drop_unfinished();
    drop(turn);
    expire_on_branches(database, session);
    for _ in 0..SLICES {
        let expired = expire(database, session, cursor);
        let maintained = Turn::begin(database, session).maintain(limits::MAINTAIN_STEPS_MAX);
        let freed = database.expiry.free_dropped(limits::DROPPED_ENTRIES_MAX);
        let filled = fill_expiry_index(database, session);
        let evicted = evict_keys(database, session);
        let tidied = match evicted {
            0 => tidy(database, Turn::begin(database, session).session_mut()),
            _ => 0,
        };
        if [expired, maintained, freed, filled, evicted, tidied] == [0; 6] {
            return dropped;
        }
    }
    true
}

/// Whether keys are removed for their deadlines. They stay hidden while there is no memory for
/// their images.
fn may_expire(database: &Database) -> bool {
    !database.snapshots.is_full() && database.active_expire() && database.takes_writes()
}

/// Removes up to `limits::EXPIRE_KEYS_MAX` due keys, and the due fields of as many hashes; returns
/// how many entries it took.
fn expire(database: &Database, session: &mut SessionState, cursor: &mut usize) -> usize {
    if !may_expire(database) {
        return 0;
    }
    let mut turn = Turn::begin(database, session);
    let mut keyspace = turn.keyspace(0);
    let now = keyspace.now();
    let most = limits::EXPIRE_KEYS_MAX;
    let due = database.expiry.keys.take_due(now, cursor, most);
    for (tree, _, key) in &due {
        keyspace.expire(*tree, key);
    }
    let hashes = database.expiry.fields.take_due(now, cursor, most);
    for (tree, _, key) in &hashes {
        keyspace.expire_fields(*tree, key);
    }
    due.len() + hashes.len()
}

/// Lists some of the keys with a deadline, after a start or a rollback; how many.
fn fill_expiry_index(database: &Database, session: &mut SessionState) -> usize {
    if !database.is_listing_deadlines() {
        return 0;
    }
    database.fill_expiry_index(Turn::begin(database, session).session_mut())
}

/// Removes what is due among the next `limits::EXPIRE_LOOKS_MAX` keys of branches. A key that a
/// branch has from another is in no index there: an entry for each branch would cost more than the
/// key itself, whose page they share. O(log keys) for each that is due.
fn expire_on_branches(database: &Database, session: &mut SessionState) {
    let has_deadlines = Of::BOTH
        .iter()
        .any(|of| !database.expiry.by(*of).is_unused());
    if !has_deadlines || database.branches.len() == 1 || !may_expire(database) {
        return;
    }
    let mut turn = Turn::begin(database, session);
    let mut keyspace = turn.keyspace(0);
    let now = keyspace.now();
    let mut at = lock(&database.branches.expirer);
    let mut looks = 0;
    while looks < limits::EXPIRE_LOOKS_MAX {
        let Some((place, tree)) = database.branches.tree_from(at.place) else {
            // Once around at most: from the first branch on in the next round.
            *at = Expirer::default();
            return;
        };
        if place != at.place {
            at.after = None;
        }
        let after = at.after.take();
        let from = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut due = Vec::new();
        let mut last = None;
        let Listing::Ordered(mut keys) = keyspace.session.store.listing() else {
            return;
        };
        keys.scan_all(tree, from, Direction::Forward, |key, value| {
            looks += 1;
            let has_passed = |of: &Of| {
                let deadline = value.as_ref().and_then(|value| of.deadline(value));
                deadline.is_some_and(|deadline| deadline.has_passed(now))
            };
            let of = Of::BOTH.into_iter().find(has_passed);
            due.extend(of.map(|of| (of, key.to_vec())));
            if looks < limits::EXPIRE_LOOKS_MAX {
                return ControlFlow::Continue(());
            }
            last = Some(key.to_vec());
            ControlFlow::Break(())
        });
        for (of, key) in due {
            match of {
                Of::Key => _ = keyspace.expire(tree, &key),
                Of::Field => keyspace.expire_fields(tree, &key),
            }
        }
        looks += 1;
        let beyond = usize::from(last.is_none());
        *at = Expirer {
            place: (place.0, place.1 + beyond),
            after: last,
        };
    }
}

/// Removes keys if memory is short, so that a lower limit is reached without writers; returns how
/// many, and how many it has passed for that.
fn evict_keys(database: &Database, session: &mut SessionState) -> usize {
    if !database.is_short() {
        return 0;
    }
    let mut turn = Turn::begin(database, session);
    if turn.give_up_snapshot() {
        return 1;
    }
    turn.evict()
}

impl Database {
    /// Begins a round: without a log an epoch, and purges tombstones that nobody needs any more.
    fn tick(&self) {
        if !self.is_durable() {
            self.end_epoch();
        }
        self.adjust_eviction();
        let now = self.options.clock.now().milliseconds();
        self.memory.ages.tick(self.epochs.current(), now);
        self.allow_decay(now);
        let buried_bytes = self.statistics().buried_bytes;
        let most = self.watch_buried_bytes_max();
        let horizon = self.watch_horizon.advance(&self.epochs, buried_bytes, most);
        // A crash may undo a removal that is not durable: a client of `sync` that misses the key
        // must find the tombstone, to know what to wait for (AK4 sync-waits).
        let durable = self.durable().next();
        self.epochs.set_horizon(horizon.min(durable));
    }
}

impl Turn<'_> {
    fn evict(&mut self) -> usize {
        let evicted = evict_ahead(self.database(), self.session_mut());
        evicted.keys + evicted.emptying_steps
    }

    fn maintain(&mut self, steps: usize) -> usize {
        self.session_mut().store.maintain(steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use crate::commands::testing::Shell;

    /// A shell whose maintenance the test runs.
    fn shell() -> Shell {
        let shell = Shell::new();
        shell.database.close();
        shell.database.set_active_expire(true);
        shell
    }

    fn fill_with_due_keys(shell: &mut Shell, keys: usize) {
        for key in 0..keys {
            shell.line(&format!("SET k{key} v PX 1"));
        }
        shell.pass_ms(1);
    }

    #[test]
    fn due_keys_go_in_bounded_slices() {
        let mut shell = shell();
        let most = limits::EXPIRE_KEYS_MAX;
        fill_with_due_keys(&mut shell, 2 * most + 1);
        let database = Arc::clone(&shell.database);
        let mut state = database.open_session().expect("a session is free");
        let mut taken = || expire(&database, &mut state, &mut 0);
        assert_eq!([taken(), taken(), taken(), taken()], [most, most, 1, 0]);
        assert_eq!(
            (database.expiring_keys(), database.summary(0)),
            (0, (0, 0, 0))
        );
        database.close_session(&state);
    }

    #[test]
    fn a_round_says_whether_there_is_more() {
        let mut shell = shell();
        let slices = 16;
        fill_with_due_keys(&mut shell, slices * limits::EXPIRE_KEYS_MAX + 1);
        let mut session = shell.database.session().expect("a session is free");
        assert!(session.maintain());
        assert_eq!(shell.line("DBSIZE"), ":1");
        while session.maintain() {}
        assert_eq!(shell.line("DBSIZE"), ":0");
    }

    #[test]
    fn the_index_of_a_flushed_database_is_freed() {
        let mut shell = shell();
        fill_with_due_keys(&mut shell, 3);
        assert_eq!(
            (shell.line("FLUSHALL"), shell.database.expiring_keys()),
            ("+OK".into(), 0)
        );
        let mut session = shell.database.session().expect("a session is free");
        while session.maintain() {}
        assert_eq!(shell.database.expiry.free_dropped(1), 0);
    }

    #[test]
    fn a_tick_lets_tombstones_go() {
        let mut shell = shell();
        shell.check(&[("SET k 1", "+OK"), ("DEL k", ":1")]);
        let mut session = shell.database.session().expect("a session is free");
        let tombstones = |shell: &Shell| {
            let mut count = None;
            shell.database.gauges(&mut |gauge| {
                if gauge.name == "tombstones" {
                    count = Some(gauge.value);
                }
            });
            count
        };
        assert_eq!(tombstones(&shell), Some(1.0));
        shell.connect().line("WATCH absent");
        session.maintain();
        assert_eq!(tombstones(&shell), Some(1.0), "the WATCH may need it");
        let mut watcher = shell.connect();
        watcher.check(&[("WATCH absent", "+OK"), ("UNWATCH", "+OK")]);
        for _ in 0..limits::WATCH_AGE_MAX_ROUNDS + 3 {
            session.maintain();
        }
        assert_eq!(tombstones(&shell), Some(0.0));
    }

    /// An idle WATCH must not hold back so many of them that memory runs short.
    #[test]
    fn a_watch_holds_back_so_many_bytes_of_tombstones() {
        let mut shell = shell();
        let most = 16 * 1024;
        shell.database.set_max_memory(16 * most);
        let mut watcher = shell.connect();
        watcher.line("WATCH absent");
        let held = shell.database.epochs.current();
        let mut session = shell.database.session().expect("a session is free");
        let mut remove = |key: &str| {
            shell.check(&[
                (&format!("SET {key} 1"), "+OK"),
                (&format!("DEL {key}"), ":1"),
            ]);
            session.maintain();
            session.maintain();
            shell.database.epochs.horizon() <= held
        };
        assert!(remove("short"));
        let long = "k".repeat(most / 2);
        assert!(remove(&long), "most of it, but not all");
        assert!(!remove(&long));
        watcher.check(&[("MULTI", "+OK"), ("EXEC", "*-1")]);
    }

    /// The thread does not keep the database alive, and may be the one that drops it.
    #[test]
    fn the_thread_ends_with_the_database() {
        for closes in [0, 1, 2] {
            let database = Database::open(Options::default()).expect("the options are valid");
            let weak = Arc::downgrade(&database);
            for _ in 0..closes {
                database.close();
            }
            drop(database);
            // The thread may hold the database for the rest of a round.
            while weak.strong_count() > 0 {
                std::thread::yield_now();
            }
        }
    }
}
