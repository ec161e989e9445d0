//! Many keys inserted and removed in every order: nodes that split, empty and are reused.

use std::ops::Bound;

use super::keys::Family;
use super::model::{ExpectingHook, Tree, Verdict};
use super::values::{Change, Prepared};
use super::{Failure, Plan, Subject, open, session};
use crate::{Direction, Engine, EpochClock, Key, TreeId};

const KEYS: u16 = 1_500;
const MAINTAIN_STEPS: usize = 64;

/// The order in which keys are touched.
#[derive(Clone, Copy, Debug)]
enum Order {
    Ascending,
    Descending,
    Random,
    /// From both ends to the middle.
    Inwards,
}

impl Order {
    fn numbers(self, rng: &mut fastrand::Rng) -> Vec<u16> {
        let mut numbers: Vec<u16> = (0..KEYS).collect();
        match self {
            Order::Ascending => {}
            Order::Descending => numbers.reverse(),
            Order::Random => rng.shuffle(&mut numbers),
            Order::Inwards => {
                numbers.sort_by_key(|number| {
                    if number % 2 == 0 {
                        *number
                    } else {
                        KEYS - number
                    }
                });
            }
        }
        numbers
    }
}

/// Fills trees, empties them partly and wholly, purges and fills them again; compares everything
/// with the model at each stage.
pub fn bulk_loads<E: Engine<Session: Subject>>(plan: &Plan) -> Result<(), Failure> {
    let check = "bulk_loads";
    let mut rng = plan.rng(check);
    let orders = [
        Order::Ascending,
        Order::Descending,
        Order::Random,
        Order::Inwards,
    ];
    for family in Family::ALL {
        for (index, put) in orders.into_iter().enumerate() {
            let remove = orders[(index + 1 + rng.usize(..3)) % orders.len()];
            bulk_load::<E>(family, put, remove, &mut rng).map_err(|what| {
                plan.failure(
                    check,
                    format!("{family:?}, {put:?}, then {remove:?}: {what}"),
                )
            })?;
        }
    }
    Ok(())
}

fn bulk_load<E: Engine<Session: Subject>>(
    family: Family,
    put: Order,
    remove: Order,
    rng: &mut fastrand::Rng,
) -> Result<(), String> {
    let (clock, engine) = open::<E>();
    let mut bulk = Bulk {
        clock: &clock,
        session: session(&engine),
        tree: engine.create_tree(),
        model: Tree::default(),
    };
    let text = Change::Text { length: 9, seed: 1 };
    let mut round = |family, numbers: Vec<u16>, change: &Change, rng: &mut fastrand::Rng| {
        for number in numbers {
            bulk.update(&Family::key(family, number), change)?;
        }
        bulk.check(rng)
    };
    round(family, put.numbers(rng), &text, rng)?;
    let thinned = remove
        .numbers(rng)
        .into_iter()
        .filter(|number| number % 5 != 0)
        .collect();
    round(family, thinned, &Change::Remove, rng)?;
    round(
        family,
        put.numbers(rng),
        &Change::Text {
            length: 30,
            seed: 2,
        },
        rng,
    )?;
    round(family, remove.numbers(rng), &Change::Remove, rng)?;
    round(family, put.numbers(rng), &text, rng)
}

struct Bulk<'b, S> {
    clock: &'b EpochClock,
    session: S,
    tree: TreeId,
    model: Tree,
}

impl<S: Subject> Bulk<'_, S> {
    fn update(&mut self, key: &[u8], change: &Change) -> Result<(), String> {
        let prepared = Prepared::new(change);
        let expected = [self.model.update(key, &prepared, self.clock.current())];
        let (mut hook, mut verdict) = (ExpectingHook::new(&expected), Verdict::default());
        let version = self
            .session
            .update(Key::new(self.tree, key), &mut hook, |old| {
                verdict.note(expected[0].check_shown(old));
                prepared.decide(old)
            });
        verdict.note(hook.finish());
        if version != expected[0].version {
            verdict.note(Err(format!(
                "version {version:?}, not {:?}",
                expected[0].version
            )));
        }
        verdict.into_result()
    }

    /// Compares everything before and after a purge, and scans from many places.
    fn check(&mut self, rng: &mut fastrand::Rng) -> Result<(), String> {
        self.model
            .check(&mut self.session, self.tree, self.clock.horizon(), false)?;
        self.clock.tick();
        self.clock.set_horizon(self.clock.current());
        while self.session.maintain(MAINTAIN_STEPS) > 0 {}
        self.model
            .check(&mut self.session, self.tree, self.clock.horizon(), true)?;
        let places: Vec<_> = self
            .model
            .live
            .keys()
            .chain(self.model.removed.keys())
            .cloned()
            .collect();
        for _ in 0..if S::ORDERED { 40 } else { 1 } {
            let from = &places[rng.usize(..places.len())][..];
            for bound in [Bound::Included(from), Bound::Excluded(from)] {
                for direction in [Direction::Forward, Direction::Backward] {
                    self.model
                        .check_scan(&mut self.session, self.tree, bound, direction, 20)?;
                }
            }
        }
        Ok(())
    }
}
