//! DUMP, a value in Redis' format, and KDUMP, keys in that of `pando dump`.

use pando_protocol::{Reply, Request};

use crate::dump::{self, Form};
use crate::encoding;
use crate::entries::{self, DumpPosition, Portion};
use crate::keyspace::Keyspace;
use crate::limits;
use crate::progress::{Handled, Progress};

/// The value in the format of Redis' files, or null. O(size).
pub(super) fn dump(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let payload = keyspace.read(request.arg(1), |value| {
        value.map(|value| {
            let form = Form::of_encoding(encoding::name(&value));
            dump::encode(value.body, form)
        })
    });
    match payload {
        Some(payload) => reply.bulk(payload),
        None => reply.null(),
    }
    Ok(Progress::Done)
}

/// A portion of the database's keys in the form of `pando dump`: where to continue (0 at the end),
/// the version of the form, and the entries in pieces that a client can read.
pub(super) fn dump_keys(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let position = DumpPosition::parse(request.arg(1), keyspace.options().engine.is_ordered())?;
    let (portion, next) = Portion::take(keyspace, &position);
    let mut bytes = Vec::new();
    for taken in portion {
        taken.put(&mut bytes, keyspace.database_index());
    }
    let pieces = bytes.chunks(limits::DUMP_PIECE_BYTES_MAX);
    reply.array(3);
    reply.bulk(next.unwrap_or(DumpPosition::START).text());
    reply.integer(entries::FORMAT.into());
    reply.array(pieces.len());
    for piece in pieces {
        reply.bulk(piece);
    }
    Ok(Progress::Done)
}
