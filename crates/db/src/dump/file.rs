//! Dump files of Redis (RDB): read from front to back, a value at a time.
//!
//! | bytes | field |
//! |---|---|
//! | 5 | `REDIS` |
//! | 4 | version, in decimal digits: 1 to 12 |
//! | n | records, each after a byte that gives its kind |
//! | 8 | from version 5 on, CRC-64 of all bytes before it, little-endian; 0: was not computed |
//!
//! | byte | record |
//! |---|---|
//! | 244 | sizes of a cluster's slot: three lengths |
//! | 245 | a library of functions: a string |
//! | 247 | data of a module that belong to no key |
//! | 248, 249 | how long the next key was idle: a length; how often it was used: a byte |
//! | 250 | a fact about the file: two strings |
//! | 251 | how many keys follow, and how many of them with a deadline: two lengths |
//! | 252, 253 | deadline of the next key: 8 bytes, in milliseconds; 4 bytes, in seconds; little-endian |
//! | 254 | keys of this database follow: a length |
//! | 255 | the end of the records |
//! | other | a key, a string, and its value of this kind |
//!
//! A value of a supported kind is kept byte by byte, then decoded like the payload of a RESTORE.
//! One of another kind is skipped, which requires knowing its structure.
//!
//! Memory is bounded by the largest value that is kept: a length is trusted only as far as there
//! are bytes.

use std::io::{self, ErrorKind, Read};

use crc::{Digest, Table};
use thiserror::Error;

use super::rdb::{LENGTH_32, LENGTH_64, Reader};
use super::{Bounds, CHECKSUM, Decoded, PayloadError, decode_value, kind, type_name};

/// The start of a file.
pub(crate) const MAGIC: &[u8; 5] = b"REDIS";

/// The newest version that is read: that of Redis 7.4 and 8.
const VERSION_MAX: u32 = 12;

/// The first version that ends with a checksum.
const VERSION_WITH_CHECKSUM: u32 = 5;

/// Bytes read at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// Most bytes of a value in its form in the file.
const VALUE_BYTES_MAX: u64 = 64 << 30;

mod record {
    pub(super) const SLOT: u8 = 244;
    pub(super) const FUNCTIONS: u8 = 245;
    pub(super) const MODULE: u8 = 247;
    pub(super) const IDLE: u8 = 248;
    pub(super) const FREQUENCY: u8 = 249;
    pub(super) const FACT: u8 = 250;
    pub(super) const SIZES: u8 = 251;
    pub(super) const DEADLINE_MS: u8 = 252;
    pub(super) const DEADLINE_S: u8 = 253;
    pub(super) const DATABASE: u8 = 254;
    pub(super) const END: u8 = 255;
}

/// Why a dump file is not read to its end.
#[derive(Debug, Error)]
pub enum FileError {
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Of a later version, or none at all.
    #[error(
        "the dump file of Redis has version {got:?}; 1 to {} are read",
        VERSION_MAX
    )]
    Version {
        /// What is there instead.
        got: String,
    },
    /// Truncated, damaged, or of an unknown kind.
    #[error("the dump file of Redis is damaged at byte {offset}: {what}")]
    Damaged {
        /// The offset.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// An unknown kind of record or value, which cannot be skipped.
    #[error(
        "the dump file of Redis has a record of kind {kind} at byte {offset}, which is unknown"
    )]
    Unknown {
        /// The byte.
        kind: u8,
        /// The offset.
        offset: u64,
    },
    /// A value that cannot be loaded.
    #[error("the value of {key:?}, before byte {offset} of the dump file, {reason}")]
    Value {
        /// Its key, as text.
        key: String,
        /// The offset of its end.
        offset: u64,
        /// The reason.
        reason: String,
    },
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum Found {
    /// A key with a value.
    Entry(Entry),
    /// Something of an unsupported type, by its name.
    Passed(&'static str),
    /// The end, after which the checksum was right.
    End,
}

/// A key with its value.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) database: u64,
    pub(crate) key: Vec<u8>,
    /// In milliseconds since the Unix epoch.
    pub(crate) deadline_ms: Option<i64>,
    pub(crate) value: Decoded,
    /// Bytes of the value in its form in the file.
    pub(crate) bytes: usize,
}

