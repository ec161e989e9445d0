//! A node of the tree, as bytes: a slotted page.
//!
//! All numbers are little-endian.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | format, 1 |
//! | 1 | 1 | height; 0 in a leaf |
//! | 2 | 2 | number of cells |
//! | 4 | 4 | which tree |
//! | 8 | 8 | generation of the page's address |
//! | 16 | 8 | created-at: the snapshot at which the page was made |
//! | 24 | 8 | floor: in a leaf, the highest version that a key had when it was removed |
//! | 32 | 2 | where the cells begin; they reach to the end, in any order |
//! | 34 | 2 | bytes of removed cells among them |
//! | 36 | 2 | bytes of the low fence |
//! | 38 | 2 | bytes of the high fence; `0xffff`: there is none, the page is the last |
//! | 40 | 2 | bytes of the prefix that all keys share, which is that of the fences |
//! | 42 | 1 | number of notes of copies |
//! | 43 | 1 | 1: the page is its version's root; 2: it is a discretionary copy |
//! | 44 | 2 | where the directory begins |
//! | 46 | 1 | 1: a leaf's upper part was split off, and the node above does not know yet |
//! | 47 | 1 | zero |
//! | 48 | 96 | notes of copies, 24 bytes each: the version to which the page was copied (8), and where that copy is, a slot of the same memnode (8) and its generation (8); slot `2^64 - 1`: versions from there on do not lead here |
//! | 144 | 24 | a note like these of a later copy, to get there sooner; version 0: none |
//! | 168 | | the low fence, the high fence, the directory: six bytes a cell, in the order of keys |
//!
//! Of a leaf whose upper part was split off, the first 18 bytes of the notes are where that is: it
//! was made at a tip, so it has no notes (`halves`).
//!
//! An entry of the directory is where the cell is (2), and the cell's *hint* (4): the first four
//! bytes of its suffix as a number, zeros where there are none. A search compares hints, so that it
//! mostly looks at one cell (`search`).
//!
//! A cell begins with the length of its suffix, the key less the prefix (2). In an inner node
//! follow the child's address (memnode 2, slot 8, generation 8) and the suffix. In a leaf follow
//! the length of the value (2), the suffix, the version (8), the value.
//!
//! The *head* of a large value is a page without cells, of height 255. Its created-at and copied-to
//! say which versions have the value, as a node's do; at 24 to 41 is the address of the *body*, a
//! slot that holds a 2 and the value's bytes and never changes.
//!
//! A page covers the keys from its low fence up to, not including, its high fence. The first key of
//! an inner node is its low fence.
//!
//! Departs from the paper, which leaves the layout open: changes are made in place and noted as
//! pieces, so that a SET sends and logs some tens of bytes (`edit`).

mod edit;
mod fan;
mod halves;
mod node;
mod search;

use std::ops::{Deref, Range};

use pando_memnode::{Address, Bytes, MemnodeId, Sequence, Slot};
use pando_sync::prefetch::{prefetch_lines, prefetch_span};

pub(crate) use edit::PageEdit;
pub(crate) use fan::{FAN_BYTES, Fan, set_child};
use node::encode_entry;
pub(crate) use node::{Cell, CellBody, Node};
use search::Searched;

use crate::SnapshotId;
use crate::fault::{Fault, planted};

/// Bytes before the fences.
pub(crate) const HEADER_BYTES: usize = 168;
/// Bytes of a cell without its suffix and value, and of its entry in the directory, at most.
pub(crate) const CELL_BYTES_MAX: usize = PLACE_BYTES + CHILD_CELL_BYTES;
/// Notes of copies that a page has room for.
pub(crate) const COPIES_MAX: usize = 4;
/// The version of this format.
const FORMAT: u8 = 1;
/// In its place, what the body of a large value begins with.
pub(crate) const BODY_FORMAT: u8 = 2;
/// Bytes of an encoded address.
pub(crate) const ADDRESS_BYTES: usize = 18;

