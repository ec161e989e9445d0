//! Groups of a session: its updates all stay, or are all taken back because one was refused.
//!
//! The tree takes back what it holds (CE8 whole-or-nothing); what is beside it is noted here. The
//! values that snapshots keep stay counted as if the group had replaced them.

use std::collections::BTreeMap;

use pando_engine::{Refused, TreeId, ValueVersion};
use pando_sync::shim::unmodelled::Ordering;

use super::session::sound;
use super::{CddsSession, State};

/// What the tree's own group does not know.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// Of each key that has changed, what was remembered of its removal.
    graves: BTreeMap<Vec<u8>, Option<ValueVersion>>,
    /// How many keys each tree had.
    keys: Vec<(TreeId, u64)>,
}

impl CddsSession {
    /// Begins a group. Until it ends, no other session writes, and nothing is committed.
    ///
    /// # Panics
    /// When one has begun already.
    pub fn begin_group(&mut self) {
        self.engine.write().begin_group();
        self.in_group = true;
    }

    /// Ends the group; why it does not stay, if it does not (CE8 whole-or-nothing).
    pub fn end_group(&mut self) -> Option<Refused> {
        self.in_group = false;
        let refused = self.group_refusal.take();
        self.engine.write().end_group(refused.is_none());
        refused
    }
}

impl State {
    fn begin_group(&mut self) {
        self.tree.begin_group();
        let keys = self.trees.iter();
        let keys = keys.map(|(number, tree)| (*number, tree.keys())).collect();
        self.group = Some(Beside {
            keys,
            ..Beside::default()
        });
    }

    fn end_group(&mut self, stays: bool) {
        let Beside { graves, keys } = self.group.take().unwrap_or_default();
        if stays {
            sound(self.tree.end_group());
            self.tree.fence();
            return;
        }
        sound(self.tree.take_back());
        self.tree.fence();
        for (place, version) in graves {
            match version {
                Some(version) => self.graves.bury(&place, version),
                None => self.graves.rise(&place),
            }
        }
        for (number, keys) in keys {
            if let Some(tree) = self.trees.get(&number) {
                tree.keys.add([keys.wrapping_sub(tree.keys())]);
                tree.changed.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Before a key changes.
    pub(super) fn note_grave(&mut self, place: &[u8]) {
        if let Some(group) = &mut self.group
            && !group.graves.contains_key(place)
        {
            let version = self.graves.version(place);
            group.graves.insert(place.to_vec(), version);
        }
    }
}
