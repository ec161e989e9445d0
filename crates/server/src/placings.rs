//! Changes of which keys this server has: each on disk before it is acknowledged.
//!
//! | change | order | so that |
//! |---|---|---|
//! | a range is fenced | here, then on disk | nothing is written behind the last copy |
//! | a range is new here | everything written so far is durable, then on disk, then here | a crash forgets neither the keys nor that they were taken |
//! | the rest | on disk, then here | |
//!
//! A thread for each change does it to its end, whatever becomes of the connection that asked. The
//! request waits for it without a gate ([`pando_db::Wait::Errand`]).
//!
//! A server without a log and without a pool keeps no file: its keys end with it, too.
//!
//! Invariants:
//! - **PK1 one-at-a-time** One change is made at a time, so the file and the memory agree between
//!   two.
//! - **PK2 kept-first** A request for a change is answered when the file says it; a file that could
//!   not be written is put back.
//!
//! Deliberately absent: what a change means (`pando-ring`), who decides (`crate::reshard`).

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use pando_db::{Database, Microseconds, Mover, Placed, Session, limits as db_limits};
use pando_ring::{PLACEMENT_BYTES_MAX, Placement, RangeState};

use crate::admin::AdminError;
use crate::limits;
use crate::registry::WorkerMailbox;
use crate::shared::lock;

const NAME: &str = "placement.pando";

/// What is to change.
#[derive(Debug)]
pub(crate) enum Change {
    /// Keys are about to move between these rings, or go on.
    Begin {
        mover: Vec<u8>,
        node: String,
        old: String,
        new: String,
    },
    /// Ranges get another state.
    Set {
        mover: Vec<u8>,
        state: RangeState,
        ranges: Vec<usize>,
    },
    /// Every key is here again; by force, even if some are on their way.
    Forget { force: bool },
}

/// How a change went: the status, or an error reply.
pub(crate) type Outcome = Result<String, String>;

#[derive(Debug)]
struct Job {
    client: u64,
    outcome: Arc<Mutex<Option<Outcome>>>,
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Placings {
    directory: Option<PathBuf>,
    /// The change that is being made, or whose outcome was not told (PK1 one-at-a-time).
    job: Mutex<Option<Job>>,
    /// The change of the database's placement that the file has.
    kept: AtomicU64,
}

impl Placings {
    /// Kept in this directory, if anything is.
    pub(crate) fn new(directory: Option<PathBuf>) -> Self {
        Self {
            directory,
            job: Mutex::default(),
            kept: AtomicU64::new(0),
        }
    }

    /// Tells the database what the file says.
    pub(crate) fn load(&self, database: &Arc<Database>) -> Result<(), String> {
        let Some(directory) = &self.directory else {
            return Ok(());
        };
        let path = directory.join(NAME);
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let bytes = match fs::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(told(&error)),
            Ok(about) if about.len() > PLACEMENT_BYTES_MAX => return Err(told(&"it is too long")),
            Ok(_) => fs::read(&path).map_err(|error| told(&error))?,
        };
        let placement = Placement::parse(&bytes).map_err(|error| told(&error))?;
        let mut session = database.session().map_err(|error| error.to_string())?;
        session.turn().place(|_, _| {
            Some(Placed {
                placement,
                mover: None,
                patience: Microseconds::ZERO,
            })
        });
        let changes = database.placement_changes();
        self.kept.store(changes, Ordering::Relaxed);
        Ok(())
    }

    /// Keeps what a primary has told.
    pub(crate) fn follow(&self, database: &Database) -> Result<(), String> {
        let changes = database.placement_changes();
        if self.kept.load(Ordering::Relaxed) == changes {
            return Ok(());
        }
        let placed = database.placed();
        let file = placed.map(|placed| placed.placement.encode());
        let kept = keep(self.directory.as_deref(), file.as_deref());
        kept.map_err(|error| format!("cannot write which keys this server has: {error}"))?;
        self.kept.store(changes, Ordering::Relaxed);
        Ok(())
    }

