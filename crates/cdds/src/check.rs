//! The checker: every view is in order, and every block is somebody's or nobody's.

use std::collections::BTreeSet;

use pando_pmem::{BlockState, Offset, Pmem};
use pando_sync::LogEpoch;
use thiserror::Error;

use crate::frame::Way;
use crate::node::{ANCHOR, Entry, FirstBytes, Found, Node, Probe, View};
use crate::record::Record;
use crate::tree::{ANCHOR_SLOTS, Tree};

/// What is wrong with a tree.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Disorder {
    /// A node of another level than its place asks for.
    #[error("node {at}: level {found}, expected {expected}")]
    Level {
        /// The node.
        at: Offset,
        /// What it says.
        found: u64,
        /// What its parent's level asks for.
        expected: u64,
    },
    /// Too few or too many entries.
    #[error("node {at}: {count} entries, at least {least}")]
    Entries {
        /// The node.
        at: Offset,
        /// Those that the view sees.
        count: usize,
        /// The bound.
        least: usize,
    },
    /// A key twice, out of its node's range, or a record that is damaged.
    #[error("node {at}: a key that is not in order, or damaged")]
    Keys {
        /// The node.
        at: Offset,
    },
    /// A look-up does not find an entry that is there: its fingerprint, or its separator's bytes
    /// in the node, are not its key's.
    #[error("node {at}: an entry that is not found by its key")]
    Unfindable {
        /// The node.
        at: Offset,
    },
    /// A slot that is not as it was stored.
    #[error("node {at}: a slot whose checksums are wrong")]
    Unsealed {
        /// The node.
        at: Offset,
    },
    /// More levels than the keys can have (the paper, §3.3.6).
    #[error("{height} levels of {keys} keys")]
    Height {
        /// The levels.
        height: u64,
        /// The keys.
        keys: u64,
    },
    /// More than one root.
    #[error("{roots} roots in one view")]
    Roots {
        /// How many.
        roots: usize,
    },
    /// A block is reachable and not taken, or freed before the view.
    #[error("block {at} is reachable in epoch {view}, and {state:?}")]
    Reachable {
        /// The block.
        at: Offset,
        /// The view's epoch.
        view: LogEpoch,
        /// What the allocator says.
        state: BlockState,
    },
    /// A block is taken and nobody's.
    #[error("block {at} is taken and not reachable")]
    Leaked {
        /// The block.
        at: Offset,
    },
    /// What DRAM has of a node is not what the node has.
    #[error("the frame of the node at {at} is not the node")]
    Frame {
        /// The node.
        at: Offset,
    },
    /// Two entries of one view share a block.
    #[error("block {at} is reachable twice in one view")]
    Shared {
        /// The block.
        at: Offset,
    },
}

/// What a tree consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Levels of the present's tree, or buckets of a table's longest chain.
    pub height: u64,
    /// Keys of the present.
    pub keys: u64,
    /// Nodes of the present.
    pub nodes: u64,
}

/// The blocks of a view.
pub(crate) struct Blocks<'t, M> {
    tree: &'t Tree<M>,
    view: View,
    found: BTreeSet<Offset>,
}

impl<'t, M: Pmem> Blocks<'t, M> {
    pub(crate) fn new(tree: &'t Tree<M>, view: View) -> Self {
        Self {
            tree,
            view,
            found: BTreeSet::new(),
        }
    }

    /// A block is the view's: taken, or freed after it.
    pub(crate) fn add(&mut self, at: Offset) -> Result<(), Disorder> {
        let view = self.view.0;
        let (state, _) = self.tree.allocator.state(at);
        let is_there = match state {
            BlockState::Taken => true,
            BlockState::Freed(epoch) => epoch > view,
            _ => false,
        };
        if !is_there {
            return Err(Disorder::Reachable { at, view, state });
        }
        let is_first = self.found.insert(at);
        is_first.then_some(()).ok_or(Disorder::Shared { at })
    }

    /// No other block of the pool is taken, if the view is the present.
    pub(crate) fn are_all(&self) -> Result<(), Disorder> {
        let mut leaked = Ok(());
        self.tree.allocator.blocks(|at, _, state| {
            let is_ours = self.found.contains(&at) || self.tree.anchor().at == at;
            if state == BlockState::Taken && !is_ours {
                leaked = Err(Disorder::Leaked { at });
            }
        });
        leaked
    }
}

struct Walk<'t, M> {
    tree: &'t Tree<M>,
    view: View,
    blocks: Blocks<'t, M>,
    report: Report,
}

impl<M: Pmem> Tree<M> {
    /// Looks at everything: the order of keys and the bounds of nodes in every view, and that each
    /// block is reachable or free, and not both. For tests; O(views × nodes).
    pub fn check(&self) -> Result<Report, Disorder> {
        for epoch in &self.retained {
            Walk::new(self, View(*epoch)).run()?;
        }
        let present = Walk::new(self, self.present()).run()?;
        present.blocks.are_all()?;
        Ok(present.report)
    }

