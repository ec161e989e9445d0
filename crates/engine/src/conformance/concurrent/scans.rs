//! Scans concurrent with inserts and removals (E4 scan-complete).

use std::collections::HashMap;
use std::ops::{Bound, ControlFlow};

use super::{Arena, for_each_family, number_of, numbers_of, put, remove, short};
use crate::conformance::keys::Family;
use crate::conformance::model::Verdict;
use crate::conformance::{Failure, Plan, Subject};
use crate::{Direction, Engine, Point, ValueRef};

const KEYS: u16 = 700;
const ROUNDS: usize = 10;
/// Keys of one region: in every other region few keys are permanent, so that nodes and layers
/// empty.
const REGION_KEYS: u16 = 100;
const ROUND_CHANGES: usize = 60;
const ROUND_SCANS: usize = 4;

/// Whether a key is permanent; the others are inserted and removed.
fn is_permanent(number: u16) -> bool {
    let period = if (number / REGION_KEYS).is_multiple_of(2) {
        3
    } else {
        REGION_KEYS - 3
    };
    number.is_multiple_of(period)
}

/// A scan yields keys in strict order, each within its bound, and every permanent key, while the
/// keys between them are inserted and removed.
pub fn scans_miss_no_permanent_key<E: Engine<Session: Subject>>(
    plan: &Plan,
) -> Result<(), Failure> {
    for_each_family(plan, "scans_miss_no_permanent_key", |family, name| {
        let arena = Arena::<E>::new(plan);
        let numbers = numbers_of(family, KEYS);
        let mut session = arena.session();
        for number in (0..KEYS).filter(|number| is_permanent(*number)) {
            put(
                &mut session,
                arena.tree,
                &family.key(number),
                u64::from(number),
            );
        }
        let permanent = (0..KEYS).filter(|number| is_permanent(*number));
        let mut permanent: Vec<_> = permanent.map(|number| family.key(number)).collect();
        permanent.sort_unstable();
        let begin = |worker: usize| (plan.rng(&format!("{name} {worker}")), worker);
        arena.race(ROUNDS, begin, |(rng, worker), session| {
            if *worker % 2 == 0 {
                churn(family, rng, |key, number| match number {
                    Some(number) => put(session, arena.tree, key, u64::from(number)),
                    None => remove(session, arena.tree, key),
                });
                return Ok(());
            }
            for _ in 0..ROUND_SCANS {
                check_around(&arena, session, &numbers, permanent.len(), rng.u64(..))?;
                let from = family.key(rng.u16(..KEYS));
                let from = match rng.u8(..4) {
                    0 => Bound::Included(&from[..]),
                    1 => Bound::Excluded(&from[..]),
                    _ => Bound::Unbounded,
                };
                let direction = if rng.bool() {
                    Direction::Forward
                } else {
                    Direction::Backward
                };
                let limit = if rng.bool() {
                    usize::MAX
                } else {
                    rng.usize(1..200)
                };
                let scanned = Scanned {
                    numbers: &numbers,
                    from,
                    direction,
                    limit,
                };
                scanned
                    .check(session, arena.tree, &permanent)
                    .map_err(|what| {
                        format!("{direction:?} scan from {:?}: {what}", from.map(short))
                    })?;
            }
            Ok(())
        })?;
        arena.settled().map(drop)
    })
}

/// Other questions about the whole tree meanwhile: its size and a sample.
fn check_around<E: Engine<Session: Subject>>(
    arena: &Arena<E>,
    session: &mut E::Session,
    numbers: &HashMap<Vec<u8>, u16>,
    permanent: usize,
    random: u64,
) -> Result<(), String> {
    // The sum over sessions is not a snapshot, but close to the truth, unless the summing thread is
    // descheduled meanwhile.
    let near = |_| arena.engine.len(arena.tree) <= 2 * u64::from(KEYS);
    if !(0..100).any(near) {
        return Err(format!(
            "len stays above twice the {KEYS} keys there may be, {permanent} at least"
        ));
    }
    session.sample(arena.tree, random, |found| {
        let (key, value) = found.ok_or("a sample finds nothing")?;
        check_entry(numbers, key, &value)
    })
}

/// Whether a key was ever inserted, with this value.
fn check_entry(
    numbers: &HashMap<Vec<u8>, u16>,
    key: &[u8],
    value: &ValueRef<'_>,
) -> Result<(), String> {
    let number = numbers
        .get(key)
        .ok_or_else(|| format!("{} was never inserted", short(key)))?;
    let found = number_of(value)?;
    if found == u64::from(*number) {
        return Ok(());
    }
    Err(format!("{} shows the value of key {found}", short(key)))
}

/// Inserts or removes runs of neighbours, and sometimes overwrites permanent keys.
fn churn(family: Family, rng: &mut fastrand::Rng, mut change: impl FnMut(&[u8], Option<u16>)) {
    let (first, put) = (rng.u16(..KEYS), rng.bool());
    for number in (first..KEYS).take(ROUND_CHANGES) {
        if !is_permanent(number) {
            change(&family.key(number), put.then_some(number));
        } else if rng.u8(..8) == 0 {
            change(&family.key(number), Some(number));
        }
    }
}

struct Scanned<'s> {
    numbers: &'s HashMap<Vec<u8>, u16>,
    from: Bound<&'s [u8]>,
    direction: Direction,
    limit: usize,
}

impl Scanned<'_> {
    fn check(
        &self,
        session: &mut impl Subject,
        tree: crate::TreeId,
        permanent: &[Vec<u8>],
    ) -> Result<(), String> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut verdict = Verdict::default();
        session.list(tree, self.from, self.direction, |key, value| {
            verdict.note(check_entry(self.numbers, key, &value));
            keys.push(key.to_vec());
            if keys.len() == self.limit {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        verdict.into_result()?;
        let forward = self.direction == Direction::Forward;
        for two in keys.windows(2) {
            if two[0] == two[1] || (two[0] < two[1]) != forward {
                return Err(format!("{} before {}", short(&two[0]), short(&two[1])));
            }
        }
        if let Some(key) = keys.iter().find(|key| !self.is_within(key)) {
            return Err(format!("{} is beyond the bound", short(key)));
        }
        // An early end hides what follows the last key.
        let last = keys.last().filter(|_| keys.len() == self.limit).cloned();
        let shown = |key: &[u8]| {
            last.as_ref().is_none_or(|last| {
                if forward {
                    key <= &last[..]
                } else {
                    key >= &last[..]
                }
            })
        };
        if !forward {
            keys.reverse();
        }
        let missing = permanent
            .iter()
            .find(|key| self.is_within(key) && shown(key) && keys.binary_search(key).is_err());
        missing.map_or(Ok(()), |key| Err(format!("{} is missing", short(key))))
    }

    fn is_within(&self, key: &[u8]) -> bool {
        match (self.from, self.direction) {
            (Bound::Unbounded, _) => true,
            (Bound::Included(from), Direction::Forward) => key >= from,
            (Bound::Included(from), Direction::Backward) => key <= from,
            (Bound::Excluded(from), Direction::Forward) => key > from,
            (Bound::Excluded(from), Direction::Backward) => key < from,
        }
    }
}
