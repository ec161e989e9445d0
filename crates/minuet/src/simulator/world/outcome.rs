//! How transactions end, whether their clients hear of it or not.

use pando_memnode::MinitransactionId;

use super::super::history::Ran;
use super::super::script::{Effects, Merging, Script, Work};
use super::{Known, Life, Running, Unheard, Violation, World};
use crate::branch::Origin;
use crate::error::Error;
use crate::proxy::JobId;
use crate::snapshot::View;
use crate::tree::{Merged, MergedKey, OnConflict};

impl World {
    pub(super) fn unhear(&mut self, host: usize, life: u64, running: &Running) {
        let Some(id) = running.job.committing() else {
            return;
        };
        let script = running.job.program();
        let ran = Ran {
            begin: running.begin,
            end: None,
            seen: script.seen.clone(),
        };
        let nodes = self.nodes.iter();
        let unheard = Unheard {
            ran,
            effects: script.effects,
            of: Life { host, life },
            committed: nodes.into_iter().any(|node| node.memnode.has_committed(id)),
        };
        self.unheard.insert(id, unheard);
    }

    /// Notes which of the unheard have committed at a memnode by now; those that are over may not.
    pub(super) fn note_commits(
        &mut self,
        which: usize,
        id: MinitransactionId,
    ) -> Result<(), Violation> {
        let Some(unheard) = self.unheard.get_mut(&id) else {
            return Ok(());
        };
        if unheard.committed || !self.nodes[which].memnode.has_committed(id) {
            return Ok(());
        }
        unheard.committed = true;
        let Life { host, life } = unheard.of;
        let alive = &self.hosts[host];
        let is_dead = self.over.get(&host).is_some_and(|over| life < *over);
        if is_dead || (alive.life == life && !alive.proxy.is_open(id)) {
            return Err(self.violation(format!("{id:?} was over, and commits")));
        }
        Ok(())
    }

    pub(super) fn note_all_commits(&mut self, which: usize) -> Result<(), Violation> {
        let ids: Vec<_> = self.unheard.keys().copied().collect();
        ids.into_iter()
            .try_for_each(|id| self.note_commits(which, id))
    }

    pub(super) fn ended(
        &mut self,
        which: usize,
        id: JobId,
        ended: Option<Result<(), Error>>,
    ) -> Result<(), Violation> {
        let Some(ended) = ended else {
            return Ok(());
        };
        let running = self.hosts[which].jobs.remove(&id).expect("a job");
        let life = self.hosts[which].life;
        if self.collecting == Some((Life { host: which, life }, id)) {
            self.collecting = None;
        }
        let script = running.job.program();
        let is_built = self.site.as_ref().is_some_and(|site| {
            let job = (Life { host: which, life }, id);
            site.job == Some(job)
        });
        if is_built {
            self.built(ended.is_ok().then(|| script.clone()));
        }
        let made = script.effects.made.filter(|_| ended.is_ok());
        let job = (Life { host: which, life }, id);
        self.settle(which, &running, ended)?;
        self.made(job, made);
        Ok(())
    }

    /// What follows from how a transaction ended.
    fn settle(
        &mut self,
        which: usize,
        running: &Running,
        ended: Result<(), Error>,
    ) -> Result<(), Violation> {
        let script = running.job.program();
        match ended {
            Ok(()) => {
                let script = script.clone();
                if let Work::Merge { on_conflict, .. } = script.work {
                    self.judge_merge(&script.merged, on_conflict)?;
                }
                self.succeeded(which, running.begin, script);
                Ok(())
            }
            Err(error) => {
                let failed = self.fails(which, &error, script);
                if error == Error::NoBranch {
                    let dropping = &self.dropping;
                    self.branches.retain(|known| {
                        let is_named = matches!(&script.work,
                            Work::Drop { name } if *name == known.name);
                        let is_gone = known.id == script.on && dropping.contains(&known.id);
                        !is_named && !is_gone
                    });
                }
                self.hosts[which].lease = self.hosts[which].lease.filter(|lease| {
                    let is_lost = matches!(script.work, Work::Lease { id, .. } | Work::Renew(id)
                        if id == lease.id);
                    !is_lost
                });
                failed
            }
        }
    }

