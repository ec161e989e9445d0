//! Packing sorted runs: recovery builds full nodes and whole layers at once.
//!
//! A run is cut into border nodes of as many entries as fit. The first key is put like any other.
//! The nodes after it are built where nobody can see them and linked one by one behind the node
//! that has the first key, each like a split in which no key moves (§4.6.4): mark, link, insert
//! into the parents. So a node of fifteen keys costs one lock, one place in its parent and no
//! descent. A layer below, whose keys all come with the run, is built from the bottom up (border
//! nodes, then the interior nodes above them) and is linked when it is complete, as in `layer`.
//!
//! Why this is sound under concurrency: under the lock of a border node, its range up to its right
//! sibling's bound belongs to the caller alone (M3 low-is-constant). The run's keys are packed only
//! as far as they are in that range, after the node's last slice. So none of them is in the tree,
//! and nobody can insert one before the lock is released. Where another run or an older key is in
//! the way, keys are put one by one.
//!
//! Deliberately absent: filling the nodes that a run finds between other keys (it begins after
//! those, once `split` has cut behind the run).

use std::mem;
use std::vec;

use pando_block::{BlockRef, KeyPart};
use pando_engine::{Decision, Key, NoHook, Restored, Shown};
use pando_sync::sharing::NodeLock;
use pando_sync::version_lock::NodeKind;

use crate::context::{Context, Retire};
use crate::find::{Found, look};
use crate::layer::young_layer;
use crate::node::{BorderRef, Guard, InteriorRef, NewEntry, NodeRef, WIDTH, WIDTH_YOUNG, new_root};
use crate::permutation::Permutation;
use crate::slice::{CODE_LAYER, CODE_NEVER, CODE_SUFFIX, Cursor, SLICE_BYTES, slice_of};
use crate::split::extend;
use crate::tree::Tree;
use crate::update::{Draw, Locked, Update};

/// Most layers that are built one within another; keys of deeper ones are put one by one, so that
/// the stack is bounded. Layers of one entry do not count.
const DEPTH_MAX: usize = 32;

/// Restores the values of a run, whose keys ascend strictly, and leaves it empty.
pub(crate) fn restore_run(
    tree: &Tree,
    run: &mut Vec<Restored<'_>>,
    guard: Guard<'_>,
    context: &mut Context,
) {
    debug_assert!(run.is_sorted_by(|one, next| one.key < next.key));
    let mut packer = Packer {
        tree,
        run: run.drain(..),
        guard,
        context,
        later: Vec::new(),
    };
    // A failed attempt costs a descent: fewer attempts while other keys follow the run's.
    let (mut failures, mut wait) = (0, 0);
    while let Some(restored) = packer.run.next() {
        let key = restored.key;
        packer.put(restored);
        if wait > 0 {
            wait -= 1;
            continue;
        }
        let before = packer.run.len();
        if let Some((border, offset)) = packer.locate(key) {
            packer.append(border, &key[..offset]);
        }
        failures = if packer.run.len() < before {
            0
        } else {
            (2 * failures + 1).min(WIDTH)
        };
        wait = failures;
        for restored in mem::take(&mut packer.later) {
            packer.put(restored);
        }
    }
}

/// Entries of one border node that is being filled.
struct Pending {
    entries: [NewEntry; WIDTH],
    count: usize,
}

impl Pending {
    fn new() -> Self {
        let nothing = NewEntry {
            slice: 0,
            code: CODE_NEVER,
            link: std::ptr::null_mut(),
        };
        Self {
            entries: [nothing; WIDTH],
            count: 0,
        }
    }

    fn push(&mut self, entry: NewEntry) {
        self.entries[self.count] = entry;
        self.count += 1;
    }

    fn entries(&self) -> &[NewEntry] {
        &self.entries[..self.count]
    }
}

/// The next keys of a run with the same slice: they stay in one node (M4 one-slice-one-node).
struct Group {
    slice: u64,
    /// Keys that end in the slice.
    ends: usize,
    /// Keys that continue.
    longer: usize,
}

impl Group {
    fn entries(&self) -> usize {
        self.ends + self.longer.min(1)
    }
}

struct Packer<'a, 'd, 'g> {
    tree: &'a Tree,
    run: vec::Drain<'a, Restored<'d>>,
    guard: Guard<'g>,
    context: &'a mut Context,
    /// Keys of layers that are too deep, to be put when the layer they belong to is linked.
    later: Vec<Restored<'d>>,
}

