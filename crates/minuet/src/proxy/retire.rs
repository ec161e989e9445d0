//! Lives of coordinators that are over: what they left behind is settled, then forgotten.
//!
//! ```text
//! retire ──> asking, at all memnodes ──> settling what they list ──> forgetting ──> over
//! ```
//!
//! Why two rounds, and why nothing commits after them, `pando_memnode`'s `ledger` says. Several may
//! retire the same lives at once, and each may die in the middle.

use std::collections::BTreeSet;

use pando_memnode::{MemnodeId, MinitransactionId, Reply, Request};

use super::{Owner, Proxy};

/// How far it is.
#[derive(Clone, Debug)]
pub(super) struct Retiring {
    below: u32,
    /// Memnodes that have answered this round.
    answered: BTreeSet<MemnodeId>,
    /// What they listed, as far as it is not settled.
    doubts: BTreeSet<MinitransactionId>,
    forgetting: bool,
}

impl Proxy {
    /// Retires the lives of a host's coordinator below `below`. They must be over: what one of them
    /// still tries fails with [`crate::Error::Retired`].
    pub fn retire(&mut self, host: u32, below: u32) {
        let before = self.retiring.remove(&host);
        let below = before.map_or(below, |before| before.below.max(below));
        self.outstanding
            .retain(|_, waiting| !matches!(waiting.owner, Owner::Retiring(of) if of == host));
        let retiring = Retiring {
            below,
            answered: BTreeSet::new(),
            doubts: BTreeSet::new(),
            forgetting: false,
        };
        self.retiring.insert(host, retiring);
        self.send_retiring(host, &Request::Retire { host, below });
    }

    fn send_retiring(&mut self, host: u32, request: &Request) {
        for memnode in 0..self.config.memnodes {
            self.send(Owner::Retiring(host), MemnodeId(memnode), request.clone());
        }
    }

    pub(super) fn retire_further(&mut self, host: u32, from: MemnodeId, reply: &Reply) {
        if let Reply::InDoubt(doubts) = reply {
            for doubt in doubts {
                self.settle(doubt);
            }
            if let Some(retiring) = self.retiring.get_mut(&host) {
                retiring.answered.insert(from);
                let ids = doubts.iter().map(|doubt| doubt.id);
                retiring.doubts.extend(ids);
            }
        }
        self.retire_on(host);
    }

    /// A minitransaction is settled, perhaps one that was listed.
    pub(super) fn retire_settled(&mut self, id: MinitransactionId) {
        let host = id.coordinator.host();
        if let Some(retiring) = self.retiring.get_mut(&host)
            && retiring.doubts.remove(&id)
        {
            self.retire_on(host);
        }
    }

    fn retire_on(&mut self, host: u32) {
        let all = usize::from(self.config.memnodes);
        let Some(retiring) = self.retiring.get_mut(&host) else {
            return;
        };
        if retiring.answered.len() < all || !retiring.doubts.is_empty() {
            return;
        }
        if retiring.forgetting {
            self.retiring.remove(&host);
            return;
        }
        retiring.forgetting = true;
        retiring.answered.clear();
        let below = retiring.below;
        self.send_retiring(host, &Request::Forget { host, below });
    }
}
