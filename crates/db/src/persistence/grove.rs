//! Branches and lasting snapshots during recovery.
//!
//! A checkpoint with nodes is loaded along them. The first branch is filled with the first node, as
//! any database is. At a node, a branch is made for each of its children but one, and the branch
//! that stands there goes on to that one: so what nodes share is shared again. A branch is made
//! with the name of one that ends below (its *heir*); where no branch does, only snapshots, one
//! without a name is there for a while. Keys that are in a branch's pages and that no database of
//! it shows, since a snapshot or another branch needs them, are written by trees that are there for
//! a while, and dropped at its end.
//!
//! What the log says is then done where it was done: the records up to a change's point are
//! restored before it, all others behind it (RP4 changes-at-their-points).
//!
//! Other engines have no branches: they refuse a database that has any.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use pando_durability::checkpoint::{self, Chunk, Manifest};
use pando_engine::{Deadline, Engine, Key, LogEpoch, Point, Snapshot, Snapshots, TreeId};
use pando_minuet::BranchId;
use pando_minuet::engine::{Differing, From, Minuet, NOWHERE, is_of_branch};
use pando_minuet::limits::DESCENDANTS_MAX;

use super::load::Loader;
use super::recover::RecoveryError;
use crate::durable::bytes::{Malformed, malformed};
use crate::durable::catalog::{BranchNote, CatalogChange, Event, Forest, SnapshotNote, Source};
use crate::durable::forks::Place;
#[cfg(test)]
use crate::durable::testing::{Fault, is};
use crate::expiry::{ExpiryIndex, Of};
use crate::grove::{Grove, Grown};
use crate::limits;
use crate::snapshots::Frozen;
use crate::store::{Store, StoreSession};

const NO_BRANCH: &str = "a branch changes that there is not";

/// What was found cannot be taken.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Another engine is needed.
    Engine,
    Malformed(Malformed),
}

impl std::convert::From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl Grove {
    pub(crate) fn new(store: &Store) -> Self {
        let first = Grown {
            id: BranchId::FIRST,
            note: BranchNote {
                name: b"main".as_slice().into(),
                ..BranchNote::default()
            },
        };
        Self {
            engine: store.branching().map(Arc::clone),
            checkpoint: LogEpoch::NONE,
            is_planted: false,
            changes: 0,
            mainline: 0,
            branches: BTreeMap::from([(0, first)]),
            snapshots: BTreeMap::new(),
        }
    }

    /// What a checkpoint says whose first branch is alone.
    pub(super) fn take_alone(&mut self, forest: &Forest) {
        self.changes = forest.changes;
        let BranchNote {
            name,
            created,
            forks,
            merged,
            ..
        } = &forest.branches[0];
        let first = self.branches.get_mut(&0).expect("the first branch");
        first.note.created = *created;
        first.note.forks.clone_from(forks);
        first.note.merged.clone_from(merged);
        let old = std::mem::replace(&mut first.note.name, name.clone());
        if let Some(engine) = self.engine.as_ref().filter(|_| old != *name) {
            let renamed = engine.rename_branch(&old, name);
            renamed.expect("no other branch has the name");
        }
    }

    /// What a checkpoint has brought.
    pub(super) fn take(&mut self, forest: &Forest, grown: BTreeMap<u64, Grown>) {
        self.changes = forest.changes;
        self.mainline = forest.mainline;
        self.branches = grown;
        let snapshots = forest.snapshots.iter();
        self.snapshots = snapshots.map(|it| (it.epoch, it.clone())).collect();
    }

    /// Whether a branch but the first, or a snapshot, shows a tree.
    pub(super) fn shows(&self, tree: TreeId) -> bool {
        let mut branches = self.branches.values();
        let mut snapshots = self.snapshots.values();
        branches.any(|branch| branch.note.trees.contains(&tree))
            || snapshots.any(|snapshot| shown_by(snapshot).any(|shown| shown == tree))
    }

    fn branch(&self, number: u64) -> Result<&Grown, Malformed> {
        self.branches.get(&number).map_or(malformed(NO_BRANCH), Ok)
    }

