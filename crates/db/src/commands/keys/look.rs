//! EXISTS TOUCH TYPE, and the figure of MEMORY USAGE.

use pando_engine::{Attributes, ValueVersion};
use pando_protocol::{Reply, Request};

use super::type_name;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// Counts the existing keys, a repeated one repeatedly.
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

/// Bytes of the key and its value, without its share of the engine's nodes; `None` if it is absent.
pub fn memory_usage(keyspace: &mut Keyspace<'_>, key: &[u8]) -> Option<usize> {
    const HEADER_BYTES: usize = size_of::<ValueVersion>() + size_of::<Attributes>();
    keyspace.read(key, |value| {
        value.map(|value| HEADER_BYTES + key.len() + value.heap_bytes())
    })
}
