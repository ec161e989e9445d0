//! EXISTS TOUCH TYPE RANDOMKEY, and what MEMORY USAGE says.

use std::ops::ControlFlow;

use pando_engine::{Attributes, ValueVersion};
use pando_protocol::{Reply, Request};

use super::type_name;
use crate::keyspace::Keyspace;
use crate::limits;
use crate::progress::{Handled, Progress};

/// How often RANDOMKEY tries anew when it has met an expired key.
const RANDOM_TRIES_MAX: usize = 100;

/// Counts the keys that are there, a repeated one repeatedly.
pub(super) fn exists(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let mut there = 0;
    super::for_each_key(keyspace, request, |keyspace, key| {
        there += usize::from(keyspace.exists(key));
    });
    reply.count(there);
    Ok(Progress::Done)
}

/// The type's name, or `none`.
pub(super) fn type_of(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let name = keyspace.read(request.arg(1), |value| {
        value.map(|value| type_name(value.tag()))
    });
    reply.simple(name.unwrap_or("none"));
    Ok(Progress::Done)
}

/// Some key. Where expired keys are in the way, the search is bounded: it may answer null although
/// a live key is left among very many expired ones.
pub(super) fn random_key(keyspace: &mut Keyspace<'_>, reply: &mut Reply<'_>) -> Handled {
    for _ in 0..RANDOM_TRIES_MAX {
        let found =
            keyspace.sample(|found| found.map(|(key, value)| value.map(|_| reply.bulk(key))));
        match found {
            // An empty database.
            None => break,
            Some(Some(())) => return Ok(Progress::Done),
            Some(None) => {}
        }
    }
    let mut looked = 0;
    let mut found = false;
    keyspace.keys().each(|key, value| {
        looked += 1;
        if value.is_some() {
            reply.bulk(key);
            found = true;
        }
        if found || looked == limits::SLICE_ENTRIES_MAX {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    if !found {
        reply.null();
    }
    Ok(Progress::Done)
}

/// Bytes that the key and its value take, its share of the engine's nodes left out; `None` when it
/// is not there.
pub fn memory_usage(keyspace: &mut Keyspace<'_>, key: &[u8]) -> Option<usize> {
    const HEADER_BYTES: usize = size_of::<ValueVersion>() + size_of::<Attributes>();
    keyspace.read(key, |value| {
        value.map(|value| HEADER_BYTES + key.len() + value.heap_bytes())
    })
}
