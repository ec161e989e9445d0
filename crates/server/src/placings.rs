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

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use pando_db::{
    Database, Disk, Microseconds, Mover, Placed, RealDisk, Session, limits as db_limits, small_file,
};
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

/// Where the file is.
#[derive(Clone, Debug)]
struct Folder {
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

impl Folder {
    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        small_file::read(&*self.disk, &self.path.join(NAME), PLACEMENT_BYTES_MAX)
    }

    /// Writes the file anew, or removes it; on return that is durable.
    fn keep(&self, file: Option<&[u8]>) -> io::Result<()> {
        match file {
            Some(bytes) => {
                self.disk.create_directory(&self.path)?;
                small_file::replace(&*self.disk, &self.path, NAME, bytes)
            }
            None => small_file::remove(&*self.disk, &self.path, NAME),
        }
    }
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Placings {
    folder: Option<Folder>,
    /// The change that is being made, or whose outcome was not told (PK1 one-at-a-time).
    job: Mutex<Option<Job>>,
    /// The change of the database's placement that the file has.
    kept: AtomicU64,
}

impl Placings {
    /// Kept in this directory, if anything is.
    pub(crate) fn new(directory: Option<PathBuf>) -> Self {
        let disk = Arc::new(RealDisk);
        Self::of(directory.map(|path| Folder { disk, path }))
    }

    fn of(folder: Option<Folder>) -> Self {
        Self {
            folder,
            job: Mutex::default(),
            kept: AtomicU64::new(0),
        }
    }

