//! Parts of checkpoints in several directories: what a crash leaves there, and directories that are
//! gone, moved, exchanged or another database's.

use super::crashes::{PARTS, calls, crash_at};
use super::*;
use crate::persistence::places::Kept;
use crate::persistence::{RecoveryError, check};

fn setup() -> Setup {
    Setup {
        parts: PARTS[1],
        ..Setup::default()
    }
}

/// Values that are spread over all directories, in two checkpoints, and a write behind them.
fn filled(setup: &Setup) -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    let mut shell = setup.open(&disk).expect("the disk is empty");
    for round in 0..2 {
        for key in 0..40 {
            let line = format!("SET key{key} {round}{}", "v".repeat(1000));
            shell.check(&[(&line, "+OK")]);
        }
        let options = CheckpointOptions::default();
        shell.database.checkpoint(&options).expect("the disk works");
    }
    shell.check(&[("SET last x", "+OK")]);
    shell.database.close_log().expect("the disk works");
    drop(shell);
    disk.crash(0)
}

fn parts(disk: &SimulatedDisk, directory: &str) -> Vec<PathBuf> {
    let files = disk.files().into_iter().map(|(path, _)| path);
    let of = |path: &PathBuf| {
        path.starts_with(directory) && path.extension().is_some_and(|it| it == "part")
    };
    files.filter(of).collect()
}

fn is_whole(setup: &Setup, disk: &SimulatedDisk) {
    let report = check(&setup.durability(disk)).expect("nobody holds it");
    assert!(report.sound, "{report:?}");
    let mut shell = setup.open(disk).expect("it is whole");
    shell.check(&[("DBSIZE", ":41"), ("GET last", "$1 x")]);
    let recovery = shell.database.recovery().expect("it is on disk");
    assert!(recovery.notes.is_empty(), "{recovery:?}");
    assert!(recovery.loaded >= 40);
}

fn refused(setup: &Setup, disk: &SimulatedDisk) -> RecoveryError {
    let report = check(&setup.durability(&disk.copy())).expect("nobody holds it");
    assert!(!report.sound, "{report:?}");
    match setup.open(disk) {
        Err(OpenError::Recovery(error)) => *error,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was not refused"),
    }
}

/// CP1 parts-first with several directories: also between the syncs of two of them.
#[test]
fn every_call_of_a_small_workload() {
    let seed = 2;
    for call in 0..=calls(&setup(), seed, 40) {
        let crash = call as u64 % 3;
        crash_at(&setup(), seed, 40, call, crash).unwrap_or_else(|what| panic!("{what}"));
    }
}

#[test]
fn all_directories_have_their_share() {
    for engine in EngineKind::in_memory() {
        let setup = Setup { engine, ..setup() };
        let disk = filled(&setup);
        let bytes = |directory: &&str| -> usize {
            let parts = parts(&disk, directory).into_iter();
            parts
                .map(|path| disk.contents(&path).expect("it is there").len())
                .sum()
        };
        let taken: Vec<usize> = setup.parts.iter().map(bytes).collect();
        assert!(taken.iter().all(|&bytes| bytes > 4000), "{taken:?}");
        assert!(parts(&disk, "/data").is_empty());
        is_whole(&setup, &disk);
    }
}

/// Several threads, each of which writes to all directories while things change.
#[test]
fn threads_write_together() {
    let setup = setup();
    let disk = SimulatedDisk::new();
    let mut shell = setup.open(&disk).expect("the disk is empty");
    for database in 0..4 {
        shell.check(&[(&format!("SELECT {database}"), "+OK")]);
        for key in 0..50 {
            shell.check(&[(&format!("SET key{key} {}", "v".repeat(1000)), "+OK")]);
        }
    }
    let options = CheckpointOptions {
        threads: 3,
        ..CheckpointOptions::default()
    };
    for _ in 0..3 {
        let report = shell.database.checkpoint(&options).expect("the disk works");
        assert_eq!(report.entries, 200);
    }
    drop(shell);
    let shell = setup.open(&disk.crash(1)).expect("it is whole");
    assert_eq!(picture(&shell.database).len(), 200);
}

