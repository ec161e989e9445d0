//! Branches and lasting snapshots on disk: they are there again as they were, whatever the power
//! takes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pando_durability::disk::Fault as DiskFault;
use pando_engine::{Ordered, OrderedAt};

use super::crashes::{calls, crash_at, effort};
use super::*;
use crate::acknowledge::Durability;
use crate::commands::testing::words;
use crate::durable::testing::{self, Fault};
use crate::session_state::SessionState;
use crate::store::StoreSession;
use crate::turn::small::{self, Bounds};

fn setup() -> Setup {
    Setup {
        engine: EngineKind::Minuet,
        databases: 3,
        is_branched: true,
        ..Setup::default()
    }
}

/// Adds a number of a name's own for each of its databases.
fn index_of(kind: &str, name: &[u8], index: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    (kind, name).hash(&mut hasher);
    (1 << 16) + ((hasher.finish() as usize >> 24) << 10) + index
}

/// What branches and lasting snapshots show, and their names.
pub(super) fn add_others(database: &Database, state: &mut SessionState, picture: &mut Picture) {
    let StoreSession::Minuet(session) = &mut state.store else {
        return;
    };
    let databases = database.databases();
    let mut all = database.branches.all();
    all.retain(|branch| !branch.is_hidden());
    for branch in all {
        let is_mainline = database.branches.mainline() == branch.id;
        let key = (index_of("branch", &branch.name, 0), b"the branch".to_vec());
        let name = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(7, |sum, byte| sum * 31 + u64::from(*byte))
        };
        let about = name(&branch.origin) * 2 + u64::from(is_mainline);
        picture.insert(key, about);
        let base = database.base_of(branch.id);
        for index in 0..if base == 0 { 0 } else { databases } {
            let (place, tree) = (
                index_of("branch", &branch.name, index),
                database.tree(base + index),
            );
            let mut count = 0;
            session.scan_all(tree, Bound::Unbounded, Direction::Forward, |key, value| {
                let Some(value) = value else {
                    return ControlFlow::Continue(());
                };
                count += 1;
                picture.insert((place, key.to_vec()), digest(value));
                ControlFlow::Continue(())
            });
            assert_eq!(
                database.store.len(tree),
                count,
                "the count of a branch's keys"
            );
        }
    }
    for snapshot in database.snapshots.list().iter().filter(|it| it.lasts) {
        for (index, frozen) in snapshot.databases.iter().enumerate().take(databases) {
            let place = index_of("snapshot", &snapshot.name, index);
            picture.insert((place, b"the snapshot".to_vec()), frozen.keys);
            let at = snapshot.moment.snapshot;
            session.scan_at(
                at,
                frozen.tree,
                Bound::Unbounded,
                Direction::Forward,
                |key, value| {
                    if let Some(value) = value {
                        picture.insert((place, key.to_vec()), digest(value));
                    }
                    ControlFlow::Continue(())
                },
            );
        }
    }
}

/// Something that is done with branches. What makes one ends the epoch before.
pub(super) fn act(harness: &mut Harness) {
    let name = |rng: &mut fastrand::Rng| match rng.u8(..6) {
        0 => "main".to_owned(),
        number => format!("b{number}"),
    };
    let rng = &mut harness.rng;
    let (one, other, snapshot) = (name(rng), name(rng), rng.u8(..4));
    let line = match rng.u8(..24) {
        0..=3 => format!("BRANCH CREATE {one} FROM {other}"),
        4 => format!("BRANCH CREATE {one} FROM p{snapshot}"),
        5 => format!("BRANCH CREATE {one}"),
        6..=10 => format!("BRANCH USE {one}"),
        11 => "BRANCH USE MAIN".to_owned(),
        12 => format!("BRANCH DROP {one}"),
        13 => format!("BRANCH RENAME {one} {other}"),
        14 => format!("BRANCH MAIN {one}"),
        15 => format!("BRANCH MERGE {one} INTO {other} ON CONFLICT THEIRS"),
        16 => format!("BRANCH RESET {one} TO p{snapshot}"),
        17..=18 => format!("SNAPSHOT CREATE p{snapshot}"),
        19..=20 => format!("SNAPSHOT CREATE p{snapshot} PERSIST"),
        21 => format!("SNAPSHOT CREATE p{snapshot} TTL 1 PERSIST"),
        22 => "FLUSHDB".to_owned(),
        _ => format!("SNAPSHOT DROP p{snapshot}"),
    };
    let database = harness.database();
    let before = database.epochs.current();
    // A large merge or reset ends epochs, too.
    let ends = ["CREATE", "MERGE", "RESET"];
    let ends = ends.iter().any(|word| line.contains(word));
    let seen = ends.then(|| picture(&database));
    // Every merge and reset but the smallest is large.
    small::set(Some(Bounds {
        keys: 1,
        slice: 4,
        near: 2,
    }));
    harness.line(&line);
    small::set(None);
    // As maintenance does.
    harness.shells[0].turn().drop_unfinished();
    if let Some(seen) = seen.filter(|_| database.epochs.current() > before) {
        let epoch = database.epochs.current().previous();
        harness.history.push((epoch, seen));
        harness.acknowledged = harness.acknowledged.max(database.durable());
    }
}

