//! Log records: what one commit did to one key, or to the mapping of database numbers.
//!
//! Kind 5 is a [`Standing`], kind 6 a [`CatalogChange`], each in its own format. The others:
//!
//! | bytes | field | put | change | remove | mapping |
//! |---|---|---|---|---|---|
//! | 1 | kind | 1 | 2 | 3 | 4 |
//! | number | tree | x | x | x | |
//! | 8 | version | x | x | x | |
//! | number | version minus that of the predecessor | | x | | |
//! | string | key | x | x | x | |
//! | n | the value, or what changes of it (see `value`) | x | x | | |
//! | number | how often the mapping has changed | | | | x |
//! | numbers | how many databases, then the tree of each | | | | x |
//!
//! Records follow each other without a mark. The log's groups give their boundaries, and its
//! checksums guard their bytes. A change names its predecessor and applies to nothing else.
//!
//! Invariants:
//! - **DR1 cost-of-change** A record's cost is that of the change, O(changed · log size), for
//!   values that share nodes with their predecessor; small values are written whole unless that is
//!   expensive.
//! - **DR2 change-rebuilds** A value rebuilt from its predecessor and a change equals the committed
//!   value.

use pando_engine::limits::KEY_BYTES_MAX;
use pando_engine::{
    BodyRef, HashRef, Key, NewValue, StringRef, TreeId, TypeTag, ValueRef, ValueVersion,
};

use super::bytes::{Input, Malformed, Sink, malformed};
use super::catalog::CatalogChange;
use super::standing::Standing;
use super::value::{self, ValueView};
use crate::limits;

const PUT: u8 = 1;
const CHANGE: u8 = 2;
const REMOVE: u8 = 3;
const MAPPING: u8 = 4;
const STANDING: u8 = 5;
const CATALOG: u8 = 6;

/// Small values below this many bytes are written whole without searching for changes.
const WHOLE_BYTES_MAX: usize = 256;

/// Most bytes that the record of a small value takes, including both attempts at it.
pub(crate) const SMALL_RECORD_BYTES_MAX: usize = KEY_BYTES_MAX
    + 2 * pando_engine::limits::COLUMN_FLAT_BYTES_MAX
    + 4 * pando_engine::limits::PACKED_ROW_BYTES_MAX
    + 1024;

/// A parsed record.
#[derive(Clone, Debug)]
pub(crate) enum Record<'a> {
    /// The key has this value.
    Put(Written<'a>, ValueView<'a>),
    /// The key's value of version `predecessor` was changed.
    Change {
        written: Written<'a>,
        predecessor: ValueVersion,
        change: ValueView<'a>,
    },
    /// The key was removed.
    Remove(Written<'a>),
    /// Database numbers map to these trees.
    Mapping {
        /// Rises with every change of the mapping.
        changes: u64,
        trees: Vec<TreeId>,
    },
    /// The database stands here in a history that it follows.
    Standing(Standing),
    /// A branch, or a snapshot that lasts, has changed.
    Catalog(CatalogChange),
}

impl<'a> Record<'a> {
    /// What was written, if it is a key.
    pub(crate) fn written(&self) -> Option<Written<'a>> {
        match *self {
            Self::Put(written, _) | Self::Change { written, .. } | Self::Remove(written) => {
                Some(written)
            }
            Self::Mapping { .. } | Self::Standing(_) | Self::Catalog(_) => None,
        }
    }
}

/// Which version of which key was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written<'a> {
    pub(crate) key: Key<'a>,
    pub(crate) version: ValueVersion,
}

/// Whether a value's record can be written under the engine's lock: its cost has a bound.
#[inline]
pub(crate) fn is_small(value: ValueRef<'_>) -> bool {
    matches!(
        value.body,
        BodyRef::String(StringRef::Flat(_)) | BodyRef::Row(_, HashRef::Packed(_))
    )
}

