//! The rules of patterns, and the definition that the matcher is compared with.

use super::*;
use proptest::prelude::*;

/// The definition, by recursion over the elements: exponential, for short inputs only.
fn defined(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=text.len()).any(|skip| defined(rest, &text[skip..])),
        ([_, ..], [byte, later @ ..]) => {
            match_byte::<false>(pattern, *byte).is_some_and(|rest| defined(rest, later))
        }
        _ => false,
    }
}

#[test]
fn elements_match_what_redis_says() {
    for (pattern, yes, no) in [
        ("", &[""][..], &["a"][..]),
        ("*", &["a", "ab"], &[""]),
        (
            "a*b*c",
            &["abc", "axbxc", "abcbc"],
            &["ab", "acb", "abcd", ""],
        ),
        ("**a", &["a", "ba", "baa"], &["ab"]),
        ("a?", &["ab", "a?"], &["a", "abc"]),
        ("[abc]", &["a", "c"], &["d", "", "ab"]),
        ("[^abc]", &["d", "^"], &["a"]),
        ("[a-cx]", &["b", "x"], &["d", "-"]),
        ("[c-a]", &["a", "b", "c"], &["d", "-"]),
        ("[a-]", &["]", "^", "a", "`"], &["-", "b"]),
        ("[a", &["a"], &["b", "[a", "["]),
        ("[^", &["a", "^"], &["", "ab"]),
        ("[", &[], &["[", ""]),
        ("[]a]", &[], &["]", "a", "a]"]),
        ("[\\]a]", &["]", "a"], &["\\"]),
        ("[\\", &["\\"], &["a"]),
        ("[a\\-z]", &["a", "-", "z"], &["b"]),
        ("\\*a", &["*a"], &["ba", "\\*a"]),
        ("a\\", &["a\\"], &["a", "aa"]),
        ("h[^e]llo*", &["hallo", "hbllo you"], &["hello"]),
    ] {
        for text in yes {
            assert!(
                matches(pattern.as_bytes(), text.as_bytes()),
                "{pattern} {text}"
            );
        }
        for text in no {
            assert!(
                !matches(pattern.as_bytes(), text.as_bytes()),
                "{pattern} {text}"
            );
        }
    }
}

#[test]
fn case_is_ignored_where_redis_ignores_it() {
    for (pattern, text, expected) in [
        ("MaxMemory*", "maxmemory-policy", true),
        ("[A-C]x", "bX", true),
        ("[ABC]", "b", true),
        ("\\A", "a", true),
        ("[\\A]", "a", false),
        ("[\\A]", "A", true),
        ("[^a]", "A", false),
    ] {
        let matched = matches_ignoring_case(pattern.as_bytes(), text.as_bytes());
        assert_eq!(matched, expected, "{pattern} {text}");
        assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), text == "A");
    }
}

#[test]
fn ranges_compare_signed_bytes() {
    assert!(matches(b"[\x01-\xff]", b"\xff") && matches(b"[\x01-\xff]", b"\0"));
    assert!(!matches(b"[\x01-\xff]", b"\x80") && !matches(b"[\x01-\xff]", b"a"));
    assert!(matches(b"[\x80-\xff]", b"\x90"));
}

#[test]
fn many_stars_do_not_explode() {
    let pattern = [b"*a".repeat(5000), b"*b".to_vec()].concat();
    let text = vec![b'a'; 20_000];
    assert!(!matches(&pattern, &text));
    assert!(matches(&pattern[..10_000], &text));
}

#[test]
fn the_literal_prefix_ends_at_the_first_element_that_is_none() {
    for (pattern, prefix) in [
        ("", ""),
        ("abc", "abc"),
        ("user:*", "user:"),
        ("u?x", "u"),
        ("u[a]", "u"),
        ("a\\*b\\", "a*b\\"),
        ("*", ""),
    ] {
        assert_eq!(
            literal_prefix(pattern.as_bytes()),
            prefix.as_bytes(),
            "{pattern}"
        );
    }
}

fn bytes(alphabet: &'static [u8], len_max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(alphabet), 0..=len_max)
}

proptest! {
    #[test]
    fn matching_agrees_with_its_definition(
        pattern in bytes(b"ab*?[]^-\\*\xff", 8),
        text in bytes(b"ab-]\\\xff", 7),
    ) {
        let expected = if text.is_empty() { pattern.is_empty() } else { defined(&pattern, &text) };
        prop_assert_eq!(matches(&pattern, &text), expected);
    }

    #[test]
    fn a_match_begins_with_the_literal_prefix(
        pattern in bytes(b"ab*?[]\\", 6),
        text in bytes(b"ab\\]*", 6),
    ) {
        if matches(&pattern, &text) {
            prop_assert!(text.starts_with(&literal_prefix(&pattern)));
        }
    }
}
