//! What a memnode remembers of minitransactions: votes, outcomes, and how far each coordinator is.
//!
//! | field | changed by | read by |
//! |---|---|---|
//! | `prepared` | `prepare`, `decide` | locks after a restart, `Settle`, `InDoubt` |
//! | `outcomes` | whatever ends a minitransaction that may write | retries, `Settle` |
//! | `settled` | the coordinator's next request | everyone: lower numbers are `Stale` |
//!
//! ```text
//! unknown ── prepare ──> prepared ── decide(commit) ──> committed ─┐
//!    │                      └─────── decide(abort) ──> aborted ────┼─ settle_below ──> settled
//!    └── record, Settle, decide(abort) ──> outcome ────────────────┘
//! ```
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

/// See the module's header. All of it must outlive crashes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    prepared: BTreeMap<MinitransactionId, Prepared>,
    sessions: BTreeMap<CoordinatorId, Session>,
}

/// What a request for a minitransaction meets.
#[derive(Clone, Debug)]
pub(crate) enum Known<'a> {
    Unknown,
    Prepared(&'a Prepared),
    Ended(&'a Ended),
    Settled,
}

impl Ledger {
    pub(crate) fn known(&self, id: MinitransactionId) -> Known<'_> {
        if let Some(prepared) = self.prepared.get(&id) {
            return Known::Prepared(prepared);
        }
        let Some(session) = self.sessions.get(&id.coordinator) else {
            return Known::Unknown;
        };
        match session.outcomes.get(&id.number) {
            Some(ended) => Known::Ended(ended),
            None if id.number < session.settled => Known::Settled,
            None => Known::Unknown,
        }
    }

    pub(crate) fn standing(&self, id: MinitransactionId) -> Option<Standing> {
        match self.known(id) {
            Known::Unknown => None,
            Known::Prepared(_) => Some(Standing::Prepared),
            Known::Ended(Ended::Committed(_)) => Some(Standing::Committed),
            Known::Ended(_) => Some(Standing::Aborted),
            Known::Settled => Some(Standing::Settled),
        }
    }

    /// Forgets outcomes that the coordinator will not ask for, and says below which number there
    /// are none. Votes stay until they are decided.
    pub(crate) fn settle_below(&mut self, coordinator: CoordinatorId, number: u64) -> u64 {
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
