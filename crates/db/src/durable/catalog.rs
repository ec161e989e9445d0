//! What log and checkpoints say about branches, and about snapshots that outlast the process.
//!
//! A [`CatalogChange`] is a record: something was made, dropped, named or mapped. It has a *point*,
//! the last epoch whose groups come before it. Making a branch or a snapshot ends the epoch, so
//! what is made shows exactly what the groups up to its point have written, and whatever order the
//! records of different sessions have, recovery does the same at the same place.
//!
//! | bytes | field |
//! |---|---|
//! | number | how many changes there have been, with this one |
//! | number | the point |
//! | 1 | what: 1 a branch made (12 with a bound of its own of descendant sets), 2 dropped, 3 renamed, 4 made the mainline, 5 given other trees; 6 a snapshot made (14 with another number of changes than this), 9 dropped (7 before it was named); 8 a branch became a hidden one; 10 all came by a full copy; 13 a branch has merged others |
//! | … | its data, in the order of [`Event`]'s fields |
//!
//! A [`Forest`] is what a checkpoint says: all that was there at its start, and which of its chunks
//! have what. Chunks are of *nodes*, which come from one another (`pando_minuet::engine`'s albums);
//! those of the first node have its keys, those of others the keys that differ from the parent's.
//!
//! On disk a branch is known by its number: how many changes there had been when it was made. The
//! first branch has the number 0, no trees here (the mapping has them), and was never made. A
//! replica gives its branches the numbers of the followed database's, and their trees too, but not
//! those of the first branch; snapshots it knows by their names.

use std::collections::BTreeMap;
use std::sync::Arc;

use pando_engine::{LogEpoch, TreeId};
use pando_minuet::limits::{DESCENDANTS_MAX, DESCENDANTS_MIN};

use super::bytes::{Input, Malformed, Sink, malformed};
use super::forks::{Fork, Merged, Place, put_merged, take_merged};
use crate::clock::Milliseconds;
use crate::limits;

/// Nodes of a checkpoint, at most: every branch and snapshot, and where they part.
const NODES_MAX: usize = 1 << 20;

/// A database when a snapshot was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frozen {
    pub(crate) tree: TreeId,
    /// Its keys, including those that had expired and were not removed yet.
    pub(crate) keys: u64,
}

/// A branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BranchNote {
    pub(crate) number: u64,
    pub(crate) name: Box<[u8]>,
    pub(crate) created: Milliseconds,
    /// See [`crate::branches::NamedBranch::origin`].
    pub(crate) origin: Box<[u8]>,
    /// The tree of each of its databases.
    pub(crate) trees: Vec<TreeId>,
    /// Ids in descendant sets of its nodes, at most. Where nothing is said of it, as many as there
    /// may be.
    pub(crate) descendants_max: u8,
    /// Where it was made. The log says it with what it was made from.
    pub(crate) forks: Option<Arc<Fork>>,
    /// What it has merged, at first what it was made from has.
    pub(crate) merged: Merged,
}

impl Default for BranchNote {
    fn default() -> Self {
        Self {
            number: 0,
            name: Box::default(),
            created: Milliseconds::ZERO,
            origin: Box::default(),
            trees: Vec::new(),
            descendants_max: DESCENDANTS_MAX,
            forks: None,
            merged: Merged::default(),
        }
    }
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotNote {
    pub(crate) epoch: LogEpoch,
    pub(crate) name: Box<[u8]>,
    pub(crate) time: Milliseconds,
    pub(crate) until: Option<Milliseconds>,
    pub(crate) databases: Vec<Frozen>,
    /// What a branch is made from that is made from it. The log says it with its branch.
    pub(crate) place: Place,
}

/// What a branch was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Branch(u64),
    Snapshot(LogEpoch),
}

