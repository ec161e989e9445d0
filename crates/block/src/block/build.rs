//! Building blocks, which nobody can see until the engine links them.

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::{self, NonNull};

use pando_engine::mark::with_mark;
use pando_engine::{
    AccessMark, Amendment, Attributes, Body, BodyRef, Chunked, HashBody, HashRef, NewValue, RowTag,
    StringBody, StringRef, ValueRef, ValueVersion, WideRow,
};
use pando_memory::pool::Pool;
use pando_sync::epoch::Guard;
use pando_sync::shim::unmodelled::Ordering;

use super::BlockRef;
use crate::key::{KeyPart, Part};
use crate::layout::{
    BODY_SHORT_MAX, EXTRA_ENCODING, EXTRA_FLAGS, Form, HAS_DEADLINE, HAS_EXTRAS, HEADER_BYTES,
    IS_EXTERNAL, IS_LONG, KEY_SHORT_MAX, META_OFFSET, Shape, deadline_offset, extras_bytes,
    extras_of, extras_offset, is_packed, packed_lengths, short_lengths,
};

/// The shortest value in a row that is left out where the row is copied to have another there: for
/// a shorter one, a second copy costs more than the line or two that it saves.
const APART_BYTES_MIN: usize = 256;

/// The body of a block to be built.
enum Source<'d> {
    None,
    New(Body<'d>),
    /// Taken over from the block at this address.
    Moved(*const u8),
}

/// What a block says of its value besides the body.
#[derive(Clone, Copy)]
struct Header {
    form: Form,
    /// Of a row; of anything else, that of a hash.
    row: RowTag,
    attributes: Attributes,
    mark: u8,
}

impl Header {
    fn new(form: Form, row: RowTag) -> Self {
        Self {
            form,
            row,
            attributes: Attributes::default(),
            mark: 0,
        }
    }
}

/// The most common values: short bytes or a small hash, without options.
#[derive(Clone, Copy)]
pub struct ShortValue<'d> {
    form: Form,
    /// At most [`BODY_SHORT_MAX`].
    bytes: &'d [u8],
    mark: u8,
}

impl<'d> ShortValue<'d> {
    /// `None` for any other value.
    #[inline]
    pub fn of(new: &'d NewValue<'_>) -> Option<Self> {
        let (form, bytes): (_, &[u8]) = match &new.body {
            Body::String(StringBody::Flat(bytes)) => (Form::Flat, bytes),
            Body::Row(RowTag::Hash, HashBody::Packed(row)) => (Form::Packed, row.as_bytes()),
            _ => return None,
        };
        let is_short = new.attributes == Attributes::default() && bytes.len() <= BODY_SHORT_MAX;
        is_short.then_some(Self {
            form,
            bytes,
            mark: new.mark,
        })
    }

    /// The bytes of a string that are borrowed, so that nothing is left to be dropped; anything
    /// else is returned unchanged.
    #[inline]
    pub fn borrowed(new: NewValue<'d>) -> Result<Self, NewValue<'d>> {
        let form = Form::Flat;
        let borrowed = new.into_borrowed(BODY_SHORT_MAX);
        borrowed.map(|(bytes, mark)| Self { form, bytes, mark })
    }
}

impl<'g> BlockRef<'g> {
    /// A block of a new value, or of a tombstone when there is none. Costs a copy of key part and
    /// body; large forms are moved.
    #[inline]
    pub fn build(
        pool: &mut Pool,
        guard: Guard<'g>,
        version: ValueVersion,
        key: KeyPart<'_>,
        new: Option<NewValue<'_>>,
    ) -> Self {
        if let Part::Inline(key) = key.0
            && let Some(short) = new.as_ref().and_then(ShortValue::of)
            && let Some((block, _)) = Self::build_short(pool, guard, version, key, short)
        {
            if let Some(new) = new {
                new.discard();
            }
            return block;
        }
        Self::build_any(pool, version, key, new)
    }

    /// A block of a common value, and the value as its readers see it; `None` for a long key part,
    /// which needs [`Self::build`].
    #[inline]
    pub fn build_short(
        pool: &mut Pool,
        _: Guard<'g>,
        version: ValueVersion,
        key: &[u8],
        new: ShortValue<'_>,
    ) -> Option<(Self, ValueRef<'g>)> {
        (key.len() <= KEY_SHORT_MAX).then(|| Self::write_short(pool, version, key, new))
    }

