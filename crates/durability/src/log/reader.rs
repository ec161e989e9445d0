//! Reading groups that count, in the order in which they were handed to one log.
//!
//! A reader works through *stretches*: parts of segments between two stops of the scan. A reader of
//! a whole log has all of its stretches; those of a wave ([`super::waves`]) have a few each, so
//! threads can read one log together.

use std::collections::VecDeque;
use std::ops::{Range, RangeInclusive};
use std::path::Path;
use std::sync::Arc;

use pando_sync::LogEpoch;

use super::error::LogError;
use super::frame::{FRAME_HEADER_BYTES, FrameKind, GROUP_HEADER_BYTES, Part, split_group};
use super::scan::{Scanned, ScannedSegment, Walk};
use crate::disk::Access;

/// What one command or transaction wrote.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// The epoch that it belongs to.
    pub epoch: LogEpoch,
    /// Its records, as they were appended.
    pub records: &'a [u8],
    /// The file, for messages.
    pub path: &'a Path,
    /// Where the frame that holds it, or its last part, begins in the file.
    pub offset: u64,
}

/// A part of a segment, from one stop to another or to the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    /// Its index among the scanned segments.
    pub(super) segment: usize,
    pub(super) from: u64,
    pub(super) end: u64,
    /// The sequence that is expected first.
    pub(super) next: u64,
    /// Valid frames in it.
    pub(super) frames: usize,
    /// No group in it belongs to an epoch outside these.
    pub(super) first_epoch: LogEpoch,
    /// See `first_epoch`.
    pub(super) last_epoch: LogEpoch,
    /// Whether its first group begins in it.
    pub(super) whole: bool,
}

impl Stretch {
    pub(super) fn bytes(&self) -> u64 {
        self.end - self.from
    }

    /// The stretches of a segment, in order.
    pub(super) fn all(index: usize, segment: &ScannedSegment) -> impl Iterator<Item = Self> {
        segment.stops.iter().enumerate().map(move |(at, stop)| {
            let next = segment.stops.get(at + 1);
            Self {
                segment: index,
                from: stop.at,
                end: next.map_or(segment.end, |next| next.at),
                next: stop.next,
                frames: next.map_or(segment.frames, |next| next.frames) - stop.frames,
                first_epoch: stop.epoch,
                last_epoch: next.map_or(segment.last_epoch, |next| next.epoch),
                whole: stop.whole,
            }
        })
    }

    /// Merges this stretch with the next one of the same segment.
    fn join(&mut self, next: &Self) -> bool {
        let joined = self.segment == next.segment && self.end == next.from;
        if joined {
            self.end = next.end;
            self.frames += next.frames;
            self.last_epoch = next.last_epoch;
        }
        joined
    }
}

/// Groups of one log of one incarnation that count.
#[derive(Debug)]
pub struct LogReader {
    scanned: Arc<Scanned>,
    /// The epochs that count, ascending.
    chain: Arc<Vec<LogEpoch>>,
    /// Groups of other epochs are skipped.
    epochs: RangeInclusive<LogEpoch>,
    waiting: VecDeque<Stretch>,
    present: Option<Present>,
    /// The parts of a long group so far.
    parts: Vec<u8>,
    bytes: u64,
    read: u64,
}

/// The stretch that is being read.
#[derive(Debug)]
struct Present {
    stretch: Stretch,
    bytes: Vec<u8>,
    /// Where in `bytes` the next frame is looked for, and which.
    at: usize,
    next: u64,
    frames: usize,
    /// The present frame: where in `bytes` it begins, its epoch, what is left of its payload.
    frame: usize,
    epoch: LogEpoch,
    payload: Range<usize>,
}

/// Where a group is: in the stretch's bytes, or among the parts.
enum Place {
    Here(Range<usize>),
    Parts,
}

impl LogReader {
    pub(super) fn new(
        scanned: Arc<Scanned>,
        chain: Arc<Vec<LogEpoch>>,
        epochs: RangeInclusive<LogEpoch>,
    ) -> Self {
        Self {
            scanned,
            chain,
            epochs,
            waiting: VecDeque::new(),
            present: None,
            parts: Vec::new(),
            bytes: 0,
            read: 0,
        }
    }

    pub(super) fn add(&mut self, stretch: Stretch) {
        self.bytes += stretch.bytes();
        if !self
            .waiting
            .back_mut()
            .is_some_and(|last| last.join(&stretch))
        {
            self.waiting.push_back(stretch);
        }
    }

