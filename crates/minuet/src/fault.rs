//! Faults that tests plant, to see that their oracles find them.

/// A check that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A traversal goes on beyond a node's fences.
    FenceCheck,
    /// A traversal goes on in a node that was copied.
    CopiedCheck,
    /// One participant of a commit does not compare the tip.
    OneTip,
    /// A leaf does not keep the versions of removed keys.
    VersionFloor,
    /// The commit does not compare one of the slots that were read.
    OneRead,
    /// A commit that nobody waits for any more is not settled.
    Abandoned,
    /// An address names a slot, whatever its use: a commit takes one that others use by now, and a
    /// page passes for that of an earlier use.
    Generation,
    /// The collection frees what the snapshot before the copy still has.
    EarlyFree,
    /// The list of kept snapshots is published without a look at the leases.
    LeaseIgnored,
    /// A lease is taken without a comparison of the list of kept snapshots.
    LeaseUnchecked,
    /// A comparison of versions goes on where the old leaf ends, though the new one ends before.
    DiffSkip,
    /// A comparison of versions trusts cached nodes.
    DiffCached,
    /// A merge does not look whether ours has changed.
    MergeBlind,
    /// What a comparison of versions passes on its way is not compared by the commit.
    DiffUnseen,
    /// Writes by an old view of the tip go on.
    OldTip,
    /// A traversal takes a copy to a version of another branch for one to its own, or not at all:
    /// it compares ids alone.
    BranchCopied,
    /// A node does not say where its discretionary copy is.
    Forwarding,
    /// A node's descendant set grows by one more than it may.
    DescendantBound,
    /// One participant of a commit does not compare the tips of branches.
    OneBranch,
    /// What is remembered of a branch is not compared at all.
    CatalogStale,
    /// A run in one process does not compare what it only read.
    RunRead,
    /// A run in one process lets go of its leaves between comparing and writing.
    RunLatch,
    /// A run in one process does not see that a leaf was split since it found its keys there.
    RunLink,
    /// A run in one process that writes several keys is not counted.
    RunCount,
    /// A run in one process does not compare the leaves that its scans met.
    RunScan,
    /// A run in one process does not compare how many keys there are.
    RunKeys,
    /// A leaf that was found before somebody was alone passes for a key's.
    WarmedTurns,
    /// A key is not looked for in the upper part of its leaf, which was split off.
    LinkLeft,
    /// A writer looks for a key's leaf before it has the latch, and not again.
    LinkLate,
    /// A scan on its way back begins at a leaf whose upper part was split off.
    LinkBack,
    /// Whoever is alone does not tell the nodes above of leaves that were split.
    LinkUnposted,
    /// A traversal at a tip looks at the fences and the notes of copies of no inner node: what
    /// compared inner nodes make up for, and nothing else does.
    OnlyPaths,
    /// The same, and inner nodes are not compared either.
    PathUnseen,
    /// One memnode does not hear of the sequences of inner nodes.
    OneTable,
    /// A read at a snapshot does not ask whether it is kept, as long as everything fits.
    LetGo,
    /// Whoever copies a node in one process does not note that there.
    CopyUnnoted,
    /// A fan has a child of which the node has a copy by now.
    FanStale,
    /// Whoever takes a large value out of a leaf frees it, whatever version made it.
    LargeFreed,
    /// The collection does not see that the version where two branches part is needed.
    PartingFreed,
    /// A request that comes while a snapshot is being made is served by that one.
    BorrowEarly,
    /// The snapshot service lends the last snapshot, though the request came after it.
    BorrowLast,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Plants a fault in this thread.
#[cfg(test)]
pub(crate) fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}

/// Whether a fault is planted; never, outside tests.
#[inline]
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
