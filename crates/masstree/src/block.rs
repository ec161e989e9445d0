//! Value blocks (§4.7): one memory block per value, copied on change, never written after it is
//! published.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | version |
//! | 8 | 4 | meta: kind (3 bits), deadline, extras, long, external (1 bit each), suffix length (7), body length (12), access mark (6) |
//! | 12 | 8 | suffix and body length, 4 bytes each, when *long* |
//! | … | 8 | deadline, when there is one |
//! | … | 5 | flags (4) and encoding (1), when not zero |
//! | … | n or 8 | the key's suffix, or a pointer to it when *external* (see `suffix`) |
//! | … | n | the body: bytes, a packed row, or (aligned to 8) a [`Chunked`] or [`WideRow`] |
//!
//! A plain 8-byte value of a key that ends two bytes after its slice takes 22 bytes.
//!
//! Invariants:
//! - **MB1** A published block is immutable but for its access mark, which is a hint and lies in a
//!   word that is only accessed as an atomic; a change publishes a new block and retires the old
//!   one.
//! - **MB2** Every body and every external suffix is owned by exactly one block that is not
//!   retired, or by retired blocks only. A successor takes them over bit by bit; the retired
//!   predecessor is then reclaimed without them ([`Keep`]). Readers of the predecessor are pinned
//!   since before the successor existed, hence until after it could be reclaimed.
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
use pando_sync::epoch::Reclaim;

use crate::node::Guard;
use crate::suffix::{EXTERNAL_POINTER_BYTES, Suffix, external_of, free_external};
use pando_sync::prefetch::prefetch_span;

const HEADER_BYTES: usize = 12;

/// Bytes that most value blocks have at least: headers of 12, a short suffix, a short value.
pub(crate) const SPAN_BYTES: usize = 24;

const KIND_MASK: u32 = 0b111;
const HAS_DEADLINE: u32 = 1 << 3;
const HAS_EXTRAS: u32 = 1 << 4;
const IS_LONG: u32 = 1 << 5;
const IS_EXTERNAL: u32 = 1 << 6;
const OPTIONS: u32 = HAS_DEADLINE | HAS_EXTRAS | IS_LONG | IS_EXTERNAL;
const SUFFIX_SHIFT: u32 = 7;
/// Longest suffix whose length is in the meta word.
const SUFFIX_SHORT_MAX: usize = 0x7f;
const BODY_SHIFT: u32 = 14;
/// Longest body whose length is in the meta word.
const BODY_SHORT_MAX: usize = 0xfff;
const META_OFFSET: usize = 8;
const EXTRAS_BYTES: usize = 5;

// The lengths do not meet each other or the mark.
const _: () = assert!(SUFFIX_SHORT_MAX >> (BODY_SHIFT - SUFFIX_SHIFT) == 0);
const _: () =
    assert!(without_mark(u32::MAX) == (1 << BODY_SHIFT) * (BODY_SHORT_MAX as u32 + 1) - 1);

const BODY_ALIGN: usize = 8;
const _: () = assert!(align_of::<Chunked>() <= BODY_ALIGN && align_of::<WideRow>() <= BODY_ALIGN);

/// What a block holds.
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
            _ => panic!("a reclaimed or foreign block is being read"),
        }
    }

    fn is_object(self) -> bool {
        matches!(self, Self::Chunked | Self::Wide)
    }
}

/// Where the parts of a block are.
#[derive(Clone, Copy)]
struct Shape {
    meta: u32,
    suffix_bytes: usize,
    body_bytes: usize,
    suffix_offset: usize,
    body_offset: usize,
}

impl Shape {
    fn new(mut meta: u32, suffix_bytes: usize, body_bytes: usize) -> Self {
        if suffix_bytes > SUFFIX_SHORT_MAX || body_bytes > BODY_SHORT_MAX {
            meta |= IS_LONG;
        } else {
            meta |= (suffix_bytes as u32) << SUFFIX_SHIFT | (body_bytes as u32) << BODY_SHIFT;
        }
        Self::locate(meta, suffix_bytes, body_bytes)
    }

