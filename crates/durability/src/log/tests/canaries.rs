//! Planted bugs: each must make the checks of this directory fail.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use pando_sync::LogEpoch;

use super::harness::*;
use crate::disk::{Access, CallKind, Disk, DiskFile, Fault, Room, SimulatedDisk};
use crate::log::{LogError, WaveSize};

/// What the log would do wrong, planted below it, in how it uses the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// Nothing: the checks hold.
    None,
    /// Acknowledges before the sync: it never happens.
    SkipSync,
    /// Forgets to sync directories.
    SkipDirectorySync,
    /// Tries a failed sync again, and believes it.
    RetrySync,
}

#[derive(Clone, Debug)]
struct LyingDisk {
    disk: SimulatedDisk,
    lie: Lie,
}

#[derive(Debug)]
struct LyingFile {
    file: Box<dyn DiskFile>,
    lie: Lie,
}

impl LyingDisk {
    fn file(&self, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(LyingFile {
            file,
            lie: self.lie,
        })
    }
}

impl Disk for LyingDisk {
    fn create(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.file(self.disk.create(path, access)?))
    }

    fn open(&self, path: &Path, access: Access) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.file(self.disk.open(path, access)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<String>> {
        self.disk.list(directory)
    }

    fn create_directory(&self, directory: &Path) -> io::Result<()> {
        self.disk.create_directory(directory)
    }

    fn sync_directory(&self, directory: &Path) -> io::Result<()> {
        if self.lie == Lie::SkipDirectorySync {
            return Ok(());
        }
        self.disk.sync_directory(directory)
    }

    fn room(&self, directory: &Path) -> io::Result<Room> {
        self.disk.room(directory)
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskFile>>> {
        self.disk.try_lock(path)
    }
}

impl DiskFile for LyingFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(bytes, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        match self.lie {
            Lie::SkipSync => Ok(()),
            Lie::RetrySync => self.file.sync().or_else(|_| self.file.sync()),
            Lie::None | Lie::SkipDirectorySync => self.file.sync(),
        }
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.file.allocate(bytes)
    }

    fn bytes(&self) -> io::Result<u64> {
        self.file.bytes()
    }

    fn writes_through(&self) -> bool {
        self.file.writes_through()
    }
}

/// Whether recovery from what a crash leaves is as it should be.
fn holds(disk: &SimulatedDisk, model: &Model) -> bool {
    (0..8).all(|crash| {
        let after = disk.copy().crash(crash);
        match recover(&as_disk(&after), model) {
            Ok(found) => model.verdict(&found).is_ok(),
            Err(LogError::Io { error, .. }) => panic!("{error}"),
            Err(_) => false,
        }
    })
}

/// Whether the checks hold over a lying disk, with a fault at each call or without any.
fn holds_over(lie: Lie, fault: Option<Fault>) -> bool {
    for seed in 0..3 {
        for call in 0..60 {
            let (disk, mut model) = (disk(), Model::default());
            disk.set_writes_through(false);
            if let Some(fault) = fault {
                disk.fail_at(call, fault);
            }
            let lying: Arc<dyn Disk> = Arc::new(LyingDisk {
                disk: disk.clone(),
                lie,
            });
            let _ = run(&lying, &mut model, 2, seed, 6);
            if !holds(&disk, &model) {
                return false;
            }
            let hit = disk.calls().get(call).map(|call| call.kind);
            if fault.is_none() || hit.is_none() || hit == Some(CallKind::Rename) {
                break;
            }
        }
    }
    true
}

#[test]
fn canary_lies_about_the_disk() {
    assert!(holds_over(Lie::None, None));
    assert!(
        !holds_over(Lie::SkipSync, None),
        "acknowledged before the sync"
    );
    assert!(
        !holds_over(Lie::SkipDirectorySync, None),
        "directories are not synced"
    );
    assert!(holds_over(Lie::None, Some(Fault::SyncTrap)));
    assert!(
        !holds_over(Lie::RetrySync, Some(Fault::SyncTrap)),
        "a failed sync is retried"
    );
}