    /// Begins a change for a client, whose request is executed again when it is made; `mailbox` is
    /// that of its worker. `false`: another one is being made.
    pub(crate) fn begin(
        &self,
        client: u64,
        database: &Arc<Database>,
        change: Change,
        mailbox: Arc<dyn WorkerMailbox>,
    ) -> io::Result<bool> {
        let mut job = lock(&self.job);
        // Whoever asked for the last one may have gone.
        let runs = |job: &Job| lock(&job.outcome).is_none();
        if job.as_ref().is_some_and(runs) {
            return Ok(false);
        }
        let outcome = Arc::new(Mutex::new(None));
        let (place, database) = (Arc::clone(&outcome), Arc::clone(database));
        let directory = self.directory.clone();
        let run = move || {
            let made = make(&database, directory.as_deref(), change);
            *lock(&place) = Some(made);
            mailbox.wake();
        };
        thread::Builder::new().name("placing".into()).spawn(run)?;
        *job = Some(Job { client, outcome });
        Ok(true)
    }

    /// The outcome of the change that this client has asked for, once.
    pub(crate) fn outcome(&self, client: u64) -> Option<Outcome> {
        let mut job = lock(&self.job);
        let outcome = match &*job {
            Some(job) if job.client == client => lock(&job.outcome).take(),
            _ => None,
        };
        if outcome.is_some() {
            *job = None;
        }
        outcome
    }

    /// Whether the client waits for no change that is being made.
    pub(crate) fn is_answered(&self, client: u64) -> bool {
        let job = lock(&self.job);
        let waits = |job: &Job| job.client == client && lock(&job.outcome).is_none();
        !job.as_ref().is_some_and(waits)
    }
}

/// Makes a change to its end.
fn make(database: &Arc<Database>, directory: Option<&Path>, change: Change) -> Outcome {
    let session = database.session().map_err(|error| format!("ERR {error}"))?;
    if database.follows() {
        return Err("READONLY keys move between primaries; this server is a replica".into());
    }
    let present = database.placed();
    let mut making = Making {
        directory,
        session,
        present,
    };
    match change {
        Change::Begin {
            mover,
            node,
            old,
            new,
        } => making.begin(&mover, &node, (&old, &new)),
        Change::Set {
            mover,
            state,
            ranges,
        } => making.set(&mover, state, &ranges),
        Change::Forget { force } => making.forget(force),
    }
}

/// A change that is being made.
struct Making<'m> {
    directory: Option<&'m Path>,
    session: Session,
    present: Option<Arc<Placed>>,
}

impl Making<'_> {
    fn write(&self, file: Option<&[u8]>) -> Result<(), String> {
        keep(self.directory, file).map_err(|error| {
            // PK2 kept-first.
            let before = self
                .present
                .as_ref()
                .map(|placed| placed.placement.encode());
            let _ = keep(self.directory, before.as_deref());
            format!("ERR which keys this server has cannot be written to disk: {error}")
        })
    }

    fn begin(&mut self, mover: &[u8], node: &str, (old, new): (&str, &str)) -> Outcome {
        let branches = self.session.database().branches();
        if branches.is_some_and(|branches| branches > 1) {
            return Err("ERR this server has branches, whose keys do not move".into());
        }
        let present = self.present.as_ref().map(|placed| &placed.placement);
        let begun = Placement::begin(present, node, old, new);
        let (placement, begun) = begun.map_err(|error| format!("ERR {error}"))?;
        self.write(Some(&placement.encode()))?;
        let mover = Some(Arc::new(Mover::new(mover)));
        self.session.turn().place(|_, _| {
            Some(Placed {
                placement,
                mover,
                patience: Microseconds::ZERO,
            })
        });
        Ok(format!("{begun:?}"))
    }

    fn set(&mut self, mover: &[u8], state: RangeState, ranges: &[usize]) -> Outcome {
        let is_known = |placed: &&Arc<Placed>| {
            let present = placed.mover.as_ref();
            present.is_some_and(|it| it.token() == mover && !it.is_lost())
        };
        let placed = self.present.as_ref().filter(is_known);
        let placed = placed.ok_or_else(|| AdminError::NoMover.to_string())?;
        let given = |range: &usize| placed.placement.state(*range) == RangeState::New;
        if state != RangeState::New && ranges.iter().any(given) {
            return Err("ERR a range that was handed over is new for good".into());
        }
        let mut next = placed.with(ranges, state);
        let file = next.placement.encode();
        if state == RangeState::Fenced {
            self.session.turn().place(|_, now| {
                next.patience = Microseconds(now.0 + db_limits::PLACE_PATIENCE_US.0);
                Some(next)
            });
            self.write(Some(&file))?;
        } else {
            wait_for_disk(self.session.database())?;
            self.write(Some(&file))?;
            self.session.turn().place(|_, _| Some(next));
        }
        Ok("OK".into())
    }

    fn forget(&mut self, force: bool) -> Outcome {
        let settled = |placed: &Arc<Placed>| placed.placement.is_settled();
        if !force && !self.present.as_ref().is_none_or(settled) {
            return Err(
                "ERR not all keys have moved: finish the resharding, or say FORGET FORCE on every \
                 server and lose what is on its way"
                    .into(),
            );
        }
        self.write(None)?;
        self.session.turn().place(|_, _| None);
        Ok("OK".into())
    }
}

