//! Cleaning up after an interrupted guard: a separate process, which learns of the guard's end by
//! the end of its standard input, whatever the cause.
//!
//! Lines of its input: `group N`, a process group is at work now; `idle`, it is done. At the end of
//! the input the group is ended, the worktrees below the scratch directory are removed, and the
//! directory with them.

use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use super::{GuardError, output_of};

/// How often a directory is removed anew into which a process that is ending still writes.
const REMOVALS_MAX: usize = 1000;

/// The process, seen from the guard. Dropped, it has cleaned up.
#[derive(Debug)]
pub(super) struct Sweeper {
    process: Child,
}

impl Sweeper {
    /// Starts it. It belongs to a process group of its own, so that a terminal's Ctrl-C ends the
    /// guard and not the one who cleans up after it.
    pub(super) fn start(scratch: &Path) -> Result<Self, GuardError> {
        let failed = |source| GuardError::Run {
            program: "the process that cleans up".into(),
            source,
        };
        let program = std::env::current_exe().map_err(failed)?;
        let process = Command::new(program)
            .arg("sweep")
            .arg(scratch)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        Ok(Self { process })
    }

    fn say(&mut self, line: &str) {
        if let Some(input) = &mut self.process.stdin {
            // Without a listener nothing is cleaned up after a Ctrl-C, and all else goes on.
            let _ = input.write_all(line.as_bytes());
        }
    }

    /// Runs a command as a process group of its own, which ends with the guard.
    pub(super) fn run(&mut self, command: &mut Command, what: &str) -> Result<(), GuardError> {
        let failed = |source| GuardError::Run {
            program: what.into(),
            source,
        };
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        self.say(&format!("group {}\n", child.id()));
        let output = child.wait_with_output().map_err(failed)?;
        self.say("idle\n");
        if output.status.success() {
            return Ok(());
        }
        Err(GuardError::Failed {
            what: what.into(),
            message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // It has nothing to report.
        let _ = self.process.wait();
    }
}

/// Waits for the end of standard input, then cleans up.
pub(crate) fn sweep(scratch: &Path) {
    let mut group = None;
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let number = line.strip_prefix("group ");
        group = number.and_then(|number| number.parse().ok().and_then(Pid::from_raw));
    }
    if let Some(group) = group {
        // Ended already is as good as ended.
        let _ = kill_process_group(group, Signal::KILL);
    }
    for tree in trees(scratch) {
        let mut remove = Command::new("git");
        // Twice: a worktree whose making was interrupted is locked.
        remove
            .args(["worktree", "remove", "--force", "--force"])
            .arg(&tree);
        if output_of(&mut remove, "git worktree remove").is_err() {
            remove_all(&tree);
            // What has no directory any more is forgotten.
            let _ = output_of(Command::new("git").args(["worktree", "prune"]), "git");
        }
    }
    remove_all(scratch);
}

/// Worktrees below the scratch directory.
fn trees(scratch: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(scratch).into_iter().flatten();
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    paths
        .filter(|path| {
            let name = path.file_name().map(|name| name.to_string_lossy());
            name.is_some_and(|name| name.starts_with(super::builds::TREE))
        })
        .collect()
}

fn remove_all(directory: &Path) {
    for _ in 0..REMOVALS_MAX {
        if std::fs::remove_dir_all(directory).is_ok() || !directory.exists() {
            return;
        }
        std::thread::yield_now();
    }
}
