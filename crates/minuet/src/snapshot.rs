//! Versions of the tree, the tips of branches, and views.
//!
//! Follows §4.1 and §5.1: the tip's id and its root's address are replicated on every memnode, and
//! each participant of a transaction that reads or writes a tip compares them. Of a view of the
//! past only that it is kept is compared; its leaves are checked for their fences and versions
//! (§4.2).
//!
//! Departs from §4.2, where a read of the past compares nothing: of a snapshot that was let go, an
//! inner node that was cached before may lead to a leaf that fits, and is another version's.
//!
//! Departs from §5.1, where ids are numbers in the order of creation, and the catalog has an entry
//! for each version: here an id says which line of versions it is on, and where. A line is what one
//! tip leaves behind as snapshots are made: 1, 2, 3 and so on. A branch begins a line, at a version
//! of another. So the catalog grows with branches and not with snapshots, and whether one version
//! comes from another is seen from a few numbers (`lineage`).

use pando_memnode::{Address, Bytes, Slot};

use crate::branch::BranchId;
use crate::catalog;
use crate::error::{Error, Stop};
use crate::fault::{Fault, planted};
use crate::page::{self, ADDRESS_BYTES};
use crate::transaction::Transaction;

/// A version of all trees: its line, and its place there, 32 bits each. On one line, later ones
/// have higher ids. The highest is the tip, while a branch has it, and can be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SnapshotId(pub u64);

impl SnapshotId {
    /// A version of a line.
    pub(crate) fn of(line: u32, place: u32) -> Self {
        Self((u64::from(line) << 32) | u64::from(place))
    }

    /// The line that it is on.
    pub fn line(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The next one of its line.
    pub(crate) fn next(self) -> Result<Self, Error> {
        let place = self.0 as u32;
        if place == u32::MAX {
            return Err(Error::Exhausted);
        }
        Ok(Self(self.0 + 1))
    }

    /// The lowest version that a key may get on this line. Each line has a range of its own, so
    /// that a key and its version stand for one value, whatever branches are reset.
    pub(crate) fn version_floor(self) -> u64 {
        u64::from(self.line()) << 32
    }
}

/// The slot of the tip of the first branch, on each memnode.
pub(crate) const TIP: Slot = Slot(0);

/// Slots with a fixed meaning: the first branch's tip, the kept snapshots, the leases, the
/// catalog. Those of sequences follow, if there are any ([`crate::Config::slots_fixed`]).
pub const FIXED_SLOTS: u64 = catalog::SLOTS_END;

/// What a view is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The tip of a branch: what is read is compared at the commit, and it may be written.
    Tip(BranchId),
    /// A snapshot, which is to be kept while it is read.
    Snapshot,
    /// The version where two others part. It stays while both are there.
    Parting,
}

/// A version of the tree that operations work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    pub(crate) snapshot: SnapshotId,
    pub(crate) root: Address,
    pub(crate) kind: Kind,
}

impl View {
    /// Which snapshot it is.
    pub fn snapshot(&self) -> SnapshotId {
        self.snapshot
    }

    /// Whether it was made as one of a branch's tip.
    pub fn is_tip(&self) -> bool {
        matches!(self.kind, Kind::Tip(_))
    }

    /// The branch whose tip it was made as.
    pub fn branch(&self) -> Option<BranchId> {
        match self.kind {
            Kind::Tip(branch) => Some(branch),
            Kind::Snapshot | Kind::Parting => None,
        }
    }

    pub(crate) fn encode(self) -> Vec<u8> {
        [
            &self.snapshot.0.to_le_bytes()[..],
            &page::encode_address(self.root),
        ]
        .concat()
    }

    pub(crate) fn decode(bytes: &[u8], kind: Kind) -> Option<Self> {
        let (snapshot, root) = bytes.split_first_chunk()?;
        (root.len() >= ADDRESS_BYTES).then(|| Self {
            snapshot: SnapshotId(u64::from_le_bytes(*snapshot)),
            root: page::decode_address(root),
            kind,
        })
    }
}

impl Transaction<'_> {
    /// The tip of the first branch. The transaction commits only if it still is.
    pub fn tip(&mut self) -> Result<View, Stop> {
        self.tip_of(BranchId::FIRST)
    }

    /// The tip of a branch. The transaction commits only if it still is: every memnode that takes
    /// part compares it.
    pub fn tip_of(&mut self, branch: BranchId) -> Result<View, Stop> {
        if branch != BranchId::FIRST {
            return self.tip_in_catalog(branch);
        }
        let bytes = self.replica(TIP)?;
        if bytes.is_empty() {
            return Err(Error::Unfounded.into());
        }
        View::decode(&bytes, Kind::Tip(branch)).ok_or_else(|| Error::NoBranch.into())
    }

    /// Fails if `view` was one of a tip and is not now. A view outlives the transaction that made
    /// it; without this, one that another makes use of would be compared nowhere, and lead into the
    /// pages of a snapshot.
    pub(crate) fn require_current(&mut self, view: View) -> Result<(), Stop> {
        let Kind::Tip(branch) = view.kind else {
            return Ok(());
        };
        if planted(Fault::OldTip) {
            return Ok(());
        }
        let tip = self.tip_of(branch)?;
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

    /// Makes `tip`, a view of a tip, the tip of its branch.
    pub(crate) fn set_tip(&mut self, tip: View) -> Result<(), Stop> {
        let branch = tip.branch().expect("a view of a tip");
        if branch != BranchId::FIRST {
            return self.set_tip_in_catalog(branch, tip);
        }
        self.write_replica(TIP, Bytes::from(tip.encode()));
        Ok(())
    }

    /// The first branch has no tip any more.
    pub(crate) fn drop_first_tip(&mut self) -> Result<(), Stop> {
        self.replica(TIP)?;
        // A slot of zero bytes would stand for nothing founded.
        self.write_replica(TIP, Bytes::from([0].as_slice()));
        Ok(())
    }
}
