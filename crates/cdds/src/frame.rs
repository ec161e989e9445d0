//! Nodes above the leaves as DRAM has them: sorted, so that a look-up need not go through all of
//! one.
//!
//! A node in the pool is in no order. A *frame* has what the present sees of it, in order: eight
//! bytes of each separator, from the first one on in which they differ, and the children. It ends
//! with the process and is made by whoever misses it, so that opening makes none; every node can
//! be read without one.
//!
//! A place of the table, of which each node has two to be found in:
//!
//! | field | writer | readers |
//! |---|---|---|
//! | `lock` | a filler, who tries it, and who clears a frame: they have it locked, and marked while they store | everyone, before and after |
//! | `node`, `head`, the words | who has the lock, `Relaxed` | everyone, `Relaxed` (`pando_sync::version_lock`) |
//!
//! Words: [`SHARED`] for the bytes that all separators share, as many for which bits of a key are
//! compared with these, then the separators' bytes, then the children, with the slot in the top
//! bits. The entry without a separator, or with the lowest one,
//! has no bytes: it is below every key that is looked for in the node.
//!
//! - **CF1 cleared-first** Who changes a node marks its latch, then clears its frame, then stores.
//!   A filler holds the place's lock while it asks whether its watch of the node still holds, and
//!   stores. So either it sees the mark, or it is cleared after it.
//! - **CF2 frame-watched** What was read of a frame while its own watch held is of the node as it
//!   was all that time: a frame watches as well as a latch (CL1 marked-before).
//! - **CF3 gone-cleared** A node that leaves the tree is marked, and its frame cleared, as one that
//!   changes: who has found it on a way that still held makes no frame of it any more. So whose
//!   watch of a frame holds knows that the node is in the tree, and has these children.

use std::cmp::Ordering as Order;
use std::sync::OnceLock;

use pando_pmem::{Offset, Pmem};
use pando_sync::prefetch::prefetch_lines;
use pando_sync::shim::{AtomicU64, AtomicUsize, MODEL, Ordering};
use pando_sync::version_lock::{NodeKind, NodeVersion, VersionLock};

use crate::canary::{self, Fault};
use crate::latch::Watch;
use crate::node::{FirstBytes, Found, Node, View};
use crate::scan::sorted;

/// Words for what separators share.
const SHARED: usize = 3;

/// Words before the separators.
const COMMON: usize = 2 * SHARED;

/// Of so many bytes of the pool, one place: about four for each node above leaves of small pairs.
const BYTES_PER_PLACE: u64 = 64 * 1024;

/// Places of a table, of 64 bytes: 16 MiB are for two hundred million pairs.
const PLACES: (u64, u64) = if MODEL { (2, 2) } else { (8, 1 << 18) };

/// Where a child's slot is in its word; positions lie below (`POOL_BYTES_MAX`).
const SLOT_SHIFT: u32 = 48;

/// The frames of a tree's nodes.
pub(crate) struct Frames {
    places: Box<[Place]>,
    slots: usize,
    /// The one of a node's two places that goes when both have others.
    next: AtomicUsize,
}

#[repr(align(64))]
struct Place {
    lock: VersionLock,
    /// Whose frame it is; 0: nobody's.
    node: AtomicU64,
    /// How many children in 16 bits; in 8, how many bytes are common; in 8, the level.
    head: AtomicU64,
    words: OnceLock<Box<[AtomicU64]>>,
}

/// A frame as it was when it was found.
#[derive(Clone, Copy)]
pub(crate) struct Frame<'f> {
    pub(crate) watch: Watch<'f>,
    pub(crate) place: FramePlace,
    node: u64,
    head: u64,
    words: &'f [AtomicU64],
}

/// Where a frame is, and the version that it has there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FramePlace {
    index: u32,
    version: NodeVersion,
}

/// What a frame says of a key: the child that has it, and the slot of that child's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) slot: u64,
    pub(crate) child: Offset,
}

impl Frames {
    /// Of a tree with nodes of so many slots in a pool of so many bytes.
    pub(crate) fn new(pool_bytes: u64, slots: u64) -> Self {
        let (least, most) = PLACES;
        let places = (pool_bytes / BYTES_PER_PLACE).clamp(least, most);
        let place = |_| Place {
            lock: VersionLock::new(NodeKind::Interior, false),
            node: AtomicU64::new(0),
            head: AtomicU64::new(0),
            words: OnceLock::new(),
        };
        Self {
            places: (0..places.next_power_of_two()).map(place).collect(),
            slots: slots as usize,
            next: AtomicUsize::new(0),
        }
    }

