//! Recovery: the newest whole checkpoint, and the log on top of it, before anybody is served.
//!
//! | found on disk | what is done |
//! |---|---|
//! | nothing | an empty database |
//! | a directory locked by another server | refused |
//! | no `identity.pando` beside checkpoints | restored from the newest manifest |
//! | a damaged `identity.pando` | refused, with the file |
//! | a whole checkpoint, and the log from its start on | loaded, the log replayed over it |
//! | an older checkpoint too | kept, for the next case |
//! | the checkpoint of a full copy that was never shown | used; from then on the log asks for it (FA1 planted-whole) |
//! | a damaged checkpoint | noted; the older one is used, up to the end of the newer one at least |
//! | an unreadable file of a checkpoint | treated as damaged |
//! | another unreadable file or directory | refused, with its path; a free file is skipped |
//! | a checkpoint whose end the log does not reach | refused: data it says was durable is gone |
//! | a checkpoint, and no segment of a log anywhere | the checkpoint alone, and noted (RC4); manifests forget what the log had |
//! | no usable checkpoint, the log from its beginning | replayed alone |
//! | no usable checkpoint, or none that the log reaches back to | refused, with what is wrong |
//! | part files without a manifest, an unfinished manifest | removed once all is recovered, and noted if that fails |
//! | these, or files that a checkpoint has made free, with neither a manifest nor a log | refused, with the files (RC4, RC6) |
//! | files of a newer or older format | refused, with the file and both formats |
//! | files of another database, or a directory of its checkpoints | refused, with the path |
//! | damage to durable data in the log | refused, with file and offset (see the log's `scan`) |
//! | a torn tail of the log | cut off: nothing of it was acknowledged as durable |
//! | an unreadable record, a change without predecessor | refused, with file and offset |
//! | a directory of logs or parts that the configuration no longer names | searched ([`super::places`]) |
//! | such a directory without any file of a server | refused: is its disk mounted? |
//! | a part in another directory than that to which it was written | found, if that directory is known |
//! | a log or directory more or fewer than configured | read; new ones are used from now on |
//! | records of databases beyond the configured number | kept, not shown |
//! | a clock behind the newest time on disk | deadlines are judged by the latter |
//!
//! Invariants:
//! - **RC1 epochs-above-disk** Epochs begin above everything seen on disk, including what does not
//!   count.
//! - **RC2** A checkpoint that turns out to be damaged leaves nothing behind: the next attempt
//!   begins with an empty engine.
//! - **RC3** Nothing is visible before all is done.
//! - **RC4 no-empty-beginning** Where there was a checkpoint, no empty database begins. Without a
//!   log, the newest whole checkpoint is everything there is, for an operator who followed the
//!   advice to remove a damaged log. Without either, recovery refuses.
//! - **RC5 start-writes-nothing** A start writes nothing that it has found on disk, so a client of
//!   `sync` waits for no epoch in which nothing has changed, however full the disk is.
//! - **RC6 parts-stay** No part of a checkpoint is removed before recovery has succeeded without
//!   it: an operator who has lost manifests or the log still finds it after bringing them back. A
//!   crash leaves no part alone: before the first checkpoint, something is in the log.

use crate::clock::Milliseconds;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pando_durability::checkpoint::{self, CheckpointError, Manifest};
use pando_durability::disk::{self, DirectoryLock, Disk, LockError};
use pando_durability::log::{LogCut, LogError, LogScan, ScanOptions};
use pando_engine::{EpochClock, LogEpoch, SessionLimit, TreeId};
use thiserror::Error;

use super::about::About;
use super::attempt::Attempt;
use super::identity::{self, Failure};
use super::places::{self, Kept};
use super::replay::Trees;
use crate::durable::Recovery;
use crate::durable::options::{DurabilityOptions, Stage};
use crate::durable::standing::Standing;
#[cfg(test)]
use crate::durable::testing::{Fault, is};
use crate::expiry::ExpiryIndex;
use crate::grove::Grove;
use crate::options::Options;
use crate::store::Store;

