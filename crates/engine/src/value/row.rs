//! Small hashes, and the leaves of large ones: all fields and values in one block, sorted by field.
//!
//! All numbers are little-endian; `w` is 4 when bit 15 of the header is set, else 2.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 2 | header: bits 0 to 14 the number of fields, bit 15 whether offsets take 4 bytes |
//! | 2 | 2·w per field | end of the field's name, then end of its value |
//! | after these | | names and values: name 0, value 0, name 1, value 1, … |
//!
//! Ends count from the start of the names and values. The top bit of a value's end says that the
//! value is out of line: none of it is in the block (leaves of wide rows only).
//!
//! Invariants:
//! - **DP1** Names strictly increase, so a field is found by binary search over the ends.
//! - **DP2 short-offsets** Offsets take 4 bytes only when names and values exceed
//!   [`SHORT_DATA_BYTES_MAX`], so equal contents have equal bytes.
//! - **DP3 packed-bound** The block of a packed hash is at most [`PACKED_ROW_BYTES_MAX`] long and
//!   holds every value in line.
//!
//! Deliberately absent: changes in place of data a reader can see. A draft copies the block once,
//! or a leaf's, and changes its copy; a leaf with large columns is assembled from parts of its
//! predecessor. Neither is changed after that, so readers need no protection.

mod change;
mod name;
mod pack;
mod search;

use std::cell::Cell as StdCell;
use std::cmp::Ordering;
use std::ops::Range;

pub(super) use change::{add_to, remove_from, set_in};
use change::{is_complete, move_ends};
pub(super) use name::Name;
pub(super) use pack::pack;
use search::{common_bytes, find};

use crate::limits::{COLUMN_FLAT_BYTES_MAX, FIELD_BYTES_MAX, PACKED_ROW_BYTES_MAX};

const HEADER_BYTES: usize = 2;
const COUNT_MAX: usize = 0x7fff;
const LONG_OFFSETS: u16 = 0x8000;
const SHORT_OFFSET_BYTES: usize = 2;
const LONG_OFFSET_BYTES: usize = 4;
/// The two short ends of a field.
const END_BYTES: usize = 2 * SHORT_OFFSET_BYTES;
const SHORT_OUT_OF_LINE: u16 = 0x8000;
const LONG_OUT_OF_LINE: u32 = 0x8000_0000;

/// Most bytes of names and values that 2-byte offsets reach.
const SHORT_DATA_BYTES_MAX: usize = (SHORT_OUT_OF_LINE - 1) as usize;

/// Upper bound of the bytes a new field takes in a block with short offsets besides its name and
/// value.
pub(super) const FIELD_ROOM_BYTES: usize = 16;

/// The block of a row without fields.
pub(super) const EMPTY: &[u8; HEADER_BYTES] = &[0, 0];

// A field takes at least its two offsets, so a packed row cannot have more fields than the header
// counts.
const _: () = assert!(PACKED_ROW_BYTES_MAX / (2 * SHORT_OFFSET_BYTES) <= COUNT_MAX);
const _: () = assert!(PACKED_ROW_BYTES_MAX <= SHORT_DATA_BYTES_MAX);
// The largest leaf of a wide row is one field of the greatest length beside a leaf's usual content.
const _: () = assert!(
    FIELD_BYTES_MAX + 2 * COLUMN_FLAT_BYTES_MAX + PACKED_ROW_BYTES_MAX < LONG_OUT_OF_LINE as usize
);

/// Most bytes of a buffer that is kept: a row's, plus space for a field.
const SPARE_BYTES_MAX: usize = 2 * PACKED_ROW_BYTES_MAX;

thread_local! {
    /// The buffer of the last dropped row. Most rows are built, copied into an engine's block and
    /// dropped, and the next one is about as large.
    static SPARE: StdCell<Vec<u8>> = const { StdCell::new(Vec::new()) };
}

/// See [`GUESSES`].
const GUESS_BITS: u32 = 8;

