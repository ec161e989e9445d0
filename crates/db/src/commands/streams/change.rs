//! Changes of streams but for their groups: XDEL XTRIM XSETID.

use pando_engine::{Decision, StreamDraft, StreamId, StreamRef};
use pando_protocol::{Reply, Request};

use super::{id, integer, replace, stream_of, trim};
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// XDEL key id [id …]
pub(super) fn remove(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let ids: Result<Vec<_>, _> = request.args_from(2).map(|it| id::parse(it, 0)).collect();
    let removed = keyspace.try_update(request.arg(1), |old| {
        // As in Redis, ids do not matter without a stream.
        let Some(stream) = old.map(stream_of).transpose()? else {
            return Ok((Decision::Keep, 0));
        };
        let ids = ids.as_ref().map_err(CommandError::clone)?;
        let mut draft = StreamDraft::new(Some(stream));
        let mut head = draft.head();
        let mut removed = 0;
        for id in ids
            .iter()
            .filter(|id| draft.remove(**id))
            .collect::<Vec<_>>()
        {
            head.removed = head.removed.max(*id);
            removed += 1;
        }
        if removed == 0 {
            return Ok((Decision::Keep, 0));
        }
        draft.set_head(head);
        Ok((replace(old, draft), removed))
    })?;
    reply.count(removed);
    Ok(Progress::Done)
}

/// XTRIM key MAXLEN | MINID [= | ~] threshold [LIMIT count]
pub(super) fn trim(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let options = trim::options(request, false)?;
    let removed = keyspace.try_update(request.arg(1), |old| {
        let (Some(stream), Some(trim)) = (old.map(stream_of).transpose()?, options.trim) else {
            return Ok((Decision::Keep, 0));
        };
        if trim.count(stream) == 0 {
            return Ok((Decision::Keep, 0));
        }
        let mut draft = StreamDraft::new(Some(stream));
        let removed = trim.apply(&mut draft);
        Ok((replace(old, draft), removed))
    })?;
    reply.count(removed);
    Ok(Progress::Done)
}

/// XSETID key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]
pub(super) fn set_id(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let last = id::parse(request.arg(2), 0)?;
    let (mut added, mut removed) = (None, StreamId::MIN);
    let mut index = 3;
    while index < request.len() {
        if index + 1 == request.len() {
            return Err(CommandError::Syntax);
        }
        let value = request.arg(index + 1);
        if request.is(index, "ENTRIESADDED") {
            let count = u64::try_from(integer(value)?);
            added = Some(count.map_err(|_| CommandError::NegativeEntriesAdded)?);
        } else if request.is(index, "MAXDELETEDID") {
            removed = id::parse(value, 0)?;
            if last < removed {
                return Err(CommandError::LastIdBelowRemoved);
            }
        } else {
            return Err(CommandError::Syntax);
        }
        index += 2;
    }
    keyspace.try_update(request.arg(1), |old| {
        let stream = old.map(stream_of).transpose()?;
        let stream = stream.ok_or(CommandError::NoSuchKey)?;
        check_head(stream, last, added)?;
        let mut draft = StreamDraft::new(Some(stream));
        let mut head = draft.head();
        head.last = last;
        head.added = added.unwrap_or(head.added);
        if removed != StreamId::MIN {
            head.removed = removed;
        }
        draft.set_head(head);
        Ok((replace(old, draft), ()))
    })?;
    reply.ok();
    Ok(Progress::Done)
}

fn check_head(
    stream: StreamRef<'_>,
    last: StreamId,
    added: Option<u64>,
) -> Result<(), CommandError> {
    if stream.final_id().is_some_and(|entry| last < entry) {
        return Err(CommandError::LastIdBelowEntry);
    }
    if added.is_some_and(|added| stream.len() as u64 > added) {
        return Err(CommandError::EntriesAddedBelowLength);
    }
    Ok(())
}
