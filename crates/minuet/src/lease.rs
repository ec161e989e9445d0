//! Leases: who reads a snapshot says so, and it stays.
//!
//! Leases are in one slot of each memnode, each at its coordinator's home. Who takes one compares
//! the list of kept snapshots in the same minitransaction, at that memnode alone; who takes a
//! snapshot from the list compares the leases of all memnodes in the minitransaction that does so
//! (`collect`). So one of the two comes first, and the other sees it.
//!
//! A lease has a beat. Its reader renews it by another beat; of a dead reader's, the beat stays,
//! and whoever collects ends it when it has seen the same beat for long enough by its own clock.
//! So clocks need not agree. A reader may rely on its lease for that time from the moment at which
//! its last renewal began.
//!
//! An entry, little-endian: coordinator (8), number (8), snapshot (8), beat (8).

use pando_memnode::{Address, CoordinatorId, MemnodeId, Sequence, Slot};

use crate::error::{Error, Stop};
use crate::fault::{Fault, planted};
use crate::limits::LEASES_MAX;
use crate::snapshot::{SnapshotId, View};
use crate::transaction::Transaction;

/// The slot of the leases, on each memnode.
const LEASES: Slot = Slot(2);

/// Bytes of an entry.
pub(crate) const LEASE_BYTES: usize = 32;

/// Names a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseId {
    /// Whose it is.
    pub coordinator: CoordinatorId,
    /// Which of its; it uses each number once.
    pub number: u64,
}

/// A lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its name.
    pub id: LeaseId,
    /// What is read.
    pub snapshot: SnapshotId,
    /// How often it was renewed.
    pub beat: u64,
}

/// Where a memnode's leases are: a slot that is never freed.
fn slot(memnode: MemnodeId) -> Address {
    Address {
        memnode,
        slot: LEASES,
        generation: Sequence(0),
    }
}

fn decode(bytes: &[u8]) -> Vec<Lease> {
    let (entries, _) = bytes.as_chunks::<LEASE_BYTES>();
    let lease = |entry: &[u8; LEASE_BYTES]| {
        let number = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("eight"));
        let id = LeaseId {
            coordinator: CoordinatorId(number(0)),
            number: number(8),
        };
        Lease {
            id,
            snapshot: SnapshotId(number(16)),
            beat: number(24),
        }
    };
    entries.iter().map(lease).collect()
}

impl Transaction<'_> {
    pub(crate) fn leases(&mut self, memnode: MemnodeId) -> Result<Vec<Lease>, Stop> {
        Ok(decode(&self.read(slot(memnode))?))
    }

    pub(crate) fn set_leases(&mut self, memnode: MemnodeId, leases: &[Lease]) {
        let mut bytes = Vec::with_capacity(leases.len() * LEASE_BYTES);
        for Lease { id, snapshot, beat } in leases {
            for number in [id.coordinator.0, id.number, snapshot.0, *beat] {
                bytes.extend(number.to_le_bytes());
            }
        }
        // A slot of zero bytes would be free.
        if bytes.is_empty() {
            bytes.push(0);
        }
        self.write_bytes(slot(memnode), bytes.into());
    }

    /// Takes a lease of a snapshot, which must be kept. It then stays while the lease is renewed
    /// (MG2 leased-or-gone). A lease of this id from before ends.
    pub fn lease(&mut self, view: View, id: LeaseId) -> Result<(), Stop> {
        if !planted(Fault::LeaseUnchecked) {
            self.require_kept(view)?;
        }
        let home = self.home(id.coordinator);
        let mut leases = self.leases(home)?;
        leases.retain(|lease| lease.id != id);
        if leases.len() >= LEASES_MAX {
            return Err(Error::TooManyLeases.into());
        }
        leases.push(Lease {
            id,
            snapshot: view.snapshot,
            beat: 0,
        });
        self.set_leases(home, &leases);
        Ok(())
    }

    /// Renews a lease.
    pub fn renew(&mut self, id: LeaseId) -> Result<(), Stop> {
        let home = self.home(id.coordinator);
        let mut leases = self.leases(home)?;
        let lease = leases.iter_mut().find(|lease| lease.id == id);
        lease.ok_or(Error::NoLease)?.beat += 1;
        self.set_leases(home, &leases);
        Ok(())
    }

    /// Ends a lease, if it has not ended yet.
    pub fn release(&mut self, id: LeaseId) -> Result<(), Stop> {
        let home = self.home(id.coordinator);
        let mut leases = self.leases(home)?;
        leases.retain(|lease| lease.id != id);
        self.set_leases(home, &leases);
        Ok(())
    }
}
