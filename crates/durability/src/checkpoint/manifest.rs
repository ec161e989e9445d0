//! Manifests: the content of a checkpoint.
//!
//! | bytes | field |
//! |---|---|
//! | 8 | `PANDOMAN` |
//! | 4 | format ([`FORMAT`]) |
//! | 4 | CRC-32C of what follows |
//! | 8 | start epoch |
//! | 8 | end epoch |
//! | 8 | milliseconds since the Unix epoch |
//! | 4 | how many part files; of each: number (4), salt (4), bytes (8) |
//! | 4 | how many chunks; of each: tree, part, 1 if sorted, first block (4 bytes each), |
//! | | offset, bytes, entries (8 bytes each) |
//! | n | the checkpoint writer's own data, up to the end |

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use pando_sync::{LogEpoch, Milliseconds};

use super::cursor::Cursor;
use super::directories::Directories;
use super::{CheckpointError, manifest_path, parse_name};
use crate::disk::{Access, Disk};
use crate::limits::MANIFEST_BYTES_MAX;

const MAGIC: &[u8; 8] = b"PANDOMAN";
const FORMAT: u32 = 2;
const HEADER_BYTES: usize = 16;

/// Adjacent blocks of one tree's entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// The tree.
    pub tree: u32,
    /// Whether the entries are in key order.
    pub sorted: bool,
    /// The number of entries.
    pub entries: u64,
    /// Bytes of the blocks.
    pub bytes: u64,
    pub(super) part: u32,
    pub(super) first_block: u32,
    pub(super) offset: u64,
}

/// A complete checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Writes before this epoch are in the checkpoint.
    pub start: LogEpoch,
    /// Writes after this epoch are not in it.
    pub end: LogEpoch,
    /// When it was completed, in milliseconds since the Unix epoch.
    pub wall_ms: Milliseconds,
    /// The chunks, each of which can be read alone.
    pub chunks: Vec<Chunk>,
    /// The checkpoint writer's own data.
    pub about: Vec<u8>,
    /// Number, salt and bytes of each part file.
    pub(super) parts: Vec<(u32, u32, u64)>,
}

impl Manifest {
    /// Entries of all chunks.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.entries).sum()
    }

    /// Bytes of all part files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|(_, _, bytes)| bytes).sum()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let short = |body: &mut Vec<u8>, number: u32| body.extend_from_slice(&number.to_le_bytes());
        let long = |body: &mut Vec<u8>, number: u64| body.extend_from_slice(&number.to_le_bytes());
        for number in [self.start.0, self.end.0, self.wall_ms.0] {
            long(&mut body, number);
        }
        short(&mut body, self.parts.len() as u32);
        for (part, salt, bytes) in &self.parts {
            short(&mut body, *part);
            short(&mut body, *salt);
            long(&mut body, *bytes);
        }
        short(&mut body, self.chunks.len() as u32);
        for chunk in &self.chunks {
            short(&mut body, chunk.tree);
            short(&mut body, chunk.part);
            short(&mut body, u32::from(chunk.sorted));
            short(&mut body, chunk.first_block);
            long(&mut body, chunk.offset);
            long(&mut body, chunk.bytes);
            long(&mut body, chunk.entries);
        }
        body.extend_from_slice(&self.about);
        let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
        bytes.extend_from_slice(MAGIC);
        short(&mut bytes, FORMAT);
        short(&mut bytes, crc32c::crc32c(&body));
        bytes.extend_from_slice(&body);
        bytes
    }

    /// Whether it is what would be read from these bytes.
    pub(super) fn is_read_from(&self, bytes: &[u8]) -> bool {
        Self::decode(&bytes[HEADER_BYTES..]).as_ref() == Some(self)
    }

    fn decode(body: &[u8]) -> Option<Self> {
        let mut input = Cursor(body);
        let (start, end) = (LogEpoch(input.long()?), LogEpoch(input.long()?));
        let wall_ms = Milliseconds(input.long()?);
        // Counts are not trusted: a list ends with the bytes.
        let part_count = input.short()?;
        let mut parts = Vec::new();
        for _ in 0..part_count {
            parts.push((input.short()?, input.short()?, input.long()?));
        }
        let chunk_count = input.short()?;
        let mut chunks = Vec::new();
        for _ in 0..chunk_count {
            chunks.push(Chunk {
                tree: input.short()?,
                part: input.short()?,
                sorted: input.short()? == 1,
                first_block: input.short()?,
                offset: input.long()?,
                bytes: input.long()?,
                entries: input.long()?,
            });
        }
        let placed = |chunk: &Chunk| {
            parts.iter().any(|(part, _, bytes)| {
                let end = chunk.offset.checked_add(chunk.bytes);
                *part == chunk.part && end.is_some_and(|end| end <= *bytes)
            })
        };
        (start <= end && chunks.iter().all(placed)).then(|| Self {
            start,
            end,
            wall_ms,
            parts,
            chunks,
            about: input.0.to_vec(),
        })
    }

    fn read(disk: &dyn Disk, directory: &Path, start: LogEpoch) -> Result<Self, CheckpointError> {
        let path = manifest_path(directory, start);
        let damaged = |offset, what| Err(CheckpointError::damaged(&path, offset, what));
        let read = || {
            let file = disk.open(&path, Access::Read)?;
            // A longer file is not ours, and is truncated.
            let mut bytes = vec![0; file.bytes()?.min(MANIFEST_BYTES_MAX) as usize];
            let read = file.read_full_at(&mut bytes, 0)?;
            bytes.truncate(read);
            Ok(bytes)
        };
        let bytes: Vec<u8> = read().map_err(CheckpointError::disk(&path))?;
        let mut input = Cursor(&bytes);
        let (magic, format, crc) = (input.take(8), input.short(), input.short());
        let (Some(magic), Some(format), Some(crc)) = (magic, format, crc) else {
            return damaged(0, "the manifest has been cut");
        };
        if magic != MAGIC {
            return damaged(0, "this is not a manifest");
        }
        if format != FORMAT {
            return Err(CheckpointError::Format {
                path,
                got: format,
                expected: FORMAT,
            });
        }
        if crc != crc32c::crc32c(input.0) {
            return damaged(12, "the checksum is not that of the content");
        }
        match Self::decode(input.0) {
            Some(manifest) if manifest.start == start => Ok(manifest),
            Some(_) => damaged(16, "the manifest is that of another checkpoint"),
            None => damaged(16, "the manifest contradicts itself"),
        }
    }
}

