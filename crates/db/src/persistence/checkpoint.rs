//! Taking a checkpoint while the database is being served.
//!
//! ```text
//! begin (all gates: start epoch, mapping) ─► scan (threads, slices) ─► settle (all gates: end
//!   epoch; it is closed and durable) ─► manifest ─► older checkpoints and log segments go
//! ```
//! The trees are cut into chunks along their own shape; a thread takes the next chunk when it is
//! done with one. An engine without key order is one chunk per tree, walked by its cursor. A slice
//! of a scan is a turn of its own, bounded in entries and bytes. It fills a block buffer, which is
//! written after the turn. A large value is handed over to the writer by its root, O(1), and
//! written piece by piece outside the turn. If there are several directories, each thread spreads
//! its writes over all of them ([`checkpoint::PartsWriter`]).
//!
//! Between slices a thread rests as its pace asks ([`super::pace`]). A chunk that grows while it is
//! scanned is not cut again: memory is bounded by the buffer and a slice, whatever its length. So
//! that it does not grow for ever ahead of a resting thread, rests end when more entries have been
//! written than existed at the beginning.
//!
//! Invariants:
//! - **CW1** Everything written in epochs below the start epoch is in the trees when the scan
//!   begins; the mapping is that of this moment.
//! - **CW2 end-after-scan** The end epoch is taken under all gates after the scan, so no group of a
//!   later epoch is in the checkpoint, and it is durable in the log before the manifest counts. The
//!   exception is a full log without a segment, when nothing was written from the start epoch on.
//!   Such a checkpoint shows one moment, the end of an epoch, and needs nothing from the log. It
//!   states that all its content was durable, so that no later start falls behind it unnoticed.
//! - **CW3 log-kept-for-oldest** Log segments are removed only below the start of the oldest
//!   checkpoint that stays: the older of two, or the only one, where the volume has no space for
//!   both and the log ([`super::room`]).
//! - **CW4** No turn waits for a disk.
//! - **CW5 branches-stand-still** Where there are branches or lasting snapshots, all that they show
//!   is of the moment of CW1 (`album`); where there are none, none is made before CW2's moment.
//!
//! Deliberately absent: an image of one moment. Recovery replays the log over the checkpoint.

pub(crate) mod album;

use std::ops::Bound;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pando_durability::checkpoint::{
    self, CheckpointError, LargeValue, Manifest, PartSummary, PartWriter, PartsWriter,
};
use pando_durability::log::{LogError, LogState};
use pando_engine::{Direction, LogEpoch, NewValue, SessionLimit, TreeId, ValueRef, ValueVersion};
use pando_sync::lock;
use thiserror::Error;

use self::album::Album;
use super::about::About;
use super::pace::{Duty, Pace, Written};
use crate::database::Database;
use crate::durable::bytes::Sink;
use crate::durable::catalog::Event;
#[cfg(test)]
use crate::durable::testing::{Fault, is};
use crate::durable::{CheckpointReport, Durable, record, value};
use crate::limits;
use crate::session_state::SessionState;
use crate::store::{Listing, StoreSession};
use crate::turn::Turn;

/// How a checkpoint is taken; each field states its default.
#[derive(Clone)]
pub struct CheckpointOptions {
    /// Threads that scan and write; default 1.
    pub threads: usize,
    /// How fast it goes while requests are served.
    pub pace: Pace,
    /// Receives how many entries have been written, and of about how many; default nobody.
    pub progress: Option<Arc<dyn Fn(u64, u64) + Send + Sync>>,
}

impl Default for CheckpointOptions {
    fn default() -> Self {
        Self {
            threads: 1,
            pace: Pace::default(),
            progress: None,
        }
    }
}

impl std::fmt::Debug for CheckpointOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CheckpointOptions")
            .field("threads", &self.threads)
            .field("pace", &self.pace)
            .finish_non_exhaustive()
    }
}

