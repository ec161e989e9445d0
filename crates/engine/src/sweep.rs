//! Sweeps a tree in bounded pieces: eviction looks at all values in turn, without a list that
//! writers would have to maintain.

use std::ops::{Bound, ControlFlow};

use crate::{Direction, Ordered, TreeId, ValueRef};

/// Where a sweep of one tree continues: at the start, or anywhere its owner has chosen.
#[derive(Clone, Debug, Default)]
pub struct Hand {
    /// Ordered engines: the last key that was shown.
    pub key: Option<Vec<u8>>,
    /// Others: a position in their table, any number.
    pub position: u64,
}

/// [`Point::sweep`](crate::Point::sweep) of an engine that can scan: in key order.
pub fn sweep_in_order(
    session: &mut impl Ordered,
    tree: TreeId,
    hand: &mut Hand,
    steps: usize,
    mut visit: impl FnMut(&[u8], ValueRef<'_>),
) -> bool {
    let from = hand.key.take();
    let from = from.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    let mut left = steps;
    session.scan_all(tree, from, Direction::Forward, |key, value| {
        if let Some(value) = value {
            visit(key, value);
        }
        left = left.saturating_sub(1);
        if left > 0 {
            return ControlFlow::Continue(());
        }
        hand.key = Some(key.to_vec());
        ControlFlow::Break(())
    });
    hand.key.is_none()
}