/// Why a database on disk cannot be opened.
#[derive(Debug, Error)]
pub enum RecoveryError {
    /// A directory is in use, or cannot be locked.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The engine cannot be opened.
    #[error(transparent)]
    Engine(#[from] pando_cdds::Error),
    /// The disk reported an error.
    #[error("{}: {error}", path.display())]
    Disk {
        /// The file or directory.
        path: PathBuf,
        /// The disk's error.
        error: std::io::Error,
    },
    /// There is no database to inspect.
    #[error("{}: there is no database here", path.display())]
    NoDatabase {
        /// The data directory.
        path: PathBuf,
    },
    /// A directory that had a log, or parts of checkpoints, is empty.
    #[error(
        "{}: {what} of this database was kept here, and nothing of it is here now. Is its disk \
         mounted? To go on without what it held, remove the line of this directory from {}",
        path.display(),
        noted.display()
    )]
    EmptyDirectory {
        /// What it had.
        what: &'static str,
        /// The directory.
        path: PathBuf,
        /// The file that names it.
        noted: PathBuf,
    },
    /// There were checkpoints, and neither they nor the log can be used.
    #[error(
        "{}: no checkpoint can be used, and the log does not begin at the beginning{}. Restore the \
         directory from a copy, or begin in an empty one",
        path.display(),
        described(notes)
    )]
    NoCheckpoint {
        /// The data directory.
        path: PathBuf,
        /// Why checkpoints were not used.
        notes: Vec<String>,
    },
    /// Only parts of checkpoints are left, or files of the log that a checkpoint has made free.
    #[error(
        "{}: neither a manifest nor a log is left, and without them nothing can be read of {}. \
         Bring the manifests (checkpoint-*.manifest) and the log back from a copy, or say with \
         --log-dir where the log is; or move these files away to begin an empty database",
        path.display(),
        named(path, files)
    )]
    PartsAlone {
        /// The data directory.
        path: PathBuf,
        /// The files.
        files: Vec<PathBuf>,
    },
    /// The file that names the database is damaged.
    #[error(
        "{}: the identity of the database cannot be read; remove the file to have it made anew \
         from the newest checkpoint",
        path.display()
    )]
    Identity {
        /// The file.
        path: PathBuf,
    },
    /// A checkpoint belongs to another database.
    #[error("{}: the checkpoint of epoch {start} belongs to another database", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// Which checkpoint.
        start: LogEpoch,
    },
    /// A directory of checkpoints belongs to another database.
    #[error(
        "{}: another database keeps its checkpoints here: give each a --checkpoint-dir of its own. \
         If it is this one, and its identity was lost, copy identity.pando from here to the data \
         directory",
        path.display()
    )]
    ForeignDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The log is damaged or does not reach back.
    #[error("{error}{}", described(notes))]
    Log {
        /// What is wrong with it.
        error: LogError,
        /// Why checkpoints were not used.
        notes: Vec<String>,
    },
    /// A checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A record was written by a defective or other version, or one before it is missing.
    #[error(
        "{}: the group at offset {offset}, of epoch {epoch}, cannot be replayed: {what}. Keep the \
         files and report this; a copy of the directory, or the older checkpoint, may be whole",
        path.display()
    )]
    Record {
        /// The file.
        path: PathBuf,
        /// The offset.
        offset: u64,
        /// The group's epoch.
        epoch: LogEpoch,
        /// What is wrong.
        what: &'static str,
    },
    /// There are branches, or snapshots that last, and the engine has none.
    #[error(
        "this database has branches, or snapshots that last, which only --engine minuet can read"
    )]
    Branches,
    /// A checkpoint says what it cannot say.
    #[error("a checkpoint was written by a defective or other version: {what}")]
    Forest {
        /// What is wrong.
        what: &'static str,
    },
    /// A thread could not get a session of the engine.
    #[error(transparent)]
    Session(#[from] SessionLimit),
}

impl From<Failure> for RecoveryError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Disk(path, error) => Self::Disk { path, error },
            Failure::Damaged(path) => Self::Identity { path },
        }
    }
}

fn described(notes: &[String]) -> String {
    let mut text = String::new();
    for note in notes {
        text.push_str("; ");
        text.push_str(note);
    }
    text
}

/// The names of the first files of several, with their directories if those are others.
fn named(directory: &Path, files: &[PathBuf]) -> String {
    const NAMED_MAX: usize = 4;
    let short = |path: &PathBuf| {
        let short = path.strip_prefix(directory).unwrap_or(path);
        short.display().to_string()
    };
    let names: Vec<_> = files.iter().take(NAMED_MAX).map(short).collect();
    let more = match files.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    names.join(", ") + &more
}

