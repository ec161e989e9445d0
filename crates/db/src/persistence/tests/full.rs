//! A log on a disk of its own that becomes full under load, while checkpoints have room: what was
//! acknowledged is on disk, and the log gets room again.

use pando_durability::log::LogState;

use super::*;
use crate::acknowledge::Durability;
use crate::durable::testing::{self, Fault};
use crate::persistence::{CheckpointFailure, StreamError};

const LOG: &str = "/log0";
/// Of a segment in these tests.
const SEGMENT_BYTES: u64 = 64 * 1024;
const OPTIONS: fn() -> CheckpointOptions = CheckpointOptions::default;

fn one_log() -> Setup {
    Setup {
        logs: 1,
        ..Setup::default()
    }
}

/// A disk that has room for so many segments of the log.
fn limited(segments: u64) -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    disk.set_capacity_below(Path::new(LOG), Some(segments * SEGMENT_BYTES));
    disk
}

fn is_full(database: &Database) -> bool {
    matches!(
        database.log().expect("there is one").state(),
        LogState::Full { .. }
    )
}

fn value(of: usize, bytes: usize) -> String {
    format!("{of:08}").repeat(bytes / 8)
}

/// Sets a key to a value that a command line has no room for.
fn set(shell: &mut Shell, key: &str, value: &str) {
    let reply = shell.run(["SET", key, value]);
    let refused = reply.starts_with(b"-MISCONF");
    assert!(reply == b"+OK\r\n" || refused, "{}", reply.escape_ascii());
}

/// Takes checkpoints, as the keeper does, until everything is on disk; how many.
fn rescue(database: &Database) -> usize {
    let epoch = database.epochs.current().previous();
    for taken in 0.. {
        database.end_epoch();
        if database.durable() >= epoch {
            return taken;
        }
        assert!(taken < 40, "the log stays full");
        database.checkpoint(&OPTIONS()).expect("it has room");
    }
    unreachable!("it ends")
}

/// LT1 acknowledged-fits: no epoch ends while writes come, as if the disk were slow; all of them
/// fit.
#[test]
fn what_is_acknowledged_finds_room_on_a_full_disk() {
    for (segments, bytes) in [(2, 400), (3, 4000), (4, 12_000)] {
        let (setup, disk) = (one_log(), limited(segments));
        let mut shell = setup.open(&disk).expect("it has room for a start");
        let database = Arc::clone(&shell.database);
        let mut written = 0;
        let refusal = loop {
            let line = format!("SET k{written} {}", value(written, bytes));
            let answer = shell.line(&line);
            if answer != "+OK" {
                break answer;
            }
            written += 1;
            assert!(written < 2000, "nothing was refused");
        };
        assert!(refusal.starts_with("-MISCONF"), "{refusal}");
        assert_eq!(database.statistics().refused_for_log, 1);
        assert!(written > 10, "{written}");
        let epoch = database.epochs.current();
        database.end_epoch();
        assert!(is_full(&database));
        assert_eq!(database.durable(), epoch, "{segments} segments");
        drop((shell, database));
        let mut shell = setup.open(&disk.crash(0)).expect("it is whole");
        let expected = format!(":{written}");
        shell.check(&[("DBSIZE", &*expected)]);
    }
}

