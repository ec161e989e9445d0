//! Calls that fail while the power stays on, under a whole database: errors, full disks, syncs that
//! lie, calls that stop early. Then the process or the power ends.

use std::io::{self, ErrorKind};

use fastrand::Rng;
use pando_durability::disk::{Access, DiskFile, Fault, Room};
use pando_durability::log::LogState;

use super::crashes::effort;
use super::*;

/// What may happen to a call.
const FAULTS: [Fault; 3] = [
    Fault::SyncTrap,
    Fault::Error(ErrorKind::Other),
    Fault::Error(ErrorKind::StorageFull),
];

/// Runs a workload on a disk that was prepared to fail, and looks at what a kill and crashes leave.
fn survives(
    setup: &Setup,
    seed: u64,
    steps: usize,
    prepare: impl Fn(&SimulatedDisk),
) -> Result<(), String> {
    let disk = SimulatedDisk::new();
    disk.set_writes_through(seed.is_multiple_of(2));
    prepare(&disk);
    let harness = run_on(setup, &disk, seed, steps, false);
    for crash in [0, 1, seed + 2] {
        let found = disk.copy().crash(crash);
        check_recovered(setup, &found, harness.as_deref())
            .map_err(|what| format!("crash {crash}: {what}"))?;
    }
    check_recovered(setup, &disk.restart(), harness.as_deref())
        .map(|_| ())
        .map_err(|what| format!("killed: {what}"))
}

fn calls(setup: &Setup, seed: u64, steps: usize) -> usize {
    let disk = SimulatedDisk::new();
    disk.set_writes_through(seed.is_multiple_of(2));
    run(setup, &disk, seed, steps);
    disk.call_count()
}

/// Each call of small workloads fails in each way.
fn every_call(setup: &Setup, seeds: u64) -> Result<usize, String> {
    let mut count = 0;
    for seed in 400..400 + seeds {
        for call in 0..=calls(setup, seed, 25) {
            for fault in FAULTS {
                survives(setup, seed, 25, |disk| disk.fail_at(call, fault))
                    .map_err(|what| format!("workload {seed}, call {call}, {fault:?}: {what}"))?;
                count += 1;
            }
        }
    }
    Ok(count)
}

#[test]
fn every_call_of_small_workloads_may_fail() {
    let count = every_call(&Setup::default(), effort());
    let count = count.unwrap_or_else(|what| panic!("{what}"));
    assert!(count > 100, "{count}");
}

#[test]
fn several_calls_of_large_workloads_may_fail() {
    let setup = Setup {
        logs: 3,
        directories: 2,
        ..Setup::default()
    };
    for seed in 500..506 + 40 * (effort() - 1) {
        let calls = calls(&setup, seed, 200);
        survives(&setup, seed, 200, |disk| {
            let mut rng = Rng::with_seed(seed);
            disk.set_short_calls(rng.bool().then_some(seed));
            for _ in 0..rng.usize(1..8) {
                let from = rng.usize(..=calls);
                let fault = FAULTS[rng.usize(..FAULTS.len())];
                // Some that come alone, some that stay.
                for call in from..from + [1, 1, 2, 40][rng.usize(..4)] {
                    disk.fail_at(call, fault);
                }
            }
            if rng.bool() {
                disk.fail_at(rng.usize(..=calls), Fault::PowerLoss);
            }
        })
        .unwrap_or_else(|what| panic!("workload {seed}: {what}"));
    }
}

/// Writes are refused while there is no room, reads go on; then there is room.
#[test]
fn a_disk_may_be_full_for_a_while() {
    let mut refused = 0;
    for seed in 600..612 + 40 * (effort() - 1) {
        let setup = Setup::default();
        let disk = SimulatedDisk::new();
        disk.set_capacity(Some(Rng::with_seed(seed).u64(5..20) * 64 * 1024));
        let Some(harness) = run_on(&setup, &disk, seed, 150, false) else {
            continue;
        };
        let database = lock(&harness).database();
        let state = database.log().expect("there is one").state();
        if let LogState::Full { reason } = &state {
            let mut harness = lock(&harness);
            let before = picture(&database);
            let answer = harness.line("SET key0 more");
            assert!(answer.starts_with("-MISCONF"), "{answer}");
            // Of whatever type: the workload may have made a hash of it.
            let read = harness.line("GET key0");
            let answered = !read.starts_with('-') || read.starts_with("-WRONGTYPE");
            assert!(answered, "workload {seed}: {read}");
            assert!(reason.contains("log0"), "{reason}");
            assert_eq!(picture(&database), before);
            refused += 1;
        }
        assert!(!matches!(state, LogState::Failed { .. }), "{state:?}");
        for crash in 0..3 {
            let found = disk.copy().crash(crash);
            found.set_capacity(None);
            check_recovered(&setup, &found, Some(&harness))
                .unwrap_or_else(|what| panic!("workload {seed}, crash {crash}: {what}"));
        }
        disk.set_capacity(None);
        lock(&harness).tick();
        lock(&harness).tick();
        let answer = lock(&harness).line("SET key0 again");
        assert_eq!(answer, "+OK", "workload {seed}");
        lock(&harness).tick();
        let epoch = database.epochs.current().previous();
        assert_eq!(database.durable(), epoch, "workload {seed}");
        check_recovered(&setup, &disk.crash(0), Some(&harness))
            .unwrap_or_else(|what| panic!("workload {seed}, with room again: {what}"));
    }
    assert!(refused > 0, "{refused}");
}

/// A disk whose owner tries a failed sync again, and believes it.
#[derive(Debug)]
struct Believing(SimulatedDisk);

#[derive(Debug)]
struct BelievingFile(Box<dyn DiskFile>);

impl Disk for Believing {
    fn create(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(BelievingFile(self.0.create(path, access)?)))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(BelievingFile(self.0.open(path, access)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.0.list(directory)
    }

    fn create_directory(&self, directory: &Path) -> io::Result<()> {
        self.0.create_directory(directory)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        self.0.sync_directory(directory)
    }

    fn room(&self, directory: &Path) -> io::Result<Room> {
        self.0.room(directory)
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskFile>>> {
        self.0.try_lock(path)
    }
}

impl DiskFile for BelievingFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.0.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync().or_else(|_| self.0.sync())
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.0.allocate(bytes)
    }

    fn bytes(&self) -> io::Result<u64> {
        self.0.bytes()
    }

    fn writes_through(&self) -> bool {
        self.0.writes_through()
    }
}

#[test]
fn canary_a_failed_sync_that_is_tried_again_and_believed() {
    let setup = Setup {
        on: |disk| Arc::new(Believing(disk)),
        ..Setup::default()
    };
    let found = every_call(&setup, 2);
    assert!(found.is_err(), "the trap is not noticed: {found:?}");
}
