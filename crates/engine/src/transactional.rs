//! Runs, for engines whose operations may hit absent data or come too late.
//!
//! Such an engine keeps what a session does between [`Transactional::begin_run`] and
//! [`Transactional::end_run`] private, and says at the end whether it counts. If it does not, the
//! caller repeats the run and shows nothing of the first attempt.
//!
//! Invariants:
//! - **TX1 run-whole** When a run ends with [`Outcome::Done`], all its writes are committed at
//!   once, as if nothing had happened in between; otherwise none are. The same holds for access
//!   marks.
//! - **TX2 blind-reads-absent** Absent data reads as an absent key, and a run that read it does not
//!   end with `Done`. So what a blind run decides has no effect, however wrong.
//! - **TX3 own-writes-seen** A run sees its own writes. The commit hook runs for every write,
//!   however often. What it was told, and the versions that were returned, count only if the run
//!   does.
//! - **TX4 untouched-is-done** A run that looked at nothing ends with `Done`.
//!
//! Outside a run, each operation is a run of its own, which the engine repeats until it is done.
//!
//! Deliberately absent: views.

use crate::{Point, TreeId};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It counts.
    Done,
    /// Another run conflicted. It may be repeated at once.
    Conflict,
    /// Some data was absent and is being fetched. The run may be repeated in a while.
    Away,
    /// A write was refused.
    Refused(Refused),
}

/// Why an engine refuses a write, which then changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no room for it now.
    Full,
    /// The value is longer than any that the engine can hold.
    TooLong,
}

/// Runs that count as a whole or not at all; see the module's header.
pub trait Transactional: Point {
    /// Begins a run. Pins may end and begin within it; no other run of the session is in progress.
    fn begin_run(&mut self);

    /// Whether what was read since [`Self::begin_run`] is unreliable, because some data was absent
    /// (TX2).
    fn is_blind(&self) -> bool;

    /// Ends the run.
    fn end_run(&mut self) -> Outcome {
        self.end_run_if(|| true)
    }

    /// Ends a run that counts only if it `may`; if not, it ends with [`Outcome::Conflict`]. That is
    /// asked once at most, after the run's last read; if it has written, then while all that it saw
    /// is held as it was.
    fn end_run_if(&mut self, may: impl Fn() -> bool) -> Outcome;

    /// [`crate::Engine::len`], including the writes of the current run.
    fn len(&self, tree: TreeId) -> u64;
}