thread_local! {
    /// Where names that were looked for last were found in a row, by the names and the row's number
    /// of fields. These are hints; each is checked before use. Rows of one kind have the same
    /// fields.
    static GUESSES: [StdCell<u16>; 1 << GUESS_BITS] =
        const { [const { StdCell::new(0) }; 1 << GUESS_BITS] };
}

/// An empty buffer with room for `bytes` bytes.
pub(super) fn spare(bytes: usize) -> Vec<u8> {
    let mut buffer = SPARE.take();
    buffer.clear();
    buffer.reserve(bytes);
    buffer
}

/// A small hash in its stored form.
#[derive(Debug)]
pub struct PackedRow(Vec<u8>);

impl Drop for PackedRow {
    #[inline]
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.0);
        if (1..=SPARE_BYTES_MAX).contains(&buffer.capacity()) {
            // A thread that is ending may no longer have the thread local.
            let _ = SPARE.try_with(|spare| spare.set(buffer));
        }
    }
}

impl PackedRow {
    /// Wraps a block (DP1, DP2, DP3).
    pub(super) fn new(block: Vec<u8>) -> Self {
        debug_assert!(block.len() <= PACKED_ROW_BYTES_MAX);
        Self(block)
    }

    /// Takes a block with arbitrary content, such as one from disk: `None` if it breaks an
    /// invariant or has no fields. O(bytes).
    #[must_use]
    pub fn checked(block: &[u8]) -> Option<Self> {
        let header = u16::from_le_bytes(*block.first_chunk()?);
        let count = usize::from(header);
        let data = HEADER_BYTES + 2 * SHORT_OFFSET_BYTES * count;
        let sized = (data..=PACKED_ROW_BYTES_MAX).contains(&block.len());
        if header & LONG_OFFSETS != 0 || count == 0 || !sized {
            return None;
        }
        let row = RowRef::new(block);
        let mut position = 0;
        for slot in 0..2 * count {
            let (end, out_of_line) = row.end(slot);
            if out_of_line || end < position || end > block.len() - data {
                return None;
            }
            position = end;
        }
        let sorted = (1..count).all(|index| row.field(index - 1) < row.field(index));
        let complete = position == block.len() - data;
        (sorted && complete).then(|| Self(block.into()))
    }

    /// The stored form of a row without fields.
    pub(super) const EMPTY: &'static [u8] = EMPTY;

    /// The stored form, which `HashRef::Packed` reads.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The stored form, to be kept elsewhere.
    #[must_use]
    pub fn into_bytes(mut self) -> Box<[u8]> {
        std::mem::take(&mut self.0).into()
    }

    /// The same without spare capacity.
    pub(super) fn into_stored(mut self) -> Self {
        self.0.shrink_to_fit();
        self
    }
}

/// Where the value of a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell<'a> {
    Inline(&'a [u8]),
    OutOfLine,
}

/// A block, its header read.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowRef<'a> {
    block: &'a [u8],
    count: usize,
    offset_bytes: usize,
    /// Where names and values begin.
    data: usize,
}

impl<'a> RowRef<'a> {
    #[inline]
    pub(super) fn new(block: &'a [u8]) -> Self {
        let header = u16::from_le_bytes([block[0], block[1]]);
        let count = usize::from(header & !LONG_OFFSETS);
        let offset_bytes = if header & LONG_OFFSETS == 0 {
            SHORT_OFFSET_BYTES
        } else {
            LONG_OFFSET_BYTES
        };
        Self {
            block,
            count,
            offset_bytes,
            data: HEADER_BYTES + 2 * offset_bytes * count,
        }
    }

    #[inline]
    pub(super) fn len(self) -> usize {
        self.count
    }

    /// The end at `slot` of the offset table (field `i` has slots `2i` and `2i + 1`), and whether
    /// its top bit is set.
    #[inline]
    fn end(self, slot: usize) -> (usize, bool) {
        let at = HEADER_BYTES + slot * self.offset_bytes;
        if self.offset_bytes == SHORT_OFFSET_BYTES {
            let raw = u16::from_le_bytes([self.block[at], self.block[at + 1]]);
            (
                usize::from(raw & !SHORT_OUT_OF_LINE),
                raw & SHORT_OUT_OF_LINE != 0,
            )
        } else {
            let raw = self.block[at..at + LONG_OFFSET_BYTES]
                .try_into()
                .expect("four bytes");
            let raw = u32::from_le_bytes(raw);
            (
                (raw & !LONG_OUT_OF_LINE) as usize,
                raw & LONG_OUT_OF_LINE != 0,
            )
        }
    }

