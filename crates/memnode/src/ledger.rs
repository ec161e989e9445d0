//! What a memnode remembers of minitransactions: votes, outcomes, and how far each coordinator is.
//!
//! | field | changed by | read by |
//! |---|---|---|
//! | `prepared` | `prepare`, `decide` | locks after a restart, `Settle`, `InDoubt` |
//! | `outcomes` | whatever ends a minitransaction that may write | retries, `Settle` |
//! | `settled` | the coordinator's next request | everyone: lower numbers are `Stale` |
//! | `retired` | whoever knows that a coordinator is dead | everyone: it runs nothing any more |
//!
//! ```text
//! unknown ── prepare ──> prepared ── decide(commit) ──> committed ─┐
//!    │                      └─────── decide(abort) ──> aborted ────┼─ settle_below ──> settled
//!    └── record, Settle, decide(abort) ──> outcome ────────────────┘
//! ```
//!
//! **The dead.** A coordinator that died settles nothing: its outcomes would stay for ever. And a
//! request of its that is still on its way could commit long after. Whoever knows of the death, as
//! its successor on the same host does, retires it in two steps. First `retire`, at all memnodes:
//! what has no vote is refused from then on, and what has one is listed. When all memnodes have
//! answered and all that was listed is decided, nothing of it is in doubt anywhere, nor can be
//! again. Then `forget` drops its outcomes.
//!
//! Departs from Sinfonia, where a memnode asks a recovery coordinator, and a log holds the votes:
//! the decision is a function of the votes, so everyone who has asked all participants knows it.
//! That may happen at any time, and many times, the coordinator being alive or not.

use std::collections::BTreeMap;

use crate::{
    CoordinatorId, InDoubt, Items, MemnodeId, MinitransactionId, Outcome, SlotState, Standing,
};

/// A vote that binds until the decision.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) items: Items,
    pub(crate) participants: Vec<MemnodeId>,
    /// What it read: a retry of the first phase gets it again.
    pub(crate) reads: Vec<SlotState>,
}

/// How a minitransaction ended here.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    /// In one phase, or with a vote against: the answer that was given.
    Answered(Outcome),
    /// After a vote for it. Whoever voted may be asked again: somebody else may have settled it
    /// before the vote was heard. This is what was read.
    Committed(Vec<SlotState>),
    /// After a vote for it, or before one.
    Aborted,
}

#[derive(Clone, Debug, Default)]
struct Session {
    settled: u64,
    outcomes: BTreeMap<u64, Ended>,
}

/// Lives of a host's coordinators that are over.
#[derive(Clone, Copy, Debug, Default)]
struct Retired {
    /// Lower lives run nothing any more.
    below: u32,
    /// Of lower lives nothing is in doubt at any memnode, and nothing is remembered.
    forgotten: u32,
}

/// See the module's header. All of it must outlive crashes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    prepared: BTreeMap<MinitransactionId, Prepared>,
    sessions: BTreeMap<CoordinatorId, Session>,
    /// By host: there are few, and each has one entry.
    retired: BTreeMap<u32, Retired>,
}

