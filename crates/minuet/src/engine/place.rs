//! Where a key is: the key of its entry in a leaf, and, if it is long, what is left of it.

use std::borrow::Cow;

use pando_engine::{Key, TreeId};

use super::bundle::SHORT_BYTES;

/// Bytes of a tree's number.
pub(super) const TREE_BYTES: usize = 4;

const ENTRY_BYTES_MAX: usize = TREE_BYTES + SHORT_BYTES + 1;

/// See the module's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'k> {
    entry: [u8; ENTRY_BYTES_MAX],
    len: usize,
    /// What follows the key of the bundle, of a long key.
    pub(super) rest: Option<&'k [u8]>,
}

impl<'k> Place<'k> {
    pub(super) fn of(key: Key<'k>) -> Self {
        let mut entry = [0; ENTRY_BYTES_MAX];
        entry[..TREE_BYTES].copy_from_slice(&key.tree.0.to_be_bytes());
        let (short, rest) = match key.bytes.split_at_checked(SHORT_BYTES) {
            Some((short, rest)) if !rest.is_empty() => (short, Some(rest)),
            _ => (key.bytes, None),
        };
        entry[TREE_BYTES..][..short.len()].copy_from_slice(short);
        // The zero of a bundle's key is there already.
        let len = TREE_BYTES + short.len() + usize::from(rest.is_some());
        Self { entry, len, rest }
    }

    /// The place of an entry's key, whatever it holds.
    pub(super) fn of_entry(key: &[u8]) -> Self {
        let mut entry = [0; ENTRY_BYTES_MAX];
        entry[..key.len()].copy_from_slice(key);
        Self {
            entry,
            len: key.len(),
            rest: None,
        }
    }

    /// The key of the entry.
    pub(super) fn entry(&self) -> &[u8] {
        &self.entry[..self.len]
    }

    /// The tree's number and the whole key.
    pub(super) fn whole(&self) -> Cow<'_, [u8]> {
        match self.rest {
            None => Cow::Borrowed(self.entry()),
            Some(rest) => Cow::Owned([&self.entry[..self.len - 1], rest].concat()),
        }
    }
}

/// What the keys of a tree begin with, and what those of the next one do.
pub(super) fn ends(tree: TreeId) -> ([u8; TREE_BYTES], [u8; TREE_BYTES]) {
    (tree.0.to_be_bytes(), (tree.0 + 1).to_be_bytes())
}
