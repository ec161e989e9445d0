//! A server under comparison: a process on a free port of 127.0.0.1, ended when dropped.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to start, or to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A running server.
pub(super) struct Server {
    process: Child,
    pub(super) port: u16,
}

impl Server {
    /// Starts a server on a free port, on another one if somebody else was quicker to take it;
    /// `None` where the program is not installed.
    pub(super) fn start(command: impl Fn(&str) -> Command) -> Option<Self> {
        let deadline = Instant::now() + PATIENCE;
        'again: loop {
            let port = free_port();
            let process = command(&port.to_string())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .ok()?;
            let mut server = Self { process, port };
            loop {
                assert!(Instant::now() < deadline, "the server does not listen");
                let ended = server.process.try_wait().expect("the child can be asked");
                if ended.is_some() {
                    continue 'again;
                }
                // Who answers there may be another test's server, which took the port first.
                if listens(server.process.id(), port) {
                    return Some(server);
                }
                std::thread::yield_now();
            }
        }
    }

    /// A connection that waits for answers, but not for ever.
    pub(super) fn stream(&self) -> TcpStream {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("connects");
        stream.set_nodelay(true).expect("a socket option");
        let patience = stream.set_read_timeout(Some(PATIENCE));
        patience.expect("a socket option");
        stream
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already ended is as good as ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Whether the process listens on this port of 127.0.0.1, or of all addresses.
fn listens(process: u32, port: u16) -> bool {
    let Ok(files) = std::fs::read_dir(format!("/proc/{process}/fd")) else {
        return false;
    };
    let links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    let sockets: Vec<_> = links.collect();
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel's table of sockets");
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        // 0A: listening. The tenth field is the socket's inode.
        matches!(fields[..], [_, local, _, "0A", _, _, _, _, _, inode, ..]
            if local.ends_with(&format!(":{port:04X}"))
                && sockets.contains(&format!("socket:[{inode}]").into()))
    })
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("a bound socket").port()
}
