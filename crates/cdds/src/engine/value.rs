//! How a value lies in its record.
//!
//! | size | field |
//! |---|---|
//! | 8 | its version |
//! | 1 | the form in two bits, and which of the following there are |
//! | 8 | its deadline ([`HAS_DEADLINE`]) |
//! | 8 | memcached's cas token, if a client chose it ([`HAS_TOKEN`]) |
//! | 4 | memcached's flags, but 0 ([`HAS_FLAGS`]) |
//! | 1 | what OBJECT ENCODING remembers, but 0 ([`HAS_ENCODING`]) |
//! | 1 | the type of a row that is no hash ([`HAS_TYPE`]) |
//! | | the content |
//!
//! | form | content |
//! |---|---|
//! | 0 | a string, in one piece whatever its length |
//! | 1 | a packed row |
//! | 2 | a wide row: for each field 4 bytes for the length of its name, 4 for that of its value, both |
//!
//! The access mark lies in the record's header, outside of its checksum.

use std::num::NonZero;

use pando_engine::{
    AccessMark, Attributes, Body, BodyRef, Deadline, FieldsRef, HashDraft, HashRef, NewValue,
    RowTag, StringRef, ValueRef, ValueVersion,
};

use super::Deadlines;
use super::decoded::Rows;

/// Where the form is, behind the version.
const FORM_AT: usize = 8;

const STRING: u8 = 0;
const PACKED: u8 = 1;
const WIDE: u8 = 2;
const FORM: u8 = 3;

const HAS_DEADLINE: u8 = 1 << 2;
const HAS_TOKEN: u8 = 1 << 3;
const HAS_FLAGS: u8 = 1 << 4;
const HAS_ENCODING: u8 = 1 << 5;
const HAS_TYPE: u8 = 1 << 6;

/// Puts a value as it is stored behind what is there. O(size).
pub(super) fn encode(value: &ValueRef<'_>, out: &mut Vec<u8>) {
    let Attributes {
        deadline,
        flags,
        encoding,
        token,
    } = value.attributes;
    let form = match value.body {
        BodyRef::String(_) => STRING,
        BodyRef::Row(_, HashRef::Packed(_)) => PACKED,
        BodyRef::Row(_, HashRef::Wide(_)) => WIDE,
    };
    let row = match value.body {
        BodyRef::String(_) | BodyRef::Row(RowTag::Hash, _) => 0,
        BodyRef::Row(tag, _) => tag as u8,
    };
    let form_at = out.len() + FORM_AT;
    let mut first = [form; FORM_AT + 1];
    first[..FORM_AT].copy_from_slice(&value.version.to_bits().to_le_bytes());
    out.extend_from_slice(&first);
    if let Some(deadline) = deadline {
        push_field((out, form_at), HAS_DEADLINE, &deadline.0.to_le_bytes());
    }
    if let Some(token) = token {
        push_field((out, form_at), HAS_TOKEN, &token.get().to_le_bytes());
    }
    if flags != 0 {
        push_field((out, form_at), HAS_FLAGS, &flags.to_le_bytes());
    }
    if encoding != 0 {
        push_field((out, form_at), HAS_ENCODING, &[encoding]);
    }
    if row != 0 {
        push_field((out, form_at), HAS_TYPE, &[row]);
    }
    match value.body {
        BodyRef::String(string) => push_all(out, string),
        BodyRef::Row(_, HashRef::Packed(block)) => out.extend_from_slice(block),
        BodyRef::Row(_, hash) => {
            for (field, value) in hash.iter() {
                for bytes in [field.len(), value.len()] {
                    out.extend_from_slice(&(bytes as u32).to_le_bytes());
                }
                out.extend_from_slice(field);
                push_all(out, value);
            }
        }
    }
}

fn push_field((out, form_at): (&mut Vec<u8>, usize), has: u8, field: &[u8]) {
    out[form_at] |= has;
    out.extend_from_slice(field);
}

fn push_all(out: &mut Vec<u8>, string: StringRef<'_>) {
    string.for_each_piece(0..string.len(), |piece| out.extend_from_slice(piece));
}

/// The version of a stored value.
#[inline]
pub(super) fn version_of(stored: &[u8]) -> ValueVersion {
    ValueVersion::from_bits(word(stored, 0))
}

/// The deadline of a stored value.
pub(super) fn deadline_of(stored: &[u8]) -> Option<Deadline> {
    let has_one = stored[FORM_AT] & HAS_DEADLINE != 0;
    has_one.then(|| Deadline(word(stored, FORM_AT + 1)))
}

