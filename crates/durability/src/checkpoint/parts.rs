//! One thread's share of a checkpoint: a part in each directory, written in pieces.
//!
//! After each piece, a thread continues in the directory that it has written the least to. So each
//! takes an equal share, whatever the trees' shape and the disks' speed; the log reserves that
//! share on each volume ([`crate::log`], LR1 checkpoint-room). A value is not split between
//! directories. Threads begin in different directories, and end in different ones, so all disks are
//! busy. A part is created when its turn comes.
//!
//! Pieces grow with the bytes written, so a manifest has a bounded number of chunks.

use pando_sync::LogEpoch;

use super::CheckpointError;
use super::directories::Directories;
use super::writer::{PartSummary, PartWriter};
use crate::disk::Disk;
use crate::limits::CHECKPOINT_PIECE_PART;

/// The parts of one thread.
#[derive(Debug)]
pub struct PartsWriter<'d> {
    disk: &'d dyn Disk,
    directories: &'d Directories,
    start: LogEpoch,
    thread: u32,
    /// By directory; `current` is there.
    parts: Vec<Option<PartWriter>>,
    current: usize,
}

impl<'d> PartsWriter<'d> {
    /// The parts of this thread, counted from 0.
    pub fn create(
        disk: &'d dyn Disk,
        directories: &'d Directories,
        start: LogEpoch,
        thread: u32,
    ) -> Result<Self, CheckpointError> {
        let count = directories.parts.len();
        let mut writer = Self {
            disk,
            directories,
            start,
            thread,
            parts: (0..count).map(|_| None).collect(),
            current: thread as usize % count,
        };
        writer.go_on_in(writer.current)?;
        Ok(writer)
    }

    fn go_on_in(&mut self, index: usize) -> Result<(), CheckpointError> {
        if self.parts[index].is_none() {
            let part = self.thread * self.parts.len() as u32 + index as u32;
            let made = PartWriter::create(self.disk, self.directories, self.start, part)?;
            self.parts[index] = Some(made);
        }
        self.current = index;
        if self.parts.len() > 1 {
            let piece = self.bytes() / CHECKPOINT_PIECE_PART;
            let piece = piece.max(self.directories.piece_bytes);
            self.part().begin_turn(piece);
        }
        Ok(())
    }

    /// The part whose turn it is. The owner flushes here, which may pass the turn to another part.
    pub fn part(&mut self) -> &mut PartWriter {
        let part = self.parts[self.current].as_mut();
        part.expect("the current part is there")
    }

    /// Writes the buffer; the chunk continues in another part if it is time.
    pub fn flush(&mut self) -> Result<(), CheckpointError> {
        self.part().flush()?;
        if !self.part().turn_has_ended() {
            return Ok(());
        }
        let (tree, sorted) = self.part().end_chunk();
        self.part().rest();
        let count = self.parts.len();
        let others = (1..=count).map(|step| (self.current + step) % count);
        let least = others.min_by_key(|&index| self.bytes_of(index));
        self.go_on_in(least.expect("there is a directory"))?;
        self.part().begin_chunk(tree, sorted);
        Ok(())
    }

    fn bytes_of(&self, index: usize) -> u64 {
        self.parts[index].as_ref().map_or(0, PartWriter::bytes)
    }

    /// Bytes of all parts so far, including those in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (0..self.parts.len())
            .map(|index| self.bytes_of(index))
            .sum()
    }

    /// Of these, bytes that were passed to the disks.
    #[must_use]
    pub fn flushed(&self) -> u64 {
        self.parts.iter().flatten().map(PartWriter::flushed).sum()
    }

    /// Makes the files durable, starting with that of the thread's first directory.
    pub fn finish(mut self) -> Result<Vec<PartSummary>, CheckpointError> {
        let count = self.parts.len();
        self.parts.rotate_left(self.thread as usize % count);
        self.parts
            .into_iter()
            .flatten()
            .map(PartWriter::finish)
            .collect()
    }
}
