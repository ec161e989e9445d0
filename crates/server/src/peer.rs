//! A connection to another server, for a thread that may wait: requests out, replies in.
//!
//! Whoever uses it says what an error reply means. Memory holds one reply at a time.
//!
//! Deliberately absent: workers, which never wait for a socket.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::time::Duration;

use pando_protocol::{ReplyError, Value, ValueDecoder};
use thiserror::Error;

/// Bytes read at a time.
const READ_BYTES: usize = 256 * 1024;

/// Why there is no reply.
#[derive(Debug, Error)]
pub enum PeerError {
    /// The connection broke.
    #[error("the connection to the server has broken: {0}")]
    Broken(io::Error),
    /// The server closed it.
    #[error("the server has closed the connection")]
    Closed,
    /// The server takes or sends nothing for too long.
    #[error("the server does not reply in time")]
    Silent,
    /// It is not a server of this protocol.
    #[error("the server does not speak RESP: {0}")]
    Foreign(#[from] ReplyError),
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Peer {
    stream: TcpStream,
    decoder: ValueDecoder,
    input: Box<[u8]>,
    /// The part of `input` that was received and not decoded.
    left: Range<usize>,
}

impl Peer {
    /// Connects to the first of the addresses of `HOST:PORT` that answers. `connecting` is how long
    /// each attempt may take, `waiting` how long the server may be silent later.
    pub(crate) fn connect(
        address: &str,
        connecting: Duration,
        waiting: Duration,
    ) -> io::Result<Self> {
        let mut found = Err(io::Error::other("the name has no address"));
        for address in address.to_socket_addrs()? {
            found = TcpStream::connect_timeout(&address, connecting);
            if found.is_ok() {
                break;
            }
        }
        let stream = found?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(waiting))?;
        stream.set_write_timeout(Some(waiting))?;
        Ok(Self {
            stream,
            decoder: ValueDecoder::new(),
            input: vec![0; READ_BYTES].into(),
            left: 0..0,
        })
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, words: &[&[u8]]) -> Result<(), PeerError> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.write_all(&request).map_err(broken)
    }

    /// The next reply, which may be an error reply.
    pub(crate) fn receive(&mut self) -> Result<Value, PeerError> {
        loop {
            let mut input = &self.input[self.left.clone()];
            let reply = self.decoder.next(&mut input)?;
            self.left.start = self.left.end - input.len();
            if let Some(reply) = reply {
                return Ok(reply);
            }
            match self.stream.read(&mut self.input) {
                Ok(0) => return Err(PeerError::Closed),
                Ok(bytes) => self.left = 0..bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(error)),
            }
        }
    }
}

fn broken(error: io::Error) -> PeerError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => PeerError::Silent,
        _ => PeerError::Broken(error),
    }
}