/// A file being read.
pub(crate) struct DumpFile<'r> {
    input: &'r mut dyn Read,
    digest: Digest<'static, u64, Table<16>>,
    offset: u64,
    version: u32,
    bounds: Bounds,
    database: u64,
    /// Bytes as they are in the file, while `takes` is set.
    taken: Vec<u8>,
    takes: bool,
    chunk: Vec<u8>,
}

impl<'r> DumpFile<'r> {
    /// Begins to read, after `magic` was read.
    pub(crate) fn open(
        magic: &[u8],
        input: &'r mut dyn Read,
        bounds: Bounds,
    ) -> Result<Self, FileError> {
        let mut file = Self {
            input,
            digest: CHECKSUM.digest(),
            offset: magic.len() as u64,
            version: 0,
            bounds,
            database: 0,
            taken: magic.to_vec(),
            takes: true,
            chunk: vec![0; CHUNK_BYTES],
        };
        file.digest.update(magic);
        let missing = (MAGIC.len() + 4).saturating_sub(magic.len());
        file.pass(missing as u64)?;
        file.takes = false;
        let digits = &file.taken[MAGIC.len()..];
        let number = std::str::from_utf8(digits).ok();
        let version = number.and_then(|digits| digits.parse().ok()).unwrap_or(0);
        if !file.taken.starts_with(MAGIC) || !(1..=VERSION_MAX).contains(&version) {
            let got = String::from_utf8_lossy(digits).into_owned();
            return Err(FileError::Version { got });
        }
        file.version = version;
        Ok(file)
    }

    /// The next key, or another item to report.
    pub(crate) fn next(&mut self) -> Result<Found, FileError> {
        let mut deadline_ms = None;
        loop {
            let kind = self.byte()?;
            match kind {
                record::SLOT => self.lengths(3)?,
                record::FUNCTIONS => {
                    self.string()?;
                    return Ok(Found::Passed("library of functions"));
                }
                record::MODULE => self.module()?,
                record::IDLE => self.lengths(1)?,
                record::FREQUENCY => self.pass(1)?,
                record::FACT => self.strings(2)?,
                record::SIZES => self.lengths(2)?,
                record::DEADLINE_MS => deadline_ms = Some(i64::from_le_bytes(self.array()?)),
                record::DEADLINE_S => {
                    let seconds = i32::from_le_bytes(self.array()?);
                    deadline_ms = Some(i64::from(seconds) * 1000);
                }
                record::DATABASE => self.database = self.length()?,
                record::END => return self.end(),
                kind => return self.key(kind, deadline_ms),
            }
        }
    }

    fn key(&mut self, kind: u8, deadline_ms: Option<i64>) -> Result<Found, FileError> {
        let offset = self.offset - 1;
        // A module's value of the oldest form does not say where it ends.
        if kind == 6 || !is_taken(kind) && type_name(kind).is_none() {
            return Err(FileError::Unknown { kind, offset });
        }
        self.begin();
        self.string()?;
        let key = {
            let mut reader = Reader::new(&self.taken, self.bounds.value_bytes_max);
            let key = reader.string().map(std::borrow::Cow::into_owned);
            key.map_err(|_| damaged(offset, "the key is no string"))?
        };
        if !is_taken(kind) {
            self.takes = false;
            self.other(kind)?;
            return Ok(Found::Passed(type_name(kind).unwrap_or_default()));
        }
        self.begin();
        self.taken.push(kind);
        self.value(kind)?;
        self.takes = false;
        match decode_value(&self.taken, self.bounds) {
            Ok(value) => Ok(Found::Entry(Entry {
                database: self.database,
                key,
                deadline_ms,
                value,
                bytes: self.taken.len(),
            })),
            Err(PayloadError::Unsupported { type_name }) => Ok(Found::Passed(type_name)),
            Err(error) => Err(FileError::Value {
                key: String::from_utf8_lossy(&key).into_owned(),
                offset: self.offset,
                reason: match error {
                    PayloadError::TooLong { .. } => format!("has {error}"),
                    _ => format!("is {error}"),
                },
            }),
        }
    }

