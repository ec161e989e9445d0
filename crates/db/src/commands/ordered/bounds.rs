//! Ranges of keys as commands name them.
//!
//! `[a` is the key `a` inclusive, `(a` exclusive, `-` before all keys, `+` after all. A lone `[` is
//! the empty key.

use std::ops::Bound;

use pando_engine::Direction;

use crate::error::CommandError;

/// One bound as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge<'a> {
    /// `-`
    Lowest,
    /// `+`
    Highest,
    /// `[key`
    Included(&'a [u8]),
    /// `(key`
    Excluded(&'a [u8]),
}

impl<'a> Edge<'a> {
    pub(super) fn parse(argument: &'a [u8]) -> Result<Self, CommandError> {
        match argument {
            b"-" => Ok(Self::Lowest),
            b"+" => Ok(Self::Highest),
            [b'[', key @ ..] => Ok(Self::Included(key)),
            [b'(', key @ ..] => Ok(Self::Excluded(key)),
            _ => Err(CommandError::RangeBound),
        }
    }

    /// The edge as the lower bound of a range; `None` if nothing is above it.
    fn lower(self) -> Option<Bound<Box<[u8]>>> {
        match self {
            Self::Lowest => Some(Bound::Unbounded),
            Self::Highest => None,
            Self::Included(key) => Some(Bound::Included(key.into())),
            Self::Excluded(key) => Some(Bound::Excluded(key.into())),
        }
    }

    /// The edge as the upper bound of a range; `None` if nothing is below it.
    fn upper(self) -> Option<Bound<Box<[u8]>>> {
        match self {
            Self::Highest => Some(Bound::Unbounded),
            Self::Lowest => None,
            other => other.lower(),
        }
    }
}

/// The part of a range that has not been visited yet, in a direction.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) direction: Direction,
    lower: Bound<Box<[u8]>>,
    upper: Bound<Box<[u8]>>,
    empty: bool,
}

impl Span {
    /// The range between two arguments; it begins at the first.
    pub(super) fn between(
        start: &[u8],
        stop: &[u8],
        direction: Direction,
    ) -> Result<Self, CommandError> {
        let (start, stop) = (Edge::parse(start)?, Edge::parse(stop)?);
        let (lower, upper) = match direction {
            Direction::Forward => (start, stop),
            Direction::Backward => (stop, start),
        };
        Ok(Self::of(lower.lower(), upper.upper(), direction))
    }

    /// The keys that begin with `prefix`.
    pub(super) fn prefix(prefix: &[u8], direction: Direction) -> Self {
        let upper = successor(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        Self::of(Some(Bound::Included(prefix.into())), Some(upper), direction)
    }

    fn of(
        lower: Option<Bound<Box<[u8]>>>,
        upper: Option<Bound<Box<[u8]>>>,
        direction: Direction,
    ) -> Self {
        let empty = lower.is_none() || upper.is_none();
        let (lower, upper) = (
            lower.unwrap_or(Bound::Unbounded),
            upper.unwrap_or(Bound::Unbounded),
        );
        Self {
            direction,
            lower,
            upper,
            empty,
        }
    }

    /// The part of the range that begins at `edge`.
    pub(super) fn begin_at(&mut self, edge: Edge<'_>) {
        let (bound, side) = match self.direction {
            Direction::Forward => (edge.lower(), &mut self.lower),
            Direction::Backward => (edge.upper(), &mut self.upper),
        };
        match bound {
            None => self.empty = true,
            Some(bound) if is_narrower(&bound, side, self.direction) => *side = bound,
            Some(_) => {}
        }
    }

    /// Removes everything up to `key`, which has been visited.
    pub(super) fn pass(&mut self, key: &[u8]) {
        match self.direction {
            Direction::Forward => self.lower = Bound::Excluded(key.into()),
            Direction::Backward => self.upper = Bound::Excluded(key.into()),
        }
    }

    /// Whether it is empty, whatever keys exist.
    pub(super) fn is_empty(&self) -> bool {
        self.empty
    }

    /// Where a scan begins.
    pub(super) fn from(&self) -> Bound<&[u8]> {
        let bound = match self.direction {
            Direction::Forward => &self.lower,
            Direction::Backward => &self.upper,
        };
        bound.as_ref().map(AsRef::as_ref)
    }

    /// Whether a key that a scan meets is still within the range.
    pub(super) fn reaches(&self, key: &[u8]) -> bool {
        match (self.direction, &self.lower, &self.upper) {
            (Direction::Forward, _, Bound::Included(upper)) => *key <= **upper,
            (Direction::Forward, _, Bound::Excluded(upper)) => *key < **upper,
            (Direction::Backward, Bound::Included(lower), _) => *key >= **lower,
            (Direction::Backward, Bound::Excluded(lower), _) => *key > **lower,
            (Direction::Forward, _, Bound::Unbounded)
            | (Direction::Backward, Bound::Unbounded, _) => true,
        }
    }
}

/// Whether `bound` begins later than `present` does, in scan order.
fn is_narrower(bound: &Bound<Box<[u8]>>, present: &Bound<Box<[u8]>>, direction: Direction) -> bool {
    // A bound as its key and whether it excludes the key itself.
    let parts = |bound: &Bound<Box<[u8]>>| match bound {
        Bound::Included(key) => Some((key.clone(), false)),
        Bound::Excluded(key) => Some((key.clone(), true)),
        Bound::Unbounded => None,
    };
    match (parts(bound), parts(present)) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some((key, excludes)), Some((other, _))) if key == other => excludes,
        (Some((key, _)), Some((other, _))) => match direction {
            Direction::Forward => key > other,
            Direction::Backward => key < other,
        },
    }
}