/// A database as found, ready to be served.
pub(crate) struct Recovered {
    pub(crate) epochs: Arc<EpochClock>,
    pub(crate) store: Store,
    pub(crate) expiry: ExpiryIndex,
    pub(crate) trees: Vec<TreeId>,
    pub(crate) changes: u64,
    /// Whether databases were added to the mapping that the log does not know yet.
    pub(crate) mapping_grown: bool,
    pub(crate) standing: Standing,
    pub(crate) grove: Grove,
    pub(crate) identity: u128,
    pub(crate) cut: LogCut,
    /// The clock is not behind this.
    pub(crate) wall_ms: Milliseconds,
    /// The checkpoints that may still be needed, newest first.
    pub(crate) checkpoints: Vec<LogEpoch>,
    pub(crate) locks: Vec<DirectoryLock>,
    /// Where these are.
    pub(crate) files: checkpoint::Directories,
    pub(crate) recovery: Recovery,
}

/// What is on disk, before any of it is used.
struct OnDisk {
    /// The checkpoints whose manifests can be read, newest first.
    checkpoints: Vec<(Manifest, About)>,
    /// Whether there are manifests, including unreadable ones.
    any_checkpoint: bool,
    scan: LogScan,
    /// Whatever checkpoint is used, everything that any of them knows was durable must exist.
    written: LogEpoch,
    /// Nothing on disk is of a later epoch.
    newest: LogEpoch,
    /// The newest time on disk.
    wall_ms: Milliseconds,
}

impl OnDisk {
    fn read(
        durability: &DurabilityOptions,
        searched: &[PathBuf],
        files: &checkpoint::Directories,
        notes: &mut Vec<String>,
    ) -> Result<Self, RecoveryError> {
        let disk = &*durability.disk;
        let directory = &durability.data_directory;
        let noted = notes.len();
        let checkpoints = found_checkpoints(disk, directory, notes)?;
        let any_checkpoint = !checkpoints.is_empty() || notes.len() > noted;
        let known = checkpoints.first().map(|(_, about)| about.identity);
        let known = identity::read(disk, directory)?.or(known);
        refuse_foreign(disk, files, known)?;
        durability.tell(Stage::Scan, 0, 1);
        let scan_options = ScanOptions {
            threads: durability.recovery_threads.max(1),
            sync: !durability.read_only,
        };
        let scan = LogScan::read(&durability.disk, searched, scan_options);
        let scan = scan.map_err(|error| log_error(error, notes))?;
        durability.tell(Stage::Scan, 1, 1);
        if !any_checkpoint {
            refuse_parts_alone(disk, files, &scan)?;
        }
        let written = checkpoints.iter().map(|(_, about)| about.written).max();
        let written = written.unwrap_or_default();
        #[cfg(test)]
        let written = if is(Fault::NewerManifestForgotten) {
            LogEpoch::NONE
        } else {
            written
        };
        let ends = checkpoints.iter().map(|(manifest, _)| manifest.end);
        let times = checkpoints.iter().map(|(manifest, _)| manifest.wall_ms);
        Ok(Self {
            newest: ends.fold(scan.newest_epoch().max(written), LogEpoch::max),
            wall_ms: times.fold(scan.newest_wall_ms(), Milliseconds::max),
            checkpoints,
            any_checkpoint,
            scan,
            written,
        })
    }

    fn has_no_log(&self) -> bool {
        self.scan.segments().is_empty()
    }

    /// The part of the log that belongs on top of a checkpoint, or of none.
    fn cut(&self, checkpoint: Option<&Manifest>) -> Result<LogCut, LogError> {
        match checkpoint {
            // A new log begins after this checkpoint and no older one (RC4).
            Some(manifest) if self.has_no_log() => {
                self.scan.cut(manifest.start, manifest.start.previous())
            }
            Some(manifest) => self.scan.cut(manifest.start, self.written),
            None => self.scan.cut(LogEpoch::NONE, self.written),
        }
    }

