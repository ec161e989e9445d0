//! Planted bugs: what the crash tests must notice, and those of lent snapshots.

use std::cell::Cell;

/// The planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    Nothing,
    /// A commit in seven leaves no record.
    RecordSkipped,
    /// No commit leaves a record.
    NoRecord,
    /// An epoch ends in the middle of a transaction, behind a record of an account.
    GroupSplit,
    /// Removals leave no record.
    RemovalForgotten,
    /// Changes of the mapping of databases leave no record.
    MappingForgotten,
    /// A change is applied to whatever value is there.
    PredecessorUnchecked,
    /// A checkpoint claims to have begun two epochs later.
    CheckpointStartsLate,
    /// A checkpoint counts before its last epoch is durable.
    CheckpointNotAwaited,
    /// A checkpoint counts before the names of its parts are durable.
    PartsUnsynced,
    /// A checkpoint counts although the log is full and something was written while it was taken.
    CheckpointHeldStill,
    /// A checkpoint that counts without the log does not state what it holds.
    StillnessForgotten,
    /// The log leaves checkpoints no space.
    RoomTaken,
    /// Checkpoints are taken while a full copy is being loaded.
    CheckpointWhileLoading,
    /// A position in a former history counts however late it is.
    ForkForgotten,
    /// Recovery asks only the checkpoint that it uses what was durable.
    NewerManifestForgotten,
    /// A change of an absent key is refused, though the checkpoint is fuzzy.
    OrphansRefused,
    /// Replay makes branches and snapshots when all records of a wave were restored.
    PointsIgnored,
    /// The making of a branch leaves no record.
    BranchForgotten,
    /// A checkpoint without branches counts although some were made meanwhile.
    OvertakenCounts,
    /// A large merge does not follow what is written to its branch meanwhile.
    NoCatchUp,
    /// A branch that became another one leaves no record.
    AdoptionForgotten,
    /// The record of that names an epoch before the last ones of what it became.
    AdoptedEarly,
    /// Of two branches that were made from one, the one made later says what that was where they
    /// parted.
    LaterFork,
    /// Merges begin where branches were made, whatever was merged since.
    MergeForgotten,
    /// What is merged is in no record.
    MergedUnlogged,
    /// A checkpoint lacks what all have emptied since they parted.
    EmptiedForgotten,
    /// A start from the checkpoint of a full copy that was never shown does not say so.
    PlantingForgotten,
    /// Replay restores the newest records of a wave first.
    WaveBackwards,
    /// The age of a write that is not durable is unknown.
    AgeForgotten,
    /// Only writes in flight count as old, not those that wait for the epoch's end.
    OpenEpochsYoung,
    /// Whatever a client sends behind other requests may be lent what was made before these.
    LentBehind,
    /// The last snapshot is lent to whoever asks.
    LentLate,
    /// A snapshot that is lent goes though somebody has a lease of it.
    LeaseIgnored,
    /// Whoever reads does not renew its lease.
    LeaseUnrenewed,
}

thread_local! {
    static FAULT: Cell<Fault> = const { Cell::new(Fault::Nothing) };
    static COMMITS: Cell<u32> = const { Cell::new(0) };
}

/// Whether this is broken, on this thread.
pub(crate) fn is(fault: Fault) -> bool {
    FAULT.get() == fault
}

/// What is broken on this thread.
pub(crate) fn fault() -> Fault {
    FAULT.get()
}

/// Runs with this fault.
pub(crate) fn with<R>(fault: Fault, run: impl FnOnce() -> R) -> R {
    struct Mend;
    impl Drop for Mend {
        fn drop(&mut self) {
            FAULT.set(Fault::Nothing);
        }
    }
    FAULT.set(fault);
    let _mend = Mend;
    run()
}

/// Whether this commit's record is to be left out.
pub(crate) fn skips_this_commit() -> bool {
    COMMITS.set(COMMITS.get() + 1);
    is(Fault::NoRecord) || is(Fault::RecordSkipped) && COMMITS.get().is_multiple_of(7)
}
