//! What can be found on disk, as the table in `recover` says.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use pando_durability::disk::{CallKind, Fault as DiskFault};

use super::*;
use crate::persistence::{RecoveryError, check};

/// A database with two checkpoints and writes behind each, closed.
fn closed(setup: &Setup) -> (SimulatedDisk, Picture) {
    let disk = SimulatedDisk::new();
    let harness = Harness::new(setup, &disk, 9).expect("the disk is empty");
    let harness = Arc::new(Mutex::new(harness));
    for _ in 0..5 {
        for _ in 0..80 {
            lock(&harness).act();
        }
        checkpoint(&harness, false).expect("the disk works");
    }
    for _ in 0..30 {
        lock(&harness).act();
    }
    let database = lock(&harness).database();
    let picture = picture(&database);
    database.close_log().expect("the disk works");
    (disk.crash(0), picture)
}

fn files(disk: &SimulatedDisk, suffix: &str) -> Vec<PathBuf> {
    let files = disk.files().into_iter().map(|(path, _)| path);
    let of = |path: &PathBuf| path.to_string_lossy().ends_with(suffix);
    files.filter(of).collect()
}

fn recovered(setup: &Setup, disk: &SimulatedDisk) -> Result<Picture, OpenError> {
    setup.open(disk).map(|shell| picture(&shell.database))
}

#[test]
fn the_older_checkpoint_stands_in_for_a_damaged_one() {
    let setup = Setup::default();
    let (disk, expected) = closed(&setup);
    assert_eq!(
        recovered(&setup, &disk.copy()).expect("it is whole"),
        expected
    );
    let (manifests, parts) = (files(&disk, ".manifest"), files(&disk, ".part"));
    assert_eq!((manifests.len(), parts.len()), (2, 2));
    for newest in [&manifests[1], &parts[1]] {
        let whole = disk.contents(newest).expect("it is there");
        for offset in [
            0,
            9,
            14,
            30,
            70,
            whole.len() as u64 / 2,
            whole.len() as u64 - 1,
        ] {
            let damaged = disk.copy();
            assert!(damaged.flip(newest, offset, 3));
            let opened = setup.open(&damaged);
            let shell = match opened {
                Ok(shell) => shell,
                // The format number: another version's file is not damage.
                Err(error) => {
                    assert!((8..12).contains(&offset), "{offset}: {error}");
                    continue;
                }
            };
            assert_eq!(
                picture(&shell.database),
                expected,
                "{}: {offset}",
                newest.display()
            );
            let recovery = shell.database.recovery().expect("it is on disk").clone();
            assert!(!recovery.notes.is_empty());
            let report = check(&setup.durability(&disk.copy())).expect("nobody holds it");
            assert!(report.sound, "{report:?}");
        }
        let gone = disk.copy();
        gone.remove(newest).expect("it is there");
        assert_eq!(
            recovered(&setup, &gone).expect("the older one is there"),
            expected
        );
    }
}

#[test]
fn damage_of_both_checkpoints_is_refused() {
    let setup = Setup::default();
    let (disk, _) = closed(&setup);
    for manifest in files(&disk, ".manifest") {
        assert!(disk.flip(&manifest, 40, 1));
    }
    // The log does not reach back to the beginning.
    let error = recovered(&setup, &disk).expect_err("nothing is whole");
    let text = error.to_string();
    assert!(text.contains("log") && text.contains(".manifest"), "{text}");
}

#[test]
fn check_finds_damage() {
    let setup = Setup::default();
    let (disk, _) = closed(&setup);
    let report = check(&setup.durability(&disk)).expect("nobody holds it");
    assert!(report.sound, "{report:?}");
    assert!(
        report
            .findings
            .iter()
            .filter(|line| line.contains("whole"))
            .count()
            >= 2
    );
    for path in files(&disk, ".part") {
        let copy = disk.copy();
        let bytes = copy.contents(&path).expect("it is there").len() as u64;
        assert!(copy.flip(&path, bytes - 1, 0));
        let report = check(&setup.durability(&copy)).expect("nobody holds it");
        assert!(!report.sound, "{report:?}");
    }
    let shell = setup.open(&disk).expect("it is whole");
    assert!(matches!(
        check(&setup.durability(&disk)),
        Err(RecoveryError::Lock(_))
    ));
    drop(shell);
}

#[test]
fn files_of_another_database_are_refused() {
    let setup = Setup::default();
    let ((mine, _), (other, _)) = (closed(&setup), closed(&setup));
    let foreign = files(&other, ".manifest")
        .into_iter()
        .chain(files(&other, ".part"));
    for path in foreign {
        mine.put(&path, &other.contents(&path).expect("it is there"));
    }
    let error = recovered(&setup, &mine).expect_err("two databases");
    assert!(error.to_string().contains("another database"), "{error}");
}

#[test]
fn a_lost_identity_comes_back_from_a_checkpoint() {
    let setup = Setup::default();
    let (disk, expected) = closed(&setup);
    let path = PathBuf::from("/data/identity.pando");
    let identity = disk.contents(&path).expect("it is there");
    disk.remove(&path).expect("it is there");
    assert_eq!(
        recovered(&setup, &disk).expect("the rest is whole"),
        expected
    );
    assert_eq!(disk.contents(&path), Some(identity));
    disk.put(&path, b"something else");
    assert!(matches!(
        recovered(&setup, &disk.restart()).expect_err("no identity"),
        OpenError::Recovery(error) if matches!(*error, RecoveryError::Identity { .. })
    ));
}

