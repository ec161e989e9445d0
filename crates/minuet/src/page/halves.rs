//! Splitting a leaf as it lies, without taking it apart: what is left of it, and what goes.

use std::ops::{Deref, Range};

use pando_memnode::{Address, Sequence};

use super::edit::Changed;
use super::{
    COPIES, COUNT, DEAD, DIRECTORY, FAR, GENERATION, HEADER_BYTES, HEAP, HIGH, KIND,
    LEAF_CELL_BYTES, LINK, LOW, NO_HIGH, NOTE_BYTES, PLACE_BYTES, PREFIX, Page, PageEdit, SPLIT,
    decode_address, encode_address, place_of, u16_at,
};

impl<B: Deref<Target = [u8]>> Page<B> {
    /// Where the upper part of a leaf is, if it was split off and the node above does not know.
    #[inline]
    pub(crate) fn link(&self) -> Option<Address> {
        (self.bytes[SPLIT] != 0).then(|| decode_address(&self.bytes[LINK..]))
    }

    /// Where a leaf that was found for `key` says to look for it, if it is not its own any more.
    #[inline]
    pub(crate) fn link_for(&self, key: &[u8]) -> Option<Address> {
        let link = self.link()?;
        self.high().is_some_and(|high| high <= key).then_some(link)
    }

    /// Whether a leaf has nothing that its upper part must not have, and no notes in the place of
    /// a link.
    pub(crate) fn is_plain(&self) -> bool {
        self.bytes[KIND] == 0
            && self.bytes[COPIES] == 0
            && self.bytes[FAR..][..NOTE_BYTES]
                .iter()
                .all(|byte| *byte == 0)
    }

    /// Bytes that a leaf would have to spare if it were packed.
    pub(crate) fn spare(&self) -> usize {
        self.gap() + self.dead()
    }

    /// Bytes that an entry takes of a leaf.
    pub(crate) fn entry_bytes(&self, key: &[u8], value: usize) -> usize {
        PLACE_BYTES + LEAF_CELL_BYTES + key.len() - self.prefix_len() + value
    }

    /// Where a leaf is split, next to the middle by bytes: the first entry of its upper part, and
    /// the shortest key that parts them. It has two entries at least.
    pub(crate) fn middle(&self) -> (usize, Vec<u8>) {
        let sizes = (0..self.count()).map(|index| {
            let at = self.cell_at(index);
            usize::from(u16_at(&self.bytes, at)) + usize::from(u16_at(&self.bytes, at + 2))
        });
        let sizes = sizes.map(|bytes| bytes + LEAF_CELL_BYTES + PLACE_BYTES);
        let total: usize = sizes.clone().sum();
        let ends = sizes.scan(0, |end, size| {
            *end += size;
            Some(*end)
        });
        let boundaries = ends.enumerate().take(self.count() - 1);
        let nearest = boundaries.min_by_key(|(_, end)| (2 * end).abs_diff(total));
        let middle = nearest.expect("two entries").0 + 1;
        let (last, first) = (self.suffix(middle - 1), self.suffix(middle));
        let shared = last.iter().zip(first).take_while(|(a, b)| a == b).count();
        let parting = [&self.low()[..self.prefix_len()], &first[..=shared]].concat();
        (middle, parting)
    }

