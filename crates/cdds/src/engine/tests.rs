//! The conformance suite, and what a pool brings back.

pando_engine::conformance_suite!(crate::Cdds, restore, snapshots);

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::path::PathBuf;
use std::sync::Arc;

use pando_engine::{
    Attributes, Body, CommitHook, Deadline, Decision, Direction, Engine, EpochClock, Key, NewValue,
    NoHook, Ordered, Point, ReadAt, Refused, Snapshots, TreeId, ValueRef, ValueVersion,
};
use pando_pmem::{Medium, PoolError, Protection};
use pando_sync::LogEpoch;

use super::{Cdds, CddsSession, Options, Place, USAGE_STEPS};
use crate::{Error, Listed};

const BYTES: u64 = 32 << 20;

/// A file in memory, which goes with its guard.
struct PoolFile(PathBuf);

impl PoolFile {
    fn new(name: &str) -> Self {
        let name = format!("pando-cdds-{}-{name}", std::process::id());
        Self(PathBuf::from("/dev/shm").join(name))
    }

    fn open(&self) -> Result<(Arc<EpochClock>, Arc<Cdds>), Error> {
        let clock = Arc::new(EpochClock::starting_at(LogEpoch(1)));
        let options = Options {
            place: Place::Mapped(self.0.clone(), Medium::SharedMemory),
            bytes: BYTES,
            ..Options::default()
        };
        let engine = Cdds::open(Arc::clone(&clock), options)?;
        Ok((clock, engine))
    }
}

impl Drop for PoolFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Keys that come in ascending order leave leaves behind that are four fifths full, although those
/// of the engine's own trees are above them.
#[test]
fn ascending_keys_fill_their_leaves() {
    const KEYS: u64 = 5_000;
    let clock = Arc::new(EpochClock::self_driven());
    let engine = Cdds::open(clock, Options::default()).expect("a pool");
    let tree = engine.create_tree();
    let mut session = engine.session().expect("few sessions");
    session.maintain(1);
    let before = engine.tally().taken();
    for number in 0..KEYS {
        let key = number.to_be_bytes();
        session.update(Key::new(tree, &key), &mut NoHook, |_| {
            Decision::Write(NewValue::new(Body::string(b"8 bytes!")))
        });
    }
    while session.maintain(1000) > 0 || engine.tally().waiting() > 0 {}
    let each = (engine.tally().taken() - before) / KEYS;
    // Half-full leaves: 167.
    assert!(each < 150, "{each} bytes of the pool for each key");
}

/// A pool that never has the time to clean up behind its crashes goes on all the same.
#[test]
fn crashes_without_a_rest_between_do_not_use_a_pool_up() {
    const CRASHES: u64 = 2 * pando_pmem::limits::VOID_RANGES_MAX as u64;
    let file = PoolFile::new("crashes");
    for round in 0..CRASHES {
        let (clock, engine) = file.open().expect("a pool");
        if round == 0 {
            engine.create_tree();
        }
        let tree = engine.trees()[0];
        let mut session = engine.session().expect("few sessions");
        assert_eq!(engine.len(tree), round);
        for key in 0..round {
            session.get(Key::new(tree, &key.to_be_bytes()), |value| {
                assert!(value.is_some(), "key {key} in round {round}");
            });
        }
        let mut put = |key: u64| {
            session.update(Key::new(tree, &key.to_be_bytes()), &mut NoHook, |_| {
                Decision::Write(NewValue::new(Body::string(b"value")))
            });
        };
        put(round);
        let committed = clock.tick();
        engine.commit(LogEpoch(committed.0 - 1)).expect("room");
        // What the crash takes.
        put(u64::MAX);
    }
}

/// CE3 counted, of blocks.
fn check_tally(engine: &Cdds) {
    let state = engine.read();
    let (taken, waiting) = state.tree.allocator.count();
    assert_eq!(engine.tally().taken(), taken);
    let step = engine.tally().bytes_max() / USAGE_STEPS;
    let noted = engine.tally().waiting();
    assert!(noted.abs_diff(waiting) <= step, "{noted} for {waiting}");
}

