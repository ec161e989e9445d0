//! Values of every form, and what updates make of them: once for the engine, once for the model.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Arc;

use proptest::prelude::*;

use super::model::Entry;
use crate::limits::COLUMN_FLAT_BYTES_MAX;
use crate::{
    Attributes, Body, BodyRef, Deadline, Decision, HashDraft, NewValue, RowTag, Shown, ValueRef,
};

/// The content of a value in the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Text(Vec<u8>),
    Fields(RowTag, BTreeMap<Vec<u8>, Vec<u8>>),
}

/// What an update does.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Keep,
    Remove,
    /// A string of so many bytes.
    Text {
        length: usize,
        seed: u8,
    },
    /// A row of so many fields, whose type follows from the seed.
    Fields {
        count: u16,
        length: usize,
        seed: u8,
    },
    /// Bytes at an offset of the present string.
    Write {
        offset: usize,
        length: usize,
        seed: u8,
    },
    /// Fields of the present row.
    SetFields {
        first: u16,
        count: u16,
        length: usize,
        seed: u8,
    },
    /// Another value, as long, of a field of the present row.
    Amend {
        rank: u16,
        seed: u8,
    },
    /// Removes fields of the present row, and the row with the last one.
    RemoveFields {
        first: u16,
        count: u16,
    },
    /// Other attributes on the present value, its content handed over.
    Attributes {
        deadline: Option<u64>,
        flags: u32,
        encoding: u8,
        token: u64,
    },
    /// A copy of the present value that shares nothing with it.
    Copy,
}

/// This many bytes, different for each seed.
pub(super) fn bytes(length: usize, seed: u8) -> Vec<u8> {
    let period: Vec<u8> = (0..251_u8)
        .map(|at| at.wrapping_mul(seed | 1) ^ seed)
        .collect();
    let mut bytes = period.repeat(length / period.len() + 1);
    bytes.truncate(length);
    bytes
}

fn field(number: u16) -> Vec<u8> {
    format!("field{number:04}").into_bytes()
}

/// Of a new row.
fn row_tag(seed: u8) -> RowTag {
    RowTag::of_number(RowTag::Hash as u8 + seed % 6).expect("a type of rows")
}

fn columns(first: u16, count: u16, length: usize, seed: u8) -> Vec<(Vec<u8>, Vec<u8>)> {
    let column = |number: u16| {
        (
            field(number),
            bytes(length, seed.wrapping_add(number as u8)),
        )
    };
    (first..first + count).map(column).collect()
}

/// The effect of a change on a model's value.
pub(super) enum Applied {
    Keep,
    Remove,
    Write(Arc<Content>, Attributes),
}

/// A change, its bytes made: what a closure may borrow from.
pub(super) struct Prepared<'c> {
    change: &'c Change,
    bytes: Vec<u8>,
    columns: Vec<(Vec<u8>, Vec<u8>)>,
}

impl<'c> Prepared<'c> {
    pub(super) fn new(change: &'c Change) -> Self {
        let (text, columns) = match *change {
            Change::Text { length, seed } | Change::Write { length, seed, .. } => {
                (bytes(length, seed), Vec::new())
            }
            Change::Fields {
                count,
                length,
                seed,
            } => (Vec::new(), columns(0, count, length, seed)),
            Change::SetFields {
                first,
                count,
                length,
                seed,
            } => (Vec::new(), columns(first, count, length, seed)),
            Change::Amend { seed, .. } => (bytes(COLUMN_FLAT_BYTES_MAX, seed), Vec::new()),
            Change::RemoveFields { first, count } => (Vec::new(), columns(first, count, 0, 0)),
            Change::Keep | Change::Remove | Change::Attributes { .. } | Change::Copy => {
                Default::default()
            }
        };
        Self {
            change,
            bytes: text,
            columns,
        }
    }

