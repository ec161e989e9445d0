//! Protocol errors of clients.

use thiserror::Error;

/// Bytes that are not a request. The connection gets an error and is closed: what follows cannot be
/// parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// The number of arguments is not a number, or too large.
    #[error("invalid multibulk length")]
    InvalidMultibulkLength,
    /// The length of an argument is not a number, negative, or too large.
    #[error("invalid bulk length")]
    InvalidBulkLength,
    /// An argument does not begin with its length.
    #[error("expected '$', got '{}'", char::from(*got))]
    ExpectedBulk {
        /// Its first byte.
        got: u8,
    },
    /// The line with the number of arguments does not end.
    #[error("too big mbulk count string")]
    TooBigMultibulkCount,
    /// The line with the length of an argument does not end.
    #[error("too big bulk count string")]
    TooBigBulkCount,
    /// An inline request does not end.
    #[error("too big inline request")]
    TooBigInline,
    /// A quote in an inline request is not closed, or not followed by a space.
    #[error("unbalanced quotes in request")]
    UnbalancedQuotes,
    /// More arguments than a client may send before it has authenticated.
    #[error("unauthenticated multibulk length")]
    UnauthenticatedMultibulkLength,
    /// A longer argument than a client may send before it has authenticated.
    #[error("unauthenticated bulk length")]
    UnauthenticatedBulkLength,
}

impl ProtocolError {
    /// Its error reply, with its code.
    #[must_use]
    pub fn text(self) -> Vec<u8> {
        let mut text = b"ERR Protocol error: ".to_vec();
        if let ProtocolError::ExpectedBulk { got } = self {
            // The byte as it arrived, which need not be a character.
            text.extend_from_slice(b"expected '$', got '");
            text.push(got);
            text.push(b'\'');
        } else {
            text.extend_from_slice(self.to_string().as_bytes());
        }
        text
    }
}
