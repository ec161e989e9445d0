//! Reading: from a root to a leaf, straight through the slots (ME2 pointers-hold), and on to
//! discretionary copies once there are branches (MF2 forwarders-lead-on).

use std::ops::{Bound, ControlFlow, Range};

use pando_engine::{Direction, Key, TreeId, ValueRef};
use pando_memnode::Address;
use pando_sync::prefetch::prefetch_lines;

use super::place::{Place, TREE_BYTES, ends};
use super::sight::Sight;
use super::value::{MARK, Stored, show};
use super::{State, bundle};
use crate::page::Page;
use crate::tree::{BODY_HEADER, Route, body_of, route};

/// Bytes of a page that a search begins with: the header, the fences, most of the directory.
const SEARCHED_BYTES: usize = 768;
/// Keys whose leaves are asked for together.
pub(super) const TOGETHER_MAX: usize = 32;

/// The leaf that is looked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'t> {
    /// That of this key.
    At(&'t [u8]),
    /// That of the greatest key below this one.
    Below(&'t [u8]),
}

/// Where a key's entry is, or would be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) leaf: Address,
    pub(super) index: Result<usize, usize>,
}

/// A value that was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'s> {
    pub(super) version: u64,
    pub(super) stored: &'s [u8],
    pub(super) mark: u8,
    /// The byte of its mark.
    pub(super) mark_at: (Address, usize),
}

impl<'s> Found<'s> {
    fn of_bundle(body: Address, entry: bundle::Entry<'s>) -> Self {
        Self {
            version: entry.version,
            stored: entry.value,
            mark: entry.value[MARK],
            mark_at: (body, BODY_HEADER.len() + entry.at + MARK),
        }
    }

    /// Shows it to `read`; also returns the mark that `read` left, if that is another.
    pub(super) fn show<R>(&self, read: impl FnOnce(ValueRef<'_>) -> R) -> (R, Option<u8>) {
        show(self.stored, self.version, self.mark, read)
    }
}

/// A mark that a reader changed: the key, with its tree's number, its version, the mark.
pub(super) type Marked = (Vec<u8>, u64, u8);

impl State {
    fn bytes(&self, address: Address) -> &[u8] {
        let memnodes = self.database.memnodes().memnodes();
        memnodes[usize::from(address.memnode.0)].bytes(address.slot)
    }

    pub(super) fn page(&self, address: Address) -> Page<&[u8]> {
        Page::borrowed(self.bytes(address))
    }

    /// The bytes of a large value.
    pub(super) fn large(&self, head: Address) -> (Address, &[u8]) {
        let body = body_of(self.bytes(head)).expect("a value's head (ME2)");
        (body, &self.bytes(body)[BODY_HEADER.len()..])
    }

    /// Asks for the part of a page that a search begins with, all lines at once.
    #[inline]
    fn prefetch(&self, address: Address) {
        prefetch_lines(self.bytes(address).as_ptr(), SEARCHED_BYTES);
    }

