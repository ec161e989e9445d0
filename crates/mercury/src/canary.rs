//! Planted faults (STYLE 32): tests switch one on and prove that their oracle catches it. Outside
//! tests there is nothing here.

#[cfg(test)]
use pando_sync::shim::unmodelled::{AtomicU8, Ordering};

/// A fault that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fault {
    /// A writer that has waited for a bucket does not look at *hasmoved* (HR2).
    IgnoreMoved = 1,
    /// A reader does not look at *hasmoved* (HB3).
    ReadWithoutCheck = 2,
    /// A replaced entry is reclaimed at once (VB1).
    FreeEarly = 3,
    /// A walk steps by plain addition instead of from the highest bit of the mask down (HW1).
    PlainCursor = 4,
    /// A walk shows a bucket that has moved from where it was (HW2).
    WalkWithoutMoved = 5,
    /// A bucket is marked as moved before its entries are in the next table (HR2).
    MarkEarly = 6,
    /// A table is given up at once when it ceases to be current (HR4).
    FreeTableEarly = 7,
    /// Slots of a smaller table get other growth bits than their keys' (HR5).
    WrongGrowthBits = 8,
}

/// The fault planted in one tree.
#[derive(Debug, Default)]
pub(crate) struct Canary {
    #[cfg(test)]
    planted: AtomicU8,
}

impl Canary {
    /// Whether this fault is planted.
    #[inline]
    pub(crate) fn is(&self, fault: Fault) -> bool {
        #[cfg(test)]
        return self.planted.load(Ordering::Relaxed) == fault as u8;
        #[cfg(not(test))]
        {
            let _ = fault;
            false
        }
    }

    /// Plants a fault.
    #[cfg(test)]
    pub(crate) fn plant(&self, fault: Fault) {
        self.planted.store(fault as u8, Ordering::Relaxed);
    }
}
