//! The tip, and views of the tree.
//!
//! Follows §4.1: the tip's id and its root's address are replicated in one slot on every memnode,
//! and each participant of a transaction that reads or writes the tip compares them. A view of the
//! past is compared nowhere: its leaves are checked for their fences and versions alone (§4.2).
//!
//! Deliberately absent, so far: branches (§5).

use pando_memnode::{Address, Bytes, Slot};

use crate::error::{Error, Stop};
use crate::fault::{Fault, planted};
use crate::page::{self, ADDRESS_BYTES, Page};
use crate::transaction::Transaction;

/// A snapshot of all trees. Later ones have higher ids; the highest is the tip, and can be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId(pub u64);

/// The slot of the tip, on each memnode.
pub(crate) const TIP: Slot = Slot(0);

/// Slots with a fixed meaning: the tip, the kept snapshots, the leases, and one to spare. A
/// memnode's [`pando_memnode::Limits::slots_fixed`] is no lower.
pub const FIXED_SLOTS: u64 = 4;

/// A version of the tree that operations work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    pub(crate) snapshot: SnapshotId,
    pub(crate) root: Address,
    /// Whether it is the tip: then what is read is compared at the commit, and it may be written.
    pub(crate) tip: bool,
}

impl View {
    /// Which snapshot it is.
    pub fn snapshot(&self) -> SnapshotId {
        self.snapshot
    }

    /// Whether it was made as one of the tip.
    pub fn is_tip(&self) -> bool {
        self.tip
    }

    fn encode(self) -> Bytes {
        [
            &self.snapshot.0.to_le_bytes()[..],
            &page::encode_address(self.root),
        ]
        .concat()
        .into()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (snapshot, root) = bytes.split_first_chunk()?;
        (root.len() == ADDRESS_BYTES).then(|| Self {
            snapshot: SnapshotId(u64::from_le_bytes(*snapshot)),
            root: page::decode_address(root),
            tip: true,
        })
    }

    /// Whether this version contains a node: it was made at this snapshot or before, and not copied
    /// since then up to here (§4.2).
    pub(crate) fn contains(&self, page: &Page) -> bool {
        let is_copied = page.copies().any(|copied| copied <= self.snapshot);
        page.created() <= self.snapshot && (!is_copied || planted(Fault::CopiedCheck))
    }
}

impl Transaction<'_> {
    /// The tip. The transaction commits only if it still is.
    pub fn tip(&mut self) -> Result<View, Stop> {
        let bytes = self.replica(TIP)?;
        View::decode(&bytes).ok_or_else(|| Error::Unfounded.into())
    }

    /// Fails if `view` was one of the tip and is not now. A view outlives the transaction that made
    /// it; without this, one that another makes use of would be compared nowhere, and lead into the
    /// pages of a snapshot.
    pub(crate) fn require_current(&mut self, view: View) -> Result<(), Stop> {
        if !view.tip || planted(Fault::OldTip) {
            return Ok(());
        }
        let tip = self.tip()?;
        if tip == view {
            Ok(())
        } else if view.snapshot < tip.snapshot {
            Err(Error::Outdated.into())
        } else {
            // What the proxy remembers of the tip is older than the view.
            Err(Stop::Conflict)
        }
    }

    pub(crate) fn is_founded(&mut self) -> Result<bool, Stop> {
        Ok(!self.replica(TIP)?.is_empty())
    }

    pub(crate) fn set_tip(&mut self, tip: View) {
        self.write_replica(TIP, tip.encode());
    }
}
