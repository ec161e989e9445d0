//! `pando dump --from`: dumps a running server over the wire, as of one moment.
//!
//! The moment is that of a snapshot: a named one, or one of our own. The connection uses it
//! (SNAPSHOT USE), so a dropped snapshot is an error, even if a new one has its name. KDUMP returns
//! the keys in portions; the next portion is requested before the last one is written. Memory holds
//! two portions, whatever the number of keys.
//!
//! Our own snapshot is dropped at the end, after an error, and when a signal ends the process. If
//! none of that happens (SIGKILL), the server drops it after [`OWN_LIFE_S`].

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pando_db::{DumpWriter, StreamError};
use pando_protocol::{ReplyError, Value};
use thiserror::Error;

use crate::peer::{Peer, PeerError};
use crate::progress::DumpProgress;
use crate::shared::lock;
use crate::signals;

/// How long connecting to a server, and waiting for the next bytes of a reply, may take.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// See [`CONNECT_PATIENCE`].
const PATIENCE: Duration = Duration::from_mins(1);

/// Seconds after which our snapshot is dropped automatically.
const OWN_LIFE_S: u64 = 24 * 60 * 60;

/// What to dump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// The server, as HOST:PORT.
    pub address: String,
    /// The snapshot; if absent, one is made.
    pub snapshot: Option<String>,
}

