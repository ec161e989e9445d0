//! Reads of permanent keys, in small trees whose nodes split, empty and are removed all the time.
//!
//! A leader makes one tree after another: it stores the permanent keys, lets readers have the tree,
//! and then inserts, removes and purges the keys between them; a helper changes some of these too.
//! Trees are small so that readers meet the nodes that change.

use std::ops::{Bound, ControlFlow};

use pando_sync::shim::unmodelled::{AtomicBool, AtomicU32, Ordering};

use super::{Arena, for_each_family, number_of, put, remove, short};
use crate::conformance::keys::Family;
use crate::conformance::{Failure, Plan, Subject};
use crate::{Decision, Direction, Engine, Key, NoHook, Point, Probe, TreeId, ValueRef};

const KEYS: u16 = 210;
/// Keys whose number this divides are permanent.
const PERMANENT: u16 = 14;
const ROUNDS: usize = 4;
const ROUND_CYCLES: usize = 3;
/// Reads of one pin.
const PIN_READS: usize = 32;

/// The tree for readers.
#[derive(Default)]
struct Stage {
    tree: AtomicU32,
    over: AtomicBool,
}

impl Stage {
    fn tree(&self) -> TreeId {
        // Acquire pairs with `enter`: the tree's permanent keys are there.
        TreeId(self.tree.load(Ordering::Acquire))
    }

    fn enter(&self, tree: TreeId) {
        self.tree.store(tree.0, Ordering::Release);
    }

    /// Whether this is still the tree to read.
    fn shows(&self, tree: TreeId) -> bool {
        self.tree() == tree && !self.over.load(Ordering::Acquire)
    }
}

/// Ends the test when its leader fails, so that nobody waits for the next tree.
struct Curtain<'s>(&'s Stage);

impl Drop for Curtain<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Release);
    }
}

struct Actor<'s> {
    rng: fastrand::Rng,
    worker: usize,
    rounds_left: usize,
    family: Family,
    stage: &'s Stage,
}

/// Every kind of read finds a permanent key, with its value, whatever is inserted and removed
/// around it.
pub fn reads_miss_no_permanent_key<E: Engine<Session: Subject>>(
    plan: &Plan,
) -> Result<(), Failure> {
    for_each_family(plan, "reads_miss_no_permanent_key", |family, name| {
        let arena = Arena::<E>::new(plan);
        let stage = &Stage::default();
        fill(&mut arena.session(), arena.tree, family);
        stage.enter(arena.tree);
        let begin = |worker: usize| Actor {
            rng: plan.rng(&format!("{name} {worker}")),
            worker,
            rounds_left: ROUNDS * arena.effort,
            family,
            stage,
        };
        arena.race(ROUNDS, begin, |actor, session| match actor.worker {
            0 => actor.lead(&arena, session),
            1 => {
                actor.help(session);
                Ok(())
            }
            _ => actor.read(session),
        })?;
        Ok(())
    })
}

/// Stores the permanent keys.
fn fill(session: &mut impl Point, tree: TreeId, family: Family) {
    for number in (0..KEYS).step_by(usize::from(PERMANENT)) {
        put(session, tree, &family.key(number), u64::from(number));
    }
}

