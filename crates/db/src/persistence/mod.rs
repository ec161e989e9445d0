//! Opening a database on disk, checkpoints, recovery, and export.
//!
//! | module | what it is |
//! |---|---|
//! | `identity` | which database the files belong to |
//! | `histories` | which histories its data have |
//! | `small_file` | small files that are replaced as a whole |
//! | `places` | former places of logs and parts of checkpoints |
//! | `about` | a checkpoint's data about itself |
//! | `checkpoint` | taking a checkpoint while the database is being served |
//! | `pace` | how fast it goes |
//! | `recover` | from the files on disk to a database |
//! | `attempt` | a checkpoint, or none, and the log on top of it |
//! | `grove` | branches and lasting snapshots, as they were |
//! | `load` | a checkpoint's entries into an engine |
//! | `replay` | the log on top of a checkpoint |
//! | `room` | small volumes |
//! | `check` | inspecting files offline |
//! | `stream` | the portable stream of dump and load |
//! | `redis_file` | loading a dump file of Redis |

mod about;
mod attempt;
mod check;
mod checkpoint;
mod grove;
mod histories;
mod identity;
mod load;
mod pace;
mod places;
mod recover;
mod redis_file;
mod replay;
mod room;
pub mod small_file;
mod stream;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};

use pando_durability::disk::Room;
use pando_durability::log::{Log, LogError, LogOptions};
use pando_sync::lock;
use thiserror::Error;

pub use check::{CheckReport, check, expect_database};
pub(crate) use checkpoint::album::{Album, Changed as ChangedKey, Sides};
pub use checkpoint::{CheckpointFailure, CheckpointOptions};
pub(crate) use grove::{Planting, order};
pub use pace::Pace;
pub use recover::RecoveryError;
pub use redis_file::Loaded;
pub(crate) use replay::restore;
pub use stream::{DumpWriter, StreamError};

use crate::clock::{Clock, Microseconds};
use crate::database::{Database, Parts};
use crate::durable::lineage::Lineage;
#[cfg(test)]
use crate::durable::testing;
use crate::durable::{Changed, DurabilityOptions, Durable, Recovery, hook, record};
use crate::epoch_log::EpochLog;
use crate::options::Options;

/// A clock that is never behind the newest time on disk. While it is ahead of the machine's clock
/// it continues from there, a little slower, so that deadlines pass and the two meet eventually.
struct FlooredClock {
    clock: Arc<dyn Clock>,
    floor: Microseconds,
    /// When the floor was found, by a monotonic clock.
    found: Microseconds,
}

impl FlooredClock {
    /// It is slower by one part in this many.
    const SLOWNESS: u64 = 16;
}

impl Clock for FlooredClock {
    fn now(&self) -> Microseconds {
        let elapsed = self.clock.monotonic().saturating_sub(self.found);
        let slow = elapsed - Microseconds(elapsed.0 / Self::SLOWNESS);
        self.clock.now().max(self.floor.saturating_add(slow))
    }

    fn monotonic(&self) -> Microseconds {
        self.clock.monotonic()
    }
}

/// Opens the log after what was found of it.
fn open_log(
    found: &recover::Recovered,
    durability: &DurabilityOptions,
) -> Result<Arc<Log>, Box<RecoveryError>> {
    let checkpoints = Some(found.files.clone());
    #[cfg(test)]
    let checkpoints = checkpoints.filter(|_| !testing::is(testing::Fault::RoomTaken));
    let options = LogOptions {
        directories: durability.log_directories(),
        logs: durability.logs,
        segment_bytes: durability.fitting_segment_bytes(),
        identity: found.identity,
        pending_bytes_max: durability.pending_bytes_max,
        checkpoints,
        checkpoint_bytes: found.recovery.loaded_bytes + found.recovery.replayed_bytes,
        threads: durability.threads,
    };
    let log = Log::open(options, Arc::clone(&durability.disk), &found.cut);
    log.map_err(|error| {
        let notes = found.recovery.notes.clone();
        Box::new(RecoveryError::Log { error, notes })
    })
}

/// A database that is only read: its files stay as they are.
fn parts_to_read(mut found: recover::Recovered, databases: usize) -> Parts {
    found.trees.truncate(databases);
    Parts {
        epochs: found.epochs,
        store: found.store,
        expiry: found.expiry,
        trees: found.trees,
        mapping_changes: found.changes,
        standing: found.standing,
        grove: found.grove,
        lineage: Lineage::begun(found.cut.cutoff()),
        hidden_trees: Vec::new(),
        log: None,
        durable: None,
    }
}