    /// Where field `index` begins, or where the last one ends.
    #[inline]
    pub(super) fn start(self, index: usize) -> usize {
        if index == 0 {
            0
        } else {
            self.end(2 * index - 1).0
        }
    }

    #[inline]
    pub(super) fn field(self, index: usize) -> &'a [u8] {
        &self.block[self.data + self.start(index)..self.data + self.end(2 * index).0]
    }

    #[inline]
    pub(super) fn cell(self, index: usize) -> Cell<'a> {
        match self.end(2 * index + 1) {
            (_, true) => Cell::OutOfLine,
            (end, false) => {
                Cell::Inline(&self.block[self.data + self.end(2 * index).0..self.data + end])
            }
        }
    }

    /// How many of the first `index` fields have their value out of line. O(index).
    pub(super) fn out_of_line_before(self, index: usize) -> usize {
        (0..index).filter(|index| self.end(2 * index + 1).1).count()
    }

    /// The order of field `index` and a name.
    #[inline]
    fn compare(self, index: usize, name: Name<'_>) -> Ordering {
        let (start, end) = (self.start(index), self.end(2 * index).0);
        name.compare_to(&self.block[self.data + start..], end - start)
    }

    /// The index of `field`, or of the first one after it (DP1).
    #[inline]
    pub(super) fn search(self, field: &[u8]) -> Result<usize, usize> {
        let name = Name::new(field);
        match self.short() {
            Some(row) => row.search(name),
            None => find(self.count, |index| self.compare(index, name)),
        }
    }

    /// The same in a leaf, whose names have little in common with those of other rows, and much
    /// with each other: what all begin with is compared once.
    pub(super) fn search_leaf(self, field: &[u8]) -> Result<usize, usize> {
        let Some(last) = self.count.checked_sub(1) else {
            return Err(0);
        };
        let (first, last) = (self.field(0), self.field(last));
        let common = common_bytes(first, last);
        let (prefix, rest) = field.split_at(common.min(field.len()));
        match first[..common].cmp(prefix) {
            Ordering::Less => return Err(self.count),
            Ordering::Greater => return Err(0),
            Ordering::Equal => {}
        }
        let name = Name::new(rest);
        if let Some(row) = self.short() {
            return row.search_beyond(common, name);
        }
        let block = &self.block[self.data..];
        find(self.count, |index| {
            let (start, end) = (self.start(index) + common, self.end(2 * index).0);
            name.compare_to(&block[start..], end - start)
        })
    }

    /// The same block, if its offsets are short; only large leaves of wide rows have long ones.
    #[inline]
    pub(super) fn short(self) -> Option<ShortRow<'a>> {
        (self.offset_bytes == SHORT_OFFSET_BYTES).then(|| ShortRow::new(self.block, self.count))
    }

    /// Whether offsets take 2 bytes.
    #[inline]
    pub(super) fn is_short(self) -> bool {
        self.offset_bytes == SHORT_OFFSET_BYTES
    }

    /// Whether `field` can be set by [`set_in`]: before and after it, offsets are short (DP2).
    /// `at` comes from [`Self::search`].
    #[inline]
    pub(super) fn takes_in_place(
        self,
        at: Result<usize, usize>,
        field: &[u8],
        value: &[u8],
    ) -> bool {
        self.is_short()
            && self.count < COUNT_MAX
            && self.bytes_with(at, field, value) <= SHORT_DATA_BYTES_MAX
    }

    /// Whether so many fields, of so many bytes, can be added by [`add_to`].
    pub(super) fn takes_more_in_place(self, fields: usize, bytes: usize) -> bool {
        let data_bytes = self.block.len() - self.data;
        self.is_short()
            && self.count + fields <= COUNT_MAX
            && data_bytes + bytes <= SHORT_DATA_BYTES_MAX
    }

    /// Bytes of a block with short offsets once `field` is set. `at` comes from [`Self::search`].
    #[inline]
    pub(super) fn bytes_with(self, at: Result<usize, usize>, field: &[u8], value: &[u8]) -> usize {
        let bytes = self.block.len() + value.len();
        match at {
            Ok(index) => bytes - (self.end(2 * index + 1).0 - self.end(2 * index).0),
            Err(_) => bytes + 2 * SHORT_OFFSET_BYTES + field.len(),
        }
    }

    /// The same once the field at `index` is removed.
    #[inline]
    pub(super) fn bytes_without(self, index: usize) -> usize {
        self.block.len() - END_BYTES - (self.start(index + 1) - self.start(index))
    }

    /// The row with `field` set, as the parts of a new block. `at` comes from [`Self::search`].
    pub(super) fn with_field<'p>(
        self,
        at: Result<usize, usize>,
        field: &'p [u8],
        cell: Cell<'p>,
    ) -> [Part<'p>; 3]
    where
        'a: 'p,
    {
        let (before, after) = match at {
            Ok(index) => (index, index + 1),
            Err(index) => (index, index),
        };
        [
            Part::Rows(self, 0..before),
            Part::Field(field, cell),
            Part::Rows(self, after..self.count),
        ]
    }

    /// The row without these fields, as the parts of a new block.
    pub(super) fn without_fields(self, fields: Range<usize>) -> [Part<'a>; 2] {
        [
            Part::Rows(self, 0..fields.start),
            Part::Rows(self, fields.end..self.count),
        ]
    }

    /// The whole row as a part of a new block.
    pub(super) fn whole(self) -> Part<'a> {
        Part::Rows(self, 0..self.count)
    }
}

