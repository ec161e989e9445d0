//! Ziplist: the sequence of strings and integers that Redis wrote before 7.0.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | bytes of the whole block, little-endian |
//! | 4 | 4 | offset of the last entry, little-endian |
//! | 8 | 2 | number of entries, little-endian; 65535: not known |
//! | 10 | n | the entries |
//! | n + 10 | 1 | 255 |
//!
//! An entry is the length of the entry before it (one byte below 254, or 254 and 4 bytes,
//! little-endian; 0 for the first), its head and its data. The head:
//!
//! | bits | entry |
//! |---|---|
//! | 00nnnnnn | a string of `n` bytes |
//! | 01nnnnnn nnnnnnnn | a string of `n` bytes, high part first |
//! | 10...... | a string whose length is in the next 4 bytes, big-endian |
//! | 11000000, 11010000, 11100000 | a signed integer in the next 2, 4, 8 bytes, little-endian |
//! | 11110000, 11111110 | a signed integer in the next 3 bytes, 1 byte, little-endian |
//! | 11110001 to 11111101 | the integers 0 to 12 |
//!
//! Deliberately absent: writing.

use super::listpack::{Element, signed};
use super::{Elements, PayloadError};

const HEADER_BYTES: usize = 10;
const COUNT_UNKNOWN: u16 = u16::MAX;
const END: u8 = 0xFF;

/// Says that the previous entry's length is in the next 4 bytes.
const LONG_PREVIOUS: u8 = 0xFE;

/// Shows the entries of `block` in order.
pub(super) fn elements(block: &[u8], visit: &mut dyn FnMut(&[u8]) -> Elements) -> Elements {
    let malformed = |offset| Err(PayloadError::Malformed { offset });
    let Some((header, _)) = block.split_first_chunk::<HEADER_BYTES>() else {
        return malformed(0);
    };
    let bytes = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    let tail = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    let expected = u16::from_le_bytes([header[8], header[9]]);
    if bytes as usize != block.len() {
        return malformed(0);
    }
    let (mut at, mut count, mut previous, mut last) = (HEADER_BYTES, 0, 0, HEADER_BYTES);
    while block.get(at).is_some_and(|first| *first != END) {
        let Some((announced, element, length)) = entry(&block[at..]) else {
            return malformed(at);
        };
        if announced != previous {
            return malformed(at);
        }
        element.show(visit)?;
        last = at;
        at += length;
        previous = length;
        count += 1;
    }
    let counted = expected == COUNT_UNKNOWN || usize::from(expected) == count;
    let whole = at + 1 == block.len() && tail as usize == last;
    if whole && counted {
        Ok(())
    } else {
        malformed(at)
    }
}

/// The entry at the beginning of `block`: its record of the previous one's length, its element, its
/// own length.
fn entry(block: &[u8]) -> Option<(usize, Element<'_>, usize)> {
    let (previous, link) = match *block.first()? {
        LONG_PREVIOUS => (u32::from_le_bytes(*block[1..].first_chunk()?) as usize, 5),
        short => (usize::from(short), 1),
    };
    let (element, length) = element(block.get(link..)?)?;
    Some((previous, element, link + length))
}

/// The head and data at the beginning of `block`, and their bytes.
fn element(block: &[u8]) -> Option<(Element<'_>, usize)> {
    let (&head, rest) = block.split_first()?;
    let (header, length) = match head {
        0..=0x3F => (1, usize::from(head)),
        0x40..=0x7F => (
            2,
            usize::from(u16::from_be_bytes([head & 0x3F, *rest.first()?])),
        ),
        0x80..=0xBF => (5, u32::from_be_bytes(*rest.first_chunk()?) as usize),
        0xC0 => return integer(rest, 2),
        0xD0 => return integer(rest, 4),
        0xE0 => return integer(rest, 8),
        0xF0 => return integer(rest, 3),
        0xFE => return integer(rest, 1),
        0xF1..=0xFD => return Some((Element::Integer(i64::from(head) - 0xF1), 1)),
        _ => return None,
    };
    let string = block.get(header..header + length)?;
    Some((Element::String(string), header + length))
}

fn integer(data: &[u8], bytes: usize) -> Option<(Element<'_>, usize)> {
    Some((Element::Integer(signed(data.get(..bytes)?)), 1 + bytes))
}