    /// Tells the database what the file says.
    pub(crate) fn load(&self, database: &Arc<Database>) -> Result<(), String> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        let path = folder.path.join(NAME);
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let bytes = match folder.read() {
            Ok(None) => return Ok(()),
            Ok(Some(bytes)) => bytes,
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                return Err(told(&"it is too long"));
            }
            Err(error) => return Err(told(&error)),
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
        let folder = self.folder.as_ref();
        let kept = folder.map_or(Ok(()), |folder| folder.keep(file.as_deref()));
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
        let folder = self.folder.clone();
        let run = move || {
            let made = make(&database, folder, change);
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
fn make(database: &Arc<Database>, folder: Option<Folder>, change: Change) -> Outcome {
    let session = database.session().map_err(|error| format!("ERR {error}"))?;
    if database.follows() {
        return Err("READONLY keys move between primaries; this server is a replica".into());
    }
    let present = database.placed();
    let mut making = Making {
        folder,
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
struct Making {
    folder: Option<Folder>,
    session: Session,
    present: Option<Arc<Placed>>,
}

impl Making {
    fn write(&self, file: Option<&[u8]>) -> Result<(), String> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        folder.keep(file).map_err(|error| {
            // PK2 kept-first.
            let before = self.present.as_ref();
            let before = before.map(|placed| placed.placement.encode());
            let _ = folder.keep(before.as_deref());
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
            if let Err(error) = self.write(Some(&file)) {
                // Nobody was told of the fence, so nobody has passed it (PK1 one-at-a-time).
                let before = self.present.as_deref().cloned();
                self.session.turn().place(|_, _| before);
                return Err(error);
            }
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pando_db::{Access, DiskFile, Fault, Room, SimulatedDisk};

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

    fn folder(disk: impl Disk + 'static) -> Folder {
        let (disk, path) = (Arc::new(disk), PathBuf::from("/data"));
        Folder { disk, path }
    }

    /// What a server finds at its start, of range 3.
    fn found(disk: impl Disk + 'static) -> Result<Option<RangeState>, String> {
        let database = database();
        Placings::of(Some(folder(disk))).load(&database)?;
        let placed = database.placed();
        Ok(placed.map(|placed| placed.placement.state(3)))
    }

    fn changes() -> [(Change, Option<RangeState>); 4] {
        let of = |state| (set(state), Some(state));
        [
            (begin(), Some(RangeState::Old)),
            of(RangeState::Fenced),
            of(RangeState::New),
            (Change::Forget { force: true }, None),
        ]
    }

    #[test]
    fn pk2_what_is_answered_is_on_disk() {
        let (database, disk) = (database(), SimulatedDisk::new());
        let make = |change| make(&database, Some(folder(disk.clone())), change);
        assert_eq!(found(disk.clone()), Ok(None));
        for (change, state) in changes() {
            let is_new = state == Some(RangeState::New);
            make(change).unwrap();
            assert_eq!(found(disk.clone()), Ok(state));
            if is_new {
                let refused = make(set(RangeState::Old));
                assert!(refused.unwrap_err().contains("for good"));
            }
        }
        // A file that is damaged is not passed over.
        make(begin()).unwrap();
        let path = PathBuf::from("/data").join(NAME);
        let mut bytes = disk.contents(&path).unwrap();
        bytes[60] ^= 1;
        disk.put(&path, &bytes);
        let refused = found(disk).unwrap_err();
        assert!(refused.contains("checksum"), "{refused}");
    }

    /// A disk whose user forgets to make names durable.
    #[derive(Clone, Debug)]
    struct Unsynced(SimulatedDisk);

    impl Disk for Unsynced {
        fn create(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
            self.0.create(path, access)
        }
        fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
            self.0.open(path, access)
        }
        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.0.rename(from, to)
        }
        fn remove(&self, path: &Path) -> io::Result<()> {
            self.0.remove(path)
        }
        fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
            self.0.list(directory)
        }
        fn create_directory(&self, directory: &Path) -> io::Result<()> {
            self.0.create_directory(directory)
        }
        fn sync_directory(&self, _: &Path) -> io::Result<()> {
            Ok(())
        }
        fn room(&self, directory: &Path) -> io::Result<Room> {
            self.0.room(directory)
        }
        fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskFile>>> {
            self.0.try_lock(path)
        }
    }

    /// Makes all changes on a disk on which each call in turn fails, or is the last one before the
    /// power goes; says what a server then finds that it must not find.
    fn wrong_behind(fault: Fault, forgets: bool) -> Option<String> {
        for call in 0.. {
            let disk = SimulatedDisk::new();
            disk.create_directory(Path::new("/")).unwrap();
            disk.create_directory(Path::new("/data")).unwrap();
            disk.sync_directory(Path::new("/")).unwrap();
            let first = disk.call_count();
            disk.fail_at(first + call, fault);
            let folder = if forgets {
                folder(Unsynced(disk.clone()))
            } else {
                folder(disk.clone())
            };
            let database = database();
            let mut states = vec![None];
            let mut failed = false;
            for (change, state) in changes() {
                let before = states[states.len() - 1];
                failed = make(&database, Some(folder.clone()), change).is_err();
                if !failed {
                    states = vec![state];
                    continue;
                }
                let placed = database.placed();
                let here = placed.map(|placed| placed.placement.state(3));
                if here != before {
                    return Some(format!("call {call}: {here:?} is here, not {before:?}"));
                }
                if matches!(fault, Fault::PowerLoss) {
                    states.push(state);
                }
                break;
            }
            let crashed = matches!(fault, Fault::PowerLoss);
            let unreached = disk.call_count() - first <= call;
            for seed in 0..8 {
                let found = found(disk.crash(seed));
                if !found.as_ref().is_ok_and(|found| states.contains(found)) {
                    return Some(format!("call {call}: {found:?} is found, not {states:?}"));
                }
            }
            if unreached {
                assert!(call > 20 && !failed, "every call has failed once");
                break;
            }
            assert!(failed || !crashed);
        }
        None
    }

    #[test]
    fn pk2_power_that_goes_and_calls_that_fail_leave_what_was_answered() {
        assert_eq!(wrong_behind(Fault::PowerLoss, false), None);
        let error = Fault::Error(ErrorKind::StorageFull);
        assert_eq!(wrong_behind(error, false), None);
    }

    #[test]
    fn canary_a_file_whose_name_is_not_durable_is_caught() {
        let wrong = wrong_behind(Fault::PowerLoss, true).expect("it is caught");
        assert!(wrong.contains("is found"), "{wrong}");
    }

    #[test]
    fn what_cannot_be_kept_is_not_begun() {
        let (database, disk) = (database(), SimulatedDisk::new());
        disk.set_read_only(true);
        let refused = make(&database, Some(folder(disk)), begin()).unwrap_err();
        assert!(refused.contains("cannot be written"), "{refused}");
        assert!(database.placed().is_none());
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
