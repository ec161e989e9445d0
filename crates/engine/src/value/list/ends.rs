//! The ends of a list while many commands push and pop there: what is taken is read from the old
//! version, what is pushed is collected, and one draft makes all of it afterwards. So a push or a
//! pop costs what its element does, and the nodes of the old version are copied once.

use std::collections::VecDeque;
use std::ops::Range;

use super::{ListDraft, ListIter, ListRef};
use crate::value::wide::End;
use crate::value::{Body, StringRef};

/// Elements that are read at once behind the last one.
const STRIDE: usize = 32;

/// Elements for which room is made at the first one that is pushed.
const ELEMENTS_SOON: usize = 16;

/// So few elements are removed one after the other.
const POPS_ONE_BY_ONE: usize = 4;

/// A list that changes at its ends alone. What is pushed is only referred to.
///
/// ```
/// use pando_engine::{BodyRef, ListEnds, ListRef};
///
/// let mut ends = ListEnds::new(None);
/// ends.push_back(b"second");
/// ends.push_front(b"first");
/// ends.push_back(b"third");
/// assert!(ends.last().is_some_and(|element| element == b"third"));
/// ends.pop_back();
/// let body = ends.finish();
/// let BodyRef::Row(_, row) = body.as_ref() else {
///     unreachable!("a row was made")
/// };
/// assert_eq!(ListRef::new(row).len(), 2);
/// ```
#[derive(Debug)]
pub struct ListEnds<'o, 'p> {
    old: Option<ListRef<'o>>,
    /// The elements of `old` that are left.
    start: usize,
    end: usize,
    /// The element at `start`, once it was asked for, and those behind it.
    first: Option<StringRef<'o>>,
    from_first: Option<ListIter<'o>>,
    /// The elements up to `end`, as far as they were read; the last one is that before `end`.
    before_end: Vec<StringRef<'o>>,
    pushed_front: VecDeque<&'p [u8]>,
    pushed_back: VecDeque<&'p [u8]>,
}

/// An element that was pushed.
fn pushed<'a>(element: Option<&&'a [u8]>) -> Option<StringRef<'a>> {
    element.map(|element| StringRef::Flat(element))
}

/// Adds to elements that were pushed, of which there are often as many as join an update.
fn make_room(elements: &mut VecDeque<&[u8]>) {
    if elements.capacity() == 0 {
        elements.reserve(ELEMENTS_SOON);
    }
}

impl<'o, 'p> ListEnds<'o, 'p> {
    /// Begins with the elements of `old`. O(1).
    #[must_use]
    pub fn new(old: Option<ListRef<'o>>) -> Self {
        Self {
            old,
            start: 0,
            end: old.map_or(0, ListRef::len),
            first: None,
            from_first: None,
            before_end: Vec::new(),
            pushed_front: VecDeque::new(),
            pushed_back: VecDeque::new(),
        }
    }

    /// How many elements there are. O(1).
    #[must_use]
    pub fn len(&self) -> usize {
        let pushed = self.pushed_front.len() + self.pushed_back.len();
        self.end - self.start + pushed
    }

    /// Whether no elements are left, so that the key is to be removed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an element before the first one. O(1).
    ///
    /// One longer than [`crate::limits::COLUMN_FLAT_BYTES_MAX`] is a broken invariant of the
    /// caller.
    pub fn push_front(&mut self, element: &'p [u8]) {
        make_room(&mut self.pushed_front);
        self.pushed_front.push_front(element);
    }

    /// The same behind the last one.
    pub fn push_back(&mut self, element: &'p [u8]) {
        make_room(&mut self.pushed_back);
        self.pushed_back.push_back(element);
    }

    /// The first element. O(1), and O(log elements) at first.
    pub fn first(&mut self) -> Option<StringRef<'_>> {
        if !self.pushed_front.is_empty() {
            return pushed(self.pushed_front.front());
        }
        if self.start == self.end {
            return pushed(self.pushed_back.front());
        }
        if self.first.is_none() {
            let (old, start) = (self.old?, self.start);
            let rest = self.from_first.get_or_insert_with(|| old.iter_from(start));
            self.first = rest.next();
        }
        self.first
    }

    /// The last element. O(1), and O(log elements) now and then.
    pub fn last(&mut self) -> Option<StringRef<'_>> {
        if !self.pushed_back.is_empty() {
            return pushed(self.pushed_back.back());
        }
        if self.start == self.end {
            return pushed(self.pushed_front.back());
        }
        if self.before_end.is_empty() {
            let count = STRIDE.min(self.end);
            let elements = self.old?.iter_from(self.end - count).take(count);
            self.before_end.extend(elements);
        }
        self.before_end.last().copied()
    }

    /// Removes the first element, if there is one. O(1).
    pub fn pop_front(&mut self) {
        if self.pushed_front.pop_front().is_some() {
            return;
        }
        if self.start == self.end {
            self.pushed_back.pop_front();
            return;
        }
        self.start += 1;
        if self.first.take().is_none() {
            // It was not read.
            self.from_first = None;
        }
    }

    /// Removes the last element, if there is one. O(1).
    pub fn pop_back(&mut self) {
        if self.pushed_back.pop_back().is_some() {
            return;
        }
        if self.start == self.end {
            self.pushed_front.pop_back();
            return;
        }
        self.end -= 1;
        self.before_end.pop();
    }

    /// The finished body, in the form for its size (D1 smallest-form). O(log elements), and
    /// O(bytes) of what was pushed.
    #[must_use]
    pub fn finish(self) -> Body<'static> {
        let old = self.old;
        self.into_change().make(ListDraft::new(old))
    }

    /// What is left to be done, for [`ListChange::make`].
    #[must_use]
    pub fn into_change(self) -> ListChange<'p> {
        ListChange {
            kept: self.start..self.end,
            pushed_front: self.pushed_front,
            pushed_back: self.pushed_back,
        }
    }
}

/// What has happened to a [`ListEnds`], apart from the elements that it began with.
#[derive(Debug)]
pub struct ListChange<'p> {
    /// The positions of the old elements that are left.
    kept: Range<usize>,
    pushed_front: VecDeque<&'p [u8]>,
    pushed_back: VecDeque<&'p [u8]>,
}

impl ListChange<'_> {
    /// The finished body, made of a draft that begins with the same elements. O(log elements), and
    /// O(bytes) of what was pushed.
    #[must_use]
    pub fn make(mut self, mut draft: ListDraft<'_>) -> Body<'static> {
        let (Range { start, end }, len) = (self.kept.clone(), draft.len());
        if start == end {
            draft = ListDraft::new(None);
        } else if start + (len - end) <= POPS_ONE_BY_ONE {
            // A run that an end comes to is unpacked, and not cut each time.
            (end..len)
                .rev()
                .for_each(|index| assert!(draft.remove(index)));
            (0..start).for_each(|_| assert!(draft.remove(0)));
        } else {
            draft.keep(start, end);
        }
        draft.extend(End::First, self.pushed_front.make_contiguous());
        draft.extend(End::Last, self.pushed_back.make_contiguous());
        draft.finish()
    }
}
