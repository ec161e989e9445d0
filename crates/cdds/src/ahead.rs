//! Ways to the leaves of several keys, found ahead of what is done with them.
//!
//! A way costs a few lines that are not in the cache, one after the other. Those of several keys
//! are asked for at once. What was found is kept as *spots*: whoever comes to a key finds its leaf
//! without going there again, if the leaf is still the key's.

use pando_pmem::{Offset, Pmem};

use crate::frame::FramePlace;
use crate::latch::Watch;
use crate::node::{Node, Probe, fingerprint_of, prefetch_leaf};
use crate::record::Record;
use crate::shared::{Look, Shared};
use crate::tree::Error;

/// The leaf of a key, and the frame that says so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    /// The key's first words.
    words: [u64; 4],
    frame: FramePlace,
    pub(crate) leaf: Offset,
    pub(crate) fingerprint: u8,
    /// Most likely its record; anything, if somebody changed the leaf meanwhile.
    pub(crate) record: Offset,
}

impl<M: Pmem> Shared<M> {
    /// Finds the leaves of keys, and asks for what a look-up of each will read. A key gets no spot
    /// if a frame on its way is missing. The caller is pinned, or nobody changes the tree.
    pub(crate) fn warm<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        spots: &mut Vec<Option<Spot>>,
    ) {
        spots.clear();
        spots.extend(keys.clone().map(|key| {
            let probe = Probe::new(key);
            let frame = self.frame_above_leaf(&probe)?;
            Some(Spot {
                words: probe.words(),
                frame,
                leaf: Offset::NONE,
                fingerprint: fingerprint_of(key),
                record: Offset::NONE,
            })
        }));
        for (key, place) in keys.clone().zip(spots.iter_mut()) {
            *place = place.and_then(|spot| self.find_leaf(key, spot));
        }
        for (key, spot) in keys.zip(spots) {
            if let Some(spot) = spot {
                let leaf = Node::at(&self.pool, spot.leaf, self.slots);
                spot.record = leaf.prefetch_alike(key, spot.fingerprint);
            }
        }
    }

    /// The frame of the node above a key's leaf, which is asked for.
    fn frame_above_leaf(&self, probe: &Probe<'_>) -> Option<FramePlace> {
        let (mut above, mut at) = (Watch::STILL, self.anchor);
        loop {
            let frame = self.frames.of(at)?;
            if !above.holds() {
                return None;
            }
            if frame.level() == 1 {
                frame.prefetch();
                return Some(frame.place);
            }
            let way = self.in_frame(&frame, probe)?;
            (above, at) = (frame.watch, way.child);
        }
    }

    /// The spot with its leaf, whose lines are asked for.
    fn find_leaf(&self, key: &[u8], spot: Spot) -> Option<Spot> {
        let frame = self.frames.again(spot.frame)?;
        let way = self.in_frame(&frame, &Probe::with_words(key, spot.words))?;
        // What was read of a frame that changed meanwhile is no leaf.
        if !frame.watch.holds() || !self.may_be_node(way.child) {
            return None;
        }
        prefetch_leaf(&self.pool, (way.child, self.slots), spot.fingerprint);
        Some(Spot {
            leaf: way.child,
            ..spot
        })
    }

    /// The leaf that a spot names, if it is still its key's. The caller is pinned, or nobody
    /// changes nodes above leaves.
    #[inline]
    pub(crate) fn leaf_at(&self, spot: &Spot, look: Look) -> Option<Node<'_, M>> {
        let watch = self.watch(spot.leaf, look);
        // CL3 coupled, CF3 gone-cleared.
        self.frames.again(spot.frame)?;
        self.child_of(1, spot.leaf, watch)
    }

    /// The record of a key, found where its spot says, or by the way from the root.
    #[inline]
    pub(crate) fn record_ahead(
        &self,
        key: &[u8],
        spot: Option<&Spot>,
    ) -> Result<Option<Record<'_>>, Error> {
        let look = Look::PRESENT;
        let found = spot.and_then(|spot| {
            let leaf = self.leaf_at(spot, look)?;
            self.record_in(Some(leaf), key, spot.fingerprint, look)
        });
        found.unwrap_or_else(|| self.record_of(key, look))
    }
}
