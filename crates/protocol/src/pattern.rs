//! Glob patterns as Redis matches them.
//!
//! `*` is any bytes, `?` any byte, `[abc]`, `[a-z]` and `[^a]` a byte of a class; a backslash takes
//! the next byte literally, in a class too. Redis' oddities are kept: an unclosed class ends with
//! the pattern, the bounds of a range may be swapped and are compared as signed bytes, and only the
//! empty pattern matches the empty string.
//!
//! Only the last `*` is ever retried: whatever an earlier one could take, the later one can take
//! too. The cost is O(pattern · text) at worst, without recursion.

use std::iter;

/// Whether `text` matches `pattern`.
#[must_use]
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match_with::<false>(pattern, text)
}

/// Whether `text` matches `pattern`, ASCII letters of either case being equal.
#[must_use]
pub fn matches_ignoring_case(pattern: &[u8], text: &[u8]) -> bool {
    match_with::<true>(pattern, text)
}

fn match_with<const IGNORE_CASE: bool>(pattern: &[u8], text: &[u8]) -> bool {
    if text.is_empty() {
        return pattern.is_empty();
    }
    let (mut rest_pattern, mut rest_text) = (pattern, text);
    // The pattern after the last `*`, and the text on which it has not been tried.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        match (rest_pattern, rest_text) {
            ([], []) => return true,
            ([b'*', rest @ ..], _) => {
                if rest.is_empty() {
                    return true;
                }
                rest_pattern = rest;
                retry = rest_text.split_first().map(|(_, later)| (rest, later));
                continue;
            }
            ([_, ..], [byte, later @ ..]) => {
                if let Some(rest) = match_byte::<IGNORE_CASE>(rest_pattern, *byte) {
                    (rest_pattern, rest_text) = (rest, later);
                    continue;
                }
            }
            ([], [_, ..]) | ([_, ..], []) => {}
        }
        // A text that ended too early also ends too early for later tries.
        let Some((pattern, text)) = retry.filter(|_| !rest_text.is_empty()) else {
            return false;
        };
        (rest_pattern, rest_text) = (pattern, text);
        retry = text.split_first().map(|(_, later)| (pattern, later));
    }
}

/// Matches the first element of `pattern`, which is not empty; returns the rest.
#[inline]
fn match_byte<const IGNORE_CASE: bool>(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [b'?', rest @ ..] => Some(rest),
        [b'[', class @ ..] => match_class::<IGNORE_CASE>(class, byte),
        [b'\\', literal, rest @ ..] | [literal, rest @ ..] => {
            same::<IGNORE_CASE>(*literal, byte).then_some(rest)
        }
        [] => None,
    }
}

#[inline]
fn same<const IGNORE_CASE: bool>(left: u8, right: u8) -> bool {
    left == right || (IGNORE_CASE && left.eq_ignore_ascii_case(&right))
}

/// Matches the class in `class`, after its bracket; returns what follows the class.
fn match_class<const IGNORE_CASE: bool>(class: &[u8], byte: u8) -> Option<&[u8]> {
    let (negated, mut rest) = match class {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut member = false;
    loop {
        rest = match rest {
            // An escaped byte of a class keeps its case.
            [b'\\', literal, rest @ ..] => {
                member |= *literal == byte;
                rest
            }
            [b']', rest @ ..] => return (member != negated).then_some(rest),
            [] => return (member != negated).then_some(rest),
            [low, b'-', high, rest @ ..] => {
                member |= in_range::<IGNORE_CASE>(*low, *high, byte);
                rest
            }
            [literal, rest @ ..] => {
                member |= same::<IGNORE_CASE>(*literal, byte);
                rest
            }
        }
    }
}

fn in_range<const IGNORE_CASE: bool>(low: u8, high: u8, byte: u8) -> bool {
    // C's `char` is signed.
    let (low, high) = (low.cast_signed(), high.cast_signed());
    let (low, high) = (low.min(high), low.max(high));
    let fold = |byte: i8| {
        if IGNORE_CASE {
            byte.cast_unsigned().to_ascii_lowercase().cast_signed()
        } else {
            byte
        }
    };
    (fold(low)..=fold(high)).contains(&fold(byte.cast_signed()))
}

/// The common prefix of all matches of `pattern`: an ordered engine need look nowhere else.
#[must_use]
pub fn literal_prefix(pattern: &[u8]) -> Vec<u8> {
    let mut rest = pattern;
    iter::from_fn(|| {
        let (literal, next) = match rest {
            [b'*' | b'?' | b'[', ..] | [] => return None,
            [b'\\', literal, next @ ..] | [literal, next @ ..] => (literal, next),
        };
        rest = next;
        Some(*literal)
    })
    .collect()
}

#[cfg(test)]
mod tests;
