//! Reading the entries of a chunk.

use std::path::PathBuf;

use super::CheckpointError;
use super::block::{
    BLOCK_HEADER_BYTES, FILE_HEADER_BYTES, FORMAT, Kind, MAGIC, checksum, file_header,
};
use super::cursor::Cursor;
use super::directories::Directories;
use super::manifest::{Chunk, Manifest};
use crate::disk::{Disk, DiskFile};
use crate::limits::{CHECKPOINT_BLOCK_BYTES_MAX, READ_BYTES};

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value, as it was written.
    pub value: &'a [u8],
    /// Whether it is the last of its block: a caller that gathers entries holds at most a block of
    /// them.
    pub ends_block: bool,
}

/// Where an entry was read, for errors of its reader.
#[derive(Debug)]
struct Blocks<'d> {
    path: PathBuf,
    file: Box<dyn DiskFile + 'd>,
    salt: u32,
    chunk: Chunk,
    /// Bytes read and not yet used.
    buffer: Vec<u8>,
    used: usize,
    /// The file offset of the unused bytes.
    offset: u64,
    number: u32,
}

impl Blocks<'_> {
    fn damaged(&self, what: &'static str) -> CheckpointError {
        CheckpointError::damaged(&self.path, self.offset, what)
    }

    fn end(&self) -> u64 {
        self.chunk.offset + self.chunk.bytes
    }

    /// Makes sure that `bytes` bytes of the chunk are in memory.
    fn fill(&mut self, bytes: usize) -> Result<(), CheckpointError> {
        let unused = self.buffer.len() - self.used;
        if unused >= bytes {
            return Ok(());
        }
        if self.offset + bytes as u64 > self.end() {
            return Err(self.damaged("a block reaches beyond its chunk"));
        }
        self.buffer.drain(..self.used);
        self.used = 0;
        let behind = self.offset + unused as u64;
        let more = (self.end() - behind).min(READ_BYTES.max(bytes) as u64) as usize;
        self.buffer.resize(unused + more, 0);
        let read = self
            .file
            .read_full_at(&mut self.buffer[unused..], behind)
            .map_err(CheckpointError::disk(&self.path))?;
        if read < more {
            return Err(self.damaged("the file has been cut"));
        }
        Ok(())
    }

    /// The next block, checked (CP3 checked-before-shown): kind, entries, and the place of its
    /// payload in the buffer.
    fn next(&mut self) -> Result<Option<(Kind, u32, std::ops::Range<usize>)>, CheckpointError> {
        if self.offset == self.end() {
            return Ok(None);
        }
        self.fill(BLOCK_HEADER_BYTES)?;
        let mut header = Cursor(&self.buffer[self.used..][..BLOCK_HEADER_BYTES]);
        let mut field = || header.short().expect("the header is in memory");
        let [crc, bytes, number, tree, entries, kind] = std::array::from_fn(|_| field());
        let bytes = bytes as usize;
        if bytes > CHECKPOINT_BLOCK_BYTES_MAX {
            return Err(self.damaged("a block is longer than any that is written"));
        }
        self.fill(BLOCK_HEADER_BYTES + bytes)?;
        let block = &self.buffer[self.used..][..BLOCK_HEADER_BYTES + bytes];
        if checksum(self.salt, block) != crc {
            return Err(self.damaged("the checksum is not that of the block"));
        }
        if number != self.number || tree != self.chunk.tree {
            return Err(self.damaged("the block belongs elsewhere"));
        }
        let Some(kind) = Kind::from_number(kind) else {
            return Err(self.damaged("the block has an unknown kind"));
        };
        let payload = self.used + BLOCK_HEADER_BYTES;
        self.used += BLOCK_HEADER_BYTES + bytes;
        self.offset += (BLOCK_HEADER_BYTES + bytes) as u64;
        self.number += 1;
        Ok(Some((kind, entries, payload..payload + bytes)))
    }
}

