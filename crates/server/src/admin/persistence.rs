//! SAVE BGSAVE BGREWRITEAOF LASTSAVE SHUTDOWN.
//!
//! Nothing is kept on disk. Who asks for a save is told so by an error: an answer of `+OK` would
//! let a backup script believe that there is something to copy. LASTSAVE, which monitoring reads,
//! answers when the server started, as Redis does before its first save.

use pando_db::{CommandError, HostProgress};

use super::{AdminError, Call, Handled};

/// SAVE and BGREWRITEAOF.
pub(super) fn save() -> Handled {
    Err(AdminError::NothingKept)
}

/// BGSAVE [SCHEDULE].
pub(super) fn bgsave(call: &Call<'_, '_, '_>) -> Handled {
    let request = call.request;
    if request.len() == 1 || (request.len() == 2 && request.is(1, "SCHEDULE")) {
        Err(AdminError::NothingKept)
    } else {
        Err(CommandError::Syntax.into())
    }
}

/// LASTSAVE.
pub(super) fn lastsave(call: &mut Call<'_, '_, '_>) -> Handled {
    call.reply
        .integer((call.shared.started_at_us() / 1_000_000) as i64);
    Ok(HostProgress::Done)
}

/// SHUTDOWN [NOSAVE | SAVE] [NOW] [FORCE] [ABORT]: as in Redis the connection closes without a
/// reply. SAVE is refused unless FORCE says that failing to save is fine.
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
        // A shutdown has nothing to wait for, so none is ever in progress when a command runs.
        return Err(AdminError::NoShutdown);
    }
    if save && !force {
        return Err(AdminError::NothingKept);
    }
    tracing::info!(client = call.client.id, "SHUTDOWN");
    call.shared.request_shutdown();
    Ok(HostProgress::Close)
}
