//! The fields of a hash at a moment, and the draft that builds their next version.
//!
//! A hash none of whose fields ever had a deadline is a row of its fields ([`RowTag::Hash`]). The
//! first deadline makes it a *timed* one ([`RowTag::TimedHash`]), which it stays. That is a row
//! with columns of three kinds:
//!
//! | name of a column | its value | |
//! |---|---|---|
//! | `d`, 8 bytes of a deadline, big-endian, the field | empty | of each field with a deadline |
//! | `f`, the field | the 8 bytes of its deadline | likewise |
//! | `v`, the field | the field's value | of every field |
//!
//! So the earliest deadline is in the first column, how many have passed is one rank, and the
//! values follow each other in the order of their fields.
//!
//! Invariants:
//! - **DF1 both-columns** A deadline has its column of either kind, and its field a value.
//! - **DF2 passed-is-absent** A field whose deadline has passed is not there for a reader or a
//!   writer, whether its columns still are or not ([`FieldsDraft::purge`] removes them).
//!
//! Deliberately absent: a way back to a row without deadlines. As in Redis, a hash that had one
//! keeps the form.

use pando_sync::Milliseconds;

use super::{Body, Deadline, HashDraft, HashIter, HashRef, RowTag, StringBody, StringRef, WideRow};
use crate::limits::FIELD_BYTES_MAX;

const BY_DEADLINE: u8 = b'd';
const DEADLINE: u8 = b'f';
const VALUE: u8 = b'v';

const DEADLINE_BYTES: usize = size_of::<u64>();

/// Bytes in front of a field in the longest name of a column.
const HEAD_BYTES: usize = 1 + DEADLINE_BYTES;

fn by_deadline(deadline: Deadline, field: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(HEAD_BYTES + field.len());
    name.push(BY_DEADLINE);
    name.extend_from_slice(&deadline.0.to_be_bytes());
    name.extend_from_slice(field);
    name
}

fn named(kind: u8, field: &[u8]) -> Vec<u8> {
    [&[kind], field].concat()
}

/// The deadline and the field in a name of the first kind.
fn parse(name: &[u8]) -> Option<(Deadline, &[u8])> {
    let (deadline, field) = name.strip_prefix(&[BY_DEADLINE])?.split_first_chunk()?;
    Some((Deadline(u64::from_be_bytes(*deadline)), field))
}

/// The deadline in a column of the second kind.
fn deadline_in(value: StringRef<'_>) -> Option<Deadline> {
    let bytes = value.as_flat()?.try_into().ok()?;
    Some(Deadline(u64::from_be_bytes(bytes)))
}

/// The fields of a hash at a moment, in byte order.
///
/// ```
/// use pando_engine::{BodyRef, Deadline, FieldsDraft, FieldsRef, StringBody};
/// use pando_sync::Milliseconds;
///
/// let mut draft = FieldsDraft::new(None, Milliseconds(100));
/// draft.set(b"name", StringBody::borrowed(b"Ada"), false);
/// draft.set(b"code", StringBody::borrowed(b"1843"), false);
/// draft.set_deadline(b"code", Deadline(200)).expect("short names");
/// let body = draft.finish();
/// let BodyRef::Row(tag, row) = body.as_ref() else {
///     unreachable!("a row was made")
/// };
/// assert_eq!(FieldsRef::new(tag, row, Milliseconds(199)).len(), 2);
/// assert!(FieldsRef::new(tag, row, Milliseconds(200)).get(b"code").is_none());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct FieldsRef<'a> {
    row: HashRef<'a>,
    timed: Option<Timed>,
}

/// Of a timed hash.
#[derive(Clone, Copy, Debug)]
struct Timed {
    now: Milliseconds,
    /// The rank of the first value.
    base: usize,
    /// Fields whose deadline has passed.
    passed: usize,
}

