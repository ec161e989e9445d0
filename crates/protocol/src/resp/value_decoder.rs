//! The decoder of replies, for tests and tools that act as clients.
//!
//! It consumes all its input and keeps what is unfinished itself: the beginning of a line or
//! string, and the open aggregates, outermost first. Nothing is recursive, so nesting is bounded by
//! a number, not by the stack.
//!
//! Deliberately absent: aggregates and strings of undeclared length, which no server sends.

use thiserror::Error;

use super::Value;
use crate::limits::{REPLY_BULK_BYTES_MAX, REPLY_DEPTH_MAX, REPLY_LINE_BYTES_MAX};
use crate::number::{parse_f64, parse_i64};

/// Elements for which an aggregate reserves space because of its header alone.
const TRUSTED_LEN_MAX: usize = 1024;

/// Bytes that are not a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReplyError {
    /// A line begins with a byte that is not a type.
    #[error("{kind:#04x} begins no reply")]
    UnknownType {
        /// The byte.
        kind: u8,
    },
    /// A line is invalid for its type, or does not end in CR LF.
    #[error("malformed line of type {kind:#04x}")]
    MalformedLine {
        /// The first byte of the line.
        kind: u8,
    },
    /// A string is not followed by CR LF.
    #[error("a string is not followed by CR LF")]
    UnterminatedString,
    /// A line is longer than [`REPLY_LINE_BYTES_MAX`].
    #[error("a line has more than {REPLY_LINE_BYTES_MAX} bytes")]
    LineTooLong,
    /// Aggregates are nested deeper than [`REPLY_DEPTH_MAX`].
    #[error("aggregates are nested deeper than {REPLY_DEPTH_MAX}")]
    TooDeep,
}

/// Decodes the replies of one connection.
#[derive(Debug, Default)]
pub struct ValueDecoder {
    line: Vec<u8>,
    string: Option<PartialString>,
    open: Vec<Aggregate>,
}

/// A string whose bytes are arriving.
#[derive(Debug)]
struct PartialString {
    kind: u8,
    /// Without the CR LF that follows.
    len: usize,
    bytes: Vec<u8>,
}

/// An aggregate whose elements are arriving.
#[derive(Debug)]
struct Aggregate {
    kind: u8,
    elements: Vec<Value>,
    left: usize,
    /// Attributes that precede the one element of a [`Value::Attributed`].
    attributes: Vec<(Value, Value)>,
}

impl ValueDecoder {
    /// A decoder between replies.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether no part of a reply has arrived.
    #[must_use]
    pub fn is_between_replies(&self) -> bool {
        self.line.is_empty() && self.string.is_none() && self.open.is_empty()
    }

    /// Decodes from `input` and advances it past what was consumed: past the reply if there is one,
    /// else to its end. After an error the decoder must not be used again.
    pub fn next(&mut self, input: &mut &[u8]) -> Result<Option<Value>, ReplyError> {
        while !input.is_empty() {
            let whole = if self.string.is_some() {
                self.string_bytes(input)?
            } else {
                self.line_bytes(input)?
            };
            if let Some(reply) = whole.and_then(|value| self.close(value)) {
                return Ok(Some(reply));
            }
        }
        Ok(None)
    }

    /// Takes bytes of the string that is arriving; returns it when it is whole.
    fn string_bytes(&mut self, input: &mut &[u8]) -> Result<Option<Value>, ReplyError> {
        let Some(string) = &mut self.string else {
            return Ok(None);
        };
        let missing = string.len + 2 - string.bytes.len();
        let (bytes, rest) = input.split_at(missing.min(input.len()));
        string.bytes.extend_from_slice(bytes);
        *input = rest;
        if bytes.len() < missing {
            return Ok(None);
        }
        let PartialString {
            kind, mut bytes, ..
        } = self.string.take().expect("it is arriving");
        if !bytes.ends_with(b"\r\n") {
            return Err(ReplyError::UnterminatedString);
        }
        bytes.truncate(bytes.len() - 2);
        match kind {
            b'$' => Ok(Some(Value::Bulk(bytes))),
            b'!' => Ok(Some(Value::BulkError(bytes))),
            _ => match bytes.split_first_chunk() {
                Some((format, [b':', text @ ..])) => {
                    Ok(Some(Value::Verbatim(*format, text.to_vec())))
                }
                _ => Err(ReplyError::MalformedLine { kind }),
            },
        }
    }

