//! A sorted set as a reader sees it, and the draft that builds its next version.
//!
//! It is a row. A large one has its members in two orders, a small one in one:
//!
//! | name of a column | its value | |
//! |---|---|---|
//! | `m`, the member | 8 bytes: the score's bits, little-endian | of a set that is indexed |
//! | `s`, 8 bytes that sort like the score, the member | empty, or `-` if the score is -0 | always |
//!
//! Ranks, and members between two scores, are found in the second order. The score of a member is
//! found in the first; in a small set by looking at all.
//!
//! Invariants:
//! - **DZ1 both-orders** An indexed set has both columns of each member, any other the second.
//!   Which it is follows from the first column, so it does not depend on the row's form.
//! - **DZ2 scores-are-numbers** No score is NaN. 0 and -0 are in one place.

use super::{Body, HashDraft, HashIter, HashRef, RowTag, WideRow};
use crate::limits::{FIELD_BYTES_MAX, PACKED_ROW_BYTES_MAX};

const BY_MEMBER: u8 = b'm';
const BY_SCORE: u8 = b's';
const NEGATIVE_ZERO: &[u8] = b"-";

/// Bytes in front of the member in a name of the second order.
const HEAD_BYTES: usize = 1 + size_of::<u64>();

/// Most bytes of a member.
const MEMBER_BYTES_MAX: usize = FIELD_BYTES_MAX - HEAD_BYTES;

/// A sorted set: members with scores, by score and then by member.
///
/// ```
/// use pando_engine::{BodyRef, SortedDraft, SortedRef};
///
/// let mut draft = SortedDraft::new(None);
/// draft.set(b"late", 9.5);
/// draft.set(b"early", -1.0);
/// let body = draft.finish();
/// let BodyRef::Row(_, row) = body.as_ref() else {
///     unreachable!("a row was made")
/// };
/// let set = SortedRef::new(row);
/// assert_eq!(set.score(b"late"), Some(9.5));
/// assert_eq!(set.rank(b"late"), Some(1));
/// assert_eq!(set.iter_from_rank(0).next(), Some((&b"early"[..], -1.0)));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SortedRef<'a> {
    row: HashRef<'a>,
    indexed: bool,
}

/// A number that sorts as the score does.
fn order_of(score: f64) -> u64 {
    const SIGN: u64 = 1 << 63;
    // -0 sorts as 0 (DZ2).
    let bits = (score + 0.0).to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

/// The score that sorts so.
fn score_of(order: u64, value: &[u8]) -> f64 {
    const SIGN: u64 = 1 << 63;
    if value == NEGATIVE_ZERO {
        return -0.0;
    }
    f64::from_bits(if order & SIGN == 0 {
        !order
    } else {
        order ^ SIGN
    })
}

fn by_score(score: f64, member: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(HEAD_BYTES + member.len());
    put_by_score(&mut name, score, member);
    name
}

fn put_by_score(name: &mut Vec<u8>, score: f64, member: &[u8]) {
    name.clear();
    name.push(BY_SCORE);
    name.extend_from_slice(&order_of(score).to_be_bytes());
    name.extend_from_slice(member);
}

fn by_member(member: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(1 + member.len());
    put_by_member(&mut name, member);
    name
}

fn put_by_member(name: &mut Vec<u8>, member: &[u8]) {
    name.clear();
    name.push(BY_MEMBER);
    name.extend_from_slice(member);
}

/// The order and the member in a name of the second order.
fn parse(name: &[u8]) -> Option<(u64, &[u8])> {
    let (order, member) = name.strip_prefix(&[BY_SCORE])?.split_first_chunk()?;
    Some((u64::from_be_bytes(*order), member))
}

/// A member with its score, of a column of either order.
fn entry<'n>(name: &'n [u8], value: &[u8]) -> Option<(&'n [u8], f64)> {
    if let [BY_MEMBER, member @ ..] = name {
        let score = f64::from_bits(u64::from_le_bytes(value.try_into().ok()?));
        return Some((member, score));
    }
    let (order, member) = parse(name)?;
    Some((member, score_of(order, value)))
}

impl<'a> SortedRef<'a> {
    /// The sorted set that is this row.
    #[must_use]
    pub fn new(row: HashRef<'a>) -> Self {
        let first = row.nth(0);
        let indexed = first.is_some_and(|(name, _)| name.first() == Some(&BY_MEMBER));
        Self { row, indexed }
    }