/// The first key after all that begin with `prefix`, if there is one.
fn successor(prefix: &[u8]) -> Option<Box<[u8]>> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut successor: Box<[u8]> = prefix[..=last].into();
    successor[last] += 1;
    Some(successor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_zrangebylex() {
        for (argument, edge) in [
            (&b"-"[..], Some(Edge::Lowest)),
            (b"+", Some(Edge::Highest)),
            (b"[", Some(Edge::Included(b""))),
            (b"(", Some(Edge::Excluded(b""))),
            (b"[[a", Some(Edge::Included(b"[a"))),
            (b"(\0", Some(Edge::Excluded(b"\0"))),
            (b"", None),
            (b"a", None),
            (b"-a", None),
            (b"+a", None),
        ] {
            assert_eq!(Edge::parse(argument), edge.ok_or(CommandError::RangeBound));
        }
    }

    #[test]
    fn the_successor_of_a_prefix_lies_behind_all_its_keys() {
        for (prefix, expected) in [
            (&b"a"[..], Some(&b"b"[..])),
            (b"a\xff\xff", Some(b"b")),
            (b"a\xfe", Some(b"a\xff")),
            (b"\xff\xff", None),
            (b"", None),
        ] {
            assert_eq!(successor(prefix).as_deref(), expected);
        }
    }

    #[test]
    fn a_later_beginning_narrows_and_an_earlier_one_does_not() {
        let keys: Vec<&[u8]> = vec![b"", b"a", b"b", b"ba", b"bb", b"c"];
        for (edge, forward, backward) in [
            (Edge::Lowest, &keys[2..5], &keys[..0]),
            (Edge::Highest, &keys[..0], &keys[2..5]),
            (Edge::Included(b"b"), &keys[2..5], &keys[2..3]),
            (Edge::Excluded(b"b"), &keys[3..5], &keys[..0]),
            (Edge::Included(b"ba"), &keys[3..5], &keys[2..4]),
            (Edge::Excluded(b"a"), &keys[2..5], &keys[..0]),
            (Edge::Included(b"z"), &keys[..0], &keys[2..5]),
        ] {
            for (direction, expected) in [
                (Direction::Forward, forward),
                (Direction::Backward, backward),
            ] {
                let mut span = Span::prefix(b"b", direction);
                span.begin_at(edge);
                let begins = |key: &&&[u8]| match (span.from(), direction) {
                    (Bound::Unbounded, _) => true,
                    (Bound::Included(from), Direction::Forward) => **key >= from,
                    (Bound::Excluded(from), Direction::Forward) => **key > from,
                    (Bound::Included(from), Direction::Backward) => **key <= from,
                    (Bound::Excluded(from), Direction::Backward) => **key < from,
                };
                let held = keys.iter().filter(begins).filter(|key| span.reaches(key));
                let held: Vec<&[u8]> = held.filter(|_| !span.is_empty()).copied().collect();
                assert_eq!(held, expected, "{edge:?} {direction:?}");
            }
        }
    }
}
