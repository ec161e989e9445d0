//! One connection: a connected, non-blocking stream socket, TCP or Unix.
//!
//! Deliberately absent: buffers, and any waiting; an operation that would block says so.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};
use socket2::{SockRef, TcpKeepalive};

/// Unanswered probes after which an idle TCP connection is given up.
const KEEPALIVE_PROBES: u32 = 3;

/// One end of a connection, as CLIENT LIST writes it: `127.0.0.1:6379`, `[::1]:6379`, `/path:0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerName {
    /// A TCP address.
    Tcp(SocketAddr),
    /// The path of the listening Unix socket.
    Unix(Arc<Path>),
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => {
                let ip = address.ip().to_canonical();
                SocketAddr::new(ip, address.port()).fmt(f)
            }
            Self::Unix(path) => write!(f, "{}:0", path.display()),
        }
    }
}

/// A connected, non-blocking stream socket; closed when dropped.
#[derive(Debug)]
pub struct Stream {
    fd: OwnedFd,
    tcp: bool,
}

impl Stream {
    /// Takes over a connected, non-blocking socket.
    pub(crate) fn new(fd: OwnedFd, tcp: bool) -> Self {
        Self { fd, tcp }
    }

    /// Whether it is a TCP connection; else a Unix one.
    #[must_use]
    pub fn is_tcp(&self) -> bool {
        self.tcp
    }

    /// The number of the file descriptor, for CLIENT LIST.
    #[must_use]
    pub fn descriptor(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    /// Reads up to `buffer.len()` bytes; 0 is the end. `WouldBlock` when there is nothing now. One
    /// system call, the one made for sockets: `read` passes through the file system's layer first.
    #[inline]
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (count, _) = retry(|| rustix::net::recv(&self.fd, &mut *buffer, RecvFlags::empty()))?;
        Ok(count)
    }

    /// Reads after the content of `buffer`, up to its capacity, which does not change; 0 is the
    /// end. The buffer has spare capacity. One system call, no zeroing.
    pub fn read_append(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        debug_assert!(
            buffer.capacity() > buffer.len(),
            "a read of nothing looks like the end"
        );
        let (count, _) =
            retry(|| rustix::net::recv(&self.fd, spare_capacity(buffer), RecvFlags::empty()))?;
        Ok(count)
    }

    /// Writes as much of `bytes` as the socket takes. `WouldBlock` when it takes none. One system
    /// call; never raises SIGPIPE.
    #[inline]
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(retry(|| {
            rustix::net::send(&self.fd, bytes, SendFlags::NOSIGNAL)
        })?)
    }

    /// Tells the peer that nothing more is sent; what it sends can still be read.
    pub fn end_output(&self) -> io::Result<()> {
        Ok(rustix::net::shutdown(&self.fd, Shutdown::Write)?)
    }

    /// Disables delayed sending, and probes the peer of an idle connection every `keepalive`; does
    /// nothing on a Unix socket.
    pub fn set_tcp_options(&self, keepalive: Option<Duration>) -> io::Result<()> {
        if !self.tcp {
            return Ok(());
        }
        let socket = SockRef::from(&self.fd);
        socket.set_tcp_nodelay(true)?;
        let Some(idle) = keepalive else {
            return socket.set_keepalive(false);
        };
        let interval = (idle / KEEPALIVE_PROBES).max(Duration::from_secs(1));
        let keepalive = TcpKeepalive::new()
            .with_time(idle)
            .with_interval(interval)
            .with_retries(KEEPALIVE_PROBES);
        socket.set_tcp_keepalive(&keepalive)
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Repeats a call that a signal interrupted.
#[inline]
fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn pair() -> (Stream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (Stream::new(ours.into(), false), theirs)
    }

    #[test]
    fn a_read_is_bounded_by_the_spare_capacity() {
        let (ours, mut theirs) = pair();
        theirs.write_all(b"0123456789").unwrap();
        let mut buffer = Vec::with_capacity(16);
        buffer.extend_from_slice(b"abcdefghijkl");
        let room = buffer.capacity() - buffer.len();
        assert_eq!(ours.read_append(&mut buffer).unwrap(), room.min(10));
        assert!(buffer.starts_with(b"abcdefghijkl0123"));
        let mut rest = [0; 16];
        assert_eq!(ours.read(&mut rest).unwrap(), 10 - room.min(10));
        assert_eq!(
            ours.read(&mut rest).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        drop(theirs);
        assert_eq!(ours.read(&mut rest).unwrap(), 0);
    }

    #[test]
    fn a_write_stops_where_the_peer_does_not_read_and_fails_when_it_is_gone() {
        let (ours, mut theirs) = pair();
        let bytes = vec![7; 64 * 1024];
        let mut written = 0;
        let error = loop {
            match ours.write(&bytes) {
                Ok(count) => written += count,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        let mut got = vec![0; written];
        theirs.read_exact(&mut got).unwrap();
        drop(theirs);
        assert_eq!(
            ours.write(&bytes).unwrap_err().kind(),
            ErrorKind::BrokenPipe
        );
    }

    #[test]
    fn names_are_written_as_clients_know_them() {
        let mapped: SocketAddr = "[::ffff:10.0.0.1]:80".parse().unwrap();
        assert_eq!(PeerName::Tcp(mapped).to_string(), "10.0.0.1:80");
        assert_eq!(
            PeerName::Unix(Path::new("/run/p").into()).to_string(),
            "/run/p:0"
        );
    }
}
