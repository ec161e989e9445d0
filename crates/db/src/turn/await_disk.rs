//! What a reply waits for on disk, recorded with its client when its command is done.

use pando_engine::LogEpoch;

use super::Turn;
use crate::acknowledge::Durability;
use crate::client::Client;
use crate::clock::Milliseconds;
use crate::progress::Wait;

impl Turn<'_> {
    /// The reply acknowledges a write (AK5 interval-waits, AK6 late-disk-waits).
    #[inline]
    pub(super) fn note_write(&mut self, client: &mut Client) {
        let epoch = std::mem::replace(&mut self.session.wrote, LogEpoch::NONE);
        if client.durability != Durability::None {
            client.unacknowledged = epoch;
            if self.session.beyond_room {
                client.awaits = client.awaits.max(epoch);
            }
        }
    }

    /// Everything that the reply could reveal must be durable (AK4 sync-waits).
    #[inline]
    pub(super) fn acknowledge(&mut self, client: &mut Client) {
        self.session.observes = false;
        if self.session.observed > LogEpoch::NONE {
            let straddle = self.database.acknowledgement.straddle();
            client.awaits = client.awaits.max(self.session.observed).max(straddle);
        }
    }

    /// Records that the reply reveals whole databases: a client of `sync` is answered when
    /// everything written before is durable (AK4 sync-waits). For front ends with their own
    /// commands.
    pub fn observe_all(&mut self) {
        let current = self.database.epochs.current();
        self.session.observe(current);
    }

    /// What a request waits for that is answered when everything written so far is durable, or
    /// after this many milliseconds.
    #[must_use]
    pub fn disk(&self, timeout: Option<Milliseconds>) -> Wait {
        let epoch = self.database.epochs.current();
        Wait::Disk { epoch, timeout }
    }

    /// Whether everything written so far is durable: what WAITAOF answers at once.
    #[must_use]
    pub fn is_all_durable(&self) -> bool {
        let acknowledgement = &self.database.acknowledgement;
        acknowledgement.log().is_some()
            && acknowledgement.durable() >= self.database.epochs.current()
    }
}
