//! Reading: from a root to a leaf, straight through the slots (ME2 pointers-hold), and on to
//! discretionary copies once there are branches (MF2 forwarders-lead-on).
//!
//! An inner node is searched by its fan (`page/fan.rs`), or read as it lies, a leaf under its
//! latch. What is found in a leaf stays there for as long as its page is held, or nobody else is
//! inside. Only the end of a run holds several (SL2 latches-in-order).

use std::ops::{ControlFlow, Deref, Range};
use std::sync::OnceLock;

use pando_engine::{Direction, HashRef, Key, TreeId, ValueRef};
use pando_memnode::{Address, Beside, Latch, Memnode, Seen};
use pando_sync::prefetch::{prefetch_lines, prefetch_span};

use super::place::{Place, TREE_BYTES, ends, key_of};
use super::sight::Sight;
use super::value::{Coded, MARK, Nodes, Stored, row_in, show};
use super::{State, bundle};
use crate::fault::{Fault, planted};
use crate::page::{FAN_BYTES, Fan, LeafCell, Page};
use crate::tree::{BODY_HEADER, Route, body_of, route};

/// Bytes of a page that a search begins with: the header, the fences, most of the directory.
const SEARCHED_BYTES: usize = 768;
/// Bytes of a slot's state, with its latch.
const SLOT_BYTES: usize = 40;
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

/// A page as it lies; a leaf under its latch.
pub(super) type Held<'s> = Page<Seen<'s>>;

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
    pub(super) stored: Coded<'s>,
    pub(super) mark: u8,
    /// The byte of its mark; none of a key of a bundle, or of what a run writes.
    pub(super) mark_at: Option<(Address, usize)>,
    /// Whether it is not in its entry.
    pub(super) is_apart: bool,
}

impl Found<'_> {
    /// Shows it to `read`; also returns the mark that `read` left, if that is another.
    pub(super) fn show<R>(&self, read: impl FnOnce(ValueRef<'_>) -> R) -> (R, Option<u8>) {
        show(self.stored, self.version, self.mark, read)
    }
}

/// A mark that a reader changed: the key, with its tree's number, its version, the mark.
pub(super) type Marked = (Vec<u8>, u64, u8);

impl State {
    #[inline]
    pub(super) fn memnode(&self, of: Address) -> &Memnode {
        self.database.memnodes().memnode(of.memnode)
    }

