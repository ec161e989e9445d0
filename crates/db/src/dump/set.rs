//! Sets: kind 2 is a count and that many members; 11 is one string, an intset; 20 is one string, a
//! listpack of members.
//!
//! An intset:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | bytes of an integer: 2, 4 or 8, little-endian |
//! | 4 | 4 | number of integers, little-endian |
//! | 8 | n | signed integers in rising order, little-endian |
//!
//! We write kinds 11 and 2: Redis 7.0, whose version of the format we write, does not know 20.

use pando_engine::{Body, HashDraft, HashRef, RowTag};
use pando_protocol::number;

use super::rdb::{self, Reader};
use super::{Bounds, PayloadError, check_length, listpack};

const HEADER_BYTES: usize = 8;

/// Appends the members as a count and strings.
pub(super) fn write_table(out: &mut Vec<u8>, set: HashRef<'_>) {
    rdb::write_length(out, set.len() as u64);
    for (member, _) in set.iter() {
        rdb::write_string(out, member);
    }
}

/// Appends the members as an intset, if each is the canonical text of an integer.
pub(super) fn write_integers(out: &mut Vec<u8>, set: HashRef<'_>) -> bool {
    let parsed = set.iter().map(|(member, _)| number::parse_i64(member));
    let Some(mut integers) = parsed.collect::<Option<Vec<i64>>>() else {
        return false;
    };
    integers.sort_unstable();
    let fits = |bytes: usize| {
        let (least, most) = (-1_i64 << (8 * bytes - 1), !(-1_i64 << (8 * bytes - 1)));
        integers.first().is_none_or(|first| *first >= least)
            && integers.last().is_none_or(|last| *last <= most)
    };
    let bytes = [2, 4].into_iter().find(|bytes| fits(*bytes)).unwrap_or(8);
    let mut block = Vec::with_capacity(HEADER_BYTES + bytes * integers.len());
    block.extend_from_slice(&(bytes as u32).to_le_bytes());
    block.extend_from_slice(&(integers.len() as u32).to_le_bytes());
    for integer in &integers {
        block.extend_from_slice(&integer.to_le_bytes()[..bytes]);
    }
    rdb::write_string(out, &block);
    true
}

/// Reads kind 2.
pub(super) fn read_table(
    reader: &mut Reader<'_>,
    bounds: Bounds,
) -> Result<Body<'static>, PayloadError> {
    let mut set = SetBuilder::new(bounds);
    for _ in 0..reader.length()? {
        let offset = reader.offset();
        let member = reader.string()?;
        set.push(&member, offset)?;
    }
    set.finish(reader.offset())
}

/// Reads kind 20.
pub(super) fn read_listpack(
    reader: &mut Reader<'_>,
    bounds: Bounds,
) -> Result<Body<'static>, PayloadError> {
    let block = reader.string()?;
    let mut set = SetBuilder::new(bounds);
    let mut shown = 0;
    listpack::elements(&block, &mut |member| {
        shown += member.len();
        set.push(member, shown)
    })?;
    set.finish(block.len())
}

/// Reads kind 11.
pub(super) fn read_integers(
    reader: &mut Reader<'_>,
    bounds: Bounds,
) -> Result<Body<'static>, PayloadError> {
    let block = reader.string()?;
    let malformed = |offset| Err(PayloadError::Malformed { offset });
    let Some((header, integers)) = block.split_first_chunk::<HEADER_BYTES>() else {
        return malformed(0);
    };
    let bytes = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
    let count = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
    if !matches!(bytes, 2 | 4 | 8) || integers.len() != bytes * count {
        return malformed(0);
    }
    let mut set = SetBuilder::new(bounds);
    let mut last = None;
    for (index, integer) in integers.chunks_exact(bytes).enumerate() {
        let integer = listpack::signed(integer);
        if last.is_some_and(|last| last >= integer) {
            return malformed(HEADER_BYTES + index * bytes);
        }
        last = Some(integer);
        set.push(integer.to_string().as_bytes(), HEADER_BYTES)?;
    }
    set.finish(block.len())
}

/// A set being read; refuses what no valid set contains.
struct SetBuilder {
    draft: HashDraft<'static>,
    bounds: Bounds,
}

impl SetBuilder {
    fn new(bounds: Bounds) -> Self {
        let draft = HashDraft::new(None);
        Self { draft, bounds }
    }

    fn push(&mut self, member: &[u8], offset: usize) -> Result<(), PayloadError> {
        check_length(member, self.bounds.field_bytes_max)?;
        if self.draft.set(member, b"") {
            Ok(())
        } else {
            Err(PayloadError::Malformed { offset })
        }
    }

    fn finish(self, offset: usize) -> Result<Body<'static>, PayloadError> {
        if self.draft.is_empty() {
            Err(PayloadError::Malformed { offset })
        } else {
            Ok(self.draft.finish_as(RowTag::Set))
        }
    }
}
