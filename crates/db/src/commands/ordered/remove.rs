//! KRANGEDEL.

use std::ops::{ControlFlow, Range};

use pando_engine::Direction;
use pando_protocol::{Reply, Request};

use super::bounds::Span;
use super::{only_limit, write_next};
use crate::commands::keys;
use crate::keyspace::Keyspace;
use crate::limits;
use crate::progress::{Handled, Slice};
use crate::view::View;

/// A KRANGEDEL in progress.
#[derive(Clone, Debug)]
struct Remove {
    view: View,
    span: Span,
    /// Keys that may still be removed.
    limit: usize,
    removed: usize,
    /// The last key looked at, once LIMIT is reached.
    last: Option<Box<[u8]>>,
}

/// The live keys that one slice found.
#[derive(Default)]
struct Found {
    bytes: Vec<u8>,
    keys: Vec<Range<usize>>,
    /// The last entry looked at, if there may be more after it.
    last: Option<Box<[u8]>>,
}

impl Remove {
    /// Finds keys to remove, within the bounds of a slice.
    fn find(&self, keyspace: &mut Keyspace<'_>) -> Found {
        let mut found = Found::default();
        let mut looked = 0;
        super::keys(keyspace).scan_all(self.span.from(), self.span.direction, |key, value| {
            if !self.span.reaches(key) {
                return ControlFlow::Break(());
            }
            looked += 1;
            if value.is_some() {
                let start = found.bytes.len();
                found.bytes.extend_from_slice(key);
                found.keys.push(start..found.bytes.len());
            }
            let full = looked == limits::SLICE_ENTRIES_MAX
                || found.bytes.len() >= limits::SLICE_BYTES_MAX
                || found.keys.len() == self.limit;
            if full {
                found.last = Some(key.into());
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        found
    }

    /// Whether a key is left in the range; after too many expired entries the answer is yes.
    fn is_more(&self, keyspace: &mut Keyspace<'_>) -> bool {
        let (mut looked, mut more) = (0, false);
        super::keys(keyspace).scan_all(self.span.from(), self.span.direction, |key, value| {
            if !self.span.reaches(key) {
                return ControlFlow::Break(());
            }
            looked += 1;
            more = value.is_some() || looked == limits::SLICE_ENTRIES_MAX;
            if more {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        more
    }
}

impl Slice for Remove {
    fn step(&mut self, keyspace: &mut Keyspace<'_>, reply: &mut Reply<'_>) -> bool {
        keyspace.view = self.view;
        let found = if self.span.is_empty() {
            Found::default()
        } else {
            self.find(keyspace)
        };
        for key in &found.keys {
            // Another session may have removed it in between.
            let removed = keyspace.remove(&found.bytes[key.clone()]);
            self.removed += usize::from(removed);
            self.limit -= usize::from(removed);
        }
        if let Some(last) = found.last {
            self.span.pass(&last);
            if self.limit > 0 {
                return false;
            }
            self.last = Some(last).filter(|_| self.is_more(keyspace));
        }
        reply.array(2);
        write_next(reply, self.last.as_deref());
        reply.count(self.removed);
        true
    }

    fn again(&self) -> Box<dyn Slice> {
        Box::new(self.clone())
    }
}

/// Removes the keys between two bounds one by one, up to LIMIT; replies where to continue and how
/// many keys were removed.
pub(super) fn remove(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let limit = only_limit(request)?;
    let span = Span::between(request.arg(1), request.arg(2), Direction::Forward)?;
    let work = Remove {
        view: keyspace.view,
        span,
        limit,
        removed: 0,
        last: None,
    };
    keys::begin(work, keyspace, reply)
}
