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

pub use ends::ListEnds;

use super::wide::End;
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
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::BodyRef;

    fn row_of<'b>(body: &'b Body<'_>) -> HashRef<'b> {
        match body.as_ref() {
            BodyRef::Row(RowTag::List, row) => row,
            other => panic!("{other:?}"),
        }
    }

    fn elements(body: &Body<'_>) -> Vec<Vec<u8>> {
        let list = ListRef::new(row_of(body));
        list.iter_from(0)
            .map(|it| it.to_cow().into_owned())
            .collect()
    }

    #[test]
    fn dl1_labels_sort_as_their_places() {
        let edges = [
            63,
            64,
            319,
            320,
            64 + 0xFFFF,
            64 + 0x1_0000,
            1 << 40,
            1 << 55,
        ];
        let mut places: Vec<i64> = (-70..70).collect();
        places.extend(
            edges
                .iter()
                .flat_map(|edge| [*edge, edge + 1, -edge, -edge - 1]),
        );
        places.sort_unstable();
        places.dedup();
        for pair in places.windows(2) {
            assert!(label(pair[0]) < label(pair[1]), "{pair:?}");
        }
        for place in places {
            assert_eq!(parse(&label(place)), Some((place, &[][..])));
        }
    }

    proptest! {
        #[test]
        fn dl1_there_is_a_label_between_any_two(steps in vec(any::<bool>(), 1..300)) {
            let (mut low, mut high) = (label(0), label(1));
            for step in steps {
                let middle = between(Some(&low), Some(&high));
                prop_assert!(low < middle && middle < high);
                prop_assert!(parse(&middle).is_some());
                *(if step { &mut low } else { &mut high }) = middle;
            }
            let mut dealt = Vec::new();
            deal(Some(&low), Some(&high), 100, &mut dealt);
            dealt.insert(0, low);
            dealt.push(high);
            prop_assert!(dealt.is_sorted_by(|one, next| one < next));
        }
    }

    fn numbered(number: usize) -> Vec<u8> {
        format!("element:{number:07}").into_bytes()
    }

    /// A list of these elements, which come in joint updates.
    fn filled(elements: &[Vec<u8>]) -> Body<'static> {
        let mut current = ListDraft::new(None).finish();
        for some in elements.chunks(128) {
            let next = {
                let mut ends = ListEnds::new(Some(ListRef::new(row_of(&current))));
                for element in some {
                    ends.push_back(element);
                }
                ends.finish()
            };
            current = next;
        }
        current
    }

    fn runs(body: &Body<'_>) -> usize {
        let names = row_of(body).iter().map(|(name, _)| name);
        names.filter(|name| elements_of(name) > 1).count()
    }

    /// Whether few bytes are taken besides the elements and one byte for the length of each.
    fn assert_compact(body: &Body<'_>, count: usize) {
        let content = count * (1 + numbered(0).len());
        let bytes = row_of(body).heap_bytes();
        assert!(
            bytes < content + content / 10,
            "{bytes} bytes, {content} of content"
        );
    }

    #[test]
    fn a_long_list_is_packed_however_it_grew() {
        const COUNT: usize = 20_000;
        let all: Vec<_> = (0..COUNT).map(numbered).collect();
        assert_compact(&filled(&all), COUNT);
        for end in [End::First, End::Last] {
            let mut current = ListDraft::new(None).finish();
            for element in &all {
                let next = {
                    let mut draft = ListDraft::new(Some(ListRef::new(row_of(&current))));
                    draft.push(end, StringBody::borrowed(element));
                    draft.finish()
                };
                current = next;
            }
            assert_compact(&current, COUNT);
            let mut found = elements(&current);
            if end == End::First {
                found.reverse();
            }
            assert_eq!(found, all);
        }
    }

    /// DL3: and when it is small again, each element has a column of its own.
    #[test]
    fn dl3_small_lists_have_no_runs() {
        let all: Vec<_> = (0..1000).map(numbered).collect();
        let mut draft = ListDraft::new(None);
        draft.extend(End::Last, all.iter().map(Vec::as_slice));
        draft.extend(End::Last, all.iter().map(Vec::as_slice));
        draft.keep(1000, 1900);
        let large = draft.finish();
        assert!(runs(&large) > 20);
        let mut draft = ListDraft::new(Some(ListRef::new(row_of(&large))));
        draft.keep(500, 550);
        let small = draft.finish();
        assert!(matches!(row_of(&small), HashRef::Packed(_)));
        assert_eq!(runs(&small), 0);
        assert_eq!(elements(&small), all[500..550]);
    }

    /// DL3: also where its columns, written one by one, would fit a small list.
    #[test]
    fn dl3_columns_with_runs_make_a_large_list() {
        let all: Vec<_> = (0..500).map(numbered).collect();
        let long = filled(&all);
        let mut draft = ListDraft::new(Some(ListRef::new(row_of(&long))));
        draft.keep(300, 500);
        let (list, all) = (draft.finish(), &all[300..]);
        assert!(runs(&list) > 3 && matches!(row_of(&list), HashRef::Wide(_)));
        let loaded = repeated(&list, None, &list);
        assert!(matches!(row_of(&loaded), HashRef::Wide(_)));
        assert_eq!(elements(&loaded), all);
        // A small list stays one, and so do the names of its columns.
        let small = filled(&all[..20]);
        assert!(matches!(
            row_of(&repeated(&small, None, &small)),
            HashRef::Packed(_)
        ));
    }

    /// Pushes and pops in turns at one place change one column each.
    #[test]
    fn pushes_and_pops_around_a_block_pack_nothing() {
        let all: Vec<_> = (0..1000).map(numbered).collect();
        let mut current = filled(&all);
        let mut changed = 0;
        for step in 0..400 {
            let next = {
                let mut draft = ListDraft::new(Some(ListRef::new(row_of(&current))));
                if step % 2 == 0 {
                    draft.push_back(StringBody::borrowed(b"element"));
                } else {
                    draft.remove(draft.len() - 1);
                }
                draft.finish()
            };
            row_of(&next).changed_since(row_of(&current), &mut |_, _| changed += 1);
            current = next;
        }
        assert!(changed < 400 + 2 * 32, "{changed} columns");
    }

    #[test]
    fn foreign_runs_are_refused() {
        let name = |place, count| run::RunName::new(place, count).as_bytes().to_vec();
        let row = |columns: &[(Vec<u8>, &[u8])]| {
            let mut draft = HashDraft::new_as(RowTag::List, None);
            // Large from the beginning.
            draft.set(&label(-64), &[0; 5000]);
            for (name, value) in columns {
                draft.set(name, value);
            }
            let Body::Row(_, body) = draft.finish_as(RowTag::List) else {
                unreachable!("a row was made")
            };
            ListRef::is_sound(body.as_ref())
        };
        assert!(row(&[(name(3, 2), b"\x01a\x02bc"), (label(5), b"d")]));
        assert!(!row(&[(name(3, 2), b"\x01a\x02b")]), "it ends early");
        assert!(!row(&[(name(3, 2), b"\x01a\x02bcd")]), "it goes on");
        assert!(
            !row(&[(name(3, 2), b"\x01a\x02bc"), (label(4), b"d")]),
            "places are its own"
        );
        assert!(!row(&[(name(3, 2), b"\x01a\x02bc"), (label(3), b"d")]));
        for count in [0, 1, 33] {
            let mut other = label(3);
            other.extend([0, count, 0]);
            assert!(!row(&[(other, b"\x01a")]), "{count} elements");
        }
    }

    /// A step of a history: what is done, where (per mille), and with how long an element.
    fn step() -> impl Strategy<Value = (u8, usize, usize)> {
        (
            0..12_u8,
            0..1000_usize,
            prop_oneof![20 => 0..40_usize, 1 => 20_000..40_000_usize],
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Histories across the bound between small and large lists, and back.
        #[test]
        fn lists_are_vectors(
            at_first in prop_oneof![Just(0), 0..900_usize],
            history in vec(vec(step(), 1..300), 1..6),
        ) {
            let mut model: Vec<Vec<u8>> = (0..at_first).map(numbered).collect();
            let mut current = filled(&model);
            let mut replica = repeated(&ListDraft::new(None).finish(), None, &current);
            for (round, steps) in history.into_iter().enumerate() {
                let next = {
                    let mut draft = ListDraft::new(Some(ListRef::new(row_of(&current))));
                    for (number, (kind, place, bytes)) in steps.into_iter().enumerate() {
                        let mut element = format!("{round}-{number}-").into_bytes();
                        element.resize(element.len() + bytes, b'x');
                        let at = place * (model.len() + 1) / 1000;
                        match kind {
                            0..3 => {
                                draft.push_front(StringBody::borrowed(&element));
                                model.insert(0, element);
                            }
                            3..6 => {
                                draft.push_back(StringBody::borrowed(&element));
                                model.push(element);
                            }
                            6..8 => {
                                draft.insert(at, StringBody::borrowed(&element));
                                model.insert(at, element);
                            }
                            8 => {
                                let body = StringBody::borrowed(&element);
                                prop_assert_eq!(draft.set(at, body), at < model.len());
                                if at < model.len() { model[at] = element; }
                            }
                            9..11 => {
                                prop_assert_eq!(draft.remove(at), at < model.len());
                                if at < model.len() { model.remove(at); }
                            }
                            _ if place < 100 => {
                                let end = (at + 200).min(model.len());
                                draft.keep(at, end);
                                model = model[at.min(end)..end].to_vec();
                            }
                            _ => {}
                        }
                        prop_assert_eq!(draft.len(), model.len());
                    }
                    draft.finish()
                };
                prop_assert!(ListRef::is_sound(row_of(&next)));
                prop_assert_eq!(elements(&next), model.clone());
                // What is in a log: changes of a list that stays large or small, or all of it.
                let is_small = |body| matches!(row_of(body), HashRef::Packed(_));
                let is_change = round % 2 == 0 && is_small(&current) == is_small(&next);
                let old = is_change.then_some(&current);
                replica = repeated(&replica, old, &next);
                prop_assert!(ListRef::is_sound(row_of(&replica)));
                prop_assert_eq!(elements(&replica), model.clone());
                current = next;
            }
        }
    }

    /// The columns of `next`, or those that differ from `old`, repeated elsewhere.
    fn repeated(
        replica: &Body<'static>,
        old: Option<&Body<'static>>,
        next: &Body<'static>,
    ) -> Body<'static> {
        let empty = HashDraft::new(None);
        let mut draft = HashDraft::new_as(RowTag::List, old.map(|_| row_of(replica)));
        let old = old.map_or(empty.as_ref(), row_of);
        row_of(next).changed_since(old, &mut |name, value| match value {
            Some(value) => {
                draft.set_body(name, value.hand_over());
            }
            None => assert!(draft.remove(name), "what goes was there"),
        });
        draft.finish_as(RowTag::List)
    }

    /// DL2: always before the same element, the worst case for fractions.
    #[test]
    fn dl2_insertions_at_one_place_keep_labels_short() {
        let mut draft = ListDraft::new(None);
        draft.push_back(StringBody::borrowed(b"first"));
        draft.push_back(StringBody::borrowed(b"last"));
        for number in 0..20_000_u32 {
            let at = if number % 3 == 0 { 1 } else { draft.len() - 1 };
            draft.insert(at, StringBody::borrowed(&number.to_be_bytes()));
        }
        assert_eq!(draft.len(), 20_002);
        assert!(draft.as_ref().get(0).is_some_and(|it| it == b"first"));
        assert!(draft.as_ref().get(20_001).is_some_and(|it| it == b"last"));
        assert!(ListRef::is_sound(row_of(&draft.finish())));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// Pushes and pops at both ends, many in one update, of small and large lists.
        #[test]
        fn ends_are_those_of_a_deque(
            rounds in vec((vec((0..8_u8, 0..40_usize), 1..300), any::<bool>()), 1..8),
        ) {
            let mut model: std::collections::VecDeque<Vec<u8>> = std::collections::VecDeque::new();
            let mut current = ListDraft::new(None).finish();
            for (round, (steps, shrinks)) in rounds.into_iter().enumerate() {
                let next = {
                    let mut ends = ListEnds::new(Some(ListRef::new(row_of(&current))));
                    for (number, (kind, bytes)) in steps.into_iter().enumerate() {
                        let mut element = format!("{round}-{number}-").into_bytes();
                        element.resize(element.len() + bytes, b'x');
                        let kind = if shrinks && kind < 4 { kind + 4 } else { kind };
                        match kind {
                            0..2 => {
                                ends.push_front(&element);
                                model.push_front(element);
                            }
                            2..5 => {
                                ends.push_back(&element);
                                model.push_back(element);
                            }
                            5..7 => {
                                let expected = model.pop_front();
                                // Not always asked for.
                                if bytes % 3 > 0 {
                                    let found = ends.first().map(|it| it.to_cow().into_owned());
                                    prop_assert_eq!(found, expected);
                                }
                                ends.pop_front();
                            }
                            _ => {
                                let expected = model.pop_back();
                                if bytes % 3 > 0 {
                                    let found = ends.last().map(|it| it.to_cow().into_owned());
                                    prop_assert_eq!(found, expected);
                                }
                                ends.pop_back();
                            }
                        }
                        prop_assert_eq!(ends.len(), model.len());
                    }
                    ends.finish()
                };
                prop_assert!(ListRef::is_sound(row_of(&next)));
                let expected: Vec<_> = model.iter().cloned().collect();
                prop_assert_eq!(elements(&next), expected);
                current = next;
            }
        }
    }
}