    #[inline]
    fn locate(meta: u32, suffix_bytes: usize, body_bytes: usize) -> Self {
        let mut suffix_offset = HEADER_BYTES;
        let mut stored_bytes = suffix_bytes;
        // What most blocks are.
        if meta & (OPTIONS | KIND_MASK) == Kind::Bytes as u32 {
            return Self {
                meta,
                suffix_bytes,
                body_bytes,
                suffix_offset,
                body_offset: suffix_offset + suffix_bytes,
            };
        }
        if meta & OPTIONS != 0 {
            suffix_offset += if meta & IS_LONG != 0 { 8 } else { 0 };
            suffix_offset += if meta & HAS_DEADLINE != 0 { 8 } else { 0 };
            suffix_offset += if meta & HAS_EXTRAS != 0 {
                EXTRAS_BYTES
            } else {
                0
            };
            if meta & IS_EXTERNAL != 0 {
                stored_bytes = EXTERNAL_POINTER_BYTES;
            }
        }
        let mut body_offset = suffix_offset + stored_bytes;
        if Kind::of_meta(meta).is_object() {
            body_offset = body_offset.next_multiple_of(BODY_ALIGN);
        }
        Self {
            meta,
            suffix_bytes,
            body_bytes,
            suffix_offset,
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

/// A published block.
#[derive(Clone, Copy)]
pub(crate) struct BlockRef<'g>(NonNull<u8>, PhantomData<&'g [u8]>);

/// A suffix, and what may be read along with it so that short ones are copied as a word.
#[derive(Clone, Copy)]
pub(crate) struct SuffixRef<'g> {
    /// The suffix's length.
    pub(crate) bytes: usize,
    /// Begins with the suffix.
    pub(crate) room: &'g [u8],
}

/// What a successor block takes over from the one that it replaces (MB2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keep {
    pub(crate) body: bool,
    pub(crate) suffix: bool,
}

impl Keep {
    pub(crate) const NOTHING: Self = Self {
        body: false,
        suffix: false,
    };
}

/// The body of a block to be built.
enum Source<'d> {
    None,
    New(Body<'d>),
    /// Taken over from the block at this address.
    Moved(*const u8),
}

impl<'g> BlockRef<'g> {
    /// # Safety
    /// `link` was loaded from an entry that holds a value, under a validated version (M2).
    #[inline]
    pub(crate) unsafe fn from_link(link: *mut u8, _: Guard<'g>) -> Self {
        let block = NonNull::new(link).expect("a listed entry has a link");
        Self(block, PhantomData)
    }

    #[inline]
    pub(crate) fn as_link(self) -> *mut u8 {
        self.0.as_ptr()
    }

    /// Reads a plain field at `offset`.
    #[inline]
    fn read<T: Copy>(self, offset: usize) -> T {
        let field = self.0.as_ptr().wrapping_add(offset).cast::<T>();
        // SAFETY: the block lives (M1), is immutable (MB1), and `Shape` says what is where.
        unsafe { field.read_unaligned() }
    }

