//! Emptying memory: moving the values in it.
//!
//! When sizes of values change, scattered blocks of the old sizes become free, and their memory
//! serves no other size before its neighbours are free too. So engines choose parts of their memory
//! to empty. A hand passes all values once and moves those in such parts to free blocks of their
//! size elsewhere. None is evicted because of where it is: only short values are in such memory,
//! and the most used ones would be evicted with the others.
//!
//! | field | writer | lock | reader |
//! |---|---|---|---|
//! | `Emptier` | one session at a time | a mutex that nobody waits for | the same |

use pando_engine::{Hand, Key, TreeId};

use crate::database::Database;
use crate::limits;
use crate::memory::Emptier;
use crate::session_state::SessionState;

/// All trees that hold values: those of the databases, then those that only snapshots show and
/// those the engine keeps for snapshots. If a snapshot is made or dropped meanwhile, a tree may be
/// passed twice or not at all, which does no harm.
fn trees(database: &Database) -> Vec<TreeId> {
    let mut trees: Vec<_> = database.mapping.iter().collect();
    for tree in database.snapshots.trees() {
        if !trees.contains(&tree) {
            trees.push(tree);
        }
    }
    trees.extend(database.store.image_trees());
    trees
}

/// The tree that the hand is in, or the next one that holds keys.
fn next_tree(emptier: &mut Emptier, database: &Database, trees: &[TreeId]) -> Option<TreeId> {
    let mut indexes = emptier.index..trees.len();
    let index = indexes.find(|index| database.store.len(trees[*index]) > 0)?;
    if index != emptier.index {
        emptier.index = index;
        emptier.hand = Hand::default();
    }
    Some(trees[index])
}

/// Passes up to `limits::EMPTY_STEPS_MAX` values, or a few more; returns how many. `short`: memory
/// is short (EV1 bounded-eviction). The caller holds a gate.
pub(crate) fn empty(database: &Database, session: &mut SessionState, short: bool) -> usize {
    let Some(mut store) = session.store.emptying() else {
        return 0;
    };
    // Another session is doing it.
    let Ok(mut emptier) = database.memory.emptier.try_lock() else {
        return 0;
    };
    if !store.begin(short) {
        emptier.active = false;
        return 0;
    }
    if !emptier.active {
        *emptier = Emptier {
            active: true,
            ..Emptier::default()
        };
    }
    let trees = trees(database);
    let (mut steps, mut found) = (0, Vec::new());
    while steps < limits::EMPTY_STEPS_MAX {
        let Some(tree) = next_tree(&mut emptier, database, &trees) else {
            store.end();
            emptier.active = false;
            break;
        };
        let window = limits::EVICT_WINDOW;
        let visit = |key: &[u8], _: pando_engine::ValueRef<'_>| found.push(Box::<[u8]>::from(key));
        let ended = store.sweep(tree, &mut emptier.hand, window, visit);
        steps += window;
        for key in found.drain(..) {
            store.relocate(Key::new(tree, &key));
        }
        if ended {
            emptier.hand = Hand::default();
            emptier.index += 1;
        }
    }
    steps
}