    fn branch_mut(&mut self, number: u64) -> Result<&mut Grown, Malformed> {
        let branch = self.branches.get_mut(&number);
        branch.map_or(malformed(NO_BRANCH), Ok)
    }

    /// Before the records up to a change's point: its trees are written by them.
    pub(super) fn prepare(&self, change: &CatalogChange) -> Result<(), Malformed> {
        if let (Event::Mapped { branch, trees }, Some(engine)) = (&change.event, &self.engine) {
            let id = self.branch(*branch)?.id;
            for tree in trees {
                if !is_of_branch(*tree) {
                    return malformed("a branch has a tree of the first one");
                }
                if engine.base_of(*tree).is_none() {
                    engine.restore_tree_of(id, (*tree, *tree), 0);
                }
            }
        }
        Ok(())
    }

    /// Behind the records up to a change's point: does it. `is_mapped` says whether a database of
    /// the first branch has a tree.
    pub(super) fn apply(
        &mut self,
        change: CatalogChange,
        (store, expiry): (&Store, &ExpiryIndex),
        is_mapped: impl Fn(TreeId) -> bool,
    ) -> Result<(), Refusal> {
        let Some(engine) = self.engine.clone() else {
            self.changes = change.changes;
            return match change.event {
                Event::Branched { .. } | Event::Frozen { .. } | Event::Adopted { .. } => {
                    Err(Refusal::Engine)
                }
                _ => Ok(()),
            };
        };
        self.changes = change.changes;
        let mut left: Vec<TreeId> = Vec::new();
        match change.event {
            Event::Branched {
                branch,
                source,
                like,
            } => self.grow(&engine, store, branch, source, &like)?,
            Event::Dropped { branch } => {
                let dropped = self.branches.remove(&branch);
                let dropped = dropped.map_or(malformed(NO_BRANCH), Ok)?;
                done(engine.drop_branch(&dropped.note.name))?;
                left = dropped.note.trees;
            }
            Event::Renamed { branch, name } => {
                let branch = self.branch_mut(branch)?;
                let old = std::mem::replace(&mut branch.note.name, name);
                done(engine.rename_branch(&old, &branch.note.name))?;
            }
            Event::Mainline { branch } => {
                done(engine.set_mainline(&self.branch(branch)?.note.name))?;
                self.mainline = branch;
            }
            Event::Mapped { branch, trees } => {
                left = std::mem::replace(&mut self.branch_mut(branch)?.note.trees, trees);
            }
            Event::Frozen {
                branch,
                snapshot,
                at,
            } => self.freeze(&engine, branch, snapshot, at)?,
            Event::Adopted {
                branch,
                hidden,
                trees,
            } => {
                let hidden = self.branches.remove(&hidden);
                let hidden = hidden.map_or(malformed(NO_BRANCH), Ok)?.note;
                let branch = self.branch_mut(branch)?;
                let id = branch.id;
                branch.note.forks.clone_from(&hidden.forks);
                adopt(&engine, (store, expiry), (id, &trees), &hidden)?;
            }
            Event::Merged { branch, marks } => self.branch_mut(branch)?.note.merged = marks,
            Event::Planted { checkpoint } => self.check_planted(checkpoint)?,
            Event::Planting { checkpoint } => self.is_planted = checkpoint == self.checkpoint,
            Event::Released { epoch, .. } => left = self.release(store, epoch)?,
        }
        for tree in left {
            if !is_mapped(tree) && !self.shows(tree) {
                store.drop_tree(tree);
                expiry.drop_tree(tree);
            }
        }
        Ok(())
    }

    /// Makes a snapshot of a branch, after so many changes.
    fn freeze(
        &mut self,
        engine: &Minuet,
        branch: u64,
        mut snapshot: SnapshotNote,
        at: u64,
    ) -> Result<(), Malformed> {
        let branch = self.branch(branch)?;
        engine.restore_snapshot(snapshot.epoch, branch.id);
        let place = Place::of_snapshot(branch.note.forks.as_ref(), at);
        snapshot.place = place.with(&branch.note.merged);
        match self.snapshots.insert(snapshot.epoch, snapshot) {
            Some(_) => malformed("a snapshot is made twice"),
            None => Ok(()),
        }
    }