    /// Makes `out` the page of some entries of this leaf, packed, with these fences, which are
    /// within its own. The rest of the header stays.
    pub(crate) fn pack(
        &self,
        entries: Range<usize>,
        (low, high): (&[u8], Option<&[u8]>),
        out: &mut [u8],
    ) {
        assert_eq!(out.len(), self.bytes.len());
        let prefix = high.map_or(0, |high| {
            low.iter().zip(high).take_while(|(a, b)| a == b).count()
        });
        // Their keys share more than those of the whole leaf.
        let longer = prefix - self.prefix_len();
        let high_len = high.map_or(NO_HIGH, |high| high.len() as u16);
        let high = high.unwrap_or_default();
        let directory = HEADER_BYTES + low.len() + high.len();
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &self.bytes[..HEADER_BYTES]);
        put(COUNT, &(entries.len() as u16).to_le_bytes());
        put(DEAD, &[0; 2]);
        put(LOW, &(low.len() as u16).to_le_bytes());
        put(HIGH, &high_len.to_le_bytes());
        put(PREFIX, &(prefix as u16).to_le_bytes());
        put(DIRECTORY, &(directory as u16).to_le_bytes());
        put(HEADER_BYTES, low);
        put(HEADER_BYTES + low.len(), high);
        let mut heap = self.bytes.len();
        for (number, index) in entries.enumerate() {
            let at = self.cell_at(index);
            let suffix = usize::from(u16_at(&self.bytes, at));
            let value = usize::from(u16_at(&self.bytes, at + 2));
            let rest = &self.bytes[at + 4 + longer..at + LEAF_CELL_BYTES + suffix + value];
            heap -= 4 + rest.len();
            put(heap, &((suffix - longer) as u16).to_le_bytes());
            put(heap + 2, &(value as u16).to_le_bytes());
            put(heap + 4, rest);
            let place = place_of(heap, &rest[..suffix - longer]);
            put(directory + PLACE_BYTES * number, &place);
        }
        put(HEAP, &(heap as u16).to_le_bytes());
        debug_assert!(Page::of_slot(&*out).gap() <= self.bytes.len(), "it fits");
    }
}

impl<B: Changed> PageEdit<B> {
    /// Says where the upper part of the leaf is, or that the node above knows.
    pub(crate) fn set_link(&mut self, link: Option<Address>) {
        self.put(SPLIT, &[u8::from(link.is_some())]);
        self.put(LINK, &encode_address(link.unwrap_or_default()));
    }

    /// Makes it the page at an address of this generation.
    pub(crate) fn set_generation(&mut self, generation: Sequence) {
        self.put(GENERATION, &generation.0.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use pando_memnode::{MemnodeId, Slot};

    use super::super::{Cell, CellBody, Node};
    use super::*;
    use crate::SnapshotId;

    /// A split of the page as it lies is one of the node, taken apart.
    #[test]
    fn halves_are_those_of_the_node() {
        let address = Address {
            memnode: MemnodeId(0),
            slot: Slot(7),
            generation: Sequence(3),
        };
        let mut random = fastrand::Rng::with_seed(5);
        for round in 0..200_u32 {
            let mut keys: Vec<Vec<u8>> = (0..random.usize(2..20))
                .map(|_| (0..random.usize(1..12)).map(|_| random.u8(0..3)).collect())
                .map(|tail: Vec<u8>| [&b"pre"[..], &tail].concat())
                .collect();
            keys.sort();
            keys.dedup();
            if keys.len() < 2 {
                continue;
            }
            let body = |at: usize| CellBody::Entry {
                version: at as u64 + 1,
                value: vec![at as u8; at % 7],
            };
            let cell = |(at, key): (usize, &Vec<u8>)| Cell {
                key: key.clone(),
                body: body(at),
            };
            let mut node = Node {
                low: b"pre".to_vec(),
                high: (round % 3 > 0).then(|| b"prf".to_vec()),
                cells: keys.iter().enumerate().map(cell).collect(),
                ..Node::empty(1, address, SnapshotId(9))
            };
            let bytes = node.encode(1024).expect("it fits");
            let page = Page::of_slot(&bytes[..]);
            assert!(page.is_plain() && page.link().is_none());
            let right = Address {
                slot: Slot(8),
                generation: Sequence(1),
                ..address
            };
            let upper = node.split(right);
            let (middle, parting) = page.middle();
            let (mut lower, mut higher) = (vec![0; 1024], vec![0; 1024]);
            page.pack(0..middle, (page.low(), Some(&parting)), &mut lower);
            page.pack(middle..page.count(), (&parting, page.high()), &mut higher);
            PageEdit::in_place(&mut higher[..]).set_generation(Sequence(1));
            assert_eq!(Some(&lower[..]), node.encode(1024).as_deref(), "{round}");
            assert_eq!(Some(&higher[..]), upper.encode(1024).as_deref(), "{round}");
            let mut edit = PageEdit::in_place(&mut lower[..]);
            edit.set_link(Some(right));
            let page = Page::of_slot(&lower[..]);
            assert_eq!(page.link_for(&parting), Some(right));
            assert_eq!(page.link_for(b"pre"), None);
            assert!(page.is_plain());
        }
    }
}