    /// A block of this short block's key part, `key`, and another short value, as above. Inline,
    /// for the most common change.
    #[expect(clippy::inline_always, reason = "see `Update::run` of the hash engine")]
    #[inline(always)]
    pub fn build_like(
        self,
        pool: &mut Pool,
        version: ValueVersion,
        key: &[u8],
        new: ShortValue<'_>,
    ) -> (Self, ValueRef<'g>) {
        debug_assert!(self.is_short() && self.has_key_part(key));
        Self::write_short(pool, version, key, new)
    }

    /// What [`Self::overwrite`] may put into this block, as its readers will see it: short bytes
    /// as long as those that it holds; `None` for any other value or block.
    #[inline]
    pub fn overwritten<'d>(
        self,
        version: ValueVersion,
        new: &'d NewValue<'_>,
    ) -> Option<(ShortValue<'d>, ValueRef<'d>)>
    where
        'g: 'd,
    {
        let (_, old) = self.plain_parts()?;
        let new = ShortValue::of(new)?;
        let BodyRef::String(StringRef::Flat(bytes)) = old.body else {
            return None;
        };
        if new.form != Form::Flat || new.bytes.len() != bytes.len() {
            return None;
        }
        let body = BodyRef::String(StringRef::Flat(new.bytes));
        let value = ValueRef {
            version,
            body,
            ..old
        };
        Some((new, value))
    }

    /// Puts another value into this block, which [`Self::overwritten`] has returned.
    ///
    /// # Safety
    /// Nobody else is pinned, and the caller uses nothing any more that this block has shown
    /// (VB1 immutable-block).
    #[inline]
    pub unsafe fn overwrite(self, version: ValueVersion, new: ShortValue<'_>) {
        let meta = self.meta();
        let (key_bytes, body_bytes) = short_lengths(meta);
        assert_eq!(body_bytes, new.bytes.len(), "it fits");
        let block = Writer(self.address());
        block.put(0, version.to_bits());
        block.copy(HEADER_BYTES + key_bytes, new.bytes);
        // Relaxed: as every access of the mark. Others are pinned after this (R4 alone).
        self.meta_word()
            .store(with_mark(meta, new.mark), Ordering::Relaxed);
    }

