//! The two builds: programs that are there, or revisions built in worktrees of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{GuardError, output_of, scratch};

/// Two programs; the worktrees of revisions are gone, their programs go when this is dropped.
pub(super) struct Builds {
    pub(super) programs: [PathBuf; 2],
    scratch: PathBuf,
}

impl Builds {
    pub(super) fn prepare(builds: [&str; 2]) -> Result<Self, GuardError> {
        let mut prepared = Self {
            programs: [PathBuf::new(), PathBuf::new()],
            scratch: scratch(),
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
    fn build(&self, revision: &str, at: usize) -> Result<PathBuf, GuardError> {
        let tree = self.scratch.join(format!("tree-{at}"));
        let target = self.scratch.join("target");
        let failed = |source| GuardError::Run {
            program: "git".into(),
            source,
        };
        std::fs::create_dir_all(&self.scratch).map_err(failed)?;
        let mut add = Command::new("git");
        add.args(["worktree", "add", "--detach"])
            .arg(&tree)
            .arg(revision);
        output_of(&mut add, &format!("git worktree of {revision}"))?;
        let worktree = Worktree(&tree);
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
        let built = output_of(&mut build, &format!("the build of {revision}"));
        drop(worktree);
        built?;
        let program = self.scratch.join(format!("pando-bench-{at}"));
        std::fs::rename(target.join("release/pando-bench"), &program).map_err(failed)?;
        Ok(program)
    }
}

/// A worktree that is removed when dropped.
struct Worktree<'t>(&'t Path);

impl Drop for Worktree<'_> {
    fn drop(&mut self) {
        let mut remove = Command::new("git");
        remove.args(["worktree", "remove", "--force"]).arg(self.0);
        // Left behind it is listed by `git worktree list` and does no harm.
        let _ = output_of(&mut remove, "git worktree remove");
    }
}

impl Drop for Builds {
    fn drop(&mut self) {
        // Made only for revisions.
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}
