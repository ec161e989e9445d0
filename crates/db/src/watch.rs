//! WATCH: what a client saw of its keys, and whether it has changed since.
//!
//! A watched key is remembered as (database, version or absent). Absence is told apart from *came
//! and went* by the tombstone that a removal leaves: while a client watches an absent key, the
//! tombstone horizon stays at the epoch of the WATCH. A key that has expired is removed when it is
//! watched, as the expirer would do it, and watched as absent.
//!
//! A tombstone tells of one tree only, so FLUSHDB, FLUSHALL and SWAPDB look at all watched keys of
//! their databases ([`Database::change_trees`]): those that have changed by then, or that stand in
//! the tree that goes or in the one that comes, break their client's transaction; the others are
//! watched anew in the tree that comes. O(watched keys), under all gates, as in Redis.
//!
//! | field | writer | lock | reader |
//! |---|---|---|---|
//! | `Watches::shared` | its client; who changes trees, under all gates | its mutex | the same |
//! | `Watchers::clients` | a client's first WATCH | its mutex | who changes trees |
//! | `WatchHorizon::state` | WATCH of an absent key; maintenance | its mutex | the same |
//!
//! The locks are taken in this order.
//!
//! Invariants:
//! - **W1** A key watched as absent in epoch `e` is unchanged if it is absent without a tombstone,
//!   and the horizon has not passed `e` (a removal since would have left a tombstone of epoch ≥
//!   `e`, which stands until the horizon passes it).
//! - **W2** The horizon waits for a WATCH at most for `limits::WATCH_AGE_MAX_MS`, and at most for
//!   `limits::WATCH_BURIED_BYTES_MAX` of tombstones, less when memory is short; a transaction
//!   that comes later is refused if W1 can no longer tell (the client tries again, as after any
//!   conflict).
//! - **W3** A doubt is a change: a transaction may be refused for nothing, never run on what has
//!   changed.
//! - **W4** What is remembered of a key speaks of the tree that its database has.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};

use pando_engine::{EpochClock, Key, LogEpoch, Point, Probe, ValueVersion};
use pando_sync::lock;

use crate::clock::Milliseconds;
use crate::database::Database;
use crate::keyspace::Keyspace;
use crate::limits;
use crate::session::SessionState;

/// What stood at a key when it was watched.
#[derive(Clone, Copy, Debug)]
enum Seen {
    /// A live value of this version.
    Live(ValueVersion),
    /// A value past its deadline that could not be removed: no write was allowed (CLIENT PAUSE).
    Expired(ValueVersion),
    /// Nothing, or a tombstone of this version, in this epoch.
    Absent {
        tombstone: Option<ValueVersion>,
        epoch: LogEpoch,
    },
}

/// Bytes that a watch takes beside its key.
const WATCH_BYTES: usize = size_of::<Box<[u8]>>() + size_of::<Seen>();

/// What one client watches, as others see it.
#[derive(Debug, Default)]
struct Watched {
    databases: BTreeMap<usize, HashMap<Box<[u8]>, Seen>>,
    /// A change of trees has met a key that has changed.
    broken: bool,
}

/// The keys that one client watches, by database.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// Made by the first WATCH, kept as long as the client.
    shared: Option<Arc<Mutex<Watched>>>,
    count: usize,
    bytes: usize,
}

impl Watches {
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes
    }

    /// Whether this many more keys of this many bytes may be watched.
    pub(crate) fn has_room(&self, keys: usize, bytes: usize) -> bool {
        self.count + keys <= limits::WATCHED_KEYS_MAX
            && self.bytes + keys * WATCH_BYTES + bytes <= limits::WATCHED_BYTES_MAX
    }

    /// Watches a key; one that is watched already keeps what was seen first. O(1).
    pub(crate) fn add(
        &mut self,
        database: &Database,
        session: &mut SessionState,
        index: usize,
        key: &[u8],
    ) {
        // Nothing ever stands at a key that is too long.
        if key.len() > pando_engine::limits::KEY_BYTES_MAX {
            return;
        }
        let shared = self.shared.get_or_insert_with(|| database.watchers.enter());
        let mut watched = lock(shared);
        let watches = watched.databases.entry(index).or_default();
        if watches.contains_key(key) {
            return;
        }
        let seen = look(database, session, index, key);
        self.count += 1;
        self.bytes += key.len() + WATCH_BYTES;
        watches.insert(key.into(), seen);
    }

    /// Forgets all watches.
    pub(crate) fn clear(&mut self, database: &Database) {
        let Some(shared) = self.shared.as_ref().filter(|_| self.count > 0) else {
            return;
        };
        let watched = std::mem::take(&mut *lock(shared));
        for seen in watched.databases.values().flat_map(HashMap::values) {
            seen.release(database);
        }
        (self.count, self.bytes) = (0, 0);
    }

    /// Whether any watched key has changed. The caller holds all gates.
    pub(crate) fn are_broken(&self, database: &Database, session: &mut SessionState) -> bool {
        let Some(shared) = self.shared.as_ref().filter(|_| self.count > 0) else {
            return false;
        };
        let watched = lock(shared);
        watched.broken
            || watched.databases.iter().any(|(index, watches)| {
                watches
                    .iter()
                    .any(|(key, seen)| seen.has_changed_at(database, session, *index, key))
            })
    }
}

