//! Inline requests: a line of words, for people at a terminal.
//!
//! Words may be quoted. In double quotes `\xHH`, `\n`, `\r`, `\t`, `\b` and `\a` stand for bytes
//! and a backslash takes any other byte literally; in single quotes only `\'` is special. A word
//! without its quotes and escapes is never longer than with them, so it is unquoted in place.

use super::ProtocolError;
use crate::ArgumentRange;

/// Splits `line`, at `offset` of the buffer, into words, unquoting them in place. After an error
/// `arguments` is unchanged.
pub(super) fn split(
    line: &mut [u8],
    offset: usize,
    arguments: &mut Vec<ArgumentRange>,
) -> Result<(), ProtocolError> {
    let before = arguments.len();
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(|byte| is_space(*byte)) {
            at += 1;
        }
        if at == line.len() {
            return Ok(());
        }
        let Some((len, end)) = unquote(&mut line[at..]) else {
            arguments.truncate(before);
            return Err(ProtocolError::UnbalancedQuotes);
        };
        arguments.push(ArgumentRange {
            start: (offset + at) as u32,
            len: len as u32,
        });
        at += end;
    }
}

/// C's `isspace`.
const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// What ends a word outside quotes.
const fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

/// Unquotes the first word of `text` in place. Returns its length and where it ended, or `None`
/// when a quote is not closed or not followed by a space.
fn unquote(text: &mut [u8]) -> Option<(usize, usize)> {
    let (mut read, mut written) = (0, 0);
    let mut quote = None;
    loop {
        let Some(byte) = text.get(read).copied() else {
            return quote.is_none().then_some((written, read));
        };
        read += 1;
        let literal = match quote {
            None if ends_word(byte) => return Some((written, read - 1)),
            None if matches!(byte, b'"' | b'\'') => {
                quote = Some(byte);
                continue;
            }
            Some(closing) if byte == closing => {
                let closed = text.get(read).is_none_or(|next| is_space(*next));
                return closed.then_some((written, read));
            }
            Some(b'"') if byte == b'\\' && read < text.len() => {
                let (literal, length) = escape(&text[read..]);
                read += length;
                literal
            }
            Some(b'\'') if byte == b'\\' && text.get(read) == Some(&b'\'') => {
                read += 1;
                b'\''
            }
            _ => byte,
        };
        text[written] = literal;
        written += 1;
    }
}

/// The byte that the escape after a backslash stands for, and the escape's length.
fn escape(text: &[u8]) -> (u8, usize) {
    if let [b'x', high, low, ..] = *text
        && let (Some(high), Some(low)) = (hex(high), hex(low))
    {
        return (high << 4 | low, 3);
    }
    let literal = match text[0] {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    };
    (literal, 1)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Request;

    fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, ProtocolError> {
        let mut line = line.to_vec();
        let mut arguments = Vec::new();
        split(&mut line, 0, &mut arguments)?;
        let request = Request::new(&line, &arguments);
        Ok(request.args_from(0).map(<[u8]>::to_vec).collect())
    }

    #[test]
    fn words_lose_their_quotes_and_escapes() {
        for (line, expected) in [
            (&b""[..], &[][..]),
            (b" \t\x0b\x0c\r ", &[]),
            (b"PING", &[&b"PING"[..]]),
            (b"  set  k\tv ", &[b"set", b"k", b"v"]),
            (b"\"a b\"", &[b"a b"]),
            (b"'a\\'b\\n'", &[b"a'b\\n"]),
            (
                b"\"a\\x41\\n\\r\\t\\b\\a\\q\\\"\"",
                &[b"aA\n\r\t\x08\x07q\""],
            ),
            (
                b"\"\\xZZ\" \"\\x4\" \"\\xff\\x00\"",
                &[b"xZZ", b"x4", b"\xff\0"],
            ),
            (b"a\"b c\" a'b c'", &[b"ab c", b"ab c"]),
            (b"\"\" ''", &[b"", b""]),
            (b"a\\n", &[b"a\\n"]),
            (b"\"a\"\x0bb", &[b"a", b"b"]),
            (b"a\x0bb", &[b"a\x0bb"]),
            (b"a\rb", &[b"a", b"b"]),
            (b"a\0b", &[b"a\0b"]),
        ] {
            assert_eq!(words(line).unwrap(), expected, "{line:?}");
        }
    }

    #[test]
    fn a_quote_is_closed_and_ends_its_word() {
        for line in [
            &b"\"a"[..],
            b"'a",
            b"\"a\"b",
            b"'a'b",
            b"\"a\\",
            b"\"a\\\"",
            b"'a\\'",
            b"x \"",
        ] {
            assert_eq!(
                words(line),
                Err(ProtocolError::UnbalancedQuotes),
                "{line:?}"
            );
        }
    }
}
