//! Entries: one memory block per key, with its value, copied on change and never written after it
//! is published.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | version |
//! | 8 | 4 | meta: kind (3 bits), deadline, extras, long (1 bit each), key length (8), body length (12), access mark (6) |
//! | 12 | 8 | key and body length, 4 bytes each, when *long* |
//! | … | 8 | deadline, when there is one |
//! | … | 5 | flags (4) and encoding (1), when not zero |
//! | … | n | the key |
//! | … | n | the body: bytes, a packed row, or (aligned to 8) a [`Chunked`] or [`WideRow`] |
//!
//! An 8-byte key with an 8-byte value takes 28 bytes, a block of 32; 24 and 10 bytes take 46, a
//! block of 48. A bucket adds 64 bytes for 2.5 to 5 entries while keys are added, 13 to 26 bytes a
//! key, and for 1.25 of them before a table shrinks, 51 bytes a key.
//!
//! Departure from the paper, whose entry begins with a link to the next one: buckets hold the
//! pointers (see `bucket`), so that an entry can be shown in two tables while it moves.
//!
//! Invariants:
//! - **HE1** A published entry is immutable but for its access mark, which is a hint and lies in a
//!   word that is only accessed as an atomic; a change publishes a new one and retires the old one.
//!   Whoever is pinned since before that may go on reading the old one.
//! - **HE2** Every body is owned by exactly one entry that is not retired, or by a retired one
//!   only. An entry that moves to another place takes its body with it, bit by bit; the old one is
//!   then reclaimed without it. Readers of the old one are pinned since before the new one existed,
//!   hence until after that could be reclaimed.
//!
//! Deliberately absent: expiry, columns (the engine crate's rows bring them).

#![expect(clippy::cast_ptr_alignment, reason = "`Shape` aligns what needs it")]

use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use pando_engine::mark::{with_mark, without_mark};
use pando_engine::{
    AccessMark, Attributes, Body, BodyRef, Chunked, Deadline, HashRef, NewValue, StringRef,
    ValueRef, ValueVersion, WideRow,
};
use pando_memory::pool::{Pool, is_emptying};
use pando_sync::epoch::Guard;
use pando_sync::prefetch::prefetch_span;

const HEADER_BYTES: usize = 12;
const KIND_MASK: u32 = 0b111;
const HAS_DEADLINE: u32 = 1 << 3;
const HAS_EXTRAS: u32 = 1 << 4;
const IS_LONG: u32 = 1 << 5;
const OPTIONS: u32 = HAS_DEADLINE | HAS_EXTRAS | IS_LONG;
const KEY_SHIFT: u32 = 6;
/// Longest key whose length is in the meta word.
const KEY_SHORT_MAX: usize = 0xff;
const BODY_SHIFT: u32 = 14;
/// Longest body whose length is in the meta word.
const BODY_SHORT_MAX: usize = 0xfff;
const META_OFFSET: usize = 8;
const EXTRAS_BYTES: usize = 5;

// The lengths do not meet each other or the mark.
const _: () = assert!(KEY_SHORT_MAX >> (BODY_SHIFT - KEY_SHIFT) == 0);
const _: () =
    assert!(without_mark(u32::MAX) == (1 << BODY_SHIFT) * (BODY_SHORT_MAX as u32 + 1) - 1);

const BODY_ALIGN: usize = 8;
const _: () = assert!(align_of::<Chunked>() <= BODY_ALIGN && align_of::<WideRow>() <= BODY_ALIGN);

/// Bytes of an entry that are asked for ahead of its use: its first line, and the line that holds
/// the end of a common entry.
const PREFETCH_BYTES: usize = 48;

/// What the meta word says of lengths that it holds itself.
#[inline]
const fn packed_lengths(key_bytes: usize, body_bytes: usize) -> u32 {
    (key_bytes as u32) << KEY_SHIFT | (body_bytes as u32) << BODY_SHIFT
}

/// Lengths of key and body, of an entry that is not [`IS_LONG`].
#[inline]
const fn short_lengths(meta: u32) -> (usize, usize) {
    let key_bytes = (meta >> KEY_SHIFT) as usize & KEY_SHORT_MAX;
    (key_bytes, (meta >> BODY_SHIFT) as usize)
}