    /// Writes a block with nothing but header, short key part and short value.
    #[expect(
        clippy::inline_always,
        reason = "as `build_like`, else part of `build_short`"
    )]
    #[inline(always)]
    fn write_short(
        pool: &mut Pool,
        version: ValueVersion,
        key: &[u8],
        new: ShortValue<'_>,
    ) -> (Self, ValueRef<'g>) {
        let ShortValue { form, bytes, mark } = new;
        // Longer ones would run into each other's bits of the meta word.
        debug_assert!(key.len() <= KEY_SHORT_MAX && bytes.len() <= BODY_SHORT_MAX);
        let meta = form as u32 | packed_lengths(key.len(), bytes.len());
        let body_offset = HEADER_BYTES + key.len();
        let block = Writer(pool.allocate(body_offset + bytes.len()));
        block.put(0, version.to_bits());
        block.put(META_OFFSET, with_mark(meta, mark));
        block.copy(HEADER_BYTES, key);
        block.copy(body_offset, bytes);
        let block = Self(block.0, PhantomData);
        let bytes = block.slice(body_offset, bytes.len());
        let body = match form {
            Form::Packed => BodyRef::Row(RowTag::Hash, HashRef::Packed(bytes)),
            _ => BodyRef::String(StringRef::Flat(bytes)),
        };
        let value = ValueRef {
            version,
            attributes: Attributes::default(),
            body,
            mark: AccessMark::of(block.meta_word()),
        };
        (block, value)
    }

    #[inline(never)]
    fn build_any(
        pool: &mut Pool,
        version: ValueVersion,
        key: KeyPart<'_>,
        new: Option<NewValue<'_>>,
    ) -> Self {
        let Some(new) = new else {
            let header = Header::new(Form::Tombstone, RowTag::Hash);
            return Self::assemble(pool, version, header, key, (0, Source::None));
        };
        new.body.check();
        let (form, row, bytes) = match &new.body {
            Body::String(StringBody::Flat(bytes)) => (Form::Flat, RowTag::Hash, bytes.len()),
            Body::String(StringBody::Chunked(_)) => {
                (Form::Chunked, RowTag::Hash, size_of::<Chunked>())
            }
            Body::Row(tag, HashBody::Packed(row)) => (Form::Packed, *tag, row.as_bytes().len()),
            Body::Row(tag, HashBody::Wide(_)) => (Form::Wide, *tag, size_of::<WideRow>()),
        };
        let header = Header {
            form,
            row,
            attributes: new.attributes,
            mark: new.mark,
        };
        Self::assemble(pool, version, header, key, (bytes, Source::New(new.body)))
    }

    /// The same value under another key part, for an entry that moves between layers. The body is
    /// taken over: this block must be reclaimed with [`Keep::body`](super::Keep::body).
    #[must_use = "a block that nobody links leaks"]
    pub fn rebuild(self, pool: &mut Pool, key: KeyPart<'_>) -> Self {
        let shape = self.shape();
        let mut header = Header::new(shape.form(), self.row_tag(shape.meta));
        if let Some(value) = self.value() {
            (header.attributes, header.mark) = (value.attributes, value.mark.get());
        }
        let body = Source::Moved(self.0.as_ptr().wrapping_add(shape.body_offset));
        Self::assemble(pool, self.version(), header, key, (shape.body_bytes, body))
    }

    /// The same block at another free place, if there is one. Body and key part are taken over:
    /// this block must be reclaimed with [`Keep`](super::Keep) of both. A mark that a reader sets
    /// meanwhile is lost.
    #[must_use = "a block that nobody links leaks"]
    pub fn duplicate(self, pool: &mut Pool) -> Option<Self> {
        let bytes = self.bytes();
        let block = Writer(pool.allocate_elsewhere(bytes)?);
        let rest = META_OFFSET + size_of::<u32>();
        block.copy(0, self.slice(0, META_OFFSET));
        block.put(META_OFFSET, self.meta_word().load(Ordering::Relaxed));
        block.copy(rest, self.slice(rest, bytes - rest));
        Some(Self(block.0, PhantomData))
    }

    /// A block with this one's key part, attributes and row, of which one value is another. Its key
    /// part is taken over: this block must be reclaimed as [`Self::hand_over_key_part`] says. Also
    /// returns the value as its readers see it.
    ///
    /// # Panics
    /// When this block holds no small row, or none with a value there.
    #[inline]
    pub fn amend(
        self,
        pool: &mut Pool,
        version: ValueVersion,
        amendment: &Amendment<'_>,
    ) -> (Self, ValueRef<'g>) {
        let meta = self.meta();
        if !is_packed(meta) {
            return self.amend_any(pool, version, amendment);
        }
        let (key_bytes, body_bytes) = short_lengths(meta);
        let body = HEADER_BYTES + key_bytes..HEADER_BYTES + key_bytes + body_bytes;
        let block = self.write_amended(pool, version, body.clone(), amendment);
        let value = ValueRef {
            version,
            attributes: Attributes::default(),
            body: BodyRef::Row(
                RowTag::Hash,
                HashRef::Packed(block.slice(body.start, body_bytes)),
            ),
            mark: AccessMark::of(block.meta_word()),
        };
        (block, value)
    }

    #[inline(never)]
    fn amend_any(
        self,
        pool: &mut Pool,
        version: ValueVersion,
        amendment: &Amendment<'_>,
    ) -> (Self, ValueRef<'g>) {
        let shape = self.shape();
        assert_eq!(shape.form(), Form::Packed, "an amendment of another value");
        let body = shape.body_offset..shape.bytes();
        let block = self.write_amended(pool, version, body, amendment);
        (block, block.any_value().expect("a row"))
    }

    /// Writes a block like this one, whose body is at `body`, with bytes of that changed.
    #[inline]
    fn write_amended(
        self,
        pool: &mut Pool,
        version: ValueVersion,
        body: Range<usize>,
        amendment: &Amendment<'_>,
    ) -> Self {
        let (at, value) = amendment.parts();
        assert!(
            at + value.len() <= body.len(),
            "an amendment of another row"
        );
        let block = Writer(pool.allocate(body.end));
        let rest = META_OFFSET + size_of::<u32>();
        block.put(0, version.to_bits());
        block.put(META_OFFSET, with_mark(self.meta(), amendment.mark));
        let (start, end) = (body.start + at, body.start + at + value.len());
        if value.len() < APART_BYTES_MIN {
            block.copy(rest, self.slice(rest, body.end - rest));
        } else {
            // Not what is replaced, whose lines nobody else may have asked for.
            block.copy(rest, self.slice(rest, start - rest));
            block.copy(end, self.slice(end, body.end - end));
        }
        block.copy(start, value);
        Self(block.0, PhantomData)
    }

    fn assemble(
        pool: &mut Pool,
        version: ValueVersion,
        header: Header,
        key: KeyPart<'_>,
        (body_bytes, body): (usize, Source<'_>),
    ) -> Self {
        let Header {
            form,
            row,
            attributes,
            mark,
        } = header;
        let mut meta = form as u32;
        if attributes.deadline.is_some() {
            meta |= HAS_DEADLINE;
        }
        let extras = extras_of(&attributes, row);
        if extras != 0 {
            meta |= HAS_EXTRAS;
        }
        if key.is_external() {
            meta |= IS_EXTERNAL;
        }
        let shape = Shape::new(meta, extras, key.len(), body_bytes);
        let block = Writer(pool.allocate(shape.bytes()));
        block.put(0, version.to_bits());
        block.put(META_OFFSET, with_mark(shape.meta, mark));
        if shape.meta & IS_LONG != 0 {
            block.put(12, shape.key_bytes as u32);
            block.put(16, shape.body_bytes as u32);
        }
        if let Some(deadline) = attributes.deadline {
            block.put(deadline_offset(shape.meta), deadline.0);
        }
        if extras != 0 {
            block.put_extras(extras_offset(shape.meta), extras, &attributes);
        }
        match key.0 {
            Part::External(pointer, _) => block.put(shape.key_offset, pointer),
            Part::Inline(bytes) => block.copy(shape.key_offset, bytes),
        }
        match body {
            Source::None => {}
            Source::New(body) => block.put_body(shape.body_offset, body),
            Source::Moved(from) => {
                let to = block.0.as_ptr().wrapping_add(shape.body_offset);
                // SAFETY: both bodies are that long, the blocks are different; VB2 one-owner says
                // who drops.
                unsafe { ptr::copy_nonoverlapping(from, to, body_bytes) };
            }
        }
        Self(block.0, PhantomData)
    }
}