type Model = BTreeMap<TreeId, BTreeMap<Vec<u8>, (ValueVersion, Vec<u8>)>>;

fn contents(engine: &Arc<Cdds>, trees: impl Iterator<Item = TreeId>) -> Model {
    let mut session = engine.session().expect("few sessions");
    trees
        .map(|tree| {
            let mut keys = BTreeMap::new();
            session.scan(tree, Bound::Unbounded, Direction::Forward, |key, value| {
                let pando_engine::BodyRef::String(string) = value.body else {
                    panic!("only strings were written");
                };
                let content = (value.version, string.to_cow().into_owned());
                keys.insert(key.to_vec(), content);
                ControlFlow::Continue(())
            });
            assert_eq!(engine.len(tree), keys.len() as u64, "CE3 counted");
            (tree, keys)
        })
        .collect()
}

/// Writes, drops and makes trees, at random.
fn change(engine: &Arc<Cdds>, model: &mut Model, random: &mut fastrand::Rng) {
    let mut session = engine.session().expect("few sessions");
    for _ in 0..random.usize(1..60) {
        let trees: Vec<_> = model.keys().copied().collect();
        if trees.is_empty() || random.u32(0..100) == 0 {
            model.insert(engine.create_tree(), BTreeMap::new());
            continue;
        }
        let tree = trees[random.usize(0..trees.len())];
        if random.u32(0..200) == 0 {
            engine.drop_tree(tree);
            model.remove(&tree);
            continue;
        }
        let bytes = random.u8(0..80).to_string().into_bytes();
        let content = vec![random.u8(..); random.usize(0..300)];
        let removes = random.u32(0..3) == 0;
        let version = session.update(Key::new(tree, &bytes), &mut NoHook, |_| {
            if removes {
                Decision::Remove
            } else {
                Decision::Write(NewValue::new(Body::string(&content)))
            }
        });
        let keys = model.get_mut(&tree).expect("it was chosen of these");
        match version.filter(|_| !removes) {
            Some(version) => drop(keys.insert(bytes, (version, content))),
            None => drop(keys.remove(&bytes)),
        }
        if random.u32(0..20) == 0 {
            session.maintain(random.usize(1..200));
        }
    }
}

#[test]
fn what_was_committed_comes_back_and_nothing_else() {
    for seed in 0..12 {
        let mut random = fastrand::Rng::with_seed(seed);
        let file = PoolFile::new(&format!("back-{seed}"));
        let (mut committed, mut newest) = (Model::new(), LogEpoch(0));
        for _ in 0..8 {
            let (clock, engine) = file.open().expect("a pool that is sound");
            assert!(clock.current() > newest, "PL2 void-for-ever");
            check_tally(&engine);
            assert_eq!(contents(&engine, committed.keys().copied()), committed);
            let mut model = committed.clone();
            for _ in 0..random.usize(0..6) {
                change(&engine, &mut model, &mut random);
                if random.bool() {
                    clock.tick();
                }
                if random.bool() {
                    let ended = LogEpoch(clock.tick().0 - 1);
                    engine.commit(ended).expect("there is room");
                    committed.clone_from(&model);
                }
            }
            let versions = model.values().flat_map(BTreeMap::values);
            newest = versions.fold(newest, |newest, (version, _)| newest.max(version.epoch()));
            assert_eq!(contents(&engine, model.keys().copied()), model);
            check_tally(&engine);
            // Dropped as a process that ends is: what is open is lost. Or it is closed in peace.
            if random.u32(0..3) == 0 {
                engine.rest().expect("there is room");
                committed = model;
            }
        }
    }
}