/// A block with short offsets, taken apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct ShortRow<'a> {
    /// The two ends of each field.
    ends: &'a [[u8; 2 * SHORT_OFFSET_BYTES]],
    data: &'a [u8],
}

impl<'a> ShortRow<'a> {
    #[inline]
    fn new(block: &'a [u8], count: usize) -> Self {
        let (ends, data) = block[HEADER_BYTES..].split_at(2 * SHORT_OFFSET_BYTES * count);
        let ends = ends.as_chunks().0;
        Self { ends, data }
    }

    /// The block of a packed hash (DP2, DP3).
    #[inline]
    pub(super) fn packed(block: &'a [u8]) -> Self {
        let header = u16::from_le_bytes([block[0], block[1]]);
        debug_assert_eq!(header & LONG_OFFSETS, 0);
        Self::new(block, usize::from(header))
    }

    /// Where a field's name and value end, when none is out of line.
    #[inline]
    fn ends(ends: [u8; 2 * SHORT_OFFSET_BYTES]) -> (usize, usize) {
        let raw = u32::from_le_bytes(ends);
        (usize::from(raw as u16), (raw >> u16::BITS) as usize)
    }

    /// The order of field `index` and a name.
    #[inline]
    fn compare(self, index: usize, name: Name<'_>) -> Ordering {
        let start = self.start(index);
        name.compare_to(&self.data[start..], Self::ends(self.ends[index]).0 - start)
    }

    /// Where field `index` begins, or where the last one ends.
    #[inline]
    fn start(self, index: usize) -> usize {
        match index.checked_sub(1) {
            None => 0,
            Some(before) => Self::ends(self.ends[before]).1 & usize::from(!SHORT_OUT_OF_LINE),
        }
    }

    /// Where the name of the field at `index` ends.
    #[inline]
    fn name_end(self, index: usize) -> usize {
        let [low, high, ..] = self.ends[index];
        usize::from(u16::from_le_bytes([low, high]))
    }

    /// Whether this is the name of the field at `index`, if there is one.
    #[inline]
    fn is_at(self, index: usize, name: &Name<'_>) -> bool {
        let Some(ends) = self.ends.get(index) else {
            return false;
        };
        let start = self.start(index);
        name.is(&self.data[start..], Self::ends(*ends).0 - start)
    }