/// Why there is no checkpoint.
#[derive(Debug, Error)]
pub enum CheckpointFailure {
    /// The database is kept in memory only.
    #[error("nothing is kept on disk: there is no --data-dir")]
    NotDurable,
    /// Another one is being taken.
    #[error("a checkpoint is being taken already")]
    Busy,
    /// A full copy of another server is being loaded: only the log has what came so far.
    #[error("a full copy is being loaded: a checkpoint follows when it is complete")]
    Loading,
    /// The database is being closed.
    #[error("the checkpoint was abandoned")]
    Stopped,
    /// Branches or snapshots that last were made meanwhile.
    #[error("branches were made meanwhile")]
    Overtaken,
    /// No session is free for a thread.
    #[error(transparent)]
    Session(#[from] SessionLimit),
    /// The files cannot be written.
    #[error(transparent)]
    Files(#[from] CheckpointError),
    /// The log cannot make the end epoch durable, or segments cannot be recycled.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// A range of keys of one tree.
struct Range {
    tree: TreeId,
    /// What its chunks are called.
    chunk: u32,
    from: Option<Vec<u8>>,
    to: Option<Vec<u8>>,
}

/// What the threads of one checkpoint share.
struct Work<'a> {
    database: &'a Database,
    durable: &'a Durable,
    options: &'a CheckpointOptions,
    start: LogEpoch,
    /// How many changes of branches there had been when it began.
    changes: u64,
    album: Option<Album>,
    ranges: Vec<Range>,
    next: AtomicUsize,
    entries: AtomicU64,
    /// Bytes that all threads have written.
    flushed: AtomicU64,
    total: u64,
    /// One of the threads has failed, or all must stop.
    stop: AtomicBool,
    began: Instant,
    written: Written,
}

impl Database {
    /// Writes all trees to a checkpoint while the database is being served, and removes older
    /// checkpoints and log segments that are no longer needed. Waits for disks; the caller has no
    /// open turn.
    pub fn checkpoint(
        &self,
        options: &CheckpointOptions,
    ) -> Result<CheckpointReport, CheckpointFailure> {
        self.checkpoint_as(options, false)
    }

    /// The same of a full copy that nothing else has: when it is finished, the log says so
    /// (FA1 planted-whole).
    pub(crate) fn checkpoint_of_copy(
        &self,
        options: &CheckpointOptions,
    ) -> Result<CheckpointReport, CheckpointFailure> {
        self.checkpoint_as(options, true)
    }

    fn checkpoint_as(
        &self,
        options: &CheckpointOptions,
        is_copy: bool,
    ) -> Result<CheckpointReport, CheckpointFailure> {
        let durable = self.durable.as_ref().ok_or(CheckpointFailure::NotDurable)?;
        let Ok(mut kept) = durable.checkpoints.try_lock() else {
            return Err(CheckpointFailure::Busy);
        };
        let loading = durable.loading.load(Ordering::Relaxed);
        #[cfg(test)]
        let loading = loading && !is(Fault::CheckpointWhileLoading);
        if loading {
            return Err(CheckpointFailure::Loading);
        }
        let mut taken = self.take_checkpoint(durable, options, &mut kept, (false, is_copy));
        if matches!(taken, Err(CheckpointFailure::Overtaken)) {
            let _ = checkpoint::remove_unfinished(&*durable.options.disk, &durable.files);
            durable.log.spend_on_checkpoint(0);
            taken = self.take_checkpoint(durable, options, &mut kept, (true, is_copy));
        }
        if taken.is_err() {
            // A disk that was too full for it gets the space back. What cannot be removed is
            // removed with the next checkpoint, or at the next start.
            let _ = checkpoint::remove_unfinished(&*durable.options.disk, &durable.files);
            if !matches!(taken, Err(CheckpointFailure::Stopped)) {
                durable.log.set_hold(0);
                let _ = durable.log.recycle_below(LogEpoch::NONE);
            }
        }
        durable.log.spend_on_checkpoint(0);
        taken
    }

    fn take_checkpoint(
        &self,
        durable: &Durable,
        options: &CheckpointOptions,
        kept: &mut Vec<LogEpoch>,
        (with_album, is_copy): (bool, bool),
    ) -> Result<CheckpointReport, CheckpointFailure> {
        let began = Instant::now();
        if kept.is_empty() {
            self.begin_log(durable)?;
        }
        let logged = durable.log.written_bytes();
        // Before it is made: afterwards it may no longer be short.
        let hurried = durable.is_short().then(|| CheckpointOptions {
            pace: Pace::FULL,
            ..options.clone()
        });
        let options = hurried.as_ref().unwrap_or(options);
        let freed = durable.make_room(kept)?;
        let (start, mut about, album) = self.begin_checkpoint(durable, with_album);
        if is_copy {
            self.note_planting(start)?;
        }
        #[cfg(test)]
        let start = if is(Fault::CheckpointStartsLate) {
            start.next().next()
        } else {
            start
        };
        let work = self.divide(durable, options, start, (&about, album))?;
        let parts = work.run()?;
        if let (Some(forest), Some(album)) = (&mut about.forest, &work.album) {
            forest.sections = album.sections();
        }
        let (end, written) = self.settle_checkpoint(durable, &work)?;
        // The planted late start is no contradiction that the manifest's writer would notice.
        #[cfg(test)]
        let end = end.max(start);
        about.written = written;
        let now = self.options.clock.now().milliseconds();
        let files = &durable.files;
        #[cfg(test)]
        let unsynced = checkpoint::Directories::one(&files.manifests);
        #[cfg(test)]
        let files = if is(Fault::PartsUnsynced) {
            &unsynced
        } else {
            files
        };
        let manifest = checkpoint::publish(
            &*durable.options.disk,
            files,
            (start, end),
            now,
            parts,
            &about.encode(),
        )?;
        durable.log.expect_checkpoint(manifest.bytes(), logged);
        durable.log.spend_on_checkpoint(0);
        let followed = self.is_followed();
        let hold = durable.hold.load(Ordering::Relaxed);
        durable.log.set_hold(if followed { hold } else { 0 });
        let recycled = freed + retire(durable, &manifest, kept)?;
        let report = CheckpointReport {
            start,
            end,
            wall_ms: now,
            entries: manifest.entries(),
            bytes: manifest.bytes(),
            took_us: began.elapsed().as_micros() as u64,
            recycled,
        };
        *lock(&durable.last) = Some(report);
        Ok(report)
    }

    /// The last checkpoint that was taken since the database was opened.
    #[must_use]
    pub fn last_checkpoint(&self) -> Option<CheckpointReport> {
        self.durable
            .as_ref()
            .and_then(|durable| *lock(&durable.last))
    }

    /// Makes a checkpoint in progress, and every later one, give up: the database is about to be
    /// closed.
    pub fn stop_checkpoint(&self) {
        if let Some(durable) = &self.durable {
            durable.stopping.store(true, Ordering::Relaxed);
        }
    }

    /// Makes sure that the log has something before the first part of the first checkpoint, so that
    /// no crash leaves parts alone (RC6 parts-stay); unless it is full, when a checkpoint frees its
    /// space.
    fn begin_log(&self, durable: &Durable) -> Result<(), CheckpointFailure> {
        let log = &durable.log;
        if log.statistics().segments > 0 {
            return Ok(());
        }
        if log.has_open_writes() {
            self.end_epoch();
        }
        let epoch = log.newest_written();
        log.want(epoch);
        while log.durable() < epoch && log.is_open() {
            if durable.stopping.load(Ordering::Relaxed) {
                return Err(CheckpointFailure::Stopped);
            }
            durable.wait_for_durable(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The start epoch and the mapping (CW1).
    fn begin_checkpoint(
        &self,
        durable: &Durable,
        with_album: bool,
    ) -> (LogEpoch, About, Option<Album>) {
        if !durable.log.is_open() {
            // So that nothing belongs to the start epoch, if nothing more is written (CW2).
            self.end_epoch();
        }
        let gates = self.gates.enter_all();
        let start = self.epochs.current();
        let (forest, album) = self.open_album(with_album);
        let about = About {
            identity: durable.identity,
            written: LogEpoch::NONE,
            changes: self.mapping.changes.load(Ordering::Relaxed),
            trees: self.mapping(),
            standing: lock(&self.standing).clone(),
            forest,
        };
        drop(gates);
        (start, about, album)
    }

    /// Logs that the checkpoint that began at `start` has a full copy, if it is finished: the end
    /// epoch comes later, and is durable before there is a manifest (CW2).
    fn note_planting(&self, start: LogEpoch) -> Result<(), CheckpointFailure> {
        let mut state = self.open_session()?;
        let mut turn = Turn::begin(self, &mut state);
        turn.hold_all();
        let point = self.epochs.current();
        let planting = Event::Planting { checkpoint: start };
        self.note_change(turn.session_mut(), point, planting);
        turn.end_whole();
        self.close_session(&state);
        Ok(())
    }

    /// Cuts a tree of so many keys into ranges.
    fn cut(&self, state: &mut SessionState, (tree, chunk): (TreeId, u32), keys: u64) -> Vec<Range> {
        let parts = (keys / limits::CHECKPOINT_RANGE_KEYS + 1) as usize;
        let parts = parts.min(limits::CHECKPOINT_RANGES_MAX);
        let mut turn = Turn::begin(self, state);
        let cuts = turn.session_mut().store.boundaries(tree, parts);
        drop(turn);
        // Every key is in one range.
        assert!(cuts.len() < parts && cuts.is_sorted_by(|one, next| one < next));
        let froms = [None].into_iter().chain(cuts.iter().cloned().map(Some));
        let tos = cuts.iter().cloned().map(Some).chain([None]);
        let range = |(from, to)| Range {
            tree,
            chunk,
            from,
            to,
        };
        froms.zip(tos).map(range).collect()
    }

    /// Cuts the trees into ranges: those of an album, if there is one, or of the mapping.
    fn divide<'a>(
        &'a self,
        durable: &'a Durable,
        options: &'a CheckpointOptions,
        start: LogEpoch,
        (about, album): (&About, Option<Album>),
    ) -> Result<Work<'a>, CheckpointFailure> {
        let mut state = self.open_session()?;
        let (ranges, total) = if let Some(album) = &album {
            Work::cut_roots(self, &mut state, album)
        } else {
            let (mut ranges, mut total) = (Vec::new(), 0);
            for tree in &about.trees {
                let keys = self.store.len(*tree);
                total += keys;
                ranges.extend(self.cut(&mut state, (*tree, tree.0), keys));
            }
            (ranges, total)
        };
        self.close_session(&state);
        Ok(Work {
            database: self,
            durable,
            options,
            start,
            changes: about.forest.as_ref().map_or(0, |forest| forest.changes),
            album,
            ranges,
            next: AtomicUsize::new(0),
            entries: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            total,
            stop: AtomicBool::new(false),
            began: Instant::now(),
            written: Written::default(),
        })
    }

    /// Takes the end epoch and waits until it is durable (CW2). Returns it, and the newest epoch
    /// that has anything in the log and is durable, with the log or with this checkpoint.
    fn settle_checkpoint(
        &self,
        durable: &Durable,
        work: &Work<'_>,
    ) -> Result<(LogEpoch, LogEpoch), CheckpointFailure> {
        let log = &durable.log;
        let gates = self.gates.enter_all();
        let end = self.epochs.current();
        let still = !log.has_writes_since(work.start);
        let changes = self.branches.changes.load(Ordering::Relaxed);
        let is_overtaken = work.album.is_none() && changes != work.changes;
        #[cfg(test)]
        let is_overtaken = is_overtaken && !is(Fault::OvertakenCounts);
        if is_overtaken {
            return Err(CheckpointFailure::Overtaken);
        }
        let newest = log.newest_written();
        drop(gates);
        #[cfg(test)]
        if is(Fault::CheckpointNotAwaited) {
            return Ok((end, log.durable_written()));
        }
        #[cfg(test)]
        let (still, newest) = (
            still || is(Fault::CheckpointHeldStill),
            if is(Fault::StillnessForgotten) {
                log.durable_written()
            } else {
                newest
            },
        );
        if end == self.epochs.current() {
            self.end_epoch();
        }
        log.want(end);
        let mut left_alone = None;
        while log.durable() < end {
            match log.state() {
                LogState::Failed { reason } => return Err(LogError::Failed(reason).into()),
                // Only a checkpoint frees space: it must not be given up while it can succeed.
                LogState::Full { .. } if still && !log.has_reserve() => return Ok((end, newest)),
                LogState::Full { reason } if !log.has_reserve() => {
                    // All parts are written: the space reserved for more of them is the log's.
                    log.spend_on_checkpoint(u64::MAX);
                    let since = left_alone.get_or_insert_with(Instant::now);
                    let patience = Duration::from_millis(limits::SETTLE_PATIENCE_MS);
                    if !durable.options.threads || since.elapsed() >= patience {
                        return Err(LogError::Full(reason).into());
                    }
                    durable.wait_for_durable(Duration::from_millis(20));
                }
                _ if work.is_stopped() => return Err(CheckpointFailure::Stopped),
                _ => durable.wait_for_durable(Duration::from_millis(20)),
            }
        }
        // Durable, and not empty: perhaps later than the end, which does no harm.
        Ok((end, log.durable_written()))
    }
}

/// Removes what the two newest checkpoints do not need (CW3); returns how many segments.
fn retire(
    durable: &Durable,
    manifest: &Manifest,
    kept: &mut Vec<LogEpoch>,
) -> Result<usize, CheckpointFailure> {
    assert!(kept.first().is_none_or(|newest| *newest < manifest.start));
    kept.insert(0, manifest.start);
    kept.truncate(limits::CHECKPOINTS_KEPT);
    checkpoint::remove_others(&*durable.options.disk, &durable.files, kept)?;
    let mut recycled = 0;
    // With fewer, only the log can replace the older one.
    if let Some(&oldest) = kept.get(limits::CHECKPOINTS_KEPT - 1) {
        recycled = durable.log.recycle_below(oldest)?;
    }
    Ok(recycled + durable.make_room(kept)?)
}

impl Work<'_> {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.durable.stopping.load(Ordering::Relaxed)
    }

    /// Scans and writes everything.
    fn run(&self) -> Result<Vec<PartSummary>, CheckpointFailure> {
        let others = self.album.as_ref().map_or(0, |album| album.others.len());
        let most = (self.ranges.len() + others).max(1);
        let threads = self.options.threads.clamp(1, most) as u32;
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads)
                .map(|thread| scope.spawn(move || self.run_part(thread)))
                .collect();
            let mut results = vec![self.run_part(0)];
            for other in others {
                results.push(other.join().expect("a writing thread does not panic"));
            }
            let results: Result<Vec<_>, _> = results.into_iter().collect();
            Ok(results?.into_iter().flatten().collect())
        })
    }

    fn run_part(&self, thread: u32) -> Result<Vec<PartSummary>, CheckpointFailure> {
        let mut state = self.database.open_session()?;
        let result = self.write_parts(thread, &mut state);
        self.database.close_session(&state);
        if result.is_err() {
            self.stop.store(true, Ordering::Relaxed);
        }
        result
    }

    fn write_parts(
        &self,
        thread: u32,
        state: &mut SessionState,
    ) -> Result<Vec<PartSummary>, CheckpointFailure> {
        let (disk, files) = (&*self.durable.options.disk, &self.durable.files);
        let mut writer = PartsWriter::create(disk, files, self.start, thread)?;
        let mut duty = Duty::new(self.options.pace, self.database.served());
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(range) = self.ranges.get(index) else {
                let rest = index - self.ranges.len();
                let album = self.album.as_ref();
                let other = album.and_then(|album| Some((album, *album.others.get(rest)?)));
                let Some((album, other)) = other else {
                    return Ok(writer.finish()?);
                };
                self.write_difference(album, other, state, &mut writer, &mut duty)?;
                continue;
            };
            let sorted = matches!(state.store.listing(), Listing::Ordered(_));
            writer.part().begin_chunk(range.chunk, sorted);
            self.write_range(range, state, &mut writer, &mut duty)?;
            writer.part().end_chunk();
        }
    }

    fn write_range(
        &self,
        range: &Range,
        state: &mut SessionState,
        writer: &mut PartsWriter<'_>,
        duty: &mut Duty,
    ) -> Result<(), CheckpointFailure> {
        let mut position = Position::of(range);
        let mut written = writer.bytes();
        loop {
            let (began, flushed) = (Instant::now(), writer.flushed());
            let mut slice = Slice::new(range, writer.part());
            let mut turn = Turn::begin(self.database, state);
            let next = slice.take(&mut turn.session_mut().store, &position);
            drop(turn);
            let Slice { entries, large, .. } = slice;
            // CW4: what follows waits for the disk.
            for (key, version, value) in large {
                write_large(writer.part(), &key, version, &value)?;
            }
            if writer.part().is_full() {
                writer.flush()?;
            }
            self.spend(writer.flushed() - flushed);
            self.tell(entries);
            if self.is_stopped() {
                return Err(CheckpointFailure::Stopped);
            }
            self.rest(duty, began, writer.bytes() - written);
            written = writer.bytes();
            match next {
                Some(next) => position = next,
                None => return Ok(()),
            }
        }
    }

    /// This many bytes no longer need to be kept free.
    fn spend(&self, bytes: u64) {
        if bytes > 0 {
            let flushed = self.flushed.fetch_add(bytes, Ordering::Relaxed) + bytes;
            self.durable.log.spend_on_checkpoint(flushed);
        }
    }

    fn tell(&self, entries: u64) {
        let written = self.entries.fetch_add(entries, Ordering::Relaxed) + entries;
        if let Some(progress) = &self.options.progress {
            progress(written, self.total.max(written));
        }
    }

    /// Rests after a slice that began at `began` and wrote this many bytes. No turn is open.
    fn rest(&self, duty: &mut Duty, began: Instant, bytes: u64) {
        if !self.durable.log.is_open() {
            // Writers wait for its end.
            return;
        }
        // Entries added since the beginning are not waited for.
        let outgrown = self.entries.load(Ordering::Relaxed) > self.total;
        if duty.rests() && !outgrown {
            let rest = duty.worked(began.elapsed(), self.database.served());
            if !rest.is_zero() {
                let resting = Instant::now();
                std::thread::sleep(rest);
                duty.rested(resting.elapsed());
            }
        }
        let pace = self.options.pace;
        let wait = self.written.add(pace, bytes, self.began.elapsed());
        if !wait.is_zero() {
            std::thread::sleep(wait);
        }
    }
}