const HEIGHT: usize = 1;
const COUNT: usize = 2;
const TREE: usize = 4;
const GENERATION: usize = 8;
const CREATED: usize = 16;
const FLOOR: usize = 24;
const HEAP: usize = 32;
const DEAD: usize = 34;
const LOW: usize = 36;
const HIGH: usize = 38;
const PREFIX: usize = 40;
const COPIES: usize = 42;
const KIND: usize = 43;
const DIRECTORY: usize = 44;
const SPLIT: usize = 46;
const IS_ROOT: u8 = 1;
const IS_DISCRETIONARY: u8 = 2;
const COPIED: usize = 48;
const LINK: usize = COPIED;
/// In a head, the body's address takes the place of what only nodes have.
const BODY: usize = FLOOR;
const _: () = assert!(BODY + ADDRESS_BYTES == COPIES);
/// The height of a head.
const HEAD_HEIGHT: u8 = u8::MAX;
const NOTE_BYTES: usize = 24;
const FAR: usize = COPIED + NOTE_BYTES * COPIES_MAX;
const _: () = assert!(FAR + NOTE_BYTES == HEADER_BYTES);
const _: () = assert!(crate::limits::DESCENDANTS_MAX as usize <= COPIES_MAX);
const NOWHERE: u64 = u64::MAX;

const NO_HIGH: u16 = u16::MAX;
/// Bytes of an entry of the directory.
const PLACE_BYTES: usize = 2 + HINT_BYTES;
const HINT_BYTES: usize = 4;
const LEAF_CELL_BYTES: usize = 2 + 2 + 8;
const CHILD_CELL_BYTES: usize = 2 + ADDRESS_BYTES;
/// Cells of a leaf that are asked for ahead of the one that is read, and the part of each: what
/// waits for memory then are a few cells of each leaf, not all of them.
const CELLS_AHEAD: usize = 12;
const LEAF_CELL_ASKED_BYTES: usize = 40;
const _: () = assert!(CHILD_CELL_BYTES >= LEAF_CELL_BYTES);

/// Encodes an address.
pub(crate) fn encode_address(address: Address) -> [u8; ADDRESS_BYTES] {
    let mut bytes = [0; ADDRESS_BYTES];
    bytes[..2].copy_from_slice(&address.memnode.0.to_le_bytes());
    bytes[2..10].copy_from_slice(&address.slot.0.to_le_bytes());
    bytes[10..].copy_from_slice(&address.generation.0.to_le_bytes());
    bytes
}

/// Decodes an address from the first bytes of `bytes`.
#[inline]
pub(crate) fn decode_address(bytes: &[u8]) -> Address {
    Address {
        memnode: MemnodeId(u16_at(bytes, 0)),
        slot: Slot(u64_at(bytes, 2)),
        generation: Sequence(u64_at(bytes, 10)),
    }
}

/// The hint of a cell with this suffix.
#[inline]
fn hint_of(suffix: &[u8]) -> u32 {
    if let Some(first) = suffix.first_chunk() {
        return u32::from_be_bytes(*first);
    }
    let mut first = [0; HINT_BYTES];
    first[..suffix.len()].copy_from_slice(suffix);
    u32::from_be_bytes(first)
}

/// The directory's entry of a cell.
fn place_of(at: usize, suffix: &[u8]) -> [u8; PLACE_BYTES] {
    let mut place = [0; PLACE_BYTES];
    place[..2].copy_from_slice(&(at as u16).to_le_bytes());
    place[2..].copy_from_slice(&hint_of(suffix).to_le_bytes());
    place
}

#[inline]
fn cell_of(place: [u8; PLACE_BYTES]) -> usize {
    usize::from(u16::from_le_bytes([place[0], place[1]]))
}

#[inline]
fn hint_at(place: [u8; PLACE_BYTES]) -> u32 {
    u32::from_le_bytes([place[2], place[3], place[4], place[5]])
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[inline]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// That a page was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Copied {
    /// To this version.
    pub(crate) at: SnapshotId,
    /// The copy's slot and generation, on the page's memnode, if ways from that version on still
    /// lead to the page (`tree::route`).
    pub(crate) to: Option<(Slot, Sequence)>,
}