    /// Whether columns of unknown origin are those of a sorted set. O(columns).
    #[must_use]
    pub fn is_sound(row: HashRef<'_>) -> bool {
        let set = SortedRef::new(row);
        let columns = row.iter().all(|(name, value)| {
            let value = value.as_flat();
            value.is_some_and(|value| Self::is_column(name, value))
        });
        let index = row.rank(&[BY_SCORE]);
        if !columns || !set.indexed {
            return columns && index == 0;
        }
        let mut entries = row.iter().take(index);
        2 * index == row.len()
            && entries.all(|(name, value)| {
                let found = value.as_flat().and_then(|value| entry(name, value));
                found.is_some_and(|(member, score)| row.get(&by_score(score, member)).is_some())
            })
    }

    /// Whether this may be a column of a sorted set.
    #[must_use]
    pub fn is_column(name: &[u8], value: &[u8]) -> bool {
        entry(name, value).is_some_and(|(_, score)| !score.is_nan())
            && (name[0] == BY_MEMBER || value.is_empty() || value == NEGATIVE_ZERO)
    }

    /// Whether a column is left out where the set is written whole or as changes, since it follows
    /// from the column of the other order.
    #[must_use]
    pub fn follows(self, name: &[u8]) -> bool {
        self.indexed && name.first() == Some(&BY_SCORE)
    }

    /// How many members there are. O(1).
    #[must_use]
    pub fn len(self) -> usize {
        let columns = self.row.len();
        if self.indexed { columns / 2 } else { columns }
    }

    /// Whether there are no members; a stored set has at least one.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.row.is_empty()
    }

    /// The rank in the row of the first member.
    fn base(self) -> usize {
        if self.indexed { self.len() } else { 0 }
    }

    /// The score of a member. O(log members); O(members) in a small set.
    #[must_use]
    pub fn score(self, member: &[u8]) -> Option<f64> {
        if !self.indexed {
            let mut entries = self.iter_from_rank(0);
            return entries
                .find(|(found, _)| *found == member)
                .map(|(_, score)| score);
        }
        let value = self.row.get(&by_member(member))?;
        let bits = value.as_flat()?.try_into().ok()?;
        Some(f64::from_bits(u64::from_le_bytes(bits)))
    }

    /// How many members come before this one. O(log members); O(members) in a small set.
    #[must_use]
    pub fn rank(self, member: &[u8]) -> Option<usize> {
        let score = self.score(member)?;
        Some(self.rank_of(score, member))
    }

    /// The rank that a member with this score has, or would have. O(log members).
    #[must_use]
    pub fn rank_of(self, score: f64, member: &[u8]) -> usize {
        self.row.rank(&by_score(score, member)) - self.base()
    }

    /// The rank of the first member whose score is at least, or (if `beyond`) above, this one: how
    /// many are before it. O(log members).
    #[must_use]
    pub fn rank_of_score(self, score: f64, beyond: bool) -> usize {
        let order = order_of(score) + u64::from(beyond);
        let mut name = [BY_SCORE; HEAD_BYTES];
        name[1..].copy_from_slice(&order.to_be_bytes());
        self.row.rank(&name) - self.base()
    }

    /// The member at a rank, with its score. O(log members).
    #[must_use]
    pub fn nth(self, rank: usize) -> Option<(&'a [u8], f64)> {
        self.iter_from_rank(rank).next()
    }

    /// Members from this rank on, with their scores, in rising order. O(log members) to begin.
    #[must_use]
    pub fn iter_from_rank(self, rank: usize) -> SortedIter<'a> {
        let rank = self.base().saturating_add(rank);
        SortedIter(self.row.iter_from_rank(rank))
    }

    /// Members at or after `start` in byte order, with their scores; in a small set all of them, in
    /// the order of scores.
    pub fn iter_by_member(self, start: &[u8]) -> impl Iterator<Item = (&'a [u8], f64)> + use<'a> {
        let (rank, count) = if self.indexed {
            let rank = self.row.rank(&by_member(start));
            (rank, self.len() - rank)
        } else {
            (0, self.len())
        };
        let columns = self.row.iter_from_rank(rank).take(count);
        columns.map(|(name, value)| {
            let value = value.as_flat().expect(SOUND);
            entry(name, value).expect(SOUND)
        })
    }
}

const SOUND: &str = "a sorted set has columns of two kinds (DZ1)";

/// Members with their scores, in rising order of the scores.
#[derive(Clone, Debug)]
pub struct SortedIter<'a>(HashIter<'a>);