/// Where a range continues.
enum Position {
    /// An ordered engine: at this key or after it.
    Key(Bound<Vec<u8>>),
    /// An unordered one: at this cursor.
    Cursor(u64),
}

impl Position {
    fn of(range: &Range) -> Self {
        Self::Key(range.from.clone().map_or(Bound::Unbounded, Bound::Included))
    }
}

/// The limits of one turn of a scan.
struct Slice<'s> {
    to: Option<&'s [u8]>,
    writer: &'s mut PartWriter,
    scratch: Vec<u8>,
    /// Entries taken, plus steps for entries passed over and empty buckets, which also cost
    /// something.
    entries: u64,
    steps: u64,
    tree: TreeId,
    large: Vec<(Vec<u8>, ValueVersion, NewValue<'static>)>,
}

impl<'s> Slice<'s> {
    fn new(range: &'s Range, writer: &'s mut PartWriter) -> Self {
        Self {
            to: range.to.as_deref(),
            writer,
            scratch: Vec::new(),
            entries: 0,
            steps: 0,
            tree: range.tree,
            large: Vec::new(),
        }
    }

    /// Takes entries from `position` on; returns where to continue, unless the range has ended.
    fn take(&mut self, store: &mut StoreSession, position: &Position) -> Option<Position> {
        let tree = self.tree;
        match store.listing() {
            Listing::Ordered(mut session) => {
                let from = match position {
                    Position::Key(from) => from.as_ref().map(Vec::as_slice),
                    Position::Cursor(_) => unreachable!("the engine keeps its keys in order"),
                };
                let mut last = None;
                session.scan_all(tree, from, Direction::Forward, |key, value| {
                    if self.to.is_some_and(|to| key >= to) {
                        return ControlFlow::Break(());
                    }
                    match value {
                        Some(value) => self.visit(key, value),
                        None => self.steps += 1,
                    }
                    if self.is_full() {
                        last = Some(key.to_vec());
                        return ControlFlow::Break(());
                    }
                    ControlFlow::Continue(())
                });
                last.map(|last| Position::Key(Bound::Excluded(last)))
            }
            Listing::Walking(mut session) => {
                let mut cursor = match position {
                    Position::Cursor(cursor) => *cursor,
                    Position::Key(_) => 0,
                };
                loop {
                    cursor = session.walk(tree, cursor, |key, value| self.visit(key, value));
                    if cursor == 0 {
                        return None;
                    }
                    self.steps += 1;
                    if self.is_full() {
                        return Some(Position::Cursor(cursor));
                    }
                }
            }
        }
    }

    fn is_full(&self) -> bool {
        let worked = self.entries.max(self.steps) >= limits::SLICE_ENTRIES_MAX as u64;
        worked || self.writer.is_full() || !self.large.is_empty()
    }

    fn visit(&mut self, key: &[u8], value: ValueRef<'_>) {
        self.entries += 1;
        if record::is_small(value) {
            self.scratch.clear();
            self.scratch.put(&value.version.to_bits().to_le_bytes());
            value::put_value(&mut self.scratch, value);
            self.writer.entry(key, &self.scratch);
        } else {
            self.large
                .push((key.to_vec(), value.version, value.hand_over()));
        }
    }
}

/// A large value goes to the writer as it is encoded.
struct LargeSink<'a, 'p>(&'a mut LargeValue<'p>);

impl Sink for LargeSink<'_, '_> {
    fn put(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }
}

fn write_large(
    writer: &mut PartWriter,
    key: &[u8],
    version: ValueVersion,
    new: &NewValue<'_>,
) -> Result<(), CheckpointError> {
    writer.large_entry(key, |large| {
        large.write(&version.to_bits().to_le_bytes());
        value::put_value(&mut LargeSink(large), new.view(version));
        Ok(())
    })
}
