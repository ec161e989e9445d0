//! The layout of a block.

use pando_engine::mark::without_mark;
use pando_engine::{Attributes, Chunked, Deadline, RowTag, WideRow};

/// Bytes of a block without options besides key part and body.
pub const HEADER_BYTES: usize = 12;
pub(crate) const META_OFFSET: usize = 8;
/// What a block stores of an external key part.
pub(crate) const EXTERNAL_POINTER_BYTES: usize = size_of::<*const u8>();

pub(crate) const FORM_MASK: u32 = 0b111;
pub(crate) const HAS_DEADLINE: u32 = 1 << 3;
pub(crate) const HAS_EXTRAS: u32 = 1 << 4;
pub(crate) const IS_LONG: u32 = 1 << 5;
pub(crate) const IS_EXTERNAL: u32 = 1 << 6;
pub(crate) const OPTIONS: u32 = HAS_DEADLINE | HAS_EXTRAS | IS_LONG | IS_EXTERNAL;

/// The first byte of the extras says which others follow, in this order, and in
/// [`EXTRA_ROW_BITS`] the type of a row that is no hash. Its other bits are 0.
pub(crate) const EXTRA_FLAGS: u8 = 1;
pub(crate) const EXTRA_ENCODING: u8 = 1 << 1;
pub(crate) const EXTRA_TOKEN: u8 = 1 << 2;
const EXTRA_ROW_SHIFT: u32 = 3;
const EXTRA_ROW_BITS: u8 = 0b111 << EXTRA_ROW_SHIFT;

const KEY_SHIFT: u32 = 7;
/// Longest key part whose length is in the meta word.
pub(crate) const KEY_SHORT_MAX: usize = 0x7f;
const BODY_SHIFT: u32 = 14;
/// Longest body whose length is in the meta word.
pub(crate) const BODY_SHORT_MAX: usize = 0xfff;

// The lengths overlap neither each other nor the mark.
const _: () = assert!(KEY_SHORT_MAX >> (BODY_SHIFT - KEY_SHIFT) == 0);
const _: () =
    assert!(without_mark(u32::MAX) == (1 << BODY_SHIFT) * (BODY_SHORT_MAX as u32 + 1) - 1);

const BODY_ALIGN: usize = 8;
const _: () = assert!(align_of::<Chunked>() <= BODY_ALIGN && align_of::<WideRow>() <= BODY_ALIGN);

/// The first byte of the extras that these attributes, of a row of this type, need; 0: none.
#[inline]
pub(crate) fn extras_of(attributes: &Attributes, row: RowTag) -> u8 {
    let part = |is_there: bool, bit| if is_there { bit } else { 0 };
    part(row != RowTag::Hash, (row as u8) << EXTRA_ROW_SHIFT)
        | part(attributes.flags != 0, EXTRA_FLAGS)
        | part(attributes.encoding != 0, EXTRA_ENCODING)
        | part(attributes.token.is_some(), EXTRA_TOKEN)
}

/// The type of a row with these extras.
#[inline]
pub(crate) fn row_of(extras: u8) -> RowTag {
    match (extras & EXTRA_ROW_BITS) >> EXTRA_ROW_SHIFT {
        0 => RowTag::Hash,
        number => RowTag::of_number(number).expect("written by `extras_of`"),
    }
}

/// Bytes of these extras, including their first byte.
pub(crate) const fn extras_bytes(extras: u8) -> usize {
    let flags = if extras & EXTRA_FLAGS != 0 { 4 } else { 0 };
    let encoding = if extras & EXTRA_ENCODING != 0 { 1 } else { 0 };
    let token = if extras & EXTRA_TOKEN != 0 { 8 } else { 0 };
    1 + flags + encoding + token
}

/// The meta word's bits for lengths that it holds itself.
#[inline]
pub(crate) const fn packed_lengths(key_bytes: usize, body_bytes: usize) -> u32 {
    (key_bytes as u32) << KEY_SHIFT | (body_bytes as u32) << BODY_SHIFT
}

/// Lengths of key part and body, of a block that is not [`IS_LONG`].
#[inline]
pub(crate) const fn short_lengths(meta: u32) -> (usize, usize) {
    let key_bytes = (meta >> KEY_SHIFT) as usize & KEY_SHORT_MAX;
    (key_bytes, (meta >> BODY_SHIFT) as usize)
}

/// Whether this is a common block: bytes with short lengths, without options.
#[inline]
pub(crate) const fn is_plain(meta: u32) -> bool {
    meta & (OPTIONS | FORM_MASK) == Form::Flat as u32
}

/// Whether this is a small hash with short lengths, without options.
#[inline]
pub(crate) const fn is_packed(meta: u32) -> bool {
    meta & (OPTIONS | FORM_MASK) == Form::Packed as u32
}

