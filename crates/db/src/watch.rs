//! WATCH: what a client saw of its keys, and whether it has changed since.
//!
//! A watched key is remembered as (database, tree, key, version or absent, expired when watched).
//! Absence is told apart from *came and went* by the tombstone that a removal leaves: while a
//! client watches an absent key, the tombstone horizon stays at the epoch of the WATCH.
//!
//! Invariants:
//! - **W1** A key watched as absent in epoch `e` is unchanged if it is absent without a tombstone,
//!   and the horizon has not passed `e` (a removal since would have left a tombstone of epoch ≥
//!   `e`, which stands until the horizon passes it).
//! - **W2** The horizon waits for a WATCH at most `limits::WATCH_AGE_MAX_MS`; a transaction that
//!   comes later is refused if W1 can no longer tell (the client tries again, as after any
//!   conflict).

use std::collections::BTreeMap;
use std::sync::Mutex;

use pando_engine::{Key, LogEpoch, Point, Probe, TreeId, ValueVersion};

use crate::clock::Milliseconds;
use crate::database::{Database, lock};
use crate::limits;
use crate::session::SessionState;

/// What stood at a key when it was watched.
#[derive(Clone, Copy, Debug)]
enum Seen {
    /// A live value of this version.
    Live(ValueVersion),
    /// A value past its deadline: whether it is removed meanwhile does not matter.
    Expired(ValueVersion),
    /// Nothing, or a tombstone of this version, in this epoch.
    Absent {
        tombstone: Option<ValueVersion>,
        epoch: LogEpoch,
    },
}

#[derive(Debug)]
struct Watch {
    database: usize,
    tree: TreeId,
    key: Box<[u8]>,
    seen: Seen,
}

/// The keys that one client watches.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    watches: Vec<Watch>,
    bytes: usize,
}

impl Watches {
    pub(crate) fn len(&self) -> usize {
        self.watches.len()
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes
    }

    /// Watches a key; one that is watched already keeps what was seen first. O(watched keys).
    pub(crate) fn add(
        &mut self,
        database: &Database,
        session: &mut SessionState,
        index: usize,
        key: &[u8],
    ) {
        let tree = database.tree(index);
        let watched = |watch: &Watch| watch.database == index && *watch.key == *key;
        if self.watches.iter().any(watched) {
            return;
        }
        // Registered before the probe: the horizon stands still when the key is looked at (W1).
        let epoch = database.watch_horizon.hold(&database.epochs);
        let seen = match probe(session, tree, key) {
            Probe::Present { version, deadline } => {
                database.watch_horizon.release(epoch);
                if deadline.is_some_and(|at| at.0 <= session.now_us / 1000) {
                    Seen::Expired(version)
                } else {
                    Seen::Live(version)
                }
            }
            Probe::Removed(version) => Seen::Absent {
                tombstone: Some(version),
                epoch,
            },
            Probe::Absent => Seen::Absent {
                tombstone: None,
                epoch,
            },
        };
        self.bytes += key.len() + size_of::<Watch>();
        self.watches.push(Watch {
            database: index,
            tree,
            key: key.into(),
            seen,
        });
    }

    /// Forgets all watches.
    pub(crate) fn clear(&mut self, database: &Database) {
        for watch in self.watches.drain(..) {
            if let Seen::Absent { epoch, .. } = watch.seen {
                database.watch_horizon.release(epoch);
            }
        }
        self.bytes = 0;
    }

    /// Whether any watched key has changed. The caller holds all gates.
    pub(crate) fn are_broken(&self, database: &Database, session: &mut SessionState) -> bool {
        let now = session.now_us / 1000;
        self.watches
            .iter()
            .any(|watch| watch.is_broken(database, session, now))
    }
}

impl Watch {
    fn is_broken(
        &self,
        database: &Database,
        session: &mut SessionState,
        now: Milliseconds,
    ) -> bool {
        let tree = database.tree(self.database);
        let present = probe(session, tree, &self.key);
        if tree != self.tree {
            // FLUSHDB or SWAPDB: changed unless the key is absent on both sides.
            let was_live = matches!(self.seen, Seen::Live(_));
            return was_live || is_live(present, now);
        }
        match (self.seen, present) {
            (Seen::Live(seen), Probe::Present { version, .. }) => {
                seen != version || !is_live(present, now)
            }
            (Seen::Expired(seen), Probe::Present { version, .. }) => seen != version,
            (Seen::Live(_), _) | (Seen::Absent { .. }, Probe::Present { .. }) => true,
            (Seen::Expired(_), _) => false,
            (Seen::Absent { tombstone, .. }, Probe::Removed(version)) => {
                // The tombstone of an earlier removal may stand; a newer one may not.
                tombstone != Some(version)
            }
            // W1, W2.
            (Seen::Absent { epoch, .. }, Probe::Absent) => database.epochs.horizon() > epoch,
        }
    }
}

fn is_live(probe: Probe, now: Milliseconds) -> bool {
    matches!(probe, Probe::Present { deadline, .. } if deadline.is_none_or(|at| at.0 > now))
}

fn probe(session: &mut SessionState, tree: TreeId, key: &[u8]) -> Probe {
    if key.len() > pando_engine::limits::KEY_BYTES_MAX {
        return Probe::Absent;
    }
    session.store.probe(Key::new(tree, key))
}

/// The epochs of all watches on absent keys.
#[derive(Debug, Default)]
pub(crate) struct WatchHorizon {
    held: Mutex<BTreeMap<LogEpoch, usize>>,
}

impl WatchHorizon {
    /// Holds the horizon at the current epoch, which it returns.
    fn hold(&self, epochs: &pando_engine::EpochClock) -> LogEpoch {
        let mut held = lock(&self.held);
        // Read inside the lock: `oldest` cannot pass this epoch before it is entered.
        let epoch = epochs.current();
        *held.entry(epoch).or_default() += 1;
        epoch
    }

    fn release(&self, epoch: LogEpoch) {
        let mut held = lock(&self.held);
        if let Some(count) = held.get_mut(&epoch) {
            *count -= 1;
            if *count == 0 {
                held.remove(&epoch);
            }
        }
    }

    /// The oldest epoch that is held and not too old (W2), else `current`.
    pub(crate) fn oldest(&self, current: LogEpoch) -> LogEpoch {
        let age_max = limits::WATCH_AGE_MAX_MS / limits::EPOCH_INTERVAL_MS;
        let oldest = lock(&self.held).keys().next().copied().unwrap_or(current);
        oldest.max(LogEpoch(current.0.saturating_sub(age_max)))
    }
}
