//! Every workload of a few operations on small trees, a crash at every fence of it, and the
//! memories that it may leave, all where they are few, else samples: what is found is what was
//! committed, and the tree goes on.
//!
//! | what a machine keeps whole | workloads at an effort of 420 | of each crash |
//! |---|---|---|
//! | lines, each with a prefix of its stores | all of three operations on five keys and 20 starting trees, 5,040 longer ones | all images where there are up to 24, of longer ones 8; else what a killed process leaves, all old but one unit, all new but one, samples |
//! | words | the same on four of the 20, 1,008 longer ones | likewise |
//! | commits, as a file does | all of three operations | all: there are two |
//! | sectors of 512 bytes below a file | `filed.rs`: 80 of 14 operations, the power ends in each call | nothing, all and three samples of what was not synced |
//!
//! Several threads (`writers.rs`), and cleaning over several crashes (`cleaning.rs`), are tried
//! with lines alone.
//!
//! Each flush and fence is needed, which is shown by leaving it out:
//!
//! | mark | without it |
//! |---|---|
//! | record: flush | an entry of a committed epoch refers to a record that is not there |
//! | node: flush of a new one | a parent refers to a node that is not there |
//! | node: flush of the number of its used slots | a child that a committed split made is not seen |
//! | entry: flush of its beginning | a committed entry is lost |
//! | entry: flush of its fingerprint | a committed entry is not found by its key |
//! | entry: flush of its end | a replaced or removed entry is seen again |
//! | entry: flush of an erased epoch | an entry of a lost epoch is seen once the pool forgets it |
//! | tree: fence of changes | what one of two writers flushed is lost from a committed epoch (`writers.rs`) |
//!
//! Where only words are whole (`Pmem::keeps_lines`), entries of both are stored in steps:
//!
//! | mark | without it |
//! |---|---|
//! | words: flush of an erased beginning, and the fence after it | a dead entry is there again without its end, or it is damaged by what the next one says |
//! | words: flush of what an entry says, and the fence after it | an entry of a lost epoch is damaged |
//!
//! And of the hash table:
//!
//! | mark | without it |
//! |---|---|
//! | bucket: flush of a new one | the directory, or a link, leads to a bucket that is not there |
//! | bucket: flush of an entry's beginning | a committed entry is lost |
//! | bucket: flush of a fingerprint | a committed entry is not found by its key |
//! | bucket: flush of an entry's end | a replaced or removed entry is seen again |
//! | bucket: flush of an erased epoch | an entry of a lost epoch is seen once the pool forgets it |
//! | directory: flush of a beginning | a committed split is lost, and its keys with it |
//! | directory: flush of an empty page | what the block held before is taken for buckets |
//! | directory: flush of an erased epoch | a bucket of a lost epoch counts once the pool forgets it |
//!
//! Those of the pool and of the allocator are `pando-pmem`'s, and shown there.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;
use pando_pmem::{Mark, Platform, Sampling, Simulated, Trace};

use super::subject::{Map, Structure, Subject};
use crate::canary::{self, Fault};
use crate::hash::Table;
use crate::tree::Tree;

type Tested = Tree<Simulated>;
type TestedTable = Table<Simulated>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// A value that is the number of the operation, twelve bytes and more.
    Put(u8),
    Remove(u8),
    /// Two puts and a removal in one epoch.
    Several(u8),
    /// Twenty further keys in one epoch.
    Many,
    Retain,
    Release,
    RollBack,
    /// All of it, with the commit that ends it.
    Clean,
}

/// What a tree is to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    present: Map,
    snapshots: Vec<Map>,
}

/// Keys that differ behind their first eight bytes.
pub(super) fn key(number: u8) -> Vec<u8> {
    format!("a key of {number}").into_bytes()
}

pub(super) fn value(serial: u64) -> Vec<u8> {
    format!("value {serial:06}").into_bytes()
}

impl Op {
    /// All, on so many keys.
    pub(super) fn all(keys: u8) -> Vec<Self> {
        let on_keys = (0..keys).flat_map(|key| [Self::Put(key), Self::Remove(key)]);
        let others = [
            Self::Several(0),
            Self::Retain,
            Self::Release,
            Self::RollBack,
        ];
        on_keys.chain(others).collect()
    }

