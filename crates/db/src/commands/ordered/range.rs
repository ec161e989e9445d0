//! KRANGE KPREFIX: the entries of a range, a portion at a time.
//!
//! A portion is read under the own gate, so it sees commands of all gates (MSET, RENAME, EXEC)
//! whole; it is not a snapshot against commands on single keys. It ends at LIMIT, at
//! `reply_bytes_max`, or, once it has an item, after too many entries that are none. If that many
//! precede the first item, the item is searched for in slices: a portion with *next* is never
//! empty.

use std::borrow::Cow;
use std::ops::ControlFlow;

use pando_engine::{
    BodyRef, Direction, FieldsRef, ListRef, RowTag, SortedRef, StreamRef, ValueRef,
};
use pando_protocol::{Reply, Request, RespVersion, number};

use super::bounds::{Edge, Span};
use super::{limit, write_next};
use crate::clock::Milliseconds;
use crate::commands::detached::reply_bulk;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::limits;
use crate::progress::{Handled, Progress, Slice};
use crate::view::View;

/// What is shown of an entry.
#[derive(Clone, Debug)]
enum Shape<'r> {
    /// Key and value.
    Values,
    /// The key.
    Keys,
    /// Key and the values of these fields.
    Fields(Vec<Cow<'r, [u8]>>),
}

impl Shape<'_> {
    fn into_owned(self) -> Shape<'static> {
        match self {
            Self::Values => Shape::Values,
            Self::Keys => Shape::Keys,
            Self::Fields(fields) => {
                let fields = fields.into_iter();
                Shape::Fields(fields.map(|field| Cow::Owned(field.into_owned())).collect())
            }
        }
    }
}

/// The options after the range.
#[derive(Debug)]
struct Options<'r> {
    direction: Direction,
    limit: usize,
    shape: Shape<'r>,
    from: Option<Edge<'r>>,
}

