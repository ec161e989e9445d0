//! What can go wrong, by what a caller does about it.

use std::sync::Arc;
use std::time::Duration;

use redis::RedisError;
use thiserror::Error;

use pando_ring::Address;

/// Why a request has no reply that can be used. [`Error::is_of_node`] tells the failure of a node,
/// which concerns every key that it has, from the failure of one key's request.
#[derive(Clone, Debug, Error)]
pub enum Error {
    /// The node's server cannot be reached, or the connection broke, or no reply came in time.
    #[error("node `{node}` at {address} cannot be reached{}: {source}", unknown(*sent))]
    Unreachable {
        /// The node.
        node: Arc<str>,
        /// The server's address.
        address: Address,
        /// Whether the request, or a part of it, may have arrived: whether it was executed is
        /// then unknown.
        sent: bool,
        /// What went wrong.
        source: RedisError,
    },
    /// The server could not be reached a moment ago, so this request did not try. Nothing was sent.
    #[error(
        "node `{node}` at {address} could not be reached; tried again in {} ms", left.as_millis()
    )]
    Resting {
        /// The node.
        node: Arc<str>,
        /// The server's address.
        address: Address,
        /// How long it still rests.
        left: Duration,
    },
    /// The server answers, but does not serve: it is loading, follows a primary that is away, is a
    /// replica where a primary is wanted, is full, or refuses the password. Nothing was executed.
    #[error("node `{node}` at {address} does not serve: {source}")]
    Refused {
        /// The node.
        node: Arc<str>,
        /// The server's address.
        address: Address,
        /// What it said.
        source: RedisError,
    },
    /// The server refused this command on this key.
    #[error("node `{node}`: {source}")]
    Refusal {
        /// The node.
        node: Arc<str>,
        /// What it said.
        source: RedisError,
    },
    /// The reply is not of the type that was asked for. The command was executed.
    #[error("the reply is of another type: {source}")]
    Type {
        /// What was expected.
        source: redis::ParsingError,
    },
    /// A command has no argument where its key was said to be. Nothing was sent.
    #[error("the command has no argument {at}, its key")]
    NoKey {
        /// The argument, counted from the command's name, which is 0.
        at: usize,
    },
}

impl Error {
    /// Whether the node failed, not the key: requests on its other keys will too, for now.
    pub fn is_of_node(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Resting { .. } | Self::Refused { .. }
        )
    }

    /// Whether the command may have been executed all the same.
    pub fn may_have_executed(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { sent: true, .. } | Self::Type { .. }
        )
    }

    /// The name of the node that failed or refused.
    pub fn node(&self) -> Option<&str> {
        match self {
            Self::Unreachable { node, .. }
            | Self::Resting { node, .. }
            | Self::Refused { node, .. }
            | Self::Refusal { node, .. } => Some(node),
            Self::Type { .. } | Self::NoKey { .. } => None,
        }
    }
}

fn unknown(sent: bool) -> &'static str {
    if sent {
        " (the request may have been executed)"
    } else {
        ""
    }
}
