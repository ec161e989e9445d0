//! Checkpoints that are no picture of one moment: what happens between their beginning and their
//! end, and when they end without the log.

use pando_durability::disk::Fault as DiskFault;

use super::*;
use crate::durable::testing::{self, Fault};
use crate::persistence::CheckpointFailure;

/// Takes a checkpoint; `between` is called once, when the first database was scanned and the others
/// were not.
fn checkpoint_with(
    shell: Shell,
    between: impl FnOnce(&mut Shell) + Send + 'static,
) -> (Shell, Result<(), CheckpointFailure>) {
    let database = Arc::clone(&shell.database);
    let inside = Arc::new(Mutex::new((shell, Some(between))));
    let shared = Arc::clone(&inside);
    let options = CheckpointOptions {
        progress: Some(Arc::new(move |_, _| {
            let mut inside = shared.lock().expect("no panic");
            let (shell, between) = &mut *inside;
            if let Some(between) = between.take() {
                between(shell);
            }
        })),
        ..CheckpointOptions::default()
    };
    let taken = database.checkpoint(&options).map(drop);
    drop(options);
    let inside = Arc::try_unwrap(inside).ok().expect("nobody else has it");
    (inside.into_inner().expect("no panic").0, taken)
}

/// A long value in database 1, of which a change is smaller than the whole.
fn prepared(setup: &Setup) -> (SimulatedDisk, Shell) {
    let disk = SimulatedDisk::new();
    let mut shell = setup.open(&disk).expect("the disk is empty");
    let set = format!("SET k {}", "a".repeat(20_000));
    shell.check(&[("SET here 1", "+OK"), ("SELECT 1", "+OK"), (&set, "+OK")]);
    shell.database.end_epoch();
    (disk, shell)
}

/// Changes whose base is in no checkpoint and no log: the key went before the scan came by.
#[test]
fn changes_of_a_key_that_went_behind_the_scan_are_passed_over() {
    let setup = Setup::default();
    for (lines, length, orphan) in [
        (&["APPEND k b", "DEL k"][..], ":0", true),
        (
            &["APPEND k b", "APPEND k c", "DEL k", "SET k new"],
            ":3",
            false,
        ),
        (&["APPEND k b", "FLUSHDB", "APPEND k more"], ":4", true),
        (&["APPEND k b", "RENAME k other"], ":0", true),
        (&["APPEND k b", "MOVE k 0"], ":0", true),
    ] {
        for epochs in [false, true] {
            let (disk, shell) = prepared(&setup);
            let (shell, taken) = checkpoint_with(shell, move |shell| {
                for line in lines {
                    shell.line(line);
                    if epochs {
                        shell.database.end_epoch();
                    }
                }
            });
            taken.expect("the disk works");
            let expected = picture(&shell.database);
            shell.database.end_epoch();
            drop(shell);
            let found = disk.crash(0);
            let mut shell = setup.open(&found.copy()).expect("nothing is missing");
            let used = shell.database.recovery().expect("it is on disk");
            assert!(used.checkpoint.is_some(), "{used:?}");
            assert_eq!(picture(&shell.database), expected, "{lines:?}");
            shell.check(&[("SELECT 1", "+OK"), ("STRLEN k", length)]);
            drop(shell);
            let refused = testing::with(Fault::OrphansRefused, || setup.open(&found).is_err());
            assert_eq!(refused, orphan, "{lines:?}");
        }
    }
}

/// Such a change without anything that follows is corruption, and is named where it stands.
#[test]
fn a_change_whose_base_went_without_a_record_is_refused() {
    let setup = Setup::default();
    let (disk, shell) = prepared(&setup);
    let (shell, taken) = checkpoint_with(shell, |shell| {
        shell.check(&[("APPEND k b", ":20001")]);
        testing::with(Fault::NoRecord, || shell.check(&[("DEL k", ":1")]));
    });
    taken.expect("the disk works");
    drop(shell);
    let error = setup
        .open(&disk.crash(0))
        .expect_err("the removal is missing");
    let text = error.to_string();
    assert!(text.contains("/log-") && text.contains("offset"), "{text}");
    assert!(text.contains("is not there"), "{text}");
}

