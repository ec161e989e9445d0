//! Keeping other sessions out for some short requests, each of which puts a value where another one
//! as long was: that costs about as much as one of them spares, so it is done for several at a time.
//!
//! Others wait meanwhile, and whoever they wait for must not wait for them. So nothing but these
//! requests runs, and what takes a lock lets the others in first (`Keyspace::settle`). Where others
//! are busy, too, they would take turns instead of working side by side: so others must have been
//! found idle many times in a row. While they are not, it is looked less and less often.

use pando_engine::Point;
use pando_protocol::command::{CommandId, CommandSpec, KeyspaceCommand, StringCommand};

use super::{HeldGates, Turn};
use crate::limits;

/// Whether a session may keep others out, by how often they were idle when it looked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tries {
    /// How often in a row they were.
    idle: u32,
    /// Times that are passed over until it looks again.
    pause: u32,
    /// Binary logarithm of those after the next time that they are not.
    backoff: u32,
}

impl Tries {
    #[inline]
    fn is_due(&mut self) -> bool {
        let due = self.pause == 0;
        self.pause = self.pause.saturating_sub(1);
        due
    }

    /// Records whether others were idle; returns whether they have been for long.
    #[inline]
    fn note(&mut self, idle: bool) -> bool {
        if !idle {
            self.idle = 0;
            self.pause = 1 << self.backoff;
            self.backoff = (self.backoff + 1).min(limits::ALONE_BACKOFF_MAX);
            return false;
        }
        self.idle = (self.idle + 1).min(limits::ALONE_IDLE_MIN);
        let long = self.idle == limits::ALONE_IDLE_MIN;
        if long {
            self.backoff = 0;
        }
        long
    }
}

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
mod tests {
    use super::*;

    #[test]
    fn while_others_are_busy_it_looks_less_and_less_often() {
        let mut tries = Tries::default();
        let mut passed = Vec::new();
        for _ in 0..limits::ALONE_BACKOFF_MAX + 2 {
            let mut count = 0;
            while !tries.is_due() {
                count += 1;
            }
            passed.push(count);
            assert!(!tries.note(false));
        }
        assert_eq!(passed[..4], [0, 1, 2, 4]);
        assert_eq!(passed.last(), Some(&(1 << limits::ALONE_BACKOFF_MAX)));
    }

    #[test]
    fn others_must_have_been_idle_for_long() {
        let mut tries = Tries::default();
        for _ in 0..2 {
            for nth in 1..=limits::ALONE_IDLE_MIN {
                assert_eq!(tries.note(true), nth == limits::ALONE_IDLE_MIN);
            }
            assert!(tries.note(true) && !tries.note(false));
        }
    }
}
