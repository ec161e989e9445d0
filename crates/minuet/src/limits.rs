//! Bounds and settings of a proxy.

use pando_memnode::{Address, MemnodeId, Slot};

use crate::page;
use crate::snapshot::FIXED_SLOTS;

/// Runs of one transaction before it is given up as contended.
pub const ATTEMPTS_MAX: u32 = 10_000;

/// Slots that one transaction may read and write. More is [`crate::Error::TooLarge`].
pub const TOUCHED_MAX: usize = 1 << 15;

/// Slots that one step of the collection looks at.
pub const SWEPT_SLOTS: u32 = 64;

/// Snapshots that are kept at a time, at most: each memnode has a list of them.
pub const SNAPSHOTS_MAX: usize = 1 << 12;

/// Bytes of a snapshot's name, at most.
pub const NAME_BYTES_MAX: usize = 128;

/// Branches at a time, at most.
pub const BRANCHES_MAX: usize = 1 << 14;

/// Lines of versions that one step of the collection removes from the catalog.
pub const LINES_REMOVED: usize = 64;

/// Ids that a node's descendant set may have, at least: a version may go on in two ways.
pub const DESCENDANTS_MIN: u8 = 2;

/// Ids that a node's descendant set may have, at most: a page has room for them.
pub const DESCENDANTS_MAX: u8 = 4;

/// Lines above others that a proxy remembers; past it, it forgets all and asks again.
pub const LINEAGES_MAX: usize = 1 << 20;

/// Leases at one memnode, at most.
pub const LEASES_MAX: usize = 1 << 12;

/// Pairs of leaves that one part of a comparison of two versions reads.
pub const DIFF_LEAVES_MAX: usize = 256;

/// Places at which a comparison of two versions finds nothing, until it waits for what it lacks.
pub const DIFF_WANTED_MAX: usize = 64;

/// The same where a comparison goes on from run to run and waits often at first.
pub const DIFF_WANTED_MIN: usize = 4;

/// Keys that one merge changes or looks at.
pub const MERGED_MAX: usize = 1 << 13;

/// Leaves whose latches one run in one process holds at a time; one of more is alone.
pub const LATCHES_MAX: usize = 64;

/// Leaves that the scans of one run in one process may meet.
pub const LEAVES_MET_MAX: usize = 256;

/// Leaves that are allocated for splits beside each other in one process, at most, and slots for
/// each of them.
pub const SPARES_MAX: usize = 64;
/// See [`SPARES_MAX`].
pub const SLOTS_PER_SPARE: usize = 16;

/// Pages with other notes of copies, of which it is remembered how these are kept few.
pub const PARTINGS_MAX: usize = 64;

/// Bytes of a page, at least.
pub const PAGE_BYTES_MIN: usize = 448;

/// Bytes of a page, at most: offsets in it have 16 bits.
pub const PAGE_BYTES_MAX: usize = 1 << 15;

/// What a transaction at a tip does about the inner nodes on its way to a leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InnerNodes {
    /// Reads them dirty, and checks fences and versions (§3).
    #[default]
    Dirty,
    /// Compares them all, as the B-tree does that Minuet came from (Aguilera et al., §2.3): each
    /// memnode has the sequences of all inner nodes, so the leaf's memnode alone is asked, and who
    /// changes an inner node writes to every memnode. It is here to be measured beside the other.
    Compared {
        /// Slots of each memnode, from the first that is allocated, whose sequences there is room
        /// for. An inner node beyond is [`crate::Error::Full`].
        slots: u32,
    },
}

