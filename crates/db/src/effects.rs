//! What a run does outside of the engine, until it counts.
//!
//! On an engine that is [`pando_engine::Transactional`] a request is run until a run of it counts
//! (`turn/run.rs`). A run that does not count leaves nothing. Each effect takes one of three ways:
//!
//! | effect | in a run | it counts | it does not |
//! |---|---|---|---|
//! | values, versions, access marks | the engine's | committed | dropped |
//! | the session's counters | counted apart | added | dropped |
//! | log records, by the commit hook | in the group that is being written | a group | cut off |
//! | the expiry index | noted ([`Effects::deadlines`]) | reconciled | dropped |
//! | SCAN cursors | drawn, noted ([`Effects::cursors`]) | given out | dropped |
//! | random draws | drawn | kept | the generator goes back: the same again |
//! | numbers of databases (FLUSHALL, SWAPDB) | changed, an image kept | old trees go | put back |
//! | what others watch there | changed, an image kept | image released | put back |
//! | the client's settings (SELECT, …), its own watches, its transaction | changed | kept | put back |
//! | the reply | written | sent | cut off |
//! | calls of [`crate::Host`]: INFO, MONITOR, SLOWLOG, LATENCY | noted | made | dropped |
//! | a slice's state | changed | kept | put back |
//!
//! The numbers of databases change under all gates, which the run holds until it has ended: nobody
//! sees what is put back.
//!
//! Invariants:
//! - **RR1 effects-once** What a request does outside of the engine can be seen once, when a run of
//!   it counts, however often it ran.
//! - **RR2 same-draws** A repetition draws what the run before it has drawn.
//! - **RR3 hosts-once** A command of the host's that acts is executed once: by itself it touches no
//!   key, so its run counts (TX4 untouched-is-done); in an EXEC its reply is kept for repetitions,
//!   and while the run is blind it is not executed. SNAPSHOT CREATE and DROP, which no EXEC takes,
//!   are once in the same way.
//!
//! Deliberately absent: anything of it on engines that are never blind. They have no `Effects`, and
//! the places that note one ask for it only when they have an effect to note. In an EXEC on an
//! engine that repeats, the host is told of commands when all have run: it knows their number and
//! order, not how long each took; its own commands come before them. INFO there counts what was
//! before the EXEC.

use std::sync::Arc;

use pando_engine::{Deadline, LogEpoch, TreeId};

use crate::cursors::Place;
use crate::mapping::TreesImage;
use crate::statistics::SessionCounters;
use crate::watchers::WatchImage;

/// What the run under way has done; see the module's header.
#[derive(Debug)]
pub(crate) struct Effects {
    /// The session's own, which count nothing meanwhile.
    pub(crate) counters: Arc<SessionCounters>,
    /// The generator as it was when the run began.
    pub(crate) random: fastrand::Rng,
    /// The latest epoch that the command could tell of by then.
    pub(crate) observed: LogEpoch,
    /// Keys whose deadline has changed, with the deadline that was replaced.
    pub(crate) deadlines: Vec<(TreeId, Box<[u8]>, Option<Deadline>)>,
    /// Cursors to give out.
    pub(crate) cursors: Vec<(u64, Place)>,
    /// What changes of the mapping have left to be done or undone.
    pub(crate) mapping: Option<MappingImage>,
}

/// What stood behind the numbers of databases before the run changed them.
#[derive(Debug)]
pub(crate) struct MappingImage {
    pub(crate) trees: TreesImage,
    pub(crate) watches: WatchImage,
    /// Trees that the run made.
    pub(crate) made: Vec<TreeId>,
    /// Trees that no number leads to any more.
    pub(crate) left: Vec<TreeId>,
    /// How many changes were recorded.
    pub(crate) recorded: u64,
}

impl Effects {
    /// Of a run that begins.
    pub(crate) fn new(
        counters: Arc<SessionCounters>,
        random: fastrand::Rng,
        observed: LogEpoch,
    ) -> Self {
        Self {
            counters,
            random,
            observed,
            deadlines: Vec::new(),
            cursors: Vec::new(),
            mapping: None,
        }
    }
}

/// What a planted bug leaves behind of a run that does not count: the test of repetitions must
/// notice each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leftover {
    Counts,
    Reply,
    Records,
    Draws,
    Cursors,
    Deadlines,
    Mapping,
    Watches,
    Settings,
    Transaction,
    Notes,
    Hosted,
    Slice,
}

/// Whether this bug is planted: never but in tests.
#[cfg(not(test))]
pub(crate) const fn leaves(_: Leftover) -> bool {
    false
}

#[cfg(test)]
pub(crate) use testing::leaves;

#[cfg(test)]
pub(crate) mod testing {
    use std::cell::Cell;

    use super::Leftover;

    impl Leftover {
        pub(crate) const ALL: [Self; 13] = [
            Self::Counts,
            Self::Reply,
            Self::Records,
            Self::Draws,
            Self::Cursors,
            Self::Deadlines,
            Self::Mapping,
            Self::Watches,
            Self::Settings,
            Self::Transaction,
            Self::Notes,
            Self::Hosted,
            Self::Slice,
        ];
    }

    thread_local! {
        static PLANTED: Cell<Option<Leftover>> = const { Cell::new(None) };
    }

    pub(crate) fn leaves(leftover: Leftover) -> bool {
        PLANTED.get() == Some(leftover)
    }

    /// Plants a bug on this thread, or none.
    pub(crate) fn plant(leftover: Option<Leftover>) {
        PLANTED.set(leftover);
    }
}