    pub(super) fn run<S: Structure>(self, tree: &mut S, serial: u64) {
        let newest = tree.snapshots().last().copied();
        match (self, newest) {
            (Self::Put(number), _) => tree.put(&key(number), &value(serial)).unwrap(),
            (Self::Remove(number), _) => drop(tree.remove(&key(number)).unwrap()),
            (Self::Several(number), _) => {
                tree.put(&key(number), &value(serial)).unwrap();
                tree.put(&key(number), &value(serial + 1)).unwrap();
                tree.put(&key(number + 1), &value(serial)).unwrap();
                tree.remove(&key(number + 2)).unwrap();
            }
            (Self::Many, _) => {
                for number in 30..50 {
                    tree.put(&key(number), &value(serial)).unwrap();
                }
            }
            (Self::Retain, _) => drop(tree.retain().unwrap()),
            (Self::Release, Some(snapshot)) => tree.release(snapshot).unwrap(),
            (Self::RollBack, Some(snapshot)) => tree.roll_back(snapshot).unwrap(),
            (Self::Release | Self::RollBack, None) => {}
            (Self::Clean, _) => {
                while tree.clean(1).unwrap() {}
                tree.put(&key(200), b"cleaning").unwrap();
                tree.remove(&key(200)).unwrap();
            }
        }
        tree.commit().unwrap();
    }
}

pub(super) fn state_of(tree: &impl Structure) -> State {
    let read = |at| tree.contents(at).expect("nothing is damaged");
    State {
        present: read(None),
        snapshots: tree
            .snapshots()
            .into_iter()
            .map(|at| read(Some(at)))
            .collect(),
    }
}

/// A run that was recorded, and the states before and after each of its operations.
pub(super) struct Run {
    pub(super) trace: Trace,
    pub(super) states: Vec<State>,
}

/// What is recorded of a machine that keeps this whole.
fn recording(machine: Platform, start: Vec<u64>) -> Simulated {
    Simulated::recording(start).on(machine)
}

fn record<S: Subject>(machine: Platform, start: &[u64], ops: &[Op]) -> Run {
    let mut tree = S::open(recording(machine, start.to_vec())).expect("it opens");
    let mut states = vec![state_of(&tree)];
    for (index, op) in (0..).zip(ops) {
        tree.memory().note(2 * index + 1);
        op.run(&mut tree, 100 * (index + 1));
        tree.memory().note(2 * index + 2);
        states.push(state_of(&tree));
    }
    Run {
        trace: tree.memory().trace(),
        states,
    }
}

/// What is found after a crash, beside what may be.
fn judge<S: Subject>(memory: Simulated, states: &[State], noted: &[u64]) -> Result<(), String> {
    let last = noted.last().copied().unwrap_or(0);
    let (acknowledged, begun) = ((last / 2) as usize, last.div_ceil(2) as usize);
    let mut tree = S::open(memory)?;
    let found = state_of(&tree);
    if found != states[acknowledged] && found != states[begun] {
        return Err(format!(
            "{found:?} beside {:?}",
            &states[acknowledged..=begun]
        ));
    }
    tree.check().map_err(|disorder| disorder.to_string())?;
    for number in 0..3 {
        tree.put(&key(number), b"further")
            .map_err(|error| error.to_string())?;
    }
    tree.commit().map_err(|error| error.to_string())?;
    tree.check().map_err(|disorder| disorder.to_string())?;
    let snapshots = state_of(&tree).snapshots;
    if snapshots != found.snapshots {
        return Err("a snapshot changed by further work".into());
    }
    // It takes as long as all of the above: of some.
    if tree.pool().committed().0.is_multiple_of(16) {
        clean_up(&mut tree)?;
    }
    Ok(())
}

/// Cleans, with a change and a commit now and then: what there is stays, and no epoch is void.
fn clean_up(tree: &mut impl Subject) -> Result<(), String> {
    let before = state_of(tree);
    let mut steps = 0;
    while !tree.voids().is_empty() {
        tree.clean(2).map_err(|error| error.to_string())?;
        steps += 1;
        if steps % 3 == 0 {
            tree.put(&key(200), b"cleaning")
                .and_then(|()| tree.remove(&key(200)))
                .and_then(|_| tree.commit())
                .map_err(|error| error.to_string())?;
        }
        if steps > 1000 {
            return Err("cleaning does not end".into());
        }
    }
    if state_of(tree) != before {
        return Err("cleaning changed what there is".into());
    }
    tree.check().map_err(|disorder| disorder.to_string())?;
    Ok(())
}

