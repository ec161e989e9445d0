//! A hash as a reader sees it, and the draft that builds its next version.

use std::borrow::Cow;
use std::fmt;
use std::iter::FusedIterator;

use super::list;
use super::row::{self, Entries, Name, Part, RowRef, ShortRow};
use super::wide::{Changes, Column, End, Leaf};
use super::{Body, Chunked, PackedRow, RowTag, StringBody, StringRef, WideRow};
use crate::limits::{COLUMN_FLAT_BYTES_MAX, FIELD_BYTES_MAX, PACKED_ROW_BYTES_MAX};

/// A hash: named columns in byte order of their names.
#[derive(Clone, Copy, Debug)]
pub enum HashRef<'a> {
    /// All columns in one block ([`PackedRow`]).
    Packed(&'a [u8]),
    /// A tree of columns.
    Wide(&'a WideRow),
}

/// A hash to be stored, in one of its forms.
#[derive(Debug)]
pub enum HashBody {
    /// A small one.
    Packed(PackedRow),
    /// A large one.
    Wide(WideRow),
}

impl HashBody {
    /// The row as a reader will see it.
    #[must_use]
    pub fn as_ref(&self) -> HashRef<'_> {
        match self {
            Self::Packed(row) => HashRef::Packed(row.as_bytes()),
            Self::Wide(row) => HashRef::Wide(row),
        }
    }
}

impl<'a> HashRef<'a> {
    /// Number of fields. O(1).
    #[inline]
    #[must_use]
    pub fn len(self) -> usize {
        match self {
            HashRef::Packed(block) => RowRef::new(block).len(),
            HashRef::Wide(row) => row.len(),
        }
    }

    /// Whether there are no fields; a stored hash has at least one.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The value of a field. O(log fields).
    #[inline]
    #[must_use]
    pub fn get(self, field: &[u8]) -> Option<StringRef<'a>> {
        match self {
            HashRef::Packed(block) => {
                let (_, value) = ShortRow::packed(block).get(&Name::new(field), NOWHERE)?;
                Some(StringRef::Flat(value))
            }
            HashRef::Wide(row) => row.get(field),
        }
    }

    /// The value of a field, looked for first where `near` says it was in another hash: O(1) in
    /// small hashes of the same fields, else O(log fields). `near` may start with any value.
    #[inline]
    #[must_use]
    pub fn get_near(self, field: &[u8], near: &mut usize) -> Option<StringRef<'a>> {
        self.find(&Name::new(field), near)
    }

    #[inline]
    fn find(self, name: &Name<'_>, near: &mut usize) -> Option<StringRef<'a>> {
        match self {
            HashRef::Packed(block) => {
                let (index, value) = ShortRow::packed(block).get(name, *near)?;
                *near = index;
                Some(StringRef::Flat(value))
            }
            HashRef::Wide(row) => row.get(name.bytes()),
        }
    }

    /// The field at `rank` in byte order. O(log fields).
    #[must_use]
    pub fn nth(self, rank: usize) -> Option<(&'a [u8], StringRef<'a>)> {
        self.iter_from_rank(rank).next()
    }

    /// The rank of the first field at or after `field`, [`Self::len`] if there is none.
    /// O(log fields).
    #[must_use]
    pub fn rank(self, field: &[u8]) -> usize {
        match self {
            HashRef::Packed(block) => RowRef::new(block).search(field).unwrap_or_else(|at| at),
            HashRef::Wide(row) => row.rank(field),
        }
    }

    /// All fields in byte order.
    #[inline]
    pub fn iter(self) -> HashIter<'a> {
        self.iter_from_rank(0)
    }

    /// Fields at or after `start`, in byte order. O(log fields) to begin.
    pub fn iter_from(self, start: &[u8]) -> HashIter<'a> {
        self.iter_from_rank(self.rank(start))
    }

    /// Fields from `rank` on, in byte order; none when it is beyond the last. O(log fields) to
    /// begin.
    #[inline]
    pub fn iter_from_rank(self, rank: usize) -> HashIter<'a> {
        let form = match self {
            HashRef::Packed(block) => {
                let row = ShortRow::packed(block);
                IterForm::Packed(row, row.entries(rank))
            }
            HashRef::Wide(row) => IterForm::Wide {
                row,
                leaf: None,
                index: 0,
                entries: None,
            },
        };
        let length = self.len();
        HashIter {
            form,
            rank: rank.min(length),
            length,
        }
    }

    /// Shows, in order, the fields that differ from `old`: with their value, or with `None` if they
    /// were removed. Skips nodes that two wide rows share: O(changed · log fields) between
    /// successive versions, else O(fields).
    pub fn changed_since(
        self,
        old: HashRef<'_>,
        visit: &mut impl FnMut(&[u8], Option<StringRef<'_>>),
    ) {
        if let (HashRef::Wide(new), HashRef::Wide(old)) = (self, old) {
            return new.changed_since(old, visit);
        }
        let mut changes = Changes::new(visit);
        for (field, value) in old.iter() {
            changes.push_old(field, value);
        }
        for (field, value) in self.iter() {
            changes.push_new(field, value);
        }
        changes.settle();
    }

    /// Heap bytes of the hash. O(1).
    #[must_use]
    pub fn heap_bytes(self) -> usize {
        match self {
            HashRef::Packed(block) => block.len(),
            HashRef::Wide(row) => row.heap_bytes(),
        }
    }

    /// A copy that shares nothing with this hash (COPY, RESTORE). O(size).
    #[must_use]
    pub fn to_body(self) -> HashBody {
        match self {
            HashRef::Packed(block) => HashBody::Packed(PackedRow::new(block.to_vec())),
            HashRef::Wide(row) => HashBody::Wide(row.deep_copy()),
        }
    }

    /// The same hash, handed over to the value that replaces it (D2 successors-share): RENAME, a
    /// new deadline. O(1) when wide, else O(size).
    #[must_use]
    pub fn hand_over(self) -> HashBody {
        match self {
            HashRef::Packed(_) => self.to_body(),
            HashRef::Wide(row) => HashBody::Wide(row.hand_over()),
        }
    }
}

