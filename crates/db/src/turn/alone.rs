//! Keeping other sessions out for some short requests, each of which puts a value where another
//! one as long was. That costs about as much as one of them spares, so it is done for several at
//! a time.
//!
//! Others wait meanwhile, and whoever they wait for must not wait for them. So nothing but these
//! requests runs, and what takes a lock lets the others in first (`Keyspace::settle`). Where others
//! are busy, too, they would take turns instead of working side by side: so others must have been
//! found idle many times in a row. While they are not, it is looked less and less often.

use pando_engine::Point;
use pando_protocol::command::{CommandId, CommandSpec, KeyspaceCommand, StringCommand};

use super::{HeldGates, Turn};

impl Turn<'_> {
    /// Whether requests of this command change one short value at most, as a rule.
    #[inline]
    #[must_use]
    pub fn is_short(spec: &CommandSpec) -> bool {
        use StringCommand as S;
        matches!(
            spec.id,
            CommandId::Keyspace(KeyspaceCommand::String(
                S::Set | S::Incr | S::Decr | S::Incrby | S::Decrby
            ))
        )
    }

    /// Keeps others out for requests of such commands, if they can be, until [`Self::let_in`];
    /// returns whether they are.
    pub fn keep_out(&mut self) -> bool {
        let is_own = matches!(self.held, HeldGates::Own { .. });
        if !is_own || !self.session.tries.is_due() {
            return false;
        }
        let idle = self.session.store.keep_out();
        let stays = self.session.tries.note(idle);
        if !stays {
            self.let_in();
        }
        stays
    }

    /// Ends [`Self::keep_out`], whatever it has done.
    pub fn let_in(&mut self) {
        self.session.store.let_in();
    }
}

#[cfg(test)]
mod tests;
