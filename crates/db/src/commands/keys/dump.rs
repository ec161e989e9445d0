//! DUMP, a value in Redis' format, and KDUMP, keys in that of `pando dump`.

use pando_engine::{Decision, TreeId, ValueRef, ValueVersion};
use pando_protocol::{Reply, Request};

use crate::clock::Milliseconds;
use crate::dump::{self, Form};
use crate::encoding;
use crate::entries::{self, DumpPosition, Portion};
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::limits;
use crate::progress::{Handled, Progress};

/// The value in the format of Redis' files, or null. O(size).
pub(super) fn dump(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let now = keyspace.now();
    let payload = keyspace.read(request.arg(1), |value| {
        value.map(|value| encode(&value, now))
    });
    match payload {
        Some(payload) => reply.bulk(payload),
        None => reply.null(),
    }
    Ok(Progress::Done)
}

/// A value that is on its way to another server (MIGRATE).
#[derive(Debug)]
pub struct Departing {
    /// The value in the format of DUMP.
    pub payload: Vec<u8>,
    /// How long it lives; none: for ever.
    pub left: Option<Milliseconds>,
    tree: TreeId,
    version: ValueVersion,
}

impl Departing {
    /// Takes the value of the key, which stays where it is. `None`: there is none. O(size).
    pub fn take(keyspace: &mut Keyspace<'_>, key: &[u8]) -> Option<Self> {
        let (now, tree) = (keyspace.now(), keyspace.view.key(key).tree);
        keyspace.read(key, |value| {
            value.map(|value| Self {
                payload: encode(&value, now),
                left: value.attributes.deadline.map(|deadline| deadline.left(now)),
                tree,
                version: value.version,
            })
        })
    }

    /// Removes the key if it has this very value; returns whether it does not have another one now.
    pub fn leave(&self, keyspace: &mut Keyspace<'_>, key: &[u8]) -> Result<bool, CommandError> {
        if keyspace.view.key(key).tree != self.tree {
            return Ok(!keyspace.look(key, |value| value.is_some()));
        }
        keyspace.try_update(key, |old| match old {
            None => Ok((Decision::Keep, true)),
            Some(old) if old.version == self.version => Ok((Decision::Remove, true)),
            Some(_) => Ok((Decision::Keep, false)),
        })
    }
}

pub(super) fn encode(value: &ValueRef<'_>, now: Milliseconds) -> Vec<u8> {
    dump::encode_at(value.body, Form::of_encoding(encoding::name(value)), now)
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
