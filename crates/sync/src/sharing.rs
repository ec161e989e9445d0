//! How threads share an engine: all of them at once, or one exclusively.
//!
//! The latter is the single-core variant of Masstree's §6.4: it takes no lock, counts and checks no
//! versions, and fences no pin. The bench's feature `single-core` builds such engines to measure
//! what sharing costs. They have one session at a time, so a server cannot run on them.
//!
//! Deliberately absent: anything else that distinguishes the two. Engines know [`NodeLock`] and no
//! feature, and both kinds are compiled in every build.

#[cfg(feature = "single-core")]
pub(crate) use alone::{participants_max, pin_fence};
#[cfg(not(feature = "single-core"))]
pub(crate) use together::{participants_max, pin_fence};

#[cfg(feature = "single-core")]
pub use alone::NodeLock;
#[cfg(not(feature = "single-core"))]
pub use together::NodeLock;

/// Many threads share an engine.
pub mod together {
    pub use crate::version_lock::VersionLock as NodeLock;

    /// The collector's limit on participants, given how many are wanted.
    #[must_use]
    pub fn participants_max(wanted: usize) -> usize {
        wanted
    }

    /// Orders a pin before the following load of the epoch.
    #[inline]
    pub fn pin_fence() {
        // SeqCst fence pairs with the one in `Collector::try_advance`: a thread that advances the
        // epoch past the value loaded next sees the pin.
        crate::shim::fence(crate::shim::Ordering::SeqCst);
    }
}

/// One thread at a time has an engine.
pub mod alone {
    use crate::version_lock::{NodeKind, NodeVersion, VersionLock};

    /// One at a time: nobody else advances the epoch or changes a node.
    #[must_use]
    pub fn participants_max(wanted: usize) -> usize {
        wanted.min(1)
    }

    /// Nobody looks for the pin.
    #[inline]
    pub fn pin_fence() {}

    /// The version word of a node owned by its only user: it gives the node's kind, and whether the
    /// node was removed.
    #[derive(Debug)]
    pub struct NodeLock(VersionLock);

    impl NodeLock {
        /// See [`VersionLock::new`].
        #[must_use]
        pub fn new(kind: NodeKind, root: bool) -> Self {
            Self(VersionLock::new_locked(kind, root))
        }

        /// See [`VersionLock::new_splitting`].
        #[must_use]
        pub fn new_splitting(kind: NodeKind) -> Self {
            Self::new(kind, false)
        }

        /// See [`VersionLock::peek`].
        #[inline]
        #[must_use]
        pub fn peek(&self) -> NodeVersion {
            self.0.peek()
        }

        /// See [`VersionLock::glance`].
        #[inline]
        #[must_use]
        pub fn glance(&self) -> NodeVersion {
            self.0.peek()
        }

        /// See [`VersionLock::stable`].
        #[inline]
        #[must_use]
        pub fn stable(&self) -> NodeVersion {
            self.0.peek()
        }

        /// See [`VersionLock::unchanged_since`].
        #[inline]
        #[must_use]
        pub fn unchanged_since(&self, _: NodeVersion) -> bool {
            true
        }

        /// See [`VersionLock::lock`].
        #[inline]
        pub fn lock(&self) -> NodeVersion {
            self.0.peek()
        }

        /// See [`VersionLock::try_lock`].
        #[inline]
        pub fn try_lock(&self) -> Option<NodeVersion> {
            Some(self.0.peek())
        }

        /// See [`VersionLock::unlock`].
        #[inline]
        pub fn unlock(&self) {}

        /// See [`VersionLock::mark_inserting`].
        #[inline]
        pub fn mark_inserting(&self) {}

        /// See [`VersionLock::mark_splitting`].
        #[inline]
        pub fn mark_splitting(&self) {}

        /// See [`VersionLock::mark_deleted`].
        #[inline]
        pub fn mark_deleted(&self) {
            self.0.mark_deleted();
        }

        /// See [`VersionLock::set_root`].
        #[inline]
        pub fn set_root(&self, root: bool) {
            self.0.set_root(root);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::alone::NodeLock;
    use crate::version_lock::NodeKind;

    #[test]
    fn a_node_of_one_thread_says_what_it_is_and_counts_nothing() {
        let lock = NodeLock::new(NodeKind::Border, true);
        let before = lock.stable();
        assert!(before.is_lone());
        for mark in [NodeLock::mark_inserting, NodeLock::mark_splitting] {
            assert_eq!(lock.try_lock(), Some(before));
            mark(&lock);
            assert!(lock.unchanged_since(before));
            lock.unlock();
            assert_eq!(lock.stable(), before);
        }
        lock.set_root(false);
        assert!(!lock.peek().is_root());
        lock.mark_deleted();
        assert!(lock.stable().is_deleted());
    }
}
