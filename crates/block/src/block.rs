//! A published block, for reading.

#![expect(clippy::cast_ptr_alignment, reason = "`Shape` aligns what needs it")]

use std::marker::PhantomData;
use std::num::NonZero;
use std::ptr::NonNull;

use pando_engine::mark::without_mark;
use pando_engine::{
    AccessMark, Attributes, BodyRef, Deadline, HashRef, RowTag, Shown, StringRef, ValueRef,
    ValueVersion, WideRow,
};
use pando_memory::pool::is_emptying;
use pando_sync::epoch::Guard;
use pando_sync::prefetch::{prefetch_lines, prefetch_span};
use pando_sync::shim::unmodelled::{AtomicU32, Ordering};

use crate::key::{KeyPart, Part, external_of};
use crate::layout::{
    EXTRA_ENCODING, EXTRA_FLAGS, EXTRA_TOKEN, FORM_MASK, Form, HAS_DEADLINE, HAS_EXTRAS,
    HEADER_BYTES, IS_EXTERNAL, IS_LONG, META_OFFSET, OPTIONS, Shape, deadline_offset, extras_of,
    extras_offset, is_packed, is_plain, is_short, is_timed, row_of, short_lengths,
};

mod build;
mod reclaim;

pub use build::ShortValue;
pub use reclaim::{Keep, Reclaimer};

/// A published block, which lives as long as its guard's pin.
#[derive(Clone, Copy)]
pub struct BlockRef<'g>(NonNull<u8>, PhantomData<&'g [u8]>);

/// A key part, and the bytes that may be read along with it so that short ones are copied as a
/// word.
#[derive(Clone, Copy)]
pub struct KeyPartRef<'g> {
    /// The key part's length.
    pub bytes: usize,
    /// Begins with the key part.
    pub room: &'g [u8],
}

/// Bytes of a small hash that are prefetched at once; the hardware prefetcher covers the next ones.
const ROW_AHEAD_BYTES: usize = 256;

impl<'g> BlockRef<'g> {
    /// The block at `address`.
    ///
    /// # Safety
    /// [`Self::build`] or a successor of it made the block, and it is not reclaimed before the pin
    /// of the guard ends.
    #[inline]
    pub unsafe fn from_address(address: NonNull<u8>, _: Guard<'g>) -> Self {
        // P2 alignment: `meta_word` relies on it.
        debug_assert!(address.cast::<u64>().is_aligned());
        Self(address, PhantomData)
    }

    /// The block's address.
    #[inline]
    pub fn address(self) -> NonNull<u8> {
        self.0
    }

    /// The block's address, as engines link to it.
    #[inline]
    pub fn as_ptr(self) -> *mut u8 {
        self.0.as_ptr()
    }

    /// Reads a plain field at `offset`.
    #[inline]
    fn read<T: Copy>(self, offset: usize) -> T {
        let field = self.0.as_ptr().wrapping_add(offset).cast::<T>();
        // SAFETY: the block lives and is immutable (VB1 immutable-block), and `Shape` says what is
        // where.
        unsafe { field.read_unaligned() }
    }