impl<'a> FieldsRef<'a> {
    /// The fields of this row, which is of one of the two types of hashes. O(1), or O(log fields)
    /// of a timed one.
    #[inline]
    #[must_use]
    pub fn new(tag: RowTag, row: HashRef<'a>, now: Milliseconds) -> Self {
        debug_assert!(matches!(tag, RowTag::Hash | RowTag::TimedHash), "{tag:?}");
        let timed = (tag == RowTag::TimedHash).then(|| Timed::new(row, now));
        Self { row, timed }
    }

    /// Whether columns of unknown origin are those of a timed hash. O(columns · log columns).
    #[must_use]
    pub fn is_sound(row: HashRef<'_>) -> bool {
        let deadlines = row.rank(&[DEADLINE]);
        let base = row.rank(&[VALUE]);
        2 * deadlines == base
            && base < row.len()
            && row.iter().all(|(name, value)| {
                let value = value.as_flat();
                value.is_none_or(|value| Self::is_column(name, value))
            })
            && row.iter().take(deadlines).all(|(name, _)| {
                let Some((deadline, field)) = parse(name) else {
                    return false;
                };
                let found = row.get(&named(DEADLINE, field)).and_then(deadline_in);
                found == Some(deadline) && row.get(&named(VALUE, field)).is_some()
            })
    }

    /// Whether this may be a column of a timed hash.
    #[must_use]
    pub fn is_column(name: &[u8], value: &[u8]) -> bool {
        match name.first() {
            Some(&VALUE) => true,
            Some(&DEADLINE) => value.len() == DEADLINE_BYTES,
            _ => parse(name).is_some() && value.is_empty(),
        }
    }

    /// The earliest deadline of a field, passed or not. O(log fields).
    #[must_use]
    pub fn first_deadline(tag: RowTag, row: HashRef<'_>) -> Option<Deadline> {
        if tag != RowTag::TimedHash {
            return None;
        }
        let (name, _) = row.nth(0)?;
        Self::deadline_in(name)
    }

    /// The deadline in the name of a timed hash's first column, if its fields have any.
    #[must_use]
    pub fn deadline_in(name: &[u8]) -> Option<Deadline> {
        parse(name).map(|(deadline, _)| deadline)
    }

    /// How many fields there are.
    #[inline]
    #[must_use]
    pub fn len(self) -> usize {
        let columns = self.row.len();
        match self.timed {
            None => columns,
            Some(timed) => columns.saturating_sub(timed.base + timed.passed),
        }
    }

    /// Whether there are none: they have passed, all of them.
    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The row, if the hash has never had a deadline.
    #[must_use]
    pub fn plain(self) -> Option<HashRef<'a>> {
        self.timed.is_none().then_some(self.row)
    }

    /// Whether a field with columns is there (DF2 passed-is-absent).
    fn has_not_passed(self, field: &[u8]) -> bool {
        self.timed.is_none_or(|timed| {
            timed.passed == 0
                || self
                    .column_deadline(field)
                    .is_none_or(|deadline| !deadline.has_passed(timed.now))
        })
    }

    fn column_deadline(self, field: &[u8]) -> Option<Deadline> {
        self.row.get(&named(DEADLINE, field)).and_then(deadline_in)
    }

    /// The value of a field. O(log fields).
    #[inline]
    #[must_use]
    pub fn get(self, field: &[u8]) -> Option<StringRef<'a>> {
        match self.timed {
            None => self.row.get(field),
            Some(_) => self.get_timed(field),
        }
    }

    #[cold]
    fn get_timed(self, field: &[u8]) -> Option<StringRef<'a>> {
        let value = self.row.get(&named(VALUE, field));
        value.filter(|_| self.has_not_passed(field))
    }

    /// The deadline of a field that is there. O(log fields).
    #[must_use]
    pub fn deadline(self, field: &[u8]) -> Option<Deadline> {
        let timed = self.timed?;
        let deadline = self.column_deadline(field);
        deadline.filter(|deadline| !deadline.has_passed(timed.now))
    }

    /// The fields with their values. O(log fields) to begin.
    #[must_use]
    pub fn iter(self) -> FieldsIter<'a> {
        self.iter_from(b"")
    }

    /// Those at or after `start`. O(log fields) to begin.
    #[must_use]
    pub fn iter_from(self, start: &[u8]) -> FieldsIter<'a> {
        let columns = match self.timed {
            None => self.row.iter_from(start),
            Some(_) => self.row.iter_from(&named(VALUE, start)),
        };
        FieldsIter {
            columns,
            fields: self,
        }
    }

    /// The field at a rank. O(log fields); O(fields) while there are some to be purged.
    #[must_use]
    pub fn nth(self, rank: usize) -> Option<(&'a [u8], StringRef<'a>)> {
        match self.timed {
            None => self.row.nth(rank),
            Some(Timed {
                base, passed: 0, ..
            }) => {
                let (name, value) = self.row.nth(base + rank)?;
                Some((&name[1..], value))
            }
            Some(_) => self.iter().nth(rank),
        }
    }
}

