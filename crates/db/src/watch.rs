//! WATCH: what a client saw of its keys, and whether it has changed since.
//!
//! A watched key is remembered as (database, version or absent). Only the tombstone of a removal
//! tells "absent" from "came and went", so the tombstone horizon stays at the epoch of the WATCH
//! while a client watches an absent key. A key that has expired is removed when it is watched, as
//! the expirer would do, and watched as absent.
//!
//! A tombstone belongs to one tree. So FLUSHDB, FLUSHALL and SWAPDB check all watched keys of their
//! databases ([`Database::change_trees`]). A key that has changed by then, or that is present in
//! the old tree or in the new one, breaks its client's transaction; any other is watched anew in
//! the new tree. O(watched keys), under all gates, as in Redis.
//!
//! | field | writer | lock | reader |
//! |---|---|---|---|
//! | `Watches::shared` | its client; a change of trees, under all gates | its mutex | the same |
//! | `Watchers::clients` | a client's first WATCH | its mutex | a change of trees |
//! | `WatchHorizon::state` | WATCH of an absent key; maintenance | its mutex | the same |
//!
//! The locks are taken in this order.
//!
//! Invariants:
//! - **W1 absent-unchanged** A key watched as absent in epoch `e` is unchanged if it is absent
//!   without a tombstone and the horizon has not passed `e`. A removal since then would have left a
//!   tombstone of epoch ≥ `e`, which stays until the horizon passes it.
//! - **W2 bounded-patience** Once a WATCH's epoch is over, the horizon waits for it for at most
//!   `limits::WATCH_AGE_MAX_MS` and at most `limits::WATCH_BURIED_BYTES_MAX` of tombstones, less
//!   when memory is short. Once W1 can no longer tell, the transaction is refused, and the client
//!   tries again as after any conflict.
//! - **W3** A doubt counts as a change: a transaction may be refused for nothing, but never runs on
//!   a key that has changed.
//! - **W4** What is remembered of a key is about the tree its database has.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use pando_engine::{Key, LogEpoch, Point, Probe};
use pando_sync::lock;

use crate::clock::Milliseconds;
use crate::database::Database;
use crate::keyspace::Keyspace;
use crate::limits;
use crate::session_state::SessionState;
use crate::watchers::{Seen, Watched};

/// Bytes of a watch besides its key.
const WATCH_BYTES: usize = size_of::<Box<[u8]>>() + size_of::<Seen>();

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
    pub(crate) fn can_add(&self, keys: usize, bytes: usize) -> bool {
        self.count + keys <= limits::WATCHED_KEYS_MAX
            && self.bytes + keys * WATCH_BYTES + bytes <= limits::WATCHED_BYTES_MAX
    }

    /// Watches a key; one that is already watched keeps what was seen first. Returns whether it was
    /// not watched. O(1).
    pub(crate) fn add(
        &mut self,
        database: &Database,
        session: &mut SessionState,
        index: usize,
        key: &[u8],
    ) -> bool {
        // A key that is too long never exists.
        if key.len() > pando_engine::limits::KEY_BYTES_MAX {
            return false;
        }
        let shared = self.shared.get_or_insert_with(|| database.watchers.enter());
        let mut watched = lock(shared);
        let watches = watched.databases.entry(index).or_default();
        if watches.contains_key(key) {
            return false;
        }
        let seen = look(database, session, index, key);
        self.count += 1;
        self.bytes += key.len() + WATCH_BYTES;
        watches.insert(key.into(), seen);
        true
    }

    /// Forgets a watched key: the run that looked at it does not count.
    pub(crate) fn forget(&mut self, database: &Database, index: usize, key: &[u8]) {
        let shared = self.shared.as_ref().expect("a key is watched");
        let mut watched = lock(shared);
        let watches = watched.databases.get_mut(&index);
        let seen = watches.and_then(|watches| watches.remove(key));
        seen.expect("the key is watched").release(database);
        self.count -= 1;
        self.bytes -= key.len() + WATCH_BYTES;
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
        let watched = watched.databases.values().map(HashMap::len);
        debug_assert_eq!(watched.sum::<usize>(), self.count);
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
                watches.iter().any(|(key, seen)| {
                    // What became of a key that has left is not known here (W3).
                    !session.placing.is_here(key)
                        || seen.has_changed_at(database, session, *index, key)
                })
            })
    }
}

impl Database {
    /// Replaces the trees of the databases `indexes` by `change`. The caller holds all gates.
    pub(crate) fn change_trees(
        &self,
        session: &mut SessionState,
        indexes: &[usize],
        change: impl FnOnce(),
    ) {
        // B1 mapping-stands-still.
        assert!(self.gates.are_all_taken());
        self.placing.lose_mover();
        self.watchers.each(indexes, |index, key, seen| {
            // A present key is dropped with its tree.
            matches!(seen, Seen::Live(_)) || seen.has_changed_at(self, session, index, key)
        });
        change();
        self.watchers.each(indexes, |index, key, seen| {
            let before = std::mem::replace(seen, look(self, session, index, key));
            before.release(self);
            matches!(seen, Seen::Live(_))
        });
        self.lines.announce_all(indexes);
    }
}

/// Looks up a key that is to be watched.
fn look(database: &Database, session: &mut SessionState, index: usize, key: &[u8]) -> Seen {
    let tree = database.tree(index);
    let now = session.now.milliseconds();
    // Registered before the probe: the horizon does not move while the key is looked up (W1).
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
    /// Whether `present` differs from what was seen.
    fn has_changed(self, present: Probe, now: Milliseconds, horizon: LogEpoch) -> bool {
        match (self, present) {
            (Self::Live(seen), Probe::Present { version, .. }) => {
                seen != version || is_expired(present, now)
            }
            (Self::Expired(seen), Probe::Present { version, .. }) => seen != version,
            // The tombstone of an earlier removal may exist; a newer one may not.
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
        let now = session.now.milliseconds();
        if let Probe::Present {
            deadline: Some(at), ..
        } = present
            && session.alive.is_noted()
        {
            session.alive.note_deadline(at, now);
        }
        self.has_changed(present, now, database.epochs.horizon())
    }

    /// Releases what `look` may have held.
    fn release(self, database: &Database) {
        if let Some(epoch) = self.held() {
            database.watch_horizon.release(epoch);
        }
    }
}

fn is_expired(probe: Probe, now: Milliseconds) -> bool {
    matches!(probe, Probe::Present { deadline: Some(at), .. } if at.has_passed(now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Microseconds;
    use crate::commands::testing::Shell;

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
        assert!(!shell.database.watch_horizon.is_held());
    }

    #[test]
    fn clients_that_are_gone_leave_nothing() {
        let shell = Shell::new();
        for _ in 0..1000 {
            shell.connect().line("WATCH k");
        }
        assert!(shell.database.watchers.len() <= 8);
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
        shell.database.pause(Microseconds::MAX, false);
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
