//! Trees that are made and dropped alongside a permanent one.

use std::ops::{Bound, ControlFlow};

use super::{Arena, number_of, put};
use crate::conformance::keys::Family;
use crate::conformance::{Failure, Plan, Subject};
use crate::{Direction, Engine, Key, Point, Probe, TreeId};

const ROUNDS: usize = 20;
const ROUND_KEYS: u16 = 40;

/// Trees do not see each other's keys, and a dropped one reads as empty, while other trees are in
/// use and memory is reclaimed.
pub fn trees_come_and_go<E: Engine<Session: Subject>>(plan: &Plan) -> Result<(), Failure> {
    let check = "trees_come_and_go";
    run::<E>(plan).map_err(|what| plan.failure(check, what))
}

fn run<E: Engine<Session: Subject>>(plan: &Plan) -> Result<(), String> {
    let arena = Arena::<E>::new(plan);
    let states = arena.race(
        ROUNDS,
        |worker| (worker, 0_u16),
        |(worker, round), session| {
            *round += 1;
            if *worker % 2 == 0 {
                // Keys of this worker and round, in the permanent tree.
                let first = (*round * 4 + *worker as u16) * ROUND_KEYS;
                fill(session, arena.tree, first);
                return check_filled(session, arena.tree, first);
            }
            // A short-lived session: others must still free what it retired.
            let session = &mut arena.session();
            let tree = arena.engine.create_tree();
            check_empty(&arena, session, tree)?;
            fill(session, tree, 0);
            check_filled(session, tree, 0)?;
            if arena.engine.len(tree) != u64::from(ROUND_KEYS) {
                return Err(format!("len is {}", arena.engine.len(tree)));
            }
            arena.engine.drop_tree(tree);
            check_empty(&arena, session, tree)?;
            // Lost, as intended.
            put(session, tree, b"late", 1);
            check_empty(&arena, session, tree)
        },
    )?;
    let stayed = states.iter().filter(|(worker, _)| worker % 2 == 0).count();
    let keys = arena.settled()?.len();
    let expected = stayed * ROUNDS * arena.effort * usize::from(ROUND_KEYS);
    if keys == expected {
        Ok(())
    } else {
        Err(format!("{keys} keys stayed of {expected}"))
    }
}

fn fill(session: &mut impl Point, tree: TreeId, first: u16) {
    for number in first..first + ROUND_KEYS {
        put(
            session,
            tree,
            &Family::Slices.key(number),
            u64::from(number),
        );
    }
}

fn check_filled(session: &mut impl Point, tree: TreeId, first: u16) -> Result<(), String> {
    for number in first..first + ROUND_KEYS {
        let key = Family::Slices.key(number);
        let found = session.get(Key::new(tree, &key), |value| {
            value.map(|value| number_of(&value)).transpose()
        })?;
        if found != Some(u64::from(number)) {
            return Err(format!("key {number} holds {found:?}"));
        }
    }
    Ok(())
}

fn check_empty<E: Engine<Session: Subject>>(
    arena: &Arena<E>,
    session: &mut E::Session,
    tree: TreeId,
) -> Result<(), String> {
    let mut shown = 0;
    for direction in [Direction::Forward, Direction::Backward] {
        session.list(tree, Bound::Unbounded, direction, |_, _| {
            shown += 1;
            ControlFlow::Continue(())
        });
    }
    let key = Family::Slices.key(0);
    let empty = shown == 0
        && arena.engine.len(tree) == 0
        && session.get(Key::new(tree, &key), |value| value.is_none())
        && session.probe(Key::new(tree, &key)) == Probe::Absent
        && session.sample(tree, 7, |found| found.is_none());
    if empty {
        Ok(())
    } else {
        Err(format!("{tree:?} is not empty"))
    }
}
