//! Part files: a header, then blocks of entries.
//!
//! | offset | bytes | header of a file |
//! |---|---|---|
//! | 0 | 8 | `PANDOCPT` |
//! | 8 | 4 | format ([`FORMAT`]) |
//! | 12 | 4 | part number |
//! | 16 | 8 | start epoch |
//! | 24 | 4 | salt, random |
//! | 28 | 4 | CRC-32C of what is before it |
//!
//! | offset | bytes | header of a block |
//! |---|---|---|
//! | 0 | 4 | CRC-32C of the salt, the rest of this header and the payload |
//! | 4 | 4 | bytes of the payload |
//! | 8 | 4 | number of the block in its file |
//! | 12 | 4 | tree |
//! | 16 | 4 | entries |
//! | 20 | 4 | kind: 0 entries, 1 the start of a large entry, 2 its continuation, 3 its end |
//!
//! An entry is: the number of bytes that its key shares with the previous key in the block, the
//! length of the rest and the rest, the length of its value and the value; numbers in groups of
//! seven bits. The start of a large entry is the length of its key and the key, and the first bytes
//! of its value; what follows is bytes of the value only.

use pando_sync::LogEpoch;

pub(super) const MAGIC: &[u8; 8] = b"PANDOCPT";
pub(super) const FORMAT: u32 = 2;
pub(super) const FILE_HEADER_BYTES: usize = 32;
pub(super) const BLOCK_HEADER_BYTES: usize = 24;

/// The kind of a block's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Entries = 0,
    LargeBegin = 1,
    LargeMore = 2,
    LargeEnd = 3,
}

impl Kind {
    pub(super) fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::Entries),
            1 => Some(Self::LargeBegin),
            2 => Some(Self::LargeMore),
            3 => Some(Self::LargeEnd),
            _ => None,
        }
    }
}

pub(super) fn file_header(part: u32, start: LogEpoch, salt: u32) -> [u8; FILE_HEADER_BYTES] {
    let mut header = [0; FILE_HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    header[12..16].copy_from_slice(&part.to_le_bytes());
    header[16..24].copy_from_slice(&start.0.to_le_bytes());
    header[24..28].copy_from_slice(&salt.to_le_bytes());
    let crc = crc32c::crc32c(&header[..28]);
    header[28..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// The checksum of a block whose header precedes its payload; its first four bytes store it.
pub(super) fn checksum(salt: u32, block: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), &block[4..])
}