    /// The decision for an engine's update.
    pub(super) fn decide(&self, old: Option<ValueRef<'_>>) -> Decision<'_> {
        let attributes = old.map_or_else(Attributes::default, |old| old.attributes);
        let write = |body| Decision::Write(NewValue::new(body).with(attributes));
        let body = old.map(|old| old.body);
        match (self.change, body) {
            (Change::Remove, _) => Decision::Remove,
            (Change::Write { offset, .. }, Some(BodyRef::String(string))) => {
                write(string.with_write(*offset, &self.bytes).into())
            }
            (Change::Text { .. } | Change::Write { .. }, _) => write(Body::string(&self.bytes)),
            (Change::SetFields { .. }, Some(BodyRef::Row(tag, row))) => {
                write(self.set_fields(HashDraft::new(Some(row))).finish_as(tag))
            }
            (Change::Fields { seed, .. } | Change::SetFields { seed, .. }, _) => write(
                self.set_fields(HashDraft::new(None))
                    .finish_as(row_tag(*seed)),
            ),
            (Change::Amend { rank, .. }, Some(BodyRef::Row(tag, row))) => {
                let rank = usize::from(*rank) % row.len();
                let (field, value) = row.nth(rank).expect("a rank below their number");
                let Some(value) = self.bytes.get(..value.len()) else {
                    return Decision::Keep;
                };
                if let Some(amendment) = row.amend(field, value) {
                    return Decision::Amend(amendment);
                }
                let mut draft = HashDraft::new(Some(row));
                draft.set(field, value);
                write(draft.finish_as(tag))
            }
            (Change::RemoveFields { .. }, Some(BodyRef::Row(tag, hash))) => {
                let mut draft = HashDraft::new(Some(hash));
                for (field, _) in &self.columns {
                    draft.remove(field);
                }
                if draft.is_empty() {
                    Decision::Remove
                } else {
                    write(draft.finish_as(tag))
                }
            }
            (
                Change::Attributes {
                    deadline,
                    flags,
                    encoding,
                    token,
                },
                Some(_),
            ) => {
                let value = old.expect("matched above").hand_over();
                Decision::Write(value.with(attributes_of(*deadline, *flags, *encoding, *token)))
            }
            (Change::Copy, Some(_)) => Decision::Write(old.expect("matched above").deep_copy()),
            (
                Change::Keep
                | Change::Amend { .. }
                | Change::RemoveFields { .. }
                | Change::Attributes { .. }
                | Change::Copy,
                _,
            ) => Decision::Keep,
        }
    }

    /// The decision for a change in place: for fields of a large row that is lent, made by taking
    /// it.
    pub(super) fn decide_on(&self, shown: &mut Shown<'_>) -> Decision<'_> {
        let Some(old) = shown.value() else {
            return self.decide(None);
        };
        let (attributes, tag) = match old.body {
            BodyRef::Row(tag, _) => (old.attributes, tag),
            BodyRef::String(_) => return self.decide(shown.value()),
        };
        let taken = match self.change {
            Change::Keep | Change::SetFields { .. } | Change::RemoveFields { .. } => shown.take(),
            _ => None,
        };
        let Some(row) = taken else {
            return self.decide(shown.value());
        };
        let mut draft = HashDraft::of(row);
        match self.change {
            Change::Keep => {
                shown.give_back(draft.into_row().expect("it is a large one"));
                return Decision::Keep;
            }
            Change::SetFields { .. } => draft = self.set_fields(draft),
            _ => {
                for (field, _) in &self.columns {
                    draft.remove(field);
                }
            }
        }
        if draft.is_empty() {
            Decision::Remove
        } else {
            Decision::Write(NewValue::new(draft.finish_as(tag)).with(attributes))
        }
    }

    fn set_fields<'o>(&self, mut draft: HashDraft<'o>) -> HashDraft<'o> {
        for (field, value) in &self.columns {
            draft.set(field, value);
        }
        draft
    }

    /// The model's update.
    pub(super) fn apply(&self, old: Option<&Entry>) -> Applied {
        let attributes = old.map_or_else(Attributes::default, |old| old.attributes);
        let write = |content| Applied::Write(Arc::new(content), attributes);
        let fields = || self.columns.iter().cloned();
        match (self.change, old.map(|old| &*old.content)) {
            (Change::Remove, Some(_)) => Applied::Remove,
            (Change::Write { offset, .. }, Some(Content::Text(old))) => {
                let end = offset + self.bytes.len();
                let mut new = old.clone();
                new.resize(old.len().max(end), 0);
                new[*offset..end].copy_from_slice(&self.bytes);
                write(Content::Text(new))
            }
            (Change::Text { .. } | Change::Write { .. }, _) => {
                write(Content::Text(self.bytes.clone()))
            }
            (Change::SetFields { .. }, Some(Content::Fields(tag, old))) => write(Content::Fields(
                *tag,
                old.clone().into_iter().chain(fields()).collect(),
            )),
            (Change::Fields { seed, .. } | Change::SetFields { seed, .. }, _) => {
                write(Content::Fields(row_tag(*seed), fields().collect()))
            }
            (Change::Amend { rank, .. }, Some(Content::Fields(tag, old))) => {
                let mut new = old.clone();
                let rank = usize::from(*rank) % new.len();
                let value = new
                    .values_mut()
                    .nth(rank)
                    .expect("a rank below their number");
                let Some(bytes) = self.bytes.get(..value.len()) else {
                    return Applied::Keep;
                };
                value.copy_from_slice(bytes);
                write(Content::Fields(*tag, new))
            }
            (Change::RemoveFields { .. }, Some(Content::Fields(tag, old))) => {
                let mut new = old.clone();
                for (field, _) in &self.columns {
                    new.remove(field);
                }
                if new.is_empty() {
                    Applied::Remove
                } else {
                    write(Content::Fields(*tag, new))
                }
            }
            (
                Change::Attributes {
                    deadline,
                    flags,
                    encoding,
                    token,
                },
                Some(_),
            ) => {
                let content = Arc::clone(&old.expect("matched above").content);
                Applied::Write(content, attributes_of(*deadline, *flags, *encoding, *token))
            }
            (Change::Copy, Some(content)) => write(content.clone()),
            (
                Change::Keep
                | Change::Remove
                | Change::Amend { .. }
                | Change::RemoveFields { .. }
                | Change::Attributes { .. }
                | Change::Copy,
                _,
            ) => Applied::Keep,
        }
    }
}

