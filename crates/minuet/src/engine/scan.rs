//! Scans, some leaves at a time: the first is found from the root, the others by the node above.
//!
//! While a session is inside, no child of a node comes or goes (ME4 leaves-alone), so what led to a
//! leaf leads to its neighbours, but for those that were split off from it or from them: these are
//! shown in between, by their links (ME6 links-lead-on). A leaf is held while its entries are
//! shown, and no other one then; the next one is asked for before, and cells some ahead of the one
//! that is shown.

use std::ops::{Bound, ControlFlow};

use pando_engine::{Direction, Key, TreeId};
use pando_memnode::{Address, Sequence};

use super::State;
use super::place::{Place, ends};
use super::sight::Sight;
use super::walk::{Found, Held, Target};

/// Leaves that are shown before whoever waits to be alone is let in.
const LEAVES_TOGETHER: usize = 8;

/// A scan of a tree on its way: a leaf at a time.
#[derive(Debug)]
pub(super) struct Scan<'f> {
    tree: TreeId,
    way: Direction,
    /// Where it begins: what lies before it in its first leaf is not shown.
    from: Bound<&'f [u8]>,
    has_begun: bool,
    /// Where the next leaf begins, or ends on the way back.
    next: Option<Vec<u8>>,
}

impl<'f> Scan<'f> {
    pub(super) fn new(tree: TreeId, from: Bound<&'f [u8]>, way: Direction) -> Self {
        let (low, high) = ends(tree);
        let entry = |key: &[u8]| {
            let place = Place::of(Key::new(tree, key));
            place.entry().to_vec()
        };
        let next = match (from, way) {
            (Bound::Unbounded, Direction::Forward) => low.to_vec(),
            (Bound::Unbounded, Direction::Backward) => high.to_vec(),
            (Bound::Included(key) | Bound::Excluded(key), Direction::Forward) => entry(key),
            // What is shown is below it: it, or the bundle that it is in, is.
            (Bound::Included(key) | Bound::Excluded(key), Direction::Backward) => {
                let mut next = entry(key);
                next.push(0);
                next
            }
        };
        Self {
            tree,
            way,
            from,
            has_begun: false,
            next: Some(next),
        }
    }

    /// Whether there is more.
    pub(super) fn has_more(&self) -> bool {
        self.next.is_some()
    }

    fn is_within(&self, key: &[u8]) -> bool {
        match (self.from, self.way) {
            (Bound::Unbounded, _) => true,
            (Bound::Included(from), Direction::Forward) => key >= from,
            (Bound::Excluded(from), Direction::Forward) => key > from,
            (Bound::Included(from), Direction::Backward) => key <= from,
            (Bound::Excluded(from), Direction::Backward) => key < from,
        }
    }

    /// The leaf that is the next one below a node, which is asked for.
    fn next_child(
        &self,
        state: &State,
        sight: &Sight,
        (parent, index): &mut (Held<'_>, usize),
    ) -> Option<Address> {
        let next = match self.way {
            Direction::Forward => Some(*index + 1),
            Direction::Backward => index.checked_sub(1),
        };
        *index = next.filter(|next| *next < parent.count())?;
        let next = state.arrive(sight, parent.child(*index));
        state.prefetch(next);
        Some(next)
    }

    /// Shows the entries of some leaves to `visit`. If it breaks, there is no more. `meet` is told
    /// of each leaf, which is held then, and in which state it is.
    pub(super) fn turn(
        &mut self,
        state: &State,
        sight: &Sight,
        mut meet: impl FnMut(Address, Sequence),
        mut visit: impl FnMut(&[u8], &Found<'_>) -> ControlFlow<()>,
    ) {
        let Some(from) = self.next.take() else { return };
        let (low, high) = ends(self.tree);
        let target = match self.way {
            Direction::Forward => Target::At(&from),
            Direction::Backward => Target::Below(&from),
        };
        let (mut row, mut leaf) = state.descend(sight, target);
        let mut ahead = None;
        // Where what is still to be shown on the way back ends.
        let mut to = from.clone();
        for left in (0..LEAVES_TOGETHER).rev() {
            // Before this leaf is held (SL2 latches-in-order).
            if ahead.is_none() && left > 0 {
                let row = row.as_mut();
                ahead = row.and_then(|row| self.next_child(state, sight, row));
            }
            let (found, page) = match self.way {
                Direction::Forward => state.held(leaf, Target::At(&from)),
                Direction::Backward => state.held(leaf, Target::Below(&to)),
            };
            if found != leaf && self.way == Direction::Backward {
                // The node above does not know what is before it.
                (row, ahead) = (None, None);
            }
            leaf = found;
            meet(leaf, page.holder().state().sequence);
            let range = match self.way {
                Direction::Forward => State::range(&page, &from, &high),
                Direction::Backward => State::range(&page, &low, &from),
            };
            let shown = state.show_leaf((&page, leaf), range, self.way, |key, found| {
                if !self.has_begun && !self.is_within(key) {
                    return ControlFlow::Continue(());
                }
                self.has_begun = true;
                visit(key, found)
            });
            if shown.is_break() {
                return;
            }
            let end = match self.way {
                Direction::Forward => page.high().filter(|end| *end < &high[..]),
                Direction::Backward => Some(page.low()).filter(|end| *end > &low[..]),
            };
            let Some(end) = end else { return };
            let link = page.link().filter(|_| self.way == Direction::Forward);
            let next = link.or_else(|| ahead.take()).filter(|_| left > 0);
            let Some(next) = next else {
                self.next = Some(end.to_vec());
                return;
            };
            if self.way == Direction::Backward {
                end.clone_into(&mut to);
            }
            leaf = next;
        }
    }
}