#[inline]
fn put_head(out: &mut Vec<u8>, kind: u8, key: Key<'_>, version: ValueVersion) {
    let version = version.to_bits().to_le_bytes();
    if key.tree.0 < 0x80 {
        // What follows, in one piece: this is written under the engine's lock.
        let mut head = [0; 10];
        (head[0], head[1]) = (kind, key.tree.0 as u8);
        head[2..].copy_from_slice(&version);
        out.put(&head);
    } else {
        out.put(&[kind]);
        out.number(u64::from(key.tree.0));
        out.put(&version);
    }
}

/// Writes the record of a removal.
pub(crate) fn put_remove(out: &mut Vec<u8>, key: Key<'_>, version: ValueVersion) {
    let start = out.len();
    put_head(out, REMOVE, key, version);
    out.string(key.bytes);
    debug_assert!(is_readable(&out[start..]));
}

/// Whether recovery reads one record here: every writer of records asks, in debug builds.
fn is_readable(record: &[u8]) -> bool {
    let mut input = Input(record);
    take(&mut input).is_ok() && input.is_empty()
}

/// Writes the record of a commit that has left `new`.
#[inline]
pub(crate) fn put_write(
    out: &mut Vec<u8>,
    key: Key<'_>,
    old: Option<ValueRef<'_>>,
    new: ValueRef<'_>,
) {
    if let Some(old) = old
        && may_be_change(old, new)
        && try_put_change(out, key, old, new)
    {
        return;
    }
    let start = out.len();
    put_head(out, PUT, key, new.version);
    out.string(key.bytes);
    value::put_value(out, new);
    debug_assert!(is_readable(&out[start..]));
}

/// Whether the changes may be smaller than the value, as far as is known without comparing.
#[inline]
fn may_be_change(old: ValueRef<'_>, new: ValueRef<'_>) -> bool {
    match (old.body, new.body) {
        (_, BodyRef::String(StringRef::Flat(flat))) if flat.len() < WHOLE_BYTES_MAX => false,
        (BodyRef::String(was), BodyRef::String(now)) => now.len() >= was.len(),
        (BodyRef::Row(was, _), BodyRef::Row(now, _)) if was != now => false,
        (BodyRef::Row(_, HashRef::Packed(_)), BodyRef::Row(_, HashRef::Packed(block))) => {
            block.len() >= WHOLE_BYTES_MAX
        }
        (BodyRef::Row(_, HashRef::Wide(_)), BodyRef::Row(_, HashRef::Wide(_))) => true,
        // Another type, or a row that has just become wide, or small again.
        _ => false,
    }
}

/// Writes the record of a change, unless that does not pay: then nothing.
fn try_put_change(out: &mut Vec<u8>, key: Key<'_>, old: ValueRef<'_>, new: ValueRef<'_>) -> bool {
    let start = out.len();
    // A reader refuses a change that is not behind its predecessor.
    debug_assert!(old.version < new.version);
    put_head(out, CHANGE, key, new.version);
    out.number(new.version.to_bits() - old.version.to_bits());
    out.string(key.bytes);
    let worth_it = put_change(out, old, new);
    if !worth_it {
        out.truncate(start);
    }
    debug_assert!(!worth_it || is_readable(&out[start..]));
    worth_it
}

/// Writes the changes between two versions, unless that does not pay.
fn put_change(out: &mut Vec<u8>, old: ValueRef<'_>, new: ValueRef<'_>) -> bool {
    match (old.body, new.body) {
        (BodyRef::String(was), BodyRef::String(now)) => {
            let mut ranges: Vec<std::ops::Range<usize>> = Vec::new();
            let mut bytes = 0;
            now.changed_since(was, |range| {
                bytes += range.len();
                match ranges.last_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => ranges.push(range),
                }
            });
            if bytes > now.heap_bytes() / 2 {
                return false;
            }
            let same = bytes == 0 && now.len() == was.len();
            value::put_attributes(out, TypeTag::String, !same, new.attributes);
            if !same {
                value::put_pieces(out, now, |visit| ranges.into_iter().for_each(visit));
            }
            true
        }
        (BodyRef::Row(_, was), BodyRef::Row(_, now)) => put_changed_fields(out, was, now, new),
        _ => false,
    }
}

