//! Following another database: its data first, then every change of it, while both are served.
//!
//! After §5.3 of the CDDS paper: Tembo's primaries have trees of replicas. A [`Source`] on the
//! followed side makes messages, a [`Replica`] on the other takes them. Whoever carries them (the
//! server's link) keeps their order and loses none.
//!
//! ```text
//!  followed database                                          following database
//!  Source: Hello ─► (Entries │ Epoch)… ─► Done ─► Epoch… ──► Replica: loading ─► following
//!          └────── a full copy ──────────────┘                trees beside │ the mapping
//!  Source: Hello ─► Epoch…                                    the present  ▼ shows them
//!          └ where the replica stood (FW2)                    ones: `swap`
//! ```
//!
//! *A full copy* is fuzzy, as a checkpoint is. The source scans its trees in bounded turns, and
//! sends the log's epochs in between. Whatever it sends of a key is at least as new as everything
//! it sent before, so the replica keeps the newest version, and needs nothing that it has missed.
//! Nothing is copied or forked on the followed side.
//!
//! *Following* repeats one epoch at a time, under all gates, as one group of the replica's own log.
//! Here we depart from the first plan, in which a replica's log had the same epochs and versions: a
//! replica draws its own. So everything that a database does with a write (images for snapshots,
//! WATCH, the expiry index, its own followers) works on a replica by the one write path, and its
//! clock never has to stand still.
//!
//! | module | what it is |
//! |---|---|
//! | `message` | what is sent |
//! | `frames` | how a carrier cuts it into pieces |
//! | `source` | the followed side |
//! | `resume` | where it begins |
//! | `scan` | its trees, slice by slice |
//! | `replica` | the following side |
//! | `repeat` | its way of applying an epoch |
//! | `loading` | a full copy on its way in |
//! | `difference` | what has changed, where epochs are not kept |
//! | `album` | one with branches and lasting snapshots |
//! | `check` | whether both have the same |
//! | `tidying` | when memory is reclaimed |
//!
//! Invariants:
//! - **FW1 one-history** A history names what happens to the data of one database from one opening
//!   on, or from a full copy that it takes. A position, which is a history and an epoch, means the
//!   same wherever it is known: to whom it was given, to that database after a restart as long as
//!   the position was not lost (HL1 fork-is-known), and to others that have followed through it.
//! - **FW2 chained** An epoch is repeated only directly behind the one that it names as the one
//!   before it. Otherwise the replica refuses it, and takes a full copy.
//! - **FW3 durable-above** An epoch is sent only when it is durable on the followed side. Without a
//!   log of files there, when it is closed.
//! - **FW4 log-has-copy** What a full copy brings is in the log of a replica on disk before the
//!   mapping shows it, and no checkpoint is taken meanwhile: a crash leaves the old data or the
//!   new.
//! - **FW5 whole-epochs-shown** A reader of a replica sees all of a repeated epoch or nothing of
//!   it; after a crash of the replica, too: it is one group.
//! - **FW6 expired-is-there** A replica repeats changes of a value whatever its own clock says
//!   about its deadline. Only the followed side decides that a key has expired.
//!
//! - **FW7 standing-is-logged** Where a replica stands is in the group that brought it there, and
//!   in checkpoints: after a restart it goes on from there. A database that takes writes of its own
//!   stands nowhere.
//!
//! Deliberately absent: sockets, roles, who follows whom (the server). Histories of a database
//! without a log of files, or a pool, end with its process.

mod album;
mod check;
mod difference;
mod frames;
mod loading;
pub(crate) mod message;
mod repeat;
mod replica;
mod resume;
mod scan;
mod source;
#[cfg(test)]
mod tests;
mod tidying;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_engine::{LogEpoch, Refused, SessionLimit};
use pando_sync::lock;
use thiserror::Error;

pub use check::{CheckStep, CheckWish, Difference, Verdict};
pub use frames::{Framer, Joiner};
pub use message::REPLICATION_FORMAT;
pub use replica::{Acknowledged, Replica, Told};
pub use resume::CopyReason;
pub use source::{Sent, Source};

use crate::database::Database;
use crate::durable::bytes::Malformed;
use crate::durable::record;
use crate::durable::standing::Standing;
use crate::pool;
use crate::role::Refusal;
use crate::session_state::SessionState;

/// What a replica has: everything up to an epoch of a history (FW1 one-history).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The history.
    pub history: u128,
    /// The last epoch of it that the replica has.
    pub epoch: LogEpoch,
}