/// Writes a block that nobody can see yet.
struct Writer(NonNull<u8>);

impl Writer {
    #[inline]
    fn put<T>(&self, offset: usize, value: T) {
        let field = self.0.as_ptr().wrapping_add(offset).cast::<T>();
        // SAFETY: who builds the block has reserved the place; the write needs no alignment.
        unsafe { field.write_unaligned(value) };
    }

    fn put_body(&self, at: usize, body: Body<'_>) {
        match body {
            Body::String(StringBody::Flat(bytes)) => self.copy(at, &bytes),
            Body::String(StringBody::Chunked(column)) => self.put(at, column),
            Body::Row(_, HashBody::Packed(row)) => self.copy(at, row.as_bytes()),
            Body::Row(_, HashBody::Wide(row)) => self.put(at, row),
        }
    }

    fn put_extras(&self, start: usize, extras: u8, attributes: &Attributes) {
        let mut at = start;
        self.put(at, extras);
        at += 1;
        if extras & EXTRA_FLAGS != 0 {
            self.put(at, attributes.flags);
            at += size_of::<u32>();
        }
        if extras & EXTRA_ENCODING != 0 {
            self.put(at, attributes.encoding);
            at += 1;
        }
        if let Some(token) = attributes.token {
            self.put(at, token);
            at += size_of_val(&token);
        }
        debug_assert_eq!(at, start + extras_bytes(extras));
    }

    /// Copies; short data as two words that may overlap, since a call would cost more.
    #[inline]
    fn copy(&self, offset: usize, bytes: &[u8]) {
        match bytes.len() {
            16..=32 => return self.copy_ends::<16>(offset, bytes),
            8..16 => return self.copy_ends::<8>(offset, bytes),
            4..8 => return self.copy_ends::<4>(offset, bytes),
            2..4 => return self.copy_ends::<2>(offset, bytes),
            _ => {}
        }
        let to = self.0.as_ptr().wrapping_add(offset);
        // SAFETY: who builds the block has reserved the place in a block of our own.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Copies at least one and at most two words of this many bytes.
    #[inline]
    fn copy_ends<const WORD: usize>(&self, offset: usize, bytes: &[u8]) {
        debug_assert!((WORD..=2 * WORD).contains(&bytes.len()));
        if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk::<WORD>()) {
            self.put::<[u8; WORD]>(offset, *first);
            self.put(offset + bytes.len() - WORD, *last);
        }
    }
}
