//! Snapshots: what was there stays readable, whatever is written, removed, purged or dropped later.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, RwLock};

use pando_sync::shim::unmodelled::{AtomicBool, Ordering};

use super::subject::SubjectAt;
use super::{Failure, Plan, open, session};
use crate::{
    Body, BodyRef, Decision, Direction, Engine, EpochClock, HashDraft, HashRef, Key, LogEpoch,
    NewValue, NoHook, Point, ReadAt, Restore, Snapshot, Snapshots, TreeId, ValueRef, ValueVersion,
};

/// Keys of a history: few, so that each has been written, removed and written again.
const KEYS: usize = 60;
const TREES: usize = 2;
const SNAPSHOTS_MAX: usize = 6;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Bytes of a string, or of a row's names and values.
fn bytes_of(value: ValueRef<'_>) -> Vec<u8> {
    match value.body {
        BodyRef::String(string) => string.to_cow().into_owned(),
        BodyRef::Row(_, row) => bytes_of_row(row),
    }
}

fn bytes_of_row(row: HashRef<'_>) -> Vec<u8> {
    let columns = row.iter().map(|(name, value)| (name, value.to_cow()));
    columns
        .flat_map(|(name, value)| [name, &value[..]].concat())
        .collect()
}

/// Keys of one layer and of several, and some beneath others.
fn key_of(number: usize) -> Vec<u8> {
    let text = format!("{:02}", number / 3);
    match number % 3 {
        0 => text.into_bytes(),
        1 => format!("{text}/a longer key").into_bytes(),
        _ => format!("{text}/a longer key with more behind it").into_bytes(),
    }
}

/// One engine, what its trees hold and what they held.
struct History<'p, E: Engine> {
    plan: &'p Plan,
    rng: fastrand::Rng,
    clock: Arc<EpochClock>,
    engine: Arc<E>,
    session: E::Session,
    trees: Vec<(TreeId, Model)>,
    past: Vec<(Snapshot, Vec<(TreeId, Model)>)>,
    /// Trees that are gone, but for the snapshots that show them.
    dropped: Vec<TreeId>,
}

