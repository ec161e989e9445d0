//! Files for the next segments, made ahead, and segments that a checkpoint has made obsolete.
//!
//! | field | writer | under |
//! |---|---|---|
//! | `ready`, `making`, `free`, `trouble` of each log | the thread that makes or takes a file | `state` |
//! | `stuck` of each log | writers ([`Supply::set_stuck`]) | `state` |
//! | `ahead` | the thread that changes `ready` or makes a file | `state`; read without it |
//! | `unsynced` | [`Supply::recycle_below`] | `state` |
//! | `sealed` | writers ([`Supply::seal`]), [`Supply::recycle_below`] | `state` |
//! | `held` | [`Supply::recycle_below`], the thread that needs their space | `state` |
//! | `hold` | [`Supply::set_hold`] | nothing: a bound |
//!
//! Obsolete segments can be held for followers that are far behind, up to a number of bytes. They
//! are files ahead that still have a name: whoever finds no space takes the oldest of them.
//!
//! Nothing is read or written under the lock, but volumes are asked for their free space under it.
//! The preparer's thread makes a file ahead of its use, so that a full disk is noticed while the
//! present segment still has space. A writer that finds none ready makes it itself.

use pando_sync::shim::unmodelled::{AtomicBool, AtomicU64, Ordering};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pando_sync::{LogEpoch, lock};

use super::error::LogError;
use super::reserve::{Reserve, Share};
use super::segment::{self, FreeFile, directory_of, free_name};
use crate::disk::{Access, Disk};
use crate::limits::{BLOCK_BYTES, FREE_FILES_MAX};

/// A complete segment: nothing will be written to it.
#[derive(Clone, Debug)]
pub(super) struct Sealed {
    pub(super) path: PathBuf,
    /// The newest epoch of a frame in it.
    pub(super) last_epoch: LogEpoch,
    /// Bytes of frames.
    pub(super) bytes: u64,
    /// Bytes of the file.
    pub(super) file_bytes: u64,
}

/// The space of a volume that has files of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogRoom {
    /// Bytes free on the volume.
    pub free: u64,
    /// Of these, bytes reserved for a checkpoint (LR1 checkpoint-room); 0 if that is elsewhere.
    pub kept: u64,
    /// Whether parts of checkpoints are there.
    pub shared: bool,
    /// Bytes of files that the log has made ahead or recycled, or holds for followers.
    pub ahead: u64,
    /// Bytes of files with data that a recovery would read.
    pub taken: u64,
    /// Bytes of the last checkpoint.
    pub checkpoint: u64,
}

impl LogRoom {
    /// Bytes that the log may still fill.
    #[must_use]
    pub fn spare(&self) -> u64 {
        self.free
            .saturating_add(self.ahead)
            .saturating_sub(self.kept)
    }

    /// Whether the log has taken half of what it can have: time for a checkpoint, so that the other
    /// half lasts until it is complete.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.taken >= self.spare()
    }
}

#[derive(Debug, Default)]
struct LogFiles {
    directory: PathBuf,
    /// What its volume has of checkpoints (LR1 checkpoint-room).
    share: Share,
    ready: Option<FreeFile>,
    making: bool,
    free: VecDeque<PathBuf>,
    /// Why no file could be made ahead.
    trouble: Option<String>,
    /// Whether to try again nevertheless.
    again: bool,
    /// Why the writer could not begin a segment, until it has written again: meanwhile a file ahead
    /// does not count as space.
    stuck: Option<String>,
}

#[derive(Debug)]
struct State {
    logs: Vec<LogFiles>,
    sealed: Vec<Sealed>,
    /// Obsolete segments that are held for followers, oldest first.
    held: VecDeque<Sealed>,
    /// Recycled files whose names may not be durable.
    unsynced: Vec<PathBuf>,
    stopped: bool,
}

#[derive(Debug)]
pub(super) struct Supply {
    state: Mutex<State>,
    changed: Condvar,
    /// Whether a log has a file ahead, or one being made that already has its space from the disk.
    ahead: Vec<AtomicBool>,
    incarnation: u64,
    next: AtomicU64,
    segment_bytes: u64,
    /// Bytes of obsolete segments to hold for followers.
    hold: AtomicU64,
    pub(super) reserve: Reserve,
}

/// The preparer's next task.
pub(super) enum Task {
    /// Make a file for this log.
    Make(usize),
    /// Wait: no log lacks one, or none could be made for the last one.
    Rest,
}

impl Supply {
    pub(super) fn new(
        places: Vec<(PathBuf, Share)>,
        incarnation: u64,
        reserve: Reserve,
        segment_bytes: u64,
        sealed: Vec<Sealed>,
    ) -> Self {
        let ahead = places.iter().map(|_| AtomicBool::new(false));
        let ahead = ahead.collect();
        let logs = places.into_iter().map(|(directory, share)| LogFiles {
            directory,
            share,
            ..LogFiles::default()
        });
        Self {
            state: Mutex::new(State {
                logs: logs.collect(),
                sealed,
                held: VecDeque::new(),
                unsynced: Vec::new(),
                stopped: false,
            }),
            changed: Condvar::new(),
            ahead,
            incarnation,
            next: AtomicU64::new(0),
            segment_bytes,
            hold: AtomicU64::new(0),
            reserve,
        }
    }

