//! Numbers as Redis reads and writes them.
//!
//! Integers are canonical decimals: no sign but `-`, no leading zeros, no spaces.
//!
//! Deliberately absent: locales.

/// Digits of the longest `u64`.
const DIGITS_MAX: usize = 20;

/// The integer that `text` is the canonical decimal of. No `+`, no `-0`, no leading zeros, no
/// spaces; `None` also when it does not fit.
#[must_use]
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    match text {
        [b'-', digits @ ..] => {
            let magnitude = parse_u64(digits)?;
            (1..=i64::MIN.unsigned_abs())
                .contains(&magnitude)
                .then(|| magnitude.wrapping_neg() as i64)
        }
        digits => i64::try_from(parse_u64(digits)?).ok(),
    }
}

/// The unsigned integer that `text` is the canonical decimal of; see [`parse_i64`].
#[must_use]
#[inline]
pub fn parse_u64(text: &[u8]) -> Option<u64> {
    match text {
        [b'0'] => return Some(0),
        [b'1'..=b'9', ..] if text.len() <= DIGITS_MAX => {}
        _ => return None,
    }
    let mut value: u64 = 0;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}
