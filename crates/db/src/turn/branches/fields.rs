//! What a merge does about a hash: what it does about a key, for each field.
//!
//! A field is its value and its deadline, as they are at the moment of the merge; one whose
//! deadline has passed is not there. The deadline of the key is one more field, without a name.

use std::collections::BTreeSet;

use pando_engine::{
    BodyRef, Deadline, FieldsDraft, FieldsRef, NewValue, RowTag, StringRef, ValueVersion,
};
use pando_sync::Milliseconds;

use super::diff::same_string;
use super::merge::{Merged, OnConflict};

/// Names of fields that both sides have changed.
pub(super) type Fields = Vec<Box<[u8]>>;

/// The fields of a value, if it is a hash.
fn fields<'v>(value: &'v NewValue<'_>, now: Milliseconds) -> Option<FieldsRef<'v>> {
    // Which version it has does not matter.
    match value.view(ValueVersion::from_bits(0)).body {
        BodyRef::Row(tag @ (RowTag::Hash | RowTag::TimedHash), row) => {
            Some(FieldsRef::new(tag, row, now))
        }
        _ => None,
    }
}

/// The names of all fields that one side may have changed: without deadlines of fields, only those
/// outside of what it shares with the other.
fn names_of_changes(
    then: Option<(&NewValue<'_>, FieldsRef<'_>)>,
    (theirs, there): (&NewValue<'_>, FieldsRef<'_>),
) -> BTreeSet<Box<[u8]>> {
    let version = ValueVersion::from_bits(0);
    let mut names = BTreeSet::new();
    if let Some((base, _)) = then
        && let BodyRef::Row(RowTag::Hash, old) = base.view(version).body
        && let BodyRef::Row(RowTag::Hash, new) = theirs.view(version).body
    {
        new.changed_since(old, &mut |name, _| {
            names.insert(name.into());
        });
        return names;
    }
    let all = then.map(|(_, then)| then.iter()).into_iter().flatten();
    names.extend(all.chain(there.iter()).map(|(name, _)| Box::from(name)));
    names
}

/// A field of a hash.
type Field<'v> = (StringRef<'v>, Option<Deadline>);

fn field<'v>(hash: FieldsRef<'v>, name: &[u8]) -> Option<Field<'v>> {
    hash.get(name).map(|value| (value, hash.deadline(name)))
}

fn is_same(one: Option<Field<'_>>, other: Option<Field<'_>>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => one.1 == other.1 && same_string(one.0, other.0),
        _ => false,
    }
}

/// Makes a field what it is on the other side; `None` if a hash with deadlines cannot have its
/// name, or that of another one.
fn put(draft: &mut FieldsDraft<'_>, name: &[u8], new: Option<Field<'_>>) -> Option<()> {
    let Some((value, deadline)) = new else {
        draft.remove(name);
        return Some(());
    };
    if name.len() > draft.field_bytes_max() {
        return None;
    }
    draft.set(name, value.to_body(), false);
    let Some(deadline) = deadline else {
        return Some(());
    };
    draft.set_deadline(name, deadline).ok()
}

/// Merges hashes field by field; `None` if these are not all hashes, or cannot become one.
pub(super) fn merge_fields(
    base: Option<&NewValue<'_>>,
    [theirs, ours]: [&NewValue<'_>; 2],
    on_conflict: OnConflict,
    now: Milliseconds,
) -> Option<Merged> {
    let then = match base {
        Some(base) => Some(fields(base, now)?),
        None => None,
    };
    let (there, here) = (fields(theirs, now)?, fields(ours, now)?);
    let mut draft = FieldsDraft::new(Some(here), now);
    let (mut is_changed, mut is_conflict, mut clashing) = (false, false, Fields::new());
    for name in &names_of_changes(base.zip(then), (theirs, there)) {
        let old = then.and_then(|then| field(then, name));
        let (new, own) = (field(there, name), field(here, name));
        if is_same(new, old) || is_same(new, own) {
            continue;
        }
        if !is_same(own, old) {
            is_conflict = true;
            clashing.push(name.clone());
            if on_conflict != OnConflict::Theirs {
                continue;
            }
        }
        is_changed = true;
        put(&mut draft, name, new)?;
    }
    let mut attributes = ours.attributes;
    let then = base.map(|base| base.attributes).unwrap_or_default();
    if theirs.attributes.deadline != then.deadline {
        let clashes = ours.attributes.deadline != then.deadline
            && ours.attributes.deadline != theirs.attributes.deadline;
        is_conflict |= clashes;
        if !clashes || on_conflict == OnConflict::Theirs {
            is_changed |= attributes.deadline != theirs.attributes.deadline;
            attributes.deadline = theirs.attributes.deadline;
        }
    }
    if is_conflict && (!is_changed || on_conflict == OnConflict::Fail) {
        return Some(Merged::Conflict(clashing));
    }
    if !is_changed {
        return Some(Merged::Nothing);
    }
    let value = (!draft.is_empty()).then(|| NewValue {
        attributes,
        ..NewValue::new(draft.finish())
    });
    Some(Merged::Write {
        value,
        conflict: is_conflict.then_some(clashing),
    })
}