/// Settings of a proxy, the same for all that share memnodes.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Memnodes of the cluster, numbered from 0. 1 and up.
    pub memnodes: u16,
    /// Bytes of a page. [`PAGE_BYTES_MIN`] to [`PAGE_BYTES_MAX`].
    pub page_bytes: usize,
    /// Inner nodes that a proxy caches. 16 and up.
    pub cached_nodes: usize,
    /// Free slots that a proxy asks a memnode for at once. 1 to
    /// [`pando_memnode::limits::RESERVED_MAX`].
    pub reserved: u32,
    /// Ticks after which an unanswered request is sent again. 1 and up.
    pub resend_ticks: u32,
    /// Ticks for which a minitransaction that writes replicated slots waits for locks at a memnode.
    pub wait_ticks: u16,
    /// Times that a transaction meets the locks of the same minitransaction before it settles it.
    /// Each time, the transaction's patience doubles. 1 and up.
    pub patience: u32,
    /// Attempts of a transaction that follow each other at once, though it was overtaken; later
    /// ones pause first.
    pub at_once: u32,
    /// Newest snapshots that stay without a name or a lease.
    pub newest_kept: u32,
    /// Ids in a descendant set of a node that is made on the first branch, at most (§5.2).
    /// [`DESCENDANTS_MIN`] to [`DESCENDANTS_MAX`].
    pub descendants_max: u8,
    /// What becomes of inner nodes on the way to a leaf.
    pub inner_nodes: InnerNodes,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            memnodes: 1,
            page_bytes: 4096,
            cached_nodes: 1 << 16,
            reserved: 64,
            resend_ticks: 4,
            wait_ticks: 8,
            patience: 8,
            at_once: 1,
            newest_kept: 16,
            descendants_max: DESCENDANTS_MAX,
            inner_nodes: InnerNodes::Dirty,
        }
    }
}

impl Config {
    /// Whose sequence a slot has: an inner node of this memnode, at this slot.
    pub(crate) fn address_of_sequence(&self, slot: Slot) -> Option<(MemnodeId, Slot)> {
        let at = slot.0.checked_sub(FIXED_SLOTS);
        let at = at.filter(|_| slot.0 < self.slots_fixed())?;
        let memnodes = u64::from(self.memnodes);
        let memnode = MemnodeId((at % memnodes) as u16);
        Some((memnode, Slot(self.slots_fixed() + at / memnodes)))
    }

    /// The longest key, in bytes: two fences and a few cells of such keys fit into a page.
    pub fn key_bytes_max(&self) -> usize {
        self.page_bytes / 16
    }

    /// The first slot that may be allocated: a memnode's
    /// [`pando_memnode::Limits::slots_fixed`].
    pub fn slots_fixed(&self) -> u64 {
        let sequences = match self.inner_nodes {
            InnerNodes::Dirty => 0,
            InnerNodes::Compared { slots } => u64::from(slots) * u64::from(self.memnodes),
        };
        FIXED_SLOTS + sequences
    }

    /// Whether inner nodes are compared.
    pub(crate) fn compares_inner_nodes(&self) -> bool {
        self.inner_nodes != InnerNodes::Dirty
    }

    /// The slot, the same at each memnode, of an inner node's sequence, if there is room for it.
    pub(crate) fn sequence_slot(&self, address: Address) -> Option<Slot> {
        let InnerNodes::Compared { slots } = self.inner_nodes else {
            return None;
        };
        let index = address.slot.0.checked_sub(self.slots_fixed());
        let index = index.filter(|index| *index < u64::from(slots))?;
        let (memnodes, memnode) = (u64::from(self.memnodes), u64::from(address.memnode.0));
        Some(Slot(FIXED_SLOTS + index * memnodes + memnode))
    }

    /// The longest value, in bytes.
    pub fn value_bytes_max(&self) -> usize {
        self.page_bytes / 8
    }
}

const _: () = {
    assert!(SWEPT_SLOTS <= pando_memnode::limits::LISTED_MAX);
    let kept = SNAPSHOTS_MAX * (crate::retention::KEPT_BYTES + NAME_BYTES_MAX);
    assert!(kept <= pando_memnode::limits::SLOT_BYTES_MAX);
    let leases = LEASES_MAX * crate::lease::LEASE_BYTES;
    assert!(leases <= pando_memnode::limits::SLOT_BYTES_MAX);
};

// A page of the least size is split into two that hold their cells: what is left between the
// longest fences, with a cell of the largest size more, is at most twice that room less one cell.
const _: () = {
    let (key, value) = (PAGE_BYTES_MIN / 16, PAGE_BYTES_MIN / 8);
    let room = PAGE_BYTES_MIN - page::HEADER_BYTES - 2 * key;
    let cell = page::CELL_BYTES_MAX + key + value;
    assert!(room >= 2 * cell);
};