impl<E: Snapshots<Session: SubjectAt + Restore>> History<'_, E> {
    const CHECK: &'static str = "snapshots_stand";

    fn fail<T>(&self, what: String) -> Result<T, Failure> {
        Err(self.plan.failure(Self::CHECK, what))
    }

    fn value(&mut self) -> Vec<u8> {
        // One in twenty is large, and successive versions of it share most of their bytes. Some are
        // as long as others, and may take their place.
        let bytes = match self.rng.usize(..20) {
            0 => self.rng.usize(10_000..60_000),
            1..10 => 8,
            _ => self.rng.usize(..40),
        };
        vec![self.rng.u8(..); bytes]
    }

    fn write(&mut self) {
        let (at, key) = (self.rng.usize(..TREES), key_of(self.rng.usize(..KEYS)));
        let value = self.value();
        let (tree, model) = &mut self.trees[at];
        self.session.pin();
        if self.rng.bool() {
            self.session.keep_out();
        }
        self.session
            .update(Key::new(*tree, &key), &mut NoHook, |_| {
                Decision::Write(NewValue::new(Body::string(&value)))
            });
        self.session.let_in();
        self.session.unpin();
        model.insert(key, value);
    }

    /// Changes fields of a large row, in place if that can be, or makes one.
    fn write_row(&mut self) {
        let (at, key) = (self.rng.usize(..TREES), key_of(self.rng.usize(..KEYS)));
        let fields: Vec<_> = (0..20).map(|_| self.rng.u16(..500).to_be_bytes()).collect();
        let value = [self.rng.u8(..); 24];
        let (tree, model) = &mut self.trees[at];
        let mut bytes = Vec::new();
        self.session
            .change(Key::new(*tree, &key), &mut NoHook, |shown| {
                let taken = shown.take();
                let mut draft = match (taken, shown.value().map(|old| old.body)) {
                    (Some(row), _) => HashDraft::of(row),
                    (None, Some(BodyRef::Row(_, row))) => HashDraft::new(Some(row)),
                    (None, _) => {
                        let mut draft = HashDraft::new(None);
                        for field in 0..500_u16 {
                            draft.set(&field.to_be_bytes(), &value);
                        }
                        draft
                    }
                };
                for field in &fields {
                    draft.set(field, &value);
                }
                bytes = bytes_of_row(draft.as_ref());
                Decision::Write(NewValue::new(draft.finish()))
            });
        model.insert(key, bytes);
    }

    fn remove(&mut self) {
        let (at, key) = (self.rng.usize(..TREES), key_of(self.rng.usize(..KEYS)));
        let (tree, model) = &mut self.trees[at];
        let remove = |_: Option<ValueRef<'_>>| Decision::Remove;
        self.session
            .update(Key::new(*tree, &key), &mut NoHook, remove);
        model.remove(&key);
    }

    /// Writes a key so often that it borrows from the next epoch.
    fn borrow(&mut self) {
        let key = key_of(self.rng.usize(..KEYS));
        let (tree, model) = &mut self.trees[0];
        if model.contains_key(&key) {
            // What recovery puts back takes the place of nothing that a snapshot shows.
            return;
        }
        let key = Key::new(*tree, &key);
        let next = LogEpoch(self.clock.current().0 + 1);
        let last = ValueVersion::from_bits(ValueVersion::first_of(next).to_bits() - 1);
        let value = || NewValue::new(Body::string(b"borrowed"));
        // As if it were the last of very many: nothing else brings the sequence there in time.
        self.session.restore(key, last, Some(value()));
        let written = self
            .session
            .update(key, &mut NoHook, |_| Decision::Write(value()));
        assert!(written.is_some_and(|version| version.epoch() >= next));
        model.insert(key.bytes.to_vec(), b"borrowed".to_vec());
    }

    fn freeze(&mut self) {
        if self.past.len() == SNAPSHOTS_MAX {
            return;
        }
        let epoch = self.clock.end_all();
        let snapshot = self.engine.freeze(epoch).expect("there are few snapshots");
        self.past.push((snapshot, self.trees.clone()));
    }

    fn release(&mut self) {
        if self.past.is_empty() {
            return;
        }
        let (snapshot, _) = self.past.remove(self.rng.usize(..self.past.len()));
        self.engine.release(snapshot);
        let shows = |past: &[(Snapshot, Vec<(TreeId, Model)>)], tree: TreeId| {
            let trees = past.iter().flat_map(|(_, trees)| trees);
            trees.into_iter().any(|(shown, _)| *shown == tree)
        };
        let (kept, gone) = self
            .dropped
            .iter()
            .partition(|tree| shows(&self.past, **tree));
        self.dropped = kept;
        let gone: Vec<TreeId> = gone;
        for tree in gone {
            self.engine.drop_tree(tree);
        }
    }

    /// A tree gives way to an empty one (FLUSHDB).
    fn flush(&mut self) {
        let at = self.rng.usize(..TREES);
        let new = (self.engine.create_tree(), Model::new());
        let (old, _) = std::mem::replace(&mut self.trees[at], new);
        self.dropped.push(old);
    }

    fn maintain(&mut self) -> Result<(), Failure> {
        if self.rng.bool() {
            self.clock.set_horizon(self.clock.tick());
        }
        let steps = self.rng.usize(1..200);
        let done = self.session.maintain(steps);
        if self.rng.bool() && self.engine.is_unsettled() {
            self.engine.settle();
        }
        if done > steps {
            return self.fail(format!("{done} steps of upkeep, {steps} were allowed"));
        }
        Ok(())
    }

    fn check_key(&mut self) -> Result<(), Failure> {
        if self.past.is_empty() {
            return Ok(());
        }
        let (snapshot, trees) = &self.past[self.rng.usize(..self.past.len())];
        let (tree, model) = &trees[self.rng.usize(..TREES)];
        let key = key_of(self.rng.usize(..KEYS));
        let found = self
            .session
            .get_at(*snapshot, Key::new(*tree, &key), |value| {
                value.map(bytes_of)
            });
        if found.as_ref() == model.get(&key) {
            return Ok(());
        }
        let key = String::from_utf8_lossy(&key).into_owned();
        self.fail(format!(
            "{key} at {snapshot:?} is not what it was: {} bytes for {:?}",
            found.map_or(0, |found| found.len()),
            model.get(key.as_bytes()).map(Vec::len)
        ))
    }

    /// Keys of both trees in one batch, some of them twice.
    fn check_many(&mut self) -> Result<(), Failure> {
        if self.past.is_empty() {
            return Ok(());
        }
        let (snapshot, trees) = &self.past[self.rng.usize(..self.past.len())];
        let count = self.rng.usize(..2 * KEYS);
        let picks = (0..count).map(|_| (self.rng.usize(..TREES), key_of(self.rng.usize(..KEYS))));
        let picks: Vec<_> = picks.collect();
        let keys: Vec<_> = picks
            .iter()
            .map(|(at, key)| Key::new(trees[*at].0, key))
            .collect();
        let mut found = Vec::new();
        self.session.get_many_at(*snapshot, &keys, |index, value| {
            found.push((index, value.map(bytes_of)));
        });
        let expected = picks.iter().map(|(at, key)| trees[*at].1.get(key).cloned());
        if found.into_iter().eq(expected.enumerate()) {
            return Ok(());
        }
        self.fail(format!(
            "{count} keys at {snapshot:?} are not what they were"
        ))
    }

    fn check_all(&mut self) -> Result<(), Failure> {
        for past in 0..self.past.len() {
            for at in 0..TREES {
                let direction = if self.rng.bool() {
                    Direction::Forward
                } else {
                    Direction::Backward
                };
                let from = self.rng.bool().then(|| key_of(self.rng.usize(..KEYS)));
                self.check_list(past, at, from.as_deref(), direction)?;
                self.check_sample(past, at)?;
            }
        }
        Ok(())
    }

    fn check_list(
        &mut self,
        past: usize,
        at: usize,
        from: Option<&[u8]>,
        direction: Direction,
    ) -> Result<(), Failure> {
        let (snapshot, trees) = &self.past[past];
        let (tree, model) = &trees[at];
        let bound = from.map_or(Bound::Unbounded, Bound::Included);
        let mut shown = Vec::new();
        self.session
            .list_at(*snapshot, *tree, bound, direction, |key, value| {
                shown.push((key.to_vec(), bytes_of(value)));
                ControlFlow::Continue(())
            });
        let mut expected: Vec<_> = model
            .iter()
            .filter(|(key, _)| match (from, direction) {
                (None, _) => true,
                (Some(from), Direction::Forward) => &key[..] >= from,
                (Some(from), Direction::Backward) => &key[..] <= from,
            })
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        if shown == expected {
            return Ok(());
        }
        let (shown, expected) = (shown.len(), expected.len());
        self.fail(format!(
            "{direction:?} at {snapshot:?} of {tree:?} shows {shown} keys, other than the \
             {expected} that were there"
        ))
    }

    fn check_sample(&mut self, past: usize, at: usize) -> Result<(), Failure> {
        let (snapshot, trees) = &self.past[past];
        let (tree, model) = &trees[at];
        let random = self.rng.u64(..);
        let found = self.session.sample_at(*snapshot, *tree, random, |found| {
            found.map(|(key, value)| (key.to_vec(), bytes_of(value)))
        });
        let is_wrong = |(key, value): &(Vec<u8>, Vec<u8>)| model.get(key) != Some(value);
        if found.as_ref().is_some_and(is_wrong) {
            return self.fail(format!("a sample at {snapshot:?} shows what was not there"));
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), Failure> {
        match self.rng.usize(..100) {
            0..30 => self.write(),
            30..40 => self.write_row(),
            40..60 => self.remove(),
            60..64 => self.freeze(),
            64..67 => self.release(),
            67..75 => return self.maintain(),
            75 => self.borrow(),
            76 => self.flush(),
            77 => return self.check_all(),
            78..80 => return self.check_many(),
            _ => return self.check_key(),
        }
        Ok(())
    }
}