impl<'g> Packer<'_, '_, 'g> {
    /// Puts one value as any writer does.
    fn put(&mut self, restored: Restored<'_>) {
        let mut value = Some(restored.value);
        Update {
            tree: self.tree,
            draw: Draw::Given(restored.version),
            images: None,
            key: Key::new(self.tree.id, restored.key),
            hook: &mut NoHook,
            in_place: false,
            decide: |_: &mut Shown<'_>| {
                Decision::Write(value.take().expect("a decision is taken once"))
            },
        }
        .run(None, self.guard, self.context);
    }

    /// The border node that has the key, and how many of its bytes are above that layer.
    fn locate(&self, key: &[u8]) -> Option<(BorderRef<'g>, usize)> {
        let mut root = self.tree.root(self.guard);
        let mut cursor = Cursor::new(key);
        loop {
            let (reached, found) = look(root, cursor, self.guard, &self.context.counters).ok()?;
            let Found::Layer(next) = found else {
                return Some((reached.border, cursor.offset()));
            };
            root = next;
            cursor = cursor.deeper();
        }
    }

    /// Puts as many of the next keys as fit behind the last one of `border`, which is in the layer
    /// of the keys that begin with `prefix`.
    fn append(&mut self, mut border: BorderRef<'g>, prefix: &[u8]) {
        let offset = prefix.len();
        let mut packed = 0;
        loop {
            border.version.lock();
            let locked = Locked::from_owned(border);
            let mut left = self.following(*locked, prefix);
            if left == 0 {
                break;
            }
            packed += left;
            self.fill_up(*locked, &mut left, offset);
            if left == 0 {
                break;
            }
            let mut pending = Pending::new();
            self.gather(&mut pending, WIDTH, &mut left, offset, 0);
            packed -= left;
            self.count_entries(&pending);
            border = extend(
                self.tree,
                locked.into_owned(),
                pending.entries(),
                offset,
                self.guard,
                self.context,
            );
        }
        // A run continues after what it has packed.
        self.context.beside.last_filled = border.as_ptr().addr();
        let packed = (packed - self.later.len()) as i64;
        self.tree.counts.add(self.context.number(), packed, 0);
    }

    /// How many of the next keys belong after the last entry of a border node that the caller has
    /// locked, and before its right sibling's.
    fn following(&self, border: BorderRef<'g>, prefix: &[u8]) -> usize {
        let offset = prefix.len();
        let keys = self.run.as_slice();
        let permutation = border.permutation();
        let unsuitable = border.version.peek().is_deleted()
            || border.width() < WIDTH
            || permutation.count() == 0;
        let (Some(first), false) = (keys.first(), unsuitable) else {
            return 0;
        };
        let last = border.slice(permutation.slot(permutation.count() - 1));
        if !first.key.starts_with(prefix) || Cursor::at(first.key, offset).slice() <= last {
            return 0;
        }
        let bound = border.next().map(|next| next.low());
        let before = |restored: &Restored<'_>| {
            restored.key.starts_with(prefix)
                && bound.is_none_or(|bound| slice_of(&restored.key[offset..]) < bound)
        };
        if keys.last().is_some_and(before) {
            return keys.len();
        }
        keys.partition_point(before)
    }

    /// Uses the free slots of a border node that the caller has locked.
    fn fill_up(&mut self, border: BorderRef<'g>, left: &mut usize, offset: usize) {
        let mut permutation = border.permutation();
        let room = WIDTH - permutation.count();
        if room == 0 {
            return;
        }
        let mut pending = Pending::new();
        self.gather(&mut pending, room, left, offset, 0);
        let mut slots = [0; WIDTH];
        let mut reused = false;
        for slot in &mut slots[..pending.count] {
            (permutation, *slot) = permutation.insert(permutation.count());
            reused |= border.code(*slot) != CODE_NEVER;
        }
        if reused {
            // A reader may still be looking at a key that was removed from such a slot
            // (M7 slot-reuse-marked).
            border.version.mark_inserting();
        }
        for (entry, slot) in pending.entries().iter().zip(slots) {
            border.fill(slot, *entry);
        }
        border.set_permutation(permutation);
        self.count_entries(&pending);
    }

    fn count_entries(&self, pending: &Pending) {
        self.context.counters.entries.add(pending.count as i64);
    }

    /// The first group of the next `left` keys, which share the first `offset` bytes.
    fn group(&self, left: usize, offset: usize) -> Group {
        let keys = &self.run.as_slice()[..left];
        let mut group = Group {
            slice: slice_of(&keys[0].key[offset..]),
            ends: 0,
            longer: 0,
        };
        for restored in keys {
            let cursor = Cursor::at(restored.key, offset);
            if cursor.slice() != group.slice {
                break;
            }
            if cursor.rank() == CODE_SUFFIX {
                group.longer += 1;
            } else {
                group.ends += 1;
            }
        }
        group
    }

    /// Builds entries of the next `left` keys, which share the first `offset` bytes, for as many
    /// groups as fit.
    fn gather(
        &mut self,
        pending: &mut Pending,
        room: usize,
        left: &mut usize,
        offset: usize,
        depth: usize,
    ) {
        while *left > 0 {
            let group = self.group(*left, offset);
            debug_assert!(group.entries() <= WIDTH, "a slice fits into a node");
            if pending.count + group.entries() > room {
                break;
            }
            *left -= group.ends + group.longer;
            for _ in 0..group.ends {
                pending.push(self.entry(offset));
            }
            match group.longer {
                0 => {}
                1 => pending.push(self.entry(offset)),
                _ if depth == DEPTH_MAX => {
                    pending.push(self.entry(offset));
                    let rest = self.run.by_ref().take(group.longer - 1);
                    self.later.extend(rest);
                }
                longer => pending.push(NewEntry {
                    slice: group.slice,
                    code: CODE_LAYER,
                    link: self.layer(longer, offset + SLICE_BYTES, depth + 1),
                }),
            }
        }
    }

    /// The entry of the next key, in the layer at `offset`.
    fn entry(&mut self, offset: usize) -> NewEntry {
        let restored = self.run.next().expect("keys were counted");
        let cursor = Cursor::at(restored.key, offset);
        let pool = &mut self.context.pool;
        let suffix = KeyPart::store(pool, cursor.suffix());
        let (version, value) = (restored.version, Some(restored.value));
        let block = BlockRef::build(pool, self.guard, version, suffix, value);
        NewEntry {
            slice: cursor.slice(),
            code: cursor.rank(),
            link: block.as_ptr(),
        }
    }

    /// A whole layer of the next `count` keys, at least two, which share the first `offset` bytes
    /// and continue after them; with the layers of one entry that lead to it. Returns what links to
    /// it.
    fn layer(&mut self, count: usize, offset: usize, depth: usize) -> *mut u8 {
        let keys = self.run.as_slice();
        debug_assert!((2..=keys.len()).contains(&count), "one key needs no layer");
        let shared = &keys[0].key[offset..];
        let last = &keys[count - 1].key[offset..];
        let common = shared.iter().zip(last).take_while(|(a, b)| a == b).count();
        // The first key also continues after the shared slices; it is the only one that may end.
        let chain = (common / SLICE_BYTES).min((shared.len() - 1) / SLICE_BYTES);
        let mut root = self.whole_layer(count, offset + chain * SLICE_BYTES, depth);
        for index in (0..chain).rev() {
            let entry = NewEntry {
                slice: slice_of(&shared[index * SLICE_BYTES..]),
                code: CODE_LAYER,
                link: root.as_ptr().cast(),
            };
            root = young_layer(&[entry], self.guard, self.context).node();
        }
        root.as_ptr().cast()
    }

    fn whole_layer(&mut self, count: usize, offset: usize, depth: usize) -> NodeRef<'g> {
        self.context.counters.layers.add(1);
        let mut left = count;
        let mut pending = Pending::new();
        self.gather(&mut pending, WIDTH, &mut left, offset, depth);
        if left == 0 {
            let young = pending.count <= WIDTH_YOUNG;
            let width = if young { WIDTH_YOUNG } else { WIDTH };
            let root = new_root(&mut self.context.pool, self.guard, width);
            self.fill(root, &pending);
            return root.node();
        }
        let mut nodes = Vec::new();
        let mut previous: Option<BorderRef<'g>> = None;
        loop {
            let version = NodeLock::new(NodeKind::Border, false);
            let low = previous.map_or(0, |_| pending.entries[0].slice);
            let pool = &mut self.context.pool;
            let border = BorderRef::allocate(pool, self.guard, WIDTH, version, low);
            self.fill(border, &pending);
            if let Some(previous) = previous.replace(border) {
                previous.set_next(Some(border));
                border.set_prev(previous);
            }
            nodes.push((low, border.node()));
            if left == 0 {
                return self.above(nodes);
            }
            pending.count = 0;
            self.gather(&mut pending, WIDTH, &mut left, offset, depth);
        }
    }

    /// Fills a border node that nobody can see yet.
    fn fill(&mut self, border: BorderRef<'g>, pending: &Pending) {
        for (slot, entry) in pending.entries().iter().enumerate() {
            border.fill(slot, *entry);
        }
        border.set_permutation(Permutation::ascending(pending.count));
        self.context.count_node(border.node(), 1);
        self.count_entries(pending);
    }

    /// The root above several nodes that nobody can see yet, each with its lower bound.
    fn above(&mut self, mut nodes: Vec<(u64, NodeRef<'g>)>) -> NodeRef<'g> {
        // M3 low-is-constant.
        debug_assert!(nodes.is_sorted_by(|one, next| one.0 < next.0));
        while nodes.len() > 1 {
            let mut parents = Vec::with_capacity(nodes.len() / WIDTH + 1);
            let mut rest = &nodes[..];
            while !rest.is_empty() {
                // No node is left with a single child.
                let most = WIDTH + 1 - usize::from(rest.len() == WIDTH + 2);
                let (children, behind) = rest.split_at(rest.len().min(most));
                let kind = children[0].1.version.peek().kind().above();
                let version = NodeLock::new(kind, false);
                let parent = InteriorRef::allocate(&mut self.context.pool, self.guard, version);
                for (index, (low, child)) in children.iter().enumerate() {
                    parent.set_child(index, *child);
                    child.set_parent(parent);
                    if index > 0 {
                        parent.set_key(index - 1, *low);
                    }
                }
                parent.set_count(children.len() - 1);
                self.context.count_node(parent.node(), 1);
                parents.push((children[0].0, parent.node()));
                rest = behind;
            }
            nodes = parents;
        }
        let (_, root) = nodes[0];
        root.version.set_root(true);
        root
    }
}
