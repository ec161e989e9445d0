//! Values as records, checkpoints and dumps store them.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | bits 0 to 2 the type tag, 3 *listed*; 4 a deadline, 5 flags, 6 an encoding, 7 *more* follow |
//! | 8 | the deadline, if any |
//! | 4 | the flags, if any |
//! | 1 | the encoding, if any |
//! | 1 | if there is *more*: bit 0 a cas token follows; the others are 0 |
//! | 8 | the cas token, if any; not 0 |
//! | n | the body |
//!
//! The body of a string is its bytes, length first; *listed* (large ones), its length and its
//! *pieces*, so that holes cost nothing. The body of a row of any type is its packed block (see the
//! engine crate's `row`), length first; *listed*, its *fields* in order. A change is always listed.
//!
//! Pieces, in order: length (not 0), bytes of zeros or of unchanged content since the last piece,
//! the bytes; a 0 ends them. Fields, in order: 1 and name and value; 2, name, length and pieces of
//! a large value; 3 and name of a removed field (in a change only); a 0 ends them. Of a large
//! sorted set, the columns of one order stand for those of both.
//!
//! Invariant:
//! - **DV1** A parsed value is safe to build: lengths are within the engine's bounds, pieces within
//!   their string, names in strict order.

use std::num::NonZero;

use pando_engine::limits::{COLUMN_BYTES_MAX, FIELD_BYTES_MAX, PACKED_ROW_BYTES_MAX};
use pando_engine::{
    Attributes, Body, BodyRef, Chunked, Deadline, FieldsRef, HashBody, HashDraft, HashRef, ListRef,
    NewValue, PackedRow, RowTag, SortedDraft, SortedRef, StreamRef, StringBody, StringRef, TypeTag,
    ValueRef,
};

use super::bytes::{Input, Malformed, Sink, malformed};

const TAG_MASK: u8 = 0b111;
const LISTED: u8 = 1 << 3;
const HAS_DEADLINE: u8 = 1 << 4;
const HAS_FLAGS: u8 = 1 << 5;
const HAS_ENCODING: u8 = 1 << 6;
const HAS_MORE: u8 = 1 << 7;

/// In the byte of what there is *more*.
const HAS_TOKEN: u8 = 1;

const END: u8 = 0;
const SET: u8 = 1;
const SET_LARGE: u8 = 2;
const GONE: u8 = 3;

/// A value, or a change of one, that was parsed and not yet built (DV1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueView<'a> {
    pub(crate) attributes: Attributes,
    pub(crate) content: Content<'a>,
}

