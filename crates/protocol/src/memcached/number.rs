//! Numbers as memcached reads them: a sign and leading zeros are allowed.

/// The magnitude of a decimal number with an optional sign, and whether the sign is `-`.
fn parts(text: &[u8]) -> Option<(bool, u64)> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value: u64 = 0;
    for byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some((negative, value))
}

/// A signed number.
#[must_use]
pub fn signed(text: &[u8]) -> Option<i64> {
    let (negative, value) = parts(text)?;
    if negative {
        0_i64.checked_sub_unsigned(value)
    } else {
        i64::try_from(value).ok()
    }
}

/// An unsigned number of 64 bits.
#[must_use]
#[inline]
pub fn unsigned(text: &[u8]) -> Option<u64> {
    match parts(text)? {
        (true, value) => {
            let value = value.wrapping_neg();
            (value >> 63 == 0).then_some(value)
        }
        (false, value) => Some(value),
    }
}

/// An unsigned number of 32 bits.
#[must_use]
#[inline]
pub fn unsigned_32(text: &[u8]) -> Option<u32> {
    unsigned(text).and_then(|value| u32::try_from(value).ok())
}

/// The number in an item: spaces may precede it, and anything may follow a space after it
/// (memcached pads numbers that became shorter).
#[must_use]
pub fn stored(text: &[u8]) -> Option<u64> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|byte| !is_space(byte))?;
    let text = &text[start..];
    let end = text.iter().position(is_space).unwrap_or(text.len());
    unsigned(&text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_and_leading_zeros_are_allowed() {
        assert_eq!(signed(b"+05"), Some(5));
        assert_eq!(signed(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(signed(b"-9223372036854775809"), None);
        assert_eq!(signed(b"9223372036854775808"), None);
        assert_eq!(unsigned(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(unsigned(b"18446744073709551616"), None);
        assert_eq!((unsigned(b"-0"), unsigned(b"-1")), (Some(0), None));
        assert_eq!(unsigned_32(b"4294967296"), None);
        for bad in [&b""[..], b"+", b"-", b"1x", b" 1", b"+-1"] {
            assert_eq!((signed(bad), unsigned(bad)), (None, None));
        }
    }

    #[test]
    fn a_stored_number_may_have_spaces_around_it() {
        for (text, number) in [
            (&b"12"[..], Some(12)),
            (b" 12  ", Some(12)),
            (b"12 bc", Some(12)),
            (b"12\n3", Some(12)),
            (b"12bc", None),
            (b"", None),
            (b"  ", None),
            (b"-12", None),
            (b"+12", Some(12)),
            (b"000000000000000000000000001", Some(1)),
        ] {
            assert_eq!(stored(text), number, "{text:?}");
        }
    }
}
