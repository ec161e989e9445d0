//! Properties that must hold in every interleaving of threads.
//!
//! Workers do rounds of operations, each round under one pin. After each they begin an epoch, move
//! the horizon up to it and maintain, so tombstones are made and purged all the time.

mod commits;
mod histories;
mod increments;
mod reads;
mod scans;
mod trees;
mod walks;
mod whole_values;

use std::collections::HashMap;
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Barrier};

pub use commits::commits_form_a_chain;
pub use histories::histories_are_linearizable;
pub use increments::increments_are_not_lost;
pub use reads::reads_miss_no_permanent_key;
pub use scans::scans_miss_no_permanent_key;
pub use trees::trees_come_and_go;
pub use walks::walks_miss_no_permanent_key;
pub use whole_values::values_are_whole;

use super::keys::Family;
use super::model::short;
use super::{Plan, Subject, open, session};
use crate::{
    Body, Decision, Direction, Engine, EpochClock, Key, NewValue, NoHook, Point, TreeId, ValueRef,
};

const WORKERS: usize = 4;
const MAINTAIN_STEPS: usize = 64;

/// An engine with one tree, on which threads race.
struct Arena<E> {
    effort: usize,
    clock: Arc<EpochClock>,
    engine: Arc<E>,
    tree: TreeId,
}

impl<E: Engine<Session: Subject>> Arena<E> {
    fn new(plan: &Plan) -> Self {
        let (clock, engine) = open::<E>();
        let tree = engine.create_tree();
        Self {
            effort: plan.effort as usize,
            clock,
            engine,
            tree,
        }
    }

    fn session(&self) -> E::Session {
        session(&self.engine)
    }

    /// Runs `rounds` rounds, times the effort, of `work` on each worker, whose initial states
    /// `begin` makes; returns the states.
    fn race<W: Send>(
        &self,
        rounds: usize,
        begin: impl Fn(usize) -> W,
        work: impl Fn(&mut W, &mut E::Session) -> Result<(), String> + Sync,
    ) -> Result<Vec<W>, String> {
        let barrier = Barrier::new(WORKERS);
        let (work, barrier) = (&work, &barrier);
        std::thread::scope(|scope| {
            let run = |mut state: W, mut session: E::Session| {
                move || {
                    barrier.wait();
                    for _ in 0..rounds * self.effort {
                        session.pin();
                        let result = work(&mut state, &mut session);
                        session.unpin();
                        result?;
                        self.maintain(&mut session)?;
                    }
                    Ok(state)
                }
            };
            // Sessions begin here and continue elsewhere: they may move between threads.
            let workers: Vec<_> = (0..WORKERS)
                .map(|worker| scope.spawn(run(begin(worker), self.session())))
                .collect();
            let results: Vec<_> = workers
                .into_iter()
                .map(|worker| worker.join().unwrap_or_else(panicked))
                .collect();
            results.into_iter().collect()
        })
    }

    /// Begins an epoch and does the work that earlier epochs allow.
    fn maintain(&self, session: &mut E::Session) -> Result<usize, String> {
        self.clock.set_horizon(self.clock.tick());
        let done = session.maintain(MAINTAIN_STEPS);
        if done > MAINTAIN_STEPS {
            return Err(format!("maintain did {done} steps of {MAINTAIN_STEPS}"));
        }
        Ok(done)
    }

    /// Checks that all answers about a tree at rest agree; returns its keys.
    fn settled(&self) -> Result<Vec<Vec<u8>>, String> {
        let mut session = self.session();
        let mut scan = |direction| {
            let mut keys: Vec<Vec<u8>> = Vec::new();
            session.list(self.tree, Bound::Unbounded, direction, |key, _| {
                keys.push(key.to_vec());
                ControlFlow::Continue(())
            });
            keys
        };
        let (keys, mut backward) = (scan(Direction::Forward), scan(Direction::Backward));
        backward.reverse();
        if keys != backward {
            return Err("scans in both directions differ".into());
        }
        if !keys.is_sorted_by(|one, other| one < other) {
            return Err("a scan is not in order".into());
        }
        if self.engine.len(self.tree) != keys.len() as u64 {
            return Err(format!(
                "len is {}, {} keys",
                self.engine.len(self.tree),
                keys.len()
            ));
        }
        Ok(keys)
    }
}

// By value: what a join returns.
#[allow(clippy::needless_pass_by_value)]
fn panicked<T>(panic: Box<dyn std::any::Any + Send>) -> Result<T, String> {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text
        .or(panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    Err(format!("a thread panicked: {text}"))
}

/// A string that holds a number, in one of several lengths.
fn number_body(number: u64, length: usize) -> Body<'static> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(length.max(8), number as u8);
    Body::string_owned(bytes)
}

/// The number in a string that [`number_body`] made, if it is whole.
fn number_of(value: &ValueRef<'_>) -> Result<u64, String> {
    let crate::BodyRef::String(string) = value.body else {
        return Err("a hash".into());
    };
    if string.len() < 8 {
        return Err(format!("a string of {} bytes", string.len()));
    }
    let bytes = string.to_cow();
    let (head, tail) = bytes.split_at(8);
    let number = u64::from_le_bytes(head.try_into().expect("8 bytes"));
    if tail.iter().any(|byte| *byte != number as u8) {
        return Err(format!("a torn string, its number {number}"));
    }
    Ok(number)
}

/// Stores a number, replacing any value.
fn put(session: &mut impl Point, tree: TreeId, key: &[u8], number: u64) {
    session.update(Key::new(tree, key), &mut NoHook, |_| {
        Decision::Write(NewValue::new(number_body(number, number as usize % 100)))
    });
}

fn remove(session: &mut impl Point, tree: TreeId, key: &[u8]) {
    session.update(Key::new(tree, key), &mut NoHook, |_| Decision::Remove);
}

/// Runs a check on the engine once for each family of keys.
fn for_each_family(
    plan: &Plan,
    check: &'static str,
    run: impl Fn(Family, &str) -> Result<(), String>,
) -> Result<(), super::Failure> {
    for family in Family::ALL {
        // Workers derive their generators from this name.
        let name = format!("{check} {family:?}");
        run(family, &name).map_err(|what| plan.failure(check, format!("{family:?}: {what}")))?;
    }
    Ok(())
}

/// The numbers of a family's keys.
fn numbers_of(family: Family, count: u16) -> HashMap<Vec<u8>, u16> {
    (0..count)
        .map(|number| (family.key(number), number))
        .collect()
}
