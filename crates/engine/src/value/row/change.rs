//! Changes in place, of blocks under construction that have short offsets.

use std::cmp::Ordering;
use std::ops::Range;

use super::{COUNT_MAX, END_BYTES, HEADER_BYTES, RowRef, SHORT_OFFSET_BYTES};
use crate::value::wide::End;

/// Sets a field of a block under construction that has short offsets; `at` comes from
/// [`RowRef::search`]. Moves what follows.
pub(in crate::value) fn set_in(
    block: &mut Vec<u8>,
    at: Result<usize, usize>,
    field: &[u8],
    value: &[u8],
) {
    let row = RowRef::new(block);
    debug_assert_eq!(row.offset_bytes, SHORT_OFFSET_BYTES);
    let (data, count) = (row.data, row.count);
    match at {
        Ok(index) => {
            let (start, end) = (row.end(2 * index).0, row.end(2 * index + 1).0);
            if value.len() == end - start {
                block[data + start..data + end].copy_from_slice(value);
                return;
            }
            replace_in(block, data + start..data + end, value.len());
            block[data + start..][..value.len()].copy_from_slice(value);
            move_ends(
                ends_of(block, 2 * index + 1..2 * count),
                start + value.len(),
                end,
            );
            debug_assert!(is_complete(block));
        }
        Err(index) => {
            assert!(count < COUNT_MAX, "{count} fields in one block");
            let start = row.start(index);
            let (middle, end) = (start + field.len(), start + field.len() + value.len());
            let (ends, place) = (ends_before(index), data + start);
            let (old_bytes, grown_by) = (block.len(), END_BYTES + end - start);
            block.resize(old_bytes + grown_by, 0);
            block.copy_within(place..old_bytes, place + grown_by);
            block.copy_within(ends..place, ends + END_BYTES);
            block[place + END_BYTES..][..field.len()].copy_from_slice(field);
            block[data + END_BYTES + middle..][..value.len()].copy_from_slice(value);
            block[ends..][..2].copy_from_slice(&(middle as u16).to_le_bytes());
            block[ends + 2..][..2].copy_from_slice(&(end as u16).to_le_bytes());
            block[..HEADER_BYTES].copy_from_slice(&(count as u16 + 1).to_le_bytes());
            move_ends(ends_of(block, 2 * index + 2..2 * count + 2), end, start);
            debug_assert!(is_complete(block));
        }
    }
}

/// Removes neighbouring fields of a block under construction that has short offsets. Moves what
/// follows.
pub(in crate::value) fn remove_from(block: &mut Vec<u8>, fields: Range<usize>) {
    let row = RowRef::new(block);
    debug_assert_eq!(row.offset_bytes, SHORT_OFFSET_BYTES);
    let (data, count) = (row.data, row.count);
    let (start, end) = (row.start(fields.start), row.start(fields.end));
    let (ends, ends_end) = (ends_before(fields.start), ends_before(fields.end));
    block.copy_within(ends_end..data + start, ends);
    block.copy_within(data + end.., data + start - (ends_end - ends));
    block.truncate(block.len() - (ends_end - ends) - (end - start));
    let left = count - fields.len();
    block[..HEADER_BYTES].copy_from_slice(&(left as u16).to_le_bytes());
    move_ends(ends_of(block, 2 * fields.start..2 * left), start, end);
    debug_assert!(is_complete(block));
}

/// Adds fields before all others or behind them, in their order, to a block under construction that
/// has short offsets and keeps them (DP2 short-offsets).
pub(in crate::value) fn add_to(block: &mut Vec<u8>, end: End, fields: &[(&[u8], &[u8])]) {
    let row = RowRef::new(block);
    debug_assert_eq!(row.offset_bytes, SHORT_OFFSET_BYTES);
    let (data, count, old_bytes) = (row.data, row.count, block.len());
    assert!(
        count + fields.len() <= COUNT_MAX,
        "{count} fields in one block"
    );
    let ends_bytes = END_BYTES * fields.len();
    let added = fields.iter().map(|(name, value)| name.len() + value.len());
    let added: usize = added.sum();
    block.resize(old_bytes + ends_bytes + added, 0);
    let new_data = data + ends_bytes;
    let (mut ends, mut place) = match end {
        End::First => {
            block.copy_within(data..old_bytes, new_data + added);
            block.copy_within(HEADER_BYTES..data, HEADER_BYTES + ends_bytes);
            let old = 2 * fields.len()..2 * (fields.len() + count);
            move_ends(ends_of(block, old), added, 0);
            (HEADER_BYTES, new_data)
        }
        End::Last => {
            block.copy_within(data..old_bytes, new_data);
            (data, old_bytes + ends_bytes)
        }
    };
    for (name, value) in fields {
        for part in [name, value] {
            block[place..][..part.len()].copy_from_slice(part);
            place += part.len();
            let end = (place - new_data) as u16;
            block[ends..][..SHORT_OFFSET_BYTES].copy_from_slice(&end.to_le_bytes());
            ends += SHORT_OFFSET_BYTES;
        }
    }
    block[..HEADER_BYTES].copy_from_slice(&((count + fields.len()) as u16).to_le_bytes());
    debug_assert!(is_complete(block));
}

/// Where the short ends of the field at `index` are.
fn ends_before(index: usize) -> usize {
    HEADER_BYTES + END_BYTES * index
}

/// Whether the last field ends where a block under construction does.
pub(super) fn is_complete(block: &[u8]) -> bool {
    let row = RowRef::new(block);
    row.data + row.start(row.count) == block.len()
}

/// Makes the place of `range` `bytes` long, for the caller to fill.
fn replace_in(block: &mut Vec<u8>, range: Range<usize>, bytes: usize) {
    let (old_bytes, rest) = (block.len(), block.len() - range.end);
    let end = range.start + bytes;
    match bytes.cmp(&range.len()) {
        Ordering::Equal => {}
        Ordering::Less => {
            block.copy_within(range.end.., end);
            block.truncate(end + rest);
        }
        Ordering::Greater => {
            block.resize(end + rest, 0);
            block.copy_within(range.end..old_bytes, end);
        }
    }
}

/// The short ends of some slots.
fn ends_of(block: &mut [u8], slots: Range<usize>) -> &mut [u8] {
    &mut block[HEADER_BYTES..][SHORT_OFFSET_BYTES * slots.start..SHORT_OFFSET_BYTES * slots.end]
}

/// Shifts short ends by the distance from `from` to `to`.
pub(super) fn move_ends(ends: &mut [u8], to: usize, from: usize) {
    let moved_by = (to as u16).wrapping_sub(from as u16);
    if moved_by == 0 {
        return;
    }
    let (ends, _) = ends.as_chunks_mut();
    for end in ends {
        *end = u16::from_le_bytes(*end)
            .wrapping_add(moved_by)
            .to_le_bytes();
    }
}
