//! The groups of one log that count, in the order in which they were handed over.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::LogError;
use super::frame::{FrameKind, GROUP_HEADER_BYTES, Part, split_group};
use super::scan::{ScannedSegment, Walk, read_file};
use crate::disk::{Access, Disk};

/// What one command or transaction wrote.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// The epoch that it belongs to.
    pub epoch: u64,
    /// Its records, as they were appended.
    pub records: &'a [u8],
    /// The file, for messages.
    pub path: &'a Path,
    /// Where in it the frame begins that holds it, or its last part.
    pub offset: u64,
}

/// The groups of one log of one incarnation, up to the cutoff.
#[derive(Debug)]
pub struct LogReader {
    disk: Arc<dyn Disk>,
    /// The epochs that count, ascending.
    chain: Arc<Vec<u64>>,
    log: u32,
    incarnation: u64,
    waiting: VecDeque<ScannedSegment>,
    present: Option<Present>,
    /// The parts of a long group so far.
    parts: Vec<u8>,
    bytes: u64,
    read: u64,
}

/// The segment that is being read.
#[derive(Debug)]
struct Present {
    segment: ScannedSegment,
    bytes: Vec<u8>,
    /// Where the next frame is looked for, and which.
    at: usize,
    next: u64,
    frames: usize,
    /// The present frame: where it begins, its epoch, what is left of its payload.
    frame: usize,
    epoch: u64,
    payload: Range<usize>,
}

/// Where a group is: in the segment's bytes, or among the parts.
enum Place {
    Here(Range<usize>),
    Parts,
}

impl LogReader {
    pub(super) fn new(disk: Arc<dyn Disk>, chain: Arc<Vec<u64>>, first: &ScannedSegment) -> Self {
        let mut reader = Self {
            disk,
            chain,
            log: first.log,
            incarnation: first.incarnation,
            waiting: VecDeque::new(),
            present: None,
            parts: Vec::new(),
            bytes: 0,
            read: 0,
        };
        reader.add(first);
        reader
    }

    pub(super) fn is_of(&self, segment: &ScannedSegment) -> bool {
        (self.incarnation, self.log) == (segment.incarnation, segment.log)
    }

    pub(super) fn add(&mut self, segment: &ScannedSegment) {
        self.bytes += segment.end;
        self.waiting.push_back(segment.clone());
    }

    /// Which log it is.
    pub fn log(&self) -> u32 {
        self.log
    }

    /// Which start of the server wrote it.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Bytes to read in all.
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
                let Some(segment) = self.waiting.pop_front() else {
                    return Ok(None);
                };
                self.present = Some(open(&*self.disk, segment)?);
                continue;
            };
            if let Some(place) = present.take_group(&mut self.parts)? {
                break place;
            }
            if !present.step(&self.chain)? {
                self.read += present.segment.end;
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
            path: &present.segment.path,
            offset: present.frame as u64,
        }))
    }
}

fn open(disk: &dyn Disk, segment: ScannedSegment) -> Result<Present, LogError> {
    let path: &PathBuf = &segment.path;
    let file = disk
        .open(path, Access::Read)
        .map_err(LogError::io("open", path))?;
    let mut bytes = read_file(&*file, path)?;
    bytes.truncate(segment.end as usize);
    Ok(Present {
        bytes,
        at: crate::limits::BLOCK_BYTES,
        next: segment.first,
        frames: 0,
        frame: 0,
        epoch: 0,
        payload: 0..0,
        segment,
    })
}

impl Present {
    fn changed(&self) -> LogError {
        LogError::Damaged {
            path: self.segment.path.clone(),
            offset: self.at as u64,
            epoch: self.epoch,
            what: "the file is not what it was a moment ago",
        }
    }

    /// Goes to the next frame of groups that count. `false`: there is none.
    fn step(&mut self, chain: &[u64]) -> Result<bool, LogError> {
        loop {
            let mut walk = Walk::resume(&self.bytes, self.segment.salt, self.at, self.next);
            let Some((at, frame, _)) = walk.step() else {
                // The frames that the scan counted on have to be there again.
                if self.frames != self.segment.frames {
                    return Err(self.changed());
                }
                return Ok(false);
            };
            (self.frame, self.epoch) = (at, frame.epoch);
            let payload = walk.at - frame.bytes() + crate::log::frame::FRAME_HEADER_BYTES;
            self.payload = payload..payload + frame.payload.len();
            let counts = frame.kind == FrameKind::Groups
                && frame.sequence < self.segment.limit
                && chain.binary_search(&frame.epoch).is_ok();
            (self.at, self.next) = (walk.at, walk.next);
            self.frames += 1;
            if counts {
                return Ok(true);
            }
            self.payload = 0..0;
        }
    }

    /// The next group in the present frame, or whose last part that is.
    fn take_group(&mut self, parts: &mut Vec<u8>) -> Result<Option<Place>, LogError> {
        while !self.payload.is_empty() {
            let Some((part, group, rest)) = split_group(&self.bytes[self.payload.clone()]) else {
                return Err(LogError::Damaged {
                    path: self.segment.path.clone(),
                    offset: self.frame as u64,
                    epoch: self.epoch,
                    what: "the frame's checksum holds, but its groups are malformed",
                });
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