    /// The blocks that a view of it has, once it is looked at.
    pub(crate) fn blocks_of(&self, view: View) -> Result<Blocks<'_, M>, Disorder> {
        Ok(Walk::new(self, view).run()?.blocks)
    }
}

impl<'t, M: Pmem> Walk<'t, M> {
    fn new(tree: &'t Tree<M>, view: View) -> Self {
        Self {
            tree,
            view,
            blocks: Blocks::new(tree, view),
            report: Report::default(),
        }
    }

    fn run(mut self) -> Result<Self, Disorder> {
        let anchor = self.tree.anchor();
        let roots = anchor.sorted(self.view);
        debug_assert!(anchor.level == ANCHOR && roots.len() as u64 <= ANCHOR_SLOTS);
        match roots[..] {
            [] => {}
            [root] => {
                let node = self.tree.node(root.entry.child);
                self.report.height = node.level + 1;
                self.node(node, (Entry::lowest(Offset::NONE), None), true)?;
                self.height()?;
            }
            _ => return Err(Disorder::Roots { roots: roots.len() }),
        }
        Ok(self)
    }

    /// The height is at most logarithmic, to the base of the fewest entries of a node.
    fn height(&self) -> Result<(), Disorder> {
        let Report { height, keys, .. } = self.report;
        let (leaf, node) = (self.tree.least(0) as u64, self.tree.least(1) as u64);
        let inner = height.saturating_sub(2) as u32;
        let fewest = 2_u64
            .saturating_mul(node.saturating_pow(inner))
            .saturating_mul(leaf);
        if height > 1 && keys < fewest {
            return Err(Disorder::Height { height, keys });
        }
        Ok(())
    }

    /// A node whose keys are from the lowest entry on and below the other one.
    fn node(
        &mut self,
        node: Node<'t, M>,
        (lowest, below): (Entry, Option<Entry>),
        is_root: bool,
    ) -> Result<(), Disorder> {
        let at = node.at;
        self.blocks.add(at)?;
        self.report.nodes += 1;
        if !node.are_right() {
            return Err(Disorder::Unsealed { at });
        }
        let found = node.sorted(self.view);
        let least = match (is_root, node.is_leaf()) {
            (true, false) => 2,
            (true, true) => 0,
            _ => self.tree.least(node.level),
        };
        if found.len() < least {
            let count = found.len();
            return Err(Disorder::Entries { at, count, least });
        }
        let entries: Vec<_> = found.iter().map(|found| found.entry).collect();
        let ascend = |a: &Entry, b: &Entry| node.order(*a, *b).is_lt();
        let in_range = |entry: &Entry| {
            let from = !ascend(entry, &lowest) || entry.record.is_none();
            from && below.is_none_or(|below| ascend(entry, &below))
        };
        if !entries.is_sorted_by(ascend) || !entries.iter().all(in_range) {
            return Err(Disorder::Keys { at });
        }
        if self.view == self.tree.present() && !node.is_leaf() {
            self.frame(node, &found)?;
        }
        for (index, entry) in entries.iter().enumerate() {
            if !entry.record.is_none() {
                self.blocks.add(entry.record)?;
                let record = Record::at(&self.tree.pool, entry.record);
                let is_one = |record: &Record<'_>| {
                    if node.is_leaf() {
                        record.is_whole()
                    } else {
                        record.is_separator()
                    }
                };
                let Some(record) = record.filter(is_one) else {
                    return Err(Disorder::Keys { at });
                };
                let by_key = if node.is_leaf() {
                    node.find(record.key(), self.view)
                } else {
                    node.child_for(&Probe::new(record.key()), self.view)
                };
                if by_key.is_none_or(|by_key| by_key.slot != found[index].slot) {
                    return Err(Disorder::Unfindable { at });
                }
            }
            if node.is_leaf() {
                self.report.keys += 1;
                continue;
            }
            let child = self.tree.node(entry.child);
            if child.level + 1 != node.level {
                return Err(Disorder::Level {
                    at: child.at,
                    found: child.level,
                    expected: node.level - 1,
                });
            }
            let below = entries.get(index + 1).copied().or(below);
            self.node(child, (*entry, below), false)?;
        }
        Ok(())
    }

    /// The frame of a node says the same, if there is one.
    fn frame(&self, node: Node<'t, M>, found: &[Found]) -> Result<(), Disorder> {
        let Some(frame) = self.tree.shared.frames.of(node.at) else {
            return Ok(());
        };
        let way = |found: &Found| Way {
            slot: found.slot,
            child: found.entry.child,
        };
        let finds = |found: &Found| {
            let key = node.key_of(found.slot).unwrap_or_default();
            let found_way = frame.find((key, &FirstBytes::of(key)), |slot| node.key_of(slot));
            found.entry.record.is_none() || found_way == Some(way(found))
        };
        let same = frame.ways().eq(found.iter().map(way)) && found.iter().all(finds);
        same.then_some(()).ok_or(Disorder::Frame { at: node.at })
    }
}