fn put_changed_fields(
    out: &mut Vec<u8>,
    was: HashRef<'_>,
    now: HashRef<'_>,
    new: ValueRef<'_>,
) -> bool {
    let bytes_max = match (was, now) {
        (HashRef::Packed(_), HashRef::Packed(block)) => block.len() / 2,
        (HashRef::Wide(_), HashRef::Wide(row)) => row.heap_bytes() / 2,
        _ => return false,
    };
    let start = out.len();
    value::put_attributes(out, new.tag(), true, new.attributes);
    let fields = out.len();
    let mut dear = false;
    let follows = value::columns_that_follow(new.body);
    now.changed_since(was, &mut |field, value| {
        dear |= out.len() - fields > bytes_max;
        if !dear && !follows(field) {
            value::put_field(out, field, value);
        }
    });
    if dear || out.len() - fields > bytes_max {
        out.truncate(start);
        return false;
    }
    if out.len() == fields {
        out.truncate(start);
        value::put_attributes(out, new.tag(), false, new.attributes);
    } else {
        value::end_fields(out);
    }
    true
}

/// Writes the record of a mapping.
pub(crate) fn put_mapping(
    out: &mut Vec<u8>,
    changes: u64,
    trees: impl ExactSizeIterator<Item = TreeId>,
) {
    // A reader refuses more.
    assert!(trees.len() <= limits::DATABASES_MAX);
    let start = out.len();
    out.put(&[MAPPING]);
    out.number(changes);
    out.number(trees.len() as u64);
    for tree in trees {
        out.number(u64::from(tree.0));
    }
    debug_assert!(is_readable(&out[start..]));
}

/// Writes the record of where the database stands.
pub(crate) fn put_standing(out: &mut Vec<u8>, standing: &Standing) {
    let start = out.len();
    out.put(&[STANDING]);
    standing.put(out);
    debug_assert!(is_readable(&out[start..]));
}

/// Writes the record of a change of branches, or of snapshots that last.
pub(crate) fn put_catalog(out: &mut Vec<u8>, change: &CatalogChange) {
    let start = out.len();
    out.put(&[CATALOG]);
    change.put(out);
    debug_assert!(is_readable(&out[start..]));
}

fn take_tree(input: &mut Input<'_>) -> Result<TreeId, Malformed> {
    match u32::try_from(input.number()?) {
        Ok(tree) if tree < u32::MAX => Ok(TreeId(tree)),
        _ => malformed("a tree's number has more than 32 bits"),
    }
}

/// A record of a key up to its value, which is parsed later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    pub(crate) written: Written<'a>,
    kind: u8,
    /// Of a change: its version minus that of the predecessor.
    age: u64,
    /// What follows.
    rest: Input<'a>,
}

impl<'a> Head<'a> {
    /// Parses a record up to its value; `None`: it is not one of a key, and nothing was taken.
    #[inline]
    pub(crate) fn take(input: &mut Input<'a>) -> Result<Option<Self>, Malformed> {
        let mut rest = *input;
        let kind = rest.byte()?;
        if !matches!(kind, PUT | CHANGE | REMOVE) {
            return Ok(None);
        }
        let tree = take_tree(&mut rest)?;
        let version = ValueVersion::from_bits(rest.fixed()?);
        let age = if kind == CHANGE { rest.number()? } else { 0 };
        let key = Key::new(tree, rest.string(KEY_BYTES_MAX)?);
        if kind == CHANGE && (age == 0 || age > version.to_bits()) {
            return malformed("a change is not behind its predecessor");
        }
        *input = rest;
        Ok(Some(Self {
            written: Written { key, version },
            kind,
            age,
            rest,
        }))
    }

