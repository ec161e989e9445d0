//! The key that a scan assembles, in one buffer.

use std::ops::ControlFlow;

use pando_block::{BlockRef, HEADER_BYTES, KeyPartRef};
use pando_engine::ValueRef;

use super::Visit;
use super::frame::YoungLayer;
use crate::node::Guard;
use crate::slice::{CODE_SLICE_MAX, CODE_SUFFIX, SLICE_BYTES};

/// Most bytes of a suffix that is appended by one store.
const SHORT_BYTES: usize = 2 * SLICE_BYTES;

/// The key being assembled, and the last one shown.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// The last key shown, or the prefix of a layer that is being entered.
    pub(super) key: KeyBuffer,
    /// Whether `key` is the last key shown.
    complete: bool,
    /// The last key shown, when `key` is not; `None` if none was shown.
    pub(super) last: Option<Vec<u8>>,
    /// Size of the last block shown: what the next ones are likely to take.
    pub(super) block_bytes: usize,
}

impl Shown {
    /// Saves the last key shown, because `key` is about to be overwritten.
    pub(super) fn keep_last(&mut self) {
        if self.complete {
            self.complete = false;
            let last = self.last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(self.key.as_slice());
        }
    }

    /// Shows an entry whose key begins with the first `prefix_bytes` of `key`.
    #[inline]
    pub(super) fn show<'g>(
        &mut self,
        prefix_bytes: usize,
        (slice, code, block): (u64, u8, BlockRef<'g>),
        visit: &mut impl Visit<'g>,
    ) -> ControlFlow<()> {
        // Plain values are shown separately, so that `visit` is also compiled for them alone, and
        // rows.
        if let Some(parts) = block.plain_parts() {
            return self.show_short(prefix_bytes, (slice, code), parts, visit);
        }
        if let Some(parts) = block.packed_parts() {
            return self.show_short(prefix_bytes, (slice, code), parts, visit);
        }
        self.show_any(prefix_bytes, (slice, code, block), visit)
    }

    #[inline]
    fn show_short<'g>(
        &mut self,
        prefix_bytes: usize,
        (slice, code): (u64, u8),
        (suffix, value): (KeyPartRef<'g>, ValueRef<'g>),
        visit: &mut impl Visit<'g>,
    ) -> ControlFlow<()> {
        self.block_bytes = HEADER_BYTES + suffix.room.len();
        let slice_bytes = usize::from(code.min(CODE_SLICE_MAX));
        self.key.set_slice(prefix_bytes, slice, slice_bytes);
        if code == CODE_SUFFIX {
            self.key.push(suffix);
        }
        self.complete = true;
        visit.value(self.key.as_slice(), value)
    }

    #[inline(never)]
    fn show_any<'g>(
        &mut self,
        prefix_bytes: usize,
        (slice, code, block): (u64, u8, BlockRef<'g>),
        visit: &mut impl Visit<'g>,
    ) -> ControlFlow<()> {
        let slice_bytes = usize::from(code.min(CODE_SLICE_MAX));
        self.key.set_slice(prefix_bytes, slice, slice_bytes);
        if code == CODE_SUFFIX {
            self.key.push_long(block.key_part());
        }
        self.complete = true;
        self.block_bytes = block.bytes();
        match block.value() {
            Some(value) => visit.value(self.key.as_slice(), value),
            None => visit.tombstone(self.key.as_slice()),
        }
    }

    /// Shows the entries of a layer that was not entered, below the slice `above`.
    #[inline(never)]
    pub(super) fn show_young<'g>(
        &mut self,
        prefix_bytes: usize,
        above: u64,
        young: &YoungLayer,
        guard: Guard<'g>,
        visit: &mut impl Visit<'g>,
    ) -> ControlFlow<()> {
        for entry in young.entries(guard) {
            // Repeated for each: a key shown is kept until the next one.
            self.key.set_slice(prefix_bytes, above, SLICE_BYTES);
            self.show(prefix_bytes + SLICE_BYTES, entry, visit)?;
        }
        ControlFlow::Continue(())
    }
}

/// A prefix shared with the layer, a slice and a suffix.
#[derive(Debug, Default)]
pub(super) struct KeyBuffer {
    /// Space beyond the key, so that a slice is one store of eight bytes.
    room: Vec<u8>,
    bytes: usize,
}

impl KeyBuffer {
    #[inline]
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.room[..self.bytes]
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    pub(super) fn clear(&mut self) {
        self.bytes = 0;
    }

    /// Keeps the first `prefix_bytes` and appends the first `slice_bytes` of the slice.
    #[inline]
    pub(super) fn set_slice(&mut self, prefix_bytes: usize, slice: u64, slice_bytes: usize) {
        debug_assert!(prefix_bytes <= self.bytes && slice_bytes <= SLICE_BYTES);
        // With space for a short suffix too.
        if self.room.len() < prefix_bytes + SLICE_BYTES + SHORT_BYTES {
            self.grow(prefix_bytes + SLICE_BYTES + SHORT_BYTES);
        }
        // Not `copy_from_slice`, which may be a call.
        if let Some(room) = self.room[prefix_bytes..].first_chunk_mut() {
            *room = slice.to_be_bytes();
        }
        self.bytes = prefix_bytes + slice_bytes;
    }

    /// Appends a suffix; a short one by one store.
    #[inline]
    pub(super) fn push(&mut self, suffix: KeyPartRef<'_>) {
        let pushed = self.push_word::<SLICE_BYTES>(suffix) || self.push_word::<SHORT_BYTES>(suffix);
        if !pushed {
            self.push_long(&suffix.room[..suffix.bytes]);
        }
    }

    /// Appends a suffix of at most `WORD` bytes, if as many may be read and written.
    #[inline]
    fn push_word<const WORD: usize>(&mut self, suffix: KeyPartRef<'_>) -> bool {
        if let Some(word) = suffix.room.first_chunk::<WORD>()
            && suffix.bytes <= WORD
            && let Some(room) = self.room[self.bytes..].first_chunk_mut()
        {
            *room = *word;
            self.bytes += suffix.bytes;
            return true;
        }
        false
    }

    /// Appends a suffix of any length.
    #[inline(never)]
    fn push_long(&mut self, suffix: &[u8]) {
        let end = self.bytes + suffix.len();
        if self.room.len() < end {
            self.grow(end);
        }
        self.room[self.bytes..end].copy_from_slice(suffix);
        self.bytes = end;
    }

    #[cold]
    fn grow(&mut self, bytes: usize) {
        self.room.resize(bytes.next_power_of_two().max(64), 0);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_length_are_put_together() {
        let mut key = KeyBuffer::default();
        let suffix: Vec<u8> = (0..200).collect();
        for bytes in (0..=suffix.len()).chain((0..40).rev()) {
            key.clear();
            key.set_slice(0, u64::from_be_bytes(*b"prefixed"), 8);
            let whole = [b"prefixedslice123", &suffix[..bytes]].concat();
            for room in [bytes, suffix.len()] {
                key.set_slice(8, u64::from_be_bytes(*b"slice123"), 8);
                let room = &suffix[..room];
                key.push(KeyPartRef { bytes, room });
                assert_eq!(key.as_slice(), whole);
            }
            key.set_slice(8, u64::from_be_bytes(*b"slice123"), 8);
            key.push_long(&suffix[..bytes]);
            assert_eq!(key.as_slice(), whole);
        }
        key.set_slice(8, u64::from_be_bytes(*b"ab\0\0\0\0\0\0"), 2);
        assert_eq!(key.as_slice(), b"prefixedab");
    }
}