/// The content of a [`ValueView`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content<'a> {
    /// A string.
    Flat(&'a [u8]),
    /// A string of this length, its pieces parsed.
    Pieces(usize, Input<'a>),
    /// The block of a packed row.
    Packed(RowTag, &'a [u8]),
    /// Fields of a row, parsed.
    Fields(RowTag, Input<'a>),
    /// In a change: unchanged.
    Same(TypeTag),
}

#[inline]
pub(super) fn put_attributes(
    out: &mut impl Sink,
    tag: TypeTag,
    listed: bool,
    attributes: Attributes,
) {
    let mut meta = tag as u8;
    meta |= if listed { LISTED } else { 0 };
    if attributes == Attributes::default() {
        out.put(&[meta]);
    } else {
        put_some_attributes(out, meta, attributes);
    }
}

fn put_some_attributes(out: &mut impl Sink, mut meta: u8, attributes: Attributes) {
    meta |= attributes.deadline.map_or(0, |_| HAS_DEADLINE);
    meta |= if attributes.flags == 0 { 0 } else { HAS_FLAGS };
    meta |= if attributes.encoding == 0 {
        0
    } else {
        HAS_ENCODING
    };
    meta |= attributes.token.map_or(0, |_| HAS_MORE);
    out.put(&[meta]);
    if let Some(deadline) = attributes.deadline {
        out.put(&deadline.0.to_le_bytes());
    }
    if attributes.flags != 0 {
        out.put(&attributes.flags.to_le_bytes());
    }
    if attributes.encoding != 0 {
        out.put(&[attributes.encoding]);
    }
    if let Some(token) = attributes.token {
        out.put(&[HAS_TOKEN]);
        out.put(&token.get().to_le_bytes());
    }
}

/// Writes a whole value.
#[inline]
pub(crate) fn put_value(out: &mut impl Sink, value: ValueRef<'_>) {
    let attributes = |out: &mut _, listed| {
        put_attributes(out, value.tag(), listed, value.attributes);
    };
    match value.body {
        BodyRef::String(StringRef::Flat(bytes)) => {
            attributes(out, false);
            out.string(bytes);
        }
        BodyRef::String(string @ StringRef::Chunked(column)) => {
            attributes(out, true);
            put_pieces(out, string, |visit| {
                column.changed_since(&Chunked::empty(), &mut |range| visit(range));
            });
        }
        BodyRef::Row(_, HashRef::Packed(block)) => {
            attributes(out, false);
            out.string(block);
        }
        BodyRef::Row(_, row @ HashRef::Wide(_)) => {
            attributes(out, true);
            let follows = columns_that_follow(value.body);
            for (field, value) in row.iter().filter(|(field, _)| !follows(field)) {
                put_field(out, field, Some(value));
            }
            out.put(&[END]);
        }
    }
}

/// Which columns of a value are not written, since the value is built without them: those of the
/// second order of a sorted set that has both.
pub(crate) fn columns_that_follow(body: BodyRef<'_>) -> impl Fn(&[u8]) -> bool {
    let set = match body {
        BodyRef::Row(RowTag::SortedSet, row) => Some(SortedRef::new(row)),
        _ => None,
    };
    move |column| set.is_some_and(|set| set.follows(column))
}

/// Writes the length of a string and those of its bytes that `ranges` shows, in order.
pub(super) fn put_pieces(
    out: &mut impl Sink,
    string: StringRef<'_>,
    ranges: impl FnOnce(&mut dyn FnMut(std::ops::Range<usize>)),
) {
    out.number(string.len() as u64);
    let mut position = 0;
    ranges(&mut |range| {
        out.number(range.len() as u64);
        out.number((range.start - position) as u64);
        position = range.end;
        string.for_each_piece(range, |piece| out.put(piece));
    });
    out.number(0);
}

/// Writes one field of a list; `None` is a removed one.
pub(super) fn put_field(out: &mut impl Sink, field: &[u8], value: Option<StringRef<'_>>) {
    match value {
        None => {
            out.put(&[GONE]);
            out.string(field);
        }
        Some(StringRef::Flat(bytes)) => {
            out.put(&[SET]);
            out.string(field);
            out.string(bytes);
        }
        Some(string @ StringRef::Chunked(column)) => {
            out.put(&[SET_LARGE]);
            out.string(field);
            put_pieces(out, string, |visit| {
                column.changed_since(&Chunked::empty(), &mut |range| visit(range));
            });
        }
    }
}

/// Ends a list of fields.
pub(super) fn end_fields(out: &mut impl Sink) {
    out.put(&[END]);
}

/// Parses a whole value.
#[inline]
pub(crate) fn take_value<'a>(input: &mut Input<'a>) -> Result<ValueView<'a>, Malformed> {
    // Most are short strings without attributes.
    if let Some((&meta, rest)) = input.0.split_first()
        && meta == TypeTag::String as u8
    {
        input.0 = rest;
        return Ok(ValueView {
            attributes: Attributes::default(),
            content: Content::Flat(input.string(COLUMN_BYTES_MAX)?),
        });
    }
    take_any_value(input)
}

fn take_any_value<'a>(input: &mut Input<'a>) -> Result<ValueView<'a>, Malformed> {
    let (attributes, tag, listed) = take_attributes(input)?;
    let content = match (tag, listed) {
        (Type::String, false) => Content::Flat(input.string(COLUMN_BYTES_MAX)?),
        (Type::Row(tag), false) => Content::Packed(tag, input.string(PACKED_ROW_BYTES_MAX)?),
        (Type::String, true) => take_pieces(input)?,
        (Type::Row(tag), true) => take_fields(input, tag, false)?,
    };
    Ok(ValueView {
        attributes,
        content,
    })
}

/// Parses a change of a value.
pub(super) fn take_change<'a>(input: &mut Input<'a>) -> Result<ValueView<'a>, Malformed> {
    let (attributes, tag, listed) = take_attributes(input)?;
    let content = match (tag, listed) {
        (Type::String, false) => Content::Same(TypeTag::String),
        (Type::Row(tag), false) => Content::Same(tag.tag()),
        (Type::String, true) => take_pieces(input)?,
        (Type::Row(tag), true) => take_fields(input, tag, true)?,
    };
    Ok(ValueView {
        attributes,
        content,
    })
}

/// A type as it was read.
enum Type {
    String,
    Row(RowTag),
}

