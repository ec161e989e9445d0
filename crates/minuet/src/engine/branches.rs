//! Branches of all trees, and what differs between two.
//!
//! The caller that makes, drops or names a branch makes sure that no session is in an operation
//! meanwhile, as it does for snapshots. Names are the catalog's (`branch`).
//!
//! Deliberately absent: merges and resets. The database does them key by key, so that they are
//! logged and watched as all that it writes; a large merge does so on a branch of its own, which
//! the one that it is for becomes ([`Minuet::adopt_branch`]).

#[cfg(test)]
mod tests;

use std::ops::{Bound, ControlFlow};

use pando_engine::{Direction, HashDraft, HashRef, Snapshot, TreeId};
use pando_sync::shim::Ordering;

use super::bundle::SHORT_BYTES;
use super::place::{Place, TREE_BYTES};
use super::sight::sight_of;
use super::value::Stored;
use super::{Counted, Minuet, MinuetSession, State};
use crate::branch::{BranchId, Origin};
use crate::error::{Error, Stop};
use crate::snapshot::{Kind, View};
use crate::transaction::Transaction;
use crate::tree::{Change, Progress};

/// Trees of branches but the first have numbers from here on.
pub(super) const FIRST_TREE: u32 = 1 << 31;

/// Those from here on are for a while, and used again.
pub(super) const LAST_TREE: u32 = u32::MAX - (1 << 20);

/// Whether a tree is one of a branch but the first, or none at all.
#[inline]
#[must_use]
pub const fn is_of_branch(tree: TreeId) -> bool {
    tree.0 >= FIRST_TREE
}

/// A version: what a branch is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// A branch, as it is.
    Branch(BranchId),
    /// A snapshot.
    Snapshot(Snapshot),
}

/// Keys that may differ.
#[derive(Debug, Default)]
pub struct Differing {
    /// In order: every one whose value differs, and a few more.
    pub keys: Vec<Vec<u8>>,
    /// Where to go on, if there may be more.
    pub next: Option<Vec<u8>>,
}

impl State {
    fn run_fallible<R>(
        &mut self,
        program: impl FnMut(&mut Transaction<'_>) -> Result<R, Stop>,
    ) -> Result<R, Error> {
        self.database.run(program)
    }

    fn add_branch_tree(&mut self, branch: BranchId, base: Option<TreeId>, keys: u64) -> TreeId {
        let tree = TreeId(self.next_branch_tree);
        assert!(tree.0 < LAST_TREE, "tree numbers are used up");
        self.next_branch_tree += 1;
        let counted = Counted::new(branch, base.unwrap_or(tree), keys);
        self.trees.insert(tree, counted);
        tree
    }

    /// What the entry of a change holds, if it is a bundle.
    fn bundle_of(&self, entry: Option<&(u64, Vec<u8>)>) -> Option<HashRef<'_>> {
        match Stored::of(&entry?.1) {
            Stored::Bundle(head) => Some(self.bundle(head)),
            Stored::Inline(_) | Stored::Large(_) => None,
        }
    }

    /// The keys of a change: one, or those of a bundle that differ.
    fn keys_of(&self, change: &Change) -> Vec<Vec<u8>> {
        let before = self.bundle_of(change.before.as_ref());
        let after = self.bundle_of(change.after.as_ref());
        if before.is_none() && after.is_none() {
            return vec![change.key.clone()];
        }
        let none = HashDraft::new(None);
        let [before, after] = [before, after].map(|row| row.unwrap_or(none.as_ref()));
        let common = &change.key[..SHORT_BYTES];
        let mut keys = Vec::new();
        after.changed_since(before, &mut |rest, _| keys.push([common, rest].concat()));
        keys
    }

