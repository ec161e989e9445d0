//! Listpack: a sequence of strings and integers in one block.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | bytes of the whole block, little-endian |
//! | 4 | 2 | number of elements, little-endian; 65535: not known |
//! | 6 | n | the elements |
//! | n + 6 | 1 | 255 |
//!
//! An element is its head, its data, and the number of bytes of both, to be read from its end (7
//! bits a byte, high part first, the high bit set in all but the first byte). The head:
//!
//! | bits | element |
//! |---|---|
//! | 0vvvvvvv | the integer `v`, 0 to 127 |
//! | 10nnnnnn | a string of `n` bytes |
//! | 110vvvvv vvvvvvvv | the signed integer `v` of 13 bits, high part first |
//! | 1110nnnn nnnnnnnn | a string of `n` bytes, high part first |
//! | 11110000 | a string whose length is in the next 4 bytes, little-endian |
//! | 11110001 to 11110100 | a signed integer in the next 2, 3, 4, 8 bytes, little-endian |

use pando_engine::push_stream_string;
use pando_protocol::number;

use super::{Elements, PayloadError};

const HEADER_BYTES: usize = 6;
const COUNT_UNKNOWN: u16 = u16::MAX;
const END: u8 = 0xFF;

const STRING_32: u8 = 0xF0;
const INTEGER_16: u8 = 0xF1;
const INTEGER_24: u8 = 0xF2;
const INTEGER_32: u8 = 0xF3;
const INTEGER_64: u8 = 0xF4;

/// Longest text that is tried as an integer, in bytes: that of `i64::MIN`.
const INTEGER_TEXT_BYTES_MAX: usize = 20;

/// Integers of these many bits are -2^(bits-1) to 2^(bits-1) - 1.
const fn fits(value: i64, bits: u32) -> bool {
    value >= -(1 << (bits - 1)) && value < 1 << (bits - 1)
}

/// Builds a block.
#[derive(Debug)]
pub(super) struct Writer {
    out: Vec<u8>,
    count: usize,
}

impl Writer {
    /// A block without elements.
    pub(super) fn new() -> Self {
        Self {
            out: vec![0; HEADER_BYTES],
            count: 0,
        }
    }

    /// Whether it has no elements yet.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Appends a string, as an integer if it is the canonical text of one.
    pub(super) fn push(&mut self, string: &[u8]) {
        let integer = match string.len() {
            1..=INTEGER_TEXT_BYTES_MAX => number::parse_i64(string),
            _ => None,
        };
        match integer {
            Some(value) => self.push_integer(value),
            None => self.element(|writer| writer.string(string)),
        }
    }

    /// Appends an integer.
    pub(super) fn push_integer(&mut self, value: i64) {
        self.element(|writer| writer.integer(value));
    }

    fn element(&mut self, write: impl FnOnce(&mut Self)) {
        let start = self.out.len();
        write(self);
        self.back_length(self.out.len() - start);
        self.count += 1;
    }

    fn integer(&mut self, value: i64) {
        let bytes = value.to_le_bytes();
        match value {
            0..=127 => self.out.push(value as u8),
            _ if fits(value, 13) => {
                let low = value as u16 & 0x1FFF;
                self.out.extend_from_slice(&(0xC000 | low).to_be_bytes());
            }
            _ if fits(value, 16) => self.headed(INTEGER_16, &bytes[..2]),
            _ if fits(value, 24) => self.headed(INTEGER_24, &bytes[..3]),
            _ if fits(value, 32) => self.headed(INTEGER_32, &bytes[..4]),
            _ => self.headed(INTEGER_64, &bytes),
        }
    }

    fn headed(&mut self, head: u8, data: &[u8]) {
        self.out.push(head);
        self.out.extend_from_slice(data);
    }

    fn string(&mut self, string: &[u8]) {
        match string.len() {
            length @ 0..=0x3F => self.out.push(0x80 | length as u8),
            length @ 0x40..=0xFFF => {
                self.out
                    .extend_from_slice(&(0xE000 | length as u16).to_be_bytes());
            }
            length => self.headed(STRING_32, &(length as u32).to_le_bytes()),
        }
        self.out.extend_from_slice(string);
    }

    fn back_length(&mut self, bytes: usize) {
        let groups = back_length_bytes(bytes);
        for group in (0..groups).rev() {
            let low = (bytes >> (7 * group)) as u8 & 0x7F;
            self.out
                .push(if group + 1 == groups { low } else { low | 0x80 });
        }
    }

    /// The finished block, which is shorter than 4 GiB.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.out.push(END);
        let bytes = self.out.len() as u32;
        let count = u16::try_from(self.count).unwrap_or(COUNT_UNKNOWN);
        self.out[..4].copy_from_slice(&bytes.to_le_bytes());
        self.out[4..HEADER_BYTES].copy_from_slice(&count.to_le_bytes());
        self.out
    }
}

