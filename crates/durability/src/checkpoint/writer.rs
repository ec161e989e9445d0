//! Writing part files, and the manifest last.

use std::path::{Path, PathBuf};

use pando_sync::{LogEpoch, Milliseconds};

use super::block::{BLOCK_HEADER_BYTES, FILE_HEADER_BYTES, Kind, checksum, file_header};
use super::cursor::put_number;
use super::directories::Directories;
use super::manifest::{Chunk, Manifest};
use super::{CheckpointError, manifest_path, part_name, unfinished_path};
use crate::disk::{Access, Disk, DiskFile};
use crate::limits::{
    CHECKPOINT_BLOCK_BYTES, CHECKPOINT_BLOCK_BYTES_MAX, CHECKPOINT_BUFFER_BYTES, MANIFEST_BYTES_MAX,
};

/// A part file being written by one thread.
#[derive(Debug)]
pub struct PartWriter {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    part: u32,
    salt: u32,
    /// Blocks not written yet; the last one may be open.
    buffer: Vec<u8>,
    /// Where the open block begins in the buffer.
    open: Option<usize>,
    entries: u32,
    last_key: Vec<u8>,
    blocks: u32,
    /// Bytes in the file.
    written: u64,
    /// The length at which another part takes its turn.
    turn_ends_at: u64,
    chunk: Chunk,
    chunks: Vec<Chunk>,
}

/// A complete and durable part file.
#[derive(Debug)]
pub struct PartSummary {
    chunks: Vec<Chunk>,
    salt: u32,
    part: u32,
    bytes: u64,
}

impl PartWriter {
    /// Creates the file in its home, replacing one of the same name that a crash has left.
    pub fn create(
        disk: &dyn Disk,
        directories: &Directories,
        start: LogEpoch,
        part: u32,
    ) -> Result<Self, CheckpointError> {
        let path = directories.home(part).join(part_name(start, part));
        // It is usually absent; any other failure shows in `create`.
        let _ = disk.remove(&path);
        let file = disk
            .create(&path, Access::Write)
            .map_err(CheckpointError::disk(&path))?;
        let salt = fastrand::u32(..);
        Ok(Self {
            path,
            file,
            part,
            salt,
            buffer: file_header(part, start, salt).to_vec(),
            open: None,
            entries: 0,
            last_key: Vec::new(),
            blocks: 0,
            written: 0,
            turn_ends_at: u64::MAX,
            chunk: Chunk::default(),
            chunks: Vec::new(),
        })
    }

    fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// Begins a chunk: entries of one tree, in key order if `sorted`.
    pub fn begin_chunk(&mut self, tree: u32, sorted: bool) {
        assert!(self.open.is_none() && self.chunk.entries == 0);
        self.chunk = Chunk {
            tree,
            sorted,
            part: self.part,
            offset: self.position(),
            first_block: self.blocks,
            ..Chunk::default()
        };
    }

    /// Adds an entry, in memory. When [`Self::is_full`] returns true, the caller flushes soon.
    pub fn entry(&mut self, key: &[u8], value: &[u8]) {
        if self.open.is_none() {
            self.open_block(Kind::Entries);
        }
        let shared = key.iter().zip(&self.last_key);
        let shared = shared.take_while(|(one, other)| one == other).count();
        put_number(&mut self.buffer, shared);
        put_number(&mut self.buffer, key.len() - shared);
        self.buffer.extend_from_slice(&key[shared..]);
        put_number(&mut self.buffer, value.len());
        self.buffer.extend_from_slice(value);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
        self.entries += 1;
        self.chunk.entries += 1;
        let begin = self.open.expect("opened above");
        if self.buffer.len() - begin >= CHECKPOINT_BLOCK_BYTES {
            self.close_block();
        }
    }

    /// Adds an entry whose value arrives in pieces and is written as it arrives
    /// (CP4 bounded-buffer).
    pub fn large_entry(
        &mut self,
        key: &[u8],
        value: impl FnOnce(&mut LargeValue<'_>) -> Result<(), CheckpointError>,
    ) -> Result<(), CheckpointError> {
        self.close_block();
        self.open_block(Kind::LargeBegin);
        put_number(&mut self.buffer, key.len());
        self.buffer.extend_from_slice(key);
        self.entries = 1;
        self.chunk.entries += 1;
        let mut large = LargeValue {
            part: self,
            failed: None,
        };
        value(&mut large)?;
        if let Some(error) = large.failed {
            return Err(error);
        }
        self.close_block();
        self.open_block(Kind::LargeEnd);
        self.close_block();
        self.flush()
    }

    /// Whether [`Self::flush`] is due.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.buffer_is_full() || self.turn_has_ended()
    }

    fn buffer_is_full(&self) -> bool {
        self.buffer.len() >= CHECKPOINT_BUFFER_BYTES
    }

    /// Gives this part its turn for this many more bytes.
    pub(super) fn begin_turn(&mut self, bytes: u64) {
        self.turn_ends_at = self.position().saturating_add(bytes);
    }

    /// Whether it is the next part's turn.
    pub(super) fn turn_has_ended(&self) -> bool {
        self.position() >= self.turn_ends_at
    }

    /// Writes the buffer; returns how many bytes.
    pub fn flush(&mut self) -> Result<(), CheckpointError> {
        self.close_block();
        let error = CheckpointError::disk(&self.path);
        self.file
            .write_all_at(&self.buffer, self.written)
            .map_err(error)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Ends the chunk; one without entries is forgotten. Returns the arguments of
    /// [`Self::begin_chunk`].
    pub fn end_chunk(&mut self) -> (u32, bool) {
        self.close_block();
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.bytes = self.position() - chunk.offset;
        if chunk.entries > 0 {
            self.chunks.push(chunk);
        }
        (chunk.tree, chunk.sorted)
    }

    /// Returns the empty buffer for reuse.
    pub(super) fn rest(&mut self) {
        debug_assert!(self.buffer.is_empty(), "what is buffered was written");
        self.buffer = Vec::new();
    }

    /// Bytes of the file so far, including those in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.position()
    }

