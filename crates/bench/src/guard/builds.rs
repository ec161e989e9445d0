//! The two builds: programs that are there, or revisions built in worktrees of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::sweep::Sweeper;
use super::{GuardError, output_of, scratch};

/// How the names of worktrees begin.
pub(super) const TREE: &str = "tree-";

/// The programs of a build.
#[derive(Debug, Default)]
pub(super) struct Build {
    /// `pando-bench`.
    pub(super) bench: PathBuf,
    /// `pando`, which lies beside it.
    pub(super) server: PathBuf,
}

impl Build {
    fn in_folder_of(bench: PathBuf) -> Self {
        let server = bench.with_file_name("pando");
        Self { bench, server }
    }
}

/// Two builds; the worktrees of revisions are gone, their programs go
/// when this is dropped.
pub(super) struct Builds {
    pub(super) pair: [Build; 2],
    scratch: PathBuf,
    /// Where a revision was built: who removes what is left of it, also after a Ctrl-C.
    sweeper: Option<Sweeper>,
}

impl Builds {
    pub(super) fn prepare(builds: [&str; 2]) -> Result<Self, GuardError> {
        let mut prepared = Self {
            pair: Default::default(),
            scratch: scratch(),
            sweeper: None,
        };
        for (at, build) in builds.into_iter().enumerate() {
            let path = Path::new(build);
            prepared.pair[at] = if path.is_file() {
                let path = std::fs::canonicalize(path);
                Build::in_folder_of(path.map_err(|source| GuardError::Run {
                    program: build.into(),
                    source,
                })?)
            } else {
                prepared.build(build, at)?
            };
        }
        Ok(prepared)
    }

    /// A directory for what is measured.
    pub(super) fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Builds a revision. Both use one target directory, so that the second compiles only what
    /// differs.
    fn build(&mut self, revision: &str, at: usize) -> Result<Build, GuardError> {
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
                "-p",
                "pando-server",
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
        let folder = self.scratch.join(format!("build-{at}"));
        std::fs::create_dir_all(&folder).map_err(failed)?;
        for program in ["pando-bench", "pando"] {
            let built = target.join("release").join(program);
            std::fs::rename(built, folder.join(program)).map_err(failed)?;
        }
        Ok(Build::in_folder_of(folder.join("pando-bench")))
    }
}
