//! A list as a reader sees it, and the draft that builds its next version.
//!
//! It is a row: each element is the value of a column, whose name is a *label* that says where the
//! element is. The trees of rows do the rest: they count elements, so that access, insertion and
//! removal anywhere are O(log elements).
//!
//! In a large list short elements that lie between its ends are packed into runs, several to a
//! column ([`run`]). What is pushed one by one stays in columns of its own until a
//! run's length of others is behind it, and a run is unpacked when an end comes to it. So a
//! push or a pop changes a short column, and not a run each time, which matters to the log.
//!
//! A label is the order-preserving form of an integer, its *place*, then any bytes:
//!
//! | first byte | then | place |
//! |---|---|---|
//! | 0x40 to 0xBF | | the byte less 0x80: -64 to 63 |
//! | 0xC0 + n, n up to 6 | n + 1 bytes, big-endian, `m` | 64 + m |
//! | 0x3F - n, n up to 6 | n + 1 bytes, big-endian, inverted, `m` | -65 - m |
//!
//! Both ends take the next integer, so that a queue's labels stay short. What is inserted between
//! two neighbouring places gets the label of the first one and a fraction behind it. When
//! insertions at one place have made a label longer than [`LABEL_BYTES_MAX`], the labels around it
//! are dealt out anew.
//!
//! Invariants:
//! - **DL1 labels** Every name is a label: its place parses, and its fraction does not end in 0. So
//!   there is a label between any two.
//! - **DL2 short-labels** No label is longer than [`LABEL_BYTES_MAX`] once the draft's change is
//!   done.
//! - **DL3 large-runs** Only large lists have runs. No column's place is among those of a run, but
//!   a fraction may follow the last one.

mod ends;
mod pack;
mod run;

pub use ends::{ListChange, ListEnds};

use super::wide::{End, WideRow};
use super::{Body, HashDraft, HashIter, HashRef, RowTag, StringBody, StringRef};
pub(super) use pack::has_runs;
use run::Elements;
pub(super) use run::elements_of;

/// Longest label in bytes.
const LABEL_BYTES_MAX: usize = 24;

/// Labels between neighbours of up to this many bytes leave room for others.
const LABEL_BYTES_GOOD: usize = LABEL_BYTES_MAX / 2;

/// Elements on each side of an insertion that are labelled anew at first.
const REACH: usize = 64;

/// Places that one byte holds: from `-NEAR` to `NEAR - 1`.
const NEAR: i64 = 64;

/// Most bytes of a place behind the first one.
const PLACE_BYTES_MAX: usize = 7;

/// The label of a place, without a fraction.
#[derive(Clone, Copy, Debug)]
struct Label {
    bytes: [u8; 1 + PLACE_BYTES_MAX],
    length: u8,
}