/// While a checkpoint may free space, a write waits; for as long as `full_wait` says after the log
/// became full, by whoever.
#[test]
fn a_write_waits_while_the_log_is_full_and_is_refused_when_it_stays_so() {
    let (setup, disk) = (one_log(), limited(3));
    let options = Options {
        seed: 1,
        durability: Some(DurabilityOptions {
            full_wait: Milliseconds(1000),
            ..setup.durability(&disk)
        }),
        ..Options::default()
    };
    let mut shell = Shell::on_disk(options, START_MS).expect("it has room for a start");
    let database = Arc::clone(&shell.database);
    let fill = |shell: &mut Shell| {
        for written in 0..2000 {
            let (reply, progress) = shell.begin(["SET", "k", &value(written, 400)]);
            if let Some(until) = progress.put_off_until() {
                assert!(reply.is_empty() && is_full(&shell.database));
                return until;
            }
            assert_eq!(reply, b"+OK\r\n");
        }
        panic!("the log never gets full")
    };
    let make_room = |database: &Database| {
        for _ in 0..4 {
            database.end_epoch();
            database.checkpoint(&OPTIONS()).expect("it has room");
        }
        assert!(!is_full(database));
    };
    shell.check(&[("SET gone 1", "+OK")]);
    let until = fill(&mut shell);
    shell.check(&[("DEL gone", ":1"), ("STRLEN k", ":400")]);
    make_room(&database);
    shell.check(&[("SET k 1", "+OK")]);
    assert_eq!(database.statistics().refused_for_log, 0);
    // It becomes full again, much later, and stays so.
    shell.pass_ms(5000);
    let again = fill(&mut shell);
    assert_eq!(again, until + Milliseconds(5000).into());
    shell.pass_ms(999);
    let (_, progress) = shell.begin(["SET", "k", "1"]);
    assert!(progress.put_off_until().is_some());
    shell.pass_ms(1);
    let mut other = shell.connect();
    for shell in [&mut shell, &mut other] {
        let refusal = shell.line("SET k 1");
        assert!(refusal.starts_with("-MISCONF"), "{refusal}");
    }
    assert_eq!(database.statistics().refused_for_log, 2);
    make_room(&database);
    other.check(&[("SET k 1", "+OK")]);
}

/// A value that the log's disk cannot hold at all: its reply waits, checkpoints free what the log
/// holds of it, and in the end all of it went through the log.
#[test]
fn a_value_longer_than_the_disk_is_answered_when_checkpoints_have_made_room() {
    let (setup, disk) = (one_log(), limited(3));
    let mut shell = setup.open(&disk).expect("it has room for a start");
    let database = Arc::clone(&shell.database);
    shell.check(&[("SET small 1", "+OK")]);
    database.end_epoch();
    let large = value(7, 600_000);
    set(&mut shell, "large", &large);
    let epoch = database.epochs.current();
    assert_eq!(shell.awaits(), epoch, "no such room is known");
    database.end_epoch();
    assert!(is_full(&database) && database.durable() < epoch);
    let answer = shell.line("SET more 1");
    assert!(answer.starts_with("-MISCONF"), "{answer}");
    // The first alone is enough to keep it.
    let report = database.checkpoint(&OPTIONS()).expect("it has room");
    assert!(database.durable() < report.start);
    let kept = disk.copy().crash(0);
    let mut after = setup.open(&kept).expect("it is whole");
    after.check(&[("STRLEN large", ":600000"), ("GET small", "$1 1")]);
    drop(after);
    let taken = rescue(&database);
    assert!(taken > 1, "{taken}");
    assert!(!is_full(&database));
    shell.check(&[("SET more 1", "+OK")]);
    database.end_epoch();
    drop((shell, database));
    let mut shell = setup.open(&disk.crash(0)).expect("it is whole");
    shell.check(&[("STRLEN large", ":600000"), ("GET more", "$1 1")]);
}

/// CW2 end-after-scan: a checkpoint that stands without the log says what it holds, so that an
/// older one is not used in its place without that.
#[test]
fn nothing_falls_back_behind_a_checkpoint_that_stands_alone() {
    for forgotten in [false, true] {
        let (setup, disk) = (one_log(), limited(3));
        let mut shell = setup.open(&disk).expect("it has room for a start");
        let database = Arc::clone(&shell.database);
        shell.check(&[("SET k before", "+OK")]);
        database.checkpoint(&OPTIONS()).expect("it has room");
        set(&mut shell, "large", &value(7, 600_000));
        database.end_epoch();
        let fault = if forgotten {
            Fault::StillnessForgotten
        } else {
            Fault::Nothing
        };
        let report = testing::with(fault, || database.checkpoint(&OPTIONS()));
        let report = report.expect("it has room");
        drop((shell, database));
        let disk = disk.crash(0);
        let part = format!("/data/checkpoint-{:016x}-0000.part", report.start.0);
        let part = disk
            .files()
            .into_iter()
            .map(|(path, _)| path)
            .filter(|path| path.to_string_lossy().ends_with(".part"))
            .max()
            .unwrap_or(part.into());
        let bytes = disk.contents(&part).expect("it is there").len() as u64;
        assert!(disk.flip(&part, bytes - 1, 0));
        let opened = setup.open(&disk);
        assert_eq!(opened.is_ok(), forgotten, "{:?}", opened.err());
    }
}