/// CE4 trees-known: a reader that waited for the writer would wait for ever.
#[test]
fn reads_go_on_while_a_writer_has_the_lock() {
    let clock = Arc::new(EpochClock::starting_at(LogEpoch(1)));
    let engine = Cdds::open(clock, Options::default()).expect("memory");
    let (tree, dropped) = (engine.create_tree(), engine.create_tree());
    let mut session = engine.session().expect("few sessions");
    for tree in [tree, dropped] {
        session.update(Key::new(tree, b"key"), &mut NoHook, |_| {
            Decision::Write(NewValue::new(Body::string(b"value")))
        });
        assert!(session.get(Key::new(tree, b"key"), |value| value.is_some()));
    }
    engine.drop_tree(dropped);
    assert!(!session.get(Key::new(dropped, b"key"), |value| value.is_some()));
    let writer = engine.write();
    assert!(session.get(Key::new(tree, b"key"), |value| value.is_some()));
    let mut seen = 0;
    session.scan(tree, Bound::Unbounded, Direction::Forward, |_, _| {
        seen += 1;
        ControlFlow::Continue(())
    });
    assert_eq!(seen, 1);
    drop(writer);
}

/// Maintenance of an engine that drives its clock commits, and so ends epochs of the tree.
#[test]
fn a_snapshot_sees_what_was_written_after_a_commit_of_maintenance() {
    let clock = Arc::new(EpochClock::self_driven());
    let engine = Cdds::open(Arc::clone(&clock), Options::default()).expect("memory");
    let (tree, mut session) = (engine.create_tree(), engine.session().expect("few"));
    for key in [b"1", b"2", b"3"] {
        session.update(Key::new(tree, key), &mut NoHook, |_| {
            Decision::Write(NewValue::new(Body::string(b"value")))
        });
        while session.maintain(10) > 0 {}
    }
    let snapshot = engine.freeze(clock.end_all()).expect("the first");
    for key in [b"1", b"2", b"3"] {
        let seen = session.get_at(snapshot, Key::new(tree, key), |value| value.is_some());
        assert!(seen, "CE1 epochs-follow");
    }
}

#[test]
fn what_is_kept_by_name_outlives_restarts_and_can_be_gone_back_to() {
    let file = PoolFile::new("kept");
    let mut random = fastrand::Rng::with_seed(7);
    let (mut model, mut kept) = (Model::new(), Vec::new());
    let (_, engine) = file.open().expect("a pool");
    for name in ["first", "second", "third"] {
        change(&engine, &mut model, &mut random);
        engine.keep(name, name.as_bytes()).expect("there is room");
        kept.push(model.clone());
    }
    let taken = engine.keep("second", b"");
    assert!(matches!(taken, Err(Error::NameTaken { .. })));
    change(&engine, &mut model, &mut random);
    drop(engine);
    let (clock, engine) = file.open().expect("a pool");
    let names = |engine: &Cdds| -> Vec<_> {
        let kept = engine.kept().expect("nothing is damaged").into_iter();
        kept.inspect(|kept| assert_eq!(kept.about, kept.name.as_bytes()))
            .map(|kept| kept.name)
            .collect()
    };
    assert_eq!(names(&engine), ["first", "second", "third"]);
    let holds = |model: &Model| contents(&engine, model.keys().copied()) == *model;
    assert!(holds(&kept[2]), "what was not committed is lost");
    let refused = engine.roll_back("second", false);
    assert!(matches!(refused, Err(Error::NewerSnapshot { .. })));
    let before = clock.current();
    engine.roll_back("second", true).expect("it is there");
    assert!(holds(&kept[1]));
    check_tally(&engine);
    assert!(clock.current() >= before);
    assert_eq!(names(&engine), ["first", "second"]);
    engine.release_kept("second").expect("it is there");
    engine.roll_back("first", false).expect("it is there");
    assert!(holds(&kept[0]));
    assert_eq!(names(&engine), ["first"]);
    let gone = engine.roll_back("second", true);
    assert!(matches!(gone, Err(Error::NoName { .. })));
    drop(engine);
    let (_, engine) = file.open().expect("a pool");
    check_tally(&engine);
    assert_eq!(contents(&engine, kept[0].keys().copied()), kept[0]);
    assert_eq!(names(&engine), ["first"]);
}

