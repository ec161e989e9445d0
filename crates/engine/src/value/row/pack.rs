//! Small rows that are made of all their fields at once.

use super::{HEADER_BYTES, SHORT_OFFSET_BYTES, is_complete, spare};
use crate::limits::PACKED_ROW_BYTES_MAX;

/// The block of these fields, their names strictly increasing, their values in line; `None` if it
/// would be too long (DP3 packed-bound).
pub(in crate::value) fn pack(fields: &[(&[u8], &[u8])]) -> Option<Vec<u8>> {
    let lengths = fields.iter().map(|(name, value)| name.len() + value.len());
    let ends_bytes = 2 * SHORT_OFFSET_BYTES * fields.len();
    let bytes = HEADER_BYTES + ends_bytes + lengths.sum::<usize>();
    if bytes > PACKED_ROW_BYTES_MAX {
        return None;
    }
    let mut block = spare(bytes);
    block.extend_from_slice(&(fields.len() as u16).to_le_bytes());
    let mut end = 0;
    for (name, value) in fields {
        let middle = end + name.len();
        end = middle + value.len();
        // As `ShortRow::ends` takes them apart.
        block.extend_from_slice(&(middle as u32 | (end as u32) << u16::BITS).to_le_bytes());
    }
    for (name, value) in fields {
        block.extend_from_slice(name);
        block.extend_from_slice(value);
    }
    debug_assert!(is_complete(&block));
    Some(block)
}
