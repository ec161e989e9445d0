//! The progress of a request, and what it waits for: one type from the handler, or the host, to the
//! connection that resumes it.
//!
//! | [`Wait`] for | what remains when it is over |
//! |---|---|
//! | `Time` | the reply: `+OK` |
//! | `Disk` | the reply: which disks have everything |
//! | `Replicas` | the reply: which disks, how many replicas have everything |
//! | `Host` | the reply, which the host writes |
//! | `Others` | the next slice, in a later turn |
//! | `Errand`, `Keys`, `Leave`, `Reader`, `Away` | the request again ([`Wait::runs_again`]) |
//!
//! During any wait, no gate and no pin is held, and nothing else of this client is executed. A new
//! kind of wait (a key, a remote answer) is a variant here. The compiler names where a front end
//! begins a wait; where it ends one (`Worker::resume` of the server) needs an arm, too.
//!
//! Deliberately absent: who wakes whom; that is the front end's concern.

use crate::clock::{Microseconds, Milliseconds};
use std::any::Any;
use std::ops::Range;

use pando_engine::{LogEpoch, StreamId, TypeTag};
use pando_protocol::Reply;
use pando_protocol::command::GateNeed;

use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::snapshots::Lease;

/// The progress of a request.
#[derive(Debug)]
pub enum Progress {
    /// The reply is written.
    Done,
    /// The reply is written; the connection is closed after it was sent.
    Close,
    /// It continues when this is over.
    Waits(Wait),
}

/// What a handler returns.
pub(crate) type Handled = Result<Progress, CommandError>;

/// What a request waits for; see the module's header.
#[derive(Debug)]
pub enum Wait {
    /// This many milliseconds (DEBUG SLEEP).
    Time {
        /// How long.
        milliseconds: u64,
    },
    /// Everything up to `epoch` on disk: the reply is an array of 1 and 0, or of 0 and 0 when this
    /// many milliseconds have passed (WAITAOF).
    Disk {
        /// What [`crate::Database::durable`] must be.
        epoch: LogEpoch,
        /// How long at most; `None` is for ever.
        timeout: Option<Milliseconds>,
    },
    /// So many replicas that have everything (WAIT, WAITAOF).
    Replicas {
        /// What it waits for.
        wait: ReplicaWait,
        /// How long at most; `None` is for ever.
        timeout: Option<Milliseconds>,
    },
    /// The host's meaning of this number (SAVE).
    Host(u64),
    /// The host's errand for this request, which runs again when the host has something for it
    /// (MIGRATE).
    Errand,
    /// Other requests' turn: the command continues in slices ([`crate::Turn::slice`]).
    Others(Slices),
    /// A value at one of its keys (BLPOP): nothing was done, and it tries again when the database
    /// says so ([`crate::Database::on_ready`]), or its time is over ([`crate::Client::end_wait`]).
    Keys(KeyWait),
    /// Permission to run: nothing was done, and it tries again at this time (CLIENT PAUSE, memory).
    Leave {
        /// In microseconds since the Unix epoch.
        until: Microseconds,
    },
    /// The client, which must take some of the reply: as much is written as fits.
    Reader,
    /// Data that the engine did not have and is fetching: nothing was done (RR1 effects-once).
    /// Nobody signals its arrival: a request that is woken too early waits once more.
    Away,
}

/// What a blocking command waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyWait {
    /// A value of this type
    pub(crate) tag: TypeTag,
    /// at one of the keys that these arguments name.
    pub(crate) keys: Range<usize>,
    /// Until when; `None` is for ever.
    pub until: Option<Microseconds>,
    /// In a transaction, where it does not wait, its reply is a null instead of a null array.
    pub(crate) is_single: bool,
    /// What it waits for in streams.
    pub(crate) streams: Option<StreamWait>,
}

/// What a command waits for in streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StreamWait {
    /// Entries behind these ids, one for each key (XREAD): `$` was the last id when it began.
    Behind(Vec<StreamId>),
    /// Entries that this group has not had (XREADGROUP).
    Group(Box<[u8]>),
}

