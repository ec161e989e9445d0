//! The portable stream of `pando dump` and `pando load`: every key of every database.
//!
//! | bytes | field |
//! |---|---|
//! | 8 | `PANDODMP` |
//! | 4 | format, 1 |
//! | n | blocks: length (4), CRC-32C of the payload (4), payload |
//! | 4 | 0: the end |
//! | 4 | CRC-32C of the next field |
//! | 8 | how many entries there are |
//!
//! The payloads together are the entries (see `entries`). Block boundaries say nothing about
//! entries. A dump without its end is refused when it is loaded.
//!
//! [`Session::dump`] does not show one moment: concurrent writes may be in it or not, key by key.
//! What KDUMP returns in a snapshot does.

use std::io::{self, Read, Write};

use pando_durability::log::LogState;
use pando_engine::Decision;
use thiserror::Error;

use super::redis_file::Loaded;
use crate::dump::file::{self, FileError};
use crate::durable::Malformed;
use crate::entries::{self, DumpPosition, FORMAT, PORTION_BYTES, Portion};
use crate::error::CommandError;
use crate::session::Session;

const MAGIC: &[u8; 8] = b"PANDODMP";
const BLOCK_BYTES: usize = PORTION_BYTES;

/// Why a stream cannot be written or read.
#[derive(Debug, Error)]
pub enum StreamError {
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is not a dump.
    #[error("the input is not a dump of Pando, nor of Redis")]
    Foreign,
    /// It has another format version.
    #[error("the dump has format {got}, this version reads {expected}")]
    Format {
        /// Its format.
        got: u32,
        /// The supported format.
        expected: u32,
    },
    /// Data from a server has another format version.
    #[error("the server sends entries of format {got}, this version knows {expected}")]
    SentFormat {
        /// Its format.
        got: i64,
        /// The supported format.
        expected: u32,
    },
    /// Data from a server could not be loaded.
    #[error("the server has sent an entry that cannot be loaded: {0}")]
    Sent(#[from] Malformed),
    /// It is damaged or truncated.
    #[error("the dump is damaged in the block at byte {offset}: {what}")]
    Damaged {
        /// The offset.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A database of the dump does not exist.
    #[error("the dump has a key of database {database}; --databases is {databases}")]
    Database {
        /// Its number.
        database: u64,
        /// The number of databases.
        databases: usize,
    },
    /// The log takes no writes, so loaded data could not be kept.
    #[error("the log cannot be written, so nothing more is loaded: {0}")]
    Log(String),
    /// The dump file of Redis is not read to its end.
    #[error(transparent)]
    RedisFile(#[from] FileError),
    /// The database refuses a key.
    #[error(transparent)]
    Refused(#[from] CommandError),
}

/// Writes a dump: whole entries arrive in portions of any size, and blocks are cut from them.
#[derive(Debug)]
pub struct DumpWriter<W> {
    out: W,
    block: Vec<u8>,
    entries: u64,
}

impl<W: Write> DumpWriter<W> {
    /// Begins a dump.
    pub fn begin(mut out: W) -> io::Result<Self> {
        out.write_all(MAGIC)?;
        out.write_all(&FORMAT.to_le_bytes())?;
        Ok(Self {
            out,
            block: Vec::with_capacity(BLOCK_BYTES),
            entries: 0,
        })
    }

    /// How many entries were written.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Writes entries that another server has sent (KDUMP), after checking each of them.
    pub fn write_sent(&mut self, format: i64, entries: &[u8]) -> Result<(), StreamError> {
        if format != i64::from(FORMAT) {
            return Err(StreamError::SentFormat {
                got: format,
                expected: FORMAT,
            });
        }
        let count = entries::count(entries)?;
        self.write(entries, count)?;
        Ok(())
    }

    fn write(&mut self, mut bytes: &[u8], count: u64) -> io::Result<()> {
        self.entries += count;
        while !bytes.is_empty() {
            let room = BLOCK_BYTES - self.block.len();
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == BLOCK_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.block.is_empty() {
            assert!(self.block.len() <= BLOCK_BYTES);
            let length = self.block.len() as u32;
            self.out.write_all(&length.to_le_bytes())?;
            let crc = crc32c::crc32c(&self.block);
            self.out.write_all(&crc.to_le_bytes())?;
            self.out.write_all(&self.block)?;
            self.block.clear();
        }
        Ok(())
    }

    /// Writes the end, without which a dump is not whole; returns how many entries it has.
    pub fn finish(mut self) -> io::Result<u64> {
        self.flush()?;
        self.out.write_all(&0_u32.to_le_bytes())?;
        let count = self.entries.to_le_bytes();
        self.out.write_all(&crc32c::crc32c(&count).to_le_bytes())?;
        self.out.write_all(&count)?;
        self.out.flush()?;
        Ok(self.entries)
    }
}

impl Session {
    /// Writes every key that has not expired to `out`; returns how many. Others are served
    /// meanwhile; no turn is open while `out` is written.
    pub fn dump(&mut self, out: &mut dyn Write) -> Result<u64, StreamError> {
        let mut writer = DumpWriter::begin(out)?;
        for database in 0..self.database().databases() {
            let mut next = Some(DumpPosition::START);
            let mut entry = Vec::new();
            while let Some(from) = next {
                let mut turn = self.turn();
                let (portion, rest) = Portion::take(&mut turn.keyspace(database), &from);
                drop(turn);
                next = rest;
                for taken in portion {
                    entry.clear();
                    taken.put(&mut entry, database);
                    writer.write(&entry, 1)?;
                }
            }
        }
        Ok(writer.finish()?)
    }

    /// Writes every key of a dump, of [`Self::dump`] or a dump file of Redis, into the database,
    /// replacing present values. What was loaded before an error stays.
    pub fn load(&mut self, input: &mut dyn Read) -> Result<Loaded, StreamError> {
        let mut magic = Vec::new();
        Read::take(&mut *input, 8).read_to_end(&mut magic)?;
        if magic.starts_with(file::MAGIC) {
            return self.load_redis_file(&magic, input);
        }
        if magic != MAGIC {
            return Err(StreamError::Foreign);
        }
        let mut format = [0; 4];
        input.read_exact(&mut format).map_err(cut_at(0))?;
        let format = u32::from_le_bytes(format);
        if format != FORMAT {
            return Err(StreamError::Format {
                got: format,
                expected: FORMAT,
            });
        }
        let (mut pending, mut entries, mut offset) = (Vec::new(), 0_u64, 12_u64);
        let mut payload = Vec::new();
        loop {
            let mut header = [0; 8];
            input.read_exact(&mut header).map_err(cut_at(offset))?;
            let (length, crc) = header.split_at(4);
            let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
            let crc = u32::from_le_bytes(crc.try_into().expect("four bytes"));
            let damaged = |what| Err(StreamError::Damaged { offset, what });
            if length > BLOCK_BYTES {
                return damaged("a block is longer than any that is written");
            }
            payload.resize(if length == 0 { 8 } else { length }, 0);
            input.read_exact(&mut payload).map_err(cut_at(offset))?;
            if crc32c::crc32c(&payload) != crc {
                return damaged("the checksum is not that of the block");
            }
            if length == 0 {
                let count = u64::from_le_bytes(payload[..].try_into().expect("eight bytes"));
                if !pending.is_empty() || count != entries {
                    return damaged("entries are missing");
                }
                return Ok(Loaded {
                    keys: entries,
                    ..Loaded::default()
                });
            }
            pending.extend_from_slice(&payload);
            if let Some(LogState::Full { reason } | LogState::Failed { reason }) =
                self.database().log_state()
            {
                return Err(StreamError::Log(reason));
            }
            entries += self.load_entries(&mut pending, offset)?;
            offset += 8 + length as u64;
        }
    }

    /// Writes the complete entries of `pending` and removes them from it.
    fn load_entries(&mut self, pending: &mut Vec<u8>, offset: u64) -> Result<u64, StreamError> {
        let (mut at, mut entries) = (0, 0);
        let damaged = |what| StreamError::Damaged { offset, what };
        let mut turn = self.turn();
        while let Some(entry) =
            entries::first(&pending[at..]).map_err(|error| damaged(error.what))?
        {
            let entries::Entry {
                database,
                key,
                value: view,
                bytes,
            } = entry;
            let databases = turn.database().databases();
            let index = usize::try_from(database).ok();
            let Some(index) = index.filter(|index| *index < databases) else {
                return Err(StreamError::Database {
                    database,
                    databases,
                });
            };
            // Built once here to check it, and again by each run of the closure.
            view.build().map_err(|error| damaged(error.what))?;
            turn.keyspace(index).update(key, |_| match view.build() {
                Ok(value) => Decision::Write(value),
                Err(_) => Decision::Keep,
            })?;
            at += bytes;
            entries += 1;
        }
        drop(turn);
        pending.drain(..at);
        Ok(entries)
    }
}

fn cut_at(offset: u64) -> impl FnOnce(io::Error) -> StreamError {
    move |error| match error.kind() {
        io::ErrorKind::UnexpectedEof => StreamError::Damaged {
            offset,
            what: "the stream ends here",
        },
        _ => error.into(),
    }
}