/// Recovers a database on disk, and opens its log for writing.
pub(crate) fn open(
    mut options: Options,
    durability: DurabilityOptions,
) -> Result<(Options, Parts), Box<RecoveryError>> {
    let mut found = recover::recover(&options, &durability)?;
    let floor = found.wall_ms.into();
    if options.clock.now() < floor {
        options.clock = Arc::new(FlooredClock {
            clock: Arc::clone(&options.clock),
            floor,
            found: options.clock.monotonic(),
        });
    }
    if durability.read_only {
        let parts = parts_to_read(found, options.databases);
        return Ok((options, parts));
    }
    let notes = &mut found.recovery.notes;
    let (lineage, histories_kept) = histories::reopen(&durability, &found.cut, notes);
    let log = open_log(&found, &durability)?;
    let changed = Arc::new(Changed::default());
    let wakes = Arc::clone(&changed);
    log.on_durable(Box::new(move |_| wakes.tell()));
    // Whatever the mapping is now, the log says it: a later start may have another number of
    // databases (RC5 start-writes-nothing). And a database that follows nobody takes writes of its
    // own, behind which it cannot go on as a replica.
    let standing = if options.follows {
        found.standing.clone()
    } else {
        found.standing.left_if_any()
    };
    let point = found.epochs.current().previous();
    let grown = found.grove.complete(options.databases, point);
    if found.mapping_grown || standing != found.standing || !grown.is_empty() {
        let mut session = log.session(0);
        if found.mapping_grown {
            hook::record_mapping(&mut session, found.changes, found.trees.iter().copied());
        }
        for change in &grown {
            session.append(|out| record::put_catalog(out, change));
        }
        session.append(|out| record::put_standing(out, &standing));
        session.end_group(found.epochs.current());
        session.hand_over();
    }
    found.checkpoints.truncate(crate::limits::CHECKPOINTS_KEPT);
    let hidden_trees = found.trees.split_off(options.databases);
    let durable = Durable {
        log: Arc::clone(&log),
        identity: found.identity,
        checkpoints: Mutex::new(found.checkpoints),
        loading: AtomicBool::new(false),
        histories_kept: Mutex::new(histories_kept),
        hold: AtomicU64::new(0),
        stopping: AtomicBool::new(false),
        last: Mutex::new(None),
        recovery: found.recovery,
        changed,
        locks: Mutex::new(found.locks),
        files: found.files,
        options: durability,
    };
    let parts = Parts {
        epochs: found.epochs,
        store: found.store,
        expiry: found.expiry,
        trees: found.trees,
        mapping_changes: found.changes,
        standing,
        grove: found.grove,
        lineage,
        hidden_trees,
        log: Some(EpochLog::Files(log)),
        durable: Some(durable),
    };
    Ok((options, parts))
}

/// Why not everything that was written is durable at the end.
#[derive(Debug, Error)]
pub enum CloseError {
    /// The log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The pool of an engine that needs no log.
    #[error(transparent)]
    Pool(#[from] pando_cdds::Error),
}

impl Database {
    /// The log, of a database that is kept on disk.
    #[must_use]
    pub fn log(&self) -> Option<&Arc<Log>> {
        self.durable.as_ref().map(|durable| &durable.log)
    }

    /// The age of the oldest write that is not durable yet, in microseconds; 0: all are.
    #[must_use]
    pub fn oldest_write_age(&self) -> Microseconds {
        let oldest = self.log().and_then(|log| log.oldest_write());
        oldest.map_or(Microseconds::ZERO, |oldest| {
            self.options.clock.monotonic().saturating_sub(oldest)
        })
    }

    /// The directories of the database, each once, with the space of their volumes where the disk
    /// can tell; none if it is in memory only.
    #[must_use]
    pub fn directories(&self) -> Vec<(PathBuf, Option<Room>)> {
        let Some(durable) = &self.durable else {
            return Vec::new();
        };
        let mut directories = vec![durable.options.data_directory.clone()];
        directories.extend(durable.options.log_directories());
        directories.extend(durable.files.parts.iter().cloned());
        directories.sort_unstable();
        directories.dedup();
        let with_room = |directory: PathBuf| {
            let room = durable.options.disk.room(&directory).ok();
            (directory, room)
        };
        directories.into_iter().map(with_room).collect()
    }

    /// Over how many directories checkpoints are spread.
    #[must_use]
    pub fn checkpoint_directories(&self) -> usize {
        let durable = self.durable.as_ref();
        durable.map_or(0, |durable| durable.files.parts.len())
    }

    /// What opening found on disk and did.
    #[must_use]
    pub fn recovery(&self) -> Option<&Recovery> {
        self.durable.as_ref().map(|durable| &durable.recovery)
    }

    /// Ends the current epoch and makes everything written durable. Nothing is written afterwards,
    /// and others may use the directories. To be called after [`Self::close`], with no open turn
    /// and no checkpoint in progress.
    pub fn close_log(&self) -> Result<(), CloseError> {
        if let Some(EpochLog::Pool(pool)) = self.acknowledgement.log() {
            self.end_epoch();
            return Ok(pool.rest()?);
        }
        let Some(durable) = &self.durable else {
            return Ok(());
        };
        self.end_epoch();
        let closed = durable.log.close();
        lock(&durable.locks).clear();
        Ok(closed?)
    }
}
