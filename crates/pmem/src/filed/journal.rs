//! The journal of a filed pool: what a commit changes is written there before it is written to its
//! place (a double write).
//!
//! The file: a head of 4096 bytes, the pool, the journal. The head is written once:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic |
//! | 8 | 8 | format |
//! | 16 | 8 | bytes of the pool |
//! | 24 | 8 | CRC-32C of the fields above |
//!
//! The journal is a row of records, one for each commit, from its beginning on. Each begins at a
//! multiple of 4096:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic |
//! | 8 | 8 | run: a random number, another one for every opening |
//! | 16 | 8 | sequence: one more than that of the record before |
//! | 24 | 4 | number of lines |
//! | 28 | 4 | CRC-32C of the fields above and of all that follows |
//! | 32 | 8 each | the lines' numbers |
//! | | 64 each | the lines |
//!
//! - **PJ1 journal-first** A record is durable before any of its lines is written to its place.
//! - **PJ2 lap** The journal begins anew only after all that was written to its place is durable.
//!   Until then its records, written again in their order, make the pool what the last one left.
//! - **PJ3 chain** A record counts if its checksum is right, its run is that of the first record,
//!   and its sequence is the next one. What an earlier lap or opening left behind does not.
//! - **PJ4 poisoned** After an error nothing is committed any more: it is not known what the disk
//!   holds.

use std::io::{self, ErrorKind};
use std::mem;

use pando_durability::disk::{AlignedBuffer, DiskFile};

use crate::limits::JOURNAL_LAP_BYTES;
use crate::{LINE_BYTES, Offset, PoolError, check_size};

/// Bytes of the head, and what records are multiples of.
pub(super) const BLOCK_BYTES: u64 = 4096;

const HEAD_MAGIC: u64 = u64::from_le_bytes(*b"PANDO\x1afl");
const RECORD_MAGIC: u64 = u64::from_le_bytes(*b"PANDO\x1ajn");
const FORMAT: u64 = 1;
const FIELDS_BYTES: usize = 32;
const LINE: usize = LINE_BYTES as usize;

/// A line's number and bytes.
pub(super) type Line = (u64, [u8; LINE]);

/// The file of a pool, as it is written.
#[derive(Debug)]
pub(super) struct Journal {
    /// The file, for lines in their places.
    places: Box<dyn DiskFile>,
    /// The file, for records.
    records: Box<dyn DiskFile>,
    /// Bytes of the pool.
    pool_bytes: u64,
    lap_bytes: u64,
    run: u64,
    sequence: u64,
    /// Where the next record goes, from the journal's beginning.
    at: u64,
    poisoned: bool,
}

/// The head of a file with a pool of so many bytes.
pub(super) fn head(pool_bytes: u64) -> AlignedBuffer {
    let mut head = AlignedBuffer::new(BLOCK_BYTES as usize);
    for word in [HEAD_MAGIC, FORMAT, pool_bytes] {
        head.push(&word.to_le_bytes());
    }
    let checksum = u64::from(crc32c::crc32c(head.as_slice()));
    head.push(&checksum.to_le_bytes());
    head.pad_to_capacity();
    head
}

/// Bytes of the journal of such a pool before it begins anew. A larger commit makes it longer.
pub(super) fn lap_bytes(pool_bytes: u64) -> u64 {
    JOURNAL_LAP_BYTES.min(pool_bytes)
}

/// The size of the pool that a file says it has.
pub(super) fn pool_bytes(file: &dyn DiskFile) -> Result<u64, PoolError> {
    let mut bytes = [0; 32];
    let read = file.read_full_at(&mut bytes, 0)?;
    let word = |index: usize| word_at(&bytes, index * 8);
    if read < bytes.len() || word(0) != HEAD_MAGIC {
        return Err(if bytes.iter().all(|byte| *byte == 0) {
            PoolError::Unfinished
        } else {
            PoolError::Foreign
        });
    }
    if word(1) > FORMAT {
        let (found, newest) = (word(1) as u32, FORMAT as u32);
        return Err(PoolError::Newer { found, newest });
    }
    if word(3) != u64::from(crc32c::crc32c(&bytes[..24])) {
        let (at, what) = (Offset::NONE, "the head of the file");
        return Err(PoolError::Damaged { at, what });
    }
    let pool = word(2);
    check_size(pool)?;
    let found = file.bytes()?.saturating_sub(BLOCK_BYTES);
    if found < pool {
        return Err(PoolError::Truncated { pool, found });
    }
    Ok(pool)
}

fn word_at(bytes: &[u8], at: usize) -> u64 {
    let word = bytes[at..at + 8].try_into();
    u64::from_le_bytes(word.expect("eight bytes"))
}

