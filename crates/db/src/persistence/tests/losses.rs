//! Files that are gone, cut or exchanged as a whole, and what was told to be durable by others.

use pando_durability::disk::Fault as DiskFault;

use super::*;
use crate::durable::testing::{self, Fault};
use crate::persistence::{RecoveryError, check};

/// In the names of segments.
const SEGMENTS: &str = "/log-0";

const OPTIONS: fn() -> CheckpointOptions = CheckpointOptions::default;

fn files(disk: &SimulatedDisk, part: &str) -> Vec<PathBuf> {
    let files = disk.files().into_iter().map(|(path, _)| path);
    let of = |path: &PathBuf| path.to_string_lossy().contains(part);
    files.filter(of).collect()
}

fn refused(setup: &Setup, disk: &SimulatedDisk) -> RecoveryError {
    match setup.open(disk) {
        Err(OpenError::Recovery(error)) => *error,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was not refused"),
    }
}

fn is_sound(setup: &Setup, disk: &SimulatedDisk) -> bool {
    let report = check(&setup.durability(disk)).expect("nobody holds it");
    report.sound
}

/// Two checkpoints, the second of which saw a write, and `k` as of behind it.
fn two_checkpoints(setup: &Setup) -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    let mut shell = setup.open(&disk).expect("the disk is empty");
    shell.check(&[("SET k first", "+OK"), ("SET old x", "+OK")]);
    shell.database.checkpoint(&OPTIONS()).expect("it works");
    shell.check(&[("SET k second", "+OK")]);
    shell.database.end_epoch();
    shell.check(&[("SET k third", "+OK")]);
    shell.database.checkpoint(&OPTIONS()).expect("it works");
    shell.check(&[("SET k fourth", "+OK")]);
    shell.database.end_epoch();
    drop(shell);
    disk.crash(0)
}

/// Flips a bit of a file's last byte.
fn damage(disk: &SimulatedDisk, path: &Path) {
    let bytes = disk.contents(path).expect("it is there").len() as u64;
    damage_at(disk, path, bytes - 1);
}

fn damage_at(disk: &SimulatedDisk, path: &Path, offset: u64) {
    assert!(disk.flip(path, offset, 0));
}

/// Zeros in place of all frames.
fn empty_log(disk: &SimulatedDisk) {
    for path in files(disk, SEGMENTS) {
        let mut bytes = disk.contents(&path).expect("it is there");
        bytes[4096..].fill(0);
        disk.put(&path, &bytes);
    }
}

/// LC1 cutoff-covers-durable across checkpoints: the newer one knows what was durable, though it
/// cannot be used, or the log has lost even what it needs.
#[test]
fn what_a_newer_checkpoint_knows_is_not_forgotten() {
    let setup = Setup::default();
    for damaged in [false, true] {
        let disk = two_checkpoints(&setup);
        empty_log(&disk);
        if damaged {
            let parts = files(&disk, ".part");
            damage(&disk, &parts[1]);
        }
        assert!(!is_sound(&setup, &disk.copy()));
        let error = refused(&setup, &disk.copy()).to_string();
        assert!(
            error.contains(SEGMENTS) && error.contains("offset"),
            "{error}"
        );
        let older = testing::with(Fault::NewerManifestForgotten, || setup.open(&disk).is_ok());
        assert!(older, "what is known is what refuses, damaged: {damaged}");
    }
}

/// RC4 no-empty-beginning, for whoever follows the advice of the refusal.
#[test]
fn a_checkpoint_stands_alone_when_all_logs_were_removed() {
    let setup = Setup::default();
    let disk = two_checkpoints(&setup);
    for path in files(&disk, SEGMENTS) {
        disk.remove(&path).expect("it is there");
    }
    assert!(!is_sound(&setup, &disk.copy()));
    let mut disk = disk.restart();
    for round in 0..4_u64 {
        let mut shell = setup.open(&disk).expect("the checkpoint is whole");
        let recovery = shell.database.recovery().expect("it is on disk").clone();
        if round == 0 {
            assert!(recovery.notes[0].contains("no log"), "{recovery:?}");
            shell.check(&[("GET k", "$5 third")]);
        } else {
            let expected = format!("$1 {round}");
            shell.check(&[("GET k", &*expected)]);
        }
        shell.check(&[("GET old", "$1 x"), ("DBSIZE", ":2")]);
        let next = format!("SET k {}", round + 1);
        shell.check(&[(&next, "+OK")]);
        shell.database.end_epoch();
        assert!(shell.database.durable() >= shell.database.epochs.current().previous());
        if round == 2 {
            shell.database.checkpoint(&OPTIONS()).expect("it works");
        }
        drop(shell);
        disk = disk.crash(round % 2);
    }
}

