//! Sessions as the checks use them: how keys are listed depends on what an engine can do.
//!
//! Every check is written for scans. On an unordered engine walks replace them: all keys are
//! gathered and sorted, so the check requires of walks what E7 walk-complete promises (every key
//! that was there throughout, with a whole value) and the rest of the contract in full.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use crate::{
    Direction, NewValue, Ordered, OrderedAt, Point, ReadAt, Snapshot, TreeId, ValueRef,
    ValueVersion,
};

/// More steps than this mean that a walk finds no end.
const STEPS_MAX: usize = 1 << 22;

/// A session under test.
pub trait Subject: Point {
    /// Whether a listing costs what it shows; if not, it costs the whole tree, and checks ask for
    /// few.
    const ORDERED: bool;

    /// Shows entries as [`Ordered::scan`] does.
    fn list(
        &mut self,
        tree: TreeId,
        from: Bound<&[u8]>,
        direction: Direction,
        visit: impl FnMut(&[u8], ValueRef<'_>) -> ControlFlow<()>,
    );
}

impl<S: Ordered> Subject for S {
    const ORDERED: bool = true;

    fn list(
        &mut self,
        tree: TreeId,
        from: Bound<&[u8]>,
        direction: Direction,
        visit: impl FnMut(&[u8], ValueRef<'_>) -> ControlFlow<()>,
    ) {
        self.scan(tree, from, direction, visit);
    }
}

/// [`Subject::list`] for a session that only walks: `step` takes a step of a walk, whose keys are
/// shown once each if it says so.
///
/// # Panics
/// When a walk finds no end, or shows a key twice although it says that it does not.
pub fn list_by_walking(
    mut step: impl FnMut(u64, &mut dyn FnMut(&[u8], ValueRef<'_>)) -> u64,
    each_once: bool,
    from: Bound<&[u8]>,
    direction: Direction,
    mut visit: impl FnMut(&[u8], ValueRef<'_>) -> ControlFlow<()>,
) {
    let within = |key: &[u8]| match (direction, from) {
        (_, Bound::Unbounded) => true,
        (Direction::Forward, Bound::Included(from)) => key >= from,
        (Direction::Forward, Bound::Excluded(from)) => key > from,
        (Direction::Backward, Bound::Included(from)) => key <= from,
        (Direction::Backward, Bound::Excluded(from)) => key < from,
    };
    let mut found: BTreeMap<Vec<u8>, (NewValue<'static>, ValueVersion)> = BTreeMap::new();
    let mut cursor = 0;
    for steps in 0.. {
        assert!(steps < STEPS_MAX, "a walk finds no end");
        cursor = step(cursor, &mut |key, value| {
            if within(key) {
                let copy = (value.deep_copy(), value.version);
                let again = found.insert(key.to_vec(), copy).is_some();
                assert!(!(again && each_once), "a walk shows a key twice");
            }
        });
        if cursor == 0 {
            break;
        }
    }
    let mut show = |(key, (value, version)): (&Vec<u8>, &(NewValue<'static>, ValueVersion))| {
        visit(key, value.view(*version))
    };
    // How it ended is of no use here.
    let _ = match direction {
        Direction::Forward => found.iter().try_for_each(&mut show),
        Direction::Backward => found.iter().rev().try_for_each(&mut show),
    };
}

/// A session under test of an engine that has snapshots.
pub trait SubjectAt: Subject + ReadAt {
    /// Shows entries as [`Subject::list`] does, as they were at the snapshot.
    fn list_at(
        &mut self,
        at: Snapshot,
        tree: TreeId,
        from: Bound<&[u8]>,
        direction: Direction,
        visit: impl FnMut(&[u8], ValueRef<'_>) -> ControlFlow<()>,
    );
}

impl<S: OrderedAt> SubjectAt for S {
    fn list_at(
        &mut self,
        at: Snapshot,
        tree: TreeId,
        from: Bound<&[u8]>,
        direction: Direction,
        mut visit: impl FnMut(&[u8], ValueRef<'_>) -> ControlFlow<()>,
    ) {
        self.scan_at(at, tree, from, direction, |key, value| match value {
            Some(value) => visit(key, value),
            None => ControlFlow::Continue(()),
        });
    }
}
