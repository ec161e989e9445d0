//! Planted bugs: each must make the crash tests fail.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pando_durability::disk::Fault as DiskFault;

use super::*;
use crate::durable::testing::{self, Fault};

/// Whether some crash of some workload shows the bug, or an assertion does before.
fn is_noticed(fault: Fault) -> bool {
    let setup = Setup {
        parts: super::crashes::PARTS[usize::from(fault == Fault::PartsUnsynced)],
        ..Setup::default()
    };
    let mut rng = fastrand::Rng::with_seed(3);
    (0..60).any(|seed| {
        let disk = SimulatedDisk::new();
        disk.set_writes_through(false);
        // Where the power ends is anywhere within the usual number of calls.
        disk.fail_at(40 + rng.usize(..200), DiskFault::PowerLoss);
        let crash = rng.u64(..);
        let shows = || {
            let harness = run(&setup, &disk, seed, 80);
            let found = disk.crash(crash);
            check_recovered(&setup, &found, harness.as_deref()).is_err()
        };
        let shows = AssertUnwindSafe(|| testing::with(fault, shows));
        catch_unwind(shows).unwrap_or(true)
    })
}

macro_rules! canaries {
    ($($test:ident: $fault:ident;)*) => {
        $(
            #[test]
            fn $test() {
                assert!(is_noticed(Fault::$fault), "{:?} passes", Fault::$fault);
            }
        )*
    };
}

canaries! {
    a_write_without_record: RecordSkipped;
    a_split_group: GroupSplit;
    a_removal_without_record: RemovalForgotten;
    a_change_of_the_mapping_without_record: MappingForgotten;
    a_checkpoint_that_says_it_began_late: CheckpointStartsLate;
    a_checkpoint_that_does_not_wait: CheckpointNotAwaited;
    a_checkpoint_whose_parts_have_no_durable_names: PartsUnsynced;
    a_wave_put_back_backwards: WaveBackwards;
}

/// A record that is missing in the middle of a key's changes.
#[test]
fn a_change_without_predecessor_is_refused() {
    let setup = Setup::default();
    let disk = SimulatedDisk::new();
    let mut shell = setup.open(&disk).expect("the disk is empty");
    shell.check(&[(&format!("SET k {}", "a".repeat(600)), "+OK")]);
    shell.check(&[("SETRANGE k 5 bbb", ":600")]);
    testing::with(Fault::NoRecord, || {
        shell.check(&[("SETRANGE k 9 ccc", ":600")]);
    });
    shell.check(&[("SETRANGE k 50 ddd", ":600")]);
    shell.database.close_log().expect("the disk works");
    drop(shell);
    let disk = disk.crash(0);
    let error = setup
        .open(&disk.copy())
        .expect_err("a record is missing")
        .to_string();
    assert!(
        error.contains("segment") || error.contains("log"),
        "{error}"
    );
    assert!(
        error.contains("offset") && error.contains("is not there"),
        "{error}"
    );
    let unchecked = testing::with(Fault::PredecessorUnchecked, || setup.open(&disk));
    assert!(unchecked.is_ok(), "the check is what refuses");
}

#[test]
fn nothing_planted_is_not_noticed() {
    assert!(!is_noticed(Fault::Nothing));
}
