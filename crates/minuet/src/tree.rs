//! The tree: a B-tree of pages over all memnodes, whose versions share nodes.
//!
//! | part | where | paper |
//! |---|---|---|
//! | traversal by dirty reads, with its checks | `traverse` | Figure 5, §4.2 |
//! | GET, scans | `read` | §2.3 |
//! | copy-on-write, PUT, splits | `write` | §4.1 |
//! | removal, merges | `remove` | |
//! | large values | `large` | |
//! | snapshots | `create_snapshot` | Figure 6 |
//! | what old nodes say of their copies | `discretion` | §5.2 |
//! | what differs between two versions | `diff` | |
//! | what one version changed, done to the tip | `merge` | |
//!
//! The leaves are read by the transaction, inner nodes dirty. So the commit compares leaves and the
//! tip alone, unless an inner node changes. In a snapshot nothing is compared.
//!
//! Departs from the paper:
//! - One B-tree holds all trees of users. Keys begin with the tree's number, which costs nothing,
//!   since pages leave out what their keys share. So one root and one id are the snapshot of all.
//! - Each key has a version. A new one is the greater of its old one and the leaf's floor, plus
//!   one; the floor is the highest version of a removed key, inherited in splits, the greater of
//!   both in merges. So a key's versions increase over its removal, without tombstones.
//! - The paper has no merges. Two siblings that are one page at most three quarters full are
//!   merged.
//!
//! Invariants:
//! - **MB1 fences-nest** The fences of a node's children cut the range of its own fences without
//!   gap or overlap, in every version.
//! - **MB2 made-at-the-tip** A node changes only in the version at which it was made, apart from
//!   its notes of copies. Each version's root was made at that version, and no other has it.
//! - **MB3 old-nodes-say-so** Whoever takes a node, not the root, out of a tip's tree frees it, if
//!   it was made at the tip, or else notes there that it was copied at the tip. Whoever reads the
//!   old one then finds out by the address's generation, or by the note.

mod diff;
mod discretion;
mod large;
mod merge;
mod read;
mod remove;
mod traverse;
mod write;

use pando_memnode::Address;

use crate::branch::BranchId;
use crate::error::{Error, Stop};
use crate::page::{Cell, CellBody, Node, PageEdit};
use crate::snapshot::{Kind, SnapshotId, View};
use crate::transaction::Transaction;

pub(crate) use diff::Progress;
pub use diff::{Change, Diffed};
pub(crate) use discretion::Kept;
#[cfg(any(test, feature = "simulator"))]
pub(crate) use large::find;
pub(crate) use large::{BODY_HEADER, body, body_of, retire, store};
pub use merge::{Merge, Merged, MergedKey, OnConflict};
pub use read::{Entry, Probe, Scanned};
pub(crate) use write::add_leaf;

pub(crate) use traverse::{Route, read_root, route};

/// What pages say in place of a tree's number: all trees of users are one.
pub(crate) const DATA: u32 = 1;

/// A tree of a user's: a namespace of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub u32);

impl TreeId {
    /// The key as pages have it.
    fn key(self, key: &[u8], transaction: &Transaction<'_>) -> Result<Vec<u8>, Error> {
        let full = [&self.0.to_be_bytes()[..], key].concat();
        let max = transaction.config().key_bytes_max();
        if full.len() > max {
            return Err(Error::KeyTooLong {
                bytes: key.len(),
                max: max - 4,
            });
        }
        Ok(full)
    }
}

/// Founds the tree, where none is: an empty leaf below a root, at the first snapshot.
pub fn found(transaction: &mut Transaction<'_>) -> Result<(), Stop> {
    if transaction.is_founded()? {
        return Ok(());
    }
    let place = transaction.place();
    let leaf = transaction.allocate(place)?;
    let root = transaction.allocate(place)?;
    let snapshot = SnapshotId(1);
    let inner = Node {
        height: 1,
        cells: vec![Cell {
            key: Vec::new(),
            body: CellBody::Child(leaf),
        }],
        is_root: true,
        ..Node::empty(DATA, root, snapshot)
    };
    put_new(transaction, leaf, &Node::empty(DATA, leaf, snapshot));
    put_new(transaction, root, &inner);
    transaction.set_tip(View {
        snapshot,
        root,
        kind: Kind::Tip(BranchId::FIRST),
    })?;
    transaction.found_branches()
}

/// Makes the tip of the first branch a snapshot (Figure 6).
pub fn create_snapshot(transaction: &mut Transaction<'_>) -> Result<View, Stop> {
    create_snapshot_of(transaction, BranchId::FIRST)
}

/// Makes a branch's tip a snapshot, and a copy of its root the new tip (Figure 6). Nothing else is
/// copied before it changes. It takes part at every memnode.
pub fn create_snapshot_of(
    transaction: &mut Transaction<'_>,
    branch: BranchId,
) -> Result<View, Stop> {
    let tip = transaction.tip_of(branch)?;
    let made = transaction.advance(tip)?;
    transaction.keep(made)?;
    Ok(made)
}

/// Allocates leaves that no version has yet. As they were made at the first version, from which all
/// come, the collection leaves them alone.
pub(crate) fn spare_leaves(
    transaction: &mut Transaction<'_>,
    count: usize,
) -> Result<Vec<Address>, Stop> {
    let spares = (0..count).map(|_| {
        let place = transaction.place();
        let spare = transaction.allocate(place)?;
        put_new(transaction, spare, &Node::empty(DATA, spare, SnapshotId(1)));
        Ok(spare)
    });
    spares.collect()
}

/// Writes a new node that fits.
fn put_new(transaction: &mut Transaction<'_>, address: Address, node: &Node) {
    let bytes = node
        .encode(transaction.config().page_bytes)
        .expect("a node that fits");
    transaction.put_page(address, PageEdit::whole(bytes));
}
