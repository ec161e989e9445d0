//! How the columns of a large list become runs, and single ones again.
//!
//! Places are cut into *blocks* of [`RUN_ELEMENTS_MAX`]. What a block holds is packed when many
//! elements come at once, or when [`KEPT`] elements lie beyond it: so pushes and pops in turns
//! around a block's end pack and unpack nothing.

use super::run::{self, Elements, RUN_ELEMENTS_MAX, RunName};
use super::{Label, ListDraft, SOUND, parse};
use crate::limits::PACKED_ROW_BYTES_MAX;
use crate::value::row::{self, Cell, Part, RowRef};
use crate::value::wide::End;
use crate::value::{HashRef, StringRef};

const BLOCK: i64 = RUN_ELEMENTS_MAX as i64;

/// Elements that stay single at an end.
const KEPT: i64 = BLOCK / 4;

/// Most columns that are made at a time.
const COLUMNS_AT_ONCE: usize = 16;

/// Most blocks that are packed when an end has gone on by a few elements.
const BLOCKS_AT_ONCE: usize = 2;

/// Room that is made for a run, and for a string, before their length is known.
const RUN_BYTES_SOON: usize = 512;

/// Runs of a block for which room is made.
const RUNS_SOON: usize = 2;
const STRING_BYTES_SOON: usize = 24;

/// Elements, one behind the other.
#[derive(Default)]
struct Strings {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Strings {
    /// None, with room for this many short ones.
    fn for_some(count: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(count * STRING_BYTES_SOON),
            ends: Vec::with_capacity(count),
        }
    }

    fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len());
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let ranges = starts.zip(&self.ends);
        ranges.map(|(start, end)| &self.bytes[start..*end])
    }
}

/// Columns with short values, to be put at an end of a list.
struct Columns {
    names: Vec<RunName>,
    values: Strings,
    /// The run that is being filled: where it begins, its elements and its value.
    place: i64,
    count: usize,
    run: Vec<u8>,
}

impl Columns {
    /// None, with room for this many elements.
    fn for_elements(count: usize) -> Self {
        Self {
            names: Vec::with_capacity(count),
            values: Strings::for_some(count),
            place: 0,
            count: 0,
            run: Vec::with_capacity(RUN_BYTES_SOON),
        }
    }

    /// Adds an element to the run, or a new one.
    fn pack(&mut self, place: i64, element: &[u8]) {
        let is_full = self.count == RUN_ELEMENTS_MAX
            || place.rem_euclid(BLOCK) == 0
            || !run::has_room(self.run.len(), element);
        if is_full || !run::takes(element) {
            self.end_run();
        }
        if !run::takes(element) {
            return self.single(place, element);
        }
        if self.count == 0 {
            self.place = place;
        }
        run::push(&mut self.run, element);
        self.count += 1;
    }

    fn end_run(&mut self) {
        match self.count {
            0 => return,
            // Without its length.
            1 => self.values.push(&self.run[1..]),
            _ => self.values.push(&self.run),
        }
        self.names.push(RunName::new(self.place, self.count));
        self.run.clear();
        self.count = 0;
    }

    fn single(&mut self, place: i64, element: &[u8]) {
        self.end_run();
        self.names.push(RunName::new(place, 1));
        self.values.push(element);
    }

    fn put(mut self, draft: &mut ListDraft<'_>, end: End) {
        self.end_run();
        let names = self.names.iter().map(RunName::as_bytes);
        let columns: Vec<_> = names.zip(self.values.iter()).collect();
        draft.0.extend(end, &columns);
    }
}

