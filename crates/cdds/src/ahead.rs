//! Ways to the leaves of several keys, found ahead of what is done with them.
//!
//! A way costs a few lines that are not in the cache, one after the other. Those of several keys
//! are asked for at once, one step of each after the other. What was found is kept as *spots*:
//! whoever comes to a key finds its leaf without going there again, if the leaf is still the key's,
//! and its entry, if nobody has changed the leaf since.
//!
//! - **CA1 judged-while-unchanged** What a spot says of an entry was read of the leaf since its
//!   latch had the spot's version. Who finds that version again, and after it the frame as it was
//!   (CF3 gone-cleared), knows that the leaf is the key's and has the entry, as it was judged: also
//!   that nothing became void, since a rollback clears all frames. So whoever gives a key another
//!   record marks its leaf, though it has the tree for itself (CL1 marked-before). Only cleaning
//!   marks nothing: what it erases is void, and was not judged (CG1 same-meaning).

use pando_pmem::{Offset, Pmem, WORD_BYTES};
use pando_sync::version_lock::NodeVersion;

use crate::canary::{self, Fault};
use crate::frame::{Frame, FramePlace};
use crate::node::{FirstBytes, Node, fingerprint_of};
use crate::record::Record;
use crate::shared::{Look, Shared, whole};
use crate::tree::Error;

/// Keys of which each step asks for lines before the next one needs them: all stay in the first
/// cache, with a dozen lines for each.
const AT_ONCE: usize = 32;

/// Bytes of a small record, which are asked for.
const SHORT_BYTES: u64 = 56;

/// The leaf of a key, and the frame that says so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    /// The key's.
    first: FirstBytes,
    frame: FramePlace,
    pub(crate) leaf: Offset,
    pub(crate) fingerprint: u8,
    /// Of the leaf, before it was read; none if somebody was changing it, or has no such key.
    version: Option<NodeVersion>,
    /// Of the first entry that is as its may be: its slot and its record (CA1
    /// judged-while-unchanged). Most likely it is the key's. None: there is no such one.
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
        let mut keys = keys;
        loop {
            let done = spots.len();
            spots.extend(keys.clone().take(AT_ONCE).map(|key| {
                let first = FirstBytes::of(key);
                let frame = self.frame_above_leaf(root?, (key, &first))?;
                Some(Spot {
                    first,
                    frame,
                    leaf: Offset::NONE,
                    fingerprint: fingerprint_of(key),
                    version: None,
                    slot: 0,
                    record: Offset::NONE,
                })
            }));
            let spots = &mut spots[done..];
            let Some(last) = spots.len().checked_sub(1) else {
                return;
            };
            for (key, place) in keys.clone().zip(spots.iter_mut()) {
                if let Some(spot) = place
                    && self.find_leaf(key, spot).is_none()
                {
                    *place = None;
                }
            }
            keys.nth(last);
            for spot in spots.iter_mut().flatten() {
                let version = self.latches.version(spot.leaf);
                if let Some(first) = self.leaf(spot.leaf).prefetch_alike(spot.fingerprint) {
                    (spot.version, spot.slot) = (version, first);
                }
            }
            for spot in spots.iter_mut().flatten() {
                self.judge(spot);
            }
        }
    }

    /// Judges the entry of a spot, and asks for its record.
    fn judge(&self, spot: &mut Spot) {
        if spot.version.is_none() {
            return;
        }
        let (leaf, first) = (self.leaf(spot.leaf), (spot.slot, spot.fingerprint));
        if let Some((slot, record)) = leaf.judge_alike(first, spot.first.prefix()) {
            // On one line or two.
            for at in [record, record.plus(SHORT_BYTES - WORD_BYTES)] {
                self.pool.memory().prefetch(at, WORD_BYTES as usize);
            }
            (spot.slot, spot.record) = (slot, record);
        }
    }

    fn leaf(&self, at: Offset) -> Node<'_, M> {
        Node::leaf(&self.pool, at, self.slots)
    }

    /// The frame of the root.
    fn root_frame(&self) -> Option<Frame<'_>> {
        let anchor = self.frames.of(self.anchor)?;
        let root = self.frames.of(anchor.ways().next()?.child)?;
        // CL3 coupled.
        anchor.watch.holds().then_some(root)
    }

    /// The frame of the node above a key's leaf, which is asked for, from the root's on.
    fn frame_above_leaf(&self, root: Frame<'_>, key: (&[u8], &FirstBytes)) -> Option<FramePlace> {
        let mut frame = root;
        while frame.level() > 1 {
            let way = self.in_frame(&frame, key)?;
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

    /// Finds the leaf of a spot, and asks for its first line.
    fn find_leaf(&self, key: &[u8], spot: &mut Spot) -> Option<()> {
        let frame = self.frames.again(spot.frame)?;
        let way = self.in_frame(&frame, (key, &spot.first))?;
        // What was read of a frame that changed meanwhile is no leaf.
        if !frame.watch.holds() || !self.may_be_node(way.child) {
            return None;
        }
        self.pool.memory().prefetch(way.child, WORD_BYTES as usize);
        spot.leaf = way.child;
        Some(())
    }

    /// The leaf that a spot names, if it is still its key's. The caller is pinned, or has the tree
    /// shared (CX1 epoch-stands).
    #[inline]
    pub(crate) fn leaf_at(&self, spot: &Spot, look: Look) -> Option<Node<'_, M>> {
        let watch = self.watch(spot.leaf, look);
        // CL3 coupled, CF3 gone-cleared.
        let stands = self.frames.stands(spot.frame);
        stands.then(|| self.child_of(1, spot.leaf, watch)).flatten()
    }

    /// The leaf of a spot, and the key's record there, if nobody has changed the leaf since it was
    /// judged (CA1 judged-while-unchanged).
    #[inline]
    pub(crate) fn as_judged(
        &self,
        is_key: impl Fn(&[u8]) -> bool,
        spot: &Spot,
    ) -> Option<(Node<'_, M>, Record<'_>)> {
        let watch = self.latches.watch_since(spot.leaf, spot.version?);
        let holds = || watch.holds() && self.frames.stands(spot.frame);
        if !holds() && !canary::has(Fault::JudgedKept) {
            return None;
        }
        let record = Record::at(&self.pool, spot.record)?;
        is_key(record.key()).then(|| (self.leaf(spot.leaf), record))
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
            if let Some((_, record)) = self.as_judged(|own| own == key, spot) {
                return Some(whole(record).map(Some));
            }
            let leaf = self.leaf_at(spot, look)?;
            self.record_in(Some(leaf), key, spot.fingerprint, look)
        });
        found.unwrap_or_else(|| self.record_of(key, look))
    }
}

