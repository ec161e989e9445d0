//! Finding out what of the log is on disk: every segment is read, every frame checked.
//!
//! The result is facts only; [`LogScan::cut`] decides which of them count.
//!
//! | found | what is done |
//! |---|---|
//! | a file with another name | left alone |
//! | `free-…` | used for later segments, whatever it holds |
//! | `log-…`, bad header, other format, other database, renamed, duplicate | refused, with the file |
//! | a bad frame followed by a valid one | a gap: its frames do not count |
//! | a bad frame followed by none | the end of the segment |
//! | a frame that a later segment repeats (LS3 stale-frames) | does not count |
//! | a file shorter than it was made | refused: no crash does that (LS1 named-is-whole), so it was truncated |
//!
//! A gap or an end is a torn tail or damage: a torn tail if no epoch that is known to have been
//! durable needs the missing data. Closing marks and segment headers that were written later, the
//! proof that a server leaves when it ends, and the checkpoint show that an epoch was durable.
//!
//! Invariants:
//! - **LN1** Before anything is read, files and directories are synced: what this recovery finds, a
//!   later one finds too, even if power is lost in between.

use pando_sync::shim::unmodelled::{AtomicUsize, Ordering};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pando_sync::{LogEpoch, Milliseconds, lock};

use super::error::LogError;
use super::frame::{self, FRAME_ALIGNMENT, Frame, FrameKind, Mark, Part, number64, split_group};
use super::segment::{self, Header, Name};
use crate::disk::{Access, Disk, DiskFile};
use crate::limits::{BLOCK_BYTES, SEGMENT_BYTES_MAX, STRETCH_BYTES};

/// How the log is read.
#[derive(Clone, Copy, Debug)]
pub struct ScanOptions {
    /// Threads that read segments, each one segment at a time.
    pub threads: usize,
    /// Whether files and directories are synced first (LN1). May be false only when files are
    /// inspected, not before a server starts.
    pub sync: bool,
}

/// A place where frames are missing or bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where the first bad frame begins.
    pub offset: u64,
    /// The sequence that was expected there.
    pub first: u64,
    /// The sequence of the next valid frame.
    pub next: u64,
}

/// One segment as found.
#[derive(Clone, Debug)]
pub struct ScannedSegment {
    /// The file.
    pub path: PathBuf,
    /// The log it belongs to.
    pub log: u32,
    /// The start of the server that wrote it.
    pub incarnation: u64,
    /// Its place among the segments of this log and incarnation.
    pub ordinal: u64,
    /// The sequence of its first frame.
    pub first: u64,
    /// Sequences from here on do not count: a later segment repeats them (LS3 stale-frames).
    pub limit: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Where its last valid frame ends.
    pub end: u64,
    /// The sequence that would follow there.
    pub next: u64,
    /// The number of valid frames.
    pub frames: usize,
    /// The newest epoch of a frame.
    pub last_epoch: LogEpoch,
    /// Gaps.
    pub damage: Vec<Damage>,
    pub(super) salt: u64,
    /// Where reading may begin, in order; the first is the start of its frames.
    pub(super) stops: Vec<Stop>,
    durable: LogEpoch,
    marks: Vec<(u64, LogEpoch, Mark)>,
}

/// A place in a segment where reading may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    /// Where the next frame is looked for.
    pub(super) at: u64,
    /// The sequence expected there.
    pub(super) next: u64,
    /// Valid frames before it.
    pub(super) frames: usize,
    /// The oldest epoch whose groups may follow.
    pub(super) epoch: LogEpoch,
    /// Whether the next group starts after this stop. Only a segment's first stop may be within a
    /// group: then the previous segment holds the group's beginning.
    pub(super) whole: bool,
}

/// What is known about an epoch that has a mark.
#[derive(Debug)]
pub(super) struct ScannedEpoch {
    pub(super) incarnation: u64,
    pub(super) mark: Mark,
    /// The logs in which its mark was found.
    pub(super) marked: BTreeSet<u32>,
}

/// Ranges of sequences that exist, in order.
pub(super) type Coverage = Vec<(u64, u64)>;

