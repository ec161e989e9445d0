//! The part of a checkpoint that has branches and lasting snapshots. A full copy for a replica has
//! the same (`replication::album`).
//!
//! Under the gates under which the checkpoint begins, all of them become versions that nobody
//! writes (the engine's album). So the checkpoint shows one moment, and what is made from them
//! later is made in the log. The first node is cut into ranges and scanned, as any tree is. Of
//! every other one the keys that differ from its parent's are written, without a value where they
//! are not there; pages that both have are passed over.
//!
//! A database whose first branch is alone is written without an album. If branches change
//! meanwhile, such a checkpoint is given up and taken again with one
//! ([`CheckpointFailure::Overtaken`]): the first branch may have been written after another was
//! made from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use pando_durability::checkpoint::PartsWriter;
use pando_engine::{Key, NewValue, Point, TreeId, ValueVersion};
use pando_minuet::engine::{AlbumId, Differing, From, Minuet};
use pando_sync::lock;

use super::{CheckpointFailure, Range, Work, write_large};
use crate::branches::NamedBranch;
use crate::database::Database;
use crate::durable::bytes::Sink;
use crate::durable::catalog::{Forest, NodeNote, SnapshotNote};
#[cfg(test)]
use crate::durable::testing::{Fault, is};
use crate::durable::{record, value};
use crate::limits;
use crate::persistence::pace::Duty;
use crate::session_state::SessionState;
use crate::snapshots::NamedSnapshot;
use crate::store::StoreSession;
use crate::turn::Turn;

/// The versions of a checkpoint, or of a full copy; closed when it is dropped.
#[derive(Debug)]
pub(crate) struct Album {
    engine: Arc<Minuet>,
    id: AlbumId,
    parents: Vec<Option<usize>>,
    /// Trees that show the first node, the number of each in pages, and about how many keys it has.
    roots: Vec<(TreeId, TreeId, u64)>,
    /// The trees of all other nodes, by their numbers in pages.
    pub(crate) others: Vec<(usize, TreeId)>,
    /// See [`Forest::sections`].
    sections: Mutex<Vec<(usize, TreeId)>>,
}

impl Drop for Album {
    fn drop(&mut self) {
        for (tree, ..) in &self.roots {
            self.engine.close_base(*tree);
        }
        self.engine.close_album(self.id);
    }
}

impl NamedSnapshot {
    /// What the log says of it.
    pub(crate) fn note(&self) -> SnapshotNote {
        SnapshotNote {
            epoch: self.epoch(),
            name: self.name.clone(),
            time: self.moment.time,
            until: self.until,
            databases: self.databases.to_vec(),
            place: self.place.clone(),
        }
    }
}

impl Database {
    /// What a checkpoint says of branches and lasting snapshots, and an album of them, where there
    /// are any, or if `always`. The caller holds all gates.
    pub(crate) fn open_album(&self, always: bool) -> (Option<Forest>, Option<Album>) {
        let branches = self.branches.all();
        let snapshots = self.snapshots.list();
        let lasting: Vec<_> = snapshots.iter().filter(|it| it.lasts).collect();
        let engine = self.store.branching();
        let mut forest = Forest {
            changes: self.branches.changes.load(Ordering::Relaxed),
            next_tree: engine.map_or(TreeId(0), |engine| engine.next_branch_tree(TreeId(0))),
            mainline: branches
                .iter()
                .find(|branch| branch.id == self.branches.mainline())
                .map_or(0, |branch| branch.number),
            branches: branches.iter().map(NamedBranch::note).collect(),
            ..Forest::default()
        };
        let is_forked = branches.len() > 1 || !lasting.is_empty();
        let Some(engine) = engine.filter(|_| is_forked || always) else {
            // Of an engine that has branches, at least when the first one began.
            let is_known = engine.is_some() || forest.changes > 0;
            return (is_known.then_some(forest), None);
        };
        forest.snapshots = lasting.iter().map(|snapshot| snapshot.note()).collect();
        let of_branches = branches.iter().map(|branch| From::Branch(branch.id));
        let of_snapshots = lasting.iter().map(|it| From::Snapshot(it.moment.snapshot));
        let versions: Vec<From> = of_branches.chain(of_snapshots).collect();
        let (id, nodes) = engine.open_album(&versions);
        forest.nodes = nodes
            .into_iter()
            .map(|node| NodeNote {
                parent: node.parent,
                shows: node.shows,
            })
            .collect();
        let album = self.album((engine, id), &mut forest);
        (Some(forest), Some(album))
    }

