//! Large columns.
use std::ops::Range;

/// A large column.
#[derive(Debug)]
pub struct Chunked(Vec<u8>);

impl Chunked {
    /// Cuts `bytes` into chunks. O(length).
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
    /// Length in bytes. O(1).
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Shows the bytes of `range` piece by piece.
    pub fn for_each_piece<'a>(&'a self, range: Range<usize>, mut visit: impl FnMut(&'a [u8])) {
        visit(&self.0[range]);
    }
    /// The next version, with `bytes` at `offset`.
    #[must_use]
    pub fn with_write(&self, offset: usize, bytes: &[u8]) -> Self {
        let mut new = self.0.clone();
        if new.len() < offset + bytes.len() {
            new.resize(offset + bytes.len(), 0);
        }
        new[offset..offset + bytes.len()].copy_from_slice(bytes);
        Self(new)
    }
    /// A copy that shares nothing.
    #[must_use]
    pub fn deep_copy(&self) -> Self {
        Self(self.0.clone())
    }
    /// The same column, handed over to a successor value (D2).
    #[must_use]
    pub fn hand_over(&self) -> Self {
        Self(self.0.clone())
    }
    /// Heap bytes that the column takes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.0.len()
    }
}