/// The power ends, or a call fails, at each call of a checkpoint that sees what is not durable.
fn interrupted(seed: u64, fault: DiskFault, power: bool) -> Result<usize, String> {
    let mut calls = 0;
    for through in [true, false] {
        let (_, _, all) = interrupt(seed, through, None);
        for call in 0..=all {
            let (disk, harness, _) = interrupt(seed, through, Some((call, fault)));
            if power {
                disk.end_power();
            } else {
                // What failed is done with by the next one.
                disk.clear_faults();
                lock(&harness).act();
                let again = checkpoint(&harness, false);
                again.map_err(|error| format!("call {call}: {error}"))?;
            }
            for crash in 0..2 {
                let found = disk.copy().crash(crash);
                check_recovered(&Setup::default(), &found, Some(&harness))
                    .map_err(|what| format!("call {call}, crash {crash}: {what}"))?;
            }
        }
        calls += all;
    }
    Ok(calls)
}

/// Takes a checkpoint, one of whose calls fails; returns how many it made.
fn interrupt(
    seed: u64,
    through: bool,
    fault: Option<(usize, DiskFault)>,
) -> (SimulatedDisk, Arc<Mutex<Harness>>, usize) {
    let disk = SimulatedDisk::new();
    disk.set_writes_through(through);
    let harness = Harness::new(&Setup::default(), &disk, seed).expect("the disk is empty");
    let harness = Arc::new(Mutex::new(harness));
    for _ in 0..30 {
        lock(&harness).act();
    }
    lock(&harness).tick();
    let before = disk.call_count();
    if let Some((call, fault)) = fault {
        disk.fail_at(before + call, fault);
    }
    let taken = checkpoint(&harness, true);
    assert!(fault.is_some() || taken.is_ok(), "{taken:?}");
    let calls = disk.call_count() - before;
    (disk, harness, calls)
}

/// A checkpoint never shows what the log has not: its end epoch is durable before it counts.
#[test]
fn cw2_a_checkpoint_that_ends_behind_the_cutoff_does_not_count() {
    let calls = interrupted(17, DiskFault::PowerLoss, true).unwrap_or_else(|what| panic!("{what}"));
    assert!(calls > 20, "{calls}");
    let calls = undurable_write().unwrap_or_else(|what| panic!("{what}"));
    assert!(calls > 20, "{calls}");
    let planted = testing::with(Fault::CheckpointNotAwaited, undurable_write);
    assert!(planted.is_err(), "it does not wait, and passes");
}

/// A write that the checkpoint sees and the log has not, when the power ends at each call: it is
/// there if it was said to be durable, and otherwise not.
fn undurable_write() -> Result<usize, String> {
    let setup = Setup::default();
    let mut calls = 0;
    for through in [true, false] {
        let mut call = 0;
        loop {
            let (disk, shell) = prepared(&setup);
            disk.set_writes_through(through);
            let before = disk.call_count();
            disk.fail_at(before + call, DiskFault::PowerLoss);
            let written = Arc::new(Mutex::new(None));
            let note = Arc::clone(&written);
            let (shell, _) = checkpoint_with(shell, move |shell| {
                shell.line("SET k new");
                *note.lock().expect("no panic") = Some(shell.database.epochs.current());
            });
            let ended = !disk.has_power();
            let durable = shell.database.durable();
            drop(shell);
            let epoch = *written.lock().expect("no panic");
            let is_there = epoch.is_some_and(|epoch| epoch <= durable);
            let mut shell = setup
                .open(&disk.crash(0))
                .map_err(|error| error.to_string())?;
            shell.check(&[("SELECT 1", "+OK")]);
            let found = shell.line("STRLEN k");
            let expected = if is_there { ":3" } else { ":20000" };
            if found != expected {
                return Err(format!(
                    "call {call}: {found}, written in {epoch:?} of {durable}"
                ));
            }
            if !ended {
                break;
            }
            call += 1;
        }
        calls += call;
    }
    Ok(calls)
}

/// A checkpoint that a failing call interrupts leaves nothing in the way of the next one.
#[test]
fn checkpoints_may_fail_at_every_call() {
    for fault in [
        DiskFault::SyncTrap,
        DiskFault::Error(std::io::ErrorKind::StorageFull),
    ] {
        let calls =
            interrupted(17, fault, false).unwrap_or_else(|what| panic!("{fault:?}: {what}"));
        assert!(calls > 20, "{calls}");
    }
}
