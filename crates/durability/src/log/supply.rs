//! Files for the next segments, made ahead, and segments that a checkpoint has made superfluous.
//!
//! | field | writer | under |
//! |---|---|---|
//! | `ready`, `making`, `free`, `trouble` of each log | whoever makes a file, whoever takes one | `state` |
//! | `stuck` of each log | writers ([`Supply::set_stuck`]) | `state` |
//! | `ahead` | whoever changes `ready`, whoever makes a file | `state`; read without it |
//! | `unsynced` | [`Supply::recycle_below`] | `state` |
//! | `sealed` | writers ([`Supply::seal`]), [`Supply::recycle_below`] | `state` |
//!
//! Nothing is read or written under the lock. A file is made by the preparer's thread, ahead of its
//! use, so that a full disk is met while the present segment still has room; a writer that needs
//! one which is not there makes it itself.

use pando_sync::shim::unmodelled::{AtomicBool, AtomicU64, Ordering};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::error::LogError;
use super::segment::{self, FreeFile, directory_of, free_name};
use crate::disk::{Access, Disk};
use crate::limits::{BLOCK_BYTES, FREE_FILES_MAX};

/// A segment that is complete: nothing will be written to it.
#[derive(Clone, Debug)]
pub(super) struct Sealed {
    pub(super) path: PathBuf,
    /// The newest epoch that a frame in it belongs to.
    pub(super) last_epoch: u64,
    /// Bytes of frames.
    pub(super) bytes: u64,
}

#[derive(Debug, Default)]
struct LogFiles {
    directory: PathBuf,
    ready: Option<FreeFile>,
    making: bool,
    free: VecDeque<PathBuf>,
    /// Why no file could be made ahead.
    trouble: Option<String>,
    /// Whether to try again in spite of it.
    again: bool,
    /// Why the writer could not begin a segment, until it has written again: a file ahead is no
    /// room then.
    stuck: Option<String>,
}

#[derive(Debug)]
struct State {
    logs: Vec<LogFiles>,
    sealed: Vec<Sealed>,
    /// Recycled files whose names may not be durable.
    unsynced: Vec<PathBuf>,
    stopped: bool,
}

#[derive(Debug)]
pub(super) struct Supply {
    state: Mutex<State>,
    changed: Condvar,
    /// Whether a log has a file ahead, or one that is being made has got its room from the disk.
    ahead: Vec<AtomicBool>,
    incarnation: u64,
    next: AtomicU64,
    segment_bytes: u64,
}

/// What the preparer is to do next.
pub(super) enum Task {
    /// Make a file for this log.
    Make(usize),
    /// Wait: no log lacks one, or none could be made for the last one.
    Rest,
}

