//! Changes of a page in place, noted as pieces.
//!
//! A change that does not find its room as the page lies fails with [`NoRoom`]; the caller packs
//! the page anew, or splits it.

use std::ops::Deref;

use pando_memnode::{Address, Bytes, Piece, Sequence};

use super::{
    CHILD_CELL_BYTES, COPIED, COPIES, COPIES_MAX, COUNT, CREATED, Cell, CellBody, Copied, DEAD,
    FAR, FLOOR, GENERATION, HEAP, IS_DISCRETIONARY, IS_ROOT, KIND, LEAF_CELL_BYTES, NOTE_BYTES,
    Node, PLACE_BYTES, Page, encode_address, encode_entry, place_of,
};
use crate::SnapshotId;

/// The page has too few bytes between its directory and its cells.
#[derive(Debug)]
pub(crate) struct NoRoom;

/// Bytes that can be changed.
pub(crate) trait Changed: Deref<Target = [u8]> {
    /// They, for nobody else.
    fn changed(&mut self) -> &mut [u8];
}

impl Changed for Bytes {
    fn changed(&mut self) -> &mut [u8] {
        Bytes::make_mut(self)
    }
}

impl Changed for &mut [u8] {
    fn changed(&mut self) -> &mut [u8] {
        self
    }
}

/// A page being changed.
#[derive(Clone, Debug)]
pub(crate) struct PageEdit<B = Bytes> {
    page: Page<B>,
    /// What changed since the page was read; `None` if all of it did.
    pieces: Option<Vec<Piece>>,
}

impl PageEdit {
    /// Changes a page that memnodes have.
    pub(crate) fn of(page: Page) -> Self {
        Self {
            page,
            pieces: Some(Vec::new()),
        }
    }

    /// A page that memnodes do not have, or not like this. It must fit.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self {
            page: Page { bytes },
            pieces: None,
        }
    }

    pub(crate) fn page(&self) -> &Page {
        &self.page
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.page.bytes
    }

    pub(crate) fn pieces(&self) -> Option<&[Piece]> {
        self.pieces.as_deref()
    }
}

impl<'b> PageEdit<&'b mut [u8]> {
    /// A page that is changed where it lies.
    pub(crate) fn in_place(bytes: &'b mut [u8]) -> Self {
        Self {
            page: Page::of_slot(bytes),
            pieces: None,
        }
    }
}

impl<B: Changed> PageEdit<B> {
    /// Puts bytes one after the other.
    fn put_all(&mut self, mut at: usize, parts: [&[u8]; 2]) {
        if self.pieces.is_some() {
            return self.put(at, &parts.concat());
        }
        for part in parts {
            self.put(at, part);
            at += part.len();
        }
    }

    pub(super) fn put(&mut self, at: usize, bytes: &[u8]) {
        self.page.bytes.changed()[at..at + bytes.len()].copy_from_slice(bytes);
        if let Some(pieces) = &mut self.pieces {
            pieces.push(Piece::Bytes {
                at: at as u32,
                bytes: bytes.into(),
            });
        }
    }

    fn shift(&mut self, from: usize, to: usize, len: usize) {
        if len == 0 {
            return;
        }
        self.page.bytes.changed().copy_within(from..from + len, to);
        if let Some(pieces) = &mut self.pieces {
            pieces.push(Piece::Move {
                from: from as u32,
                to: to as u32,
                len: len as u32,
            });
        }
    }

    /// Makes it the page of a copy, made at `created`.
    pub(crate) fn become_copy(&mut self, generation: Sequence, created: SnapshotId) {
        self.pieces = None;
        self.put(GENERATION, &generation.0.to_le_bytes());
        self.put(CREATED, &created.0.to_le_bytes());
        let is_root = self.page.is_root();
        self.put(KIND, &[if is_root { IS_ROOT } else { 0 }]);
        self.put(COPIES, &[0]);
        self.put(FAR, &[0; NOTE_BYTES]);
    }

    /// Makes it the page of a discretionary copy.
    pub(crate) fn become_discretionary(&mut self, generation: Sequence, created: SnapshotId) {
        self.become_copy(generation, created);
        self.put(KIND, &[IS_DISCRETIONARY]);
    }

    /// Notes to which versions the page was copied. There must be room.
    pub(crate) fn set_copies(&mut self, copies: &[Copied]) {
        assert!(copies.len() <= COPIES_MAX, "the descendant set is bounded");
        let notes: Vec<u8> = copies.iter().flat_map(|copied| copied.encode()).collect();
        self.put(COPIED, &notes);
        self.put(COPIES, &[copies.len() as u8]);
        debug_assert!(self.page.copies().eq(copies.iter().copied()));
    }

