//! Effects of a run outside the engine, held until the run counts.
//!
//! On a [`pando_engine::Transactional`] engine a request is run until one of its runs counts
//! (`turn/run.rs`). A run that does not count leaves nothing. Each effect is handled in one of
//! three ways. So it is with commands that write several keys in a pool, whose run is taken back
//! when one of the writes finds no room (CE8 whole-or-nothing):
//!
//! | effect | in a run | if it counts | if not |
//! |---|---|---|---|
//! | values, versions, access marks | the engine's | committed | dropped |
//! | the session's counters | counted apart | added | dropped |
//! | log records, by the commit hook | in the group being written | a group | cut off |
//! | the expiry index | noted ([`Effects::deadlines`]) | reconciled | dropped |
//! | what blocked clients wait for | noted ([`Effects::written`]) | announced | dropped |
//! | SCAN cursors | drawn, noted ([`Effects::cursors`]) | given out | dropped |
//! | random draws | drawn | kept | the generator is reset: the same again |
//! | numbers of databases (FLUSHALL, SWAPDB) | changed, an image kept | old trees dropped | restored |
//! | what others watch there | changed, an image kept | image released | restored |
//! | the client's settings (SELECT, …), its own watches, its transaction | changed | kept | restored |
//! | the reply | written | sent | cut off |
//! | calls of [`crate::Host`]: INFO, MONITOR, SLOWLOG, LATENCY | noted | made | dropped |
//! | a slice's state | changed | kept | restored |
//!
//! The numbers of databases change under all gates, which the run holds until it has ended, so
//! nobody sees what is restored.
//!
//! Invariants:
//! - **RR1 effects-once** The effects of a request outside the engine become visible once, when one
//!   of its runs counts, however often it ran.
//! - **RR2 same-draws** A repetition draws what the previous run drew.
//! - **RR3 hosts-once** A command of the host that has side effects is executed once. On its own it
//!   touches no key, so its run counts (TX4 untouched-is-done). In an EXEC its reply is kept for
//!   repetitions, and it is not executed while the run is blind. SNAPSHOT CREATE and DROP, which
//!   EXEC does not accept, run once in the same way.
//!
//! Deliberately absent: any cost where no run is dropped. There are no `Effects` then, and the
//! places that note an effect ask for it only when there are some. In an EXEC on an engine that
//! repeats runs, the host is notified of commands when all have run: it knows their number and
//! order, not each one's duration; its own commands come before them. INFO there counts what was
//! before the EXEC.

use std::sync::Arc;

use pando_engine::{LogEpoch, TreeId};

use crate::cursors::ScanPosition;
use crate::expiry::Replaced;
use crate::lines::Place;
use crate::mapping::TreesImage;
use crate::statistics::SessionCounters;
use crate::watchers::WatchImage;

/// The effects of the current run; see the module's header.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// The session's own counters, which count nothing meanwhile.
    pub(crate) counters: Arc<SessionCounters>,
    /// The generator's state when the run began.
    pub(crate) random: fastrand::Rng,
    /// The latest epoch that the command could reveal by then.
    pub(crate) observed: LogEpoch,
    /// Keys one of whose deadlines has changed, with the deadline that was replaced.
    pub(crate) deadlines: Vec<(TreeId, Box<[u8]>, Replaced)>,
    /// Cursors to publish.
    pub(crate) cursors: Vec<(u64, ScanPosition)>,
    /// What blocked clients may wait for and was written (BL2 announced-when-visible).
    pub(crate) written: Vec<Place>,
    /// Remaining work of mapping changes, to be done or undone.
    pub(crate) mapping: Option<MappingImage>,
}

/// The mapping of database numbers before the run changed it.
#[derive(Debug)]
pub(crate) struct MappingImage {
    pub(crate) trees: TreesImage,
    pub(crate) watches: WatchImage,
    /// Trees that the run made.
    pub(crate) made: Vec<TreeId>,
    /// Trees to which no number leads any more.
    pub(crate) left: Vec<TreeId>,
    /// How many changes were recorded.
    pub(crate) recorded: u64,
}

/// More room for what is noted is not kept for the next run.
const NOTES_KEPT: usize = 64;

impl Effects {
    /// Whether nothing was noted.
    pub(crate) fn is_empty(&self) -> bool {
        self.deadlines.is_empty()
            && self.written.is_empty()
            && self.cursors.is_empty()
            && self.mapping.is_none()
    }

    /// Whether they are kept for the next run.
    pub(crate) fn is_small(&self) -> bool {
        let room = self.deadlines.capacity() + self.written.capacity() + self.cursors.capacity();
        room <= NOTES_KEPT
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
    /// What it has taken for alive.
    Alive,
}

/// Whether this bug is planted; never outside tests.
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
        pub(crate) const ALL: [Self; 14] = [
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
            Self::Alive,
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
