//! Planted faults (STYLE 32): tests switch one on and prove that their oracle catches it.

use pando_sync::shim::unmodelled::{AtomicU8, Ordering};

/// Which fault is planted, by its number from 1 on; 0 is none.
#[derive(Debug, Default)]
pub struct Planted(AtomicU8);

impl Planted {
    /// Whether this fault is planted.
    #[must_use]
    pub fn is(&self, fault: u8) -> bool {
        self.0.load(Ordering::Relaxed) == fault
    }

    /// Plants a fault.
    pub fn plant(&self, fault: u8) {
        self.0.store(fault, Ordering::Relaxed);
    }
}

/// Defines `Fault` and `Canary` in the calling crate. Outside its tests they are empty, and whether
/// a fault is planted is known at compile time.
#[macro_export]
macro_rules! canary {
    ($($(#[doc = $what:literal])* $name:ident,)*) => {
        /// A fault that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Fault {
            $($(#[doc = $what])* $name,)*
        }

        /// The fault planted in one tree.
        #[derive(Debug, Default)]
        pub(crate) struct Canary {
            #[cfg(test)]
            planted: $crate::Planted,
        }

        impl Canary {
            /// Whether this fault is planted.
            #[inline]
            #[cfg_attr(
                not(test),
                expect(clippy::unused_self, reason = "tests have state here")
            )]
            pub(crate) fn is(&self, fault: Fault) -> bool {
                #[cfg(test)]
                return self.planted.is(fault as u8 + 1);
                #[cfg(not(test))]
                {
                    let _ = fault;
                    false
                }
            }

            /// Plants a fault.
            #[cfg(test)]
            pub(crate) fn plant(&self, fault: Fault) {
                self.planted.plant(fault as u8 + 1);
            }
        }
    };
}