/// Whether this is a plain block, or a small hash that is as short and has no options either:
/// nothing but header, key part and bytes.
#[inline]
pub(crate) const fn is_short(meta: u32) -> bool {
    is_flat_with(meta, 0)
}

/// Whether this is such a block but for a deadline: the second most common kind.
#[inline]
pub(crate) const fn is_timed(meta: u32) -> bool {
    is_flat_with(meta, HAS_DEADLINE)
}

/// Whether the body is plain bytes or a small hash, and these the block's options.
#[inline]
const fn is_flat_with(meta: u32, options: u32) -> bool {
    const FLAT: u32 = Form::Flat as u32 & Form::Packed as u32;
    const OTHERS: u32 = FORM_MASK & !(Form::Flat as u32 | Form::Packed as u32);
    meta & (OPTIONS | OTHERS | FLAT) == FLAT | options
}

// No other form is mistaken for one of the two.
const _: () = {
    let mut form = 0;
    while form <= FORM_MASK {
        let flat = form == Form::Flat as u32 || form == Form::Packed as u32;
        assert!(is_short(form) == flat && is_timed(form | HAS_DEADLINE) == flat);
        form += 1;
    }
};

/// The form in which a block holds its value: how the bytes are laid out, not the value's type. A
/// string is flat or chunked and a row packed or wide. A row that is no hash names its type in the
/// extras ([`EXTRA_ROW_BITS`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Tombstone = 0,
    Flat = 1,
    Chunked = 2,
    Packed = 3,
    Wide = 4,
}

impl Form {
    pub(crate) fn of_meta(meta: u32) -> Self {
        match meta & FORM_MASK {
            0 => Self::Tombstone,
            1 => Self::Flat,
            2 => Self::Chunked,
            3 => Self::Packed,
            4 => Self::Wide,
            // Poison reads as 6.
            _ => panic!("a reclaimed or foreign block is being read"),
        }
    }

    pub(crate) fn is_object(self) -> bool {
        matches!(self, Self::Chunked | Self::Wide)
    }
}

/// Offset of the deadline, if there is one.
#[inline]
pub(crate) const fn deadline_offset(meta: u32) -> usize {
    HEADER_BYTES + if meta & IS_LONG != 0 { 8 } else { 0 }
}

/// Offset of the extras, if there are any.
#[inline]
pub(crate) const fn extras_offset(meta: u32) -> usize {
    deadline_offset(meta) + if meta & HAS_DEADLINE != 0 { 8 } else { 0 }
}

/// Offsets of the parts of one block.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Form, options and short lengths.
    pub(crate) meta: u32,
    pub(crate) key_bytes: usize,
    pub(crate) body_bytes: usize,
    pub(crate) key_offset: usize,
    pub(crate) body_offset: usize,
}

impl Shape {
    /// Of a block to be built; `meta` has its form and options, but not the lengths.
    pub(crate) fn new(mut meta: u32, extras: u8, key_bytes: usize, body_bytes: usize) -> Self {
        if key_bytes > KEY_SHORT_MAX || body_bytes > BODY_SHORT_MAX {
            meta |= IS_LONG;
        } else {
            meta |= packed_lengths(key_bytes, body_bytes);
        }
        Self::locate(meta, extras, key_bytes, body_bytes)
    }

    /// Of a block that [`is_timed`].
    #[inline]
    pub(crate) fn of_timed(meta: u32) -> Self {
        let (key_bytes, body_bytes) = short_lengths(meta);
        let key_offset = deadline_offset(0) + size_of::<Deadline>();
        Self {
            meta,
            key_bytes,
            body_bytes,
            key_offset,
            body_offset: key_offset + key_bytes,
        }
    }

    /// `extras` is read only for a block that has some.
    #[inline]
    pub(crate) fn locate(meta: u32, extras: u8, key_bytes: usize, body_bytes: usize) -> Self {
        let mut key_offset = HEADER_BYTES;
        let mut stored_bytes = key_bytes;
        if meta & OPTIONS != 0 {
            key_offset = extras_offset(meta);
            if meta & HAS_EXTRAS != 0 {
                key_offset += extras_bytes(extras);
            }
            if meta & IS_EXTERNAL != 0 {
                stored_bytes = EXTERNAL_POINTER_BYTES;
            }
        }
        let mut body_offset = key_offset + stored_bytes;
        if Form::of_meta(meta).is_object() {
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

    pub(crate) fn bytes(self) -> usize {
        self.body_offset + self.body_bytes
    }

    pub(crate) fn form(self) -> Form {
        Form::of_meta(self.meta)
    }
}
