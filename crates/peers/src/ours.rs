//! Our tree, in mapped shared memory: each operation is a commit.

use std::path::Path;
use std::sync::Arc;

use pando_cdds::{Tree, limits};
use pando_pmem::{Mapped, Medium, Pmem, Pool, Protection, Shape};

use crate::store::{Outcome, Store};

/// The tree; every flush and fence is executed.
pub(crate) fn durable(directory: &Path, bytes: u64) -> Outcome<Ours<Mapped>> {
    Ours::create(mapped(directory, bytes, Medium::Rehearsal)?)
}

/// The same tree without flushes and fences.
pub(crate) fn volatile(directory: &Path, bytes: u64) -> Outcome<Ours<Mapped>> {
    Ours::create(mapped(directory, bytes, Medium::SharedMemory)?)
}

fn mapped(directory: &Path, bytes: u64, medium: Medium) -> Outcome<Mapped> {
    let bytes = bytes.next_multiple_of(1 << 20);
    let path = directory.join("pool");
    Ok(Mapped::create(&path, bytes, medium, Protection::None)?)
}

pub(crate) struct Ours<M> {
    tree: Tree<M>,
}

impl<M: Pmem> Ours<M> {
    fn create(memory: M) -> Outcome<Self> {
        let shape = Shape::with_nodes(limits::node_bytes(limits::ENTRIES));
        let pool = Pool::create(memory, shape)?;
        let tree = Tree::open(Arc::new(pool))?;
        Ok(Self { tree })
    }
}

impl<M: Pmem> Store for Ours<M> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        self.tree.put(key, value)?;
        self.tree.commit()?;
        Ok(())
    }

    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> Outcome<bool> {
        let value = self.tree.get(key)?;
        into.extend_from_slice(value.unwrap_or_default());
        Ok(value.is_some())
    }

    fn delete(&mut self, key: &[u8]) -> Outcome<()> {
        self.tree.remove(key)?;
        self.tree.commit()?;
        Ok(())
    }
}
