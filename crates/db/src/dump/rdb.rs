//! Lengths and strings of the RDB format.
//!
//! The two high bits of the first byte determine what follows:
//!
//! | bits | meaning |
//! |---|---|
//! | 00 | length in the other 6 bits |
//! | 01 | length in the other 6 bits and the next byte, high part first |
//! | 10 | 0x80: length in 4 bytes, 0x81: in 8 bytes, big-endian |
//! | 11 | an encoded string: 0xC0, 0xC1, 0xC2: the decimal text of the 1, 2, 4 bytes that follow as a signed little-endian integer; 0xC3: compressed length, length, [LZF](super::lzf) |

use std::borrow::Cow;

use pando_protocol::number;

use super::{PayloadError, lzf};

pub(super) const LENGTH_32: u8 = 0x80;
pub(super) const LENGTH_64: u8 = 0x81;
const INTEGER_8: u8 = 0xC0;
const INTEGER_16: u8 = 0xC1;
const INTEGER_32: u8 = 0xC2;
const COMPRESSED: u8 = 0xC3;

/// Lengths below this one take one byte.
const SHORT_LENGTHS: u64 = 1 << 6;

/// Lengths below this one take two bytes.
const MIDDLE_LENGTHS: u64 = 1 << 14;

/// Longest text that is tried as an integer, in bytes: that of `i32::MIN`.
const INTEGER_TEXT_BYTES_MAX: usize = 11;

/// Strings up to this length are not compressed, in bytes.
const PLAIN_BYTES_MAX: usize = 20;

/// Bytes that compression must save.
const SAVED_BYTES_MIN: usize = 4;

/// Appends a length.
pub(super) fn write_length(out: &mut Vec<u8>, length: u64) {
    if length < SHORT_LENGTHS {
        out.push(length as u8);
    } else if length < MIDDLE_LENGTHS {
        out.extend_from_slice(&(0x4000 | length as u16).to_be_bytes());
    } else if let Ok(length) = u32::try_from(length) {
        out.push(LENGTH_32);
        out.extend_from_slice(&length.to_be_bytes());
    } else {
        out.push(LENGTH_64);
        out.extend_from_slice(&length.to_be_bytes());
    }
}

/// Appends a string in its shortest form. O(length).
pub(super) fn write_string(out: &mut Vec<u8>, string: &[u8]) {
    if string.len() <= INTEGER_TEXT_BYTES_MAX
        && let Some(value) = number::parse_i64(string).and_then(|value| i32::try_from(value).ok())
    {
        return write_integer(out, value);
    }
    if string.len() > PLAIN_BYTES_MAX
        && let Some(compressed) = lzf::compress(string, string.len() - SAVED_BYTES_MIN)
    {
        out.push(COMPRESSED);
        write_length(out, compressed.len() as u64);
        write_length(out, string.len() as u64);
        out.extend_from_slice(&compressed);
        return;
    }
    write_length(out, string.len() as u64);
    out.extend_from_slice(string);
}

fn write_integer(out: &mut Vec<u8>, value: i32) {
    if let Ok(value) = i8::try_from(value) {
        out.extend_from_slice(&[INTEGER_8, value as u8]);
    } else if let Ok(value) = i16::try_from(value) {
        out.push(INTEGER_16);
        out.extend_from_slice(&value.to_le_bytes());
    } else {
        out.push(INTEGER_32);
        out.extend_from_slice(&value.to_le_bytes());
    }
}

/// What a first byte announces.
enum Announced {
    Length(u64),
    /// An encoded string, by its first byte.
    Encoded(u8),
}

/// Reads a payload from its beginning.
#[derive(Debug)]
pub(super) struct Reader<'p> {
    payload: &'p [u8],
    offset: usize,
    total_bytes_max: usize,
    total_bytes: usize,
}

impl<'p> Reader<'p> {
    /// Reads `payload`, whose strings may have `total_bytes_max` bytes in total.
    pub(super) fn new(payload: &'p [u8], total_bytes_max: usize) -> Self {
        Self {
            payload,
            offset: 0,
            total_bytes_max,
            total_bytes: 0,
        }
    }

    /// Bytes read so far.
    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    fn malformed(&self) -> PayloadError {
        PayloadError::Malformed {
            offset: self.offset,
        }
    }

    pub(super) fn take(&mut self, length: u64) -> Result<&'p [u8], PayloadError> {
        let rest = &self.payload[self.offset..];
        let taken = usize::try_from(length)
            .ok()
            .and_then(|length| rest.get(..length));
        let taken = taken.ok_or_else(|| self.malformed())?;
        self.offset += taken.len();
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], PayloadError> {
        let taken = self.take(N as u64)?;
        Ok(taken.try_into().expect("as many bytes as asked for"))
    }

    /// The next byte.
    pub(super) fn byte(&mut self) -> Result<u8, PayloadError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    fn announced(&mut self) -> Result<Announced, PayloadError> {
        let first = self.byte()?;
        let low = u64::from(first & 0x3F);
        Ok(match (first >> 6, first) {
            (0, _) => Announced::Length(low),
            (1, _) => Announced::Length(low << 8 | u64::from(self.byte()?)),
            (_, LENGTH_32) => Announced::Length(u32::from_be_bytes(self.array()?).into()),
            (_, LENGTH_64) => Announced::Length(u64::from_be_bytes(self.array()?)),
            (3, encoding) => Announced::Encoded(encoding),
            _ => return Err(self.malformed()),
        })
    }

    /// A length.
    pub(super) fn length(&mut self) -> Result<u64, PayloadError> {
        match self.announced()? {
            Announced::Length(length) => Ok(length),
            Announced::Encoded(_) => Err(self.malformed()),
        }
    }

    /// A string, borrowed from the payload if it is there unencoded.
    pub(super) fn string(&mut self) -> Result<Cow<'p, [u8]>, PayloadError> {
        let string = match self.announced()? {
            Announced::Length(length) => Cow::Borrowed(self.take(length)?),
            Announced::Encoded(INTEGER_8) => text(i8::from_le_bytes(self.array()?)),
            Announced::Encoded(INTEGER_16) => text(i16::from_le_bytes(self.array()?)),
            Announced::Encoded(INTEGER_32) => text(i32::from_le_bytes(self.array()?)),
            Announced::Encoded(COMPRESSED) => return self.compressed(),
            Announced::Encoded(_) => return Err(self.malformed()),
        };
        self.count(string.len())?;
        Ok(string)
    }

    fn compressed(&mut self) -> Result<Cow<'p, [u8]>, PayloadError> {
        let compressed_length = self.length()?;
        let length = usize::try_from(self.length()?).map_err(|_| self.malformed())?;
        let compressed = self.take(compressed_length)?;
        // Counted before memory is allocated (DU1 payload-bounded).
        self.count(length)?;
        lzf::decompress(compressed, length)
            .map(Cow::Owned)
            .ok_or_else(|| self.malformed())
    }

    fn count(&mut self, length: usize) -> Result<(), PayloadError> {
        self.total_bytes = self.total_bytes.saturating_add(length);
        if self.total_bytes <= self.total_bytes_max {
            Ok(())
        } else {
            let (bytes, bytes_max) = (self.total_bytes, self.total_bytes_max);
            Err(PayloadError::TooLong { bytes, bytes_max })
        }
    }
}

fn text<'p>(value: impl Into<i64>) -> Cow<'p, [u8]> {
    let value: i64 = value.into();
    Cow::Owned(value.to_string().into_bytes())
}