#[test]
fn every_call_of_a_small_workload_with_branches() {
    for seed in 700..700 + effort() {
        for call in 0..=calls(&setup(), seed, 30) {
            let crash = call as u64 % 3;
            crash_at(&setup(), seed, 30, call, crash).unwrap_or_else(|what| panic!("{what}"));
        }
    }
}

#[test]
fn random_calls_of_large_workloads_with_branches() {
    let mut rng = fastrand::Rng::with_seed(11);
    for seed in 720..722 + 40 * (effort() - 1) {
        let setup = Setup {
            logs: rng.usize(1..4),
            directories: rng.usize(0..3),
            parts: super::crashes::PARTS[rng.usize(..4)],
            ..setup()
        };
        let calls = calls(&setup, seed, 200);
        for _ in 0..4 {
            let (call, crash) = (rng.usize(..=calls), rng.u64(..));
            crash_at(&setup, seed, 200, call, crash).unwrap_or_else(|what| panic!("{what}"));
        }
    }
}

/// What one process has left is what the next one goes on with.
#[test]
fn a_killed_process_goes_on_with_its_branches() {
    for seed in 740..741 + 20 * (effort() - 1) {
        let mut setup = setup();
        let disk = SimulatedDisk::new();
        let mut harness = run(&setup, &disk, seed, 80).expect("the power is on");
        let mut disk = disk.restart();
        for round in 0..4 {
            check_recovered(&setup, &disk.copy(), Some(&harness)).unwrap_or_else(|what| {
                panic!("seed {seed}, round {round}: {what}");
            });
            setup.recovery_threads = 1 + round % 3;
            harness = run(&setup, &disk, seed * 100 + round as u64, 60).expect("the power is on");
            disk = disk.restart();
        }
    }
}

/// Whether some crash of some workload shows the bug, or an assertion does before.
fn is_noticed(fault: Fault) -> bool {
    let mut rng = fastrand::Rng::with_seed(5);
    (800..816).any(|seed| {
        let disk = SimulatedDisk::new();
        disk.set_writes_through(false);
        disk.fail_at(40 + rng.usize(..200), DiskFault::PowerLoss);
        let crash = rng.u64(..);
        let shows = || {
            let harness = run(&setup(), &disk, seed, 100);
            let found = disk.crash(crash);
            check_recovered(&setup(), &found, harness.as_deref()).is_err()
        };
        let shows = AssertUnwindSafe(|| testing::with(fault, shows));
        catch_unwind(shows).unwrap_or(true)
    })
}

#[test]
fn a_branch_made_at_the_wrong_point_is_noticed() {
    assert!(is_noticed(Fault::PointsIgnored));
}