    /// The index of a field, or of the first one after it. Looks first where it was in the last row
    /// with as many fields.
    pub(super) fn search(self, name: Name<'_>) -> Result<usize, usize> {
        self.search_inline(name)
    }

    /// [`Self::search`], for where the call would cost as much as the search.
    #[inline]
    pub(super) fn search_inline(self, name: Name<'_>) -> Result<usize, usize> {
        let slot = name.guess(self.ends.len());
        let index = usize::from(GUESSES.with(|guesses| guesses[slot].get()));
        if self.is_at(index, &name) {
            Ok(index)
        } else {
            self.search_anew(name, slot)
        }
    }

    #[inline(never)]
    fn search_anew(self, name: Name<'_>, slot: usize) -> Result<usize, usize> {
        let found = find(self.ends.len(), |index| self.compare(index, name));
        if let Ok(index) = found {
            GUESSES.with(|guesses| guesses[slot].set(index as u16));
        }
        found
    }

    /// The same for a field that is to be set: rows are filled in field order.
    #[inline]
    pub(super) fn search_to_set(self, name: Name<'_>) -> Result<usize, usize> {
        match self.ends.len().checked_sub(1) {
            Some(last) if self.compare(last, name).is_ge() => self.search(name),
            _ => Err(self.ends.len()),
        }
    }

    /// The value and index of a field in a row that holds it in line (DP3); looks at index `near`
    /// first.
    #[inline]
    pub(super) fn get(self, name: &Name<'_>, near: usize) -> Option<(usize, &'a [u8])> {
        let index = if self.is_at(near, name) {
            near
        } else {
            self.search(*name).ok()?
        };
        let (middle, end) = Self::ends(self.ends[index]);
        Some((index, &self.data[middle..end]))
    }

    /// Where the value of the field at `index` is in the block, for a row that holds it in line.
    #[inline]
    pub(super) fn value_range(self, index: usize) -> Range<usize> {
        let (middle, end) = Self::ends(self.ends[index]);
        let data = HEADER_BYTES + size_of_val(self.ends);
        data + middle..data + end
    }

    /// Names and values from field `index` on, none beyond the last, for a row that holds them in
    /// line (DP3).
    #[inline]
    pub(super) fn entries(self, index: usize) -> Entries<'a> {
        let (before, ends) = self.ends.split_at(index.min(self.ends.len()));
        let start = before.last().map_or(0, |ends| Self::ends(*ends).1);
        Entries {
            ends: ends.iter(),
            data: self.data,
            start,
        }
    }
}

/// The names and values of [`ShortRow::entries`].
#[derive(Clone, Debug)]
pub(super) struct Entries<'a> {
    ends: std::slice::Iter<'a, [u8; 2 * SHORT_OFFSET_BYTES]>,
    data: &'a [u8],
    /// Where the next name begins.
    start: usize,
}

impl Entries<'_> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (middle, end) = ShortRow::ends(*self.ends.next()?);
        let start = std::mem::replace(&mut self.start, end);
        debug_assert!(start <= middle && middle <= end && end <= self.data.len());
        // Not panics: a name that nobody looks at then costs nothing, and a value one branch.
        let value = self.data.get(middle..end)?;
        Some((self.data.get(start..middle).unwrap_or_default(), value))
    }
}

/// The parts from which a new block is assembled.
#[derive(Clone, Debug)]
pub(super) enum Part<'a> {
    /// Neighbouring fields of a row.
    Rows(RowRef<'a>, Range<usize>),
    /// A field and its value.
    Field(&'a [u8], Cell<'a>),
}

impl Part<'_> {
    fn count(&self) -> usize {
        match self {
            Part::Rows(_, range) => range.len(),
            Part::Field(..) => 1,
        }
    }

    fn data_bytes(&self) -> usize {
        match self {
            Part::Rows(row, range) => row.start(range.end) - row.start(range.start),
            Part::Field(field, Cell::Inline(value)) => field.len() + value.len(),
            Part::Field(field, Cell::OutOfLine) => field.len(),
        }
    }
}