/// Snapshots made and released at random among writes, removals, purges and flushes show what was
/// there when they were made, key by key and listed.
///
/// # Errors
/// What the engine did wrong.
pub fn snapshots_stand<E: Snapshots<Session: SubjectAt + Restore>>(
    plan: &Plan,
) -> Result<(), Failure> {
    snapshots_stand_on(plan, open::<E>)
}

/// The same on engines that `open` makes.
///
/// # Errors
/// What the engine did wrong.
pub fn snapshots_stand_on<E: Snapshots<Session: SubjectAt + Restore>>(
    plan: &Plan,
    open: impl Fn() -> (Arc<EpochClock>, Arc<E>),
) -> Result<(), Failure> {
    for round in 0..4 * u64::from(plan.effort) {
        let (clock, engine) = open();
        let mut rng = plan.rng("snapshots_stand");
        let seed = rng.u64(..) ^ round;
        rng.seed(seed);
        let trees = (0..TREES).map(|_| (engine.create_tree(), Model::new()));
        let mut history = History {
            plan,
            rng,
            trees: trees.collect(),
            session: session(&engine),
            clock,
            engine,
            past: Vec::new(),
            dropped: Vec::new(),
        };
        for _ in 0..1_000 {
            history.step()?;
        }
        history.check_all()?;
    }
    Ok(())
}

