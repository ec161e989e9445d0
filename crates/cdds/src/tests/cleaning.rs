//! Cleaning that crashes interrupt, again and again: it goes on where it was noted, each crash
//! leaves another void range, and a range is forgotten only when no node has a mark of it. A pool
//! that is crowded with ranges is cleaned up when it is opened.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;
use pando_pmem::{Platform, Pool, Sampling, Simulated, Trace};
use pando_sync::LogEpoch;

use super::crashes::{effort, key, start_with_voids, value};
use super::subject::{Map, Subject};
use crate::canary::{self, Fault};
use crate::check::Disorder;
use crate::hash::Table;
use crate::node::{Span, View};
use crate::tree::{Error, Tree};

/// Under which it is noted how far cleaning has got.
const NOTED: &[u8] = b"the note";

const FEW: Sampling = Sampling {
    exhaustive_max: 3,
    samples: 2,
    seed: 1,
};

/// What cleaning is asked for.
trait Cleaned: Subject {
    /// Some steps, and a note; whether it went on from one.
    fn clean_some(&mut self, steps: usize) -> bool;

    /// Whether what some view comes to has an epoch of these.
    fn has_epoch(&self, is_one: impl Fn(u64) -> bool) -> bool;
}

impl Cleaned for Tree<Simulated> {
    fn clean_some(&mut self, steps: usize) -> bool {
        let had_begun = self.cleaning.is_some();
        self.resume_cleaning(NOTED).unwrap();
        let resumed = !had_begun && self.cleaning.is_some();
        self.clean(steps).unwrap();
        self.note_cleaning(NOTED).unwrap();
        resumed
    }

    fn has_epoch(&self, is_one: impl Fn(u64) -> bool) -> bool {
        let snapshots = self.retained.iter().map(|epoch| View(*epoch));
        [View::PRESENT].into_iter().chain(snapshots).any(|view| {
            let mut nodes = vec![self.anchor()];
            while let Some(node) = nodes.pop() {
                let mut spans = (0..node.used).map(|slot| node.span(slot));
                if spans.any(|Span { start, end }| is_one(start) || is_one(end)) {
                    return true;
                }
                if !node.is_leaf() {
                    let children = node.seen(view).map(|found| found.entry.child);
                    nodes.extend(children.map(|child| self.node(child)));
                }
            }
            false
        })
    }
}

impl Cleaned for Table<Simulated> {
    fn clean_some(&mut self, steps: usize) -> bool {
        let resumed = self.note_often();
        self.clean(steps).unwrap();
        resumed
    }

    fn has_epoch(&self, is_one: impl Fn(u64) -> bool) -> bool {
        self.has_epoch(is_one)
    }
}

/// What each view has, but for the note.
fn contents<S: Subject>(tree: &S) -> Vec<Map> {
    let snapshots = tree.snapshots().into_iter().map(Some);
    let of_view = |at| {
        let mut map = tree.contents(at).expect("nothing is damaged");
        map.remove(NOTED);
        map
    };
    [None].into_iter().chain(snapshots).map(of_view).collect()
}

/// Some steps, a note, a change, and a commit; whether it went on from a note.
fn turn<S: Cleaned>(tree: &mut S, steps: usize, change: impl FnOnce(&mut S)) -> bool {
    let resumed = tree.clean_some(steps);
    change(tree);
    let before = tree.voids();
    tree.commit().unwrap();
    let (after, mut gone) = (tree.voids(), before);
    gone.retain(|range| !after.contains(range));
    let is_gone = |epoch: u64| {
        let epoch = LogEpoch(epoch);
        (gone.iter()).any(|range| range.first <= epoch && epoch <= range.last)
    };
    assert!(!tree.has_epoch(is_gone), "a mark of {gone:?} is left");
    resumed
}

/// What happens between two crashes.
struct Life {
    trace: Trace,
    states: Vec<Vec<Map>>,
    resumed: bool,
}

fn live<S: Cleaned>(words: Vec<u64>, rng: &mut Rng) -> Life {
    let mut tree = S::open(Simulated::recording(words)).expect("it opens");
    let (mut states, mut resumed) = (vec![contents(&tree)], false);
    for number in 0..rng.u64(1..4) {
        tree.memory().note(2 * number + 1);
        resumed |= turn(&mut tree, rng.usize(1..4), |tree| change(tree, rng));
        tree.memory().note(2 * number + 2);
        states.push(contents(&tree));
    }
    // What the crash takes, whole or in parts.
    for _ in 0..4 {
        change(&mut tree, rng);
    }
    tree.clean_some(1);
    Life {
        trace: tree.memory().trace(),
        states,
        resumed,
    }
}

fn change<S: Subject>(tree: &mut S, rng: &mut Rng) {
    let number = rng.u8(..24);
    if rng.bool() {
        let put = tree.put(&key(number), &value(rng.u64(..1000)));
        assert!(matches!(put, Ok(()) | Err(Error::Full(_))), "{put:?}");
    } else {
        tree.remove(&key(number)).unwrap();
    }
}

/// What is found after a crash, and after cleaning has ended.
fn judge<S: Cleaned>(memory: Simulated, states: &[Vec<Map>], noted: &[u64]) {
    let last = noted.last().copied().unwrap_or(0);
    let may_be = [last / 2, last.div_ceil(2)].map(|state| &states[state as usize]);
    let mut tree = S::open(memory).expect("it opens");
    let found = contents(&tree);
    assert!(may_be.contains(&&found), "{found:?} beside {may_be:?}");
    for _ in 0..200 {
        if tree.voids().is_empty() {
            break;
        }
        turn(&mut tree, 2, |_| ());
    }
    assert_eq!(tree.voids(), [], "cleaning ends");
    assert_eq!(contents(&tree), found, "cleaning changes nothing");
    tree.check().expect("a tree in order");
}