/// Finds one field in one hash after another, starting where it was in the previous one.
///
/// ```
/// use pando_engine::{FieldFinder, HashDraft, HashRef, BodyRef};
///
/// let mut draft = HashDraft::new(None);
/// draft.set(b"colour", b"red");
/// draft.set(b"size", b"7");
/// let body = draft.finish();
/// let BodyRef::Row(_, hash) = body.as_ref() else {
///     unreachable!("a hash was made")
/// };
/// let mut size = FieldFinder::new(b"size");
/// assert!(size.find(hash).is_some_and(|value| value == b"7"));
/// ```
#[derive(Clone, Debug)]
pub struct FieldFinder<'f> {
    name: Name<'f>,
    near: usize,
}

impl<'f> FieldFinder<'f> {
    /// A finder of a field.
    #[inline]
    #[must_use]
    pub fn new(field: &'f [u8]) -> Self {
        Self {
            name: Name::new(field),
            near: 0,
        }
    }

    /// The value of the field. O(1) in small hashes of the same fields, else O(log fields).
    #[inline]
    pub fn find<'a>(&mut self, hash: HashRef<'a>) -> Option<StringRef<'a>> {
        hash.find(&self.name, &mut self.near)
    }
}

/// The index that no field has.
const NOWHERE: usize = usize::MAX;

/// Fields of a hash with their values, in byte order of the fields.
#[derive(Clone)]
pub struct HashIter<'a> {
    form: IterForm<'a>,
    /// Of the next field.
    rank: usize,
    /// Fields of the hash.
    length: usize,
}

#[derive(Clone)]
enum IterForm<'a> {
    Packed(ShortRow<'a>, Entries<'a>),
    Wide {
        row: &'a WideRow,
        /// The leaf of the field before `rank`, and where the next one would be in it.
        leaf: Option<&'a Leaf>,
        index: usize,
        /// The rest of that leaf, if it holds all values in line.
        entries: Option<Entries<'a>>,
    },
}

impl<'a> Iterator for HashIter<'a> {
    type Item = (&'a [u8], StringRef<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let item = match &mut self.form {
            IterForm::Packed(_, entries) => {
                let (field, value) = entries.next()?;
                (field, StringRef::Flat(value))
            }
            IterForm::Wide { .. } if self.rank == self.length => return None,
            IterForm::Wide {
                entries: Some(entries),
                ..
            } if entries.len() > 0 => {
                let (field, value) = entries.next()?;
                (field, StringRef::Flat(value))
            }
            IterForm::Wide {
                row,
                leaf,
                index,
                entries,
            } => {
                let current = match *leaf {
                    Some(leaf) if entries.is_none() && *index < leaf.row().len() => leaf,
                    _ => {
                        let (next, at) = row.nth_leaf(self.rank)?;
                        (*leaf, *index) = (Some(next), at);
                        *entries = next.entries_behind(at);
                        next
                    }
                };
                *index += 1;
                (current.row().field(*index - 1), current.value(*index - 1))
            }
        };
        self.rank += 1;
        Some(item)
    }

    #[inline]
    fn fold<A, F>(self, mut all: A, mut fold: F) -> A
    where
        F: FnMut(A, Self::Item) -> A,
    {
        // The form is checked once.
        if let IterForm::Packed(_, entries) = self.form {
            let strings = entries.map(|(field, value)| (field, StringRef::Flat(value)));
            return strings.fold(all, fold);
        }
        for item in self {
            all = fold(all, item);
        }
        all
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let rest = self.length - self.rank;
        (rest, Some(rest))
    }

    /// O(log fields), however many are skipped.
    fn nth(&mut self, count: usize) -> Option<Self::Item> {
        self.rank = self.rank.saturating_add(count).min(self.length);
        match &mut self.form {
            IterForm::Packed(row, entries) => *entries = row.entries(self.rank),
            IterForm::Wide { leaf, entries, .. } => (*leaf, *entries) = (None, None),
        }
        self.next()
    }
}