/// Where the bytes of a large string lie.
fn places(value: Option<ValueRef<'_>>) -> Vec<*const u8> {
    let mut places = Vec::new();
    if let Some(BodyRef::String(string)) = value.map(|value| value.body) {
        string.for_each_piece(0..string.len(), |piece| places.push(piece.as_ptr()));
    }
    places
}

/// A large value that is replaced or removed after a snapshot is kept where it lies, and is merged
/// so, too.
///
/// # Errors
/// What the engine did wrong.
pub fn large_values_are_handed_over<E: Snapshots<Session: SubjectAt + Restore>>(
    plan: &Plan,
) -> Result<(), Failure> {
    const CHECK: &str = "large_values_are_handed_over";
    let (clock, engine) = open::<E>();
    let (tree, mut session) = (engine.create_tree(), session(&engine));
    let large = vec![b'l'; 200_000];
    let keys = [b"replaced", b"removed!"].map(|key| Key::new(tree, key));
    let before = keys.map(|key| {
        let write = |_: Option<ValueRef<'_>>| Decision::Write(NewValue::new(Body::string(&large)));
        session.update(key, &mut NoHook, write);
        session.get(key, places)
    });
    let freeze = || engine.freeze(clock.end_all()).expect("few snapshots");
    let (older, newer) = (freeze(), freeze());
    session.update(keys[0], &mut NoHook, |_| {
        Decision::Write(NewValue::new(Body::string(b"short")))
    });
    session.update(keys[1], &mut NoHook, |_| Decision::Remove);
    let check = |session: &mut E::Session, when: &str| {
        let now = keys.map(|key| session.get_at(older, key, places));
        if before.iter().any(Vec::is_empty) || now != before {
            return Err(plan.failure(CHECK, format!("copied {when}")));
        }
        Ok(())
    };
    check(&mut session, "when it was replaced")?;
    engine.release(newer);
    while session.maintain(100) > 0 {}
    if engine.is_unsettled() {
        engine.settle();
    }
    check(&mut session, "when it was merged")
}

/// Accounts of the concurrent check, and what each has at first.
const ACCOUNTS: u64 = 200;
const DEPOSIT: u64 = 1_000;
const SECONDS_MAX: u64 = 20;