/// Why a dump is incomplete.
#[derive(Debug, Error)]
pub enum RunningError {
    /// The server cannot be reached.
    #[error("cannot reach {address}: {error}")]
    Unreachable {
        /// Its address.
        address: String,
        /// The system's error.
        error: io::Error,
    },
    /// It was reached, but the connection broke.
    #[error("the connection to the server has broken: {0}")]
    Broken(io::Error),
    /// It closed the connection.
    #[error("the server has closed the connection")]
    Closed,
    /// It is connected but sends nothing.
    #[error("the server has not replied for {} s", PATIENCE.as_secs())]
    Silent,
    /// It is not a server of this protocol.
    #[error("the server does not speak RESP: {0}")]
    Foreign(#[from] ReplyError),
    /// It speaks RESP but does not know a needed command.
    #[error("the server is not Pando, or an older one; it replies: {answer}")]
    Unable {
        /// Its reply.
        answer: String,
    },
    /// It requires a password.
    #[error("the server requires a password; --requirepass or its configuration file has it")]
    Password,
    /// It refuses another command.
    #[error("the server refuses {command}: {answer}")]
    Refused {
        /// The command.
        command: String,
        /// Its reply.
        answer: String,
    },
    /// The snapshot does not exist.
    #[error("the server has no snapshot {name}")]
    NoSnapshot {
        /// Its name.
        name: String,
    },
    /// The snapshot existed but was dropped.
    #[error("the snapshot was dropped, so the dump is incomplete: {answer}")]
    Gone {
        /// The server's reply.
        answer: String,
    },
    /// A reply of unknown form.
    #[error("the server's reply to {command} has an unknown form")]
    Unexpected {
        /// The command.
        command: &'static str,
    },
    /// The received data cannot be loaded, or the dump cannot be written.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The dump cannot be written.
    #[error("cannot write the dump: {0}")]
    Output(io::Error),
    /// Signals cannot be waited for.
    #[error("cannot wait for signals: {0}")]
    Signals(io::Error),
}

impl Running {
    /// Writes the dump; returns how many keys it has.
    pub(crate) fn dump(&self, password: &[u8], out: impl Write) -> Result<u64, RunningError> {
        let server = Server {
            address: self.address.clone(),
            password: password.to_vec(),
        };
        let mut peer = server.connect()?;
        let own = Arc::new(Own::of(server));
        let at_end = Arc::clone(&own);
        let interrupted = move || {
            let given_up = at_end.give_up();
            eprintln!("interrupted: the dump is incomplete");
            // A thread that finds the snapshot dropped waits here for the end of the process.
            std::mem::forget(given_up);
        };
        signals::before_end(interrupted).map_err(RunningError::Signals)?;
        let name = match &self.snapshot {
            Some(name) => name.clone(),
            None => own.make(&mut peer)?,
        };
        let dumped = dump_snapshot(&mut peer, &name, out);
        drop(own.give_up());
        dumped
    }
}

/// Dumps all databases as of a snapshot.
fn dump_snapshot(peer: &mut Peer, name: &str, out: impl Write) -> Result<u64, RunningError> {
    let used = peer.ask(&[b"SNAPSHOT", b"USE", name.as_bytes()]);
    used.map_err(|error| match error {
        RunningError::Gone { .. } => RunningError::NoSnapshot { name: name.into() },
        error => error,
    })?;
    let mut progress = DumpProgress::of(keys_of(peer, name)?);
    let mut writer = DumpWriter::begin(out).map_err(RunningError::Output)?;
    let mut bytes = 0;
    for database in 0..databases(peer)? {
        peer.ask(&[b"SELECT", database.to_string().as_bytes()])?;
        let mut portion = Portion::of(peer.ask(&[b"KDUMP", b"0"])?)?;
        loop {
            let is_last = portion.next == b"0";
            if !is_last {
                peer.send(&[b"KDUMP", &portion.next])?;
            }
            let written = writer.write_sent(portion.format, &portion.entries);
            written.map_err(|error| match error {
                StreamError::Io(error) => RunningError::Output(error),
                error => error.into(),
            })?;
            bytes += portion.entries.len() as u64;
            progress.show(writer.entries(), bytes);
            if is_last {
                break;
            }
            portion = Portion::of(peer.answer_to("KDUMP")?)?;
        }
    }
    progress.end();
    writer.finish().map_err(RunningError::Output)
}

/// Keys of a snapshot, including expired ones.
fn keys_of(peer: &mut Peer, name: &str) -> Result<u64, RunningError> {
    let unexpected = RunningError::Unexpected {
        command: "SNAPSHOT INFO",
    };
    let reply = peer.ask(&[b"SNAPSHOT", b"INFO", name.as_bytes()])?;
    let Value::Array(pairs) = reply else {
        return Err(unexpected);
    };
    let mut pairs = pairs.chunks(2);
    let keys = pairs.find_map(|pair| match pair {
        [Value::Bulk(name), Value::Integer(keys)] if name == b"keys" => u64::try_from(*keys).ok(),
        _ => None,
    });
    keys.ok_or(unexpected)
}

/// How many databases the server has.
fn databases(peer: &mut Peer) -> Result<u64, RunningError> {
    let reply = peer.ask(&[b"CONFIG", b"GET", b"databases"])?;
    let number = match &reply {
        Value::Array(pair) => pair.get(1).and_then(Value::as_bytes),
        _ => None,
    };
    let number = number.and_then(|number| str::from_utf8(number).ok()?.parse().ok());
    number.ok_or(RunningError::Unexpected {
        command: "CONFIG GET",
    })
}

/// The reply to KDUMP.
#[derive(Debug, PartialEq, Eq)]
struct Portion {
    next: Vec<u8>,
    format: i64,
    entries: Vec<u8>,
}

impl Portion {
    fn of(reply: Value) -> Result<Self, RunningError> {
        let portion = match reply {
            Value::Array(parts) => <[Value; 3]>::try_from(parts).ok(),
            _ => None,
        };
        let Some(
            [
                Value::Bulk(next),
                Value::Integer(format),
                Value::Array(pieces),
            ],
        ) = portion
        else {
            return Err(RunningError::Unexpected { command: "KDUMP" });
        };
        let mut entries = Vec::new();
        for piece in pieces {
            match piece {
                // Nearly always there is one.
                Value::Bulk(piece) if entries.is_empty() => entries = piece,
                Value::Bulk(piece) => entries.extend_from_slice(&piece),
                _ => return Err(RunningError::Unexpected { command: "KDUMP" }),
            }
        }
        Ok(Self {
            next,
            format,
            entries,
        })
    }
}

/// Our own snapshot, while it exists.
struct Own {
    server: Server,
    name: Mutex<Option<String>>,
}

impl Own {
    fn of(server: Server) -> Self {
        Self {
            server,
            name: Mutex::default(),
        }
    }

    /// Makes it; returns its name. A thread that drops it meanwhile waits until it is made.
    fn make(&self, peer: &mut Peer) -> Result<String, RunningError> {
        let mut made = lock(&self.name);
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let micros = since.unwrap_or_default().as_micros();
        let name = format!("pando-dump-{}-{micros}", std::process::id());
        let life = OWN_LIFE_S.to_string();
        peer.ask(&[
            b"SNAPSHOT",
            b"CREATE",
            name.as_bytes(),
            b"TTL",
            life.as_bytes(),
        ])?;
        Ok(made.insert(name).clone())
    }