/// Two branches but the first, which have parted by more keys than are merged in one step.
fn two_parted(harness: &mut Harness) -> Shell {
    let mut main = harness.shells[0].connect();
    for key in 0..8 {
        main.line(&format!("SET k{key} base"));
    }
    main.line("HSET h f 1 g 1");
    harness.tick();
    for line in [
        "BRANCH CREATE trial",
        "BRANCH CREATE other",
        "SNAPSHOT CREATE s PERSIST",
    ] {
        let seen = picture(&main.database);
        main.line(line);
        let epoch = main.database.epochs.current().previous();
        harness.history.push((epoch, seen));
    }
    let mut trial = main.connect();
    for line in [
        "BRANCH USE trial",
        "DEL k0",
        "SET k1 trial PX 60000",
        "HSET h f trial",
        "SET new trial",
    ] {
        trial.line(line);
    }
    for key in 2..8 {
        trial.line(&format!("SET k{key} trial"));
    }
    harness.tick();
    main
}

/// What is written beside a large merge.
fn write_amid(writer: &mut Shell, rng: &mut fastrand::Rng, slice: usize) {
    let number = rng.u8(..8);
    let line = match rng.u8(..6) {
        0 => format!("SET k{number} ours{slice} PX 90000"),
        1 => format!("DEL k{number}"),
        2 => format!("HSET h g ours{slice} f {slice}"),
        3 => format!("SET ours{number} {slice}"),
        _ => return,
    };
    writer.line(&line);
}

/// A merge in slices, into the first branch or another, with writes, ends of epochs and a
/// checkpoint in between. The power fails at a call.
fn merge_until(into: &str, seed: u64, call: usize) -> (SimulatedDisk, Option<Mutex<Harness>>) {
    let line = format!("BRANCH MERGE trial INTO {into} ON CONFLICT THEIRS");
    work_until((into, &line), seed, call)
}

/// The same of another line.
fn work_until(
    (into, line): (&str, &str),
    seed: u64,
    call: usize,
) -> (SimulatedDisk, Option<Mutex<Harness>>) {
    let disk = SimulatedDisk::new();
    disk.fail_at(call, DiskFault::PowerLoss);
    let Ok(mut harness) = Harness::new(&setup(), &disk, seed) else {
        return (disk, None);
    };
    let mut main = two_parted(&mut harness);
    let is_reset = line.contains("RESET");
    let (mut writer, database) = (main.connect(), harness.database());
    writer.line(&format!("BRANCH USE {into}"));
    for line in [
        "SET k1 ours PX 50000",
        "DEL k2",
        "HSET h f ours",
        "SET k5 ours",
    ] {
        if is_reset {
            writer.line(line);
        }
    }
    harness.tick();
    let mut rng = fastrand::Rng::with_seed(seed);
    // Where a slice has ended the epoch, that was how it ended.
    let note = |harness: &mut Harness, before: &mut Option<(LogEpoch, Picture)>| {
        if let Some((begun, picture)) = before.take() {
            // As it begins, it ends two.
            let ended = (begun.0..database.epochs.current().0).map(LogEpoch);
            harness
                .history
                .extend(ended.map(|epoch| (epoch, picture.clone())));
        }
        harness.acknowledged = harness.acknowledged.max(database.durable());
    };
    small::set(Some(Bounds {
        keys: 0,
        slice: 2,
        near: 1,
    }));
    let mut before = Some((database.epochs.current(), picture(&database)));
    let (_, slices) = main.run_between_slices(words(line), |slice| {
        note(&mut harness, &mut before);
        write_amid(&mut writer, &mut rng, slice);
        if rng.u8(..6) == 0 {
            harness.tick();
        } else if slice == 3 && seed % 4 > 1 {
            // One that the power ends is of no use.
            let _ = database.checkpoint(&CheckpointOptions::default());
            let epoch = database.epochs.current().previous();
            harness.history.push((epoch, picture(&database)));
            harness.acknowledged = harness.acknowledged.max(database.durable());
        }
        before = Some((database.epochs.current(), picture(&database)));
    });
    note(&mut harness, &mut before);
    small::set(None);
    let is_whole = is_reset && into != "MAIN";
    let is_done = (slices > 4 || is_whole) && database.branches.hidden().is_empty();
    assert!(is_done || !disk.has_power());
    harness.tick();
    writer.line("SET k3 after");
    harness.tick();
    (disk, Some(Mutex::new(harness)))
}

/// Crashes at every call of the large merges of these seeds; what is wrong, if anything is.
fn crashes_of_large_merges(seeds: std::ops::Range<u64>) -> Result<(), String> {
    crashes(seeds, merge_until)
}

