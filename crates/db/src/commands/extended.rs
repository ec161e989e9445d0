//! The 80-bit floating-point numbers in which INCRBYFLOAT and HINCRBYFLOAT compute.
//!
//! A finite number is `mantissa · 2^exponent` with a mantissa of 64 bits. Reading, adding and
//! printing are exact, followed by one rounding to nearest, ties to even, like the x87 unit and the
//! C library that Redis uses; so sums agree with Redis to the last printed digit.
//!
//! Numbers of everyday size need 128-bit integers and no allocation; only long texts and large
//! exponents need big ones. The length of a text bounds the work: [`TEXT_BYTES_MAX`].
//!
//! Invariants:
//! - **F1** The mantissa's highest bit is set, unless the exponent is [`EXPONENT_MIN`] (zero and
//!   subnormal numbers) or the number is infinite.
//!
//! Deliberately absent: NaN (no text means it, and a sum that would be NaN is an error), the sign
//! of zero (it is never printed), other arithmetic.

use num_bigint::BigUint;

use crate::error::CommandError;

/// Longest text that is read as a number, in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 5 * 1024 - 1;

/// Exponent of the smallest subnormal number.
const EXPONENT_MIN: i32 = -16_445;

/// Exponent of the largest finite number, whose mantissa is all ones.
const EXPONENT_MAX: i32 = 16_320;

/// Bits of a mantissa.
const MANTISSA_BITS: u32 = u64::BITS;

/// Bits below the mantissas that are added: enough to round the sum.
const SPARE_BITS: u32 = 62;

/// Digits printed after the point, before trailing zeros are cut.
const FRACTION_DIGITS: usize = 17;

/// Ten to the [`FRACTION_DIGITS`].
const FRACTION_SCALE: u64 = 10_u64.pow(FRACTION_DIGITS as u32);

/// Decimal orders of magnitude that are certainly infinite, and (negated) certainly zero.
const MAGNITUDE_MAX: i64 = 5_000;

/// A number of 80 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extended {
    negative: bool,
    magnitude: Magnitude,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Magnitude {
    /// F1.
    Finite { mantissa: u64, exponent: i32 },
    /// Beyond the largest finite number.
    Infinite,
}

const ZERO: Magnitude = Magnitude::Finite {
    mantissa: 0,
    exponent: EXPONENT_MIN,
};

impl Extended {
    /// Zero, the value of an absent key.
    pub(crate) const ZERO: Self = Self {
        negative: false,
        magnitude: ZERO,
    };

    /// Reads a decimal or hexadecimal number, or `inf` or `infinity`, in any case. `None` if it is
    /// something else, too long, too large to be finite, or nonzero and too small to be
    /// represented. O(bytes²), a few multiplications for numbers of up to 19 digits.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        if text.len() > TEXT_BYTES_MAX {
            return None;
        }
        let (negative, rest) = split_sign(text);
        let (is_zero, magnitude) = match rest {
            _ if is_infinity(rest) => {
                return Some(Self {
                    negative,
                    magnitude: Magnitude::Infinite,
                });
            }
            [b'0', b'x' | b'X', rest @ ..] => {
                let digits = Digits::<16>::split(rest)?;
                (digits.significant().next().is_none(), digits.round())
            }
            rest => {
                let digits = Digits::<10>::split(rest)?;
                (digits.significant().next().is_none(), digits.round())
            }
        };
        let representable = is_zero == (magnitude == ZERO) && magnitude != Magnitude::Infinite;
        representable.then_some(Self {
            negative,
            magnitude,
        })
    }

    /// Whether it is not infinite.
    pub(crate) fn is_finite(self) -> bool {
        self.magnitude != Magnitude::Infinite
    }

    /// The sum, if it is a finite number.
    pub(crate) fn checked_add(self, other: Self) -> Result<Self, CommandError> {
        let (
            Magnitude::Finite {
                mantissa: first,
                exponent: first_exponent,
            },
            Magnitude::Finite {
                mantissa: second,
                exponent: second_exponent,
            },
        ) = (self.magnitude, other.magnitude)
        else {
            return Err(CommandError::IncrementNotFinite);
        };
        if (first_exponent, first) < (second_exponent, second) {
            return other.checked_add(self);
        }
        // The larger one, with spare bits above (for a carry) and below (for rounding). A shift
        // that drops bits of the smaller one leaves at most one leading zero in the sum, so the
        // dropped bits only decide how to round.
        let larger = u128::from(first) << SPARE_BITS;
        let (smaller, dropped) = shift_right(
            u128::from(second) << SPARE_BITS,
            first_exponent.abs_diff(second_exponent),
        );
        let sum = if self.negative == other.negative {
            larger + smaller
        } else {
            larger - smaller - u128::from(dropped)
        };
        let magnitude = round(
            sum,
            i64::from(first_exponent) - i64::from(SPARE_BITS),
            dropped,
        );
        if magnitude == Magnitude::Infinite {
            return Err(CommandError::IncrementNotFinite);
        }
        Ok(Self {
            negative: self.negative,
            magnitude,
        })
    }

    /// The number with up to 17 digits after the point, without trailing zeros. O(1) below 2⁶⁴.
    pub(crate) fn to_human(self) -> String {
        let mut text = match self.magnitude {
            Magnitude::Infinite => "inf".to_owned(),
            Magnitude::Finite { mantissa, exponent } if exponent > 0 => {
                (BigUint::from(mantissa) << exponent as u32).to_string()
            }
            Magnitude::Finite { mantissa, exponent } => {
                print_fixed(mantissa, exponent.unsigned_abs())
            }
        };
        if self.negative && text != "0" {
            text.insert(0, '-');
        }
        text
    }
}

