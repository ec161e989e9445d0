//! Random sequences of all operations on several trees, through two alternating sessions.

use std::ops::Bound;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestCaseError;

use super::keys::{Family, KeySpec, family, key};
use super::model::{Expected, ExpectingHook, Tree, Verdict, short};
use super::values::{Change, Prepared, change, compare};
use super::{Failure, Plan, Subject, open, session};
use crate::limits::KEY_BYTES_MAX;
use crate::{Direction, Engine, EpochClock, Key, LogEpoch, NoHook, Point, Probe, TreeId};

const TREES_MAX: usize = 4;
const MAINTAIN_ROUNDS_MAX: usize = 100_000;

/// The next operation; keys are picked from the case's pool.
#[derive(Clone, Debug)]
enum Operation {
    Update(Index, Change),
    UpdateMany(Vec<(Index, Change)>),
    Get(Index),
    GetMany(Vec<Index>),
    Warm(Vec<Index>),
    /// Warms keys under a pin, then operates on them one after another.
    Batch(Vec<Step>),
    Probe(Index),
    Scan(From, Direction, usize),
    Sample(u64),
    Len,
    Run(Run),
    Tick,
    /// Moves the horizon to this many epochs before the current one.
    Horizon(u64),
    Maintain(usize),
    /// Maintains until there is nothing to do.
    Settle,
    SwitchTree(Index),
    CreateTree,
    DropTree,
    SwitchSession,
    /// Or unpin.
    Pin(bool),
}

/// Stores or removes keys of a family: every `step`th from `first` on.
#[derive(Clone, Debug)]
struct Run {
    family: Family,
    put: bool,
    first: u16,
    count: u16,
    step: u16,
}

/// One operation of a batch that was warmed.
#[derive(Clone, Debug)]
struct Step {
    key: Index,
    /// A read if there is none.
    change: Option<Change>,
    /// What the other session does in between.
    other: Option<(Index, Change)>,
    /// The session is told that another of the keys is next.
    misled: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<Index>;
    let other = proptest::option::of((index(), change()));
    (index(), proptest::option::of(change()), other, any::<u8>()).prop_map(
        |(key, change, other, luck)| Step {
            key,
            change,
            other,
            misled: luck < 32,
        },
    )
}

/// Where a scan begins.
#[derive(Clone, Debug)]
enum From {
    Unbounded,
    Included(Index),
    Excluded(Index),
    /// After a key of the pool: the key and a zero.
    Behind(Index),
    /// Before a key of the pool: the key without its last byte.
    Before(Index),
    /// The longest possible key.
    Last,
}