impl Copied {
    fn encode(self) -> [u8; NOTE_BYTES] {
        let (slot, generation) = self.to.unwrap_or((Slot(NOWHERE), Sequence(0)));
        let mut bytes = [0; NOTE_BYTES];
        bytes[..8].copy_from_slice(&self.at.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&slot.0.to_le_bytes());
        bytes[16..].copy_from_slice(&generation.0.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Self {
        let slot = u64_at(bytes, 8);
        Self {
            at: SnapshotId(u64_at(bytes, 0)),
            to: (slot != NOWHERE).then(|| (Slot(slot), Sequence(u64_at(bytes, 16)))),
        }
    }
}

/// The page that begins with these bytes, a header at least; none if they are of no page. It may
/// have no more than the header.
pub(crate) fn header(bytes: &Bytes) -> Option<Page> {
    let is_page = bytes.len() >= HEADER_BYTES && bytes[0] == FORMAT;
    let bytes = bytes.clone();
    is_page.then_some(Page { bytes })
}

/// Whether these bytes are a leaf.
pub(crate) fn is_leaf(bytes: &[u8]) -> bool {
    bytes.len() >= HEADER_BYTES && bytes[0] == FORMAT && bytes[HEIGHT] == 0
}

/// The page of a head: a large value, which `body` holds, made at `created`.
pub(crate) fn head(tree: u32, generation: Sequence, created: SnapshotId, body: Address) -> Bytes {
    let mut page = vec![0; HEADER_BYTES];
    page[0] = FORMAT;
    page[HEIGHT] = HEAD_HEIGHT;
    page[TREE..GENERATION].copy_from_slice(&tree.to_le_bytes());
    page[GENERATION..CREATED].copy_from_slice(&generation.0.to_le_bytes());
    page[CREATED..BODY].copy_from_slice(&created.0.to_le_bytes());
    page[BODY..COPIES].copy_from_slice(&encode_address(body));
    page.into()
}

/// What a leaf has room for, as it lies, while changes of it are reckoned one after the other.
#[derive(Debug)]
pub(crate) struct Room {
    gap: usize,
    removed: usize,
}

impl Room {
    /// Whether it has room for an entry at its place, whose suffix and value have so many bytes.
    #[inline]
    pub(crate) fn put<B: Deref<Target = [u8]>>(
        &mut self,
        page: &Page<B>,
        index: Result<usize, usize>,
        suffix: usize,
        value: usize,
    ) -> bool {
        let cell = LEAF_CELL_BYTES + suffix + value;
        let needed = match index {
            Ok(index) if page.entry(index).1.len() == value => 0,
            Ok(_) => cell,
            Err(_) => cell + PLACE_BYTES,
        };
        let left = self.gap.checked_sub(needed);
        self.gap = left.unwrap_or(0);
        left.is_some()
    }

    /// Whether it can lose an entry, and needs not be merged with another leaf.
    #[inline]
    pub(crate) fn remove<B: Deref<Target = [u8]>>(&mut self, page: &Page<B>, index: usize) -> bool {
        let is_large = page.used() >= page.bytes_len() / 2 + self.removed;
        let (suffix, value) = (page.suffix(index).len(), page.entry(index).1.len());
        self.removed += LEAF_CELL_BYTES + suffix + value + PLACE_BYTES;
        is_large
    }
}

/// A page that is read. Its bytes are shared, or borrowed.
#[derive(Clone, Debug)]
pub(crate) struct Page<B = Bytes> {
    bytes: B,
}

impl<B: Deref<Target = [u8]>> Page<B> {
    /// A page that a memnode has, where a pointer to it was found that is known to be right.
    #[inline]
    pub(crate) fn of_slot(bytes: B) -> Self {
        debug_assert!(bytes.len() >= HEADER_BYTES && bytes[0] == FORMAT);
        Self { bytes }
    }

    /// What holds its bytes.
    #[inline]
    pub(crate) fn holder(&self) -> &B {
        &self.bytes
    }

    /// Its bytes.
    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Page {
    /// Reads a page; `None` if the bytes are no page of this address and tree.
    pub(crate) fn parse(bytes: &Bytes, address: Address, tree: u32) -> Option<Self> {
        let is_page = bytes.len() >= HEADER_BYTES && bytes[0] == FORMAT;
        let page = Self {
            bytes: bytes.clone(),
        };
        (is_page && page.is_of(address) && u32_at(bytes, TREE) == tree).then_some(page)
    }
}

impl<B: Deref<Target = [u8]>> Page<B> {
    /// Whether the page was made for this use of its slot, not for a later one.
    fn is_of(&self, address: Address) -> bool {
        self.generation() == address.generation || planted(Fault::Generation)
    }

    pub(crate) fn generation(&self) -> Sequence {
        Sequence(u64_at(&self.bytes, GENERATION))
    }

    #[inline]
    pub(crate) fn height(&self) -> u8 {
        self.bytes[HEIGHT]
    }

    /// Whether it points to others.
    pub(crate) fn is_inner(&self) -> bool {
        (1..HEAD_HEIGHT).contains(&self.height())
    }

    #[inline]
    pub(crate) fn count(&self) -> usize {
        usize::from(u16_at(&self.bytes, COUNT))
    }

    pub(crate) fn tree(&self) -> u32 {
        u32_at(&self.bytes, TREE)
    }

    #[inline]
    pub(crate) fn created(&self) -> SnapshotId {
        SnapshotId(u64_at(&self.bytes, CREATED))
    }

    #[inline]
    pub(crate) fn floor(&self) -> u64 {
        u64_at(&self.bytes, FLOOR)
    }

    /// Whether it is the root of the version at which it was made. No copy of one is noted: ways
    /// begin there.
    pub(crate) fn is_root(&self) -> bool {
        self.bytes[KIND] == IS_ROOT
    }

    /// Whether another page forwards to it. Of a large value, that one has the body.
    pub(crate) fn is_discretionary(&self) -> bool {
        self.bytes[KIND] == IS_DISCRETIONARY
    }

    /// The versions to which the page was copied: its descendant set (§5.2).
    pub(crate) fn copies(&self) -> impl Iterator<Item = Copied> + '_ {
        let count = usize::from(self.bytes[COPIES]);
        (0..count).map(|index| Copied::decode(&self.bytes[COPIED + NOTE_BYTES * index..]))
    }

    /// A later copy on the way that `copies` begins.
    pub(crate) fn far(&self) -> Option<Copied> {
        let far = Copied::decode(&self.bytes[FAR..]);
        (far.at != SnapshotId(0)).then_some(far)
    }

    pub(crate) fn low(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..][..self.low_len()]
    }

    #[inline]
    fn low_len(&self) -> usize {
        usize::from(u16_at(&self.bytes, LOW))
    }

    /// The high fence; `None` in the last page of its height.
    pub(crate) fn high(&self) -> Option<&[u8]> {
        let len = u16_at(&self.bytes, HIGH);
        let start = HEADER_BYTES + self.low_len();
        (len != NO_HIGH).then(|| &self.bytes[start..][..usize::from(len)])
    }

    /// Whether the page is responsible for `key`.
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        self.low() <= key && self.high().is_none_or(|high| key < high)
    }