    /// Where the frame of the node at `at` may be.
    #[inline]
    fn places_of(&self, at: Offset) -> [usize; 2] {
        let mixed = at.get().wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let index = (mixed >> 40) as usize & (self.places.len() - 1);
        [index, index ^ 1]
    }

    /// The frame of the node at `at`, if there is one.
    #[inline]
    pub(crate) fn of(&self, at: Offset) -> Option<Frame<'_>> {
        // Relaxed: who uses the frame asks whether its watch holds.
        let is_here = |index: &usize| {
            let node = &self.places[*index].node;
            node.load(Ordering::Relaxed) == at.get()
        };
        let index = self.places_of(at).into_iter().find(is_here)?;
        let version = self.places[index].lock.stable();
        let place = FramePlace {
            index: index as u32,
            version,
        };
        is_here(&index).then(|| self.frame(place)).flatten()
    }

    #[inline]
    fn frame(&self, at: FramePlace) -> Option<Frame<'_>> {
        let place = &self.places[at.index as usize];
        Some(Frame {
            watch: Watch::of(&place.lock, at.version),
            place: at,
            node: place.node.load(Ordering::Relaxed),
            head: place.head.load(Ordering::Relaxed),
            words: place.words.get()?,
        })
    }

    /// Whether the frame that was found there is still as it was.
    #[inline]
    pub(crate) fn stands(&self, at: FramePlace) -> bool {
        Watch::of(&self.places[at.index as usize].lock, at.version).holds()
    }

    /// The frame that was found there, if it is still as it was.
    #[inline]
    pub(crate) fn again(&self, at: FramePlace) -> Option<Frame<'_>> {
        let frame = self.frame(at)?;
        frame.watch.holds().then_some(frame)
    }

    /// Makes the frame of a node that is no leaf, whose watch began before it was read. Does
    /// nothing if somebody changes the node, or the place.
    pub(crate) fn fill<M: Pmem>(&self, node: Node<'_, M>, view: View) {
        // Where a child can be no position, the node is damaged; who follows it there says so.
        let is_position = |found: &Found| found.entry.child.get() >> SLOT_SHIFT == 0;
        let found = sorted(node, view);
        let Ok(found) = found else {
            return;
        };
        if found.is_empty() || !found.iter().all(is_position) {
            return;
        }
        let places = self.places_of(node.at).map(|index| &self.places[index]);
        let holds = |wanted: u64| {
            let mut places = places.iter();
            places.position(|place| place.node.load(Ordering::Relaxed) == wanted)
        };
        let chosen = holds(node.at.get()).or_else(|| holds(0));
        let chosen = chosen.unwrap_or_else(|| self.next.fetch_add(1, Ordering::Relaxed) % 2);
        let place = places[chosen];
        if place.lock.try_lock().is_none() {
            return;
        }
        // CF1 cleared-first.
        if node.holds() {
            place.lock.mark_inserting();
            self.store(place, node, &found);
        }
        place.lock.unlock();
    }

    /// Under the place's lock.
    fn store<M: Pmem>(&self, place: &Place, node: Node<'_, M>, found: &[Found]) {
        let words = place.words.get_or_init(|| {
            let words = COMMON + 2 * self.slots;
            (0..words).map(|_| AtomicU64::new(0)).collect()
        });
        let bytes_of = |found: &Found| {
            let [next, third, fourth] = found.entry.more.unwrap_or_default();
            [found.entry.prefix, next, third, fourth]
        };
        let separators = &found[1..];
        let skip = match separators {
            [] => 0,
            // In order: what the outermost share, all do.
            [first, ..] => {
                common_bytes(bytes_of(first), bytes_of(&separators[separators.len() - 1]))
            }
        };
        // Relaxed: the mark and release of the lock order them.
        let common = found.get(1).map_or([0; 4], bytes_of);
        for index in 0..SHARED {
            let mask = mask(skip, index);
            words[index].store(common[index] & mask, Ordering::Relaxed);
            words[SHARED + index].store(mask, Ordering::Relaxed);
        }
        let (separators, children) = words[COMMON..].split_at(self.slots);
        for (index, found) in found.iter().enumerate() {
            let bytes = FirstBytes::new(bytes_of(found)).window(skip);
            separators[index].store(bytes, Ordering::Relaxed);
            let child = found.entry.child.get() | found.slot << SLOT_SHIFT;
            children[index].store(child, Ordering::Relaxed);
        }
        let head = found.len() as u64 | (skip as u64) << 16 | node.level << 24;
        place.head.store(head, Ordering::Relaxed);
        place.node.store(node.at.get(), Ordering::Relaxed);
    }

    /// After the latch of the node at `at` was marked, and before anything is stored in it (CF1
    /// cleared-first, CF3 gone-cleared).
    pub(crate) fn clear(&self, at: Offset) {
        if canary::has(Fault::FrameKept) {
            return;
        }
        for index in self.places_of(at) {
            let place = &self.places[index];
            // Locked whether it is there or not: it may be about to be.
            place.lock.lock();
            if place.node.load(Ordering::Relaxed) == at.get() {
                place.lock.mark_inserting();
                place.node.store(0, Ordering::Relaxed);
            }
            place.lock.unlock();
        }
    }

    /// When epochs get another meaning, while nobody reads or writes.
    pub(crate) fn clear_all(&self) {
        for place in &self.places {
            place.lock.lock();
            place.lock.mark_inserting();
            place.node.store(0, Ordering::Relaxed);
            place.lock.unlock();
        }
    }
}

