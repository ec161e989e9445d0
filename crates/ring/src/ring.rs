//! Rings: which node has which key.
//!
//! A key's node follows from the ring's scheme, whether it heeds tags, and the *names* and weights
//! of its nodes. Addresses play no part: a node moves to another machine, or a replica takes its
//! place, and no key moves.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::address::Address;
use crate::error::RingError;
use crate::limits::{NAME_BYTES_MAX, NODES_MAX, RANGES, REPLICAS_MAX, WEIGHT_MAX};
use crate::{file, ketama, rendezvous, tag};

/// How keys are spread over nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// Weighted rendezvous hashing: even to a fraction of a percent, and only the keys of a node
    /// that comes, goes or changes its weight move. A look-up costs a short hash a node.
    #[default]
    Rendezvous,
    /// Consistent hashing with 160 points a node, as clients of memcached do it: for keys that are
    /// spread so already. Ten nodes are even within some 20 %. A look-up costs a digest and a
    /// binary search. Nodes are then named as those clients name them: `host:port` for Couchbase's,
    /// `host` on memcached's own port for libmemcached.
    Ketama,
}

impl fmt::Display for Scheme {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Rendezvous => "rendezvous",
            Self::Ketama => "ketama",
        })
    }
}

/// A node: one primary, and the replicas that follow it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    name: Arc<str>,
    address: Address,
    weight: u32,
    replicas: Vec<Address>,
}

impl Node {
    /// A node of weight 1 without replicas.
    pub fn new(name: &str, address: Address) -> Self {
        Self {
            name: name.into(),
            address,
            weight: 1,
            replicas: Vec::new(),
        }
    }

    /// With this weight, from 1 to [`WEIGHT_MAX`]: its share of the keys is its share of all
    /// weights.
    #[must_use]
    pub fn with_weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// With one more replica, for reads.
    #[must_use]
    pub fn with_replica(mut self, address: Address) -> Self {
        self.replicas.push(address);
        self
    }

    /// The name, by which it has its keys.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its primary is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Its weight.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// Where its replicas are.
    pub fn replicas(&self) -> &[Address] {
        &self.replicas
    }

    /// The name, to be shared.
    pub fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    fn check(&self) -> Result<(), RingError> {
        let name = self.name.to_string();
        let strange = |byte: char| byte.is_control() || byte.is_whitespace();
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains(strange) {
            return Err(RingError::Name { name });
        }
        if !(1..=WEIGHT_MAX).contains(&self.weight) {
            let got = self.weight.into();
            return Err(RingError::Weight { name, got });
        }
        if self.replicas.len() > REPLICAS_MAX {
            let got = self.replicas.len();
            return Err(RingError::TooManyReplicas { name, got });
        }
        Ok(())
    }
}

/// Nodes, and the rule that gives each key one of them. Cheap to share in an [`Arc`].
#[derive(Clone, Debug)]
pub struct Ring {
    nodes: Vec<Node>,
    tags: bool,
    rule: Rule,
}

/// What decides on a key, and its hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hashed<'k> {
    tag: &'k [u8],
    hash: u64,
}

impl Hashed<'_> {
    /// See [`Ring::range_of`].
    #[inline]
    pub(crate) fn range(self) -> usize {
        // Rendezvous hashing draws from the hash of this hash, so a range has keys of all nodes.
        (self.hash as usize) % RANGES
    }
}

#[derive(Clone, Debug)]
enum Rule {
    Rendezvous(rendezvous::Bidders),
    Ketama(ketama::Continuum),
}

impl Ring {
    /// A ring of `nodes` that heeds tags.
    pub fn new(scheme: Scheme, nodes: Vec<Node>) -> Result<Self, RingError> {
        if nodes.is_empty() {
            return Err(RingError::NoNodes);
        }
        if nodes.len() > NODES_MAX {
            return Err(RingError::TooManyNodes { got: nodes.len() });
        }
        for node in &nodes {
            node.check()?;
        }
        check_unique(&nodes)?;
        let names: Vec<&str> = nodes.iter().map(Node::name).collect();
        let weights: Vec<u32> = nodes.iter().map(Node::weight).collect();
        let rule = match scheme {
            Scheme::Rendezvous => Rule::Rendezvous(rendezvous::Bidders::new(&names, &weights)),
            Scheme::Ketama => match ketama::without_points(&weights) {
                Some(node) => {
                    let name = names[node].to_owned();
                    return Err(RingError::NoPoints { name });
                }
                None => Rule::Ketama(ketama::Continuum::new(&names, &weights)),
            },
        };
        Ok(Self {
            nodes,
            tags: true,
            rule,
        })
    }