    /// Bytes that all keys share.
    #[inline]
    pub(crate) fn prefix_len(&self) -> usize {
        usize::from(u16_at(&self.bytes, PREFIX))
    }

    #[inline]
    fn directory(&self) -> usize {
        usize::from(u16_at(&self.bytes, DIRECTORY))
    }

    #[inline]
    fn heap(&self) -> usize {
        usize::from(u16_at(&self.bytes, HEAP))
    }

    #[inline]
    fn dead(&self) -> usize {
        usize::from(u16_at(&self.bytes, DEAD))
    }

    /// Bytes between the directory and the cells.
    #[inline]
    fn gap(&self) -> usize {
        self.heap() - self.directory() - PLACE_BYTES * self.count()
    }

    pub(crate) fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes in use beyond the header and fences.
    #[inline]
    pub(crate) fn used(&self) -> usize {
        self.bytes.len() - self.directory() - self.gap() - self.dead()
    }

    /// Whether it may have to be merged with another when it loses a cell.
    #[inline]
    pub(crate) fn is_small(&self) -> bool {
        self.used() < self.bytes_len() / 2
    }

    /// Where the directory has a cell.
    #[inline]
    fn place(&self, index: usize) -> usize {
        self.directory() + PLACE_BYTES * index
    }

    #[inline]
    fn cell_at(&self, index: usize) -> usize {
        usize::from(u16_at(&self.bytes, self.place(index)))
    }