    /// The word that holds the access mark.
    #[inline]
    fn meta_word(self) -> &'g AtomicU32 {
        let word = self.0.as_ptr().wrapping_add(META_OFFSET);
        // SAFETY: the block lives, is aligned to 8 (P2 alignment), and this word is accessed as an
        // atomic only since the block was published (VB1 immutable-block).
        unsafe { AtomicU32::from_ptr(word.cast()) }
    }

    /// Form, options and lengths, without the mark.
    #[inline]
    fn meta(self) -> u32 {
        without_mark(self.meta_word().load(Ordering::Relaxed))
    }

    #[inline]
    fn slice(self, offset: usize, bytes: usize) -> &'g [u8] {
        let start = self.0.as_ptr().wrapping_add(offset);
        // SAFETY: as in `read`.
        unsafe { std::slice::from_raw_parts(start, bytes) }
    }

    #[inline]
    fn object<T>(self, shape: Shape) -> &'g T {
        let object = self.0.as_ptr().wrapping_add(shape.body_offset).cast::<T>();
        // SAFETY: the form says that the body is a `T`, `locate` aligned it, and the block lives.
        unsafe { &*object }
    }

    #[inline]
    fn shape(self) -> Shape {
        let meta = self.meta();
        if is_timed(meta) {
            Shape::of_timed(meta)
        } else {
            self.any_shape(meta)
        }
    }

    #[inline(never)]
    fn any_shape(self, meta: u32) -> Shape {
        let extras = if meta & HAS_EXTRAS != 0 {
            self.read(extras_offset(meta))
        } else {
            0
        };
        if meta & IS_LONG != 0 {
            let (key, body) = (self.read::<u32>(12), self.read::<u32>(16));
            return Shape::locate(meta, extras, key as usize, body as usize);
        }
        let (key_bytes, body_bytes) = short_lengths(meta);
        Shape::locate(meta, extras, key_bytes, body_bytes)
    }

    /// The lengths of key part and body of a common block: short bytes or a small hash, without
    /// options.
    #[inline]
    fn short(self) -> Option<(usize, usize)> {
        let meta = self.meta();
        is_short(meta).then_some(short_lengths(meta))
    }

    /// Whether this is a common block: short bytes or a small hash, without options.
    #[inline]
    pub fn is_short(self) -> bool {
        is_short(self.meta())
    }

    /// Whether this is a block of a large row.
    #[inline]
    pub fn is_wide(self) -> bool {
        self.meta() & FORM_MASK == Form::Wide as u32
    }

    /// The version of the value, or of its removal.
    #[inline]
    pub fn version(self) -> ValueVersion {
        ValueVersion::from_bits(self.read(0))
    }

    /// Whether the block is a tombstone.
    #[inline]
    pub fn is_tombstone(self) -> bool {
        self.meta() & FORM_MASK == Form::Tombstone as u32
    }

    /// The block's part of its key.
    #[inline]
    pub fn key_part(self) -> &'g [u8] {
        if let Some((key_bytes, _)) = self.short() {
            return self.slice(HEADER_BYTES, key_bytes);
        }
        self.any_key_part()
    }

    #[inline(never)]
    fn any_key_part(self) -> &'g [u8] {
        let shape = self.shape();
        if shape.meta & IS_EXTERNAL != 0 {
            let pointer = self.read::<NonNull<u8>>(shape.key_offset);
            // SAFETY: owned by this block or its successor, so it lives (VB2 one-owner).
            return unsafe { external_of(pointer, shape.key_bytes) };
        }
        self.slice(shape.key_offset, shape.key_bytes)
    }

    /// Whether the key part is `key`.
    #[inline]
    pub fn has_key_part(self, key: &[u8]) -> bool {
        let meta = self.meta();
        if meta & OPTIONS != 0 {
            return self.any_key_part() == key;
        }
        let (key_bytes, _) = short_lengths(meta);
        key_bytes == key.len() && are_equal(self.slice(HEADER_BYTES, key_bytes), key)
    }

    /// The key part for a successor. An external one is taken over; the block must then be
    /// reclaimed with [`Keep::key`].
    #[inline]
    pub fn hand_over_key_part(self) -> KeyPart<'g> {
        let bytes = self.key_part();
        if self.meta() & IS_EXTERNAL == 0 {
            return KeyPart::inline(bytes);
        }
        KeyPart(Part::External(NonNull::from(bytes).cast(), bytes.len()))
    }

    /// The key part and the value of a common block; `None` for any other block.
    #[inline]
    pub fn plain_parts(self) -> Option<(KeyPartRef<'g>, ValueRef<'g>)> {
        let meta = self.meta();
        if !is_plain(meta) {
            return None;
        }
        Some(self.short_parts(meta, |bytes| BodyRef::String(StringRef::Flat(bytes))))
    }

    /// The key part and the value of a small hash without options; `None` for any other block.
    #[inline]
    pub fn packed_parts(self) -> Option<(KeyPartRef<'g>, ValueRef<'g>)> {
        let meta = self.meta();
        if !is_packed(meta) {
            return None;
        }
        Some(self.short_parts(meta, |bytes| {
            BodyRef::Row(RowTag::Hash, HashRef::Packed(bytes))
        }))
    }

    /// Key part and value of a block without options.
    #[inline]
    fn short_parts(
        self,
        meta: u32,
        body: impl FnOnce(&'g [u8]) -> BodyRef<'g>,
    ) -> (KeyPartRef<'g>, ValueRef<'g>) {
        let (bytes, body_bytes) = short_lengths(meta);
        let room = self.slice(HEADER_BYTES, bytes + body_bytes);
        let value = ValueRef {
            version: self.version(),
            attributes: Attributes::default(),
            body: body(&room[bytes..]),
            mark: AccessMark::of(self.meta_word()),
        };
        (KeyPartRef { bytes, room }, value)
    }

    /// The value; `None` for a tombstone.
    #[inline]
    pub fn value(self) -> Option<ValueRef<'g>> {
        match self.plain_parts() {
            Some((_, value)) => Some(value),
            None => self.value_beside_plain(),
        }
    }

    /// The value of a block that is not plain.
    #[inline]
    fn value_beside_plain(self) -> Option<ValueRef<'g>> {
        if let Some((part, value)) = self.packed_parts() {
            prefetch_row(&part.room[part.bytes..]);
            return Some(value);
        }
        self.timed_string().or_else(|| self.any_value())
    }

    /// The value of a plain block but for its deadline; `None` for any other block.
    #[inline]
    fn timed_string(self) -> Option<ValueRef<'g>> {
        let meta = self.meta();
        if !is_timed(meta) || meta & FORM_MASK != Form::Flat as u32 {
            return None;
        }
        let shape = Shape::of_timed(meta);
        let bytes = self.slice(shape.body_offset, shape.body_bytes);
        Some(ValueRef {
            version: self.version(),
            attributes: Attributes {
                deadline: Some(Deadline(self.read(deadline_offset(meta)))),
                ..Attributes::default()
            },
            body: BodyRef::String(StringRef::Flat(bytes)),
            mark: AccessMark::of(self.meta_word()),
        })
    }

    /// Passes the value to `read`, which is also compiled for plain values alone.
    #[inline]
    pub fn read_value<R>(self, read: impl FnOnce(Option<ValueRef<'g>>) -> R) -> R {
        match self.plain_parts() {
            Some((_, value)) => read(Some(value)),
            None => read(self.value_beside_plain()),
        }
    }

    #[inline(never)]
    fn any_value(self) -> Option<ValueRef<'g>> {
        let shape = self.shape();
        let flat = || self.slice(shape.body_offset, shape.body_bytes);
        let body = match shape.form() {
            Form::Tombstone => return None,
            Form::Flat => BodyRef::String(StringRef::Flat(flat())),
            Form::Packed => {
                let row = flat();
                prefetch_row(row);
                BodyRef::Row(self.row_tag(shape.meta), HashRef::Packed(row))
            }
            Form::Chunked => BodyRef::String(StringRef::Chunked(self.object(shape))),
            Form::Wide => BodyRef::Row(self.row_tag(shape.meta), HashRef::Wide(self.object(shape))),
        };
        Some(ValueRef {
            version: self.version(),
            attributes: self.attributes(shape.meta),
            body,
            mark: AccessMark::of(self.meta_word()),
        })
    }

    /// The large row of this block and its value, if it has one, to be changed in place.
    ///
    /// # Safety
    /// Until the last use of what is returned, nobody else is pinned, and the caller uses nothing
    /// else that this block has shown (VB1 immutable-block).
    pub unsafe fn lend(self) -> Option<Shown<'g>> {
        if !self.is_wide() {
            return None;
        }
        let meta = self.meta();
        let shape = self.shape();
        let row = self.0.as_ptr().wrapping_add(shape.body_offset);
        // SAFETY: the form says that the body is a row, which `locate` aligned; the caller vouches
        // that nobody else reads it.
        let row = unsafe { &mut *row.cast::<WideRow>() };
        let (version, attributes) = (self.version(), self.attributes(meta));
        let mark = AccessMark::of(self.meta_word());
        Some(Shown::lent(
            version,
            attributes,
            self.row_tag(meta),
            row,
            mark,
        ))
    }

    /// The type of a block that holds a row.
    fn row_tag(self, meta: u32) -> RowTag {
        if meta & HAS_EXTRAS == 0 {
            RowTag::Hash
        } else {
            row_of(self.read(extras_offset(meta)))
        }
    }

    fn attributes(self, meta: u32) -> Attributes {
        let mut attributes = Attributes::default();
        if meta & HAS_DEADLINE != 0 {
            attributes.deadline = Some(Deadline(self.read(deadline_offset(meta))));
        }
        if meta & HAS_EXTRAS != 0 {
            let mut at = extras_offset(meta);
            let extras: u8 = self.read(at);
            at += 1;
            if extras & EXTRA_FLAGS != 0 {
                attributes.flags = self.read(at);
                at += size_of::<u32>();
            }
            if extras & EXTRA_ENCODING != 0 {
                attributes.encoding = self.read(at);
                at += 1;
            }
            if extras & EXTRA_TOKEN != 0 {
                attributes.token = NonZero::new(self.read(at));
                debug_assert!(attributes.token.is_some());
            }
            debug_assert_eq!(extras_of(&attributes, row_of(extras)), extras);
        }
        attributes
    }

    /// Prefetches the first `bytes` bytes.
    #[inline]
    pub fn prefetch(self, bytes: usize) {
        prefetch_span(self.0.as_ptr(), bytes);
    }

    /// Bytes of the block's own.
    #[inline]
    pub fn bytes(self) -> usize {
        match self.short() {
            Some((key_bytes, body_bytes)) => HEADER_BYTES + key_bytes + body_bytes,
            None => self.shape().bytes(),
        }
    }

    /// Bytes of a key part in a block of its own.
    #[inline]
    pub fn external_key_bytes(self) -> usize {
        if self.meta() & IS_EXTERNAL == 0 {
            return 0;
        }
        self.shape().key_bytes
    }

    /// Bytes beyond the block's own that become garbage with it when `next` replaces it.
    #[inline]
    pub fn bytes_beyond(self, next: BlockRef<'_>) -> usize {
        if !Form::of_meta(self.meta()).is_object() {
            return 0;
        }
        self.bytes_of_object_beyond(next)
    }

    #[inline(never)]
    fn bytes_of_object_beyond(self, next: BlockRef<'_>) -> usize {
        let next = next.value();
        self.value()
            .map_or(0, |value| value.bytes_beyond(next.as_ref()))
    }

    /// Lines of 64 bytes that a read of key part and value touches.
    pub fn lines(self) -> usize {
        let start = self.0.as_ptr() as usize;
        (start + self.bytes() - 1) / 64 - start / 64 + 1
    }

    /// Whether the block of a value shown to a reader is in memory that is being emptied.
    ///
    /// # Safety
    /// The value is one of a block's, and the reader's pin lasts.
    pub unsafe fn is_value_emptying(value: &ValueRef<'g>) -> bool {
        let Some(word) = value.mark.address() else {
            return false;
        };
        let block = word.cast::<u8>().as_ptr().wrapping_sub(META_OFFSET);
        NonNull::new(block).is_some_and(|block| Self(block, PhantomData).is_emptying())
    }

    /// Whether it is in memory that is being emptied.
    pub fn is_emptying(self) -> bool {
        // SAFETY: the block lives and was allocated with this length.
        unsafe { is_emptying(self.0, self.bytes()) }
    }
}

/// Prefetches a small hash, which is read at scattered places; the offsets come first.
#[inline]
fn prefetch_row(row: &[u8]) {
    prefetch_lines(row.as_ptr(), row.len().min(ROW_AHEAD_BYTES));
}

/// Whether two keys of one length are equal. Most are short, and for those a call costs more than
/// the comparison.
#[inline]
fn are_equal(one: &[u8], other: &[u8]) -> bool {
    const WORD: usize = size_of::<u64>();
    let (Some(last), Some(other_last)) = (one.last_chunk::<WORD>(), other.last_chunk::<WORD>())
    else {
        return one == other;
    };
    if last != other_last {
        return false;
    }
    // The words before; the last may overlap those eight bytes.
    let (mut one, mut other) = (one, other);
    while one.len() > WORD {
        match (
            one.split_first_chunk::<WORD>(),
            other.split_first_chunk::<WORD>(),
        ) {
            (Some((word, rest)), Some((other_word, other_rest))) if word == other_word => {
                (one, other) = (rest, other_rest);
            }
            _ => return false,
        }
    }
    true
}

#[cfg(all(test, not(loom)))]
mod tests;
