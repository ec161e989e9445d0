//! DEL UNLINK.

use pando_protocol::{Reply, Request};

use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// Removes keys one by one, and counts those that existed. Memory is freed after the reply, so
/// UNLINK differs from DEL only by name.
pub(super) fn delete(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let mut removed = 0;
    super::for_each_key(keyspace, request, |keyspace, key| {
        removed += usize::from(keyspace.remove(key));
    });
    reply.count(removed);
    Ok(Progress::Done)
}
