//! Collection: snapshots that nobody needs leave the list, and pages that no version has are freed.
//!
//! Follows §4.4, in small steps that a host runs in the background, each a transaction:
//!
//! ```text
//! Publish ──> Sweep, some slots of memnode 0 ──> … ──> Sweep of the last memnode ──> Publish …
//! ```
//!
//! - *Publish* takes from the list of kept snapshots what is neither among the newest, nor named,
//!   nor leased, and ends the leases of the dead.
//! - *Sweep* looks at the pages in some slots. A page that was made at c and copied at d belongs to
//!   the versions from c up to, not including, d; if none of these is kept, it is freed. A page
//!   that was not copied is the tip's.
//!
//! Departs from the paper, which has one lowest id: one old snapshot with a name would keep
//! everything since. And the list is compared by the commit that frees. That it is no older than
//! the page's note of its copy matters: a snapshot in between is in no older list.
//!
//! Invariants:
//! - **MG1 never-again** A snapshot that left the list stays out, and a new one's id is not below
//!   the tip's. So a page that no kept version has is one that none ever will.
//! - **MG2 leased-or-gone** Taking a lease compares the list, taking a snapshot from the list
//!   compares all leases.

use std::collections::BTreeMap;

use pando_memnode::{Address, MemnodeId, Slot, SlotState};

use crate::error::Stop;
use crate::fault::{Fault, planted};
use crate::lease::{Lease, LeaseId};
use crate::page;
use crate::retention::Kept;
use crate::snapshot::FIXED_SLOTS;
use crate::transaction::Transaction;

/// A step of the collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Takes snapshots from the list.
    Publish {
        /// Leases to be ended, with the beats that they stand at.
        ended: Vec<(LeaseId, u64)>,
    },
    /// Frees pages.
    Sweep {
        /// Of this memnode.
        memnode: MemnodeId,
        /// From this slot.
        from: Slot,
    },
}

/// What a step did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// Of `Publish`.
    Published {
        /// The leases that stand.
        leases: Vec<Lease>,
        /// How many snapshots left the list.
        dropped: usize,
    },
    /// Of `Sweep`.
    Swept {
        /// Where to go on at this memnode.
        next: Option<Slot>,
        /// How many pages were freed.
        freed: usize,
    },
}

/// What was done since the collector began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Rounds over all memnodes.
    pub rounds: u64,
    /// Snapshots that left the list.
    pub snapshots: u64,
    /// Pages that were freed.
    pub pages: u64,
    /// Leases that were ended for their readers.
    pub leases: u64,
}

/// Says what is to be done next. It may be lost at any time, and several do no harm.
#[derive(Clone, Debug)]
pub struct Collector {
    memnodes: u16,
    lease_time: u64,
    next: Step,
    /// The leases that stood when the list was last published: their beats, and since when.
    seen: BTreeMap<LeaseId, (u64, u64)>,
    collected: Collected,
}

impl Collector {
    /// A collector that ends a lease when it has seen the same beat for `lease_time`.
    pub fn new(memnodes: u16, lease_time: u64) -> Self {
        Self {
            memnodes,
            lease_time,
            next: Step::Publish { ended: Vec::new() },
            seen: BTreeMap::new(),
            collected: Collected::default(),
        }
    }

    /// The step to run next, as a transaction of its own. If it fails, it is run again later.
    pub fn step(&self) -> &Step {
        &self.next
    }

    /// What was done so far.
    pub fn collected(&self) -> Collected {
        self.collected
    }

    /// The step is done, at `now`.
    pub fn done(&mut self, now: u64, done: Done) {
        let (from, memnode) = match (done, &self.next) {
            (Done::Published { leases, dropped }, Step::Publish { ended }) => {
                self.collected.snapshots += dropped as u64;
                self.collected.leases += ended.len() as u64;
                let before = std::mem::take(&mut self.seen);
                for Lease { id, beat, .. } in leases {
                    let same = before.get(&id).filter(|(seen, _)| *seen == beat);
                    let since = same.map_or(now, |(_, since)| *since);
                    self.seen.insert(id, (beat, since));
                }
                (Some(Slot(0)), MemnodeId(0))
            }
            (Done::Swept { next, freed }, Step::Sweep { memnode, .. }) => {
                self.collected.pages += freed as u64;
                match next {
                    Some(next) => (Some(next), *memnode),
                    None if memnode.0 + 1 < self.memnodes => {
                        (Some(Slot(0)), MemnodeId(memnode.0 + 1))
                    }
                    None => (None, *memnode),
                }
            }
            (done, step) => unreachable!("{done:?} is of no {step:?}"),
        };
        self.next = if let Some(from) = from {
            Step::Sweep { memnode, from }
        } else {
            self.collected.rounds += 1;
            let ended = self.dead_at(now);
            Step::Publish { ended }
        };
    }

