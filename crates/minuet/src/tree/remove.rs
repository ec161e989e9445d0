//! Removal, and merges of what has become small.

use pando_memnode::Address;

use super::TreeId;
use super::discretion::note_copied;
use super::traverse::{Step, Way};
use super::write::{Edited, Writer};
use crate::error::Stop;
use crate::fault::{Fault, planted};
use crate::page::Node;
use crate::snapshot::View;
use crate::transaction::Transaction;

impl TreeId {
    /// Removes a key, and returns the version that it had, if it was there. Trips as for PUT, and
    /// one more where two leaves may become one.
    pub fn remove(
        self,
        transaction: &mut Transaction<'_>,
        view: View,
        key: &[u8],
    ) -> Result<Option<u64>, Stop> {
        let key = self.key(key, transaction)?;
        let (mut writer, leaf) = Writer::at(transaction, view, &key)?;
        let Ok(index) = leaf.page.find(&key) else {
            return Ok(None);
        };
        let version = leaf.page.entry(index).0;
        let mut leaf = writer.edit(&leaf)?;
        leaf.page.remove(index);
        if !planted(Fault::VersionFloor) {
            leaf.page.raise_floor(version);
        }
        writer.shrink(leaf)?;
        Ok(Some(version))
    }
}

impl Writer<'_, '_> {
    /// Writes a node that has lost a cell; merges it with a sibling if both are small.
    fn shrink(&mut self, mut edited: Edited) -> Result<(), Stop> {
        loop {
            let page_bytes = edited.page.bytes().len();
            let small = edited.page.page().used() < page_bytes / 4;
            if self.path.is_empty() {
                return self.shrink_root(edited);
            }
            if !small {
                return self.finish(edited, None);
            }
            match self.merge(edited)? {
                Ok(parent) => edited = parent,
                Err(alone) => return self.finish(alone, None),
            }
        }
    }

    /// Merges a node with a sibling below the same parent. Returns the parent, or, if there is no
    /// sibling that is small enough, the node.
    fn merge(&mut self, edited: Edited) -> Result<Result<Edited, Edited>, Stop> {
        let above = self.path.last().expect("not the root");
        let (child, page) = (above.child, above.page.clone());
        if page.count() < 2 {
            return Ok(Err(edited));
        }
        let other = if child > 0 { child - 1 } else { 1 };
        let sibling = self.visit(page.child(other), page.height())?;
        let (this, that) = (edited.page.node(), Node::decode(&sibling.page));
        let (left, right) = if other < child {
            (&that, &this)
        } else {
            (&this, &that)
        };
        if left.high.as_ref() != Some(&right.low) {
            return Err(Stop::Conflict);
        }
        let merged = left.merged(right);
        let page_bytes = edited.page.bytes().len();
        if merged.encode(page_bytes / 4 * 3).is_none() {
            return Ok(Err(edited));
        }
        let mut kept = if other < child {
            let kept = self.edit(&sibling)?;
            self.transaction.free(edited.address);
            kept
        } else {
            self.take_out(&sibling)?;
            edited
        };
        let node = Node {
            generation: kept.page.node().generation,
            created: self.view.snapshot,
            ..merged
        };
        assert!(kept.page.replace(&node), "what fits three quarters fits");
        let (address, moved) = (kept.address, kept.moved);
        self.transaction.put_page(address, kept.page);
        let above = self.path.pop().expect("not the root");
        let mut parent = self.edit(&above)?;
        let index = child.min(other);
        if moved {
            parent.page.set_child(index, address);
        }
        parent.page.remove(index + 1);
        Ok(Ok(parent))
    }

    /// Takes a node out of the tip's tree (MB3 old-nodes-say-so).
    fn take_out(&mut self, step: &Step) -> Result<(), Stop> {
        if step.page.created() == self.view.snapshot {
            self.transaction.free(step.address);
            return Ok(());
        }
        note_copied(self.transaction, self.view, step)
    }

    /// Goes to a child of a node of the height `parent`.
    fn visit(&mut self, entry: Address, parent: u8) -> Result<Step, Stop> {
        let mut way = Way::new(self.transaction, self.view)?;
        let (address, page) = way.visit(entry, Some(parent))?;
        Ok(Step {
            address,
            page,
            entry,
            child: 0,
        })
    }

    /// Writes the root; if it has one inner child, takes that one's place.
    fn shrink_root(&mut self, mut root: Edited) -> Result<(), Stop> {
        while root.page.page().count() == 1 && root.page.page().height() > 1 {
            let (child, height) = (root.page.page().child(0), root.page.page().height());
            let child = self.visit(child, height)?;
            let node = Node {
                is_root: true,
                generation: root.address.generation,
                created: self.view.snapshot,
                ..Node::decode(&child.page)
            };
            assert!(
                root.page.replace(&node),
                "the only child's fences are the root's"
            );
            self.take_out(&child)?;
        }
        self.finish(root, None)
    }
}
