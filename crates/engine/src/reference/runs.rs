//! Runs on the reference engine that report absences at random: the canary of callers that retry
//! runs.
//!
//! A run works on copies of the trees it touches. Its end replaces the trees by the copies, unless
//! the trees have changed. An absent key is taken out of the copy, so it reads as absent, and what
//! the blind run makes of that is dropped with the copies. When the run is repeated the key is
//! present, as if it had been fetched.
//!
//! Cost: O(keys of a tree) for its first access in a run. Deliberately absent: any use outside
//! tests.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, RwLockWriteGuard};

use super::map::Map;
use super::{ReferenceEngine, Tree};
use crate::{Outcome, TreeId};

/// One access in this many hits an absence, unless the key was already fetched.
const AWAY_ONE_IN: u64 = 3;

/// One run in this many ends with a planted conflict.
const CONFLICT_ONE_IN: u64 = 8;

/// The runs of a session.
pub(super) struct Runs {
    /// The state of the generator, `SplitMix64`.
    random: u64,
    under_way: bool,
    blind: bool,
    copies: BTreeMap<TreeId, Copy>,
    /// What was looked at since the last run that counted: it was present, or has been fetched.
    here: HashSet<(TreeId, Box<[u8]>)>,
}

struct Copy {
    /// [`Map::changes`] of the tree when it was copied.
    changes: u64,
    map: Map,
}

/// What an access looks for.
pub(super) enum Sought<'k> {
    Key(&'k [u8]),
    /// Keys that only the tree knows; some may be absent.
    Some(&'k [u8]),
}

impl Runs {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            random: seed,
            under_way: false,
            blind: false,
            copies: BTreeMap::new(),
            here: HashSet::new(),
        }
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.under_way
    }

    pub(super) fn is_blind(&self) -> bool {
        self.blind
    }

    pub(super) fn begin(&mut self) {
        assert!(!self.under_way, "one run at a time");
        self.under_way = true;
    }

    /// Keys in the run's copy of the tree, if it has touched it.
    pub(super) fn len(&self, tree: TreeId) -> Option<usize> {
        self.copies.get(&tree).map(|copy| copy.map.len())
    }

    /// The tree as the current run sees it, without the sought keys if those are absent.
    pub(super) fn map(
        &mut self,
        engine: &ReferenceEngine,
        tree: TreeId,
        sought: &Sought<'_>,
    ) -> Option<&mut Map> {
        let name = match sought {
            Sought::Key(bytes) | Sought::Some(bytes) => (tree, Box::from(*bytes)),
        };
        let away = self.here.insert(name) && self.draws(AWAY_ONE_IN);
        self.blind |= away;
        let copy = match self.copies.entry(tree) {
            Entry::Occupied(copied) => copied.into_mut(),
            Entry::Vacant(place) => {
                let original = engine.tree(tree)?;
                let original = original.read();
                let (changes, map) = (original.changes(), original.copy());
                place.insert(Copy { changes, map })
            }
        };
        let map = &mut copy.map;
        if away {
            match sought {
                Sought::Key(bytes) => map.lose(bytes),
                Sought::Some(_) => map.lose_some(),
            }
        }
        Some(map)
    }

    pub(super) fn end(&mut self, engine: &ReferenceEngine, may: &dyn Fn() -> bool) -> Outcome {
        assert!(self.under_way, "a run is under way");
        self.under_way = false;
        let copies = std::mem::take(&mut self.copies);
        if std::mem::take(&mut self.blind) {
            return Outcome::Away;
        }
        let conflicts = !copies.is_empty() && self.draws(CONFLICT_ONE_IN);
        if conflicts || !commit(engine, copies, may) {
            return Outcome::Conflict;
        }
        self.here.clear();
        Outcome::Done
    }

    fn draws(&mut self, one_in: u64) -> bool {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).is_multiple_of(one_in)
    }
}

/// Replaces the trees by their copies, if none of the trees has changed (RE1 locks-in-order), and
/// the run `may` count; returns whether it did.
fn commit(
    engine: &ReferenceEngine,
    mut copies: BTreeMap<TreeId, Copy>,
    may: &dyn Fn() -> bool,
) -> bool {
    let trees: Option<Vec<Arc<Tree>>> = copies.keys().map(|id| engine.tree(*id)).collect();
    let Some(trees) = trees else { return false };
    let mut originals: Vec<_> = trees.iter().map(|tree| tree.write()).collect();
    let unchanged =
        |(original, copy): (&RwLockWriteGuard<'_, Map>, &Copy)| original.changes() == copy.changes;
    if !originals.iter().zip(copies.values()).all(unchanged) || !may() {
        return false;
    }
    for (original, copy) in originals.iter_mut().zip(copies.values_mut()) {
        std::mem::swap(&mut **original, &mut copy.map);
    }
    // Replaced values are freed after the locks (RE4 free-after-lock).
    drop(originals);
    true
}
