//! Puts and removals.
//!
//! A change begins and ends entries of one leaf. Where the leaf has no slots left, or too few
//! entries would be left, it is copied: what is live in it, with its sibling's in the second case,
//! is spread over one or two new nodes, and the change goes on in the parent, whose entry for the
//! old node ends and whose entries for the new ones begin. So every change ends in one node that is
//! changed in place; what it has made below is nobody's until then.
//!
//! - **CC1 built-first** New nodes and records are written before any node that is reachable
//!   changes. If there is no room for one, those before it are freed, and nothing has happened.
//! - **CC2 ends-with-parent** What a node that was copied refers to is as it was for views before;
//!   the node is freed in the epoch that ends its parent's entry (CT3 horizon).

use pando_pmem::{Offset, Pmem, Purpose, Side, Writes};
use pando_sync::shim::lock;

use crate::canary::{self, Fault};
use crate::latch::{Held, Latches};
use crate::node::{ANCHOR, Entry, Found, Node, bytes_of, fingerprint_of};
use crate::record::{self, Record};
use crate::shared::{Look, whole};
use crate::tree::{Error, Tree};

/// A node on the way down, and the slot of the child that was taken; of the leaf none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) node: Offset,
    pub(crate) slot: u64,
}

impl Step {
    pub(crate) fn new(node: Offset, slot: u64) -> Self {
        Self { node, slot }
    }
}

/// The way from the anchor to a key's leaf, and its entry there.
pub(crate) struct Place {
    path: Vec<Step>,
    found: Option<Found>,
}

impl Place {
    fn record(&self) -> Option<Offset> {
        self.found.map(|found| found.entry.record)
    }
}

/// What is to happen in one node.
#[derive(Debug, Default)]
pub(crate) struct Edit {
    pub(crate) ends: Vec<u64>,
    begins: Vec<Entry>,
}

impl Edit {
    /// An entry begins.
    pub(crate) fn beginning(entry: Entry) -> Self {
        Self {
            ends: Vec::new(),
            begins: vec![entry],
        }
    }

    /// An entry begins in the place of the one in a slot.
    pub(crate) fn replacing(slot: u64, entry: Entry) -> Self {
        Self {
            ends: vec![slot],
            begins: vec![entry],
        }
    }
}

/// What a change has taken, and what it will free.
pub(crate) struct Work<'t> {
    pub(crate) taken: Vec<Offset>,
    pub(crate) freed: Vec<Offset>,
    /// The pair's record from before.
    pub(crate) replaced: Option<Offset>,
    /// The latches of nodes that readers may look at (CL1 marked-before).
    pub(crate) held: Held<'t>,
    /// Where its blocks are taken and freed.
    pub(crate) side: Side,
    /// That of its nodes and separators.
    pub(crate) purpose: Purpose,
    /// A node that is copied even if it has free slots.
    pub(crate) leaves: Offset,
    /// Whether nodes with too few entries are merged although nothing is removed.
    pub(crate) mends: bool,
}

impl<'t> Work<'t> {
    fn new(latches: &'t Latches) -> Self {
        Self {
            taken: Vec::new(),
            freed: Vec::new(),
            replaced: None,
            held: Held::new(latches),
            side: Side::FIRST,
            purpose: Purpose::Growth,
            leaves: Offset::NONE,
            mends: false,
        }
    }
}