    /// FA1 planted-whole: what came by a copy is in no log.
    fn check_planted(&mut self, checkpoint: LogEpoch) -> Result<(), Malformed> {
        if checkpoint > self.checkpoint {
            return malformed(
                "the data came by a full copy, and its checkpoint is damaged or gone",
            );
        }
        self.is_planted = false;
        Ok(())
    }

    /// Drops a snapshot; returns the trees that it showed.
    fn release(&mut self, store: &Store, epoch: LogEpoch) -> Result<Vec<TreeId>, Malformed> {
        let Some(snapshot) = self.snapshots.remove(&epoch) else {
            return malformed("a snapshot is dropped that there is not");
        };
        store.release(Snapshot::of_epoch(epoch));
        Ok(shown_by(&snapshot).collect())
    }

    fn grow(
        &mut self,
        engine: &Minuet,
        store: &Store,
        mut note: BranchNote,
        source: Source,
        like: &[TreeId],
    ) -> Result<(), Malformed> {
        let (from, keys, place): (_, Vec<u64>, Place) = match source {
            Source::Branch(number) => {
                let keys = like.iter().map(|tree| store.len(*tree));
                let branch = self.branch(number)?;
                let place = Place::of_branch(branch.note.forks.as_ref(), note.number);
                let place = place.with(&branch.note.merged);
                (From::Branch(branch.id), keys.collect(), place)
            }
            Source::Snapshot(epoch) => {
                let Some(snapshot) = self.snapshots.get(&epoch) else {
                    return malformed("a branch comes from a snapshot that there is not");
                };
                let keys = snapshot.databases.iter().map(|frozen| frozen.keys);
                let at = Snapshot::of_epoch(epoch);
                (From::Snapshot(at), keys.collect(), snapshot.place.clone())
            }
        };
        if like.len() != note.trees.len() || !note.trees.iter().copied().all(is_of_branch) {
            return malformed("a branch has other trees than it has databases");
        }
        let Ok(id) = engine.create_branch(&note.name, from, note.descendants_max) else {
            return malformed("a branch cannot be made again");
        };
        let mut bases = Vec::new();
        for (index, (tree, like)) in note.trees.iter().zip(like).enumerate() {
            let Some(base) = engine.base_of(*like) else {
                return malformed("a branch is made from a tree that there is not");
            };
            let keys = keys.get(index).copied().unwrap_or(0);
            engine.restore_tree_of(id, (*tree, base), keys);
            bases.push(base);
        }
        note.forks = Some(place.fork(note.number, bases));
        note.merged = place.merged_by(&note.name);
        self.branches.insert(note.number, Grown { id, note });
        Ok(())
    }

    /// Gives every branch a tree for each of so many databases; returns what the log is to say
    /// before anything else: what has changed, and that a full copy is in the checkpoint.
    pub(crate) fn complete(&mut self, databases: usize, point: LogEpoch) -> Vec<CatalogChange> {
        let mut changes = Vec::new();
        let Some(engine) = &self.engine else {
            return changes;
        };
        #[cfg(test)]
        let is_planted = self.is_planted && !is(Fault::PlantingForgotten);
        #[cfg(not(test))]
        let is_planted = self.is_planted;
        if is_planted {
            self.changes += 1;
            changes.push(CatalogChange {
                changes: self.changes,
                point,
                event: Event::Planted {
                    checkpoint: self.checkpoint,
                },
            });
        }
        for (number, branch) in self.branches.iter_mut().skip(1) {
            let trees = &mut branch.note.trees;
            if trees.len() >= databases {
                continue;
            }
            trees.resize_with(databases, || engine.create_branch_tree(branch.id));
            self.changes += 1;
            changes.push(CatalogChange {
                changes: self.changes,
                point,
                event: Event::Mapped {
                    branch: *number,
                    trees: trees.clone(),
                },
            });
        }
        changes
    }
}

fn done(result: Result<(), pando_minuet::Error>) -> Result<(), Malformed> {
    result.map_err(|_| Malformed {
        what: "a branch cannot be changed again",
    })
}