fn from() -> impl Strategy<Value = From> {
    prop_oneof![
        2 => Just(From::Unbounded),
        4 => any::<Index>().prop_map(From::Included),
        4 => any::<Index>().prop_map(From::Excluded),
        2 => any::<Index>().prop_map(From::Behind),
        2 => any::<Index>().prop_map(From::Before),
        1 => Just(From::Last),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let index = any::<Index>;
    let scanned = prop_oneof![3 => Just(usize::MAX), 2 => 0..20_usize];
    let direction = prop_oneof![Just(Direction::Forward), Just(Direction::Backward)];
    let number = || 0..500_u16;
    prop_oneof![
        40 => (index(), change()).prop_map(|(key, change)| Operation::Update(key, change)),
        5 => vec((index(), change()), 0..12).prop_map(Operation::UpdateMany),
        6 => index().prop_map(Operation::Get),
        4 => vec(index(), 0..20).prop_map(Operation::GetMany),
        1 => vec(index(), 0..20).prop_map(Operation::Warm),
        4 => vec(step(), 0..16).prop_map(Operation::Batch),
        6 => index().prop_map(Operation::Probe),
        10 => (from(), direction, scanned).prop_map(|(from, direction, limit)| {
            Operation::Scan(from, direction, limit)
        }),
        3 => any::<u64>().prop_map(Operation::Sample),
        2 => Just(Operation::Len),
        5 => (family(), any::<bool>(), number(), 1..150_u16, 1..4_u16).prop_map(
            |(family, put, first, count, step)| {
                Operation::Run(Run { family, put, first, count, step })
            }
        ),
        5 => Just(Operation::Tick),
        4 => (0..3_u64).prop_map(Operation::Horizon),
        4 => (0..60_usize).prop_map(Operation::Maintain),
        3 => Just(Operation::Settle),
        2 => index().prop_map(Operation::SwitchTree),
        1 => Just(Operation::CreateTree),
        1 => Just(Operation::DropTree),
        4 => Just(Operation::SwitchSession),
        4 => any::<bool>().prop_map(Operation::Pin),
    ]
}

/// Every operation answers as the model does, whatever came before it.
pub fn operation_sequences<E: Engine<Session: Subject>>(plan: &Plan) -> Result<(), Failure> {
    const CASES: u32 = 40;
    let check = "operation_sequences";
    let strategy = (vec(key(), 1..24), vec(operation(), 1..120));
    plan.runner(check, CASES)
        .run(&strategy, |(pool, operations)| {
            let mut case = Case::<E>::new(&pool);
            for (at, operation) in operations.iter().enumerate() {
                case.run(operation)
                    .map_err(|what| TestCaseError::fail(format!("operation {at}: {what}")))?;
            }
            case.finish()
                .map_err(|what| TestCaseError::fail(format!("at the end: {what}")))
        })
        .map_err(|error| plan.failure(check, error.to_string()))
}

struct Case<E: Engine<Session: Subject>> {
    clock: Arc<EpochClock>,
    engine: Arc<E>,
    sessions: [(E::Session, bool); 2],
    session: usize,
    /// Those that were dropped have no model.
    trees: Vec<(TreeId, Option<Tree>)>,
    tree: usize,
    pool: Vec<Vec<u8>>,
    /// Of one key each.
    updates: usize,
}

impl<E: Engine<Session: Subject>> Case<E> {
    fn new(pool: &[KeySpec]) -> Self {
        let (clock, engine) = open::<E>();
        let sessions = [(session(&engine), false), (session(&engine), false)];
        let trees = vec![(engine.create_tree(), Some(Tree::default()))];
        let pool = pool.iter().map(KeySpec::bytes).collect();
        Self {
            clock,
            engine,
            sessions,
            session: 0,
            trees,
            tree: 0,
            pool,
            updates: 0,
        }
    }

    fn key(&self, index: Index) -> Vec<u8> {
        index.get(&self.pool).clone()
    }

    fn keys(&self, indices: &[Index]) -> Vec<Vec<u8>> {
        indices.iter().map(|index| self.key(*index)).collect()
    }

    fn session(&mut self) -> &mut E::Session {
        &mut self.sessions[self.session].0
    }

    fn run(&mut self, operation: &Operation) -> Result<(), String> {
        let tree = self.trees[self.tree].0;
        match operation {
            Operation::Update(index, change) => {
                let key = self.key(*index);
                self.update(&key, change)
            }
            Operation::UpdateMany(changes) => self.update_many(changes),
            Operation::Get(index) => {
                let key = self.key(*index);
                self.get(&key)
            }
            Operation::GetMany(indices) => self.get_many(&self.keys(indices)),
            Operation::Warm(indices) => {
                let keys = self.keys(indices);
                let keys: Vec<_> = keys.iter().map(|key| Key::new(tree, key)).collect();
                self.session().warm(&keys);
                Ok(())
            }
            Operation::Batch(steps) => self.batch(steps),
            Operation::Probe(index) => {
                let key = self.key(*index);
                self.probe(&key)
            }
            Operation::Scan(from, direction, limit) => self.scan(from, *direction, *limit),
            Operation::Sample(random) => self.sample(*random),
            Operation::Len => self.len(),
            Operation::Run(run) => self.change_run(run),
            Operation::Tick => {
                self.clock.tick();
                Ok(())
            }
            Operation::Horizon(behind) => {
                self.clock
                    .set_horizon(LogEpoch(self.clock.current().0.saturating_sub(*behind)));
                Ok(())
            }
            Operation::Maintain(steps) => self.maintain(*steps).map(drop),
            Operation::Settle => self.settle(),
            Operation::SwitchTree(index) => {
                self.tree = index.index(self.trees.len());
                Ok(())
            }
            Operation::CreateTree => self.create_tree(),
            Operation::DropTree => self.drop_tree(),
            Operation::SwitchSession => {
                self.session = 1 - self.session;
                Ok(())
            }
            Operation::Pin(pin) => {
                let (session, pinned) = &mut self.sessions[self.session];
                match (*pin, *pinned) {
                    (true, false) => session.pin(),
                    (false, true) => session.unpin(),
                    _ => {}
                }
                *pinned = *pin;
                Ok(())
            }
        }
    }

    fn batch(&mut self, steps: &[Step]) -> Result<(), String> {
        let tree = self.trees[self.tree].0;
        let keys: Vec<_> = steps.iter().map(|step| self.key(step.key)).collect();
        self.session().pin();
        let warmed: Vec<_> = keys.iter().map(|key| Key::new(tree, key)).collect();
        self.session().warm(&warmed);
        let done = steps
            .iter()
            .zip(&keys)
            .enumerate()
            .try_for_each(|(at, (step, key))| {
                if let Some((other, change)) = &step.other {
                    self.session = 1 - self.session;
                    let done = self.update(&self.key(*other), change);
                    self.session = 1 - self.session;
                    done?;
                }
                self.session().recall(at + usize::from(step.misled));
                match &step.change {
                    Some(change) => self.update(key, change),
                    None => self.get(key),
                }
            });
        self.session().unpin();
        done.map_err(|what| format!("in a batch: {what}"))
    }

    fn change_run(&mut self, run: &Run) -> Result<(), String> {
        let (length, seed) = (usize::from(run.count), run.count as u8);
        let put = Change::Text { length, seed };
        let change = if run.put { put } else { Change::Remove };
        (run.first..)
            .step_by(usize::from(run.step))
            .take(usize::from(run.count))
            .try_for_each(|number| self.update(&run.family.key(number), &change))
    }

    fn update(&mut self, key: &[u8], change: &Change) -> Result<(), String> {
        let prepared = Prepared::new(change);
        let epoch = self.clock.current();
        let (tree, model) = &mut self.trees[self.tree];
        let session = &mut self.sessions[self.session].0;
        // As good as at random.
        self.updates += 1;
        let in_place = self.updates.is_multiple_of(2);
        let (mut verdict, mut decided) = (Verdict::default(), false);
        if let Some(model) = model {
            let expected = [model.update(key, &prepared, epoch)];
            let mut hook = ExpectingHook::new(&expected);
            let version = if in_place {
                session.change(Key::new(*tree, key), &mut hook, |shown| {
                    decided = true;
                    verdict.note(expected[0].check_shown(shown.value()));
                    prepared.decide_on(shown)
                })
            } else {
                session.update(Key::new(*tree, key), &mut hook, |old| {
                    decided = true;
                    verdict.note(expected[0].check_shown(old));
                    prepared.decide(old)
                })
            };
            verdict.note(hook.finish());
            if version != expected[0].version {
                let expected = expected[0].version;
                verdict.note(Err(format!(
                    "version {version:?} returned, not {expected:?}"
                )));
            }
        } else {
            // The fate of the write is up to the engine; it is not visible.
            session.update(Key::new(*tree, key), &mut NoHook, |old| {
                decided = true;
                verdict.note(compare(old, None));
                prepared.decide(old)
            });
        }
        if !decided {
            verdict.note(Err("the closure has not run".into()));
        }
        verdict
            .into_result()
            .map_err(|what| format!("update of {}: {what}", short(key)))
    }

    fn update_many(&mut self, changes: &[(Index, Change)]) -> Result<(), String> {
        let epoch = self.clock.current();
        let keys: Vec<_> = changes.iter().map(|(index, _)| self.key(*index)).collect();
        let prepared: Vec<_> = changes
            .iter()
            .map(|(_, change)| Prepared::new(change))
            .collect();
        let (tree, Some(model)) = &mut self.trees[self.tree] else {
            return Ok(());
        };
        let expected: Vec<Expected> = keys
            .iter()
            .zip(&prepared)
            .map(|(key, change)| model.update(key, change, epoch))
            .collect();
        let (mut hook, mut verdict) = (ExpectingHook::new(&expected), Verdict::default());
        let keys: Vec<_> = keys.iter().map(|key| Key::new(*tree, key)).collect();
        let mut decided = 0;
        self.sessions[self.session]
            .0
            .update_many(&keys, &mut hook, |index, old| {
                if index != decided && index + 1 != decided {
                    verdict.note(Err(format!("decision {index} after {decided}")));
                }
                decided = index + 1;
                verdict.note(expected[index].check_shown(old));
                prepared[index].decide(old)
            });
        verdict.note(hook.finish());
        if decided != keys.len() {
            verdict.note(Err(format!("{decided} decisions of {}", keys.len())));
        }
        verdict
            .into_result()
            .map_err(|what| format!("update_many: {what}"))
    }

    fn get(&mut self, key: &[u8]) -> Result<(), String> {
        let tree = self.trees[self.tree].0;
        let (sessions, trees) = (&mut self.sessions, &self.trees);
        let entry = trees[self.tree]
            .1
            .as_ref()
            .and_then(|model| model.live.get(key));
        sessions[self.session]
            .0
            .get(Key::new(tree, key), |found| compare(found, entry))
            .map_err(|what| format!("get of {}: {what}", short(key)))
    }

    fn get_many(&mut self, keys: &[Vec<u8>]) -> Result<(), String> {
        let (tree, model) = &self.trees[self.tree];
        let named: Vec<_> = keys.iter().map(|key| Key::new(*tree, key)).collect();
        let (mut next, mut verdict) = (0, Verdict::default());
        self.sessions[self.session]
            .0
            .get_many(&named, |index, found| {
                if index != next {
                    verdict.note(Err(format!("key {index} is shown instead of key {next}")));
                }
                next += 1;
                let entry = model
                    .as_ref()
                    .and_then(|model| model.live.get(&keys[index]));
                verdict.note(compare(found, entry).map_err(|what| format!("key {index}: {what}")));
            });
        if next != keys.len() {
            verdict.note(Err(format!("{next} keys shown of {}", keys.len())));
        }
        verdict
            .into_result()
            .map_err(|what| format!("get_many: {what}"))
    }

    fn probe(&mut self, key: &[u8]) -> Result<(), String> {
        let tree = self.trees[self.tree].0;
        let found = self.session().probe(Key::new(tree, key));
        match &self.trees[self.tree].1 {
            Some(model) => model.check_probe(key, found, self.clock.horizon(), false),
            None if found == Probe::Absent => Ok(()),
            None => Err(format!("probe of a dropped tree says {found:?}")),
        }
    }

    fn scan(&mut self, from: &From, direction: Direction, limit: usize) -> Result<(), String> {
        let key = match from {
            From::Unbounded => Vec::new(),
            From::Included(index) | From::Excluded(index) => self.key(*index),
            From::Behind(index) => [&self.key(*index)[..], &[0]].concat(),
            From::Before(index) => {
                let mut key = self.key(*index);
                key.pop();
                key
            }
            From::Last => vec![0xff; KEY_BYTES_MAX],
        };
        let bound = match from {
            From::Unbounded => Bound::Unbounded,
            From::Excluded(_) => Bound::Excluded(&key[..]),
            _ => Bound::Included(&key[..]),
        };
        let empty = Tree::default();
        let (tree, model) = &self.trees[self.tree];
        let model = model.as_ref().unwrap_or(&empty);
        model.check_scan(
            &mut self.sessions[self.session].0,
            *tree,
            bound,
            direction,
            limit,
        )
    }

    fn sample(&mut self, random: u64) -> Result<(), String> {
        let (tree, model) = &self.trees[self.tree];
        let empty = model.as_ref().is_none_or(|model| model.live.is_empty());
        let session = &mut self.sessions[self.session].0;
        let found = session.sample(*tree, random, |found| {
            found.map(|(key, value)| {
                let entry = model.as_ref().and_then(|model| model.live.get(key));
                compare(Some(value), entry).map_err(|what| format!("{}: {what}", short(key)))
            })
        });
        match found {
            None if empty => Ok(()),
            None => Err("sample found nothing in a tree with keys".into()),
            Some(result) => result.map_err(|what| format!("sample: {what}")),
        }
    }

    fn len(&mut self) -> Result<(), String> {
        for (tree, model) in &self.trees {
            let expected = model.as_ref().map_or(0, |model| model.live.len() as u64);
            let found = self.engine.len(*tree);
            if found != expected {
                return Err(format!("len of {tree:?} is {found}, not {expected}"));
            }
        }
        Ok(())
    }

    fn maintain(&mut self, steps: usize) -> Result<usize, String> {
        let done = self.session().maintain(steps);
        if done > steps {
            return Err(format!("maintain did {done} steps of {steps}"));
        }
        Ok(done)
    }

    /// Maintains until nothing is left; then the tombstones below the horizon must be gone.
    fn settle(&mut self) -> Result<(), String> {
        for (session, pinned) in &mut self.sessions {
            if std::mem::take(pinned) {
                session.unpin();
            }
        }
        let mut rounds = 0;
        while self.maintain(37)? > 0 {
            rounds += 1;
            if rounds > MAINTAIN_ROUNDS_MAX {
                return Err("maintain finds no end".into());
            }
        }
        let horizon = self.clock.horizon();
        let session = &mut self.sessions[self.session].0;
        for (tree, model) in &self.trees {
            let Some(model) = model else { continue };
            for key in model.removed.keys() {
                let found = session.probe(Key::new(*tree, key));
                model.check_probe(key, found, horizon, true)?;
            }
        }
        Ok(())
    }

    fn create_tree(&mut self) -> Result<(), String> {
        if self.trees.len() < TREES_MAX {
            let tree = self.engine.create_tree();
            if self.trees.iter().any(|(other, _)| *other == tree) {
                return Err(format!("{tree:?} names two trees"));
            }
            self.tree = self.trees.len();
            self.trees.push((tree, Some(Tree::default())));
        }
        Ok(())
    }

    fn drop_tree(&mut self) -> Result<(), String> {
        let (tree, model) = &mut self.trees[self.tree];
        if model.is_some() {
            self.engine.drop_tree(*tree);
            *model = None;
        }
        self.get(b"")?;
        self.len()
    }

    fn finish(mut self) -> Result<(), String> {
        self.len()?;
        for purged in [false, true] {
            if purged {
                self.clock.tick();
                self.clock.set_horizon(self.clock.current());
                self.settle()?;
            }
            let horizon = self.clock.horizon();
            let session = &mut self.sessions[self.session].0;
            for (tree, model) in &self.trees {
                match model {
                    Some(model) => model.check(session, *tree, horizon, purged)?,
                    None => Tree::default().check(session, *tree, horizon, purged)?,
                }
            }
        }
        self.len()
    }
}
