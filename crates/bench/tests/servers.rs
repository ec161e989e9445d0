//! Servers that the tool starts end with it, and servers that are not there are named.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const BENCH: &str = env!("CARGO_BIN_EXE_pando-bench");

/// A program that listens on `--port` and never answers.
fn mute_server(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("mute-{name}-{}", std::process::id()));
    std::fs::write(&path, format!("#!/bin/sh\nexec '{BENCH}' mute \"$@\"\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    path
}

/// The tool with a server of its own, and the server's process id.
fn hold(name: &str) -> (Child, u32) {
    let program = mute_server(name);
    let mut tool = Command::new(BENCH)
        .arg("hold")
        .arg(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let output = tool.stdout.as_mut().unwrap();
    BufReader::new(output).read_line(&mut line).unwrap();
    std::fs::remove_file(program).unwrap();
    let server = line.trim().parse().unwrap_or_else(|_| panic!("{line:?}"));
    (tool, server)
}

fn runs(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // A process that has ended and whose parent has not asked yet is a zombie.
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.trim().is_empty() && !rest.starts_with(" Z"))
}

fn ends(process: u32) -> bool {
    let limit = Instant::now() + Duration::from_mins(2);
    while runs(process) {
        if Instant::now() > limit {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

fn signal(process: u32, signal: &str) {
    // The shell's own kill: not every system has the program.
    let status = Command::new("sh")
        .args(["-c", &format!("kill {signal} {process}")])
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
fn an_interrupted_tool_leaves_no_server_behind() {
    for name in ["-INT", "-TERM", "-KILL"] {
        let (mut tool, server) = hold(name);
        assert!(runs(server));
        signal(tool.id(), name);
        tool.wait().unwrap();
        assert!(ends(server), "the server outlives {name}");
    }
}

#[test]
fn a_tool_that_ends_ends_its_server() {
    let (mut tool, server) = hold("end");
    drop(tool.stdin.take());
    assert!(tool.wait().unwrap().success());
    assert!(!runs(server));
}

fn error_of(arguments: &[&str]) -> String {
    let output = Command::new(BENCH).args(arguments).output().unwrap();
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_server_that_cannot_be_started_is_named() {
    let error = error_of(&["hold", "/no/such/server"]);
    assert!(error.contains("/no/such/server ended at start"), "{error}");
}

#[test]
fn bad_arguments_get_clear_errors() {
    for (arguments, expected) in [
        (&["load"][..], "required"),
        (
            &["load", "127.0.0.1:1", "--pipeline", "0"],
            "--pipeline must be at least 1",
        ),
        (
            &["load", "127.0.0.1:1", "--rate", "0"],
            "--rate must be a number above 0",
        ),
        (&["load", "192.0.2.1:6379"], "is not a loopback address"),
        (&["load", "127.0.0.1:1"], "cannot connect to 127.0.0.1:1"),
        (&["load", "127.0.0.1:1", "--workload", "ycsb-z"], "ycsb-a"),
        (
            &["embedded", "--targets", "hat"],
            "no target hat; there are pando-masstree",
        ),
        (&["report", "--keys", "0"], "must be at least 1"),
    ] {
        let error = error_of(arguments);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}