    /// What differs in a tree that is the same in the pages of both versions. The cost follows what
    /// has changed.
    fn differing(
        &mut self,
        [before, after]: [(TreeId, Option<Snapshot>); 2],
        prefix: &[u8],
        from: &[u8],
        limit: usize,
    ) -> Option<Differing> {
        let (one, base) = self.sight(before.1, before.0)?;
        let (other, other_base) = self.sight(after.1, after.0)?;
        if base != other_base {
            return None;
        }
        // Alone, nothing changes meanwhile (ME1 turns): nothing is compared at the end, and a run
        // goes on where the one before lacked a page.
        let settled = |view: View| View {
            kind: Kind::Parting,
            ..view
        };
        let views = (settled(one.view), settled(other.view));
        let first = Place::of(pando_engine::Key::new(base, prefix.max(from)));
        let first = first.entry()[TREE_BYTES..].to_vec();
        let short = &prefix[..prefix.len().min(SHORT_BYTES)];
        let tree = crate::TreeId(base.0);
        let mut progress = Progress::new();
        let diffed = self.run(|transaction| {
            tree.diff_on(transaction, views, (short, &first), limit, &mut progress)
        });
        let keys = diffed
            .changes
            .iter()
            .flat_map(|change| self.keys_of(change));
        let keys = keys.filter(|key| key.starts_with(prefix) && &key[..] >= from);
        Some(Differing {
            keys: keys.collect(),
            next: diffed.next.map(|(_, key)| key),
        })
    }
}

impl Minuet {
    /// Makes a branch. Nothing is copied but the root. Descendant sets of its nodes have
    /// `descendants_max` ids at most.
    pub fn create_branch(
        &self,
        name: &[u8],
        from: From,
        descendants_max: u8,
    ) -> Result<BranchId, Error> {
        let mut state = self.write();
        state.note_branches();
        let origin = match from {
            From::Branch(of) => Origin::Branch(of),
            From::Snapshot(at) => {
                let sight = state.frozen.get(&at).expect("it is not released");
                Origin::Snapshot(sight.view)
            }
        };
        let made = state
            .run_fallible(|transaction| transaction.create_branch(name, origin, descendants_max))?;
        state.renew_tip(made);
        if let From::Branch(of) = from {
            state.renew_tip(of);
        }
        Ok(made)
    }

    /// Ids in descendant sets of a branch's nodes, at most.
    pub fn descendants_max(&self, branch: BranchId) -> u8 {
        let info = |transaction: &mut Transaction<'_>| transaction.branch_info(branch);
        let info = self.write().run_fallible(info);
        info.expect("a branch that is there").descendants_max
    }

    /// A tree of a branch that was just made from what `like` shows: it has as many keys.
    pub fn branch_tree(&self, branch: BranchId, like: TreeId, keys: u64) -> TreeId {
        let mut state = self.write();
        let base = state.trees.get(&like).expect("a tree that is there").base;
        state.add_branch_tree(branch, Some(base), keys)
    }

    /// An empty tree of a branch.
    pub fn create_branch_tree(&self, branch: BranchId) -> TreeId {
        self.write().add_branch_tree(branch, None, 0)
    }

    /// Drops a branch. Its trees show nothing but what snapshots show of them.
    pub fn drop_branch(&self, name: &[u8]) -> Result<(), Error> {
        let mut state = self.write();
        let dropped = state.run_fallible(|transaction| {
            let branch = transaction.branch(name)?;
            transaction.drop_branch(name)?;
            Ok(branch)
        })?;
        state.tips.remove(&dropped);
        state.collecting.note_released();
        Ok(())
    }

    /// Makes a branch what another one is, which goes, in one step: the first tree of each pair is
    /// what the second was, which is no tree any more. What was removed in either is forgotten: the
    /// caller sees to it that versions drawn later are above all that were drawn so far.
    pub fn adopt_branch(
        &self,
        branch: BranchId,
        other: &[u8],
        trees: impl IntoIterator<Item = (TreeId, TreeId)>,
    ) -> Result<(), Error> {
        let mut state = self.write();
        let gone = state.run_fallible(|transaction| transaction.adopt_branch(branch, other))?;
        state.tips.remove(&gone);
        state.renew_tip(branch);
        for (tree, from) in trees {
            state.graves.drop_tree(tree);
            state.graves.drop_tree(from);
            let from = state.trees.remove(&from);
            let tree = state.trees.get(&tree);
            if let (Some(tree), Some(from)) = (tree, from) {
                debug_assert!(tree.base == from.base && from.branch == gone);
                // Relaxed: as in `Counted::keys`.
                tree.keys.store(from.keys(), Ordering::Relaxed);
            }
        }
        state.collecting.note_released();
        Ok(())
    }

