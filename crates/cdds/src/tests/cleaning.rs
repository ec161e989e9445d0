//! Cleaning that crashes interrupt, again and again: it goes on where it was noted, each crash
//! leaves another void range, and a range is forgotten only when no node has a mark of it.

use std::ops::{Bound, ControlFlow};
use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;
use pando_pmem::{Platform, Sampling, Simulated, Trace, VoidRange};
use pando_sync::LogEpoch;

use super::crashes::{effort, key, start_with_voids, value};
use super::open;
use super::subject::{Map, Subject};
use crate::Direction;
use crate::canary::{self, Fault};
use crate::node::{Span, View};
use crate::tree::{Error, Tree};

type Tested = Tree<Simulated>;

/// Under which it is noted how far cleaning has got.
const NOTED: &[u8] = b"the note";

const FEW: Sampling = Sampling {
    exhaustive_max: 3,
    samples: 2,
    seed: 1,
};

/// The views of a tree: the present, and the snapshots.
fn views(tree: &Tested) -> Vec<View> {
    let snapshots = tree.retained.iter().map(|epoch| View(*epoch));
    [View::PRESENT].into_iter().chain(snapshots).collect()
}

/// What each view has, but for the note.
fn contents(tree: &Tested) -> Vec<Map> {
    let of_view = |view| {
        let mut map = Map::new();
        tree.run(view, Bound::Unbounded, Direction::Forward, |record| {
            map.insert(record.key().to_vec(), record.value().to_vec());
            ControlFlow::Continue(())
        })
        .expect("nothing is damaged");
        map.remove(NOTED);
        map
    };
    views(tree).into_iter().map(of_view).collect()
}

/// Whether a node of some view has an epoch of these ranges.
fn has_marks(tree: &Tested, ranges: &[VoidRange]) -> bool {
    let is_mark = |epoch: u64| {
        let epoch = LogEpoch(epoch);
        (ranges.iter()).any(|range| range.first <= epoch && epoch <= range.last)
    };
    views(tree).into_iter().any(|view| {
        let mut nodes = vec![tree.anchor()];
        while let Some(node) = nodes.pop() {
            let mut spans = (0..node.used).map(|slot| node.span(slot));
            if spans.any(|Span { start, end }| is_mark(start) || is_mark(end)) {
                return true;
            }
            if !node.is_leaf() {
                let children = node.seen(view).map(|found| found.entry.child);
                nodes.extend(children.map(|child| tree.node(child)));
            }
        }
        false
    })
}

/// Some steps, a note, a change, and a commit; whether it went on from a note.
fn turn(tree: &mut Tested, steps: usize, change: impl FnOnce(&mut Tested)) -> bool {
    let had_begun = tree.cleaning.is_some();
    tree.resume_cleaning(NOTED).unwrap();
    let resumed = !had_begun && tree.cleaning.is_some();
    tree.clean(steps).unwrap();
    tree.note_cleaning(NOTED).unwrap();
    change(tree);
    let before = tree.voids();
    tree.commit().unwrap();
    let (after, mut gone) = (tree.voids(), before);
    gone.retain(|range| !after.contains(range));
    assert!(!has_marks(tree, &gone), "a mark of {gone:?} is left");
    resumed
}

/// What happens between two crashes.
struct Life {
    trace: Trace,
    states: Vec<Vec<Map>>,
    resumed: bool,
}

fn live(words: Vec<u64>, rng: &mut Rng) -> Life {
    let mut tree = open(Simulated::recording(words));
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
    tree.clean(1).unwrap();
    tree.note_cleaning(NOTED).unwrap();
    Life {
        trace: tree.memory().trace(),
        states,
        resumed,
    }
}

fn change(tree: &mut Tested, rng: &mut Rng) {
    let number = rng.u8(..24);
    if rng.bool() {
        let put = tree.put(&key(number), &value(rng.u64(..1000)));
        assert!(matches!(put, Ok(()) | Err(Error::Full(_))), "{put:?}");
    } else {
        tree.remove(&key(number)).unwrap();
    }
}

/// What is found after a crash, and after cleaning has ended.
fn judge(memory: Simulated, states: &[Vec<Map>], noted: &[u64]) {
    let last = noted.last().copied().unwrap_or(0);
    let may_be = [last / 2, last.div_ceil(2)].map(|state| &states[state as usize]);
    let mut tree = open(memory);
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
fn lives(seed: u64) -> (u64, u64) {
    let mut rng = Rng::with_seed(seed);
    let (mut words, mut images, mut resumed) = (start_with_voids::<Tested>(seed), 0, 0);
    for _ in 0..5 {
        let life = live(words.clone(), &mut rng);
        resumed += u64::from(life.resumed);
        let mut met = 0;
        life.trace.crashes(Platform::Lines, |crash| {
            for image in crash.images(FEW) {
                judge(image.memory(), &life.states, crash.noted());
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

#[test]
fn cleaning_goes_on_after_crashes_within_it() {
    let (mut images, mut resumed) = (0, 0);
    for seed in 0..6 * effort().min(50) {
        let judged = catch_unwind(AssertUnwindSafe(|| lives(seed)));
        let (more, again) = judged.unwrap_or_else(|_| panic!("seed {seed}"));
        (images, resumed) = (images + more, resumed + again);
    }
    assert!(
        images > 500 && resumed > 5,
        "{images} images, {resumed} go on"
    );
}

fn is_found(fault: Fault) -> bool {
    canary::plant(Some(fault));
    let found = (0..20).any(|seed| catch_unwind(AssertUnwindSafe(|| lives(seed))).is_err());
    canary::plant(None);
    found
}

#[test]
fn canary_a_position_that_is_noted_ahead() {
    assert!(is_found(Fault::NotedAhead));
}

#[test]
fn canary_ranges_that_came_later_are_forgotten_as_well() {
    assert!(is_found(Fault::ForgottenLater));
}
