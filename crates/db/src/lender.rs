//! Recent snapshots, which connections share (SNAPSHOT USE RECENT), and the leases of all who use
//! a snapshot.
//!
//! Who lends which snapshot to whom is [`SnapshotService`]'s to say, for every engine: a request
//! may borrow the newest snapshot of its branch whose making began after it came, or one that is at
//! most `staleness_ms` old. A snapshot that is lent has no owner. It stays while somebody has a
//! lease of it or may still borrow it, and then goes.
//!
//! | field | writer | under | reader |
//! |---|---|---|---|
//! | `service` | makers and droppers of snapshots that are lent | all gates, and its mutex | whoever asks, under a gate, and its mutex |
//! | `makings` | makers | all gates, `Relaxed` | turns under a gate, `Relaxed` |
//! | a lease's `beat` (`snapshots`) | its reader | a gate, `Relaxed` | maintenance, at last under all gates, `Relaxed` |
//! | a snapshot's leases | readers | a gate, and their mutex | the same as `beat` |
//!
//! Invariants:
//! - **LD1 made-after-it-came** Whoever allows no staleness is shown a snapshot that was made after
//!   its request had come. A turn's requests were read before it began (`Turn::lead`), and a making
//!   holds all gates: so one that the turn did not see when it had its gate came later.
//! - **LD2 leased-stays** A snapshot that is lent goes for no other reason than a command, or
//!   memory, while a lease of it stands; that is judged under all gates, where nobody reads. A
//!   reader renews its lease in every turn in which it reads, after it has asked whether the
//!   snapshot is still there (NS2 asked-every-turn of `snapshots`).
//!
//! Deliberately absent: the leases of `minuet`, which are for processes beside each other. In one
//! process the tree's name of a snapshot stands for all of its readers' leases here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pando_minuet::{BranchId, SnapshotService, Wanted};
use pando_sync::lock;

use crate::clock::Milliseconds;
#[cfg(test)]
use crate::durable::testing::{Fault, is};
use crate::limits;
use crate::snapshots::NamedSnapshot;
use crate::view::Moment;

/// Lends snapshots; see the module's header.
#[derive(Debug)]
pub(crate) struct Lender {
    service: Mutex<SnapshotService<(), Moment>>,
    /// How many makings have begun.
    makings: AtomicU64,
    staleness_ms: AtomicU64,
    /// After so long without a turn of its reader a lease ends; 0 is never.
    lease_ms: AtomicU64,
    /// How often somebody shared a snapshot.
    borrowed: AtomicU64,
}

impl Default for Lender {
    fn default() -> Self {
        Self {
            service: Mutex::default(),
            makings: AtomicU64::new(0),
            staleness_ms: AtomicU64::new(0),
            lease_ms: AtomicU64::new(limits::LEASE_MS),
            borrowed: AtomicU64::new(0),
        }
    }
}

impl Lender {
    pub(crate) fn set_staleness(&self, staleness: Milliseconds) {
        self.staleness_ms.store(staleness.0, Ordering::Relaxed);
    }

    pub(crate) fn set_lease(&self, lease: Milliseconds) {
        self.lease_ms.store(lease.0, Ordering::Relaxed);
    }

    /// How many makings have begun. The caller holds a gate (LD1 made-after-it-came).
    #[inline]
    pub(crate) fn makings(&self) -> u64 {
        self.makings.load(Ordering::Relaxed)
    }

    /// How many snapshots were made to be lent, and how often one was borrowed.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.makings(), self.borrowed.load(Ordering::Relaxed))
    }

    /// The snapshot that a request may borrow which came after so many makings. It exists: the
    /// caller holds a gate.
    pub(crate) fn borrow(&self, branch: BranchId, came: u64, now: Milliseconds) -> Option<Moment> {
        #[cfg(test)]
        let came = if is(Fault::LentLate) { 0 } else { came };
        let lent = lock(&self.service).lend(branch, self.wanted(came, now));
        self.borrowed
            .fetch_add(u64::from(lent.is_some()), Ordering::Relaxed);
        lent
    }

    fn wanted(&self, came: u64, now: Milliseconds) -> Wanted {
        Wanted {
            came,
            now: now.0,
            staleness: self.staleness_ms.load(Ordering::Relaxed),
        }
    }

    /// The caller, which may borrow none and holds all gates, makes one by `make`.
    pub(crate) fn make<E>(
        &self,
        branch: BranchId,
        now: Milliseconds,
        make: impl FnOnce() -> Result<Arc<NamedSnapshot>, E>,
    ) -> Result<Arc<NamedSnapshot>, E> {
        {
            let mut service = lock(&self.service);
            let present = Wanted {
                staleness: 0,
                ..self.wanted(service.begun(), now)
            };
            let served = service.request(branch, (), present);
            assert!(served.is_none() && service.begin(branch, now.0));
            self.makings.store(service.begun(), Ordering::Relaxed);
        }
        let made = make();
        let moment = made.as_ref().ok().map(|made| made.moment);
        lock(&self.service).made(branch, moment);
        made
    }

    /// A snapshot goes. The caller holds all gates.
    pub(crate) fn forget(&self, snapshot: &NamedSnapshot) {
        lock(&self.service).forget(&snapshot.moment);
    }

    /// Whether a snapshot was lent, and nobody has a lease of it or may borrow it any more (LD2
    /// leased-stays).
    pub(crate) fn has_lapsed(&self, snapshot: &NamedSnapshot, now: Milliseconds) -> bool {
        let staleness = self.staleness_ms.load(Ordering::Relaxed);
        let may_lend = || lock(&self.service).may_lend(&snapshot.moment, now.0, staleness);
        let is_used = self.leases_of(snapshot, now) > 0;
        #[cfg(test)]
        let is_used = is_used && !is(Fault::LeaseIgnored);
        snapshot.is_lent && !is_used && !may_lend()
    }

    /// How many leases of a snapshot stand.
    pub(crate) fn leases_of(&self, snapshot: &NamedSnapshot, now: Milliseconds) -> usize {
        snapshot
            .leases
            .standing(now, Milliseconds(self.lease_ms.load(Ordering::Relaxed)))
    }
}