/// Workloads with values that overrun the log, and checkpoints at any time.
fn survives(fault: Fault, seeds: std::ops::Range<u64>) -> Result<usize, String> {
    let mut stood_alone = 0;
    for seed in seeds {
        let (setup, disk) = (one_log(), limited(3 + seed % 3));
        let harness = Harness::new(&setup, &disk, seed).expect("it has room for a start");
        let harness = Arc::new(Mutex::new(harness));
        let mut rng = fastrand::Rng::with_seed(seed);
        for step in 0..60 {
            match rng.u8(..12) {
                0 | 1 => lock(&harness).tick(),
                2 | 3 => {
                    let busy = rng.bool();
                    let taken = testing::with(fault, || checkpoint(&harness, busy));
                    let database = lock(&harness).database();
                    let behind = database.durable().next() < database.epochs.current();
                    stood_alone += usize::from(taken.is_ok() && behind);
                }
                4 => {
                    let key = format!("key{}", rng.u8(..6));
                    set(&mut lock(&harness).shells[0], &key, &value(step, 150_000));
                }
                _ => lock(&harness).act(),
            }
            if rng.u8(..8) == 0 {
                let found = disk.copy().crash(rng.u64(..));
                found.set_capacity_below(Path::new(LOG), None);
                check_recovered(&setup, &found, Some(&harness))
                    .map_err(|what| format!("workload {seed}, step {step}: {what}"))?;
            }
        }
    }
    Ok(stood_alone)
}

#[test]
fn overrun_logs_lose_nothing() {
    let alone = survives(Fault::Nothing, 0..12 * super::crashes::effort());
    assert!(alone.expect("all is well") > 5, "too few overruns");
}

#[test]
fn canary_a_checkpoint_that_stands_alone_though_something_was_written() {
    let found = survives(Fault::CheckpointHeldStill, 0..60);
    assert!(found.is_err(), "{found:?}");
}

fn checkpoint_files(disk: &SimulatedDisk) -> Vec<PathBuf> {
    let files = disk.files().into_iter().map(|(path, _)| path);
    files
        .filter(|path| path.to_string_lossy().contains("checkpoint-"))
        .collect()
}

/// However often it is tried, and whyever it fails.
#[test]
fn a_checkpoint_that_fails_leaves_no_files() {
    let (setup, disk) = (Setup::default(), SimulatedDisk::new());
    let mut shell = setup.open(&disk).expect("the disk is empty");
    let database = Arc::clone(&shell.database);
    for key in 0..100 {
        set(&mut shell, &format!("k{key}"), &value(key, 20_000));
    }
    database.checkpoint(&OPTIONS()).expect("it has room");
    let before = checkpoint_files(&disk);
    let data = Path::new("/data");
    disk.set_capacity_below(data, Some(disk.used_below(data) + 1_000_000));
    for _ in 0..5 {
        let failed = database.checkpoint(&OPTIONS());
        assert!(
            matches!(failed, Err(CheckpointFailure::Files(_))),
            "{failed:?}"
        );
        assert_eq!(checkpoint_files(&disk), before);
    }
    disk.set_capacity_below(data, None);
    let stops = Arc::clone(&database);
    let options = CheckpointOptions {
        progress: Some(Arc::new(move |_, _| stops.stop_checkpoint())),
        ..OPTIONS()
    };
    let failed = database.checkpoint(&options);
    assert!(
        matches!(failed, Err(CheckpointFailure::Stopped)),
        "{failed:?}"
    );
    // The stop may come before the beginning.
    let failed = database.checkpoint(&OPTIONS());
    assert!(
        matches!(failed, Err(CheckpointFailure::Stopped)),
        "{failed:?}"
    );
    assert_eq!(checkpoint_files(&disk), before);
}

