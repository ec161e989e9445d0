//! Handles: how large forms hold their nodes, which successive versions share
//! (D2 successors-share).
//!
//! A node is read through its handle and never moves. The writer of the next version changes a node
//! in place if nobody else holds it, and copies it otherwise. Here a handle is a counted reference
//! to the heap. Forms know nothing else about it, so an engine's own memory (an offset in a pool, a
//! slot on another machine) can replace it.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use pando_sync::prefetch::prefetch_line;
use triomphe::Arc as Counted;

use super::cost;

/// Bytes a node takes beyond its content: its counter.
pub(super) const NODE_HEADER_BYTES: usize = size_of::<usize>();

/// The same of a string: two counters.
pub(super) const STRING_HEADER_BYTES: usize = 2 * size_of::<usize>();

/// Holds a node; a clone holds the same node. Without weak references, whoever asks whether it is
/// the only one reads the count and locks no line for that.
pub(super) struct Handle<T>(Counted<T>);

impl<T> Handle<T> {
    pub(super) fn new(node: T) -> Self {
        Self(Counted::new(node))
    }

    /// Whether both hold the same node.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Counted::ptr_eq(&self.0, &other.0)
    }

    /// Identifies the node among all others while it is held.
    pub(super) fn address(&self) -> *const u8 {
        Counted::as_ptr(&self.0).cast()
    }

    /// Requests the node's first line, on which its counter is.
    pub(super) fn request(&self) {
        prefetch_line(self.address());
    }

    /// Whether somebody else may hold the node: a hint, where others change handles meanwhile.
    pub(super) fn is_shared(&self) -> bool {
        Counted::count(&self.0) > 1
    }

    /// The node, if nobody else holds it.
    pub(super) fn get_mut(&mut self) -> Option<&mut T> {
        Counted::get_mut(&mut self.0)
    }
}

impl<T: Clone> Handle<T> {
    /// The node, for changes in the new version: a copy if somebody else holds it.
    pub(super) fn unshare(&mut self) -> &mut T {
        self.unshare_of(|_| size_of::<T>())
    }

    /// The same of a node that has so many bytes.
    #[inline]
    pub(super) fn unshare_of(&mut self, bytes: impl FnOnce(&T) -> usize) -> &mut T {
        if !self.0.is_unique() {
            self.copy_of(bytes(self));
        }
        self.get_mut().expect("it is this version's own")
    }

    #[cold]
    #[inline(never)]
    fn copy_of(&mut self, bytes: usize) {
        cost::copied(bytes);
        *self = Self::new((**self).clone());
    }
}

impl<T> Deref for Handle<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Clone for Handle<T> {
    #[inline]
    fn clone(&self) -> Self {
        Self(Counted::clone(&self.0))
    }
}

impl<T: fmt::Debug> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Holds a string of any length; a clone holds the same one.
#[derive(Clone)]
pub(super) struct StringHandle(Arc<[u8]>);

impl StringHandle {
    /// Whether both hold the same string.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The string, for changes in the new version: a copy if somebody else holds it.
    pub(super) fn unshare(&mut self) -> &mut [u8] {
        // For the count alone.
        if Arc::strong_count(&self.0) > 1 {
            cost::copied(self.len());
        }
        Arc::make_mut(&mut self.0)
    }
}

impl Deref for StringHandle {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for StringHandle {
    fn from(string: &[u8]) -> Self {
        Self(Arc::from(string))
    }
}

impl From<Vec<u8>> for StringHandle {
    fn from(string: Vec<u8>) -> Self {
        Self(Arc::from(string))
    }
}
