//! The power ends: at every call of small workloads, at random calls of large ones, and while
//! recovery is at work.

use crate::clock::Milliseconds;
use pando_durability::disk::Fault;

use super::*;

/// How much longer than usual tests run.
pub(super) fn effort() -> u64 {
    let effort = std::env::var("PANDO_CRASH_EFFORT");
    effort.ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Directories for parts of checkpoints: none, several, one of the log and the data directory among
/// them, and some of them in another order.
pub(super) const PARTS: [&[&str]; 4] = [
    &[],
    &["/part0", "/part1", "/part2"],
    &["/part2", "/log0", "/data"],
    &["/part1", "/part0"],
];

pub(super) fn crash_at(
    setup: &Setup,
    seed: u64,
    steps: usize,
    call: usize,
    crash: u64,
) -> Result<(), String> {
    let disk = SimulatedDisk::new();
    disk.set_writes_through(seed.is_multiple_of(2));
    disk.fail_at(call, Fault::PowerLoss);
    let harness = run(setup, &disk, seed, steps);
    let found = disk.crash(crash);
    check_recovered(setup, &found, harness.as_deref())
        .map(|_| ())
        .map_err(|what| format!("workload {seed} of {steps}, call {call}, crash {crash}: {what}"))
}

pub(super) fn calls(setup: &Setup, seed: u64, steps: usize) -> usize {
    let disk = SimulatedDisk::new();
    disk.set_writes_through(seed.is_multiple_of(2));
    run(setup, &disk, seed, steps);
    disk.call_count()
}

#[test]
fn every_call_of_small_workloads() {
    let setup = Setup::default();
    for seed in 0..3 * effort() {
        for call in 0..=calls(&setup, seed, 40) {
            let crash = call as u64 % 3;
            crash_at(&setup, seed, 40, call, crash).unwrap_or_else(|what| panic!("{what}"));
        }
    }
}

#[test]
fn random_calls_of_large_workloads() {
    let mut rng = fastrand::Rng::with_seed(7);
    for seed in 100..104 + 20 * (effort() - 1) {
        let setup = Setup {
            engine: [EngineKind::Masstree, EngineKind::Mercury][seed as usize % 2],
            logs: rng.usize(1..4),
            directories: rng.usize(0..3),
            ..Setup::default()
        };
        let setup = Setup {
            parts: PARTS[rng.usize(..PARTS.len())],
            ..setup
        };
        let calls = calls(&setup, seed, 400);
        for _ in 0..6 {
            let (call, crash) = (rng.usize(..=calls), rng.u64(..));
            crash_at(&setup, seed, 400, call, crash).unwrap_or_else(|what| panic!("{what}"));
        }
    }
}

/// A tree that is flushed in the epoch in which two sessions, of two logs, have written to it.
#[test]
fn a_flush_in_the_epoch_of_changes_in_several_logs() {
    let setup = Setup::default();
    let disk = SimulatedDisk::new();
    let mut one = setup.open(&disk).expect("the disk is empty");
    let mut other = one.connect();
    let long = "a".repeat(20_000);
    other.check(&[(&format!("SET k {long}"), "+OK")]);
    one.check(&[("APPEND k b", ":20001")]);
    other.check(&[("APPEND k c", ":20002")]);
    one.check(&[
        ("APPEND k d", ":20003"),
        ("FLUSHALL", "+OK"),
        ("SET k e", "+OK"),
    ]);
    one.database.close_log().expect("the disk works");
    drop((one, other));
    let mut shell = setup.open(&disk.crash(0)).expect("it was closed");
    shell.check(&[("GET k", "$1 e"), ("DBSIZE", ":1")]);
}

/// A crash during recovery, then another: what was found stays what is found.
#[test]
fn crashes_of_recoveries() {
    let setup = Setup::default();
    for seed in 200..203 {
        let disk = SimulatedDisk::new();
        let harness = run(&setup, &disk, seed, 60).expect("the power is on");
        let crashed = disk.crash(seed);
        let whole = crashed.copy();
        let expected = check_recovered(&setup, &whole, Some(&harness));
        let expected = expected.unwrap_or_else(|what| panic!("{what}"));
        for call in 0..whole.call_count() {
            let again = crashed.copy();
            again.fail_at(call, Fault::PowerLoss);
            drop(setup.open(&again));
            let again = again.crash(call as u64);
            let found = check_recovered(&setup, &again, Some(&harness));
            assert_eq!(
                found.as_ref(),
                Ok(&expected),
                "workload {seed}, call {call}"
            );
        }
    }
}

/// What a process leaves that is killed: the operating system has everything that was written.
#[test]
fn a_killed_process_goes_on() {
    let mut setup = Setup::default();
    let disk = SimulatedDisk::new();
    let mut harness = run(&setup, &disk, 300, 80).expect("the power is on");
    let mut disk = disk.restart();
    for round in 0..12 {
        check_recovered(&setup, &disk.copy(), Some(&harness)).unwrap_or_else(|what| {
            panic!("round {round}: {what}");
        });
        if setup.engine == EngineKind::Minuet {
            // Its snapshots last, and no other engine opens them.
            let mut shell = setup.open(&disk).expect("it was opened");
            (0..4).for_each(|name| _ = shell.line(&format!("SNAPSHOT DROP s{name}")));
            shell.database.end_epoch();
            let taken = shell.database.checkpoint(&CheckpointOptions::default());
            taken.expect("the disk works");
            shell.database.close_log().expect("the disk works");
            drop(shell);
            disk = disk.restart();
        }
        // Another number of logs, of directories; another engine.
        setup.logs = 1 + round % 3;
        if round % 2 == 0 {
            setup.directories = setup.directories.max(round % 4);
        }
        setup.parts = PARTS[round % PARTS.len()];
        setup.engine = EngineKind::in_memory()
            .cycle()
            .nth(round)
            .expect("it has no end");
        setup.recovery_threads = 1 + round % 3;
        harness = run(&setup, &disk, 301 + round as u64, 60).expect("the power is on");
        disk = disk.restart();
    }
}

/// An ordinary end keeps the last write.
#[test]
fn an_ordinary_end_loses_nothing() {
    let setup = Setup::default();
    let disk = SimulatedDisk::new();
    let mut shell = setup.open(&disk).expect("the disk is empty");
    shell.check(&[
        ("SET k v", "+OK"),
        ("HSET h f 1", ":1"),
        ("SELECT 3", "+OK"),
    ]);
    shell.check(&[("SET other 1", "+OK"), ("SWAPDB 0 3", "+OK")]);
    shell.database.close_log().expect("the disk works");
    drop(shell);
    let disk = disk.crash(0);
    let mut shell = setup.open(&disk).expect("it was closed");
    shell.check(&[
        ("GET other", "$1 1"),
        ("SELECT 3", "+OK"),
        ("GET k", "$1 v"),
    ]);
    shell.check(&[("HGET h f", "$1 1")]);
    // Versions go on above what was there.
    shell.check(&[("APPEND k w", ":2")]);
    shell.database.close_log().expect("the disk works");
    drop(shell);
    let mut shell = setup.open(&disk.crash(0)).expect("it was closed");
    shell.check(&[("SELECT 3", "+OK"), ("GET k", "$2 vw")]);
}

/// More databases than are configured stay what they are.
#[test]
fn databases_beyond_the_configuration_are_kept() {
    let mut setup = Setup::default();
    let disk = SimulatedDisk::new();
    let mut shell = setup.open(&disk).expect("the disk is empty");
    shell.check(&[("SELECT 3", "+OK"), ("SET k v", "+OK")]);
    shell.database.close_log().expect("the disk works");
    drop(shell);
    let disk = disk.crash(0);
    setup.databases = 2;
    let mut shell = setup.open(&disk).expect("it was closed");
    shell.check(&[("DBSIZE", ":0"), ("SET mine 1", "+OK"), ("FLUSHALL", "+OK")]);
    let options = CheckpointOptions::default();
    shell.database.checkpoint(&options).expect("the disk works");
    shell.database.close_log().expect("the disk works");
    drop(shell);
    let disk = disk.crash(0);
    setup.databases = 6;
    let mut shell = setup.open(&disk).expect("it was closed");
    shell.check(&[("DBSIZE", ":0"), ("SELECT 3", "+OK"), ("GET k", "$1 v")]);
    shell.check(&[("SELECT 5", "+OK"), ("SET new 1", "+OK")]);
}

/// The clock does not go back behind what was on disk.
#[test]
fn an_expired_key_stays_expired_when_the_clock_is_wrong() {
    let setup = Setup::default();
    let disk = SimulatedDisk::new();
    let mut shell = setup.open(&disk).expect("the disk is empty");
    shell.check(&[("SET k v PX 100", "+OK")]);
    shell.pass_ms(200);
    shell.check(&[("GET k", "$-1")]);
    shell.database.close_log().expect("the disk works");
    drop(shell);
    // The clock of the next start is 200 ms behind.
    let mut shell = setup.open(&disk.crash(0)).expect("it was closed");
    shell.check(&[("GET k", "$-1"), ("PTTL k", ":-2")]);
    // Time goes on all the same, a little slower until the two meet.
    shell.check(&[("SET k v PX 100", "+OK"), ("PTTL k", ":100")]);
    shell.pass_ms(64);
    shell.check(&[("PTTL k", ":40")]);
    shell.pass_ms(48);
    shell.check(&[("GET k", "$-1")]);
    let now_ms = || shell.database.options.clock.now().milliseconds() - Milliseconds(START_MS);
    assert_eq!(now_ms(), Milliseconds(200 + 105));
    shell.pass_ms(200 * 16 - 112);
    assert_eq!(now_ms(), Milliseconds(200 * 16));
    shell.pass_ms(1);
    assert_eq!(now_ms(), Milliseconds(200 * 16 + 1));
}