/// The same of resets, in slices and in one step.
fn crashes_of_large_resets(seeds: std::ops::Range<u64>) -> Result<(), String> {
    crashes(seeds, |into, seed, call| {
        work_until((into, &format!("BRANCH RESET {into} TO s")), seed, call)
    })
}

fn crashes(
    seeds: std::ops::Range<u64>,
    work: impl Fn(&str, u64, usize) -> (SimulatedDisk, Option<Mutex<Harness>>),
) -> Result<(), String> {
    for seed in seeds {
        let into = ["MAIN", "other"][seed as usize % 2];
        let (disk, _) = work(into, seed, usize::MAX);
        for call in 0..=disk.call_count() {
            let (disk, harness) = work(into, seed, call);
            let found = disk.crash(seed + call as u64);
            let checked = check_recovered(&setup(), &found, harness.as_ref());
            checked.map_err(|what| format!("seed {seed}, call {call}: {what}"))?;
        }
    }
    Ok(())
}

/// All or nothing of it, and of what was written meanwhile all that was acknowledged; a hidden
/// branch that is left is dropped.
#[test]
fn every_call_of_a_large_merge() {
    crashes_of_large_merges(1..1 + 2 * effort()).unwrap_or_else(|what| panic!("{what}"));
    for call in (0..200).step_by(9) {
        let (disk, _) = merge_until("MAIN", 1, call);
        let Ok(shell) = setup().open(&disk.crash(0)) else {
            panic!("it is whole");
        };
        let mut session = shell.database.open_session().expect("a session is free");
        crate::maintenance::round(&shell.database, &mut session);
        shell.database.close_session(&session);
        assert!(shell.database.branches.hidden().is_empty());
    }
}

/// Whether some crash of a large merge shows the bug.
#[test]
fn every_call_of_a_large_reset() {
    crashes_of_large_resets(1..1 + 2 * effort()).unwrap_or_else(|what| panic!("{what}"));
}

#[test]
fn a_large_reset_without_a_record_is_noticed() {
    let crashes = || {
        crashes_of_large_resets(1..2)
            .and(crashes_of_large_resets(2..3))
            .is_err()
    };
    let crashes = || testing::with(Fault::AdoptionForgotten, crashes);
    assert!(catch_unwind(AssertUnwindSafe(crashes)).unwrap_or(true));
}

fn is_noticed_amid_merges(fault: Fault) -> bool {
    let noticed = || crashes_of_large_merges(0..4).is_err();
    let noticed = AssertUnwindSafe(|| testing::with(fault, noticed));
    catch_unwind(noticed).unwrap_or(true)
}

#[test]
fn a_large_merge_without_a_record_is_noticed() {
    assert!(is_noticed_amid_merges(Fault::AdoptionForgotten));
}

#[test]
fn a_large_merge_with_a_record_of_another_time_is_noticed() {
    assert!(is_noticed_amid_merges(Fault::AdoptedEarly));
}

#[test]
fn a_branch_without_a_record_is_noticed() {
    assert!(is_noticed(Fault::BranchForgotten));
}

/// The first branch is made while a checkpoint is taken that knows of none, before what it shows is
/// changed and written.
#[test]
fn a_checkpoint_that_was_overtaken_does_not_count() {
    let finds = |fault| {
        let disk = SimulatedDisk::new();
        let mut main = setup().open(&disk).expect("the disk is empty");
        main.check(&[("SET a 1", "+OK"), ("SELECT 1", "+OK"), ("SET b 1", "+OK")]);
        let inside = Mutex::new((main.connect(), false));
        let options = CheckpointOptions {
            progress: Some(Arc::new(move |_, _| {
                let mut inside = lock(&inside);
                if !std::mem::replace(&mut inside.1, true) {
                    inside.0.line("BRANCH CREATE trial");
                    inside.0.check(&[("SELECT 1", "+OK"), ("SET b 2", "+OK")]);
                }
            })),
            ..CheckpointOptions::default()
        };
        testing::with(fault, || main.database.checkpoint(&options)).expect("the disk works");
        drop(options);
        main.database.close_log().expect("the disk works");
        drop(main);
        let mut main = setup().open(&disk.crash(0)).expect("it was closed");
        main.check(&[("SELECT 1", "+OK"), ("GET b", "$1 2")]);
        main.line("BRANCH READ trial GET b")
    };
    assert_eq!(finds(Fault::Nothing), "$1 1");
    assert_eq!(
        finds(Fault::OvertakenCounts),
        "$1 2",
        "the check is what helps"
    );
}