    /// Drops it if it exists, over a separate connection: the other one may have broken, or be in
    /// the middle of a reply. Nobody else makes or drops it before the guard is released.
    fn give_up(&self) -> MutexGuard<'_, Option<String>> {
        let mut made = lock(&self.name);
        let Some(name) = made.take() else {
            return made;
        };
        let dropped = self.server.connect().and_then(|mut peer| {
            let dropped = peer.ask(&[b"SNAPSHOT", b"DROP", name.as_bytes()]);
            dropped.map(drop)
        });
        match dropped {
            Ok(()) | Err(RunningError::Gone { .. }) => {}
            Err(error) => {
                let hours = OWN_LIFE_S / 3600;
                eprintln!("cannot drop the snapshot {name}, which goes in {hours} hours: {error}");
            }
        }
        made
    }
}

/// A server's address and our credentials.
struct Server {
    address: String,
    password: Vec<u8>,
}

impl Server {
    fn connect(&self) -> Result<Peer, RunningError> {
        let unreachable = |error| RunningError::Unreachable {
            address: self.address.clone(),
            error,
        };
        let found = Peer::connect(&self.address, CONNECT_PATIENCE, PATIENCE);
        let mut peer = found.map_err(unreachable)?;
        if !self.password.is_empty() {
            peer.ask(&[b"AUTH", &self.password])?;
        }
        Ok(peer)
    }
}

/// Asks a running server: its error replies are errors here.
trait Ask {
    /// Sends a request and returns its reply.
    fn ask(&mut self, words: &[&[u8]]) -> Result<Value, RunningError>;

    /// The next reply, which belongs to `command`.
    fn answer_to(&mut self, command: &str) -> Result<Value, RunningError>;
}

impl Ask for Peer {
    fn ask(&mut self, words: &[&[u8]]) -> Result<Value, RunningError> {
        self.send(words)?;
        // Arguments may be secrets; subcommands are not.
        let shown = if words[0] == b"SNAPSHOT" { 2 } else { 1 };
        self.answer_to(&String::from_utf8_lossy(&words[..shown].join(&b' ')))
    }

    fn answer_to(&mut self, command: &str) -> Result<Value, RunningError> {
        match self.receive()? {
            Value::Error(answer) => Err(refusal(command, &answer)),
            reply => Ok(reply),
        }
    }
}

impl From<PeerError> for RunningError {
    fn from(error: PeerError) -> Self {
        match error {
            PeerError::Broken(error) => Self::Broken(error),
            PeerError::Closed => Self::Closed,
            PeerError::Silent => Self::Silent,
            PeerError::Foreign(error) => Self::Foreign(error),
        }
    }
}

/// The meaning of a server's error, by its code.
fn refusal(command: &str, answer: &[u8]) -> RunningError {
    let answer = String::from_utf8_lossy(answer).into_owned();
    let code = answer.split(' ').next().unwrap_or_default();
    match code {
        "NOAUTH" => RunningError::Password,
        "NOSNAPSHOT" => RunningError::Gone { answer },
        "ERR" if answer.starts_with("ERR unknown") => RunningError::Unable { answer },
        _ => RunningError::Refused {
            command: command.to_owned(),
            answer,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_portion_are_put_together() {
        let bulk = |text: &str| Value::Bulk(text.into());
        let parts = |pieces| Value::Array(vec![bulk("(k"), Value::Integer(1), pieces]);
        let pieces = Value::Array(vec![bulk("ab"), bulk("cd")]);
        let portion = Portion::of(parts(pieces)).expect("it has the form");
        assert_eq!(
            (&portion.next[..], &portion.entries[..]),
            (&b"(k"[..], &b"abcd"[..])
        );
        for other in [bulk("x"), Value::Array(vec![bulk("0")]), parts(Value::Null)] {
            assert!(matches!(
                Portion::of(other),
                Err(RunningError::Unexpected { command: "KDUMP" })
            ));
        }
    }

    #[test]
    fn what_a_server_refuses_is_told_by_its_code() {
        let told = |answer: &str| refusal("AUTH", answer.as_bytes()).to_string();
        assert!(told("NOAUTH Authentication required.").contains("--requirepass"));
        assert!(told("NOSNAPSHOT no snapshot has this name").contains("incomplete"));
        assert!(told("ERR unknown command 'SNAPSHOT'").contains("not Pando, or an older one"));
        let wrong = told("WRONGPASS invalid username-password pair or user is disabled.");
        assert!(wrong.contains("refuses AUTH: WRONGPASS"), "{wrong}");
    }
}
