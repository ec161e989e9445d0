//! Numbers and byte strings as records and checkpoints store them, and a reader of untrusted bytes.
//!
//! A number is written in groups of seven bits, low ones first, each but the last with its top bit
//! set; a byte string is its length, so written, and its bytes. Fixed numbers are little-endian.

use thiserror::Error;

/// Why bytes that passed their checksum cannot be read: a defect of the writer, or a format of
/// another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{what}")]
pub struct Malformed {
    /// What is wrong.
    pub what: &'static str,
}

/// An error that says `what`.
pub(crate) const fn malformed<T>(what: &'static str) -> Result<T, Malformed> {
    Err(Malformed { what })
}

/// A sink for encoded bytes.
pub(crate) trait Sink {
    /// Takes the next bytes.
    fn put(&mut self, bytes: &[u8]);

    /// Takes a number.
    #[inline]
    fn number(&mut self, number: u64) {
        // Most are lengths of short strings and numbers of trees.
        if number < 0x80 {
            self.put(&[number as u8]);
        } else {
            self.long_number(number);
        }
    }

    /// Takes a number of any size.
    fn long_number(&mut self, mut number: u64) {
        let mut groups = [0_u8; 10];
        let mut count = 0;
        loop {
            groups[count] = (number & 0x7f) as u8;
            number >>= 7;
            count += 1;
            if number == 0 {
                break;
            }
            groups[count - 1] |= 0x80;
        }
        self.put(&groups[..count]);
    }

    /// Takes a byte string.
    #[inline]
    fn string(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.put(bytes);
    }
}

impl Sink for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Bytes being read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a>(pub(crate) &'a [u8]);

impl<'a> Input<'a> {
    /// Whether everything was read.
    pub(crate) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The next `count` bytes.
    #[inline]
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let Some((taken, rest)) = self.0.split_at_checked(count) else {
            return malformed("it ends in the middle of a field");
        };
        self.0 = rest;
        Ok(taken)
    }

    /// The next byte.
    #[inline]
    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        Ok(self.take(1)?[0])
    }

    /// A fixed 64-bit number.
    #[inline]
    pub(crate) fn fixed(&mut self) -> Result<u64, Malformed> {
        let bytes = self.take(8)?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }

    /// A fixed 32-bit number.
    pub(crate) fn fixed_short(&mut self) -> Result<u32, Malformed> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
    }

    /// A number.
    #[inline]
    pub(crate) fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let group = u64::from(byte & 0x7f);
            if shift == 63 && group > 1 {
                break;
            }
            number |= group << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        malformed("a number has more than 64 bits")
    }

    /// A number up to `most`.
    #[inline]
    pub(crate) fn length(&mut self, most: usize) -> Result<usize, Malformed> {
        match self.number()? {
            number if number <= most as u64 => Ok(number as usize),
            _ => malformed("a length is out of bounds"),
        }
    }

    /// A byte string of up to `most` bytes.
    #[inline]
    pub(crate) fn string(&mut self, most: usize) -> Result<&'a [u8], Malformed> {
        let length = self.length(most)?;
        self.take(length)
    }

    /// The bytes read since `before`, an earlier state of this input.
    pub(crate) fn since(self, before: Self) -> &'a [u8] {
        &before.0[..before.0.len() - self.0.len()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for number in [0, 1, 127, 128, 16_383, 16_384, u64::MAX >> 1, u64::MAX] {
            let mut bytes = Vec::new();
            bytes.number(number);
            let mut input = Input(&bytes);
            assert_eq!((input.number(), input.is_empty()), (Ok(number), true));
            assert!(Input(&bytes[..bytes.len() - 1]).number().is_err());
        }
        assert!(Input(&[0xff; 11]).number().is_err());
        assert!(
            Input(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2])
                .number()
                .is_err()
        );
    }
}
