//! `pando-bench guard` finds a planted regression, and none where there is none.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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
    assert!(
        error.contains("1 regression(s) over 5 %: decimal, get, million/s × 0.900"),
        "{error}"
    );

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