/// What WAIT and WAITAOF wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaWait {
    /// So many replicas.
    pub replicas: usize,
    /// The epoch that they must have acknowledged.
    pub followed: LogEpoch,
    /// 1: this server, too, must have everything on disk.
    pub disks: i64,
    /// What [`crate::Database::durable`] must be for that.
    pub epoch: LogEpoch,
    /// Only replicas that have it on disk count, and the reply tells of this server's, too.
    pub on_disk: bool,
}

impl ReplicaWait {
    /// Whether it is over, where this server has everything on disk, or not, and so many replicas
    /// have it.
    #[must_use]
    pub fn is_over(&self, (durable, replicas): (bool, usize)) -> bool {
        replicas >= self.replicas && (durable || self.disks == 0)
    }

    /// Writes the reply for that.
    pub fn answer(&self, reply: &mut Reply<'_>, (durable, replicas): (bool, usize)) {
        if self.on_disk {
            reply.array(2);
            reply.integer(i64::from(durable));
        }
        reply.integer(replicas as i64);
    }
}

/// A command that does its work in bounded slices.
pub trait Slice: Any + Send + std::fmt::Debug {
    /// Does the next slice; when it returns true the reply is written (an error included) and the
    /// command is over. Nothing is written to `reply` before that.
    fn step(&mut self, keyspace: &mut Keyspace<'_>, reply: &mut Reply<'_>) -> bool;

    /// The gates under which the next slice runs: its own, or all. In a turn that holds all, the
    /// turn does the work (`turn::branches`).
    fn gates(&self) -> GateNeed {
        GateNeed::Own
    }

    /// Whether all that it shows is found by one slice, and so at one moment as far as others write
    /// several keys at once (MR3 reads-between-runs of minuet). Then [`Self::again`] is O(1).
    fn shows_together(&self) -> bool {
        false
    }

    /// The present state of the work, to continue from if the next slice has to be repeated. O(what
    /// it has found), and called only where slices are.
    fn again(&self) -> Box<dyn Slice>;
}

/// A long command between two of its slices.
#[derive(Debug)]
pub struct Slices {
    pub(crate) work: Box<dyn Slice>,
    /// The latest epoch that the slices so far may reveal (AK4 sync-waits).
    pub(crate) observed: LogEpoch,
    /// Its client wants no reply to it.
    pub(crate) silent: bool,
    /// The lease of the snapshot that it reads (NS2 asked-every-turn, LD2 leased-stays).
    pub(crate) reads: Option<Lease>,
    /// The index of database 0 of the branch that it reads, which must be there in every turn.
    pub(crate) base: usize,
}

impl Wait {
    /// Whether the request is executed again: it has done nothing so far, or its client keeps what
    /// it did.
    #[must_use]
    pub fn runs_again(&self) -> bool {
        match self {
            Self::Errand | Self::Keys(_) | Self::Leave { .. } | Self::Reader | Self::Away => true,
            Self::Time { .. }
            | Self::Disk { .. }
            | Self::Replicas { .. }
            | Self::Host(_)
            | Self::Others(_) => false,
        }
    }
}

impl Progress {
    /// It continues in slices.
    pub(crate) fn in_slices(work: impl Slice + 'static) -> Self {
        Self::Waits(Wait::Others(Slices {
            work: Box::new(work),
            observed: LogEpoch::NONE,
            silent: false,
            reads: None,
            base: 0,
        }))
    }

    /// It tries again at this time.
    pub(crate) fn put_off(until: Microseconds) -> Self {
        Self::Waits(Wait::Leave { until })
    }

    /// Until when it is postponed, if it is.
    #[must_use]
    pub fn put_off_until(&self) -> Option<Microseconds> {
        match self {
            Self::Waits(Wait::Leave { until }) => Some(*until),
            _ => None,
        }
    }
}
