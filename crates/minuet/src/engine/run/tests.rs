//! Runs against a model, and beside each other; the planted faults are found.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pando_engine::{
    Body, BodyRef, Decision, Direction, Engine, Key, NewValue, NoHook, Ordered, Outcome, Point,
    Probe, Snapshots, Transactional, TreeId, ValueRef,
};

use super::super::tests::{entry, maintain, open, put};
use super::super::{Minuet, MinuetSession};
use crate::fault::{Fault, plant};

fn bytes_of(value: Option<ValueRef<'_>>) -> Option<Vec<u8>> {
    value.map(|value| match value.body {
        BodyRef::String(string) => string.to_cow().into_owned(),
        BodyRef::Row(..) => panic!("strings were written"),
    })
}

fn get(session: &mut MinuetSession, tree: TreeId, key: &[u8]) -> Option<Vec<u8>> {
    session.get(Key::new(tree, key), bytes_of)
}

fn remove(session: &mut MinuetSession, tree: TreeId, key: &[u8]) {
    session.update(Key::new(tree, key), &mut NoHook, |_| Decision::Remove);
}

type Name = (TreeId, Vec<u8>);

fn count(model: &BTreeMap<Name, Vec<u8>>, tree: TreeId) -> u64 {
    model.keys().filter(|(of, _)| *of == tree).count() as u64
}

/// Whether everything in the model is there, and counted.
fn holds(session: &mut MinuetSession, model: &BTreeMap<Name, Vec<u8>>) -> bool {
    let trees: BTreeSet<_> = model.keys().map(|(tree, _)| *tree).collect();
    for tree in trees {
        assert_eq!(session.engine.len(tree), count(model, tree));
    }
    let mut all = model.iter();
    all.all(|((tree, key), value)| get(session, *tree, key).as_ref() == Some(value))
}

/// TX1 run-whole, TX3 own-writes-seen, TX4 untouched-is-done; keys and values of every kind, one
/// session in runs, another one between their steps.
#[test]
fn runs_are_as_the_model_says() {
    const KEYS: u32 = 10;
    let mut random = fastrand::Rng::with_seed(17);
    let (clock, engine) = open(2);
    let (mut session, mut other) = (engine.session().unwrap(), engine.session().unwrap());
    let trees = [engine.create_tree(), engine.create_tree()];
    let mut model = BTreeMap::new();
    let (mut done, mut conflicts) = (0, 0);
    for round in 0..1500 {
        session.begin_run();
        let (mut within, mut touched) = (model.clone(), BTreeSet::new());
        let mut is_broken = false;
        for _ in 0..random.usize(0..14) {
            let tree = trees[random.usize(0..2)];
            let (key, value) = entry(random.u32(0..KEYS), round);
            let name = (tree, key.clone());
            let is_other = random.u8(0..3) == 0;
            let acts = if is_other { &mut other } else { &mut session };
            let state = if is_other { &mut model } else { &mut within };
            if !is_other {
                touched.insert(name.clone());
            }
            match random.u8(0..4) {
                0 => {
                    let found = get(acts, tree, &key);
                    assert!(is_broken || found.as_ref() == state.get(&name));
                }
                1 => {
                    let probe = acts.probe(Key::new(tree, &key));
                    let is_there = matches!(probe, Probe::Present { .. });
                    assert!(is_broken || is_there == state.contains_key(&name));
                }
                2 => {
                    remove(acts, tree, &key);
                    is_broken |= is_other && state.contains_key(&name) && touched.contains(&name);
                    let was = state.remove(&name);
                    if is_other && was.is_some() && !touched.contains(&name) {
                        within.remove(&name);
                    }
                }
                _ => {
                    put(acts, tree, &key, &value);
                    is_broken |= is_other && touched.contains(&name);
                    state.insert(name.clone(), value.clone());
                    if is_other && !touched.contains(&name) {
                        within.insert(name, value);
                    }
                }
            }
        }
        // Of two numbers, a run that is alone tells whether they are of one moment.
        let told = &trees[..round as usize % 3];
        let counted: Vec<_> = told.iter().map(|tree| session.len(*tree)).collect();
        let outcome = session.end_run();
        if is_broken {
            assert_eq!(outcome, Outcome::Conflict, "round {round}");
            conflicts += 1;
        } else {
            assert_eq!(outcome, Outcome::Done, "round {round}");
            let expected = told.iter().map(|tree| count(&within, *tree));
            assert!(expected.eq(counted), "round {round}");
            model = within;
            done += 1;
        }
        assert!(holds(&mut other, &model), "round {round}");
        if round % 64 == 0 {
            maintain(&clock, &mut session);
        }
    }
    assert!(done > 1000 && conflicts > 100, "{done} and {conflicts}");
}