fn open<'d>(
    disk: &'d dyn Disk,
    directories: &Directories,
    manifest: &Manifest,
    chunk: &Chunk,
) -> Result<Blocks<'d>, CheckpointError> {
    let (path, file) = directories.open(disk, manifest.start, chunk.part)?;
    let mut header = [0; FILE_HEADER_BYTES];
    let read = file
        .read_full_at(&mut header, 0)
        .map_err(CheckpointError::disk(&path))?;
    if read < FILE_HEADER_BYTES || header[..8] != *MAGIC {
        return Err(CheckpointError::damaged(
            &path,
            0,
            "this is not a part file",
        ));
    }
    let format = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
    if format != FORMAT {
        return Err(CheckpointError::Format {
            path,
            got: format,
            expected: FORMAT,
        });
    }
    let part = manifest.parts.iter().find(|part| part.0 == chunk.part);
    let (part, salt, _) = *part.expect("a manifest's chunks are in its parts");
    if header != file_header(part, manifest.start, salt) {
        let what = "the file is not the one that the manifest names";
        return Err(CheckpointError::damaged(&path, 0, what));
    }
    Ok(Blocks {
        path,
        file,
        salt,
        chunk: *chunk,
        buffer: Vec::new(),
        used: 0,
        offset: chunk.offset,
        number: chunk.first_block,
    })
}

/// Shows the entries of a chunk to `visit`; if it rejects one, the error names file and place.
/// Memory is bounded, except for one large value at a time.
pub fn read_chunk(
    disk: &dyn Disk,
    directories: &Directories,
    manifest: &Manifest,
    chunk: &Chunk,
    visit: &mut dyn FnMut(Entry<'_>) -> Result<(), &'static str>,
) -> Result<(), CheckpointError> {
    let mut blocks = open(disk, directories, manifest, chunk)?;
    let (mut key, mut large, mut is_large) = (Vec::new(), Vec::new(), false);
    let mut entries = 0;
    while let Some((kind, count, payload)) = blocks.next()? {
        let payload = &blocks.buffer[payload];
        let result = match (kind, is_large) {
            (Kind::Entries, false) => {
                entries += u64::from(count);
                show_entries(payload, count, &mut key, visit)
            }
            (Kind::LargeBegin, false) => {
                entries += 1;
                let mut input = Cursor(payload);
                let found = input.number().and_then(|bytes| input.take(bytes));
                key.clear();
                key.extend_from_slice(found.unwrap_or_default());
                large.clear();
                large.extend_from_slice(input.0);
                is_large = true;
                found.map(|_| ()).ok_or("the key of an entry is cut")
            }
            (Kind::LargeMore, true) => {
                large.extend_from_slice(payload);
                Ok(())
            }
            (Kind::LargeEnd, true) => {
                is_large = false;
                let value = &large[..];
                let result = visit(Entry {
                    key: &key,
                    value,
                    ends_block: true,
                });
                // A value of the greatest length is not kept for the next one.
                large = Vec::new();
                result
            }
            _ => Err("a large entry is not whole"),
        };
        result.map_err(|what| blocks.damaged(what))?;
    }
    if is_large || entries != chunk.entries {
        return Err(blocks.damaged("entries are missing"));
    }
    Ok(())
}

fn show_entries(
    payload: &[u8],
    count: u32,
    key: &mut Vec<u8>,
    visit: &mut dyn FnMut(Entry<'_>) -> Result<(), &'static str>,
) -> Result<(), &'static str> {
    const CUT: &str = "an entry is cut";
    let mut input = Cursor(payload);
    key.clear();
    for number in 1..=count {
        let shared = input.number().ok_or(CUT)?;
        let rest = input
            .number()
            .and_then(|bytes| input.take(bytes))
            .ok_or(CUT)?;
        let value = input
            .number()
            .and_then(|bytes| input.take(bytes))
            .ok_or(CUT)?;
        if shared > key.len() {
            return Err("a key is made from more than its predecessor has");
        }
        key.truncate(shared);
        key.extend_from_slice(rest);
        visit(Entry {
            key,
            value,
            ends_block: number == count,
        })?;
    }
    if input.0.is_empty() {
        Ok(())
    } else {
        Err("a block is longer than its entries")
    }
}

/// Checks every block of a checkpoint; shows each entry's tree, key and value to `visit`.
pub fn verify(
    disk: &dyn Disk,
    directories: &Directories,
    manifest: &Manifest,
    mut visit: impl FnMut(u32, Entry<'_>) -> Result<(), &'static str>,
) -> Result<(), CheckpointError> {
    for chunk in &manifest.chunks {
        read_chunk(disk, directories, manifest, chunk, &mut |entry| {
            visit(chunk.tree, entry)
        })?;
    }
    Ok(())
}
