//! Reads fixed fields and numbers in groups of seven bits from untrusted bytes.

/// Bytes being read; every read may hit the end.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn short(&mut self) -> Option<u32> {
        self.take(4)
            .map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")))
    }

    pub(super) fn long(&mut self) -> Option<u64> {
        self.take(8)
            .map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    }

    /// A number of up to 32 bits in groups of seven.
    pub(super) fn number(&mut self) -> Option<usize> {
        let mut number = 0_u64;
        for shift in (0..35).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(number).ok().map(|number| number as usize);
            }
        }
        None
    }
}

/// Appends a number of up to 32 bits.
pub(super) fn put_number(out: &mut Vec<u8>, number: usize) {
    let mut number = number as u32;
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
