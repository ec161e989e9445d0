//! What the crash harness asks of a structure: the tree, and the hash table.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use pando_pmem::{Pmem, Pool, Shape, Simulated, VoidRange};

use super::SHAPE;
use crate::check::Disorder;
use crate::hash::Table;
use crate::node::View;
use crate::tree::{Error, Snapshot, Tree};
use crate::{Direction, hash};

pub(super) type Map = BTreeMap<Vec<u8>, Vec<u8>>;

/// What is done to it, in any memory.
pub(super) trait Structure: Sized {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error>;
    fn remove(&mut self, key: &[u8]) -> Result<bool, Error>;
    fn commit(&mut self) -> Result<(), Error>;
    fn retain(&mut self) -> Result<Snapshot, Error>;
    fn release(&mut self, snapshot: Snapshot) -> Result<(), Error>;
    fn roll_back(&mut self, snapshot: Snapshot) -> Result<(), Error>;
    fn clean(&mut self, steps: usize) -> Result<bool, Error>;
    fn snapshots(&self) -> Vec<Snapshot>;
    fn contents(&self, at: Option<Snapshot>) -> Result<Map, Error>;
    fn check(&self) -> Result<(), Disorder>;
}

/// The same in simulated memory.
pub(super) trait Subject: Structure {
    /// Of the smallest nodes.
    const SHAPE: Shape;

    /// Bytes of a pool that its starting states fit in.
    const POOL_BYTES: u64;

    /// Flushes and fences that are its own, by their marks.
    const MARKS: usize;

    fn of(pool: Pool<Simulated>) -> Result<Self, Error>;
    fn pool(&self) -> &Pool<Simulated>;

    fn create(memory: Simulated) -> Self {
        Self::of(Pool::create(memory, Self::SHAPE).expect("a pool")).expect("it opens")
    }

    fn open(memory: Simulated) -> Result<Self, String> {
        let pool = Pool::open(memory, Self::SHAPE.node_bytes).map_err(|error| error.to_string())?;
        Self::of(pool).map_err(|error| error.to_string())
    }

    fn memory(&self) -> &Simulated {
        self.pool().memory()
    }

    fn voids(&self) -> Vec<VoidRange> {
        self.pool().voids()
    }
}

/// The methods that have the same names and meanings.
macro_rules! same {
    () => {
        fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
            self.put(key, value)
        }

        fn remove(&mut self, key: &[u8]) -> Result<bool, Error> {
            self.remove(key)
        }

        fn commit(&mut self) -> Result<(), Error> {
            self.commit().map(drop)
        }

        fn retain(&mut self) -> Result<Snapshot, Error> {
            self.retain()
        }

        fn release(&mut self, snapshot: Snapshot) -> Result<(), Error> {
            self.release(snapshot)
        }

        fn roll_back(&mut self, snapshot: Snapshot) -> Result<(), Error> {
            self.roll_back(snapshot)
        }

        fn clean(&mut self, steps: usize) -> Result<bool, Error> {
            self.clean(steps)
        }

        fn snapshots(&self) -> Vec<Snapshot> {
            self.snapshots().collect()
        }

        fn check(&self) -> Result<(), Disorder> {
            self.check().map(drop)
        }
    };
}

impl Subject for Tree<Simulated> {
    const SHAPE: Shape = SHAPE;
    const POOL_BYTES: u64 = 64 * 1024;
    const MARKS: usize = 7;

    fn of(pool: Pool<Simulated>) -> Result<Self, Error> {
        Self::open(pool.into())
    }

    fn pool(&self) -> &Pool<Simulated> {
        &self.pool
    }
}

impl<M: Pmem> Structure for Tree<M> {
    same!();

    fn contents(&self, at: Option<Snapshot>) -> Result<Map, Error> {
        let view = at.map_or(self.present(), |at| View(at.epoch()));
        let mut map = Map::new();
        self.run(view, Bound::Unbounded, Direction::Forward, |record| {
            map.insert(record.key().to_vec(), record.value().to_vec());
            ControlFlow::Continue(())
        })?;
        Ok(map)
    }
}

impl Subject for Table<Simulated> {
    const SHAPE: Shape = Shape {
        node_bytes: hash::node_bytes(4),
        chunk_bytes: 4096,
    };
    const POOL_BYTES: u64 = 80 * 1024;
    const MARKS: usize = 9;

    fn of(pool: Pool<Simulated>) -> Result<Self, Error> {
        Self::open(pool.into())
    }

    fn pool(&self) -> &Pool<Simulated> {
        self.pool()
    }
}

impl<M: Pmem> Structure for Table<M> {
    same!();

    fn contents(&self, at: Option<Snapshot>) -> Result<Map, Error> {
        let mut map = Map::new();
        self.for_each(at, |key, value| {
            let before = map.insert(key.to_vec(), value.to_vec());
            assert_eq!(before, None, "a key twice");
        })?;
        Ok(map)
    }
}