    /// Takes bytes of a line; once it is complete, begins or returns what it stands for.
    fn line_bytes(&mut self, input: &mut &[u8]) -> Result<Option<Value>, ReplyError> {
        let newline = input.iter().position(|byte| *byte == b'\n');
        let (bytes, rest) = input.split_at(newline.map_or(input.len(), |index| index + 1));
        if self.line.len() + bytes.len() > REPLY_LINE_BYTES_MAX {
            return Err(ReplyError::LineTooLong);
        }
        self.line.extend_from_slice(bytes);
        *input = rest;
        if newline.is_none() {
            return Ok(None);
        }
        let line = std::mem::take(&mut self.line);
        let kind = line[0];
        let malformed = ReplyError::MalformedLine { kind };
        let text = line
            .strip_suffix(b"\r\n")
            .and_then(|line| line.get(1..))
            .ok_or(malformed)?;
        let number = || parse_i64(text).ok_or(malformed);
        match kind {
            b'+' => Ok(Some(Value::Simple(text.to_vec()))),
            b'-' => Ok(Some(Value::Error(text.to_vec()))),
            b':' => Ok(Some(Value::Integer(number()?))),
            b'_' if text.is_empty() => Ok(Some(Value::Null)),
            b'#' if matches!(text, b"t" | b"f") => Ok(Some(Value::Boolean(text == b"t"))),
            b',' if is_double(text) => Ok(Some(Value::Double(text.to_vec()))),
            b'(' if is_integer(text) => Ok(Some(Value::BigNumber(text.to_vec()))),
            b'$' | b'!' | b'=' => self.begin_string(kind, number()?),
            b'*' | b'%' | b'~' | b'>' | b'|' => self.begin_aggregate(kind, number()?),
            b'_' | b'#' | b',' | b'(' => Err(malformed),
            _ => Err(ReplyError::UnknownType { kind }),
        }
    }

    fn begin_string(&mut self, kind: u8, len: i64) -> Result<Option<Value>, ReplyError> {
        if kind == b'$' && len == -1 {
            return Ok(Some(Value::NullBulk));
        }
        let len = usize::try_from(len).ok();
        let len = len.filter(|len| *len <= REPLY_BULK_BYTES_MAX);
        self.string = Some(PartialString {
            kind,
            len: len.ok_or(ReplyError::MalformedLine { kind })?,
            bytes: Vec::new(),
        });
        Ok(None)
    }

    fn begin_aggregate(&mut self, kind: u8, len: i64) -> Result<Option<Value>, ReplyError> {
        if kind == b'*' && len == -1 {
            return Ok(Some(Value::NullArray));
        }
        let per_item = if matches!(kind, b'%' | b'|') { 2 } else { 1 };
        let left = usize::try_from(len).ok();
        let left = left.and_then(|len| len.checked_mul(per_item));
        let left = left.ok_or(ReplyError::MalformedLine { kind })?;
        let aggregate = Aggregate {
            kind,
            elements: Vec::with_capacity(left.min(TRUSTED_LEN_MAX)),
            left,
            attributes: Vec::new(),
        };
        if left == 0 && kind != b'|' {
            return Ok(Some(aggregate.finish()));
        }
        if self.open.len() == REPLY_DEPTH_MAX {
            return Err(ReplyError::TooDeep);
        }
        self.open.push(aggregate);
        if left == 0 {
            self.open.last_mut().expect("just pushed").attributes_end();
        }
        Ok(None)
    }

    /// Adds a complete value to its parent; returns the outermost one when that is complete too.
    fn close(&mut self, mut value: Value) -> Option<Value> {
        while let Some(mut aggregate) = self.open.pop() {
            aggregate.elements.push(value);
            aggregate.left -= 1;
            if aggregate.left == 0 && aggregate.kind == b'|' && aggregate.attributes.is_empty() {
                aggregate.attributes_end();
            }
            if aggregate.left > 0 {
                self.open.push(aggregate);
                return None;
            }
            value = aggregate.finish();
        }
        Some(value)
    }
}

impl Aggregate {
    /// The attributes are complete; the value they precede follows.
    fn attributes_end(&mut self) {
        self.attributes = pairs(std::mem::take(&mut self.elements));
        self.kind = ATTRIBUTED;
        self.left = 1;
    }

    fn finish(mut self) -> Value {
        match self.kind {
            b'*' => Value::Array(self.elements),
            b'~' => Value::Set(self.elements),
            b'>' => Value::Push(self.elements),
            b'%' => Value::Map(pairs(self.elements)),
            _ => {
                let value = self.elements.pop().expect("one value follows attributes");
                Value::Attributed(self.attributes, Box::new(value))
            }
        }
    }
}

/// The kind of an aggregate whose attributes are complete; not a wire type.
const ATTRIBUTED: u8 = 0;

fn pairs(elements: Vec<Value>) -> Vec<(Value, Value)> {
    let mut elements = elements.into_iter();
    let mut pairs = Vec::with_capacity(elements.len() / 2);
    while let (Some(key), Some(value)) = (elements.next(), elements.next()) {
        pairs.push((key, value));
    }
    pairs
}

fn is_double(text: &[u8]) -> bool {
    text == b"nan" || parse_f64(text).is_some()
}

fn is_integer(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests;
