//! One connection: requests written ahead, replies read in order, waiting for them or not.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use pando_protocol::resp::{Value, ValueDecoder};

use super::datagrams::Datagrams;
use super::{Dialect, LoadError, memcached};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

const READ_BYTES: usize = 64 * 1024;

enum Link {
    Stream(TcpStream),
    Datagrams(Box<Datagrams>),
}

/// A connection to a server.
pub(super) struct Client {
    server: SocketAddr,
    link: Link,
    output: Vec<u8>,
    /// Where the requests in `output` end; of datagrams only.
    ends: Vec<usize>,
    written: usize,
    input: Vec<u8>,
    start: usize,
    end: usize,
    decoder: ValueDecoder,
    dialect: Dialect,
}

impl Client {
    pub(super) fn connect(server: SocketAddr, dialect: Dialect) -> Result<Self, LoadError> {
        let failed = |source| LoadError::Connect { server, source };
        let stream = TcpStream::connect(server).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        Ok(Self::over(Link::Stream(stream), server, dialect))
    }

    /// A client of memcached's UDP, whose requests are datagrams.
    pub(super) fn connect_udp(server: SocketAddr) -> Result<Self, LoadError> {
        let socket = Datagrams::connect(server);
        let socket = socket.map_err(|source| LoadError::Connect { server, source })?;
        let link = Link::Datagrams(Box::new(socket));
        Ok(Self::over(link, server, Dialect::Memcached))
    }

    fn over(link: Link, server: SocketAddr, dialect: Dialect) -> Self {
        Self {
            server,
            link,
            output: Vec::new(),
            ends: Vec::new(),
            written: 0,
            input: vec![0; READ_BYTES],
            start: 0,
            end: 0,
            decoder: ValueDecoder::new(),
            dialect,
        }
    }

    /// Appends a request to what the next [`Self::flush`] sends.
    pub(super) fn push(&mut self, arguments: &[&[u8]]) {
        self.output
            .extend_from_slice(format!("*{}\r\n", arguments.len()).as_bytes());
        for argument in arguments {
            self.output
                .extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
            self.output.extend_from_slice(argument);
            self.output.extend_from_slice(b"\r\n");
        }
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Where requests of other protocols than RESP are written.
    pub(super) fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// A request of memcached's protocol ends here.
    pub(super) fn end_request(&mut self) {
        if let Link::Datagrams(_) = self.link {
            self.ends.push(self.output.len());
        }
    }

    /// From now on [`Self::try_flush`] and [`Self::try_receive`] are to be used: nothing waits.
    pub(super) fn never_wait(&mut self) -> Result<(), LoadError> {
        let server = self.server;
        match &self.link {
            Link::Stream(stream) => stream.set_nonblocking(true),
            Link::Datagrams(datagrams) => datagrams.set_nonblocking(),
        }
        .map_err(|source| LoadError::Broken { server, source })
    }

    /// What a poller waits on.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.link {
            Link::Stream(stream) => stream.as_fd(),
            Link::Datagrams(datagrams) => datagrams.descriptor(),
        }
    }

    /// Whether requests are left to be sent.
    pub(super) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    pub(super) fn flush(&mut self) -> Result<(), LoadError> {
        let server = self.server;
        let broken = |source| LoadError::Broken { server, source };
        match &mut self.link {
            Link::Stream(stream) => stream.write_all(&self.output).map_err(broken)?,
            Link::Datagrams(datagrams) => {
                let mut start = 0;
                for end in self.ends.drain(..) {
                    datagrams.send(&self.output[start..end]).map_err(broken)?;
                    start = end;
                }
            }
        }
        self.output.clear();
        Ok(())
    }

    /// Sends what the socket takes; datagrams at once.
    pub(super) fn try_flush(&mut self) -> Result<(), LoadError> {
        let server = self.server;
        let Link::Stream(stream) = &mut self.link else {
            return self.flush();
        };
        while self.written < self.output.len() {
            match stream.write(&self.output[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(source) => return Err(LoadError::Broken { server, source }),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(())
    }

    /// The next reply, waited for.
    pub(super) fn receive(&mut self) -> Result<Value, LoadError> {
        // A socket that waits reports its patience as the same error that one that does not wait
        // reports at once.
        let server = self.server;
        self.try_receive()?.ok_or_else(|| LoadError::Broken {
            server,
            source: std::io::Error::from(ErrorKind::TimedOut),
        })
    }

    /// The next reply; `None` when it has not arrived (whole).
    pub(super) fn try_receive(&mut self) -> Result<Option<Value>, LoadError> {
        let server = self.server;
        loop {
            let mut rest = &self.input[self.start..self.end];
            let value = match self.dialect {
                Dialect::Resp => self
                    .decoder
                    .next(&mut rest)
                    .map_err(|source| LoadError::Protocol { server, source })?,
                Dialect::Memcached => memcached::next(&mut rest),
            };
            self.start = self.end - rest.len();
            if let Some(value) = value {
                return Ok(Some(value));
            }
            // What memcached has sent of a reply stays; the RESP decoder takes all it is shown.
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if self.end == self.input.len() {
                self.input.resize(2 * self.end, 0);
            }
            match self.read() {
                Ok(0) => return Err(LoadError::Closed { server }),
                Ok(count) => self.end += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(source) => return Err(LoadError::Broken { server, source }),
            }
        }
    }

    /// Reads behind what is there.
    fn read(&mut self) -> io::Result<usize> {
        match &mut self.link {
            Link::Stream(stream) => stream.read(&mut self.input[self.end..]),
            Link::Datagrams(datagrams) => {
                let part = datagrams.receive()?;
                let end = self.end + part.len();
                if end > self.input.len() {
                    self.input.resize(end, 0);
                }
                self.input[self.end..end].copy_from_slice(part);
                Ok(part.len())
            }
        }
    }
}
