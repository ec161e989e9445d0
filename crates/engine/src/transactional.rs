//! Runs: what an engine offers whose operations can meet what is not here, or come too late.
//!
//! Such an engine keeps what a session does between [`Transactional::begin_run`] and
//! [`Transactional::end_run`] to itself, and says at the end whether it counts. The caller repeats
//! a run that does not, and lets nothing of it be seen.
//!
//! Invariants:
//! - **TX1 run-whole** When a run ends with [`Outcome::Done`], all that it wrote is committed at
//!   once, as if nothing had come in between; else nothing is. Access marks go the same way.
//! - **TX2 blind-reads-absent** What is not here reads as absent, and the run that read it does not
//!   end with `Done`. So what a blind run decides has no effect, however wrong.
//! - **TX3 own-writes-seen** A run sees what it wrote. The commit hook runs when something is
//!   written, as often as it is; what it was told, and versions that were returned, count when the
//!   run does.
//! - **TX4 untouched-is-done** A run that looked at nothing ends with `Done`.
//!
//! Outside a run each operation is one by itself, which the engine repeats until it is done.
//!
//! Deliberately absent: views, and outcomes that no repetition changes.

use crate::{Point, TreeId};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It counts.
    Done,
    /// Another one came in between. It may be repeated at once.
    Conflict,
    /// Something was not here, and is being fetched. It may be repeated in a while.
    Away,
}

/// Runs that count as a whole or not at all; see the module's header.
pub trait Transactional: Point {
    /// What follows belongs together. Pins may end and begin in a run; no run is under way.
    fn begin_run(&mut self);

    /// Whether what was read since [`Self::begin_run`] is not to be relied on: something was not
    /// here (TX2).
    fn is_blind(&self) -> bool;

    /// Ends the run.
    fn end_run(&mut self) -> Outcome;

    /// [`crate::Engine::len`], with what the run under way has written.
    fn len(&self, tree: TreeId) -> u64;
}