/// The size of a block made of some parts.
#[derive(Clone, Copy, Debug)]
struct Shape {
    count: usize,
    offset_bytes: usize,
    block_bytes: usize,
}

impl Shape {
    fn of(parts: &[Part<'_>]) -> Self {
        let count = parts.iter().map(Part::count).sum();
        let data_bytes: usize = parts.iter().map(Part::data_bytes).sum();
        let offset_bytes = offset_bytes(data_bytes);
        let block_bytes = HEADER_BYTES + 2 * offset_bytes * count + data_bytes;
        Self {
            count,
            offset_bytes,
            block_bytes,
        }
    }
}

const fn offset_bytes(data_bytes: usize) -> usize {
    if data_bytes <= SHORT_DATA_BYTES_MAX {
        SHORT_OFFSET_BYTES
    } else {
        LONG_OFFSET_BYTES
    }
}

/// Bytes of the block that [`assemble`] would make of these parts.
pub(super) fn assembled_bytes(parts: &[Part<'_>]) -> usize {
    Shape::of(parts).block_bytes
}

/// Makes a block of parts that follow each other in field order (DP1). O(bytes).
pub(super) fn assemble(parts: &[Part<'_>]) -> Box<[u8]> {
    let shape = Shape::of(parts);
    assert!(
        shape.count <= COUNT_MAX,
        "{} fields in one block",
        shape.count
    );
    let mut block = Vec::with_capacity(shape.block_bytes);
    let long = shape.offset_bytes == LONG_OFFSET_BYTES;
    let header = shape.count as u16 | if long { LONG_OFFSETS } else { 0 };
    block.extend_from_slice(&header.to_le_bytes());
    let mut position = 0;
    for part in parts {
        match part {
            Part::Rows(row, range) => append_ends(&mut block, long, *row, range.clone(), position),
            Part::Field(field, cell) => {
                append_end(&mut block, long, position + field.len(), false);
                let out_of_line = matches!(cell, Cell::OutOfLine);
                append_end(&mut block, long, position + part.data_bytes(), out_of_line);
            }
        }
        position += part.data_bytes();
    }
    for part in parts {
        match part {
            Part::Rows(row, range) => {
                let data = &row.block[row.data..];
                block.extend_from_slice(&data[row.start(range.start)..row.start(range.end)]);
            }
            Part::Field(field, Cell::Inline(value)) => {
                block.extend_from_slice(field);
                block.extend_from_slice(value);
            }
            Part::Field(field, Cell::OutOfLine) => block.extend_from_slice(field),
        }
    }
    debug_assert_eq!(block.len(), shape.block_bytes);
    block.into_boxed_slice()
}

fn append_end(block: &mut Vec<u8>, long: bool, end: usize, out_of_line: bool) {
    if long {
        let raw = end as u32 | if out_of_line { LONG_OUT_OF_LINE } else { 0 };
        block.extend_from_slice(&raw.to_le_bytes());
    } else {
        let raw = end as u16 | if out_of_line { SHORT_OUT_OF_LINE } else { 0 };
        block.extend_from_slice(&raw.to_le_bytes());
    }
}

/// Appends the ends of a row's fields, the first of which now begins at `position`.
fn append_ends(
    block: &mut Vec<u8>,
    long: bool,
    row: RowRef<'_>,
    range: Range<usize>,
    position: usize,
) {
    let start = row.start(range.start);
    if long || row.offset_bytes == LONG_OFFSET_BYTES {
        for slot in 2 * range.start..2 * range.end {
            let (end, out_of_line) = row.end(slot);
            append_end(block, long, end - start + position, out_of_line);
        }
        return;
    }
    // All ends move by one amount, and none into the top bit: the most expensive step of changing a
    // row.
    let ends = 2 * SHORT_OFFSET_BYTES * range.start..2 * SHORT_OFFSET_BYTES * range.end;
    let first = block.len();
    block.extend_from_slice(&row.block[HEADER_BYTES..][ends]);
    move_ends(&mut block[first..], position, start);
}

#[cfg(test)]
mod tests;
