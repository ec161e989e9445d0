//! Commands on a sorted set that are joined with others: ZADD ZREM ZPOPMIN ZPOPMAX.

use pando_engine::SortedDraft;
use pando_protocol::command::SortedCommand;
use pando_protocol::{Reply, Request, RespVersion, number};

use super::add::{Done as Added, Options, give, reply_given};
use super::{reply_entries, reply_score};
use crate::commands::check_member;
use crate::commands::joined::{Done, Given, Step, Subject};
use crate::error::CommandError;

/// One command, as a change of a sorted set (JU1 as-if-alone).
pub(in crate::commands) fn step(
    command: SortedCommand,
    set: &mut Subject<SortedDraft<'_>>,
    given: &Given<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Result<Step, CommandError> {
    match command {
        SortedCommand::Zadd => {
            let (options, first) = Options::parse(request)?;
            let done = if request.len() - first == 2 {
                let Some(score) = number::parse_f64(request.arg(first)) else {
                    return Ok(Step::Alone);
                };
                let member = request.arg(first + 1);
                check_member(member)?;
                give_to(set, options, std::iter::once((score, member)), given)?
            } else {
                let scores = request.args_from(first).step_by(2);
                let scores = scores.map(number::parse_f64).collect::<Option<Vec<_>>>();
                // What is wrong with a score is said elsewhere, before anything is changed.
                let Some(scores) = scores else {
                    return Ok(Step::Alone);
                };
                let members = request.args_from(first + 1).step_by(2);
                members.clone().try_for_each(check_member)?;
                give_to(set, options, scores.into_iter().zip(members), given)?
            };
            reply_given(reply, options, &done);
            Done::changing(done.is_written)
        }
        SortedCommand::Zrem if !set.is_made => {
            let members = request.args_from(2);
            let removed = members.filter(|member| set.draft.remove(member).is_some());
            let removed = removed.count();
            reply.count(removed);
            Done::changing(removed > 0)
        }
        SortedCommand::Zpopmin if request.len() == 2 => pop(set, reply, true),
        SortedCommand::Zpopmax if request.len() == 2 => pop(set, reply, false),
        _ => Ok(Step::Alone),
    }
}

/// Gives members scores.
fn give_to<'m>(
    set: &mut Subject<SortedDraft<'_>>,
    options: Options,
    pairs: impl ExactSizeIterator<Item = (f64, &'m [u8])>,
    given: &Given<'_>,
) -> Result<Added, CommandError> {
    let encoding = &mut set.attributes.encoding;
    give(&mut set.draft, encoding, options, pairs, given.thresholds)
}

fn pop(
    set: &mut Subject<SortedDraft<'_>>,
    reply: &mut Reply<'_>,
    least: bool,
) -> Result<Step, CommandError> {
    let len = set.draft.len();
    if len == 0 {
        reply.array(0);
        return Done::taking(false);
    }
    if set.is_made {
        return Ok(Step::Alone);
    }
    let rank = if least { 0 } else { len - 1 };
    set.draft.remove_nth(rank, |member, score| {
        if reply.version() == RespVersion::Resp2 {
            reply_entries(reply, std::iter::once((member, score)), true);
        } else {
            reply.array(2);
            reply.bulk(member);
            reply_score(reply, score);
        }
    });
    Done::taking(true)
}
