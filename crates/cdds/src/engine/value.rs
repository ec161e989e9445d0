//! How a value lies in its record.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | its version |
//! | 8 | 8 | its deadline, if it has one |
//! | 16 | 8 | memcached's cas token, if a client chose it, else 0 |
//! | 24 | 4 | memcached's flags |
//! | 28 | 1 | the form |
//! | 29 | 1 | what OBJECT ENCODING remembers |
//! | 30 | 1 | whether it has a deadline |
//! | 31 | 1 | the type of a row that is no hash, else 0 |
//! | 32 | | the content |
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

const HEADER_BYTES: usize = 32;

const STRING: u8 = 0;
const PACKED: u8 = 1;
const WIDE: u8 = 2;

/// A value as it is stored. O(size).
pub(super) fn encode(value: &ValueRef<'_>) -> Vec<u8> {
    let Attributes {
        deadline,
        flags,
        encoding,
        token,
    } = value.attributes;
    let mut out = Vec::with_capacity(HEADER_BYTES + 64);
    out.extend_from_slice(&value.version.to_bits().to_le_bytes());
    let until = deadline.map_or(0, |deadline| deadline.0);
    out.extend_from_slice(&until.to_le_bytes());
    out.extend_from_slice(&token.map_or(0, NonZero::get).to_le_bytes());
    out.extend_from_slice(&flags.to_le_bytes());
    let form = match value.body {
        BodyRef::String(_) => STRING,
        BodyRef::Row(_, HashRef::Packed(_)) => PACKED,
        BodyRef::Row(_, HashRef::Wide(_)) => WIDE,
    };
    let row = match value.body {
        BodyRef::String(_) | BodyRef::Row(RowTag::Hash, _) => 0,
        BodyRef::Row(tag, _) => tag as u8,
    };
    out.extend_from_slice(&[form, encoding, deadline.is_some().into(), row]);
    match value.body {
        BodyRef::String(string) => push_all(&mut out, string),
        BodyRef::Row(_, HashRef::Packed(block)) => out.extend_from_slice(block),
        BodyRef::Row(_, hash) => {
            for (field, value) in hash.iter() {
                for bytes in [field.len(), value.len()] {
                    out.extend_from_slice(&(bytes as u32).to_le_bytes());
                }
                out.extend_from_slice(field);
                push_all(&mut out, value);
            }
        }
    }
    out
}

fn push_all(out: &mut Vec<u8>, string: StringRef<'_>) {
    string.for_each_piece(0..string.len(), |piece| out.extend_from_slice(piece));
}

/// The version of a stored value.
pub(super) fn version_of(stored: &[u8]) -> ValueVersion {
    ValueVersion::from_bits(word(stored, 0))
}

/// The deadline of a stored value.
pub(super) fn deadline_of(stored: &[u8]) -> Option<Deadline> {
    (stored[30] != 0).then(|| Deadline(word(stored, 8)))
}

/// The deadlines of a stored value that are listed.
pub(super) fn deadlines_of(stored: &[u8]) -> Deadlines {
    let of_field = if stored[31] == RowTag::TimedHash as u8 {
        first_deadline(stored[28], &stored[HEADER_BYTES..])
    } else {
        None
    };
    Deadlines {
        of_key: deadline_of(stored),
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

fn word(stored: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(stored[at..at + 8].try_into().expect("eight bytes"))
}

/// Shows a stored value to `read`. O(1), and O(size) for a large hash.
pub(super) fn show<R>(
    stored: &[u8],
    mark: AccessMark<'_>,
    read: impl FnOnce(ValueRef<'_>) -> R,
) -> R {
    let attributes = Attributes {
        deadline: deadline_of(stored),
        flags: u32::from_le_bytes(stored[24..28].try_into().expect("four bytes")),
        encoding: stored[29],
        token: NonZero::new(word(stored, 16)),
    };
    let content = &stored[HEADER_BYTES..];
    let wide;
    let tag = RowTag::of_number(stored[31]).unwrap_or(RowTag::Hash);
    let body = match stored[28] {
        STRING => BodyRef::String(StringRef::Flat(content)),
        PACKED => BodyRef::Row(tag, HashRef::Packed(content)),
        _ => {
            wide = row_of(tag, content);
            wide.as_ref()
        }
    };
    read(ValueRef {
        version: version_of(stored),
        attributes,
        body,
        mark,
    })
}

/// The row that these fields make.
fn row_of(tag: RowTag, mut content: &[u8]) -> Body<'static> {
    let mut draft = HashDraft::new(None);
    while let Some((lengths, rest)) = content.split_first_chunk::<8>() {
        let lengths = u64::from_le_bytes(*lengths);
        let (field, rest) = rest.split_at((lengths & 0xffff_ffff) as usize);
        let (value, rest) = rest.split_at((lengths >> 32) as usize);
        draft.set(field, value);
        content = rest;
    }
    draft.finish_as(tag)
}