    /// Gives a branch another name.
    pub fn rename_branch(&self, name: &[u8], new: &[u8]) -> Result<(), Error> {
        let renamed = |transaction: &mut Transaction<'_>| transaction.rename_branch(name, new);
        self.write().run_fallible(renamed)
    }

    /// Makes a branch the mainline, which cannot be dropped.
    pub fn set_mainline(&self, name: &[u8]) -> Result<(), Error> {
        let made = |transaction: &mut Transaction<'_>| transaction.set_mainline(name);
        self.write().run_fallible(made)
    }

    /// A tree that shows what two trees of branches were where these part, until
    /// [`Self::close_base`]. What that was in pages the caller says; otherwise it is what both are,
    /// and none if they are not the same tree any more. It cannot be written.
    pub fn open_base(&self, one: TreeId, other: TreeId, was: Option<TreeId>) -> Option<TreeId> {
        let mut state = self.write();
        let (first, base) = state.present(one)?;
        let (second, other_base) = state.present(other)?;
        let base = was.or_else(|| (base == other_base).then_some(base))?;
        let (first, second) = (first.view, second.view);
        let sight = state.run(|transaction| {
            let view = transaction.parting(first, second)?;
            sight_of(transaction, view, true)
        });
        let tree = state.add_loose_tree(BranchId::FIRST, base, 0);
        state.bases.insert(tree, sight);
        Some(tree)
    }

    /// Trees that show what trees of a branch are now, or of a snapshot, each until
    /// [`Self::close_base`], whatever is done with the branch or the snapshot. They cannot be
    /// written. The caller makes sure that no session is in an operation.
    pub fn open_now(&self, version: From, trees: &[TreeId]) -> Vec<TreeId> {
        let mut state = self.write();
        let sight = state.settle(version);
        let mut shown = Vec::new();
        for tree in trees {
            let base = state.trees.get(tree).expect("a tree that is there").base;
            let tree = state.add_loose_tree(BranchId::FIRST, base, 0);
            state.bases.insert(tree, sight.clone());
            shown.push(tree);
        }
        shown
    }

    /// Nobody needs such a tree any more, or one of `album`.
    pub fn close_base(&self, tree: TreeId) {
        debug_assert!(tree.0 >= LAST_TREE);
        let mut state = self.write();
        state.bases.remove(&tree);
        state.trees.remove(&tree);
        state.graves.drop_tree(tree);
    }
}

impl MinuetSession {
    /// Keys with a prefix, from `from` on, whose values may differ between two trees, each as it is
    /// or was at a snapshot: about `limit` of them, which is 1 at least.
    pub fn differing(
        &mut self,
        trees: [(TreeId, Option<Snapshot>); 2],
        prefix: &[u8],
        from: &[u8],
        limit: usize,
    ) -> Differing {
        let found = self.engine.write().differing(trees, prefix, from, limit);
        found.unwrap_or_else(|| self.all_keys(trees, prefix, from, limit))
    }

    /// The keys of two trees that have nothing in common.
    fn all_keys(
        &mut self,
        trees: [(TreeId, Option<Snapshot>); 2],
        prefix: &[u8],
        from: &[u8],
        limit: usize,
    ) -> Differing {
        let first = prefix.max(from);
        let mut keys = Vec::new();
        // The first key that one of them has and that is not among its `keys`.
        let mut next: Option<Vec<u8>> = None;
        for (tree, at) in trees {
            let mut count = 0;
            let from = (tree, Bound::Included(first));
            self.run(at, from, Direction::Forward, |key, _| {
                if !key.starts_with(prefix) {
                    return ControlFlow::Break(());
                }
                if count == limit {
                    next = Some(
                        next.take()
                            .map_or(key.to_vec(), |next| next.min(key.to_vec())),
                    );
                    return ControlFlow::Break(());
                }
                count += 1;
                keys.push(key.to_vec());
                ControlFlow::Continue(())
            });
        }
        keys.retain(|key| next.as_ref().is_none_or(|next| key < next));
        keys.sort_unstable();
        keys.dedup();
        Differing { keys, next }
    }
}
