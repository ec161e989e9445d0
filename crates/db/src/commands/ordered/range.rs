//! KRANGE KPREFIX: the entries of a range, a portion at a time.
//!
//! A portion is read under the own gate, so it sees commands of all gates (MSET, RENAME, EXEC)
//! whole; it is no snapshot against commands on single keys. It ends at LIMIT, at
//! `reply_bytes_max`, or, once it holds an item, when it has passed over too many expired entries.

use std::ops::ControlFlow;

use pando_engine::{BodyRef, Direction, ValueRef};
use pando_protocol::{Reply, Request, RespVersion};

use super::bounds::{Edge, Span};
use super::{limit, write_next};
use crate::commands::detached::reply_bulk;
use crate::commands::{Handled, Progress};
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::limits;

/// What is shown of an entry.
#[derive(Debug)]
enum Shape<'r> {
    /// Key and value.
    Values,
    /// The key.
    Keys,
    /// Key and the values of these fields.
    Fields(Vec<&'r [u8]>),
}

/// The options behind the range.
#[derive(Debug)]
struct Options<'r> {
    direction: Direction,
    limit: usize,
    shape: Shape<'r>,
    from: Option<Edge<'r>>,
}

impl<'r> Options<'r> {
    /// Reads the options from argument `first` on; FROM where a prefix is the range.
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

/// The fields named from argument `at` on, where their number stands.
fn fields(request: Request<'_>, at: usize) -> Result<Vec<&[u8]>, CommandError> {
    let count = request.get(at).ok_or(CommandError::Syntax)?;
    let count = pando_protocol::number::parse_i64(count).ok_or(CommandError::FieldCount)?;
    let count = usize::try_from(count).ok().filter(|count| *count > 0);
    let count = count.ok_or(CommandError::FieldCount)?;
    let fields: Vec<&[u8]> = request.args_from(at + 1).take(count).collect();
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
    portion(keyspace, &span, &options, reply);
    Ok(Progress::Done)
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
    portion(keyspace, &span, &options, reply);
    Ok(Progress::Done)
}

/// The items of one portion, encoded.
struct Items {
    out: Vec<u8>,
    version: RespVersion,
    count: usize,
    last: Vec<u8>,
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
        write_value(&mut reply, value, shape);
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

/// Bytes that an entry takes at least, known before it is encoded.
fn least_bytes(value: ValueRef<'_>, shape: &Shape<'_>) -> usize {
    match (shape, value.body) {
        (Shape::Values, BodyRef::String(string)) => string.len(),
        // Every field has a header of four bytes at least, twice.
        (Shape::Values, BodyRef::Hash(hash)) => hash.len() * 8,
        (Shape::Keys | Shape::Fields(_), _) => 0,
    }
}

/// Writes the value as the shape asks for it.
fn write_value(reply: &mut Reply<'_>, value: ValueRef<'_>, shape: &Shape<'_>) {
    match (shape, value.body) {
        (Shape::Keys, _) => {}
        (Shape::Values, BodyRef::String(string)) => reply_bulk(reply, string),
        (Shape::Values, BodyRef::Hash(hash)) => {
            reply.map(hash.len());
            for (field, value) in hash.iter() {
                reply.bulk(field);
                reply_bulk(reply, value);
            }
        }
        (Shape::Fields(fields), body) => {
            reply.array(fields.len());
            for field in fields {
                let value = match body {
                    BodyRef::String(_) => None,
                    BodyRef::Hash(hash) => hash.get(field),
                };
                match value {
                    Some(value) => reply_bulk(reply, value),
                    None => reply.null(),
                }
            }
        }
    }
}

/// Writes `[next, items]`.
fn portion(keyspace: &mut Keyspace<'_>, span: &Span, options: &Options<'_>, reply: &mut Reply<'_>) {
    let bytes_max = keyspace.options().reply_bytes_max;
    let version = reply.version();
    let mut items = Items {
        out: Vec::new(),
        version,
        count: 0,
        last: Vec::new(),
    };
    let (mut more, mut expired) = (false, 0);
    if !span.is_empty() {
        super::keys(keyspace).scan_all(span.from(), span.direction, |key, value| {
            if !span.reaches(key) {
                return ControlFlow::Break(());
            }
            let Some(value) = value else {
                expired += 1;
                more = expired >= limits::SLICE_ENTRIES_MAX && items.count > 0;
                return if more {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                };
            };
            let room = items.count < options.limit;
            more = !(room && items.add(key, value, &options.shape, bytes_max));
            if more {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
    }
    reply.array(2);
    write_next(reply, more.then_some(&items.last));
    reply.array(items.elements(&options.shape));
    reply.raw(&items.out);
}