fn take_attributes(input: &mut Input<'_>) -> Result<(Attributes, Type, bool), Malformed> {
    let meta = input.byte()?;
    let number = meta & TAG_MASK;
    let tag = match RowTag::of_number(number) {
        Some(tag) => Type::Row(tag),
        None if number == TypeTag::String as u8 => Type::String,
        None => return malformed("a value has a type that this version does not know"),
    };
    let mut attributes = Attributes::default();
    if meta & HAS_DEADLINE != 0 {
        attributes.deadline = Some(Deadline(input.fixed()?));
    }
    if meta & HAS_FLAGS != 0 {
        attributes.flags = input.fixed_short()?;
    }
    if meta & HAS_ENCODING != 0 {
        attributes.encoding = input.byte()?;
    }
    if meta & HAS_MORE != 0 {
        if input.byte()? != HAS_TOKEN {
            return malformed("a value has attributes that this version does not know");
        }
        attributes.token = match NonZero::new(input.fixed()?) {
            Some(token) => Some(token),
            None => return malformed("a cas token is 0"),
        };
    }
    Ok((attributes, tag, meta & LISTED != 0))
}

fn take_pieces<'a>(input: &mut Input<'a>) -> Result<Content<'a>, Malformed> {
    let length = input.length(COLUMN_BYTES_MAX)?;
    let before = *input;
    let mut rest = length;
    while let bytes @ 1.. = input.length(rest)? {
        let gap = input.length(rest - bytes)?;
        input.take(bytes)?;
        rest -= gap + bytes;
    }
    Ok(Content::Pieces(length, Input(input.since(before))))
}

fn take_fields<'a>(
    input: &mut Input<'a>,
    tag: RowTag,
    change: bool,
) -> Result<Content<'a>, Malformed> {
    let before = *input;
    let mut last: Option<&[u8]> = None;
    loop {
        let kind = input.byte()?;
        if kind == END {
            break;
        }
        let field = input.string(FIELD_BYTES_MAX)?;
        if last.is_some_and(|last| last >= field) {
            return malformed("fields are out of order");
        }
        if tag == RowTag::List && !ListRef::is_name(field) {
            return malformed("a list has no such column");
        }
        last = Some(field);
        let is_sorted = tag == RowTag::SortedSet;
        let is_stream = tag == RowTag::Stream;
        match kind {
            SET => {
                let value = input.string(COLUMN_BYTES_MAX)?;
                if is_sorted && !SortedRef::is_column(field, value) {
                    return malformed("a sorted set has another column");
                }
                if tag == RowTag::List && !ListRef::is_column(field, Some(value)) {
                    return malformed("a list has another column");
                }
                if tag == RowTag::TimedHash && !FieldsRef::is_column(field, value) {
                    return malformed("a hash with deadlines has another column");
                }
                if is_stream && !StreamRef::is_column(field, value) {
                    return malformed("a stream has another column");
                }
            }
            SET_LARGE if is_stream && !StreamRef::is_large_column(field) => {
                return malformed("a stream has another large column");
            }
            SET_LARGE if tag == RowTag::List && !ListRef::is_column(field, None) => {
                return malformed("a list has another large column");
            }
            SET_LARGE if !is_sorted => {
                take_pieces(input)?;
            }
            GONE if is_stream && !StreamRef::is_name(field) => {
                return malformed("a stream has no such column");
            }
            GONE if change && (!is_sorted || SortedDraft::is_name(field)) => {}
            _ => return malformed("a field has a kind that this version does not know"),
        }
    }
    if last.is_none() {
        return malformed("a list of fields is empty");
    }
    Ok(Content::Fields(tag, Input(input.since(before))))
}

const PARSED: &str = "it was parsed (DV1)";

/// Writes parsed pieces into a column.
fn fill(mut column: Chunked, length: usize, mut pieces: Input<'_>) -> Chunked {
    let mut position = 0;
    while let bytes @ 1.. = pieces.length(length).expect(PARSED) {
        position += pieces.length(length).expect(PARSED);
        column = column.with_write(position, pieces.take(bytes).expect(PARSED));
        position += bytes;
    }
    // After the last piece the content is zeros, or unchanged.
    column.with_write(length.max(column.len()), &[])
}

