//! DUMP.

use pando_protocol::{Reply, Request};

use crate::dump::{self, HashForm};
use crate::encoding;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// The value in the format of Redis' files, or null. O(size).
pub(super) fn dump(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let payload = keyspace.read(request.arg(1), |value| {
        value.map(|value| {
            let form = match encoding::name(&value) {
                "listpack" => HashForm::Listpack,
                _ => HashForm::Table,
            };
            dump::encode(value.body, form)
        })
    });
    match payload {
        Some(payload) => reply.bulk(payload),
        None => reply.null(),
    }
    Ok(Progress::Done)
}