impl ExactSizeIterator for HashIter<'_> {}
impl FusedIterator for HashIter<'_> {}

impl fmt::Debug for HashIter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashIter")
            .field("rank", &self.rank)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// The next version of a hash, under construction.
///
/// A small hash is one block: the first change copies it, later ones change the copy in place,
/// until it outgrows [`PACKED_ROW_BYTES_MAX`] or a column is chunked. A large one shares its nodes
/// with the previous version: the first change to a node copies it, later ones change the copy.
#[derive(Debug)]
pub struct HashDraft<'o> {
    form: Form<'o>,
    /// It is a list, whose large form counts elements.
    has_runs: bool,
}

#[derive(Debug)]
enum Form<'o> {
    Packed(Cow<'o, [u8]>),
    Wide(WideRow),
}

impl<'o> HashDraft<'o> {
    /// Begins with the columns of `old`. O(1).
    #[must_use]
    pub fn new(old: Option<HashRef<'o>>) -> Self {
        let (form, has_runs) = match old {
            None => (Form::Packed(Cow::Borrowed(row::EMPTY)), false),
            Some(HashRef::Packed(block)) => (Form::Packed(Cow::Borrowed(block)), false),
            Some(HashRef::Wide(row)) => (Form::Wide(row.hand_over()), row.has_runs()),
        };
        Self { form, has_runs }
    }

    /// Goes on with a row that was taken ([`super::Shown::take`]): its nodes are changed in place,
    /// except those that others hold, too. O(1).
    #[must_use]
    pub fn of(row: WideRow) -> Self {
        Self {
            has_runs: row.has_runs(),
            form: Form::Wide(row),
        }
    }

    /// The row of a draft that has changed nothing, if it is a large one.
    #[must_use]
    pub fn into_row(self) -> Option<WideRow> {
        match self.form {
            Form::Wide(row) => Some(row),
            Form::Packed(_) => None,
        }
    }

    /// The same for a row that will be finished as one of this type. O(1).
    #[must_use]
    pub fn new_as(tag: RowTag, old: Option<HashRef<'o>>) -> Self {
        let mut draft = Self::new(old);
        draft.has_runs |= tag == RowTag::List;
        draft
    }