/// Why a message cannot be taken. The replica then needs a full copy, except after
/// [`Self::Databases`] and [`Self::Format`], which a copy does not mend.
#[derive(Debug, Error)]
pub enum ReplicationError {
    /// The bytes are no message.
    #[error("the primary has sent something else than this version understands: {0}")]
    Malformed(#[from] Malformed),
    /// Another version of the messages.
    #[error("the primary speaks format {got} of replication, this server {expected}")]
    Format {
        /// The primary's.
        got: u32,
        /// This one's.
        expected: u32,
    },
    /// Another number of databases.
    #[error(
        "the primary has {got} databases, this server {expected}: start it with --databases {got}"
    )]
    Databases {
        /// The primary's.
        got: usize,
        /// This one's.
        expected: usize,
    },
    /// A primary that began with nothing would replace data that are not its own.
    #[error(
        "the primary began empty, and this server has data that did not come from it; to replace \
         them, say REPLICAOF host port FORCE"
    )]
    Empty,
    /// An epoch does not follow the replica's position (FW2 chained).
    #[error(
        "epoch {got} follows {previous}, and this server is at {position}: something is missing"
    )]
    Gap {
        /// The epoch.
        got: LogEpoch,
        /// The one that it names.
        previous: LogEpoch,
        /// Where the replica is.
        position: LogEpoch,
    },
    /// A message that does not belong here.
    #[error("the primary has sent {0} out of turn")]
    OutOfTurn(&'static str),
    /// What it says of the keys that it has.
    #[error(
        "the primary says which keys it has in words that this server does not understand: {0}"
    )]
    Placement(#[from] pando_ring::PlacementError),
    /// The log takes no writes.
    #[error("the log of this server takes no writes")]
    Log,
    /// The pool of the engine has no room for what comes.
    #[error("the pool of this server is full")]
    PoolFull,
    /// The engine cannot hold a value that comes.
    #[error("a value is longer than any that the engine of this server can hold")]
    ValueTooLong,
    /// No session is free.
    #[error(transparent)]
    Session(#[from] SessionLimit),
}

impl From<Refused> for ReplicationError {
    fn from(refusal: Refused) -> Self {
        match refusal {
            Refused::Full => Self::PoolFull,
            Refused::TooLong => Self::ValueTooLong,
        }
    }
}

impl Database {
    /// The history of what is written now.
    #[must_use]
    pub fn history(&self) -> u128 {
        lock(&self.lineage).present()
    }

    /// Whether it follows another database.
    #[must_use]
    pub fn follows(&self) -> bool {
        self.role.follows()
    }

    /// Whether its data have gone for a full copy that is not in yet ([`Replica::set_in_place`]).
    #[must_use]
    pub fn awaits_copy(&self) -> bool {
        self.role.awaits_copy()
    }

    /// Makes it follow another database, or none, and refuse this much of what clients ask
    /// (RO1 rests). The caller has no open turn.
    pub fn set_follows(
        self: &Arc<Self>,
        follows: bool,
        refusal: Refusal,
    ) -> Result<(), SessionLimit> {
        if !follows && lock(&self.standing).epoch > LogEpoch::NONE {
            // What it writes itself from now on nobody above has.
            let mut session = self.session()?;
            let mut turn = session.turn();
            turn.hold_all();
            let left = lock(&self.standing).left();
            self.stand(turn.session_mut(), left);
        }
        self.role.set_follows(follows);
        self.role.set_refusal(refusal);
        if !follows {
            self.role.set_awaits_copy(false);
        }
        self.wait_for_turns();
        Ok(())
    }

    /// Notes where it stands, in the group being written. The caller holds all gates.
    pub(crate) fn stand(&self, session: &mut SessionState, standing: Standing) {
        if let Some(log) = &mut session.log {
            log.append(|out| record::put_standing(out, &standing));
        }
        if let Some(engine) = self.store.pooled() {
            session.note_commit();
            pool::note_standing(engine, &standing);
        }
        *lock(&self.standing) = standing;
    }

    /// Waits until every turn that is open now has ended. The caller has none.
    pub fn wait_for_turns(&self) {
        drop(self.gates.enter_all());
    }

    /// Changes what is refused, from the next requests on.
    pub fn set_refusal(&self, refusal: Refusal) {
        self.role.set_refusal(refusal);
    }

    /// Bytes of all epochs that were closed since somebody first followed, and how many of these
    /// bytes are kept for followers.
    #[must_use]
    pub fn backlog(&self) -> (u64, usize) {
        self.acknowledgement.ring().sizes()
    }

    /// Sets how many bytes are kept for followers.
    pub fn set_backlog_bytes_max(&self, bytes_max: usize) {
        self.acknowledgement.ring().set_bytes_max(bytes_max);
    }

    /// Sets how many bytes of log that no recovery needs are held for followers, once somebody
    /// follows, from the next checkpoint on, or, with a pool, how many of the names of removed
    /// keys. They go when their space is needed.
    pub fn set_log_hold(&self, bytes: u64) {
        if let Some(durable) = &self.durable {
            durable.hold.store(bytes, Ordering::Relaxed);
        }
        if let Some(engine) = self.store.pooled() {
            engine.set_removed_bytes_max(bytes);
        }
    }

    /// Whether epochs are kept for followers.
    #[must_use]
    pub fn is_followed(&self) -> bool {
        self.acknowledgement.ring().is_on()
    }

    /// Waits until more is durable, for this long at most; the caller has asked for it
    /// ([`Database::want_durable`]).
    pub fn wait_for_durable(&self, limit: std::time::Duration) {
        match &self.durable {
            Some(durable) => durable.wait_for_durable(limit),
            None => std::thread::sleep(limit),
        }
    }

    /// The last epoch that was closed.
    #[must_use]
    pub fn closed_epoch(&self) -> LogEpoch {
        self.epochs.current().previous()
    }

    /// The newest epoch that a follower may see (FW3 durable-above).
    pub(crate) fn followable(&self) -> LogEpoch {
        match self.acknowledgement.log() {
            Some(log) => log.durable(),
            None => self.closed_epoch(),
        }
    }

    /// The last closed epoch in which anything was. What was durable before the call is in it or in
    /// one before.
    #[must_use]
    pub fn newest_followed(&self) -> LogEpoch {
        self.acknowledgement.ring().newest()
    }

    /// The epoch that a follower must have to have everything written so far: the last one in which
    /// anything was. The caller has handed over what it wrote.
    #[must_use]
    pub fn followed_epoch(&self) -> LogEpoch {
        let open = self.epochs.current();
        let ring = self.acknowledgement.ring();
        if ring.has_open() { open } else { ring.newest() }
    }

    /// Makes what is written up to now followable soon, if anything is (FW3 durable-above).
    pub(crate) fn press(self: &Arc<Self>) {
        if self.is_durable() {
            self.want_durable(self.epochs.current());
        } else {
            self.end_epoch();
        }
    }
}