fn is_infinity(text: &[u8]) -> bool {
    text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity")
}

/// Prints `mantissa / 2^shift`.
fn print_fixed(mantissa: u64, shift: u32) -> String {
    let integer = mantissa.checked_shr(shift).unwrap_or(0);
    let rest = mantissa - integer.checked_shl(shift).unwrap_or(0);
    let scaled = u128::from(rest) * u128::from(FRACTION_SCALE);
    let fraction = divide_by_power(scaled, shift) as u64;
    // The fraction may have been rounded up to one.
    let integer = integer + fraction / FRACTION_SCALE;
    let fraction = fraction % FRACTION_SCALE;
    let text = format!("{integer}.{fraction:0FRACTION_DIGITS$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `value / 2^shift`, rounded to nearest, ties to even.
fn divide_by_power(value: u128, shift: u32) -> u128 {
    if shift == 0 {
        return value;
    }
    // One bit below the quotient, and whether anything is below that bit.
    let (doubled, dropped) = shift_right(value, shift - 1);
    let (quotient, half) = (doubled >> 1, doubled & 1 == 1);
    quotient + u128::from(half && (dropped || quotient & 1 == 1))
}

/// The shifted value, and whether a set bit was lost.
fn shift_right(value: u128, shift: u32) -> (u128, bool) {
    match value.checked_shr(shift) {
        Some(shifted) => (shifted, shifted << shift != value),
        None => (0, value != 0),
    }
}

/// The number nearest to `mantissa · 2^exponent`; `more` says that the exact one is larger by less
/// than one in the last place of `mantissa`, which then has at least 66 bits or is below what can
/// be represented.
fn round(mantissa: u128, exponent: i64, more: bool) -> Magnitude {
    if mantissa == 0 {
        return ZERO;
    }
    let bits = u128::BITS - mantissa.leading_zeros();
    let excess = i64::from(bits) - i64::from(MANTISSA_BITS);
    let shift = excess.max(i64::from(EXPONENT_MIN) - exponent);
    let mut exponent = exponent + shift;
    let mantissa = if shift <= 0 {
        mantissa << shift.unsigned_abs()
    } else {
        let shift = u32::try_from(shift).unwrap_or(u32::MAX);
        let (doubled, dropped) = shift_right(mantissa, shift - 1);
        let (quotient, half) = (doubled >> 1, doubled & 1 == 1);
        quotient + u128::from(half && (dropped || more || quotient & 1 == 1))
    };
    let mantissa = u64::try_from(mantissa).unwrap_or_else(|_| {
        // Rounded up to the next power of two.
        exponent += 1;
        1 << (MANTISSA_BITS - 1)
    });
    match i32::try_from(exponent) {
        Ok(exponent) if exponent <= EXPONENT_MAX => Magnitude::Finite { mantissa, exponent },
        _ => Magnitude::Infinite,
    }
}

/// [`round`] for a big mantissa.
fn round_big(mantissa: &BigUint, exponent: i64, more: bool) -> Magnitude {
    let surplus = mantissa.bits().saturating_sub(u64::from(u128::BITS));
    let dropped = mantissa.trailing_zeros().unwrap_or(0) < surplus;
    let head = u128::try_from(mantissa >> surplus).expect("the surplus is gone");
    round(head, exponent + surplus as i64, more || dropped)
}

/// A number as written, without its sign: digits around a point, and an exponent.
struct Digits<'t, const BASE: u32> {
    integer: &'t [u8],
    /// Without trailing zeros.
    fraction: &'t [u8],
    exponent: i64,
}

impl<'t, const BASE: u32> Digits<'t, BASE> {
    /// `None` when there is no digit, or something else besides digits.
    fn split(text: &'t [u8]) -> Option<Self> {
        let (integer, rest) = split_digits::<BASE>(text);
        let (fraction, rest) = match rest {
            [b'.', rest @ ..] => split_digits::<BASE>(rest),
            rest => (&[][..], rest),
        };
        if integer.is_empty() && fraction.is_empty() {
            return None;
        }
        let exponent = match rest {
            [] => 0,
            [b'e' | b'E', rest @ ..] if BASE == 10 => parse_exponent(rest)?,
            [b'p' | b'P', rest @ ..] if BASE == 16 => parse_exponent(rest)?,
            _ => return None,
        };
        let zeros = fraction
            .iter()
            .rev()
            .take_while(|digit| **digit == b'0')
            .count();
        Some(Self {
            integer,
            fraction: &fraction[..fraction.len() - zeros],
            exponent,
        })
    }

    /// The digits from the first nonzero one.
    fn significant(&self) -> impl Iterator<Item = u8> {
        let digits = self.integer.iter().chain(self.fraction);
        digits.copied().skip_while(|digit| *digit == b'0')
    }
}

impl Digits<'_, 10> {
    /// The nearest number. The work is bounded by [`TEXT_BYTES_MAX`] and [`MAGNITUDE_MAX`].
    fn round(&self) -> Magnitude {
        const SMALL_DIGITS: usize = 19;
        let count = self.significant().count();
        let exponent = self.exponent - self.fraction.len() as i64;
        let magnitude = count as i64 + exponent;
        if count == 0 || magnitude < -MAGNITUDE_MAX {
            return ZERO;
        }
        if magnitude > MAGNITUDE_MAX {
            return Magnitude::Infinite;
        }
        let power = exponent.unsigned_abs() as u32;
        if count <= SMALL_DIGITS && (-18..=19).contains(&exponent) {
            let digits = self
                .significant()
                .fold(0, |sum, digit| sum * 10 + u128::from(digit - b'0'));
            return round_small(digits, 10_u128.pow(power), exponent < 0);
        }
        let digits: Vec<u8> = self.significant().map(|digit| digit - b'0').collect();
        let digits = BigUint::from_radix_be(&digits, 10).expect("all digits are below 10");
        let scale = BigUint::from(10_u32).pow(power);
        if exponent >= 0 {
            return round_big(&(digits * scale), 0, false);
        }
        // A quotient of at least 66 bits, as `round` requires.
        let shift = (scale.bits() + 67).saturating_sub(digits.bits());
        let digits = digits << shift;
        let quotient = &digits / &scale;
        let more = &quotient * &scale != digits;
        round_big(&quotient, -(shift as i64), more)
    }
}