    /// See [`super::Log::set_hold`].
    pub(super) fn set_hold(&self, bytes: u64) {
        self.hold.store(bytes, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Keeps a free file for a log; returns it if all of its directory have enough.
    pub(super) fn keep(&self, path: PathBuf) -> Option<PathBuf> {
        self.lock().keep(path)
    }

    fn free_path(&self, directory: &std::path::Path) -> PathBuf {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        directory.join(free_name(self.incarnation, number))
    }

    /// A file for the next segment of a log: the one made ahead, or one that is made now. `used` is
    /// what is used of the log's segment, from now on a header: a thread that finds no file ahead
    /// any more sees the space of this one.
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
        // Relaxed: the lock orders it before what `trouble` says about the file after this one.
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
        assert!(files.making, "one thread at a time makes a file");
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
        assert!(files.making && files.ready.is_none());
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
                let made = self.make(disk, log, &directory);
                if made.is_err() && self.release(disk, &directory)? {
                    continue;
                }
                return made;
            };
            drop(state);
            let io = |action, error| LogError::Io {
                action,
                path: path.clone(),
                error,
            };
            if self.leave_room(disk, log, 0).is_err() {
                disk.remove(&path).map_err(|error| io("remove", error))?;
                continue;
            }
            let file = match disk.open(&path, Access::WriteThrough) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                other => other.map_err(|error| io("open", error))?,
            };
            if file.bytes().map_err(|error| io("measure", error))? == self.segment_bytes {
                // A process that was killed may have left a file of this length that is not yet
                // durable (LS1 named-is-whole).
                file.sync().map_err(|error| io("sync", error))?;
                return Ok(FreeFile { path, file });
            }
            // Of another size, or unfinished.
            disk.remove(&path).map_err(|error| io("remove", error))?;
        }
    }

    fn make(&self, disk: &dyn Disk, log: usize, directory: &Path) -> Result<FreeFile, LogError> {
        self.leave_room(disk, log, self.segment_bytes)?;
        let path = self.free_path(directory);
        segment::make(disk, path, self.segment_bytes, || self.set_ahead(log, true))
    }

    /// Whether a log may take `more` bytes of its volume (LR1 checkpoint-room). If the disk cannot
    /// tell its free space, the log tries.
    fn leave_room(&self, disk: &dyn Disk, log: usize, more: u64) -> Result<(), LogError> {
        let (directory, share) = {
            let files = &self.lock().logs[log];
            (files.directory.clone(), files.share)
        };
        let kept = self.reserve.bytes(share);
        match disk.room(&directory) {
            Ok(room) if share.is_any() && room.free < kept.saturating_add(more) => {
                let why = format!(
                    "what is free ({} bytes) is kept for a checkpoint",
                    room.free
                );
                let error = std::io::Error::new(ErrorKind::StorageFull, why);
                Err(LogError::io("make a file in", &directory)(error))
            }
            _ => Ok(()),
        }
    }

    /// Removes free files, and those held for followers, while the volume has less free than is
    /// reserved for a checkpoint.
    pub(super) fn give_back(&self, disk: &dyn Disk) -> Result<(), LogError> {
        for log in 0..self.ahead.len() {
            while self.leave_room(disk, log, 0).is_err() {
                let (free, directory) = {
                    let files = &mut self.lock().logs[log];
                    (files.free.pop_front(), files.directory.clone())
                };
                match free {
                    Some(path) => disk.remove(&path).map_err(LogError::io("remove", &path))?,
                    None if self.release(disk, &directory)? => {}
                    None => break,
                }
            }
        }
        Ok(())
    }

    /// Frees the oldest segment of a directory that is held for followers, and older ones
    /// elsewhere, which are of no use without it. `false`: there is none.
    fn release(&self, disk: &dyn Disk, directory: &Path) -> Result<bool, LogError> {
        let oldest: Vec<Sealed> = {
            let mut state = self.lock();
            let here = |sealed: &Sealed| directory_of(&sealed.path) == directory;
            let Some(last) = state.held.iter().position(here) else {
                return Ok(false);
            };
            state.held.drain(..=last).collect()
        };
        self.free(disk, oldest)?;
        Ok(true)
    }

    /// See [`super::Log::shares_volume`].
    pub(super) fn shares(&self) -> bool {
        self.lock().logs.iter().any(|files| files.share.has_parts())
    }

    /// See [`super::Log::room`]. `used` says which logs have a segment.
    pub(super) fn room(&self, disk: &dyn Disk, used: impl Fn(usize) -> bool) -> Option<LogRoom> {
        let mut volumes: Vec<(u64, LogRoom)> = Vec::new();
        let state = self.lock();
        let mut add = |directory: &Path, change: &dyn Fn(&mut LogRoom)| {
            let room = disk.room(directory).ok()?;
            let found = volumes
                .iter()
                .position(|(volume, _)| *volume == room.volume);
            let index = found.unwrap_or_else(|| {
                let fresh = LogRoom {
                    free: room.free,
                    kept: 0,
                    shared: false,
                    ahead: 0,
                    taken: 0,
                    checkpoint: self.reserve.last(),
                };
                volumes.push((room.volume, fresh));
                volumes.len() - 1
            });
            change(&mut volumes[index].1);
            Some(())
        };
        for (log, files) in state.logs.iter().enumerate() {
            let ahead = files.free.len() + usize::from(files.ready.is_some());
            add(&files.directory, &|room| {
                room.ahead += ahead as u64 * self.segment_bytes;
                room.taken += if used(log) { self.segment_bytes } else { 0 };
                room.kept = self.reserve.bytes(files.share);
                room.shared = files.share.has_parts();
            })?;
        }
        for sealed in &state.sealed {
            add(directory_of(&sealed.path), &|room| {
                room.taken += sealed.file_bytes;
            })?;
        }
        for held in &state.held {
            add(directory_of(&held.path), &|room| {
                room.ahead += held.file_bytes;
            })?;
        }
        drop(state);
        let rooms = volumes.into_iter().map(|(_, room)| room);
        rooms.min_by_key(|room| i128::from(room.spare()) - i128::from(room.taken))
    }

    /// Whether a log has a file ahead, or the disk's space for one.
    #[inline]
    pub(super) fn is_ahead(&self, log: usize) -> bool {
        // Relaxed: it is a promise about the disk alone.
        self.ahead[log].load(Ordering::Relaxed)
    }

    fn set_ahead(&self, log: usize, ahead: bool) {
        self.ahead[log].store(ahead, Ordering::Relaxed);
    }

    /// The writer could not begin a segment for lack of space, or has written again.
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

    /// For the preparer: waits until something changes, at most for `limit`; then retries the logs
    /// in trouble. `false`: the log has stopped.
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
        assert!(segment.bytes <= segment.file_bytes);
        self.lock().sealed.push(segment);
    }

    /// The complete segments, and those that are held.
    pub(super) fn former(&self) -> Vec<PathBuf> {
        let state = self.lock();
        let all = state.held.iter().chain(&state.sealed);
        all.map(|one| one.path.clone()).collect()
    }

    /// Bytes of frames in complete segments, their number, that of free files, and bytes of files
    /// that are held.
    pub(super) fn counts(&self) -> (u64, usize, usize, u64) {
        let state = self.lock();
        let free = |files: &LogFiles| files.free.len() + usize::from(files.ready.is_some());
        (
            state.sealed.iter().map(|sealed| sealed.bytes).sum(),
            state.sealed.len(),
            state.logs.iter().map(free).sum(),
            state.held.iter().map(|held| held.file_bytes).sum(),
        )
    }

    /// Makes free files of the segments whose epochs are all below `epoch`, but for those that are
    /// held for followers; returns how many.
    pub(super) fn recycle_below(
        &self,
        disk: &dyn Disk,
        epoch: LogEpoch,
    ) -> Result<usize, LogError> {
        let hold = self.hold.load(Ordering::Relaxed);
        let superfluous = self.lock().retire_below(epoch, hold);
        let freed = self.free(disk, superfluous);
        let given_back = self.give_back(disk);
        freed.and_then(|count| given_back.map(|()| count))
    }

    /// Makes free files of obsolete segments; returns how many. Their new names are durable before
    /// they can be used (LS2 name-before-bytes).
    fn free(&self, disk: &dyn Disk, superfluous: Vec<Sealed>) -> Result<usize, LogError> {
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
        // Those of an unsynced directory are not used before it is synced (LS2 name-before-bytes).
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
        // There is space now: logs in trouble try again at once.
        self.lock().try_again();
        self.changed.notify_all();
        result.map(|()| count)
    }
}

impl LogFiles {
    /// Whether to make a file ahead now.
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

    /// Takes the segments whose epochs are all below `epoch` from those that a recovery needs, and
    /// returns them and those that were held, but for the newest `hold` bytes.
    fn retire_below(&mut self, epoch: LogEpoch, hold: u64) -> Vec<Sealed> {
        let obsolete = self.sealed.extract_if(.., |one| one.last_epoch < epoch);
        self.held.extend(obsolete);
        self.held
            .make_contiguous()
            .sort_by_key(|held| held.last_epoch);
        let mut bytes = 0;
        let newest = self.held.iter().rev().take_while(|held| {
            bytes += held.file_bytes;
            bytes <= hold
        });
        let superfluous = self.held.len() - newest.count();
        self.held.drain(..superfluous).collect()
    }

    /// Keeps a free file for the log of its directory that has the fewest; returns it if all have
    /// enough.
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