    /// The hash with the changes so far.
    #[must_use]
    pub fn as_ref(&self) -> HashRef<'_> {
        match &self.form {
            Form::Packed(block) => HashRef::Packed(block),
            Form::Wide(row) => HashRef::Wide(row),
        }
    }

    /// Number of fields. O(1).
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_ref().len()
    }

    /// Whether no fields are left, so that the key is to be removed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a field. O(log fields).
    #[must_use]
    pub fn get(&self, field: &[u8]) -> Option<StringRef<'_>> {
        self.as_ref().get(field)
    }

    /// Sets a field; returns whether it is new. O(log fields + bytes).
    ///
    /// A field longer than [`FIELD_BYTES_MAX`] or a value longer than
    /// [`crate::limits::COLUMN_BYTES_MAX`] is a broken invariant of the caller.
    pub fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        if value.len() <= COLUMN_FLAT_BYTES_MAX {
            self.set_column(field, Column::Flat(value))
        } else {
            self.set_column(field, Column::Large(Chunked::from_bytes(value)))
        }
    }

    /// Sets several fields, of each name to its last value; returns how many are new. A small hash
    /// that has none yet is made at once, in O(bytes) where the names come in order; else as for
    /// [`Self::set`] each.
    pub fn set_all(&mut self, fields: &[(&[u8], &[u8])]) -> usize {
        if let Form::Packed(block) = &mut self.form
            && block.len() == row::EMPTY.len()
            && let Some((packed, count)) = pack(fields)
        {
            *block = Cow::Owned(packed);
            return count;
        }
        let new = fields
            .iter()
            .filter(|(field, value)| self.set(field, value));
        new.count()
    }

    /// Sets a field to a string made earlier, e.g. by [`StringRef::with_write`] from the field's
    /// old value; returns whether the field is new. O(log fields), and O(bytes) of a flat value.
    ///
    /// A hash, or a length beyond the bounds of [`Self::set`], is a broken invariant of the caller.
    pub fn set_body(&mut self, field: &[u8], value: StringBody<'_>) -> bool {
        match value {
            StringBody::Flat(bytes) => self.set(field, &bytes),
            StringBody::Chunked(column) => self.set_column(field, Column::Large(column)),
        }
    }

    /// Sets a field unless it is there; returns whether it was not. O(log fields + bytes).
    ///
    /// The bounds are those of [`Self::set`].
    pub fn add(&mut self, field: &[u8], value: &[u8]) -> bool {
        self.set_unless(field, value, |_| true)
    }

    /// Sets a field unless it has a value that may stay; returns whether it is new. A large row
    /// that stays as it is costs no copy of its nodes.
    pub(super) fn set_unless(
        &mut self,
        field: &[u8],
        value: &[u8],
        stays: impl FnOnce(StringRef<'_>) -> bool,
    ) -> bool {
        if let Form::Wide(row) = &mut self.form
            && value.len() <= COLUMN_FLAT_BYTES_MAX
        {
            check_name(field);
            return row.set_unless((field, value), stays);
        }
        !self.get(field).is_some_and(stays) && self.set(field, value)
    }

    /// The draft as a large row, if it is one, for changes of fields of lawful lengths to flat
    /// values.
    pub(super) fn wide_mut(&mut self) -> Option<&mut WideRow> {
        match &mut self.form {
            Form::Wide(row) => Some(row),
            Form::Packed(_) => None,
        }
    }

    fn set_column(&mut self, field: &[u8], column: Column<'_>) -> bool {
        check_name(field);
        if let Form::Packed(block) = &mut self.form
            && let Column::Flat(value) = column
        {
            // Copied first: that fetches the block's lines in parallel; a search would wait for one
            // after the other.
            let copy = own(block, field.len() + value.len());
            let row = ShortRow::packed(copy);
            let at = row.search_to_set(Name::new(field));
            let place = at.map_or(0..0, |index| row.value_range(index));
            if at.is_ok() && place.len() == value.len() {
                copy[place].copy_from_slice(value);
                return false;
            }
            let row = RowRef::new(copy);
            if row.bytes_with(at, field, value) <= PACKED_ROW_BYTES_MAX {
                row::set_in(copy, at, field, value);
                return at.is_err();
            }
        }
        self.as_wide().set(field, column)
    }

    /// The row as a large one, which it becomes.
    fn as_wide(&mut self) -> &mut WideRow {
        if let Form::Packed(block) = &mut self.form {
            let block = std::mem::take(block).into_owned();
            self.form = Form::Wide(WideRow::from_block(block.into(), self.has_runs));
        }
        let Form::Wide(row) = &mut self.form else {
            unreachable!("it is a large one now")
        };
        row
    }

    /// Removes a field; returns whether it was there. O(log fields).
    pub fn remove(&mut self, field: &[u8]) -> bool {
        match &mut self.form {
            Form::Wide(row) => row.remove(field),
            Form::Packed(block) => {
                let row = RowRef::new(block);
                let Ok(index) = row.search(field) else {
                    return false;
                };
                row::remove_from(own(block, 0), index..index + 1);
                true
            }
        }
    }

    /// Removes the field at `rank`, if there is one, once it was shown with its value. O(log
    /// fields).
    pub(super) fn remove_nth(&mut self, rank: usize, show: impl FnOnce(&[u8], StringRef<'_>)) {
        match &mut self.form {
            Form::Wide(row) => row.remove_nth(rank, show),
            Form::Packed(block) => {
                let Some((name, value)) = HashRef::Packed(block).nth(rank) else {
                    return;
                };
                show(name, value);
                row::remove_from(own(block, 0), rank..rank + 1);
            }
        }
    }

    /// Removes so many fields of a large row, which are there, from the one at `rank` on.
    pub(super) fn remove_from_rank(&mut self, rank: usize, count: usize) {
        match &mut self.form {
            Form::Wide(row) => row.remove_from_rank(rank, count),
            Form::Packed(block) => row::remove_from(own(block, 0), rank..rank + count),
        }
    }

    /// Sets flat columns that come before all others, or after them, in the order of their fields.
    pub(super) fn extend(&mut self, end: End, columns: &[(&[u8], &[u8])]) {
        if let Form::Wide(row) = &mut self.form {
            return row.extend(end, columns);
        }
        for (field, value) in columns {
            self.set(field, value);
        }
    }

    /// Removes the first or last columns, fewer than there are.
    pub(super) fn cut(&mut self, end: End, count: usize) {
        match &mut self.form {
            Form::Wide(row) => row.cut(end, count),
            Form::Packed(_) if count == 0 => {}
            Form::Packed(block) => {
                let row = RowRef::new(block);
                let kept = match end {
                    End::First => count..row.len(),
                    End::Last => 0..row.len() - count,
                };
                let kept = row::assemble(&[Part::Rows(row, kept)]);
                *block = Cow::Owned(kept.into_vec());
            }
        }
    }

    /// The finished hash; see [`Self::finish_as`].
    #[must_use]
    pub fn finish(self) -> Body<'static> {
        self.finish_as(RowTag::Hash)
    }

    /// The finished body of this type, in the form for its size (D1 smallest-form). O(1), or
    /// O(size) for a row that becomes packed again.
    #[must_use]
    pub fn finish_as(mut self, tag: RowTag) -> Body<'static> {
        if tag == RowTag::List {
            // Its columns stay what they are: later changes name them.
            if let Form::Packed(block) = &mut self.form
                && list::has_runs(block)
            {
                let block = std::mem::take(block).into_owned();
                self.form = Form::Wide(WideRow::from_block(block.into(), true));
            }
            return self.finish_list(|block| (!list::has_runs(&block)).then_some(block));
        }
        let row = match self.form {
            Form::Packed(block) => HashBody::Packed(PackedRow::new(block.into_owned())),
            // Half of the bound, so that a hash near the bound does not change its form each time.
            Form::Wide(row) => match row.to_block(PACKED_ROW_BYTES_MAX / 2) {
                Some(block) => HashBody::Packed(PackedRow::new(block.into())),
                None => HashBody::Wide(row),
            },
        };
        Body::Row(tag, row)
    }

    /// The finished body of a list (DL3 large-runs): `to_small` makes the block of a small one of
    /// the columns of a large one, if it can.
    pub(super) fn finish_list(
        self,
        to_small: impl FnOnce(Box<[u8]>) -> Option<Box<[u8]>>,
    ) -> Body<'static> {
        let packed = |block: Box<[u8]>| HashBody::Packed(PackedRow::new(block.into()));
        let row = match self.form {
            Form::Packed(block) => HashBody::Packed(PackedRow::new(block.into_owned())),
            Form::Wide(mut row) => {
                row.count_runs();
                let block = row.to_block(PACKED_ROW_BYTES_MAX / 2);
                let block = block.and_then(to_small);
                block.map_or(HashBody::Wide(row), packed)
            }
        };
        Body::Row(RowTag::List, row)
    }
}

