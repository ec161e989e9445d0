//! KCOUNT.

use std::ops::ControlFlow;

use pando_engine::Direction;
use pando_protocol::{Reply, Request};

use super::bounds::Span;
use super::only_limit;
use crate::commands::keys;
use crate::keyspace::Keyspace;
use crate::limits;
use crate::progress::{Handled, Slice};
use crate::view::View;

/// A KCOUNT in progress.
#[derive(Clone, Debug)]
struct Count {
    view: View,
    span: Span,
    limit: usize,
    counted: usize,
}

impl Slice for Count {
    fn step(&mut self, keyspace: &mut Keyspace<'_>, reply: &mut Reply<'_>) -> bool {
        keyspace.view = self.view;
        let Self {
            span,
            limit,
            counted,
            ..
        } = self;
        let (mut looked, mut last) = (0, None);
        if !span.is_empty() {
            super::keys(keyspace).scan_all(span.from(), span.direction, |key, value| {
                if !span.reaches(key) {
                    return ControlFlow::Break(());
                }
                *counted += usize::from(value.is_some());
                looked += 1;
                if looked == limits::SLICE_ENTRIES_MAX {
                    last = Some(Box::<[u8]>::from(key));
                }
                if last.is_some() || counted == limit {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
        }
        match last {
            Some(last) if self.counted < self.limit => {
                self.span.pass(&last);
                false
            }
            _ => {
                reply.count(self.counted);
                true
            }
        }
    }

    fn again(&self) -> Box<dyn Slice> {
        Box::new(self.clone())
    }
}

/// How many keys are between two bounds, up to LIMIT.
pub(super) fn count(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let limit = only_limit(request)?;
    let span = Span::between(request.arg(1), request.arg(2), Direction::Forward)?;
    let work = Count {
        view: keyspace.view,
        span,
        limit,
        counted: 0,
    };
    keys::begin(work, keyspace, reply)
}
