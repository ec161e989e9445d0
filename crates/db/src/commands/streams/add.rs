//! XADD.

use pando_engine::{Decision, StreamDraft, StreamId, push_stream_string};
use pando_protocol::{Reply, Request};

use super::id::{Wanted, reply_id};
use super::{replace, stream_of, trim};
use crate::commands::detached::Detached;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// XADD key [NOMKSTREAM] [MAXLEN | MINID [= | ~] threshold [LIMIT count]] * | id field value …
pub(super) fn add(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let options = trim::options(request, true)?;
    let strings = request.args_from(options.next);
    if strings.len() == 0 || !strings.len().is_multiple_of(2) {
        return Err(CommandError::Arity { command: "xadd" });
    }
    if options.wanted == Wanted::This(StreamId::MIN) {
        return Err(CommandError::StreamIdZero);
    }
    let mut entry = Vec::with_capacity(strings.clone().map(|string| string.len() + 1).sum());
    strings.for_each(|string| push_stream_string(&mut entry, string));
    if entry.len() > keyspace.options().value_bytes_max {
        return Err(CommandError::StreamEntryTooLong);
    }
    let entry = Detached::new(entry);
    let now_ms = keyspace.now().0;
    let added = keyspace.try_update(request.arg(1), |old| {
        let stream = old.map(stream_of).transpose()?;
        if stream.is_none() && options.only_if_there {
            return Ok((Decision::Keep, None));
        }
        let mut draft = StreamDraft::new(stream);
        let id = options.wanted.after(draft.head().last, now_ms)?;
        draft.push_entry(id, entry.body());
        if let Some(trim) = options.trim {
            trim.apply(&mut draft);
        }
        Ok((replace(old, draft), Some(id)))
    })?;
    match added {
        Some(id) => reply_id(reply, id),
        None => reply.null(),
    }
    Ok(Progress::Done)
}
