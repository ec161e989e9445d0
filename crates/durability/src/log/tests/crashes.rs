//! Power loss at every call of small workloads, and of what comes after the recovery.

use std::io::ErrorKind;

use super::harness::*;
use crate::disk::{Fault, SimulatedDisk};
use crate::log::LogError;

pub(super) fn seeds() -> u64 {
    let seeds = std::env::var("PANDO_CRASH_SEEDS").ok();
    seeds.map_or(3, |seeds| seeds.parse().expect("a number of seeds"))
}

/// The last call of a run failed because the power was off.
fn is_no_power(error: &LogError) -> bool {
    matches!(error, LogError::Io { error, .. } if error.kind() == ErrorKind::Other)
}

/// Loses the power at a call, recovers, goes on and loses the power at each call of a second run.
fn crash_at(start: &SimulatedDisk, before: &Model, call: usize, logs: usize, seed: u64) -> bool {
    let (disk, mut model) = (start.copy(), before.clone());
    disk.fail_at(call, Fault::PowerLoss);
    if let Err(error) = run(&as_disk(&disk), &mut model, logs, seed, 9).map(drop) {
        assert!(is_no_power(&error), "{error}");
    }
    if disk.has_power() {
        return false;
    }
    for crash in 0..seeds() {
        let say = format!("seed {seed}, call {call}, crash {crash}");
        let after = disk.copy().crash(crash);
        let mut model = model.clone();
        let found = recover(&as_disk(&after), &model).unwrap_or_else(|e| panic!("{say}: {e}"));
        model
            .verdict(&found)
            .unwrap_or_else(|wrong| panic!("{say}: {wrong}"));
        // A second server, on what the first left behind, and once more after that.
        let server = run(&as_disk(&after), &mut model, 3 - logs, crash + 100, 4).unwrap();
        assert!(server.log.is_open(), "{say}");
        drop(server);
        let again = after.crash(crash);
        let found = recover(&as_disk(&again), &model).unwrap_or_else(|e| panic!("{say}: {e}"));
        model
            .verdict(&found)
            .unwrap_or_else(|wrong| panic!("{say}, again: {wrong}"));
    }
    true
}

fn crash_everywhere(through: bool, seed: u64) {
    let start = disk();
    start.set_writes_through(through);
    let mut calls = 0;
    while crash_at(
        &start,
        &Model::default(),
        calls,
        1 + (seed % 2) as usize,
        seed,
    ) {
        calls += 1;
    }
    assert!(calls > 30, "{calls}");
}

#[test]
fn the_power_may_end_at_every_call_of_a_first_start() {
    for seed in 0..2 {
        crash_everywhere(true, seed);
        crash_everywhere(false, seed);
    }
}

#[test]
fn the_power_may_end_at_every_call_of_a_later_start() {
    for seed in 10..12 {
        let (mut start, mut model) = (disk(), Model::default());
        drop(run(&as_disk(&start), &mut model, 2, seed, 12).unwrap());
        start = start.crash(seed);
        let mut calls = 0;
        while crash_at(&start, &model, calls, 2, seed) {
            calls += 1;
        }
        assert!(calls > 30, "{calls}");
    }
}

/// The process ends at a call, another one goes on, then the power ends. `false`: there was no such
/// call.
fn killed_at(call: usize, through: bool, seed: u64) -> bool {
    let (disk, mut model) = (disk(), Model::default());
    disk.set_writes_through(through);
    disk.fail_at(disk.call_count() + call, Fault::PowerLoss);
    let _ = run(&as_disk(&disk), &mut model, 2, seed, 6);
    let happened = !disk.has_power();
    let say = format!("seed {seed}, call {call}, through {through}");
    let left = disk.restart();
    let server = run(&as_disk(&left), &mut model, 2, seed + 100, 5);
    drop(server.unwrap_or_else(|error| panic!("{say}: {error}")));
    for crash in 0..seeds() {
        let found = recover(&as_disk(&left.copy().crash(crash)), &model);
        let found = found.unwrap_or_else(|error| panic!("{say}, crash {crash}: {error}"));
        let verdict = model.verdict(&found);
        verdict.unwrap_or_else(|wrong| panic!("{say}, crash {crash}: {wrong}"));
    }
    happened
}

/// LS1 named-is-whole: what was not durable when the process ended is not taken for it by the next
/// one.
#[test]
fn a_killed_process_leaves_files_that_are_not_durable() {
    for (seed, through) in [(40, true), (41, false)] {
        let mut call = 0;
        while killed_at(call, through, seed) {
            call += 1;
        }
        assert!(call > 20, "{call}");
    }
}