/// A key that came and went is not as it was: whoever watches it must be told
/// (W1 absent-unchanged).
#[test]
fn a_key_that_came_and_went_is_a_conflict() {
    let (_, engine) = open(1);
    let (mut session, mut other) = (engine.session().unwrap(), engine.session().unwrap());
    let tree = engine.create_tree();
    session.begin_run();
    assert_eq!(session.probe(Key::new(tree, b"k")), Probe::Absent);
    put(&mut other, tree, b"k", b"v");
    remove(&mut other, tree, b"k");
    assert_eq!(session.end_run(), Outcome::Conflict);
    // A removal is no longer known: nothing has become of the key.
    session.begin_run();
    assert!(matches!(
        session.probe(Key::new(tree, b"k")),
        Probe::Removed(_)
    ));
    let clock = &engine.clock;
    maintain(clock, &mut other);
    maintain(clock, &mut other);
    assert_eq!(other.probe(Key::new(tree, b"k")), Probe::Absent);
    assert_eq!(session.end_run(), Outcome::Done);
}

/// A removal within a run does not hide how new the key is.
#[test]
fn versions_grow_within_a_run() {
    let (_, engine) = open(1);
    let mut session = engine.session().unwrap();
    let tree = engine.create_tree();
    put(&mut session, tree, b"k", b"v");
    session.begin_run();
    let key = Key::new(tree, b"k");
    let write = |value: &'static [u8]| {
        move |_: Option<ValueRef<'_>>| Decision::Write(NewValue::new(Body::string(value)))
    };
    let versions = [
        session.update(key, &mut NoHook, write(b"a")),
        session.update(key, &mut NoHook, |_| Decision::Remove),
        session.update(key, &mut NoHook, write(b"b")),
    ];
    assert!(versions.is_sorted() && versions[0] < versions[1] && versions[1] < versions[2]);
    assert_eq!(session.end_run(), Outcome::Done);
    assert_eq!(
        session.get(key, |value| value.map(|value| value.version)),
        versions[2]
    );
}

/// Leaves that are full are split, or packed, beside others: nobody is alone but for spare ones.
#[test]
fn runs_of_new_keys_need_nobody_to_wait() {
    const RUNS: u32 = 3_000;
    let (_, engine) = open(2);
    let (mut session, mut other) = (engine.session().unwrap(), engine.session().unwrap());
    let trees = [engine.create_tree(), engine.create_tree()];
    let before = engine.read().turns;
    let key_of = |number: u32| number.wrapping_mul(0x9e37_79b9).to_be_bytes();
    for number in 0..RUNS {
        let key = key_of(number);
        session.begin_run();
        for tree in trees {
            put(&mut session, tree, &key, &[number as u8; 40]);
            put(&mut session, tree, &key[..3], &[number as u8; 90]);
        }
        // What it has seen of these leaves is not so any more, but its keys are.
        put(&mut other, trees[0], &key_of(number + RUNS), b"value");
        assert_eq!(session.end_run(), Outcome::Done);
    }
    let alone = engine.read().turns - before;
    assert!(alone < u64::from(RUNS) / 30, "{alone} times alone");
    for number in 0..RUNS {
        for tree in trees {
            let found = get(&mut other, tree, &key_of(number));
            assert_eq!(found.as_deref(), Some(&[number as u8; 40][..]));
        }
    }
}

/// Keys that lie in many leaves.
fn account(number: usize) -> Vec<u8> {
    let mut key = format!("account {number:03} ").into_bytes();
    key.resize(200, b'.');
    key
}

const ACCOUNTS: usize = 24;
const BALANCE: i64 = 100;

fn balance(session: &mut MinuetSession, (tree, number): (TreeId, usize)) -> i64 {
    let bytes = get(session, tree, &account(number));
    bytes.map_or(0, |bytes| {
        i64::from_le_bytes(bytes[..8].try_into().unwrap())
    })
}

/// What is left of nothing is removed.
fn pay(session: &mut MinuetSession, (tree, number): (TreeId, usize), amount: i64) {
    let now = balance(session, (tree, number)) + amount;
    if now == 0 {
        remove(session, tree, &account(number));
    } else {
        put(session, tree, &account(number), &now.to_le_bytes());
    }
}

/// The sum of what a scan shows in a run, if that counts.
fn scanned(session: &mut MinuetSession, tree: TreeId) -> Option<i64> {
    session.begin_reads();
    let mut sum = 0;
    session.scan(tree, Bound::Unbounded, Direction::Forward, |_, value| {
        let bytes = bytes_of(Some(value)).unwrap();
        sum += i64::from_le_bytes(bytes[..8].try_into().unwrap());
        ControlFlow::Continue(())
    });
    (session.end_run() == Outcome::Done).then_some(sum)
}