impl<'r> Options<'r> {
    /// Reads the options from argument `first` on; FROM if a prefix is the range.
    fn parse(request: Request<'r>, first: usize, prefix: bool) -> Result<Self, CommandError> {
        let mut options = Self {
            direction: Direction::Forward,
            limit: limits::RANGE_LIMIT,
            shape: Shape::Values,
            from: None,
        };
        let mut at = first;
        while at < request.len() {
            let shapeless = matches!(options.shape, Shape::Values);
            if request.is(at, "REV") {
                options.direction = Direction::Backward;
            } else if request.is(at, "LIMIT") {
                at += 1;
                options.limit = limit(request.get(at))?;
            } else if request.is(at, "FROM") && prefix {
                at += 1;
                let bound = request.get(at).ok_or(CommandError::Syntax)?;
                options.from = Some(Edge::parse(bound)?);
            } else if request.is(at, "KEYS") && shapeless {
                options.shape = Shape::Keys;
            } else if request.is(at, "FIELDS") && shapeless {
                let fields = fields(request, at + 1)?;
                at += fields.len() + 1;
                options.shape = Shape::Fields(fields);
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        Ok(options)
    }
}

/// The fields named from argument `at` on, where their count is.
fn fields(request: Request<'_>, at: usize) -> Result<Vec<Cow<'_, [u8]>>, CommandError> {
    let count = request.get(at).ok_or(CommandError::Syntax)?;
    let count = number::parse_i64(count).ok_or(CommandError::FieldCount)?;
    let count = usize::try_from(count).ok().filter(|count| *count > 0);
    let count = count.ok_or(CommandError::FieldCount)?;
    let fields = request.args_from(at + 1).take(count);
    let fields: Vec<_> = fields.map(Cow::Borrowed).collect();
    if fields.len() == count {
        Ok(fields)
    } else {
        Err(CommandError::Syntax)
    }
}

/// The entries between two bounds.
pub(super) fn range(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let options = Options::parse(request, 3, false)?;
    let span = Span::between(request.arg(1), request.arg(2), options.direction)?;
    Ok(portion(keyspace, span, options, reply))
}

/// The entries whose keys begin with a prefix.
pub(super) fn prefix(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let options = Options::parse(request, 2, true)?;
    let mut span = Span::prefix(request.arg(1), options.direction);
    if let Some(edge) = options.from {
        span.begin_at(edge);
    }
    Ok(portion(keyspace, span, options, reply))
}

/// The items of one portion, encoded.
struct Items {
    out: Vec<u8>,
    version: RespVersion,
    count: usize,
    last: Vec<u8>,
    /// Where the first requested field was in the last row.
    near: usize,
    now: Milliseconds,
}

impl Items {
    /// Adds an entry unless that takes more than `bytes_max` bytes; the first one always fits.
    fn add(
        &mut self,
        key: &[u8],
        value: ValueRef<'_>,
        shape: &Shape<'_>,
        bytes_max: usize,
    ) -> bool {
        let start = self.out.len();
        let least = start + key.len() + least_bytes(value, shape);
        if self.count > 0 && least > bytes_max {
            return false;
        }
        let mut reply = Reply::new(&mut self.out, self.version);
        if self.version == RespVersion::Resp3 && !matches!(shape, Shape::Keys) {
            reply.array(2);
        }
        reply.bulk(key);
        write_value(&mut reply, value, shape, (&mut self.near, self.now));
        if self.count > 0 && self.out.len() > bytes_max {
            self.out.truncate(start);
            return false;
        }
        self.count += 1;
        self.last.clear();
        self.last.extend_from_slice(key);
        true
    }

    /// Elements of the array of items.
    fn elements(&self, shape: &Shape<'_>) -> usize {
        match (shape, self.version) {
            (Shape::Keys, _) | (_, RespVersion::Resp3) => self.count,
            (_, RespVersion::Resp2) => self.count * 2,
        }
    }
}

/// Fewest bytes of an entry, known before it is encoded.
fn least_bytes(value: ValueRef<'_>, shape: &Shape<'_>) -> usize {
    match (shape, value.body) {
        // Some columns of a timed hash are no fields, and fields may have passed.
        (Shape::Keys | Shape::Fields(_), _)
        | (Shape::Values, BodyRef::Row(RowTag::TimedHash, _)) => 0,
        (Shape::Values, BodyRef::String(string)) => string.len(),
        // Every member has a header of at least four bytes; a column of a large sorted set is half
        // of one.
        (Shape::Values, BodyRef::Row(_, row)) => row.len() * 2,
    }
}

/// Writes the value as the shape requires.
fn write_value(
    reply: &mut Reply<'_>,
    value: ValueRef<'_>,
    shape: &Shape<'_>,
    (near, now): (&mut usize, Milliseconds),
) {
    match (shape, value.body) {
        (Shape::Keys, _) => {}
        (Shape::Values, BodyRef::String(string)) => reply_bulk(reply, string),
        (Shape::Values, BodyRef::Row(RowTag::Set, set)) => {
            reply.array(set.len());
            set.iter().for_each(|(member, _)| reply.bulk(member));
        }
        (Shape::Values, BodyRef::Row(RowTag::List, row)) => {
            let list = ListRef::new(row);
            reply.array(list.len());
            list.iter_from(0)
                .for_each(|element| reply_bulk(reply, element));
        }
        (Shape::Values, BodyRef::Row(RowTag::SortedSet, row)) => {
            let set = SortedRef::new(row);
            reply.map(set.len());
            for (member, score) in set.iter_from_rank(0) {
                reply.bulk(member);
                reply.double(&number::format_f64(score));
            }
        }
        (Shape::Values, BodyRef::Row(tag @ RowTag::TimedHash, row)) => {
            let hash = FieldsRef::new(tag, row, now);
            reply.map(hash.len());
            for (field, value) in hash.iter() {
                reply.bulk(field);
                reply_bulk(reply, value);
            }
        }
        (Shape::Values, BodyRef::Row(RowTag::Stream, row)) => {
            let stream = StreamRef::new(row);
            let ranks = 0..stream.len();
            crate::commands::streams::reply_entries(reply, stream, ranks);
        }
        (Shape::Values, BodyRef::Row(RowTag::Hash, hash)) => {
            reply.map(hash.len());
            for (field, value) in hash.iter() {
                reply.bulk(field);
                reply_bulk(reply, value);
            }
        }
        (Shape::Fields(fields), body) => {
            reply.array(fields.len());
            // Rows of one kind have their fields at the same places, often side by side.
            let mut place = *near;
            for (index, field) in fields.iter().enumerate() {
                let value = match body {
                    BodyRef::Row(RowTag::Hash, hash) => hash.get_near(field, &mut place),
                    BodyRef::Row(tag @ RowTag::TimedHash, row) => {
                        FieldsRef::new(tag, row, now).get(field)
                    }
                    BodyRef::String(_) | BodyRef::Row(..) => None,
                };
                if index == 0 {
                    *near = place;
                }
                place += 1;
                match value {
                    Some(value) => reply_bulk(reply, value),
                    None => reply.null(),
                }
            }
        }
    }
}

/// Writes `[next, items]`, or continues in slices.
fn portion(
    keyspace: &mut Keyspace<'_>,
    span: Span,
    options: Options<'_>,
    reply: &mut Reply<'_>,
) -> Progress {
    let mut search = Search {
        view: keyspace.view,
        span,
        limit: options.limit,
        shape: options.shape,
    };
    if search.step(keyspace, reply) {
        return Progress::Done;
    }
    Progress::in_slices(Search {
        shape: search.shape.into_owned(),
        ..search
    })
}

/// The search for a portion whose first item is not found yet.
#[derive(Clone, Debug)]
struct Search<'r> {
    view: View,
    span: Span,
    limit: usize,
    shape: Shape<'r>,
}

impl Search<'_> {
    /// Looks at the entries of a slice, or up to the end of the portion that begins there; returns
    /// whether that was the end.
    fn step(&mut self, keyspace: &mut Keyspace<'_>, reply: &mut Reply<'_>) -> bool {
        let bytes_max = keyspace.options().reply_bytes_max;
        let mut items = Items {
            out: Vec::new(),
            version: reply.version(),
            count: 0,
            last: Vec::new(),
            near: 0,
            now: keyspace.now(),
        };
        let (mut more, mut passed) = (false, 0);
        // Where to continue when too many entries were passed over.
        let mut behind = None;
        if !self.span.is_empty() {
            super::keys(keyspace).scan_all(self.span.from(), self.span.direction, |key, value| {
                if !self.span.reaches(key) {
                    return ControlFlow::Break(());
                }
                if let Some(value) = value {
                    let room = items.count < self.limit;
                    more = !(room && items.add(key, value, &self.shape, bytes_max));
                } else {
                    passed += 1;
                    if passed >= limits::SLICE_ENTRIES_MAX {
                        behind = Some(key.to_vec());
                    }
                }
                if more || behind.is_some() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
        }
        if items.count == 0
            && let Some(behind) = behind
        {
            self.span.pass(&behind);
            return false;
        }
        let next = behind.or_else(|| more.then(|| std::mem::take(&mut items.last)));
        reply.array(2);
        write_next(reply, next.as_deref());
        reply.array(items.elements(&self.shape));
        reply.raw(&items.out);
        true
    }
}

impl Slice for Search<'static> {
    fn step(&mut self, keyspace: &mut Keyspace<'_>, reply: &mut Reply<'_>) -> bool {
        keyspace.view = self.view;
        Search::step(self, keyspace, reply)
    }

    fn shows_together(&self) -> bool {
        true
    }

    fn again(&self) -> Box<dyn Slice> {
        Box::new(self.clone())
    }
}