    /// The trees that are to be written of an open album.
    fn album(&self, (engine, id): (&Arc<Minuet>, AlbumId), forest: &mut Forest) -> Album {
        let first = self.mapping();
        let mut keys: BTreeMap<TreeId, u64> = BTreeMap::new();
        let mut bases = Vec::new();
        let mut show = |trees: Vec<(TreeId, u64)>| {
            let mut shown = BTreeSet::new();
            for (tree, count) in trees {
                let base = engine.base_of(tree).unwrap_or(tree);
                if base != tree {
                    forest.bases.insert(tree, base);
                }
                let most = keys.entry(base).or_default();
                *most = count.max(*most);
                shown.insert(base);
            }
            bases.push(shown);
        };
        for branch in &forest.branches {
            let trees = if branch.number == 0 {
                &first
            } else {
                &branch.trees
            };
            show(
                trees
                    .iter()
                    .map(|tree| (*tree, self.store.len(*tree)))
                    .collect(),
            );
        }
        for snapshot in &forest.snapshots {
            let databases = snapshot.databases.iter();
            show(databases.map(|frozen| (frozen.tree, frozen.keys)).collect());
        }
        add_emptied(forest, &mut bases, &mut keys);
        // What is shown below a node has its keys there.
        let mut below = vec![BTreeSet::new(); forest.nodes.len()];
        for (index, node) in forest.nodes.iter().enumerate().rev() {
            for item in &node.shows {
                below[index].extend(&bases[*item]);
            }
            if let Some(parent) = node.parent {
                let shown = below[index].clone();
                below[parent].extend(shown);
            }
        }
        let others = below.iter().enumerate().skip(1);
        let others = others.flat_map(|(node, bases)| bases.iter().map(move |base| (node, *base)));
        let others = others.collect();
        let roots = below[0].iter();
        let roots: Vec<_> = roots
            .map(|base| (engine.open_node((id, 0), *base), *base, keys[base]))
            .collect();
        Album {
            engine: Arc::clone(engine),
            id,
            parents: forest.nodes.iter().map(|node| node.parent).collect(),
            sections: Mutex::new(roots.iter().map(|(_, base, _)| (0, *base)).collect()),
            roots,
            others,
        }
    }
}

/// Adds what merges compare with, where a branch or a snapshot has emptied a database, or swapped
/// it, since it parted from another one: what was there on its way.
fn add_emptied(forest: &Forest, bases: &mut [BTreeSet<TreeId>], keys: &mut BTreeMap<TreeId, u64>) {
    #[cfg(test)]
    if is(Fault::EmptiedForgotten) {
        return;
    }
    for (item, shown) in bases.iter_mut().enumerate() {
        for base in forest.way_bases(item) {
            keys.entry(base).or_default();
            shown.insert(base);
        }
    }
}

impl Album {
    /// Trees that show the first node: each with the number of its chunks, and about how many keys
    /// it has.
    pub(super) fn roots(&self) -> impl Iterator<Item = (TreeId, u32, u64)> + '_ {
        let roots = self.roots.iter().enumerate();
        roots.map(|(index, (tree, _, keys))| (*tree, index as u32, *keys))
    }

    /// Those trees, and the number of each in pages.
    pub(crate) fn bases(&self) -> impl Iterator<Item = (TreeId, TreeId)> + '_ {
        self.roots.iter().map(|(tree, base, _)| (*tree, *base))
    }

    /// What a tree has at a node that is not the first, and at its parent.
    pub(crate) fn sides(&self, (node, base): (usize, TreeId)) -> Sides {
        let parent = self.parents[node].expect("it is not the first node");
        Sides {
            engine: Arc::clone(&self.engine),
            before: self.engine.open_node((self.id, parent), base),
            after: self.engine.open_node((self.id, node), base),
        }
    }

    /// What the chunks are of.
    pub(super) fn sections(&self) -> Vec<(usize, TreeId)> {
        lock(&self.sections).clone()
    }

    /// The number of the chunks of a tree that is no root.
    fn section(&self, node: usize, base: TreeId) -> u32 {
        let mut sections = lock(&self.sections);
        sections.push((node, base));
        sections.len() as u32 - 1
    }
}