#[test]
fn nothing_planted_among_branches_is_not_noticed() {
    assert!(!is_noticed(Fault::Nothing));
}

/// A database with a branch that has other keys.
fn branched(disk: &SimulatedDisk) -> (Shell, Shell) {
    let mut main = setup().open(disk).expect("the disk is empty");
    main.check(&[("MSET a 1 b 1 c 1", "+OK"), ("HSET h f 1", ":1")]);
    let made = format!("*3 $5 trial :{START_MS} :1");
    main.check(&[("BRANCH CREATE trial", &made)]);
    main.database.end_epoch();
    let mut trial = main.connect();
    trial.check(&[
        ("BRANCH USE trial", "+OK"),
        ("MSET a 2 b 2 new 2", "+OK"),
        ("DEL c", ":1"),
        ("HSET h f 2", ":0"),
        ("SELECT 1", "+OK"),
        ("SET other 2 PX 9000", "+OK"),
        ("FLUSHDB", "+OK"),
        ("SET more 2", "+OK"),
        ("SELECT 0", "+OK"),
        ("SWAPDB 0 1", "+OK"),
        ("SWAPDB 1 0", "+OK"),
    ]);
    (main, trial)
}

/// Looks at what [`branched`] has made, and at what was made of it.
fn check_branched(main: &mut Shell) {
    main.check(&[
        ("MGET a b c new", "*4 $1 1 $1 1 $1 1 $-1"),
        ("BRANCH READ trial MGET a b c new", "*4 $1 2 $1 2 $-1 $1 2"),
        ("BRANCH READ trial HGETALL h", "*2 $1 f $1 2"),
        ("SNAPSHOT READ then MGET a b c new", "*4 $1 2 $1 2 $-1 $1 2"),
        ("BRANCH READ deeper MGET a deep", "*2 $1 2 $1 1"),
        ("BRANCH MAIN", "$5 trial"),
        ("BRANCH DIFF MAIN trial COUNT", ":5"),
        ("BRANCH DIFF trial deeper COUNT", ":1"),
        ("BRANCH DIFF then deeper COUNT", ":1"),
        ("SELECT 1", "+OK"),
        ("BRANCH READ trial KEYS *", "*1 $4 more"),
        ("DBSIZE", ":0"),
        ("SELECT 0", "+OK"),
    ]);
}

#[test]
fn branches_and_snapshots_outlast_the_process() {
    let mut disk = SimulatedDisk::new();
    let (mut main, mut trial) = branched(&disk);
    trial.line("SNAPSHOT CREATE then PERSIST");
    let made = format!("*3 $6 deeper :{START_MS} :1");
    trial.check(&[
        ("BRANCH CREATE deeper FROM then", &made),
        ("BRANCH MAIN trial", "+OK"),
    ]);
    trial.line("SNAPSHOT CREATE passing");
    trial.check(&[
        // What has a name lasts, too.
        (
            "BRANCH CREATE more FROM passing",
            &format!("*3 $4 more :{START_MS} :1"),
        ),
        ("BRANCH DROP more", "+OK"),
        ("BRANCH USE deeper", "+OK"),
        ("SET deep 1", "+OK"),
    ]);
    check_branched(&mut main);
    drop(trial);
    // By the log, then by a checkpoint, then by both; and by one that was made of one.
    for round in 0..6 {
        if round % 2 == 1 {
            let taken = main.database.checkpoint(&CheckpointOptions::default());
            assert!(taken.expect("the disk works").entries >= 9);
        }
        main.database.close_log().expect("the disk works");
        drop(main);
        disk = disk.restart();
        main = setup().open(&disk).expect("the disk is whole");
        let mut first = main.connect();
        first.check(&[("BRANCH USE MAIN", "+OK")]);
        check_branched(&mut first);
        main.check(&[("BRANCH USE MAIN", "+OK")]);
        let list = ["main", "trial", "deeper"]
            .map(|name| format!("*3 ${} {name} :{START_MS} :1", name.len()));
        main.check(&[("BRANCH LIST", &format!("*3 {}", list.join(" ")))]);
        let info = main.line("SNAPSHOT INFO passing");
        assert!(info.contains(" $7 persist :1"), "{info}");
    }
    // All of it can be used as before.
    main.check(&[
        ("BRANCH RENAME deeper deepest", "+OK"),
        (
            "BRANCH MERGE deepest INTO trial",
            "*6 $6 merged :1 $9 conflicts :0 $4 keys *0",
        ),
        (
            "BRANCH MERGE trial INTO MAIN DRY RUN",
            "*6 $6 merged :7 $9 conflicts :0 $4 keys *0",
        ),
        ("SNAPSHOT DROP then", ":1"),
        (
            "BRANCH RESET trial TO then",
            "-NOSNAPSHOT no snapshot has this name",
        ),
        ("BRANCH MAIN MAIN", "+OK"),
        ("BRANCH DROP trial", "+OK"),
        ("BRANCH READ deepest GET deep", "$1 1"),
    ]);
    let expected = picture(&main.database);
    main.database.close_log().expect("the disk works");
    drop(main);
    let main = setup().open(&disk.restart()).expect("the disk is whole");
    assert_eq!(picture(&main.database), expected);
}

