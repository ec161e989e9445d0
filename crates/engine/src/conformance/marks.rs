//! Access marks and sweeps (E6 marks-stay).

use std::collections::BTreeMap;

use super::keys::Family;
use super::{Failure, Plan, open};
use crate::mark::MARK_MAX;
use crate::{Body, Decision, Engine, Hand, Key, NewValue, NoHook, Point};

const CHECK: &str = "marks_stay_and_sweeps_pass_every_key";
const KEYS: u16 = 500;

/// Values that a piece of a sweep may show beyond its steps: those of a bucket.
const EXCESS_MAX: usize = 64;

fn mark_of(round: usize, key: u16) -> u8 {
    ((usize::from(key) * 7 + round * 13) % (usize::from(MARK_MAX) + 1)) as u8
}

/// Marks keep the values they were set to, in reads, updates and sweeps. A sweep of any number of
/// steps shows each permanent key, and ends.
///
/// # Errors
/// The engine's fault.
pub fn marks_stay_and_sweeps_pass_every_key<E: Engine>(plan: &Plan) -> Result<(), Failure> {
    let fail = |what: String| Err(plan.failure(CHECK, what));
    for family in Family::ALL {
        let (_, engine) = open::<E>();
        let mut session = engine.session().expect("a session is free");
        let tree = engine.create_tree();
        let mut expected = BTreeMap::new();
        for number in 0..KEYS {
            let key = family.key(number);
            session.update(Key::new(tree, &key), &mut NoHook, |_| {
                let mut value = NewValue::new(Body::string(&key));
                value.mark = mark_of(0, number);
                Decision::Write(value)
            });
            expected.insert(key, mark_of(0, number));
        }
        for (round, steps) in [1, 7, 64, usize::MAX].into_iter().enumerate() {
            let mut hand = Hand::default();
            let mut swept = BTreeMap::new();
            let mut pieces = 0_u16;
            loop {
                let mut shown = 0_usize;
                let ended = session.sweep(tree, &mut hand, steps, |key, value| {
                    shown += 1;
                    swept.insert(key.to_vec(), value.mark.get());
                });
                pieces += 1;
                if shown > steps.saturating_add(EXCESS_MAX) || pieces > 10 * KEYS {
                    return fail(format!("{shown} of {steps} steps in piece {pieces}"));
                }
                if ended {
                    break;
                }
            }
            if swept != expected {
                return fail(format!("{family:?}: swept by {steps}: wrong keys or marks"));
            }
            // Readers change half of the marks, sweeps the others, writers keep them.
            for (number, (key, mark)) in (0..).zip(expected.iter_mut()) {
                let next = mark_of(round + 1, number);
                if number % 2 == 0 {
                    session.get(Key::new(tree, key), |value| {
                        value.expect("the key is there").mark.set(next);
                    });
                    *mark = next;
                }
                let mut seen = None;
                session.update(Key::new(tree, key), &mut NoHook, |old| {
                    let old = old.expect("the key is there");
                    seen = Some(old.mark.get());
                    if number % 3 == 0 {
                        Decision::Write(old.hand_over())
                    } else {
                        Decision::Keep
                    }
                });
                if seen != Some(*mark) {
                    return fail(format!("{key:?}: an update sees {seen:?}, not {mark}"));
                }
            }
            let mut number = 0;
            session.sweep(tree, &mut Hand::default(), usize::MAX, |key, value| {
                number += 1;
                if number % 5 == 0 {
                    value.mark.set(0);
                    expected.insert(key.to_vec(), 0);
                }
            });
        }
    }
    Ok(())
}
