//! Ring files, in TOML.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;

use crate::error::RingError;
use crate::limits::FILE_BYTES_MAX;
use crate::ring::{Node, Ring, Scheme};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RingTable {
    #[serde(default)]
    scheme: Scheme,
    #[serde(default = "heeded")]
    tags: bool,
    #[serde(default, rename = "node")]
    nodes: Vec<NodeTable>,
}

fn heeded() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeTable {
    name: String,
    address: String,
    weight: Option<i64>,
    #[serde(default)]
    replicas: Vec<String>,
}

pub(super) fn load(path: &Path) -> Result<Ring, RingError> {
    read(path)
        .and_then(|text| parse(&text))
        .map_err(|error| RingError::File {
            path: path.to_owned(),
            error: Box::new(error),
        })
}

fn read(path: &Path) -> Result<String, RingError> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(RingError::Unreadable)?;
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(RingError::Unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(RingError::TooLong);
    }
    String::from_utf8(bytes).map_err(|error| RingError::NotText {
        offset: error.utf8_error().valid_up_to(),
    })
}

pub(super) fn parse(text: &str) -> Result<Ring, RingError> {
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(RingError::TooLong);
    }
    let table: RingTable =
        toml::from_str(text).map_err(|error| RingError::Syntax(Box::new(error)))?;
    let nodes: Result<Vec<Node>, RingError> = table.nodes.iter().map(node).collect();
    let ring = Ring::new(table.scheme, nodes?)?;
    Ok(if table.tags {
        ring
    } else {
        ring.without_tags()
    })
}

fn node(table: &NodeTable) -> Result<Node, RingError> {
    let name = &table.name;
    let at = |text: &str| {
        text.parse().map_err(|error| RingError::OfNode {
            name: name.clone(),
            error: Box::new(error),
        })
    };
    let mut node = Node::new(name, at(&table.address)?);
    if let Some(got) = table.weight {
        let weight = u32::try_from(got).map_err(|_| RingError::Weight {
            name: name.clone(),
            got,
        })?;
        node = node.with_weight(weight);
    }
    for replica in &table.replicas {
        node = node.with_replica(at(replica)?);
    }
    Ok(node)
}