    /// Whether somebody began to drop a branch that a script uses.
    fn may_be_gone(&self, script: &Script) -> bool {
        let other = match &script.work {
            Work::Registers { beside, .. } => *beside,
            Work::Apply { building, .. } | Work::Adopt(building) => Some(building.ours),
            Work::Merge {
                of: Merging::Branch(branch),
                ..
            }
            | Work::Compare { other: branch, .. }
            | Work::Branch {
                from: Origin::Branch(branch),
                ..
            } => Some(*branch),
            Work::Drop { name } | Work::Reset { name, .. } => {
                // Others may know already that it is gone.
                let mut known = self.branches.iter();
                let known = known.find(|known| known.name == *name);
                return known.is_none_or(|known| self.dropping.contains(&known.id));
            }
            _ => None,
        };
        let used = [Some(script.on), other];
        let mut used = used.into_iter().flatten();
        used.any(|branch| self.dropping.contains(&branch))
    }

    /// Whether a transaction may fail like this.
    pub(super) fn fails(
        &self,
        which: usize,
        error: &Error,
        script: &Script,
    ) -> Result<(), Violation> {
        let lease = self.hosts[which].lease;
        let is_valid = |is: bool| is && lease.is_some_and(|lease| self.now <= lease.until);
        let allowed = match (&script.work, error) {
            (_, Error::Outdated) => script.held.is_some(),
            (_, Error::NoBranch) => self.may_be_gone(script),
            (
                Work::Past { view, .. }
                | Work::Reset { to: view, .. }
                | Work::Branch {
                    from: Origin::Snapshot(view),
                    ..
                },
                Error::NoSnapshot,
            ) => !is_valid(lease.is_some_and(|lease| lease.view == *view)),
            (Work::Renew(id), Error::NoLease) => {
                !is_valid(lease.is_some_and(|lease| lease.id == *id))
            }
            (work, Error::NoSnapshot) => matches!(
                work,
                Work::Lease { .. } | Work::Name { .. } | Work::Unname(_) | Work::Merge { .. }
            ),
            (_, Error::Contended) | (Work::Name { .. }, Error::NameTaken) => true,
            _ => false,
        };
        if allowed {
            return Ok(());
        }
        Err(self.violation(format!("{:?}: {error}", script.work)))
    }

    /// Whether a merge did what it is to do, given the three versions that it saw.
    fn judge_merge(&self, merged: &Merged, on_conflict: OnConflict) -> Result<(), Violation> {
        let is_conflict = |key: &&MergedKey| {
            let value = |entry: &Option<(u64, Vec<u8>)>| entry.clone().map(|(_, value)| value);
            let (base, theirs) = (value(&key.change.before), value(&key.change.after));
            key.ours.value != base && key.ours.value != theirs
        };
        let conflicts = merged.keys.iter().filter(is_conflict).count();
        for key in &merged.keys {
            let theirs = key.change.after.as_ref().map(|(_, value)| value);
            let changes = key.ours.value.as_ref() != theirs;
            let expected = match on_conflict {
                OnConflict::Fail => changes && conflicts == 0,
                OnConflict::Ours => changes && !is_conflict(&key),
                OnConflict::Theirs => changes,
            };
            if key.written.is_some() != expected {
                return Err(self.violation(format!("{on_conflict:?} merged {key:?}")));
            }
        }
        Ok(())
    }

    pub(super) fn succeeded(&mut self, which: usize, begin: u64, script: Script) {
        if self.random.u32(0..16) == 0 {
            self.hosts[which].held = script.used.filter(View::is_tip);
        }
        self.report.committed += 1;
        match script.work {
            Work::Lease { id, .. } | Work::Renew(id) => {
                let until = begin + self.lease_time;
                let lease = self.hosts[which].lease.as_mut();
                if let Some(lease) = lease.filter(|lease| lease.id == id) {
                    lease.until = until.max(lease.until);
                }
            }
            Work::Collect(_) => {
                // It is no transaction of a client's.
                self.report.committed -= 1;
                let done = script.collected.expect("a step does something");
                self.collector.done(self.now, done);
                return;
            }
            Work::Diff { .. } => self.diffed = script.diffed,
            Work::Branch { name, .. } => {
                let began = script.effects.began.expect("a branch");
                let id = began.branch;
                if !self.is_of_site(id) {
                    self.branches.push(Known { id, name });
                }
            }
            _ => {}
        }
        let ran = Ran {
            begin,
            end: Some(self.now),
            seen: script.seen,
        };
        self.ran(ran, &script.effects);
    }

    pub(super) fn ran(&mut self, ran: Ran, effects: &Effects) {
        self.history.add(ran, effects);
        self.snapshots.extend(effects.made);
        if let Some(dropped) = effects.dropped {
            self.branches.retain(|known| known.id != dropped);
        }
    }
}