/// What has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A branch was made; `like` are the trees that it has its own from.
    Branched {
        branch: BranchNote,
        source: Source,
        like: Vec<TreeId>,
    },
    Dropped {
        branch: u64,
    },
    Renamed {
        branch: u64,
        name: Box<[u8]>,
    },
    Mainline {
        branch: u64,
    },
    /// A branch's databases have these trees.
    Mapped {
        branch: u64,
        trees: Vec<TreeId>,
    },
    /// A snapshot of a branch was made.
    Frozen {
        branch: u64,
        snapshot: SnapshotNote,
        /// How many changes there had been where it was made first, with this one: here, unless
        /// this server repeats it.
        at: u64,
    },
    Released {
        epoch: LogEpoch,
        /// Empty in logs of before.
        name: Box<[u8]>,
    },
    /// A branch, whose databases have these trees, became a hidden one, which is gone.
    Adopted {
        branch: u64,
        hidden: u64,
        trees: Vec<TreeId>,
    },
    /// A branch has merged what these marks show, and nothing else.
    Merged {
        branch: u64,
        marks: Merged,
    },
    /// All data came by a full copy, which is in no log: this checkpoint, or a later one, has it.
    Planted {
        checkpoint: LogEpoch,
    },
    /// The same, if that checkpoint is ever finished: this is in the log before it is.
    Planting {
        checkpoint: LogEpoch,
    },
}

/// See the module's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CatalogChange {
    pub(crate) changes: u64,
    pub(crate) point: LogEpoch,
    pub(crate) event: Event,
}

pub(super) fn put_trees(out: &mut Vec<u8>, trees: &[TreeId]) {
    out.number(trees.len() as u64);
    for tree in trees {
        out.number(u64::from(tree.0));
    }
}

/// A kind of event, and all that there is of it.
fn put_one(out: &mut Vec<u8>, kind: u8, number: u64) {
    out.put(&[kind]);
    out.number(number);
}

fn take_tree(input: &mut Input<'_>) -> Result<TreeId, Malformed> {
    Ok(TreeId(input.length(u32::MAX as usize - 1)? as u32))
}

pub(super) fn take_trees(input: &mut Input<'_>) -> Result<Vec<TreeId>, Malformed> {
    let count = input.length(limits::DATABASES_MAX)?;
    (0..count).map(|_| take_tree(input)).collect()
}

fn take_name(input: &mut Input<'_>) -> Result<Box<[u8]>, Malformed> {
    Ok(input.string(limits::SNAPSHOT_NAME_BYTES_MAX)?.into())
}

impl BranchNote {
    fn put(&self, out: &mut Vec<u8>) {
        out.number(self.number);
        out.string(&self.name);
        out.number(self.created.0);
        out.string(&self.origin);
        put_trees(out, &self.trees);
    }

    fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            number: input.number()?,
            name: take_name(input)?,
            created: Milliseconds(input.number()?),
            origin: take_name(input)?,
            trees: take_trees(input)?,
            ..Self::default()
        })
    }

    fn is_usual(&self) -> bool {
        self.descendants_max == DESCENDANTS_MAX
    }
}

pub(super) fn take_descendants(input: &mut Input<'_>) -> Result<u8, Malformed> {
    let descendants_max = input.byte()?;
    if !(DESCENDANTS_MIN..=DESCENDANTS_MAX).contains(&descendants_max) {
        return malformed("descendant sets of a branch are longer than this version knows");
    }
    Ok(descendants_max)
}

impl SnapshotNote {
    fn put(&self, out: &mut Vec<u8>) {
        out.number(self.epoch.0);
        out.string(&self.name);
        out.number(self.time.0);
        out.number(self.until.map_or(0, |until| until.0.max(1)));
        out.number(self.databases.len() as u64);
        for frozen in &self.databases {
            out.number(u64::from(frozen.tree.0));
            out.number(frozen.keys);
        }
    }

    fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let (epoch, name) = (LogEpoch(input.number()?), take_name(input)?);
        let (time, until) = (Milliseconds(input.number()?), input.number()?);
        let count = input.length(limits::DATABASES_MAX)?;
        let mut databases = Vec::new();
        for _ in 0..count {
            databases.push(Frozen {
                tree: take_tree(input)?,
                keys: input.number()?,
            });
        }
        Ok(Self {
            epoch,
            name,
            time,
            until: (until > 0).then_some(Milliseconds(until)),
            databases,
            place: Place::default(),
        })
    }
}