    #[inline]
    pub(super) fn see(&self, address: Address) -> Seen<'_> {
        self.memnode(address).see(address.slot)
    }

    #[inline]
    pub(super) fn page(&self, address: Address) -> Held<'_> {
        Page::of_slot(self.see(address))
    }

    /// What a slot holds that is no leaf.
    fn lasting(&self, address: Address) -> &[u8] {
        let seen = self.see(address);
        seen.lasting().expect("only leaves are latched (SL1)")
    }

    /// The keys of a bundle.
    pub(super) fn bundle(&self, head: Address) -> HashRef<'_> {
        row_in(self.coded(head))
    }

    /// A large value, with its nodes.
    fn coded(&self, head: Address) -> Coded<'_> {
        let body = body_of(self.lasting(head)).expect("a value's head (ME2)");
        let bytes = &self.lasting(body)[BODY_HEADER.len()..];
        let beside = self.memnode(body).beside(body.slot);
        let nodes = beside.and_then(|it| Nodes::of_beside(it.get()?));
        Coded { bytes, nodes }
    }

    /// Asks for the part of a page that a search begins with, all lines at once.
    #[inline]
    pub(super) fn prefetch(&self, address: Address) {
        prefetch_lines(self.see(address).as_ptr(), SEARCHED_BYTES);
    }

    /// Asks for a page's slot, which says where the page is.
    #[inline]
    fn prefetch_slot(&self, address: Address) {
        prefetch_span(self.memnode(address).place(address.slot), SLOT_BYTES);
    }

    /// The fan of an inner node (SL3 beside-of-present); none of a leaf.
    #[inline]
    fn fan(&self, node: Address) -> Option<Fan<'_>> {
        let place = self.memnode(node).beside(node.slot)?;
        let beside = match place.get() {
            Some(beside) => beside,
            None => self.make_fan(node, place),
        };
        match beside {
            Beside::Bytes(fan) => Some(Fan::of(fan)),
            Beside::Other(_) => unreachable!("an inner node has a fan beside it"),
        }
    }

    #[cold]
    fn make_fan<'s>(&self, node: Address, place: &'s OnceLock<Beside>) -> &'s Beside {
        let fan = self
            .page(node)
            .fan(|child| self.memnode(child).content_place(child.slot));
        // Of several that were made at a time, one stays.
        place.get_or_init(|| Beside::Bytes(fan))
    }

    /// The child of an inner node where a key is. Its slot is asked for, and what a search of it
    /// begins with, if the fan says where that is.
    #[inline]
    fn child_in(&self, node: Address, fan: Fan<'_>, key: &[u8]) -> Address {
        let index = fan.child_for(key);
        let index = index.unwrap_or_else(|| self.page(node).child_for(key));
        let (child, place) = fan.child(index);
        debug_assert_eq!(
            (index, child),
            (self.page(node).child_for(key), self.page(node).child(index)),
            "the fan is of the page as it is (SL3)"
        );
        self.prefetch_slot(child);
        if !place.is_null() {
            let bytes = if fan.is_lowest() {
                SEARCHED_BYTES
            } else {
                FAN_BYTES
            };
            prefetch_lines(place, bytes);
        }
        child
    }

    /// Finds the leaves of some keys, a height at a time for all of them, and asks for what a
    /// search in them meets. `leaves` is as long as `keys`.
    ///
    /// Whatever is waited for was asked for a round over all keys before: the slot, the part of the
    /// page that a search begins with, the cell of a leaf that it ends at.
    pub(super) fn find_leaves(&self, sight: &Sight, keys: &[Place<'_>], leaves: &mut [Address]) {
        leaves.fill(self.arrive(sight, sight.view.root));
        let height = self.page(leaves[0]).height();
        for _ in 0..height {
            for (address, key) in leaves.iter_mut().zip(keys) {
                let fan = self.fan(*address).expect("leaves are of one height");
                *address = self.child_in(*address, fan, key.entry());
            }
            if sight.ancestry.is_some() {
                for address in &mut *leaves {
                    *address = self.arrive(sight, *address);
                }
            }
        }
        for (address, key) in leaves.iter().zip(keys) {
            let page = self.page(*address);
            if page.link_for(key.entry()).is_none() {
                page.ask_for(key.entry());
            }
        }
    }

    /// The leaf of a key. Its latch is free.
    pub(super) fn leaf(&self, sight: &Sight, target: Target<'_>) -> Address {
        self.held(self.near(sight, target), target).0
    }

    /// The same, or a leaf whose links lead there (ME6 links-lead-on).
    #[inline]
    pub(super) fn near(&self, sight: &Sight, target: Target<'_>) -> Address {
        let Target::At(key) = target else {
            return self.descend(sight, target).1;
        };
        let mut node = self.arrive(sight, sight.view.root);
        while let Some(fan) = self.fan(node) {
            node = self.arrive(sight, self.child_in(node, fan, key));
        }
        node
    }

    /// The leaf of a key, held, from one whose links lead there.
    #[inline]
    pub(super) fn held(&self, mut leaf: Address, target: Target<'_>) -> (Address, Held<'_>) {
        loop {
            let page = self.searched(leaf);
            let link = match target {
                Target::At(key) => page.link_for(key).filter(|_| !planted(Fault::LinkLeft)),
                Target::Below(key) => {
                    let ends_before = || page.high().is_some_and(|high| high < key);
                    let link = page.link().filter(|_| ends_before());
                    link.filter(|_| !planted(Fault::LinkBack))
                }
            };
            match link {
                Some(link) => leaf = link,
                None => return (leaf, page),
            }
        }
    }

    /// The same, with its latch.
    #[inline]
    pub(super) fn latched(&self, mut leaf: Address, entry: &[u8]) -> (Address, Latch<'_>) {
        if planted(Fault::LinkLate) {
            leaf = self.held(leaf, Target::At(entry)).0;
            return (leaf, self.latch(leaf));
        }
        loop {
            let latch = self.latch(leaf);
            match Page::of_slot(&latch[..]).link_for(entry) {
                Some(next) => leaf = next,
                None => return (leaf, latch),
            }
        }
    }

    /// A leaf, with the node above it and which child of that it is; none of a root.
    #[inline]
    pub(super) fn descend(
        &self,
        sight: &Sight,
        target: Target<'_>,
    ) -> (Option<(Held<'_>, usize)>, Address) {
        let mut address = self.arrive(sight, sight.view.root);
        loop {
            let page = self.page(address);
            let height = page.height();
            if height == 0 {
                return (None, address);
            }
            let index = match target {
                Target::At(key) => page.child_for(key),
                Target::Below(key) => page.find(key).unwrap_or_else(|at| at).saturating_sub(1),
            };
            let child = page.child(index);
            if height == 1 {
                return (Some((page, index)), self.arrive(sight, child));
            }
            self.prefetch(child);
            address = self.arrive(sight, child);
        }
    }

    /// The latch of a leaf.
    #[inline]
    pub(super) fn latch(&self, leaf: Address) -> Latch<'_> {
        let latch = self.memnode(leaf).latch(leaf.slot);
        latch.expect("leaves have latches (SL1)")
    }

    /// A leaf, held; asks for the part that a search begins with, all lines at once.
    #[inline]
    pub(super) fn searched(&self, leaf: Address) -> Held<'_> {
        let page = self.page(leaf);
        prefetch_lines(page.as_bytes().as_ptr(), SEARCHED_BYTES);
        page
    }

    /// The page that a version has where a pointer leads (ME2 pointers-hold).
    #[inline]
    pub(super) fn arrive(&self, sight: &Sight, entry: Address) -> Address {
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

    /// Where a key's entry is, or would be, for as long as nobody else is inside.
    pub(super) fn spot(&self, sight: &Sight, entry: &[u8]) -> Spot {
        let leaf = self.leaf(sight, Target::At(entry));
        let index = self.searched(leaf).find(entry);
        Spot { leaf, index }
    }

    /// The head that the entry at a spot leads to.
    pub(super) fn head_at(&self, spot: Spot) -> Option<Address> {
        let index = spot.index.ok()?;
        Stored::of(self.page(spot.leaf).entry(index).1).head()
    }

    /// The value of a key whose entry is at a spot of a leaf.
    pub(super) fn found_in<'s, B: Deref<Target = [u8]>>(
        &'s self,
        page: &'s Page<B>,
        spot: Spot,
        place: &Place<'_>,
    ) -> Option<Found<'s>> {
        let cell = page.leaf_cell(spot.index.ok()?);
        match Stored::of(cell.value) {
            Stored::Bundle(head) => {
                let entry = bundle::find(self.bundle(head), place.rest?)?;
                Some(self.found_bundled(entry))
            }
            alone => Some(self.found_alone(spot.leaf, cell, alone)),
        }
    }

    /// The value of a cell that has one key.
    #[inline]
    fn found_alone<'s>(
        &'s self,
        leaf: Address,
        cell: LeafCell<'s>,
        stored: Stored<'s>,
    ) -> Found<'s> {
        let (stored, is_apart) = match stored {
            Stored::Inline(bytes) => (Coded { bytes, nodes: None }, false),
            Stored::Large(head) | Stored::Bundle(head) => (self.coded(head), true),
        };
        Found {
            version: cell.version,
            stored,
            mark: cell.value[MARK],
            mark_at: Some((leaf, cell.value_at + MARK)),
            is_apart,
        }
    }

    /// The value of a key of a bundle.
    fn found_bundled<'s>(&'s self, (version, bytes): bundle::Entry<'s>) -> Found<'s> {
        let stored = match Stored::of(bytes) {
            Stored::Large(head) => self.coded(head),
            _ => Coded { bytes, nodes: None },
        };
        Found {
            version,
            stored,
            mark: bytes[MARK],
            mark_at: None,
            is_apart: true,
        }
    }

    /// Shows the value of a key, or nothing, to `show`, which holds its leaf meanwhile.
    pub(super) fn find<R>(
        &self,
        sight: &Sight,
        place: &Place<'_>,
        show: impl FnOnce(Option<&Found<'_>>) -> R,
    ) -> R {
        self.find_in(self.near(sight, Target::At(place.entry())), place, show)
    }

    /// The same, of a key of this leaf, or of one to which its links lead.
    pub(super) fn find_in<R>(
        &self,
        leaf: Address,
        place: &Place<'_>,
        show: impl FnOnce(Option<&Found<'_>>) -> R,
    ) -> R {
        let (leaf, page) = self.held(leaf, Target::At(place.entry()));
        let index = page.find(place.entry());
        show(self.found_in(&page, Spot { leaf, index }, place).as_ref())
    }

    /// The entries of a leaf between two keys, the second one excluded.
    pub(super) fn range(page: &Held<'_>, from: &[u8], to: &[u8]) -> Range<usize> {
        let place = |key: &[u8]| {
            if page.low() >= key {
                0
            } else if page.high().is_some_and(|high| high <= key) {
                page.count()
            } else {
                page.find(key).unwrap_or_else(|at| at)
            }
        };
        place(from)..place(to)
    }

    /// Shows entries of a leaf, in one direction. Keys are without their tree's number.
    pub(super) fn show_leaf(
        &self,
        (page, leaf): (&Held<'_>, Address),
        range: Range<usize>,
        way: Direction,
        mut visit: impl FnMut(&[u8], &Found<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let prefix = page.prefix_len();
        let mut key = page.low()[..prefix].to_vec();
        let is_back = way == Direction::Backward;
        for cell in page.leaf_cells(range, is_back) {
            key.truncate(prefix);
            key.extend_from_slice(cell.suffix);
            let stored = Stored::of(cell.value);
            let Stored::Bundle(head) = stored else {
                let found = self.found_alone(leaf, cell, stored);
                visit(&key[TREE_BYTES..], &found)?;
                continue;
            };
            key.pop();
            let common = key.len();
            let keys = self.bundle(head);
            let count = keys.len();
            for rank in 0..count {
                let rank = if is_back { count - 1 - rank } else { rank };
                let (rest, entry) = bundle::nth(keys, rank).expect("a rank below the count");
                key.truncate(common);
                key.extend_from_slice(rest);
                visit(&key[TREE_BYTES..], &self.found_bundled(entry))?;
            }
        }
        ControlFlow::Continue(())
    }
}

/// Picking keys and places.
impl State {
    /// The keys of the first entries of a tree, with its number, up to `count` of one leaf.
    pub(super) fn first_entries(&self, sight: &Sight, tree: TreeId, count: usize) -> Vec<Vec<u8>> {
        let (low, high) = ends(tree);
        let mut next = Some(low.to_vec());
        while let Some(from) = next.filter(|end| end[..] < high[..]) {
            let page = self.page(self.leaf(sight, Target::At(&from)));
            let range = Self::range(&page, &low, &high);
            if !range.is_empty() {
                return range.take(count).map(|index| page.key(index)).collect();
            }
            next = page.high().map(<[u8]>::to_vec);
        }
        Vec::new()
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
        while let Some(link) = self.page(address).link() {
            if pick(2) == 0 {
                break;
            }
            address = link;
        }
        let (leaf, page, index) = {
            let page = self.page(address);
            let range = Self::range(&page, &low, &high);
            if range.is_empty() {
                drop(page);
                match self.next_leaf_with_keys(sight, tree, address) {
                    Some(near) => near,
                    None => return read(None),
                }
            } else {
                let index = range.start + pick(range.len());
                (address, page, index)
            }
        };
        let one = index..index + 1;
        let mut entries = 0;
        let at = (&page, leaf);
        let _ = self.show_leaf(at, one.clone(), Direction::Forward, |_, _| {
            entries += 1;
            ControlFlow::Continue(())
        });
        let mut left = pick(entries);
        let (mut read, mut shown) = (Some(read), None);
        let _ = self.show_leaf(at, one, Direction::Forward, |key, found| {
            if left > 0 {
                left -= 1;
                return ControlFlow::Continue(());
            }
            if let Some(read) = read.take() {
                shown = Some(read(Some((key, found))));
            }
            ControlFlow::Break(())
        });
        shown.expect("an entry has a key")
    }

    /// An entry of a tree near a leaf that has none of it: those are rare, and few in a row.
    fn next_leaf_with_keys(
        &self,
        sight: &Sight,
        tree: TreeId,
        near: Address,
    ) -> Option<(Address, Held<'_>, usize)> {
        let (low, high) = ends(tree);
        let mut next = self.page(near).high().map(<[u8]>::to_vec);
        while let Some(from) = next.filter(|end| end[..] < high[..]) {
            let target = Target::At(&from);
            let (leaf, page) = self.held(self.near(sight, target), target);
            let range = Self::range(&page, &low, &high);
            if !range.is_empty() {
                return Some((leaf, page, range.start));
            }
            next = page.high().map(<[u8]>::to_vec);
        }
        let mut end = self.page(near).low().to_vec();
        while end[..] > low[..] {
            let target = Target::Below(&end);
            let (leaf, page) = self.held(self.near(sight, target), target);
            let range = Self::range(&page, &low, &high);
            if !range.is_empty() {
                return Some((leaf, page, range.end - 1));
            }
            end = page.low().to_vec();
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

    /// Gives a value the mark that its reader left, unless it has changed since; whether that could
    /// be done under the latch of its leaf.
    pub(super) fn leave_mark(&self, (whole, version, mark): &Marked) -> bool {
        let Some((sight, place)) = self.placed(whole) else {
            return true;
        };
        if place.rest.is_some() {
            return false;
        }
        let leaf = self.near(sight, Target::At(place.entry()));
        let (_, mut latch) = self.latched(leaf, place.entry());
        let page = Page::of_slot(&latch[..]);
        if let Ok(index) = page.find(place.entry())
            && page.entry(index).0 == *version
        {
            let at = page.leaf_cell(index).value_at + MARK;
            latch.mark()[at] = *mark;
        }
        true
    }

    /// The same, of any value.
    pub(super) fn leave_mark_alone(&mut self, marked: &Marked) {
        let Some((sight, place)) = self.placed(&marked.0) else {
            return;
        };
        let mark_at = self.find(sight, &place, |found| {
            let same = found.filter(|found| found.version == marked.1);
            same.map(|found| found.mark_at)
        });
        match mark_at {
            Some(Some(at)) => self.set_mark(at, marked.2),
            Some(None) => self.mark_bundled(marked),
            None => {}
        }
    }

    /// Where a key is, with its tree's number, if that is there.
    pub(super) fn placed<'k>(&self, whole: &'k [u8]) -> Option<(&Sight, Place<'k>)> {
        let Key { tree, bytes } = key_of(whole);
        let (sight, base) = self.present(tree)?;
        Some((sight, Place::of(Key::new(base, bytes))))
    }

    pub(super) fn set_mark(&mut self, (address, at): (Address, usize), mark: u8) {
        let Address { memnode, slot, .. } = address;
        let memnode = self.database.memnodes_mut().memnode_mut(memnode);
        memnode.mark(slot, at, mark);
    }
}