    /// Loads the newest checkpoint that is whole, or none, and replays the log on top of it.
    fn load(
        &self,
        options: &Options,
        durability: &DurabilityOptions,
        files: &checkpoint::Directories,
        recovery: &mut Recovery,
    ) -> Result<Used, RecoveryError> {
        let mut attempts = self.checkpoints.iter().cloned().map(Some).chain([None]);
        loop {
            let manifest = attempts.next().expect("the last attempt returns");
            let start = manifest.as_ref().map(|(manifest, _)| manifest.start);
            // An older checkpoint needs everything that this one needs of the log, and more.
            let cut = self.cut(manifest.as_ref().map(|(manifest, _)| manifest));
            let cut = cut.map_err(|error| log_error(error, &recovery.notes))?;
            if start.is_none() && self.any_checkpoint && cut.epochs().is_empty() {
                return Err(RecoveryError::NoCheckpoint {
                    path: durability.data_directory.clone(),
                    notes: recovery.notes.clone(),
                });
            }
            assert!(cut.cutoff() <= self.newest);
            // RC1. A new engine for every attempt (RC2).
            let epochs = Arc::new(EpochClock::starting_at(self.newest.next()));
            let attempt = Attempt {
                store: Store::open(options, Arc::clone(&epochs))?,
                expiry: ExpiryIndex::new(),
                durability,
                files,
            };
            let candidate = Candidate { manifest, cut };
            match attempt.run(&candidate, options.databases, recovery) {
                Ok(trees) => {
                    return Ok(Used {
                        epochs,
                        store: attempt.store,
                        expiry: attempt.expiry,
                        trees,
                        cut: candidate.cut,
                        checkpoint: start,
                    });
                }
                Err(RecoveryError::Checkpoint(error)) if start.is_some() => {
                    recovery.notes.push(error.to_string());
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn log_error(error: LogError, notes: &[String]) -> RecoveryError {
    let notes = notes.to_vec();
    RecoveryError::Log { error, notes }
}

/// A checkpoint to try, or none.
pub(super) struct Candidate {
    pub(super) manifest: Option<(Manifest, About)>,
    pub(super) cut: LogCut,
}

/// What was loaded and replayed.
struct Used {
    epochs: Arc<EpochClock>,
    store: Store,
    expiry: ExpiryIndex,
    trees: Trees,
    cut: LogCut,
    /// The start of the checkpoint below, if there is one.
    checkpoint: Option<LogEpoch>,
}

/// Recovers what is on disk.
pub(crate) fn recover(
    options: &Options,
    durability: &DurabilityOptions,
) -> Result<Recovered, RecoveryError> {
    let mut recovery = Recovery::default();
    let Prepared {
        locks,
        searched,
        files,
        to_note,
    } = prepare_directories(durability)?;
    let on_disk = OnDisk::read(durability, &searched, &files, &mut recovery.notes)?;
    let identity = establish_identity(durability, &on_disk.checkpoints)?;
    mark_directories(durability, &files, identity)?;
    note_directories(durability, &to_note)?;
    let used = on_disk.load(options, durability, &files, &mut recovery)?;
    recovery.cutoff = used.cut.cutoff();
    recovery.torn = used.cut.torn().iter().map(|torn| torn.epoch).collect();
    // One that could not be used will not help later either, and is removed.
    let starts = on_disk
        .checkpoints
        .iter()
        .map(|(manifest, _)| manifest.start);
    let kept = starts.filter(|start| Some(*start) <= used.checkpoint);
    let checkpoints = kept.collect();
    if let Some(start) = used.checkpoint.filter(|_| on_disk.has_no_log()) {
        recovery.cutoff = on_disk.newest;
        recovery.notes.push(format!(
            "there is no log: the checkpoint of epoch {start} alone is used, and what was \
             written since it began is there in part or not at all"
        ));
        forget_log(durability, on_disk.checkpoints, start)?;
    }
    if !durability.read_only {
        for error in checkpoint::remove_unfinished(&*durability.disk, &files)? {
            recovery.notes.push(error.to_string());
        }
    }
    let standing = used.trees.standing().clone();
    let (trees, changes, mapping_grown, mut grove) = used.trees.into_parts();
    if let Some(oldest) = on_disk.scan.oldest_wall_ms() {
        grove.begin(oldest);
    }
    Ok(Recovered {
        epochs: used.epochs,
        store: used.store,
        expiry: used.expiry,
        trees,
        changes,
        mapping_grown,
        standing,
        grove,
        identity,
        cut: used.cut,
        wall_ms: on_disk.wall_ms,
        checkpoints,
        locks,
        files,
        recovery,
    })
}

/// The checkpoint used has no log after it. What any checkpoint knows to have been durable since it
/// began is given up, before a new log begins that cannot have it. A crash at any time leaves what
/// this start has found, or a whole log.
fn forget_log(
    durability: &DurabilityOptions,
    all: Vec<(Manifest, About)>,
    start: LogEpoch,
) -> Result<(), RecoveryError> {
    for (mut manifest, mut about) in all {
        if about.written >= start && !durability.read_only {
            about.written = start.previous();
            manifest.about = about.encode();
            checkpoint::place(&*durability.disk, &durability.data_directory, &manifest)?;
        }
    }
    Ok(())
}

/// What was locked for this process.
struct Prepared {
    locks: Vec<DirectoryLock>,
    /// The directories that may hold parts of the log: where it is written now, where it was, and
    /// the data directory.
    searched: Vec<PathBuf>,
    files: checkpoint::Directories,
    /// What to record, once no directory is known to belong to another database.
    to_note: Vec<(Kept, Vec<PathBuf>)>,
}

/// Creates the directories, and locks them for this process.
fn prepare_directories(durability: &DurabilityOptions) -> Result<Prepared, RecoveryError> {
    let mut taking = Taking {
        durability,
        locks: Vec::new(),
        taken: Vec::new(),
        to_note: Vec::new(),
    };
    taking.take(&durability.data_directory)?;
    taking.taken[0] = places::absolute(&durability.data_directory);
    let logs = taking.places(Kept::Log)?;
    let parts = taking.places(Kept::Parts)?;
    let data = durability.data_directory.clone();
    Ok(Prepared {
        searched: [data].into_iter().chain(logs).collect(),
        files: places::checkpoint_files(durability, parts),
        locks: taking.locks,
        to_note: taking.to_note,
    })
}

/// Locked directories, each once.
struct Taking<'a> {
    durability: &'a DurabilityOptions,
    locks: Vec<DirectoryLock>,
    taken: Vec<PathBuf>,
    to_note: Vec<(Kept, Vec<PathBuf>)>,
}

impl Taking<'_> {
    fn take(&mut self, path: &Path) -> Result<(), RecoveryError> {
        let disk = &*self.durability.disk;
        if self.taken.iter().any(|taken| taken == path) {
            return Ok(());
        }
        if self.durability.read_only {
            self.locks.extend(DirectoryLock::take_to_read(disk, path)?);
        } else {
            disk.create_directory(path).map_err(failed(path))?;
            self.locks.push(DirectoryLock::take(disk, path)?);
        }
        self.taken.push(path.to_owned());
        Ok(())
    }

    /// Locks the directories besides the data directory that may have files of this kind, and
    /// records them.
    fn places(&mut self, kept: Kept) -> Result<Vec<PathBuf>, RecoveryError> {
        let durability = self.durability;
        let (disk, data) = (&*durability.disk, &durability.data_directory);
        let noted = kept.path(data);
        let before = places::read(kept, disk, data).map_err(failed(&noted))?;
        let configured = kept.configured(durability);
        let (there, missing) = places::sort(kept, disk, &before, &configured)
            .map_err(|(path, error)| RecoveryError::Disk { path, error })?;
        if let Some(path) = missing.into_iter().next() {
            let what = kept.what();
            return Err(RecoveryError::EmptyDirectory { what, path, noted });
        }
        let mut now = Vec::new();
        for path in configured {
            // One that a server would begin to use has nothing to read.
            if durability.read_only && !disk::was_used(disk, &path).map_err(failed(&path))? {
                continue;
            }
            self.take(&path)?;
            // The lock's name is durable before the directory is recorded: it is what is looked
            // for.
            if !before.contains(&path) && !durability.read_only {
                disk.sync_directory(&path).map_err(failed(&path))?;
            }
            now.push(path);
        }
        for path in there {
            if now.contains(&path) || path == places::absolute(data) {
                continue;
            }
            if kept.is_in(disk, &path).map_err(failed(&path))? {
                self.take(&path)?;
                now.push(path);
            }
        }
        if now != before && !durability.read_only {
            self.to_note.push((kept, now.clone()));
        }
        Ok(now)
    }
}

/// Makes the data directory name the others.
fn note_directories(
    durability: &DurabilityOptions,
    to_note: &[(Kept, Vec<PathBuf>)],
) -> Result<(), RecoveryError> {
    let (disk, data) = (&*durability.disk, &durability.data_directory);
    to_note.iter().try_for_each(|(kept, places)| {
        let noted = kept.path(data);
        places::write(*kept, disk, data, places).map_err(failed(&noted))
    })
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> RecoveryError {
    let path = path.to_owned();
    move |error| RecoveryError::Disk { path, error }
}

/// The checkpoints whose manifests are whole, newest first.
pub(super) fn found_checkpoints(
    disk: &dyn Disk,
    directory: &Path,
    notes: &mut Vec<String>,
) -> Result<Vec<(Manifest, About)>, RecoveryError> {
    let mut found = Vec::new();
    for (start, manifest) in checkpoint::found(disk, directory)? {
        match manifest {
            Ok(manifest) => match About::decode(&manifest.about) {
                Ok(about) => found.push((manifest, about)),
                Err(error) => notes.push(format!("checkpoint {start}: {error}")),
            },
            // Another version's files are not damage: falling back would lose what it wrote.
            Err(error @ CheckpointError::Format { .. }) => return Err(error.into()),
            Err(error) => notes.push(error.to_string()),
        }
    }
    Ok(found)
}

/// Refuses files of checkpoints without a manifest, and files of the log that only a checkpoint can
/// have made free, if nothing is in the log either (RC6, RC4).
pub(super) fn refuse_parts_alone(
    disk: &dyn Disk,
    directories: &checkpoint::Directories,
    scan: &LogScan,
) -> Result<(), RecoveryError> {
    // An unusable log is refused on its own.
    let log_is_empty = scan
        .cut(LogEpoch::NONE, LogEpoch::NONE)
        .is_ok_and(|cut| cut.epochs().is_empty());
    if !log_is_empty {
        return Ok(());
    }
    let mut files = checkpoint::unfinished(disk, directories)?;
    files.extend(scan.recycled_files().cloned());
    if files.is_empty() {
        return Ok(());
    }
    Err(RecoveryError::PartsAlone {
        path: directories.manifests.clone(),
        files,
    })
}

/// The identity, which all checkpoints must have.
fn establish_identity(
    durability: &DurabilityOptions,
    found: &[(Manifest, About)],
) -> Result<u128, RecoveryError> {
    let (disk, directory) = (&*durability.disk, &durability.data_directory);
    let identity = if let Some(identity) = identity::read(disk, directory)? {
        identity
    } else {
        let known = found.first().map(|(_, about)| about.identity);
        let identity = known.unwrap_or_else(|| fastrand::u128(1..));
        if !durability.read_only {
            identity::write(disk, directory, identity)?;
        }
        identity
    };
    let foreign = found.iter().find(|(_, about)| about.identity != identity);
    if let Some((manifest, _)) = foreign {
        return Err(RecoveryError::Foreign {
            path: directory.clone(),
            start: manifest.start,
        });
    }
    Ok(identity)
}

/// Refuses directories of parts that belong to a database other than this identity, if there is
/// one: no database removes another's files.
pub(super) fn refuse_foreign(
    disk: &dyn Disk,
    files: &checkpoint::Directories,
    identity: Option<u128>,
) -> Result<(), RecoveryError> {
    let mut others = files.parts.iter().chain(&files.former);
    others.try_for_each(|path| match identity::read(disk, path)? {
        found if found.is_none() || found == identity => Ok(()),
        _ if *path == files.manifests => Ok(()),
        _ => Err(RecoveryError::ForeignDirectory { path: path.clone() }),
    })
}

/// Makes the directories of parts name their database, before the first part exists.
fn mark_directories(
    durability: &DurabilityOptions,
    files: &checkpoint::Directories,
    identity: u128,
) -> Result<(), RecoveryError> {
    let disk = &*durability.disk;
    for path in files.parts.iter().chain(&files.former) {
        if !durability.read_only && identity::read(disk, path)?.is_none() {
            identity::write(disk, path, identity)?;
        }
    }
    Ok(())
}
