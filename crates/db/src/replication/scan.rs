//! The trees of a followed database, slice by slice, for a full copy.
//!
//! A slice is taken in one turn, so nobody waits for more than a slice, and nothing of a tree is
//! kept between two.

use std::ops::{Bound, ControlFlow};

use pando_engine::{Direction, NewValue, TreeId, ValueRef, ValueVersion};

use super::message::put_entries_head;
use crate::durable::bytes::Sink;
use crate::durable::{record, value};
use crate::limits;
use crate::session::Session;
use crate::store::{Listing, StoreSession};

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
}

/// What one turn has taken.
struct Slice<'o> {
    out: &'o mut Vec<u8>,
    steps: usize,
    large: Vec<(Vec<u8>, ValueVersion, NewValue<'static>)>,
}

impl Scan {
    pub(super) fn of(trees: Vec<TreeId>) -> Self {
        Self {
            trees: trees.into_iter(),
            present: None,
        }
    }

    /// Writes a message with the next entries; `false`: all were sent.
    pub(super) fn next(&mut self, session: &mut Session, out: &mut Vec<u8>) -> bool {
        let start = Place::Key(Bound::Unbounded);
        let present = self.present.take();
        let present = present.or_else(|| self.trees.next().map(|tree| (tree, start)));
        let Some((tree, place)) = present else {
            return false;
        };
        put_entries_head(out, tree);
        let mut slice = Slice {
            out,
            steps: 0,
            large: Vec::new(),
        };
        let mut turn = session.turn();
        let next = slice.take(&mut turn.session_mut().store, tree, &place);
        drop(turn);
        let Slice { out, large, .. } = slice;
        for (key, version, value) in large {
            put_entry(out, &key, value.view(version));
        }
        self.present = next.map(|place| (tree, place));
        true
    }
}

fn put_entry(out: &mut Vec<u8>, key: &[u8], value: ValueRef<'_>) {
    out.string(key);
    out.put(&value.version.to_bits().to_le_bytes());
    value::put_value(out, value);
}

impl Slice<'_> {
    fn take(&mut self, store: &mut StoreSession, tree: TreeId, place: &Place) -> Option<Place> {
        match store.listing() {
            Listing::Ordered(mut session) => {
                let Place::Key(from) = place else {
                    unreachable!("the engine keeps its keys in order");
                };
                let from = from.as_ref().map(Vec::as_slice);
                let mut last = None;
                session.scan_all(tree, from, Direction::Forward, |key, value| {
                    self.visit(key, value);
                    if self.is_full() {
                        last = Some(key.to_vec());
                        return ControlFlow::Break(());
                    }
                    ControlFlow::Continue(())
                });
                last.map(|last| Place::Key(Bound::Excluded(last)))
            }
            Listing::Walking(mut session) => {
                let mut cursor = match place {
                    Place::Cursor(cursor) => *cursor,
                    Place::Key(_) => 0,
                };
                loop {
                    let visit = |key: &[u8], value: ValueRef<'_>| self.visit(key, Some(value));
                    cursor = session.walk(tree, cursor, visit);
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
        self.steps >= limits::COPY_SLICE_ENTRIES
            || self.out.len() >= limits::COPY_SLICE_BYTES
            || !self.large.is_empty()
    }

    fn visit(&mut self, key: &[u8], value: Option<ValueRef<'_>>) {
        self.steps += 1;
        match value {
            Some(value) if record::is_small(value) => put_entry(self.out, key, value),
            // It is encoded behind the turn.
            Some(value) => {
                let image = (key.to_vec(), value.version, value.hand_over());
                self.large.push(image);
            }
            None => {}
        }
    }
}