/// The block of these fields, of each name with its last value, and how many there are; `None` if
/// it is too long for a packed one.
fn pack(fields: &[(&[u8], &[u8])]) -> Option<(Vec<u8>, usize)> {
    if fields.is_sorted_by(|one, next| one.0 < next.0) {
        return Some((row::pack(fields)?, fields.len()));
    }
    // What cannot fit is not sorted.
    if fields.len() > PACKED_ROW_BYTES_MAX {
        return None;
    }
    let mut sorted = fields.to_vec();
    sorted.sort_by_key(|(name, _)| *name);
    sorted.dedup_by(|later, kept| {
        let is_same = later.0 == kept.0;
        if is_same {
            kept.1 = later.1;
        }
        is_same
    });
    Some((row::pack(&sorted)?, sorted.len()))
}

/// A longer name is a broken invariant of the caller.
#[inline]
fn check_name(field: &[u8]) {
    let bytes = field.len();
    assert!(bytes <= FIELD_BYTES_MAX, "field of {bytes} bytes");
}

/// The draft's own copy of a block, with space for a field of this many bytes.
#[inline]
fn own<'b>(block: &'b mut Cow<'_, [u8]>, field_bytes: usize) -> &'b mut Vec<u8> {
    if let Cow::Borrowed(shared) = *block {
        let room = field_bytes.min(PACKED_ROW_BYTES_MAX) + row::FIELD_ROOM_BYTES;
        let mut copy = row::spare(shared.len() + room);
        copy.extend_from_slice(shared);
        *block = Cow::Owned(copy);
    }
    block.to_mut()
}

#[cfg(test)]
mod tests;
