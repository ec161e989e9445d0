//! A string that is edited at several places before it is stored.
//!
//! Edits go to pages, each copied from the string at its first write; finishing writes every page
//! into the string once. So the cost is that of the pages touched, however long the string is and
//! however many edits fall on a page.

use std::collections::BTreeMap;

use pando_engine::limits::CHUNK_BYTES;
use pando_engine::{StringBody, StringRef};

/// Bytes of a page: a whole chunk, so that no chunk is written twice.
const PAGE_BYTES: usize = CHUNK_BYTES;

/// The next version of a string, under construction.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    string: StringRef<'a>,
    len: usize,
    /// By index; each as long as the draft has bytes there.
    pages: BTreeMap<usize, Vec<u8>>,
}

impl<'a> Draft<'a> {
    /// Begins with `string`, followed by zeros up to `len_min` bytes.
    pub(crate) fn new(string: StringRef<'a>, len_min: usize) -> Self {
        Self {
            string,
            len: string.len().max(len_min),
            pages: BTreeMap::new(),
        }
    }

    /// Whether anything was written, or the string has grown.
    pub(crate) fn is_changed(&self) -> bool {
        !self.pages.is_empty() || self.len > self.string.len()
    }

    /// The bytes from `offset` on, zeros beyond the end.
    pub(crate) fn read<const N: usize>(&self, offset: usize) -> [u8; N] {
        let mut bytes = [0; N];
        if self.pages.is_empty() {
            copy_from(self.string, offset, &mut bytes);
            return bytes;
        }
        for (index, byte) in bytes.iter_mut().enumerate() {
            let at = offset + index;
            match self.pages.get(&(at / PAGE_BYTES)) {
                Some(page) => *byte = page.get(at % PAGE_BYTES).copied().unwrap_or(0),
                None => copy_from(self.string, at, std::slice::from_mut(byte)),
            }
        }
        bytes
    }

    /// Writes `bytes` at `offset`; they end within the draft.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) {
        let (string, len) = (self.string, self.len);
        for (index, byte) in bytes.iter().enumerate() {
            let at = offset + index;
            let page = self.pages.entry(at / PAGE_BYTES).or_insert_with(|| {
                let start = at - at % PAGE_BYTES;
                let mut page = vec![0; PAGE_BYTES.min(len - start)];
                copy_from(string, start, &mut page);
                page
            });
            page[at % PAGE_BYTES] = *byte;
        }
    }

    /// The string as edited.
    pub(crate) fn finish(self) -> StringBody<'static> {
        let mut body = None;
        for (index, page) in &self.pages {
            let string = body.as_ref().map_or(self.string, StringBody::as_ref);
            body = Some(string.with_write(index * PAGE_BYTES, page));
        }
        let string = body.as_ref().map_or(self.string, StringBody::as_ref);
        if string.len() < self.len {
            body = Some(string.with_write(self.len - 1, &[0]));
        }
        body.unwrap_or_else(|| self.string.hand_over())
    }
}

/// Copies the bytes of `string` from `offset` on, as far as there are any.
fn copy_from(string: StringRef<'_>, offset: usize, bytes: &mut [u8]) {
    let end = string.len().min(offset + bytes.len());
    if offset < end {
        let mut written = 0;
        string.for_each_piece(offset..end, |piece| {
            bytes[written..][..piece.len()].copy_from_slice(piece);
            written += piece.len();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than two pages, its bytes all different from their neighbours.
    fn sample() -> Vec<u8> {
        (0..PAGE_BYTES * 2 + 100)
            .map(|index| (index % 251) as u8)
            .collect()
    }

    #[test]
    fn edits_are_seen_and_finished_across_pages() {
        let bytes = sample();
        let body = StringBody::borrowed(&bytes);
        let mut draft = Draft::new(body.as_ref(), bytes.len() + 50);
        let mut expected = bytes.clone();
        expected.resize(bytes.len() + 50, 0);
        for offset in [0, PAGE_BYTES - 3, PAGE_BYTES * 2 + 97, bytes.len() + 44] {
            draft.write(offset, b"123456");
            expected[offset..offset + 6].copy_from_slice(b"123456");
            let start = offset.saturating_sub(2);
            let mut around = [0; 9];
            let seen = &expected[start..expected.len().min(start + 9)];
            around[..seen.len()].copy_from_slice(seen);
            assert_eq!(draft.read::<9>(start), around);
        }
        let body = draft.finish();
        assert!(body.as_ref() == expected.as_slice());
    }

    #[test]
    fn a_draft_grows_without_a_write() {
        let body = Draft::new(StringRef::Flat(b"ab"), 4).finish();
        assert!(body.as_ref() == b"ab\0\0".as_slice());
        let draft = Draft::new(StringRef::Flat(b"ab"), 2);
        assert!(!draft.is_changed());
        assert!(draft.finish().as_ref() == b"ab".as_slice());
    }
}