impl Journal {
    /// Writes to their places what an earlier run committed and did not, and begins a run.
    pub(super) fn open(
        places: Box<dyn DiskFile>,
        records: Box<dyn DiskFile>,
    ) -> Result<Self, PoolError> {
        let mut journal = Self {
            pool_bytes: pool_bytes(&*places)?,
            places,
            records,
            lap_bytes: 0,
            run: fastrand::u64(..),
            sequence: 0,
            at: 0,
            poisoned: false,
        };
        journal.lap_bytes = lap_bytes(journal.pool_bytes);
        journal.replay()?;
        Ok(journal)
    }

    pub(super) fn pool_bytes(&self) -> u64 {
        self.pool_bytes
    }

    #[cfg(any(test, feature = "simulated-memory"))]
    pub(super) fn set_lap_bytes(&mut self, bytes: u64) {
        self.lap_bytes = bytes;
    }

    fn replay(&mut self) -> io::Result<()> {
        let (mut at, mut last) = (0, None);
        while let Some((run, sequence, lines)) = self.read_record(at)? {
            if last.is_some_and(|last| last != (run, sequence - 1)) {
                break;
            }
            self.put(&lines)?;
            last = Some((run, sequence));
            at += record_bytes(lines.len());
        }
        if last.is_some() {
            self.places.sync()?;
        }
        Ok(())
    }

    /// The record there, if it is whole.
    fn read_record(&self, at: u64) -> io::Result<Option<(u64, u64, Vec<Line>)>> {
        let start = BLOCK_BYTES + self.pool_bytes + at;
        let mut fields = [0; FIELDS_BYTES];
        let read = self.places.read_full_at(&mut fields, start)?;
        let counted = word_at(&fields, 24);
        let (count, checksum) = (counted as u32 as usize, (counted >> 32) as u32);
        let can_be = count as u64 <= self.pool_bytes / LINE_BYTES;
        if read < FIELDS_BYTES || word_at(&fields, 0) != RECORD_MAGIC || !can_be {
            return Ok(None);
        }
        let mut rest = vec![0; count * (8 + LINE)];
        let start = start + FIELDS_BYTES as u64;
        let read = self.places.read_full_at(&mut rest, start)?;
        let found = crc32c::crc32c_append(crc32c::crc32c(&fields[..28]), &rest);
        if read < rest.len() || found != checksum {
            return Ok(None);
        }
        let (numbers, lines) = rest.split_at(count * 8);
        let numbers = numbers.chunks_exact(8).map(|number| word_at(number, 0));
        let lines = lines
            .chunks_exact(LINE)
            .map(|line| line.try_into().expect("a line"));
        let lines = numbers.zip(lines).collect();
        Ok(Some((word_at(&fields, 8), word_at(&fields, 16), lines)))
    }

    /// Makes lines, in order of their numbers, the content of the pool (PJ1).
    pub(super) fn commit(&mut self, lines: &[Line]) -> io::Result<()> {
        if mem::replace(&mut self.poisoned, true) {
            return Err(io::Error::new(
                ErrorKind::BrokenPipe,
                "an earlier commit of the pool failed",
            ));
        }
        let bytes = record_bytes(lines.len());
        if self.at > 0 && self.at + bytes > self.lap_bytes {
            // PJ2.
            self.places.sync()?;
            self.at = 0;
        }
        self.sequence += 1;
        let record = self.record(lines);
        let place = BLOCK_BYTES + self.pool_bytes + self.at;
        self.records.write_all_at(record.as_slice(), place)?;
        if !self.records.writes_through() {
            self.records.sync()?;
        }
        self.put(lines)?;
        self.at += bytes;
        self.poisoned = false;
        Ok(())
    }

    fn record(&self, lines: &[Line]) -> AlignedBuffer {
        let mut record = AlignedBuffer::new(record_bytes(lines.len()) as usize);
        for word in [RECORD_MAGIC, self.run, self.sequence, lines.len() as u64] {
            record.push(&word.to_le_bytes());
        }
        for (number, _) in lines {
            record.push(&number.to_le_bytes());
        }
        for (_, line) in lines {
            record.push(line);
        }
        let filled = record.as_slice();
        let checksum = crc32c::crc32c(&filled[..28]);
        let checksum = crc32c::crc32c_append(checksum, &filled[FIELDS_BYTES..]);
        record.as_mut_slice()[28..32].copy_from_slice(&checksum.to_le_bytes());
        record.pad_to_capacity();
        record
    }

    /// Writes lines to their places, neighbours at once.
    fn put(&self, lines: &[Line]) -> io::Result<()> {
        for run in lines.chunk_by(|one, next| one.0 + 1 == next.0) {
            let bytes: Vec<u8> = run.iter().flat_map(|(_, line)| *line).collect();
            let place = BLOCK_BYTES + run[0].0 * LINE_BYTES;
            self.places.write_all_at(&bytes, place)?;
        }
        Ok(())
    }
}

/// Bytes of a record of so many lines.
fn record_bytes(lines: usize) -> u64 {
    ((FIELDS_BYTES + lines * (8 + LINE)) as u64).next_multiple_of(BLOCK_BYTES)
}