/// What an entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tombstone = 0,
    Bytes = 1,
    Chunked = 2,
    Packed = 3,
    Wide = 4,
}

impl Kind {
    fn of_meta(meta: u32) -> Self {
        match meta & KIND_MASK {
            0 => Self::Tombstone,
            1 => Self::Bytes,
            2 => Self::Chunked,
            3 => Self::Packed,
            4 => Self::Wide,
            // Poison reads as 6.
            _ => panic!("a reclaimed or foreign entry is being read"),
        }
    }

    fn is_object(self) -> bool {
        matches!(self, Self::Chunked | Self::Wide)
    }
}

/// Where the parts of an entry are.
#[derive(Clone, Copy)]
struct Shape {
    meta: u32,
    key_bytes: usize,
    body_bytes: usize,
    key_offset: usize,
    body_offset: usize,
}

impl Shape {
    fn new(mut meta: u32, key_bytes: usize, body_bytes: usize) -> Self {
        if key_bytes > KEY_SHORT_MAX || body_bytes > BODY_SHORT_MAX {
            meta |= IS_LONG;
        } else {
            meta |= packed_lengths(key_bytes, body_bytes);
        }
        Self::locate(meta, key_bytes, body_bytes)
    }

    #[inline]
    fn locate(meta: u32, key_bytes: usize, body_bytes: usize) -> Self {
        let mut key_offset = HEADER_BYTES;
        if meta & OPTIONS != 0 {
            key_offset += if meta & IS_LONG != 0 { 8 } else { 0 };
            key_offset += if meta & HAS_DEADLINE != 0 { 8 } else { 0 };
            key_offset += if meta & HAS_EXTRAS != 0 {
                EXTRAS_BYTES
            } else {
                0
            };
        }
        let mut body_offset = key_offset + key_bytes;
        if Kind::of_meta(meta).is_object() {
            body_offset = body_offset.next_multiple_of(BODY_ALIGN);
        }
        Self {
            meta,
            key_bytes,
            body_bytes,
            key_offset,
            body_offset,
        }
    }

    fn deadline_offset(self) -> usize {
        HEADER_BYTES + if self.meta & IS_LONG != 0 { 8 } else { 0 }
    }

    fn extras_offset(self) -> usize {
        self.deadline_offset() + if self.meta & HAS_DEADLINE != 0 { 8 } else { 0 }
    }

    fn bytes(self) -> usize {
        self.body_offset + self.body_bytes
    }

    fn kind(self) -> Kind {
        Kind::of_meta(self.meta)
    }
}

/// A published entry.
#[derive(Clone, Copy)]
pub(crate) struct EntryRef<'g>(NonNull<u8>, PhantomData<&'g [u8]>);

impl<'g> EntryRef<'g> {
    /// # Safety
    /// `address` was loaded from a slot under the pin of the guard, and either the bucket's lock is
    /// held or the bucket had not moved before the load (HB3).
    #[inline]
    pub(crate) unsafe fn from_address(address: NonNull<u8>, _: Guard<'g>) -> Self {
        Self(address, PhantomData)
    }

    #[inline]
    pub(crate) fn address(self) -> NonNull<u8> {
        self.0
    }

    /// Reads a plain field at `offset`.
    #[inline]
    fn read<T: Copy>(self, offset: usize) -> T {
        let field = self.0.as_ptr().wrapping_add(offset).cast::<T>();
        // SAFETY: the entry lives and is immutable (HE1), and `Shape` says what is where.
        unsafe { field.read_unaligned() }
    }