impl Source {
    fn put(self, out: &mut Vec<u8>) {
        let (kind, number) = match self {
            Self::Branch(number) => (0, number),
            Self::Snapshot(epoch) => (1, epoch.0),
        };
        out.put(&[kind]);
        out.number(number);
    }

    fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
        match (input.byte()?, input.number()?) {
            (0, number) => Ok(Self::Branch(number)),
            (1, epoch) => Ok(Self::Snapshot(LogEpoch(epoch))),
            _ => malformed("a branch comes from something that this version does not know"),
        }
    }
}

impl CatalogChange {
    /// Writes it.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.number(self.changes);
        out.number(self.point.0);
        match &self.event {
            Event::Branched {
                branch,
                source,
                like,
            } => {
                out.put(&[if branch.is_usual() { 1 } else { 12 }]);
                branch.put(out);
                source.put(out);
                put_trees(out, like);
                if !branch.is_usual() {
                    out.put(&[branch.descendants_max]);
                }
            }
            Event::Dropped { branch } => put_one(out, 2, *branch),
            Event::Renamed { branch, name } => {
                out.put(&[3]);
                out.number(*branch);
                out.string(name);
            }
            Event::Mainline { branch } => put_one(out, 4, *branch),
            Event::Mapped { branch, trees } => {
                out.put(&[5]);
                out.number(*branch);
                put_trees(out, trees);
            }
            Event::Frozen {
                branch,
                snapshot,
                at,
            } => {
                let is_here = *at == self.changes;
                out.put(&[if is_here { 6 } else { 14 }]);
                out.number(*branch);
                snapshot.put(out);
                if !is_here {
                    out.number(*at);
                }
            }
            Event::Released { epoch, name } => {
                out.put(&[9]);
                out.number(epoch.0);
                out.string(name);
            }
            Event::Adopted {
                branch,
                hidden,
                trees,
            } => {
                out.put(&[8]);
                out.number(*branch);
                out.number(*hidden);
                put_trees(out, trees);
            }
            Event::Merged { branch, marks } => {
                out.put(&[13]);
                out.number(*branch);
                put_merged(out, marks);
            }
            Event::Planted { checkpoint } => put_one(out, 10, checkpoint.0),
            Event::Planting { checkpoint } => put_one(out, 11, checkpoint.0),
        }
    }

    /// Parses it.
    pub(crate) fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let (changes, point) = (input.number()?, LogEpoch(input.number()?));
        let event = match input.byte()? {
            kind @ (1 | 12) => {
                let mut branch = BranchNote::take(input)?;
                let (source, like) = (Source::take(input)?, take_trees(input)?);
                if kind == 12 {
                    branch.descendants_max = take_descendants(input)?;
                }
                Event::Branched {
                    branch,
                    source,
                    like,
                }
            }
            2 => Event::Dropped {
                branch: input.number()?,
            },
            3 => Event::Renamed {
                branch: input.number()?,
                name: take_name(input)?,
            },
            4 => Event::Mainline {
                branch: input.number()?,
            },
            5 => Event::Mapped {
                branch: input.number()?,
                trees: take_trees(input)?,
            },
            kind @ (6 | 14) => Event::Frozen {
                branch: input.number()?,
                snapshot: SnapshotNote::take(input)?,
                at: if kind == 6 { changes } else { input.number()? },
            },
            7 => Event::Released {
                epoch: LogEpoch(input.number()?),
                name: Box::default(),
            },
            9 => Event::Released {
                epoch: LogEpoch(input.number()?),
                name: take_name(input)?,
            },
            8 => Event::Adopted {
                branch: input.number()?,
                hidden: input.number()?,
                trees: take_trees(input)?,
            },
            13 => Event::Merged {
                branch: input.number()?,
                marks: take_merged(input)?,
            },
            10 => Event::Planted {
                checkpoint: LogEpoch(input.number()?),
            },
            11 => Event::Planting {
                checkpoint: LogEpoch(input.number()?),
            },
            _ => return malformed("branches changed in a way that this version does not know"),
        };
        Ok(Self {
            changes,
            point,
            event,
        })
    }
}