impl Supply {
    pub(super) fn new(
        directories: Vec<PathBuf>,
        incarnation: u64,
        segment_bytes: u64,
        sealed: Vec<Sealed>,
    ) -> Self {
        let ahead = directories.iter().map(|_| AtomicBool::new(false));
        let ahead = ahead.collect();
        let logs = directories.into_iter().map(|directory| LogFiles {
            directory,
            ..LogFiles::default()
        });
        Self {
            state: Mutex::new(State {
                logs: logs.collect(),
                sealed,
                unsynced: Vec::new(),
                stopped: false,
            }),
            changed: Condvar::new(),
            ahead,
            incarnation,
            next: AtomicU64::new(0),
            segment_bytes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a free file for a log; gives it back if all of its directory have enough.
    pub(super) fn keep(&self, path: PathBuf) -> Option<PathBuf> {
        self.lock().keep(path)
    }

    fn free_path(&self, directory: &std::path::Path) -> PathBuf {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        directory.join(free_name(self.incarnation, number))
    }

    /// A file for the next segment of a log: the one made ahead, or one that is made now. `used`
    /// tells what is used of the log's segment, which is a header from now on: whoever finds that
    /// no file is ahead any more sees the room of this one.
    pub(super) fn take(
        &self,
        disk: &dyn Disk,
        log: usize,
        used: &AtomicU64,
    ) -> Result<FreeFile, LogError> {
        let mut state = self.lock();
        while state.logs[log].making {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        // Relaxed: the lock orders it before what `trouble` tells of the file after this one.
        let begin = || used.store(BLOCK_BYTES as u64, Ordering::Relaxed);
        if let Some(ready) = state.logs[log].ready.take() {
            self.set_ahead(log, false);
            begin();
            drop(state);
            self.changed.notify_all();
            return Ok(ready);
        }
        state.logs[log].making = true;
        drop(state);
        let made = self.produce(disk, log);
        let mut state = self.lock();
        let files = &mut state.logs[log];
        files.making = false;
        files.trouble = made.as_ref().err().map(ToString::to_string);
        self.set_ahead(log, false);
        if made.is_ok() {
            begin();
        }
        drop(state);
        self.changed.notify_all();
        made
    }

    /// Makes a file ahead for a log that has none. `false`: it could not be made.
    pub(super) fn make_ahead(&self, disk: &dyn Disk, log: usize) -> bool {
        {
            let mut state = self.lock();
            let files = &mut state.logs[log];
            if files.making || files.ready.is_some() {
                return true;
            }
            files.making = true;
        }
        let made = self.produce(disk, log);
        let mut state = self.lock();
        let files = &mut state.logs[log];
        files.making = false;
        files.again = false;
        files.trouble = made.as_ref().err().map(ToString::to_string);
        files.ready = made.ok();
        let made = files.ready.is_some();
        self.set_ahead(log, made);
        drop(state);
        self.changed.notify_all();
        made
    }

    fn produce(&self, disk: &dyn Disk, log: usize) -> Result<FreeFile, LogError> {
        loop {
            let mut state = self.lock();
            let files = &mut state.logs[log];
            let Some(path) = files.free.pop_front() else {
                let directory = files.directory.clone();
                drop(state);
                let path = self.free_path(&directory);
                return segment::make(disk, path, self.segment_bytes, || {
                    self.set_ahead(log, true);
                });
            };
            drop(state);
            let io = |action, error| LogError::Io {
                action,
                path: path.clone(),
                error,
            };
            let file = match disk.open(&path, Access::WriteThrough) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                other => other.map_err(|error| io("open", error))?,
            };
            if file.bytes().map_err(|error| io("measure", error))? == self.segment_bytes {
                // A process that was killed may have left it as long, and not yet durable (LS1).
                file.sync().map_err(|error| io("sync", error))?;
                return Ok(FreeFile { path, file });
            }
            // Of another size, or left unfinished.
            disk.remove(&path).map_err(|error| io("remove", error))?;
        }
    }

    /// Whether a log has a file ahead, or the disk's room for one.
    #[inline]
    pub(super) fn is_ahead(&self, log: usize) -> bool {
        // Relaxed: it is a promise about the disk alone.
        self.ahead[log].load(Ordering::Relaxed)
    }

    fn set_ahead(&self, log: usize, ahead: bool) {
        self.ahead[log].store(ahead, Ordering::Relaxed);
    }

    /// The writer could not begin a segment for want of room, or has written again.
    pub(super) fn set_stuck(&self, log: usize, why: Option<String>) {
        self.lock().logs[log].stuck = why;
    }

    /// Why no file could be made ahead for a log, or used.
    pub(super) fn trouble(&self, log: usize) -> Option<String> {
        let state = self.lock();
        let files = &state.logs[log];
        if files.stuck.is_some() {
            files.stuck.clone()
        } else if files.ready.is_some() {
            None
        } else {
            files.trouble.clone()
        }
    }

    /// For the preparer: a log that lacks a file, those without trouble first.
    pub(super) fn task(&self) -> Task {
        let state = self.lock();
        let found = state.logs.iter().position(LogFiles::asks);
        found.map_or(Task::Rest, Task::Make)
    }

    /// For the preparer: waits until something changes, at most for `limit`; then tries the logs in
    /// trouble again. `false`: the log has stopped.
    pub(super) fn rest(&self, limit: Duration) -> bool {
        let mut state = self.lock();
        let idle = |state: &mut State| !state.stopped && !state.logs.iter().any(LogFiles::asks);
        if state.logs.iter().any(|files| files.trouble.is_some()) {
            let waited = self.changed.wait_timeout_while(state, limit, idle);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            state.try_again();
        } else {
            let waited = self.changed.wait_while(state, idle);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        !state.stopped
    }

    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    pub(super) fn seal(&self, segment: Sealed) {
        self.lock().sealed.push(segment);
    }

    /// Bytes of frames in complete segments, their number, and that of free files.
    pub(super) fn counts(&self) -> (u64, usize, usize) {
        let state = self.lock();
        let free = |files: &LogFiles| files.free.len() + usize::from(files.ready.is_some());
        (
            state.sealed.iter().map(|sealed| sealed.bytes).sum(),
            state.sealed.len(),
            state.logs.iter().map(free).sum(),
        )
    }

    /// Makes free files of the segments of which all epochs lie below `epoch`; returns how many.
    /// Their new names are durable before they can be used (LS2).
    pub(super) fn recycle_below(&self, disk: &dyn Disk, epoch: u64) -> Result<usize, LogError> {
        let mut superfluous = Vec::new();
        self.lock().sealed.retain(|sealed| {
            let keep = sealed.last_epoch >= epoch;
            if !keep {
                superfluous.push(sealed.clone());
            }
            keep
        });
        let mut freed = std::mem::take(&mut self.lock().unsynced);
        let mut result = Ok(());
        for sealed in superfluous {
            let directory = directory_of(&sealed.path).to_owned();
            let path = self.free_path(&directory);
            match disk.rename(&sealed.path, &path) {
                Ok(()) => freed.push(path),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    result = Err(LogError::io("rename", &sealed.path)(error));
                    self.lock().sealed.push(sealed);
                }
            }
        }
        let mut directories: Vec<_> = freed.iter().map(|path| directory_of(path)).collect();
        directories.sort_unstable();
        directories.dedup();
        // Those of a directory that was not synced are not used before it was (LS2).
        let mut unsynced = Vec::new();
        for directory in directories {
            if let Err(error) = disk.sync_directory(directory) {
                result = Err(LogError::io("sync the directory", directory)(error));
                unsynced.push(directory.to_owned());
            }
        }
        let mut count = 0;
        for path in freed {
            if unsynced.iter().any(|it| it == directory_of(&path)) {
                self.lock().unsynced.push(path);
                continue;
            }
            count += 1;
            if let Some(surplus) = self.lock().keep(path)
                && let Err(error) = disk.remove(&surplus)
            {
                result = Err(LogError::io("remove", &surplus)(error));
            }
        }
        // There is room now: logs in trouble try again at once.
        self.lock().try_again();
        self.changed.notify_all();
        result.map(|()| count)
    }
}

impl LogFiles {
    /// Whether a file is to be made ahead now.
    fn asks(&self) -> bool {
        self.ready.is_none() && !self.making && (self.trouble.is_none() || self.again)
    }
}

impl State {
    fn try_again(&mut self) {
        for files in &mut self.logs {
            files.again = files.trouble.is_some();
        }
    }

    /// Keeps a free file for the log of its directory that has the fewest; gives it back if all
    /// have enough.
    fn keep(&mut self, path: PathBuf) -> Option<PathBuf> {
        let directory = directory_of(&path);
        let mut logs: Vec<_> = self
            .logs
            .iter_mut()
            .filter(|files| files.directory == directory)
            .collect();
        let fewest = logs.iter_mut().min_by_key(|files| files.free.len());
        match fewest {
            Some(files) if files.free.len() < FREE_FILES_MAX => {
                files.free.push_back(path);
                None
            }
            _ => Some(path),
        }
    }
}
