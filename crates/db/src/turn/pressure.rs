//! What happens to writes while a stalled reader keeps replaced or removed memory from being
//! reclaimed.
//!
//! | the engine's [`Pressure`] | a turn that begins | a write |
//! |---|---|---|
//! | `None` | pins | runs |
//! | `Slow`, from half of the bound | collects, then pins | is postponed once, by [`SLOW_WRITE`] |
//! | `Refuse`, from the bound | likewise | fails: [`CommandError::RetiredMemory`] |
//!
//! A postponed write is executed later, like one caught by CLIENT PAUSE, so nobody sleeps and reads
//! continue. Commands that only remove keys are neither slowed nor refused: what they retire was
//! there before, and a client that is short of memory wants it freed.
//!
//! The commands of an EXEC are not checked. What each of them retires is reclaimed before the next
//! ones have run ([`Turn::renew_pin`]), so a long queue alone does not exceed the bound.
//!
//! Deliberately absent: finding the reader that stalls.

use crate::clock::Microseconds;
use pando_engine::{Point, Pressure};
use pando_protocol::command::{CommandSpec, Flag, Rule};

use super::Turn;
use crate::client::Client;
use crate::error::CommandError;
use crate::limits::SLOW_WRITE;

impl Turn<'_> {
    /// Reclaims replaced memory if the engine asks for it. To be called without a pin, which would
    /// hold off most of it.
    #[inline]
    pub(super) fn collect(&mut self) {
        if self.database.store.pressure() != Pressure::None {
            self.session.store.maintain(0);
        }
    }

    /// Pins anew before a command of an EXEC that writes: the end of a pin reclaims what was
    /// replaced, once it is worth the work. Nobody else who passes a gate is pinned, and nothing
    /// but replies is kept from one queued command to the next.
    pub(super) fn renew_pin(&mut self, spec: &CommandSpec) {
        if spec.flags.has(Flag::Write) {
            self.reuse_memory();
        }
    }

    /// Pins anew in the middle of long work under all gates, so that what it has replaced so far is
    /// reclaimed.
    pub(crate) fn reuse_memory(&mut self) {
        self.session.store.unpin();
        self.session.store.pin();
    }

    /// What the engine's memory pressure means for a write: until when it is postponed, if it is.
    #[inline]
    pub(super) fn hold_back(
        &self,
        client: &mut Client,
        spec: &CommandSpec,
    ) -> Result<Option<Microseconds>, CommandError> {
        self.hold_back_unless(client, spec.rules.has(Rule::OnlyRemoves))
    }

    /// [`Self::hold_back`] for commands other than RESP's.
    #[inline]
    pub(crate) fn hold_back_unless(
        &self,
        client: &mut Client,
        only_removes: bool,
    ) -> Result<Option<Microseconds>, CommandError> {
        let delayed = std::mem::take(&mut client.delayed);
        match self.database.store.pressure() {
            Pressure::None => Ok(None),
            _ if only_removes => Ok(None),
            Pressure::Slow if delayed => Ok(None),
            Pressure::Slow => {
                client.delayed = true;
                Ok(Some(self.session.now + SLOW_WRITE))
            }
            Pressure::Refuse => Err(CommandError::RetiredMemory),
        }
    }
}
