//! Branches in a database on disk: the first one is what the log and checkpoints have.

use super::{CheckpointOptions, START_MS, Setup, Shell, SimulatedDisk};
use crate::EngineKind;

fn setup() -> Setup {
    Setup {
        engine: EngineKind::Minuet,
        databases: 2,
        ..Setup::default()
    }
}

/// A database with a branch that has other keys.
fn branched(disk: &SimulatedDisk) -> (Shell, Shell) {
    let mut main = setup().open(disk).expect("the disk is empty");
    main.check(&[("MSET a 1 b 1 c 1", "+OK"), ("HSET h f 1", ":1")]);
    let made = format!("*3 $5 trial :{START_MS} :0");
    main.check(&[("BRANCH CREATE trial", &made)]);
    main.database.end_epoch();
    let mut trial = main.connect();
    trial.check(&[
        ("BRANCH USE trial", "+OK"),
        ("MSET a 2 b 2 new 2", "+OK"),
        ("DEL c", ":1"),
        ("HSET h f 2", ":0"),
        ("SELECT 1", "+OK"),
        ("SET other 2 PX 9", "+OK"),
        ("FLUSHDB", "+OK"),
        ("SET more 2", "+OK"),
        ("SELECT 0", "+OK"),
        ("SWAPDB 0 1", "+OK"),
        ("SWAPDB 1 0", "+OK"),
    ]);
    (main, trial)
}

fn written(shell: &Shell) -> u64 {
    shell.database.end_epoch();
    let statistics = shell.database.log_statistics();
    statistics.expect("there is a log").written_bytes
}

/// What is written on a branch leaves no record, nor an entry in a checkpoint.
#[test]
fn a_branch_ends_with_the_process() {
    let disk = SimulatedDisk::new();
    let (mut main, mut trial) = branched(&disk);
    let before = written(&main);
    let empty = written(&main) - before;
    trial.check(&[("SET large value", "+OK"), ("RPUSH list a", ":1")]);
    let after = written(&main) - before - empty;
    assert!(
        after <= empty,
        "{after} bytes of an epoch without records of {empty}"
    );
    main.check(&[(
        "BRANCH MAIN trial",
        "-ERR branches end with the server, and this database is kept on disk: new connections \
         would lose what they write",
    )]);
    let report = main.database.checkpoint(&CheckpointOptions::default());
    assert_eq!(report.expect("the disk works").entries, 4);
    drop((trial, main));
    let mut main = setup().open(&disk.restart()).expect("the disk is whole");
    main.check(&[
        ("MGET a b c new", "*4 $1 1 $1 1 $1 1 $-1"),
        ("DBSIZE", ":4"),
        ("BRANCH LIST", &format!("*1 *3 $4 main :{START_MS} :1")),
        (
            "BRANCH CREATE trial",
            &format!("*3 $5 trial :{START_MS} :0"),
        ),
    ]);
}

/// What is merged is recovered as a whole, or not at all.
#[test]
fn a_merge_is_one_group() {
    for is_durable in [false, true] {
        let disk = SimulatedDisk::new();
        let (mut main, trial) = branched(&disk);
        // The database that was emptied on the branch has keys there alone.
        let mut emptied = main.connect();
        emptied.check(&[
            ("BRANCH USE trial", "+OK"),
            ("SELECT 1", "+OK"),
            ("DEL more", ":1"),
        ]);
        let merged = "*6 $6 merged :5 $9 conflicts :0 $4 keys *0";
        main.check(&[("BRANCH MERGE trial INTO MAIN", merged)]);
        if is_durable {
            main.database.end_epoch();
        }
        let crashed = disk.crash(0);
        drop((trial, emptied, main));
        let mut main = setup().open(&crashed).expect("the disk is whole");
        let expected: &[(&str, &str)] = if is_durable {
            &[
                ("MGET a b c new", "*4 $1 2 $1 2 $-1 $1 2"),
                ("HGET h f", "$1 2"),
            ]
        } else {
            &[
                ("MGET a b c new", "*4 $1 1 $1 1 $1 1 $-1"),
                ("HGET h f", "$1 1"),
            ]
        };
        main.check(expected);
    }
}