/// A store outside of a window of its thread ends the process. Where there are no keys, they are
/// not tried.
#[test]
fn a_pool_that_is_kept_from_stray_writes_takes_all_that_is_meant() {
    for protection in [Protection::Pages, Protection::Auto] {
        let file = PoolFile::new(&format!("protected-{}", protection.name()));
        let options = Options {
            place: Place::Mapped(file.0.clone(), Medium::SharedMemory),
            bytes: BYTES,
            protection,
        };
        for _ in 0..2 {
            let clock = Arc::new(EpochClock::starting_at(LogEpoch(1)));
            let engine = Cdds::open(Arc::clone(&clock), options.clone()).expect("a pool");
            let mut random = fastrand::Rng::with_seed(1);
            let mut model = Model::new();
            let beside = engine.create_tree();
            for round in 0..4 {
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        let mut session = engine.session().expect("few sessions");
                        let content = [round; 40];
                        for key in 0..100_u8 {
                            session.update(Key::new(beside, &[key]), &mut NoHook, |_| {
                                Decision::Write(NewValue::new(Body::string(&content)))
                            });
                        }
                        for key in (0..100_u8).step_by(2) {
                            session.update(Key::new(beside, &[key]), &mut NoHook, |_| {
                                Decision::Remove
                            });
                        }
                        session.maintain(20);
                    });
                    change(&engine, &mut model, &mut random);
                });
                let ended = LogEpoch(clock.tick().0 - 1);
                engine.commit(ended).expect("there is room");
            }
            assert_eq!(contents(&engine, model.keys().copied()), model);
            assert_eq!(engine.len(beside), 50);
        }
    }
}

/// CE6 refused-changes-nothing.
#[test]
fn a_full_pool_refuses_reads_and_takes_removals() {
    let clock = Arc::new(EpochClock::starting_at(LogEpoch(1)));
    let options = Options {
        bytes: 8 << 20,
        ..Options::default()
    };
    let engine = Cdds::open(Arc::clone(&clock), options).expect("memory");
    let (tree, mut session) = (
        engine.create_tree(),
        engine.session().expect("few sessions"),
    );
    let commit = || engine.commit(LogEpoch(clock.tick().0 - 1));
    let key = |number: u32| number.to_be_bytes();
    let value = NewValue::new(Body::string(&[7; 900])).with(Attributes {
        deadline: Some(Deadline(9)),
        ..Attributes::default()
    });
    let put = |session: &mut CddsSession, number: u32| {
        let version = session.update(Key::new(tree, &key(number)), &mut Counting, |_| {
            Decision::Write(value.view(ValueVersion::from_bits(0)).hand_over())
        });
        let refusal = version.is_none().then_some(Refused::Full);
        assert_eq!(session.take_refusal(), refusal);
        version.is_some()
    };
    let mut keys = 0;
    for round in 0..4 {
        let mut refused = 0;
        for number in 0.. {
            if !put(&mut session, number) {
                refused += 1;
                assert_eq!(engine.len(tree), session_len(&mut session, tree));
            }
            if refused == 3 {
                break;
            }
            if number % 100 == 0 {
                commit().expect("counts have room");
            }
        }
        assert!(
            round == 0 || engine.len(tree) * 10 >= keys * 9,
            "room comes back"
        );
        keys = engine.len(tree);
        assert!(keys > 4000, "{keys} keys of 900 bytes in 8 MiB");
        let mut listed = 0;
        engine
            .deadlines(Listed::Keys, None, |_, _| {
                listed += 1;
                ControlFlow::Continue(())
            })
            .expect("it is sound");
        assert_eq!(listed, keys, "CE5 deadlines-listed");
        for number in 0..(keys as u32) {
            let removed = session.update(Key::new(tree, &key(number)), &mut NoHook, |_| {
                Decision::Remove
            });
            assert!(removed.is_some() && session.take_refusal().is_none());
        }
        commit().expect("removals made room");
        // Readers' pins have to pass.
        for _ in 0..3 {
            session.maintain(1);
        }
    }
}

