//! Walks, at rest, between changes and concurrent with them (E7 walk-complete).

use std::collections::{BTreeMap, BTreeSet};

use super::{Arena, WORKERS, put, remove};
use crate::conformance::keys::Family;
use crate::conformance::model::short;
use crate::conformance::{Failure, Plan, Subject};
use crate::{Engine, Point, TreeId, Walk};

/// Permanent keys: those whose number is divisible by this.
const PERMANENT: u16 = 16;
const KEYS: u16 = 3_000;
const WALKS: usize = 6;
/// Most changes that one walk meets.
const CHANGES_MAX: usize = 4;
const ROUNDS: usize = 40;
const ROUND_STEPS: usize = 12;

/// A walk shows every permanent key, nothing that never existed, and at rest each key once, while
/// its tree grows and shrinks between its steps and during them.
pub fn walks_miss_no_permanent_key<E>(plan: &Plan) -> Result<(), Failure>
where
    E: Engine<Session: Subject + Walk>,
{
    let check = "walks_miss_no_permanent_key";
    let family = Family::Slices;
    let fail = |what: String| plan.failure(check, what);
    between_changes::<E>(plan, family).map_err(fail)?;
    beside_changes::<E>(plan, family).map_err(fail)
}

/// One walk in progress, or several in sequence.
struct Walker {
    cursor: u64,
    seen: BTreeSet<Vec<u8>>,
    twice: usize,
    /// Finished walks.
    complete: usize,
}

impl Walker {
    fn new() -> Self {
        Self {
            cursor: 0,
            seen: BTreeSet::new(),
            twice: 0,
            complete: 0,
        }
    }

    /// One step; checks what was seen when it is the last one.
    fn step(
        &mut self,
        session: &mut impl Walk,
        tree: TreeId,
        family: Family,
    ) -> Result<bool, String> {
        let (seen, twice) = (&mut self.seen, &mut self.twice);
        self.cursor = session.walk(tree, self.cursor, |key, _| {
            *twice += usize::from(!seen.insert(key.to_vec()));
        });
        if self.cursor != 0 {
            return Ok(false);
        }
        for number in (0..KEYS).step_by(usize::from(PERMANENT)) {
            let key = family.key(number);
            if !self.seen.contains(&key) {
                return Err(format!("a walk misses {}", short(&key)));
            }
        }
        self.complete += 1;
        Ok(true)
    }

    fn restart(&mut self) {
        self.seen.clear();
        self.twice = 0;
    }
}

fn fill<E: Engine<Session: Subject>>(arena: &Arena<E>, session: &mut E::Session, family: Family) {
    for number in (0..KEYS).step_by(usize::from(PERMANENT)) {
        put(session, arena.tree, &family.key(number), u64::from(number));
    }
}

/// Alternates with changes that double and halve the tree.
fn between_changes<E>(plan: &Plan, family: Family) -> Result<(), String>
where
    E: Engine<Session: Subject + Walk>,
{
    let mut rng = plan.rng("walks between changes");
    let arena = Arena::<E>::new(plan);
    let mut session = arena.session();
    fill(&arena, &mut session, family);
    let all: BTreeMap<Vec<u8>, u16> = (0..KEYS)
        .map(|number| (family.key(number), number))
        .collect();
    let mut walker = Walker::new();
    let mut put_next = true;
    for _ in 0..WALKS * plan.effort as usize {
        walker.restart();
        // Some walks meet one change, others many.
        let pause = 1 << rng.u32(2..9);
        let mut changes = 0;
        while !walker.step(&mut session, arena.tree, family)? {
            if changes == CHANGES_MAX || rng.usize(..pause) != 0 {
                continue;
            }
            changes += 1;
            for number in (0..KEYS).filter(|number| number % PERMANENT != 0) {
                if put_next {
                    put(&mut session, arena.tree, &family.key(number), 0);
                } else {
                    remove(&mut session, arena.tree, &family.key(number));
                }
            }
            put_next = !put_next;
            arena.clock.set_horizon(arena.clock.tick());
            // Sometimes so few that the tree stops half way.
            let rounds = if rng.bool() {
                usize::MAX
            } else {
                rng.usize(..40)
            };
            for _ in 0..rounds {
                if session.maintain(super::MAINTAIN_STEPS) == 0 {
                    break;
                }
            }
        }
        if let Some(key) = walker.seen.iter().find(|key| !all.contains_key(*key)) {
            return Err(format!("a walk shows {}, which never was", short(key)));
        }
    }
    while session.maintain(super::MAINTAIN_STEPS) > 0 {}
    walker.restart();
    while !walker.step(&mut session, arena.tree, family)? {}
    let count = arena.settled()?.len();
    if walker.twice > 0 || walker.seen.len() != count {
        return Err(format!(
            "at rest a walk shows {} keys of {count}, {} of them twice",
            walker.seen.len(),
            walker.twice
        ));
    }
    Ok(())
}

/// Half of the workers walk, the others add and remove.
fn beside_changes<E>(plan: &Plan, family: Family) -> Result<(), String>
where
    E: Engine<Session: Subject + Walk>,
{
    let arena = Arena::<E>::new(plan);
    fill(&arena, &mut arena.session(), family);
    let states = arena.race(
        ROUNDS,
        |worker| {
            (
                worker,
                Walker::new(),
                plan.rng(&format!("walks beside {worker}")),
            )
        },
        |(worker, walker, rng), session| {
            if *worker * 2 < WORKERS {
                for _ in 0..ROUND_STEPS {
                    if walker.step(session, arena.tree, family)? {
                        walker.restart();
                    }
                }
                return Ok(());
            }
            let (first, insert) = (rng.u16(..KEYS), rng.bool());
            for number in (first..KEYS)
                .take(250)
                .filter(|number| number % PERMANENT != 0)
            {
                if insert {
                    put(session, arena.tree, &family.key(number), 0);
                } else {
                    remove(session, arena.tree, &family.key(number));
                }
            }
            Ok(())
        },
    )?;
    // The last walks are finished.
    let mut session = arena.session();
    for (worker, mut walker, _) in states {
        while worker * 2 < WORKERS && !walker.step(&mut session, arena.tree, family)? {}
    }
    arena.settled().map(drop)
}