/// Five lives, each of which begins with an image of a crash in the one before; how many images
/// were judged, and lives that went on from a note.
fn lives<S: Cleaned>(seed: u64) -> (u64, u64) {
    let mut rng = Rng::with_seed(seed);
    let (mut words, mut images, mut resumed) = (start_with_voids::<S>(seed), 0, 0);
    for _ in 0..5 {
        let life = live::<S>(words.clone(), &mut rng);
        resumed += u64::from(life.resumed);
        let mut met = 0;
        life.trace.crashes(Platform::Lines, |crash| {
            for image in crash.images(FEW) {
                judge::<S>(image.memory(), &life.states, crash.noted());
                met += 1;
                // Each with the same chance.
                if rng.u64(..met) == 0 {
                    words = image.words().to_vec();
                }
            }
        });
        images += met;
    }
    (images, resumed)
}

fn goes_on<S: Cleaned>() {
    let (mut images, mut resumed) = (0, 0);
    for seed in 0..6 * effort().min(50) {
        let judged = catch_unwind(AssertUnwindSafe(|| lives::<S>(seed)));
        let (more, again) = judged.unwrap_or_else(|_| panic!("seed {seed}"));
        (images, resumed) = (images + more, resumed + again);
    }
    assert!(
        images > 500 && resumed > 5,
        "{images} images, {resumed} go on"
    );
}

#[test]
fn cleaning_goes_on_after_crashes_within_it() {
    goes_on::<Tree<Simulated>>();
}

#[test]
fn cleaning_goes_on_after_crashes_within_it_of_a_table() {
    goes_on::<Table<Simulated>>();
}

/// What so many crashes leave that the header has no room for another range, and what was
/// committed.
fn crowded<S: Cleaned>(seed: u64) -> (Vec<u64>, Vec<Map>) {
    let mut rng = Rng::with_seed(seed);
    let mut words = start_with_voids::<S>(seed);
    let mut committed = contents(&S::open(Simulated::from(words.clone())).expect("it opens"));
    loop {
        let memory = Simulated::from(words.clone());
        let pool = Pool::open(memory, S::SHAPE.node_bytes).expect("a pool");
        if pool.is_crowded() {
            return (words, committed);
        }
        let mut tree = S::of(pool).expect("it opens");
        change(&mut tree, &mut rng);
        tree.commit().unwrap();
        committed = contents(&tree);
        for _ in 0..4 {
            change(&mut tree, &mut rng);
        }
        words = tree.memory().words();
    }
}

/// Opens a crowded pool, with a crash at every fence of that; how many images were judged.
fn open_crowded<S: Cleaned>(seed: u64) -> u64 {
    let (words, committed) = crowded::<S>(seed);
    let in_order = |tree: &S| match tree.check() {
        // The pool is full: a removal may have found no room for a merge.
        Ok(()) | Err(Disorder::Entries { .. }) => {}
        Err(disorder) => panic!("{disorder}"),
    };
    let is_well = |mut tree: S| {
        // At most that of this opening.
        assert!(tree.voids().len() <= 1);
        assert_eq!(contents(&tree), committed);
        in_order(&tree);
        change(&mut tree, &mut Rng::with_seed(seed));
        tree.commit().unwrap();
        in_order(&tree);
    };
    let tree = S::open(Simulated::recording(words)).expect("it opens");
    let (trace, mut images) = (tree.memory().trace(), 0);
    is_well(tree);
    trace.crashes(Platform::Lines, |crash| {
        for image in crash.images(FEW) {
            is_well(S::open(image.memory()).expect("it opens"));
            images += 1;
        }
    });
    images
}

#[test]
fn a_crowded_pool_is_cleaned_up_when_it_is_opened() {
    for seed in 0..effort().min(20) {
        let images = open_crowded::<Tree<Simulated>>(seed);
        let of_table = open_crowded::<Table<Simulated>>(seed);
        assert!(images > 5 && of_table > 5, "{images}, {of_table}");
    }
}

fn is_found(fault: Fault, what: impl Fn(u64) -> u64) -> bool {
    canary::plant(Some(fault));
    let found = (0..20).any(|seed| catch_unwind(AssertUnwindSafe(|| what(seed))).is_err());
    canary::plant(None);
    found
}

#[test]
fn canary_a_position_that_is_noted_ahead() {
    assert!(is_found(Fault::NotedAhead, |seed| {
        lives::<Tree<Simulated>>(seed).0
    }));
    assert!(is_found(Fault::NotedAhead, |seed| {
        lives::<Table<Simulated>>(seed).0
    }));
}

#[test]
fn canary_ranges_that_came_later_are_forgotten_as_well() {
    assert!(is_found(Fault::ForgottenLater, |seed| {
        lives::<Tree<Simulated>>(seed).0
    }));
    assert!(is_found(Fault::ForgottenLater, |seed| {
        lives::<Table<Simulated>>(seed).0
    }));
}

#[test]
fn canary_a_crowded_pool_that_only_forgets() {
    let fault = Fault::ForgottenUncleaned;
    assert!(is_found(fault, open_crowded::<Tree<Simulated>>));
    assert!(is_found(fault, open_crowded::<Table<Simulated>>));
}
