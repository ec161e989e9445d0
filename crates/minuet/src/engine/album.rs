//! All versions that somebody can go on from, at one moment, and making them again elsewhere.
//!
//! An album has the branches and snapshots that it is asked for, and the versions where two of
//! these part, as a tree: each node comes from its parent, so that what differs between the two
//! tells it. A checkpoint writes the first node as it is, and of each other node what differs from
//! its parent.
//!
//! A branch's tip becomes a version that nobody writes any more when the album is opened, so all of
//! it shows one moment. Nothing but roots is copied then; a page is when it changes for the first
//! time. While an album is open no page is collected, so that its versions stay as they are.
//!
//! To make such a tree again, whoever reads it fills the first branch with the first node, makes
//! branches and snapshots of it by the usual means, and goes on with what differs. Trees that are
//! there for a while let it write what no database of a branch shows.
//!
//! The caller makes sure that no session is in an operation when an album is opened, as it does for
//! snapshots. A checkpoint and those who send copies may each have one.

use std::sync::Arc;

use pando_engine::{KeptImages, LogEpoch, Snapshot, TreeId};
use pando_sync::shim::lock;

use super::branches::{FIRST_TREE, From, LAST_TREE};
use super::sight::{Sight, sight_of};
use super::{Counted, Minuet, State, is_of_branch};
use crate::branch::BranchId;
use crate::lineage::{Ancestry, Lineage, joints};

/// A branch that there never is: its trees show nothing at present.
pub const NOWHERE: BranchId = BranchId(u32::MAX);

/// One of the albums that are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AlbumId(u64);

/// A version of an album.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlbumNode {
    /// The node that it comes from, which is an earlier one; none of the first.
    pub parent: Option<usize>,
    /// Which of the versions that were asked for it is; none where two of them part.
    pub shows: Vec<usize>,
}

impl State {
    /// A version that stays as it is: a snapshot, or what a branch is now.
    pub(super) fn settle(&mut self, version: From) -> Sight {
        match version {
            From::Snapshot(at) => self.frozen.get(&at).expect("it is not released").clone(),
            From::Branch(branch) => {
                let tip = self.tip_of(branch).expect("a branch that is there");
                let ancestry = tip.ancestry.clone();
                let view = self.run(|transaction| transaction.leave_tip(branch));
                self.renew_tip(branch);
                Sight { view, ancestry }
            }
        }
    }

    /// A number in pages is used: no tree of the first branch gets it, since it would have what an
    /// earlier one left there, and lose what of that is still to be removed.
    fn pass(&mut self, base: TreeId) {
        if !is_of_branch(base) {
            self.next_tree = self.next_tree.max(base.0 + 1);
        }
    }

    /// Adds a tree for a while, with a number that is used again.
    pub(super) fn add_loose_tree(&mut self, branch: BranchId, base: TreeId, keys: u64) -> TreeId {
        let all = u32::MAX - LAST_TREE;
        let numbers = (1..=all).map(|step| (self.last_loose_tree + step) % all);
        let mut numbers = numbers.map(|number| TreeId(LAST_TREE + number));
        let free = numbers.find(|tree| !self.trees.contains_key(tree));
        let tree = free.expect("few trees are there for a while");
        self.last_loose_tree = tree.0 - LAST_TREE;
        let counted = Counted::new(branch, base, keys);
        self.trees.insert(tree, counted);
        tree
    }
}

impl Minuet {
    /// Opens an album of these versions, of which there is one at least.
    pub fn open_album(&self, versions: &[From]) -> (AlbumId, Vec<AlbumNode>) {
        let mut state = self.write();
        let sights: Vec<Sight> = versions
            .iter()
            .map(|version| state.settle(*version))
            .collect();
        let first_line = Arc::new(Lineage::default());
        let ancestries: Vec<Ancestry> = sights
            .iter()
            .map(|sight| {
                let alone = || Ancestry {
                    version: sight.view.snapshot(),
                    lineage: Arc::clone(&first_line),
                };
                sight.ancestry.clone().unwrap_or_else(alone)
            })
            .collect();
        let is_branched = state.is_branched;
        let (mut shown, mut nodes) = (Vec::new(), Vec::new());
        for joint in joints(&ancestries) {
            let sight = match joint.parts {
                None => sights[joint.is[0]].clone(),
                Some((one, other)) => {
                    let (one, other) = (sights[one].view, sights[other].view);
                    state.run(|transaction| {
                        let parting = transaction.parting(one, other)?;
                        sight_of(transaction, parting, is_branched)
                    })
                }
            };
            shown.push(sight);
            nodes.push(AlbumNode {
                parent: joint.parent,
                shows: joint.is,
            });
        }
        let album = AlbumId(state.next_album);
        state.next_album += 1;
        state.albums.insert(album, shown);
        (album, nodes)
    }

