//! One connection: requests written ahead, replies read in order, waiting for them or not.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use pando_protocol::resp::{Value, ValueDecoder};

use super::{Dialect, LoadError, memcached};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

const READ_BYTES: usize = 64 * 1024;

/// A connection to a server.
pub(super) struct Client {
    server: SocketAddr,
    stream: TcpStream,
    output: Vec<u8>,
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
        Ok(Self {
            server,
            stream,
            output: Vec::new(),
            written: 0,
            input: vec![0; READ_BYTES],
            start: 0,
            end: 0,
            decoder: ValueDecoder::new(),
            dialect,
        })
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

    /// From now on [`Self::try_flush`] and [`Self::try_receive`] are to be used: nothing waits.
    pub(super) fn never_wait(&mut self) -> Result<(), LoadError> {
        let server = self.server;
        self.stream
            .set_nonblocking(true)
            .map_err(|source| LoadError::Broken { server, source })
    }

    /// What a poller waits on.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Whether requests are left to be sent.
    pub(super) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    pub(super) fn flush(&mut self) -> Result<(), LoadError> {
        let server = self.server;
        self.stream
            .write_all(&self.output)
            .map_err(|source| LoadError::Broken { server, source })?;
        self.output.clear();
        Ok(())
    }

    /// Sends what the socket takes.
    pub(super) fn try_flush(&mut self) -> Result<(), LoadError> {
        let server = self.server;
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
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
            match self.stream.read(&mut self.input[self.end..]) {
                Ok(0) => return Err(LoadError::Closed { server }),
                Ok(count) => self.end += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(source) => return Err(LoadError::Broken { server, source }),
            }
        }
    }
}
