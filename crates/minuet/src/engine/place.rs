//! Where a key is: the key of its entry in a leaf, and, if it is long, what is left of it.

use std::borrow::Cow;

use pando_engine::{Key, TreeId};

use super::bundle::SHORT_BYTES;

/// Bytes of a tree's number.
pub(super) const TREE_BYTES: usize = 4;

/// Entries' keys of so many bytes need no allocation.
const ENTRY_BYTES_INLINE: usize = 48;
const _: () = assert!(ENTRY_BYTES_INLINE < TREE_BYTES + SHORT_BYTES);

/// See the module's header.
#[derive(Clone, Debug)]
pub(super) struct Place<'k> {
    inline: [u8; ENTRY_BYTES_INLINE],
    len: usize,
    /// A longer one.
    apart: Box<[u8]>,
    /// What follows the key of the bundle, of a long key.
    pub(super) rest: Option<&'k [u8]>,
}

impl<'k> Place<'k> {
    pub(super) fn of(key: Key<'k>) -> Self {
        let (short, rest) = match key.bytes.split_at_checked(SHORT_BYTES) {
            Some((short, rest)) if !rest.is_empty() => (short, Some(rest)),
            _ => (key.bytes, None),
        };
        let tree = key.tree.0.to_be_bytes();
        let end: &[u8] = if rest.is_some() { &[0] } else { &[] };
        let len = TREE_BYTES + short.len() + end.len();
        let mut place = Self {
            inline: [0; ENTRY_BYTES_INLINE],
            len,
            apart: Box::default(),
            rest,
        };
        if len <= ENTRY_BYTES_INLINE {
            // A bundle's key is longer.
            place.inline[..TREE_BYTES].copy_from_slice(&tree);
            place.inline[TREE_BYTES..len].copy_from_slice(short);
        } else {
            place.apart = [&tree[..], short, end].concat().into();
        }
        place
    }

    /// The place of an entry's key, whatever it holds.
    pub(super) fn of_entry(key: &[u8]) -> Self {
        let mut inline = [0; ENTRY_BYTES_INLINE];
        let len = key.len();
        let mut apart = Box::default();
        match inline.get_mut(..len) {
            Some(inline) => inline.copy_from_slice(key),
            None => apart = key.into(),
        }
        Self {
            inline,
            len,
            apart,
            rest: None,
        }
    }

    /// The key of the entry.
    #[inline]
    pub(super) fn entry(&self) -> &[u8] {
        self.inline.get(..self.len).unwrap_or(&self.apart)
    }

    /// The tree's number and the whole key.
    pub(super) fn whole(&self) -> Cow<'_, [u8]> {
        match self.rest {
            None => Cow::Borrowed(self.entry()),
            Some(rest) => Cow::Owned([&self.entry()[..self.len - 1], rest].concat()),
        }
    }
}

/// The key that [`Place::whole`] is of.
pub(super) fn key_of(whole: &[u8]) -> Key<'_> {
    let (tree, bytes) = whole.split_first_chunk().expect("a tree's number");
    Key::new(TreeId(u32::from_be_bytes(*tree)), bytes)
}

/// What the keys of a tree begin with, and what those of the next one do.
pub(super) fn ends(tree: TreeId) -> ([u8; TREE_BYTES], [u8; TREE_BYTES]) {
    (tree.0.to_be_bytes(), (tree.0 + 1).to_be_bytes())
}