/// A version of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeNote {
    /// The node that it comes from, which is an earlier one; none of the first.
    pub(crate) parent: Option<usize>,
    /// The branches and snapshots that show it: first branches, then snapshots, by their places.
    pub(crate) shows: Vec<usize>,
}

/// See the module's header. Without nodes, the chunks have the trees of the first branch, which is
/// alone then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forest {
    /// How many changes there have been.
    pub(crate) changes: u64,
    /// No tree of a branch has this number or a later one.
    pub(crate) next_tree: TreeId,
    pub(crate) mainline: u64,
    /// The first one is the first branch.
    pub(crate) branches: Vec<BranchNote>,
    pub(crate) snapshots: Vec<SnapshotNote>,
    /// The numbers in pages of trees that have another one there.
    pub(crate) bases: BTreeMap<TreeId, TreeId>,
    pub(crate) nodes: Vec<NodeNote>,
    /// Of each chunk's number, a node and the number of a tree in pages.
    pub(crate) sections: Vec<(usize, TreeId)>,
}

impl Default for Forest {
    fn default() -> Self {
        Self {
            changes: 0,
            next_tree: TreeId(0),
            mainline: 0,
            branches: Vec::new(),
            snapshots: Vec::new(),
            bases: BTreeMap::new(),
            nodes: Vec::new(),
            sections: Vec::new(),
        }
    }
}