    /// Closes an album. Trees that show something of it must have been closed.
    pub fn close_album(&self, album: AlbumId) {
        let mut state = self.write();
        state.albums.remove(&album);
        state.collecting.note_released();
    }

    /// A tree that shows what a tree has in pages at a node of an album, until
    /// [`Self::close_base`]. It cannot be written.
    pub fn open_node(&self, (album, node): (AlbumId, usize), base: TreeId) -> TreeId {
        let mut state = self.write();
        let sight = state.albums[&album][node].clone();
        let tree = state.add_loose_tree(BranchId::FIRST, base, 0);
        state.bases.insert(tree, sight);
        tree
    }

    /// The number that a tree has in pages; none of one that is not there.
    pub fn base_of(&self, tree: TreeId) -> Option<TreeId> {
        self.read().trees.get(&tree).map(|counted| counted.base)
    }

    /// The number that the next tree of a branch gets, and making it no lower than that.
    pub fn next_branch_tree(&self, at_least: TreeId) -> TreeId {
        let mut state = self.write();
        if at_least.0 < LAST_TREE {
            state.next_branch_tree = state.next_branch_tree.max(at_least.0).max(FIRST_TREE);
        }
        TreeId(state.next_branch_tree)
    }

    /// Makes a tree known that has this number in pages, and so many keys there; or, if it is, says
    /// which branch it is of. Of a branch that is [`NOWHERE`], snapshots alone show it.
    pub fn restore_tree_of(&self, branch: BranchId, (tree, base): (TreeId, TreeId), keys: u64) {
        if is_of_branch(tree) {
            self.next_branch_tree(TreeId(tree.0 + 1));
        }
        let mut state = self.write();
        state.pass(tree);
        state.pass(base);
        // One of the same number had its keys in a branch that is gone.
        state.dropped.remove(&tree);
        let counted = Counted::new(branch, base, keys);
        state.trees.insert(tree, counted);
    }

    /// No tree of the first branch gets this number.
    pub fn pass_base(&self, base: TreeId) {
        self.write().pass(base);
    }

    /// A number in pages that no tree of the first branch has or gets.
    pub fn reserve_base(&self) -> TreeId {
        let mut state = self.write();
        let base = TreeId(state.next_tree);
        assert!(!is_of_branch(base), "tree numbers are used up");
        state.next_tree += 1;
        base
    }

    /// Whether keys of dropped trees are still to be removed: a branch that is made now has their
    /// pages for good.
    pub fn has_dropped_keys(&self) -> bool {
        !self.read().dropped.is_empty()
    }

    /// A tree of a branch by which it can be written what no tree of it shows, until
    /// [`Self::close_base`], or until it was dropped and its keys with it.
    pub fn open_loose(&self, branch: BranchId, base: TreeId, keys: u64) -> TreeId {
        let mut state = self.write();
        state.pass(base);
        state.add_loose_tree(branch, base, keys)
    }

    /// Makes a snapshot of a branch that has been made before: of an epoch that is none of those
    /// that are there, and not the newest perhaps.
    pub fn restore_snapshot(&self, epoch: LogEpoch, branch: BranchId) -> Snapshot {
        let mut state = self.write();
        let snapshot = Snapshot::of_epoch(epoch);
        self.freeze_as(&mut state, snapshot, branch);
        let mut images = KeptImages::default();
        for snapshot in state.frozen.keys() {
            images.freeze(*snapshot);
        }
        *lock(&state.images) = images;
        snapshot
    }
}