fn large(length: usize, pieces: Input<'_>) -> StringBody<'static> {
    let column = fill(Chunked::empty(), length, pieces);
    if length > pando_engine::limits::COLUMN_FLAT_BYTES_MAX {
        StringBody::Chunked(column)
    } else {
        StringBody::owned(StringRef::Chunked(&column).to_cow().into_owned())
    }
}

/// Applies parsed changes to a draft.
fn change_fields<'o>(mut draft: HashDraft<'o>, mut fields: Input<'_>) -> HashDraft<'o> {
    loop {
        let kind = fields.byte().expect(PARSED);
        if kind == END {
            return draft;
        }
        let field = fields.string(FIELD_BYTES_MAX).expect(PARSED);
        match kind {
            SET => {
                draft.set(field, fields.string(COLUMN_BYTES_MAX).expect(PARSED));
            }
            SET_LARGE => {
                let Ok(Content::Pieces(length, pieces)) = take_pieces(&mut fields) else {
                    unreachable!("{PARSED}")
                };
                draft.set_body(field, large(length, pieces));
            }
            _ => {
                draft.remove(field);
            }
        }
    }
}

/// Applies parsed changes to the draft of a sorted set, whatever its form.
fn change_sorted<'o>(mut draft: SortedDraft<'o>, mut columns: Input<'_>) -> SortedDraft<'o> {
    loop {
        let kind = columns.byte().expect(PARSED);
        if kind == END {
            return draft;
        }
        let name = columns.string(FIELD_BYTES_MAX).expect(PARSED);
        let value = match kind {
            SET => Some(columns.string(COLUMN_BYTES_MAX).expect(PARSED)),
            _ => None,
        };
        draft.repeat(name, value);
    }
}

/// Whether a row of this type may have this content.
fn is_sound(tag: RowTag, row: &PackedRow) -> bool {
    let row = HashRef::Packed(row.as_bytes());
    match tag {
        RowTag::List => ListRef::is_sound(row),
        RowTag::SortedSet => SortedRef::is_sound(row),
        RowTag::TimedHash => FieldsRef::is_sound(row),
        RowTag::Stream => StreamRef::is_sound(row),
        RowTag::Hash | RowTag::Set => true,
    }
}

impl<'a> ValueView<'a> {
    /// Builds a whole value.
    pub(crate) fn build(self) -> Result<NewValue<'a>, Malformed> {
        let body = match self.content {
            Content::Flat(bytes) => Body::string(bytes),
            Content::Pieces(length, pieces) => large(length, pieces).into(),
            Content::Packed(tag, block) => match PackedRow::checked(block) {
                Some(row) if is_sound(tag, &row) => Body::Row(tag, HashBody::Packed(row)),
                _ => return malformed("the block of a row is broken"),
            },
            Content::Fields(RowTag::SortedSet, fields) => {
                change_sorted(SortedDraft::new(None), fields).finish()
            }
            Content::Fields(tag, fields) => {
                change_fields(HashDraft::new_as(tag, None), fields).finish_as(tag)
            }
            Content::Same(_) => return malformed("a value has no content"),
        };
        Ok(NewValue::new(body).with(self.attributes))
    }

    /// Builds the result of this change to `old`.
    pub(crate) fn apply(self, old: ValueRef<'_>) -> Result<NewValue<'static>, Malformed> {
        let other_type = "a change is of another type than the value";
        let body = match (self.content, old.body) {
            (Content::Same(tag), _) if tag == old.tag() => old.hand_over().body,
            (Content::Pieces(length, pieces), BodyRef::String(string)) => {
                if length < string.len() {
                    return malformed("a change makes a string shorter");
                }
                let column = match string {
                    StringRef::Flat(bytes) => Chunked::from_bytes(bytes),
                    StringRef::Chunked(column) => column.hand_over(),
                };
                let column = fill(column, length, pieces);
                match string {
                    StringRef::Flat(_) if length <= pando_engine::limits::COLUMN_FLAT_BYTES_MAX => {
                        Body::string_owned(StringRef::Chunked(&column).to_cow().into_owned())
                    }
                    _ => Body::from(column),
                }
            }
            (Content::Fields(RowTag::SortedSet, fields), BodyRef::Row(RowTag::SortedSet, row)) => {
                let draft = SortedDraft::new(Some(SortedRef::new(row)));
                let draft = change_sorted(draft, fields);
                if draft.is_empty() {
                    return malformed("a change leaves no member");
                }
                draft.finish()
            }
            (Content::Fields(tag, fields), BodyRef::Row(was, row)) if tag == was => {
                let draft = change_fields(HashDraft::new_as(tag, Some(row)), fields);
                if draft.is_empty() {
                    return malformed("a change leaves no field");
                }
                draft.finish_as(tag)
            }
            _ => return malformed(other_type),
        };
        Ok(NewValue::new(body).with(self.attributes))
    }
}
