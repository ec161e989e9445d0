//! Bounds: sessions are limited and reusable, samples reach every key, misuse is rejected alike.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::keys::KeySpec;
use super::{Failure, Plan, Subject, open, session};
use crate::limits::{COLUMN_FLAT_BYTES_MAX, KEY_BYTES_MAX};
use crate::{
    Body, Decision, Engine, FlatString, Key, LogEpoch, NewValue, NoHook, Point, Restore,
    StringBody, ValueVersion,
};

/// Sessions are limited, the limit is reported, and dropping a session frees its place.
pub fn sessions_are_bounded<E: Engine<Session: Subject>>(plan: &Plan) -> Result<(), Failure> {
    const TRIED_MAX: usize = 100_000;
    let check = "sessions_are_bounded";
    let fail = |what: String| Err(plan.failure(check, what));
    let (_, engine) = open::<E>();
    let mut sessions = Vec::new();
    let limit = loop {
        match engine.session() {
            Ok(_) if sessions.len() == TRIED_MAX => return fail("there is no bound".into()),
            Ok(session) => sessions.push(session),
            Err(limit) => break limit,
        }
    };
    if limit.sessions_max != sessions.len() {
        return fail(format!(
            "{} sessions, told {}",
            sessions.len(),
            limit.sessions_max
        ));
    }
    sessions.truncate(sessions.len() / 2);
    while sessions.len() < limit.sessions_max {
        match engine.session() {
            Ok(session) => sessions.push(session),
            Err(limit) => return fail(format!("at {} of {limit}", sessions.len())),
        }
    }
    // All of them work.
    let tree = engine.create_tree();
    for (index, session) in sessions.iter_mut().enumerate() {
        let key = index.to_be_bytes();
        session.update(Key::new(tree, &key), &mut NoHook, |_| {
            Decision::Write(NewValue::new(Body::string(b"value")))
        });
    }
    if engine.len(tree) != sessions.len() as u64 {
        return fail(format!(
            "{} of {} sessions wrote",
            engine.len(tree),
            sessions.len()
        ));
    }
    Ok(())
}

/// A panic in a closure ends the pin taken around it: memory that others replace from then on is
/// reclaimed.
pub fn a_pin_ends_with_its_scope<E: Engine<Session: Subject>>(plan: &Plan) -> Result<(), Failure> {
    let check = "a_pin_ends_with_its_scope";
    let (_, engine) = open::<E>();
    let tree = engine.create_tree();
    let (mut reader, mut writer) = (session(&engine), session(&engine));
    let key = Key::new(tree, b"key");
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut pinned = reader.pinned();
        pinned.get(key, |_| std::panic::panic_any("planted"));
    }));
    if panicked.is_ok() {
        return Err(plan.failure(check, "a closure was not run"));
    }
    for _ in 0..100 {
        writer.update(key, &mut NoHook, |_| {
            Decision::Write(NewValue::new(Body::string(b"value")))
        });
    }
    while writer.maintain(100) > 0 {}
    match engine.reclaimable_bytes() {
        0 => Ok(()),
        bytes => Err(plan.failure(check, format!("{bytes} bytes are held back"))),
    }
}

/// Every key can be sampled, wherever it is in the tree.
pub fn samples_reach_every_key<E: Engine<Session: Subject>>(plan: &Plan) -> Result<(), Failure> {
    const DRAWS: usize = 4_000;
    let check = "samples_reach_every_key";
    let mut rng = plan.rng(check);
    let (_, engine) = open::<E>();
    let (mut session, tree) = (session(&engine), engine.create_tree());
    let specs = [
        KeySpec::Run(0, 0),
        KeySpec::Longest(0),
        KeySpec::Longest(1),
        KeySpec::Run(255, 9),
    ];
    let padded = (3..=9).map(KeySpec::Padded);
    let layered = (1..4).map(|layers| KeySpec::Layered(layers, 7));
    let dense = (0..40).map(KeySpec::Dense);
    let mut keys: BTreeSet<Vec<u8>> = specs
        .into_iter()
        .chain(padded)
        .chain(layered)
        .chain(dense)
        .map(|key| key.bytes())
        .collect();
    for key in &keys {
        session.update(Key::new(tree, key), &mut NoHook, |_| {
            Decision::Write(NewValue::new(Body::string(b"value")))
        });
    }
    // Removed keys must not show up, nor hide their neighbours.
    for key in (0..40)
        .step_by(3)
        .map(|number| KeySpec::Dense(number).bytes())
    {
        session.update(Key::new(tree, &key), &mut NoHook, |_| Decision::Remove);
        keys.remove(&key);
    }
    let mut seen = BTreeSet::new();
    for random in [0, u64::MAX]
        .into_iter()
        .chain((0..DRAWS).map(|_| rng.u64(..)))
    {
        let found = session.sample(tree, random, |found| found.map(|(key, _)| key.to_vec()));
        match found {
            Some(key) if keys.contains(&key) => seen.insert(key),
            found => return Err(plan.failure(check, format!("{random} finds {found:?}"))),
        };
    }
    if seen != keys {
        let what = format!("{DRAWS} draws reach {} of {} keys", seen.len(), keys.len());
        return Err(plan.failure(check, what));
    }
    Ok(())
}

