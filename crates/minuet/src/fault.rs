//! Faults that tests plant, to see that their oracles find them.

/// A check that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A traversal goes on beyond a node's fences.
    FenceCheck,
    /// A traversal goes on in a node that was copied.
    CopiedCheck,
    /// A page is taken for one of another use of its slot.
    GenerationCheck,
    /// A leaf does not keep the versions of removed keys.
    VersionFloor,
    /// The commit does not compare one of the slots that were read.
    OneRead,
    /// One participant of a commit does not compare the tip.
    OneTip,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Whether a fault is planted; never, outside tests.
pub(crate) fn planted(fault: Fault) -> bool {
    #[cfg(test)]
    let planted = PLANTED.get() == Some(fault);
    #[cfg(not(test))]
    let planted = {
        let _ = fault;
        false
    };
    planted
}