/// What a request for a minitransaction meets.
#[derive(Clone, Debug)]
pub(crate) enum Known<'a> {
    Unknown,
    Prepared(&'a Prepared),
    Ended(&'a Ended),
    Settled,
    /// Its coordinator is dead, and it was not voted for here, nor ever will be.
    Refused,
}

impl Ledger {
    pub(crate) fn known(&self, id: MinitransactionId) -> Known<'_> {
        if let Some(prepared) = self.prepared.get(&id) {
            return Known::Prepared(prepared);
        }
        let session = self.sessions.get(&id.coordinator);
        let outcome = session.and_then(|session| session.outcomes.get(&id.number));
        if let Some(ended) = outcome {
            return Known::Ended(ended);
        }
        let retired = self.retired(id.coordinator.host());
        let is_settled = session.is_some_and(|session| id.number < session.settled);
        if is_settled || id.coordinator.life() < retired.forgotten {
            Known::Settled
        } else if id.coordinator.life() < retired.below {
            Known::Refused
        } else {
            Known::Unknown
        }
    }

    fn retired(&self, host: u32) -> Retired {
        self.retired.get(&host).copied().unwrap_or_default()
    }

    /// Whether a coordinator is dead.
    pub(crate) fn is_retired(&self, coordinator: CoordinatorId) -> bool {
        coordinator.life() < self.retired(coordinator.host()).below
    }

    /// Refuses what lives of a host below `below` have not been voted for.
    pub(crate) fn retire(&mut self, host: u32, below: u32) {
        let retired = self.retired.entry(host).or_default();
        retired.below = retired.below.max(below);
    }

    /// Drops the outcomes of lives of a host below `below`, unless one is in doubt here.
    pub(crate) fn forget(&mut self, host: u32, below: u32) {
        if self.in_doubt_of(host, below).next().is_some() {
            return;
        }
        self.retire(host, below);
        let retired = self.retired.entry(host).or_default();
        retired.forgotten = retired.forgotten.max(below);
        self.sessions
            .retain(|id, _| id.host() != host || id.life() >= below);
    }

    /// The votes of lives of a host below `below`.
    pub(crate) fn in_doubt_of(&self, host: u32, below: u32) -> impl Iterator<Item = InDoubt> + '_ {
        let lives = CoordinatorId::of(host, 0)..CoordinatorId::of(host, below);
        let ids = self.prepared.keys().copied();
        ids.filter(move |id| lives.contains(&id.coordinator))
            .filter_map(|id| self.in_doubt(id))
    }

    pub(crate) fn standing(&self, id: MinitransactionId) -> Option<Standing> {
        match self.known(id) {
            Known::Unknown => None,
            Known::Prepared(_) => Some(Standing::Prepared),
            Known::Ended(Ended::Committed(_)) => Some(Standing::Committed),
            Known::Ended(_) | Known::Refused => Some(Standing::Aborted),
            Known::Settled => Some(Standing::Settled),
        }
    }

    /// Forgets outcomes that the coordinator will not ask for, and says below which number there
    /// are none. Votes stay until they are decided.
    pub(crate) fn settle_below(&mut self, coordinator: CoordinatorId, number: u64) -> u64 {
        if number == 0 || self.is_retired(coordinator) {
            return self.sessions.get(&coordinator).map_or(0, |s| s.settled);
        }
        let session = self.sessions.entry(coordinator).or_default();
        if session.settled < number {
            session.settled = number;
            session.outcomes = session.outcomes.split_off(&number);
        }
        session.settled
    }

    pub(crate) fn prepare(&mut self, id: MinitransactionId, prepared: Prepared) {
        let before = self.prepared.insert(id, prepared);
        assert!(before.is_none(), "{id:?} votes twice");
    }

    /// Takes the vote away; the caller records how it ended.
    pub(crate) fn unprepare(&mut self, id: MinitransactionId) -> Option<Prepared> {
        self.prepared.remove(&id)
    }

    pub(crate) fn record(&mut self, id: MinitransactionId, ended: Ended) {
        debug_assert!(
            id.coordinator.life() >= self.retired(id.coordinator.host()).forgotten,
            "{id:?} was in doubt when its coordinator was forgotten"
        );
        let session = self.sessions.entry(id.coordinator).or_default();
        if id.number >= session.settled {
            session.outcomes.insert(id.number, ended);
        }
    }

    pub(crate) fn prepared(&self) -> impl Iterator<Item = (&MinitransactionId, &Prepared)> {
        self.prepared.iter()
    }

    pub(crate) fn in_doubt(&self, id: MinitransactionId) -> Option<InDoubt> {
        let prepared = self.prepared.get(&id)?;
        Some(InDoubt {
            id,
            participants: prepared.participants.clone(),
        })
    }
}
