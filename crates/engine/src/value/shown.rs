//! The value that a change in place is shown ([`crate::Point::change`]).
//!
//! A change of a large row copies the nodes on the way to what changes, since others may be reading
//! them. Where an engine knows that nobody is, it *lends* the row: the change takes it out of the
//! engine's block, and its nodes need no copies, except those that a snapshot or another value
//! holds, too. Nodes are counted, so the row's drafts tell them apart by themselves.

use super::{
    AccessMark, Attributes, BodyRef, HashRef, PackedRow, RowTag, ValueRef, ValueVersion, WideRow,
};

/// A key's value, whose large row may be there to be taken.
///
/// ```
/// use std::sync::Arc;
///
/// use pando_engine::{
///     BodyRef, Decision, EpochClock, HashDraft, Key, LogEpoch, NewValue, NoHook, Engine, Point,
///     ReferenceEngine,
/// };
///
/// let engine = ReferenceEngine::new(Arc::new(EpochClock::starting_at(LogEpoch(1))));
/// let (tree, mut session) = (engine.create_tree(), engine.session()?);
/// for rank in [b"1", b"2"] {
///     session.change(Key::new(tree, b"user:1"), &mut NoHook, |shown| {
///         let mut draft = match (shown.take(), shown.value().map(|value| value.body)) {
///             (Some(row), _) => HashDraft::of(row),
///             (None, Some(BodyRef::Row(_, row))) => HashDraft::new(Some(row)),
///             (None, _) => HashDraft::new(None),
///         };
///         draft.set(b"rank", rank);
///         Decision::Write(NewValue::new(draft.finish()))
///     });
/// }
/// # Ok::<(), pando_engine::SessionLimit>(())
/// ```
#[derive(Debug)]
pub struct Shown<'v>(Of<'v>);

#[derive(Debug)]
enum Of<'v> {
    Seen(Option<ValueRef<'v>>),
    Lent {
        version: ValueVersion,
        attributes: Attributes,
        tag: RowTag,
        row: &'v mut WideRow,
        mark: AccessMark<'v>,
    },
}

impl<'v> Shown<'v> {
    /// A value that others may see.
    #[must_use]
    pub fn seen(value: Option<ValueRef<'v>>) -> Self {
        Self(Of::Seen(value))
    }

    /// One that nobody else sees, with a large row of this type.
    #[must_use]
    pub fn lent(
        version: ValueVersion,
        attributes: Attributes,
        tag: RowTag,
        row: &'v mut WideRow,
        mark: AccessMark<'v>,
    ) -> Self {
        Self(Of::Lent {
            version,
            attributes,
            tag,
            row,
            mark,
        })
    }

    /// The value; one whose row was taken has an empty row.
    #[must_use]
    pub fn value(&self) -> Option<ValueRef<'_>> {
        match &self.0 {
            Of::Seen(value) => *value,
            Of::Lent {
                version,
                attributes,
                tag,
                row,
                mark,
            } => Some(ValueRef {
                version: *version,
                attributes: *attributes,
                body: BodyRef::Row(
                    *tag,
                    if row.is_empty() {
                        HashRef::Packed(PackedRow::EMPTY)
                    } else {
                        HashRef::Wide(row)
                    },
                ),
                mark: *mark,
            }),
        }
    }

    /// Takes the row, if it is lent. Who then keeps the key gives it back.
    #[must_use]
    pub fn take(&mut self) -> Option<WideRow> {
        match &mut self.0 {
            Of::Seen(_) => None,
            Of::Lent { row, .. } => row.take(),
        }
    }

    /// Gives back what was taken, unchanged.
    pub fn give_back(&mut self, row: WideRow) {
        match &mut self.0 {
            Of::Lent { row: place, .. } if place.is_empty() => **place = row,
            _ => unreachable!("it was taken from here"),
        }
    }

    /// Whether the row was taken and not given back.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        matches!(&self.0, Of::Lent { row, .. } if row.is_empty())
    }
}