    /// From here on, what is read is kept.
    fn begin(&mut self) {
        self.taken.clear();
        self.taken.shrink_to(CHUNK_BYTES);
        self.takes = true;
    }

    /// A value of a supported kind.
    fn value(&mut self, kind: u8) -> Result<(), FileError> {
        match kind {
            kind::LIST | kind::LIST_ZIPLISTS | kind::SET => {
                let count = self.length()?;
                self.strings(count)
            }
            kind::LIST_NODES => {
                for _ in 0..self.length()? {
                    self.lengths(1)?;
                    self.string()?;
                }
                Ok(())
            }
            // 253 to 255 are numbers of no digits.
            kind::SORTED_TEXT => {
                for _ in 0..self.length()? {
                    self.string()?;
                    let digits = self.byte()?;
                    self.pass(if digits < 253 { digits.into() } else { 0 })?;
                }
                Ok(())
            }
            kind::SORTED => {
                for _ in 0..self.length()? {
                    self.string()?;
                    self.pass(8)?;
                }
                Ok(())
            }
            kind::STREAM | kind::STREAM_COUNTED | kind::STREAM_ACTIVE => self.stream(kind),
            kind::HASH => {
                let pairs = self.length()?;
                self.strings(self.times(pairs, 2)?)
            }
            kind::HASH_METADATA_EARLY | kind::HASH_METADATA => {
                if kind == kind::HASH_METADATA {
                    self.pass(8)?;
                }
                for _ in 0..self.length()? {
                    self.lengths(1)?;
                    self.strings(2)?;
                }
                Ok(())
            }
            kind::HASH_LISTPACK_EX => {
                self.pass(8)?;
                self.string()
            }
            _ => self.string(),
        }
    }

    /// A value of another kind.
    fn other(&mut self, kind: u8) -> Result<(), FileError> {
        match kind {
            7 => self.module(),
            // One packed string.
            _ => self.string(),
        }
    }

    /// The name of a module and its fields, up to their end.
    fn module(&mut self) -> Result<(), FileError> {
        self.lengths(1)?;
        loop {
            let offset = self.offset;
            match self.length()? {
                0 => return Ok(()),
                1 | 2 => self.lengths(1)?,
                3 => self.pass(4)?,
                4 => self.pass(8)?,
                5 => self.string()?,
                _ => return Err(damaged(offset, "a module's field is of no known kind")),
            }
        }
    }