/// The same, cut off at any call, before and after the first epoch of the new log is durable: what
/// the checkpoint knew of the old one refuses nothing.
#[test]
fn a_start_without_a_log_may_be_cut_off_anywhere() {
    let setup = Setup::default();
    let disk = two_checkpoints(&setup);
    for path in files(&disk, SEGMENTS) {
        disk.remove(&path).expect("it is there");
    }
    let disk = disk.crash(1);
    let work = |disk: &SimulatedDisk| {
        let mut shell = setup.open(disk).ok()?;
        // Refused, it leaves an epoch of nothing, which needs no disk.
        let taken = shell.line("SET k new") == "+OK";
        let epoch = shell.database.epochs.current();
        shell.database.end_epoch();
        let first = taken && shell.database.durable() >= epoch;
        shell.line("SET k newer");
        shell.database.end_epoch();
        Some(first)
    };
    for call in 0.. {
        let cut = disk.copy();
        cut.fail_at(call, DiskFault::PowerLoss);
        let acknowledged = work(&cut) == Some(true);
        for crash in 0..2 {
            let found = cut.copy().crash(crash);
            let shell = setup.open(&found);
            let mut shell = shell.unwrap_or_else(|error| panic!("call {call}: {error}"));
            let value = shell.line("GET k");
            assert!(
                value == "$5 newer" || value == "$3 new" || value == "$5 third" && !acknowledged,
                "call {call}, crash {crash}: {value}"
            );
            shell.check(&[("GET old", "$1 x"), ("DBSIZE", ":2")]);
            drop(shell);
            let found = found.crash(0);
            // The new log is not behind an older checkpoint.
            if acknowledged {
                damage(&found, &files(&found, ".part")[1]);
                assert!(setup.open(&found).is_err(), "call {call}, crash {crash}");
            }
        }
        if cut.call_count() <= call {
            assert!(acknowledged && call > 30, "{call}");
            break;
        }
    }
}

/// RC4 no-empty-beginning: where there was a checkpoint, no empty database begins.
#[test]
fn no_empty_database_begins_where_there_were_checkpoints() {
    let setup = Setup::default();
    for manifests in [true, false] {
        let disk = two_checkpoints(&setup);
        for path in files(&disk, SEGMENTS) {
            disk.remove(&path).expect("it is there");
        }
        for path in files(&disk, if manifests { ".manifest" } else { ".part" }) {
            damage(&disk, &path);
        }
        assert!(!is_sound(&setup, &disk.copy()));
        let error = refused(&setup, &disk);
        let is_one = matches!(
            error,
            RecoveryError::NoCheckpoint { .. } | RecoveryError::Log { .. }
        );
        assert!(is_one, "{error}");
        let text = error.to_string();
        assert!(
            text.contains("checkpoint-") && text.contains("offset"),
            "{text}"
        );
        assert!(text.contains("from a copy"), "{text}");
    }
}