impl Label {
    fn of(place: i64) -> Self {
        let mut label = [0; 1 + PLACE_BYTES_MAX];
        if (-NEAR..NEAR).contains(&place) {
            label[0] = (0x80 + place) as u8;
            return Self {
                bytes: label,
                length: 1,
            };
        }
        let (first, far) = if place < 0 {
            (0x3F, (-NEAR - 1 - place) as u64)
        } else {
            (0xC0, (place - NEAR) as u64)
        };
        let bytes = (size_of::<u64>() - far.leading_zeros() as usize / 8).max(1);
        assert!(bytes <= PLACE_BYTES_MAX, "place {place}");
        let (first, far) = if place < 0 {
            (first - (bytes as u8 - 1), !far)
        } else {
            (first + (bytes as u8 - 1), far)
        };
        label[0] = first;
        label[1..=bytes].copy_from_slice(&far.to_be_bytes()[size_of::<u64>() - bytes..]);
        Self {
            bytes: label,
            length: 1 + bytes as u8,
        }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// The same with room for a fraction.
fn label(place: i64) -> Vec<u8> {
    Label::of(place).as_bytes().to_vec()
}

/// The place and the fraction of a label.
fn parse(label: &[u8]) -> Option<(i64, &[u8])> {
    place_of(label).filter(|(_, fraction)| fraction.last() != Some(&0))
}

/// The place that a name begins with, and the rest of the name.
fn place_of(name: &[u8]) -> Option<(i64, &[u8])> {
    let (&first, rest) = name.split_first()?;
    let bytes = match first {
        0x40..=0xBF => return Some((i64::from(first) - 0x80, rest)),
        0xC0.. => usize::from(first - 0xC0) + 1,
        _ => usize::from(0x3F - first) + 1,
    };
    if bytes > PLACE_BYTES_MAX {
        return None;
    }
    let (far, fraction) = rest.split_at_checked(bytes)?;
    let negative = first < 0x40;
    let far = far.iter().fold(0_u64, |far, byte| {
        far << 8 | u64::from(if negative { !byte } else { *byte })
    });
    let place = if negative {
        -NEAR - 1 - far as i64
    } else {
        NEAR + far as i64
    };
    Some((place, fraction))
}

const SOUND: &str = "a name in a list is a label (DL1)";

/// A label between these two (DL1); none: the list ends there.
fn between(low: Option<&[u8]>, high: Option<&[u8]>) -> Vec<u8> {
    let low = low.map(|low| parse(low).expect(SOUND));
    let high = high.map(|high| parse(high).expect(SOUND));
    match (low, high) {
        (None, None) => label(0),
        (Some((low, _)), None) => label(low + 1),
        (None, Some((high, _))) => label(high - 1),
        (Some((low, behind)), Some((high, fraction))) => {
            if high - low >= 2 {
                return label(low + (high - low) / 2);
            }
            if high > low && !fraction.is_empty() {
                return label(high);
            }
            let fraction = (high == low).then_some(fraction);
            let mut label = label(low);
            push_fraction(&mut label, behind, fraction);
            label
        }
    }
}

/// Appends a fraction between these two; none is 1.
fn push_fraction(out: &mut Vec<u8>, low: &[u8], mut high: Option<&[u8]>) {
    for index in 0.. {
        let digit = |fraction: &[u8]| u16::from(fraction.get(index).copied().unwrap_or(0));
        let (least, most) = (digit(low), high.map_or(0x100, digit));
        debug_assert!(least <= most);
        if most - least >= 2 {
            out.push(least.midpoint(most) as u8);
            return;
        }
        out.push(least as u8);
        if least < most {
            high = None;
        }
    }
}

/// Appends `count` labels in order between these two, all about equally far apart.
fn deal(low: Option<&[u8]>, high: Option<&[u8]>, count: usize, out: &mut Vec<Vec<u8>>) {
    let place = |label: Option<&[u8]>| label.map(|label| parse(label).expect(SOUND).0);
    match (place(low), place(high)) {
        (None, None) => out.extend((0..count as i64).map(label)),
        (Some(low), None) => out.extend((1..=count as i64).map(|step| label(low + step))),
        (None, Some(high)) => out.extend((1..=count as i64).rev().map(|step| label(high - step))),
        (Some(first), Some(last)) if last - first > count as i64 => {
            let (room, parts) = (i128::from(last - first), count as i128 + 1);
            let steps = (1..parts).map(|step| (room * step / parts) as i64);
            out.extend(steps.map(|step| label(first + step)));
        }
        _ if count == 0 => {}
        _ => {
            let middle = between(low, high);
            deal(low, Some(&middle), count / 2, out);
            out.push(middle.clone());
            deal(Some(&middle), high, count - count / 2 - 1, out);
        }
    }
}

/// A list: elements by position.
///
/// ```
/// use pando_engine::{BodyRef, ListDraft, ListRef, StringBody};
///
/// let mut draft = ListDraft::new(None);
/// draft.push_back(StringBody::borrowed(b"second"));
/// draft.push_front(StringBody::borrowed(b"first"));
/// draft.insert(1, StringBody::borrowed(b"between"));
/// let body = draft.finish();
/// let BodyRef::Row(_, row) = body.as_ref() else {
///     unreachable!("a row was made")
/// };
/// let list = ListRef::new(row);
/// assert_eq!(list.len(), 3);
/// assert!(list.get(1).is_some_and(|element| element == b"between"));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ListRef<'a>(HashRef<'a>);

impl<'a> ListRef<'a> {
    /// The list that is this row.
    #[must_use]
    pub fn new(row: HashRef<'a>) -> Self {
        Self(row)
    }

    /// Whether columns of unknown origin are those of a list. O(columns).
    #[must_use]
    pub fn is_sound(row: HashRef<'_>) -> bool {
        let may_have_runs = matches!(row, HashRef::Wide(_));
        let mut last = None;
        row.iter().all(|(name, value)| {
            let (Some((place, behind)), count) = (place_of(name), elements_of(name)) else {
                return false;
            };
            // DL3 large-runs.
            let follows = last.is_none_or(|last| place > last || place == last && count == 1);
            let is_first = last != Some(place) || !behind.is_empty();
            last = Some(place + count as i64 - 1);
            follows
                && is_first
                && (count == 1 || may_have_runs)
                && Self::is_column(name, value.as_flat())
        })
    }

    /// Whether this may be a column (DL1, DL2); `None`: its value is large.
    #[must_use]
    pub fn is_column(name: &[u8], value: Option<&[u8]>) -> bool {
        match (run::parse_name(name), value) {
            (Some((_, count)), Some(value)) => run::is_value(value, count),
            (Some(_), None) => false,
            (None, _) => Self::is_label(name),
        }
    }

    /// Whether this may be the name of a column.
    #[must_use]
    pub fn is_name(name: &[u8]) -> bool {
        run::parse_name(name).is_some() || Self::is_label(name)
    }

    fn is_label(name: &[u8]) -> bool {
        name.len() <= LABEL_BYTES_MAX && parse(name).is_some()
    }

    /// How many elements there are. O(1).
    #[must_use]
    pub fn len(self) -> usize {
        match self.0 {
            HashRef::Packed(_) => self.0.len(),
            HashRef::Wide(row) => row.elements(),
        }
    }

    /// The rank of the column that holds the element at a position, and how many elements of the
    /// column are before it. O(log elements).
    fn locate(self, index: usize) -> (usize, usize) {
        match self.0 {
            HashRef::Wide(row) if index < row.elements() => row.locate(index),
            HashRef::Wide(row) => (row.len(), 0),
            HashRef::Packed(_) => (index, 0),
        }
    }

    /// The label of the element at a position.
    fn label_at(self, index: usize) -> Option<Vec<u8>> {
        let (rank, before) = self.locate(index);
        let (name, _) = self.0.nth(rank)?;
        Some(match run::parse_name(name) {
            Some((place, _)) => label(place + before as i64),
            None => name.to_vec(),
        })
    }

    /// Whether there are no elements; a stored list has at least one.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The element at a position. O(log elements).
    #[must_use]
    pub fn get(self, index: usize) -> Option<StringRef<'a>> {
        self.iter_from(index).next()
    }

    /// The elements from a position on. O(log elements) to begin.
    #[must_use]
    pub fn iter_from(self, index: usize) -> ListIter<'a> {
        let (rank, before) = self.locate(index);
        let mut columns = self.0.iter_from_rank(rank);
        let mut elements = Elements::None;
        if before > 0 {
            elements = columns.next().map(Elements::of).unwrap_or_default();
            elements.by_ref().take(before).for_each(drop);
        }
        ListIter {
            columns,
            elements,
            left: self.len().saturating_sub(index),
        }
    }
}