    /// Notes a later copy, to get there sooner.
    pub(crate) fn set_far(&mut self, far: Copied) {
        self.put(FAR, &far.encode());
    }

    /// Raises the floor to `version`.
    pub(crate) fn raise_floor(&mut self, version: u64) {
        if self.page.floor() < version {
            self.put(FLOOR, &version.to_le_bytes());
        }
    }

    /// Makes a child of an inner node another.
    pub(crate) fn set_child(&mut self, index: usize, child: Address) {
        let at = self.page.cell_at(index) + 2;
        self.put(at, &encode_address(child));
    }

    /// Gives an entry of a leaf another version and value.
    pub(crate) fn set_entry(
        &mut self,
        index: usize,
        version: u64,
        value: &[u8],
    ) -> Result<(), NoRoom> {
        if self.page.entry(index).1.len() == value.len() {
            let at = self.page.cell_at(index);
            let start = at + 4 + self.page.suffix(index).len();
            self.put_all(start, [&version.to_le_bytes(), value]);
            return Ok(());
        }
        let key = self.page.key(index);
        let body = CellBody::Entry {
            version,
            value: value.to_vec(),
        };
        let cell = Cell { key, body }.encode(self.page.prefix_len());
        if self.page.gap() < cell.len() {
            return Err(NoRoom);
        }
        let dead = self.page.dead() + self.cell_len(index);
        let heap = self.push_cell(&cell);
        self.put(self.page.place(index), &(heap as u16).to_le_bytes());
        self.put(DEAD, &(dead as u16).to_le_bytes());
        Ok(())
    }

    /// Adds a cell at its place.
    pub(crate) fn insert(&mut self, index: usize, cell: &Cell) -> Result<(), NoRoom> {
        let cell = cell.encode(self.page.prefix_len());
        self.insert_encoded(index, &cell)
    }

    /// Adds an entry to a leaf.
    pub(crate) fn insert_entry(
        &mut self,
        index: usize,
        key: &[u8],
        version: u64,
        value: &[u8],
    ) -> Result<(), NoRoom> {
        let suffix = &key[self.page.prefix_len()..];
        let mut cell = Vec::with_capacity(LEAF_CELL_BYTES + suffix.len() + value.len());
        encode_entry(&mut cell, suffix, version, value);
        self.insert_encoded(index, &cell)
    }

    fn insert_encoded(&mut self, index: usize, cell: &[u8]) -> Result<(), NoRoom> {
        if self.page.gap() < cell.len() + PLACE_BYTES {
            return Err(NoRoom);
        }
        let count = self.page.count();
        let at = self.page.place(index);
        self.shift(at, at + PLACE_BYTES, PLACE_BYTES * (count - index));
        self.put(COUNT, &(count as u16 + 1).to_le_bytes());
        let heap = self.push_cell(cell);
        let place = place_of(heap, self.page.suffix_at(heap));
        self.put(at, &place);
        Ok(())
    }

    fn push_cell(&mut self, cell: &[u8]) -> usize {
        let heap = self.page.heap() - cell.len();
        self.put(heap, cell);
        self.put(HEAP, &(heap as u16).to_le_bytes());
        heap
    }

    /// Removes a cell.
    pub(crate) fn remove(&mut self, index: usize) {
        let count = self.page.count();
        let dead = self.page.dead() + self.cell_len(index);
        let at = self.page.place(index);
        self.shift(at + PLACE_BYTES, at, PLACE_BYTES * (count - index - 1));
        self.put(COUNT, &(count as u16 - 1).to_le_bytes());
        self.put(DEAD, &(dead as u16).to_le_bytes());
    }

    fn cell_len(&self, index: usize) -> usize {
        let suffix = self.page.suffix(index).len();
        if self.page.is_leaf() {
            LEAF_CELL_BYTES + suffix + self.page.entry(index).1.len()
        } else {
            CHILD_CELL_BYTES + suffix
        }
    }
}

impl PageEdit {
    /// The node, taken apart.
    pub(crate) fn node(&self) -> Node {
        Node::decode(&self.page)
    }

    /// Makes it the page of `node`; whether that fits.
    pub(crate) fn replace(&mut self, node: &Node) -> bool {
        let encoded = node.encode(self.page.bytes.len());
        if let Some(bytes) = &encoded {
            *self = Self::whole(bytes.clone());
        }
        encoded.is_some()
    }
}