/// Whether it is a wide row.
#[inline]
pub(super) fn is_wide(stored: &[u8]) -> bool {
    stored[FORM_AT] & FORM == WIDE
}

/// The deadlines of a stored value that are listed.
#[inline]
pub(super) fn deadlines_of(stored: &[u8]) -> Deadlines {
    let (has, mut content) = (stored[FORM_AT], &stored[FORM_AT + 1..]);
    if has & (HAS_DEADLINE | HAS_TYPE) == 0 {
        return Deadlines::default();
    }
    let (attributes, row) = read_fields(has, &mut content);
    let of_field = if row == RowTag::TimedHash as u8 {
        first_deadline(has & FORM, content)
    } else {
        None
    };
    Deadlines {
        of_key: attributes.deadline,
        of_field,
    }
}

#[cold]
fn first_deadline(form: u8, content: &[u8]) -> Option<Deadline> {
    if form == PACKED {
        return FieldsRef::first_deadline(RowTag::TimedHash, HashRef::Packed(content));
    }
    let (lengths, rest) = content.split_first_chunk::<8>()?;
    let name = u64::from_le_bytes(*lengths) & 0xffff_ffff;
    FieldsRef::deadline_in(&rest[..name as usize])
}

/// Those of a value that is to be stored.
#[inline]
pub(super) fn deadlines_in(value: &NewValue<'_>) -> Deadlines {
    let of_field = match value.body.as_ref() {
        BodyRef::Row(tag, row) => FieldsRef::first_deadline(tag, row),
        BodyRef::String(_) => None,
    };
    Deadlines {
        of_key: value.attributes.deadline,
        of_field,
    }
}

#[inline]
fn word(stored: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(stored[at..at + 8].try_into().expect("eight bytes"))
}

/// Shows the stored value of a place to `read`. O(1), and O(size) for a wide row that is not kept.
#[inline]
pub(super) fn show<R>(
    (rows, place): (Rows<'_>, &[u8]),
    stored: &[u8],
    mark: AccessMark<'_>,
    read: impl FnOnce(ValueRef<'_>) -> R,
) -> R {
    let (has, mut content) = (stored[FORM_AT], &stored[FORM_AT + 1..]);
    let (attributes, row) = if has & !FORM == 0 {
        (Attributes::default(), 0)
    } else {
        read_fields(has, &mut content)
    };
    let wide;
    let tag = RowTag::of_number(row).unwrap_or(RowTag::Hash);
    let body = match has & FORM {
        STRING => BodyRef::String(StringRef::Flat(content)),
        PACKED => BodyRef::Row(tag, HashRef::Packed(content)),
        _ => {
            wide = rows.row(place, version_of(stored), || row_of(tag, content));
            Body::as_ref(&wide)
        }
    };
    read(ValueRef {
        version: version_of(stored),
        attributes,
        body,
        mark,
    })
}

/// What lies between the form and the content, and is there: attributes and the type of a row.
fn read_fields(has: u8, rest: &mut &[u8]) -> (Attributes, u8) {
    let mut field = |flag: u8, bytes: usize| {
        let (field, behind) = rest.split_at(if has & flag == 0 { 0 } else { bytes });
        *rest = behind;
        let mut word = [0; 8];
        word[..field.len()].copy_from_slice(field);
        u64::from_le_bytes(word)
    };
    let deadline = field(HAS_DEADLINE, 8);
    let attributes = Attributes {
        deadline: (has & HAS_DEADLINE != 0).then_some(Deadline(deadline)),
        token: NonZero::new(field(HAS_TOKEN, 8)),
        flags: field(HAS_FLAGS, 4) as u32,
        encoding: field(HAS_ENCODING, 1) as u8,
    };
    (attributes, field(HAS_TYPE, 1) as u8)
}

/// The row that these fields make.
fn row_of(tag: RowTag, mut content: &[u8]) -> Body<'static> {
    let mut draft = HashDraft::new_as(tag, None);
    while let Some((lengths, rest)) = content.split_first_chunk::<8>() {
        let lengths = u64::from_le_bytes(*lengths);
        let (field, rest) = rest.split_at((lengths & 0xffff_ffff) as usize);
        let (value, rest) = rest.split_at((lengths >> 32) as usize);
        draft.set(field, value);
        content = rest;
    }
    draft.finish_as(tag)
}