/// All clients that have ever watched a key and are still there.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    clients: Mutex<Vec<Weak<Mutex<Watched>>>>,
}

impl Watchers {
    fn enter(&self) -> Arc<Mutex<Watched>> {
        let shared = Arc::default();
        let mut clients = lock(&self.clients);
        if clients.len() == clients.capacity() {
            // Before the list grows: so it holds no more than twice those that were there at once.
            clients.retain(|client| client.strong_count() > 0);
        }
        clients.push(Arc::downgrade(&shared));
        shared
    }

    /// Shows the watches of every client on the databases `indexes`, unless they are broken, to
    /// `judge`, which says whether the key has changed.
    fn each(&self, indexes: &[usize], mut judge: impl FnMut(usize, &[u8], &mut Seen) -> bool) {
        for client in lock(&self.clients).iter().filter_map(Weak::upgrade) {
            let Watched { databases, broken } = &mut *lock(&client);
            for index in indexes {
                let watches = databases.get_mut(index).into_iter().flatten();
                for (key, seen) in watches {
                    *broken = *broken || judge(*index, key, seen);
                }
            }
        }
    }
}

impl Database {
    /// Gives the databases `indexes` other trees, which `change` does. The caller holds all gates.
    pub(crate) fn change_trees(
        &self,
        session: &mut SessionState,
        indexes: &[usize],
        change: impl FnOnce(),
    ) {
        self.watchers.each(indexes, |index, key, seen| {
            // A key that is there goes with its tree.
            matches!(seen, Seen::Live(_)) || seen.has_changed_at(self, session, index, key)
        });
        change();
        self.watchers.each(indexes, |index, key, seen| {
            let before = std::mem::replace(seen, look(self, session, index, key));
            before.release(self);
            matches!(seen, Seen::Live(_))
        });
    }
}

/// Looks at a key that is to be watched.
fn look(database: &Database, session: &mut SessionState, index: usize, key: &[u8]) -> Seen {
    let tree = database.tree(index);
    let now = session.now_us / 1000;
    // Registered before the probe: the horizon stands still when the key is looked at (W1).
    let epoch = database.watch_horizon.hold(&database.epochs);
    let mut found = session.store.probe(Key::new(tree, key));
    if is_expired(found, now) && database.takes_writes() {
        Keyspace::new(database, session, index).expire(tree, key);
        found = session.store.probe(Key::new(tree, key));
    }
    let tombstone = match found {
        Probe::Present { version, .. } => {
            database.watch_horizon.release(epoch);
            return if is_expired(found, now) {
                Seen::Expired(version)
            } else {
                Seen::Live(version)
            };
        }
        Probe::Removed(version) => Some(version),
        Probe::Absent => None,
    };
    Seen::Absent { tombstone, epoch }
}

impl Seen {
    /// Whether `present` is not what was seen.
    fn has_changed(self, present: Probe, now: Milliseconds, horizon: LogEpoch) -> bool {
        match (self, present) {
            (Self::Live(seen), Probe::Present { version, .. }) => {
                seen != version || is_expired(present, now)
            }
            (Self::Expired(seen), Probe::Present { version, .. }) => seen != version,
            // The tombstone of an earlier removal may stand; a newer one may not.
            (Self::Absent { tombstone, .. }, Probe::Removed(version)) => tombstone != Some(version),
            // W1, W2.
            (Self::Absent { epoch, .. }, Probe::Absent) => horizon > epoch,
            // Expired and gone: perhaps written in between (W3).
            (Self::Live(_) | Self::Expired(_), _)
            | (Self::Absent { .. }, Probe::Present { .. }) => true,
        }
    }

