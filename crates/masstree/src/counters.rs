//! What sessions count: one set of counters per session, written by it alone.

use std::sync::atomic::{AtomicI64, Ordering};

/// A figure that one session writes and gauges read.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicI64);

impl Counter {
    /// Only the owning session calls this, so that a load and a store suffice.
    #[inline]
    pub(crate) fn add(&self, delta: i64) {
        self.0
            .store(self.0.load(Ordering::Relaxed) + delta, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! counters {
    ($($(#[doc = $help:literal])* $name:ident,)*) => {
        /// One session's counters.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $($(#[doc = $help])* pub(crate) $name: Counter,)*
        }

        impl Counters {
            /// Every counter with its name and its description.
            pub(crate) fn each(
                &self,
            ) -> impl Iterator<Item = (&'static str, &'static str, &Counter)> {
                [$((stringify!($name), concat!($($help),*), &self.$name),)*].into_iter()
            }

            /// Takes over what another session has counted.
            pub(crate) fn absorb(&self, other: &Self) {
                $(self.$name.add(other.$name.get());)*
            }
        }
    };
}

counters! {
    /// Border nodes of full width.
    border_nodes,
    /// Border nodes of few slots, the roots of young layers.
    young_nodes,
    /// Interior nodes.
    interior_nodes,
    /// Layers below the first one.
    layers,
    /// Entries in border nodes: values, tombstones and links to layers.
    entries,
    /// Splits of border and interior nodes so far.
    splits_total,
    /// Border and interior nodes removed because they were empty, so far.
    node_removals_total,
    /// Layers removed because they were empty, so far.
    layer_removals_total,
    /// Layers of one key folded back into the entry above, so far.
    layer_folds_total,
    /// Reads of a node that an insert made repeat, so far.
    local_retries,
    /// Descents that a split or removal sent back to a root, so far.
    root_retries,
    /// Interleaved batches so far.
    batches_total,
    /// Keys in interleaved batches so far.
    batch_keys_total,
}
