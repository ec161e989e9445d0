//! Exact versions: values come back from a log, a checkpoint or another database as they were.

use crate::{Key, NewValue, Point, TreeId, ValueVersion};

/// A value to be restored; see [`Restore::restore_run`].
#[derive(Debug)]
pub struct Restored<'d> {
    /// Its key.
    pub key: &'d [u8],
    /// See [`Restore::restore`].
    pub version: ValueVersion,
    /// See [`Restore::restore`].
    pub value: NewValue<'d>,
}

/// A session of an engine that takes versions drawn elsewhere, and keeps those of removed keys.
/// Recovery and replication need it; an engine that brings its data and versions back itself can do
/// without.
pub trait Restore: Point {
    /// Restores a key from a log or a checkpoint: `value` at `version`, or a tombstone if `None`,
    /// unless the key already has one that is at least as new. Returns whether it was restored.
    /// Calls no hook and draws no version. Versions of a key may arrive in any order.
    ///
    /// A restored epoch is below the clock's current one, so versions still increase
    /// (E2 versions-grow).
    fn restore(&mut self, key: Key<'_>, version: ValueVersion, value: Option<NewValue<'_>>)
    -> bool;

    /// Restores values of one tree, in strictly ascending key order, as [`Self::restore`] does one
    /// by one, and leaves `run` empty. An ordered engine may build whole nodes for keys it did not
    /// have.
    fn restore_run(&mut self, tree: TreeId, run: &mut Vec<Restored<'_>>) {
        for restored in run.drain(..) {
            let key = Key::new(tree, restored.key);
            self.restore(key, restored.version, Some(restored.value));
        }
    }
}