    /// The word that holds the access mark.
    #[inline]
    fn meta_word(self) -> &'g AtomicU32 {
        let word = self.0.as_ptr().wrapping_add(META_OFFSET);
        // SAFETY: the entry lives, is aligned to 8 (P2), and this word is accessed as an atomic
        // only since the entry was published (HE1).
        unsafe { AtomicU32::from_ptr(word.cast()) }
    }

    /// Kind, options and lengths, without the mark.
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
        // SAFETY: the kind says that the body is a `T`, `locate` aligned it, and the entry lives.
        unsafe { &*object }
    }

    #[inline]
    fn shape(self) -> Shape {
        let meta = self.meta();
        if meta & IS_LONG != 0 {
            let (key, body) = (self.read::<u32>(12), self.read::<u32>(16));
            return Shape::locate(meta, key as usize, body as usize);
        }
        let (key_bytes, body_bytes) = short_lengths(meta);
        Shape::locate(meta, key_bytes, body_bytes)
    }

    #[inline]
    pub(crate) fn version(self) -> ValueVersion {
        ValueVersion::from_bits(self.read(0))
    }

    #[inline]
    pub(crate) fn is_tombstone(self) -> bool {
        self.meta() & KIND_MASK == Kind::Tombstone as u32
    }

    #[inline]
    pub(crate) fn key(self) -> &'g [u8] {
        let shape = self.shape();
        self.slice(shape.key_offset, shape.key_bytes)
    }

    /// Whether this is the entry of `key`.
    #[inline]
    pub(crate) fn has_key(self, key: &[u8]) -> bool {
        let meta = self.meta();
        if meta & OPTIONS != 0 {
            return self.has_key_beyond_options(key);
        }
        let (key_bytes, _) = short_lengths(meta);
        key_bytes == key.len() && are_equal(self.slice(HEADER_BYTES, key_bytes), key)
    }

    #[inline(never)]
    fn has_key_beyond_options(self, key: &[u8]) -> bool {
        self.key() == key
    }

    /// The value; `None` for a tombstone.
    #[inline]
    pub(crate) fn value(self) -> Option<ValueRef<'g>> {
        let meta = self.meta();
        if meta & (KIND_MASK | OPTIONS) != Kind::Bytes as u32 {
            return self.value_of_any_kind();
        }
        let (key_bytes, body_bytes) = short_lengths(meta);
        let bytes = self.slice(HEADER_BYTES + key_bytes, body_bytes);
        Some(ValueRef {
            version: self.version(),
            attributes: Attributes::default(),
            body: BodyRef::String(StringRef::Flat(bytes)),
            mark: AccessMark::of(self.meta_word()),
        })
    }

    #[inline(never)]
    fn value_of_any_kind(self) -> Option<ValueRef<'g>> {
        let shape = self.shape();
        let flat = || self.slice(shape.body_offset, shape.body_bytes);
        let body = match shape.kind() {
            Kind::Tombstone => return None,
            Kind::Bytes => BodyRef::String(StringRef::Flat(flat())),
            Kind::Packed => BodyRef::Hash(HashRef::Packed(flat())),
            Kind::Chunked => BodyRef::String(StringRef::Chunked(self.object(shape))),
            Kind::Wide => BodyRef::Hash(HashRef::Wide(self.object(shape))),
        };
        let mut attributes = Attributes::default();
        if shape.meta & HAS_DEADLINE != 0 {
            attributes.deadline = Some(Deadline(self.read(shape.deadline_offset())));
        }
        if shape.meta & HAS_EXTRAS != 0 {
            attributes.flags = self.read(shape.extras_offset());
            attributes.encoding = self.read(shape.extras_offset() + 4);
        }
        Some(ValueRef {
            version: self.version(),
            attributes,
            body,
            mark: AccessMark::of(self.meta_word()),
        })
    }

    /// Bytes that retiring the entry holds back, as far as they are the entry's own.
    #[inline]
    pub(crate) fn bytes(self) -> usize {
        let meta = self.meta();
        if meta & (KIND_MASK | OPTIONS) == Kind::Bytes as u32 {
            let (key_bytes, body_bytes) = short_lengths(meta);
            return HEADER_BYTES + key_bytes + body_bytes;
        }
        self.shape().bytes()
    }

    /// Bytes beyond the entry's own that go with a value that has no successor.
    pub(crate) fn object_bytes(self) -> usize {
        match self.value() {
            Some(value) if self.shape().kind().is_object() => value.heap_bytes(),
            _ => 0,
        }
    }

    /// A new entry, of a tombstone when there is no value. Nobody sees it until it is put into a
    /// slot.
    #[inline]
    pub(crate) fn build(
        pool: &mut Pool,
        guard: Guard<'g>,
        version: ValueVersion,
        key: &[u8],
        new: Option<NewValue<'_>>,
    ) -> Self {
        if let Some(value) = &new
            && let Body::Bytes(bytes) = value.body
            && value.attributes == Attributes::default()
            && key.len() <= KEY_SHORT_MAX
            && bytes.len() <= BODY_SHORT_MAX
        {
            return Self::build_plain(pool, version, key, bytes, value.mark);
        }
        Self::build_any(pool, guard, version, key, new)
    }

    /// A new entry of short bytes without attributes.
    #[inline]
    fn build_plain(
        pool: &mut Pool,
        version: ValueVersion,
        key: &[u8],
        bytes: &[u8],
        mark: u8,
    ) -> Self {
        let meta = Kind::Bytes as u32 | packed_lengths(key.len(), bytes.len());
        let body_offset = HEADER_BYTES + key.len();
        let entry = Writer(pool.allocate(body_offset + bytes.len()));
        entry.put(0, version.to_bits());
        entry.put(META_OFFSET, with_mark(meta, mark));
        entry.copy(HEADER_BYTES, key);
        entry.copy(body_offset, bytes);
        Self(entry.0, PhantomData)
    }

    #[inline(never)]
    fn build_any(
        pool: &mut Pool,
        _: Guard<'g>,
        version: ValueVersion,
        key: &[u8],
        new: Option<NewValue<'_>>,
    ) -> Self {
        let (kind, body_bytes) = match new.as_ref().map(|new| &new.body) {
            None => (Kind::Tombstone, 0),
            Some(Body::Bytes(bytes)) => (Kind::Bytes, bytes.len()),
            Some(Body::Owned(bytes)) => (Kind::Bytes, bytes.len()),
            Some(Body::Packed(row)) => (Kind::Packed, row.as_bytes().len()),
            Some(Body::Chunked(_)) => (Kind::Chunked, size_of::<Chunked>()),
            Some(Body::Wide(_)) => (Kind::Wide, size_of::<WideRow>()),
        };
        let attributes = new.as_ref().map(|new| new.attributes).unwrap_or_default();
        let mut meta = kind as u32;
        if attributes.deadline.is_some() {
            meta |= HAS_DEADLINE;
        }
        let extras = attributes.flags != 0 || attributes.encoding != 0;
        if extras {
            meta |= HAS_EXTRAS;
        }
        let shape = Shape::new(meta, key.len(), body_bytes);
        let entry = Writer(pool.allocate(shape.bytes()));
        entry.put(0, version.to_bits());
        let mark = new.as_ref().map_or(0, |new| new.mark);
        entry.put(META_OFFSET, with_mark(shape.meta, mark));
        if shape.meta & IS_LONG != 0 {
            entry.put(12, shape.key_bytes as u32);
            entry.put(16, shape.body_bytes as u32);
        }
        if let Some(deadline) = attributes.deadline {
            entry.put(shape.deadline_offset(), deadline.0);
        }
        if extras {
            entry.put(shape.extras_offset(), attributes.flags);
            entry.put(shape.extras_offset() + 4, attributes.encoding);
        }
        entry.copy(shape.key_offset, key);
        match new.map(|new| new.body) {
            None => {}
            Some(Body::Bytes(bytes)) => entry.copy(shape.body_offset, bytes),
            Some(Body::Owned(bytes)) => entry.copy(shape.body_offset, &bytes),
            Some(Body::Packed(row)) => entry.copy(shape.body_offset, row.as_bytes()),
            Some(Body::Chunked(column)) => entry.put(shape.body_offset, column),
            Some(Body::Wide(row)) => entry.put(shape.body_offset, row),
        }
        Self(entry.0, PhantomData)
    }

    /// Whether the entry of a value that a reader is shown lies in memory that is being emptied.
    ///
    /// # Safety
    /// The value is one of this engine's, and the reader's pin lasts.
    pub(crate) unsafe fn is_value_emptying(value: &ValueRef<'g>) -> bool {
        let Some(word) = value.mark.address() else {
            return false;
        };
        let entry = word.cast::<u8>().as_ptr().wrapping_sub(META_OFFSET);
        NonNull::new(entry).is_some_and(|entry| Self(entry, PhantomData).is_emptying())
    }

    /// Whether it lies in memory that is being emptied.
    pub(crate) fn is_emptying(self) -> bool {
        // SAFETY: the entry lives and was allocated with this length.
        unsafe { is_emptying(self.0, self.bytes()) }
    }

    /// The same entry at another place that is free, if there is one. The body is taken over: this
    /// entry is to be reclaimed by [`reclaim_moved`].
    pub(crate) fn duplicate(self, pool: &mut Pool) -> Option<Self> {
        let bytes = self.bytes();
        let entry = Writer(pool.allocate_elsewhere(bytes)?);
        let rest = META_OFFSET + size_of::<u32>();
        entry.copy(0, self.slice(0, META_OFFSET));
        entry.put(META_OFFSET, self.meta_word().load(Ordering::Relaxed));
        entry.copy(rest, self.slice(rest, bytes - rest));
        Some(Self(entry.0, PhantomData))
    }

    /// Lines of 64 bytes that a read of key and value touches.
    pub(crate) fn lines(self) -> usize {
        let start = self.0.as_ptr() as usize;
        (start + self.bytes() - 1) / 64 - start / 64 + 1
    }
}