/// A checkpoint in a directory: its start epoch, and its manifest if it is readable.
pub type Found = (LogEpoch, Result<Manifest, CheckpointError>);

/// The checkpoints in a directory, newest first.
pub fn found(disk: &dyn Disk, directory: &Path) -> Result<Vec<Found>, CheckpointError> {
    let names = disk
        .list(directory)
        .map_err(CheckpointError::disk(directory))?;
    let mut starts: Vec<LogEpoch> = names
        .iter()
        .filter_map(|name| parse_name(name))
        .filter_map(|(start, manifest)| manifest.then_some(start))
        .collect();
    starts.sort_unstable_by(|one, other| other.cmp(one));
    let read = |start| (start, Manifest::read(disk, directory, start));
    Ok(starts.into_iter().map(read).collect())
}

/// The files of unfinished checkpoints: parts without a manifest, whole or not, and manifests under
/// construction.
pub fn unfinished(
    disk: &dyn Disk,
    directories: &Directories,
) -> Result<Vec<PathBuf>, CheckpointError> {
    let files = directories.files(disk)?;
    let manifests = files.iter().filter(|(_, manifest, _)| *manifest);
    let finished: BTreeSet<LogEpoch> = manifests.map(|(start, ..)| *start).collect();
    let left = files.into_iter();
    let left = left.filter(|(start, ..)| !finished.contains(start));
    Ok(left.map(|(_, _, path)| path).collect())
}

/// Removes [`unfinished`] files. No checkpoint may be in progress. Returns why some of them remain.
pub fn remove_unfinished(
    disk: &dyn Disk,
    directories: &Directories,
) -> Result<Vec<CheckpointError>, CheckpointError> {
    let mut staying = Vec::new();
    for path in unfinished(disk, directories)? {
        let removed = disk.remove(&path).map_err(CheckpointError::disk(&path));
        staying.extend(removed.err());
    }
    Ok(staying)
}

/// Removes the files of all checkpoints but these, manifests first (CP1 parts-first).
pub fn remove_others(
    disk: &dyn Disk,
    directories: &Directories,
    kept: &[LogEpoch],
) -> Result<(), CheckpointError> {
    let others = directories.files(disk)?.into_iter();
    let others = others.filter(|(start, ..)| !kept.contains(start));
    let (manifests, parts): (Vec<_>, Vec<_>) = others.partition(|(_, manifest, _)| *manifest);
    for files in [manifests, parts] {
        let mut changed = BTreeSet::new();
        for (_, _, path) in files {
            disk.remove(&path).map_err(CheckpointError::disk(&path))?;
            changed.extend(path.parent().map(Path::to_owned));
        }
        for directory in changed {
            disk.sync_directory(&directory)
                .map_err(CheckpointError::disk(&directory))?;
        }
    }
    Ok(())
}
