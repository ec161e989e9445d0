//! What happens to a write while the log has no room.
//!
//! | the log | a write |
//! |---|---|
//! | is open | runs |
//! | is full, for at most [`DurabilityOptions::full_wait`] | is postponed by [`LOG_ROOM_WAIT`] |
//! | is full for longer, or has failed | fails: [`CommandError::LogFull`] |
//!
//! A checkpoint is on its way that frees segments; on a small volume it takes less than a second.
//! So a client that writes faster than checkpoints free space is slowed. A disk that stays full
//! refuses at once after that: the time counts from when the log became full, not from the request.
//! Commands that only remove are neither slowed nor refused as long as their short records fit:
//! they shrink the checkpoint.
//!
//! Deliberately absent: asking for that checkpoint, which is the host's.
//!
//! [`DurabilityOptions::full_wait`]: crate::DurabilityOptions::full_wait

use super::Turn;
use crate::clock::Microseconds;
use crate::error::CommandError;
use crate::limits::LOG_ROOM_WAIT;

impl Turn<'_> {
    /// Until when a write is postponed because of the log, if it is.
    #[inline]
    pub(crate) fn wait_for_log(
        &self,
        only_removes: bool,
    ) -> Result<Option<Microseconds>, CommandError> {
        let log = &self.database.acknowledgement;
        if log.accepts_writes() || only_removes && log.accepts_removals() {
            return Ok(None);
        }
        self.wait_for_full_log()
    }

    #[cold]
    fn wait_for_full_log(&self) -> Result<Option<Microseconds>, CommandError> {
        let now = self.session.now;
        let durability = self.database.options.durability.as_ref();
        let patience = durability.map_or(Microseconds::ZERO, |with| with.full_wait.into());
        match self.database.acknowledgement.is_full_for(now) {
            Some(time) if time < patience => Ok(Some(now + LOG_ROOM_WAIT)),
            _ => Err(CommandError::LogFull),
        }
    }
}