/// Waits until everything written so far is durable.
fn wait_for_disk(database: &Arc<Database>) -> Result<(), String> {
    if !database.is_durable() {
        return Ok(());
    }
    let epoch = database.closed_epoch().next();
    let began = Instant::now();
    database.want_durable(epoch);
    while database.durable() < epoch {
        if began.elapsed() > limits::PLACING_PATIENCE {
            return Err("ERR what was written does not become durable".into());
        }
        database.want_durable(epoch);
        database.wait_for_durable(limits::REPLICATION_DISK_PAUSE);
    }
    Ok(())
}

/// Writes the file anew, or removes it; on return that is durable.
fn keep(directory: Option<&Path>, file: Option<&[u8]>) -> io::Result<()> {
    let Some(directory) = directory else {
        return Ok(());
    };
    let path = directory.join(NAME);
    if let Some(bytes) = file {
        fs::create_dir_all(directory)?;
        let unfinished = path.with_extension("new");
        let mut new = File::create(&unfinished)?;
        new.write_all(bytes)?;
        new.sync_all()?;
        fs::rename(&unfinished, &path)?;
    } else {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "[[node]]\nname = 'oak'\naddress = 'h:1'\n";
    const NEW: &str = "[[node]]\nname = 'oak'\naddress = 'h:1'\n\
                       [[node]]\nname = 'ash'\naddress = 'h:2'\n";

    fn begin() -> Change {
        Change::Begin {
            mover: b"me".to_vec(),
            node: "oak".to_owned(),
            old: OLD.to_owned(),
            new: NEW.to_owned(),
        }
    }

    fn set(state: RangeState) -> Change {
        Change::Set {
            mover: b"me".to_vec(),
            state,
            ranges: vec![3],
        }
    }

    fn database() -> Arc<Database> {
        Database::open(pando_db::Options::default()).unwrap()
    }

    #[test]
    fn pk2_what_is_answered_is_on_disk() {
        let name = format!("pando-placings-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let placings = Placings::new(Some(folder.clone()));
        let state = || {
            let database = database();
            placings.load(&database).unwrap();
            database.placed().map(|placed| placed.placement.state(3))
        };
        let database = database();
        assert_eq!(state(), None);
        make(&database, Some(&folder), begin()).unwrap();
        assert_eq!(state(), Some(RangeState::Old));
        for next in [RangeState::Fenced, RangeState::New] {
            make(&database, Some(&folder), set(next)).unwrap();
            assert_eq!(state(), Some(next));
        }
        let refused = make(&database, Some(&folder), set(RangeState::Old));
        assert!(refused.unwrap_err().contains("for good"));
        make(&database, Some(&folder), Change::Forget { force: true }).unwrap();
        assert_eq!(state(), None);
        // A file that is damaged is not passed over.
        make(&database, Some(&folder), begin()).unwrap();
        let path = folder.join(NAME);
        let mut bytes = fs::read(&path).unwrap();
        bytes[60] ^= 1;
        fs::write(&path, bytes).unwrap();
        let refused = placings.load(&database).unwrap_err();
        assert!(refused.contains("checksum"), "{refused}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn what_cannot_be_kept_is_not_begun() {
        let name = format!("pando-placings-file-{}", std::process::id());
        let file = std::env::temp_dir().join(name);
        fs::write(&file, b"no directory").unwrap();
        let database = database();
        let refused = make(&database, Some(&file), begin()).unwrap_err();
        assert!(refused.contains("cannot be written"), "{refused}");
        assert!(database.placed().is_none());
        fs::remove_file(&file).unwrap();
    }

    #[test]
    fn a_mover_that_is_not_the_last_is_not_heard() {
        let database = database();
        make(&database, None, begin()).unwrap();
        let other = Change::Set {
            mover: b"other".to_vec(),
            state: RangeState::Fenced,
            ranges: vec![3],
        };
        assert!(
            make(&database, None, other)
                .unwrap_err()
                .starts_with("NOMOVER")
        );
        let placed = database.placed().unwrap();
        assert_eq!(placed.placement.state(3), RangeState::Old);
    }
}