/// By the log, then by a checkpoint.
#[test]
fn a_bound_of_descendant_sets_outlasts_the_process() {
    let mut disk = SimulatedDisk::new();
    let mut main = setup().open(&disk).expect("the disk is empty");
    main.line("BRANCH CREATE few DESCENDANTS 2");
    main.line("BRANCH CREATE usual");
    for round in 0..4 {
        if round > 1 {
            let taken = main.database.checkpoint(&CheckpointOptions::default());
            taken.expect("the disk works");
        }
        main.database.close_log().expect("the disk works");
        drop(main);
        disk = disk.restart();
        main = setup().open(&disk).expect("the disk is whole");
        for (name, bound) in [("few", 2), ("usual", 4), ("main", 4)] {
            let info = main.line(&format!("BRANCH INFO {name}"));
            assert!(
                info.ends_with(&format!(" $11 descendants :{bound}")),
                "{info}"
            );
            let engine = main.database.store.branching().expect("it has branches");
            let branch = main
                .database
                .branches
                .named(name.as_bytes())
                .expect("a branch");
            assert_eq!(
                engine.descendants_max(branch.id),
                bound,
                "round {round}: {name}"
            );
        }
    }
}

/// Not as its process: by the oldest mark of the log, then by a checkpoint.
#[test]
fn the_first_branch_is_as_old_as_its_database() {
    let mut disk = SimulatedDisk::new();
    for day in 0..4 {
        let now_ms = START_MS + day * 86_400_000;
        let mut main = setup().open_at(&disk, now_ms).expect("the disk is whole");
        let list = format!("*1 *3 $4 main :{START_MS} :1");
        main.check(&[("BRANCH LIST", &list), ("SET k v", "+OK")]);
        main.database.end_epoch();
        if day > 0 {
            let taken = main.database.checkpoint(&CheckpointOptions::default());
            taken.expect("the disk works");
        }
        main.database.close_log().expect("the disk works");
        drop(main);
        disk = disk.restart();
    }
}

/// Whoever is told in mode `sync` that something was made, or sees it, waits until it is on disk.
#[test]
fn clients_of_sync_wait_for_what_becomes_of_branches() {
    let disk = SimulatedDisk::new();
    let mut main = setup().open(&disk).expect("the disk is empty");
    let mut reader = main.connect();
    for shell in [&mut main, &mut reader] {
        shell.client().durability = Durability::Sync;
    }
    for line in [
        "BRANCH CREATE one",
        "SNAPSHOT CREATE then PERSIST",
        "BRANCH CREATE two FROM then",
        "BRANCH MAIN two",
        "BRANCH RENAME one other",
        "BRANCH USE other",
        "SET k v",
        "FLUSHDB",
        "BRANCH USE two",
        "BRANCH DROP other",
        "SNAPSHOT DROP then",
    ] {
        let answer = main.line(line);
        assert!(!answer.starts_with('-'), "{line}: {answer}");
        let epoch = main.database.epochs.current();
        if line.contains("USE") {
            continue;
        }
        assert_eq!(main.awaits(), epoch, "{line}");
        for seen in ["BRANCH LIST", "BRANCH READ two GET k"] {
            reader.line(seen);
            let awaits = reader.awaits();
            assert!(
                awaits == epoch || line == "SET k v",
                "{line}, {seen}: {awaits}"
            );
        }
        main.database.end_epoch();
    }
}