    /// The directory: where each cell is, and its hint.
    #[inline]
    fn places(&self) -> &[[u8; PLACE_BYTES]] {
        let directory = &self.bytes[self.directory()..][..PLACE_BYTES * self.count()];
        directory.as_chunks().0
    }

    #[inline]
    fn is_leaf(&self) -> bool {
        self.height() == 0
    }

    /// What a cell's key has beyond them.
    #[inline]
    pub(crate) fn suffix(&self, index: usize) -> &[u8] {
        self.suffix_at(self.cell_at(index))
    }

    #[inline]
    fn suffix_at(&self, at: usize) -> &[u8] {
        let len = usize::from(u16_at(&self.bytes, at));
        let start = at + if self.is_leaf() { 4 } else { CHILD_CELL_BYTES };
        &self.bytes[start..start + len]
    }

    /// Asks for all of the page, at once.
    pub(crate) fn ask(&self) {
        prefetch_lines(self.bytes.as_ptr(), self.bytes.len());
    }

    /// The bytes of the page from each cell on, beginning with one.
    fn cells(&self, first: usize) -> impl Iterator<Item = &[u8]> {
        let cell = |place| &self.bytes[cell_of(place)..];
        self.places()[first..].iter().copied().map(cell)
    }

    /// How many entries from one on are the same, with their versions, as those of another leaf,
    /// whose keys have a prefix of the same length. Cheap for each of them.
    pub(crate) fn same_entries(&self, first: usize, other: &Self, other_first: usize) -> usize {
        debug_assert!(self.is_leaf() && other.is_leaf());
        let is_same = |(one, other): &(&[u8], &[u8])| {
            let lens = usize::from(u16_at(one, 0)) + usize::from(u16_at(one, 2));
            let bytes = LEAF_CELL_BYTES + lens;
            one[..4] == other[..4] && one[4..bytes] == other[4..bytes]
        };
        let pairs = self.cells(first).zip(other.cells(other_first));
        pairs.take_while(is_same).count()
    }

    /// How many children from one on are the same as those of another node.
    pub(crate) fn same_children(&self, first: usize, other: &Self, other_first: usize) -> usize {
        debug_assert!(!self.is_leaf() && !other.is_leaf());
        let child = 2..2 + ADDRESS_BYTES;
        let pairs = self.cells(first).zip(other.cells(other_first));
        let is_same = |(one, other): &(&[u8], &[u8])| one[child.clone()] == other[child.clone()];
        pairs.take_while(is_same).count()
    }

    /// The key of a cell.
    pub(crate) fn key(&self, index: usize) -> Vec<u8> {
        [&self.low()[..self.prefix_len()], self.suffix(index)].concat()
    }

    /// Of the head of a large value, where its bytes are.
    pub(crate) fn body(&self) -> Option<Address> {
        (self.height() == HEAD_HEIGHT).then(|| decode_address(&self.bytes[BODY..]))
    }