    /// Total bytes to read.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.read + self.present.as_ref().map_or(0, |present| present.at as u64)
    }

    /// The next group; `None`: there are no more.
    pub fn next_group(&mut self) -> Result<Option<Group<'_>>, LogError> {
        let place = loop {
            let Some(present) = &mut self.present else {
                let Some(stretch) = self.waiting.pop_front() else {
                    return Ok(None);
                };
                self.present = Some(open(&self.scanned, stretch)?);
                continue;
            };
            let segment = &self.scanned.segments[present.stretch.segment];
            if let Some(place) = present.take_group(segment, &mut self.parts)? {
                break place;
            }
            if !present.step(segment, &self.chain, &self.epochs)? {
                self.read += present.stretch.bytes();
                self.present = None;
            }
        };
        let present = self.present.as_ref().expect("a group was found in it");
        Ok(Some(Group {
            epoch: present.epoch,
            records: match place {
                Place::Here(range) => &present.bytes[range],
                Place::Parts => &self.parts,
            },
            path: &self.scanned.segments[present.stretch.segment].path,
            offset: present.stretch.from + present.frame as u64,
        }))
    }
}

fn open(scanned: &Scanned, stretch: Stretch) -> Result<Present, LogError> {
    let path = &scanned.segments[stretch.segment].path;
    let file = scanned.disk.open(path, Access::Read);
    let file = file.map_err(LogError::io("open", path))?;
    let mut bytes = vec![0; stretch.bytes() as usize];
    let read = file
        .read_full_at(&mut bytes, stretch.from)
        .map_err(LogError::io("read", path))?;
    bytes.truncate(read);
    Ok(Present {
        bytes,
        at: 0,
        next: stretch.next,
        frames: 0,
        frame: 0,
        epoch: LogEpoch::NONE,
        payload: 0..0,
        stretch,
    })
}

impl Present {
    fn damaged(&self, segment: &ScannedSegment, at: usize, what: &'static str) -> LogError {
        LogError::Damaged {
            path: segment.path.clone(),
            offset: self.stretch.from + at as u64,
            epoch: self.epoch,
            what,
        }
    }

    /// Moves to the next frame of groups that count. `false`: there is none.
    fn step(
        &mut self,
        segment: &ScannedSegment,
        chain: &[LogEpoch],
        epochs: &RangeInclusive<LogEpoch>,
    ) -> Result<bool, LogError> {
        loop {
            let mut walk = Walk::resume(&self.bytes, segment.salt, self.at, self.next);
            let Some((at, frame, _)) = walk.step() else {
                // The frames that the scan found must still be there.
                if self.frames != self.stretch.frames {
                    let what = "the file is not what it was a moment ago";
                    return Err(self.damaged(segment, self.at, what));
                }
                return Ok(false);
            };
            (self.frame, self.epoch) = (at, frame.epoch);
            let payload = walk.at - frame.bytes() + FRAME_HEADER_BYTES;
            self.payload = payload..payload + frame.payload.len();
            let counts = frame.kind == FrameKind::Groups
                && frame.sequence < segment.limit
                && epochs.contains(&frame.epoch)
                && chain.binary_search(&frame.epoch).is_ok();
            (self.at, self.next) = (walk.at, walk.next);
            self.frames += 1;
            if counts {
                return Ok(true);
            }
            self.payload = 0..0;
        }
    }

    /// The next group in the present frame, or the group whose last part is there.
    fn take_group(
        &mut self,
        segment: &ScannedSegment,
        parts: &mut Vec<u8>,
    ) -> Result<Option<Place>, LogError> {
        while !self.payload.is_empty() {
            let Some((part, group, rest)) = split_group(&self.bytes[self.payload.clone()]) else {
                let what = "the frame's checksum holds, but its groups are malformed";
                return Err(self.damaged(segment, self.frame, what));
            };
            let from = self.payload.start + GROUP_HEADER_BYTES;
            let range = from..from + group.len();
            self.payload.start = self.payload.end - rest.len();
            match part {
                Part::Whole => return Ok(Some(Place::Here(range))),
                Part::First => parts.clear(),
                Part::Middle | Part::Last => {}
            }
            parts.extend_from_slice(&self.bytes[range]);
            if part == Part::Last {
                return Ok(Some(Place::Parts));
            }
        }
        Ok(None)
    }
}