#[test]
fn a_directory_that_shows_nothing_is_refused() {
    let mut setup = setup();
    let disk = filled(&setup);
    for (path, _) in disk.files() {
        if path.starts_with("/part1") {
            disk.remove(&path).expect("it is there");
        }
    }
    for configured in [PARTS[1], &[]] {
        setup.parts = configured;
        let error = refused(&setup, &disk.restart());
        let RecoveryError::EmptyDirectory { path, noted, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(path, Path::new("/part1"));
        assert_eq!(noted, Path::new("/data/checkpoint-directories.pando"));
        assert!(error.to_string().contains("mounted"), "{error}");
    }
}

/// One file is gone, and the directory is not: the older checkpoint stands in, and both are told.
#[test]
fn a_part_that_is_missing_is_named() {
    let setup = setup();
    let disk = filled(&setup);
    let all = parts(&disk, "/part2");
    assert_eq!(all.len(), 2);
    disk.remove(&all[1]).expect("it is there");
    let report = check(&setup.durability(&disk)).expect("nobody holds it");
    assert!(!report.sound, "{report:?}");
    let mut shell = setup.open(&disk.restart()).expect("the older one is whole");
    shell.check(&[("DBSIZE", ":41"), ("GET last", "$1 x")]);
    let notes = shell.database.recovery().expect("on disk").notes.join("; ");
    let name = all[1].file_name().expect("a name").to_string_lossy();
    for word in [&*name, "missing", "/part0", "/part1", "/part2", "mounted"] {
        assert!(notes.contains(word), "{word}: {notes}");
    }
}

/// Moved with the configuration, and by hand from one directory to another.
#[test]
fn moved_parts_are_found() {
    let mut setup = setup();
    let disk = filled(&setup);
    let rename = |from: &str, to: &str, disk: &SimulatedDisk| {
        for path in parts(disk, from) {
            let moved = Path::new(to).join(path.file_name().expect("a name"));
            disk.put(&moved, &disk.contents(&path).expect("it is there"));
            disk.remove(&path).expect("it is there");
        }
    };
    rename("/part0", "/part1", &disk);
    is_whole(&setup, &disk.copy());
    // All of a directory, to one that has no name of ours yet.
    for (path, _) in disk.files() {
        if path.starts_with("/part2") && !parts(&disk, "/part2").contains(&path) {
            disk.remove(&path).expect("it is there");
        }
    }
    rename("/part2", "/elsewhere", &disk);
    let error = refused(&setup, &disk.restart()).to_string();
    assert!(error.contains("/part2"), "{error}");
    setup.parts = &["/part0", "/elsewhere", "/part1"];
    is_whole(&setup, &disk.restart());
}

/// Whatever is configured, all is found, and directories are forgotten when they are not needed.
#[test]
fn the_setting_may_change_between_starts() {
    let mut setup = setup();
    let mut disk = filled(&setup);
    let noted = Kept::Parts.path(Path::new("/data"));
    for configured in [PARTS[3], &[], PARTS[2], &["/part1"], PARTS[1], &[]] {
        setup.parts = configured;
        is_whole(&setup, &disk.copy());
        let mut shell = setup.open(&disk).expect("it is whole");
        for _ in 0..2 {
            shell.check(&[("SET last x", "+OK")]);
            let options = CheckpointOptions::default();
            shell.database.checkpoint(&options).expect("the disk works");
        }
        shell.check(&[("DEL last", ":1"), ("SET last x", "+OK")]);
        shell.database.close_log().expect("the disk works");
        drop(shell);
        let homes: Vec<&str> = if configured.is_empty() {
            vec!["/data"]
        } else {
            configured.to_vec()
        };
        let all = parts(&disk, "/");
        let is_home = |path: &PathBuf| homes.iter().any(|home| path.starts_with(home));
        assert!(!all.is_empty() && all.iter().all(is_home), "{all:?}");
        disk = disk.crash(0);
        let mut shell = setup.open(&disk).expect("it is whole");
        shell.check(&[("DBSIZE", ":41")]);
        let names = String::from_utf8(disk.contents(&noted).expect("it is there"));
        let names = names.expect("it is text");
        let expected = homes.iter().filter(|home| **home != "/data");
        assert!(names.lines().eq(expected.copied()), "{names}");
        drop(shell);
        disk = disk.restart();
    }
}

/// What another database has left there stays, whether it has a data directory there or parts.
#[test]
fn a_directory_of_another_database_is_refused_and_stays() {
    let mut setup = setup();
    let disk = filled(&setup);
    let before = parts(&disk, "/");
    let other = |parts: &'static [&'static str]| Setup {
        parts,
        ..setup.clone()
    };
    for taken in [&["/part0"][..], &["/new", "/data"]] {
        let options = Options {
            durability: Some(DurabilityOptions {
                data_directory: "/other".into(),
                log_directories: Vec::new(),
                ..other(taken).durability(&disk)
            }),
            ..Options::default()
        };
        let error = Shell::on_disk(options, START_MS).expect_err("it is another's");
        assert!(error.to_string().contains("another database"), "{error}");
        assert_eq!(parts(&disk, "/"), before);
        // The other one goes on without it.
        let options = Options {
            durability: Some(DurabilityOptions {
                data_directory: "/other".into(),
                log_directories: Vec::new(),
                ..other(&[]).durability(&disk)
            }),
            ..Options::default()
        };
        Shell::on_disk(options, START_MS).expect("it has its own");
    }
    setup.parts = PARTS[1];
    is_whole(&setup, &disk.restart());
}
