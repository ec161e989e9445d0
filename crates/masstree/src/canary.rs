//! Planted faults (STYLE 32): tests switch one on and prove that their oracle catches it. Outside
//! tests there is nothing here.

#[cfg(test)]
use pando_sync::shim::unmodelled::{AtomicU8, Ordering};

/// A fault that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fault {
    /// A freed slot is reused without the inserting mark (M7).
    ReuseWithoutMark = 1,
    /// A border node splits without the splitting mark.
    SplitWithoutMark = 2,
    /// A replaced block is reclaimed at once (M1).
    FreeEarly = 3,
    /// An entry turns into a layer without the unstable mark (§4.6.3).
    DeepenWithoutMark = 4,
    /// A layer is folded back without the inserting mark.
    FoldWithoutMark = 5,
    /// An emptied border node leaves the tree without the deleted mark.
    RemoveWithoutMark = 6,
    /// A layer leaves the tree without the deleted mark.
    LayerGoesWithoutMark = 7,
    /// What a warming pass has found is used without a look at the node (MH2).
    RecallUnchecked = 8,
    /// A value's link is changed after its node was unlocked.
    RelocateUnlocked = 9,
    /// A warmed update leaves a link at a root that its layer has outgrown (§4.6.4).
    OutgrownLinkKept = 10,
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
    #[cfg_attr(
        not(test),
        expect(clippy::unused_self, reason = "tests have state here")
    )]
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
