//! Collection: snapshots that nobody needs leave the list, and pages that no version has are freed.
//!
//! Follows §4.4, in small steps that a host runs in the background, each a transaction:
//!
//! ```text
//! Publish ──> … ──> Sweep, some slots of memnode 0 ──> … ──> Sweep of the last memnode ──> Publish
//! …
//! ```
//!
//! - *Publish* takes from the list of kept snapshots what is neither among the newest, nor named,
//!   nor leased, and ends the leases of the dead. It removes lines from the catalog on which
//!   nothing is seen then (`live`), some at a time, and is done again while there are more.
//! - *Sweep* looks at the pages in some slots. A root is its version's. Another page that was made
//!   at x is that of the versions that come from x, without those that come from where it was
//!   copied to. If none of them is seen, but the way to a discretionary copy leads by the page, the
//!   copy is looked at in its turn. If that is needed by nobody, the page is freed.
//!
//! Departs from the paper, which has one lowest id: one old snapshot with a name would keep
//! everything since. And what is seen is compared by the commit that frees. That it is no older
//! than the page's notes of its copies matters: a snapshot in between is in no older list.
//!
//! Invariants:
//! - **MG1 never-again** What is not seen never will be (`live`). So a page that no version has
//!   that is seen is one that none ever will.
//! - **MG2 leased-or-gone** Taking a lease compares the list, taking a snapshot from the list
//!   compares all leases.
//! - **MG3 live-is-current** The commit that frees compares the list of kept snapshots and the
//!   catalog's head, from which it was found out what is seen. Whatever changes that changes one of
//!   these, which never come back to what they were together.

use std::collections::BTreeMap;

use pando_memnode::{Address, MemnodeId, Slot};

use crate::error::Stop;
use crate::fault::{Fault, planted};
use crate::lease::{Lease, LeaseId};
use crate::limits::LINES_REMOVED;
use crate::live::Live;
use crate::page::{self, Page};
use crate::retention::Kept;
use crate::snapshot::{FIXED_SLOTS, SnapshotId};
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
        /// Whether lines are left on which nothing is seen.
        has_more: bool,
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
            (
                Done::Published {
                    leases,
                    dropped,
                    has_more,
                },
                Step::Publish { ended },
            ) => {
                self.collected.snapshots += dropped as u64;
                self.collected.leases += ended.len() as u64;
                let before = std::mem::take(&mut self.seen);
                for Lease { id, beat, .. } in leases {
                    let same = before.get(&id).filter(|(seen, _)| *seen == beat);
                    let since = same.map_or(now, |(_, since)| *since);
                    self.seen.insert(id, (beat, since));
                }
                if has_more {
                    self.next = Step::Publish { ended: Vec::new() };
                    return;
                }
                (Some(Slot(FIXED_SLOTS)), MemnodeId(0))
            }
            (Done::Swept { next, freed }, Step::Sweep { memnode, .. }) => {
                self.collected.pages += freed as u64;
                match next {
                    Some(next) => (Some(next), *memnode),
                    None if memnode.0 + 1 < self.memnodes => {
                        (Some(Slot(FIXED_SLOTS)), MemnodeId(memnode.0 + 1))
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
    let live = transaction.live()?;
    transaction.needed().clear();
    // Those that leave others first, so that no line is there without those above (MV1 lines-stay).
    let dead = live.dead.iter().rev().take(LINES_REMOVED);
    let dead: Vec<_> = dead.copied().collect();
    let has_more = dead.len() < live.dead.len();
    if dropped > 0 || !dead.is_empty() {
        let mut head = transaction.head()?;
        head.changes += 1;
        transaction.set_head(head);
    }
    for (line, record) in dead {
        transaction.remove_line(line, record)?;
    }
    Ok(Done::Published {
        leases,
        dropped,
        has_more,
    })
}

fn sweep(transaction: &mut Transaction<'_>, memnode: MemnodeId, from: Slot) -> Result<Done, Stop> {
    let (live, listed) = (transaction.live(), transaction.list(memnode, from));
    let (live, listed) = (live?, listed?);
    let (mut garbage, mut is_away) = (Vec::new(), false);
    let pages = listed.slots.into_iter();
    for (slot, state) in pages.filter(|(slot, _)| slot.0 >= FIXED_SLOTS) {
        let Some(page) = page::header(&state.bytes) else {
            continue;
        };
        // What is not here is fetched in one wave for all of them.
        let generation = page.generation();
        let body = page.body().filter(|_| !page.is_discretionary());
        let address = Address {
            memnode,
            slot,
            generation,
        };
        match is_needed(transaction, &live, address, page) {
            Err(Stop::Away) => is_away = true,
            Ok(true) => {}
            Ok(false) => garbage.push((address, state, body)),
            Err(stop) => return Err(stop),
        }
    }
    if is_away {
        return Err(Stop::Away);
    }
    let (freed, next) = (garbage.len(), listed.next);
    for (address, state, body) in garbage {
        transaction.free_listed(address, state);
        if let Some(body) = body {
            transaction.free_unchanged(body);
        }
    }
    Ok(Done::Swept { next, freed })
}

/// Whether a version that is seen has the page, or finds a copy by way of it.
fn is_needed(
    transaction: &mut Transaction<'_>,
    live: &Live,
    address: Address,
    page: Page,
) -> Result<bool, Stop> {
    if page.is_root() {
        return Ok(live.sees(page.created()));
    }
    // The page and copies that it leads to, each with its place in the list of what led there.
    let mut met = vec![(address, 0)];
    let mut pages = vec![(0, page)];
    while let Some((index, page)) = pages.pop() {
        let before = |at: SnapshotId| SnapshotId(at.0 - u64::from(planted(Fault::EarlyFree)));
        let without = page.copies().map(|copied| live.under(before(copied.at)));
        let is_seen = live.under(page.created()) > without.sum();
        if is_seen || transaction.needed().contains(&met[index].0) {
            // What leads there is needed as well.
            let mut at = index;
            while transaction.needed().insert(met[at].0) && at > 0 {
                at = met[at].1;
            }
            return Ok(true);
        }
        // A later copy last, to be looked at first: what leads there is mostly needed for it.
        for copied in page.copies().chain(page.far()) {
            let Some((slot, generation)) = copied.to.filter(|_| live.under(copied.at) > 0) else {
                continue;
            };
            let address = Address {
                slot,
                generation,
                ..address
            };
            // As it is at some time, which will do: a copy that nobody needs stays so.
            let bytes = transaction.fresh_read(address)?;
            let copy = page::header(&bytes).filter(|copy| copy.generation() == generation);
            pages.extend(copy.map(|copy| (met.len(), copy)));
            met.push((address, index));
        }
    }
    Ok(false)
}
