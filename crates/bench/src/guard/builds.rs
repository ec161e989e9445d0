//! The two builds: programs that are there, or revisions built in worktrees of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::sweep::Sweeper;
use super::{GuardError, output_of, scratch};

/// How the names of worktrees begin.
pub(super) const TREE: &str = "tree-";

/// Two programs; the worktrees of revisions are gone, their programs go when this is dropped.
pub(super) struct Builds {
    pub(super) programs: [PathBuf; 2],
    scratch: PathBuf,
    /// Where a revision was built: who removes what is left of it, also after a Ctrl-C.
    sweeper: Option<Sweeper>,
}

impl Builds {
    pub(super) fn prepare(builds: [&str; 2]) -> Result<Self, GuardError> {
        let mut prepared = Self {
            programs: [PathBuf::new(), PathBuf::new()],
            scratch: scratch(),
            sweeper: None,
        };
        for (at, build) in builds.into_iter().enumerate() {
            let path = Path::new(build);
            prepared.programs[at] = if path.is_file() {
                std::fs::canonicalize(path).map_err(|source| GuardError::Run {
                    program: build.into(),
                    source,
                })?
            } else {
                prepared.build(build, at)?
            };
        }
        Ok(prepared)
    }

    /// Builds a revision. Both use one target directory, so that the second compiles only what
    /// differs.
    fn build(&mut self, revision: &str, at: usize) -> Result<PathBuf, GuardError> {
        let tree = self.scratch.join(format!("{TREE}{at}"));
        let target = self.scratch.join("target");
        let failed = |source| GuardError::Run {
            program: "git".into(),
            source,
        };
        std::fs::create_dir_all(&self.scratch).map_err(failed)?;
        if self.sweeper.is_none() {
            self.sweeper = Some(Sweeper::start(&self.scratch)?);
        }
        let sweeper = self.sweeper.as_mut().expect("it was started");
        let mut add = Command::new("git");
        add.args(["worktree", "add", "--detach"])
            .arg(&tree)
            .arg(revision);
        sweeper.run(&mut add, &format!("git worktree of {revision}"))?;
        println!("building {revision}");
        let mut build = Command::new("cargo");
        build
            .args([
                "build",
                "--release",
                "--locked",
                "-p",
                "pando-bench",
                "--target-dir",
            ])
            .arg(&target)
            .current_dir(&tree);
        let built = sweeper.run(&mut build, &format!("the build of {revision}"));
        let mut remove = Command::new("git");
        remove.args(["worktree", "remove", "--force"]).arg(&tree);
        // Left behind it is removed at the end.
        let _ = output_of(&mut remove, "git worktree remove");
        built?;
        let program = self.scratch.join(format!("pando-bench-{at}"));
        std::fs::rename(target.join("release/pando-bench"), &program).map_err(failed)?;
        Ok(program)
    }
}