fn number(value: Option<ValueRef<'_>>) -> u64 {
    let bytes = value.map(bytes_of).unwrap_or_default();
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// Moves some of one account to another, or closes or opens one, under a gate: together they are
/// one change.
fn transfer(session: &mut impl Point, tree: TreeId, rng: &mut fastrand::Rng, lanes: (u64, u64)) {
    let (lane, lanes) = lanes;
    let account =
        |rng: &mut fastrand::Rng| (rng.u64(..ACCOUNTS / lanes) * lanes + lane).to_be_bytes();
    let (from, to) = (account(rng), account(rng));
    if from == to {
        return;
    }
    let mut add = |account: [u8; 8], change: i64| {
        let key = Key::new(tree, &account);
        let balance = session.get(key, number);
        let balance = balance.checked_add_signed(change).expect("it was there");
        let bytes = balance.to_le_bytes();
        session.update(key, &mut NoHook, |_| match balance {
            0 => Decision::Remove,
            _ => Decision::Write(NewValue::new(Body::string(&bytes))),
        });
        balance
    };
    let most = add(from, 0);
    let amount = if rng.u8(..4) == 0 {
        most
    } else {
        rng.u64(..=most)
    };
    add(from, -(amount as i64));
    add(to, amount as i64);
}

/// Beside writers that move what accounts have, each under a gate, the sum that any snapshot shows
/// is exact; snapshots are made, released and settled under all gates.
///
/// # Errors
/// What the engine did wrong.
pub fn sums_are_exact_at_every_snapshot<E: Snapshots<Session: SubjectAt + Restore>>(
    plan: &Plan,
) -> Result<(), Failure> {
    sums_are_exact_on(plan, open::<E>, true)
}

/// The same on an engine that `open` makes; unless `excluded`, snapshots are made beside writers.
///
/// # Errors
/// What the engine did wrong.
pub fn sums_are_exact_on<E: Snapshots<Session: SubjectAt + Restore>>(
    plan: &Plan,
    open: impl Fn() -> (Arc<EpochClock>, Arc<E>),
    excluded: bool,
) -> Result<(), Failure> {
    const CHECK: &str = "sums_are_exact_at_every_snapshot";
    const WRITERS: u64 = 2;
    let (clock, engine) = open();
    let tree = engine.create_tree();
    let gates = RwLock::new(());
    let stop = AtomicBool::new(false);
    let mut reader = session(&engine);
    let deposit = DEPOSIT.to_le_bytes();
    for account in 0..ACCOUNTS {
        reader.update(Key::new(tree, &account.to_be_bytes()), &mut NoHook, |_| {
            Decision::Write(NewValue::new(Body::string(&deposit)))
        });
    }
    let mut rng = plan.rng(CHECK);
    let started = std::time::Instant::now();
    std::thread::scope(|scope| {
        let _stops = StopOnDrop(&stop);
        for lane in 0..WRITERS {
            let (engine, gates, stop, mut rng) = (&engine, &gates, &stop, rng.fork());
            scope.spawn(move || {
                let mut session = session(engine);
                while !stop.load(Ordering::Relaxed) {
                    let _gate = gates.read().expect("no writer panics");
                    transfer(&mut session, tree, &mut rng, (lane, WRITERS));
                }
            });
        }
        let mut past: Vec<Snapshot> = Vec::new();
        for _ in 0..40 * plan.effort {
            if started.elapsed().as_secs() >= SECONDS_MAX {
                break;
            }
            {
                let _gates = excluded.then(|| gates.write().expect("no writer panics"));
                if past.len() == SNAPSHOTS_MAX || (!past.is_empty() && rng.bool()) {
                    engine.release(past.remove(rng.usize(..past.len())));
                } else {
                    past.push(engine.freeze(clock.end_all()).expect("few snapshots"));
                }
                if engine.is_unsettled() {
                    engine.settle();
                }
            }
            clock.set_horizon(clock.current());
            for at in &past {
                let sum = sum_at(&mut reader, *at, tree, rng.bool());
                if sum != ACCOUNTS * DEPOSIT {
                    return Err(plan.failure(CHECK, format!("the sum at {at:?} is {sum}")));
                }
            }
            let _gate = gates.read().expect("no writer panics");
            reader.maintain(rng.usize(1..2_000));
        }
        Ok(())
    })
}

/// Ends the writers, whatever the reader comes to.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn sum_at(reader: &mut impl SubjectAt, at: Snapshot, tree: TreeId, listed: bool) -> u64 {
    let mut sum = 0;
    if listed {
        reader.list_at(
            at,
            tree,
            Bound::Unbounded,
            Direction::Forward,
            |_, value| {
                sum += number(Some(value));
                ControlFlow::Continue(())
            },
        );
    } else {
        let keys: Vec<_> = (0..ACCOUNTS).map(u64::to_be_bytes).collect();
        let keys: Vec<_> = keys.iter().map(|key| Key::new(tree, key)).collect();
        reader.get_many_at(at, &keys, |_, value| sum += number(value));
    }
    sum
}
