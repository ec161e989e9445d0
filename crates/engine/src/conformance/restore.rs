//! What recovery needs from an engine: values and tombstones restored in any order, trees by
//! number, keys that divide a tree evenly.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use super::keys::Family;
use super::model::{Entry, Tree};
use super::values::{Applied, Change, Prepared};
use super::{Failure, Plan, Subject, open, session};
use crate::{
    Body, Decision, Direction, Engine, Key, LogEpoch, NewValue, NoHook, Ordered, Point, Restore,
    TreeId, ValueVersion,
};

const KEYS: u16 = 600;
const VERSIONS_MAX: u64 = 4;
const EPOCH: u64 = 100;

/// One version of one key; `None` is its removal.
struct Record {
    key: Vec<u8>,
    version: ValueVersion,
    change: Option<Change>,
}

/// The newest version of each key wins, in whatever order versions come; a tombstone keeps older
/// ones away; versions continue above what was restored.
pub fn restores_keep_the_newest<E: Engine<Session: Subject + Restore>>(
    plan: &Plan,
) -> Result<(), Failure> {
    let check = "restores_keep_the_newest";
    let mut rng = plan.rng(check);
    for family in Family::ALL {
        restore_family::<E>(family, &mut rng)
            .map_err(|what| plan.failure(check, format!("{family:?}: {what}")))?;
    }
    Ok(())
}

fn records(family: Family, rng: &mut fastrand::Rng) -> Vec<Record> {
    let mut records = Vec::new();
    for number in 0..KEYS {
        for sequence in 0..rng.u64(1..=VERSIONS_MAX) {
            let change = match rng.u8(..8) {
                0 | 1 => None,
                2 => Some(Change::Fields {
                    count: rng.u16(1..200),
                    length: 9,
                    seed: rng.u8(..),
                }),
                3 => Some(Change::Text {
                    length: rng.usize(0..40_000),
                    seed: rng.u8(..),
                }),
                _ => Some(Change::Text {
                    length: rng.usize(0..30),
                    seed: rng.u8(..),
                }),
            };
            records.push(Record {
                key: family.key(number),
                version: ValueVersion::first_of(LogEpoch(EPOCH + sequence)),
                change,
            });
        }
    }
    rng.shuffle(&mut records);
    records
}

fn restore_family<E: Engine<Session: Subject + Restore>>(
    family: Family,
    rng: &mut fastrand::Rng,
) -> Result<(), String> {
    let (clock, engine) = open::<E>();
    while clock.current() < LogEpoch(EPOCH + VERSIONS_MAX) {
        clock.tick();
    }
    let mut sessions = [session(&engine), session(&engine)];
    let tree = TreeId(rng.u32(0..1_000));
    engine.restore_tree(tree);
    let mut model = Tree::default();
    let mut newest: BTreeMap<Vec<u8>, ValueVersion> = BTreeMap::new();
    for record in records(family, rng) {
        let newer = newest
            .get(&record.key)
            .is_none_or(|newest| *newest < record.version);
        let change = record.change.as_ref().unwrap_or(&Change::Remove);
        let prepared = Prepared::new(change);
        let value = match prepared.decide(None) {
            Decision::Write(value) => Some(value),
            Decision::Keep | Decision::Remove | Decision::Amend(_) => None,
        };
        let session = &mut sessions[rng.usize(..2)];
        let key = Key::new(tree, &record.key);
        let restored = session.restore(key, record.version, value);
        if restored != newer {
            return Err(format!(
                "restored {restored} at {:?}, expected {newer}",
                record.version
            ));
        }
        if newer {
            model.live.remove(&record.key);
            model.removed.remove(&record.key);
            newest.insert(record.key.clone(), record.version);
            match prepared.apply(None) {
                Applied::Write(content, attributes) => {
                    let version = record.version;
                    let entry = Entry {
                        version,
                        attributes,
                        content: Arc::clone(&content),
                    };
                    model.live.insert(record.key, entry);
                }
                Applied::Keep | Applied::Remove => {
                    model.removed.insert(record.key, record.version);
                }
            }
        }
    }
    if engine.len(tree) != model.live.len() as u64 {
        let (found, expected) = (engine.len(tree), model.live.len());
        return Err(format!("{found} keys, {expected} expected"));
    }
    let [session, other] = &mut sessions;
    model.check(session, tree, clock.horizon(), false)?;
    write_on(&mut model, session, tree, clock.current())?;
    clock.tick();
    clock.set_horizon(clock.current());
    while session.maintain(64) + other.maintain(64) > 0 {}
    model.check(session, tree, clock.horizon(), true)
}

