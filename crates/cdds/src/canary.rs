//! The faults that tests plant, each in threads of its own; empty outside tests.

/// What is left out, to see that somebody notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nodes change without a mark (CL1 marked-before).
    Unmarked,
    /// An entry gets another record without a mark of its leaf (CL1 marked-before).
    ReplacedUnmarked,
    /// Leaves are judged and changed without their latch (CX2 leaf-latched).
    Unlatched,
    /// A leaf leaves the tree, and whoever waits for its latch is not told (CX7 gone-counted).
    LeftUncounted,
    /// New leaves are not latched until their change is over (CX8 born-latched).
    BornUnlatched,
    /// The way to nodes above a leaf is found before their lock is taken (CX9 inner-by-one).
    WayEarly,
    /// A parent is not looked at again once its child is known (CL3 coupled).
    Uncoupled,
    /// The beginning of an entry is loaded before its end (CL4 past-stands).
    BeginningFirst,
    /// A reader does not ask again for the number of buckets (CH2 split-under-mark).
    StaleCount,
    /// A view of the past looks where the present would (CD2 longest-seen).
    PresentAddress,
    /// A reader of a snapshot does not ask whether it is still there before it follows a link.
    Unkept,
    /// An entry that was found ahead is taken for one that is there, although its leaf has changed
    /// (CA1 judged-while-unchanged).
    JudgedKept,
    /// Nobody asks whether an entry is as it was stored (CN5 sealed).
    SealUnasked,
    /// An entry gets another record while it has its beginning (CN5 sealed).
    ReplacedBegun,
    /// The frame of a node stays when the node changes (CF1 cleared-first).
    FrameKept,
    /// What was freed is handed out while readers are pinned (CT3 horizon).
    FreeEarly,
    /// Cleaning is noted as further than it is (CG5 noted-with).
    NotedAhead,
    /// Ranges that came after cleaning began are forgotten as well (CG2 all-views).
    ForgottenLater,
    /// A crowded pool forgets its ranges before it is cleaned up (CG2 all-views).
    ForgottenUncleaned,
    /// A snapshot's word is flushed and fenced, but by no commit: a file does not take it.
    KeptUncommitted,
    /// A wide row that is stored leaves what is kept under its name (CV1 same-version).
    RowOutlived,
    /// A removed key has no name (CQ1 named-with).
    Unnamed,
    /// Names go, and nobody is told (CQ2 known-gap).
    GapUnknown,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Whether the fault is planted in this thread.
#[inline]
pub(crate) fn has(fault: Fault) -> bool {
    #[cfg(test)]
    return PLANTED.get() == Some(fault);
    #[cfg(not(test))]
    {
        let _ = fault;
        false
    }
}

/// Plants a fault in this thread.
#[cfg(test)]
pub(crate) fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}
