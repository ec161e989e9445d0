//! Sorted sets: kinds 3 and 5 are a count and that many members with their scores; 12 and 17 are
//! one string, a ziplist or listpack of members and scores in turn.
//!
//! A score of kind 5 is a little-endian double. One of kind 3 is a byte and as many digits, or 253
//! for no number, 254 and 255 for the infinities.
//!
//! We write kinds 5 and 17.

use pando_engine::{Body, SortedDraft, SortedRef};
use pando_protocol::number;

use crate::encoding::packed_score;

use super::rdb::{self, Reader};
use super::{Bounds, Elements, Form, PayloadError, check_length, kind, listpack};

const INFINITE: u8 = 254;
const NEGATIVE_INFINITE: u8 = 255;

/// Appends a sorted set with its kind.
pub(super) fn write(out: &mut Vec<u8>, set: SortedRef<'_>, form: Form) {
    if form == Form::Packed {
        out.push(kind::SORTED_LISTPACK);
        let mut writer = listpack::Writer::new();
        for (member, score) in set.iter_from_rank(0) {
            writer.push(member);
            writer.push(packed_score(score).as_bytes());
        }
        return rdb::write_string(out, &writer.finish());
    }
    out.push(kind::SORTED);
    rdb::write_length(out, set.len() as u64);
    // Redis reads them faster from the highest score on.
    let entries: Vec<_> = set.iter_from_rank(0).collect();
    for (member, score) in entries.into_iter().rev() {
        rdb::write_string(out, member);
        out.extend_from_slice(&score.to_le_bytes());
    }
}

/// Reads kinds 3 and 5.
pub(super) fn read_table(
    reader: &mut Reader<'_>,
    bounds: Bounds,
    kind: u8,
) -> Result<Body<'static>, PayloadError> {
    let mut set = SortedBuilder::new(bounds);
    for _ in 0..reader.length()? {
        let offset = reader.offset();
        let member = reader.string()?;
        let score = if kind == kind::SORTED {
            Some(f64::from_le_bytes(reader.array()?))
        } else {
            match reader.byte()? {
                INFINITE => Some(f64::INFINITY),
                NEGATIVE_INFINITE => Some(f64::NEG_INFINITY),
                digits => number::parse_f64(reader.take(digits.into())?),
            }
        };
        set.push(&member, score, offset)?;
    }
    set.finish(reader.offset())
}

/// Reads kinds 12 and 17, the strings of which `elements` shows one by one.
pub(super) fn read_packed(
    reader: &mut Reader<'_>,
    bounds: Bounds,
    elements: impl FnOnce(&[u8], &mut dyn FnMut(&[u8]) -> Elements) -> Elements,
) -> Result<Body<'static>, PayloadError> {
    let block = reader.string()?;
    let mut set = SortedBuilder::new(bounds);
    let mut member: Option<Vec<u8>> = None;
    let mut shown = 0;
    elements(&block, &mut |element| {
        shown += element.len();
        match member.take() {
            None => {
                member = Some(element.to_vec());
                Ok(())
            }
            Some(member) => set.push(&member, number::parse_f64(element), shown),
        }
    })?;
    match member {
        None => set.finish(block.len()),
        Some(_) => Err(PayloadError::Malformed {
            offset: block.len(),
        }),
    }
}

/// A sorted set being read; refuses what no valid one contains.
struct SortedBuilder {
    draft: SortedDraft<'static>,
    bounds: Bounds,
}

impl SortedBuilder {
    fn new(bounds: Bounds) -> Self {
        let draft = SortedDraft::new(None);
        Self { draft, bounds }
    }

    fn push(
        &mut self,
        member: &[u8],
        score: Option<f64>,
        offset: usize,
    ) -> Result<(), PayloadError> {
        // What a sorted set stores in front of a member.
        check_length(
            member,
            self.bounds.field_bytes_max.saturating_sub(HEAD_BYTES),
        )?;
        let malformed = PayloadError::Malformed { offset };
        let score = score.filter(|score| !score.is_nan()).ok_or(malformed)?;
        match self.draft.set(member, score) {
            None => Ok(()),
            Some(_) => Err(malformed),
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

const HEAD_BYTES: usize = 16;
