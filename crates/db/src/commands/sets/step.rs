//! Commands on a set that are joined with others: SADD SREM SPOP.

use pando_engine::HashDraft;
use pando_protocol::command::SetCommand;
use pando_protocol::{Reply, Request};

use super::change::add_members;
use super::random::pick;
use crate::commands::check_member;
use crate::commands::joined::{Done, Given, Step, Subject};
use crate::error::CommandError;

/// One command, as a change of a set (JU1 as-if-alone).
pub(in crate::commands) fn step(
    command: SetCommand,
    set: &mut Subject<HashDraft<'_>>,
    given: &mut Given<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Result<Step, CommandError> {
    match command {
        SetCommand::Sadd => {
            request.args_from(2).try_for_each(check_member)?;
            let encoding = &mut set.attributes.encoding;
            let members = request.args_from(2);
            let added = add_members(&mut set.draft, encoding, members, given.thresholds);
            reply.count(added);
            Done::changing(added > 0)
        }
        SetCommand::Srem if set.is_made => Ok(Step::Alone),
        SetCommand::Srem => {
            let members = request.args_from(2);
            let removed = members.filter(|member| set.draft.remove(member)).count();
            reply.count(removed);
            Done::changing(removed > 0)
        }
        SetCommand::Spop if request.len() == 2 => {
            if set.draft.is_empty() {
                reply.null();
                return Done::taking(false);
            }
            if set.is_made {
                return Ok(Step::Alone);
            }
            let member = pick(set.draft.as_ref(), &mut given.random).to_vec();
            reply.bulk(&member);
            set.draft.remove(&member);
            Done::taking(true)
        }
        _ => Ok(Step::Alone),
    }
}