    /// The word that holds the access mark.
    #[inline]
    fn meta_word(self) -> &'g AtomicU32 {
        let word = self.0.as_ptr().wrapping_add(META_OFFSET);
        // SAFETY: the block lives (M1), is aligned to 8 (P2), and this word is accessed as an
        // atomic only since the block was published (MB1).
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
        // SAFETY: the kind says that the body is a `T`, `locate` aligned it, and the block lives.
        unsafe { &*object }
    }

    #[inline]
    fn shape(self) -> Shape {
        let meta = self.meta();
        if meta & IS_LONG != 0 {
            let (suffix, body) = (self.read::<u32>(12), self.read::<u32>(16));
            return Shape::locate(meta, suffix as usize, body as usize);
        }
        let suffix_bytes = (meta >> SUFFIX_SHIFT) as usize & SUFFIX_SHORT_MAX;
        Shape::locate(meta, suffix_bytes, (meta >> BODY_SHIFT) as usize)
    }

    #[inline]
    pub(crate) fn version(self) -> ValueVersion {
        ValueVersion::from_bits(self.read(0))
    }

    #[inline]
    pub(crate) fn is_tombstone(self) -> bool {
        self.meta() & KIND_MASK == Kind::Tombstone as u32
    }

    /// What follows the entry's slice in its key; empty when the key ends there.
    #[inline]
    pub(crate) fn suffix(self) -> &'g [u8] {
        if let Some((suffix_bytes, _)) = self.plain() {
            return self.slice(HEADER_BYTES, suffix_bytes);
        }
        self.any_suffix()
    }

    #[inline(never)]
    fn any_suffix(self) -> &'g [u8] {
        let shape = self.shape();
        if shape.meta & IS_EXTERNAL != 0 {
            let pointer = self.read::<NonNull<u8>>(shape.suffix_offset);
            // SAFETY: owned by this block or its successor, so it lives (MB2).
            return unsafe { external_of(pointer, shape.suffix_bytes) };
        }
        self.slice(shape.suffix_offset, shape.suffix_bytes)
    }

    /// The lengths of suffix and body of what most blocks are: short bytes without options.
    #[inline]
    fn plain(self) -> Option<(usize, usize)> {
        let meta = self.meta();
        let suffix_bytes = (meta >> SUFFIX_SHIFT) as usize & SUFFIX_SHORT_MAX;
        (meta & (OPTIONS | KIND_MASK) == Kind::Bytes as u32)
            .then_some((suffix_bytes, (meta >> BODY_SHIFT) as usize))
    }

    /// The suffix and the value of what most blocks are; `None` for any other block.
    #[inline]
    pub(crate) fn plain_parts(self) -> Option<(SuffixRef<'g>, ValueRef<'g>)> {
        let (bytes, body_bytes) = self.plain()?;
        let room = self.slice(HEADER_BYTES, bytes + body_bytes);
        let value = ValueRef {
            version: self.version(),
            attributes: Attributes::default(),
            body: BodyRef::String(StringRef::Flat(&room[bytes..])),
            mark: AccessMark::of(self.meta_word()),
        };
        Some((SuffixRef { bytes, room }, value))
    }

    /// The value; `None` for a tombstone.
    #[inline]
    pub(crate) fn value(self) -> Option<ValueRef<'g>> {
        match self.plain_parts() {
            Some((_, value)) => Some(value),
            None => self.any_value(),
        }
    }

    /// Hands the value to `read`, which is compiled for plain values alone too.
    #[inline]
    pub(crate) fn read_value<R>(self, read: impl FnOnce(Option<ValueRef<'g>>) -> R) -> R {
        match self.plain_parts() {
            Some((_, value)) => read(Some(value)),
            None => read(self.any_value()),
        }
    }

    #[inline(never)]
    fn any_value(self) -> Option<ValueRef<'g>> {
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

    /// Begins to fetch the block, or the first of a longer one.
    #[inline]
    pub(crate) fn prefetch(self) {
        prefetch_span(self.0.as_ptr(), SPAN_BYTES);
    }

    /// Bytes that retiring the block holds back, as far as they are the block's own.
    #[inline]
    pub(crate) fn bytes(self) -> usize {
        match self.plain() {
            Some((suffix_bytes, body_bytes)) => HEADER_BYTES + suffix_bytes + body_bytes,
            None => self.shape().bytes(),
        }
    }

    /// Bytes beyond the block's own that become garbage with it when `next` takes its place.
    #[inline]
    pub(crate) fn bytes_beyond(self, next: BlockRef<'_>) -> usize {
        if !Kind::of_meta(self.meta()).is_object() {
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

    /// A block of a new value, or of a tombstone when there is none.
    pub(crate) fn build(
        pool: &mut Pool,
        _: Guard<'g>,
        version: ValueVersion,
        suffix: Suffix<'_>,
        new: Option<NewValue<'_>>,
    ) -> Self {
        let Some(new) = new else {
            return Self::assemble(
                pool,
                version,
                Kind::Tombstone,
                (Attributes::default(), 0),
                suffix,
                0,
                Source::None,
            );
        };
        let (kind, bytes) = match &new.body {
            Body::Bytes(bytes) => (Kind::Bytes, bytes.len()),
            Body::Owned(bytes) => (Kind::Bytes, bytes.len()),
            Body::Packed(row) => (Kind::Packed, row.as_bytes().len()),
            Body::Chunked(_) => (Kind::Chunked, size_of::<Chunked>()),
            Body::Wide(_) => (Kind::Wide, size_of::<WideRow>()),
        };
        Self::assemble(
            pool,
            version,
            kind,
            (new.attributes, new.mark),
            suffix,
            bytes,
            Source::New(new.body),
        )
    }

    /// The same value under another suffix, for an entry that moves between layers. The body is
    /// taken over: this block is to be retired with [`Keep`]`.body`.
    pub(crate) fn rebuild(self, pool: &mut Pool, suffix: Suffix<'_>) -> Self {
        let shape = self.shape();
        let value = self.value();
        let attributes = value.map(|value| value.attributes).unwrap_or_default();
        let mark = value.map_or(0, |value| value.mark.get());
        let body = Source::Moved(self.0.as_ptr().wrapping_add(shape.body_offset));
        let bytes = shape.body_bytes;
        Self::assemble(
            pool,
            self.version(),
            shape.kind(),
            (attributes, mark),
            suffix,
            bytes,
            body,
        )
    }

    /// The block of a value that a reader is shown.
    ///
    /// # Safety
    /// The value is one of this engine's, and the reader's pin lasts.
    unsafe fn of_value(value: &ValueRef<'g>) -> Option<Self> {
        let word = value.mark.address()?.cast::<u8>();
        let block = word.as_ptr().wrapping_sub(META_OFFSET);
        NonNull::new(block).map(|block| Self(block, PhantomData))
    }

    /// Whether the block of a value lies in memory that is being emptied.
    ///
    /// # Safety
    /// The value is one of this engine's, and the reader's pin lasts.
    pub(crate) unsafe fn is_value_emptying(value: &ValueRef<'g>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { Self::of_value(value) }.is_some_and(Self::is_emptying)
    }

    /// Whether it lies in memory that is being emptied.
    pub(crate) fn is_emptying(self) -> bool {
        // SAFETY: the block lives and was allocated with this length.
        unsafe { is_emptying(self.0, self.bytes()) }
    }

    /// The same block at another place that is free, if there is one. Body and suffix are taken
    /// over: this block is to be retired with [`Keep`] of both.
    pub(crate) fn duplicate(self, pool: &mut Pool) -> Option<Self> {
        let bytes = self.bytes();
        let block = Writer(pool.allocate_elsewhere(bytes)?);
        let rest = META_OFFSET + size_of::<u32>();
        block.copy(0, self.slice(0, META_OFFSET));
        block.put(META_OFFSET, self.meta_word().load(Ordering::Relaxed));
        block.copy(rest, self.slice(rest, bytes - rest));
        Some(Self(block.0, PhantomData))
    }

    fn assemble(
        pool: &mut Pool,
        version: ValueVersion,
        kind: Kind,
        (attributes, mark): (Attributes, u8),
        suffix: Suffix<'_>,
        body_bytes: usize,
        body: Source<'_>,
    ) -> Self {
        let mut meta = kind as u32;
        meta |= if attributes.deadline.is_some() {
            HAS_DEADLINE
        } else {
            0
        };
        let extras = attributes.flags != 0 || attributes.encoding != 0;
        meta |= if extras { HAS_EXTRAS } else { 0 };
        meta |= if suffix.is_external() { IS_EXTERNAL } else { 0 };
        let shape = Shape::new(meta, suffix.len(), body_bytes);
        let block = Writer(pool.allocate(shape.bytes()));
        block.put(0, version.to_bits());
        block.put(META_OFFSET, with_mark(shape.meta, mark));
        if shape.meta & IS_LONG != 0 {
            block.put(12, shape.suffix_bytes as u32);
            block.put(16, shape.body_bytes as u32);
        }
        if let Some(deadline) = attributes.deadline {
            block.put(shape.deadline_offset(), deadline.0);
        }
        if extras {
            block.put(shape.extras_offset(), attributes.flags);
            block.put(shape.extras_offset() + 4, attributes.encoding);
        }
        match suffix {
            Suffix::External(pointer, _) => block.put(shape.suffix_offset, pointer),
            Suffix::Inline(bytes) => block.copy(shape.suffix_offset, bytes),
        }
        match body {
            Source::None => {}
            Source::New(Body::Bytes(bytes)) => block.copy(shape.body_offset, bytes),
            Source::New(Body::Owned(bytes)) => block.copy(shape.body_offset, &bytes),
            Source::New(Body::Packed(row)) => block.copy(shape.body_offset, row.as_bytes()),
            Source::New(Body::Chunked(column)) => block.put(shape.body_offset, column),
            Source::New(Body::Wide(row)) => block.put(shape.body_offset, row),
            Source::Moved(from) => {
                let to = block.0.as_ptr().wrapping_add(shape.body_offset);
                // SAFETY: both bodies are that long, the blocks are different; MB2 says who drops.
                unsafe { ptr::copy_nonoverlapping(from, to, body_bytes) };
            }
        }
        Self(block.0, PhantomData)
    }

    /// How a block of which a successor keeps `keep` is to be reclaimed.
    pub(crate) fn reclaim(keep: Keep) -> Reclaim<Pool> {
        match (keep.body, keep.suffix) {
            (false, false) => reclaim_block::<false, false>,
            (false, true) => reclaim_block::<false, true>,
            (true, false) => reclaim_block::<true, false>,
            (true, true) => reclaim_block::<true, true>,
        }
    }
}

/// Writes a block that nobody sees yet.
struct Writer(NonNull<u8>);

impl Writer {
    #[inline]
    fn put<T>(&self, offset: usize, value: T) {
        let field = self.0.as_ptr().wrapping_add(offset).cast::<T>();
        // SAFETY: `Shape` reserved the place; objects are aligned but the write does not need it.
        unsafe { field.write_unaligned(value) };
    }

    #[inline]
    fn copy(&self, offset: usize, bytes: &[u8]) {
        let to = self.0.as_ptr().wrapping_add(offset);
        // SAFETY: `Shape` reserved the place in a block of our own.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }
}

/// Reclaims a block, but for what its successor took over.
///
/// # Safety
/// `pointer` leads to a block that nobody can reach (M1); it is reclaimed once; the successor holds
/// exactly what is said to be kept (MB2).
pub(crate) unsafe fn reclaim_block<const KEEP_BODY: bool, const KEEP_SUFFIX: bool>(
    pointer: NonNull<u8>,
    pool: &mut Pool,
) {
    let block = BlockRef(pointer, PhantomData);
    if let Some((suffix_bytes, body_bytes)) = block.plain() {
        // SAFETY: allocated with this length by `assemble`; the caller vouches for the rest.
        return unsafe { pool.free(pointer, HEADER_BYTES + suffix_bytes + body_bytes) };
    }
    let shape = block.shape();
    if !KEEP_BODY && shape.kind().is_object() {
        let body = pointer.as_ptr().wrapping_add(shape.body_offset);
        match shape.kind() {
            // SAFETY: the body is of this kind, and this block is its last owner (MB2).
            Kind::Chunked => unsafe { ptr::drop_in_place(body.cast::<Chunked>()) },
            // SAFETY: as above.
            _ => unsafe { ptr::drop_in_place(body.cast::<WideRow>()) },
        }
    }
    if !KEEP_SUFFIX && shape.meta & IS_EXTERNAL != 0 {
        let suffix = block.read::<NonNull<u8>>(shape.suffix_offset);
        // SAFETY: this block is the suffix's last owner (MB2).
        unsafe { free_external(suffix, shape.suffix_bytes, pool) };
    }
    // SAFETY: allocated with this length by `assemble`; the caller vouches for the rest.
    unsafe { pool.free(pointer, shape.bytes()) };
}

#[cfg(all(test, not(loom)))]
mod tests;
