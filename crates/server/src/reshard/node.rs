//! A conversation with one server of the rings.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use pando_protocol::Value;
use pando_ring::{Address, Node, Placement};

use super::ReshardError;
use crate::peer::{Peer, PeerError};

/// How long connecting may take.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// How long a reply may take: a server may wait that long for its disk.
const PATIENCE: Duration = Duration::from_secs(90);

/// Names that SCAN looks at for one reply.
const SCAN_COUNT: &[u8] = b"1000";

/// See the module's header.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: Arc<str>,
    pub(super) address: String,
    peer: Peer,
    database: usize,
}

/// What a server says of itself.
#[derive(Debug)]
pub(super) struct Status {
    pub(super) format: String,
    pub(super) databases: usize,
    pub(super) mover: Vec<u8>,
    pub(super) placement: Option<Placement>,
}

impl Server {
    pub(super) fn connect(node: &Node, password: &[u8]) -> Result<Self, ReshardError> {
        let name = Arc::clone(node.shared_name());
        let address = node.address().to_string();
        if let Address::Unix(_) = node.address() {
            return Err(ReshardError::Socket { name, address });
        }
        let found = Peer::connect(&address, CONNECT_PATIENCE, PATIENCE);
        let peer = match found {
            Ok(peer) => peer,
            Err(error) => {
                let error = PeerError::Broken(error);
                return Err(ReshardError::Away {
                    name,
                    address,
                    error,
                });
            }
        };
        let mut server = Self {
            name,
            address,
            peer,
            database: 0,
        };
        if !password.is_empty() {
            server.ask(&[b"AUTH", password])?;
        }
        Ok(server)
    }

    fn away(&self, error: PeerError) -> ReshardError {
        ReshardError::Away {
            name: Arc::clone(&self.name),
            address: self.address.clone(),
            error,
        }
    }

    pub(super) fn unexpected(&self, command: &'static str) -> ReshardError {
        ReshardError::Unexpected {
            name: Arc::clone(&self.name),
            command,
        }
    }

    pub(super) fn send(&mut self, words: &[&[u8]]) -> Result<(), ReshardError> {
        self.peer.send(words).map_err(|error| self.away(error))
    }

    /// The next reply; an error reply is an error.
    pub(super) fn receive(&mut self) -> Result<Value, ReshardError> {
        match self.peer.receive() {
            Ok(Value::Error(answer)) => Err(self.refusal(&answer)),
            Ok(value) => Ok(value),
            Err(error) => Err(self.away(error)),
        }
    }

    pub(super) fn ask(&mut self, words: &[&[u8]]) -> Result<Value, ReshardError> {
        self.send(words)?;
        self.receive()
    }

    fn refusal(&self, answer: &[u8]) -> ReshardError {
        let (name, address) = (Arc::clone(&self.name), self.address.clone());
        let answer = String::from_utf8_lossy(answer).into_owned();
        match answer.split(' ').next().unwrap_or_default() {
            "NOMOVER" => ReshardError::Lost { name },
            "BUSY" => ReshardError::Busy { name },
            "LOADING" => ReshardError::Away {
                name,
                address,
                error: PeerError::Broken(io::Error::other(answer)),
            },
            "READONLY" => ReshardError::Replica { name, address },
            "NOAUTH" | "WRONGPASS" => ReshardError::Password {
                name,
                address,
                answer,
            },
            _ => ReshardError::Refused {
                name,
                address,
                answer,
            },
        }
    }

    pub(super) fn select(&mut self, database: usize) -> Result<(), ReshardError> {
        if self.database != database {
            self.ask(&[b"SELECT", database.to_string().as_bytes()])?;
            self.database = database;
        }
        Ok(())
    }

    pub(super) fn status(&mut self) -> Result<Status, ReshardError> {
        let command = "RESHARD STATUS";
        let reply = match self.ask(&[b"RESHARD", b"STATUS"]) {
            Err(ReshardError::Refused {
                name,
                address,
                answer,
            }) => {
                return Err(ReshardError::Unable {
                    name,
                    address,
                    answer,
                });
            }
            reply => reply?,
        };
        let Value::Array(fields) = reply else {
            return Err(self.unexpected(command));
        };
        let field = |name: &str| {
            let mut pairs = fields.chunks_exact(2);
            pairs.find_map(|pair| match pair {
                [Value::Bulk(found), Value::Bulk(value)] if found == name.as_bytes() => {
                    Some(value.clone())
                }
                _ => None,
            })
        };
        let text = |name: &str| field(name).and_then(|value| String::from_utf8(value).ok());
        let (Some(format), Some(databases), Some(mover), Some(file)) = (
            text("format"),
            text("databases").and_then(|text| text.parse().ok()),
            field("mover"),
            field("placement"),
        ) else {
            return Err(self.unexpected(command));
        };
        let placement = if file.is_empty() {
            None
        } else {
            let parsed = Placement::parse(&file);
            Some(parsed.map_err(|error| ReshardError::Placement {
                name: Arc::clone(&self.name),
                error,
            })?)
        };
        Ok(Status {
            format,
            databases,
            mover,
            placement,
        })
    }

    /// Whether it is a replica, and how many follow it.
    pub(super) fn role(&mut self) -> Result<(bool, usize), ReshardError> {
        match self.ask(&[b"ROLE"])? {
            Value::Array(fields) => match (fields.first(), fields.get(2)) {
                (Some(Value::Bulk(role)), Some(Value::Array(replicas))) if role == b"master" => {
                    Ok((false, replicas.len()))
                }
                _ => Ok((true, 0)),
            },
            _ => Err(self.unexpected("ROLE")),
        }
    }

    /// How many keys all databases have.
    pub(super) fn key_count(&mut self, databases: usize) -> Result<u64, ReshardError> {
        let mut total = 0;
        for database in 0..databases {
            self.select(database)?;
            match self.ask(&[b"DBSIZE"])? {
                Value::Integer(keys) => total += keys as u64,
                _ => return Err(self.unexpected("DBSIZE")),
            }
        }
        Ok(total)
    }

    /// Shows all names of all databases, in portions, while others write.
    pub(super) fn names(
        &mut self,
        databases: usize,
        mut take: impl FnMut(&mut Self, usize, Vec<Vec<u8>>) -> Result<(), ReshardError>,
    ) -> Result<(), ReshardError> {
        for database in 0..databases {
            let mut cursor = b"0".to_vec();
            loop {
                self.select(database)?;
                let reply = self.ask(&[b"SCAN", &cursor, b"COUNT", SCAN_COUNT])?;
                let (next, names) = match reply {
                    Value::Array(parts) => match <[Value; 2]>::try_from(parts) {
                        Ok([Value::Bulk(next), Value::Array(names)]) => (next, names),
                        _ => return Err(self.unexpected("SCAN")),
                    },
                    _ => return Err(self.unexpected("SCAN")),
                };
                let bulks: Option<Vec<Vec<u8>>> = names.into_iter().map(bulk).collect();
                let names = bulks.ok_or_else(|| self.unexpected("SCAN"))?;
                if !names.is_empty() {
                    take(self, database, names)?;
                }
                if next == b"0" {
                    break;
                }
                cursor = next;
            }
        }
        Ok(())
    }
}

pub(super) fn bulk(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::Bulk(bytes) => Some(bytes),
        _ => None,
    }
}
