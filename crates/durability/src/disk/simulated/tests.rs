//! The simulated disk fails as it is told to, and not otherwise.

use std::collections::BTreeSet;

use super::*;

const DIRECTORY: &str = "/data";

fn disk() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    disk.create_directory(Path::new(DIRECTORY)).unwrap();
    disk
}

fn path(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(name)
}

/// A file of four sectors of zeros whose name is durable.
fn prepared(disk: &SimulatedDisk) -> Box<dyn DiskFile> {
    let file = disk.create(&path("a"), Access::Write).unwrap();
    file.write_all_at(&[0; 2048], 0).unwrap();
    file.sync().unwrap();
    disk.sync_directory(Path::new(DIRECTORY)).unwrap();
    file
}

#[test]
fn what_is_synced_survives_and_what_is_pending_may_not() {
    let disk = disk();
    let file = prepared(&disk);
    file.write_all_at(&[1; 512], 0).unwrap();
    file.sync().unwrap();
    file.write_all_at(&[2; 1024], 512).unwrap();
    let mut found = BTreeSet::new();
    for seed in 0..64 {
        let bytes = disk.copy().crash(seed).contents(&path("a")).unwrap();
        assert_eq!((bytes[0], bytes[2047]), (1, 0), "seed {seed}");
        assert_eq!(bytes[512], bytes[1023], "a sector is not torn");
        found.insert((bytes[512], bytes[1024]));
    }
    assert_eq!(found, BTreeSet::from([(0, 0), (0, 2), (2, 0), (2, 2)]));
    assert_eq!(disk.restart().contents(&path("a")).unwrap()[1024], 2);
    assert!(file.sync().is_err(), "the old process is gone");
}

#[test]
fn names_are_lost_until_their_directory_is_synced() {
    let disk = disk();
    prepared(&disk);
    disk.create(&path("b"), Access::Write).unwrap();
    disk.rename(&path("a"), &path("c")).unwrap();
    let names = |disk: SimulatedDisk| disk.list(Path::new(DIRECTORY)).unwrap();
    assert_eq!(names(disk.copy().crash(0)), ["a"]);
    assert_eq!(names(disk.copy().crash(1)), ["b", "c"]);
    disk.sync_directory(Path::new(DIRECTORY)).unwrap();
    disk.remove(&path("b")).unwrap();
    assert_eq!(names(disk.copy().crash(0)), ["b", "c"]);
    assert_eq!(names(disk.copy().crash(1)), ["c"]);
}

#[test]
fn faults_hit_the_call_they_are_meant_for() {
    let disk = disk();
    let file = prepared(&disk);
    let next = disk.call_count();
    disk.fail_at(next, Fault::Error(ErrorKind::Other));
    disk.fail_at(next + 2, Fault::SyncTrap);
    disk.fail_at(next + 5, Fault::PowerLoss);
    file.write_at(&[1; 512], 0).unwrap_err();
    file.write_all_at(&[2; 512], 512).unwrap();
    file.sync().unwrap_err();
    file.sync().unwrap();
    let mut byte = [9];
    file.read_at(&mut byte, 512).unwrap();
    assert_eq!(
        byte,
        [0],
        "the trap: the second sync says yes, and the old bytes are back"
    );
    file.write_at(&[3; 512], 1024).unwrap_err();
    assert!(!disk.has_power());
    assert_eq!(disk.crash(0).contents(&path("a")).unwrap()[1024], 0);
    assert_eq!(disk.crash(1).contents(&path("a")).unwrap()[1024], 3);
    let last = disk.calls().pop().unwrap();
    assert_eq!((last.kind, last.bytes), (CallKind::Write, 512));
}

#[test]
fn a_full_disk_refuses_what_needs_room() {
    let disk = disk();
    let file = prepared(&disk);
    disk.set_capacity(Some(4096));
    assert_eq!(
        file.allocate(8192).unwrap_err().kind(),
        ErrorKind::StorageFull
    );
    file.allocate(4096).unwrap();
    assert_eq!(
        file.write_at(&[1], 4096).unwrap_err().kind(),
        ErrorKind::StorageFull
    );
    file.write_all_at(&[1], 4095).unwrap();
    disk.set_capacity(None);
    file.write_all_at(&[1], 4096).unwrap();
    assert_eq!(disk.used(), 4097);
}

#[test]
fn calls_may_stop_early_and_writes_through_are_durable_and_aligned() {
    let disk = disk();
    disk.set_short_calls(Some(7));
    let file = disk.create(&path("b"), Access::WriteThrough).unwrap();
    disk.sync_directory(Path::new(DIRECTORY)).unwrap();
    assert!(file.writes_through());
    let mut buffer = crate::disk::AlignedBuffer::new(4 * BLOCK_BYTES);
    buffer.push(&[5; 4 * BLOCK_BYTES]);
    file.write_all_at(buffer.as_slice(), 0).unwrap();
    file.write_at(&buffer.as_slice()[1..], 0).unwrap_err();
    let mut read = vec![0; 4 * BLOCK_BYTES];
    assert_eq!(file.read_full_at(&mut read, 0).unwrap(), read.len());
    assert!(disk.call_count() > 5, "{:?}", disk.calls());
    let found = disk.crash(0);
    assert_eq!(found.contents(&path("b")).unwrap(), read);
    assert!(found.flip(&path("b"), 9, 0));
    assert_eq!(found.contents(&path("b")).unwrap()[9], 4);
}
