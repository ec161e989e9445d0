//! Numbers as Redis reads and writes them.
//!
//! Integers are canonical decimals: no sign but `-`, no leading zeros, no spaces.
//!
//! Deliberately absent: locales.

/// Digits of the longest `u64`.
const DIGITS_MAX: usize = 20;

/// The integer whose canonical decimal is `text`. No `+`, no `-0`, no leading zeros, no spaces;
/// `None` also when it does not fit.
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

/// The unsigned integer whose canonical decimal is `text`; see [`parse_i64`].
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

/// The double in `text`, as `strtod` reads it: decimal or hexadecimal, with or without an exponent,
/// `inf` and `infinity` in any case. `None` if anything precedes or follows it, for `nan`, and when
/// it is too large, or too small to differ from zero.
#[must_use]
pub fn parse_f64(text: &[u8]) -> Option<f64> {
    let (negative, magnitude) = match text {
        [b'-', magnitude @ ..] => (true, magnitude),
        [b'+', magnitude @ ..] | magnitude => (false, magnitude),
    };
    let value = match magnitude {
        [b'0', b'x' | b'X', digits @ ..] => parse_hexadecimal(digits)?,
        [b'i' | b'I', ..] => std::str::from_utf8(magnitude).ok()?.parse().ok()?,
        [b'0'..=b'9' | b'.', ..] => parse_decimal(magnitude)?,
        _ => return None,
    };
    Some(if negative { -value } else { value })
}

fn parse_decimal(text: &[u8]) -> Option<f64> {
    if let Some(integer) = short_integer(text) {
        return Some(integer);
    }
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let mantissa = text.split(|byte| matches!(byte, b'e' | b'E')).next()?;
    let is_zero = !mantissa.iter().any(|byte| matches!(byte, b'1'..=b'9'));
    (value.is_finite() && (value != 0.0 || is_zero)).then_some(value)
}

/// The number, if it consists of so few digits that it is exact: most scores.
#[inline]
fn short_integer(text: &[u8]) -> Option<f64> {
    /// Each number of so many digits is a mantissa.
    const DIGITS_MAX: usize = 15;
    if text.is_empty() || text.len() > DIGITS_MAX {
        return None;
    }
    let mut integer = 0;
    for byte in text {
        integer = 10 * integer + u64::from(byte.is_ascii_digit().then(|| byte - b'0')?);
    }
    Some(integer as f64)
}

