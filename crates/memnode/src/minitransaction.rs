//! What a minitransaction does at one memnode.
//!
//! Comparisons decide: if one fails, nothing is written. Reads give what was there before the
//! writes. All of it happens at one moment, under locks: shared ones for comparisons and reads,
//! exclusive ones for writes.
//!
//! **Several memnodes, nothing written.** Sinfonia locks in two phases here as well. We read at
//! each memnode by itself, and when all reads have been answered, compare the sequences at each. A
//! slot that a prepared minitransaction will write counts as busy in both rounds. If all
//! comparisons hold, all slots had these sequences at every moment between the two rounds, because
//! sequences only increase (MN1 sequences-increase). No minitransaction is seen in part: had one
//! been applied at one memnode before the second round, it would have been prepared at the others
//! before it, and its slots there would be busy or changed. A client's last comparison may thus
//! stand for a whole validation.

use pando_memory::SharedBytes;

use crate::limits::{ITEMS_MAX, SLOT_BYTES_MAX};
use crate::{Sequence, Slot};

/// Bytes of a slot. Copies share them; pages of 4 KiB lie on huge pages.
pub type Bytes = SharedBytes;

/// A condition of a minitransaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The slot is in this state.
    Sequence(Slot, Sequence),
    /// The slot holds these bytes: for slots that are replicated, whose sequences differ.
    Bytes(Slot, Bytes),
}

impl Compare {
    /// The slot that is compared.
    pub fn slot(&self) -> Slot {
        match self {
            Self::Sequence(slot, _) | Self::Bytes(slot, _) => *slot,
        }
    }
}

/// A part of a changed slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// These bytes replace those from `at`.
    Bytes {
        /// Where they go.
        at: u32,
        /// The bytes.
        bytes: Box<[u8]>,
    },
    /// `len` bytes from `from` are copied to `to`; the two may overlap.
    Move {
        /// Where they are.
        from: u32,
        /// Where they go.
        to: u32,
        /// How many they are.
        len: u32,
    },
}

impl Piece {
    /// Whether it lies within `bytes` bytes.
    fn fits(&self, bytes: usize) -> bool {
        let within = |at: u32, len: usize| {
            usize::try_from(at).is_ok_and(|at| at.checked_add(len).is_some_and(|end| end <= bytes))
        };
        match self {
            Self::Bytes { at, bytes } => within(*at, bytes.len()),
            Self::Move { from, to, len } => {
                within(*from, *len as usize) && within(*to, *len as usize)
            }
        }
    }

    /// Applies it. It must fit.
    pub fn apply(&self, target: &mut [u8]) {
        match self {
            Self::Bytes { at, bytes } => {
                target[*at as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            Self::Move { from, to, len } => {
                let from = *from as usize;
                target.copy_within(from..from + *len as usize, *to as usize);
            }
        }
    }
}

/// A change of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// The slot holds these bytes, at least one.
    Whole(Slot, Bytes),
    /// Pieces of what the slot holds change, in this order. Its length stays.
    Patch(Slot, Vec<Piece>),
    /// The eight bytes from `at`, a little-endian number, grow by `by`, and wrap.
    Add {
        /// The slot.
        slot: Slot,
        /// Where the number is.
        at: u32,
        /// What is added.
        by: u64,
    },
    /// The slot becomes free.
    Free(Slot),
}

impl Write {
    /// The slot that is written.
    pub fn slot(&self) -> Slot {
        match self {
            Self::Whole(slot, _)
            | Self::Patch(slot, _)
            | Self::Add { slot, .. }
            | Self::Free(slot) => *slot,
        }
    }

    /// Whether it can be applied to a slot of `bytes` bytes.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        match self {
            Self::Whole(_, bytes) => (1..=SLOT_BYTES_MAX).contains(&bytes.len()),
            Self::Patch(_, pieces) => pieces.iter().all(|piece| piece.fits(bytes)),
            Self::Add { at, .. } => (*at as usize).saturating_add(8) <= bytes,
            Self::Free(_) => bytes > 0,
        }
    }
}

/// The items of a minitransaction at one memnode. Each slot is written at most once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Items {
    /// What must hold.
    pub compares: Vec<Compare>,
    /// What is read, before anything is written.
    pub reads: Vec<Slot>,
    /// What is written if all comparisons hold.
    pub writes: Vec<Write>,
}

impl Items {
    /// Whether nothing is written.
    pub fn is_read_only(&self) -> bool {
        self.writes.is_empty()
    }

    /// Whether it touches nothing.
    pub fn is_empty(&self) -> bool {
        self.compares.is_empty() && self.reads.is_empty() && self.writes.is_empty()
    }

    /// Whether its size is within the bounds, and its slots exist among `slots_max`.
    pub(crate) fn is_bounded(&self, slots_max: u64) -> bool {
        let count = self.compares.len() + self.reads.len() + self.writes.len();
        let mut written: Vec<Slot> = self.writes.iter().map(Write::slot).collect();
        written.sort_unstable();
        let twice = written.windows(2).any(|pair| pair[0] == pair[1]);
        let mut slots = self.shared().chain(written.iter().copied());
        count <= ITEMS_MAX && !twice && slots.all(|slot| slot.0 < slots_max)
    }

    /// The slots that are compared or read.
    pub(crate) fn shared(&self) -> impl Iterator<Item = Slot> + '_ {
        let compared = self.compares.iter().map(Compare::slot);
        compared.chain(self.reads.iter().copied())
    }

    /// The slots that are written.
    pub(crate) fn exclusive(&self) -> impl Iterator<Item = Slot> + '_ {
        self.writes.iter().map(Write::slot)
    }
}