/// Updates of some keys draw versions above the restored ones.
fn write_on(
    model: &mut Tree,
    session: &mut impl Subject,
    tree: TreeId,
    epoch: LogEpoch,
) -> Result<(), String> {
    let keys = model.live.keys().chain(model.removed.keys()).step_by(7);
    let keys: Vec<_> = keys.cloned().collect();
    for key in keys {
        let change = Change::Text { length: 5, seed: 9 };
        let prepared = Prepared::new(&change);
        let expected = model.update(&key, &prepared, epoch);
        let found = session.update(Key::new(tree, &key), &mut NoHook, |old| {
            prepared.decide(old)
        });
        if found != expected.version {
            return Err(format!("drawn {found:?}, expected {:?}", expected.version));
        }
    }
    Ok(())
}

/// A restored tree exists under its number, keeps its content when it is restored again, and new
/// trees get higher numbers.
pub fn restored_trees_keep_their_numbers<E: Engine<Session: Subject + Restore>>(
    plan: &Plan,
) -> Result<(), Failure> {
    let fail = |what: &str| Err(plan.failure("restored_trees_keep_their_numbers", what));
    let (_, engine) = open::<E>();
    let mut session = session(&engine);
    let created = engine.create_tree();
    for tree in [TreeId(70_000), TreeId(9), created] {
        engine.restore_tree(tree);
        let version = ValueVersion::first_of(LogEpoch(0));
        let value = NewValue::new(Body::string(b"value"));
        if !session.restore(Key::new(tree, b"key"), version, Some(value)) {
            return fail("a restored tree takes no value");
        }
        engine.restore_tree(tree);
        if engine.len(tree) != 1 {
            return fail("a tree that was restored twice is empty");
        }
    }
    if engine.create_tree() <= TreeId(70_000) {
        return fail("a restored number is given again");
    }
    Ok(())
}

/// Boundaries are in order and divide trees of every shape into parts, none of which holds more
/// than a few times its share.
pub fn boundaries_cut_evenly<E: Engine<Session: Ordered>>(plan: &Plan) -> Result<(), Failure> {
    const TREE_KEYS: u16 = 12_000;
    const PARTS: usize = 8;
    /// Times its share that a part may hold.
    const SKEW_MAX: usize = 3;
    let check = "boundaries_cut_evenly";
    let mut rng = plan.rng(check);
    let (_, engine) = open::<E>();
    let mut session = session(&engine);
    for family in Family::ALL {
        let fail = |what: String| Err(plan.failure(check, format!("{family:?}: {what}")));
        let tree = engine.create_tree();
        let found = session.boundaries(tree, PARTS);
        if found.len() >= PARTS {
            return fail(format!("{} boundaries of nothing", found.len()));
        }
        let mut numbers: Vec<u16> = (0..TREE_KEYS).collect();
        rng.shuffle(&mut numbers);
        for number in numbers {
            session.update(Key::new(tree, &family.key(number)), &mut NoHook, |_| {
                Decision::Write(NewValue::new(Body::string(b"value")))
            });
        }
        if !session.boundaries(tree, 1).is_empty() {
            return fail("one part has a boundary".into());
        }
        let found = session.boundaries(tree, PARTS);
        if found.len() >= PARTS || !found.is_sorted_by(|one, next| one < next) {
            return fail(format!("{} boundaries, or out of order", found.len()));
        }
        let mut counts = vec![0_usize];
        let mut ends = found.iter().peekable();
        session.scan(tree, Bound::Unbounded, Direction::Forward, |key, _| {
            while ends.next_if(|end| end.as_slice() <= key).is_some() {
                counts.push(0);
            }
            *counts.last_mut().expect("there is a part") += 1;
            ControlFlow::Continue(())
        });
        let most = counts.iter().max().copied().unwrap_or(0);
        if most > usize::from(TREE_KEYS) / PARTS * SKEW_MAX {
            return fail(format!("parts of {counts:?} keys"));
        }
    }
    Ok(())
}