#[cfg(test)]
mod tests {
    use pando_pmem::Simulated;

    use crate::canary::{self, Fault};
    use crate::record::Record;
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

    /// A key is put again within an epoch, by whoever has the tree, after it was found ahead.
    fn look_after_a_replacement(fault: Option<Fault>) {
        canary::plant(fault);
        let mut tree = create(Simulated::new(1 << 22));
        let keys: Vec<_> = (0..100_u32).map(u32::to_be_bytes).collect();
        for key in &keys {
            tree.put(key, b"old").unwrap();
        }
        for key in &keys {
            assert_eq!(tree.get(key).unwrap(), Some(&b"old"[..]));
        }
        let mut spots = Vec::new();
        let all = keys.iter().map(<[u8; 4]>::as_slice);
        tree.shared.warm(all, &mut spots);
        assert!(spots.iter().flatten().count() > keys.len() / 2);
        for (key, spot) in keys.iter().zip(&spots) {
            tree.put(key, b"new").unwrap();
            let record = tree.shared.record_ahead(key, spot.as_ref()).unwrap();
            assert_eq!(record.map(Record::value), Some(&b"new"[..]), "CA1");
            let leaf = tree.latch(key, spot.as_ref()).unwrap().unwrap();
            let record = leaf.record().unwrap();
            assert_eq!(record.map(Record::value), Some(&b"new"[..]), "CA1");
        }
        canary::plant(None);
    }

    #[test]
    fn an_entry_that_was_found_ahead_has_another_record_by_now() {
        look_after_a_replacement(None);
    }

    #[test]
    #[should_panic(expected = "CA1")]
    fn an_entry_that_gets_another_record_unnoticed_is_noticed() {
        look_after_a_replacement(Some(Fault::ReplacedUnmarked));
    }

    #[test]
    fn a_slot_that_was_found_ahead_is_another_keys_by_now() {
        look_where_others_are(None);
    }

    #[test]
    #[should_panic(expected = "another key's record")]
    fn an_entry_that_is_trusted_although_its_leaf_has_changed_is_noticed() {
        look_where_others_are(Some(Fault::JudgedKept));
    }
}
