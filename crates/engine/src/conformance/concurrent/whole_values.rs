//! Values whose parts must agree, read while they are replaced (E5 whole-values).

use std::num::NonZero;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use super::{Arena, WORKERS};
use crate::conformance::model::Verdict;
use crate::conformance::{Failure, Plan, Subject};
use crate::{
    Attributes, Body, BodyRef, Deadline, Decision, Direction, Engine, HashDraft, HashRef, Key,
    NewValue, NoHook, Point, StringRef, ValueRef, ValueVersion,
};

const ROUNDS: usize = 10;
const ROUND_READS: usize = 12;

/// The form of a key's value; every part of it is made of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A string of so many bytes.
    Text(usize),
    /// A hash of so many fields, and a column of so many bytes.
    Fields(u16, usize),
}

/// Flat, chunked, packed, wide, wide with a chunked column.
const FORMS: [Form; 6] = [
    Form::Text(40),
    Form::Text(2_000),
    Form::Text(50_000),
    Form::Fields(12, 30),
    Form::Fields(250, 30),
    Form::Fields(30, 40_000),
];

fn key(form: usize) -> Vec<u8> {
    format!("whole value {form}").into_bytes()
}

fn field(number: u16) -> Vec<u8> {
    format!("field{number:03}").into_bytes()
}

/// Readers see every value whole and of one version, and none older than what they saw before,
/// while writers change all parts of it in one update.
pub fn values_are_whole<E: Engine<Session: Subject>>(plan: &Plan) -> Result<(), Failure> {
    let check = "values_are_whole";
    run::<E>(plan, check).map_err(|what| plan.failure(check, what))
}

fn run<E: Engine<Session: Subject>>(plan: &Plan, check: &str) -> Result<(), String> {
    let arena = Arena::<E>::new(plan);
    let mut session = arena.session();
    for form in 0..FORMS.len() {
        write(&mut session, arena.tree, form);
    }
    let begin = |worker: usize| {
        (
            plan.rng(&format!("{check} {worker}")),
            worker,
            Arc::new([None; FORMS.len()]),
        )
    };
    arena.race(ROUNDS, begin, |(rng, worker, seen), session| {
        if *worker < WORKERS / 2 {
            for _ in 0..2 {
                write(session, arena.tree, rng.usize(..FORMS.len()));
            }
            return Ok(());
        }
        let seen = Arc::make_mut(seen);
        let mut verdict = Verdict::default();
        for _ in 0..ROUND_READS {
            let form = rng.usize(..FORMS.len());
            let twice = rng.u8(..4) == 0;
            let mut see = |form: usize, value: Option<ValueRef<'_>>| {
                verdict.note(see(form, value, &mut seen[form], twice));
            };
            match rng.u8(..4) {
                0 => {
                    let keys: Vec<_> = (0..FORMS.len()).map(key).collect();
                    let keys: Vec<_> = keys.iter().map(|key| Key::new(arena.tree, key)).collect();
                    session.get_many(&keys, see);
                }
                1 => {
                    let mut form = 0;
                    session.list(
                        arena.tree,
                        Bound::Unbounded,
                        Direction::Forward,
                        |_, value| {
                            see(form, Some(value));
                            form += 1;
                            ControlFlow::Continue(())
                        },
                    );
                }
                _ => session.get(Key::new(arena.tree, &key(form)), |value| see(form, value)),
            }
        }
        verdict.into_result()
    })?;
    arena.settled().map(drop)
}

/// Writes the next number into all parts of the value; a hash changes field by field in one draft,
/// in place if that can be.
fn write(session: &mut impl Point, tree: crate::TreeId, form: usize) {
    session.change(Key::new(tree, &key(form)), &mut NoHook, |shown| {
        let number = shown.value().map_or(0, |old| old.attributes.flags) + 1;
        let body = match FORMS[form] {
            Form::Text(length) => Body::string_owned(vec![number as u8; length]),
            Form::Fields(count, length) => {
                let taken = shown.take();
                let mut draft = match (taken, shown.value().map(|old| old.body)) {
                    (Some(row), _) => HashDraft::of(row),
                    (None, Some(BodyRef::Row(_, row))) => HashDraft::new(Some(row)),
                    (None, None) => HashDraft::new(None),
                    (None, Some(BodyRef::String(_))) => panic!("a hash has become a string"),
                };
                for index in 0..count {
                    draft.set(&field(index), &number.to_le_bytes());
                }
                draft.set(b"large", &vec![number as u8; length]);
                draft.finish()
            }
        };
        let deadline = Some(Deadline(u64::from(number)));
        let attributes = Attributes {
            deadline,
            flags: number,
            encoding: number as u8,
            token: NonZero::new(u64::from(number)),
        };
        Decision::Write(NewValue::new(body).with(attributes))
    });
}

/// Checks a value that was read: whole, and not older than the last one seen.
fn see(
    form: usize,
    value: Option<ValueRef<'_>>,
    last: &mut Option<(ValueVersion, u32)>,
    twice: bool,
) -> Result<(), String> {
    let value = value.ok_or_else(|| format!("{:?} is not there", FORMS[form]))?;
    let seen = (value.version, value.attributes.flags);
    if last.is_some_and(|last| last > seen || (last.0 == seen.0) != (last.1 == seen.1)) {
        return Err(format!("{seen:?} after {last:?}"));
    }
    *last = Some(seen);
    check_whole(form, &value)?;
    if twice {
        // Others continue meanwhile; what a reader sees must not change under it.
        std::thread::yield_now();
        check_whole(form, &value)?;
    }
    Ok(())
}

fn check_whole(form: usize, value: &ValueRef<'_>) -> Result<(), String> {
    let number = value.attributes.flags;
    let torn = |what: &str| format!("{:?} is torn at number {number}: {what}", FORMS[form]);
    let expected = Attributes {
        deadline: Some(Deadline(u64::from(number))),
        flags: number,
        encoding: number as u8,
        token: NonZero::new(u64::from(number)),
    };
    if value.attributes != expected {
        return Err(torn("attributes"));
    }
    match (FORMS[form], value.body) {
        (Form::Text(length), BodyRef::String(string)) => {
            if string.len() == length && is_all(string, number as u8) {
                Ok(())
            } else {
                Err(torn("bytes"))
            }
        }
        (Form::Fields(count, length), BodyRef::Row(_, hash)) => {
            check_fields(hash, count, length, number).map_err(|what| torn(&what))
        }
        _ => Err(torn("type")),
    }
}

fn check_fields(hash: HashRef<'_>, count: u16, length: usize, number: u32) -> Result<(), String> {
    if hash.len() != usize::from(count) + 1 {
        return Err(format!("{} fields", hash.len()));
    }
    for (index, (name, value)) in (0..count).zip(hash.iter()) {
        if name != field(index) || value != &number.to_le_bytes()[..] {
            return Err(format!("field {index}"));
        }
    }
    let large = hash.get(b"large").ok_or("no large column")?;
    if large.len() == length && is_all(large, number as u8) {
        Ok(())
    } else {
        Err("large column".into())
    }
}

fn is_all(string: StringRef<'_>, byte: u8) -> bool {
    let mut all = true;
    string.for_each_piece(0..string.len(), |piece| {
        all &= piece.iter().all(|other| *other == byte);
    });
    all
}