/// Told of every change, and of none that was refused.
struct Counting;

impl CommitHook for Counting {
    fn committed(
        &mut self,
        _: Key<'_>,
        old: Option<ValueRef<'_>>,
        new: Option<ValueRef<'_>>,
        _: ValueVersion,
    ) {
        for value in [old, new].into_iter().flatten() {
            assert_eq!(value.attributes.deadline, Some(Deadline(9)));
        }
    }
}

fn session_len(session: &mut CddsSession, tree: TreeId) -> u64 {
    let mut keys = 0;
    session.scan(tree, Bound::Unbounded, Direction::Forward, |_, _| {
        keys += 1;
        ControlFlow::Continue(())
    });
    keys
}

#[test]
fn a_note_comes_back_with_its_epoch() {
    let file = PoolFile::new("note");
    let (clock, engine) = file.open().expect("a new pool");
    assert_eq!(engine.note("mapping").expect("it is sound"), None);
    engine.set_note("mapping", b"one").expect("there is room");
    engine
        .commit(LogEpoch(clock.tick().0 - 1))
        .expect("there is room");
    engine.set_note("mapping", b"two").expect("there is room");
    drop(engine);
    let (_, engine) = file.open().expect("a sound pool");
    assert_eq!(
        engine.note("mapping").expect("it is sound").as_deref(),
        Some(&b"one"[..])
    );
}

/// Updates are counted, and what each has sent to memory that wears out.
#[test]
fn wear_is_reported_for_each_update() {
    let file = PoolFile::new("wear");
    let options = Options {
        place: Place::Mapped(file.0.clone(), Medium::Rehearsal),
        bytes: BYTES,
        ..Options::default()
    };
    let clock = Arc::new(EpochClock::self_driven());
    let engine = Cdds::open(clock, options).expect("a pool");
    let (tree, mut session) = (
        engine.create_tree(),
        engine.session().expect("few sessions"),
    );
    let put = |_: Option<ValueRef<'_>>| Decision::Write(NewValue::new(Body::string(&[7; 100])));
    for number in 0..100_u64 {
        let name = number.to_be_bytes();
        session.update(Key::new(tree, &name), &mut NoHook, put);
    }
    session.update(Key::new(tree, &[0; 8]), &mut NoHook, |_| Decision::Remove);
    let mut figures = BTreeMap::new();
    engine.gauges(&mut |gauge| {
        figures.insert(gauge.name, gauge.value);
    });
    assert!((figures["updates_total"] - 101.0).abs() < 0.5);
    // Its record of 130 bytes or so, its slot and its fingerprint; now and then a copy of a leaf.
    let (lines, bytes) = (
        figures["pool_lines_per_update"],
        figures["pool_bytes_per_update"],
    );
    assert!((4.0..30.0).contains(&lines), "{lines} lines");
    assert!((150.0..2000.0).contains(&bytes), "{bytes} bytes");
    let all = figures["pool_written_lines_total"];
    assert!((all - lines * 101.0).abs() < 0.5, "{all} lines");
}

#[test]
fn what_is_no_pool_of_this_engine_is_refused() {
    let file = PoolFile::new("refused");
    let (_, engine) = file.open().expect("a new pool");
    assert!(matches!(file.open(), Err(Error::Pool(PoolError::InUse))));
    drop(engine);
    std::fs::write(&file.0, b"something else").expect("a writable file");
    assert!(file.open().is_err());
}

mod decoded;
mod removed;
