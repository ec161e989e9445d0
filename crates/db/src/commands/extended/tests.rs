//! Exact rational arithmetic as the oracle of reading, adding and printing.

use num_bigint::{BigInt, BigUint, Sign};
use proptest::prelude::*;

use super::*;

fn number(text: &str) -> Extended {
    Extended::parse(text.as_bytes()).unwrap_or_else(|| panic!("{text} is a number"))
}

fn sum(first: &str, second: &str) -> String {
    number(first)
        .checked_add(number(second))
        .expect("a finite sum")
        .to_human()
}

/// The exact value in units of the smallest subnormal number.
fn exact(value: Extended) -> BigInt {
    let Magnitude::Finite { mantissa, exponent } = value.magnitude else {
        panic!("infinite")
    };
    let magnitude = BigUint::from(mantissa) << (exponent - EXPONENT_MIN) as u32;
    BigInt::from_biguint(
        if value.negative {
            Sign::Minus
        } else {
            Sign::Plus
        },
        magnitude,
    )
}

/// Whether no other number is nearer to `numerator / denominator` (not negative, in units of the
/// smallest subnormal number), and a tie went to the even mantissa.
fn is_nearest(magnitude: Magnitude, numerator: &BigUint, denominator: &BigUint) -> bool {
    let Magnitude::Finite { mantissa, exponent } = magnitude else {
        return false;
    };
    if mantissa >> 63 == 0 && exponent != EXPONENT_MIN {
        return false;
    }
    // Everything doubled, so that the middle between two neighbours is whole.
    let doubled = numerator << 1_u32;
    let value = (BigUint::from(mantissa) << (exponent - EXPONENT_MIN) as u32) << 1_u32;
    let half_above = BigUint::from(1_u32) << (exponent - EXPONENT_MIN) as u32;
    // Below a power of two the neighbours are twice as dense.
    let denser = mantissa == 1 << 63 && exponent > EXPONENT_MIN;
    let above = (&value + &half_above) * denominator;
    let even = mantissa & 1 == 0;
    let fits_above = if even {
        doubled <= above
    } else {
        doubled < above
    };
    let fits_below = if mantissa == 0 {
        true
    } else if denser {
        // In quarters of the unit above; the neighbour below is odd.
        (doubled << 1_u32) >= ((&value << 1_u32) - &half_above) * denominator
    } else {
        let below = (&value - &half_above) * denominator;
        if even {
            doubled >= below
        } else {
            doubled > below
        }
    };
    fits_above && fits_below
}

/// A decimal number as a fraction in units of the smallest subnormal number.
fn decimal_fraction(digits: &str, exponent: i32) -> (BigUint, BigUint) {
    let digits = digits.parse::<BigUint>().expect("digits") << EXPONENT_MIN.unsigned_abs();
    let power = BigUint::from(10_u32).pow(exponent.unsigned_abs());
    if exponent < 0 {
        (digits, power)
    } else {
        (digits * power, BigUint::from(1_u32))
    }
}

fn any_finite() -> impl Strategy<Value = Extended> {
    let exponents = prop_oneof![
        4 => -130_i32..10,
        1 => EXPONENT_MIN..EXPONENT_MAX,
        1 => EXPONENT_MIN..EXPONENT_MIN + 70,
        1 => EXPONENT_MAX - 70..=EXPONENT_MAX,
    ];
    let mantissas = prop_oneof![
        any::<u64>(),
        (0_u32..64).prop_map(|bit| 1 << bit),
        (0_u32..64).prop_map(|bit| u64::MAX << bit),
        (0_u64..4).prop_map(|less| u64::MAX - less),
    ];
    (any::<bool>(), mantissas, exponents).prop_map(|(negative, mantissa, exponent)| {
        let mantissa = if exponent == EXPONENT_MIN {
            mantissa
        } else {
            mantissa | 1 << 63
        };
        Extended {
            negative,
            magnitude: Magnitude::Finite { mantissa, exponent },
        }
    })
}