impl Actor<'_> {
    /// One tree from its making to its end.
    fn lead<E: Engine<Session: Subject>>(
        &mut self,
        arena: &Arena<E>,
        session: &mut E::Session,
    ) -> Result<(), String> {
        let curtain = Curtain(self.stage);
        let tree = arena.engine.create_tree();
        fill(session, tree, self.family);
        let last = self.stage.tree();
        self.stage.enter(tree);
        // Only now: a reader that misses a key of the dropped tree sees that there is a new one.
        arena.engine.drop_tree(last);
        let mut between: Vec<u16> = (0..KEYS)
            .filter(|number| !number.is_multiple_of(PERMANENT))
            .collect();
        for _ in 0..ROUND_CYCLES {
            self.rng.shuffle(&mut between);
            for number in &between {
                put(session, tree, &self.family.key(*number), u64::from(*number));
            }
            self.rng.shuffle(&mut between);
            for number in &between {
                remove(session, tree, &self.family.key(*number));
            }
            while arena.maintain(session)? > 0 {}
        }
        self.rounds_left -= 1;
        if self.rounds_left > 0 {
            std::mem::forget(curtain);
        }
        Ok(())
    }

    /// Changes keys of the tree while it is current.
    fn help(&mut self, session: &mut impl Point) {
        let tree = self.stage.tree();
        while self.stage.shows(tree) {
            let number = self.rng.u16(..KEYS);
            if number.is_multiple_of(PERMANENT) || self.rng.bool() {
                session.unpin();
                session.pin();
                continue;
            }
            put(session, tree, &self.family.key(number), u64::from(number));
            remove(session, tree, &self.family.key(number));
        }
    }

    /// Reads keys of the tree while it is current.
    fn read(&mut self, session: &mut impl Subject) -> Result<(), String> {
        let tree = self.stage.tree();
        while self.stage.shows(tree) {
            for _ in 0..PIN_READS {
                let number = self.rng.u16(..KEYS / PERMANENT) * PERMANENT;
                let result = self.read_one(session, tree, number);
                if result.is_err() && self.stage.shows(tree) {
                    return result;
                }
            }
            session.unpin();
            session.pin();
        }
        Ok(())
    }

    fn read_one(
        &mut self,
        session: &mut impl Subject,
        tree: TreeId,
        number: u16,
    ) -> Result<(), String> {
        let bytes = self.family.key(number);
        let key = Key::new(tree, &bytes);
        let result = match self.rng.u8(..12) {
            0 => self.read_many(session, tree),
            1 => match session.probe(key) {
                Probe::Present { .. } => Ok(()),
                other => Err(format!("probe says {other:?}")),
            },
            2 => scan_at(session, tree, &bytes, number, Direction::Forward),
            3 => scan_at(session, tree, &bytes, number, Direction::Backward),
            4 => {
                let mut shown = Ok(());
                session.update(key, &mut NoHook, |old| {
                    shown = check(number, old);
                    Decision::Keep
                });
                shown
            }
            _ => session.get(key, |value| check(number, value)),
        };
        result.map_err(|what| format!("{}: {what}", short(&bytes)))
    }

    fn read_many(&mut self, session: &mut impl Point, tree: TreeId) -> Result<(), String> {
        let numbers: Vec<u16> = (0..KEYS).step_by(usize::from(PERMANENT)).collect();
        let keys: Vec<_> = numbers
            .iter()
            .map(|number| self.family.key(*number))
            .collect();
        let keys: Vec<_> = keys.iter().map(|key| Key::new(tree, key)).collect();
        let mut result = Ok(());
        session.get_many(&keys, |index, value| {
            if result.is_ok() {
                result = check(numbers[index], value);
            }
        });
        result.map_err(|what| format!("get_many: {what}"))
    }
}

/// A scan that begins at a permanent key must show it first.
fn scan_at(
    session: &mut impl Subject,
    tree: TreeId,
    key: &[u8],
    number: u16,
    direction: Direction,
) -> Result<(), String> {
    let mut first = Err("the scan shows nothing".into());
    session.list(tree, Bound::Included(key), direction, |shown, value| {
        first = if shown == key {
            check(number, Some(value))
        } else {
            Err(format!("the scan begins with {}", short(shown)))
        };
        ControlFlow::Break(())
    });
    first.map_err(|what| format!("{direction:?}: {what}"))
}

fn check(number: u16, value: Option<ValueRef<'_>>) -> Result<(), String> {
    let found = number_of(&value.ok_or("not there")?)?;
    if found == u64::from(number) {
        Ok(())
    } else {
        Err(format!("the value of key {found}"))
    }
}
