//! What clients ask for.

use std::collections::BTreeMap;

use pando_memnode::CoordinatorId;

use super::super::script::{ACCOUNTS, Key, LARGE, Merging, Work};
use super::{Held, Life, Violation, World};
use crate::branch::{BranchId, Origin};
use crate::lease::LeaseId;
use crate::limits::{DESCENDANTS_MAX, DESCENDANTS_MIN};
use crate::proxy::JobId;
use crate::snapshot::View;
use crate::tree::{OnConflict, TreeId};

/// Whether there are large values in a seed's world.
fn has_large_values(seed: u64) -> bool {
    seed.is_multiple_of(4)
}

/// Branches at a time, about.
const BRANCHES: usize = 8;

impl World {
    pub(super) fn key(&mut self) -> Key {
        let number = self.random.u32(0..120);
        (TreeId(1 + number % 2), format!("{number:03}").into_bytes())
    }

    /// A key of a large value.
    fn large(&mut self) -> Key {
        (LARGE, vec![self.random.u8(0..12)])
    }

    fn draw_large(&mut self, number: u64) -> Work {
        let reads = (0..self.random.usize(0..3)).map(|_| self.large()).collect();
        let mut writes = BTreeMap::new();
        for _ in 0..self.random.usize(0..3) {
            let removes = self.random.u32(0..5) < 2;
            writes.insert(self.large(), (!removes).then_some(number));
        }
        Work::Large {
            reads,
            writes: writes.into_iter().collect(),
        }
    }

    /// Starts the next step of the collection.
    pub(super) fn collect(&mut self, which: usize) -> Result<(), Violation> {
        let host = &self.hosts[which];
        let life = Life {
            host: which,
            life: host.life,
        };
        self.collecting = Some((life, JobId(host.next_job + 1)));
        // It is no transaction of a client's.
        self.started -= 1;
        let work = Work::Collect(self.collector.step().clone());
        self.start(which, (work, BranchId::FIRST))
    }

    /// Something about snapshots that are to stay.
    pub(super) fn draw_kept(&mut self, host: usize) -> Work {
        if self.snapshots.is_empty() {
            return Work::Snapshot;
        }
        let view = self.late_snapshot().expect("a snapshot");
        match self.random.u32(0..12) {
            0 => Work::Name {
                view,
                name: self.random.u8(1..4),
            },
            1 => Work::Unname(self.random.u8(1..4)),
            6 => {
                let theirs = self.late_snapshot().expect("a snapshot");
                self.merge(Merging::Snapshots { base: view, theirs })
            }
            draw => match self.hosts[host].lease {
                None => {
                    self.numbers += 1;
                    let id = LeaseId {
                        coordinator: CoordinatorId::of(host as u32, self.hosts[host].life as u32),
                        number: self.numbers,
                    };
                    let until = 0;
                    self.hosts[host].lease = Some(Held { id, view, until });
                    Work::Lease { view, id }
                }
                Some(Held { id, .. }) if draw == 2 => {
                    self.hosts[host].lease = None;
                    Work::Release(id)
                }
                Some(Held { id, until, .. }) if draw < 6 && until > 0 => Work::Renew(id),
                Some(Held { view, .. }) => self.past(view),
            },
        }
    }

    /// One of the last snapshots, which may still be there.
    fn late_snapshot(&mut self) -> Option<View> {
        let first = self.snapshots.len().saturating_sub(6);
        self.random.choice(&self.snapshots[first..]).copied()
    }

    fn merge(&mut self, of: Merging) -> Work {
        let policies = [OnConflict::Fail, OnConflict::Ours, OnConflict::Theirs];
        Work::Merge {
            of,
            // The one without money, which is not to be taken back in part.
            tree: TreeId(1),
            on_conflict: policies[self.random.usize(0..3)],
        }
    }

    /// A branch to work on: often the first, where transactions meet.
    pub(super) fn draw_on(&mut self) -> BranchId {
        if self.random.bool() {
            return BranchId::FIRST;
        }
        self.any_branch()
    }

    fn any_branch(&mut self) -> BranchId {
        self.branches[self.random.usize(0..self.branches.len())].id
    }

    /// Something about branches.
    pub(super) fn draw_branches(&mut self, on: BranchId) -> Work {
        let count = self.branches.len();
        match self.random.u32(0..16) {
            0..6 if count < BRANCHES => {
                self.numbers += 1;
                let snapshot = self.late_snapshot().filter(|_| self.random.bool());
                Work::Branch {
                    name: format!("branch{}", self.numbers).into_bytes(),
                    from: snapshot.map_or(Origin::Branch(on), Origin::Snapshot),
                    descendants_max: self.random.u8(DESCENDANTS_MIN..=DESCENDANTS_MAX),
                }
            }
            6..9 if count > BRANCHES / 2 => {
                let known = &self.branches[self.random.usize(1..count)];
                self.dropping.insert(known.id);
                let name = known.name.clone();
                Work::Drop { name }
            }
            9 if !self.snapshots.is_empty() => {
                let name = self.branches[self.random.usize(0..count)].name.clone();
                let to = self.late_snapshot().expect("a snapshot");
                Work::Reset { name, to }
            }
            10..12 => {
                let theirs = self.any_branch();
                self.merge(Merging::Branch(theirs))
            }
            12..14 => {
                let (tree, from) = self.key();
                Work::Compare {
                    other: self.any_branch(),
                    tree,
                    from,
                    limit: self.random.usize(1..30),
                }
            }
            _ => Work::Snapshot,
        }
    }

    pub(super) fn past(&mut self, view: View) -> Work {
        let mut reads: Vec<Key> = (0..3).map(|_| self.key()).collect();
        if has_large_values(self.seed) {
            reads.push(self.large());
        }
        Work::Past {
            view,
            reads,
            from: self.key(),
        }
    }

    pub(super) fn draw(&mut self) -> Work {
        self.numbers += 1;
        let number = self.numbers;
        if has_large_values(self.seed) && self.random.u32(0..8) == 0 {
            return self.draw_large(number);
        }
        match self.random.u32(0..104) {
            100 => Work::Snapshot,
            101.. if !self.snapshots.is_empty() => {
                let view = self.snapshots[self.random.usize(0..self.snapshots.len())];
                self.past(view)
            }
            0..45 => {
                let reads = (0..self.random.usize(0..3)).map(|_| self.key()).collect();
                let mut writes: BTreeMap<Key, Option<Vec<u8>>> = BTreeMap::new();
                for _ in 0..self.random.usize(0..3) {
                    let mut value = number.to_le_bytes().to_vec();
                    value.resize(8 + self.random.usize(0..24), 0);
                    let removes = self.random.u32(0..5) < 2;
                    writes.insert(self.key(), (!removes).then_some(value));
                }
                let beside = self.random.u32(0..8) == 0;
                Work::Registers {
                    beside: beside.then(|| self.any_branch()),
                    reads,
                    writes: writes.into_iter().collect(),
                }
            }
            45..65 => Work::Transfer {
                from: self.random.u32(0..ACCOUNTS),
                to: self.random.u32(0..ACCOUNTS),
                amount: self.random.u64(1..30),
            },
            65..75 => Work::Audit,
            75..90 => {
                let mut lists = || (0..2).map(|_| self.random.u32(0..64)).collect::<Vec<_>>();
                let (mut to, also) = (lists(), lists());
                to.dedup();
                Work::Append {
                    to,
                    also,
                    number: number as u16,
                }
            }
            _ => {
                let (tree, from) = self.key();
                Work::Scan {
                    tree,
                    from,
                    limit: self.random.usize(1..30),
                }
            }
        }
    }
}