#[test]
fn a_directory_in_use_is_refused() {
    let setup = Setup::default();
    let disk = SimulatedDisk::new();
    let shell = setup.open(&disk).expect("the disk is empty");
    let error = setup.open(&disk).expect_err("it is in use");
    assert!(error.to_string().contains("in use"), "{error}");
    drop(shell);
}

/// A small write is logged as itself, whatever it changes in the engine: a page of Minuet's, say.
/// Blocks on disk are shared by the writes of an epoch.
#[test]
fn a_small_write_takes_few_bytes_of_the_log() {
    const WRITES: u64 = 1000;
    const BYTES_MAX: u64 = 200;
    for engine in [
        EngineKind::Masstree,
        EngineKind::Mercury,
        EngineKind::Minuet,
    ] {
        let setup = Setup {
            engine,
            ..Setup::default()
        };
        let mut shell = setup
            .open(&SimulatedDisk::new())
            .expect("the disk is empty");
        let mut write_all = |value: &str| {
            let written = |shell: &Shell| {
                let statistics = shell.database.log_statistics();
                statistics.expect("there is a log").written_bytes
            };
            let before = written(&shell);
            for key in 0..WRITES {
                shell.check(&[(&format!("SET key:{key:010} {value}"), "+OK")]);
            }
            shell.database.end_epoch();
            (written(&shell) - before) / WRITES
        };
        let [inserted, replaced] = ["12345678", "87654321"].map(&mut write_all);
        assert!(inserted > 8 && replaced > 8, "{inserted} and {replaced}");
        assert!(
            inserted.max(replaced) <= BYTES_MAX,
            "{engine:?}: {inserted} and {replaced} bytes"
        );
    }
}

#[test]
fn log_space_comes_back_while_the_database_is_served() {
    let setup = Setup::default();
    let disk = SimulatedDisk::new();
    let harness = Harness::new(&setup, &disk, 5).expect("the disk is empty");
    let harness = Arc::new(Mutex::new(harness));
    let mut used = Vec::new();
    for _ in 0..8 {
        for _ in 0..120 {
            let mut harness = lock(&harness);
            harness.act();
            if harness.rng.u8(..8) == 0 {
                harness.tick();
            }
        }
        checkpoint(&harness, true).expect("the disk works");
        used.push(disk.used());
    }
    // Disk use does not grow with the total written.
    assert!(used[7] < used[3] * 2, "{used:?}");
}

/// RC1 epochs-above-disk and the order of commits over many restarts.
#[test]
fn epochs_never_go_back() {
    let setup = Setup::default();
    let mut disk = SimulatedDisk::new();
    let mut last = 0;
    for round in 0..6_u64 {
        let mut shell = setup.open(&disk).expect("it is whole");
        let first = shell.database.epochs.current().0;
        assert!(first > last, "{first} after {last}");
        shell.line("SET k v");
        shell.database.end_epoch();
        shell.line("SET k w");
        last = shell.database.epochs.current().0 - 1;
        drop(shell);
        disk = disk.crash(round);
    }
}

/// Missing permissions or a bad sector: recovery names a file that it needs, and skips one that it
/// does not.
#[test]
fn an_unreadable_file_is_named_or_got_round() {
    let setup = Setup {
        recovery_threads: 1,
        ..Setup::default()
    };
    let (disk, expected) = closed(&setup);
    let whole = disk.copy();
    assert_eq!(recovered(&setup, &whole).expect("it is whole"), expected);
    let reads = |kind| matches!(kind, CallKind::Open | CallKind::Read | CallKind::List);
    let (mut refused, mut got_round) = (BTreeSet::new(), BTreeSet::new());
    for (number, call) in whole.calls().into_iter().enumerate() {
        let (copy, path) = (disk.copy(), call.path);
        if !reads(call.kind) {
            continue;
        }
        copy.fail_at(number, DiskFault::Error(ErrorKind::PermissionDenied));
        let name = path.file_name().expect("no root").to_string_lossy();
        let kind = match name.rsplit_once('.') {
            Some((stem, "pando")) => stem.split('-').next().expect("a part"),
            Some((_, extension)) => extension,
            None => "directory",
        };
        match setup.open(&copy) {
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains(&*path.to_string_lossy()), "{path:?}: {text}");
                refused.insert(kind.to_owned());
            }
            Ok(shell) => {
                assert_eq!(picture(&shell.database), expected, "{path:?}");
                let recovery = shell.database.recovery().expect("it is on disk");
                let notes = recovery.notes.join("; ");
                // A free file holds nothing.
                assert!(
                    kind == "free" || notes.contains(&*name),
                    "{path:?}: {notes}"
                );
                got_round.insert(kind.to_owned());
            }
        }
    }
    let kinds = |kinds: &BTreeSet<String>| kinds.iter().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(
        (kinds(&refused), kinds(&got_round)),
        (
            "checkpoint directory identity log".to_owned(),
            "free histories manifest part".to_owned()
        )
    );
}