impl ListDraft<'_> {
    /// Whether an end that comes from one place to another leaves a block behind it that may be
    /// packed.
    fn leaves_a_block(&self, end: End, from: i64, to: i64) -> bool {
        let block = |place: i64| match end {
            End::First => (-(place + KEPT)).div_euclid(BLOCK),
            End::Last => (place + 1 - KEPT).div_euclid(BLOCK),
        };
        matches!(self.0.as_ref(), HashRef::Wide(_)) && block(to) > block(from)
    }

    /// After an element was pushed at this place: packs the block that it leaves behind, if any.
    pub(super) fn pushed(&mut self, end: End, place: i64) {
        let before = match end {
            End::First => place + 1,
            End::Last => place - 1,
        };
        self.moved(end, before, place);
    }

    /// After an end has come from one place to another, less than a block away: packs what it
    /// leaves behind, if anything.
    fn moved(&mut self, end: End, from: i64, to: i64) {
        if !self.leaves_a_block(end, from, to) {
            return;
        }
        let mut first = match end {
            End::First => to + KEPT + (-(to + KEPT)).rem_euclid(BLOCK),
            End::Last => (to + 1 - KEPT).div_euclid(BLOCK) * BLOCK - BLOCK,
        };
        // The one before it may have been left while the list was small.
        for _ in 0..BLOCKS_AT_ONCE {
            if !self.pack_block(first) {
                return;
            }
            first += match end {
                End::First => BLOCK,
                End::Last => -BLOCK,
            };
        }
    }

    /// Packs the block that begins at a place, if its elements have columns of their own, with
    /// labels without fractions, and are short; returns whether they have.
    fn pack_block(&mut self, first: i64) -> bool {
        let row = self.0.as_ref();
        let rank = row.rank(Label::of(first).as_bytes());
        // Most blocks that are not to be packed are runs already.
        let last = row.nth(rank + RUN_ELEMENTS_MAX - 1).map(|(name, _)| name);
        if last != Some(Label::of(first + BLOCK - 1).as_bytes()) {
            return false;
        }
        let mut runs = Columns::for_elements(RUNS_SOON);
        for (place, (name, value)) in (first..first + BLOCK).zip(row.iter_from_rank(rank)) {
            match value.as_flat() {
                Some(value) if run::takes(value) && name == Label::of(place).as_bytes() => {
                    runs.pack(place, value);
                }
                _ => return false,
            }
        }
        runs.end_run();
        self.0.remove_from_rank(rank, RUN_ELEMENTS_MAX);
        for (name, value) in runs.names.iter().zip(runs.values.iter()) {
            self.0.set(name.as_bytes(), value);
        }
        true
    }

    /// Adds short elements before the first one or behind the last one, in order.
    pub(super) fn extend(&mut self, end: End, elements: &[&[u8]]) {
        let count = elements.len() as i64;
        if count == 0 {
            return;
        }
        let Some(edge) = self.edge(end) else {
            return self.extend_single(end, 0, elements);
        };
        let (first, last) = match end {
            End::First => (edge - count, edge - count),
            End::Last => (edge + 1, edge + count),
        };
        if count >= BLOCK && self.leaves_a_block(end, edge, last) {
            self.extend_packed(end, edge, elements);
        } else {
            self.extend_single(end, first, elements);
            self.moved(end, edge, last);
        }
    }

    fn extend_single(&mut self, end: End, first: i64, elements: &[&[u8]]) {
        let (mut first, mut rest) = (first, elements);
        while !rest.is_empty() {
            let count = rest.len().min(COLUMNS_AT_ONCE);
            let (place, now);
            match end {
                End::First => {
                    (rest, now) = rest.split_at(rest.len() - count);
                    place = first + rest.len() as i64;
                }
                End::Last => {
                    (now, rest) = rest.split_at(count);
                    place = first;
                    first += count as i64;
                }
            }
            let mut labels = [Label::of(place); COLUMNS_AT_ONCE];
            let mut columns = [(&[][..], &[][..]); COLUMNS_AT_ONCE];
            for (place, label) in (place..).zip(&mut labels[..count]).skip(1) {
                *label = Label::of(place);
            }
            for ((column, label), element) in columns.iter_mut().zip(&labels).zip(now) {
                *column = (label.as_bytes(), *element);
            }
            self.0.extend(end, &columns[..count]);
        }
    }

    /// The same for many elements, which follow one at the place `edge` and leave blocks behind.
    fn extend_packed(&mut self, end: End, edge: i64, elements: &[&[u8]]) {
        let count = elements.len() as i64;
        let loose = self.loose(end, edge);
        let new = match end {
            End::First => edge - count..edge,
            End::Last => edge + 1..edge + 1 + count,
        };
        let (low, high) = match end {
            End::First => (new.start, new.end + loose),
            End::Last => (new.start - loose, new.end),
        };
        let first_block = low + (-low).rem_euclid(BLOCK);
        let packed = first_block..high - high.rem_euclid(BLOCK);
        let taken = match end {
            _ if packed.is_empty() => 0,
            End::First => (packed.end - new.end).max(0),
            End::Last => (new.start - packed.start).max(0),
        };
        if packed.is_empty() || taken as usize >= self.0.len() {
            return self.extend_single(end, new.start, elements);
        }
        let taken = self.take_loose(end, taken as usize);
        let (first, all): (i64, Vec<&[u8]>) = match end {
            End::First => (
                new.start,
                elements.iter().copied().chain(taken.iter()).collect(),
            ),
            End::Last => {
                let first = new.start - taken.ends.len() as i64;
                (
                    first,
                    taken.iter().chain(elements.iter().copied()).collect(),
                )
            }
        };
        let mut columns = Columns::for_elements(all.len());
        for (place, element) in (first..).zip(all) {
            if packed.contains(&place) {
                columns.pack(place, element);
            } else {
                columns.single(place, element);
            }
        }
        columns.put(self, end);
    }

    /// How many elements at an end, whose place is `edge`, have columns of their own with labels
    /// without fractions and can be packed: those of two blocks at most.
    fn loose(&self, end: End, edge: i64) -> i64 {
        let row = self.0.as_ref();
        let reach = (2 * RUN_ELEMENTS_MAX).min(row.len());
        let is_loose = |place: i64, (name, value): (&[u8], StringRef<'_>)| {
            name == Label::of(place).as_bytes() && value.as_flat().is_some_and(run::takes)
        };
        match end {
            End::First => {
                let columns = (edge..).zip(row.iter().take(reach));
                let columns = columns.take_while(|(place, column)| is_loose(*place, *column));
                columns.count() as i64
            }
            End::Last => {
                let places = edge + 1 - reach as i64..;
                let columns = places.zip(row.iter_from_rank(row.len() - reach));
                columns.fold(0, |loose, (place, column)| {
                    if is_loose(place, column) {
                        loose + 1
                    } else {
                        0
                    }
                })
            }
        }
    }

    /// Takes the columns of loose elements off an end.
    fn take_loose(&mut self, end: End, count: usize) -> Strings {
        let row = self.0.as_ref();
        let start = match end {
            End::First => 0,
            End::Last => row.len() - count,
        };
        let mut taken = Strings::for_some(count);
        for (_, value) in row.iter_from_rank(start).take(count) {
            taken.push(value.as_flat().expect("a loose element is short"));
        }
        self.0.cut(end, count);
        taken
    }

    /// Stores elements at neighbouring places in one column.
    fn put_run(&mut self, place: i64, elements: &[&[u8]]) {
        let name = RunName::new(place, elements.len());
        if let [element] = elements {
            self.0.set(name.as_bytes(), element);
            return;
        }
        let mut value = Vec::new();
        for element in elements {
            run::push(&mut value, element);
        }
        self.0.set(name.as_bytes(), &value);
    }

    /// The run that holds the element at a position: its name, first place and elements, and how
    /// many of them are before that one.
    fn run_at(&self, index: usize) -> Option<(RunName, i64, Strings, usize)> {
        let (rank, before) = self.as_ref().locate(index);
        let (name, value) = self.0.as_ref().nth(rank)?;
        let (place, count) = run::parse_name(name)?;
        let mut elements = Strings::default();
        for element in Elements::of((name, value)) {
            elements.push(element.as_flat().expect(SOUND));
        }
        debug_assert_eq!(elements.ends.len(), count, "DQ1 run-shape");
        Some((RunName::new(place, count), place, elements, before))
    }

    /// Makes the element at a position the first one of its column.
    pub(super) fn part_before(&mut self, index: usize) {
        if self.as_ref().locate(index).1 == 0 {
            return;
        }
        let (name, place, elements, before) = self.run_at(index).expect(SOUND);
        let elements: Vec<&[u8]> = elements.iter().collect();
        let (front, back) = elements.split_at(before);
        self.0.remove(name.as_bytes());
        self.put_run(place, front);
        self.put_run(place + before as i64, back);
    }

    /// Gives each element of the run at an end a column of its own, if there is a run.
    pub(super) fn unpack(&mut self, end: End) {
        let index = match end {
            End::First => 0,
            End::Last => self.len() - 1,
        };
        let Some((_, place, elements, _)) = self.run_at(index) else {
            return;
        };
        if self.0.len() > 1 {
            self.0.cut(end, 1);
        } else {
            *self = Self::new(None);
        }
        let elements: Vec<&[u8]> = elements.iter().collect();
        self.extend_single(end, place, &elements);
    }

    /// Replaces a short element of a run by another one; returns whether it is in one, and the run
    /// takes that.
    pub(super) fn replace_in_run(&mut self, index: usize, element: &[u8]) -> bool {
        if !run::takes(element) {
            return false;
        }
        let Some((name, place, elements, before)) = self.run_at(index) else {
            return false;
        };
        let mut elements: Vec<&[u8]> = elements.iter().collect();
        elements[before] = element;
        self.put_run(place, &elements);
        debug_assert_eq!(
            RunName::new(place, elements.len()).as_bytes(),
            name.as_bytes()
        );
        true
    }
}

