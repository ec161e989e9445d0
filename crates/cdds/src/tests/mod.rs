//! The tree and the hash table beside a model, in memory that never fails, and in every memory that
//! a crash may leave.

mod beside;
mod cleaning;
mod crashes;
mod filed;
mod flips;
mod model;
mod subject;
mod writers;

use std::sync::Arc;

use pando_pmem::{Pool, Shape, Simulated};

use crate::limits::node_bytes;
use crate::tree::Tree;

/// The smallest nodes: every few changes split or merge some.
const SHAPE: Shape = Shape {
    node_bytes: node_bytes(5),
    chunk_bytes: 4096,
};

fn open(memory: Simulated) -> Tree<Simulated> {
    let pool = Pool::open(memory, SHAPE.node_bytes).expect("a pool");
    Tree::open(Arc::new(pool)).expect("a tree")
}

pub(crate) fn create(memory: Simulated) -> Tree<Simulated> {
    let pool = Pool::create(memory, SHAPE).expect("a pool");
    Tree::open(Arc::new(pool)).expect("a tree")
}
