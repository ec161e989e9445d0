//! memcached's UDP: a datagram for each request, its replies in datagrams of their own.
//!
//! A frame begins with eight bytes: the request's number, the datagram's place among those of its
//! reply, how many these are, and a reserved word, in network order. Replies must come in the order
//! of the requests; on the loopback interface they do. A datagram that is lost ends the
//! measurement: what it took is not known.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// How long a reply may take; by then it is lost.
const PATIENCE: Duration = Duration::from_secs(2);

const HEADER_BYTES: usize = 8;

const DATAGRAM_BYTES_MAX: usize = 65_536;

/// A socket that is connected to one server.
pub(super) struct Datagrams {
    socket: UdpSocket,
    frame: Vec<u8>,
    input: Box<[u8]>,
    number: u16,
    /// Requests whose replies are awaited.
    awaited: VecDeque<u16>,
    /// Datagrams of the first one's reply so far.
    come: u16,
}

impl Datagrams {
    pub(super) fn connect(server: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(server)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            socket,
            frame: Vec::new(),
            input: vec![0; DATAGRAM_BYTES_MAX].into_boxed_slice(),
            number: 0,
            awaited: VecDeque::new(),
            come: 0,
        })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        self.socket.set_nonblocking(true)
    }

    /// Sends one request.
    pub(super) fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.frame.clear();
        for word in [self.number, 0, 1, 0] {
            self.frame.extend_from_slice(&word.to_be_bytes());
        }
        self.frame.extend_from_slice(request);
        self.socket.send(&self.frame)?;
        self.awaited.push_back(self.number);
        self.number = self.number.wrapping_add(1);
        Ok(())
    }

    /// The next datagram's part of a reply.
    pub(super) fn receive(&mut self) -> io::Result<&[u8]> {
        let bytes = self.socket.recv(&mut self.input)?;
        let word = |index: usize| {
            let bytes = self.input.get(2 * index..2 * index + 2)?;
            Some(u16::from_be_bytes(bytes.try_into().ok()?))
        };
        let frame = (word(0), word(1), word(2));
        let (Some(number), Some(place), Some(count)) = frame else {
            return Err(misplaced());
        };
        if bytes <= HEADER_BYTES || self.awaited.front() != Some(&number) || place != self.come {
            return Err(misplaced());
        }
        self.come += 1;
        if self.come >= count {
            self.awaited.pop_front();
            self.come = 0;
        }
        Ok(&self.input[HEADER_BYTES..bytes])
    }
}

fn misplaced() -> io::Error {
    io::Error::other("a datagram that is not the next one: some were lost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_come_in_order_and_a_lost_one_is_seen() {
        let server = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut client = Datagrams::connect(server.local_addr().unwrap()).unwrap();
        let mut input = [0; 64];
        client.send(b"mg a v\r\n").unwrap();
        let (bytes, from) = server.recv_from(&mut input).unwrap();
        assert_eq!(&input[..bytes], b"\0\0\0\0\0\x01\0\0mg a v\r\n");
        for part in [&b"\0\0\0\0\0\x02\0\0EN"[..], b"\0\0\0\x01\0\x02\0\0\r\n"] {
            server.send_to(part, from).unwrap();
        }
        assert_eq!(client.receive().unwrap(), b"EN");
        assert_eq!(client.receive().unwrap(), b"\r\n");
        client.send(b"mg b v\r\n").unwrap();
        client.send(b"mg c v\r\n").unwrap();
        server.send_to(b"\0\x02\0\0\0\x01\0\0EN\r\n", from).unwrap();
        let error = client.receive().unwrap_err();
        assert!(error.to_string().ends_with("some were lost"), "{error}");
    }
}