/// What a judgement comes to; a panic is a fault, too.
pub(super) fn caught(judge: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    let judged = catch_unwind(AssertUnwindSafe(judge));
    judged.unwrap_or_else(|_| Err("a panic".into()))
}

/// The first thing that is wrong after some crash.
pub(super) fn failure<S: Subject>(
    trace: &Trace,
    states: &[State],
    sampling: Sampling,
) -> (u64, Option<String>) {
    failure_on::<S>(Platform::Lines, trace, states, sampling)
}

/// The same on a machine that keeps this whole.
fn failure_on<S: Subject>(
    machine: Platform,
    trace: &Trace,
    states: &[State],
    sampling: Sampling,
) -> (u64, Option<String>) {
    let (mut images, mut failure) = (0, None);
    trace.crashes(machine, |crash| {
        if failure.is_some() {
            return;
        }
        for image in crash.images(sampling) {
            images += 1;
            let judged = caught(|| judge::<S>(image.memory(), states, crash.noted()));
            if let Err(reason) = judged {
                failure = Some(format!("{:?}: {reason}", crash.noted()));
                return;
            }
        }
    });
    (images, failure)
}

/// What is wrong with a slot after some crash in an epoch that changes one pair twice.
fn replacing(fault: Option<Fault>) -> Option<String> {
    canary::plant(fault);
    let memory = Simulated::recording(start::<Tested>(3));
    let mut tree = <Tested as Subject>::open(memory).expect("it opens");
    for serial in 0..3 {
        tree.put(&key(1), &value(serial)).expect("there is room");
    }
    Tree::commit(&mut tree).expect("memory takes it");
    canary::plant(None);
    let mut failure = None;
    tree.memory().trace().crashes(Platform::Lines, |crash| {
        let judge = |memory| clean_up(&mut <Tested as Subject>::open(memory)?);
        let judge = |memory| caught(|| judge(memory)).err();
        let mut images = crash.images(QUICK);
        failure = (failure.take()).or_else(|| images.find_map(|image| judge(image.memory())));
    });
    failure
}

#[test]
fn a_slot_is_right_after_every_crash() {
    assert_eq!(replacing(None), None);
}

#[test]
fn canary_a_record_that_is_replaced_under_its_beginning() {
    assert!(replacing(Some(Fault::ReplacedBegun)).is_some());
}

/// The memory of a tree that some random operations made.
pub(super) fn start<S: Subject>(seed: u64) -> Vec<u64> {
    start_in::<S>(seed, S::POOL_BYTES)
}

/// The same of so many bytes.
pub(super) fn start_in<S: Subject>(seed: u64, bytes: u64) -> Vec<u64> {
    let mut rng = Rng::with_seed(seed);
    let mut tree = S::create(Simulated::new(bytes));
    let ops = Op::all(12);
    for serial in 0..rng.u64(..40) {
        // More puts than removals: trees of two and three levels.
        let op = match rng.u8(..3) {
            0 => ops[rng.usize(..ops.len())],
            _ => Op::Put(rng.u8(..12)),
        };
        if op != Op::Retain || tree.snapshots().len() < 3 {
            op.run(&mut tree, 100_000 + serial);
        }
    }
    tree.memory().words()
}

/// How much is tried, by `PANDO_CRASH_EFFORT`.
pub(super) fn effort() -> u64 {
    let effort = std::env::var("PANDO_CRASH_EFFORT").ok();
    effort.map_or(1, |effort| effort.parse().expect("a number"))
}

const QUICK: Sampling = Sampling {
    exhaustive_max: 24,
    samples: 6,
    seed: 1,
};

/// Every workload of so many operations.
fn workloads(ops: &[Op], length: usize) -> Vec<Vec<Op>> {
    let mut workloads = vec![Vec::new()];
    for _ in 0..length {
        workloads = workloads
            .iter()
            .flat_map(|before| ops.iter().map(|op| [before.as_slice(), &[*op]].concat()))
            .collect();
    }
    workloads
}