    /// Finds the leaves of some keys, a height at a time for all of them, and asks for what a
    /// search in them begins with. `leaves` is as long as `keys`.
    pub(super) fn find_leaves(&self, sight: &Sight, keys: &[Place<'_>], leaves: &mut [Address]) {
        leaves.fill(self.arrive(sight, sight.view.root));
        let height = self.page(leaves[0]).height();
        for _ in 0..height {
            for (address, key) in leaves.iter_mut().zip(keys) {
                let page = self.page(*address);
                *address = page.child(page.child_for(key.entry()));
                self.prefetch(*address);
            }
            if sight.ancestry.is_some() {
                for address in &mut *leaves {
                    *address = self.arrive(sight, *address);
                }
            }
        }
    }

    /// The leaf of a key.
    pub(super) fn leaf(&self, sight: &Sight, target: Target<'_>) -> Address {
        let mut address = self.arrive(sight, sight.view.root);
        loop {
            let page = self.page(address);
            if page.height() == 0 {
                return address;
            }
            let child = match target {
                Target::At(key) => page.child_for(key),
                Target::Below(key) => page.find(key).unwrap_or_else(|at| at).saturating_sub(1),
            };
            let child = page.child(child);
            self.prefetch(child);
            address = self.arrive(sight, child);
        }
    }

    /// The page that a version has where a pointer leads (ME2 pointers-hold).
    #[inline]
    fn arrive(&self, sight: &Sight, entry: Address) -> Address {
        let Some(ancestry) = &sight.ancestry else {
            return entry;
        };
        let mut address = entry;
        loop {
            match route(&self.page(address), ancestry) {
                Route::Here => return address,
                Route::There(copied) => {
                    let (slot, generation) = copied.to.expect("a copy to go to");
                    address = Address {
                        slot,
                        generation,
                        ..address
                    };
                }
                Route::Nowhere => panic!("a pointer leads to another version's page (ME2)"),
            }
        }
    }

    /// Where a key's entry is, or would be.
    pub(super) fn spot(&self, sight: &Sight, entry: &[u8]) -> Spot {
        self.spot_in(self.leaf(sight, Target::At(entry)), entry)
    }

    /// Where it is in its leaf.
    pub(super) fn spot_in(&self, leaf: Address, entry: &[u8]) -> Spot {
        let index = self.page(leaf).find(entry);
        Spot { leaf, index }
    }

    /// What the entry at a spot holds.
    pub(super) fn stored(&self, spot: Spot) -> Option<Stored<'_>> {
        let index = spot.index.ok()?;
        Some(Stored::of(self.entry(spot.leaf, index).1))
    }

    fn entry(&self, leaf: Address, index: usize) -> (u64, &[u8], usize) {
        let bytes = self.bytes(leaf);
        let page = Page::borrowed(bytes);
        let (version, value) = page.entry(index);
        let (at, len) = (page.value_at(index), value.len());
        (version, &bytes[at..at + len], at)
    }

    /// The value of a key whose entry is at a spot.
    pub(super) fn found_at(&self, spot: Spot, place: &Place<'_>) -> Option<Found<'_>> {
        let entry = self.entry(spot.leaf, spot.index.ok()?);
        match Stored::of(entry.1) {
            Stored::Bundle(head) => {
                let (body, bytes) = self.large(head);
                let entry = bundle::find(bytes, place.rest?)?;
                Some(Found::of_bundle(body, entry))
            }
            alone => Some(self.found_alone(spot.leaf, entry, alone)),
        }
    }

    /// The value of an entry that has one key.
    fn found_alone<'s>(
        &'s self,
        leaf: Address,
        (version, entry, at): (u64, &'s [u8], usize),
        stored: Stored<'s>,
    ) -> Found<'s> {
        let stored = match stored {
            Stored::Inline(stored) => stored,
            Stored::Large(head) | Stored::Bundle(head) => self.large(head).1,
        };
        Found {
            version,
            stored,
            mark: entry[MARK],
            mark_at: (leaf, at + MARK),
        }
    }

