//! Integers and doubles: what is read, what is refused, how they are printed.

use super::*;
use proptest::prelude::*;

#[test]
fn integers_are_canonical() {
    for (text, value) in [
        ("0", 0),
        ("7", 7),
        ("-1", -1),
        ("9223372036854775807", i64::MAX),
        ("-9223372036854775808", i64::MIN),
    ] {
        assert_eq!(parse_i64(text.as_bytes()), Some(value), "{text}");
    }
    for text in [
        "",
        "-",
        "+1",
        "01",
        "-0",
        "-01",
        "00",
        " 1",
        "1 ",
        "1a",
        "a",
        "0x1",
        "1.0",
        "--1",
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551616",
        "99999999999999999999999",
        "1\0",
    ] {
        assert_eq!(parse_i64(text.as_bytes()), None, "{text:?}");
    }
    assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
    assert_eq!(parse_u64(b"18446744073709551616"), None);
    assert_eq!(parse_u64(b"-1"), None);
}

#[test]
fn doubles_are_read_as_c_reads_them() {
    for (text, value) in [
        ("1", 1.0),
        ("+1.5", 1.5),
        ("-1.23E9", -1.23e9),
        ("3.0e3", 3000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e-3", 0.001),
        ("0e999", 0.0),
        ("5e-324", 5e-324),
        ("1.7976931348623157e308", f64::MAX),
        ("inf", f64::INFINITY),
        ("-Infinity", f64::NEG_INFINITY),
        ("0x10", 16.0),
        ("0X1P3", 8.0),
        ("-0x.8", -0.5),
        ("0x1.8p-1", 0.75),
        ("0x1p-1074", 5e-324),
        ("0x1.8p-1074", 1e-323),
        ("0x8p-1074", 4e-323),
        ("0x1p-1060", 8.095e-320),
        ("0x1fffffffffffffp971", f64::MAX),
        ("0x1000000000000080000", 2f64.powi(72)),
        (
            "0x1000000000000080001",
            2f64.powi(72) * (1.0 + f64::EPSILON),
        ),
        ("0x0p99999999999999999999", 0.0),
    ] {
        assert_eq!(parse_f64(text.as_bytes()), Some(value), "{text}");
    }
    assert!(parse_f64(b"-0").is_some_and(f64::is_sign_negative));
    for text in [
        "",
        " 1",
        "1 ",
        "1e",
        "1e+",
        "--1",
        "+-1",
        "1_0",
        "nan",
        "-nan",
        "NaN",
        "nan(x)",
        ".",
        "-",
        "e5",
        "1e400",
        "-1e400",
        "1e-400",
        "0x",
        "0x.",
        "0x1p",
        "0x1p1024",
        "0x1p-1076",
        "0xg",
        "in",
        "infinit",
        "1\0",
        "1,5",
        "0x1.1.1",
    ] {
        assert_eq!(parse_f64(text.as_bytes()), None, "{text:?}");
    }
}

#[test]
fn doubles_are_printed_with_seventeen_digits() {
    for (value, text) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (0.1, "0.10000000000000001"),
        (1.5, "1.5"),
        (-1.23e9, "-1230000000"),
        (123_456_789.123_456_79, "123456789.12345679"),
        (99_984.0, "99984"),
        (-9_007_199_254_740_991.0, "-9007199254740991"),
        (9_007_199_254_740_992.0, "9007199254740992"),
        (1e16, "10000000000000000"),
        (1e17, "1e+17"),
        (1e-4, "0.0001"),
        (1e-5, "1.0000000000000001e-05"),
        (1e-17, "1.0000000000000001e-17"),
        (1e300, "1.0000000000000001e+300"),
        (5e-324, "4.9406564584124654e-324"),
        (f64::MAX, "1.7976931348623157e+308"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
        (f64::NAN, "nan"),
    ] {
        assert_eq!(format_f64(value), text);
    }
}

proptest! {
    #[test]
    fn integers_survive_printing(value: i64, unsigned: u64) {
        let (text, printed) = (IntegerText::of(value), value.to_string());
        prop_assert_eq!(text.as_bytes(), printed.as_bytes());
        prop_assert_eq!(parse_i64(text.as_bytes()), Some(value));
        let text = IntegerText::of_unsigned(unsigned);
        prop_assert_eq!(parse_u64(text.as_bytes()), Some(unsigned));
    }

    #[test]
    fn canonical_means_printed_alike(text in "-?[0-9]{0,20}") {
        let expected = text.parse::<i64>().ok().filter(|value| value.to_string() == text);
        prop_assert_eq!(parse_i64(text.as_bytes()), expected);
    }

    #[test]
    fn doubles_survive_printing(bits: u64) {
        let value = f64::from_bits(bits);
        if !value.is_nan() {
            prop_assert_eq!(parse_f64(format_f64(value).as_bytes()), Some(value));
        }
    }

    #[test]
    fn hexadecimal_doubles_are_exact(mantissa: u64, scale in -1140i64..1000) {
        let text = format!("0x{mantissa:x}p{scale}");
        // Rust has no reader of them: the decimal of an exact power is one.
        let exact = mantissa as f64 * 2f64.powi(scale as i32);
        if exact.is_normal() && 2f64.powi(scale as i32).is_normal() {
            prop_assert_eq!(parse_f64(text.as_bytes()), Some(exact));
        }
    }
}