impl Frame<'_> {
    /// Whose frame it is.
    #[inline]
    pub(crate) fn node(&self) -> Offset {
        Offset::new(self.node)
    }

    /// That of the node.
    #[inline]
    pub(crate) fn level(&self) -> u64 {
        self.head >> 24 & 0xff
    }

    #[inline]
    fn count(&self) -> usize {
        (self.head & 0xffff) as usize
    }

    /// Asks for what [`Self::find`] will read first.
    #[inline]
    pub(crate) fn prefetch(&self) {
        let bytes = size_of::<u64>() * (COMMON + self.count());
        prefetch_lines(self.words.as_ptr().cast(), bytes);
    }

    /// The child whose subtree has a key: that of the highest separator at or below it. `key_of`
    /// tells the separator of a slot, where its bytes here do not decide. It is right if the watch
    /// holds afterwards.
    #[inline]
    pub(crate) fn find<'k>(
        &self,
        (key, first): (&[u8], &FirstBytes),
        key_of: impl Fn(u64) -> Option<&'k [u8]>,
    ) -> Option<Way> {
        let (count, skip) = (self.count(), (self.head >> 16 & 0xff) as usize);
        let (common, rest) = self.words.split_first_chunk()?;
        let (separators, children) = rest.split_at(rest.len() / 2);
        let separators = separators.get(1..count)?;
        let way = |place: usize| children.get(place).map(|child| Way::of(load(child)));
        if separators.is_empty() {
            return way(0);
        }
        let place = match compare_common(first, common) {
            Order::Less => 0,
            Order::Greater => separators.len(),
            Order::Equal => {
                let wanted = first.window(skip);
                let place = separators.partition_point(|bytes| load(bytes) <= wanted);
                if place > 0 && load(&separators[place - 1]) == wanted {
                    // Below `place` even if they change meanwhile.
                    let below = &separators[..place];
                    let lowest = below.partition_point(|bytes| load(bytes) < wanted);
                    let alike = &children[lowest + 1..=place];
                    lowest
                        + alike
                            .partition_point(|child| key_of(load(child) >> SLOT_SHIFT) <= Some(key))
                } else {
                    place
                }
            }
        };
        way(place)
    }

    /// All children, in order.
    pub(crate) fn ways(&self) -> impl Iterator<Item = Way> {
        let slots = (self.words.len() - COMMON) / 2;
        let children = &self.words[COMMON + slots..][..self.count()];
        children.iter().map(|child| Way::of(load(child)))
    }
}

impl Way {
    /// What the word of a child says.
    #[inline]
    fn of(word: u64) -> Self {
        Self {
            slot: word >> SLOT_SHIFT,
            child: Offset::new(word & ((1 << SLOT_SHIFT) - 1)),
        }
    }
}

/// Relaxed: the watch tells whether words belong together (CF2 frame-watched).
#[inline]
fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

/// How many bytes two keys' first words share, of the first 24.
fn common_bytes(a: [u64; 4], b: [u64; 4]) -> usize {
    let shared = |(a, b): (u64, u64)| (a ^ b).leading_zeros() as usize / 8;
    let shared: Vec<_> = a.into_iter().zip(b).take(SHARED).map(shared).collect();
    let whole = shared.iter().take_while(|bytes| **bytes == 8).count();
    8 * whole + shared.get(whole).unwrap_or(&0)
}

