//! The part of WATCH that all sessions share: who watches which keys, and how far the tombstone
//! horizon may move. `watch` explains the rest.
//!
//! | field | writer | lock | reader |
//! |---|---|---|---|
//! | `Watchers::clients` | a client's first WATCH | its mutex | a change of trees |
//! | `WatchHorizon::state` | WATCH of an absent key; maintenance | its mutex | the same |

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};

use pando_engine::{EpochClock, LogEpoch, ValueVersion};
use pando_sync::lock;

use crate::limits;

/// The state of a key when it was watched.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seen {
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

/// One client's watches, as others see them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watched {
    pub(crate) databases: BTreeMap<usize, HashMap<Box<[u8]>, Seen>>,
    /// A change of trees found a key that has changed.
    pub(crate) broken: bool,
}

/// All connected clients that have ever watched a key.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    clients: Mutex<Vec<Weak<Mutex<Watched>>>>,
}

impl Watchers {
    /// How many clients it remembers, including disconnected ones.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.clients).len()
    }

    pub(crate) fn enter(&self) -> Arc<Mutex<Watched>> {
        let shared = Arc::default();
        let mut clients = lock(&self.clients);
        if clients.len() == clients.capacity() {
            // Before the list grows: so it holds at most twice as many as were connected at once.
            clients.retain(|client| client.strong_count() > 0);
        }
        clients.push(Arc::downgrade(&shared));
        shared
    }

    /// Shows the watches of every client on the databases `indexes` to `judge`, which says whether
    /// the key has changed. Shows all of them, broken or not: their order differs from run to run,
    /// and the effect of `judge` must not.
    pub(crate) fn each(
        &self,
        indexes: &[usize],
        mut judge: impl FnMut(usize, &[u8], &mut Seen) -> bool,
    ) {
        for client in lock(&self.clients).iter().filter_map(Weak::upgrade) {
            let Watched { databases, broken } = &mut *lock(&client);
            for index in indexes {
                let watches = databases.get_mut(index).into_iter().flatten();
                for (key, seen) in watches {
                    *broken |= judge(*index, key, seen);
                }
            }
        }
    }
}

impl Seen {
    /// The epoch at which the horizon is held for it, if it is.
    pub(crate) fn held(self) -> Option<LogEpoch> {
        match self {
            Self::Absent { epoch, .. } => Some(epoch),
            Self::Live(_) | Self::Expired(_) => None,
        }
    }
}

impl Watched {
    fn held(&self) -> impl Iterator<Item = LogEpoch> {
        let seen = self.databases.values().flat_map(HashMap::values);
        seen.filter_map(|seen| seen.held())
    }
}

/// What every client watched at one time; it holds the horizon as these watches do.
#[derive(Debug)]
pub(crate) struct WatchImage(Vec<(Arc<Mutex<Watched>>, Watched)>);

impl Watchers {
    /// Everything that is watched. The caller holds all gates until the image is restored or
    /// released.
    pub(crate) fn image(&self, horizon: &WatchHorizon) -> WatchImage {
        let clients = lock(&self.clients);
        let copies = clients.iter().filter_map(Weak::upgrade).map(|client| {
            let watched = lock(&client).clone();
            watched.held().for_each(|epoch| horizon.hold_at(epoch));
            (client, watched)
        });
        WatchImage(copies.collect())
    }
}

impl WatchImage {
    /// Restores every client's watches of that time.
    pub(crate) fn put_back(self, horizon: &WatchHorizon) {
        for (client, watched) in self.0 {
            let after = std::mem::replace(&mut *lock(&client), watched);
            after.held().for_each(|epoch| horizon.release(epoch));
        }
    }

    /// Keeps the present watches.
    pub(crate) fn release(self, horizon: &WatchHorizon) {
        for (_, watched) in self.0 {
            watched.held().for_each(|epoch| horizon.release(epoch));
        }
    }
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
    /// Epochs from the horizon on, with the last maintenance round that found each the current one
    /// and the bytes that removals had left by then.
    epochs: VecDeque<(LogEpoch, u64, u64)>,
    /// Maintenance rounds, which measure patience: epochs may be short.
    rounds: u64,
}

impl WatchHorizon {
    /// Whether anybody holds it back.
    #[cfg(test)]
    pub(crate) fn is_held(&self) -> bool {
        !lock(&self.state).held.is_empty()
    }

    /// Holds the horizon at the current epoch, which it returns.
    pub(crate) fn hold(&self, clock: &EpochClock) -> LogEpoch {
        let mut state = lock(&self.state);
        // Read under the lock: `advance` cannot pass this epoch before it is registered.
        let epoch = clock.current();
        *state.held.entry(epoch).or_default() += 1;
        epoch
    }

    /// Holds the horizon again at an epoch at which it is held. If W2 bounded-patience has ended
    /// that hold, the horizon has passed the epoch, and the watch is in doubt in any case.
    fn hold_at(&self, epoch: LogEpoch) {
        *lock(&self.state).held.entry(epoch).or_default() += 1;
    }

    /// Ends a hold; W2 bounded-patience may have ended it already.
    pub(crate) fn release(&self, epoch: LogEpoch) {
        let mut state = lock(&self.state);
        if let Some(count) = state.held.get_mut(&epoch) {
            *count -= 1;
            if *count == 0 {
                state.held.remove(&epoch);
            }
        }
    }

    /// Where the horizon may move in this maintenance round: to the oldest held epoch that
    /// W2 bounded-patience still allows, else to the current one. `buried_bytes` is what removals
    /// have left so far; a WATCH may hold back `most` of it.
    pub(crate) fn advance(&self, clock: &EpochClock, buried_bytes: u64, most: u64) -> LogEpoch {
        let mut state = lock(&self.state);
        let state = &mut *state;
        let current = clock.current();
        state.rounds += 1;
        // An epoch lasts while nothing is written. It ages once it is over: patience with a watch
        // does not depend on how long its epoch had lasted before.
        if state.epochs.back().is_some_and(|last| last.0 == current) {
            state.epochs.pop_back();
        }
        state
            .epochs
            .push_back((current, state.rounds, buried_bytes));
        let oldest = state.rounds.saturating_sub(limits::WATCH_AGE_MAX_ROUNDS);
        let is_over = |round, before| round < oldest || buried_bytes.saturating_sub(before) > most;
        let mut least = LogEpoch::NONE;
        while let Some(&(epoch, round, before)) = state.epochs.front()
            && is_over(round, before)
        {
            state.epochs.pop_front();
            least = epoch.next();
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
        assert!(least <= horizon && horizon <= current);
        horizon
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// W2 bounded-patience, and that a client that never returns leaves nothing.
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

    /// With a log, no epoch ends while nothing is written.
    #[test]
    fn an_idle_epoch_does_not_age() {
        let (clock, horizon) = (
            EpochClock::starting_at(LogEpoch(1)),
            WatchHorizon::default(),
        );
        let advance = || horizon.advance(&clock, 0, limits::WATCH_BURIED_BYTES_MAX);
        for _ in 0..limits::WATCH_AGE_MAX_ROUNDS + 3 {
            assert_eq!(advance(), clock.current());
        }
        assert_eq!(lock(&horizon.state).epochs.len(), 1);
        let epoch = horizon.hold(&clock);
        // Its patience begins when the epoch is over.
        for _ in 1..limits::WATCH_AGE_MAX_ROUNDS {
            assert_eq!(tick(&clock, &horizon, 0), epoch);
        }
        tick(&clock, &horizon, 0);
        assert_eq!(tick(&clock, &horizon, 0), clock.current());
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
}