#[derive(Debug)]
pub(super) struct Scanned {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) directories: Vec<PathBuf>,
    /// By incarnation, log, ordinal.
    pub(super) segments: Vec<ScannedSegment>,
    pub(super) free: Vec<PathBuf>,
    pub(super) epochs: BTreeMap<LogEpoch, ScannedEpoch>,
    pub(super) coverage: BTreeMap<(u64, u32), Coverage>,
    pub(super) newest_epoch: LogEpoch,
    pub(super) newest_wall_ms: Milliseconds,
    pub(super) newest_incarnation: u64,
    /// The newest epoch that a mark, header or proof says was durable.
    pub(super) proven: LogEpoch,
    pub(super) identity: Option<u128>,
}

/// The part of the log that is on disk.
#[derive(Clone, Debug)]
pub struct LogScan {
    pub(super) scanned: Arc<Scanned>,
}

impl LogScan {
    /// Reads the log in these directories, which exist.
    pub fn read(
        disk: &Arc<dyn Disk>,
        directories: &[PathBuf],
        options: ScanOptions,
    ) -> Result<Self, LogError> {
        let mut paths = Vec::new();
        let mut free = Vec::new();
        let mut newest_incarnation = 0;
        for directory in directories {
            if options.sync {
                disk.sync_directory(directory)
                    .map_err(LogError::io("sync the directory", directory))?;
            }
            let names = disk
                .list(directory)
                .map_err(LogError::io("list", directory))?;
            for name in names {
                let Some(kind) = Name::parse(&name) else {
                    continue;
                };
                newest_incarnation = newest_incarnation.max(kind.incarnation());
                match kind {
                    Name::Log { .. } => paths.push((directory.join(name), kind)),
                    Name::Free { .. } => free.push(directory.join(name)),
                }
            }
        }
        let mut segments = read_all(&**disk, &paths, options)?;
        segments.sort_by_key(|(_, one)| (one.incarnation, one.log, one.ordinal));
        let identity = segments.first().map(|(identity, _)| *identity);
        for pair in segments.windows(2) {
            let place = |one: &ScannedSegment| (one.incarnation, one.log, one.ordinal);
            let foreign = |what| LogError::Foreign {
                path: pair[1].1.path.clone(),
                what,
            };
            if pair[0].0 != pair[1].0 {
                return Err(foreign(
                    "it belongs to another database than the files beside it",
                ));
            }
            if place(&pair[0].1) == place(&pair[1].1) {
                return Err(foreign("another directory has the same segment"));
            }
        }
        let mut scanned = Scanned {
            disk: Arc::clone(disk),
            directories: directories.to_vec(),
            segments: segments.into_iter().map(|(_, segment)| segment).collect(),
            free,
            epochs: BTreeMap::new(),
            coverage: BTreeMap::new(),
            newest_epoch: LogEpoch::NONE,
            newest_wall_ms: Milliseconds::ZERO,
            newest_incarnation,
            proven: LogEpoch::NONE,
            identity,
        };
        scanned.combine();
        Ok(Self {
            scanned: Arc::new(scanned),
        })
    }

    /// The newest epoch of anything in the log, whether it counts or not.
    pub fn newest_epoch(&self) -> LogEpoch {
        self.scanned.newest_epoch
    }

    /// The newest wall clock in the log, in ms since 1970; 0 if there is none.
    pub fn newest_wall_ms(&self) -> Milliseconds {
        self.scanned.newest_wall_ms
    }

    /// The wall clock when the oldest epoch that it knows was closed, in ms since 1970.
    pub fn oldest_wall_ms(&self) -> Option<Milliseconds> {
        let oldest = self.scanned.epochs.first_key_value();
        oldest.map(|(_, known)| known.mark.wall_ms)
    }

    /// Which database the log belongs to; `None`: there is no segment.
    pub fn identity(&self) -> Option<u128> {
        self.scanned.identity
    }

    /// The segments, by incarnation, log and ordinal.
    pub fn segments(&self) -> &[ScannedSegment] {
        &self.scanned.segments
    }

    /// The free files.
    pub fn free_files(&self) -> &[PathBuf] {
        &self.scanned.free
    }