impl Forest {
    /// Writes it.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.number(self.changes);
        out.number(u64::from(self.next_tree.0));
        out.number(self.mainline);
        out.number(self.branches.len() as u64);
        self.branches.iter().for_each(|branch| branch.put(out));
        out.number(self.snapshots.len() as u64);
        self.snapshots.iter().for_each(|snapshot| snapshot.put(out));
        out.number(self.bases.len() as u64);
        for (tree, base) in &self.bases {
            out.number(u64::from(tree.0));
            out.number(u64::from(base.0));
        }
        out.number(self.nodes.len() as u64);
        for node in &self.nodes {
            out.number(node.parent.map_or(0, |parent| parent as u64 + 1));
            out.number(node.shows.len() as u64);
            for shown in &node.shows {
                out.number(*shown as u64);
            }
        }
        out.number(self.sections.len() as u64);
        for (node, base) in &self.sections {
            out.number(*node as u64);
            out.number(u64::from(base.0));
        }
        self.put_more(out);
    }

    /// Parses it. What it names is there.
    pub(crate) fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let mut forest = Self {
            changes: input.number()?,
            next_tree: take_tree(input)?,
            mainline: input.number()?,
            ..Self::default()
        };
        for _ in 0..input.length(NODES_MAX)? {
            forest.branches.push(BranchNote::take(input)?);
        }
        for _ in 0..input.length(NODES_MAX)? {
            forest.snapshots.push(SnapshotNote::take(input)?);
        }
        for _ in 0..input.length(NODES_MAX * limits::DATABASES_MAX)? {
            let (tree, base) = (take_tree(input)?, take_tree(input)?);
            forest.bases.insert(tree, base);
        }
        let items = forest.branches.len() + forest.snapshots.len();
        for index in 0..input.length(2 * NODES_MAX)? {
            let parent = input.length(index)?;
            if (index == 0) != (parent == 0) {
                return malformed("a version comes from no other one");
            }
            let mut node = NodeNote {
                parent: parent.checked_sub(1),
                shows: Vec::new(),
            };
            for _ in 0..input.length(items)? {
                let most = items.saturating_sub(1);
                node.shows.push(input.length(most)?);
            }
            forest.nodes.push(node);
        }
        for _ in 0..input.length(u32::MAX as usize)? {
            let most = forest.nodes.len().saturating_sub(1);
            let (node, base) = (input.length(most)?, take_tree(input)?);
            forest.sections.push((node, base));
        }
        forest.check()?;
        forest.take_more(input)?;
        Ok(forest)
    }

    /// Refuses what no checkpoint says.
    fn check(&self) -> Result<(), Malformed> {
        let numbers = self.branches.iter().map(|branch| branch.number);
        let is_mainline = |number: u64| number == self.mainline;
        if self.branches.first().is_none_or(|first| first.number != 0)
            || !numbers.clone().is_sorted_by(|one, next| one < next)
            || !numbers.clone().any(is_mainline)
        {
            return malformed("a checkpoint has other branches than it says");
        }
        let mut shown = vec![false; self.branches.len() + self.snapshots.len()];
        for node in &self.nodes {
            for item in &node.shows {
                if std::mem::replace(&mut shown[*item], true) {
                    return malformed("a checkpoint has a branch twice");
                }
            }
        }
        let is_alone = self.nodes.is_empty() && shown.len() == 1;
        if !is_alone && shown.contains(&false) {
            return malformed("a checkpoint lacks a branch that it names");
        }
        Ok(())
    }

    /// Gives trees of the first branch, and what they have in pages, other numbers: those of
    /// another engine.
    pub(crate) fn renumber(&mut self, mut number: impl FnMut(TreeId) -> TreeId) {
        let bases = std::mem::take(&mut self.bases).into_iter();
        self.bases = bases
            .map(|(tree, base)| (number(tree), number(base)))
            .collect();
        let snapshots = self.snapshots.iter_mut();
        for frozen in snapshots.flat_map(|snapshot| &mut snapshot.databases) {
            frozen.tree = number(frozen.tree);
        }
        self.renumber_forks(number);
    }

    /// The number that a tree has in pages.
    pub(crate) fn base(&self, tree: TreeId) -> TreeId {
        self.bases.get(&tree).copied().unwrap_or(tree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> SnapshotNote {
        SnapshotNote {
            epoch: LogEpoch(70),
            name: b"snap".as_slice().into(),
            time: Milliseconds(500),
            until: Some(Milliseconds(900)),
            databases: vec![Frozen {
                tree: TreeId(1 << 31),
                keys: 300,
            }],
            place: Place::default(),
        }
    }

    fn branch(number: u64) -> BranchNote {
        BranchNote {
            number,
            name: b"trial".as_slice().into(),
            created: Milliseconds(7),
            origin: b"main".as_slice().into(),
            trees: vec![TreeId(1 << 31), TreeId(9)],
            ..BranchNote::default()
        }
    }

    fn events() -> Vec<Event> {
        vec![
            Event::Branched {
                branch: branch(4),
                source: Source::Snapshot(LogEpoch(70)),
                like: vec![TreeId(0), TreeId(300)],
            },
            Event::Branched {
                branch: branch(4),
                source: Source::Branch(0),
                like: Vec::new(),
            },
            Event::Branched {
                branch: BranchNote {
                    descendants_max: DESCENDANTS_MIN,
                    ..branch(4)
                },
                source: Source::Branch(0),
                like: vec![TreeId(0)],
            },
            Event::Dropped { branch: 4 },
            Event::Renamed {
                branch: 0,
                name: b"first".as_slice().into(),
            },
            Event::Mainline { branch: 4 },
            Event::Mapped {
                branch: 4,
                trees: vec![TreeId(9)],
            },
            Event::Frozen {
                branch: 4,
                snapshot: snapshot(),
                at: 200,
            },
            Event::Frozen {
                branch: 4,
                snapshot: snapshot(),
                at: 190,
            },
            Event::Released {
                epoch: LogEpoch(70),
                name: b"snap".as_slice().into(),
            },
            Event::Adopted {
                branch: 0,
                hidden: 300,
                trees: vec![TreeId(0), TreeId(300)],
            },
            Event::Merged {
                branch: 4,
                marks: [5, 300].into(),
            },
            Event::Planted {
                checkpoint: LogEpoch(300),
            },
            Event::Planting {
                checkpoint: LogEpoch(301),
            },
        ]
    }

    #[test]
    fn changes_come_back_and_are_refused_when_cut() {
        for event in events() {
            let change = CatalogChange {
                changes: 200,
                point: LogEpoch(71),
                event,
            };
            let mut bytes = Vec::new();
            change.put(&mut bytes);
            let mut input = Input(&bytes);
            let read = CatalogChange::take(&mut input);
            assert_eq!((read.as_ref(), input.is_empty()), (Ok(&change), true));
            for cut in 0..bytes.len() {
                assert!(CatalogChange::take(&mut Input(&bytes[..cut])).is_err());
            }
        }
    }

    fn forest() -> Forest {
        let first = BranchNote {
            name: b"main".as_slice().into(),
            ..BranchNote::default()
        };
        let node = |parent, shows: &[usize]| NodeNote {
            parent,
            shows: shows.to_vec(),
        };
        Forest {
            changes: 4,
            next_tree: TreeId((1 << 31) + 2),
            mainline: 2,
            branches: vec![first, branch(2)],
            snapshots: vec![snapshot()],
            bases: BTreeMap::from([(TreeId(1 << 31), TreeId(0))]),
            nodes: vec![node(None, &[]), node(Some(0), &[0]), node(Some(0), &[1, 2])],
            sections: vec![(0, TreeId(0)), (2, TreeId(0))],
        }
    }

    fn read(forest: &Forest) -> Result<Forest, Malformed> {
        let mut bytes = Vec::new();
        forest.put(&mut bytes);
        Forest::take(&mut Input(&bytes))
    }

    #[test]
    fn a_forest_comes_back_and_what_none_can_be_is_refused() {
        assert_eq!(read(&forest()), Ok(forest()));
        let spoiled: [fn(&mut Forest); 6] = [
            |forest| forest.mainline = 1,
            |forest| forest.branches[0].number = 1,
            |forest| forest.nodes[2].shows = vec![1],
            |forest| forest.nodes[2].shows = vec![1, 0, 2],
            |forest| forest.nodes[1].parent = None,
            |forest| forest.sections[0].0 = 3,
        ];
        for spoil in spoiled {
            let mut forest = forest();
            spoil(&mut forest);
            assert!(read(&forest).is_err(), "{forest:?}");
        }
        let mut bytes = Vec::new();
        forest().put(&mut bytes);
        let mut more = Vec::new();
        forest().put_more(&mut more);
        let before = bytes.len() - more.len();
        // Of two branches and a snapshot, one number each.
        let before_merged = bytes.len() - 3;
        let is_old = |cut: &usize| [before, before_merged].contains(cut);
        for cut in (0..bytes.len()).filter(|cut| !is_old(cut)) {
            assert!(Forest::take(&mut Input(&bytes[..cut])).is_err());
        }
        // Forests did not say it at first: then nothing is known of where branches were made.
        let old = Forest::take(&mut Input(&bytes[..before])).expect("an old one");
        assert_eq!(old.branches[1].descendants_max, DESCENDANTS_MAX);
        assert!(old.branches[0].forks.is_none() && old.branches[1].forks.is_some());
        assert!(old.fork_bases().next().is_none());
        let mut bounded = forest();
        bounded.branches[1].descendants_max = DESCENDANTS_MIN;
        let fork = Place::of_branch(None, 2).fork(2, vec![TreeId(4), TreeId(5)]);
        bounded.snapshots[0].place = Place::of_snapshot(Some(&fork), 3);
        let deeper = bounded.snapshots[0].place.fork(4, vec![TreeId(6)]);
        bounded.branches[0].merged = [2, 300].into();
        bounded.snapshots[0].place.merged = [2].into();
        bounded.branches[1].forks = Some(deeper);
        assert_eq!(read(&bounded), Ok(bounded.clone()));
        bounded.renumber(|tree| TreeId(tree.0 + 1));
        let bases: Vec<_> = bounded.fork_bases().collect();
        assert_eq!(bases, [TreeId(5), TreeId(6), TreeId(7)]);
        bounded.branches[0].descendants_max = DESCENDANTS_MAX + 1;
        assert!(read(&bounded).is_err());
        // One branch alone needs no nodes.
        let mut alone = forest();
        alone.branches.truncate(1);
        (alone.snapshots, alone.mainline) = (Vec::new(), 0);
        (alone.nodes, alone.sections) = (Vec::new(), Vec::new());
        assert_eq!(read(&alone), Ok(alone));
    }
}