    /// Of these, bytes that were passed to the disk.
    #[must_use]
    pub fn flushed(&self) -> u64 {
        self.written
    }

    /// Makes the file durable.
    pub fn finish(mut self) -> Result<PartSummary, CheckpointError> {
        assert_eq!(self.chunk.entries, 0, "a chunk was begun and not ended");
        self.flush()?;
        self.file
            .sync()
            .map_err(CheckpointError::disk(&self.path))?;
        Ok(PartSummary {
            bytes: self.written,
            chunks: self.chunks,
            salt: self.salt,
            part: self.part,
        })
    }

    fn open_block(&mut self, kind: Kind) {
        assert!(self.open.is_none());
        self.open = Some(self.buffer.len());
        self.buffer.extend_from_slice(&[0; BLOCK_HEADER_BYTES]);
        let kind_at = self.buffer.len() - 4;
        self.buffer[kind_at..].copy_from_slice(&(kind as u32).to_le_bytes());
        self.last_key.clear();
        self.entries = 0;
    }

    fn close_block(&mut self) {
        let Some(begin) = self.open.take() else {
            return;
        };
        let payload = self.buffer.len() - begin - BLOCK_HEADER_BYTES;
        assert!(
            payload <= CHECKPOINT_BLOCK_BYTES_MAX,
            "a block of {payload} bytes could not be read again"
        );
        let payload = payload as u32;
        let (number, tree, entries) = (self.blocks, self.chunk.tree, self.entries);
        let block = &mut self.buffer[begin..];
        block[4..8].copy_from_slice(&payload.to_le_bytes());
        block[8..12].copy_from_slice(&number.to_le_bytes());
        block[12..16].copy_from_slice(&tree.to_le_bytes());
        block[16..20].copy_from_slice(&entries.to_le_bytes());
        let crc = checksum(self.salt, block);
        block[..4].copy_from_slice(&crc.to_le_bytes());
        self.blocks += 1;
    }
}

/// The value of a large entry being written.
#[derive(Debug)]
pub struct LargeValue<'p> {
    part: &'p mut PartWriter,
    failed: Option<CheckpointError>,
}

impl LargeValue<'_> {
    /// Takes the next bytes. After an error the rest is ignored, and
    /// [`PartWriter::large_entry`] returns it.
    pub fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.failed.is_none() {
            let (now, later) = bytes.split_at(bytes.len().min(CHECKPOINT_BLOCK_BYTES));
            self.part.buffer.extend_from_slice(now);
            bytes = later;
            let begin = self.part.open.expect("a large entry has an open block");
            if self.part.buffer.len() - begin < CHECKPOINT_BLOCK_BYTES {
                continue;
            }
            self.part.close_block();
            if self.part.buffer_is_full() {
                self.failed = self.part.flush().err();
            }
            self.part.open_block(Kind::LargeMore);
        }
    }
}

/// Makes the checkpoint of these parts count (CP1 parts-first). The caller has seen `end` durable
/// (CP2 end-is-durable). `about` is kept for the reader.
pub fn publish(
    disk: &dyn Disk,
    directories: &Directories,
    (start, end): (LogEpoch, LogEpoch),
    wall_ms: Milliseconds,
    parts: Vec<PartSummary>,
    about: &[u8],
) -> Result<Manifest, CheckpointError> {
    let mut manifest = Manifest {
        start,
        end,
        wall_ms,
        parts: Vec::new(),
        chunks: Vec::new(),
        about: about.to_vec(),
    };
    let mut chunks = Vec::new();
    for part in parts {
        manifest.parts.push((part.part, part.salt, part.bytes));
        chunks.extend(part.chunks.into_iter().enumerate());
    }
    // Alternating between all parts: reading in this order reads from all disks.
    chunks.sort_by_key(|(number, _)| *number);
    manifest.chunks = chunks.into_iter().map(|(_, chunk)| chunk).collect();
    assert!(start <= end);
    directories.sync(disk)?;
    place(disk, &directories.manifests, &manifest)?;
    Ok(manifest)
}

/// Writes a manifest, replacing the checkpoint's former one if it has one: durable on return, and
/// one or the other in any case.
pub fn place(
    disk: &dyn Disk,
    directory: &Path,
    manifest: &Manifest,
) -> Result<(), CheckpointError> {
    let bytes = manifest.encode();
    assert!(
        bytes.len() as u64 <= MANIFEST_BYTES_MAX,
        "a manifest of {} bytes could not be read again",
        bytes.len()
    );
    debug_assert!(manifest.is_read_from(&bytes));
    let unfinished = unfinished_path(directory, manifest.start);
    // As for part files: it is usually absent.
    let _ = disk.remove(&unfinished);
    let write = || {
        let file = disk.create(&unfinished, Access::Write)?;
        file.write_all_at(&bytes, 0)?;
        file.sync()
    };
    write().map_err(CheckpointError::disk(&unfinished))?;
    let path = manifest_path(directory, manifest.start);
    disk.rename(&unfinished, &path)
        .map_err(CheckpointError::disk(&path))?;
    disk.sync_directory(directory)
        .map_err(CheckpointError::disk(directory))
}

const _: () = assert!(FILE_HEADER_BYTES < CHECKPOINT_BUFFER_BYTES);
