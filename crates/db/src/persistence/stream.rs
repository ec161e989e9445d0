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
//! The payloads together are the entries: length (8), database (a number), key (a string), value
//! (see `value`). Where blocks end says nothing about entries.
//!
//! A dump is no picture of one moment: writes that come meanwhile may be in it or not, key by key.

use std::io::{self, Read, Write};
use std::ops::{Bound, ControlFlow};

use pando_durability::log::LogState;
use pando_engine::limits::KEY_BYTES_MAX;
use pando_engine::{Decision, Direction, NewValue, ValueRef, ValueVersion};
use thiserror::Error;

use super::redis_file::Loaded;
use crate::dump::file::{self, FileError};
use crate::durable::bytes::{Input, Malformed, Sink};
use crate::durable::{record, value};
use crate::error::CommandError;
use crate::keyspace::{Keys, Keyspace};
use crate::limits;
use crate::session::Session;

const MAGIC: &[u8; 8] = b"PANDODMP";
const FORMAT: u32 = 1;
const BLOCK_BYTES: usize = 256 * 1024;

/// Longest entry that is loaded: what a hash may hold has no bound, memory has.
const ENTRY_BYTES_MAX: u64 = 64 << 30;

/// Why a stream cannot be written or read.
#[derive(Debug, Error)]
pub enum StreamError {
    /// What is read or written failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is no dump.
    #[error("the input is not a dump of Pando, nor of Redis")]
    Foreign,
    /// It is of another version of the format.
    #[error("the dump has format {got}, this version reads {expected}")]
    Format {
        /// Its format.
        got: u32,
        /// Ours.
        expected: u32,
    },
    /// It is damaged or cut.
    #[error("the dump is damaged in the block at byte {offset}: {what}")]
    Damaged {
        /// Where.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A database of the dump is not there.
    #[error("the dump has a key of database {database}; --databases is {databases}")]
    Database {
        /// Its number.
        database: u64,
        /// How many there are.
        databases: usize,
    },
    /// The log takes no writes, so that what would be loaded could not be kept.
    #[error("the log cannot be written, so that nothing more is loaded: {0}")]
    Log(String),
    /// The dump file of Redis is not read to its end.
    #[error(transparent)]
    RedisFile(#[from] FileError),
    /// The database refuses a key.
    #[error(transparent)]
    Refused(#[from] CommandError),
}

/// Cuts entries into blocks.
struct Blocks<'w> {
    out: &'w mut dyn Write,
    buffer: Vec<u8>,
}

impl Blocks<'_> {
    fn flush(&mut self) -> io::Result<()> {
        if !self.buffer.is_empty() {
            let length = self.buffer.len() as u32;
            self.out.write_all(&length.to_le_bytes())?;
            let crc = crc32c::crc32c(&self.buffer);
            self.out.write_all(&crc.to_le_bytes())?;
            self.out.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }

    fn entry(&mut self, entry: &[u8]) -> io::Result<()> {
        let length = (entry.len() as u64).to_le_bytes();
        for mut bytes in [&length[..], entry] {
            while !bytes.is_empty() {
                let room = BLOCK_BYTES - self.buffer.len();
                let (now, later) = bytes.split_at(bytes.len().min(room));
                self.buffer.extend_from_slice(now);
                bytes = later;
                if self.buffer.len() == BLOCK_BYTES {
                    self.flush()?;
                }
            }
        }
        Ok(())
    }
}

/// Where a database is gone on with.
enum Next {
    /// An engine with order: behind this key.
    Key(Bound<Vec<u8>>),
    /// One without: at this cursor, perhaps with a key that was shown before.
    Cursor(u64),
}

/// What one turn takes.
#[derive(Default)]
struct Slice {
    entries: Vec<(Vec<u8>, NewValue<'static>)>,
    bytes: usize,
}

impl Slice {
    fn take(&mut self, keyspace: &mut Keyspace<'_>, from: Next) -> Option<Next> {
        match keyspace.keys() {
            Keys::Ordered(mut keys) => {
                let from = match from {
                    Next::Key(from) => from,
                    Next::Cursor(_) => unreachable!("the engine keeps its keys in order"),
                };
                let from = from.as_ref().map(Vec::as_slice);
                let (mut looked, mut last) = (0, None);
                keys.scan_all(from, Direction::Forward, |key, value| {
                    looked += 1;
                    if let Some(value) = value {
                        self.push(key, value);
                    }
                    if self.is_full() || looked >= limits::SLICE_ENTRIES_MAX {
                        last = Some(key.to_vec());
                        return ControlFlow::Break(());
                    }
                    ControlFlow::Continue(())
                });
                last.map(|key| Next::Key(Bound::Excluded(key)))
            }
            Keys::Walking(mut keys) => {
                let mut cursor = match from {
                    Next::Cursor(cursor) => cursor,
                    Next::Key(_) => 0,
                };
                loop {
                    cursor = keys.step(cursor, |key, value| {
                        if let Some(value) = value {
                            self.push(key, value);
                        }
                    });
                    if cursor == 0 {
                        return None;
                    }
                    if self.is_full() {
                        return Some(Next::Cursor(cursor));
                    }
                }
            }
        }
    }

    fn push(&mut self, key: &[u8], value: ValueRef<'_>) {
        self.bytes += key.len();
        self.bytes += if record::is_small(value) {
            value.heap_bytes()
        } else {
            BLOCK_BYTES
        };
        self.entries.push((key.to_vec(), value.hand_over()));
    }

    fn is_full(&self) -> bool {
        self.bytes >= BLOCK_BYTES || self.entries.len() >= limits::SLICE_ENTRIES_MAX
    }
}

fn put_entry(out: &mut Vec<u8>, database: usize, key: &[u8], new: ValueRef<'_>) {
    out.clear();
    out.number(database as u64);
    out.string(key);
    value::put_value(out, new);
}

impl Session {
    /// Writes every key that has not expired to `out`; returns how many. Others are served
    /// meanwhile; no turn is open while `out` is written.
    pub fn dump(&mut self, out: &mut dyn Write) -> Result<u64, StreamError> {
        out.write_all(MAGIC)?;
        out.write_all(&FORMAT.to_le_bytes())?;
        let mut blocks = Blocks {
            out,
            buffer: Vec::new(),
        };
        let mut entries = 0_u64;
        for database in 0..self.database().databases() {
            let mut next = Some(Next::Key(Bound::Unbounded));
            let mut entry = Vec::new();
            while let Some(from) = next {
                let mut slice = Slice::default();
                let mut turn = self.turn();
                next = slice.take(&mut turn.keyspace(database), from);
                drop(turn);
                entries += slice.entries.len() as u64;
                for (key, value) in slice.entries {
                    let version = ValueVersion::from_bits(0);
                    put_entry(&mut entry, database, &key, value.view(version));
                    blocks.entry(&entry)?;
                }
            }
        }
        blocks.flush()?;
        blocks.out.write_all(&0_u32.to_le_bytes())?;
        let count = entries.to_le_bytes();
        blocks
            .out
            .write_all(&crc32c::crc32c(&count).to_le_bytes())?;
        blocks.out.write_all(&count)?;
        blocks.out.flush()?;
        Ok(entries)
    }

    /// Writes every key of a dump into the database, in place of what is there: one of
    /// [`Self::dump`], or a dump file of Redis. What was loaded before an error stays.
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

    /// Writes the whole entries of `pending` and takes them out of it.
    fn load_entries(&mut self, pending: &mut Vec<u8>, offset: u64) -> Result<u64, StreamError> {
        let (mut at, mut entries) = (0, 0);
        let damaged = |what| StreamError::Damaged { offset, what };
        let mut turn = self.turn();
        while let Some(length) = pending[at..].first_chunk::<8>() {
            let length = u64::from_le_bytes(*length);
            if length > ENTRY_BYTES_MAX {
                return Err(damaged("an entry is out of bounds"));
            }
            let Some(entry) = pending[at + 8..].get(..length as usize) else {
                break;
            };
            let mut input = Input(entry);
            let parsed = (|| {
                let database = input.number()?;
                let key = input.string(KEY_BYTES_MAX)?;
                Ok((database, key, value::take_value(&mut input)?))
            })();
            let (database, key, view) = parsed.map_err(|error: Malformed| damaged(error.what))?;
            let databases = turn.database().databases();
            let index = usize::try_from(database).ok();
            let Some(index) = index.filter(|index| *index < databases) else {
                return Err(StreamError::Database {
                    database,
                    databases,
                });
            };
            // Built once here to know that it can be, and again by each run of the closure.
            view.build().map_err(|error| damaged(error.what))?;
            turn.keyspace(index).update(key, |_| match view.build() {
                Ok(value) => Decision::Write(value),
                Err(_) => Decision::Keep,
            })?;
            at += 8 + length as usize;
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
