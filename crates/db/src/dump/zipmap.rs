//! Zipmap: the packed hash that Redis wrote before 2.6.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | number of pairs; 254 and above: not known |
//! | 1 | n | the pairs |
//! | n + 1 | 1 | 255 |
//!
//! A pair is the name's length, the name, the value's length, one byte that says how many unused
//! bytes follow the value, the value, the unused bytes. A length is one byte below 254, or 254 and
//! 4 bytes, little-endian.
//!
//! Deliberately absent: writing.

use super::{Elements, PayloadError};

const COUNT_UNKNOWN: u8 = 254;
const LONG_LENGTH: u8 = 254;
const END: u8 = 0xFF;

/// Shows name, value, name, value, … of `block` in order.
pub(super) fn fields(block: &[u8], visit: &mut dyn FnMut(&[u8]) -> Elements) -> Elements {
    let malformed = |rest: &[u8]| {
        Err(PayloadError::Malformed {
            offset: block.len() - rest.len(),
        })
    };
    let Some((&expected, mut rest)) = block.split_first() else {
        return malformed(block);
    };
    let mut count = 0;
    while rest.first().is_some_and(|first| *first != END) {
        let Some((name, value, tail)) = pair(rest) else {
            return malformed(rest);
        };
        visit(name)?;
        visit(value)?;
        rest = tail;
        count += 1;
    }
    let counted = expected >= COUNT_UNKNOWN || usize::from(expected) == count;
    if rest == [END] && counted {
        Ok(())
    } else {
        malformed(rest)
    }
}

/// The pair at the beginning of `block`, and what follows it.
fn pair(block: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (length, rest) = length(block)?;
    let (name, rest) = rest.split_at_checked(length)?;
    let (length, rest) = self::length(rest)?;
    let (&unused, rest) = rest.split_first()?;
    let (value, rest) = rest.split_at_checked(length)?;
    Some((name, value, rest.get(usize::from(unused)..)?))
}

fn length(block: &[u8]) -> Option<(usize, &[u8])> {
    let (&first, rest) = block.split_first()?;
    match first {
        LONG_LENGTH => {
            let (length, rest) = rest.split_first_chunk()?;
            Some((u32::from_le_bytes(*length) as usize, rest))
        }
        END => None,
        short => Some((usize::from(short), rest)),
    }
}