    /// The same ring, which hashes whole keys: for keys that clients without tags spread.
    #[must_use]
    pub fn without_tags(mut self) -> Self {
        self.tags = false;
        self
    }

    /// Reads a ring file: see the crate's front page for what it holds.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, RingError> {
        file::load(path.as_ref())
    }

    /// Reads the text of a ring file.
    pub fn from_toml(text: &str) -> Result<Self, RingError> {
        file::parse(text)
    }

    /// The nodes, in the order of the file.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node with this name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name() == name)
    }

    /// How it spreads keys.
    pub fn scheme(&self) -> Scheme {
        match self.rule {
            Rule::Rendezvous(_) => Scheme::Rendezvous,
            Rule::Ketama(_) => Scheme::Ketama,
        }
    }

    /// Whether it heeds `{tags}`.
    pub fn has_tags(&self) -> bool {
        self.tags
    }

    /// The node that has `key`.
    pub fn node_of(&self, key: &[u8]) -> &Node {
        &self.nodes[self.index_of(key)]
    }

    /// The index in [`Ring::nodes`] of the node that has `key`.
    pub fn index_of(&self, key: &[u8]) -> usize {
        self.index_of_hashed(self.hash(key))
    }

    /// The same for a key that this ring has hashed, or one that heeds tags alike.
    #[inline]
    pub(crate) fn index_of_hashed(&self, key: Hashed<'_>) -> usize {
        match &self.rule {
            Rule::Rendezvous(bidders) => bidders.node_of(key.hash),
            Rule::Ketama(continuum) => continuum.node_of(key.tag),
        }
    }

    /// What rings look at of a key.
    #[inline]
    pub(crate) fn hash<'k>(&self, key: &'k [u8]) -> Hashed<'k> {
        let tag = if self.tags { tag::tag(key) } else { key };
        let hash = xxh3_64(tag);
        Hashed { tag, hash }
    }

    /// The range of `key`, below [`RANGES`]: a part of all keys by a hash of what the ring hashes.
    /// It does not depend on the nodes.
    pub fn range_of(&self, key: &[u8]) -> usize {
        self.hash(key).range()
    }

    /// From which node to which `key` moves when `new` takes this ring's place, if it does.
    pub fn moves<'a>(&'a self, new: &'a Self, key: &[u8]) -> Option<(&'a Node, &'a Node)> {
        let (from, to) = (self.node_of(key), new.node_of(key));
        (from.name != to.name).then_some((from, to))
    }

    /// Whether `other` gives every key to the node of the same name.
    pub fn places_alike(&self, other: &Self) -> bool {
        let sorted = |ring: &Self| {
            let mut nodes: Vec<_> = ring
                .nodes
                .iter()
                .map(|node| (Arc::clone(&node.name), node.weight))
                .collect();
            // Ketama gives a point that two nodes have to the later one.
            if ring.scheme() == Scheme::Rendezvous {
                nodes.sort_unstable();
            }
            (ring.scheme(), ring.tags, nodes)
        };
        sorted(self) == sorted(other)
    }
}

/// No two nodes share a name, no two servers an address.
fn check_unique(nodes: &[Node]) -> Result<(), RingError> {
    let mut names = HashSet::new();
    let mut addresses = HashMap::new();
    for node in nodes {
        let name = node.name.to_string();
        if !names.insert(&node.name) {
            return Err(RingError::SameName { name });
        }
        for address in std::iter::once(&node.address).chain(&node.replicas) {
            if let Some(first) = addresses.insert(address, node) {
                return Err(RingError::SameAddress {
                    address: address.to_string(),
                    first: first.name.to_string(),
                    second: name,
                });
            }
        }
    }
    Ok(())
}