    /// Whether the key has changed (W4).
    fn has_changed_at(
        self,
        database: &Database,
        session: &mut SessionState,
        index: usize,
        key: &[u8],
    ) -> bool {
        let present = session.store.probe(Key::new(database.tree(index), key));
        let now = session.now_us / 1000;
        self.has_changed(present, now, database.epochs.horizon())
    }

    /// Ends what `look` may have held.
    fn release(self, database: &Database) {
        if let Self::Absent { epoch, .. } = self {
            database.watch_horizon.release(epoch);
        }
    }
}

fn is_expired(probe: Probe, now: Milliseconds) -> bool {
    matches!(probe, Probe::Present { deadline: Some(at), .. } if at.0 <= now)
}

/// The epochs of all watches on absent keys.
#[derive(Debug, Default)]
pub(crate) struct WatchHorizon {
    state: Mutex<HorizonState>,
}

#[derive(Debug, Default)]
struct HorizonState {
    /// How many watches hold each epoch.
    held: BTreeMap<LogEpoch, usize>,
    /// Epochs from the horizon on, with the round of maintenance in which each was noted and the
    /// bytes that removals had left behind by then.
    epochs: VecDeque<(LogEpoch, u64, u64)>,
    /// Rounds of maintenance, by which patience is measured: epochs may be short.
    rounds: u64,
}

impl WatchHorizon {
    /// Holds the horizon at the current epoch, which it returns.
    fn hold(&self, clock: &EpochClock) -> LogEpoch {
        let mut state = lock(&self.state);
        // Read inside the lock: `advance` cannot pass this epoch before it is entered.
        let epoch = clock.current();
        *state.held.entry(epoch).or_default() += 1;
        epoch
    }

    /// Ends a hold; one that W2 has ended may be gone.
    fn release(&self, epoch: LogEpoch) {
        let mut state = lock(&self.state);
        if let Some(count) = state.held.get_mut(&epoch) {
            *count -= 1;
            if *count == 0 {
                state.held.remove(&epoch);
            }
        }
    }

