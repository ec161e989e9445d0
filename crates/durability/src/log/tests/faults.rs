//! Calls that fail while the power stays on: errors, the sync that lies the second time, full
//! disks.

use std::io::ErrorKind;

use pando_sync::LogEpoch;

use super::crashes::seeds;
use super::harness::*;
use crate::disk::{CallKind, Fault, SimulatedDisk};
use crate::log::{LogError, LogState};

/// What was acknowledged is found after the power was lost, too.
pub(super) fn check_crashes(disk: &SimulatedDisk, model: &Model, say: &str) {
    for crash in 0..seeds() {
        let after = disk.copy().crash(crash);
        let found = recover(&as_disk(&after), model);
        let found = found.unwrap_or_else(|error| panic!("{say}, crash {crash}: {error}"));
        let verdict = model.verdict(&found);
        verdict.unwrap_or_else(|wrong| panic!("{say}, crash {crash}: {wrong}"));
    }
}

/// One call fails. `false`: there was no such call.
fn fail_at(call: usize, fault: Fault, through: bool, seed: u64) -> bool {
    let say = format!("seed {seed}, call {call}, {fault:?}, through {through}");
    let (disk, mut model) = (disk(), Model::default());
    disk.set_writes_through(through);
    disk.fail_at(call, fault);
    let server = run(&as_disk(&disk), &mut model, 2, seed, 9);
    let happened = disk.call_count() > call;
    match server {
        // A start may be refused; the next one is not.
        Err(error) => {
            assert!(matches!(error, LogError::Io { .. }), "{say}: {error}");
            let server = run(&as_disk(&disk.restart()), &mut model, 2, seed, 2).unwrap();
            assert!(server.log.is_open(), "{say}");
        }
        Ok(server) => {
            assert_eq!(server.log.state(), LogState::Open, "{say}");
            assert_eq!(
                model.acknowledged + 1,
                server.epoch,
                "{say}: one error is survived"
            );
            check_crashes(&disk, &model, &say);
            // What the failure left behind does no harm to what comes later.
            let after = disk.crash(call as u64);
            drop(run(&as_disk(&after), &mut model, 1, seed + 50, 9).unwrap());
            check_crashes(&after, &model, &say);
        }
    }
    happened
}

#[test]
fn lg3_one_call_may_fail_anywhere() {
    for (seed, through) in [(1, true), (2, false)] {
        let mut call = 0;
        while fail_at(call, Fault::Error(ErrorKind::Other), through, seed) {
            call += 1;
        }
        assert!(call > 40, "{call}");
    }
}

#[test]
fn lw2_a_sync_that_failed_is_not_trusted_when_it_succeeds() {
    for seed in 1..3 {
        let mut call = 0;
        while fail_at(call, Fault::SyncTrap, false, seed) {
            call += 1;
        }
    }
}

#[test]
fn a_disk_that_fails_for_good_acknowledges_nothing_more() {
    let mut failures = 0;
    for seed in 1..4 {
        for first in (30..90).step_by(3) {
            let (disk, mut model) = (disk(), Model::default());
            for call in first..first + 2000 {
                disk.fail_at(call, Fault::Error(ErrorKind::Other));
            }
            let Ok(server) = run(&as_disk(&disk), &mut model, 2, seed, 30) else {
                continue;
            };
            let say = format!("seed {seed}, from call {first}");
            // Where only files made ahead fail, writes are refused before any is lost; where the
            // note of a rest fails, none was.
            let failed = matches!(server.log.state(), LogState::Failed { .. });
            assert!(
                failed || server.log.durable() == LogEpoch(server.epoch - 1),
                "{say}"
            );
            if failed {
                let closed = server.log.close();
                assert!(matches!(closed, Err(LogError::Failed(_))), "{say}");
                assert!(!server.log.take_notes().is_empty());
                failures += 1;
            }
            check_crashes(&disk, &model, &say);
        }
    }
    assert!(failures > 10, "{failures}");
}

#[test]
fn a_full_disk_refuses_writes_in_time_and_takes_them_again_when_there_is_room() {
    for seed in 0..6 {
        let (disk, mut model) = (disk(), Model::default());
        disk.set_capacity(Some((3 + seed) * SEGMENT_BYTES));
        let mut server = run(&as_disk(&disk), &mut model, 1, seed, 0).unwrap();
        let mut epochs = 0;
        while server.log.is_open() {
            let epoch = server.epoch;
            model.write(&mut server.sessions[0], epoch, 2, 200);
            server.tick(&mut model);
            assert_eq!(model.acknowledged, epoch, "what was taken found room");
            epochs += 1;
            assert!(epochs < 1000);
        }
        let LogState::Full { reason } = server.log.state() else {
            panic!("{:?}", server.log.state());
        };
        assert!(reason.contains("cannot allocate"), "{reason}");
        assert_eq!(server.log.statistics().pending_bytes, 0);
        assert!(disk.used() <= (3 + seed) * SEGMENT_BYTES);
        check_crashes(&disk, &model, "full");
        // Still full, then room.
        server.tick(&mut model);
        assert!(!server.log.is_open());
        if seed % 2 == 0 {
            disk.set_capacity(None);
            server.tick(&mut model);
        } else {
            model.checkpoint(&server.log, server.epoch);
            assert!(server.log.recycle_below(LogEpoch(server.epoch)).unwrap() > 0);
        }
        assert_eq!(server.log.state(), LogState::Open, "seed {seed}");
        workload(&mut server, &mut model, seed, 5);
        check_crashes(&disk, &model, "full, and room again");
    }
}

