//! A reply as its receiver sees it.
//!
//! Every wire type has its own variant, including the three kinds of null, so that tests can
//! compare replies to the byte.

use std::fmt;

/// A decoded reply of RESP2 or RESP3.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    /// `_`.
    Null,
    /// `$-1`.
    NullBulk,
    /// `*-1`.
    NullArray,
    /// `+`: a status.
    Simple(Vec<u8>),
    /// `-`: an error, its code included.
    Error(Vec<u8>),
    /// `!`: an error that may have several lines.
    BulkError(Vec<u8>),
    /// `:`.
    Integer(i64),
    /// `#`.
    Boolean(bool),
    /// `,`: a double in its printed form, which the decoder has checked.
    Double(Vec<u8>),
    /// `(`: an integer of any length in its printed form.
    BigNumber(Vec<u8>),
    /// `$`.
    Bulk(Vec<u8>),
    /// `=`: text of a format, three bytes such as `txt`.
    Verbatim([u8; 3], Vec<u8>),
    /// `*`.
    Array(Vec<Value>),
    /// `%`.
    Map(Vec<(Value, Value)>),
    /// `~`.
    Set(Vec<Value>),
    /// `>`: an out-of-band message.
    Push(Vec<Value>),
    /// `|`: a value preceded by attributes.
    Attributed(Vec<(Value, Value)>, Box<Value>),
}

impl Value {
    /// Whether it is null, of any kind.
    #[must_use]
    pub const fn is_null(&self) -> bool {
        matches!(self, Value::Null | Value::NullBulk | Value::NullArray)
    }

    /// Whether it is an error.
    #[must_use]
    pub const fn is_error(&self) -> bool {
        matches!(self, Value::Error(_) | Value::BulkError(_))
    }

    /// The bytes of a status, error, string, text or printed number.
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Simple(bytes)
            | Value::Error(bytes)
            | Value::BulkError(bytes)
            | Value::Double(bytes)
            | Value::BigNumber(bytes)
            | Value::Bulk(bytes)
            | Value::Verbatim(_, bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The integer.
    #[must_use]
    pub const fn as_integer(&self) -> Option<i64> {
        match self {
            Value::Integer(value) => Some(*value),
            _ => None,
        }
    }

    /// The elements of an array, set or message.
    #[must_use]
    pub fn as_elements(&self) -> Option<&[Value]> {
        match self {
            Value::Array(elements) | Value::Set(elements) | Value::Push(elements) => Some(elements),
            _ => None,
        }
    }

    /// The pairs of a map.
    #[must_use]
    pub fn as_pairs(&self) -> Option<&[(Value, Value)]> {
        match self {
            Value::Map(pairs) => Some(pairs),
            _ => None,
        }
    }
}

/// One line, without loss: `["GET", (integer) 1, nil]`.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::NullBulk => f.write_str("null-bulk"),
            Value::NullArray => f.write_str("null-array"),
            Value::Simple(text) => write!(f, "+{}", text.escape_ascii()),
            Value::Error(text) => write!(f, "-{}", text.escape_ascii()),
            Value::BulkError(text) => write!(f, "!{}", text.escape_ascii()),
            Value::Integer(value) => write!(f, "{value}"),
            Value::Boolean(value) => write!(f, "#{value}"),
            Value::Double(text) => write!(f, ",{}", text.escape_ascii()),
            Value::BigNumber(text) => write!(f, "({}", text.escape_ascii()),
            Value::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Value::Verbatim(format, text) => {
                let (format, text) = (format.escape_ascii(), text.escape_ascii());
                write!(f, "={format}:\"{text}\"")
            }
            Value::Array(elements) => write_elements(f, "[", elements, "]"),
            Value::Set(elements) => write_elements(f, "~[", elements, "]"),
            Value::Push(elements) => write_elements(f, ">[", elements, "]"),
            Value::Map(pairs) => write_pairs(f, "{", pairs, "}"),
            Value::Attributed(pairs, value) => {
                write_pairs(f, "|{", pairs, "} ")?;
                value.fmt(f)
            }
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn write_elements(
    f: &mut fmt::Formatter<'_>,
    open: &str,
    elements: &[Value],
    close: &str,
) -> fmt::Result {
    f.write_str(open)?;
    for (index, element) in elements.iter().enumerate() {
        let separator = if index > 0 { ", " } else { "" };
        write!(f, "{separator}{element}")?;
    }
    f.write_str(close)
}

fn write_pairs(
    f: &mut fmt::Formatter<'_>,
    open: &str,
    pairs: &[(Value, Value)],
    close: &str,
) -> fmt::Result {
    f.write_str(open)?;
    for (index, (key, value)) in pairs.iter().enumerate() {
        let separator = if index > 0 { ", " } else { "" };
        write!(f, "{separator}{key}: {value}")?;
    }
    f.write_str(close)
}
