//! The payload of DUMP and RESTORE: one value in the format of Redis' RDB files, so that values
//! move to and from Redis.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | kind: 0 string; 4 hash, 9 as zipmap, 13 as ziplist, 16 as listpack; others: see [`fields`], [`list`], [`set`], [`sorted`], [`stream`] |
//! | 1 | n | the value |
//! | n + 1 | 2 | version of the RDB format, little-endian |
//! | n + 3 | 8 | CRC-64 of all bytes before it, little-endian |
//!
//! A string is a length and its bytes, or one of four encoded forms ([`rdb`]). A hash of kind 4 is
//! a count and that many names and values, each a string; the other kinds are one string with the
//! whole hash in a packed form. We write what Redis 7.0 writes, in version 10, and hashes whose
//! fields have deadlines as Redis 7.4 does, in version 12. We read every kind up to that version.
//! [`file`] reads files of such values.
//!
//! Invariants:
//! - **DU1 payload-bounded** No payload makes [`decode`] panic, allocate more than a small multiple
//!   of the payload before it has seen the content, or produce more than its bounds allow.
//! - **DU2** A payload that `decode` accepts keeps every promise of the format on which it relies:
//!   lengths inside the payload, links between packed entries, no duplicate field.
//!
//! Deliberately absent: modules (refused clearly).

mod fields;
pub(crate) mod file;
mod list;
mod listpack;
mod lzf;
mod rdb;
mod set;
mod sorted;
mod stream;
mod ziplist;
mod zipmap;

use crc::{CRC_64_REDIS, Crc, Table};
use pando_engine::{Body, BodyRef, FieldsRef, HashDraft, ListRef, RowTag, SortedRef, StreamRef};
use thiserror::Error;

use crate::clock::Milliseconds;
use crate::encoding::{self, Thresholds};
use rdb::Reader;

/// The version of the format that Redis 7.0 writes, and the last that it reads.
const VERSION: u16 = 10;

/// That of Redis 7.4 and 8, for hashes whose fields have deadlines.
const VERSION_MAX: u16 = 12;

/// Bytes of version and checksum.
const FOOTER_BYTES: usize = 10;

/// Bytes of the checksum.
const CHECKSUM_BYTES: usize = 8;

const _: () = assert!(FOOTER_BYTES == CHECKSUM_BYTES + size_of::<u16>());

static CHECKSUM: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

mod kind {
    pub(super) const STRING: u8 = 0;
    pub(super) const LIST: u8 = 1;
    pub(super) const SET: u8 = 2;
    pub(super) const SORTED_TEXT: u8 = 3;
    pub(super) const HASH: u8 = 4;
    pub(super) const SORTED: u8 = 5;
    pub(super) const HASH_ZIPMAP: u8 = 9;
    pub(super) const LIST_ZIPLIST: u8 = 10;
    pub(super) const SET_INTSET: u8 = 11;
    pub(super) const SORTED_ZIPLIST: u8 = 12;
    pub(super) const HASH_ZIPLIST: u8 = 13;
    pub(super) const LIST_ZIPLISTS: u8 = 14;
    pub(super) const HASH_LISTPACK: u8 = 16;
    pub(super) const SORTED_LISTPACK: u8 = 17;
    pub(super) const LIST_NODES: u8 = 18;
    pub(super) const SET_LISTPACK: u8 = 20;
    pub(super) const STREAM: u8 = 15;
    pub(super) const STREAM_COUNTED: u8 = 19;
    pub(super) const STREAM_ACTIVE: u8 = 21;
    /// Hashes whose fields may have deadlines, from version 12 on.
    pub(super) const HASH_METADATA_EARLY: u8 = 22;
    pub(super) const HASH_LISTPACK_EX_EARLY: u8 = 23;
    pub(super) const HASH_METADATA: u8 = 24;
    pub(super) const HASH_LISTPACK_EX: u8 = 25;
}

