//! What clients ask for.

use std::collections::BTreeMap;

use pando_memnode::CoordinatorId;

use super::super::script::{ACCOUNTS, Key, Work};
use super::{Held, Life, Violation, World};
use crate::lease::LeaseId;
use crate::proxy::JobId;
use crate::snapshot::View;
use crate::tree::{OnConflict, TreeId};

impl World {
    pub(super) fn key(&mut self) -> Key {
        let number = self.random.u32(0..120);
        (TreeId(1 + number % 2), format!("{number:03}").into_bytes())
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
        self.start(which, Work::Collect(self.collector.step().clone()))
    }

    /// Something about snapshots that are to stay.
    pub(super) fn draw_kept(&mut self, host: usize) -> Work {
        if self.snapshots.is_empty() {
            return Work::Snapshot;
        }
        // Mostly one of the last, which may still be there.
        let last = self.snapshots.len().min(6);
        let first = self.snapshots.len() - last;
        let view = self.snapshots[first + self.random.usize(0..last)].0;
        match self.random.u32(0..12) {
            0 => Work::Name {
                view,
                name: self.random.u8(1..4),
            },
            1 => Work::Unname(self.random.u8(1..4)),
            6 => {
                let other = self.snapshots[first + self.random.usize(0..last)].0;
                let policies = [OnConflict::Fail, OnConflict::Ours, OnConflict::Theirs];
                Work::Merge {
                    base: view,
                    theirs: other,
                    // The one without money, which is not to be taken back in part.
                    tree: TreeId(1),
                    on_conflict: policies[self.random.usize(0..3)],
                }
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

    pub(super) fn past(&mut self, view: View) -> Work {
        let reads = (0..3).map(|_| self.key()).collect();
        Work::Past {
            view,
            reads,
            from: self.key(),
        }
    }

    pub(super) fn draw(&mut self) -> Work {
        self.numbers += 1;
        let number = self.numbers;
        match self.random.u32(0..104) {
            100 => Work::Snapshot,
            101.. if !self.snapshots.is_empty() => {
                let view = self.snapshots[self.random.usize(0..self.snapshots.len())].0;
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
                Work::Registers {
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