/// A branch has a database for each that is configured, whatever there was before.
#[test]
fn branches_go_on_with_more_databases_and_with_fewer() {
    let disk = SimulatedDisk::new();
    let (main, trial) = branched(&disk);
    main.database.close_log().expect("the disk works");
    drop((main, trial));
    for databases in [1, 5, 5, 2] {
        let setup = Setup {
            databases,
            ..setup()
        };
        let mut main = setup.open(&disk.restart()).expect("the disk is whole");
        main.check(&[("BRANCH USE trial", "+OK"), ("GET a", "$1 2")]);
        if databases == 5 {
            main.check(&[("SELECT 4", "+OK"), ("INCR here", ":1"), ("DEL here", ":1")]);
            main.check(&[("SELECT 1", "+OK"), ("GET more", "$1 2")]);
        }
        main.database.close_log().expect("the disk works");
    }
}

/// Another engine does not open what it cannot show.
#[test]
fn other_engines_refuse_branches() {
    let disk = SimulatedDisk::new();
    let (mut main, trial) = branched(&disk);
    let masstree = Setup {
        engine: EngineKind::Masstree,
        ..setup()
    };
    for takes in [false, true] {
        if takes {
            main.database
                .checkpoint(&CheckpointOptions::default())
                .expect("the disk works");
        } else {
            main.database.end_epoch();
        }
        let refused = masstree
            .open(&disk.copy().crash(0))
            .expect_err("it has branches");
        let expected = "this database has branches, or snapshots that last, which only --engine \
                        minuet can read";
        assert_eq!(refused.to_string(), expected);
    }
    drop(trial);
    // Once they are gone and a checkpoint knows it, any engine will do.
    main.check(&[("BRANCH DROP trial", "+OK")]);
    for _ in 0..2 {
        main.database
            .checkpoint(&CheckpointOptions::default())
            .expect("the disk works");
    }
    main.database.close_log().expect("the disk works");
    let disk = disk.crash(0);
    drop(main);
    let mut main = masstree.open(&disk).expect("nothing is left of the branch");
    main.check(&[("MGET a b c new", "*4 $1 1 $1 1 $1 1 $-1")]);
}

/// What is merged is recovered as a whole, or not at all.
#[test]
fn a_merge_is_one_group() {
    for is_durable in [false, true] {
        let disk = SimulatedDisk::new();
        let (mut main, trial) = branched(&disk);
        // The database that was emptied on the branch has keys there alone.
        let mut emptied = main.connect();
        emptied.check(&[
            ("BRANCH USE trial", "+OK"),
            ("SELECT 1", "+OK"),
            ("DEL more", ":1"),
        ]);
        main.database.end_epoch();
        let merged = "*6 $6 merged :5 $9 conflicts :0 $4 keys *0";
        main.check(&[("BRANCH MERGE trial INTO MAIN", merged)]);
        if is_durable {
            main.database.end_epoch();
        }
        let crashed = disk.crash(0);
        drop((trial, emptied, main));
        let mut main = setup().open(&crashed).expect("the disk is whole");
        let expected: &[(&str, &str)] = if is_durable {
            &[
                ("MGET a b c new", "*4 $1 2 $1 2 $-1 $1 2"),
                ("HGET h f", "$1 2"),
            ]
        } else {
            &[
                ("MGET a b c new", "*4 $1 1 $1 1 $1 1 $-1"),
                ("HGET h f", "$1 1"),
            ]
        };
        main.check(expected);
        main.check(&[("BRANCH READ trial MGET a b c new", "*4 $1 2 $1 2 $-1 $1 2")]);
    }
}