/// The bits of a word of keys that lie in the first `skip` bytes.
#[inline]
fn mask(skip: usize, index: usize) -> u64 {
    top_bytes(skip.saturating_sub(8 * index).min(8))
}

/// The bits of a word's first bytes.
#[inline]
fn top_bytes(bytes: usize) -> u64 {
    !u64::MAX.checked_shr(8 * bytes as u32).unwrap_or(0)
}

/// How a key's first bytes are to those that all separators share.
#[inline]
fn compare_common(bytes: &FirstBytes, common: &[AtomicU64; COMMON]) -> Order {
    for index in 0..SHARED {
        let own = bytes.word(index) & load(&common[SHARED + index]);
        let shared = load(&common[index]);
        if own != shared {
            return own.cmp(&shared);
        }
    }
    Order::Equal
}

#[cfg(test)]
mod tests {
    use pando_pmem::Simulated;

    use super::*;
    use crate::tests::create;

    /// Keys come and go, found by the frames of nodes that change meanwhile.
    fn changes(fault: Option<Fault>) {
        canary::plant(fault);
        let mut tree = create(Simulated::new(1 << 20));
        for round in 0..3 {
            for number in 0..300_u32 {
                let key = (number * 7919 % 300).to_be_bytes();
                tree.put(&key, &[round; 20]).unwrap();
                assert_eq!(tree.get(&key).unwrap(), Some(&[round; 20][..]));
            }
            tree.check().unwrap();
            for number in 0..250_u32 {
                assert!(tree.remove(&number.to_be_bytes()).unwrap());
            }
            tree.check().unwrap();
            tree.commit().unwrap();
        }
        canary::plant(None);
    }

    #[test]
    fn frames_are_the_nodes() {
        changes(None);
    }

    /// Which check sees it first plays no part.
    #[test]
    fn a_frame_that_is_kept_is_noticed() {
        let noticed = std::panic::catch_unwind(|| changes(Some(Fault::FrameKept)));
        canary::plant(None);
        assert!(noticed.is_err(), "CF1 cleared-first");
    }

    #[test]
    fn windows_begin_where_separators_differ() {
        let bytes: [u64; 4] = std::array::from_fn(|word| {
            u64::from_be_bytes(std::array::from_fn(|byte| (8 * word + byte) as u8))
        });
        for skip in 0..=24 {
            let expected = std::array::from_fn(|byte| (skip + byte) as u8);
            let first = FirstBytes::new(bytes);
            assert_eq!(first.window(skip), u64::from_be_bytes(expected), "{skip}");
            let (mut other, whole) = (bytes, skip.min(23));
            other[whole / 8] ^= 1 << (56 - 8 * (whole % 8));
            assert_eq!(common_bytes(bytes, other), whole);
            let masks = (0..SHARED).map(|index| mask(skip, index));
            let shared = masks.clone().zip(bytes).map(|(mask, bytes)| bytes & mask);
            let common: Vec<_> = shared.chain(masks).map(AtomicU64::new).collect();
            let common = common.first_chunk().expect("so many words");
            assert_eq!(compare_common(&first, common), Order::Equal);
        }
        assert_eq!(common_bytes(bytes, bytes), 24);
    }
}

#[cfg(all(test, shuttle))]
mod schedules {
    use std::sync::Arc;

    use shuttle::thread;

    use super::*;

    /// A reader finds out afterwards that a frame changed; until then it sees words of several.
    #[test]
    fn a_frame_that_changes_meanwhile_is_looked_through() {
        const SLOTS: usize = 4;
        let search = || {
            let words: Arc<[AtomicU64]> = (0..COMMON + 2 * SLOTS)
                .map(|index| AtomicU64::new(if index < COMMON + SLOTS - 1 { 5 } else { 9 } << 56))
                .collect();
            let shared = Arc::clone(&words);
            let writer = thread::spawn(move || {
                for word in &shared[COMMON..COMMON + SLOTS] {
                    word.store(4 << 56, Ordering::Relaxed);
                }
            });
            let lock = VersionLock::new(NodeKind::Interior, false);
            let version = lock.stable();
            let frame = Frame {
                watch: Watch::of(&lock, version),
                place: FramePlace { index: 0, version },
                node: 0,
                head: SLOTS as u64,
                words: &words,
            };
            let found = frame.find((&[5], &FirstBytes::of(&[5])), |_| Some(&[5]));
            assert!(found.is_some());
            writer.join().expect("it only stores");
        };
        shuttle::check_random(search, 1000);
    }
}