/// Whether a block has a column that is a run.
pub(in crate::value) fn has_runs(block: &[u8]) -> bool {
    let row = RowRef::new(block);
    (0..row.len()).any(|index| run::parse_name(row.field(index)).is_some())
}

/// The block of a small list with these columns, each element in one of its own (DL3 large-runs),
/// if it takes up to [`PACKED_ROW_BYTES_MAX`].
pub(super) fn unpacked(block: &[u8]) -> Option<Box<[u8]>> {
    let row = RowRef::new(block);
    let mut labels = Vec::new();
    let mut values = Vec::new();
    for index in 0..row.len() {
        let (name, Cell::Inline(value)) = (row.field(index), row.cell(index)) else {
            return None;
        };
        if let Some((place, _)) = run::parse_name(name) {
            let elements = Elements::of((name, StringRef::Flat(value)));
            for (place, element) in (place..).zip(elements) {
                labels.push(Some(Label::of(place)));
                values.push((name, element.as_flat().expect(SOUND)));
            }
        } else {
            debug_assert!(parse(name).is_some(), "{SOUND}");
            labels.push(None);
            values.push((name, value));
        }
    }
    let parts = labels.iter().zip(&values).map(|(label, (own, value))| {
        let name = label.as_ref().map_or(*own, Label::as_bytes);
        Part::Field(name, Cell::Inline(value))
    });
    let parts: Vec<Part<'_>> = parts.collect();
    let fits = row::assembled_bytes(&parts) <= PACKED_ROW_BYTES_MAX;
    fits.then(|| row::assemble(&parts))
}