#[test]
fn sums_print_like_redis() {
    let cases = [
        ("0", "0.1", "0.1"),
        ("0.1", "0.2", "0.3"),
        ("3.0e3", "200", "3200"),
        ("10.50", "0.1", "10.6"),
        ("5.0e3", "2.0e2", "5200"),
        ("1", "-1", "0"),
        ("-0", "-0", "0"),
        ("1e-20", "-2e-20", "0"),
        ("1.23456789012345678", "0", "1.23456789012345678"),
        ("0", "1e40", "9999999999999999999783686092270256259072"),
        ("9223372036854775807", "1", "9223372036854775808"),
        ("18446744073709551615", "1", "18446744073709551616"),
        ("18446744073709551616", "1", "18446744073709551616"),
        ("18446744073709551616", "3", "18446744073709551620"),
        ("0x10", "0x.8p1", "17"),
        ("+5.", ".5", "5.5"),
        ("0.000000000000000005", "0", "0"),
        ("0.99999999999999999999", "0", "1"),
    ];
    for (first, second, expected) in cases {
        assert_eq!(sum(first, second), expected, "{first} + {second}");
    }
}

#[test]
fn text_that_is_no_number_is_refused() {
    let texts = [
        "",
        "-",
        "+",
        ".",
        "-.",
        "e5",
        ".e5",
        "1e",
        "1e+",
        "1e5.",
        " 1",
        "1 ",
        "\t1",
        "1\0",
        "--1",
        "+-1",
        "0x",
        "0x.",
        "0x1p",
        "0xg",
        "1p5",
        "0x1e+5",
        "nan",
        "-nan",
        "nan(1)",
        "infinit",
        "info",
        "1_000",
        "1,5",
        "1e5000",
        "-1e5000",
        "1e-5000",
        "1e99999999999999999999",
        "1e-99999999999999999999",
        "0x1p16384",
        "0x1p-16446",
        "1.1897314953572317651e4932",
    ];
    for text in texts {
        assert_eq!(Extended::parse(text.as_bytes()), None, "{text:?}");
    }
    let long = [b'1'; TEXT_BYTES_MAX + 1];
    assert_eq!(Extended::parse(&long), None);
    assert_eq!(
        Extended::parse(&[b'0'; TEXT_BYTES_MAX]).map(Extended::to_human),
        Some("0".into())
    );
}

#[test]
fn the_ends_of_the_range_are_numbers() {
    assert_eq!(
        number("0x1p-16445").magnitude,
        Magnitude::Finite {
            mantissa: 1,
            exponent: -16_445
        }
    );
    assert_eq!(number("3.6e-4951"), number("0x1p-16445"));
    let largest = Magnitude::Finite {
        mantissa: u64::MAX,
        exponent: EXPONENT_MAX,
    };
    assert_eq!(number("1.18973149535723176502e4932").magnitude, largest);
    assert_eq!(number("0x0.ffffffffffffffffp16384").magnitude, largest);
    assert_eq!(number("0e99999").to_human(), "0");
    assert_eq!(number("0x0p99999").to_human(), "0");
    assert!(!number("-Infinity").is_finite());
    assert!(!number("+inf").is_finite());
}

#[test]
fn a_sum_that_is_not_finite_is_refused() {
    for (first, second) in [("inf", "1"), ("1", "-inf"), ("inf", "-inf"), ("inf", "inf")] {
        let refused = number(first).checked_add(number(second));
        assert_eq!(
            refused,
            Err(CommandError::IncrementNotFinite),
            "{first} + {second}"
        );
    }
    let largest = number("0x0.ffffffffffffffffp16384");
    assert_eq!(
        largest.checked_add(largest),
        Err(CommandError::IncrementNotFinite)
    );
    // Half a unit in the last place is a tie, and the even neighbour is infinite.
    let half = number("0x1p16319");
    assert_eq!(
        largest.checked_add(half),
        Err(CommandError::IncrementNotFinite)
    );
    assert_eq!(largest.checked_add(number("0x0.ffffp16319")), Ok(largest));
}

