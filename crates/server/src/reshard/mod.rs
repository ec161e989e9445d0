//! `pando reshard`: moves what a changed ring moves, while clients write.
//!
//! After §3.5 of the CDDS paper (Tembo), whose clients spread keys over servers by consistent
//! hashing; the paper moves none. All that must last is on the servers ([`pando_ring::Placement`]):
//! this program may be killed at any moment, and started again it goes on from what they say.
//!
//! ```text
//! begin ── every server knows both rings and its name in them; one that did not before has no key
//!   │      that is not its own by the old ring
//! clear ── what an earlier attempt has left on its new servers goes
//!   │
//! copy ─── all names are scanned, whole values copied: clients write meanwhile, and each server
//!   │      notes the keys that change (`Mover` of pando-db)
//! follow ─ what has changed is copied, until it is little
//!   │
//! hand over, a few ranges at a time:
//!   │      fenced at the old servers ─ the last changes copied ─ taken by the new ones ─ given
//!   │      by the others
//! sweep ── what has left is removed, when no server needs it any more
//! ```
//!
//! When a server goes away, or forgets this mover because it was restarted or emptied, the attempt
//! ends, and the next one begins above. Ranges that were handed over stay so.
//!
//! Invariants:
//! - **RS1 fence-then-last** The last changes of a range are asked for behind its fence at every
//!   old server, and are copied before the first new server takes it.
//! - **RS2 swept-last** Nothing is removed from an old server before every server has every range:
//!   until then a new server that has lost a copy can have it again.
//! - **RS3 known-before** A server without a memory of the resharding takes no part in it once a
//!   range was handed over: it has lost more than that memory, or is another one.
//! - **RS4 cleared-of-copies** Only copies are cleared away: on a server that began with none of
//!   the keys that come to it, and has refused clients these keys since.
//!
//! Deliberately absent: the durability of what it says (the servers), one process for two movements
//! at a time (the one that began last is heard); a fence that goes back by itself when its mover is
//! gone: a server cannot tell that from a mover that is slow and has told the new server.

mod hands;
mod mover;
mod node;
mod progress;
mod ranges;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pando_ring::limits::RANGES;
use pando_ring::{PlacementError, Ring, RingError};
use thiserror::Error;

use crate::peer::PeerError;

pub(crate) use mover::run;

/// What to move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reshard {
    /// The file of the ring by which keys are placed now.
    pub old: PathBuf,
    /// The file of the one by which they are to be.
    pub new: PathBuf,
    /// Only count.
    pub dry_run: bool,
    /// Keys a second that are copied or removed, at most.
    pub rate: Option<u64>,
}

/// Why keys were not moved, or not all of them.
#[derive(Debug, Error)]
pub enum ReshardError {
    /// A ring file is wrong.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// A ring file cannot be read.
    #[error("ring file {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A node's server is reached by a socket of this machine.
    #[error("node `{name}` at {address}: keys are moved over TCP; give it as host:port")]
    Socket {
        /// The node.
        name: Arc<str>,
        /// Its address.
        address: String,
    },
    /// A server cannot be reached, or the connection broke.
    #[error("node `{name}` at {address}: {error}")]
    Away {
        /// The node.
        name: Arc<str>,
        /// Its address.
        address: String,
        /// What happened.
        #[source]
        error: PeerError,
    },
    /// A server is no Pando, or an older one.
    #[error("node `{name}` at {address} is not Pando, or an older one; it replies: {answer}")]
    Unable {
        /// The node.
        name: Arc<str>,
        /// Its address.
        address: String,
        /// Its reply.
        answer: String,
    },
    /// A server wants another password.
    #[error("node `{name}` at {address} refuses the password (--requirepass): {answer}")]
    Password {
        /// The node.
        name: Arc<str>,
        /// Its address.
        address: String,
        /// Its reply.
        answer: String,
    },
    /// A server is a replica.
    #[error("node `{name}` at {address} is a replica; the ring file must name its primary")]
    Replica {
        /// The node.
        name: Arc<str>,
        /// Its address.
        address: String,
    },
    /// A server refuses something else.
    #[error("node `{name}` at {address} refuses: {answer}")]
    Refused {
        /// The node.
        name: Arc<str>,
        /// Its address.
        address: String,
        /// Its reply.
        answer: String,
    },
    /// A reply is of an unknown form.
    #[error("node `{name}` replies to {command} in an unknown form")]
    Unexpected {
        /// The node.
        name: Arc<str>,
        /// The command.
        command: &'static str,
    },
    /// Servers of different versions.
    #[error("node `{name}` has values in form {got}, this program moves form {expected}")]
    Format {
        /// The node.
        name: Arc<str>,
        /// Its form.
        got: String,
        /// This program's.
        expected: String,
    },
    /// Servers of different settings.
    #[error(
        "node `{name}` has {got} databases and node `{other}` {expected}; all must have as many"
    )]
    Databases {
        /// A node.
        name: Arc<str>,
        /// How many it has.
        got: usize,
        /// Another node.
        other: Arc<str>,
        /// How many that has.
        expected: usize,
    },
    /// A server has another idea of where keys are.
    #[error("node `{name}`: {error}")]
    Placement {
        /// The node.
        name: Arc<str>,
        /// Which.
        error: PlacementError,
    },
    /// A server has keys that the old ring gives to others, so that is the wrong ring.
    #[error(
        "node `{name}` has keys that the old ring gives to other nodes, as `{}`: is it the ring by \
         which clients place keys? Nothing was changed", key.escape_ascii()
    )]
    Misplaced {
        /// The node.
        name: Arc<str>,
        /// The first such key.
        key: Vec<u8>,
    },
    /// A server forgot what it has (RS3 known-before).
    #[error(
        "node `{name}` knows nothing of this resharding, and {done} of {RANGES} ranges are handed \
         over or on their way: was it started on other data? Start it on its own, or promote a \
         replica of it"
    )]
    Stranger {
        /// The node.
        name: Arc<str>,
        /// Ranges that are no longer where they were.
        done: usize,
    },
    /// Two servers differ about a range, so the way back is not open.
    #[error(
        "range {range} is between two servers: go on with the rings as they were before going back"
    )]
    Between {
        /// The range.
        range: usize,
    },
    /// A server has forgotten the mover.
    #[error("node `{name}` was restarted or emptied meanwhile")]
    Lost {
        /// The node.
        name: Arc<str>,
    },
    /// A server makes a change that an earlier mover has asked for.
    #[error("node `{name}` is busy with what an earlier `pando reshard` has asked for")]
    Busy {
        /// The node.
        name: Arc<str>,
    },
    /// Another mover has begun.
    #[error("another `pando reshard` has begun and goes on with it")]
    TakenOver,
    /// Replicas do not follow.
    #[error("the replicas of node `{name}` do not have everything yet")]
    ReplicasBehind {
        /// The node.
        name: Arc<str>,
    },
}

impl ReshardError {
    /// Whether another attempt may succeed.
    fn passes(&self) -> bool {
        matches!(self, Self::Away { .. } | Self::Lost { .. })
    }
}

/// A ring, and the text of its file.
#[derive(Debug)]
struct RingFile {
    text: String,
    ring: Ring,
}

impl RingFile {
    fn load(path: &Path) -> Result<Self, ReshardError> {
        let ring = Ring::load(path)?;
        let text = std::fs::read_to_string(path).map_err(|error| ReshardError::Unreadable {
            path: path.to_owned(),
            error,
        })?;
        Ok(Self { text, ring })
    }
}
