//! GET and scans.

use super::TreeId;
use super::traverse::traverse;
use crate::error::Stop;
use crate::snapshot::View;
use crate::transaction::Transaction;

/// What a key has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// The key's version. That of an absent key is its leaf's floor: no later one is lower.
    pub version: u64,
    /// Its value, if it is there.
    pub value: Option<Vec<u8>>,
}

/// An entry that a scan met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Vec<u8>,
    /// Its version.
    pub version: u64,
    /// Its value.
    pub value: Vec<u8>,
}

/// What a scan found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Entries in the order of keys.
    pub entries: Vec<Entry>,
    /// Where to go on, if the limit ended it.
    pub next: Option<Vec<u8>>,
}

impl TreeId {
    /// Reads a key. One trip if inner nodes are cached.
    pub fn get(
        self,
        transaction: &mut Transaction<'_>,
        view: View,
        key: &[u8],
    ) -> Result<Probe, Stop> {
        let key = self.key(key, transaction)?;
        let path = traverse(transaction, view, &key)?;
        let leaf = &path[path.len() - 1].page;
        let found = leaf.find(&key).ok().map(|index| leaf.entry(index));
        Ok(match found {
            Some((version, value)) => Probe {
                version,
                value: Some(value.to_vec()),
            },
            None => Probe {
                version: leaf.floor(),
                value: None,
            },
        })
    }

    /// Reads up to `limit` keys from `from`. One trip a leaf.
    pub fn scan(
        self,
        transaction: &mut Transaction<'_>,
        view: View,
        from: &[u8],
        limit: usize,
    ) -> Result<Scanned, Stop> {
        let mut from = self.key(from, transaction)?;
        let mut scanned = Scanned::default();
        loop {
            let path = traverse(transaction, view, &from)?;
            let leaf = &path[path.len() - 1].page;
            let start = leaf.find(&from).unwrap_or_else(|index| index);
            for index in start..leaf.count() {
                let key = leaf.key(index);
                let Some(rest) = key.strip_prefix(&self.0.to_be_bytes()) else {
                    return Ok(scanned);
                };
                if scanned.entries.len() == limit {
                    scanned.next = Some(rest.to_vec());
                    return Ok(scanned);
                }
                let (version, value) = leaf.entry(index);
                let entry = Entry {
                    key: rest.to_vec(),
                    version,
                    value: value.to_vec(),
                };
                scanned.entries.push(entry);
            }
            match leaf.high() {
                Some(high) if high.starts_with(&self.0.to_be_bytes()) => {
                    assert!(
                        *from < *high,
                        "a leaf ends after what it is responsible for"
                    );
                    from = high.to_vec();
                }
                _ => return Ok(scanned),
            }
        }
    }
}