/// What a process has given to the system outlives its kill, so that a kill shows no missing sync,
/// of a real server neither: only the end of the power does.
#[test]
fn a_kill_cannot_show_a_missing_sync_and_a_power_loss_does() {
    let (disk, mut model) = (disk(), Model::default());
    disk.set_writes_through(false);
    let lying: Arc<dyn Disk> = Arc::new(LyingDisk {
        disk: disk.clone(),
        lie: Lie::SkipSync,
    });
    drop(run(&lying, &mut model, 2, 1, 6).unwrap());
    let killed = recover(&as_disk(&disk.copy().restart()), &model).unwrap();
    model.verdict(&killed).unwrap();
    assert!(!holds(&disk, &model));
}

#[test]
fn canary_an_acknowledged_write_is_skipped() {
    let (disk, mut model) = (disk(), Model::default());
    let mut server = run(&as_disk(&disk), &mut model, 2, 1, 3).unwrap();
    let epoch = server.epoch;
    model.write(&mut server.sessions[0], epoch, 1, 10);
    // The session is closed without handing over.
    server.sessions.remove(0);
    server.tick(&mut model);
    assert_eq!(model.acknowledged, epoch);
    assert!(!holds(&disk, &model));
}

#[test]
fn canary_a_group_is_split_between_epochs() {
    let (disk, mut model) = (disk(), Model::default());
    let mut server = run(&as_disk(&disk), &mut model, 1, 1, 3).unwrap();
    let (epoch, group) = (server.epoch, 1000);
    model.epochs.entry(epoch).or_default().insert(group, 2);
    write_group(&mut server.sessions[0], group, 0..1, 2, 10);
    server.sessions[0].end_group(LogEpoch(epoch));
    server.tick(&mut model);
    write_group(&mut server.sessions[0], group, 1..2, 2, 10);
    server.sessions[0].end_group(LogEpoch(epoch + 1));
    server.tick(&mut model);
    assert!(!holds(&disk, &model));
}

#[test]
fn canary_the_cutoff_is_too_high() {
    // The power ends after one of two logs was written: the epoch is in that one alone.
    let caught = (0..20).filter(|after| {
        let (disk, mut model) = (disk(), Model::default());
        let mut server = run(&as_disk(&disk), &mut model, 2, 1, 3).unwrap();
        let epoch = server.epoch;
        for session in 0..2 {
            model.write(&mut server.sessions[session], epoch, 2, 10);
        }
        disk.fail_at(disk.call_count() + after, Fault::PowerLoss);
        server.tick(&mut model);
        let disk = as_disk(&disk.crash(0));
        let found = recover(&disk, &model).unwrap();
        model.verdict(&found).unwrap();
        let widened = read(found.cut.widened(), model.from).unwrap();
        model.verdict(&widened).is_err()
    });
    assert!(caught.count() > 0);
}

#[test]
fn canary_a_group_is_read_in_two_pieces() {
    let noticed = (0..20).any(|seed| {
        let (disk, mut model) = (as_disk(&disk()), Model::default());
        drop(run(&disk, &mut model, 1, seed, 12).expect("the disk works"));
        let cut = || {
            let scan = scan(&disk).expect("the disk works");
            let cut = scan.cut(LogEpoch(model.from), LogEpoch(model.written));
            cut.expect("the log is whole")
        };
        let size = WaveSize {
            wave_bytes: 1,
            piece_bytes: 1,
        };
        let whole = read_waves(&cut(), size).expect("the disk works");
        let torn = catch_unwind(AssertUnwindSafe(|| read_waves(&cut().torn_apart(), size)));
        let torn = torn.ok().map(|read| read.expect("the disk works"));
        torn != Some(whole)
    });
    assert!(noticed, "LV2");
}
