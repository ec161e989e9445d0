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

/// One life of a coordinator, as a number: its host above, the life below, 32 bits each. A
/// restarted coordinator has a higher life, and ids are never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoordinatorId(pub u64);

impl CoordinatorId {
    /// A life of a host's coordinator.
    pub fn of(host: u32, life: u32) -> Self {
        Self((u64::from(host) << 32) | u64::from(life))
    }

    /// Where it runs.
    pub fn host(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Which of its host's lives it is.
    pub fn life(self) -> u32 {
        self.0 as u32
    }
}

/// A minitransaction. Numbers of one coordinator increase, and each stands for one set of items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MinitransactionId {
    /// Whose it is.
    pub coordinator: CoordinatorId,
    /// Which of its.
    pub number: u64,
}
