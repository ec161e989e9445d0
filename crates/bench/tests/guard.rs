//! `pando-bench guard` finds a planted regression, and none where there is none.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A build that prints these figures and spins so often.
fn build(directory: &Path, name: &str, gets: f64, spins: u32) -> PathBuf {
    let path = directory.join(name);
    let script = format!(
        "#!/bin/sh\ni=0\nwhile [ $i -lt {spins} ]; do i=$((i+1)); done\n\
         echo 'put, million/s 1.0'\necho 'get, million/s {gets}'\n"
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    path
}

fn guard(before: &Path, after: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pando-bench"))
        .args(["guard", "--pairs", "3", "--only", "decimal"])
        .args(more)
        .args([before, after])
        .output()
        .unwrap()
}

#[test]
fn a_planted_regression_is_named() {
    let directory = std::env::temp_dir().join(format!("guard-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let before = build(&directory, "before", 2.0, 100);
    let slower = build(&directory, "slower", 1.8, 100);
    let longer = build(&directory, "longer", 2.0, 20_000);

    let same = guard(&before, &before, &[]);
    assert!(same.status.success(), "{same:?}");

    let output = guard(&before, &slower, &["--times-only"]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    let expected = "1 regression(s) over 2 % in instructions, 5 % in times: \
                    decimal, get, million/s × 0.900";
    assert!(error.contains(expected), "{error}");

    let faster = guard(&slower, &before, &["--times-only"]);
    assert!(faster.status.success(), "{faster:?}");

    // More instructions at the same speed: found where instructions can be counted.
    let output = guard(&before, &longer, &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    if text.contains("valgrind is not installed") {
        assert!(output.status.success());
    } else {
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("decimal, instructions ×"), "{text}{error}");
        assert_eq!(output.status.code(), Some(1));
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_revision_that_is_not_there_is_named() {
    let build = Path::new(env!("CARGO_BIN_EXE_pando-bench"));
    let output = guard(Path::new("no-such-revision"), build, &[]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.contains("git worktree of no-such-revision failed"),
        "{error}"
    );
}

/// Waits for a state; the deadline is for what never comes.
fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_mins(5);
    while !holds() {
        assert!(Instant::now() < limit, "waited for {what}");
        std::thread::yield_now();
    }
}

fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=test", "-c", "user.email=test@localhost"])
        .args(arguments)
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A repository whose `pando-bench` says that it is being built, and is never done.
fn endless_build(repository: &Path) {
    for folder in ["src", "server/src"] {
        std::fs::create_dir_all(repository.join(folder)).unwrap();
    }
    let files = [
        (
            "Cargo.toml",
            "[package]\nname = \"pando-bench\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
             build = \"build.rs\"\n[workspace]\nmembers = [\"server\"]\n",
        ),
        (
            "Cargo.lock",
            "version = 4\n\n[[package]]\nname = \"pando-bench\"\nversion = \"0.1.0\"\n\n\
             [[package]]\nname = \"pando-server\"\nversion = \"0.1.0\"\n",
        ),
        (
            "server/Cargo.toml",
            "[package]\nname = \"pando-server\"\nversion = \"0.1.0\"\nedition = \"2024\"\n",
        ),
        ("server/src/lib.rs", ""),
        (
            "build.rs",
            "fn main() {\n    let mark = std::env::var(\"GUARD_TEST_MARK\").unwrap();\n    \
             std::fs::write(mark, std::process::id().to_string()).unwrap();\n    \
             loop { std::thread::park(); }\n}\n",
        ),
        ("src/main.rs", "fn main() {}\n"),
    ];
    for (name, text) in files {
        std::fs::write(repository.join(name), text).unwrap();
    }
    git(repository, &["init", "-q"]);
    git(repository, &["add", "."]);
    git(repository, &["commit", "-q", "-m", "a build without end"]);
}

#[test]
#[cfg(target_os = "linux")]
fn a_guard_that_is_interrupted_leaves_no_worktree_and_no_build() {
    if Command::new("git").arg("--version").output().is_err() {
        eprintln!("git is not installed: no revisions to build");
        return;
    }
    let directory = std::env::temp_dir().join(format!("guard-signal-{}", std::process::id()));
    let repository = directory.join("repository");
    endless_build(&repository);
    for signal in ["-INT", "-TERM", "-KILL"] {
        let scratch = directory.join(format!("scratch{signal}"));
        std::fs::create_dir_all(&scratch).unwrap();
        let mark = directory.join(format!("mark{signal}"));
        let mut tool = Command::new(env!("CARGO_BIN_EXE_pando-bench"))
            .args(["guard", "HEAD", env!("CARGO_BIN_EXE_pando-bench")])
            .current_dir(&repository)
            .env("GUARD_TEST_MARK", &mark)
            .env("TMPDIR", &scratch)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut build = String::new();
        wait_for("the build", || {
            build = std::fs::read_to_string(&mark).unwrap_or_default();
            !build.is_empty() || tool.try_wait().unwrap().is_some()
        });
        assert!(!build.is_empty(), "the guard ended before its build began");
        assert_eq!(git(&repository, &["worktree", "list"]).lines().count(), 2);

        let kill = format!("kill {signal} {}", tool.id());
        let killed = Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert!(killed.success());
        assert!(!tool.wait().unwrap().success());
        wait_for("the scratch directory to go", || {
            std::fs::read_dir(&scratch).unwrap().next().is_none()
        });
        assert_eq!(git(&repository, &["worktree", "list"]).lines().count(), 1);
        wait_for("the build to end", || {
            let stat = std::fs::read_to_string(format!("/proc/{build}/stat"));
            stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z"))
        });
    }
    std::fs::remove_dir_all(&directory).unwrap();
}
