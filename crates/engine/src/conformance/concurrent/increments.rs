//! Counters that several threads increment (E1 atomic-update).

use super::{Arena, WORKERS, for_each_family, number_body, number_of, put, remove, short};
use crate::conformance::{Failure, Plan, Subject};
use crate::{CommitHook, Decision, Engine, Key, NewValue, Point, ValueRef, ValueVersion};

const COUNTERS: u16 = 9;
const ROUNDS: usize = 60;
const ROUND_KEYS: usize = 8;

/// A hook that counts.
#[derive(Default)]
struct Counting(u64);

impl CommitHook for Counting {
    fn committed(
        &mut self,
        _: Key<'_>,
        _: Option<ValueRef<'_>>,
        _: Option<ValueRef<'_>>,
        _: ValueVersion,
    ) {
        self.0 += 1;
    }
}

struct Worker {
    rng: fastrand::Rng,
    number: usize,
    hook: Counting,
    done: [u64; COUNTERS as usize],
    versions: Vec<(u16, ValueVersion)>,
    verdict: Option<String>,
}

/// No increment made through `update` or `update_many` is lost, and each has its own version, while
/// keys around the counters are inserted and removed.
pub fn increments_are_not_lost<E: Engine<Session: Subject>>(plan: &Plan) -> Result<(), Failure> {
    for_each_family(plan, "increments_are_not_lost", |family, name| {
        let arena = Arena::<E>::new(plan);
        // Every third key is a counter; keys between them are inserted and removed.
        let key = |counter: u16| family.key(3 * counter);
        let begin = |worker: usize| Worker {
            rng: plan.rng(&format!("{name} {worker}")),
            number: worker,
            hook: Counting::default(),
            done: [0; COUNTERS as usize],
            versions: Vec::new(),
            verdict: None,
        };
        let workers = arena.race(ROUNDS, begin, |worker, session| {
            let counters: Vec<u16> = (0..ROUND_KEYS)
                .map(|_| worker.rng.u16(..COUNTERS))
                .collect();
            let keys: Vec<_> = counters.iter().map(|counter| key(*counter)).collect();
            if worker.rng.bool() {
                worker.increment_many(&arena, session, &counters, &keys);
            } else {
                for (counter, key) in counters.iter().zip(&keys) {
                    worker.increment(&arena, session, *counter, key);
                }
            }
            let beside = family.key(3 * worker.rng.u16(..COUNTERS) + 1 + worker.number as u16 % 2);
            put(session, arena.tree, &beside, 1);
            remove(session, arena.tree, &beside);
            worker.verdict.take().map_or(Ok(()), Err)
        })?;
        let mut session = arena.session();
        for counter in 0..COUNTERS {
            let expected: u64 = workers
                .iter()
                .map(|worker| worker.done[usize::from(counter)])
                .sum();
            let found = session.get(Key::new(arena.tree, &key(counter)), |value| {
                value.map_or(Ok(0), |value| number_of(&value))
            })?;
            if found != expected {
                return Err(format!(
                    "counter {counter} is {found} after {expected} increments"
                ));
            }
            check_versions(&workers, counter)?;
        }
        let committed: u64 = workers.iter().map(|worker| worker.hook.0).sum();
        let expected = (WORKERS * ROUNDS * arena.effort * ROUND_KEYS) as u64;
        if committed != expected {
            return Err(format!("{committed} hooks for {expected} increments"));
        }
        arena.settled().map(drop)
    })
}

/// Versions increase for each worker, and no two increments have the same.
fn check_versions(workers: &[Worker], counter: u16) -> Result<(), String> {
    let mut all = Vec::new();
    for worker in workers {
        let own = worker
            .versions
            .iter()
            .filter(|(other, _)| *other == counter);
        let own: Vec<_> = own.map(|(_, version)| *version).collect();
        if !own.is_sorted_by(|one, other| one < other) {
            return Err(format!("versions of counter {counter} decrease"));
        }
        all.extend(own);
    }
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    if all.len() == count {
        Ok(())
    } else {
        Err(format!("a version of counter {counter} twice"))
    }
}

impl Worker {
    /// The closure of one increment.
    fn next(old: Option<ValueRef<'_>>) -> Result<NewValue<'static>, String> {
        let old = old.map_or(Ok(0), |old| number_of(&old))?;
        Ok(NewValue::new(number_body(
            old + 1,
            (old as usize * 7) % 200,
        )))
    }

    fn increment<E: Engine<Session: Subject>>(
        &mut self,
        arena: &Arena<E>,
        session: &mut E::Session,
        counter: u16,
        key: &[u8],
    ) {
        let verdict = &mut self.verdict;
        let version = session.update(Key::new(arena.tree, key), &mut self.hook, |old| {
            Self::next(old).map_or_else(
                |what| {
                    *verdict = Some(format!("{}: {what}", short(key)));
                    Decision::Keep
                },
                Decision::Write,
            )
        });
        self.done[usize::from(counter)] += 1;
        match version {
            Some(version) => self.versions.push((counter, version)),
            None => *verdict = Some("an increment has no version".into()),
        }
    }

    fn increment_many<E: Engine<Session: Subject>>(
        &mut self,
        arena: &Arena<E>,
        session: &mut E::Session,
        counters: &[u16],
        keys: &[Vec<u8>],
    ) {
        let keys: Vec<_> = keys.iter().map(|key| Key::new(arena.tree, key)).collect();
        let verdict = &mut self.verdict;
        session.update_many(&keys, &mut self.hook, |_, old| {
            Self::next(old).map_or_else(
                |what| {
                    *verdict = Some(what);
                    Decision::Keep
                },
                Decision::Write,
            )
        });
        for counter in counters {
            self.done[usize::from(*counter)] += 1;
        }
    }
}