/// RC6 parts-stay: what is left of a database whose manifests and log went stays until they are
/// back.
#[test]
fn parts_alone_are_refused_and_stay() {
    let setup = Setup::default();
    let whole = two_checkpoints(&setup);
    let parts = files(&whole, ".part");
    // The identity may have gone with them, and a log may be there that has nothing.
    for (logs, identity) in [(false, true), (false, false), (true, true)] {
        let disk = whole.copy();
        let mut lost = files(&disk, ".manifest");
        if logs {
            empty_log(&disk);
        } else {
            lost.extend(files(&disk, SEGMENTS));
        }
        if !identity {
            lost.extend(files(&disk, "identity"));
        }
        for path in &lost {
            disk.remove(path).expect("it is there");
        }
        let report = check(&setup.durability(&disk.restart())).expect("nobody holds it");
        assert!(!report.sound, "{report:?}");
        let disk = disk.restart();
        let error = refused(&setup, &disk);
        assert!(matches!(error, RecoveryError::PartsAlone { .. }), "{error}");
        let text = error.to_string();
        let name = parts[0].file_name().expect("a name").to_string_lossy();
        assert!(text.contains(&*name) && text.contains("manifest"), "{text}");
        assert!(report.findings.contains(&text), "{report:?}");
        assert_eq!(files(&disk, ".part"), parts);
        // What it says is to be done.
        let moved = disk.restart();
        for path in &parts {
            moved.remove(path).expect("it is there");
        }
        assert!(setup.open(&moved).is_ok());
        let disk = disk.restart();
        for path in lost.iter().chain(&files(&whole, SEGMENTS)) {
            disk.put(path, &whole.contents(path).expect("it is there"));
        }
        let mut shell = setup.open(&disk).expect("all of it is back");
        shell.check(&[("GET k", "$6 fourth"), ("GET old", "$1 x")]);
    }
}

/// RC6 parts-stay: what a checkpoint has left that was cut off goes, but not before the start has
/// succeeded.
#[test]
fn parts_beside_a_log_go_with_the_first_start_that_succeeds() {
    let setup = Setup::default();
    let disk = two_checkpoints(&setup);
    for path in files(&disk, ".manifest") {
        disk.remove(&path).expect("it is there");
    }
    let parts = files(&disk, ".part");
    let report = check(&setup.durability(&disk.restart())).expect("nobody holds it");
    let left = |line: &&String| line.contains("was not completed");
    let count = report.findings.iter().filter(left).count();
    assert!(report.sound && count == parts.len(), "{report:?}");
    let log = files(&disk, SEGMENTS);
    let bytes = disk.contents(&log[0]).expect("it is there");
    damage_at(&disk, &log[0], 20);
    refused(&setup, &disk.restart());
    assert_eq!(files(&disk, ".part"), parts, "the log can be brought back");
    disk.put(&log[0], &bytes);
    let disk = disk.restart();
    let mut shell = setup
        .open(&disk)
        .expect("the log is there from its beginning");
    shell.check(&[("GET k", "$6 fourth"), ("GET old", "$1 x")]);
    assert_eq!(files(&disk, ".part"), Vec::<PathBuf>::new());
}

/// A snapshot, or a volume that is mounted to be read.
#[test]
fn files_that_can_only_be_read_are_checked_and_opened() {
    let setup = Setup::default();
    for lost in ["", "/identity", ".lock", "/log-directories"] {
        let disk = two_checkpoints(&setup);
        for path in files(&disk, lost).into_iter().filter(|_| !lost.is_empty()) {
            disk.remove(&path).expect("it is there");
        }
        let disk = disk.restart();
        disk.set_read_only(true);
        let before = disk.files();
        let report = check(&setup.durability(&disk)).expect("nobody holds it");
        assert!(report.sound, "without {lost:?}: {report:?}");
        assert!(
            setup.open(&disk).is_err(),
            "a server cannot keep anything there"
        );
        let options = Options {
            databases: setup.databases,
            durability: Some(DurabilityOptions {
                read_only: true,
                ..setup.durability(&disk)
            }),
            ..Options::default()
        };
        let shell = Shell::on_disk(options, START_MS);
        let mut shell = shell.unwrap_or_else(|error| panic!("without {lost:?}: {error}"));
        shell.check(&[
            ("GET k", "$6 fourth"),
            ("GET old", "$1 x"),
            ("DBSIZE", ":2"),
        ]);
        assert!(!shell.database.is_durable());
        assert_eq!(disk.files(), before);
    }
}