/// Two trees that are there for a while.
#[derive(Debug)]
pub(crate) struct Sides {
    engine: Arc<Minuet>,
    before: TreeId,
    after: TreeId,
}

impl Drop for Sides {
    fn drop(&mut self) {
        self.engine.close_base(self.before);
        self.engine.close_base(self.after);
    }
}

/// What a key has become.
pub(crate) type Changed = (Vec<u8>, ValueVersion, Option<NewValue<'static>>);

impl Sides {
    /// The keys that differ, from `from` on, and where to go on.
    pub(crate) fn changed(
        &self,
        store: &mut StoreSession,
        from: &[u8],
    ) -> (Vec<Changed>, Option<Vec<u8>>) {
        let StoreSession::Minuet(session) = store else {
            unreachable!("the engine has branches");
        };
        let (before, after) = (self.before, self.after);
        let sides = [(before, None), (after, None)];
        let Differing { keys, next } =
            session.differing(sides, b"", from, limits::DIFFERENCES_PER_SLICE);
        let changed = keys.into_iter().filter_map(|key| {
            let was = session.get(Key::new(before, &key), |value| {
                value.map(|value| value.version)
            });
            let now = session.get(Key::new(after, &key), |value| {
                value.map(|value| (value.version, value.hand_over()))
            });
            match (was, now) {
                (Some(was), Some((now, _))) if was == now => None,
                (None, None) => None,
                (_, Some((version, value))) => Some((key, version, Some(value))),
                // Its removal has a later version than the value, and an earlier one than the next.
                (Some(was), None) => Some((key, ValueVersion::from_bits(was.to_bits() + 1), None)),
            }
        });
        (changed.collect(), next)
    }
}

impl Work<'_> {
    /// The ranges of an album's first node.
    pub(super) fn cut_roots(
        database: &Database,
        state: &mut SessionState,
        album: &Album,
    ) -> (Vec<Range>, u64) {
        let (mut ranges, mut total) = (Vec::new(), 0);
        for (tree, chunk, keys) in album.roots() {
            total += keys;
            ranges.extend(database.cut(state, (tree, chunk), keys));
        }
        (ranges, total)
    }

    /// Writes what differs in a tree of an album's node from its parent.
    pub(super) fn write_difference(
        &self,
        album: &Album,
        (node, base): (usize, TreeId),
        state: &mut SessionState,
        writer: &mut PartsWriter<'_>,
        duty: &mut Duty,
    ) -> Result<(), CheckpointFailure> {
        let sides = album.sides((node, base));
        let (mut from, mut has_begun) = (Vec::new(), false);
        loop {
            let (began, flushed) = (std::time::Instant::now(), writer.flushed());
            let written = writer.bytes();
            let mut turn = Turn::begin(self.database, state);
            let store = &mut turn.session_mut().store;
            let (changed, next) = sides.changed(store, &from);
            drop(turn);
            let entries = changed.len() as u64;
            if entries > 0 && !has_begun {
                has_begun = true;
                let section = album.section(node, base);
                writer.part().begin_chunk(section, false);
            }
            let mut scratch = Vec::new();
            // What follows may wait for the disk.
            for (key, version, value) in changed {
                let value = value.as_ref();
                if let Some(value) = value.filter(|value| !record::is_small(value.view(version))) {
                    write_large(writer.part(), &key, version, value)?;
                } else {
                    scratch.clear();
                    scratch.put(&version.to_bits().to_le_bytes());
                    if let Some(value) = value {
                        value::put_value(&mut scratch, value.view(version));
                    }
                    writer.part().entry(&key, &scratch);
                }
                if writer.part().is_full() {
                    writer.flush()?;
                }
            }
            self.spend(writer.flushed() - flushed);
            self.tell(entries);
            if self.is_stopped() {
                return Err(CheckpointFailure::Stopped);
            }
            match next {
                Some(next) => from = next,
                None => break,
            }
            self.rest(duty, began, writer.bytes() - written);
        }
        if has_begun {
            writer.part().end_chunk();
        }
        Ok(())
    }
}