/// The number nearest to `digits` (below 2⁶⁴, not 0) times or divided by `scale` (at most 10¹⁹, as
/// a divisor at most 10¹⁸).
fn round_small(digits: u128, scale: u128, divide: bool) -> Magnitude {
    if !divide {
        return round(digits * scale, 0, false);
    }
    let shift = digits.leading_zeros();
    let digits = digits << shift;
    round(
        digits / scale,
        -i64::from(shift),
        !digits.is_multiple_of(scale),
    )
}

impl Digits<'_, 16> {
    /// The nearest number.
    fn round(&self) -> Magnitude {
        const HEAD_DIGITS: usize = 30;
        let digits = || {
            self.significant()
                .map(|digit| char::from(digit).to_digit(16).unwrap_or(0))
        };
        let head = digits()
            .take(HEAD_DIGITS)
            .fold(0, |sum, digit| sum << 4 | u128::from(digit));
        let tail = digits().skip(HEAD_DIGITS).count() as i64;
        let more = digits().skip(HEAD_DIGITS).any(|digit| digit != 0);
        let exponent = self.exponent + 4 * (tail - self.fraction.len() as i64);
        round(head, exponent, more)
    }
}

/// Whether `text` begins with a minus sign, and what follows the sign, if there is one.
fn split_sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] | rest => (false, rest),
    }
}

/// The digits that `text` begins with, and the rest.
fn split_digits<const BASE: u32>(text: &[u8]) -> (&[u8], &[u8]) {
    let is_digit = |byte: &u8| char::from(*byte).is_digit(BASE);
    text.split_at(text.iter().take_while(|byte| is_digit(byte)).count())
}

/// A written exponent; one beyond what any text can balance is capped.
fn parse_exponent(text: &[u8]) -> Option<i64> {
    const EXPONENT_WRITTEN_MAX: i64 = 1 << 32;
    let (negative, digits) = split_sign(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let exponent = digits.iter().fold(0, |sum: i64, digit| {
        (sum * 10 + i64::from(digit - b'0')).min(EXPONENT_WRITTEN_MAX)
    });
    Some(if negative { -exponent } else { exponent })
}

#[cfg(test)]
mod tests;