impl Timed {
    #[cold]
    fn new(row: HashRef<'_>, now: Milliseconds) -> Self {
        let base = row.rank(&[VALUE]);
        let passed = match now.0.checked_add(1) {
            Some(next) => row.rank(&by_deadline(Deadline(next), b"")),
            None => row.rank(&[DEADLINE]),
        };
        Self { now, base, passed }
    }
}

/// Fields with their values, in byte order.
#[derive(Clone, Debug)]
pub struct FieldsIter<'a> {
    columns: HashIter<'a>,
    fields: FieldsRef<'a>,
}

impl<'a> Iterator for FieldsIter<'a> {
    type Item = (&'a [u8], StringRef<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.fields.timed.is_none() {
            return self.columns.next();
        }
        loop {
            let (name, value) = self.columns.next()?;
            let field = name.get(1..).unwrap_or_default();
            if self.fields.has_not_passed(field) {
                return Some((field, value));
            }
        }
    }
}

/// The next version of the fields, under construction; see [`HashDraft`].
#[derive(Debug)]
pub struct FieldsDraft<'o> {
    row: HashDraft<'o>,
    is_timed: bool,
    now: Milliseconds,
}

impl<'o> FieldsDraft<'o> {
    /// Longest name of a field of a timed hash, in bytes.
    pub const TIMED_FIELD_BYTES_MAX: usize = FIELD_BYTES_MAX - HEAD_BYTES;

    /// Longest name of a field of this hash, in bytes.
    #[must_use]
    pub fn field_bytes_max(&self) -> usize {
        if self.is_timed {
            Self::TIMED_FIELD_BYTES_MAX
        } else {
            FIELD_BYTES_MAX
        }
    }

    /// Begins with the fields of `old`. O(1).
    #[must_use]
    pub fn new(old: Option<FieldsRef<'o>>, now: Milliseconds) -> Self {
        Self {
            row: HashDraft::new(old.map(|old| old.row)),
            is_timed: old.is_some_and(|old| old.timed.is_some()),
            now,
        }
    }

    /// The same with the row of a hash without deadlines that was taken, as [`HashDraft::of`].
    #[must_use]
    pub fn of(row: WideRow, now: Milliseconds) -> Self {
        Self {
            row: HashDraft::of(row),
            is_timed: false,
            now,
        }
    }

    /// As [`HashDraft::into_row`].
    #[must_use]
    pub fn into_row(self) -> Option<WideRow> {
        self.row.into_row()
    }