    /// The leases of the dead.
    fn dead_at(&self, now: u64) -> Vec<(LeaseId, u64)> {
        let seen = self.seen.iter();
        let dead = seen.filter(|(_, (_, since))| now.saturating_sub(*since) >= self.lease_time);
        dead.map(|(id, (beat, _))| (*id, *beat)).collect()
    }
}

impl Step {
    /// Runs the step.
    pub fn run(&self, transaction: &mut Transaction<'_>) -> Result<Done, Stop> {
        match self {
            Self::Publish { ended } => publish(transaction, ended),
            Self::Sweep { memnode, from } => sweep(transaction, *memnode, *from),
        }
    }
}

fn publish(transaction: &mut Transaction<'_>, ended: &[(LeaseId, u64)]) -> Result<Done, Stop> {
    let all: Vec<_> = (0..transaction.config().memnodes).map(MemnodeId).collect();
    // All are asked for in one wave.
    let tables: Vec<_> = all
        .iter()
        .map(|memnode| transaction.leases(*memnode))
        .collect();
    let mut leases = Vec::new();
    for (memnode, table) in all.into_iter().zip(tables) {
        let mut table = table?;
        let before = table.len();
        table.retain(|lease| !ended.contains(&(lease.id, lease.beat)));
        if table.len() < before {
            transaction.set_leases(memnode, &table);
        }
        leases.extend(table);
    }
    let list = transaction.kept()?;
    let newest = transaction.config().newest_kept as usize;
    let old = list.len().saturating_sub(newest);
    let is_leased = |kept: &Kept| {
        let mut leases = leases.iter();
        !planted(Fault::LeaseIgnored) && leases.any(|lease| lease.snapshot == kept.view.snapshot)
    };
    let stays =
        |(index, kept): &(usize, &Kept)| *index >= old || kept.name.is_some() || is_leased(kept);
    let kept = list.iter().enumerate().filter(stays);
    let kept: Vec<_> = kept.map(|(_, kept)| kept.clone()).collect();
    let dropped = list.len() - kept.len();
    if dropped > 0 {
        transaction.set_kept(&kept);
    }
    Ok(Done::Published { leases, dropped })
}

fn sweep(transaction: &mut Transaction<'_>, memnode: MemnodeId, from: Slot) -> Result<Done, Stop> {
    let list = transaction.kept()?;
    let listed = transaction.list(memnode, from)?;
    let mut freed = 0;
    let pages = listed.slots.into_iter();
    for (slot, state) in pages.filter(|(slot, _)| slot.0 >= FIXED_SLOTS) {
        if let Some((address, body)) = garbage(memnode, slot, &state, &list) {
            transaction.free_listed(address, state);
            if let Some(body) = body {
                transaction.free_unchanged(body);
            }
            freed += 1;
        }
    }
    let next = listed.next;
    Ok(Done::Swept { next, freed })
}

/// The address of a page that no version has, nor ever will (MG1 never-again), and of a head's
/// body.
fn garbage(
    memnode: MemnodeId,
    slot: Slot,
    state: &SlotState,
    list: &[Kept],
) -> Option<(Address, Option<Address>)> {
    let life = page::Life::of(&state.bytes)?;
    let copied = life.copied?;
    let first = list.partition_point(|kept| kept.view.snapshot < life.created);
    let last = if planted(Fault::EarlyFree) {
        copied.0 - 1
    } else {
        copied.0
    };
    let is_seen = list
        .get(first)
        .is_some_and(|kept| kept.view.snapshot.0 < last);
    let address = Address {
        memnode,
        slot,
        generation: life.generation,
    };
    (!is_seen).then_some((address, life.body))
}
