//! Histories of keys, checked for linearizability (E1 atomic-update).

use std::ops::{Bound, ControlFlow};

use pando_sync::shim::unmodelled::{AtomicU64, Ordering};

use super::{Arena, WORKERS, for_each_family, number_body, number_of, put, remove};
use crate::conformance::keys::Family;
use crate::conformance::linearizability::{self, Action, Event, RegisterValue};
use crate::conformance::{Failure, Plan, Subject};
use crate::{Decision, Direction, Engine, Key, NewValue, NoHook, Point};

const KEYS: u16 = 6;
const ROUNDS: usize = 60;
const ROUND_OPERATIONS: usize = 6;

struct Worker {
    rng: fastrand::Rng,
    number: u64,
    count: u64,
    /// Of each key.
    events: Vec<Vec<Event>>,
}

/// For every key there is one order of reads, updates, removals, batched reads and scans that
/// explains what all threads saw of it.
pub fn histories_are_linearizable<E: Engine<Session: Subject>>(plan: &Plan) -> Result<(), Failure> {
    for_each_family(plan, "histories_are_linearizable", |family, name| {
        let arena = Arena::<E>::new(plan);
        let time = AtomicU64::new(0);
        let begin = |worker: usize| Worker {
            rng: plan.rng(&format!("{name} {worker}")),
            number: worker as u64,
            count: 0,
            events: vec![Vec::new(); usize::from(KEYS)],
        };
        let workers = arena.race(ROUNDS, begin, |worker, session| {
            for _ in 0..ROUND_OPERATIONS {
                worker.operate(&arena, session, family, &time)?;
            }
            // Neighbours that are inserted and removed, so that nodes and layers are, too.
            let neighbour = family.key(KEYS + 5 * worker.rng.u16(..6) + worker.number as u16);
            put(session, arena.tree, &neighbour, 0);
            remove(session, arena.tree, &neighbour);
            Ok(())
        })?;
        for key in 0..usize::from(KEYS) {
            let threads: Vec<_> = workers
                .iter()
                .map(|worker| worker.events[key].clone())
                .collect();
            linearizability::check(&threads).map_err(|what| format!("key {key}: {what}"))?;
        }
        arena.settled().map(drop)
    })
}

impl Worker {
    fn operate<E: Engine<Session: Subject>>(
        &mut self,
        arena: &Arena<E>,
        session: &mut E::Session,
        family: Family,
        time: &AtomicU64,
    ) -> Result<(), String> {
        // SeqCst: the counter's order is the real-time order that the checker assumes.
        let now = || time.fetch_add(1, Ordering::SeqCst);
        let index = self.rng.u16(..KEYS);
        let bytes = family.key(index);
        let key = Key::new(arena.tree, &bytes);
        let call = now();
        match self.rng.u8(..12) {
            0..4 => {
                let held = session.get(key, |value| {
                    value.map(|value| number_of(&value)).transpose()
                })?;
                self.note(index, call, now(), Action::Read(held));
            }
            4..8 => {
                self.count += 1;
                let number = self.count * WORKERS as u64 + self.number;
                let mut saw = Ok(None);
                session.update(key, &mut NoHook, |old| {
                    saw = old.map(|old| number_of(&old)).transpose();
                    Decision::Write(NewValue::new(number_body(number, number as usize % 90)))
                });
                self.note(index, call, now(), Action::Swap(saw?, Some(number)));
            }
            8..10 => {
                let mut saw = Ok(None);
                session.update(key, &mut NoHook, |old| {
                    saw = old.map(|old| number_of(&old)).transpose();
                    Decision::Remove
                });
                self.note(index, call, now(), Action::Swap(saw?, None));
            }
            10 => {
                let keys: Vec<_> = (0..KEYS).map(|number| family.key(number)).collect();
                let keys: Vec<_> = keys.iter().map(|key| Key::new(arena.tree, key)).collect();
                let mut held = vec![Ok(None); keys.len()];
                session.get_many(&keys, |index, value| {
                    held[index] = value.map(|value| number_of(&value)).transpose();
                });
                self.note_all(call, now(), held)?;
            }
            _ => {
                let mut held = vec![Ok(None); usize::from(KEYS)];
                let direction = if self.rng.bool() {
                    Direction::Forward
                } else {
                    Direction::Backward
                };
                let index = |key: &[u8]| (0..KEYS).position(|number| family.key(number) == key);
                session.list(arena.tree, Bound::Unbounded, direction, |key, value| {
                    if let Some(index) = index(key) {
                        held[index] = number_of(&value).map(Some);
                    }
                    ControlFlow::Continue(())
                });
                // A key that a scan does not show was absent at some time during the scan
                // (E4 scan-complete).
                self.note_all(call, now(), held)?;
            }
        }
        Ok(())
    }

    fn note(&mut self, key: u16, call: u64, reply: u64, action: Action) {
        self.events[usize::from(key)].push(Event {
            call,
            reply,
            action,
        });
    }

    fn note_all(
        &mut self,
        call: u64,
        reply: u64,
        held: Vec<Result<RegisterValue, String>>,
    ) -> Result<(), String> {
        for (key, held) in (0..KEYS).zip(held) {
            self.note(key, call, reply, Action::Read(held?));
        }
        Ok(())
    }
}
