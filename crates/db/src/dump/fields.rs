//! Hashes whose fields have deadlines, as Redis writes them from 7.4 on.
//!
//! | kind | content |
//! |---|---|
//! | 22 | a count, and for each field its deadline, name and value |
//! | 23 | one string: a listpack of names, values and deadlines |
//! | 24 | 8 bytes, little-endian, with the earliest deadline or 0; then as 22, but a deadline is what it is later than the earliest, and 1 |
//! | 25 | the same 8 bytes, then as 23 |
//!
//! Deadlines are milliseconds since the Unix epoch; 0 is none. Kinds 22 and 23 were written by
//! candidates of 7.4 only. A listpack has the earliest deadlines first, and fields without one
//! last.
//!
//! We write kinds 24 and 25, in payloads of version 12.

use pando_engine::{Body, Deadline, FieldsDraft, FieldsRef, StringBody};
use pando_protocol::number;

use super::rdb::{self, Reader};
use super::{Bounds, Elements, Form, PayloadError, check_length, kind, listpack};
use crate::clock::Milliseconds;

/// The latest deadline that Redis holds.
const DEADLINE_MAX: u64 = (1 << 48) - 1;

/// Appends a hash with its kind; some field has a deadline.
pub(super) fn write(out: &mut Vec<u8>, hash: FieldsRef<'_>, form: Form) {
    let mut entries: Vec<_> = hash
        .iter()
        .map(|(field, value)| (hash.deadline(field).map(|at| at.0), field, value))
        .collect();
    let first = entries.iter().filter_map(|(deadline, ..)| *deadline).min();
    let first = first.expect("a field has a deadline");
    if form == Form::Packed {
        entries.sort_by_key(|(deadline, ..)| deadline.unwrap_or(u64::MAX));
        let mut writer = listpack::Writer::new();
        for (deadline, field, value) in entries {
            writer.push(field);
            writer.push(&value.to_cow());
            writer.push(deadline.unwrap_or(0).to_string().as_bytes());
        }
        out.push(kind::HASH_LISTPACK_EX);
        out.extend_from_slice(&first.to_le_bytes());
        return rdb::write_string(out, &writer.finish());
    }
    out.push(kind::HASH_METADATA);
    out.extend_from_slice(&first.to_le_bytes());
    rdb::write_length(out, entries.len() as u64);
    for (deadline, field, value) in entries {
        rdb::write_length(out, deadline.map_or(0, |deadline| deadline - first + 1));
        rdb::write_string(out, field);
        rdb::write_string(out, &value.to_cow());
    }
}

/// Reads kinds 22 and 24.
pub(super) fn read_table(
    reader: &mut Reader<'_>,
    bounds: Bounds,
    kind: u8,
) -> Result<Body<'static>, PayloadError> {
    let first = if kind == kind::HASH_METADATA {
        Some(u64::from_le_bytes(reader.array()?))
    } else {
        None
    };
    let mut hash = Builder::new(bounds);
    for _ in 0..reader.length()? {
        let offset = reader.offset();
        let deadline = match (reader.length()?, first) {
            (0, _) => Some(0),
            (deadline, None) => Some(deadline),
            (later, Some(first)) => first.checked_add(later - 1),
        };
        let field = reader.string()?;
        let value = reader.string()?;
        hash.push(&field, &value, deadline, offset)?;
    }
    hash.finish(reader.offset())
}

/// Reads kinds 23 and 25.
pub(super) fn read_listpack(
    reader: &mut Reader<'_>,
    bounds: Bounds,
    kind: u8,
) -> Result<Body<'static>, PayloadError> {
    if kind == kind::HASH_LISTPACK_EX {
        reader.array::<8>()?;
    }
    let block = reader.string()?;
    let mut hash = Builder::new(bounds);
    let mut waiting: Vec<Vec<u8>> = Vec::with_capacity(2);
    let mut shown = 0;
    listpack::elements(&block, &mut |element| {
        shown += element.len();
        if waiting.len() < 2 {
            waiting.push(element.to_vec());
            return Ok(());
        }
        let pushed = hash.push(&waiting[0], &waiting[1], number::parse_u64(element), shown);
        waiting.clear();
        pushed
    })?;
    if !waiting.is_empty() {
        let offset = block.len();
        return Err(PayloadError::Malformed { offset });
    }
    hash.finish(block.len())
}

/// A hash being read; refuses what no valid one contains.
struct Builder {
    draft: FieldsDraft<'static>,
    bounds: Bounds,
}

impl Builder {
    fn new(bounds: Bounds) -> Self {
        // Nothing has passed yet.
        let draft = FieldsDraft::new(None, Milliseconds(0));
        Self { draft, bounds }
    }

    fn push(
        &mut self,
        field: &[u8],
        value: &[u8],
        deadline: Option<u64>,
        offset: usize,
    ) -> Elements {
        let most = FieldsDraft::TIMED_FIELD_BYTES_MAX;
        check_length(field, self.bounds.field_bytes_max.min(most))?;
        check_length(value, self.bounds.value_bytes_max)?;
        let malformed = PayloadError::Malformed { offset };
        let deadline = deadline.filter(|deadline| *deadline <= DEADLINE_MAX);
        let deadline = deadline.ok_or(malformed)?;
        let value = StringBody::borrowed(value);
        if !self.draft.set(field, value, false) {
            return Err(malformed);
        }
        if deadline != 0 {
            let given = self.draft.set_deadline(field, Deadline(deadline));
            given.expect("names were checked");
        }
        Ok(())
    }

    fn finish(self, offset: usize) -> Result<Body<'static>, PayloadError> {
        if self.draft.is_empty() {
            Err(PayloadError::Malformed { offset })
        } else {
            Ok(self.draft.finish())
        }
    }
}