#[test]
fn what_finds_no_room_at_all_waits_and_is_not_lost() {
    let (disk, mut model) = (disk(), Model::default());
    disk.set_capacity(Some(2 * SEGMENT_BYTES));
    let mut server = run(&as_disk(&disk), &mut model, 1, 1, 0).unwrap();
    let epoch = server.epoch;
    model.write(&mut server.sessions[0], epoch, 3, 20_000);
    server.tick(&mut model);
    assert!(matches!(server.log.state(), LogState::Full { .. }));
    assert_eq!(model.acknowledged, 0);
    assert!(matches!(server.log.close(), Err(LogError::Full(_))));
    check_crashes(&disk, &model, "stuck");
    disk.set_capacity(None);
    server.tick(&mut model);
    assert_eq!(server.log.state(), LogState::Open);
    assert_eq!(model.acknowledged, epoch + 1);
    check_crashes(&disk, &model, "no longer stuck");
}

/// What was renamed and may not be durable is used when a later recycling has synced it.
#[test]
fn recycling_that_fails_half_way_loses_no_files() {
    let (disk, mut model) = (disk(), Model::default());
    let mut server = run(&as_disk(&disk), &mut model, 1, 1, 0).unwrap();
    for _ in 0..12 {
        let epoch = server.epoch;
        model.write(&mut server.sessions[0], epoch, 2, 1000);
        server.tick(&mut model);
    }
    let before = server.log.statistics();
    assert!(before.segments > 3, "{before:?}");
    model.checkpoint(&server.log, server.epoch);
    disk.fail_all(CallKind::SyncDirectory, ErrorKind::Other);
    server
        .log
        .recycle_below(LogEpoch(server.epoch))
        .unwrap_err();
    assert_eq!(server.log.statistics().free_files, before.free_files);
    disk.clear_faults();
    let recycled = server.log.recycle_below(LogEpoch(server.epoch)).unwrap();
    assert_eq!(recycled, before.segments - 1);
    let after = server.log.statistics();
    assert_eq!(after.free_files, before.free_files + recycled);
    assert_eq!(after.segments, 1);
    check_crashes(&disk, &model, "recycled");
}

/// Files can be made ahead, and not be used: the log stays full, and no more of them are made.
#[test]
fn a_segment_that_cannot_begin_for_want_of_room_is_no_room() {
    for kind in [CallKind::Rename, CallKind::SyncDirectory] {
        let (disk, mut model) = (disk(), Model::default());
        let mut server = run(&as_disk(&disk), &mut model, 1, 1, 0).unwrap();
        let write = |server: &mut Server, model: &mut Model| {
            let epoch = server.epoch;
            model.write(&mut server.sessions[0], epoch, 2, 1000);
            server.tick(model);
        };
        write(&mut server, &mut model);
        disk.fail_all(kind, ErrorKind::StorageFull);
        for _ in 0..50 {
            if server.log.is_open() {
                write(&mut server, &mut model);
            }
        }
        let files = disk.files().len();
        for _ in 0..5 {
            server.tick(&mut model);
            let state = server.log.state();
            assert!(
                matches!(state, LogState::Full { .. }),
                "{kind:?}: {state:?}"
            );
        }
        // The file of which the name is not durable keeps it.
        let named = usize::from(kind == CallKind::SyncDirectory);
        assert!(disk.files().len() <= files + named, "{kind:?}");
        check_crashes(&disk, &model, "stuck");
        disk.clear_faults();
        server.tick(&mut model);
        assert_eq!(server.log.state(), LogState::Open, "{kind:?}");
        assert_eq!(model.acknowledged + 1, server.epoch, "{kind:?}");
        check_crashes(&disk, &model, "no longer stuck");
    }
}

#[test]
fn several_failures_in_a_row_then_the_power() {
    for seed in 0..150 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let (disk, mut model) = (disk(), Model::default());
        disk.set_writes_through(rng.bool());
        drop(run(&as_disk(&disk), &mut model, 2, seed, 2).unwrap());
        let now = disk.call_count() + 10;
        for _ in 0..rng.usize(1..6) {
            let fault = [Fault::SyncTrap, Fault::Error(ErrorKind::Other)][rng.usize(..2)];
            disk.fail_at(now + rng.usize(..60), fault);
        }
        disk.fail_at(now + rng.usize(20..100), Fault::PowerLoss);
        let server = run(&as_disk(&disk), &mut model, 1 + rng.usize(..3), seed, 12);
        drop(server);
        check_crashes(&disk, &model, &format!("seed {seed}"));
    }
}

#[test]
fn a_log_that_cannot_be_read_is_an_error_that_names_the_call() {
    let (disk, mut model) = (disk(), Model::default());
    drop(run(&as_disk(&disk), &mut model, 2, 5, 9).unwrap());
    let mut failed = 0;
    for call in 0.. {
        let copy = disk.copy();
        copy.fail_at(call, Fault::Error(ErrorKind::Other));
        let found = recover(&as_disk(&copy), &model);
        if copy.call_count() <= call {
            break;
        }
        let kind = copy.calls()[call].kind;
        let LogError::Io { path, .. } = found.unwrap_err() else {
            panic!("{kind:?}");
        };
        assert!(copy.calls()[call].path.starts_with(&path) || kind == CallKind::List);
        failed += 1;
    }
    assert!(failed > 10);
}