    /// The fields with the changes so far.
    #[must_use]
    pub fn as_ref(&self) -> FieldsRef<'_> {
        FieldsRef::new(self.tag(), self.row.as_ref(), self.now)
    }

    fn tag(&self) -> RowTag {
        if self.is_timed {
            RowTag::TimedHash
        } else {
            RowTag::Hash
        }
    }

    /// How many fields there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_ref().len()
    }

    /// Whether no fields are left, so that the key is to be removed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.as_ref().is_empty()
    }

    /// Sets a field; returns whether it is new. It loses its deadline, unless it is to keep it.
    /// O(log fields + bytes).
    ///
    /// A field longer than [`Self::field_bytes_max`], or a value longer than
    /// [`crate::limits::COLUMN_BYTES_MAX`], is a broken invariant of the caller.
    #[inline]
    pub fn set(&mut self, field: &[u8], value: StringBody<'_>, keeps_deadline: bool) -> bool {
        if !self.is_timed {
            // A value that a large hash has already costs no copy of its nodes.
            if let (HashRef::Wide(_), StringBody::Flat(new)) = (self.row.as_ref(), &value) {
                return self.row.set_unless(field, new, |old| old == &new[..]);
            }
            return self.row.set_body(field, value);
        }
        let was_there = self.as_ref().get(field).is_some();
        if !(was_there && keeps_deadline) {
            self.clear_deadline(field);
        }
        self.row.set_body(&named(VALUE, field), value);
        !was_there
    }

    /// Sets several fields as [`HashDraft::set_all`] does; returns how many are new. They lose
    /// their deadlines.
    pub fn set_all(&mut self, fields: &[(&[u8], &[u8])]) -> usize {
        if !self.is_timed && self.row.is_empty() {
            return self.row.set_all(fields);
        }
        let set =
            |(field, value): &&(&[u8], &[u8])| self.set(field, StringBody::borrowed(value), false);
        fields.iter().filter(set).count()
    }

    /// Removes a field; returns whether it was there. O(log fields).
    #[inline]
    pub fn remove(&mut self, field: &[u8]) -> bool {
        if !self.is_timed {
            return self.row.remove(field);
        }
        let was_there = self.as_ref().get(field).is_some();
        self.clear_deadline(field);
        self.row.remove(&named(VALUE, field));
        was_there
    }

    /// Gives a field that is there a deadline. O(log fields); O(fields) for the first one. Refused,
    /// by the length of its name, if a field is longer than [`Self::TIMED_FIELD_BYTES_MAX`].
    pub fn set_deadline(&mut self, field: &[u8], deadline: Deadline) -> Result<(), usize> {
        debug_assert!(self.as_ref().get(field).is_some(), "DF1");
        self.make_timed()?;
        self.clear_deadline(field);
        self.row.set(&by_deadline(deadline, field), b"");
        let bytes = deadline.0.to_be_bytes();
        self.row.set(&named(DEADLINE, field), &bytes);
        Ok(())
    }

    /// Removes a field's deadline; returns whether it had one. O(log fields).
    pub fn clear_deadline(&mut self, field: &[u8]) -> bool {
        let deadline = self.is_timed.then(|| self.as_ref().column_deadline(field));
        let Some(deadline) = deadline.flatten() else {
            return false;
        };
        self.row.remove(&by_deadline(deadline, field));
        self.row.remove(&named(DEADLINE, field));
        true
    }

    /// Removes up to `limit` fields whose deadline has passed; how many.
    pub fn purge(&mut self, limit: usize) -> usize {
        let mut purged = 0;
        while purged < limit && self.is_timed {
            let first = self.row.as_ref().nth(0).map(|(name, _)| name.to_vec());
            let Some(name) = first else {
                break;
            };
            match parse(&name) {
                Some((deadline, field)) if deadline.has_passed(self.now) => {
                    self.row.remove(&name);
                    self.row.remove(&named(DEADLINE, field));
                    self.row.remove(&named(VALUE, field));
                }
                _ => break,
            }
            purged += 1;
        }
        purged
    }

    /// O(fields), once in the life of a hash.
    fn make_timed(&mut self) -> Result<(), usize> {
        if self.is_timed {
            return Ok(());
        }
        let lengths = self.row.as_ref().iter().map(|(field, _)| field.len());
        if let Some(longest) = lengths.max().filter(|it| *it > Self::TIMED_FIELD_BYTES_MAX) {
            return Err(longest);
        }
        let mut row = HashDraft::new(None);
        for (field, value) in self.row.as_ref().iter() {
            row.set_body(&named(VALUE, field), value.hand_over());
        }
        self.row = row;
        self.is_timed = true;
        Ok(())
    }

    /// The finished body, in the form for its size (D1 smallest-form).
    #[must_use]
    pub fn finish(self) -> Body<'static> {
        let tag = self.tag();
        self.row.finish_as(tag)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::BodyRef;

    #[derive(Clone, Debug)]
    enum Change {
        Set(u8, u8, bool),
        Remove(u8),
        Deadline(u8, u64),
        Persist(u8),
        Pass(u64),
        Purge(usize),
    }

    fn change() -> impl Strategy<Value = Change> {
        prop_oneof![
            4 => (any::<u8>(), any::<u8>(), any::<bool>())
                .prop_map(|(field, value, keeps)| Change::Set(field % 60, value, keeps)),
            2 => (0..60_u8).prop_map(Change::Remove),
            3 => (0..60_u8, 0..50_u64).prop_map(|(field, in_ms)| Change::Deadline(field, in_ms)),
            1 => (0..60_u8).prop_map(Change::Persist),
            1 => (0..30_u64).prop_map(Change::Pass),
            1 => (0..9_usize).prop_map(Change::Purge),
        ]
    }

    fn name(field: u8) -> Vec<u8> {
        [&b"field"[..], &[field]].concat()
    }

    fn value(value: u8) -> Vec<u8> {
        vec![value; usize::from(value) * 2]
    }

    type Model = BTreeMap<Vec<u8>, (Vec<u8>, Option<Deadline>)>;

    fn compare(fields: FieldsRef<'_>, model: &Model) {
        assert_eq!(fields.len(), model.len());
        let entries: Vec<_> = fields
            .iter()
            .map(|(field, value)| (field.to_vec(), value.to_cow().into_owned()))
            .collect();
        let expected: Vec<_> = model
            .iter()
            .map(|(field, (value, _))| (field.clone(), value.clone()))
            .collect();
        assert_eq!(entries, expected);
        for field in (0..60).map(name) {
            let found = fields.get(&field).map(|value| value.to_cow().into_owned());
            let wanted = model.get(&field);
            assert_eq!(found, wanted.map(|(value, _)| value.clone()));
            let wanted = wanted.and_then(|(_, deadline)| *deadline);
            assert_eq!(fields.deadline(&field), wanted);
        }
        for (rank, (field, _)) in expected.iter().enumerate() {
            assert_eq!(fields.nth(rank).map(|(found, _)| found), Some(&field[..]));
        }
        assert!(fields.nth(expected.len()).is_none());
    }

    fn run(changes: Vec<Change>) {
        let (mut now, mut body, mut model) = (100, None, Model::new());
        for change in changes {
            let old: Option<&Body<'_>> = body.as_ref();
            let old = old.map(|body| match body.as_ref() {
                BodyRef::Row(tag, row) => FieldsRef::new(tag, row, Milliseconds(now)),
                BodyRef::String(_) => unreachable!("a hash is a row"),
            });
            let mut draft = FieldsDraft::new(old, Milliseconds(now));
            match change {
                Change::Set(field, of, keeps) => {
                    let (field, of) = (name(field), value(of));
                    let is_new = draft.set(&field, StringBody::borrowed(&of), keeps);
                    assert_eq!(is_new, !model.contains_key(&field));
                    let deadline = model.get(&field).and_then(|(_, deadline)| *deadline);
                    model.insert(field, (of, deadline.filter(|_| keeps)));
                }
                Change::Remove(field) => {
                    let field = name(field);
                    let removed = draft.remove(&field);
                    assert_eq!(removed, model.remove(&field).is_some());
                }
                Change::Deadline(field, in_ms) => {
                    let (field, at) = (name(field), Deadline(now + 1 + in_ms));
                    if let Some((_, deadline)) = model.get_mut(&field) {
                        draft.set_deadline(&field, at).expect("short names");
                        *deadline = Some(at);
                    }
                }
                Change::Persist(field) => {
                    let field = name(field);
                    if let Some((_, deadline)) = model.get_mut(&field) {
                        assert_eq!(draft.clear_deadline(&field), deadline.take().is_some());
                    }
                }
                Change::Pass(milliseconds) => {
                    now += milliseconds;
                    let is_there = |deadline: Option<Deadline>| {
                        deadline.is_none_or(|deadline| !deadline.has_passed(Milliseconds(now)))
                    };
                    model.retain(|_, (_, deadline)| is_there(*deadline));
                }
                Change::Purge(limit) => assert!(draft.purge(limit) <= limit),
            }
            draft.now = Milliseconds(now);
            compare(draft.as_ref(), &model);
            let made = draft.finish();
            let BodyRef::Row(tag, row) = made.as_ref() else {
                unreachable!("a hash is a row")
            };
            if tag == RowTag::TimedHash && !row.is_empty() {
                assert!(FieldsRef::is_sound(row));
                let first = model.values().filter_map(|(_, deadline)| *deadline).min();
                let found = FieldsRef::first_deadline(tag, row);
                let found = found.filter(|deadline| !deadline.has_passed(Milliseconds(now)));
                assert!(found.is_none() || found == first);
            }
            body = Some(made);
        }
        // Nothing is left of what has passed.
        if let Some(BodyRef::Row(tag, row)) = body.as_ref().map(Body::as_ref) {
            let fields = FieldsRef::new(tag, row, Milliseconds(now));
            let mut draft = FieldsDraft::new(Some(fields), Milliseconds(now));
            draft.purge(usize::MAX);
            assert_eq!(draft.purge(1), 0);
            compare(draft.as_ref(), &model);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn fields_are_those_of_a_model(changes in vec(change(), 1..200)) {
            run(changes);
        }
    }

    #[test]
    fn names_leave_room_for_deadlines() {
        let most = FieldsDraft::TIMED_FIELD_BYTES_MAX;
        for (bytes, fits) in [(most, true), (most + 1, false)] {
            let mut draft = FieldsDraft::new(None, Milliseconds(1));
            let long = vec![b'x'; bytes];
            draft.set(&long, StringBody::borrowed(b"1"), false);
            draft.set(b"short", StringBody::borrowed(b"2"), false);
            let given = draft.set_deadline(b"short", Deadline(9));
            assert_eq!(given, if fits { Ok(()) } else { Err(bytes) });
            assert_eq!(draft.as_ref().deadline(b"short").is_some(), fits);
            if fits {
                draft.set_deadline(&long, Deadline(9)).expect("it fits");
            }
            assert_eq!(draft.len(), 2);
        }
    }

    #[test]
    fn broken_columns_are_found() {
        let row = |columns: &[(&[u8], &[u8])]| {
            let mut draft = HashDraft::new(None);
            for (name, value) in columns {
                draft.set(name, value);
            }
            let Body::Row(_, row) = draft.finish() else {
                unreachable!("a row was made")
            };
            FieldsRef::is_sound(row.as_ref())
        };
        let (index, at) = (by_deadline(Deadline(7), b"a"), 7_u64.to_be_bytes());
        assert!(row(&[(b"va", b"1")]));
        assert!(row(&[(&index, b""), (b"fa", &at), (b"va", b"1")]));
        assert!(!row(&[(&index, b""), (b"fa", &at)]));
        assert!(!row(&[(&index, b""), (b"va", b"1")]));
        assert!(!row(&[(b"fa", &at), (b"va", b"1")]));
        assert!(!row(&[(&index, b""), (b"fb", &at), (b"va", b"1")]));
        assert!(!row(&[(&index, b"x"), (b"fa", &at), (b"va", b"1")]));
        assert!(!row(&[(b"x", b""), (b"va", b"1")]));
    }
}
