//! What is wrong with a ring.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::limits::{FILE_BYTES_MAX, NAME_BYTES_MAX, NODES_MAX, REPLICAS_MAX, WEIGHT_MAX};

/// Why a ring is refused.
#[derive(Debug, Error)]
pub enum RingError {
    /// Something is wrong with a ring file.
    #[error("ring file {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: Box<RingError>,
    },
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    /// The file is too long.
    #[error("is longer than {FILE_BYTES_MAX} bytes")]
    TooLong,
    /// The file is no UTF-8.
    #[error("is no text: byte {offset} is not UTF-8")]
    NotText {
        /// The first wrong byte.
        offset: usize,
    },
    /// The file is no TOML, lacks a field, or has one that it should not have. Names the line.
    #[error("{0}")]
    Syntax(Box<toml::de::Error>),
    /// There is no node.
    #[error("a ring needs at least one node: a table `[[node]]` with `name` and `address`")]
    NoNodes,
    /// There are too many nodes.
    #[error("{got} nodes, expected at most {NODES_MAX}")]
    TooManyNodes {
        /// How many there are.
        got: usize,
    },
    /// A name cannot be one.
    #[error(
        "the node's name `{}` is not allowed: 1 to {NAME_BYTES_MAX} bytes without spaces and \
         control characters are", name.escape_debug()
    )]
    Name {
        /// The name.
        name: String,
    },
    /// Two nodes have one name.
    #[error("two nodes are named `{name}`")]
    SameName {
        /// The name.
        name: String,
    },
    /// Two servers have one address.
    #[error("{address} is given twice: {}", twice(first, second))]
    SameAddress {
        /// The address.
        address: String,
        /// The node that has it first.
        first: String,
        /// The node that has it again, perhaps the same.
        second: String,
    },
    /// A weight cannot be one.
    #[error("node `{name}`: weight {got}, expected 1 to {WEIGHT_MAX}")]
    Weight {
        /// The node.
        name: String,
        /// The weight.
        got: i64,
    },
    /// A node has too many replicas.
    #[error("node `{name}`: {got} replicas, expected at most {REPLICAS_MAX}")]
    TooManyReplicas {
        /// The node.
        name: String,
        /// How many it has.
        got: usize,
    },
    /// A node's weight is too small for a ring of points.
    #[error("node `{name}`: its weight beside the others' gives it no point on a ketama ring")]
    NoPoints {
        /// The node.
        name: String,
    },
    /// An address is none.
    #[error("`{text}` is no address: {reason}")]
    Address {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Something is wrong with one node.
    #[error("node `{name}`: {error}")]
    OfNode {
        /// The node.
        name: String,
        /// What is wrong.
        error: Box<RingError>,
    },
    /// The new ring gives keys to other nodes, so it is no change of addresses.
    #[error("the new ring moves keys: only addresses and replicas may change under a client")]
    Moves,
}

fn twice(first: &str, second: &str) -> String {
    if first == second {
        format!("to node `{first}`")
    } else {
        format!("to node `{first}` and to node `{second}`")
    }
}
