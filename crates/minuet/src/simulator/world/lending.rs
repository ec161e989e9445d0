//! The snapshot service: clients ask it by messages, which are lost and late as others are, and
//! read what it lends them. It is on the first host, and dies with it.

use super::super::script::{ACCOUNTS, Work, account};
use super::{Life, Message, Violation, World};
use crate::branch::BranchId;
use crate::proxy::JobId;
use crate::service::{SnapshotService, Wanted};
use crate::snapshot::View;

/// The service hears that a snapshot is made after so long, at most: others go on meanwhile.
const LATE: u64 = 120;

/// Staleness that clients allow, in some seeds.
const STALENESS: u64 = 300;

/// A request for a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    of: Life,
    /// When.
    at: u64,
    branch: BranchId,
}

/// The service, and what it makes.
#[derive(Debug, Default)]
pub(super) struct Lending {
    /// Whether there is one. Some seeds are kept for what they have shown.
    is_there: bool,
    staleness: u64,
    service: SnapshotService<Asked>,
    /// Snapshots that are being made, of which branches.
    makings: Vec<((Life, JobId), BranchId)>,
}

impl Lending {
    pub(super) fn of(seed: u64) -> Self {
        Self {
            is_there: seed.is_multiple_of(3),
            staleness: if seed.is_multiple_of(9) { STALENESS } else { 0 },
            ..Self::default()
        }
    }

    /// Its host has crashed.
    pub(super) fn crash(&mut self) {
        self.service = SnapshotService::default();
        self.makings.clear();
    }

    /// A job's client is gone.
    pub(super) fn gave_up(&mut self, job: (Life, JobId)) {
        let made = self.makings.extract_if(.., |(making, _)| *making == job);
        for (_, branch) in made {
            self.service.made(branch, None);
        }
    }
}

impl World {
    /// A client asks for a snapshot, now and then, and more often while one is being made.
    pub(super) fn ask(&mut self, which: usize) {
        let rarely = if self.lending.makings.is_empty() {
            120
        } else {
            60
        };
        if !self.lending.is_there || self.random.u32(0..rarely) > 0 {
            return;
        }
        let asked = Asked {
            of: Life {
                host: which,
                life: self.hosts[which].life,
            },
            at: self.now,
            branch: self.draw_on(),
        };
        self.post(Message::Ask(asked));
    }

    /// The service hears of it.
    pub(super) fn asked(&mut self, asked: Asked) -> Result<(), Violation> {
        let service = &mut self.lending.service;
        let wanted = Wanted {
            came: service.begun(),
            now: self.now,
            staleness: self.lending.staleness,
        };
        if let Some((asked, view)) = service.request(asked.branch, asked, wanted) {
            self.report.borrowed += 1;
            self.post(Message::Lent(asked, view));
        }
        self.make(asked.branch)
    }

    /// Begins to make a snapshot, if somebody waits for it and none is being made.
    fn make(&mut self, branch: BranchId) -> Result<(), Violation> {
        if !self.lending.service.begin(branch, self.now) {
            return Ok(());
        }
        let host = &self.hosts[0];
        let life = Life {
            host: 0,
            life: host.life,
        };
        let job = (life, JobId(host.next_job + 1));
        self.lending.makings.push((job, branch));
        self.start(0, (Work::Snapshot, branch))
    }

    /// A job has ended, which may be a making; with what it made.
    pub(super) fn made(&mut self, job: (Life, JobId), view: Option<View>) {
        let makings = &mut self.lending.makings;
        if let Some(at) = makings.iter().position(|(making, _)| *making == job) {
            let (_, branch) = makings.swap_remove(at);
            self.enqueue(Message::Made(job.0, branch, view), LATE);
        }
    }

    /// The service hears of it.
    pub(super) fn heard(
        &mut self,
        life: Life,
        branch: BranchId,
        view: Option<View>,
    ) -> Result<(), Violation> {
        if self.hosts[0].life != life.life {
            return Ok(());
        }
        let served = self.lending.service.made(branch, view);
        self.report.borrowed += served.len().saturating_sub(1);
        if let Some(view) = view {
            for asked in served {
                self.post(Message::Lent(asked, view));
            }
        }
        self.make(branch)
    }

    /// A client reads what it was lent: all that had committed before it asked is there, but for
    /// the staleness.
    pub(super) fn lent(&mut self, asked: Asked, view: View) -> Result<(), Violation> {
        let Life { host, life } = asked.of;
        if self.hosts[host].life != life {
            return Ok(());
        }
        let at = asked.at.saturating_sub(self.lending.staleness);
        self.history.lend(at, view.snapshot);
        // What changes often shows what is missing.
        let keys = (0..4).map(|_| self.key());
        let reads = keys.chain((0..ACCOUNTS).map(account)).collect();
        let from = self.key();
        let work = Work::Past { view, reads, from };
        self.start(host, (work, asked.branch))
    }
}
