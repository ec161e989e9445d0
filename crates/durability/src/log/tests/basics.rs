//! What is written is found again, by whatever number of logs.

use std::io::ErrorKind;
use std::time::Duration;

use pando_sync::{LogEpoch, Microseconds, Milliseconds};

use super::harness::*;
use crate::disk::{Disk, RealDisk};
use crate::limits::LATE;
use crate::log::{Due, LogError, LogState, measure_sync};

#[test]
fn everything_is_found_again_whatever_the_number_of_logs_was() {
    let (mut disk, mut model) = (disk(), Model::default());
    for (round, logs) in [1, 4, 2, 3, 1].into_iter().enumerate() {
        let server = run(&as_disk(&disk), &mut model, logs, round as u64, 20).unwrap();
        if round % 2 == 0 {
            server.log.close().unwrap();
        }
        drop(server);
        disk = disk.crash(0);
        let found = recover(&as_disk(&disk), &model).unwrap();
        model.verdict(&found).unwrap();
        assert!(found.cut.torn().is_empty());
    }
    assert!(model.epochs.len() > 50);
}

#[test]
fn short_calls_and_synced_files_make_no_difference() {
    for seed in 1..20 {
        let (disk, mut model) = (disk(), Model::default());
        disk.set_short_calls(Some(seed));
        disk.set_writes_through(seed % 2 == 0);
        let server = run(&as_disk(&disk), &mut model, 2, seed, 20).unwrap();
        assert_eq!(server.log.state(), LogState::Open);
        assert_eq!(model.acknowledged + 1, server.epoch, "seed {seed}");
        let found = recover(&as_disk(&disk.crash(0)), &model).unwrap();
        model.verdict(&found).unwrap();
    }
}

#[test]
fn a_disk_that_does_not_keep_up_is_late() {
    let (disk, mut model) = (disk(), Model::default());
    let mut server = run(&as_disk(&disk), &mut model, 1, 1, 0).unwrap();
    let epoch = server.epoch;
    let (log, session) = (&server.log, &mut server.sessions[0]);
    let mut write = |epoch: u64, now: u64| {
        write_group(session, epoch, 0..1, 1, 10);
        session.end_group(LogEpoch(epoch));
        session.note_write(|| Microseconds(now));
        session.hand_over();
    };
    let is_late_after = |since: u64| {
        let late = Microseconds(since) + LATE.into();
        let is_oldest = log.oldest_write() == Some(Microseconds(since));
        is_oldest && !log.is_late(late) && log.is_late(late + Microseconds(1))
    };
    assert!(!log.is_late(Microseconds::MAX), "nothing is on its way");
    // LE5 late-is-told: the first write counts, whether its epoch is open or closed, and whenever
    // that was.
    write(epoch, 5000);
    write(epoch, 4000);
    assert!(is_late_after(5000), "open");
    let first = log.seal(LogEpoch(epoch), Milliseconds(0));
    assert!(is_late_after(5000), "closed");
    write(epoch + 1, 6000);
    assert!(is_late_after(5000), "the next one is open");
    first.flush();
    assert!(is_late_after(6000), "only what is open is left");
    let second = log.seal(LogEpoch(epoch + 1), Milliseconds(0));
    let third = log.seal(LogEpoch(epoch + 2), Milliseconds(0));
    assert!(is_late_after(6000), "nothing was written in the last one");
    third.flush();
    second.flush();
    assert!(!log.is_late(Microseconds::MAX), "it is durable");
    assert_eq!(log.oldest_write(), None);
}

#[test]
fn segments_are_recycled_and_their_old_bytes_are_not_found() {
    let (disk, mut model) = (disk(), Model::default());
    let server = run(&as_disk(&disk), &mut model, 1, 3, 400).unwrap();
    let statistics = server.log.statistics();
    assert!(statistics.written_bytes > 20 * 16 * 1024, "{statistics:?}");
    let files = disk.files().len();
    assert!(files < 24, "{files} files: {statistics:?}");
    let found = recover(&as_disk(&disk.crash(0)), &model).unwrap();
    model.verdict(&found).unwrap();
    assert!(model.from > 380);
}

#[test]
fn free_files_that_nobody_needs_are_removed_at_a_start() {
    let (disk, mut model) = (disk(), Model::default());
    for number in 0..30 {
        let name = format!("free-00000001-{number:08x}.pando");
        disk.put(&directories()[number % 2].join(name), &[0; 16 * 1024]);
    }
    drop(run(&as_disk(&disk), &mut model, 1, 1, 3).unwrap());
    let free = disk.files().len() - log_files(&disk).len();
    assert!(free <= crate::limits::FREE_FILES_MAX, "{free}");
}