/// A branch, whose databases have these trees, becomes a hidden one.
fn adopt(
    engine: &Minuet,
    (store, expiry): (&Store, &ExpiryIndex),
    (branch, trees): (BranchId, &[TreeId]),
    hidden: &BranchNote,
) -> Result<(), Malformed> {
    if trees.len() != hidden.trees.len() || hidden.number == 0 {
        return malformed("a branch became one of other databases");
    }
    let pairs: Vec<_> = trees.iter().copied().zip(hidden.trees.clone()).collect();
    // Of the first branch alone is the index complete.
    let changed = match branch {
        BranchId::FIRST => retimed(store, &pairs),
        _ => Vec::new(),
    };
    done(engine.adopt_branch(branch, &hidden.name, pairs.iter().copied()))?;
    for (tree, key, changes) in changed {
        for (of, before, after) in changes {
            let index = expiry.by(of);
            index.reconcile(Key::new(tree, &key), before, || after);
        }
    }
    for (_, from) in pairs {
        expiry.drop_tree(from);
    }
    Ok(())
}

/// A key of a tree, and what deadlines of it were and will be.
type Retimed = (
    TreeId,
    Vec<u8>,
    [(Of, Option<Deadline>, Option<Deadline>); 2],
);

/// The keys of the first trees of pairs that have other deadlines in the second ones.
fn retimed(store: &Store, pairs: &[(TreeId, TreeId)]) -> Vec<Retimed> {
    let Ok(StoreSession::Minuet(mut session)) = store.session() else {
        unreachable!("the engine has branches, and recovery few sessions");
    };
    let mut found = Vec::new();
    for (tree, other) in pairs {
        let mut from = Vec::new();
        loop {
            let sides = [(*tree, None), (*other, None)];
            let limit = limits::DIFFERENCES_PER_SLICE;
            let Differing { keys, next } = session.differing(sides, b"", &from, limit);
            for key in keys {
                let [before, after] = [tree, other].map(|tree| {
                    session.get(Key::new(*tree, &key), |value| {
                        Of::BOTH.map(|of| value.as_ref().and_then(|value| of.deadline(value)))
                    })
                });
                if before != after {
                    let changes = [0, 1].map(|of| (Of::BOTH[of], before[of], after[of]));
                    found.push((*tree, key, changes));
                }
            }
            match next {
                Some(next) => from = next,
                None => break,
            }
        }
    }
    found
}

fn shown_by(snapshot: &SnapshotNote) -> impl Iterator<Item = TreeId> + '_ {
    snapshot.databases.iter().map(|frozen: &Frozen| frozen.tree)
}

/// A branch on its way through the nodes of an album.
#[derive(Debug)]
struct Site {
    id: BranchId,
    /// The number of the branch that ends below, unless it is there for a while.
    heir: Option<u64>,
    name: Box<[u8]>,
    /// By their numbers in pages.
    trees: BTreeMap<TreeId, TreeId>,
}

/// Where nodes lead.
#[derive(Debug)]
struct Ways {
    children: Vec<Vec<usize>>,
    /// The branch that ends at each node, or below it, if any does; 0 where the first one does.
    heirs: Vec<Option<u64>>,
}

impl Ways {
    fn of(forest: &Forest) -> Self {
        let mut children = vec![Vec::new(); forest.nodes.len()];
        let mut heirs: Vec<Option<u64>> = vec![None; forest.nodes.len()];
        for (index, node) in forest.nodes.iter().enumerate().rev() {
            let mut branches = node
                .shows
                .iter()
                .filter_map(|item| forest.branches.get(*item));
            let own = branches.next().map(|branch| branch.number);
            // The first branch goes before others.
            let below = children[index]
                .iter()
                .filter_map(|child: &usize| heirs[*child]);
            heirs[index] = own.into_iter().chain(below).min();
            if let Some(parent) = node.parent {
                children[parent].push(index);
            }
        }
        Self { children, heirs }
    }

