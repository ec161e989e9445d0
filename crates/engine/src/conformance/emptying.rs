//! Memory that is being emptied: values move out of it unnoticed.

use std::sync::Arc;

use pando_sync::shim::unmodelled::{AtomicBool, Ordering};

use super::{Failure, Plan, open};
use crate::{
    Body, BodyRef, Decision, Emptying, Engine, Hand, Key, NewValue, NoHook, Point, Relocate,
    StringRef, TreeId, ValueRef, ValueVersion,
};

const CHECK: &str = "moves_are_unnoticed";
const KEYS: usize = 98_000;
const THREADS: usize = 2;

/// Most pieces of sweeps that the check makes.
const PIECES_MAX: usize = 100_000;

fn key_of(number: usize) -> [u8; 12] {
    let mut key = *b"key:00000000";
    key[4..].copy_from_slice(format!("{number:08}").as_bytes());
    key
}

/// The content of this key's value: two copies of a number with padding that encodes its size.
fn body_of(number: usize, round: u32) -> Vec<u8> {
    let mut body = vec![number as u8; 24 + number % 64];
    body[..8].copy_from_slice(&(number as u64).to_le_bytes());
    body[8..12].copy_from_slice(&round.to_le_bytes());
    body
}

fn mark_of(number: usize) -> u8 {
    (number % 60) as u8
}

/// The number in a value.
fn read(value: &ValueRef<'_>) -> Option<(usize, u32)> {
    let BodyRef::String(StringRef::Flat(bytes)) = value.body else {
        return None;
    };
    let number = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?) as usize;
    let round = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?);
    let mark = value.mark.get() == mark_of(number);
    (mark && bytes == body_of(number, round)).then_some((number, round))
}

fn write(session: &mut impl Point, tree: TreeId, number: usize, round: u32) -> ValueVersion {
    let (key, body) = (key_of(number), body_of(number, round));
    let version = session.update(Key::new(tree, &key), &mut NoHook, |_| {
        let mut value = NewValue::new(Body::string(&body));
        value.mark = mark_of(number);
        Decision::Write(value)
    });
    version.expect("a write commits")
}

/// Most keys are removed. Then the memory of the others is emptied round by round, as far as the
/// engine wants, under readers and writers: each value keeps its bytes, mark and version, and no
/// update is lost.
///
/// # Errors
/// The engine's fault.
pub fn moves_are_unnoticed<E: Emptying>(plan: &Plan) -> Result<(), Failure> {
    let fail = |what: String| Err(plan.failure(CHECK, what));
    let (clock, engine) = open::<E>();
    let mut session = engine.session().expect("a session is free");
    let tree = engine.create_tree();
    for number in 0..KEYS {
        write(&mut session, tree, number, 0);
    }
    let stays = |number: usize| number.is_multiple_of(7);
    for number in (0..KEYS).filter(|number| !stays(*number)) {
        session.update(Key::new(tree, &key_of(number)), &mut NoHook, |_| {
            Decision::Remove
        });
    }
    clock.tick();
    clock.set_horizon(clock.current());
    while session.maintain(1024) > 0 {}
    let done = AtomicBool::new(false);
    let wrong = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (engine, done, plan) = (&engine, &done, &plan);
                scope.spawn(move || use_keys::<E>(engine, tree, thread, plan, done))
            })
            .collect();
        let emptied = empty_all(&mut session, tree);
        done.store(true, Ordering::Relaxed);
        let used = threads
            .into_iter()
            .map(|thread| thread.join().expect("ends"));
        let used: Result<Vec<()>, String> = used.collect();
        emptied.and(used.map(drop)).err()
    });
    wrong.map_or(Ok(()), fail)
}

/// Empties what the engine wants emptied.
fn empty_all(session: &mut impl Relocate, tree: TreeId) -> Result<(), String> {
    let mut pieces = 0;
    while session.begin_emptying(false) && pieces < PIECES_MAX {
        let mut hand = Hand::default();
        loop {
            let mut found = Vec::new();
            let ended = session.sweep_emptying(tree, &mut hand, 64, |key, value| {
                found.push((key.to_vec(), value.version));
            });
            for (key, version) in found {
                session.relocate(Key::new(tree, &key));
                let (now, whole) = session.get(Key::new(tree, &key), |value| {
                    value.map_or((version, false), |value| {
                        (value.version, read(&value).is_some())
                    })
                });
                let number = std::str::from_utf8(&key[4..]).ok();
                let number: usize = number.and_then(|text| text.parse().ok()).unwrap_or(1);
                // Writers own the odd keys.
                if !whole || (number.is_multiple_of(2) && now != version) {
                    return Err(format!("{number}: {version:?} became {now:?}, {whole}"));
                }
            }
            pieces += 1;
            if ended || pieces > PIECES_MAX {
                break;
            }
        }
        session.end_emptying();
        session.maintain(1024);
    }
    Ok(())
}

/// Reads permanent keys, and writes the odd ones, each by one thread.
fn use_keys<E: Engine>(
    engine: &Arc<E>,
    tree: TreeId,
    thread: usize,
    plan: &Plan,
    done: &AtomicBool,
) -> Result<(), String> {
    let mut session = engine.session().expect("a session is free");
    let mut random = plan.rng(&format!("{CHECK}{thread}"));
    let mut rounds = vec![0_u32; KEYS];
    let mut steps = 0;
    while !done.load(Ordering::Relaxed) || steps < 1000 {
        steps += 1;
        let number = random.usize(..KEYS / 7) * 7;
        let mine = !number.is_multiple_of(2) && number / 14 % THREADS == thread;
        if mine && random.u8(..4) == 0 {
            rounds[number] += 1;
            write(&mut session, tree, number, rounds[number]);
        }
        let key = key_of(number);
        let seen = session.get(Key::new(tree, &key), |value| value.as_ref().and_then(read));
        let round = seen
            .filter(|(shown, _)| *shown == number)
            .map(|seen| seen.1);
        if round.is_none() || (mine && round != Some(rounds[number])) {
            return Err(format!("{number} shows {seen:?}, not {}", rounds[number]));
        }
    }
    Ok(())
}