#[test]
fn an_epoch_without_writes_is_durable_at_once_and_costs_nothing() {
    let disk = disk();
    let mut model = Model::default();
    let mut server = run(&as_disk(&disk), &mut model, 2, 1, 0).unwrap();
    let calls = disk.call_count();
    assert!(!server.log.want(LogEpoch(1)));
    assert_eq!(
        server.log.wait_until_due(Duration::from_mins(1)),
        Due::Wanted
    );
    server.tick(&mut model);
    assert_eq!(server.log.durable(), LogEpoch(1));
    assert!(server.log.want(LogEpoch(1)));
    assert_eq!(disk.call_count(), calls);
    assert_eq!(server.log.wait_until_due(Duration::ZERO), Due::Elapsed);
    server.log.close().unwrap();
    assert_eq!(
        server.log.wait_until_due(Duration::from_mins(1)),
        Due::Stopped
    );
}

#[test]
#[should_panic(expected = "LQ2")]
fn lq2_nothing_is_handed_over_for_a_closed_epoch() {
    let mut model = Model::default();
    let mut server = run(&as_disk(&disk()), &mut model, 1, 1, 3).unwrap();
    server.log.close_epoch(LogEpoch(9), Milliseconds(0));
    model.write(&mut server.sessions[0], 9, 1, 10);
    server.sessions[0].hand_over();
}

#[test]
fn files_of_others_are_refused() {
    let (disk, mut model) = (disk(), Model::default());
    drop(run(&as_disk(&disk), &mut model, 2, 1, 10).unwrap());
    let read = |disk: &crate::disk::SimulatedDisk| recover(&as_disk(disk), &model).unwrap_err();
    let files = log_files(&disk);
    let (first, last) = (&files[0].0, &files[files.len() - 1].0);

    // Exchanged files.
    let (left, right) = (disk.contents(first).unwrap(), disk.contents(last).unwrap());
    let exchanged = disk.copy();
    exchanged.put(first, &right);
    exchanged.put(last, &left);
    let error = read(&exchanged);
    assert!(error.to_string().contains("renamed"), "{error}");

    // A file of another database.
    let (other, mut others) = (super::harness::disk(), Model::default());
    let found = recover(&as_disk(&other), &others).unwrap();
    let mut options = options(1);
    options.identity = 1;
    let mut server = Server::start(&as_disk(&other), options.clone(), &found.cut, 0).unwrap();
    others.write(&mut server.sessions[0], server.epoch, 1, 1);
    server.tick(&mut others);
    let found = recover(&as_disk(&other), &others).unwrap();
    options.identity = 2;
    let error = Server::start(&as_disk(&other), options, &found.cut, 0)
        .err()
        .unwrap();
    assert!(matches!(error, LogError::Foreign { .. }), "{error}");
    let mixed = disk.copy();
    let foreign = &log_files(&other)[0].0;
    let place = foreign.with_file_name("log-0007-00000001-00000000.pando");
    mixed.put(&place, &other.contents(foreign).unwrap());
    assert!(read(&mixed).to_string().contains("renamed"));

    // The same segment twice, in two directories.
    let twice = disk.copy();
    let place = directories()[1].join(first.file_name().unwrap());
    twice.put(&place, &disk.contents(first).unwrap());
    assert!(
        read(&twice).to_string().contains("another directory"),
        "{}",
        read(&twice)
    );

    // Emptied.
    let emptied = disk.copy();
    emptied.remove(last).unwrap();
    emptied.put(last, b"");
    assert!(matches!(read(&emptied), LogError::Damaged { .. }));
}

#[test]
fn a_missing_directory_is_noticed() {
    let (disk, mut model) = (disk(), Model::default());
    let mut server = run(&as_disk(&disk), &mut model, 2, 1, 6).unwrap();
    for session in 0..2 {
        model.write(&mut server.sessions[session], server.epoch, 1, 100);
    }
    server.tick(&mut model);
    model.write(&mut server.sessions[0], server.epoch, 1, 100);
    server.tick(&mut model);
    drop(server);
    for (path, _) in log_files(&disk) {
        if path.starts_with(&directories()[1]) {
            disk.remove(&path).unwrap();
        }
    }
    let error = recover(&as_disk(&disk), &model).unwrap_err();
    assert!(matches!(error, LogError::Missing { log: 1, .. }), "{error}");
    assert!(error.to_string().contains("--log-dir"), "{error}");
}

#[test]
fn what_a_sync_costs_is_measured_and_leaves_nothing_behind() {
    let directory = std::env::temp_dir().join(format!("pando-sync-cost-{}", std::process::id()));
    RealDisk.create_directory(&directory).unwrap();
    assert!(measure_sync(&RealDisk, &directory).unwrap() > Duration::ZERO);
    assert!(RealDisk.list(&directory).unwrap().is_empty());
    std::fs::remove_dir_all(&directory).unwrap();
    let error = measure_sync(&RealDisk, &directory).unwrap_err();
    let LogError::Io { error, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(error.kind(), ErrorKind::NotFound);
}
