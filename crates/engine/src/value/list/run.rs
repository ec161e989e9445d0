//! Runs: columns of a large list that hold several short elements at neighbouring places, so that
//! an element takes one byte besides its own where a column takes eight or more.
//!
//! | part of the column | bytes | |
//! |---|---|---|
//! | name | | the label of the first element, without a fraction |
//! | | 0, count, 0 | no label ends in 0 behind its place |
//! | value | length, element; length, element; … | one byte of length each |
//!
//! The elements' places follow each other. So a run stands for as many columns with labels, and its
//! name sorts among other names as those labels do.
//!
//! Invariants:
//! - **DQ1 run-shape** A run has 2 to [`RUN_ELEMENTS_MAX`] elements, none longer than
//!   [`RUN_ELEMENT_BYTES_MAX`]; its value ends with the last of them.

use super::{Label, place_of};
use crate::value::StringRef;

/// Most elements of a run, a power of two: what is taken from inside a run is written again.
pub(super) const RUN_ELEMENTS_MAX: usize = 32;

/// Longest element of a run: a longer one gains little.
pub(super) const RUN_ELEMENT_BYTES_MAX: usize = 127;

/// Most bytes of a run.
const RUN_BYTES_MAX: usize = 1024;

/// Bytes behind the label.
const MARK_BYTES: usize = 3;

/// The name of a column that holds `count` elements from this place on.
pub(super) struct RunName {
    bytes: [u8; size_of::<Label>() + MARK_BYTES],
    length: usize,
}

impl RunName {
    pub(super) fn new(place: i64, count: usize) -> Self {
        debug_assert!((1..=RUN_ELEMENTS_MAX).contains(&count), "DQ1 run-shape");
        let label = Label::of(place);
        let label = label.as_bytes();
        let mut bytes = [0; _];
        bytes[..label.len()].copy_from_slice(label);
        bytes[label.len() + 1] = count as u8;
        let mark = if count > 1 { MARK_BYTES } else { 0 };
        let length = label.len() + mark;
        Self { bytes, length }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The first place and the number of elements that the name of a run says.
pub(super) fn parse_name(name: &[u8]) -> Option<(i64, usize)> {
    // Most columns are no runs.
    if name.last() != Some(&0) {
        return None;
    }
    match place_of(name)? {
        (place, [0, count, 0]) if (2..=RUN_ELEMENTS_MAX).contains(&usize::from(*count)) => {
            Some((place, usize::from(*count)))
        }
        _ => None,
    }
}

/// How many elements a column of this name holds.
pub(in crate::value) fn elements_of(name: &[u8]) -> usize {
    parse_name(name).map_or(1, |(_, count)| count)
}

/// Whether this is the value of a run of `count` elements (DQ1 run-shape).
pub(super) fn is_value(value: &[u8], count: usize) -> bool {
    let mut rest = value;
    for _ in 0..count {
        let Some((&length, behind)) = rest.split_first() else {
            return false;
        };
        let length = usize::from(length);
        if length > RUN_ELEMENT_BYTES_MAX || length > behind.len() {
            return false;
        }
        rest = &behind[length..];
    }
    rest.is_empty()
}

/// Whether an element may be part of a run.
pub(super) fn takes(element: &[u8]) -> bool {
    element.len() <= RUN_ELEMENT_BYTES_MAX
}

/// Whether a run of this many bytes may take another element.
pub(super) fn has_room(bytes: usize, element: &[u8]) -> bool {
    bytes + 1 + element.len() <= RUN_BYTES_MAX
}

/// Appends an element to the value of a run.
pub(super) fn push(value: &mut Vec<u8>, element: &[u8]) {
    debug_assert!(takes(element), "DQ1 run-shape");
    value.push(element.len() as u8);
    value.extend_from_slice(element);
}

/// The elements of a column.
#[derive(Clone, Debug, Default)]
pub(super) enum Elements<'a> {
    #[default]
    None,
    One(StringRef<'a>),
    /// The rest of a run.
    Run(&'a [u8]),
}

impl<'a> Elements<'a> {
    pub(super) fn of((name, value): (&[u8], StringRef<'a>)) -> Self {
        match (parse_name(name), value) {
            (Some(_), StringRef::Flat(value)) => Self::Run(value),
            (_, value) => Self::One(value),
        }
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = StringRef<'a>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Run(rest) => {
                let (&length, behind) = rest.split_first()?;
                let (element, behind) = behind.split_at_checked(usize::from(length))?;
                *rest = behind;
                Some(StringRef::Flat(element))
            }
            Self::One(_) => match std::mem::take(self) {
                Self::One(element) => Some(element),
                _ => None,
            },
            Self::None => None,
        }
    }
}