impl<'a> Iterator for SortedIter<'a> {
    type Item = (&'a [u8], f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.0.next()?;
        let (order, member) = parse(name).expect(SOUND);
        let value = value.as_flat().unwrap_or_default();
        Some((member, score_of(order, value)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for SortedIter<'_> {}

/// The next version of a sorted set, under construction; see [`HashDraft`].
#[derive(Debug)]
pub struct SortedDraft<'o> {
    row: HashDraft<'o>,
    indexed: bool,
    /// The name of the column that is being changed.
    name: Vec<u8>,
    /// That of one which will be.
    next_name: Vec<u8>,
}

impl<'o> SortedDraft<'o> {
    /// Begins with the members of `old`. O(1).
    #[must_use]
    pub fn new(old: Option<SortedRef<'o>>) -> Self {
        Self {
            row: HashDraft::new(old.map(|old| old.row)),
            indexed: old.is_some_and(|old| old.indexed),
            name: Vec::new(),
            next_name: Vec::new(),
        }
    }

    /// The same with a row that was taken, as [`HashDraft::of`].
    #[must_use]
    pub fn of(row: WideRow) -> Self {
        Self {
            indexed: SortedRef::new(HashRef::Wide(&row)).indexed,
            row: HashDraft::of(row),
            name: Vec::new(),
            next_name: Vec::new(),
        }
    }

    /// As [`HashDraft::into_row`].
    #[must_use]
    pub fn into_row(self) -> Option<WideRow> {
        self.row.into_row()
    }

    /// The set with the changes so far.
    #[must_use]
    pub fn as_ref(&self) -> SortedRef<'_> {
        SortedRef {
            row: self.row.as_ref(),
            indexed: self.indexed,
        }
    }

    /// Whether members are found by the order of members (DZ1).
    #[must_use]
    pub fn is_indexed(&self) -> bool {
        self.indexed
    }

    /// How many members there are. O(1).
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_ref().len()
    }

    /// Whether no members are left, so that the key is to be removed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.row.is_empty()
    }

    /// Gives a member a score; returns the one that it had. O(log members + bytes).
    ///
    /// A member longer than [`crate::limits::FIELD_BYTES_MAX`] less 9, or NaN, is a broken
    /// invariant of the caller.
    pub fn set(&mut self, member: &[u8], score: f64) -> Option<f64> {
        let old = self.as_ref().score(member);
        self.change(member, old, score);
        old
    }

    /// The same for a member that has the score `old`, as [`SortedRef::score`] has told of this
    /// draft.
    pub fn change(&mut self, member: &[u8], old: Option<f64>, score: f64) {
        assert!(!score.is_nan(), "DZ2");
        if let Some(old) = old {
            if old.to_bits() == score.to_bits() {
                return;
            }
            put_by_score(&mut self.name, old, member);
            self.remove_name();
        }
        let is_negative_zero = score == 0.0 && score.is_sign_negative();
        let mark = if is_negative_zero { NEGATIVE_ZERO } else { b"" };
        put_by_score(&mut self.name, score, member);
        self.row.set(&self.name, mark);
        if self.indexed {
            let bits = score.to_bits().to_le_bytes();
            put_by_member(&mut self.name, member);
            self.row.set(&self.name, &bits);
        } else if let HashRef::Wide(_) = self.row.as_ref() {
            self.index();
        }
    }

    /// Gives a member a score that is not 0; returns the one that it had. As [`Self::set`], but
    /// made for scores that are others: one descent less.
    pub fn replace(&mut self, member: &[u8], score: f64) -> Option<f64> {
        let row = if self.indexed {
            self.row.wide_mut()
        } else {
            None
        };
        let Some(row) = row else {
            return self.set(member, score);
        };
        assert!(!score.is_nan() && score != 0.0, "DZ2");
        assert!(member.len() <= MEMBER_BYTES_MAX, "the caller's bound");
        let (name, next) = (&mut self.name, &mut self.next_name);
        put_by_member(name, member);
        put_by_score(next, score, member);
        // Both leaves are on their way before the first is searched.
        let (member_way, score_way) = (row.way_to(name), row.way_to(next));
        let mut bits = score.to_bits().to_le_bytes();
        let is_new = row.exchange(&member_way, name, &mut bits);
        let old = (!is_new).then(|| f64::from_bits(u64::from_le_bytes(bits)));
        if old != Some(score) {
            if let Some(old) = old {
                put_by_score(name, old, member);
                let found = row.remove(name);
                debug_assert!(found, "DZ1 both-orders");
            }
            row.set_along(&score_way, next, b"");
        }
        old
    }

