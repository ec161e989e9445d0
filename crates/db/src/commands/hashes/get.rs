//! Reads of hashes: HGET HMGET HGETALL HKEYS HVALS HLEN HEXISTS HSTRLEN.
//!
//! Values go straight from the hash into the reply.

use pando_engine::{FieldsRef, StringRef};
use pando_protocol::{Reply, Request};

use crate::commands::detached::reply_bulk;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// HGET key field
#[inline]
pub(super) fn one(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    keyspace.read_hash(request.arg(1), |hash| {
        write_field(reply, hash, request.arg(2));
    })?;
    Ok(Progress::Done)
}

/// HMGET key field [field …]
pub(super) fn several(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    keyspace.read_hash(request.arg(1), |hash| {
        let fields = request.args_from(2);
        reply.array(fields.len());
        for field in fields {
            write_field(reply, hash, field);
        }
    })?;
    Ok(Progress::Done)
}

/// The field's value, or null.
#[inline]
fn write_field(reply: &mut Reply<'_>, hash: Option<FieldsRef<'_>>, field: &[u8]) {
    match hash.and_then(|hash| hash.get(field)) {
        Some(value) => reply_bulk(reply, value),
        None => reply.null(),
    }
}

/// HGETALL key
pub(super) fn all(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    keyspace.read_hash(request.arg(1), |hash| {
        reply.map(hash.map_or(0, FieldsRef::len));
        for (field, value) in hash.into_iter().flat_map(FieldsRef::iter) {
            reply.bulk(field);
            reply_bulk(reply, value);
        }
    })?;
    Ok(Progress::Done)
}

/// HKEYS key
pub(super) fn names(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    keyspace.read_hash(request.arg(1), |hash| {
        reply.array(hash.map_or(0, FieldsRef::len));
        for (field, _) in hash.into_iter().flat_map(FieldsRef::iter) {
            reply.bulk(field);
        }
    })?;
    Ok(Progress::Done)
}

/// HVALS key
pub(super) fn values(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    keyspace.read_hash(request.arg(1), |hash| {
        reply.array(hash.map_or(0, FieldsRef::len));
        for (_, value) in hash.into_iter().flat_map(FieldsRef::iter) {
            reply_bulk(reply, value);
        }
    })?;
    Ok(Progress::Done)
}

/// HLEN key
pub(super) fn count(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let count = keyspace.read_hash(request.arg(1), |hash| hash.map_or(0, FieldsRef::len))?;
    reply.count(count);
    Ok(Progress::Done)
}

/// HEXISTS key field
pub(super) fn exists(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let exists = keyspace.read_hash(request.arg(1), |hash| {
        hash.is_some_and(|hash| hash.get(request.arg(2)).is_some())
    })?;
    reply.integer(i64::from(exists));
    Ok(Progress::Done)
}

/// HSTRLEN key field
pub(super) fn value_length(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let length = keyspace.read_hash(request.arg(1), |hash| {
        let value = hash.and_then(|hash| hash.get(request.arg(2)));
        value.map_or(0, StringRef::len)
    })?;
    reply.count(length);
    Ok(Progress::Done)
}