/// Of how many workloads one is tried on a machine, where others are all tried.
fn one_in(machine: Platform) -> u64 {
    if machine == Platform::Words { 5 } else { 1 }
}

/// Two operations on four trees, each pair on one of them; with more effort each pair on up to
/// twenty, and at an effort of 20 three operations: every workload on every tree, or on four trees
/// where only words are whole.
fn short_runs<S: Subject>(machine: Platform) {
    let mut images = 0;
    let trees = 20.min(4 * effort());
    let length = if effort() >= 20 { 3 } else { 2 };
    let one_in = if effort() == 1 {
        trees
    } else {
        one_in(machine)
    };
    for seed in 0..trees {
        let start = start::<S>(seed);
        for (index, workload) in workloads(&Op::all(5), length).iter().enumerate() {
            let number = (index / Op::all(5).len() + index) as u64;
            if number % one_in != seed % one_in {
                continue;
            }
            let run = record::<S>(machine, &start, workload);
            let (tried, failure) = failure_on::<S>(machine, &run.trace, &run.states, QUICK);
            images += tried;
            assert_eq!(failure, None, "tree {seed}, {workload:?}, {machine:?}");
        }
    }
    let few = if machine == Platform::Commits {
        500
    } else {
        2000
    };
    assert!(images > few, "{images} images");
}

#[test]
fn a_crash_leaves_what_was_committed() {
    short_runs::<Tested>(Platform::Lines);
}

#[test]
fn a_crash_leaves_what_was_committed_of_a_table() {
    short_runs::<TestedTable>(Platform::Lines);
}

fn longer_runs<S: Subject>(machine: Platform) {
    let seeds = 12 * effort() / one_in(machine);
    for seed in 0..seeds.max(4) {
        let mut rng = Rng::with_seed(seed);
        let all = Op::all(9);
        let ops: Vec<_> = (0..8).map(|_| all[rng.usize(..all.len())]).collect();
        let sampling = Sampling {
            exhaustive_max: 8,
            samples: 4,
            seed,
        };
        let run = record::<S>(machine, &start::<S>(seed), &ops);
        let (_, failure) = failure_on::<S>(machine, &run.trace, &run.states, sampling);
        assert_eq!(failure, None, "seed {seed}: {ops:?}, {machine:?}");
    }
}

#[test]
fn longer_runs_leave_what_was_committed() {
    longer_runs::<Tested>(Platform::Lines);
}

#[test]
fn longer_runs_leave_what_was_committed_of_a_table() {
    longer_runs::<TestedTable>(Platform::Lines);
}

/// A crash while what a crash left is opened, and one after that.
fn openings<S: Subject>(machine: Platform) {
    let mut images = 0;
    for seed in 0..6 * effort().min(20) {
        let ops = [Op::Put(1), Op::Remove(2), Op::Several(3)];
        let run = record::<S>(machine, &start::<S>(seed), &ops);
        run.trace.crashes(machine, |crash| {
            let few = Sampling {
                exhaustive_max: 4,
                samples: 2,
                seed,
            };
            for image in crash.images(few) {
                let tree = S::open(image.recording().on(machine)).expect("it opens");
                tree.memory().trace().crashes(machine, |again| {
                    for image in again.images(few) {
                        images += 1;
                        let judged = judge::<S>(image.memory(), &run.states, crash.noted());
                        judged.unwrap_or_else(|reason| panic!("seed {seed}: {reason}"));
                    }
                });
            }
        });
    }
    assert!(images > 500, "{images} images");
}

#[test]
fn opening_can_be_interrupted() {
    openings::<Tested>(Platform::Lines);
}

#[test]
fn opening_can_be_interrupted_of_a_table() {
    openings::<TestedTable>(Platform::Lines);
}

/// A crash while void epochs are rubbed out, and after the pool has forgotten them.
fn cleanings<S: Subject>(machine: Platform) {
    let mut images = 0;
    for seed in 0..10 * effort().min(20) {
        let memory = recording(machine, start_with_voids::<S>(seed));
        let mut tree = S::open(memory).expect("it opens");
        let state = state_of(&tree);
        assert!(!tree.voids().is_empty(), "something was lost");
        while tree.clean(1).expect("nothing is damaged") {}
        // An epoch of its own, whose changes cancel out, so that it commits.
        tree.put(&key(200), b"cleaning").unwrap();
        tree.remove(&key(200)).unwrap();
        tree.commit().unwrap();
        assert_eq!(tree.voids(), [], "it was forgotten");
        let (trace, states) = (tree.memory().trace(), [state.clone(), state]);
        let (tried, failure) = failure_on::<S>(machine, &trace, &states, QUICK);
        images += tried;
        assert_eq!(failure, None, "seed {seed}, {machine:?}");
    }
    assert!(images > 500, "{images} images");
}