/// Bytes that the trailing length of an element of `bytes` bytes takes.
fn back_length_bytes(bytes: usize) -> usize {
    match bytes {
        0..=0x7F => 1,
        0x80..=0x3FFF => 2,
        0x4000..=0x1F_FFFF => 3,
        0x20_0000..=0xFFF_FFFF => 4,
        _ => 5,
    }
}

/// The trailing number of an element, of `groups` bytes.
fn read_back_length(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .fold(0, |value, byte| value << 7 | usize::from(byte & 0x7F))
}

/// An element of a packed block.
pub(super) enum Element<'b> {
    Integer(i64),
    String(&'b [u8]),
}

impl Element<'_> {
    /// Appends the element to an entry of a stream.
    pub(super) fn push_to(&self, entry: &mut Vec<u8>) {
        match self {
            Element::Integer(value) => push_stream_string(entry, value.to_string().as_bytes()),
            Element::String(string) => push_stream_string(entry, string),
        }
    }

    /// Shows the element as a string.
    pub(super) fn show(&self, visit: &mut dyn FnMut(&[u8]) -> Elements) -> Elements {
        match self {
            Element::Integer(value) => visit(value.to_string().as_bytes()),
            Element::String(string) => visit(string),
        }
    }
}

/// Shows the elements of `block` in order.
pub(super) fn elements(block: &[u8], visit: &mut dyn FnMut(&[u8]) -> Elements) -> Elements {
    let mut walk = Walk::new(block)?;
    while let Some(element) = walk.next()? {
        element.show(visit)?;
    }
    Ok(())
}

/// A walk over the elements of a block, which are checked on the way.
pub(super) struct Walk<'b> {
    block: &'b [u8],
    at: usize,
    expected: u16,
    count: usize,
}

impl<'b> Walk<'b> {
    pub(super) fn new(block: &'b [u8]) -> Result<Self, PayloadError> {
        let Some((header, _)) = block.split_first_chunk::<HEADER_BYTES>() else {
            return Err(PayloadError::Malformed { offset: 0 });
        };
        let bytes = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let expected = u16::from_le_bytes([header[4], header[5]]);
        if bytes as usize != block.len() {
            return Err(PayloadError::Malformed { offset: 0 });
        }
        Ok(Self {
            block,
            at: HEADER_BYTES,
            expected,
            count: 0,
        })
    }

    /// Where it is in the block.
    pub(super) fn offset(&self) -> usize {
        self.at
    }

    /// The next element; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<Element<'b>>, PayloadError> {
        let (block, at) = (self.block, self.at);
        let malformed = |offset| Err(PayloadError::Malformed { offset });
        if block.get(at).is_none_or(|head| *head == END) {
            let counted =
                self.expected == COUNT_UNKNOWN || usize::from(self.expected) == self.count;
            return if at + 1 == block.len() && counted {
                Ok(None)
            } else {
                malformed(at)
            };
        }
        let Some((element, length)) = element(&block[at..]) else {
            return malformed(at);
        };
        let behind = back_length_bytes(length);
        let back_length = block.get(at + length..at + length + behind);
        if back_length.map(read_back_length) != Some(length) {
            return malformed(at + length);
        }
        self.at += length + behind;
        self.count += 1;
        Ok(Some(element))
    }
}

/// The element at the beginning of `block` and the bytes of its head and data.
fn element(block: &[u8]) -> Option<(Element<'_>, usize)> {
    let (&head, rest) = block.split_first()?;
    let (header, length) = match head {
        0..=0x7F => return Some((Element::Integer(head.into()), 1)),
        0x80..=0xBF => (1, usize::from(head & 0x3F)),
        0xC0..=0xDF => {
            let value = u16::from_be_bytes([head & 0x1F, *rest.first()?]);
            // Moves the sign bit of 13 bits to the top and back.
            return Some((Element::Integer(((value << 3) as i16 >> 3).into()), 2));
        }
        0xE0..=0xEF => (
            2,
            usize::from(u16::from_be_bytes([head & 0x0F, *rest.first()?])),
        ),
        STRING_32 => (5, u32::from_le_bytes(*rest.first_chunk()?) as usize),
        INTEGER_16 => return integer(rest, 2),
        INTEGER_24 => return integer(rest, 3),
        INTEGER_32 => return integer(rest, 4),
        INTEGER_64 => return integer(rest, 8),
        _ => return None,
    };
    let string = block.get(header..header + length)?;
    Some((Element::String(string), header + length))
}

fn integer(data: &[u8], bytes: usize) -> Option<(Element<'_>, usize)> {
    Some((Element::Integer(signed(data.get(..bytes)?)), 1 + bytes))
}

/// The signed little-endian integer in `data`, of 1 to 8 bytes.
pub(super) fn signed(data: &[u8]) -> i64 {
    let mut bytes = [0; 8];
    // Into the high bytes, so that the shift back extends the sign.
    bytes[8 - data.len()..].copy_from_slice(data);
    i64::from_le_bytes(bytes) >> (64 - 8 * data.len())
}
