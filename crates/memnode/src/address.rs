//! Names of memnodes, slots, coordinators and minitransactions.

/// A memnode of the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemnodeId(pub u16);

/// A slot of one memnode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u64);

/// Which state of a slot this is. Each write gives its slot a higher one; free slots keep theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

/// One use of a slot, from its allocation until it is freed.
///
/// `generation` is the sequence that the slot had while it was free. Whoever allocates it compares
/// that sequence, so no two uses of a slot have the same address, ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// Where the slot is.
    pub memnode: MemnodeId,
    /// The slot.
    pub slot: Slot,
    /// Which of its uses.
    pub generation: Sequence,
}

/// One life of a coordinator: a restarted one has another id, and ids are never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoordinatorId(pub u64);

/// A minitransaction. Numbers of one coordinator increase, and each stands for one set of items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MinitransactionId {
    /// Whose it is.
    pub coordinator: CoordinatorId,
    /// Which of its.
    pub number: u64,
}