/// Threads pay amounts among accounts, others add them up, in a run or by a scan; and of two
/// doctors one stays on call.
struct Bank {
    engine: Arc<Minuet>,
    trees: [TreeId; 2],
    doctors: [(TreeId, usize); 2],
    ends: AtomicBool,
}

fn call(session: &mut MinuetSession, (tree, number): (TreeId, usize), is_on: bool) {
    let on = i64::from(is_on).to_le_bytes();
    put(session, tree, &account(number), &on);
}

impl Bank {
    fn open() -> Self {
        let (_, engine) = open(2);
        let trees = [engine.create_tree(), engine.create_tree()];
        let bank = Self {
            engine,
            trees,
            doctors: trees.map(|tree| (tree, ACCOUNTS)),
            ends: AtomicBool::new(false),
        };
        let mut session = bank.engine.session().unwrap();
        for at in bank.all() {
            pay(&mut session, at, BALANCE);
        }
        for doctor in bank.doctors {
            call(&mut session, doctor, true);
        }
        bank
    }

    fn all(&self) -> impl Iterator<Item = (TreeId, usize)> + use<> {
        let of_a_tree = |tree| (0..ACCOUNTS).map(move |at| (tree, at));
        self.trees.into_iter().flat_map(of_a_tree)
    }

    /// What a run that counts has seen wrong.
    fn act(
        &self,
        session: &mut MinuetSession,
        random: &mut fastrand::Rng,
        kind: usize,
    ) -> Option<String> {
        session.begin_run();
        let mut wrong = None;
        if kind == 0 {
            let on = self.doctors.map(|doctor| balance(session, doctor) == 1);
            match on {
                [true, true] => call(session, self.doctors[random.usize(0..2)], false),
                [one, _] => call(session, self.doctors[usize::from(one)], true),
            }
            wrong = (on == [false; 2]).then(|| "nobody is on call".to_owned());
        } else if kind == 1 {
            let sum: i64 = self.all().map(|at| balance(session, at)).sum();
            let is_wrong = sum != 2 * ACCOUNTS as i64 * BALANCE;
            wrong = is_wrong.then(|| format!("{sum} in all"));
        } else {
            // Within each tree, so that a scan of it shows all.
            let [from, to] = [(); 2].map(|()| random.usize(0..ACCOUNTS));
            let amount = random.i64(1..BALANCE);
            for tree in self.trees.into_iter().filter(|_| from != to) {
                pay(session, (tree, from), -amount);
                pay(session, (tree, to), amount);
            }
        }
        let counts = session.end_run() == Outcome::Done;
        wrong.filter(|_| counts)
    }

    fn work(&self, number: usize, rounds: usize) -> Option<String> {
        let mut session = self.engine.session().unwrap();
        let mut random = fastrand::Rng::with_seed(number as u64);
        for round in 0..rounds {
            let found = self.act(&mut session, &mut random, (number + round) % 4);
            if found.is_some() || self.ends.load(Ordering::Relaxed) {
                return found;
            }
        }
        None
    }

    /// What scans that count show wrong; how many there were.
    fn look(&self) -> (Option<String>, usize) {
        let mut session = self.engine.session().unwrap();
        let mut seen = 0;
        while !self.ends.load(Ordering::Relaxed) {
            let sum = scanned(&mut session, self.trees[0]);
            // With a doctor, who is on call or not.
            let surplus = sum.map(|sum| sum - ACCOUNTS as i64 * BALANCE);
            if let Some(surplus) = surplus.filter(|surplus| !(0..=1).contains(surplus)) {
                return (Some(format!("a scan shows {surplus} too much")), seen);
            }
            seen += usize::from(sum.is_some());
        }
        (None, seen)
    }
}

/// What is wrong in a bank, if anything.
fn check(fault: Option<Fault>, rounds: usize) -> Option<String> {
    let bank = Bank::open();
    let planted = || plant(fault);
    std::thread::scope(|scope| {
        let looker = scope.spawn(|| {
            planted();
            bank.look()
        });
        let workers = [0, 1, 2].map(|number| {
            let (bank, planted) = (&bank, &planted);
            scope.spawn(move || {
                planted();
                bank.work(number, rounds)
            })
        });
        let panicked = |_| Some("a thread has panicked".to_owned());
        let found = workers.map(|worker| worker.join().unwrap_or_else(panicked));
        bank.ends.store(true, Ordering::Relaxed);
        let (shown, scans) = looker.join().unwrap_or_else(|error| (panicked(error), 0));
        assert!(fault.is_some() || scans > 0, "no scan has counted");
        found.into_iter().chain([shown]).flatten().next()
    })
}

