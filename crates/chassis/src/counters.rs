//! What sessions count: one set of counters per session, written by it alone.

use pando_sync::shim::unmodelled::{AtomicI64, Ordering};

/// A figure that one session writes and gauges read.
#[derive(Debug, Default)]
pub struct Counter(AtomicI64);

impl Counter {
    /// Only the owning session calls this, so a load and a store suffice.
    #[inline]
    pub fn add(&self, delta: i64) {
        self.0
            .store(self.0.load(Ordering::Relaxed) + delta, Ordering::Relaxed);
    }

    /// The count.
    #[must_use]
    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What the sessions of an engine count.
pub trait CounterSet: Default {
    /// Adds the counts of another session.
    fn absorb(&self, other: &Self);
}

/// Defines the struct `Counters` in the calling crate, with a description for each counter.
#[macro_export]
macro_rules! counters {
    ($($(#[doc = $help:literal])* $name:ident,)*) => {
        /// One session's counters.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $($(#[doc = $help])* pub(crate) $name: $crate::Counter,)*
        }

        impl Counters {
            /// Every counter with its name and its description.
            pub(crate) fn each(
                &self,
            ) -> impl Iterator<Item = (&'static str, &'static str, &$crate::Counter)> {
                [$((stringify!($name), concat!($($help),*), &self.$name),)*].into_iter()
            }
        }

        impl $crate::CounterSet for Counters {
            fn absorb(&self, other: &Self) {
                $(self.$name.add(other.$name.get());)*
            }
        }
    };
}