    /// Where `key`, which the page covers, is, or would be.
    #[inline]
    pub(crate) fn find(&self, key: &[u8]) -> Result<usize, usize> {
        Searched::new(&self.bytes).find(key)
    }

    /// The child of an inner node that is responsible for `key`, which the node covers.
    #[inline]
    pub(crate) fn child_for(&self, key: &[u8]) -> usize {
        match self.find(key) {
            Ok(index) => index,
            Err(index) => index.saturating_sub(1),
        }
    }

    /// The address of a child.
    #[inline]
    pub(crate) fn child(&self, index: usize) -> Address {
        decode_address(&self.bytes[self.cell_at(index) + 2..])
    }

    /// Where the keys of a child end; none if no key ends it.
    pub(crate) fn child_end(&self, index: usize) -> Option<Vec<u8>> {
        if index + 1 < self.count() {
            Some(self.key(index + 1))
        } else {
            self.high().map(<[u8]>::to_vec)
        }
    }

    /// What a leaf has room for, as it lies.
    #[inline]
    pub(crate) fn room(&self) -> Room {
        Room {
            gap: self.gap(),
            removed: 0,
        }
    }

    /// Version and value of a leaf's cell.
    #[inline]
    pub(crate) fn entry(&self, index: usize) -> (u64, &[u8]) {
        let LeafCell { version, value, .. } = self.leaf_cell(index);
        (version, value)
    }

    /// A leaf's cell.
    #[inline]
    pub(crate) fn leaf_cell(&self, index: usize) -> LeafCell<'_> {
        LeafCell::at(&self.bytes, self.cell_at(index))
    }

    /// Asks for the cell of a leaf that a search for `key` looks at, by the hints alone.
    #[inline]
    pub(crate) fn ask_for(&self, key: &[u8]) {
        if let Some(at) = Searched::new(&self.bytes).likely(key) {
            let cell = self.bytes.as_ptr().wrapping_add(at);
            prefetch_span(cell, LEAF_CELL_ASKED_BYTES);
        }
    }

    /// Cells of a leaf, in the order of keys or back, each asked for some before it is returned.
    pub(crate) fn leaf_cells(
        &self,
        range: Range<usize>,
        is_back: bool,
    ) -> impl Iterator<Item = LeafCell<'_>> {
        let places = &self.places()[range];
        let from_first = move |order: usize| {
            let at = if is_back {
                places.len().checked_sub(order + 1)?
            } else {
                order
            };
            places.get(at).copied()
        };
        let ask = move |order: usize| {
            if let Some(place) = from_first(order) {
                let cell = self.bytes.as_ptr().wrapping_add(cell_of(place));
                prefetch_span(cell, LEAF_CELL_ASKED_BYTES);
            }
        };
        (0..CELLS_AHEAD).for_each(ask);
        (0..places.len()).map_while(move |order| {
            ask(order + CELLS_AHEAD);
            from_first(order).map(|place| LeafCell::at(&self.bytes, cell_of(place)))
        })
    }
}

/// A cell of a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafCell<'p> {
    pub(crate) suffix: &'p [u8],
    pub(crate) version: u64,
    pub(crate) value: &'p [u8],
    /// Where the value begins in the page.
    pub(crate) value_at: usize,
}

impl<'p> LeafCell<'p> {
    #[inline]
    fn at(page: &'p [u8], at: usize) -> Self {
        let cell = &page[at..];
        let (lens, rest) = cell.split_first_chunk::<4>().expect("two lengths");
        let suffix_len = usize::from(u16::from_le_bytes([lens[0], lens[1]]));
        let value_len = usize::from(u16::from_le_bytes([lens[2], lens[3]]));
        let (suffix, rest) = rest.split_at(suffix_len);
        let (version, rest) = rest.split_first_chunk().expect("a version");
        Self {
            suffix,
            version: u64::from_le_bytes(*version),
            value: &rest[..value_len],
            value_at: at + LEAF_CELL_BYTES + suffix_len,
        }
    }
}
