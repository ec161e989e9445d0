//! Names of trees and of values in them.

use crate::limits::KEY_BYTES_MAX;

/// Names one tree of an engine. Numbers are never reused while the engine lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub u32);

/// A key in a tree: arbitrary bytes, ordered lexicographically.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key<'a> {
    /// The tree that holds the key.
    pub tree: TreeId,
    /// The key itself, 0 to [`KEY_BYTES_MAX`] bytes.
    pub bytes: &'a [u8],
}

impl<'a> Key<'a> {
    /// Names `bytes` in `tree`.
    #[must_use]
    pub const fn new(tree: TreeId, bytes: &'a [u8]) -> Self {
        Self { tree, bytes }
    }

    /// Checks what every engine requires of a key.
    ///
    /// # Panics
    /// When it is longer than [`KEY_BYTES_MAX`].
    #[inline]
    pub fn check(self) {
        let bytes = self.bytes.len();
        assert!(bytes <= KEY_BYTES_MAX, "key of {bytes} bytes");
    }
}
