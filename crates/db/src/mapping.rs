//! SWAPDB, FLUSHDB and FLUSHALL: databases are given other trees (`trees` holds which).
//!
//! The old tree of a database that is emptied is freed in the background.

use std::sync::atomic::Ordering;

use crate::database::Database;
use crate::durable::hook::record_mapping;
use crate::session_state::SessionState;

/// Exchanges two databases. The caller holds all gates (B1 mapping-stands-still).
pub(crate) fn swap(database: &Database, session: &mut SessionState, first: usize, second: usize) {
    if first != second {
        database.change_trees(session, &[first, second], || {
            let (trees, epoch) = (&database.trees, database.epochs.current());
            let tree = trees.set(first, trees.get(second), epoch);
            trees.set(second, tree, epoch);
        });
        record(database, session);
    }
}

/// Empties database `index` by giving it a new tree. An empty one stays as it is: tree numbers are
/// not used twice. The caller holds all gates (B1 mapping-stands-still).
pub(crate) fn replace(database: &Database, session: &mut SessionState, index: usize) {
    let store = &database.store;
    if store.len(database.tree(index)) == 0 {
        return;
    }
    database.change_trees(session, &[index], || {
        let epoch = database.epochs.current();
        let old = database.trees.set(index, store.create_tree(), epoch);
        store.drop_tree(old);
        database.expiry.drop_tree(old);
    });
    record(database, session);
}

/// Records the mapping in the session's log.
fn record(database: &Database, session: &mut SessionState) {
    if let (Some(durable), Some(log)) = (&database.durable, &mut session.log) {
        let changes = durable.mapping_changes.fetch_add(1, Ordering::Relaxed) + 1;
        record_mapping(log, changes, database.mapping().into_iter());
    }
}