proptest! {
    #[test]
    fn the_sum_is_the_nearest_number(first in any_finite(), second in any_finite()) {
        let expected = exact(first) + exact(second);
        if let Ok(sum) = first.checked_add(second) {
            let one = BigUint::from(1_u32);
            prop_assert!(is_nearest(sum.magnitude, expected.magnitude(), &one), "{sum:?}");
            prop_assert!(expected.sign() == Sign::NoSign || exact(sum).sign() == expected.sign());
        } else {
            // Beyond the largest number by at least half a unit in its last place.
            let bound = BigUint::from(u64::MAX) << (EXPONENT_MAX - EXPONENT_MIN) as u32;
            let half = BigUint::from(1_u32) << (EXPONENT_MAX - EXPONENT_MIN - 1) as u32;
            prop_assert!(*expected.magnitude() >= bound + half);
        }
    }

    #[test]
    fn near_sums_are_exact(first in any_finite(), offset in -66_i32..66, mantissa: u64) {
        let Magnitude::Finite { exponent, .. } = first.magnitude else { unreachable!() };
        let exponent = (exponent + offset).clamp(EXPONENT_MIN, EXPONENT_MAX);
        let magnitude = Magnitude::Finite { mantissa: mantissa | 1 << 63, exponent };
        let second = Extended { negative: !first.negative, magnitude };
        let expected = exact(first) + exact(second);
        let sum = first.checked_add(second).expect("a difference is finite");
        prop_assert!(is_nearest(sum.magnitude, expected.magnitude(), &BigUint::from(1_u32)));
    }

    #[test]
    fn a_decimal_is_read_as_the_nearest_number(
        digits in prop_oneof!["[0-9]{1,20}", "[0-9]{1,60}", "[1-9]0{0,30}[0-9]{0,3}"],
        exponent in prop_oneof![4 => -40_i32..25, 1 => -4_940_i32..4_860],
    ) {
        let text = format!("{digits}e{exponent}");
        let (numerator, denominator) = decimal_fraction(&digits, exponent);
        let value = number(&text);
        prop_assert!(is_nearest(value.magnitude, &numerator, &denominator), "{text} {value:?}");
    }

    #[test]
    fn the_place_of_the_point_does_not_matter(digits in "[0-9]{2,40}", point in 0_usize..40) {
        let point = point % digits.len();
        let (integer, fraction) = digits.split_at(point);
        let shifted = format!("{integer}.{fraction}");
        let scaled = format!("{digits}e-{}", fraction.len());
        prop_assert_eq!(number(&shifted), number(&scaled));
    }

    #[test]
    fn hexadecimal_is_read_as_the_nearest_number(
        digits in "[0-9a-fA-F]{1,40}",
        exponent in -300_i32..300,
    ) {
        let value = number(&format!("0x{digits}p{exponent}"));
        let numerator = BigUint::parse_bytes(digits.as_bytes(), 16).expect("digits")
            << (exponent - EXPONENT_MIN) as u32;
        prop_assert!(is_nearest(value.magnitude, &numerator, &BigUint::from(1_u32)));
    }

    #[test]
    fn printing_rounds_to_the_nearest_decimal(value in any_finite()) {
        let unit = BigUint::from(1_u32) << EXPONENT_MIN.unsigned_abs();
        let scaled = exact(value).magnitude() * FRACTION_SCALE;
        let (quotient, rest) = (&scaled / &unit, (&scaled % &unit) << 1_u32);
        let up = rest > unit || (rest == unit && quotient.bit(0));
        let rounded = quotient + u32::from(up);
        let digits = format!("{rounded:0>18}");
        let (integer, fraction) = digits.split_at(digits.len() - FRACTION_DIGITS);
        let all = format!("{integer}.{fraction}");
        let text = all.trim_end_matches('0').trim_end_matches('.');
        let sign = if value.negative && text != "0" { "-" } else { "" };
        prop_assert_eq!(value.to_human(), format!("{sign}{text}"));
    }

    #[test]
    fn any_text_is_read_without_panic(text in "[-+0-9.eExXpPa-f infty]{0,12}") {
        if let Some(value) = Extended::parse(text.as_bytes()) {
            let _ = value.to_human();
        }
    }
}