/// Reads what follows `0x`: digits with a point anywhere, and an optional binary exponent.
fn parse_hexadecimal(text: &[u8]) -> Option<f64> {
    let (digits, exponent) = match text.iter().position(|byte| matches!(byte, b'p' | b'P')) {
        Some(at) => (&text[..at], parse_exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let (mut mantissa, mut scale, mut count): (u64, i64, usize) = (0, exponent, 0);
    let mut behind_point = false;
    for byte in digits {
        if *byte == b'.' && !behind_point {
            behind_point = true;
            continue;
        }
        let digit = u64::from(char::from(*byte).to_digit(16)?);
        count += 1;
        if mantissa >> 60 == 0 {
            mantissa = mantissa << 4 | digit;
            scale -= if behind_point { 4 } else { 0 };
        } else {
            // Digits that no longer fit only affect the direction of rounding.
            mantissa |= u64::from(digit != 0);
            scale += if behind_point { 0 } else { 4 };
        }
    }
    if count == 0 {
        return None;
    }
    scale_binary(mantissa, scale)
}

/// A decimal exponent with or without sign, clamped to values that make a difference.
fn parse_exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value: i64 = 0;
    for byte in digits {
        let digit = byte.is_ascii_digit().then(|| byte - b'0')?;
        value = (value * 10 + i64::from(digit)).min(1 << 40);
    }
    Some(if negative { -value } else { value })
}

/// `mantissa` · 2^`scale`, rounded once, to even; `None` when that is infinite, or zero with a
/// nonzero `mantissa`.
fn scale_binary(mantissa: u64, scale: i64) -> Option<f64> {
    /// The exponent of the smallest positive double.
    const EXPONENT_MIN: i64 = -1074;
    if mantissa == 0 {
        return Some(0.0);
    }
    let top = scale + 63 - i64::from(mantissa.leading_zeros());
    if !(EXPONENT_MIN - 1..=1023).contains(&top) {
        return None;
    }
    let value = if top < -1022 {
        // Subnormal: the bits of the double count smallest doubles.
        let bits = match u32::try_from(EXPONENT_MIN - scale) {
            Ok(shift @ 1..) => shift_right_to_even(mantissa, shift),
            _ => mantissa << (scale - EXPONENT_MIN),
        };
        f64::from_bits(bits)
    } else {
        // Two factors, as the power alone may be subnormal; both products are exact or overflow.
        let first = scale / 2;
        mantissa as f64 * power_of_two(first) * power_of_two(scale - first)
    };
    (value.is_finite() && value != 0.0).then_some(value)
}

/// `value` / 2^`shift`, rounded to even; `shift` is 1 to 64.
fn shift_right_to_even(value: u64, shift: u32) -> u64 {
    let kept = value.checked_shr(shift).unwrap_or(0);
    let lost = u128::from(value) - (u128::from(kept) << shift);
    let half = 1u128 << (shift - 1);
    let up = lost > half || (lost == half && kept & 1 == 1);
    kept + u64::from(up)
}

fn power_of_two(exponent: i64) -> f64 {
    2f64.powi(exponent as i32)
}

/// Below this each whole number is a double, of fewer than 17 digits.
const WHOLE_MAX: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;

/// A double as replies print it: C's `%.17g`, so that it reads back as the same double; `inf`,
/// `-inf`, `nan`.
#[must_use]
pub fn format_f64(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let whole = value as i64;
    #[expect(clippy::float_cmp, reason = "a whole number is its integer's")]
    let is_whole = whole as f64 == value && value.abs() < WHOLE_MAX;
    if is_whole && (whole != 0 || value.is_sign_positive()) {
        return whole.to_string();
    }
    let scientific = format!("{value:.16e}");
    let (mantissa, exponent) = scientific
        .split_once('e')
        .expect("a number printed with `e` has an exponent");
    let exponent: i32 = exponent.parse().expect("an exponent is an integer");
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(mantissa) => ("-", mantissa),
        None => ("", mantissa),
    };
    let digits = mantissa.replace('.', "");
    let digits = digits.trim_end_matches('0');
    if !(-4..17).contains(&exponent) {
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let exponent_sign = if exponent < 0 { '-' } else { '+' };
        let exponent = exponent.unsigned_abs();
        return format!("{sign}{first}{point}{rest}e{exponent_sign}{exponent:02}");
    }
    if exponent < 0 {
        let zeros = "0".repeat((-exponent - 1) as usize);
        return format!("{sign}0.{zeros}{digits}");
    }
    let whole = exponent as usize + 1;
    if digits.len() <= whole {
        format!("{sign}{digits:0<whole$}")
    } else {
        let (whole, fraction) = digits.split_at(whole);
        format!("{sign}{whole}.{fraction}")
    }
}

/// The decimals from 00 to 99.
static PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
        number += 1;
    }
    pairs
};

/// Writes a decimal to the end of `out`, which has room for it; returns where it begins.
#[inline]
pub(crate) fn write_digits(mut value: u64, out: &mut [u8]) -> usize {
    let mut start = out.len();
    while value >= 10 {
        start -= 2;
        // Not as a slice: a copy of two bytes may become a call.
        [out[start], out[start + 1]] = PAIRS[(value % 100) as usize];
        value /= 100;
    }
    if value > 0 || start == out.len() {
        start -= 1;
        out[start] = b'0' + value as u8;
    }
    start
}

/// An integer's decimal, written without allocation.
#[derive(Clone, Copy, Debug)]
pub struct IntegerText {
    bytes: [u8; DIGITS_MAX],
    start: u8,
}

impl IntegerText {
    /// The decimal of `value`.
    #[must_use]
    #[inline]
    pub fn of(value: i64) -> Self {
        let mut text = Self::of_unsigned(value.unsigned_abs());
        if value < 0 {
            text.start -= 1;
            text.bytes[usize::from(text.start)] = b'-';
        }
        text
    }

    /// The decimal of `value`.
    #[must_use]
    #[inline]
    pub fn of_unsigned(value: u64) -> Self {
        let mut bytes = [0; DIGITS_MAX];
        let start = write_digits(value, &mut bytes) as u8;
        Self { bytes, start }
    }

    /// The digits.
    #[must_use]
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[usize::from(self.start)..]
    }
}

impl AsRef<[u8]> for IntegerText {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

#[cfg(test)]
mod tests;
