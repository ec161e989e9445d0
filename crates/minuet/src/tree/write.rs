//! PUT: a leaf changes, and what follows from it on the way back to the root.
//!
//! A node that was made before the tip is copied first, to the same memnode, so that the commit
//! still needs it alone; its parent then needs the copy's address, and is copied in turn, up to the
//! root, which never moves (§4.1). A node that overflows is split; the right half goes where the
//! load is least. The root grows in place: its halves become two new nodes below it.

use pando_memnode::Address;

use super::discretion::note_copied;
use super::traverse::{Step, traverse};
use super::{DATA, TreeId, put_new};
use crate::error::{Error, Stop};
use crate::page::{Cell, CellBody, Node, PageEdit};
use crate::snapshot::View;
use crate::transaction::Transaction;

/// A node that is being changed.
pub(super) struct Edited {
    pub(super) address: Address,
    pub(super) page: PageEdit,
    /// Whether its parent must learn this address.
    pub(super) moved: bool,
}

/// The right half of a node that was split, and the first key that it is responsible for.
type Right = (Vec<u8>, Address);

/// A change of the tree, from a leaf up.
pub(super) struct Writer<'t, 'a> {
    pub(super) transaction: &'t mut Transaction<'a>,
    pub(super) view: View,
    /// The nodes above the one that is being changed.
    pub(super) path: Vec<Step>,
}

impl TreeId {
    /// Writes a key, and returns its new version. One trip if inner nodes are cached, and one to
    /// commit.
    pub fn put(
        self,
        transaction: &mut Transaction<'_>,
        view: View,
        key: &[u8],
        value: &[u8],
    ) -> Result<u64, Stop> {
        self.put_version(transaction, view, key, value, None)
    }

    /// Writes a key. Its version is the one that is given, which its host has drawn, or follows.
    pub(crate) fn put_version(
        self,
        transaction: &mut Transaction<'_>,
        view: View,
        key: &[u8],
        value: &[u8],
        version: Option<u64>,
    ) -> Result<u64, Stop> {
        let key = self.key(key, transaction)?;
        let max = transaction.config().value_bytes_max();
        if value.len() > max {
            return Err(Error::ValueTooLong {
                bytes: value.len(),
                max,
            }
            .into());
        }
        let (mut writer, leaf) = Writer::at(transaction, view, &key)?;
        let mut leaf = writer.edit(&leaf)?;
        let page = leaf.page.page();
        let found = page.find(&key);
        let old = found.map_or(0, |index| page.entry(index).0);
        let line = writer.view.snapshot.version_floor();
        let next = old.max(page.floor()).max(line) + 1;
        let version = version.unwrap_or(next);
        let body = CellBody::Entry {
            version,
            value: value.to_vec(),
        };
        let right = match found {
            Ok(index) if leaf.page.set_entry(index, version, value).is_ok() => None,
            Ok(index) => writer.pack_or_split(&mut leaf, |node| node.cells[index].body = body)?,
            Err(index) => writer.insert(&mut leaf, index, Cell { key, body })?,
        };
        writer.finish(leaf, right)?;
        Ok(version)
    }
}

/// Tells the node above of a leaf that was split off from the one which covers `before`.
pub(crate) fn add_leaf(
    transaction: &mut Transaction<'_>,
    view: View,
    before: &[u8],
    (low, leaf): (Vec<u8>, Address),
) -> Result<(), Stop> {
    let (mut writer, step) = Writer::at(transaction, view, before)?;
    let lower = writer.edit(&step)?;
    writer.finish(lower, Some((low, leaf)))
}

impl<'t, 'a> Writer<'t, 'a> {
    /// Goes to the leaf of `key`.
    pub(super) fn at(
        transaction: &'t mut Transaction<'a>,
        view: View,
        key: &[u8],
    ) -> Result<(Self, Step), Stop> {
        if !view.is_tip() {
            return Err(Error::ReadOnly.into());
        }
        let mut path = traverse(transaction, view, key)?;
        let leaf = path.pop().expect("a leaf");
        Ok((
            Self {
                transaction,
                view,
                path,
            },
            leaf,
        ))
    }

    /// Takes a node to change it, or a copy of it (MB2 made-at-the-tip).
    pub(super) fn edit(&mut self, step: &Step) -> Result<Edited, Stop> {
        let Step { address, page, .. } = step;
        if page.created() == self.view.snapshot {
            let page = self.transaction.take_page(*address, page.clone());
            return Ok(Edited {
                address: *address,
                page,
                moved: false,
            });
        }
        let copy = self.transaction.allocate(address.memnode)?;
        note_copied(self.transaction, self.view, step)?;
        let mut page = PageEdit::of(page.clone());
        page.become_copy(copy.generation, self.view.snapshot);
        Ok(Edited {
            address: copy,
            page,
            moved: true,
        })
    }

    /// Adds a cell. If the node overflows, its right half is returned; of the root, none ever is.
    pub(super) fn insert(
        &mut self,
        edited: &mut Edited,
        index: usize,
        cell: Cell,
    ) -> Result<Option<Right>, Stop> {
        if edited.page.insert(index, &cell).is_ok() {
            return Ok(None);
        }
        self.pack_or_split(edited, |node| node.cells.insert(index, cell))
    }

    /// Changes a node's cells, whether they fit as the page lies or not.
    fn pack_or_split(
        &mut self,
        edited: &mut Edited,
        change: impl FnOnce(&mut Node),
    ) -> Result<Option<Right>, Stop> {
        let mut node = edited.page.node();
        change(&mut node);
        if edited.page.replace(&node) {
            return Ok(None);
        }
        let place = self.transaction.place();
        let right = self.transaction.allocate(place)?;
        let is_root = edited.address == self.view.root;
        let upper = node.split(right);
        put_new(self.transaction, right, &upper);
        if !is_root {
            assert!(edited.page.replace(&node), "half of a node fits");
            return Ok(Some((upper.low, right)));
        }
        let place = self.transaction.place();
        let left = self.transaction.allocate(place)?;
        let child = |key: &Vec<u8>, to| Cell {
            key: key.clone(),
            body: CellBody::Child(to),
        };
        let root = Node {
            is_root: true,
            height: node.height + 1,
            cells: vec![child(&node.low, left), child(&upper.low, right)],
            ..Node::empty(DATA, edited.address, self.view.snapshot)
        };
        (node.generation, node.is_root) = (left.generation, false);
        put_new(self.transaction, left, &node);
        assert!(edited.page.replace(&root), "two children fit");
        Ok(None)
    }

    /// Writes a changed node, and what it means for those above.
    pub(super) fn finish(
        &mut self,
        mut edited: Edited,
        mut right: Option<Right>,
    ) -> Result<(), Stop> {
        loop {
            let Edited {
                address,
                page,
                moved,
            } = edited;
            self.transaction.put_page(address, page);
            if !moved && right.is_none() {
                return Ok(());
            }
            let above = self
                .path
                .pop()
                .expect("the root neither moves nor is split");
            let mut parent = self.edit(&above)?;
            if moved {
                parent.page.set_child(above.child, address);
            }
            right = match right {
                Some((key, right)) => {
                    let cell = Cell {
                        key,
                        body: CellBody::Child(right),
                    };
                    self.insert(&mut parent, above.child + 1, cell)?
                }
                None => None,
            };
            edited = parent;
        }
    }
}
