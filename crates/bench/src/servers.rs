//! Servers under measurement: started on free ports of 127.0.0.1, pinned, ended when dropped, and
//! by the kernel when this process ends in any other way (Ctrl-C, a kill, a panic that aborts).

use std::fs::File;
use std::io::{self, Read, Seek};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::accounting::{self, CpuTime};

/// How long a server may take until it listens; a machine under full load is slow to start one.
const START_LIMIT: Duration = Duration::from_mins(1);

/// How often a server is started, on another port each time, when it ends at once: somebody else
/// may have taken the port that was free.
const STARTS_MAX: usize = 3;

/// Why a server cannot be measured.
#[derive(Debug, Error)]
pub(crate) enum ServerError {
    #[error("cannot start {program}: {source}")]
    Start { program: String, source: io::Error },
    #[error("{program} does not listen on port {port} after {START_LIMIT:?}")]
    Silent { program: String, port: u16 },
    #[error("{program} ended at start with {status}: {said}")]
    Ended {
        program: String,
        status: std::process::ExitStatus,
        /// The last line that it wrote to its standard error.
        said: String,
    },
    #[error("{program} is not installed")]
    NotInstalled { program: String },
    #[error("there is no program {program}; `cargo build --release -p pando-server` makes ours")]
    NotBuilt { program: String },
    #[error("cannot read the accounting of process {process}: {source}")]
    Accounting { process: u32, source: io::Error },
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) port: u16,
    process: Child,
}

impl Server {
    /// This project's server with one worker.
    pub(crate) fn pando(binary: &Path, cpu: &str, extra: &[String]) -> Result<Self, ServerError> {
        let program = binary.display().to_string();
        Self::start("pando", &program, cpu, |port| {
            let mut arguments = vec!["--port".into(), port.to_string()];
            arguments.extend(["--threads".into(), "1".into()]);
            // What the log costs is measured where a log is asked for.
            if !extra.iter().any(|it| it.starts_with("--durability")) {
                arguments.extend(["--durability".into(), "none".into()]);
            }
            arguments.extend(extra.iter().cloned());
            arguments
        })
    }

    /// This project's server with one worker, driven on its memcached port, TCP or UDP.
    pub(crate) fn pando_memcached(binary: &Path, cpu: &str) -> Result<Self, ServerError> {
        let program = binary.display().to_string();
        Self::start("pando memcached", &program, cpu, |port| {
            let line = format!(
                "--port 0 --threads 1 --durability none --memcached-port {port} \
                 --memcached-udp-port {port}"
            );
            line.split(' ').map(String::from).collect()
        })
    }

    /// Debian's redis-server without persistence.
    pub(crate) fn redis(cpu: &str) -> Result<Self, ServerError> {
        Self::start("redis", "redis-server", cpu, |port| {
            let port = port.to_string();
            [
                "--port",
                &port,
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
            ]
            .map(String::from)
            .to_vec()
        })
    }

    /// The same with options.
    pub(crate) fn redis_with(cpu: &str, options: &[&str]) -> Result<Self, ServerError> {
        Self::start("redis", "redis-server", cpu, |port| {
            let port = port.to_string();
            let fixed = ["--port", &port, "--bind", "127.0.0.1", "--save", ""];
            let words = fixed.iter().chain(options);
            words.map(ToString::to_string).collect()
        })
    }

    /// Debian's memcached with one thread and room for everything.
    pub(crate) fn memcached(cpu: &str) -> Result<Self, ServerError> {
        Self::memcached_with(cpu, 4096)
    }

    /// The same with so much memory for items.
    pub(crate) fn memcached_with(cpu: &str, memory_mib: u64) -> Result<Self, ServerError> {
        Self::start("memcached", "memcached", cpu, |port| {
            let (port, memory) = (port.to_string(), memory_mib.to_string());
            let line = [
                "-p",
                &port,
                "-l",
                "127.0.0.1",
                "-U",
                &port,
                "-t",
                "1",
                "-m",
                &memory,
            ];
            let mut arguments = line.map(String::from).to_vec();
            // memcached refuses to run as root unless it is told that it may.
            arguments.extend(["-u".into(), "root".into()]);
            arguments
        })
    }

    /// memcached with so many threads.
    pub(crate) fn memcached_of(cpu: &str, threads: usize) -> Result<Self, ServerError> {
        let name = format!("memcached -t {threads}");
        Self::start(&name, "memcached", cpu, |port| {
            let line = format!("-p {port} -l 127.0.0.1 -U 0 -t {threads} -m 1024 -u root");
            line.split(' ').map(Into::into).collect()
        })
    }

    /// This project's server with an engine and so many workers, listening on `port_flag`'s port.
    pub(crate) fn pando_of(
        binary: &Path,
        cpu: &str,
        port_flag: &str,
        engine: &str,
        threads: usize,
    ) -> Result<Self, ServerError> {
        let name = format!("pando {engine}");
        Self::start(&name, &binary.display().to_string(), cpu, |port| {
            let other = if port_flag == "--port" {
                ""
            } else {
                " --port 0"
            };
            let line = format!(
                "--engine {engine} --threads {threads} --durability none{other} {port_flag} {port}"
            );
            line.split(' ').map(Into::into).collect()
        })
    }

    /// A program on a free port; `arguments` is told which.
    pub(crate) fn start(
        name: &str,
        program: &str,
        cpu: &str,
        arguments: impl Fn(u16) -> Vec<String>,
    ) -> Result<Self, ServerError> {
        there_is(program)?;
        let mut starts = 1;
        loop {
            match Self::start_once(name, program, cpu, &arguments) {
                Err(ServerError::Ended { .. }) if starts < STARTS_MAX => starts += 1,
                result => return result,
            }
        }
    }

