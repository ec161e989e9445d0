//! A node taken apart, for what moves many cells: splits, merges, and pages that are packed anew.

use pando_memnode::{Address, Bytes, Sequence};

use super::{
    CHILD_CELL_BYTES, COUNT, CREATED, DIRECTORY, FLOOR, FORMAT, GENERATION, HEADER_BYTES, HEAP,
    HEIGHT, HIGH, IS_ROOT, KIND, LEAF_CELL_BYTES, LOW, NO_HIGH, PLACE_BYTES, PREFIX, Page, TREE,
    encode_address, place_of,
};
use crate::SnapshotId;

/// What a cell holds besides its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CellBody {
    Child(Address),
    Entry { version: u64, value: Vec<u8> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) key: Vec<u8>,
    pub(crate) body: CellBody,
}

impl Cell {
    /// Its bytes in a page whose keys share `prefix` bytes, without the directory's.
    pub(super) fn encode(&self, prefix: usize) -> Vec<u8> {
        let suffix = &self.key[prefix..];
        let mut bytes = Vec::new();
        match &self.body {
            CellBody::Child(address) => {
                bytes.extend((suffix.len() as u16).to_le_bytes());
                bytes.extend(encode_address(*address));
                bytes.extend(suffix);
            }
            CellBody::Entry { version, value } => {
                encode_entry(&mut bytes, suffix, *version, value);
            }
        }
        bytes
    }

    /// The bytes that it takes in a page, with the directory's.
    fn bytes(&self, prefix: usize) -> usize {
        let suffix = self.key.len() - prefix;
        PLACE_BYTES
            + suffix
            + match &self.body {
                CellBody::Child(_) => CHILD_CELL_BYTES,
                CellBody::Entry { value, .. } => LEAF_CELL_BYTES + value.len(),
            }
    }
}

/// The bytes of a leaf's cell.
pub(super) fn encode_entry(out: &mut Vec<u8>, suffix: &[u8], version: u64, value: &[u8]) {
    out.extend((suffix.len() as u16).to_le_bytes());
    out.extend((value.len() as u16).to_le_bytes());
    out.extend(suffix);
    out.extend(version.to_le_bytes());
    out.extend(value);
}

/// A node taken apart, without what is noted of its copies: what is made of it has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) is_root: bool,
    pub(crate) height: u8,
    pub(crate) tree: u32,
    pub(crate) generation: Sequence,
    pub(crate) created: SnapshotId,
    pub(crate) floor: u64,
    pub(crate) low: Vec<u8>,
    pub(crate) high: Option<Vec<u8>>,
    pub(crate) cells: Vec<Cell>,
}

impl Node {
    /// A leaf without entries that covers all keys.
    pub(crate) fn empty(tree: u32, address: Address, created: SnapshotId) -> Self {
        Self {
            is_root: false,
            height: 0,
            tree,
            generation: address.generation,
            created,
            floor: 0,
            low: Vec::new(),
            high: None,
            cells: Vec::new(),
        }
    }

    pub(crate) fn decode(page: &Page) -> Self {
        let cell = |index| Cell {
            key: page.key(index),
            body: if page.is_leaf() {
                let (version, value) = page.entry(index);
                CellBody::Entry {
                    version,
                    value: value.to_vec(),
                }
            } else {
                CellBody::Child(page.child(index))
            },
        };
        Self {
            is_root: page.is_root(),
            height: page.height(),
            tree: page.tree(),
            generation: page.generation(),
            created: page.created(),
            floor: page.floor(),
            low: page.low().to_vec(),
            high: page.high().map(<[u8]>::to_vec),
            cells: (0..page.count()).map(cell).collect(),
        }
    }

    /// The bytes that all keys share: those that the fences do.
    fn prefix(&self) -> usize {
        let Some(high) = &self.high else {
            return 0;
        };
        let pairs = self.low.iter().zip(high);
        pairs.take_while(|(low, high)| low == high).count()
    }

