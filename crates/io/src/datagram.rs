//! A bound, non-blocking UDP socket.
//!
//! Deliberately absent: connected sockets, multicast, and any waiting; an operation that would
//! block says so.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use mio::net::UdpSocket;
use socket2::{Domain, Socket, Type};

use crate::ListenerError;

/// Longest datagram that UDP carries, in bytes.
pub const DATAGRAM_BYTES_MAX: usize = u16::MAX as usize;

/// Bytes of datagrams that the kernel is asked to buffer for a socket; it may buffer fewer.
const BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// See the module's header.
#[derive(Debug)]
pub struct DatagramSocket {
    socket: UdpSocket,
}

impl DatagramSocket {
    /// Binds an address; port 0 is any free one. An IPv6 address accepts no IPv4.
    pub fn bind(address: SocketAddr) -> Result<Self, ListenerError> {
        let bind = || {
            let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
            if address.is_ipv6() {
                socket.set_only_v6(true)?;
            }
            socket.set_nonblocking(true)?;
            // Datagrams that arrive while the worker is busy wait here; a kernel that buffers less
            // is no reason not to serve.
            let _ = socket.set_recv_buffer_size(BUFFER_BYTES);
            let _ = socket.set_send_buffer_size(BUFFER_BYTES);
            socket.bind(&address.into())?;
            Ok(UdpSocket::from_std(socket.into()))
        };
        let socket = bind().map_err(|source| ListenerError::Udp { address, source })?;
        Ok(Self { socket })
    }

    /// The address, with the port that was chosen for port 0.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Reads the next datagram into `buffer`: its bytes and its sender; `None` when there is none
    /// now. A datagram longer than the buffer is cut. Errors caused by an earlier datagram are
    /// skipped. One system call.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
        loop {
            let error = match self.socket.recv_from(buffer) {
                Ok(received) => return Ok(Some(received)),
                Err(error) => error,
            };
            match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(None),
                // The peer of a reply is gone, or a signal arrived.
                io::ErrorKind::ConnectionRefused | io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            }
        }
    }

    /// Sends one datagram; false when it was dropped because the kernel has no space or the peer
    /// cannot be reached. One system call.
    #[must_use]
    pub fn send(&self, datagram: &[u8], to: SocketAddr) -> bool {
        self.socket.send_to(datagram, to).is_ok()
    }
}

impl AsFd for DatagramSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::{Interest, Poller, Token};

    #[test]
    fn datagrams_come_whole_and_from_whom_they_are() {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let ours = DatagramSocket::bind(any).unwrap();
        let theirs = DatagramSocket::bind(any).unwrap();
        let mut poller = Poller::new(8, Token(0)).unwrap();
        poller.add(&ours, Token(1), Interest::Read).unwrap();
        let mut buffer = [0; 100];
        assert!(ours.receive(&mut buffer).unwrap().is_none());
        for datagram in [&b"abc"[..], b"", b"d"] {
            assert!(theirs.send(datagram, ours.address().unwrap()));
        }
        // Who is stopped for a while wakes up early.
        while !poller.wait(None).unwrap().any(|it| it.token == Token(1)) {}
        for datagram in [&b"abc"[..], b"", b"d"] {
            let (bytes, peer) = ours.receive(&mut buffer).unwrap().unwrap();
            assert_eq!(&buffer[..bytes], datagram);
            assert_eq!(peer, theirs.address().unwrap());
        }
        assert!(ours.receive(&mut buffer).unwrap().is_none());
    }

    #[test]
    fn a_peer_that_is_gone_does_not_disturb() {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let ours = DatagramSocket::bind(any).unwrap();
        let gone = DatagramSocket::bind(any).unwrap().address().unwrap();
        // Whether the kernel reports it at once is its affair.
        let _ = ours.send(b"abc", gone);
        let _ = ours.send(b"abc", gone);
        assert!(ours.receive(&mut [0; 10]).unwrap().is_none());
    }
}
