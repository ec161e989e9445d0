//! Commands on a hash without deadlines of fields that are joined with others: HSET HMSET HDEL.

use pando_engine::limits::{COLUMN_FLAT_BYTES_MAX, FIELD_BYTES_MAX};
use pando_engine::{FieldsDraft, StringBody};
use pando_protocol::command::HashCommand;
use pando_protocol::{Reply, Request};

use crate::commands::joined::{Done, Given, Step, Subject};
use crate::encoding;
use crate::error::CommandError;

/// One command, as a change of a hash (JU1 as-if-alone).
pub(in crate::commands) fn step(
    command: HashCommand,
    hash: &mut Subject<FieldsDraft<'_>>,
    given: &Given<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Result<Step, CommandError> {
    match command {
        HashCommand::Hset | HashCommand::Hmset => {
            let bytes_max = COLUMN_FLAT_BYTES_MAX.min(given.value_bytes_max);
            let mut arguments = request.args_from(2);
            let is_usual = request.len().is_multiple_of(2)
                && arguments.all(|argument| argument.len() <= bytes_max.min(FIELD_BYTES_MAX));
            if !is_usual {
                return Ok(Step::Alone);
            }
            let (mut created, mut long) = (0, false);
            let values = request.args_from(3).step_by(2);
            for (field, value) in request.args_from(2).step_by(2).zip(values) {
                long |= given.thresholds.is_long_field(field, value.len());
                let is_new = hash.draft.set(field, StringBody::borrowed(value), false);
                created += usize::from(is_new);
            }
            if long || hash.draft.len() as u64 > given.thresholds.hash_max_listpack_entries {
                hash.attributes.encoding = encoding::HASHTABLE;
            }
            if command == HashCommand::Hmset {
                reply.ok();
            } else {
                reply.count(created);
            }
            Done::changing(true)
        }
        HashCommand::Hdel if !hash.is_made => {
            let fields = request.args_from(2);
            let removed = fields.filter(|field| hash.draft.remove(field)).count();
            reply.count(removed);
            Done::changing(removed > 0)
        }
        _ => Ok(Step::Alone),
    }
}