    fn stream(&mut self, kind: u8) -> Result<(), FileError> {
        let blocks = self.length()?;
        self.strings(self.times(blocks, 2)?)?;
        // How many entries, and the last one's number; in later versions the first, the last
        // deleted, and how many were ever added.
        self.lengths(if kind == kind::STREAM { 3 } else { 8 })?;
        for _ in 0..self.length()? {
            self.string()?;
            self.lengths(if kind == kind::STREAM { 2 } else { 3 })?;
            for _ in 0..self.length()? {
                // Number and time of a delivery, and how often.
                self.pass(16 + 8)?;
                self.lengths(1)?;
            }
            for _ in 0..self.length()? {
                self.string()?;
                self.pass(if kind == kind::STREAM_ACTIVE { 16 } else { 8 })?;
                let pending = self.length()?;
                self.pass(self.times(pending, 16)?)?;
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<Found, FileError> {
        if self.version >= VERSION_WITH_CHECKSUM {
            let offset = self.offset;
            let digest = std::mem::replace(&mut self.digest, CHECKSUM.digest());
            let computed = digest.finalize();
            let expected = u64::from_le_bytes(self.array()?);
            if expected != 0 && expected != computed {
                return Err(damaged(offset, "the checksum is not that of the file"));
            }
        }
        Ok(Found::End)
    }

    fn times(&self, count: u64, each: u64) -> Result<u64, FileError> {
        let product = count.checked_mul(each);
        product.ok_or_else(|| damaged(self.offset, "a count is out of all proportion"))
    }

    fn lengths(&mut self, count: u64) -> Result<(), FileError> {
        (0..count).try_for_each(|_| self.length().map(drop))
    }

    fn strings(&mut self, count: u64) -> Result<(), FileError> {
        (0..count).try_for_each(|_| self.string())
    }

    fn length(&mut self) -> Result<u64, FileError> {
        let offset = self.offset;
        let first = self.byte()?;
        self.length_after(first)?
            .ok_or_else(|| damaged(offset, "there is no length"))
    }

    /// The length that a first byte begins; `None`: it begins something else.
    fn length_after(&mut self, first: u8) -> Result<Option<u64>, FileError> {
        let low = u64::from(first & 0x3F);
        Ok(match (first >> 6, first) {
            (0, _) => Some(low),
            (1, _) => Some(low << 8 | u64::from(self.byte()?)),
            (_, LENGTH_32) => Some(u32::from_be_bytes(self.array()?).into()),
            (_, LENGTH_64) => Some(u64::from_be_bytes(self.array()?)),
            _ => None,
        })
    }

    /// A string in any form, as it is.
    fn string(&mut self) -> Result<(), FileError> {
        let offset = self.offset;
        let first = self.byte()?;
        let bytes = match (self.length_after(first)?, first) {
            (Some(length), _) => length,
            (None, 0xC0) => 1,
            (None, 0xC1) => 2,
            (None, 0xC2) => 4,
            (None, 0xC3) => {
                let compressed = self.length()?;
                self.lengths(1)?;
                compressed
            }
            _ => return Err(damaged(offset, "there is no string")),
        };
        self.pass(bytes)
    }

    fn byte(&mut self) -> Result<u8, FileError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FileError> {
        let mut bytes = [0; N];
        let read = self.input.read_exact(&mut bytes);
        read.map_err(|error| cut(self.offset, error))?;
        self.note(&bytes);
        Ok(bytes)
    }

    /// Reads this many bytes, and keeps them if they are wanted.
    fn pass(&mut self, mut bytes: u64) -> Result<(), FileError> {
        if self.takes && bytes > VALUE_BYTES_MAX.saturating_sub(self.taken.len() as u64) {
            return Err(damaged(self.offset, "a value is out of all proportion"));
        }
        let mut chunk = std::mem::take(&mut self.chunk);
        while bytes > 0 {
            let now = bytes.min(CHUNK_BYTES as u64) as usize;
            let read = self.input.read_exact(&mut chunk[..now]);
            read.map_err(|error| cut(self.offset, error))?;
            self.note(&chunk[..now]);
            bytes -= now as u64;
        }
        self.chunk = chunk;
        Ok(())
    }

    fn note(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        self.offset += bytes.len() as u64;
        if self.takes {
            self.taken.extend_from_slice(bytes);
        }
    }
}

/// Whether a value of this kind is supported.
fn is_taken(kind: u8) -> bool {
    matches!(
        kind,
        kind::STRING
            | kind::HASH
            | kind::HASH_ZIPMAP
            | kind::HASH_ZIPLIST
            | kind::HASH_LISTPACK
            | kind::HASH_METADATA_EARLY
            | kind::HASH_METADATA
            | kind::HASH_LISTPACK_EX_EARLY
            | kind::HASH_LISTPACK_EX
            | kind::LIST
            | kind::LIST_ZIPLIST
            | kind::LIST_ZIPLISTS
            | kind::LIST_NODES
            | kind::SET
            | kind::SET_INTSET
            | kind::SET_LISTPACK
            | kind::SORTED_TEXT
            | kind::SORTED
            | kind::SORTED_ZIPLIST
            | kind::SORTED_LISTPACK
            | kind::STREAM
            | kind::STREAM_COUNTED
            | kind::STREAM_ACTIVE
    )
}

fn damaged(offset: u64, what: &'static str) -> FileError {
    FileError::Damaged { offset, what }
}

fn cut(offset: u64, error: io::Error) -> FileError {
    match error.kind() {
        ErrorKind::UnexpectedEof => damaged(offset, "the file ends here"),
        _ => error.into(),
    }
}
