//! What a client can do wrong below the level of commands.

use thiserror::Error;

/// Bytes that are no request. The connection is answered and closed: what follows them cannot be
/// told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProtocolError {
    /// The number of arguments is no number, or too large.
    #[error("invalid multibulk length")]
    InvalidMultibulkLength,
    /// The length of an argument is no number, negative, or too large.
    #[error("invalid bulk length")]
    InvalidBulkLength,
    /// An argument begins with something else than its length.
    #[error("expected '$', got '{}'", char::from(*got))]
    ExpectedBulk {
        /// What it begins with.
        got: u8,
    },
    /// The line that says the number of arguments does not end.
    #[error("too big mbulk count string")]
    TooBigMultibulkCount,
    /// The line that says the length of an argument does not end.
    #[error("too big bulk count string")]
    TooBigBulkCount,
    /// An inline request does not end.
    #[error("too big inline request")]
    TooBigInline,
    /// A quote of an inline request is not closed, or something follows where it is.
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
    /// The error that answers it, with its code.
    #[must_use]
    pub fn text(self) -> Vec<u8> {
        let mut text = b"ERR Protocol error: ".to_vec();
        if let ProtocolError::ExpectedBulk { got } = self {
            // The byte as it came, which need not be a character.
            text.extend_from_slice(b"expected '$', got '");
            text.push(got);
            text.push(b'\'');
        } else {
            text.extend_from_slice(self.to_string().as_bytes());
        }
        text
    }
}
