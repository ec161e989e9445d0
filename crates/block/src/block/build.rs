//! Building blocks, which nobody sees until the engine links them.

use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;

use pando_engine::mark::with_mark;
use pando_engine::{
    AccessMark, Attributes, Body, BodyRef, Chunked, HashBody, HashRef, NewValue, StringBody,
    StringRef, ValueRef, ValueVersion, WideRow,
};
use pando_memory::pool::Pool;
use pando_sync::epoch::Guard;

use super::BlockRef;
use crate::key::{KeyPart, Part};
use crate::layout::{
    BODY_SHORT_MAX, EXTRA_ENCODING, EXTRA_FLAGS, Form, HAS_DEADLINE, HAS_EXTRAS, HEADER_BYTES,
    IS_EXTERNAL, IS_LONG, KEY_SHORT_MAX, META_OFFSET, Shape, deadline_offset, extras_of,
    extras_offset, packed_lengths,
};

/// The body of a block to be built.
enum Source<'d> {
    None,
    New(Body<'d>),
    /// Taken over from the block at this address.
    Moved(*const u8),
}

impl<'g> BlockRef<'g> {
    /// A block of a new value, or of a tombstone when there is none. Costs a copy of key part and
    /// body, of which large forms are moved.
    #[inline]
    pub fn build(
        pool: &mut Pool,
        guard: Guard<'g>,
        version: ValueVersion,
        key: KeyPart<'_>,
        new: Option<NewValue<'_>>,
    ) -> Self {
        if let Part::Inline(key) = key.0
            && let Some(value) = &new
            && let Some((block, _)) = Self::build_short(pool, guard, version, key, value)
        {
            return block;
        }
        Self::build_any(pool, version, key, new)
    }

    /// A block of what most values are, short bytes or a small hash without options, and the value
    /// as its readers see it; `None` for any other value, which is to be [built](Self::build).
    #[inline]
    pub fn build_short(
        pool: &mut Pool,
        _: Guard<'g>,
        version: ValueVersion,
        key: &[u8],
        new: &NewValue<'_>,
    ) -> Option<(Self, ValueRef<'g>)> {
        let (form, bytes): (_, &[u8]) = match &new.body {
            Body::String(StringBody::Flat(bytes)) => (Form::Flat, bytes),
            Body::Hash(HashBody::Packed(row)) => (Form::Packed, row.as_bytes()),
            _ => return None,
        };
        if new.attributes != Attributes::default()
            || key.len() > KEY_SHORT_MAX
            || bytes.len() > BODY_SHORT_MAX
        {
            return None;
        }
        let meta = form as u32 | packed_lengths(key.len(), bytes.len());
        let body_offset = HEADER_BYTES + key.len();
        let block = Writer(pool.allocate(body_offset + bytes.len()));
        block.put(0, version.to_bits());
        block.put(META_OFFSET, with_mark(meta, new.mark));
        block.copy(HEADER_BYTES, key);
        block.copy(body_offset, bytes);
        let block = Self(block.0, PhantomData);
        let bytes = block.slice(body_offset, bytes.len());
        let body = match form {
            Form::Packed => BodyRef::Hash(HashRef::Packed(bytes)),
            _ => BodyRef::String(StringRef::Flat(bytes)),
        };
        let value = ValueRef {
            version,
            attributes: Attributes::default(),
            body,
            mark: AccessMark::of(block.meta_word()),
        };
        Some((block, value))
    }

    #[inline(never)]
    fn build_any(
        pool: &mut Pool,
        version: ValueVersion,
        key: KeyPart<'_>,
        new: Option<NewValue<'_>>,
    ) -> Self {
        let Some(new) = new else {
            let header = (Form::Tombstone, Attributes::default(), 0);
            return Self::assemble(pool, version, header, key, (0, Source::None));
        };
        new.body.check();
        let (form, bytes) = match &new.body {
            Body::String(StringBody::Flat(bytes)) => (Form::Flat, bytes.len()),
            Body::String(StringBody::Chunked(_)) => (Form::Chunked, size_of::<Chunked>()),
            Body::Hash(HashBody::Packed(row)) => (Form::Packed, row.as_bytes().len()),
            Body::Hash(HashBody::Wide(_)) => (Form::Wide, size_of::<WideRow>()),
        };
        let header = (form, new.attributes, new.mark);
        Self::assemble(pool, version, header, key, (bytes, Source::New(new.body)))
    }

    /// The same value under another key part, for an entry that moves between layers. The body is
    /// taken over: this block is to be reclaimed with [`Keep::body`](super::Keep::body).
    #[must_use = "a block that nobody links leaks"]
    pub fn rebuild(self, pool: &mut Pool, key: KeyPart<'_>) -> Self {
        let shape = self.shape();
        let value = self.value();
        let attributes = value.map(|value| value.attributes).unwrap_or_default();
        let mark = value.map_or(0, |value| value.mark.get());
        let body = Source::Moved(self.0.as_ptr().wrapping_add(shape.body_offset));
        let header = (shape.form(), attributes, mark);
        Self::assemble(pool, self.version(), header, key, (shape.body_bytes, body))
    }

    /// The same block at another place that is free, if there is one. Body and key part are taken
    /// over: this block is to be reclaimed with [`Keep`](super::Keep) of both. A mark that a reader
    /// sets meanwhile is lost.
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

    fn assemble(
        pool: &mut Pool,
        version: ValueVersion,
        (form, attributes, mark): (Form, Attributes, u8),
        key: KeyPart<'_>,
        (body_bytes, body): (usize, Source<'_>),
    ) -> Self {
        let mut meta = form as u32;
        if attributes.deadline.is_some() {
            meta |= HAS_DEADLINE;
        }
        let extras = extras_of(&attributes);
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

/// Writes a block that nobody sees yet.
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
            Body::Hash(HashBody::Packed(row)) => self.copy(at, row.as_bytes()),
            Body::Hash(HashBody::Wide(row)) => self.put(at, row),
        }
    }

    fn put_extras(&self, mut at: usize, extras: u8, attributes: &Attributes) {
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
        }
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
        // SAFETY: who builds the block has reserved the place in a block of our own.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }
}