    /// The page; `None` if it does not fit.
    pub(crate) fn encode(&self, page_bytes: usize) -> Option<Bytes> {
        let prefix = self.prefix();
        let high = self.high.as_deref().unwrap_or_default();
        let directory = HEADER_BYTES + self.low.len() + high.len();
        let cells: usize = self.cells.iter().map(|cell| cell.bytes(prefix)).sum();
        if directory + cells > page_bytes {
            return None;
        }
        let mut page = vec![0; page_bytes];
        let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
        let high_len = self.high.as_ref().map_or(NO_HIGH, |high| high.len() as u16);
        put(0, &[FORMAT]);
        put(HEIGHT, &[self.height]);
        put(COUNT, &(self.cells.len() as u16).to_le_bytes());
        put(TREE, &self.tree.to_le_bytes());
        put(GENERATION, &self.generation.0.to_le_bytes());
        put(CREATED, &self.created.0.to_le_bytes());
        put(FLOOR, &self.floor.to_le_bytes());
        put(LOW, &(self.low.len() as u16).to_le_bytes());
        put(HIGH, &high_len.to_le_bytes());
        put(PREFIX, &(prefix as u16).to_le_bytes());
        put(KIND, &[if self.is_root { IS_ROOT } else { 0 }]);
        put(DIRECTORY, &(directory as u16).to_le_bytes());
        put(HEADER_BYTES, &self.low);
        put(HEADER_BYTES + self.low.len(), high);
        let mut heap = page_bytes;
        for (index, cell) in self.cells.iter().enumerate() {
            let bytes = cell.encode(prefix);
            heap -= bytes.len();
            put(heap, &bytes);
            let place = place_of(heap, &cell.key[prefix..]);
            put(directory + PLACE_BYTES * index, &place);
        }
        put(HEAP, &(heap as u16).to_le_bytes());
        Some(page.into())
    }

    /// Takes the upper half away, by bytes, as a node at `right`. There are two cells at least.
    pub(crate) fn split(&mut self, right: Address) -> Self {
        let prefix = self.prefix();
        let sizes = self.cells.iter().map(|cell| cell.bytes(prefix));
        let total: usize = sizes.clone().sum();
        let ends = sizes.scan(0, |end, size| {
            *end += size;
            Some(*end)
        });
        // The boundary next to the middle; the last cell's end is none.
        let boundaries = ends.enumerate().take(self.cells.len() - 1);
        let nearest = boundaries.min_by_key(|(_, end)| (2 * end).abs_diff(total));
        let at = nearest.expect("two cells").0 + 1;
        let cells = self.cells.split_off(at);
        let separator = match &self.cells.last() {
            // Between two leaves the shortest key that tells them apart will do.
            Some(last) if self.height == 0 => {
                let first = &cells[0].key;
                let shared = last
                    .key
                    .iter()
                    .zip(first)
                    .take_while(|(a, b)| a == b)
                    .count();
                first[..=shared].to_vec()
            }
            _ => cells[0].key.clone(),
        };
        let high = self.high.replace(separator.clone());
        Self {
            is_root: false,
            generation: right.generation,
            low: separator,
            high,
            cells,
            ..self.clone_head()
        }
    }

    fn clone_head(&self) -> Self {
        Self {
            low: Vec::new(),
            high: None,
            cells: Vec::new(),
            ..*self
        }
    }

    /// The node of both, at this one's address. `right` is the next one.
    pub(crate) fn merged(&self, right: &Self) -> Self {
        debug_assert_eq!(self.high.as_ref(), Some(&right.low));
        Self {
            floor: self.floor.max(right.floor),
            high: right.high.clone(),
            cells: [&self.cells[..], &right.cells[..]].concat(),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_memnode::{MemnodeId, Slot};

    #[test]
    fn a_page_is_of_one_use_of_its_slot_and_of_one_tree() {
        let address = Address {
            memnode: MemnodeId(1),
            slot: Slot(7),
            generation: Sequence(3),
        };
        let bytes = Node::empty(1, address, SnapshotId(1)).encode(384).unwrap();
        assert!(Page::parse(&bytes, address, 1).is_some());
        assert!(Page::parse(&bytes, address, 2).is_none());
        let later = Address {
            generation: Sequence(4),
            ..address
        };
        assert!(Page::parse(&bytes, later, 1).is_none());
        assert!(Page::parse(&Bytes::default(), address, 1).is_none());
    }
}