    /// Removes a column that is there.
    fn remove_name(&mut self) {
        let found = self.row.remove(&self.name);
        debug_assert!(found, "DZ1 both-orders");
    }

    /// Adds the order by member (DZ1). O(members · log members), once in the life of a large set.
    fn index(&mut self) {
        debug_assert!(!self.indexed);
        let entries = self.as_ref().iter_from_rank(0);
        let mut entries: Vec<(Vec<u8>, f64)> = entries
            .map(|(member, score)| (by_member(member), score))
            .collect();
        entries.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        for (name, score) in entries {
            self.row.set(&name, &score.to_bits().to_le_bytes());
        }
        self.indexed = true;
    }

    /// Removes a member; returns the score that it had. O(log members).
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let score = self.as_ref().score(member)?;
        self.remove_present(member, score);
        Some(score)
    }

    /// The same of a member that has this score.
    pub fn remove_present(&mut self, member: &[u8], score: f64) {
        put_by_score(&mut self.name, score, member);
        self.remove_name();
        if self.indexed {
            put_by_member(&mut self.name, member);
            self.remove_name();
        }
    }

    /// Removes the member at `rank`, if there is one, once it was shown with its score. As
    /// [`Self::remove_present`], but looks for the member only once. O(log members).
    pub fn remove_nth(&mut self, rank: usize, show: impl FnOnce(&[u8], f64)) {
        let (rank, name) = (self.as_ref().base() + rank, &mut self.name);
        let mut found = false;
        self.row.remove_nth(rank, |column, value| {
            let (order, member) = parse(column).expect(SOUND);
            show(member, score_of(order, value.as_flat().unwrap_or_default()));
            put_by_member(name, member);
            found = true;
        });
        if found && self.indexed {
            self.remove_name();
        }
    }

    /// Repeats the change of one column, as [`HashRef::changed_since`] has shown it of another
    /// version of the set; `None`: it was removed. O(log members).
    ///
    /// A column that [`SortedRef::is_column`] would refuse is a broken invariant of the caller.
    pub fn repeat(&mut self, name: &[u8], value: Option<&[u8]>) {
        if let Some(value) = value {
            let (member, score) = entry(name, value).expect(SOUND);
            self.set(member, score);
        } else if let [BY_MEMBER, member @ ..] = name {
            self.remove(member);
        } else if let Some((order, member)) = parse(name) {
            // It may have another score by now.
            let is_that = |score| order_of(score) == order;
            if self.as_ref().score(member).is_some_and(is_that) {
                self.remove(member);
            }
        }
    }

    /// Whether a name is one of a column.
    #[must_use]
    pub fn is_name(name: &[u8]) -> bool {
        name.first() == Some(&BY_MEMBER) || parse(name).is_some()
    }

    /// The finished body, in the form for its size (D1 smallest-form).
    #[must_use]
    pub fn finish(self) -> Body<'static> {
        let is_small = self.row.as_ref().heap_bytes() <= PACKED_ROW_BYTES_MAX;
        if !self.indexed || !is_small {
            return self.row.finish_as(RowTag::SortedSet);
        }
        let mut row = HashDraft::new(None);
        let columns = self.row.as_ref();
        for (name, value) in columns.iter_from_rank(columns.len() / 2) {
            row.set(name, value.as_flat().expect(SOUND));
        }
        row.finish_as(RowTag::SortedSet)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::BodyRef;

    fn row_of<'b>(body: &'b Body<'_>) -> HashRef<'b> {
        match body.as_ref() {
            BodyRef::Row(RowTag::SortedSet, row) => row,
            other => panic!("{other:?}"),
        }
    }

    fn score() -> impl Strategy<Value = f64> {
        prop_oneof![
            4 => (-5..5_i32).prop_map(f64::from),
            1 => Just(-0.0),
            1 => Just(f64::INFINITY),
            1 => Just(f64::NEG_INFINITY),
            2 => any::<f64>().prop_filter("a number", |score| !score.is_nan()),
        ]
    }

    fn sorted(model: &BTreeMap<Vec<u8>, f64>) -> Vec<(Vec<u8>, f64)> {
        let mut all: Vec<_> = model
            .iter()
            .map(|(member, score)| (member.clone(), *score))
            .collect();
        all.sort_by(|one, other| one.1.partial_cmp(&other.1).expect("no NaN"));
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Histories across the bound between small and large sets, and back.
        #[test]
        fn sorted_sets_are_maps_in_two_orders(
            commands in vec(
                (vec((0..600_u16, prop::option::weighted(0.8, score())), 1..200), any::<bool>()),
                1..8,
            ),
        ) {
            let mut model = BTreeMap::new();
            let mut current = SortedDraft::new(None).finish();
            let mut replica = SortedDraft::new(None).finish();
            for (changes, removes) in commands {
                let before = current;
                let mut draft = SortedDraft::new(Some(SortedRef::new(row_of(&before))));
                for (number, score) in changes {
                    let member = format!("member{number}").into_bytes();
                    let old = match score.filter(|_| !removes) {
                        Some(score) if score != 0.0 && number % 2 == 0 => {
                            (draft.replace(&member, score), model.insert(member, score))
                        }
                        Some(score) => (draft.set(&member, score), model.insert(member, score)),
                        None => (draft.remove(&member), model.remove(&member)),
                    };
                    prop_assert_eq!(old.0.map(f64::to_bits), old.1.map(f64::to_bits));
                    if removes && number % 3 == 0 && !draft.is_empty() {
                        let rank = usize::from(number) % draft.len();
                        let expected = draft.as_ref().nth(rank).map(|(member, _)| member.to_vec());
                        let mut shown = None;
                        draft.remove_nth(rank, |member, score| {
                            shown = Some(member.to_vec());
                            assert_eq!(model.remove(member), Some(score));
                        });
                        prop_assert_eq!(shown, expected);
                    }
                }
                current = draft.finish();
                // What has changed, repeated elsewhere.
                let mut other = SortedDraft::new(Some(SortedRef::new(row_of(&replica))));
                row_of(&current).changed_since(row_of(&before), &mut |name, value| {
                    let value = value.map(|value| value.to_cow().into_owned());
                    other.repeat(name, value.as_deref());
                });
                replica = other.finish();

                let expected = sorted(&model);
                prop_assert!(SortedRef::is_sound(row_of(&current)));
                for body in [&current, &replica] {
                    let set = SortedRef::new(row_of(body));
                    prop_assert_eq!(set.len(), expected.len());
                    let found: Vec<_> = set
                        .iter_from_rank(0)
                        .map(|(member, score)| (member.to_vec(), score.to_bits()))
                        .collect();
                    let bits: Vec<_> = expected
                        .iter()
                        .map(|(member, score)| (member.clone(), score.to_bits()))
                        .collect();
                    prop_assert_eq!(found, bits);
                }
                let set = SortedRef::new(row_of(&current));
                for (rank, (member, score)) in expected.iter().enumerate() {
                    prop_assert_eq!(set.rank(member), Some(rank));
                    prop_assert_eq!(set.score(member).map(f64::to_bits), Some(score.to_bits()));
                    let below = expected.iter().filter(|other| other.1 < *score).count();
                    prop_assert_eq!(set.rank_of_score(*score, false), below);
                    let up_to = expected.iter().filter(|other| other.1 <= *score).count();
                    prop_assert_eq!(set.rank_of_score(*score, true), up_to);
                }
                prop_assert_eq!(set.iter_by_member(b"").count(), expected.len());
            }
        }
    }

    #[test]
    fn foreign_columns_are_refused() {
        let row = |columns: &[(&[u8], &[u8])]| {
            let mut draft = HashDraft::new(None);
            for (name, value) in columns {
                draft.set(name, value);
            }
            draft.finish_as(RowTag::SortedSet)
        };
        let one = 1.0_f64.to_bits().to_le_bytes();
        let name = by_score(1.0, b"a");
        for (columns, sound) in [
            (&[(&name[..], &b""[..])][..], true),
            (&[(b"ma", &one), (&name, b"")], true),
            (&[(b"ma", &one)], false),
            (&[(b"ma", b""), (&name, b"")], false),
            (&[(b"mb", &one), (&name, b"")], false),
            (&[(&name, b"x")], false),
            (&[(b"s1234567", b"")], false),
            (&[(b"x", b"")], false),
            (&[(b"s\xff\xff\xff\xff\xff\xff\xff\xff", b"")], false),
        ] {
            let body = row(columns);
            assert_eq!(SortedRef::is_sound(row_of(&body)), sound, "{columns:?}");
        }
    }
}
