//! Segments: the files of the log. Their names, their header, and how they are made.
//!
//! | name | what it is |
//! |---|---|
//! | `log-LLLL-IIIIIIII-OOOOOOOO.pando` | segment O of log L, of the I-th start of the server (hexadecimal) |
//! | `free-IIIIIIII-NNNNNNNN.pando` | a file made ahead, or recycled: its bytes mean nothing |
//!
//! A file has its final length from the beginning and is filled with zeros once, so later writes
//! change no metadata. Its first block is the header; the frames follow from offset 4096 on.
//! Numbers are little-endian.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | `PANDOLOG` |
//! | 8 | 4 | version of the format |
//! | 12 | 4 | CRC32C of the first 128 bytes, these four as zeros (in every version) |
//! | 16 | 16 | identity of the database |
//! | 32 | 8 | log |
//! | 40 | 8 | incarnation: how many times the server had been started |
//! | 48 | 8 | ordinal: how many segments of this log and incarnation came before |
//! | 56 | 8 | sequence of the first frame |
//! | 64 | 8 | salt |
//! | 72 | 8 | bytes of the segment |
//! | 80 | 8 | the newest epoch known to be durable that has anything in a log |
//! | 88 | 40 | zeros |
//! | 128 | 3968 | zeros |
//!
//! States of a file, with the function that changes them:
//!
//! ```text
//! (none) ── make ──► free ── begin ──► log ── free ──► free
//! ```
//!
//! Invariants:
//! - **LS1 named-is-whole** A file named `log-…` has its full length and a complete header: both
//!   are durable before the name, and the name is durable before a frame is written. A file of such
//!   a name with a bad header, or a shorter one, is damaged.
//! - **LS2 name-before-bytes** A recycled file's new name is durable before its bytes are
//!   overwritten.
//! - **LS3 stale-frames** A frame whose sequence is at or above the first one of a later segment of
//!   the same log and incarnation does not count: the later segment repeats it, after a failed
//!   write.

use std::path::{Path, PathBuf};

use pando_io::file::AlignedBuffer;

use pando_sync::LogEpoch;

use super::error::LogError;
use super::frame::{number32, number64};
use crate::disk::{Access, Disk, DiskFile};
use crate::limits::{BLOCK_BYTES, FILL_BYTES};

/// The one format version that is written and read.
pub const LOG_FORMAT: u32 = 2;

const MAGIC: &[u8; 8] = b"PANDOLOG";
const FORMAT_AT: usize = 8;
const CHECKSUM_AT: usize = 12;
const IDENTITY_AT: usize = 16;
const FIELDS_AT: usize = 32;
const FIELDS: usize = 7;
const CHECKED_BYTES: usize = 128;

const _: () = assert!(FIELDS_AT + 8 * FIELDS + 40 == CHECKED_BYTES);
const _: () = assert!(CHECKED_BYTES <= BLOCK_BYTES);

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) identity: u128,
    pub(crate) log: u32,
    pub(crate) incarnation: u64,
    pub(crate) ordinal: u64,
    pub(crate) first: u64,
    pub(crate) salt: u64,
    pub(crate) bytes: u64,
    pub(crate) durable: LogEpoch,
}