    /// Where the horizon may go in this round of maintenance: to the oldest epoch that is held and
    /// that W2 still allows to be, else to the current one. `buried_bytes` is what removals
    /// have left behind so far, `most` of which a WATCH may hold back.
    pub(crate) fn advance(&self, clock: &EpochClock, buried_bytes: u64, most: u64) -> LogEpoch {
        let mut state = lock(&self.state);
        let state = &mut *state;
        let current = clock.current();
        state.rounds += 1;
        state
            .epochs
            .push_back((current, state.rounds, buried_bytes));
        let oldest = state.rounds.saturating_sub(limits::WATCH_AGE_MAX_ROUNDS);
        let is_over = |round, before| round < oldest || buried_bytes.saturating_sub(before) > most;
        let mut least = LogEpoch(0);
        while let Some(&(epoch, round, before)) = state.epochs.front()
            && is_over(round, before)
        {
            state.epochs.pop_front();
            least = LogEpoch(epoch.0 + 1);
        }
        state.held = state.held.split_off(&least);
        let horizon = state.held.keys().next().copied().unwrap_or(current);
        while state
            .epochs
            .front()
            .is_some_and(|(epoch, ..)| *epoch < horizon)
        {
            state.epochs.pop_front();
        }
        horizon
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::Shell;

    fn tick(clock: &EpochClock, horizon: &WatchHorizon, buried_bytes: u64) -> LogEpoch {
        clock.tick();
        horizon.advance(clock, buried_bytes, limits::WATCH_BURIED_BYTES_MAX)
    }

    #[test]
    fn the_horizon_stays_at_the_oldest_watch() {
        let (clock, horizon) = (
            EpochClock::starting_at(LogEpoch(1)),
            WatchHorizon::default(),
        );
        assert_eq!(tick(&clock, &horizon, 0), LogEpoch(2));
        let first = horizon.hold(&clock);
        assert_eq!(tick(&clock, &horizon, 0), LogEpoch(2));
        let second = horizon.hold(&clock);
        horizon.release(first);
        assert_eq!(tick(&clock, &horizon, 0), second);
        horizon.release(second);
        assert_eq!(tick(&clock, &horizon, 0), LogEpoch(5));
    }

    /// W2, and that a client that never comes back leaves nothing.
    #[test]
    fn the_horizon_leaves_old_watches_behind() {
        let (clock, horizon) = (
            EpochClock::starting_at(LogEpoch(1)),
            WatchHorizon::default(),
        );
        let epoch = horizon.hold(&clock);
        for _ in 1..limits::WATCH_AGE_MAX_ROUNDS {
            assert_eq!(tick(&clock, &horizon, 0), epoch);
        }
        for _ in 0..3 {
            tick(&clock, &horizon, 0);
        }
        assert_eq!(tick(&clock, &horizon, 0), clock.current());
        let state = lock(&horizon.state);
        assert_eq!((state.held.len(), state.epochs.len()), (0, 1));
        drop(state);
        horizon.release(epoch);
    }

    #[test]
    fn the_horizon_waits_for_so_many_bytes() {
        let (clock, horizon) = (
            EpochClock::starting_at(LogEpoch(1)),
            WatchHorizon::default(),
        );
        tick(&clock, &horizon, 0);
        let old = horizon.hold(&clock);
        tick(&clock, &horizon, 100);
        let young = horizon.hold(&clock);
        let most = limits::WATCH_BURIED_BYTES_MAX;
        assert_eq!(tick(&clock, &horizon, most), old);
        assert_eq!(tick(&clock, &horizon, most + 1), young);
        assert_eq!(tick(&clock, &horizon, most + 101), LogEpoch(6));
    }

    /// Whether EXEC runs when `lines` came between it and the WATCH of `k`; `before` comes first.
    #[track_caller]
    fn exec_runs(before: &[&str], lines: &[&str]) -> bool {
        let mut shell = Shell::new();
        let mut other = shell.connect();
        let run = |other: &mut Shell, lines: &[&str]| {
            for line in lines {
                let reply = other.line(line);
                assert!(!reply.starts_with('-'), "{line}: {reply}");
            }
        };
        run(&mut other, before);
        shell.check(&[("WATCH k", "+OK")]);
        run(&mut other, lines);
        shell.line("MULTI");
        shell.line("EXEC") == "*0"
    }

    /// Each as Redis 7.0 answers.
    #[test]
    fn a_key_that_came_and_went_around_a_flush_has_changed() {
        for flush in ["FLUSHALL", "FLUSHDB"] {
            assert!(!exec_runs(&["SET other 1"], &[flush, "SET k 1", "DEL k"]));
            assert!(!exec_runs(&["SET other 1"], &["SET k 1", flush]));
            assert!(!exec_runs(&["SET other 1"], &["SET k 1", "DEL k", flush]));
            assert!(!exec_runs(&["SET k 1"], &[flush]));
            assert!(!exec_runs(&["SET k 1"], &[flush, "SET k 1"]));
            assert!(!exec_runs(&[], &["SET k 1", "DEL k", flush]));
            assert!(exec_runs(&["SET other 1"], &[flush]));
            assert!(exec_runs(&["SET other 1"], &[flush, "SET other 1", flush]));
            assert!(exec_runs(
                &["SET k 1 PX 1", "DEL k", "SET other 1"],
                &[flush]
            ));
        }
        assert!(exec_runs(&["SET k 1"], &["SELECT 1", "SET k 1", "FLUSHDB"]));
    }

    /// Each as Redis 7.0 answers.
    #[test]
    fn a_key_that_was_swapped_in_or_away_has_changed() {
        let brought = ["SELECT 1", "SET k 1", "SWAPDB 0 1"];
        assert!(!exec_runs(&["SET k 1"], &["SWAPDB 0 1"]));
        assert!(!exec_runs(&["SET k 1"], &["SWAPDB 0 1", "SWAPDB 0 1"]));
        assert!(!exec_runs(&[], &brought));
        let gone = ["SELECT 0", "DEL k"];
        assert!(!exec_runs(&[], &[&brought[..], &gone].concat()));
        assert!(!exec_runs(&[], &[&brought[..], &["SWAPDB 1 0"]].concat()));
        let flushed = ["SELECT 0", "FLUSHDB"];
        assert!(!exec_runs(&[], &[&brought[..], &flushed].concat()));
        assert!(!exec_runs(&[], &["SET k 1", "SWAPDB 0 1"]));
        assert!(!exec_runs(&[], &["SET k 1", "DEL k", "SWAPDB 0 1"]));
        assert!(!exec_runs(&[], &["SWAPDB 0 1", "SET k 1", "DEL k"]));
        assert!(exec_runs(&["SET other 1"], &["SWAPDB 0 1", "SWAPDB 0 1"]));
        assert!(exec_runs(&["SET k 1"], &["SWAPDB 0 0", "SWAPDB 1 2"]));
        assert!(exec_runs(
            &[],
            &["SELECT 1", "SET k 1", "DEL k", "SWAPDB 0 1"]
        ));
    }

    /// W4 for keys that have expired on either side, and nothing held when all is over.
    #[test]
    fn an_expired_key_that_is_swapped_in_is_absent() {
        let mut shell = Shell::new();
        let mut other = shell.connect();
        other.check(&[("SELECT 1", "+OK"), ("SET k 1 PX 1", "+OK")]);
        shell.pass_ms(2);
        shell.check(&[("WATCH k", "+OK")]);
        other.check(&[("SWAPDB 0 1", "+OK")]);
        shell.check(&[("MULTI", "+OK"), ("EXEC", "*0"), ("WATCH k", "+OK")]);
        other.check(&[
            ("SWAPDB 0 1", "+OK"),
            ("SET k 1", "+OK"),
            ("SWAPDB 0 1", "+OK"),
        ]);
        shell.check(&[("MULTI", "+OK"), ("EXEC", "*-1")]);
        assert!(lock(&shell.database.watch_horizon.state).held.is_empty());
    }

    #[test]
    fn clients_that_are_gone_leave_nothing() {
        let shell = Shell::new();
        for _ in 0..1000 {
            shell.connect().line("WATCH k");
        }
        assert!(lock(&shell.database.watchers.clients).len() <= 8);
    }

    /// Redis: an expired key that is watched, written and removed is a change.
    #[test]
    fn an_expired_key_that_came_and_went_has_changed() {
        let mut shell = Shell::new();
        let mut other = shell.connect();
        let expire = |shell: &mut Shell| {
            shell.line("SET k 1 PX 1");
            shell.pass_ms(2);
        };
        expire(&mut shell);
        shell.line("WATCH k");
        other.check(&[("SET k 2", "+OK"), ("DEL k", ":1")]);
        shell.check(&[("MULTI", "+OK"), ("EXEC", "*-1")]);
        expire(&mut shell);
        shell.line("WATCH k");
        other.check(&[("GET k", "$-1"), ("DEL k", ":0")]);
        shell.check(&[("MULTI", "+OK"), ("EXEC", "*0")]);
    }

    /// A pause of writes keeps the key, so a removal after it is a doubt (W3).
    #[test]
    fn an_expired_key_watched_in_a_pause_stays() {
        let mut shell = Shell::new();
        shell.line("SET k 1 PX 1");
        shell.pass_ms(2);
        shell.database.pause(u64::MAX, false);
        shell.check(&[("WATCH k", "+OK"), ("DBSIZE", ":1")]);
        shell.check(&[("MULTI", "+OK"), ("EXEC", "*0"), ("WATCH k", "+OK")]);
        shell.database.unpause();
        shell.connect().line("DEL k");
        shell.check(&[("MULTI", "+OK"), ("EXEC", "*-1")]);
    }

    #[test]
    fn watched_keys_are_bounded_and_refused_as_a_whole() {
        let mut shell = Shell::new();
        let watch = |from: usize, count: usize| {
            let keys = (from..from + count).map(|key| format!("k{key}"));
            std::iter::once("WATCH".to_owned()).chain(keys)
        };
        let most = limits::WATCHED_KEYS_MAX;
        assert_eq!(shell.run(watch(0, most - 1)), b"+OK\r\n");
        let refused = b"-ERR too many watched keys\r\n";
        assert_eq!(shell.run(watch(most - 1, 2)), refused);
        shell.connect().line(&format!("SET k{} 1", most - 1));
        assert_eq!(shell.run(watch(most, 1)), b"+OK\r\n");
        assert_eq!(shell.run(watch(most + 1, 1)), refused);
        shell.check(&[("MULTI", "+OK"), ("EXEC", "*0")]);
        let long = vec![b'x'; limits::WATCHED_BYTES_MAX];
        assert_eq!(shell.run([b"WATCH", &long[..]]), refused);
    }
}