/// MR1 runs-validated, MR3 reads-between-runs.
#[test]
fn runs_beside_each_other_are_as_one_after_the_other() {
    assert_eq!(check(None, 3000), None);
}

/// Whether a run of a scan counts only if nothing has come into what was scanned, or gone.
fn scans_are_compared() -> bool {
    let (clock, engine) = open(1);
    let (mut session, mut other) = (engine.session().unwrap(), engine.session().unwrap());
    let tree = engine.create_tree();
    for number in (0..200).step_by(2) {
        put(&mut session, tree, &account(number), b"12345678");
    }
    let scan = |session: &mut MinuetSession, meanwhile: &mut dyn FnMut()| {
        session.begin_run();
        let from = account(50);
        session.scan(
            tree,
            Bound::Included(&from),
            Direction::Forward,
            |key, _| {
                if key < &account(90)[..] {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            },
        );
        meanwhile();
        // What it writes elsewhere takes part.
        put(session, tree, &account(199), b"87654321");
        let outcome = session.end_run();
        // It is not there for the next time.
        remove(session, tree, &account(199));
        outcome
    };
    let far = [account(0), account(190)];
    let mut is_right = scan(&mut session, &mut || ()) == Outcome::Done;
    is_right &= scan(&mut session, &mut || {
        for key in &far {
            put(&mut other, tree, key, b"11111111");
        }
    }) == Outcome::Done;
    for number in [51, 60, 88] {
        is_right &= scan(&mut session, &mut || {
            put(&mut other, tree, &account(number), b"22222222");
        }) == Outcome::Conflict;
        is_right &= scan(&mut session, &mut || {
            remove(&mut other, tree, &account(number));
        }) == Outcome::Conflict;
        is_right &= scan(&mut session, &mut || {
            engine.freeze(clock.end_all()).unwrap();
            put(&mut other, tree, &account(number), b"33333333");
        }) == Outcome::Conflict;
    }
    // It would not show what was written.
    session.begin_run();
    put(&mut session, tree, &account(60), b"44444444");
    session.scan(tree, Bound::Unbounded, Direction::Backward, |_, _| {
        ControlFlow::Break(())
    });
    is_right && session.end_run() == Outcome::Conflict
}

/// Whether a run that was told of numbers of keys counts only if these are of one moment.
fn counts_are_compared() -> bool {
    let (_, engine) = open(1);
    let (mut session, mut other) = (engine.session().unwrap(), engine.session().unwrap());
    let trees = [engine.create_tree(), engine.create_tree()];
    for (tree, number) in (0..100).flat_map(|number| trees.map(|tree| (tree, number))) {
        put(&mut session, tree, &account(number), b"12345678");
    }
    let mut is_right = true;
    let far = account(99);
    for told in [&trees[..1], &trees[..]] {
        for writes in [false, true] {
            for (change, expected) in [(false, Outcome::Done), (true, Outcome::Conflict)] {
                session.begin_run();
                assert!(get(&mut session, trees[1], &account(7)).is_some());
                let len = |tree: &TreeId| Transactional::len(&session, *tree);
                assert!(told.iter().all(|tree| len(tree) == 100));
                if writes {
                    put(&mut session, trees[1], &account(8), b"87654321");
                }
                put(&mut other, trees[0], &far, b"11111111");
                if change {
                    remove(&mut other, trees[0], &far);
                }
                is_right &= session.end_run() == expected;
                put(&mut other, trees[0], &far, b"12345678");
            }
        }
    }
    is_right
}

/// MR5 counts-compared.
#[test]
fn numbers_of_keys_of_runs_are_compared() {
    assert!(counts_are_compared());
}

#[test]
fn canary_numbers_that_are_not_compared_are_found() {
    plant(Some(Fault::RunKeys));
    let is_right = counts_are_compared();
    plant(None);
    assert!(!is_right);
}

/// MR4 scans-compared.
#[test]
fn scans_of_runs_are_compared() {
    assert!(scans_are_compared());
}

#[test]
fn canary_scans_that_are_not_compared_are_found() {
    plant(Some(Fault::RunScan));
    let is_right = scans_are_compared();
    plant(None);
    assert!(!is_right);
}

#[test]
fn canary_faults_of_runs_are_found() {
    for fault in [Fault::RunRead, Fault::RunLatch, Fault::RunCount] {
        let found = (0..50).find_map(|_| check(Some(fault), 4000));
        assert!(found.is_some(), "{fault:?}");
    }
}
