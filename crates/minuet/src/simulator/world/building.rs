//! A client that merges in many steps: it has two branches made that nobody else knows, of theirs
//! and of ours, merges into the second, and lets ours become it. Others go on meanwhile. When it
//! leaves, whatever it has had made is known to all.

use super::super::script::{Building, Script, Work};
use super::{Known, Life, Planted, Violation, World};
use crate::branch::{BranchId, Origin};
use crate::limits::DESCENDANTS_MAX;
use crate::proxy::JobId;

/// What is next.
#[derive(Clone, Debug)]
enum Stage {
    Theirs,
    Ours,
    /// From this key on.
    Apply(Vec<u8>),
    Adopt,
}

/// A large merge and its client.
#[derive(Clone, Debug)]
pub(super) struct Site {
    /// The step that is under way.
    pub(super) job: Option<(Life, JobId)>,
    stage: Stage,
    theirs: BranchId,
    ours: BranchId,
    takes_theirs: bool,
    /// The branches that it has had made: of theirs, then of ours.
    made: Vec<Known>,
    /// Ours' line, when its branch was made.
    line: u32,
}

/// Whether there are large merges in a seed's world: they take much of its time.
fn builds(seed: u64) -> bool {
    seed % 2 == 1
}

impl World {
    /// Begins a large merge, or its next step.
    pub(super) fn build(&mut self, which: usize) -> Result<(), Violation> {
        if !builds(self.seed) {
            return Ok(());
        }
        let draw = self.random.u32(0..2048);
        if self.site.is_none() && draw == 0 && self.branches.len() > 1 {
            let branches: Vec<_> = self.branches.iter().map(|known| known.id).collect();
            let theirs = branches[self.random.usize(0..branches.len())];
            let ours = branches[self.random.usize(0..branches.len())];
            self.site = (theirs != ours).then(|| Site {
                job: None,
                stage: Stage::Theirs,
                theirs,
                ours,
                takes_theirs: self.random.bool(),
                made: Vec::new(),
                line: 0,
            });
        }
        let Some(site) = self
            .site
            .clone()
            .filter(|it| it.job.is_none() && draw < 512)
        else {
            return Ok(());
        };
        let host = &self.hosts[which];
        let life = Life {
            host: which,
            life: host.life,
        };
        let job = JobId(host.next_job + 1);
        self.site.as_mut().expect("it is there").job = Some((life, job));
        let work = self.next_step(&site);
        self.start(which, (work, BranchId::FIRST))
    }

    fn next_step(&mut self, site: &Site) -> Work {
        self.numbers += 1;
        let branch = |of: BranchId, number: u64| Work::Branch {
            name: format!("hidden{number}").into_bytes(),
            from: Origin::Branch(of),
            descendants_max: DESCENDANTS_MAX,
        };
        let catches_up = self.planted != Planted::Overtaken;
        let building = || Building {
            ours: site.ours,
            line: site.line,
            theirs: site.made[0].id,
            hidden: site.made[1].id,
            name: site.made[1].name.clone(),
            takes_theirs: site.takes_theirs,
            catches_up,
        };
        match &site.stage {
            Stage::Theirs => branch(site.theirs, self.numbers),
            Stage::Ours => branch(site.ours, self.numbers),
            Stage::Apply(from) => Work::Apply {
                building: building(),
                from: from.clone(),
                limit: self.random.usize(1..12),
            },
            Stage::Adopt => Work::Adopt(building()),
        }
    }

    /// A step is over; none: it failed.
    pub(super) fn built(&mut self, done: Option<Script>) {
        let Some(script) = done.filter(|script| !script.gave_up) else {
            return self.leave_site(|_| true);
        };
        let site = self.site.as_mut().expect("it is there");
        site.job = None;
        if let (Work::Branch { name, .. }, Some(began)) = (&script.work, script.effects.began) {
            site.line = began.from.line();
            site.made.push(Known {
                id: began.branch,
                name: name.clone(),
            });
        }
        site.stage = match (&site.stage, script.diffed.next) {
            (Stage::Theirs, _) => Stage::Ours,
            (Stage::Ours, _) => Stage::Apply(Vec::new()),
            (Stage::Apply(_), Some((_, from))) => Stage::Apply(from),
            (Stage::Apply(_), None) => Stage::Adopt,
            (Stage::Adopt, _) => {
                self.report.adopted += 1;
                site.made.pop();
                return self.leave_site(|_| true);
            }
        };
    }

    /// Whether the large merge has had a branch made.
    pub(super) fn is_of_site(&self, id: BranchId) -> bool {
        let site = self.site.as_ref();
        site.is_some_and(|site| site.made.iter().any(|known| known.id == id))
    }

    /// Its client leaves, if its step is such a one.
    pub(super) fn leave_site(&mut self, is_such: impl Fn((Life, JobId)) -> bool) {
        let Some(site) = self.site.take_if(|site| site.job.is_none_or(&is_such)) else {
            return;
        };
        if let (Stage::Adopt, Some(hidden)) = (&site.stage, site.made.get(1)) {
            // It may be gone, and nobody heard of it.
            self.dropping.insert(hidden.id);
        }
        self.branches.extend(site.made);
    }
}
