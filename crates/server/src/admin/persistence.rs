//! SAVE BGSAVE BGREWRITEAOF LASTSAVE SHUTDOWN.
//!
//! Redis clients' save is a checkpoint here, and so is a rewrite of the log: it makes the earlier
//! log obsolete. Without a log, asking for a save is an error: a reply of `+OK` would let a backup
//! script believe that there is something to copy.

use pando_db::{CommandError, Progress, Wait};

use super::{AdminError, Call, Handled};
use crate::limits;

/// SAVE: takes a checkpoint and replies when it is complete. Only this connection waits.
pub(super) fn save(call: &mut Call<'_, '_, '_>) -> Handled {
    if call.inside_exec {
        return Err(CommandError::NotInTransaction.into());
    }
    if call.shared.database.recovery().is_none() {
        return Err(AdminError::NothingKept);
    }
    Ok(Progress::Waits(Wait::Host(call.shared.keeper.ask_now())))
}

/// Takes a final checkpoint as fast as possible. The worker waits; its gate is free.
fn take_last(call: &Call<'_, '_, '_>) -> Result<(), AdminError> {
    if call.shared.database.recovery().is_none() {
        return Err(AdminError::NothingKept);
    }
    let taken = call.shared.keeper.take_last();
    taken.map_err(|reason| AdminError::save_failed(&reason))
}

/// BGSAVE [SCHEDULE], BGREWRITEAOF: asks the keeper for a checkpoint.
pub(super) fn bgsave(call: &mut Call<'_, '_, '_>, answer: &str) -> Handled {
    let request = call.request;
    if request.len() > 2 || (request.len() == 2 && !request.is(1, "SCHEDULE")) {
        return Err(CommandError::Syntax.into());
    }
    if call.shared.database.recovery().is_none() {
        return Err(AdminError::NothingKept);
    }
    if !call.shared.keeper.ask() && request.len() == 1 {
        return Err(AdminError::SaveRuns);
    }
    call.reply.simple(answer);
    Ok(Progress::Done)
}

/// LASTSAVE: when the last checkpoint was completed; before the first, when the server started, as
/// in Redis.
pub(super) fn lastsave(call: &mut Call<'_, '_, '_>) -> Handled {
    call.reply.integer(last_save_s(call) as i64);
    Ok(Progress::Done)
}

/// See [`lastsave`], in seconds since the Unix epoch.
pub(super) fn last_save_s(call: &Call<'_, '_, '_>) -> u64 {
    let taken_ms = call.shared.last_checkpoint().map(|taken| taken.0);
    let started_ms = || call.shared.started_at_us() / 1000;
    taken_ms.unwrap_or_else(started_ms) / 1000
}

/// SHUTDOWN [NOSAVE | SAVE] [NOW] [FORCE] [ABORT]: as in Redis, the connection closes without a
/// reply. The log is written to its end in any case; SAVE first takes a checkpoint, so that the
/// next start need not replay the log. It waits for replicas that do not have everything, unless
/// NOW or ABORT says otherwise. A failed checkpoint is an error unless FORCE accepts it.
pub(super) fn shutdown(call: &mut Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    let (mut save, mut nosave, mut now, mut force, mut abort) = (false, false, false, false, false);
    for index in 1..request.len() {
        let word = request.arg(index).to_ascii_lowercase();
        let flag = match word.as_slice() {
            b"save" => &mut save,
            b"nosave" => &mut nosave,
            b"now" => &mut now,
            b"force" => &mut force,
            b"abort" => &mut abort,
            _ => return Err(CommandError::Syntax.into()),
        };
        *flag = true;
    }
    if (save && nosave) || (abort && request.len() > 2) {
        return Err(CommandError::Syntax.into());
    }
    if abort {
        return if call.shared.replication.abort(true) {
            call.ok()
        } else {
            Err(AdminError::NoShutdown)
        };
    }
    if save
        && let Err(error) = take_last(call)
        && !force
    {
        return Err(error);
    }
    tracing::info!(client = call.client.id, "SHUTDOWN");
    if !now && call.shared.shut_down_after_replicas() {
        // It ends with the server.
        let milliseconds = limits::REPLICA_PATIENCE.as_millis() as u64 * 2;
        return Ok(Progress::Waits(Wait::Time { milliseconds }));
    }
    call.shared.request_shutdown();
    Ok(Progress::Close)
}
