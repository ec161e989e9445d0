//! Ways to the leaves of several keys, found ahead of what is done with them.
//!
//! A way costs a few lines that are not in the cache, one after the other. Those of several keys
//! are asked for at once. What was found is kept as *spots*: whoever comes to a key finds its leaf
//! without going there again, if the leaf is still the key's.

use pando_pmem::{Offset, Pmem};

use crate::alike::prefetch_leaf;
use crate::frame::{Frame, FramePlace};
use crate::node::{Node, Probe, fingerprint_of};
use crate::record::Record;
use crate::shared::{Look, Shared, whole};
use crate::tree::Error;

/// The leaf of a key, and the frame that says so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    /// The key's first words.
    words: [u64; 4],
    frame: FramePlace,
    pub(crate) leaf: Offset,
    pub(crate) fingerprint: u8,
    /// Most likely its slot and its record; anything, if somebody changed the leaf meanwhile.
    pub(crate) slot: u64,
    pub(crate) record: Offset,
}

impl<M: Pmem> Shared<M> {
    /// Finds the leaves of keys, and asks for what a look-up of each will read. A key gets no spot
    /// if a frame on its way is missing. The caller is pinned, or has the tree.
    pub(crate) fn warm<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        spots: &mut Vec<Option<Spot>>,
    ) {
        let root = self.root_frame();
        spots.clear();
        spots.extend(keys.clone().map(|key| {
            let probe = Probe::new(key);
            let frame = self.frame_above_leaf(root?, &probe)?;
            Some(Spot {
                words: probe.words(),
                frame,
                leaf: Offset::NONE,
                fingerprint: fingerprint_of(key),
                slot: 0,
                record: Offset::NONE,
            })
        }));
        for (key, place) in keys.clone().zip(spots.iter_mut()) {
            if let Some(spot) = place
                && self.find_leaf(key, spot).is_none()
            {
                *place = None;
            }
        }
        for (key, spot) in keys.zip(spots) {
            if let Some(spot) = spot {
                let leaf = Node::at(&self.pool, spot.leaf, self.slots);
                if let Some((slot, record)) = leaf.prefetch_alike(key, spot.fingerprint) {
                    (spot.slot, spot.record) = (slot, record);
                }
            }
        }
    }

    /// The frame of the root.
    fn root_frame(&self) -> Option<Frame<'_>> {
        let anchor = self.frames.of(self.anchor)?;
        let root = self.frames.of(anchor.ways().next()?.child)?;
        // CL3 coupled.
        anchor.watch.holds().then_some(root)
    }

    /// The frame of the node above a key's leaf, which is asked for, from the root's on.
    fn frame_above_leaf(&self, root: Frame<'_>, probe: &Probe<'_>) -> Option<FramePlace> {
        let mut frame = root;
        while frame.level() > 1 {
            let way = self.in_frame(&frame, probe)?;
            let below = self.frames.of(way.child)?;
            // CL3 coupled.
            if !frame.watch.holds() {
                return None;
            }
            frame = below;
        }
        frame.prefetch();
        Some(frame.place)
    }

    /// Finds the leaf of a spot, and asks for its lines.
    fn find_leaf(&self, key: &[u8], spot: &mut Spot) -> Option<()> {
        let frame = self.frames.again(spot.frame)?;
        let way = self.in_frame(&frame, &Probe::with_words(key, spot.words))?;
        // What was read of a frame that changed meanwhile is no leaf.
        if !frame.watch.holds() || !self.may_be_node(way.child) {
            return None;
        }
        prefetch_leaf(&self.pool, (way.child, self.slots), spot.fingerprint);
        spot.leaf = way.child;
        Some(())
    }

    /// The leaf that a spot names, if it is still its key's. The caller is pinned, or has the tree
    /// shared (CX1 epoch-stands).
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
            if let Some((_, record)) = leaf.find_at(spot.slot, key, look.view)
                && leaf.holds()
            {
                return Some(whole(record).map(Some));
            }
            self.record_in(Some(leaf), key, spot.fingerprint, look)
        });
        found.unwrap_or_else(|| self.record_of(key, look))
    }
}

#[cfg(test)]
mod tests {
    use pando_pmem::Simulated;

    use crate::canary::{self, Fault};
    use crate::tests::create;

    /// Other keys come into the slots of keys that were found ahead and went.
    fn look_where_others_are(fault: Option<Fault>) {
        canary::plant(fault);
        let mut tree = create(Simulated::new(1 << 22));
        // Their first eight bytes do not tell them apart.
        let key = |number: u32, more: &str| format!("eight by{number:03}{more}").into_bytes();
        let keys: Vec<_> = (0..100).map(|number| key(number, "")).collect();
        for key in &keys {
            tree.put(key, b"old").unwrap();
        }
        tree.commit().unwrap();
        for key in &keys {
            assert_eq!(tree.get(key).unwrap(), Some(&b"old"[..]));
        }
        let mut spots = Vec::new();
        let all = keys.iter().map(Vec::as_slice);
        tree.shared.warm(all, &mut spots);
        assert!(spots.iter().flatten().count() > keys.len() / 2);
        for (number, old) in (0..).zip(&keys) {
            assert!(tree.remove(old).unwrap());
            tree.commit().unwrap();
            tree.put(&key(number, "+"), b"new").unwrap();
            tree.commit().unwrap();
        }
        for (key, spot) in keys.iter().zip(&spots) {
            let record = tree.shared.record_ahead(key, spot.as_ref()).unwrap();
            assert!(record.is_none(), "another key's record");
        }
        canary::plant(None);
    }

    #[test]
    fn a_slot_that_was_found_ahead_is_another_keys_by_now() {
        look_where_others_are(None);
    }

    #[test]
    #[should_panic(expected = "another key's record")]
    fn a_slot_that_is_trusted_is_noticed() {
        look_where_others_are(Some(Fault::SlotTrusted));
    }
}