/// Why a payload is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum PayloadError {
    /// Too short, of a later version, or damaged in transit.
    #[error("version or checksum are wrong")]
    Footer,
    /// The checksum is right but the value is invalid.
    #[error("malformed at byte {offset}")]
    Malformed {
        /// The offset, from the start of the payload or of the string with a packed hash.
        offset: usize,
    },
    /// A value of an unsupported type.
    #[error("holds a {type_name}")]
    Unsupported {
        /// The type's name.
        type_name: &'static str,
    },
    /// A string, a field's name or the whole value is longer than allowed.
    #[error("a part of {bytes} bytes, at most {bytes_max} allowed")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The bound.
        bytes_max: usize,
    },
}

/// Limits on what a payload may unfold to.
#[derive(Clone, Copy, Debug)]
#[allow(
    clippy::struct_field_names,
    reason = "units and bounds come last in every name"
)]
pub(crate) struct Bounds {
    /// Longest string or field value in bytes.
    pub(crate) value_bytes_max: usize,
    /// Longest field name in bytes.
    pub(crate) field_bytes_max: usize,
    /// All strings of the payload together in bytes.
    pub(crate) total_bytes_max: usize,
}

/// The form in which a collection is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// One by one.
    Table,
    /// In one string.
    Packed,
}

impl Form {
    /// The form of a value of this encoding, as OBJECT ENCODING names it.
    pub(crate) fn of_encoding(encoding: &str) -> Self {
        match encoding {
            "listpack" | "listpackex" | "intset" => Self::Packed,
            _ => Self::Table,
        }
    }
}

/// The payload of a value; `form` says how to write it if it is a collection. Fields whose deadline
/// has passed are left out. O(size).
pub(crate) fn encode_at(body: BodyRef<'_>, form: Form, now: Milliseconds) -> Vec<u8> {
    let mut out = Vec::new();
    let mut version = VERSION;
    match (body, form) {
        (BodyRef::String(string), _) => {
            out.push(kind::STRING);
            rdb::write_string(&mut out, &string.to_cow());
        }
        (BodyRef::Row(tag @ (RowTag::Hash | RowTag::TimedHash), row), form) => {
            let hash = FieldsRef::new(tag, row, now);
            if hash.iter().any(|(field, _)| hash.deadline(field).is_some()) {
                version = VERSION_MAX;
                fields::write(&mut out, hash, form);
            } else {
                write_hash(&mut out, hash, form);
            }
        }
        (BodyRef::Row(RowTag::Set, set), form) => {
            out.push(kind::SET_INTSET);
            if form != Form::Packed || !set::write_integers(&mut out, set) {
                out[0] = kind::SET;
                set::write_table(&mut out, set);
            }
        }
        (BodyRef::Row(RowTag::List, row), _) => {
            out.push(kind::LIST_NODES);
            list::write(&mut out, ListRef::new(row));
        }
        (BodyRef::Row(RowTag::SortedSet, row), form) => {
            sorted::write(&mut out, SortedRef::new(row), form);
        }
        (BodyRef::Row(RowTag::Stream, row), _) => {
            out.push(kind::STREAM_COUNTED);
            stream::write(&mut out, StreamRef::new(row));
        }
    }
    seal_as(&mut out, version);
    out
}

/// [`encode_at`] before any deadline.
#[cfg(any(test, fuzzing))]
pub(crate) fn encode(body: BodyRef<'_>, form: Form) -> Vec<u8> {
    encode_at(body, form, Milliseconds(0))
}

fn listpack_of(hash: FieldsRef<'_>) -> Vec<u8> {
    let mut writer = listpack::Writer::new();
    for (field, value) in hash.iter() {
        writer.push(field);
        writer.push(&value.to_cow());
    }
    writer.finish()
}

/// Appends a hash without deadlines, with its kind.
fn write_hash(out: &mut Vec<u8>, hash: FieldsRef<'_>, form: Form) {
    if form == Form::Packed {
        out.push(kind::HASH_LISTPACK);
        return rdb::write_string(out, &listpack_of(hash));
    }
    out.push(kind::HASH);
    rdb::write_length(out, hash.len() as u64);
    for (field, value) in hash.iter() {
        rdb::write_string(out, field);
        rdb::write_string(out, &value.to_cow());
    }
}

/// The checksum of payloads and files.
#[cfg(any(test, fuzzing))]
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    CHECKSUM.checksum(bytes)
}

