//! The configuration file: a setting on each line, `name value`, as in `redis.conf`.
//!
//! Words are separated by blanks. A word in double quotes knows `\n \r \t \b \a \" \\` and `\xHH`;
//! one in single quotes only `\'`. A line whose first character beyond blanks is `#` is a comment.
//! Of two lines with the same setting the later one holds.

use std::path::Path;

use super::Config;
use super::error::{ConfigError, Origin, SettingError};
use super::setting::Setting;

/// Applies a file's lines to `config`.
pub(super) fn read(config: &mut Config, path: &Path) -> Result<(), ConfigError> {
    let text = std::fs::read(path).map_err(|error| ConfigError::Read {
        path: path.to_owned(),
        error,
    })?;
    parse(config, path, &text)
}

/// Applies lines to `config`; `path` is for errors.
pub(super) fn parse(config: &mut Config, path: &Path, text: &[u8]) -> Result<(), ConfigError> {
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let origin = || Origin::File {
            path: path.to_owned(),
            line: index + 1,
        };
        let Some(words) = split(line) else {
            return Err(ConfigError::Quotes { origin: origin() });
        };
        if let Some((name, values)) = words.split_first() {
            apply(config, name, values).map_err(|error| ConfigError::Setting {
                origin: origin(),
                error,
            })?;
        }
    }
    Ok(())
}

fn apply(config: &mut Config, name: &[u8], values: &[Vec<u8>]) -> Result<(), SettingError> {
    let Some(setting) = Setting::find(name) else {
        let got = String::from_utf8_lossy(name).into_owned();
        return Err(SettingError::Unknown { got });
    };
    setting.set(config, &values.join(&b' '))
}

/// The words of a line; none for a comment. `None` when the quotes are unbalanced.
pub(crate) fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii();
    if rest.first() == Some(&b'#') {
        return Some(words);
    }
    while !rest.is_empty() {
        let (word, after) = match rest[0] {
            b'"' => double_quoted(&rest[1..])?,
            b'\'' => single_quoted(&rest[1..])?,
            _ => plain(rest)?,
        };
        words.push(word);
        rest = after.trim_ascii_start();
    }
    Some(words)
}

/// A word that ends at a blank, or with a quoted part.
fn plain(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let ends = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\'');
    let end = text.iter().position(ends).unwrap_or(text.len());
    let mut word = text[..end].to_vec();
    let (quoted, rest) = match text.get(end) {
        Some(b'"') => double_quoted(&text[end + 1..])?,
        Some(b'\'') => single_quoted(&text[end + 1..])?,
        _ => (Vec::new(), &text[end..]),
    };
    word.extend(quoted);
    Some((word, rest))
}

fn single_quoted(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (mut word, mut at) = (Vec::new(), 0);
    loop {
        match (text.get(at)?, text.get(at + 1)) {
            (b'\\', Some(b'\'')) => {
                word.push(b'\'');
                at += 2;
            }
            (b'\'', next) => return closed(word, next, &text[at + 1..]),
            (byte, _) => {
                word.push(*byte);
                at += 1;
            }
        }
    }
}

fn double_quoted(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (mut word, mut at) = (Vec::new(), 0);
    loop {
        match (text.get(at)?, text.get(at + 1)) {
            (b'\\', Some(b'x')) if hexadecimal(text.get(at + 2..at + 4)).is_some() => {
                word.extend(hexadecimal(text.get(at + 2..at + 4)));
                at += 4;
            }
            (b'\\', Some(escaped)) => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                at += 2;
            }
            (b'"', next) => return closed(word, next, &text[at + 1..]),
            (byte, _) => {
                word.push(*byte);
                at += 1;
            }
        }
    }
}

/// Nothing but a blank may touch a closing quote.
fn closed<'t>(word: Vec<u8>, next: Option<&u8>, rest: &'t [u8]) -> Option<(Vec<u8>, &'t [u8])> {
    next.is_none_or(u8::is_ascii_whitespace)
        .then_some((word, rest))
}

fn hexadecimal(digits: Option<&[u8]>) -> Option<u8> {
    let digits = std::str::from_utf8(digits?).ok()?;
    if digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        u8::from_str_radix(digits, 16).ok()
    } else {
        None
    }
}
