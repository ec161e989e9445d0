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

use super::cost;

/// Bytes a node takes beyond its content: its two counters.
pub(super) const NODE_HEADER_BYTES: usize = 2 * size_of::<usize>();

/// Holds a node; a clone holds the same node.
pub(super) struct Handle<T: ?Sized>(Arc<T>);

impl<T: ?Sized> Handle<T> {
    /// Whether both hold the same node.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Identifies the node among all others while it is held.
    pub(super) fn address(&self) -> *const u8 {
        Arc::as_ptr(&self.0).cast()
    }

    /// Whether somebody else may hold the node: a hint, where others change handles meanwhile.
    pub(super) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// The node, if nobody else holds it.
    pub(super) fn get_mut(&mut self) -> Option<&mut T> {
        Arc::get_mut(&mut self.0)
    }
}

impl<T> Handle<T> {
    pub(super) fn new(node: T) -> Self {
        Self(Arc::new(node))
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
        // For the count alone.
        if self.is_shared() {
            cost::copied(bytes(self));
        }
        Arc::make_mut(&mut self.0)
    }
}

impl<T: Clone> Handle<[T]> {
    /// The node, for changes in the new version: a copy if somebody else holds it.
    pub(super) fn unshare(&mut self) -> &mut [T] {
        // For the count alone.
        if Arc::strong_count(&self.0) > 1 {
            cost::copied(size_of_val(&**self));
        }
        Arc::make_mut(&mut self.0)
    }
}

impl<T: ?Sized> Deref for Handle<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized> Clone for Handle<T> {
    #[inline]
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Default for Handle<[T]> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone> From<&[T]> for Handle<[T]> {
    fn from(slice: &[T]) -> Self {
        Self(Arc::from(slice))
    }
}

impl<T> From<Vec<T>> for Handle<[T]> {
    fn from(list: Vec<T>) -> Self {
        Self(Arc::from(list))
    }
}

impl<T> FromIterator<T> for Handle<[T]> {
    fn from_iter<I: IntoIterator<Item = T>>(nodes: I) -> Self {
        Self(nodes.into_iter().collect())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
