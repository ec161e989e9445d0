//! The change of a small row that needs no draft: one value replaced by another as long.
//!
//! A draft copies the row, and the engine copies the draft. An amendment says only what changes and
//! where, so an engine copies the present row straight into the new block.

use super::row::{Name, ShortRow};
use super::{Body, BodyRef, HashBody, HashRef, NewValue, PackedRow, ValueRef};

/// The shown row with the value of one field replaced by another as long; its type and attributes
/// stay. Made by [`HashRef::amend`].
#[derive(Clone, Copy, Debug)]
pub struct Amendment<'d> {
    /// Where the value begins in the row's block.
    at: usize,
    value: &'d [u8],
    /// The initial access mark, as of a [`NewValue`].
    pub mark: u8,
}

impl HashRef<'_> {
    /// The change that gives a field this value; `None` unless the hash is small and the field's
    /// present value is as long. O(log fields).
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use pando_engine::{
    ///     BodyRef, Decision, Engine, EpochClock, HashDraft, Key, LogEpoch, NewValue, NoHook,
    ///     Point, ReferenceEngine,
    /// };
    ///
    /// let engine = ReferenceEngine::new(Arc::new(EpochClock::starting_at(LogEpoch(1))));
    /// let (tree, mut session) = (engine.create_tree(), engine.session()?);
    /// let key = Key::new(tree, b"user:1");
    /// for rank in [b"1", b"2"] {
    ///     session.update(key, &mut NoHook, |old| {
    ///         if let Some(BodyRef::Row(_, hash)) = old.map(|old| old.body)
    ///             && let Some(amendment) = hash.amend(b"rank", rank)
    ///         {
    ///             return Decision::Amend(amendment);
    ///         }
    ///         let mut draft = HashDraft::new(None);
    ///         draft.set(b"rank", rank);
    ///         Decision::Write(NewValue::new(draft.finish()))
    ///     });
    /// }
    /// session.get(key, |value| match value.map(|value| value.body) {
    ///     Some(BodyRef::Row(_, hash)) => assert!(hash.get(b"rank").unwrap() == b"2"),
    ///     other => panic!("{other:?}"),
    /// });
    /// # Ok::<(), pando_engine::SessionLimit>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn amend<'d>(self, field: &[u8], value: &'d [u8]) -> Option<Amendment<'d>> {
        let HashRef::Packed(block) = self else {
            return None;
        };
        let row = ShortRow::packed(block);
        let place = row.value_range(row.search_inline(Name::new(field)).ok()?);
        (place.len() == value.len()).then_some(Amendment {
            at: place.start,
            value,
            mark: 0,
        })
    }
}

impl<'d> Amendment<'d> {
    /// What is to be written into a copy of the row's block, and where.
    #[inline]
    #[must_use]
    pub fn parts(&self) -> (usize, &'d [u8]) {
        (self.at, self.value)
    }

    /// The value that the change makes of the one that was shown, for an engine that has no shorter
    /// way. O(size).
    ///
    /// # Panics
    /// When it was made of another value.
    #[must_use]
    pub fn applied_to(&self, old: Option<&ValueRef<'_>>) -> NewValue<'static> {
        let Some(old) = old else {
            panic!("an amendment of nothing")
        };
        let BodyRef::Row(tag, HashRef::Packed(block)) = old.body else {
            panic!("an amendment of what is no small row")
        };
        let mut copy = block.to_vec();
        copy[self.at..][..self.value.len()].copy_from_slice(self.value);
        NewValue {
            attributes: old.attributes,
            body: Body::Row(tag, HashBody::Packed(PackedRow::new(copy))),
            mark: self.mark,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HashDraft, RowTag, ValueVersion};

    fn row(fields: &[(&str, &str)]) -> NewValue<'static> {
        let mut draft = HashDraft::new(None);
        for (field, value) in fields {
            draft.set(field.as_bytes(), value.as_bytes());
        }
        NewValue::new(draft.finish())
    }

    fn columns(value: &NewValue<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
        match value.body.as_ref() {
            BodyRef::Row(RowTag::Hash, row) => {
                let flat = |(name, value): (&[u8], crate::StringRef<'_>)| {
                    (name.to_vec(), value.as_flat().unwrap().to_vec())
                };
                row.iter().map(flat).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    /// Every field of rows of one to twelve, and of lengths from none to beyond a word.
    #[test]
    fn an_amended_row_is_what_a_draft_makes_of_it() {
        for count in 1..=12 {
            for bytes in [0, 1, 8, 30] {
                let names: Vec<String> = (0..count).map(|index| format!("f{index}")).collect();
                let (before, after) = ("x".repeat(bytes), "y".repeat(bytes));
                let fields: Vec<_> = names.iter().map(|name| (&name[..], &before[..])).collect();
                let old = row(&fields);
                let shown = old.view(ValueVersion::from_bits(1));
                let BodyRef::Row(_, hash) = shown.body else {
                    unreachable!("a row was made")
                };
                for name in &names {
                    let amendment = hash.amend(name.as_bytes(), after.as_bytes());
                    let amended = amendment.expect("as long").applied_to(Some(&shown));
                    let mut draft = HashDraft::new(Some(hash));
                    draft.set(name.as_bytes(), after.as_bytes());
                    let drafted = NewValue::new(draft.finish());
                    assert_eq!(columns(&amended), columns(&drafted));
                }
                assert!(hash.amend(b"f", after.as_bytes()).is_none());
                assert!(
                    hash.amend(b"f0", b"another length, at least here")
                        .is_none()
                );
            }
        }
    }
}