/// What a crash has left of a checkpoint goes before the log wants its room.
#[test]
fn leftovers_of_a_checkpoint_go_at_the_start() {
    let (setup, disk) = (one_log(), SimulatedDisk::new());
    let mut shell = setup.open(&disk).expect("the disk is empty");
    set(&mut shell, "k", &value(1, 100_000));
    shell.database.checkpoint(&OPTIONS()).expect("it has room");
    drop(shell);
    let disk = disk.crash(0);
    let before = checkpoint_files(&disk);
    // Of the rest, a lock takes a little; a checkpoint is left its room.
    disk.set_capacity(Some(disk.used() + 8 * SEGMENT_BYTES + 4096));
    for name in ["00000000000000ff-0000.part", "00000000000000ff.new"] {
        let path = format!("/data/checkpoint-{name}");
        disk.put(Path::new(&path), &vec![1; 4 * SEGMENT_BYTES as usize]);
    }
    let mut shell = setup.open(&disk).expect("it is whole");
    assert_eq!(checkpoint_files(&disk), before);
    shell.check(&[("SET more 1", "+OK")]);
    shell.database.end_epoch();
    assert!(!is_full(&shell.database));
}

#[test]
fn a_load_stops_when_the_log_is_full() {
    let mut source = Shell::with_options(Options::default());
    for key in 0..500 {
        set(&mut source, &format!("k{key}"), &value(key, 8000));
    }
    let mut stream = Vec::new();
    source
        .session
        .dump(&mut stream)
        .expect("a vector takes all");
    let mut shell = one_log()
        .open(&limited(4))
        .expect("it has room for a start");
    let loaded = shell.session.load(&mut &stream[..]);
    let Err(StreamError::Log(reason)) = loaded else {
        panic!("{loaded:?}");
    };
    assert!(reason.contains(LOG), "{reason}");
    let keys = picture(&shell.database).len();
    assert!((1..400).contains(&keys), "{keys}");
}

/// RC5 start-writes-nothing: nothing was written since the start, so that nothing has to become
/// durable.
#[test]
fn answers_about_whole_databases_need_no_room_after_a_start() {
    let (setup, disk) = (one_log(), SimulatedDisk::new());
    let mut shell = setup.open(&disk).expect("the disk is empty");
    shell.check(&[("SET k 1", "+OK"), ("SET other 2", "+OK")]);
    shell.database.end_epoch();
    drop(shell);
    let disk = disk.crash(0);
    for (path, _) in disk.files() {
        if path.to_string_lossy().contains("free-") {
            disk.remove(&path).expect("it is there");
        }
    }
    for directory in ["/data", LOG] {
        let directory = Path::new(directory);
        disk.set_capacity_below(directory, Some(disk.used_below(directory)));
    }
    let mut shell = setup.open(&disk).expect("it is whole");
    shell.client().durability = Durability::Sync;
    for line in [
        "DBSIZE",
        "SCAN 0",
        "KEYS *",
        "KRANGE - +",
        "KCOUNT - +",
        "RANDOMKEY",
        "GET k",
    ] {
        let answer = shell.line(line);
        assert!(!answer.starts_with('-'), "{line}: {answer}");
        shell.database.end_epoch();
        let (durable, awaits) = (shell.database.durable(), shell.awaits());
        assert!(
            durable >= awaits,
            "{line}: epoch {awaits}, {durable} is durable"
        );
    }
    let refused = shell.line("SET k 2");
    assert!(refused.starts_with("-MISCONF"), "{refused}");
}
