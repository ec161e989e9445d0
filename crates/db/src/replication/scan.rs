//! The trees of a database, slice by slice: at present, for a full copy, or in a snapshot, for a
//! check.
//!
//! A slice is taken in one turn, so nobody waits for more than a slice, and nothing of a tree is
//! kept between two. Whoever scans a snapshot makes it and lets it go here.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use pando_engine::{Direction, NewValue, TreeId, ValueRef, ValueVersion};

use super::message::put_entries_head;
use crate::clock::Milliseconds;
use crate::durable::bytes::Sink;
use crate::durable::{record, value};
use crate::error::CommandError;
use crate::freeze::Wanted;
use crate::limits;
use crate::session::Session;
use crate::snapshots::NamedSnapshot;
use crate::store::{Listing, StoreSession};
use crate::turn::Turn;
use crate::view::Moment;

/// Makes a snapshot to scan, which lives for so long if nothing ends it. The turn has all gates.
pub(super) fn freeze(
    turn: &mut Turn<'_>,
    purpose: &str,
    lives: Milliseconds,
) -> Result<Arc<NamedSnapshot>, CommandError> {
    let number = turn.session_mut().random.u64(..);
    turn.freeze(&Wanted {
        name: format!("{purpose}-{number:016x}").as_bytes(),
        lives: Some(lives),
        is_held: false,
        lasts: false,
        is_lent: false,
        base: 0,
        repeats: None,
    })
}

/// Lets it go, if it is there still. The turn has all gates.
pub(super) fn let_go(turn: &mut Turn<'_>, snapshot: &Arc<NamedSnapshot>) {
    let database = turn.database();
    let list = database.snapshots.list();
    if list.iter().any(|other| other.moment == snapshot.moment) {
        database.drop_snapshot(turn.session_mut(), snapshot);
    }
}

/// What takes the entries of trees.
pub(super) trait Takes {
    /// Those of this tree follow.
    fn begin(&mut self, tree: TreeId);

    /// Whether it takes such a value: it may be asked under the engine's lock.
    fn wants(&self, _: ValueRef<'_>) -> bool {
        true
    }

    fn take(&mut self, key: &[u8], value: ValueRef<'_>);

    /// Whether it has taken enough for one turn.
    fn is_full(&self) -> bool;
}

/// A message of entries.
#[derive(Debug)]
pub(super) struct Entries<'o>(pub(super) &'o mut Vec<u8>);

impl Takes for Entries<'_> {
    fn begin(&mut self, tree: TreeId) {
        put_entries_head(self.0, tree);
    }

    fn take(&mut self, key: &[u8], value: ValueRef<'_>) {
        self.0.string(key);
        self.0.put(&value.version.to_bits().to_le_bytes());
        value::put_value(self.0, value);
    }

    fn is_full(&self) -> bool {
        self.0.len() >= limits::COPY_SLICE_BYTES
    }
}

/// How a slice went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scanned {
    /// Something was taken, and there may be more.
    Some,
    /// All was taken before.
    All,
    /// The snapshot was dropped.
    Gone,
}

/// Where a scan goes on.
#[derive(Clone, Debug)]
enum Place {
    /// An ordered engine: behind this key.
    Key(Bound<Vec<u8>>),
    /// An unordered one.
    Cursor(u64),
}

/// The trees that are left to send, and where the first of them goes on.
#[derive(Debug)]
pub(super) struct Scan {
    trees: std::vec::IntoIter<TreeId>,
    present: Option<(TreeId, Place)>,
    past: Option<Moment>,
}

/// What one turn has taken.
struct Slice<'o, T> {
    takes: &'o mut T,
    past: Option<Moment>,
    steps: usize,
    large: Vec<(Vec<u8>, ValueVersion, NewValue<'static>)>,
}

impl Scan {
    /// Of trees as they are, or as they were in a snapshot.
    pub(super) fn of(trees: Vec<TreeId>, past: Option<Moment>) -> Self {
        Self {
            trees: trees.into_iter(),
            present: None,
            past,
        }
    }

    /// Gives the next entries to `takes`.
    pub(super) fn next(&mut self, session: &mut Session, takes: &mut impl Takes) -> Scanned {
        let start = Place::Key(Bound::Unbounded);
        let present = self.present.take();
        let present = present.or_else(|| self.trees.next().map(|tree| (tree, start)));
        let Some((tree, place)) = present else {
            return Scanned::All;
        };
        let mut turn = session.turn();
        let snapshots = &turn.database().snapshots;
        let seen = &mut turn.session_mut().snapshots;
        if self
            .past
            .is_some_and(|moment| seen.at(snapshots, moment).is_err())
        {
            return Scanned::Gone;
        }
        takes.begin(tree);
        let mut slice = Slice {
            takes,
            past: self.past,
            steps: 0,
            large: Vec::new(),
        };
        let next = slice.take(&mut turn.session_mut().store, tree, &place);
        drop(turn);
        let Slice { takes, large, .. } = slice;
        for (key, version, value) in large {
            takes.take(&key, value.view(version));
        }
        self.present = next.map(|place| (tree, place));
        Scanned::Some
    }
}

impl<T: Takes> Slice<'_, T> {
    fn take(&mut self, store: &mut StoreSession, tree: TreeId, place: &Place) -> Option<Place> {
        match store.listing() {
            Listing::Ordered(mut session) => {
                let Place::Key(from) = place else {
                    unreachable!("the engine keeps its keys in order");
                };
                let from = from.as_ref().map(Vec::as_slice);
                let mut last = None;
                let past = self.past;
                let visit = |key: &[u8], value: Option<ValueRef<'_>>| {
                    self.visit(key, value);
                    if self.is_full() {
                        last = Some(key.to_vec());
                        return ControlFlow::Break(());
                    }
                    ControlFlow::Continue(())
                };
                match past {
                    None => session.scan_all(tree, from, Direction::Forward, visit),
                    Some(Moment { snapshot, .. }) => {
                        session.scan_all_at(snapshot, tree, from, Direction::Forward, visit);
                    }
                }
                last.map(|last| Place::Key(Bound::Excluded(last)))
            }
            Listing::Walking(mut session) => {
                let mut cursor = match place {
                    Place::Cursor(cursor) => *cursor,
                    Place::Key(_) => 0,
                };
                let past = self.past;
                loop {
                    let visit = |key: &[u8], value: ValueRef<'_>| self.visit(key, Some(value));
                    cursor = match past {
                        None => session.walk(tree, cursor, visit),
                        Some(moment) => session.walk_at(moment.snapshot, tree, cursor, visit),
                    };
                    if cursor == 0 {
                        return None;
                    }
                    self.steps += 1;
                    if self.is_full() {
                        return Some(Place::Cursor(cursor));
                    }
                }
            }
        }
    }

    fn is_full(&self) -> bool {
        self.steps >= limits::COPY_SLICE_ENTRIES || self.takes.is_full() || !self.large.is_empty()
    }

    fn visit(&mut self, key: &[u8], value: Option<ValueRef<'_>>) {
        self.steps += 1;
        match value.filter(|value| self.takes.wants(*value)) {
            Some(value) if record::is_small(value) => self.takes.take(key, value),
            // It is taken behind the turn.
            Some(value) => {
                let image = (key.to_vec(), value.version, value.hand_over());
                self.large.push(image);
            }
            None => {}
        }
    }
}