fn attributes_of(deadline: Option<u64>, flags: u32, encoding: u8, token: u64) -> Attributes {
    Attributes {
        deadline: deadline.map(Deadline),
        flags,
        encoding,
        token: NonZero::new(token),
    }
}

/// Whether a hook is shown what the model held: all of it, or an empty row where that was taken.
pub(super) fn compare_replaced(
    found: Option<ValueRef<'_>>,
    expected: Option<&Entry>,
) -> Result<(), String> {
    match (found.map(|found| found.body), expected) {
        (Some(BodyRef::Row(_, row)), Some(expected)) if row.is_empty() => {
            let mut taken = expected.clone();
            if let Content::Fields(_, fields) = Arc::make_mut(&mut taken.content) {
                fields.clear();
            }
            compare(found, Some(&taken))
        }
        _ => compare(found, expected),
    }
}

/// Whether an engine shows what the model holds.
pub(super) fn compare(found: Option<ValueRef<'_>>, expected: Option<&Entry>) -> Result<(), String> {
    match (found, expected) {
        (None, None) => Ok(()),
        (Some(found), None) => Err(format!("a value of version {:?} is there", found.version)),
        (None, Some(expected)) => Err(format!("version {:?} is not there", expected.version)),
        (Some(found), Some(expected)) => {
            if found.version != expected.version {
                return Err(format!(
                    "version {:?}, not {:?}",
                    found.version, expected.version
                ));
            }
            if found.attributes != expected.attributes {
                let (found, expected) = (found.attributes, expected.attributes);
                return Err(format!("{found:?}, not {expected:?}"));
            }
            compare_content(found.body, &expected.content)
        }
    }
}

fn compare_content(found: BodyRef<'_>, expected: &Content) -> Result<(), String> {
    match (found, expected) {
        (BodyRef::String(found), Content::Text(expected)) => {
            if found == expected.as_slice() {
                Ok(())
            } else {
                let (found, expected) = (found.len(), expected.len());
                Err(format!(
                    "another string: {found} bytes, {expected} expected"
                ))
            }
        }
        (BodyRef::Row(tag, _), Content::Fields(expected, _)) if tag != *expected => {
            Err(format!("a {tag:?}, not a {expected:?}"))
        }
        (BodyRef::Row(_, found), Content::Fields(_, expected)) => {
            if found.len() != expected.len() {
                return Err(format!(
                    "{} fields, {} expected",
                    found.len(),
                    expected.len()
                ));
            }
            for (found, expected) in found.iter().zip(expected) {
                if found.0 != expected.0 || found.1 != expected.1.as_slice() {
                    return Err(format!("field {:?} differs", expected.0.escape_ascii()));
                }
            }
            Ok(())
        }
        _ => Err("another type".into()),
    }
}

fn length() -> impl Strategy<Value = usize> {
    let flat = COLUMN_FLAT_BYTES_MAX;
    prop_oneof![
        60 => 0..40_usize,
        20 => 0..2_000_usize,
        5 => flat - 1..flat + 2,
        5 => 0..200_000_usize,
        1 => 1_000_000..3_000_000_usize,
    ]
}

fn column_length() -> impl Strategy<Value = usize> {
    prop_oneof![40 => 0..20_usize, 8 => 0..2_000_usize, 1 => 0..40_000_usize]
}

fn count() -> impl Strategy<Value = u16> {
    prop_oneof![20 => 1..8_u16, 4 => 1..100_u16, 1 => 1..500_u16]
}

/// A number that is often 0, which engines need not store.
fn sparse() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0), 1 => any::<u64>()]
}

/// Any change.
pub(super) fn change() -> impl Strategy<Value = Change> {
    let seed = any::<u8>();
    prop_oneof![
        2 => Just(Change::Keep),
        8 => Just(Change::Remove),
        12 => (length(), seed).prop_map(|(length, seed)| Change::Text { length, seed }),
        3 => (count(), column_length(), seed)
            .prop_map(|(count, length, seed)| Change::Fields { count, length, seed }),
        4 => (length(), 0..100_usize, seed)
            .prop_map(|(offset, length, seed)| Change::Write { offset, length, seed }),
        4 => (0..500_u16, count(), column_length(), seed).prop_map(|(first, count, length, seed)| {
            Change::SetFields { first, count, length, seed }
        }),
        3 => (any::<u16>(), seed).prop_map(|(rank, seed)| Change::Amend { rank, seed }),
        3 => (0..200_u16, count()).prop_map(|(first, count)| Change::RemoveFields { first, count }),
        3 => (any::<Option<u64>>(), sparse(), sparse(), sparse())
            .prop_map(|(deadline, flags, encoding, token)| {
                let (flags, encoding) = (flags as u32, encoding as u8);
                Change::Attributes { deadline, flags, encoding, token }
            }),
        1 => Just(Change::Copy),
    ]
}