impl<M: Pmem> Tree<M> {
    /// Puts a value. O(log n) nodes; flushes its record and one line of a leaf, a node or two more
    /// where a leaf is full.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.put_marked(key, value, 0)
    }

    /// The same for what must be kept even in a full pool, and what is small.
    pub(crate) fn put_in_reserve(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.put_with(key, value, 0, Purpose::Removal)
    }

    /// The same, of a value with an access mark.
    pub(crate) fn put_marked(&mut self, key: &[u8], value: &[u8], mark: u8) -> Result<(), Error> {
        self.put_with(key, value, mark, Purpose::Growth)
    }

    /// The same; `purpose` is the record's. Nodes that hold it are growth, or have the reserve too.
    pub(crate) fn put_with(
        &mut self,
        key: &[u8],
        value: &[u8],
        mark: u8,
        purpose: Purpose,
    ) -> Result<(), Error> {
        self.check_lengths(key, value)?;
        let place = self.place(key)?;
        self.note_before(key, place.as_ref().and_then(Place::record));
        self.begin()?;
        let window = Writes::new(self.pool.memory());
        let take = |bytes| {
            self.allocator
                .allocate_for((purpose, Side::FIRST), bytes, self.open)
        };
        let record = record::make(&self.pool, take, (key, value), mark)?;
        let mut work = self.work();
        if purpose == Purpose::Removal {
            work.purpose = purpose;
        }
        work.taken.push(record);
        let begun = Entry::of_key(key, record);
        let changed = self.put_record(place, begun, &mut work);
        let kept = self.finish(changed, work);
        drop(window);
        self.keep_replaced(kept?);
        Ok(())
    }

    pub(crate) fn work(&self) -> Work<'_> {
        Work::new(&self.shared.latches)
    }

    /// Where a key is or would be; none in an empty tree.
    pub(crate) fn place(&self, key: &[u8]) -> Result<Option<Place>, Error> {
        let Some(path) = self.descend(key)? else {
            return Ok(None);
        };
        let leaf = self.leaf_on(&path);
        let found = leaf.find_with(key, fingerprint_of(key), self.present());
        let found = found.map(|(found, record)| whole(record).map(|_| found));
        let found = found.transpose()?;
        Ok(Some(Place { path, found }))
    }

    fn leaf_on(&self, path: &[Step]) -> Node<'_, M> {
        self.node(path[path.len() - 1].node)
    }

    /// Lets the key of a place have a record, instead of the one that it has.
    pub(crate) fn put_record(
        &self,
        place: Option<Place>,
        begun: Entry,
        work: &mut Work<'_>,
    ) -> Result<(), Error> {
        let Some(Place { path, found }) = place else {
            let leaf = self.make_node(0, &[begun], work)?;
            self.anchor_begins(Entry::lowest(leaf), work);
            return Ok(());
        };
        let leaf = self.leaf_on(&path);
        let mut edit = Edit::beginning(begun);
        if let Some(found) = found {
            work.replaced = Some(found.entry.record);
            if leaf.span(found.slot).start == self.open.0 {
                // CL1 marked-before: for a moment the key has no entry, and what was judged ahead
                // (CA1 judged-while-unchanged) has been replaced.
                if !canary::has(Fault::ReplacedUnmarked) {
                    self.mark(leaf, work);
                }
                leaf.replace(found.slot, begun.record);
                return Ok(());
            }
            edit.ends.push(found.slot);
        }
        self.change(&path, edit, work)
    }

    /// Removes a key; whether it was there. Needs no room.
    pub fn remove(&mut self, key: &[u8]) -> Result<bool, Error> {
        let Some(Place { path, found }) = self.place(key)? else {
            return Ok(false);
        };
        let Some(found) = found else {
            return Ok(false);
        };
        let leaf = path[path.len() - 1].node;
        self.note_before(key, Some(found.entry.record));
        self.begin()?;
        let window = Writes::new(self.pool.memory());
        self.allocator.expect_free(found.entry.record);
        let mut work = self.work();
        work.replaced = Some(found.entry.record);
        let edit = Edit {
            ends: vec![found.slot],
            begins: Vec::new(),
        };
        // Within a group no leaf is merged (CB3 room-to-return).
        let mut changed = if self.group.is_some() {
            work.held.mark(leaf);
            self.node(leaf).end(found.slot, self.open);
            Ok(())
        } else {
            self.change(&path, edit, &mut work)
        };
        if matches!(changed, Err(Error::Full(_))) {
            // Without room for a merge the leaf keeps fewer entries than it should.
            self.free(work.side, &work.taken);
            work.taken.clear();
            work.freed.clear();
            work.held.mark(leaf);
            self.node(leaf).end(found.slot, self.open);
            changed = Ok(());
        }
        let kept = self.finish(changed, work);
        drop(window);
        self.keep_replaced(kept?);
        Ok(true)
    }

    /// Frees what a change has made unreachable, or what it has taken in vain. Within a group, the
    /// pair's record from before is left to the caller (CB1 freed-at-its-end).
    pub(crate) fn finish(
        &self,
        changed: Result<(), Error>,
        work: Work<'_>,
    ) -> Result<Option<Offset>, Error> {
        drop(work.held);
        match &changed {
            Ok(()) => self.free(work.side, &work.freed),
            Err(_) => self.free(work.side, &work.taken),
        }
        changed?;
        if self.group.is_some() {
            return Ok(work.replaced);
        }
        self.free(work.side, work.replaced.as_slice());
        Ok(None)
    }

    pub(crate) fn free(&self, side: Side, blocks: &[Offset]) {
        for at in blocks {
            self.allocator.free_at(side, *at, self.open);
        }
    }

    /// The way from the anchor to the key's leaf.
    pub(crate) fn descend(&self, key: &[u8]) -> Result<Option<Vec<Step>>, Error> {
        let mut path = Vec::new();
        let leaf = self.shared.leaf_of(key, Look::ALONE, |step: Step| {
            if step.node == self.shared.anchor {
                path.clear();
            }
            path.push(step);
        })?;
        Ok(leaf.map(|_| path))
    }

    /// Fewest live entries of a node that is not the root.
    pub(crate) fn least(&self, level: u64) -> usize {
        let fifth = (self.slots / 5) as usize;
        if level == 0 { fifth } else { fifth.max(2) }
    }

    pub(crate) fn change(
        &self,
        path: &[Step],
        edit: Edit,
        work: &mut Work<'_>,
    ) -> Result<(), Error> {
        self.change_at(path, path.len() - 1, edit, work)
    }

    /// The same of a node above the leaf: of the one at this depth.
    fn change_at(
        &self,
        path: &[Step],
        depth: usize,
        mut edit: Edit,
        work: &mut Work<'_>,
    ) -> Result<(), Error> {
        for depth in (1..=depth).rev() {
            let node = self.node(path[depth].node);
            let is_root = depth == 1;
            // Only whether there are that many plays a part, and only where there are fewer.
            let enough = self.least(node.level).max(2);
            let shrinks = work.mends || edit.begins.len() < edit.ends.len();
            let after = if shrinks {
                let seen = node.seen(self.present());
                seen.take(enough + edit.ends.len()).count() + edit.begins.len() - edit.ends.len()
            } else {
                enough
            };
            if is_root && !node.is_leaf() && after == 1 {
                let only = self.after(node, &edit)?.remove(0);
                self.leaves(node, work);
                work.freed
                    .extend((!only.record.is_none()).then_some(only.record));
                edit = Edit {
                    ends: vec![path[0].slot],
                    begins: vec![Entry::lowest(only.child)],
                };
                continue;
            }
            let is_short = !is_root && after < self.least(node.level);
            let leaves = node.at == work.leaves;
            if !is_short && !leaves && self.change_in_place(node, &edit, work) {
                return Ok(());
            }
            edit = self.copy(node, path[depth - 1], &edit, is_short, work)?;
        }
        let level = self.node(path[1].node).level;
        if edit.begins.len() > 1 {
            let root = self.make_node(level + 1, &edit.begins, work)?;
            edit.begins = vec![Entry::lowest(root)];
        }
        let in_place = self.change_in_place(self.anchor(), &edit, work);
        assert!(in_place, "the anchor has a slot for every view");
        Ok(())
    }

    /// What is live in a node after a change.
    fn after(&self, node: Node<'_, M>, edit: &Edit) -> Result<Vec<Entry>, Error> {
        let stays = self.live(node)?;
        let stays = stays.filter(|found| !edit.ends.contains(&found.slot));
        let begins = edit.begins.iter().copied();
        Ok(stays.map(|found| found.entry).chain(begins).collect())
    }

    /// What is live in a node that is to be copied: of what is damaged no copy is made, which would
    /// be right (CN5 sealed).
    fn live<'n>(
        &self,
        node: Node<'n, M>,
    ) -> Result<impl Iterator<Item = Found> + use<'n, M>, Error> {
        let at = node.at;
        let are_right = node.are_right();
        let live = are_right.then(|| node.seen(self.present()));
        live.ok_or(Error::DamagedNode { at })
    }

    /// Changes a node if it has the slots; whether it has.
    pub(crate) fn change_in_place(
        &self,
        node: Node<'_, M>,
        edit: &Edit,
        work: &mut Work<'_>,
    ) -> bool {
        let needs = self.needs();
        let home = edit.begins.first().map_or(0, |entry| node.home(entry));
        let free = node.free_slots(home, &needs);
        let slots: Vec<_> = free.take(edit.begins.len()).collect();
        if slots.len() < edit.begins.len() {
            return false;
        }
        self.mark(node, work);
        for (slot, entry) in slots.into_iter().zip(&edit.begins) {
            node.begin(slot, *entry, self.open);
        }
        for slot in &edit.ends {
            node.end(*slot, self.open);
        }
        true
    }

    /// Before a node changes, or one that is no leaf leaves the tree.
    pub(crate) fn mark(&self, node: Node<'_, M>, work: &mut Work<'_>) {
        work.held.mark(node.at);
        if !node.is_leaf() {
            self.shared.frames.clear(node.at);
        }
    }

    /// A node leaves the tree (CF3 gone-cleared).
    fn leaves(&self, node: Node<'_, M>, work: &mut Work<'_>) {
        work.freed.push(node.at);
        if !node.is_leaf() {
            self.mark(node, work);
        }
    }

    fn anchor_begins(&self, root: Entry, work: &mut Work<'_>) {
        let in_place = self.change_in_place(self.anchor(), &Edit::beginning(root), work);
        assert!(in_place, "the anchor of an empty tree has a slot");
    }

    /// Copies a node, with its sibling's entries if it is short of some; what its parent does.
    fn copy(
        &self,
        node: Node<'_, M>,
        above: Step,
        edit: &Edit,
        is_short: bool,
        work: &mut Work<'_>,
    ) -> Result<Edit, Error> {
        let parent = if self.node(above.node).level == ANCHOR {
            self.anchor()
        } else {
            self.node(above.node)
        };
        let siblings = parent.sorted(self.present());
        let place = siblings.iter().position(|found| found.slot == above.slot);
        let place = place.expect("the parent has the node");
        let mut entries = self.after(node, edit)?;
        self.leaves(node, work);
        let mut gone: Vec<Found> = vec![siblings[place]];
        if let Some(sibling) = sibling(&siblings, place).filter(|_| is_short) {
            let other = self.child(node.level + 1, sibling.entry.child)?;
            entries.extend(self.live(other)?.map(|found| found.entry));
            self.leaves(other, work);
            gone.push(sibling);
            gone.sort_by(|a, b| parent.order(a.entry, b.entry));
        }
        let lowest = gone[0].entry;
        let separators = gone[1..].iter().map(|found| found.entry.record);
        work.freed.extend(separators);
        let begins = self.make_parts((node, lowest), entries, edit, work)?;
        let ends = gone.iter().map(|found| found.slot).collect();
        Ok(Edit { ends, begins })
    }

    /// Makes the nodes that come in the place of one: of all their entries. What begins in the node
    /// above, the first one as `lowest`, and in order.
    fn make_parts(
        &self,
        (node, lowest): (Node<'_, M>, Entry),
        mut entries: Vec<Entry>,
        edit: &Edit,
        work: &mut Work<'_>,
    ) -> Result<Vec<Entry>, Error> {
        if node.is_leaf() {
            // Keys with one prefix are told apart by their records, and all have a fingerprint.
            for entry in &entries {
                self.pool.memory().row(entry.record, 2).prefetch();
            }
        }
        entries.sort_by(|a, b| node.order(*a, *b));
        let mut begins = Vec::new();
        for part in self.spread(node.level, &entries, edit) {
            let child = self.make_node(node.level, part, work)?;
            begins.push(if begins.is_empty() {
                Entry { child, ..lowest }
            } else {
                self.separator(part[0], child, work)?
            });
        }
        Ok(begins)
    }

    /// Copies a leaf beside other writers, with a change for which it has no slot. The caller has
    /// its latch, and leaves it to `work`; so it has those of the new leaves afterwards. Whether it
    /// could: else nothing has changed, and it takes the tree for itself.
    pub(crate) fn copy_beside(
        &self,
        (node, key): (Node<'_, M>, &[u8]),
        edit: &Edit,
        work: &mut Work<'_>,
    ) -> Result<bool, Error> {
        let entries = self.after(node, edit)?;
        let mut begins = self.make_parts((node, Entry::lowest(node.at)), entries, edit, work)?;
        if !begins.iter().all(|leaf| work.held.try_latch(leaf.child)) {
            return Ok(false);
        }
        let early = canary::has(Fault::WayEarly).then(|| self.descend(key));
        // CX9 inner-by-one: a way that was found before may lead by nodes that have gone.
        let _inner = lock(&self.inner);
        let path = early.unwrap_or_else(|| self.descend(key))?;
        let path = path.unwrap_or_default();
        let [above @ .., leaf] = path.as_slice() else {
            unreachable!("the leaf is in the tree");
        };
        assert_eq!(
            leaf.node, node.at,
            "CX7: who has its latch has the key's leaf"
        );
        if !self.mark_above(above, work) {
            return Ok(false);
        }
        let depth = above.len() - 1;
        let Step { node: parent, slot } = above[depth];
        let parent = if depth == 0 {
            self.anchor()
        } else {
            self.node(parent)
        };
        begins[0] = Entry {
            child: begins[0].child,
            ..parent.entry(slot)
        };
        work.freed.push(node.at);
        let ends = vec![slot];
        self.change_at(&path, depth, Edit { ends, begins }, work)?;
        work.held.publish();
        Ok(true)
    }

    /// Tries to mark all nodes above a leaf that may change when it is copied; whether it could
    /// (CX3 one-waits).
    fn mark_above(&self, above: &[Step], work: &mut Work<'_>) -> bool {
        /// Entries that begin in the place of a node that is copied, at most.
        const BEGIN: usize = 2;
        let needs = self.needs();
        for (depth, step) in above.iter().enumerate().rev() {
            if !work.held.try_mark(step.node) {
                return false;
            }
            let has_room = || {
                let node = self.node(step.node);
                node.free_slots(0, &needs).take(BEGIN).count() == BEGIN
            };
            if depth > 0 && has_room() {
                break;
            }
        }
        true
    }

    /// The parts that become nodes: one, or two if they are more than 4/5 of one. Where the node
    /// grew at its end, or at that of the keys with these first four bytes (a tree of an engine),
    /// keys most likely come in ascending order: the first part, to which none would come, is then
    /// 4/5 of a node, and the second has what is left, but no fewer than it must.
    fn spread<'e>(
        &self,
        level: u64,
        entries: &'e [Entry],
        edit: &Edit,
    ) -> impl Iterator<Item = &'e [Entry]> {
        let in_one = 4 * (self.slots / 5).max(1) as usize;
        let count = if entries.len() > in_one { 2 } else { 1 };
        let even = entries.len().div_ceil(count);
        let family = |entry: &Entry| entry.prefix >> 32;
        let grew_at_end = || {
            let newest = edit
                .begins
                .last()
                .filter(|_| edit.begins.len() > edit.ends.len())?;
            let place = entries.iter().rposition(|entry| entry == newest)?;
            let next = entries.get(place + 1);
            Some(next.is_none_or(|next| family(next) != family(newest)))
        };
        let cut = if count == 2 && grew_at_end() == Some(true) {
            in_one.min(entries.len() - self.least(level)).max(even)
        } else {
            even
        };
        let (first, second) = entries.split_at(cut);
        [first, second].into_iter().take(count)
    }

    fn make_node(
        &self,
        level: u64,
        entries: &[Entry],
        work: &mut Work<'_>,
    ) -> Result<Offset, Error> {
        let bytes = bytes_of(level, self.slots);
        let at = self
            .allocator
            .allocate_for((work.purpose, work.side), bytes, self.open)?;
        work.taken.push(at);
        Node::make(&self.pool, at, (level, self.slots), self.open, entries);
        Ok(at)
    }

    /// A separator of the same key as an entry, in a record of its own.
    fn separator(&self, entry: Entry, child: Offset, work: &mut Work<'_>) -> Result<Entry, Error> {
        let key = Record::at(&self.pool, entry.record).map(Record::key);
        let key = key.ok_or(Error::Damaged { at: entry.record })?;
        let take = |bytes| {
            self.allocator
                .allocate_for((work.purpose, work.side), bytes, self.open)
        };
        let record = record::make_separator(&self.pool, take, key)?;
        work.taken.push(record);
        Ok(Entry::separator(key, record, child))
    }
}

/// The neighbour above, or the one below where there is none.
fn sibling(siblings: &[Found], place: usize) -> Option<Found> {
    let above = siblings.get(place + 1);
    above
        .or_else(|| siblings.get(place.checked_sub(1)?))
        .copied()
}