#[test]
fn cleaning_can_be_interrupted() {
    cleanings::<Tested>(Platform::Lines);
}

#[test]
fn cleaning_can_be_interrupted_of_a_table() {
    cleanings::<TestedTable>(Platform::Lines);
}

/// A crash while records move to make room, and when their chunk has blocks of another size.
#[test]
fn making_room_can_be_interrupted() {
    let (mut images, mut moved, mut large) = (0, 0, 0);
    for seed in 0..4 * effort().min(6) {
        let memory = Simulated::recording(sparse(seed));
        let mut tree = <Tested as Subject>::open(memory).expect("a tree");
        let state = state_of(&tree);
        // A size that was not there, or two chunks.
        let wanted = if seed % 2 == 0 { 1000 } else { 6000 };
        for random in 0..3 {
            let made = tree.make_room(wanted, seed * 3 + random);
            moved += u32::from(made.expect("nothing is damaged"));
            tree.commit().unwrap();
        }
        // It does not stay.
        if tree.put(&key(200), &vec![7; wanted]).is_ok() {
            large += wanted / 6000;
            tree.remove(&key(200)).unwrap();
        }
        tree.commit().unwrap();
        let trace = tree.memory().trace();
        let (tried, failure) = failure::<Tested>(&trace, &[state.clone(), state], QUICK);
        images += tried;
        assert_eq!(failure, None, "seed {seed}");
    }
    assert!(images > 500, "{images} images");
    assert!(moved > 3 && large > 0, "{moved} chunks, {large} of two");
}

/// A crash while a group is taken back, and after that was committed with another change.
#[test]
fn taking_back_can_be_interrupted() {
    let mut images = 0;
    for seed in 0..16 * effort().min(20) {
        let memory = Simulated::recording(start::<Tested>(seed));
        let mut tree = <Tested as Subject>::open(memory).expect("a tree");
        let mut rng = Rng::with_seed(seed);
        let before = state_of(&tree);
        tree.memory().note(1);
        tree.begin_group();
        for serial in 0..6 {
            let number = rng.u8(..12);
            if rng.u8(..3) == 0 {
                tree.remove(&key(number)).unwrap();
            } else {
                tree.put(&key(number), &value(serial)).unwrap();
            }
        }
        tree.take_back().expect("there is room");
        assert_eq!(state_of(&tree), before, "seed {seed}");
        tree.check().expect("no block is lost");
        tree.put(&key(201), b"behind it").unwrap();
        tree.commit().unwrap();
        tree.memory().note(2);
        let states = [before, state_of(&tree)];
        let (tried, failure) = failure::<Tested>(&tree.memory().trace(), &states, QUICK);
        images += tried;
        assert_eq!(failure, None, "seed {seed}");
    }
    assert!(images > 500, "{images} images");
}

/// A tree whose chunks have free blocks here and there.
fn sparse(seed: u64) -> Vec<u64> {
    let mut tree = Tested::create(Simulated::new(2 * Tested::POOL_BYTES));
    let mut rng = Rng::with_seed(seed);
    for number in 0..96 {
        tree.put(&key(number), &value(seed)).unwrap();
    }
    tree.commit().unwrap();
    for number in 0..96 {
        if rng.u8(..3) > 0 {
            tree.remove(&key(number)).unwrap();
        }
    }
    tree.commit().unwrap();
    tree.memory().words()
}