/// A checkpoint that could not be used does not count as one of the two that are kept.
#[test]
fn a_damaged_checkpoint_is_not_kept_in_place_of_a_whole_one() {
    let setup = Setup::default();
    let disk = two_checkpoints(&setup);
    damage(&disk, &files(&disk, ".part")[1]);
    let mut shell = setup.open(&disk).expect("the older one is whole");
    shell.check(&[("GET k", "$6 fourth"), ("SET k fifth", "+OK")]);
    shell.database.checkpoint(&OPTIONS()).expect("it works");
    drop(shell);
    let disk = disk.crash(0);
    let parts = files(&disk, ".part");
    assert_eq!(parts.len(), 2, "{parts:?}");
    damage(&disk, &parts[1]);
    let mut shell = setup.open(&disk).expect("the oldest one is whole");
    shell.check(&[("GET k", "$5 fifth"), ("GET old", "$1 x")]);
}

/// A disk that is not mounted, or a directory that was emptied: not a word of it is in the log.
#[test]
fn a_directory_of_logs_that_shows_nothing_is_refused() {
    let mut setup = Setup::default();
    let disk = two_checkpoints(&setup);
    for path in files(&disk, "/log0/") {
        disk.remove(&path).expect("it is there");
    }
    assert!(!is_sound(&setup, &disk.copy()));
    for directories in [1, 0] {
        setup.directories = directories;
        let error = refused(&setup, &disk.restart());
        let RecoveryError::EmptyDirectory { path, noted, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!(path, Path::new("/log0"));
        assert!(error.to_string().contains("mounted"), "{error}");
        // What it says is to be done.
        let given_up = disk.restart();
        given_up.put(noted, b"");
        let shell = setup.open(&given_up);
        assert!(shell.is_ok(), "{:?}", shell.err());
    }
}

/// Logs that were moved, with the configuration.
#[test]
fn a_directory_of_logs_may_be_moved() {
    let mut setup = Setup::default();
    let disk = two_checkpoints(&setup);
    for path in files(&disk, "/log0/") {
        let moved = Path::new("/log1").join(path.file_name().expect("a name"));
        disk.put(&moved, &disk.contents(&path).expect("it is there"));
        disk.remove(&path).expect("it is there");
    }
    assert!(!is_sound(&setup, &disk.copy()));
    refused(&setup, &disk.restart());
    setup.directories = 2;
    assert!(is_sound(&setup, &disk.copy()));
    let mut shell = setup.open(&disk.restart()).expect("it is all there");
    shell.check(&[("GET k", "$6 fourth")]);
}

/// Whether the log's directory is noted, as the only one.
fn is_noted(disk: &SimulatedDisk) -> bool {
    let noted = disk.contents(Path::new("/data/log-directories.pando"));
    noted.is_some_and(|bytes| bytes == b"/log0\n")
}

/// A directory that the configuration names no more is looked at until nothing of the log is there.
#[test]
fn a_directory_of_logs_is_forgotten_when_its_segments_have_gone() {
    let mut setup = Setup::default();
    let mut disk = two_checkpoints(&setup);
    setup.directories = 0;
    for round in 0..2 {
        let mut shell = setup.open(&disk).expect("it is found where it was");
        shell.check(&[("GET k", "$6 fourth"), ("SET other 1", "+OK")]);
        assert!(round > 0 || is_noted(&disk));
        for _ in 0..2 {
            shell.database.checkpoint(&OPTIONS()).expect("it works");
        }
        drop(shell);
        disk = disk.crash(0);
        setup.logs = 1;
    }
    assert_eq!(files(&disk, "/log0/log-0"), Vec::<PathBuf>::new());
    drop(setup.open(&disk).expect("it is whole"));
    assert!(!is_noted(&disk));
    let disk = disk.restart();
    for path in files(&disk, "/log0/") {
        disk.remove(&path).expect("it is there");
    }
    let mut shell = setup.open(&disk).expect("nothing of it is needed");
    shell.check(&[("GET k", "$6 fourth"), ("GET other", "$1 1")]);
}

/// What `check` finds where the configuration names no directory of logs, and two databases.
#[test]
fn check_looks_where_a_server_would() {
    let mut setup = Setup::default();
    let disk = two_checkpoints(&setup);
    setup.directories = 0;
    let report = check(&setup.durability(&disk.copy())).expect("nobody holds it");
    assert!(report.sound, "{report:?}");
    assert!(
        report
            .findings
            .iter()
            .any(|line| line.contains("/log0/log-0"))
    );
    // The log of another database.
    let other = two_checkpoints(&Setup::default());
    let (mine, others) = (files(&disk, SEGMENTS), files(&other, SEGMENTS));
    for path in &mine {
        disk.remove(path).expect("it is there");
    }
    for path in others {
        disk.put(&path, &other.contents(&path).expect("it is there"));
    }
    assert!(!is_sound(&setup, &disk.copy()));
    let error = refused(&setup, &disk).to_string();
    assert!(error.contains("another database"), "{error}");
}

/// Segments and parts under each other's names.
#[test]
fn exchanged_files_are_refused() {
    let setup = Setup {
        logs: 2,
        directories: 2,
        ..Setup::default()
    };
    let disk = two_checkpoints(&setup);
    let mut shell = setup.open(&disk).expect("it is whole");
    shell.line("SET one 1");
    shell.connect().line("SET other 1");
    shell.database.end_epoch();
    drop(shell);
    let disk = disk.restart();
    let logs = files(&disk, SEGMENTS);
    let exchange = |one: &Path, other: &Path| {
        let exchanged = disk.copy();
        let bytes = |path| disk.contents(path).expect("it is there");
        exchanged.put(one, &bytes(other));
        exchanged.put(other, &bytes(one));
        exchanged
    };
    assert!(logs.len() > 1);
    let exchanged = exchange(&logs[0], &logs[1]);
    assert!(!is_sound(&setup, &exchanged.copy()));
    let error = refused(&setup, &exchanged).to_string();
    assert!(
        error.contains("renamed") && error.contains(SEGMENTS),
        "{error}"
    );
    for kind in [".part", ".manifest"] {
        let two = files(&disk, kind);
        let exchanged = exchange(&two[0], &two[1]);
        assert!(!is_sound(&setup, &exchanged.copy()));
        // Neither is what it is named, as if both were damaged; the log is there from the start.
        let mut shell = setup.open(&exchanged).expect("the log is whole");
        let recovery = shell.database.recovery().expect("it is on disk");
        assert_eq!(recovery.checkpoint, None);
        for note in &recovery.notes {
            assert!(note.contains(kind) && note.contains("offset"), "{note}");
        }
        shell.check(&[("GET k", "$6 fourth")]);
    }
    // A segment in another directory too.
    let twice = disk.copy();
    let again = Path::new("/data").join(logs[0].file_name().expect("a name"));
    twice.put(&again, &disk.contents(&logs[0]).expect("it is there"));
    let error = refused(&setup, &twice).to_string();
    assert!(error.contains("has the same segment"), "{error}");
}

/// Files that are none of ours, and a manifest that is none.
#[test]
fn strangers_among_the_files_do_no_harm() {
    let setup = Setup::default();
    let disk = two_checkpoints(&setup);
    for name in [
        "/data/checkpoint-00000000000000ff.part",
        "/data/checkpoint-xyz.manifest",
        "/data/log-.pando",
        "/data/free-zz.pando",
        "/data/notes.txt",
        "/data/identity.new",
        "/log0/lost+found",
        "/log0/log-0000-00000001.pando",
    ] {
        disk.put(Path::new(name), b"anything");
    }
    assert!(is_sound(&setup, &disk.copy()));
    let mut shell = setup.open(&disk).expect("they are none of ours");
    shell.check(&[("GET k", "$6 fourth")]);
    drop(shell);
    disk.put(
        Path::new("/data/checkpoint-ffffffffffffff00.manifest"),
        b"PANDOMAN\x01\0\0\0",
    );
    let mut shell = setup
        .open(&disk.restart())
        .expect("it is cut, so it counts for nothing");
    shell.check(&[("GET k", "$6 fourth")]);
    assert!(!shell.database.recovery().expect("on disk").notes.is_empty());
}