    /// Those that were segments with frames before: a checkpoint has made them free. Unreadable
    /// ones are skipped.
    pub fn recycled_files(&self) -> impl Iterator<Item = &PathBuf> {
        let had_frames = |path: &&PathBuf| segment::had_frames(&*self.scanned.disk, path);
        self.scanned.free.iter().filter(had_frames)
    }
}

impl Scanned {
    /// Combines the facts of the segments.
    fn combine(&mut self) {
        for index in 1..self.segments.len() {
            let (before, after) = self.segments.split_at_mut(index);
            let (one, next) = (&mut before[index - 1], &after[0]);
            if (one.incarnation, one.log) == (next.incarnation, next.log) {
                one.limit = next.first;
            }
        }
        for segment in &mut self.segments {
            let limit = segment.limit;
            let key = (segment.incarnation, segment.log);
            let coverage = self.coverage.entry(key).or_default();
            let mut from = segment.first;
            let ends = segment
                .damage
                .iter()
                .map(|damage| (damage.first, damage.next));
            for (end, next) in ends.chain([(segment.next, u64::MAX)]) {
                let end = end.min(limit);
                if from < end {
                    match coverage.last_mut() {
                        Some(last) if last.1 + 1 == from => last.1 = end - 1,
                        _ => coverage.push((from, end - 1)),
                    }
                }
                from = next;
            }
            self.newest_epoch = self
                .newest_epoch
                .max(segment.last_epoch)
                .max(segment.durable);
            self.proven = self.proven.max(segment.durable);
            for (sequence, epoch, mark) in std::mem::take(&mut segment.marks) {
                // What a mark says is true whether its frame counts or not.
                self.proven = self.proven.max(mark.durable);
                self.newest_wall_ms = self.newest_wall_ms.max(mark.wall_ms);
                if sequence >= limit {
                    continue;
                }
                let known = self.epochs.entry(epoch).or_insert_with(|| ScannedEpoch {
                    incarnation: segment.incarnation,
                    mark: mark.clone(),
                    marked: BTreeSet::new(),
                });
                if known.incarnation < segment.incarnation {
                    // An epoch of which the earlier incarnation's frames could not be read then.
                    *known = ScannedEpoch {
                        incarnation: segment.incarnation,
                        mark,
                        marked: BTreeSet::new(),
                    };
                }
                known.marked.insert(segment.log);
            }
        }
    }

    /// For people.
    pub(super) fn looked_in(&self) -> String {
        let names: Vec<_> = self
            .directories
            .iter()
            .map(|directory| directory.display().to_string())
            .collect();
        names.join(", ")
    }
}

type Found = (u128, ScannedSegment);

fn read_all(
    disk: &dyn Disk,
    paths: &[(PathBuf, Name)],
    options: ScanOptions,
) -> Result<Vec<Found>, LogError> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::with_capacity(paths.len()));
    let read = || {
        while let Some((path, name)) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
            let segment = read_segment(disk, path, *name, options.sync)?;
            lock(&found).push(segment);
        }
        Ok(())
    };
    let threads = options.threads.min(paths.len());
    if threads <= 1 {
        read()?;
    } else {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(read)).collect();
            let results = threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"));
            results.collect::<Result<Vec<()>, LogError>>()
        })?;
    }
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn read_segment(disk: &dyn Disk, path: &Path, name: Name, sync: bool) -> Result<Found, LogError> {
    let access = if sync { Access::Write } else { Access::Read };
    let file = disk
        .open(path, access)
        .map_err(LogError::io("open", path))?;
    if sync {
        file.sync().map_err(LogError::io("sync", path))?;
    }
    let bytes = read_file(&*file, path)?;
    let header = Header::parse(&bytes, path)?;
    let foreign = |what| LogError::Foreign {
        path: path.to_owned(),
        what,
    };
    if header.place() != name {
        return Err(foreign(
            "it was renamed: its header says that it is another segment",
        ));
    }
    let Some(bytes) = bytes.get(..header.bytes as usize) else {
        return Err(LogError::Damaged {
            path: path.to_owned(),
            offset: bytes.len() as u64,
            epoch: LogEpoch::NONE,
            what: "the file was cut there: it was made longer",
        });
    };
    Ok((header.identity, scan_segment(bytes, &header, path)))
}