/// A caller's possible mistakes.
#[derive(Clone, Copy, Debug)]
enum Misuse {
    /// A key beyond the bound.
    Key,
    /// Flat strings that [`StringBody`]'s constructors would cut into chunks.
    Borrowed,
    Owned,
}

const LONG: usize = 20_000;
const _: () = assert!(LONG > COLUMN_FLAT_BYTES_MAX);

impl Misuse {
    const ALL: [Self; 3] = [Self::Key, Self::Borrowed, Self::Owned];

    fn message(self) -> String {
        match self {
            Self::Key => format!("key of {} bytes", KEY_BYTES_MAX + 1),
            Self::Borrowed | Self::Owned => format!("D1: {LONG} flat bytes"),
        }
    }

    fn key(self) -> Vec<u8> {
        let is_long = matches!(self, Self::Key);
        vec![b'k'; if is_long { KEY_BYTES_MAX + 1 } else { 3 }]
    }

    fn value(self) -> NewValue<'static> {
        static BYTES: [u8; LONG] = [b'x'; LONG];
        let flat = |bytes| StringBody::Flat(FlatString(bytes)).into();
        let body: Body<'static> = match self {
            Self::Key => Body::string(b"value"),
            Self::Borrowed => flat(Cow::Borrowed(&BYTES[..])),
            Self::Owned => flat(Cow::Owned(BYTES.to_vec())),
        };
        NewValue::new(body)
    }
}

/// Something that a session is told to do with a misused key or value.
type Operation<E> = fn(&mut <E as Engine>::Session, Key<'_>, Misuse);

/// Every engine rejects the same misuse with the same words, wherever it occurs.
pub fn misuse_is_refused<E: Engine<Session: Subject>>(plan: &Plan) -> Result<(), Failure> {
    let writes: [Operation<E>; 2] = [
        |session, key, misuse| {
            session.update(key, &mut NoHook, |_| Decision::Write(misuse.value()));
        },
        |session, key, misuse| {
            let keys = [Key::new(key.tree, b"good"), key];
            session.update_many(&keys, &mut NoHook, |_, _| Decision::Write(misuse.value()));
        },
    ];
    let reads: [Operation<E>; 3] = [
        |session, key, _| session.get(key, |_| ()),
        |session, key, _| session.get_many(&[Key::new(key.tree, b"good"), key], |_, _| ()),
        |session, key, _| {
            session.probe(key);
        },
    ];
    for misuse in Misuse::ALL {
        let has_key = matches!(misuse, Misuse::Key);
        let reads = reads.iter().filter(|_| has_key);
        refuses::<E>(plan, misuse, writes.iter().chain(reads))?;
    }
    Ok(())
}

/// [`misuse_is_refused`], of what is restored.
pub fn misuse_of_restores_is_refused<E: Engine<Session: Subject + Restore>>(
    plan: &Plan,
) -> Result<(), Failure> {
    let restore: Operation<E> = |session, key, misuse| {
        let version = ValueVersion::first_of(LogEpoch(0));
        session.restore(key, version, Some(misuse.value()));
    };
    Misuse::ALL
        .into_iter()
        .try_for_each(|misuse| refuses::<E>(plan, misuse, [&restore]))
}

fn refuses<'o, E: Engine<Session: Subject> + 'o>(
    plan: &Plan,
    misuse: Misuse,
    operations: impl IntoIterator<Item = &'o Operation<E>>,
) -> Result<(), Failure> {
    for (index, run) in operations.into_iter().enumerate() {
        let (_, engine) = open::<E>();
        let (mut session, tree) = (session(&engine), engine.create_tree());
        let key = misuse.key();
        let run = || run(&mut session, Key::new(tree, &key), misuse);
        let said = catch_unwind(AssertUnwindSafe(run));
        let said = said.err().map(|said| match said.downcast::<String>() {
            Ok(said) => *said,
            Err(_) => "something else".into(),
        });
        if said != Some(misuse.message()) {
            let what = format!("{misuse:?}, operation {index}: {said:?}");
            return Err(plan.failure("misuse_is_refused", what));
        }
    }
    Ok(())
}