/// What a crash leaves within an epoch of several changes.
pub(super) fn start_with_voids<S: Subject>(seed: u64) -> Vec<u64> {
    let mut tree = S::open(Simulated::from(start::<S>(seed))).expect("it opens");
    let mut rng = Rng::with_seed(seed);
    // Blocks of two lines that held something else.
    for number in 60..66 {
        tree.put(&key(number), &[7; 105]).unwrap();
    }
    tree.commit().unwrap();
    for number in 60..66 {
        tree.remove(&key(number)).unwrap();
    }
    tree.commit().unwrap();
    tree.retain().unwrap();
    for serial in 0..16 {
        let number = rng.u8(..24);
        if rng.bool() {
            tree.put(&key(number), &value(serial)).unwrap();
        } else {
            tree.remove(&key(number)).unwrap();
        }
    }
    tree.memory().words()
}

/// The canary of the harness, and the table in the header: whatever flush or fence is left out, a
/// crash shows it.
fn flushes<S: Subject>(machine: Platform, marks: usize) {
    let mut needless = BTreeSet::new();
    let mut found: BTreeMap<Mark, bool> = BTreeMap::new();
    for seed in 0..16 {
        let ops = [
            Op::Put(1),
            Op::Retain,
            Op::Remove(4),
            Op::Several(2),
            Op::Release,
            Op::Clean,
            Op::Many,
        ];
        let run = record::<S>(machine, &start_with_voids::<S>(seed), &ops);
        for count in run.trace.marks() {
            let mark = count.mark.expect("every flush and fence has a name");
            let of_pool = ["pool:", "allocator", "commit:"];
            if of_pool.iter().any(|of| mark.0.starts_with(of)) || found.get(&mark) == Some(&true) {
                continue;
            }
            let trace = run.trace.without(mark, None);
            let (_, failure) = failure_on::<S>(machine, &trace, &run.states, QUICK);
            let fails = failure.is_some();
            *found.entry(mark).or_insert(false) |= fails;
        }
    }
    assert_eq!(found.len(), marks, "{found:?}");
    needless.extend(found.into_iter().filter(|(_, fails)| !fails));
    assert_eq!(needless, BTreeSet::new(), "nothing fails without these");
}

#[test]
fn every_flush_and_fence_is_needed() {
    flushes::<Tested>(Platform::Lines, Tested::MARKS);
}

#[test]
fn every_flush_and_fence_is_needed_of_a_table() {
    flushes::<TestedTable>(Platform::Lines, TestedTable::MARKS);
}

/// Where only words are whole, entries are stored in steps with fences between.
const MARKS_OF_WORDS: usize = 4;

#[test]
fn every_flush_and_fence_is_needed_where_words_are_whole() {
    flushes::<Tested>(Platform::Words, Tested::MARKS + MARKS_OF_WORDS);
}

#[test]
fn every_flush_and_fence_is_needed_of_a_table_where_words_are_whole() {
    flushes::<TestedTable>(Platform::Words, TestedTable::MARKS + MARKS_OF_WORDS);
}

/// What a file may leave, which changes with commits alone (`filed.rs` has its sectors): all of it.
#[test]
fn a_crash_leaves_what_was_committed_where_commits_are_whole() {
    short_runs::<Tested>(Platform::Commits);
    short_runs::<TestedTable>(Platform::Commits);
}

#[test]
fn canary_a_snapshot_that_a_file_does_not_take() {
    let start = start::<Tested>(3);
    canary::plant(Some(Fault::KeptUncommitted));
    let run = record::<Tested>(Platform::Commits, &start, &[Op::Put(1), Op::Retain]);
    canary::plant(None);
    let found = failure_on::<Tested>(Platform::Commits, &run.trace, &run.states, QUICK);
    assert!(found.1.is_some());
}

/// What a machine may leave of which no more than words are whole.
#[test]
fn a_crash_leaves_what_was_committed_where_words_are_whole() {
    short_runs::<Tested>(Platform::Words);
}

#[test]
fn a_crash_leaves_what_was_committed_of_a_table_where_words_are_whole() {
    short_runs::<TestedTable>(Platform::Words);
}

#[test]
fn longer_runs_leave_what_was_committed_where_words_are_whole() {
    longer_runs::<Tested>(Platform::Words);
    longer_runs::<TestedTable>(Platform::Words);
}

#[test]
fn opening_can_be_interrupted_where_words_are_whole() {
    openings::<Tested>(Platform::Words);
    openings::<TestedTable>(Platform::Words);
}

#[test]
fn cleaning_can_be_interrupted_where_words_are_whole() {
    cleanings::<Tested>(Platform::Words);
    cleanings::<TestedTable>(Platform::Words);
}
