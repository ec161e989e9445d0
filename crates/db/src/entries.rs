//! Entries of a dump: keys with their values in a portable form. `pando dump` writes a stream of
//! them, KDUMP returns them in portions.
//!
//! | bytes | field |
//! |---|---|
//! | 8 | bytes of the rest |
//! | n | the database, a number |
//! | n | the key, a string |
//! | n | the value, deadline and memcached's attributes included (see `durable::value`) |
//!
//! A portion is what one turn takes from a database. It ends at a [`DumpPosition`], all that the
//! next one needs.

use std::ops::{Bound, ControlFlow};

use pando_engine::limits::KEY_BYTES_MAX;
use pando_engine::{Direction, NewValue, ValueRef, ValueVersion};

use crate::cursors;
use crate::durable::bytes::{Input, Malformed, Sink, malformed};
use crate::durable::record;
use crate::durable::value::{self, ValueView};
use crate::error::CommandError;
use crate::keyspace::{Keys, Keyspace, OrderedKeys, WalkingKeys};
use crate::limits;

/// The version of this form.
pub(crate) const FORMAT: u32 = 1;

/// Bytes of values after which a portion ends.
pub(crate) const PORTION_BYTES: usize = 256 * 1024;

/// Longest entry that is loaded: a hash has no size limit, but memory has.
const ENTRY_BYTES_MAX: u64 = 64 << 30;

const LENGTH_BYTES: usize = 8;

/// Where to continue in a database.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum DumpPosition {
    /// In key order, after this key.
    Behind(Vec<u8>),
    /// At this cursor of the engine; 0 is the beginning on any engine.
    Cursor(u64),
}

impl DumpPosition {
    pub(crate) const START: Self = Self::Cursor(0);

    /// Parses [`Self::text`] of an ordered or unordered engine.
    pub(crate) fn parse(text: &[u8], is_ordered: bool) -> Result<Self, CommandError> {
        match (text, is_ordered) {
            (b"0", _) => Ok(Self::START),
            ([b'(', key @ ..], true) => Ok(Self::Behind(key.into())),
            (cursor, false) => cursors::parse(cursor).map(Self::Cursor),
            _ => Err(CommandError::InvalidCursor),
        }
    }

    /// The position as clients hold it.
    pub(crate) fn text(&self) -> Vec<u8> {
        match self {
            Self::Behind(key) => [b"(", &key[..]].concat(),
            Self::Cursor(cursor) => cursor.to_string().into_bytes(),
        }
    }
}

/// A key and its value, read from the database.
#[derive(Debug)]
pub(crate) struct Taken {
    key: Vec<u8>,
    value: NewValue<'static>,
}

impl Taken {
    /// Appends the entry.
    pub(crate) fn put(&self, out: &mut Vec<u8>, database: usize) {
        let begin = out.len();
        out.extend_from_slice(&[0; LENGTH_BYTES]);
        out.number(database as u64);
        out.string(&self.key);
        value::put_value(out, self.value.view(ValueVersion::from_bits(0)));
        let length = (out.len() - begin - LENGTH_BYTES) as u64;
        out[begin..][..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        debug_assert!(matches!(first(&out[begin..]), Ok(Some(_))));
    }
}

/// The limits of one turn's portion.
#[derive(Debug, Default)]
pub(crate) struct Portion {
    entries: Vec<Taken>,
    bytes: usize,
    /// Entries looked at, or steps of a walk.
    looked: usize,
}

impl IntoIterator for Portion {
    type Item = Taken;
    type IntoIter = std::vec::IntoIter<Taken>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl Portion {
    /// Takes entries that have not expired, from a position; returns where to continue, if there is
    /// more. Large values are handed over, not copied.
    pub(crate) fn take(
        keyspace: &mut Keyspace<'_>,
        from: &DumpPosition,
    ) -> (Self, Option<DumpPosition>) {
        let mut portion = Self::default();
        let next = match keyspace.keys() {
            Keys::Ordered(keys) => portion.take_in_order(keys, from),
            Keys::Walking(keys) => portion.take_by_cursor(keys, from),
        };
        (portion, next)
    }

    fn take_in_order(
        &mut self,
        mut keys: OrderedKeys<'_>,
        from: &DumpPosition,
    ) -> Option<DumpPosition> {
        let from = match from {
            DumpPosition::Behind(key) => Bound::Excluded(&key[..]),
            DumpPosition::Cursor(_) => Bound::Unbounded,
        };
        let mut last = None;
        keys.scan_all(from, Direction::Forward, |key, value| {
            self.looked += 1;
            self.push(key, value);
            if self.is_full() {
                last = Some(DumpPosition::Behind(key.to_vec()));
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        last
    }

    fn take_by_cursor(
        &mut self,
        mut keys: WalkingKeys<'_>,
        from: &DumpPosition,
    ) -> Option<DumpPosition> {
        let mut cursor = match from {
            DumpPosition::Cursor(cursor) => *cursor,
            DumpPosition::Behind(_) => unreachable!("the engine keeps its keys in no order"),
        };
        while !self.is_full() {
            cursor = keys.step(cursor, |key, value| self.push(key, value));
            self.looked += 1;
            if cursor == 0 {
                return None;
            }
        }
        Some(DumpPosition::Cursor(cursor))
    }

    fn push(&mut self, key: &[u8], value: Option<ValueRef<'_>>) {
        let Some(value) = value else {
            return;
        };
        self.bytes += key.len();
        self.bytes += if record::is_small(value) {
            value.heap_bytes()
        } else {
            PORTION_BYTES
        };
        let (key, value) = (key.to_vec(), value.hand_over());
        self.entries.push(Taken { key, value });
    }

    fn is_full(&self) -> bool {
        self.bytes >= PORTION_BYTES
            || self.entries.len() >= limits::SLICE_ENTRIES_MAX
            || self.looked >= limits::SLICE_ENTRIES_MAX
    }
}

/// A parsed entry that is not built yet.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) database: u64,
    pub(crate) key: &'a [u8],
    pub(crate) value: ValueView<'a>,
    /// Bytes of the whole entry.
    pub(crate) bytes: usize,
}

/// The first entry of `bytes`, if it is complete.
pub(crate) fn first(bytes: &[u8]) -> Result<Option<Entry<'_>>, Malformed> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let length = u64::from_le_bytes(*length);
    if length > ENTRY_BYTES_MAX {
        return malformed("an entry is out of bounds");
    }
    let Some(entry) = rest.get(..length as usize) else {
        return Ok(None);
    };
    let mut input = Input(entry);
    Ok(Some(Entry {
        database: input.number()?,
        key: input.string(KEY_BYTES_MAX)?,
        value: value::take_value(&mut input)?,
        bytes: LENGTH_BYTES + length as usize,
    }))
}

/// How many entries these bytes are, each of which can be loaded.
pub(crate) fn count(mut bytes: &[u8]) -> Result<u64, Malformed> {
    let mut count = 0;
    while !bytes.is_empty() {
        let Some(entry) = first(bytes)? else {
            return malformed("it ends in the middle of an entry");
        };
        bytes = &bytes[entry.bytes..];
        count += 1;
    }
    Ok(count)
}
