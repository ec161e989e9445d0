//! The configuration file: a setting on each line, `name value`, as in `redis.conf`.
//!
//! Words are separated by blanks. A word in double quotes knows `\n \r \t \b \a \" \\` and `\xHH`;
//! one in single quotes only `\'`. A line whose first nonblank character is `#` is a comment. Of
//! two lines with the same setting the later one applies; lines of `save` add up until an empty
//! one.
//!
//! `include` reads another file in its place. Its path may be a pattern (`*`, `?`, `[...]`), whose
//! files, possibly none, are read in name order. Paths are relative to the server's working
//! directory, as in Redis. Depth, number and size of files are bounded.
//!
//! Reading continues after an error, so that all of them are reported.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use pando_protocol::pattern;

use super::Config;
use super::error::{ConfigError, Origin, SettingError};
use super::persistence::{self, Given};
use super::setting::Setting;
use crate::limits;

/// The settings read so far; of two values of a setting the later one applies.
#[derive(Debug, Default)]
pub(super) struct Reading {
    config: Config,
    given: Given,
    errors: Vec<ConfigError>,
    files: usize,
}

impl Reading {
    /// Reads the file of the command line; `-` is the standard input.
    pub(super) fn file(&mut self, path: &Path) {
        let text = if path == Path::new("-") {
            read(io::stdin().lock())
        } else {
            // An absolute path, so that CONFIG REWRITE and INFO always mean the same file.
            let absolute = std::path::absolute(path);
            self.config.file = Some(absolute.unwrap_or_else(|_| path.to_owned()));
            open(path)
        };
        match text {
            Ok(text) => self.lines(path, &text, 0),
            Err(error) => self.errors.push(ConfigError::Read {
                path: path.to_owned(),
                error,
            }),
        }
    }

    /// Takes the lines of a file that is included from `depth` others.
    pub(super) fn lines(&mut self, path: &Path, text: &[u8], depth: usize) {
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let origin = || Origin::File {
                path: path.to_owned(),
                line: index + 1,
            };
            if self.errors.len() >= limits::CONFIG_ERRORS_MAX {
                return;
            }
            let Some(words) = split(line) else {
                self.errors.push(ConfigError::Quotes { origin: origin() });
                continue;
            };
            match words.split_first() {
                Some((name, paths)) if name.eq_ignore_ascii_case(b"include") => {
                    for path in paths {
                        self.include(&origin(), path, depth);
                    }
                }
                Some((name, values)) => self.set(name, &values.join(&b' '), origin()),
                None => {}
            }
        }
    }

    /// Takes a value of the setting with this name.
    pub(super) fn set(&mut self, name: &[u8], value: &[u8], origin: Origin) {
        let Some(setting) = Setting::find(name) else {
            let got = String::from_utf8_lossy(name).into_owned();
            let error = SettingError::Unknown { got };
            self.errors.push(ConfigError::Setting { origin, error });
            return;
        };
        let mut value = value.to_vec();
        let result = match persistence::check(setting, &value) {
            Some(result) => result.map_err(|expected| setting.refuse(&value, expected)),
            None => setting.set(&mut self.config, &value),
        };
        if let Err(error) = result {
            self.errors.push(ConfigError::Setting { origin, error });
            return;
        }
        if let ("save", Some((before, _))) = (setting.name, self.given.get("save"))
            && !(before.is_empty() || value.is_empty())
        {
            value = [before.as_slice(), &value].join(&b' ');
        }
        self.given.insert(setting.name, (value, origin));
    }

    /// Records an error.
    pub(super) fn refuse(&mut self, error: ConfigError) {
        self.errors.push(error);
    }

    /// Reads the files that a line includes.
    fn include(&mut self, origin: &Origin, path: &[u8], depth: usize) {
        for path in expand(Path::new(&*String::from_utf8_lossy(path))) {
            self.files += 1;
            let bound = if depth >= limits::INCLUDE_DEPTH_MAX {
                Some(("files within each other", limits::INCLUDE_DEPTH_MAX))
            } else if self.files > limits::INCLUDE_FILES_MAX {
                Some(("files", limits::INCLUDE_FILES_MAX))
            } else {
                None
            };
            let origin = origin.clone();
            if let Some((what, most)) = bound {
                self.errors
                    .push(ConfigError::Includes { origin, what, most });
                return;
            }
            match open(&path) {
                Ok(text) => self.lines(&path, &text, depth + 1),
                Err(error) => self.errors.push(ConfigError::Include {
                    origin,
                    path,
                    error,
                }),
            }
        }
    }

    /// The configuration, after everything was read.
    pub(super) fn finish(mut self) -> Result<Config, ConfigError> {
        match self.errors.len() {
            0 => {}
            1 => return Err(self.errors.remove(0)),
            _ => return Err(ConfigError::Several(self.errors)),
        }
        let mut config = self.config;
        persistence::settle(&mut config, &self.given);
        if !config.inert.is_empty() {
            let names: Vec<&str> = config.inert.keys().copied().collect();
            let remark = format!("settings that mean nothing here: {}", names.join(", "));
            config.remarks.push(remark);
        }
        config.validate()?;
        Ok(config)
    }
}

fn open(path: &Path) -> io::Result<Vec<u8>> {
    read(std::fs::File::open(path)?)
}

/// Reads up to the limit of a file.
fn read(source: impl Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let most = limits::CONFIG_FILE_BYTES_MAX;
    source.take(most as u64 + 1).read_to_end(&mut text)?;
    if text.len() > most {
        let error = format!("it has more than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, error));
    }
    Ok(text)
}

/// The files that a path of `include` means: itself, or those that match a pattern, in order.
fn expand(path: &Path) -> Vec<PathBuf> {
    let is_pattern = |part: &[u8]| part.iter().any(|byte| b"*?[".contains(byte));
    let bytes = |part: &std::ffi::OsStr| part.to_string_lossy().into_owned().into_bytes();
    if !is_pattern(&bytes(path.as_os_str())) {
        return vec![path.to_owned()];
    }
    let mut found = vec![PathBuf::new()];
    for part in path.components() {
        let part = part.as_os_str();
        if !is_pattern(&bytes(part)) {
            for path in &mut found {
                path.push(part);
            }
            continue;
        }
        let pattern = bytes(part);
        let names = |directory: &PathBuf| {
            let here = Path::new(".");
            let listed = if directory.as_os_str().is_empty() {
                here
            } else {
                directory
            };
            let entries = std::fs::read_dir(listed).into_iter().flatten().flatten();
            let mut names: Vec<_> = entries
                .map(|entry| entry.file_name())
                .filter(|name| {
                    let name = bytes(name);
                    // A pattern matches a hidden file only explicitly.
                    (name[0] != b'.' || pattern[0] == b'.') && pattern::matches(&pattern, &name)
                })
                .map(|name| directory.join(name))
                .collect();
            names.sort();
            names
        };
        found = found.iter().flat_map(names).collect();
    }
    found.retain(|path| path.is_file());
    found
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

/// Only a blank may follow a closing quote.
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