/// Whether two keys of one length are equal. Short ones are the rule, for which a call costs more
/// than the comparison.
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
    // The words before, the last of which may overlap those eight bytes.
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

/// Begins to fetch what stands at `address`, an entry or not.
#[inline]
pub(crate) fn prefetch(address: *const u8) {
    prefetch_span(address, PREFETCH_BYTES);
}

/// Writes an entry that nobody sees yet.
struct Writer(NonNull<u8>);

impl Writer {
    #[inline]
    fn put<T>(&self, offset: usize, value: T) {
        let field = self.0.as_ptr().wrapping_add(offset).cast::<T>();
        // SAFETY: who builds the entry has reserved the place; the write needs no alignment.
        unsafe { field.write_unaligned(value) };
    }

    /// Copies; what is short without a call, which would cost more than the copying.
    #[inline]
    fn copy(&self, offset: usize, bytes: &[u8]) {
        const WORD: usize = size_of::<u64>();
        const SHORT_MAX: usize = 4 * WORD;
        if let (Some(last), ..=SHORT_MAX) = (bytes.last_chunk::<WORD>(), bytes.len()) {
            let (mut rest, mut at) = (bytes, offset);
            while rest.len() > WORD
                && let Some((word, after)) = rest.split_first_chunk::<WORD>()
            {
                self.put(at, *word);
                (rest, at) = (after, at + WORD);
            }
            // It may overlap the word before.
            self.put(offset + bytes.len() - WORD, *last);
            return;
        }
        let to = self.0.as_ptr().wrapping_add(offset);
        // SAFETY: who builds the entry has reserved the place in a block of our own.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }
}

/// Reclaims an entry.
///
/// # Safety
/// `pointer` leads to an entry that nobody can reach (HE1); it is reclaimed once.
pub(crate) unsafe fn reclaim_entry(pointer: NonNull<u8>, pool: &mut Pool) {
    let entry = EntryRef(pointer, PhantomData);
    if entry.meta() & KIND_MASK == Kind::Bytes as u32 {
        // SAFETY: allocated with this length by `build`; the caller vouches for the rest.
        return unsafe { pool.free(pointer, entry.bytes()) };
    }
    let shape = entry.shape();
    let body = pointer.as_ptr().wrapping_add(shape.body_offset);
    match shape.kind() {
        // SAFETY: the body is of this kind, and this entry is its owner (HE2).
        Kind::Chunked => unsafe { ptr::drop_in_place(body.cast::<Chunked>()) },
        // SAFETY: as above.
        Kind::Wide => unsafe { ptr::drop_in_place(body.cast::<WideRow>()) },
        _ => {}
    }
    // SAFETY: allocated with this length by `build`; the caller vouches for the rest.
    unsafe { pool.free(pointer, shape.bytes()) };
}

/// Reclaims an entry that has moved to another place, with its body.
///
/// # Safety
/// As [`reclaim_entry`]; the body has another owner (HE2).
pub(crate) unsafe fn reclaim_moved(pointer: NonNull<u8>, pool: &mut Pool) {
    let bytes = EntryRef(pointer, PhantomData).bytes();
    // SAFETY: allocated with this length by `duplicate` or `build`; the rest is the caller's.
    unsafe { pool.free(pointer, bytes) };
}
