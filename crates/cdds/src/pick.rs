//! Looking at the tree's shape: a key by chance, and keys that cut a range into equal parts.

use pando_pmem::Pmem;

use crate::node::{ANCHOR, Found, Node, View};
use crate::record::Record;
use crate::tree::{Error, Tree};

/// Ways down that are tried for a key by chance, when what was reached has none in the range.
const TRIES_MAX: u32 = 16;

/// Keys from the first on and below the second.
type Range<'r> = (&'r [u8], &'r [u8]);

impl<M: Pmem> Tree<M> {
    /// A key of a range, picked by `random`; each can be. None if there is none, or when bad luck
    /// lasts. O(log n).
    pub(crate) fn pick(
        &self,
        view: View,
        range: Range<'_>,
        random: u64,
    ) -> Result<Option<Record<'_>>, Error> {
        let mut random = random;
        for _ in 0..TRIES_MAX {
            let Some(mut node) = self.root(view)? else {
                return Ok(None);
            };
            loop {
                // An odd factor and a rotation, so that each choice depends on all bits.
                random = random.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
                let found = self.within(node, view, range);
                if found.is_empty() {
                    break;
                }
                let chosen = (u128::from(random) * found.len() as u128) >> 64;
                let entry = found[chosen as usize].entry;
                if node.is_leaf() {
                    return self.record(entry).map(Some);
                }
                node = self.child(node.level, entry.child)?;
            }
        }
        Ok(None)
    }

    /// Up to `parts - 1` separators within a range, in order, that cut it into about equal parts.
    pub(crate) fn cuts(&self, range: Range<'_>, parts: usize) -> Result<Vec<Vec<u8>>, Error> {
        let view = self.present();
        let mut level: Vec<_> = self.root(view)?.into_iter().collect();
        let mut keys: Vec<Vec<u8>> = Vec::new();
        while let Some(first) = level.first() {
            let (is_leaf, above) = (first.is_leaf(), first.level);
            let found: Vec<_> = level
                .iter()
                .flat_map(|node| self.within(*node, view, range))
                .collect();
            let inside = |key: &&[u8]| *key > range.0 && *key < range.1;
            keys = found
                .iter()
                .filter_map(|found| Record::at(&self.pool, found.entry.record))
                .map(Record::key)
                .filter(inside)
                .map(<[u8]>::to_vec)
                .collect();
            if is_leaf || keys.len() + 1 >= 8 * parts {
                break;
            }
            let child = |found: &Found| self.child(above, found.entry.child);
            level = found.iter().map(child).collect::<Result<_, _>>()?;
        }
        let ranges = keys.len() + 1;
        let cut = |part: usize| (part * ranges / parts).checked_sub(1);
        let mut cuts: Vec<_> = (1..parts).filter_map(cut).collect();
        cuts.dedup();
        Ok(cuts.into_iter().map(|at| keys[at].clone()).collect())
    }

    fn root(&self, view: View) -> Result<Option<Node<'_, M>>, Error> {
        let root = self.anchor().seen(view).next();
        root.map(|root| self.child(ANCHOR, root.entry.child))
            .transpose()
    }

    /// What a view sees of a node and may lie in a range, in order.
    fn within(&self, node: Node<'_, M>, view: View, (low, high): Range<'_>) -> Vec<Found> {
        let mut found = node.sorted(view);
        let key = |found: &Found| {
            Record::at(&self.pool, found.entry.record)
                .filter(|_| !found.entry.record.is_none())
                .map_or(&b""[..], Record::key)
        };
        let end = found.partition_point(|found| key(found) < high);
        found.truncate(end);
        let mut begin = found.partition_point(|found| key(found) < low);
        if !node.is_leaf() && found.get(begin).is_none_or(|first| key(first) > low) {
            // The child before may reach into the range.
            begin = begin.saturating_sub(1);
        }
        found.drain(..begin);
        found
    }
}
