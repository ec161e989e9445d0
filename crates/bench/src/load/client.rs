//! One connection: requests written ahead, replies read in order.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use pando_protocol::resp::{Value, ValueDecoder};

use super::LoadError;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

const READ_BYTES: usize = 64 * 1024;

/// A connection to a server.
pub(super) struct Client {
    server: SocketAddr,
    stream: TcpStream,
    output: Vec<u8>,
    input: Vec<u8>,
    start: usize,
    end: usize,
    decoder: ValueDecoder,
}

impl Client {
    pub(super) fn connect(server: SocketAddr) -> Result<Self, LoadError> {
        let failed = |source| LoadError::Connect { server, source };
        let stream = TcpStream::connect(server).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        Ok(Self {
            server,
            stream,
            output: Vec::new(),
            input: vec![0; READ_BYTES],
            start: 0,
            end: 0,
            decoder: ValueDecoder::new(),
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

    pub(super) fn flush(&mut self) -> Result<(), LoadError> {
        let server = self.server;
        self.stream
            .write_all(&self.output)
            .map_err(|source| LoadError::Broken { server, source })?;
        self.output.clear();
        Ok(())
    }

    /// The next reply.
    pub(super) fn receive(&mut self) -> Result<Value, LoadError> {
        let server = self.server;
        loop {
            let mut rest = &self.input[self.start..self.end];
            let value = self
                .decoder
                .next(&mut rest)
                .map_err(|source| LoadError::Protocol { server, source })?;
            self.start = self.end - rest.len();
            if let Some(value) = value {
                return Ok(value);
            }
            (self.start, self.end) = (0, 0);
            match self.stream.read(&mut self.input) {
                Ok(0) => return Err(LoadError::Closed { server }),
                Ok(count) => self.end = count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(LoadError::Broken { server, source }),
            }
        }
    }
}