/// Elements in order.
#[derive(Clone, Debug)]
pub struct ListIter<'a> {
    columns: HashIter<'a>,
    /// The rest of the current column.
    elements: Elements<'a>,
    left: usize,
}

impl<'a> Iterator for ListIter<'a> {
    type Item = StringRef<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(element) = self.elements.next() {
                self.left -= 1;
                return Some(element);
            }
            self.elements = Elements::of(self.columns.next()?);
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for ListIter<'_> {}

/// The next version of a list, under construction; see [`HashDraft`].
#[derive(Debug)]
pub struct ListDraft<'o>(HashDraft<'o>);

impl<'o> ListDraft<'o> {
    /// Begins with the elements of `old`. O(1).
    #[must_use]
    pub fn new(old: Option<ListRef<'o>>) -> Self {
        Self(HashDraft::new_as(RowTag::List, old.map(|old| old.0)))
    }

    /// Goes on with a row that was taken, in place; see [`HashDraft::of`]. O(1).
    #[must_use]
    pub fn of(row: WideRow) -> Self {
        debug_assert!(row.has_runs(), "it is a list");
        Self(HashDraft::of(row))
    }

    /// The list with the changes so far.
    #[must_use]
    pub fn as_ref(&self) -> ListRef<'_> {
        ListRef(self.0.as_ref())
    }

    /// How many elements there are. O(1).
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_ref().len()
    }

    /// Whether no elements are left, so that the key is to be removed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn label_at(&self, index: usize) -> Option<Vec<u8>> {
        self.as_ref().label_at(index)
    }

    /// The place of the first or last element, if there is one.
    fn edge(&self, end: End) -> Option<i64> {
        let row = self.0.as_ref();
        let (name, _) = match end {
            End::First => row.nth(0)?,
            End::Last => row.nth(row.len().checked_sub(1)?)?,
        };
        let place = place_of(name).expect(SOUND).0;
        Some(match end {
            End::First => place,
            End::Last => place + elements_of(name) as i64 - 1,
        })
    }

    /// Adds an element before the first one. O(log elements + bytes).
    pub fn push_front(&mut self, element: StringBody<'_>) {
        self.push(End::First, element);
    }

    /// Adds an element behind the last one. O(log elements + bytes).
    pub fn push_back(&mut self, element: StringBody<'_>) {
        self.push(End::Last, element);
    }

    fn push(&mut self, end: End, element: StringBody<'_>) {
        let place = match (self.edge(end), end) {
            (None, _) => 0,
            (Some(edge), End::First) => edge - 1,
            (Some(edge), End::Last) => edge + 1,
        };
        self.0.set_body(Label::of(place).as_bytes(), element);
        self.pushed(end, place);
    }

    /// Adds an element before the one at `index`, or as the last one. O(log elements + bytes), and
    /// now and then O(elements around it).
    pub fn insert(&mut self, index: usize, element: StringBody<'_>) {
        self.part_before(index);
        let mut label = self.label_before(index);
        if label.len() > LABEL_BYTES_MAX {
            self.spread(index);
            label = self.label_before(index);
        }
        debug_assert!(label.len() <= LABEL_BYTES_MAX, "DL2");
        self.0.set_body(&label, element);
    }

    fn label_before(&self, index: usize) -> Vec<u8> {
        let low = index.checked_sub(1).and_then(|index| self.label_at(index));
        between(low.as_deref(), self.label_at(index).as_deref())
    }

    /// Labels the elements around `index` anew (DL2): as few as leave room.
    fn spread(&mut self, index: usize) {
        let mut reach = REACH;
        loop {
            let (start, end) = (index.saturating_sub(reach), self.len().min(index + reach));
            let low = start.checked_sub(1).and_then(|index| self.label_at(index));
            let high = self.label_at(end);
            let (low, high) = (low.as_deref(), high.as_deref());
            let is_whole = low.is_none() && high.is_none();
            if is_whole || between(low, high).len() <= LABEL_BYTES_GOOD {
                let mut labels = Vec::with_capacity(end - start);
                deal(low, high, end - start, &mut labels);
                self.part_before(start);
                self.part_before(end);
                let list = self.as_ref();
                let elements = list.iter_from(start).take(end - start);
                let elements: Vec<_> = elements.map(StringRef::hand_over).collect();
                let ranks = list.locate(start).0..list.locate(end).0;
                let names = list.0.iter_from_rank(ranks.start).take(ranks.len());
                let names: Vec<Vec<u8>> = names.map(|(name, _)| name.to_vec()).collect();
                for name in &names {
                    self.0.remove(name);
                }
                for (label, element) in labels.iter().zip(elements) {
                    self.0.set_body(label, element);
                }
                return;
            }
            reach *= 2;
        }
    }

    /// Replaces the element at a position; returns whether there is one. O(log elements + bytes).
    pub fn set(&mut self, index: usize, element: StringBody<'_>) -> bool {
        if index >= self.len() {
            return false;
        }
        if let StringBody::Flat(flat) = &element
            && self.replace_in_run(index, flat)
        {
            return true;
        }
        self.part_before(index);
        self.part_before(index + 1);
        let label = self.label_at(index).expect("a position below the length");
        self.0.set_body(&label, element);
        true
    }

    /// Removes the element at a position; returns whether there was one. O(log elements).
    pub fn remove(&mut self, index: usize) -> bool {
        let len = self.len();
        if index >= len {
            return false;
        }
        if index == 0 {
            self.unpack(End::First);
        } else if index + 1 == len {
            self.unpack(End::Last);
        } else {
            self.part_before(index);
            self.part_before(index + 1);
        }
        let label = self.label_at(index).expect("a position below the length");
        self.0.remove(&label)
    }

    /// Leaves the elements of these positions. O(log elements).
    pub fn keep(&mut self, start: usize, end: usize) {
        let len = self.len();
        let (start, end) = (start.min(len), end.clamp(start.min(len), len));
        if start == end {
            *self = Self::new(None);
            return;
        }
        self.part_before(end);
        let columns = self.0.len();
        let kept = self.as_ref().locate(end).0;
        self.0.cut(End::Last, columns - kept);
        self.part_before(start);
        let gone = self.as_ref().locate(start).0;
        self.0.cut(End::First, gone);
    }

    /// The finished body, in the form for its size (D1 smallest-form).
    #[must_use]
    pub fn finish(self) -> Body<'static> {
        self.0.finish_list(|block| pack::unpacked(&block))
    }
}

#[cfg(test)]
mod tests;
