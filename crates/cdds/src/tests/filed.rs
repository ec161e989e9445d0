//! The tree and the hash table in a file on a disk whose power ends in any call, and whose sectors
//! of 512 bytes arrive by themselves: the whole way from a change through the journal and back.
//!
//! Every call of a run is a place where the power ends, and each leaves five disks: nothing of
//! what was not synced, all of it, and three samples. Opening what was left loses its power, too.

use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;
use pando_pmem::{DiskFault, Filed, Pool, PoolError, Shape, SimulatedDisk};

use super::crashes::{Op, State, caught, effort, key, state_of};
use super::subject::{Structure, Subject};
use crate::hash::Table;
use crate::tree::{Error, Tree};

const FILE: &str = "disk/pool";

/// Bytes of the journal before it begins anew: a few commits.
const LAP_BYTES: u64 = 4 * 4096;

/// A structure whose pool is a file.
trait InFile: Structure {
    const SHAPE: Shape;
    const BYTES: u64;

    fn of(pool: Pool<Filed>) -> Result<Self, Error>;
}

impl InFile for Tree<Filed> {
    const SHAPE: Shape = super::SHAPE;
    const BYTES: u64 = <Tree<_> as Subject>::POOL_BYTES;

    fn of(pool: Pool<Filed>) -> Result<Self, Error> {
        Self::open(Arc::new(pool))
    }
}

impl InFile for Table<Filed> {
    const SHAPE: Shape = <Table<_> as Subject>::SHAPE;
    const BYTES: u64 = <Table<_> as Subject>::POOL_BYTES;

    fn of(pool: Pool<Filed>) -> Result<Self, Error> {
        Self::open(Arc::new(pool))
    }
}

/// A disk with an empty file on it.
fn disk(bytes: u64, writes_through: bool) -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    disk.set_writes_through(writes_through);
    Filed::put_on(&disk, Path::new(FILE), bytes);
    disk
}

/// Opens what is in the file, or makes it.
fn open<S: InFile>(disk: &SimulatedDisk, is_synced: bool) -> Result<S, String> {
    let filed = || Filed::open_on(disk, Path::new(FILE), (LAP_BYTES, is_synced));
    let pool = match filed().and_then(|filed| Pool::open(filed, S::SHAPE.node_bytes)) {
        Err(PoolError::Unfinished) => filed().and_then(|filed| Pool::create(filed, S::SHAPE)),
        opened => opened,
    };
    let pool = pool.map_err(|error| error.to_string())?;
    S::of(pool).map_err(|error| error.to_string())
}

/// Runs operations until the power ends; the states before and after each that ended, and whether
/// there is one that has begun.
fn run<S: InFile>(disk: &SimulatedDisk, ops: &[Op], is_synced: bool) -> Vec<State> {
    let Ok(mut tree) = open::<S>(disk, is_synced) else {
        return Vec::new();
    };
    let mut states = vec![state_of(&tree)];
    for (serial, op) in (1..).zip(ops) {
        let ended = caught(|| {
            op.run(&mut tree, 100 * serial);
            Ok(())
        });
        if ended.is_err() {
            break;
        }
        states.push(state_of(&tree));
    }
    states
}

/// What is wrong with what is found, where it may be one of these states.
fn judge<S: InFile>(disk: &SimulatedDisk, may_be: &[State]) -> Result<(), String> {
    let mut tree = open::<S>(disk, true)?;
    let found = state_of(&tree);
    if !may_be.contains(&found) {
        return Err(format!("{found:?} beside {may_be:?}"));
    }
    tree.check().map_err(|disorder| disorder.to_string())?;
    let wrong = |error: Error| error.to_string();
    tree.put(&key(1), b"further").map_err(wrong)?;
    tree.commit().map_err(wrong)?;
    tree.check().map_err(|disorder| disorder.to_string())
}

/// The first thing that is wrong after the power has ended in one call in `stride`; how many disks
/// were looked at.
fn failure<S: InFile>(seed: u64, stride: usize, is_synced: bool) -> (usize, Option<String>) {
    let mut rng = Rng::with_seed(seed);
    let all = Op::all(7);
    let ops: Vec<_> = (0..14).map(|_| all[rng.usize(..all.len())]).collect();
    let new = || disk(S::BYTES, is_synced && seed.is_multiple_of(2));
    let whole = new();
    let states = run::<S>(&whole, &ops, is_synced);
    assert_eq!(states.len(), ops.len() + 1, "the power stays");
    let mut disks = 0;
    for call in (0..whole.call_count())
        .skip(seed as usize % stride)
        .step_by(stride)
    {
        let disk = new();
        disk.fail_at(call, DiskFault::PowerLoss);
        let ended = run::<S>(&disk, &ops, is_synced).len();
        // An empty one is found where none was made.
        let last = ended.saturating_sub(1);
        let may_be = &states[last..states.len().min(ended + 1)];
        for kept in [0, 1, seed + 2, seed + 100, seed + 10_000] {
            disks += 1;
            let after = disk.crash(kept);
            after.fail_at((call + kept as usize) % 12, DiskFault::PowerLoss);
            let opened = caught(|| open::<S>(&after, is_synced).map(drop));
            let after = if opened.is_ok() && after.has_power() {
                after.clear_faults();
                after
            } else {
                after.crash(kept + 1)
            };
            if let Err(wrong) = caught(|| judge::<S>(&after, may_be)) {
                let place = format!("seed {seed}, call {call}, {kept}");
                return (disks, Some(format!("{place}: {wrong}")));
            }
        }
    }
    (disks, None)
}

fn losses_of_power<S: InFile>() {
    let mut disks = 0;
    let stride = if effort() == 1 { 3 } else { 1 };
    for seed in 0..4 * effort().min(20) {
        let (tried, failure) = failure::<S>(seed, stride, true);
        disks += tried;
        assert_eq!(failure, None);
    }
    assert!(disks > 200, "{disks} disks");
}

#[test]
fn a_loss_of_power_leaves_what_was_committed_in_a_file() {
    losses_of_power::<Tree<Filed>>();
}

#[test]
fn a_loss_of_power_leaves_what_was_committed_in_a_file_of_a_table() {
    losses_of_power::<Table<Filed>>();
}

#[test]
fn canary_syncs_that_are_left_out_are_found() {
    let tree = (0..4).any(|seed| failure::<Tree<Filed>>(seed, 3, false).1.is_some());
    let table = (0..4).any(|seed| failure::<Table<Filed>>(seed, 3, false).1.is_some());
    assert!(tree && table, "{tree} {table}");
}