    /// What becomes of the key's value: nothing, if the record removes it.
    #[inline]
    pub(crate) fn outcome(
        &self,
        old: Option<ValueRef<'_>>,
    ) -> Result<Option<NewValue<'a>>, Malformed> {
        let mut rest = self.rest;
        match (self.kind, old) {
            (PUT, _) => value::take_value(&mut rest)?.build().map(Some),
            (REMOVE, _) => Ok(None),
            (_, Some(old)) => value::take_change(&mut rest)?.apply(old).map(Some),
            (_, None) => malformed("the value that a change belongs to is not there"),
        }
    }

    #[inline]
    fn take_rest(&mut self) -> Result<Record<'a>, Malformed> {
        let (written, rest) = (self.written, &mut self.rest);
        Ok(match self.kind {
            PUT => Record::Put(written, value::take_value(rest)?),
            REMOVE => Record::Remove(written),
            _ => Record::Change {
                written,
                predecessor: ValueVersion::from_bits(written.version.to_bits() - self.age),
                change: value::take_change(rest)?,
            },
        })
    }
}

/// Passes over a record that can be parsed; returns what was written, if it is a key.
#[inline]
pub(crate) fn pass<'a>(input: &mut Input<'a>) -> Result<Option<Written<'a>>, Malformed> {
    let Some(head) = Head::take(input)? else {
        return take(input).map(|_| None);
    };
    match head.kind {
        PUT => {
            value::take_value(input)?;
        }
        CHANGE => {
            value::take_change(input)?;
        }
        _ => {}
    }
    Ok(Some(head.written))
}

/// Parses a record.
pub(crate) fn take<'a>(input: &mut Input<'a>) -> Result<Record<'a>, Malformed> {
    if let Some(mut head) = Head::take(input)? {
        let record = head.take_rest()?;
        *input = head.rest;
        return Ok(record);
    }
    match input.byte()? {
        MAPPING => {
            let changes = input.number()?;
            let count = input.length(limits::DATABASES_MAX)?;
            let trees = (0..count)
                .map(|_| take_tree(input))
                .collect::<Result<_, _>>()?;
            Ok(Record::Mapping { changes, trees })
        }
        STANDING => Ok(Record::Standing(Standing::take(input)?)),
        CATALOG => Ok(Record::Catalog(CatalogChange::take(input)?)),
        _ => malformed("a record has a kind that this version does not know"),
    }
}

/// Checks that any bytes cause a reader of records nothing worse than an error, and that attributes
/// it has read are written again unchanged, and that [`pass`] reads the same.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(bytes: &[u8]) {
    use pando_engine::{Attributes, Body, NewValue};
    let mut input = Input(bytes);
    while !input.is_empty() {
        let mut passed = input;
        let record = take(&mut input);
        let written = record.as_ref().map(Record::written).map_err(|error| *error);
        assert_eq!(pass(&mut passed), written, "one sees what the other sees");
        let Ok(record) = record else { return };
        assert_eq!(passed.0.len(), input.0.len());
        match record {
            Record::Put(written, view) => {
                let value = NewValue::new(Body::string(b"")).with(view.attributes);
                let mut again = Vec::new();
                put_write(&mut again, written.key, None, value.view(written.version));
                match take(&mut Input(&again)) {
                    Ok(Record::Put(_, read)) => assert_eq!(read.attributes, view.attributes),
                    other => panic!("{other:?}"),
                }
                // Lengths are bounded, but many holes of 512 MiB each are not worth a run.
                if !matches!(view.content, value::Content::Pieces(1_000_000.., _)) {
                    let _ = view.build();
                }
            }
            Record::Change { change, .. } => {
                if matches!(change.content, value::Content::Pieces(1_000_000.., _)) {
                    continue;
                }
                let old = NewValue::new(Body::string(b"old")).with(Attributes::default());
                let _ = change.apply(old.view(ValueVersion::from_bits(1)));
                let mut draft = pando_engine::HashDraft::new(None);
                draft.set(b"field", b"value");
                let old = NewValue::new(draft.finish());
                let _ = change.apply(old.view(ValueVersion::from_bits(1)));
            }
            Record::Remove(_)
            | Record::Mapping { .. }
            | Record::Standing(_)
            | Record::Catalog(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