/// Appends the usual version and the checksum.
#[cfg(any(test, fuzzing))]
pub(crate) fn seal(payload: &mut Vec<u8>) {
    seal_as(payload, VERSION);
}

/// Appends version and checksum.
fn seal_as(payload: &mut Vec<u8>, version: u16) {
    payload.extend_from_slice(&version.to_le_bytes());
    let checksum = CHECKSUM.checksum(payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    debug_assert!(open(payload).is_ok());
}

/// What a payload holds.
#[derive(Debug)]
pub(crate) struct Decoded {
    /// The value.
    pub(crate) body: Body<'static>,
    /// Whether it came in a form that Redis keeps packed however long its strings are.
    pub(crate) packed: bool,
}

/// The value of a payload. O(size of the value).
pub(crate) fn decode(payload: &[u8], bounds: Bounds) -> Result<Decoded, PayloadError> {
    decode_value(open(payload)?, bounds)
}

/// The value of a payload without its footer. O(size of the value).
pub(crate) fn decode_value(value: &[u8], bounds: Bounds) -> Result<Decoded, PayloadError> {
    let mut reader = Reader::new(value, bounds.total_bytes_max);
    let kind = reader.byte()?;
    let body = match kind {
        kind::STRING => {
            let string = reader.string()?;
            check_length(&string, bounds.value_bytes_max)?;
            Body::string_owned(string.into_owned())
        }
        kind::LIST | kind::LIST_ZIPLIST | kind::LIST_ZIPLISTS | kind::LIST_NODES => {
            list::read(&mut reader, bounds, kind)?
        }
        kind::SET => set::read_table(&mut reader, bounds)?,
        kind::SET_INTSET => set::read_integers(&mut reader, bounds)?,
        kind::SET_LISTPACK => set::read_listpack(&mut reader, bounds)?,
        kind::SORTED_TEXT | kind::SORTED => sorted::read_table(&mut reader, bounds, kind)?,
        kind::SORTED_ZIPLIST => sorted::read_packed(&mut reader, bounds, ziplist::elements)?,
        kind::SORTED_LISTPACK => sorted::read_packed(&mut reader, bounds, listpack::elements)?,
        kind::STREAM | kind::STREAM_COUNTED | kind::STREAM_ACTIVE => {
            stream::read(&mut reader, bounds, kind)?
        }
        kind::HASH => table(&mut reader, bounds)?,
        kind::HASH_ZIPMAP => packed(&mut reader, bounds, zipmap::fields)?,
        kind::HASH_ZIPLIST => packed(&mut reader, bounds, ziplist::elements)?,
        kind::HASH_LISTPACK => packed(&mut reader, bounds, listpack::elements)?,
        kind::HASH_METADATA_EARLY | kind::HASH_METADATA => {
            fields::read_table(&mut reader, bounds, kind)?
        }
        kind::HASH_LISTPACK_EX_EARLY | kind::HASH_LISTPACK_EX => {
            fields::read_listpack(&mut reader, bounds, kind)?
        }
        other => return Err(unsupported(other)),
    };
    let packed = matches!(
        kind,
        kind::HASH_ZIPLIST
            | kind::HASH_LISTPACK
            | kind::HASH_LISTPACK_EX_EARLY
            | kind::HASH_LISTPACK_EX
            | kind::SET_INTSET
            | kind::SET_LISTPACK
            | kind::SORTED_ZIPLIST
            | kind::SORTED_LISTPACK
    );
    Ok(Decoded { body, packed })
}

impl Decoded {
    /// What the value records of its history: Redis reads a large hash into a table.
    pub(crate) fn encoding(&self, thresholds: &Thresholds) -> u8 {
        let hash = match self.body.as_ref() {
            BodyRef::Row(tag @ (RowTag::Hash | RowTag::TimedHash), row) => {
                FieldsRef::new(tag, row, Milliseconds(0))
            }
            BodyRef::Row(RowTag::Set, set) => return encoding::of_set(set, thresholds),
            BodyRef::Row(RowTag::SortedSet, row) => {
                let entries = SortedRef::new(row).iter_from_rank(0).enumerate();
                let members = entries.map(|(index, (member, _))| (member, index));
                return encoding::of_sorted(members, thresholds);
            }
            _ => return encoding::DERIVED,
        };
        let converted = hash.len() as u64 > thresholds.hash_max_listpack_entries
            || !self.packed
                && hash
                    .iter()
                    .any(|(field, value)| thresholds.is_long_field(field, value.len()));
        if converted {
            encoding::HASHTABLE
        } else {
            encoding::DERIVED
        }
    }
}

/// Checks version and checksum and returns what comes before them.
fn open(payload: &[u8]) -> Result<&[u8], PayloadError> {
    let (summed, checksum) = payload.split_last_chunk().ok_or(PayloadError::Footer)?;
    let (value, version) = summed.split_last_chunk().ok_or(PayloadError::Footer)?;
    let known = u16::from_le_bytes(*version) <= VERSION_MAX;
    if known && CHECKSUM.checksum(summed) == u64::from_le_bytes(*checksum) {
        Ok(value)
    } else {
        Err(PayloadError::Footer)
    }
}

/// A hash of kind 4.
fn table(reader: &mut Reader<'_>, bounds: Bounds) -> Result<Body<'static>, PayloadError> {
    let count = reader.length()?;
    let mut hash = HashBuilder::new(bounds);
    for _ in 0..count {
        let offset = reader.offset();
        let field = reader.string()?;
        let value = reader.string()?;
        hash.push(&field, &value, offset)?;
    }
    hash.finish(reader.offset())
}

/// A hash packed into one string, whose strings `elements` shows one by one: name, value, name, …
fn packed(
    reader: &mut Reader<'_>,
    bounds: Bounds,
    elements: impl FnOnce(&[u8], &mut dyn FnMut(&[u8]) -> Result<(), PayloadError>) -> Elements,
) -> Result<Body<'static>, PayloadError> {
    let string = reader.string()?;
    let mut hash = HashBuilder::new(bounds);
    let mut name: Option<Vec<u8>> = None;
    let mut shown = 0;
    elements(&string, &mut |element| {
        shown += element.len();
        match name.take() {
            None => {
                name = Some(element.to_vec());
                Ok(())
            }
            Some(field) => hash.push(&field, element, shown),
        }
    })?;
    match name {
        None => hash.finish(string.len()),
        Some(_) => Err(PayloadError::Malformed {
            offset: string.len(),
        }),
    }
}

/// The result of a reader of packed strings.
type Elements = Result<(), PayloadError>;

/// A hash being read; refuses what no valid hash contains (DU2).
struct HashBuilder {
    draft: HashDraft<'static>,
    bounds: Bounds,
}

impl HashBuilder {
    fn new(bounds: Bounds) -> Self {
        Self {
            draft: HashDraft::new(None),
            bounds,
        }
    }

    fn push(&mut self, field: &[u8], value: &[u8], offset: usize) -> Result<(), PayloadError> {
        check_length(field, self.bounds.field_bytes_max)?;
        check_length(value, self.bounds.value_bytes_max)?;
        if self.draft.set(field, value) {
            Ok(())
        } else {
            Err(PayloadError::Malformed { offset })
        }
    }

    fn finish(self, offset: usize) -> Result<Body<'static>, PayloadError> {
        if self.draft.is_empty() {
            Err(PayloadError::Malformed { offset })
        } else {
            Ok(self.draft.finish())
        }
    }
}

fn check_length(string: &[u8], bytes_max: usize) -> Result<(), PayloadError> {
    if string.len() <= bytes_max {
        Ok(())
    } else {
        Err(PayloadError::TooLong {
            bytes: string.len(),
            bytes_max,
        })
    }
}

/// The refusal of a kind that is not read.
fn unsupported(kind: u8) -> PayloadError {
    let refused = type_name(kind).map(|type_name| PayloadError::Unsupported { type_name });
    refused.unwrap_or(PayloadError::Malformed { offset: 0 })
}

/// The type of a kind that is not read.
fn type_name(kind: u8) -> Option<&'static str> {
    Some(match kind {
        6 | 7 => "module's value",
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
