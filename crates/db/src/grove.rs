//! Branches and lasting snapshots that recovery has found, for the database that opens with them.

use std::collections::BTreeMap;
use std::sync::Arc;

use pando_engine::LogEpoch;
use pando_minuet::BranchId;
use pando_minuet::engine::Minuet;

use crate::clock::Milliseconds;
use crate::durable::catalog::{BranchNote, SnapshotNote};

/// A branch that is there.
#[derive(Debug)]
pub(crate) struct Grown {
    pub(crate) id: BranchId,
    pub(crate) note: BranchNote,
}

/// What recovery leaves of them; see the module's header.
#[derive(Debug)]
pub(crate) struct Grove {
    /// None: the engine has no branches.
    pub(crate) engine: Option<Arc<Minuet>>,
    /// Where the checkpoint began that it comes from, if it does from any.
    pub(crate) checkpoint: LogEpoch,
    /// That has a full copy, of which nothing else in the log tells (FA1 planted-whole).
    pub(crate) is_planted: bool,
    /// How many changes there have been.
    pub(crate) changes: u64,
    pub(crate) mainline: u64,
    /// By their numbers, the first one among them.
    pub(crate) branches: BTreeMap<u64, Grown>,
    pub(crate) snapshots: BTreeMap<LogEpoch, SnapshotNote>,
}

impl Grove {
    /// The first branch began at this time, unless it is known when.
    pub(crate) fn begin(&mut self, time: Milliseconds) {
        let first = self.branches.get_mut(&0).expect("the first branch");
        if first.note.created == Milliseconds::ZERO {
            first.note.created = time;
        }
    }
}
