//! SWAPDB, FLUSHDB and FLUSHALL: databases get other trees (`mapping` holds them).
//!
//! The old tree of an emptied database is freed in the background, or when the last snapshot that
//! shows it is dropped.

use std::sync::atomic::Ordering;

use pando_engine::TreeId;

use crate::database::Database;
use crate::durable::hook::record_mapping;
use crate::effects::{Leftover, MappingImage, leaves};
use crate::pool;
use crate::session_state::SessionState;

/// Exchanges two databases. The caller holds all gates (B1 mapping-stands-still).
pub(crate) fn swap(database: &Database, session: &mut SessionState, first: usize, second: usize) {
    if first != second {
        keep_image(database, session);
        database.change_trees(session, &[first, second], || {
            let tree = database.set_tree(first, database.tree(second));
            database.set_tree(second, tree);
        });
        record_change(database, session, first);
    }
}

/// Empties database `index` by giving it a new tree. An empty one stays as it is: tree numbers are
/// not reused. The caller holds all gates (B1 mapping-stands-still).
pub(crate) fn replace(database: &Database, session: &mut SessionState, index: usize) {
    let store = &database.store;
    let old = database.tree(index);
    if session.store.len(store, old) == 0 {
        return;
    }
    keep_image(database, session);
    let new = match database.branch_of(index) {
        Some((engine, branch)) => engine.create_branch_tree(branch),
        None => store.create_tree(),
    };
    database.change_trees(session, &[index], || {
        database.set_tree(index, new);
    });
    let run = session.effects.as_mut();
    match run.and_then(|run| run.mapping.as_mut()) {
        Some(image) => {
            image.made.push(new);
            image.left.push(old);
        }
        None => drop_tree(database, old),
    }
    record_change(database, session, index);
}

/// Records that this database has another tree.
fn record_change(database: &Database, session: &mut SessionState, index: usize) {
    if index < database.databases() {
        record(database, session);
    } else {
        database.note_trees(session, index);
    }
}

/// Drops a tree that no number leads to any more, unless a snapshot shows it (NS3 trees-stay).
pub(crate) fn drop_tree(database: &Database, tree: TreeId) {
    if !database.snapshots.show(tree) {
        database.store.drop_tree(tree);
    }
    database.expiry.drop_tree(tree);
}

/// Records what the current run, if there is one, is about to change for the first time
/// (RR1 effects-once).
fn keep_image(database: &Database, session: &mut SessionState) {
    if let Some(run) = &mut session.effects {
        run.mapping.get_or_insert_with(|| MappingImage {
            trees: database.mapping.image(),
            watches: database.watchers.image(&database.watch_horizon),
            made: Vec::new(),
            left: Vec::new(),
            recorded: database.mapping.changes.load(Ordering::Relaxed),
        });
    }
}

/// Restores the mapping: the run that changed it does not count. The caller holds all gates
/// (B1 mapping-stands-still).
pub(crate) fn put_back(database: &Database, image: MappingImage) {
    assert!(database.gates.are_all_taken());
    if !leaves(Leftover::Mapping) {
        database.mapping.put_back(&image.trees);
        for tree in image.made {
            database.store.drop_tree(tree);
        }
    }
    let changes = &database.mapping.changes;
    changes.store(image.recorded, Ordering::Relaxed);
    if leaves(Leftover::Watches) {
        image.watches.release(&database.watch_horizon);
    } else {
        image.watches.put_back(&database.watch_horizon);
    }
}

/// Records the mapping in the session's log. The caller has changed it, under all gates.
pub(crate) fn record(database: &Database, session: &mut SessionState) {
    assert!(database.gates.are_all_taken());
    let changes = database.mapping.changes.fetch_add(1, Ordering::Relaxed) + 1;
    if let Some(log) = &mut session.log {
        record_mapping(log, changes, database.mapping().into_iter());
    }
    if let Some(engine) = database.store.pooled() {
        session.note_commit();
        pool::note_mapping(engine, changes, &database.mapping());
    }
}
