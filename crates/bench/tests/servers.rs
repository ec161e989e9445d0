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
    assert!(
        error.contains("there is no program /no/such/server;"),
        "{error}"
    );
}

/// Programs that stand where servers and clients are looked for: each says that it was started,
/// listens where it is asked to, and never answers.
struct Programs(PathBuf);

impl Programs {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("programs-{name}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("started")).unwrap();
        let started = folder.join("started");
        let script = format!(
            "#!/bin/sh\nport=0\nwhile [ $# -gt 0 ]; do\n\
             case $1 in --port|--memcached-port|-p) [ \"$2\" = 0 ] || port=$2; shift;; esac\n\
             shift\ndone\n\
             case $0 in *redis-benchmark) port=0;; esac\n\
             : > '{}/'$$\nexec '{BENCH}' mute --port $port\n",
            started.display()
        );
        for program in ["pando", "redis-server", "memcached", "redis-benchmark"] {
            let path = folder.join(program);
            std::fs::write(&path, &script).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        }
        Self(folder)
    }

    /// Processes that were started so far.
    fn started(&self) -> Vec<u32> {
        let entries = std::fs::read_dir(self.0.join("started")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        let process = |name: std::ffi::OsString| name.to_str().unwrap().parse().unwrap();
        names.map(process).collect()
    }

    /// The tool, which finds these programs before all others.
    fn tool(&self, line: &str) -> Command {
        let mut path = self.0.clone().into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap_or_default());
        let line = line.replace("HERE", self.0.to_str().unwrap());
        let mut tool = Command::new(BENCH);
        tool.args(line.split(' '))
            .env("PATH", path)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        tool
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        // What is left does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn every_measurement_that_is_interrupted_leaves_nothing_running() {
    // The line, and how many programs it has started when it waits for an answer.
    for (name, line, count) in [
        (
            "report",
            "report --quick --only redis --pando HERE/pando --out HERE/out",
            1,
        ),
        (
            "wire",
            "wire --pando HERE/pando --server-cpu 0 --client-cpu 0",
            3,
        ),
        (
            "memcached",
            "memcached --pando HERE/pando --threads 1 --server-cpu 0 --client-cpu 0",
            3,
        ),
        (
            "restart",
            "restart HERE/data --binary HERE/pando --cpu 0",
            2,
        ),
        ("hitrate", "hitrate --binary HERE/pando --only masstree", 2),
    ] {
        for how in ["-INT", "-KILL"] {
            let programs = Programs::new(&format!("{name}{how}"));
            let mut tool = programs.tool(line).spawn().unwrap();
            let limit = Instant::now() + Duration::from_mins(2);
            while programs.started().len() < count {
                assert!(tool.try_wait().unwrap().is_none(), "{name} ended early");
                assert!(Instant::now() < limit, "{name} starts {count} programs");
                std::thread::yield_now();
            }
            signal(tool.id(), how);
            assert!(!tool.wait().unwrap().success());
            for process in programs.started() {
                assert!(ends(process), "{name}: a program outlives {how}");
            }
        }
    }
}

#[test]
fn a_server_that_ends_at_start_is_quoted() {
    let folder = std::env::temp_dir().join(format!("dying-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join("pando");
    let script = "#!/bin/sh\necho 'cannot open /data: no such disk' >&2\nexit 3\n";
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let program = program.to_str().unwrap();
    let data = folder.join("data");
    for arguments in [
        &["wire", "--pando", program][..],
        &["restart", data.to_str().unwrap(), "--binary", program],
        &["hitrate", "--binary", program, "--only", "pando"],
    ] {
        let error = error_of(arguments);
        let expected = "ended at start with exit status: 3: cannot open /data: no such disk";
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
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
        (
            &["wire", "--repeats", "0"],
            "not a whole number of at least 1",
        ),
        (
            &["wire", "--pando", "/no/pando"],
            "there is no program /no/pando; `cargo build --release -p pando-server` makes ours",
        ),
        (
            &["hash", "--targets", "hat"],
            "no target hat; there are mercury",
        ),
        (&["hash", "--operations", "0"], "not a whole number"),
        (
            &["memcached", "--seconds", "NaN"],
            "not a number of seconds",
        ),
        (&["restart"], "required"),
        (&["restart", "none", "--keys", "0"], "1.."),
        (&["hitrate", "--memory-mib", "0"], "1.."),
        (&["bars", "--parts", "half"], "single"),
        (
            &["guard", "a", "b", "--only", "hat"],
            "no cell hat; there are decimal",
        ),
    ] {
        let error = error_of(arguments);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}