fn checksum(block: &[u8]) -> u32 {
    let before = crc32c::crc32c(&block[..CHECKSUM_AT]);
    let zeros = crc32c::crc32c_append(before, &[0; 4]);
    crc32c::crc32c_append(zeros, &block[CHECKSUM_AT + 4..CHECKED_BYTES])
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; CHECKED_BYTES] {
        let mut block = [0; CHECKED_BYTES];
        block[..FORMAT_AT].copy_from_slice(MAGIC);
        block[FORMAT_AT..CHECKSUM_AT].copy_from_slice(&LOG_FORMAT.to_le_bytes());
        block[IDENTITY_AT..FIELDS_AT].copy_from_slice(&self.identity.to_le_bytes());
        let fields = [
            u64::from(self.log),
            self.incarnation,
            self.ordinal,
            self.first,
            self.salt,
            self.bytes,
            self.durable.0,
        ];
        for (index, field) in fields.into_iter().enumerate() {
            let at = FIELDS_AT + 8 * index;
            block[at..at + 8].copy_from_slice(&field.to_le_bytes());
        }
        let checksum = checksum(&block);
        block[CHECKSUM_AT..IDENTITY_AT].copy_from_slice(&checksum.to_le_bytes());
        debug_assert!(Self::parse(&block, Path::new("")).is_ok_and(|read| read == *self));
        block
    }

    /// Reads the header of the file of this path.
    pub(crate) fn parse(bytes: &[u8], path: &Path) -> Result<Self, LogError> {
        let damaged = |what| LogError::Damaged {
            path: path.to_owned(),
            offset: 0,
            epoch: LogEpoch::NONE,
            what,
        };
        if bytes.len() < CHECKED_BYTES {
            return Err(damaged("the file is shorter than its header (LS1)"));
        }
        let format = number32(bytes, FORMAT_AT);
        if checksum(bytes) != number32(bytes, CHECKSUM_AT) {
            return Err(damaged("the header's checksum does not hold (LS1)"));
        }
        if !bytes.starts_with(MAGIC) {
            return Err(LogError::Foreign {
                path: path.to_owned(),
                what: "named like a log file, but it is none",
            });
        }
        if format != LOG_FORMAT {
            return Err(LogError::Format {
                path: path.to_owned(),
                found: format,
                ours: LOG_FORMAT,
            });
        }
        let field = |index: usize| number64(bytes, FIELDS_AT + 8 * index);
        let mut identity = [0; 16];
        identity.copy_from_slice(&bytes[IDENTITY_AT..FIELDS_AT]);
        Ok(Self {
            identity: u128::from_le_bytes(identity),
            log: u32::try_from(field(0)).map_err(|_| damaged("there is no such log"))?,
            incarnation: field(1),
            ordinal: field(2),
            first: field(3),
            salt: field(4),
            bytes: field(5),
            durable: LogEpoch(field(6)),
        })
    }

    /// What its file's name says.
    pub(crate) fn place(&self) -> Name {
        Name::Log {
            log: self.log,
            incarnation: self.incarnation,
            ordinal: self.ordinal,
        }
    }

    pub(crate) fn name(&self) -> String {
        format!(
            "log-{:04x}-{:08x}-{:08x}.pando",
            self.log, self.incarnation, self.ordinal
        )
    }
}

/// What the name of a file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    Log {
        log: u32,
        incarnation: u64,
        ordinal: u64,
    },
    Free {
        incarnation: u64,
    },
}

impl Name {
    /// `None`: not a file of the log.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let parts = name.strip_suffix(".pando")?;
        if let Some(parts) = parts.strip_prefix("log-") {
            let mut numbers = parts
                .split('-')
                .map(|part| u64::from_str_radix(part, 16).ok());
            let mut next = || numbers.next().flatten();
            let (log, incarnation, ordinal) = (next()?, next()?, next()?);
            let log = u32::try_from(log).ok()?;
            return numbers.next().is_none().then_some(Self::Log {
                log,
                incarnation,
                ordinal,
            });
        }
        let incarnation = parts.strip_prefix("free-")?.split('-').next()?;
        let incarnation = u64::from_str_radix(incarnation, 16).ok()?;
        Some(Self::Free { incarnation })
    }

    pub(crate) fn incarnation(self) -> u64 {
        match self {
            Self::Log { incarnation, .. } | Self::Free { incarnation } => incarnation,
        }
    }
}

pub(crate) fn free_name(incarnation: u64, number: u64) -> String {
    format!("free-{incarnation:08x}-{number:08x}.pando")
}

/// A file that is ready to become a segment.
#[derive(Debug)]
pub(crate) struct FreeFile {
    pub(crate) path: PathBuf,
    pub(crate) file: Box<dyn DiskFile>,
}

/// Makes a free file: allocated, filled with zeros, durable. An unfinished one is removed, so that
/// a full disk gets its space back. Calls `has_room` when the disk has allocated the space.
pub(crate) fn make(
    disk: &dyn Disk,
    path: PathBuf,
    bytes: u64,
    has_room: impl FnOnce(),
) -> Result<FreeFile, LogError> {
    // One sync for all of it: written through, each piece would wait for its own.
    let file = disk
        .create(&path, Access::Direct)
        .map_err(LogError::io("create", &path))?;
    let filled = file
        .allocate(bytes)
        .map_err(LogError::io("allocate", &path))
        .and_then(|()| {
            has_room();
            fill(disk, &path, &*file, bytes)
        });
    drop(file);
    let reopened = filled.and_then(|()| {
        disk.open(&path, Access::WriteThrough)
            .map_err(LogError::io("open", &path))
    });
    match reopened {
        Ok(file) => Ok(FreeFile { path, file }),
        Err(error) => {
            // It failed already; what cannot be removed is found and used, or removed, at the next
            // start.
            let _ = disk.remove(&path);
            Err(error)
        }
    }
}

