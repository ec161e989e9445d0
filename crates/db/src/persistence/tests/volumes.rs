//! Small volumes that hold the log and the checkpoints of data that grow, shrink and turn over:
//! what a checkpoint needs is there when it is due, so that writes are never refused for long.

use pando_durability::disk::Fault as DiskFault;
use pando_durability::log::LogState;

use super::*;
use crate::durable::testing::{self, Fault};

/// Of a segment in these tests.
const SEGMENT_BYTES: u64 = 64 * 1024;
const KEYS: u64 = 40;
const VALUE_BYTES_MAX: usize = 8000;
/// All that the keys can hold, with their names and versions.
const DATA_BYTES: u64 = KEYS * (VALUE_BYTES_MAX as u64 + 40);
/// Segments beside two checkpoints: in use, ahead, and kept free for what these may add.
const SEGMENTS: u64 = 8;

/// One log and the data directory on one volume of so many bytes.
fn volume(bytes: u64) -> (Setup, SimulatedDisk) {
    let setup = Setup {
        logs: 1,
        ..Setup::default()
    };
    let disk = SimulatedDisk::new();
    disk.set_capacity(Some(bytes));
    (setup, disk)
}

fn is_full(database: &Database) -> bool {
    let state = database.log_state().expect("there is a log");
    matches!(state, LogState::Full { .. })
}

/// What the keeper does when it looks; how many checkpoints it took.
fn keep(harness: &Mutex<Harness>) -> usize {
    let database = lock(harness).database();
    let mut taken = 0;
    while is_full(&database) || database.log_room().is_some_and(|room| room.is_short()) {
        if taken == 2 || database.checkpoint(&CheckpointOptions::default()).is_err() {
            break;
        }
        taken += 1;
        lock(harness).tick();
    }
    taken
}

/// Sets or removes a key; whether it was refused.
fn change(harness: &Mutex<Harness>, rng: &mut fastrand::Rng, large: bool) -> bool {
    let key = format!("k{}", rng.u64(..KEYS));
    let bytes = if large { VALUE_BYTES_MAX / 2 } else { 0 };
    let value = "v".repeat(rng.usize(bytes..=VALUE_BYTES_MAX));
    let mut harness = lock(harness);
    let reply = match rng.u8(..10) {
        0 if !large => harness.shells[0].run(["DEL", &key]),
        _ => harness.shells[0].run(["SET", &key, &value]),
    };
    let refused = reply.starts_with(b"-MISCONF");
    assert!(
        refused || !reply.starts_with(b"-"),
        "{}",
        reply.escape_ascii()
    );
    refused
}

/// Goes on from what a crash leaves, on the same volume.
fn crash(
    setup: &Setup,
    disk: &SimulatedDisk,
    harness: &Mutex<Harness>,
    seed: u64,
) -> SimulatedDisk {
    let found = disk.crash(seed);
    let recovered = check_recovered(setup, &found.copy(), Some(harness));
    recovered.unwrap_or_else(|what| panic!("crash {seed}: {what}"));
    found
}

/// Data that grow, turn over and shrink on a volume that holds them twice, and a few segments, with
/// crashes between; how many checkpoints that took, or where writes were refused for good.
fn goes_on(fault: Fault, seed: u64) -> Result<usize, String> {
    goes_on_with(
        volume(2 * DATA_BYTES + SEGMENTS * SEGMENT_BYTES),
        fault,
        seed,
    )
}

fn goes_on_with(
    (setup, mut disk): (Setup, SimulatedDisk),
    fault: Fault,
    seed: u64,
) -> Result<usize, String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut checkpoints = 0;
    for round in 0..4 {
        let harness = testing::with(fault, || Harness::new(&setup, &disk, seed));
        let harness = Mutex::new(harness.expect("it is whole"));
        for step in 0..250 {
            let refused = change(&harness, &mut rng, step < 150);
            if refused || rng.u8(..8) == 0 {
                lock(&harness).tick();
                checkpoints += keep(&harness);
                let database = lock(&harness).database();
                if is_full(&database) {
                    let room = database.log_room();
                    return Err(format!("seed {seed}, round {round}, step {step}: {room:?}"));
                }
            }
        }
        disk = crash(&setup, &disk, &harness, rng.u64(..));
    }
    Ok(checkpoints)
}

#[test]
fn a_volume_that_holds_twice_the_data_is_never_full_for_long() {
    for seed in 0..6 * super::crashes::effort() {
        let checkpoints = goes_on(Fault::Nothing, seed).unwrap_or_else(|what| panic!("{what}"));
        assert!(checkpoints > 10, "seed {seed}: {checkpoints}");
    }
}