    /// The child to which a branch goes on that ends at `heir`, and the others.
    fn at(&self, node: usize, heir: Option<u64>) -> (Option<usize>, Vec<usize>) {
        let children = &self.children[node];
        let own = |child: &&usize| heir.is_some() && self.heirs[**child] == heir;
        let goes_on = children.iter().find(own).or(children.last()).copied();
        let others = children.iter().copied();
        let others = others.filter(|child| Some(*child) != goes_on);
        (goes_on, others.collect())
    }
}

/// The order in which a [`Planting`] comes to the nodes.
pub(crate) fn order(forest: &Forest) -> Vec<usize> {
    let ways = Ways::of(forest);
    let (mut order, mut waiting) = (Vec::new(), vec![0]);
    while let Some(first) = waiting.pop() {
        let (mut next, heir) = (Some(first), ways.heirs[first]);
        while let Some(node) = next {
            order.push(node);
            let (goes_on, others) = ways.at(node, heir);
            waiting.extend(others);
            next = goes_on;
        }
    }
    order
}

/// Makes branches and snapshots along the nodes of an album, which the caller fills one after the
/// other, in [`order`]: what of [`Self::node`] differs from its parent goes into the trees of
/// [`Self::tree`], and then it goes on.
#[derive(Debug)]
pub(crate) struct Planting {
    forest: Forest,
    engine: Arc<Minuet>,
    ways: Ways,
    /// The trees of each branch, by their numbers in pages.
    trees: BTreeMap<u64, BTreeMap<TreeId, TreeId>>,
    /// The branch that stands at a node.
    present: Option<(usize, Site)>,
    /// Branches that were made for other nodes.
    waiting: Vec<(usize, Site)>,
    /// Those that have come to their end.
    ids: BTreeMap<u64, BranchId>,
    frozen: Vec<LogEpoch>,
    made: usize,
}

impl Planting {
    /// Prepares the first branch, whose databases have the trees `mapped`, for the first node. The
    /// engine has no other one.
    pub(crate) fn new(
        forest: Forest,
        engine: Arc<Minuet>,
        mapped: &[TreeId],
    ) -> Result<Self, Malformed> {
        let ways = Ways::of(&forest);
        if ways.heirs.first() != Some(&Some(0)) {
            return malformed("a checkpoint lacks the first branch");
        }
        let first = forest.branches[0].name.clone();
        if *first != *b"main" {
            done(engine.rename_branch(b"main", &first))?;
        }
        let by_base = |trees: &[TreeId]| -> BTreeMap<TreeId, TreeId> {
            trees
                .iter()
                .map(|tree| (forest.base(*tree), *tree))
                .collect()
        };
        let mut trees: BTreeMap<u64, _> = BTreeMap::new();
        for branch in &forest.branches {
            trees.insert(branch.number, by_base(&branch.trees));
        }
        trees.insert(0, by_base(mapped));
        let first = Site {
            id: BranchId::FIRST,
            heir: Some(0),
            name: first,
            trees: trees[&0].clone(),
        };
        let of_first = forest.sections.iter().filter(|(node, _)| *node == 0);
        let bases: Vec<TreeId> = of_first.map(|(_, base)| *base).collect();
        for base in forest.fork_bases() {
            engine.pass_base(base);
        }
        let mut planting = Self {
            forest,
            engine,
            ways,
            trees,
            present: Some((0, first)),
            waiting: Vec::new(),
            ids: BTreeMap::new(),
            frozen: Vec::new(),
            made: 0,
        };
        for base in bases {
            planting.tree(base);
        }
        Ok(planting)
    }

    /// The tree into which a chunk of the first node goes; `None`: it is another node's.
    pub(super) fn of_root(&self, chunk: &Chunk) -> Result<Option<TreeId>, Malformed> {
        match (self.forest.sections.get(chunk.tree as usize), &self.present) {
            (Some((0, base)), Some((0, first))) => Ok(Some(first.trees[base])),
            (Some(_), _) => Ok(None),
            (None, _) => malformed("a chunk is of no version"),
        }
    }