    /// The value of a key.
    pub(super) fn find(&self, sight: &Sight, place: &Place<'_>) -> Option<Found<'_>> {
        self.found_at(self.spot(sight, place.entry()), place)
    }

    /// The entries of a leaf between two keys, the second one excluded.
    fn range(&self, leaf: Address, from: &[u8], to: &[u8]) -> Range<usize> {
        let page = self.page(leaf);
        let place = |key: &[u8]| {
            if page.low() > key {
                0
            } else if page.high().is_some_and(|high| high < key) {
                page.count()
            } else {
                page.find(key).unwrap_or_else(|at| at)
            }
        };
        place(from)..place(to)
    }

    /// Shows the entries of a leaf, in one direction. Keys are without their tree's number.
    pub(super) fn show_leaf(
        &self,
        leaf: Address,
        range: Range<usize>,
        way: Direction,
        visit: &mut dyn FnMut(&[u8], &Found<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let page = self.page(leaf);
        let prefix = page.prefix_len();
        let mut key = page.low()[..prefix].to_vec();
        let mut step = |index: usize| {
            key.truncate(prefix);
            key.extend_from_slice(page.suffix(index));
            let entry = self.entry(leaf, index);
            let stored = Stored::of(entry.1);
            let Stored::Bundle(head) = stored else {
                return visit(&key[TREE_BYTES..], &self.found_alone(leaf, entry, stored));
            };
            key.pop();
            let common = key.len();
            let (body, bytes) = self.large(head);
            let mut entries: Vec<_> = bundle::entries(bytes).collect();
            if way == Direction::Backward {
                entries.reverse();
            }
            entries.iter().try_for_each(|entry| {
                key.truncate(common);
                key.extend_from_slice(entry.rest);
                visit(&key[TREE_BYTES..], &Found::of_bundle(body, *entry))
            })
        };
        match way {
            Direction::Forward => range.into_iter().try_for_each(&mut step),
            Direction::Backward => range.into_iter().rev().try_for_each(&mut step),
        }
    }
}

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

    /// Shows the entries of the next leaf to `visit`. If it breaks, there is no more.
    pub(super) fn step(
        &mut self,
        state: &State,
        sight: &Sight,
        visit: &mut dyn FnMut(&[u8], &Found<'_>) -> ControlFlow<()>,
    ) {
        let Some(next) = self.next.take() else { return };
        let (low, high) = ends(self.tree);
        let (leaf, range) = match self.way {
            Direction::Forward => {
                let leaf = state.leaf(sight, Target::At(&next));
                (leaf, state.range(leaf, &next, &high))
            }
            Direction::Backward => {
                let leaf = state.leaf(sight, Target::Below(&next));
                (leaf, state.range(leaf, &low, &next))
            }
        };
        let shown = state.show_leaf(leaf, range, self.way, &mut |key, found| {
            if !self.has_begun && !self.is_within(key) {
                return ControlFlow::Continue(());
            }
            self.has_begun = true;
            visit(key, found)
        });
        if shown.is_break() {
            return;
        }
        let page = state.page(leaf);
        self.next = match self.way {
            Direction::Forward => page.high().filter(|end| *end < &high[..]),
            Direction::Backward => Some(page.low()).filter(|end| *end > &low[..]),
        }
        .map(<[u8]>::to_vec);
    }
}

/// Picking keys and places.
impl State {
    /// The keys of the first entries of a tree, with its number, up to `count` of one leaf.
    pub(super) fn first_entries(&self, sight: &Sight, tree: TreeId, count: usize) -> Vec<Vec<u8>> {
        let (low, high) = ends(tree);
        let mut leaf = self.leaf(sight, Target::At(&low));
        loop {
            let page = self.page(leaf);
            let range = self.range(leaf, &low, &high);
            if !range.is_empty() {
                return range.take(count).map(|index| page.key(index)).collect();
            }
            match page.high().filter(|end| *end < &high[..]) {
                Some(end) => leaf = self.leaf(sight, Target::At(end)),
                None => return Vec::new(),
            }
        }
    }

    /// Picks a key of a tree as `view` sees it, by `random`, and shows it to `read`.
    pub(super) fn sample<R>(
        &self,
        sight: &Sight,
        tree: TreeId,
        mut random: u64,
        read: impl FnOnce(Option<(&[u8], &Found<'_>)>) -> R,
    ) -> R {
        let (low, high) = ends(tree);
        let mut pick = |count: usize| {
            // An odd factor and a rotation, so that each choice depends on all bits.
            random = random.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
            ((u128::from(random) * count as u128) >> 64) as usize
        };
        let mut address = self.arrive(sight, sight.view.root);
        while self.page(address).height() > 0 {
            let page = self.page(address);
            let first = if page.low() >= &low[..] {
                0
            } else {
                page.child_for(&low)
            };
            let last = if page.high().is_some_and(|end| end <= &high[..]) {
                page.count() - 1
            } else {
                page.find(&high).unwrap_or_else(|at| at).saturating_sub(1)
            };
            let child = page.child(first + pick(last.saturating_sub(first) + 1));
            address = self.arrive(sight, child);
        }
        let range = self.range(address, &low, &high);
        let at = if range.is_empty() {
            self.next_leaf_with_keys(sight, tree, address)
        } else {
            let index = range.start + pick(range.len());
            Some((address, index))
        };
        let Some((leaf, index)) = at else {
            return read(None);
        };
        let mut entries = 0;
        let _ = self.show_leaf(leaf, index..index + 1, Direction::Forward, &mut |_, _| {
            entries += 1;
            ControlFlow::Continue(())
        });
        let mut left = pick(entries);
        let (mut read, mut shown) = (Some(read), None);
        let _ = self.show_leaf(
            leaf,
            index..index + 1,
            Direction::Forward,
            &mut |key, found| {
                if left > 0 {
                    left -= 1;
                    return ControlFlow::Continue(());
                }
                if let Some(read) = read.take() {
                    shown = Some(read(Some((key, found))));
                }
                ControlFlow::Break(())
            },
        );
        shown.expect("an entry has a key")
    }

    /// An entry of a tree near a leaf that has none of it: those are rare, and few in a row.
    fn next_leaf_with_keys(
        &self,
        sight: &Sight,
        tree: TreeId,
        near: Address,
    ) -> Option<(Address, usize)> {
        let (low, high) = ends(tree);
        let mut leaf = near;
        while let Some(next) = self.page(leaf).high().filter(|end| *end < &high[..]) {
            leaf = self.leaf(sight, Target::At(next));
            let range = self.range(leaf, &low, &high);
            if !range.is_empty() {
                return Some((leaf, range.start));
            }
        }
        leaf = near;
        while self.page(leaf).low() > &low[..] {
            leaf = self.leaf(sight, Target::Below(self.page(leaf).low()));
            let range = self.range(leaf, &low, &high);
            if !range.is_empty() {
                return Some((leaf, range.end - 1));
            }
        }
        None
    }

    /// Up to `parts - 1` keys that divide a tree evenly, from the highest level that has several
    /// times as many.
    pub(super) fn boundaries(&self, sight: &Sight, tree: TreeId, parts: usize) -> Vec<Vec<u8>> {
        const PER_PART: usize = 16;
        let (low, high) = ends(tree);
        let mut level = vec![self.arrive(sight, sight.view.root)];
        let mut keys: Vec<Vec<u8>> = Vec::new();
        while keys.len() < parts * PER_PART && !level.is_empty() {
            keys.clear();
            let mut below = Vec::new();
            for address in level {
                let page = self.page(address);
                for index in 0..page.count() {
                    let key = page.key(index);
                    if page.height() > 0 {
                        let end = page.child_end(index);
                        if key >= high.to_vec() || end.is_some_and(|end| end <= low.to_vec()) {
                            continue;
                        }
                        below.push(self.arrive(sight, page.child(index)));
                    }
                    if key > low.to_vec() && key < high.to_vec() {
                        let len = key.len().min(TREE_BYTES + bundle::SHORT_BYTES);
                        keys.push(key[TREE_BYTES..len].to_vec());
                    }
                }
            }
            level = below;
        }
        keys.dedup();
        let cuts = (1..parts).map(|part| part * keys.len() / parts);
        let mut found: Vec<_> = cuts.filter_map(|at| keys.get(at).cloned()).collect();
        found.dedup();
        found
    }

    /// Gives values the marks that their readers left, unless they have changed since.
    pub(super) fn set_marks(&mut self, marks: Vec<Marked>) {
        for (key, version, mark) in marks {
            let (tree, bytes) = key.split_first_chunk().expect("a tree's number");
            let Some((sight, tree)) = self.present(TreeId(u32::from_be_bytes(*tree))) else {
                continue;
            };
            let found = self.find(sight, &Place::of(Key::new(tree, bytes)));
            let Some(mark_at) = found
                .filter(|found| found.version == version)
                .map(|found| found.mark_at)
            else {
                continue;
            };
            self.set_mark(mark_at, mark);
        }
    }

    pub(super) fn set_mark(&mut self, (address, at): (Address, usize), mark: u8) {
        let Address { memnode, slot, .. } = address;
        let memnode = self.database.memnodes_mut().memnode_mut(memnode);
        memnode.mark(slot, at, mark);
    }
}
