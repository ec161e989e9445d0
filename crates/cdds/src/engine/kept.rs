//! Snapshots that last, by name.
//!
//! A name is a pair of a tree that only the engine knows, whose value is the epoch and what the
//! caller notes about it, written in that epoch: the snapshot sees its own name, so a rollback to
//! it keeps it. A name counts if a snapshot of its epoch is there (CT2 kept-at-once); another is
//! what a crash, a release or a rollback left.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use pando_engine::{Graves, TreeId};
use pando_sync::shim::unmodelled::Ordering;
use pando_sync::{LogEpoch, lock};

use super::{Cdds, OWN, State, place_of};
use crate::limits::SNAPSHOTS_MAX;
use crate::{Direction, Error, Snapshot};

/// The number of the tree of names.
pub(super) const NAMES: TreeId = TreeId(OWN.0 - 1);

/// A snapshot that lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSnapshot {
    /// Its name.
    pub name: String,
    /// The last epoch that it shows.
    pub epoch: LogEpoch,
    /// What its maker noted.
    pub about: Vec<u8>,
}

impl State {
    /// The names that count, with what was noted.
    fn names(&self) -> Result<BTreeMap<String, (Snapshot, Vec<u8>)>, Error> {
        let (mut names, place) = (BTreeMap::new(), place_of(NAMES, b""));
        let visit = |key: &[u8], value: &[u8]| {
            let Some(name) = key.strip_prefix(&place[..]) else {
                return ControlFlow::Break(());
            };
            if let Some((epoch, about)) = value.split_first_chunk() {
                let snapshot = Snapshot::of(LogEpoch(u64::from_le_bytes(*epoch)));
                if self.tree.snapshots().any(|there| there == snapshot) {
                    let name = String::from_utf8_lossy(name).into_owned();
                    names.insert(name, (snapshot, about.to_vec()));
                }
            }
            ControlFlow::Continue(())
        };
        self.tree
            .scan(Bound::Included(&place), Direction::Forward, visit)?;
        Ok(names)
    }

    fn named(&self, name: &str) -> Result<Snapshot, Error> {
        let found = self.names()?.remove(name);
        let (snapshot, _) = found.ok_or_else(|| Error::NoName { name: name.into() })?;
        Ok(snapshot)
    }
}

impl Cdds {
    /// Keeps what all trees hold now under a name, durably, with what the caller notes about it,
    /// until [`Cdds::release_kept`]. Commits. Nobody writes meanwhile. O(names).
    pub fn keep(&self, name: &str, about: &[u8]) -> Result<LogEpoch, Error> {
        let mut state = self.write();
        if state.names()?.contains_key(name) {
            return Err(Error::NameTaken { name: name.into() });
        }
        if state.tree.snapshots().count() >= SNAPSHOTS_MAX {
            return Err(Error::TooManySnapshots);
        }
        state.tree.advance(self.clock.current())?;
        let epoch = state.tree.open;
        let place = place_of(NAMES, name.as_bytes());
        let value = [&epoch.0.to_le_bytes(), about].concat();
        state.tree.put(&place, &value)?;
        // Last, as it counts what the name takes.
        state.write_own()?;
        let kept = state.tree.retain();
        self.note_retained(&state);
        self.clock.rise_to(state.tree.open);
        debug_assert!(kept.as_ref().is_ok_and(|kept| kept.epoch() == epoch) || kept.is_err());
        Ok(kept?.epoch())
    }

    /// What is kept, oldest first.
    pub fn kept(&self) -> Result<Vec<KeptSnapshot>, Error> {
        let names = self.write().names()?.into_iter();
        let each = names.map(|(name, (at, about))| KeptSnapshot {
            name,
            epoch: at.epoch(),
            about,
        });
        let mut kept: Vec<_> = each.collect();
        kept.sort_unstable_by_key(|kept| kept.epoch);
        Ok(kept)
    }

    /// Lets go, durably, what is kept under a name.
    pub fn release_kept(&self, name: &str) -> Result<(), Error> {
        let mut state = self.write();
        let snapshot = state.named(name)?;
        let released = state.tree.release(snapshot);
        self.note_retained(&state);
        released
    }

    /// Makes all trees what they were when this was kept; it stays. Newer ones are lost, if the
    /// caller says that they may be, else it is refused; as it is while newer snapshots are read.
    /// Takes the same time whatever has happened since. No session is in an operation, or pinned.
    pub fn roll_back(&self, name: &str, losing_newer: bool) -> Result<LogEpoch, Error> {
        let mut state = self.write();
        let snapshot = state.named(name)?;
        let newer = |at: &Snapshot| *at > snapshot;
        let lost: Vec<_> = state.tree.snapshots().filter(newer).collect();
        if let Some(held) = lock(&state.images).snapshots().last()
            && held.epoch() > snapshot.epoch()
        {
            let epoch = held.epoch();
            return Err(Error::NewerSnapshot { epoch });
        }
        if losing_newer {
            for at in lost {
                state.tree.release(at)?;
            }
        }
        state.tree.roll_back(snapshot)?;
        state.graves = Graves::default();
        // What was kept for the last snapshot that stays has come back.
        lock(&state.images).forget_newest();
        state.read_own()?;
        self.note_retained(&state);
        self.written.store(false, Ordering::Relaxed);
        self.clock.rise_to(state.tree.open);
        self.note_trees();
        Ok(snapshot.epoch())
    }
}