    fn start_once(
        name: &str,
        program: &str,
        cpu: &str,
        arguments: impl Fn(u16) -> Vec<String>,
    ) -> Result<Self, ServerError> {
        let failed = |source| ServerError::Start {
            program: program.into(),
            source,
        };
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|listener| listener.local_addr())
            .map_err(failed)?
            .port();
        let mut errors = nameless_file(port).map_err(failed)?;
        let process = bound_to_this_process("taskset")
            .args(["-c", cpu, program])
            .args(arguments(port))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors.try_clone().map_err(failed)?)
            .spawn()
            .map_err(failed)?;
        let mut server = Self {
            name: name.into(),
            port,
            process,
        };
        let limit = Instant::now() + START_LIMIT;
        loop {
            let answered = answers(port);
            // What answered may be another process, because of whose port ours ends.
            if let Some(status) = server.process.try_wait().map_err(failed)? {
                return Err(ServerError::Ended {
                    program: program.into(),
                    status,
                    said: last_line(&mut errors),
                });
            }
            let listener = crate::listener::process_of(port);
            if answered && listener.is_none_or(|process| process == server.process.id()) {
                return Ok(server);
            }
            if Instant::now() > limit {
                return Err(ServerError::Silent {
                    program: program.into(),
                    port,
                });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Any program that takes `--port`.
    pub(crate) fn program(program: &Path) -> Result<Self, ServerError> {
        let program = program.display().to_string();
        Self::start("server", &program, "0", |port| {
            vec!["--port".into(), port.to_string()]
        })
    }

    /// Waits for the end of a server that was told to stop.
    pub(crate) fn wait(mut self) -> Result<(), ServerError> {
        let waited = self.process.wait();
        waited
            .map(|_| ())
            .map_err(|source| ServerError::Accounting {
                process: self.process.id(),
                source,
            })
    }

    pub(crate) fn process(&self) -> u32 {
        self.process.id()
    }

    /// Processor time of all its threads so far (10 ms resolution).
    pub(crate) fn cpu_time(&self) -> Result<CpuTime, ServerError> {
        self.told(accounting::cpu_time)
    }

    /// Seconds for which its threads have run, to the nanosecond.
    pub(crate) fn cpu_seconds(&self) -> Result<f64, ServerError> {
        self.told(accounting::cpu_seconds)
    }

    /// Resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u64, ServerError> {
        self.told(accounting::resident_bytes)
    }

    fn told<T>(&self, figure: impl Fn(u32) -> io::Result<T>) -> Result<T, ServerError> {
        let process = self.process.id();
        figure(process).map_err(|source| ServerError::Accounting { process, source })
    }
}

/// Whether the program can be found: by its path, or by its name where programs are.
fn there_is(program: &str) -> Result<(), ServerError> {
    let program = program.to_owned();
    if program.contains('/') {
        let found = Path::new(&program).is_file();
        return found.then_some(()).ok_or(ServerError::NotBuilt { program });
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(&program).is_file());
    found
        .then_some(())
        .ok_or(ServerError::NotInstalled { program })
}

/// `None`, with a note, where a peer is not installed: it is left out.
pub(crate) fn if_installed(
    server: Result<Server, ServerError>,
) -> Result<Option<Server>, ServerError> {
    match server {
        Err(error @ ServerError::NotInstalled { .. }) => {
            eprintln!("{error}: it is left out");
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// A file for what a server writes to its standard error; nobody else finds it.
fn nameless_file(port: u16) -> io::Result<File> {
    let name = format!("pando-bench-{}-{port}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut options = File::options();
    let file = options
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

fn last_line(file: &mut File) -> String {
    let mut text = String::new();
    // What is not text is not shown.
    let _ = file.rewind().and_then(|()| file.read_to_string(&mut text));
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.unwrap_or("it said nothing").trim().to_owned()
}

/// Whether somebody listens on this port. A socket that is connected to itself, which the kernel
/// allows when it draws the same port for the near end, is nobody.
fn answers(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .and_then(|stream| Ok(stream.local_addr()? != stream.peer_addr()?))
        .unwrap_or(false)
}

/// A command for `program` that the kernel kills when the thread that started it ends: `setpriv`
/// asks for that before it becomes the program. Without `setpriv` nobody does.
///
/// To be started by a thread that lives as long as the command is wanted.
pub(crate) fn bound_to_this_process(program: &str) -> Command {
    let able = Command::new("setpriv")
        .args(["--pdeathsig", "keep", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !able {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]);
    command
}

/// Starts a server, says which process it is, and ends it when standard input ends.
pub(crate) fn hold(program: &Path) -> Result<(), ServerError> {
    let server = Server::program(program)?;
    println!("{}", server.process());
    // An error ends the input as well.
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    Ok(())
}

/// Takes connections and keeps them, unanswered.
pub(crate) fn mute(port: u16) -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    let mut connections = Vec::new();
    for connection in listener.incoming() {
        connections.push(connection?);
    }
    Ok(())
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ended already is as good as ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_is_not_installed_is_left_out() {
        let server = Server::start("peer", "no-such-server-anywhere", "0", |_| Vec::new());
        assert!(matches!(if_installed(server), Ok(None)));
        let server = Server::start("ours", "/no/such/pando", "0", |_| Vec::new());
        let error = if_installed(server).unwrap_err().to_string();
        assert!(
            error.starts_with("there is no program /no/such/pando;"),
            "{error}"
        );
    }
}