pub(super) fn read_file(file: &dyn DiskFile, path: &Path) -> Result<Vec<u8>, LogError> {
    let length = file.bytes().map_err(LogError::io("measure", path))?;
    // A longer file is not ours; its header says so.
    let mut bytes = vec![0; length.min(SEGMENT_BYTES_MAX) as usize];
    let read = file
        .read_full_at(&mut bytes, 0)
        .map_err(LogError::io("read", path))?;
    bytes.truncate(read);
    Ok(bytes)
}

/// The frames of a segment, in order.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    bytes: &'a [u8],
    salt: u64,
    /// Where the last frame ended.
    pub(super) at: usize,
    /// The sequence expected there.
    pub(super) next: u64,
}

impl<'a> Walk<'a> {
    pub(super) fn new(bytes: &'a [u8], salt: u64, first: u64) -> Self {
        Self {
            bytes,
            salt,
            at: BLOCK_BYTES,
            next: first,
        }
    }

    pub(super) fn resume(bytes: &'a [u8], salt: u64, at: usize, next: u64) -> Self {
        Self {
            bytes,
            salt,
            at,
            next,
        }
    }

    /// The next valid frame, where it begins, and the gap before it.
    pub(super) fn step(&mut self) -> Option<(usize, Frame<'a>, Option<Damage>)> {
        let mut at = self.at;
        while at < self.bytes.len() {
            // After the padding of a batch, or a gap, the next frame is looked for at each place
            // where one may begin.
            if let Some(frame) = frame::parse(&self.bytes[at..], self.salt)
                && frame.sequence >= self.next
                && frame.sequence < u64::MAX
            {
                let gap = (frame.sequence > self.next).then_some(Damage {
                    offset: self.at as u64,
                    first: self.next,
                    next: frame.sequence,
                });
                self.at = at + frame.bytes();
                self.next = frame.sequence + 1;
                return Some((at, frame, gap));
            }
            at += FRAME_ALIGNMENT;
        }
        None
    }
}

impl ScannedSegment {
    /// Notes that reading may begin at a frame, if it may and is far enough from the last stop.
    fn stop_at(&mut self, at: u64, frame: &Frame<'_>) {
        if frame.kind != FrameKind::Groups {
            return;
        }
        let begins = split_group(frame.payload)
            .is_some_and(|(part, ..)| matches!(part, Part::Whole | Part::First));
        let stop = Stop {
            at,
            next: frame.sequence,
            frames: self.frames,
            epoch: frame.epoch,
            whole: begins,
        };
        match self.stops.last() {
            None => self.stops.push(stop),
            Some(last) if begins && at - last.at >= STRETCH_BYTES => self.stops.push(stop),
            Some(_) => {}
        }
    }
}

pub(super) fn scan_segment(bytes: &[u8], header: &Header, path: &Path) -> ScannedSegment {
    let mut segment = ScannedSegment {
        path: path.to_owned(),
        log: header.log,
        incarnation: header.incarnation,
        ordinal: header.ordinal,
        first: header.first,
        limit: u64::MAX,
        bytes: bytes.len() as u64,
        end: 0,
        next: 0,
        frames: 0,
        last_epoch: LogEpoch::NONE,
        damage: Vec::new(),
        salt: header.salt,
        stops: Vec::new(),
        durable: header.durable,
        marks: Vec::new(),
    };
    let mut walk = Walk::new(bytes, header.salt, header.first);
    while let Some((at, frame, gap)) = walk.step() {
        segment.stop_at(at as u64, &frame);
        segment.damage.extend(gap);
        segment.frames += 1;
        segment.last_epoch = segment.last_epoch.max(frame.epoch);
        match frame.kind {
            FrameKind::Groups => {}
            FrameKind::Mark => {
                if let Some(mark) = Mark::parse(frame.payload) {
                    segment.marks.push((frame.sequence, frame.epoch, mark));
                }
            }
            FrameKind::Proof => {
                if frame.payload.len() >= 8 {
                    segment.durable = segment.durable.max(LogEpoch(number64(frame.payload, 0)));
                }
            }
        }
    }
    segment.end = walk.at as u64;
    segment.next = walk.next;
    segment
}