/// The log beside half of each checkpoint: it leaves that half its room, and takes the rest.
#[test]
fn a_volume_holds_its_share_of_checkpoints_and_the_log() {
    for seed in 0..3 {
        let setup = Setup {
            logs: 1,
            directories: 0,
            parts: &["/data", "/part0"],
            ..Setup::default()
        };
        let disk = SimulatedDisk::new();
        let share = DATA_BYTES + 32 * 1024;
        disk.set_capacity_below(Path::new("/part0"), Some(share));
        let volume = share + SEGMENTS * SEGMENT_BYTES;
        disk.set_capacity_below(Path::new("/data"), Some(volume));
        let gone_on = goes_on_with((setup, disk), Fault::Nothing, seed);
        let checkpoints = gone_on.unwrap_or_else(|what| panic!("{what}"));
        assert!(checkpoints > 10, "seed {seed}: {checkpoints}");
    }
}

#[test]
fn canary_a_log_that_leaves_checkpoints_no_room() {
    assert!((0..6).any(|seed| goes_on(Fault::RoomTaken, seed).is_err()));
}

/// CW3 log-kept-for-oldest, with the power cut at any call while room is made.
#[test]
fn room_is_made_without_losing_anything() {
    let work = |disk: &SimulatedDisk, setup: &Setup| {
        let harness = Mutex::new(Harness::new(setup, disk, 1).ok()?);
        let mut rng = fastrand::Rng::with_seed(1);
        for step in 0..120 {
            if !disk.has_power() {
                break;
            }
            change(&harness, &mut rng, true);
            if step % 4 == 0 {
                lock(&harness).tick();
                keep(&harness);
            }
        }
        Some(harness)
    };
    let bytes = 2 * DATA_BYTES + SEGMENTS * SEGMENT_BYTES;
    let (setup, whole) = volume(bytes);
    work(&whole, &setup).expect("there is power");
    let mut rng = fastrand::Rng::with_seed(2);
    for _ in 0..40 * super::crashes::effort() {
        let (setup, disk) = volume(bytes);
        let call = rng.usize(..whole.call_count());
        disk.fail_at(call, DiskFault::PowerLoss);
        let harness = work(&disk, &setup);
        let found = disk.crash(rng.u64(..));
        check_recovered(&setup, &found, harness.as_ref())
            .unwrap_or_else(|what| panic!("cut off at call {call}: {what}"));
    }
}

/// A volume that is too small for its data refuses writes, but not what makes the data smaller.
#[test]
fn removals_make_room_on_a_volume_that_is_too_small() {
    for all in [false, true] {
        let (setup, disk) = volume(DATA_BYTES / 2 + SEGMENTS * SEGMENT_BYTES);
        let harness = Harness::new(&setup, &disk, 1).expect("the disk is empty");
        let harness = Mutex::new(harness);
        let mut rng = fastrand::Rng::with_seed(1);
        let refused = (0..500).any(|_| {
            let refused = change(&harness, &mut rng, true);
            lock(&harness).tick();
            keep(&harness);
            refused && change(&harness, &mut rng, true)
        });
        let database = lock(&harness).database();
        assert!(refused && is_full(&database), "{:?}", database.log_room());
        // A restart changes nothing of it, and reads go on.
        let disk = crash(&setup, &disk, &harness, 1);
        let harness = Harness::new(&setup, &disk, 1).expect("it is whole");
        let harness = Mutex::new(harness);
        let before = lock(&harness).line("DBSIZE");
        assert_ne!(before, ":0");
        keep(&harness);
        if all {
            assert_eq!(lock(&harness).line("FLUSHALL"), "+OK");
        } else {
            for key in 0..KEYS - 4 {
                let answer = lock(&harness).line(&format!("DEL k{key}"));
                assert!(answer.starts_with(':'), "{answer}");
            }
        }
        lock(&harness).tick();
        keep(&harness);
        let database = lock(&harness).database();
        assert!(!is_full(&database), "{:?}", database.log_room());
        assert_eq!(lock(&harness).line("SET new 1"), "+OK");
        lock(&harness).tick();
        let durable = database.durable();
        assert_eq!(durable, database.epochs.current().previous(), "all of it");
        crash(&setup, &disk, &harness, 0);
    }
}

/// What others have taken of a volume comes back: so do writes, though the start had not a block.
#[test]
fn a_start_without_a_block_to_write_waits_for_room() {
    let (setup, disk) = volume(2 * DATA_BYTES + SEGMENTS * SEGMENT_BYTES);
    let mut shell = setup.open(&disk).expect("the disk is empty");
    shell.check(&[("SET k 1", "+OK")]);
    shell.database.end_epoch();
    drop(shell);
    let disk = disk.crash(0);
    let foreign = Path::new("/data/foreign");
    let free = disk.room(Path::new("/data")).expect("it tells").free;
    disk.put(foreign, &vec![1; free as usize]);
    let mut shell = setup.open(&disk).expect("it is whole");
    let database = Arc::clone(&shell.database);
    shell.check(&[("GET k", "$1 1"), ("DBSIZE", ":1")]);
    let refused = shell.line("SET k 2");
    assert!(refused.starts_with("-MISCONF"), "{refused}");
    disk.remove(foreign).expect("it is there");
    database.end_epoch();
    assert!(!is_full(&database));
    shell.check(&[("SET k 2", "+OK")]);
}