fn fill(disk: &dyn Disk, path: &Path, file: &dyn DiskFile, bytes: u64) -> Result<(), LogError> {
    let mut zeros = AlignedBuffer::new(FILL_BYTES.min(bytes as usize));
    zeros.pad_to_capacity();
    let mut at = 0;
    while at < bytes {
        let count = zeros.len().min((bytes - at) as usize);
        file.write_all_at(&zeros.as_slice()[..count], at)
            .map_err(LogError::io("write", path))?;
        at += count as u64;
    }
    file.sync().map_err(LogError::io("sync", path))?;
    let directory = directory_of(path);
    disk.sync_directory(directory)
        .map_err(LogError::io("sync the directory", directory))
}

/// Makes a free file a segment (LS1).
pub(crate) fn begin(
    disk: &dyn Disk,
    free: FreeFile,
    header: &Header,
) -> Result<(PathBuf, Box<dyn DiskFile>), LogError> {
    let FreeFile { path, file } = free;
    assert!(header.bytes.is_multiple_of(BLOCK_BYTES as u64));
    let mut block = AlignedBuffer::new(BLOCK_BYTES);
    block.push(&header.encode());
    block.pad(BLOCK_BYTES);
    file.write_all_at(block.as_slice(), 0)
        .map_err(LogError::io("write", &path))?;
    if !file.writes_through() {
        file.sync().map_err(LogError::io("sync", &path))?;
    }
    let directory = directory_of(&path).to_owned();
    let name = directory.join(header.name());
    disk.rename(&path, &name)
        .map_err(LogError::io("rename", &path))?;
    disk.sync_directory(&directory)
        .map_err(LogError::io("sync the directory", &directory))?;
    Ok((name, file))
}

/// Whether a free file was a segment with frames: after its header, it is not as it was made.
pub(crate) fn had_frames(disk: &dyn Disk, path: &Path) -> bool {
    let mut start = [0; BLOCK_BYTES + size_of::<u64>()];
    let read = disk
        .open(path, Access::Read)
        .and_then(|file| file.read_full_at(&mut start, 0));
    read.is_ok() && start.starts_with(MAGIC) && start[BLOCK_BYTES..].iter().any(|byte| *byte != 0)
}

pub(crate) fn directory_of(path: &Path) -> &Path {
    path.parent().expect("files of the log lie in a directory")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        Header {
            identity: 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100,
            log: 1,
            incarnation: 2,
            ordinal: 3,
            first: 4,
            salt: 5,
            bytes: 6,
            durable: LogEpoch(7),
        }
    }

    #[test]
    fn the_bytes_of_a_header_are_these() {
        let mut golden = [0; CHECKED_BYTES];
        golden[..8].copy_from_slice(b"PANDOLOG");
        golden[8] = 2;
        golden[12..16].copy_from_slice(&[0xc9, 0xb6, 0x3e, 0xe4]);
        for index in 0..16 {
            golden[16 + index] = index as u8;
        }
        for field in 0..7 {
            golden[32 + 8 * field] = field as u8 + 1;
        }
        let bytes = header().encode();
        assert_eq!(bytes, golden, "{bytes:02x?}");
        assert_eq!(Header::parse(&bytes, Path::new("x")).unwrap(), header());
    }

    #[test]
    fn names_say_what_a_file_is() {
        assert_eq!(header().name(), "log-0001-00000002-00000003.pando");
        let log = Name::Log {
            log: 1,
            incarnation: 2,
            ordinal: 3,
        };
        assert_eq!(Name::parse(&header().name()), Some(log));
        assert_eq!(
            Name::parse(&free_name(1, 2)),
            Some(Name::Free { incarnation: 1 })
        );
        for other in [
            "log-1-2.pando",
            "log-1-2-3-4.pando",
            "log-x-2-3.pando",
            "a.pando",
            "free",
        ] {
            assert_eq!(Name::parse(other), None, "{other}");
        }
    }

    #[test]
    fn other_versions_and_damaged_headers_are_told_apart() {
        let mut newer = header().encode();
        newer[FORMAT_AT] = 3;
        let damaged = Header::parse(&newer, Path::new("x")).unwrap_err();
        assert!(matches!(damaged, LogError::Damaged { .. }), "{damaged}");
        let checksum = checksum(&newer);
        newer[CHECKSUM_AT..IDENTITY_AT].copy_from_slice(&checksum.to_le_bytes());
        let error = Header::parse(&newer, Path::new("x")).unwrap_err();
        assert!(error.to_string().contains("log format 3"), "{error}");
        assert!(error.to_string().contains("a newer one"), "{error}");
    }
}