    /// The chunks of all nodes but the first.
    pub(super) fn chunks<'m>(
        &self,
        manifest: &'m Manifest,
    ) -> HashMap<usize, Vec<(TreeId, &'m Chunk)>> {
        let mut chunks: HashMap<usize, Vec<(TreeId, &Chunk)>> = HashMap::new();
        for chunk in &manifest.chunks {
            // It was looked at as the first node was loaded.
            let (node, base) = self.forest.sections[chunk.tree as usize];
            if node > 0 {
                chunks.entry(node).or_default().push((base, chunk));
            }
        }
        chunks
    }

    /// The node that is to be filled; none: all are.
    pub(crate) fn node(&self) -> Option<usize> {
        self.present.as_ref().map(|(node, _)| *node)
    }

    /// The tree by which what a tree has in pages is written at that node.
    pub(crate) fn tree(&mut self, base: TreeId) -> TreeId {
        let (_, site) = self.present.as_mut().expect("a node is to be filled");
        let loose = || self.engine.open_loose(site.id, base, 0);
        *site.trees.entry(base).or_insert_with(loose)
    }

    /// The node has everything: makes its snapshots, and the branches that leave it.
    pub(crate) fn go_on(&mut self) -> Result<(), Malformed> {
        let (node, site) = self.present.take().expect("a node was filled");
        self.freeze(node, &site);
        let (goes_on, others) = self.ways.at(node, site.heir);
        for child in others {
            let made = self.leave(&site, child);
            match made {
                Ok(branch) => self.waiting.push((child, branch)),
                Err(error) => {
                    self.present = Some((node, site));
                    return Err(error);
                }
            }
        }
        if let Some(next) = goes_on {
            self.present = Some((next, site));
        } else {
            self.end(&site)?;
            self.present = self.waiting.pop();
        }
        Ok(())
    }

    /// All nodes were filled; returns the branches by their numbers, and what it was made from.
    pub(crate) fn finish(self) -> Result<(Forest, BTreeMap<u64, Grown>), Malformed> {
        self.engine.next_branch_tree(self.forest.next_tree);
        self.know_shown();
        let mainline = self.forest.branches.iter();
        let mut mainline = mainline.filter(|branch| branch.number == self.forest.mainline);
        let mainline = mainline.next().expect("a forest was checked");
        done(self.engine.set_mainline(&mainline.name))?;
        let ids = &self.ids;
        let grown = self.forest.branches.iter().map(|note| {
            let id = ids.get(&note.number).copied();
            let id = id.ok_or(Malformed {
                what: "a checkpoint lacks a branch",
            })?;
            let note = note.clone();
            Ok((note.number, Grown { id, note }))
        });
        let grown = grown.collect::<Result<_, Malformed>>()?;
        Ok((self.forest, grown))
    }

    /// Drops all that it has made; what is in the first branch's trees stays.
    pub(crate) fn give_up(mut self) {
        for epoch in std::mem::take(&mut self.frozen) {
            self.engine.release(Snapshot::of_epoch(epoch));
        }
        let present = self.present.take();
        for (_, site) in present.into_iter().chain(std::mem::take(&mut self.waiting)) {
            for tree in self.passing(&site) {
                self.engine.close_base(tree);
            }
            self.drop_site(&site);
        }
        for number in self.ids.keys().filter(|number| **number > 0) {
            let branches = self.forest.branches.iter();
            let mut branch = branches.filter(|branch| branch.number == *number);
            let branch = branch.next().expect("it was made for this one");
            let _ = self.engine.drop_branch(&branch.name);
            for tree in &branch.trees {
                self.engine.drop_tree(*tree);
            }
        }
        let first = &self.forest.branches[0].name;
        if **first != *b"main" {
            let _ = self.engine.rename_branch(first, b"main");
        }
    }

    fn drop_site(&self, site: &Site) {
        if site.id != BranchId::FIRST {
            let _ = self.engine.drop_branch(&site.name);
            let own = site.heir.and_then(|heir| self.trees.get(&heir));
            for tree in own.into_iter().flat_map(BTreeMap::values) {
                self.engine.drop_tree(*tree);
            }
        }
    }

    /// The trees of a branch that are there for a while.
    fn passing(&self, site: &Site) -> Vec<TreeId> {
        let own = site.heir.and_then(|heir| self.trees.get(&heir));
        let own: BTreeSet<&TreeId> = own.into_iter().flat_map(BTreeMap::values).collect();
        let trees = site.trees.values().filter(|tree| !own.contains(tree));
        trees.copied().collect()
    }

    /// Makes the snapshots of a node, which a branch stands at.
    fn freeze(&mut self, node: usize, site: &Site) {
        let branches = self.forest.branches.len();
        for item in &self.forest.nodes[node].shows {
            if let Some(snapshot) = item.checked_sub(branches) {
                let epoch = self.forest.snapshots[snapshot].epoch;
                self.engine.restore_snapshot(epoch, site.id);
                self.frozen.push(epoch);
            }
        }
    }

    /// Makes a branch for a child of the node that `site` stands at.
    fn leave(&mut self, site: &Site, child: usize) -> Result<Site, Malformed> {
        let heir = self.ways.heirs[child];
        let note = heir.and_then(|heir| {
            let mut branches = self.forest.branches.iter();
            branches.find(|branch| branch.number == heir)
        });
        self.made += 1;
        let name = match note {
            Some(note) => note.name.clone(),
            // No branch of a client has such a name.
            None => format!("\0{}", self.made).into_bytes().into(),
        };
        let bound = note.map_or(DESCENDANTS_MAX, |note| note.descendants_max);
        let made = self
            .engine
            .create_branch(&name, From::Branch(site.id), bound);
        let what = "a branch of a checkpoint cannot be made again";
        let id = made.map_err(|_| Malformed { what })?;
        let own = heir.and_then(|heir| self.trees.get(&heir));
        let mut trees = BTreeMap::new();
        for (base, like) in &site.trees {
            let keys = self.engine.len(*like);
            let tree = match own.and_then(|own| own.get(base)) {
                Some(tree) => {
                    self.engine.restore_tree_of(id, (*tree, *base), keys);
                    *tree
                }
                None => self.engine.open_loose(id, *base, keys),
            };
            trees.insert(*base, tree);
        }
        for (base, tree) in own.into_iter().flatten() {
            if !trees.contains_key(base) {
                self.engine.restore_tree_of(id, (*tree, *base), 0);
                trees.insert(*base, *tree);
            }
        }
        Ok(Site {
            id,
            heir,
            name,
            trees,
        })
    }

    /// A branch has come to the end of its way.
    fn end(&mut self, site: &Site) -> Result<(), Malformed> {
        let passing = self.passing(site);
        match site.heir {
            Some(heir) => _ = self.ids.insert(heir, site.id),
            None => done(self.engine.drop_branch(&site.name))?,
        }
        for tree in passing {
            if site.heir.is_some() && self.engine.len(tree) > 0 {
                self.engine.drop_tree(tree);
            } else {
                self.engine.close_base(tree);
            }
        }
        Ok(())
    }

    /// Trees that snapshots alone show are known.
    fn know_shown(&self) {
        let known: BTreeSet<TreeId> = self
            .trees
            .values()
            .flat_map(|trees| trees.values())
            .copied()
            .collect();
        for tree in self.forest.snapshots.iter().flat_map(shown_by) {
            if !known.contains(&tree) {
                let base = self.forest.base(tree);
                self.engine.restore_tree_of(NOWHERE, (tree, base), 0);
            }
        }
    }
}

pub(super) fn refused(error: Malformed) -> RecoveryError {
    RecoveryError::Forest { what: error.what }
}

/// Reads the entries of a chunk from disk into a tree.
pub(super) fn read_chunk(
    (disk, files): (&dyn pando_durability::disk::Disk, &checkpoint::Directories),
    loader: &mut Loader<'_>,
    manifest: &Manifest,
    chunk: &Chunk,
    tree: TreeId,
) -> Result<(), RecoveryError> {
    checkpoint::read_chunk(disk, files, manifest, chunk, &mut |entry| {
        loader.take(tree, chunk.sorted, entry)
    })?;
    loader.tidy();
    Ok(())
}
