//! What a follower reads back from the files is what was written, or it is told that it is gone.

use std::sync::Arc;

use pando_sync::LogEpoch;

use super::faults::check_crashes;
use super::harness::*;
use crate::disk::{Disk, SimulatedDisk};
use crate::log::{Log, records};

/// The epochs behind `after`, and what each has; `None`: they are gone.
fn behind(log: &Log, after: u64) -> Option<Epochs> {
    let mut filed = log.epochs_behind(LogEpoch(after)).ok()?;
    if filed.start() != LogEpoch(after) {
        return None;
    }
    let mut found = Epochs::new();
    let mut previous = LogEpoch(after);
    while let Some(epoch) = filed.next_epoch().ok()? {
        assert_eq!(epoch.previous, previous, "LA1");
        assert!(epoch.wall_ms.0 > 1000 && !epoch.groups.is_empty());
        previous = epoch.epoch;
        assert_eq!(filed.start(), previous);
        let groups = found.entry(epoch.epoch.0).or_default();
        assert!(records(&epoch.groups, |bytes| {
            let (number, records) = parse_group(bytes).expect("a whole group");
            groups.insert(number, records).is_none()
        }));
    }
    Some(found)
}

fn written(model: &Model, after: u64, until: u64) -> Epochs {
    let epochs = model.epochs.range(after + 1..);
    let epochs = epochs.take_while(|(epoch, _)| **epoch <= until);
    let counts = epochs.filter(|(epoch, _)| !model.dropped.contains(epoch));
    counts
        .map(|(epoch, groups)| (*epoch, groups.clone()))
        .collect()
}

#[test]
fn a_follower_gets_every_epoch_or_is_told_that_they_are_gone() {
    let (mut disk, mut model) = (disk(), Model::default());
    let mut gone = 0;
    for (round, logs) in [1, 3, 2, 4, 2, 3].into_iter().enumerate() {
        let mut server = run(&as_disk(&disk), &mut model, logs, round as u64, 33).unwrap();
        let until = server.log.durable().0;
        let known: Vec<u64> = model.epochs.keys().copied().collect();
        for after in known.into_iter().filter(|&epoch| epoch <= until) {
            if let Some(found) = behind(&server.log, after) {
                assert_eq!(found, written(&model, after, until), "{after}");
            } else {
                assert!(after < model.from, "{after}: it was not recycled");
                gone += 1;
            }
        }
        assert!(behind(&server.log, until + 1).is_none(), "it is to come");
        // A torn epoch, which the next start leaves out.
        let epoch = server.epoch;
        model.write(&mut server.sessions[0], epoch, 2, 50);
        drop(server);
        disk = disk.crash(round as u64);
    }
    assert!(gone > 20, "{gone} positions were recycled");
}

/// The canary: the loss of any file is noticed.
#[test]
fn a_lost_segment_is_never_passed_over() {
    let (disk, mut model) = (disk(), Model::default());
    let server = run(&as_disk(&disk), &mut model, 3, 7, 6).unwrap();
    let until = server.log.durable().0;
    let all = written(&model, 0, until);
    assert_eq!(behind(&server.log, 0), Some(all.clone()));
    let files = log_files(&disk);
    assert!(files.len() > 3);
    let mut missed = 0;
    for (path, _) in files {
        let bytes = disk.contents(&path).expect("it is there");
        disk.remove(&path).unwrap();
        match behind(&server.log, 0) {
            None => missed += 1,
            found => assert_eq!(found, Some(all.clone()), "nothing was in it"),
        }
        disk.put(&path, &bytes);
    }
    assert!(missed >= 3, "{missed}");
}

#[test]
fn a_follower_reads_while_others_write() {
    let disk: Arc<dyn Disk> = Arc::new(SimulatedDisk::clone(&disk()));
    let mut model = Model::default();
    let mut server = run(&disk, &mut model, 3, 11, 0).unwrap();
    let log = Arc::clone(&server.log);
    let reader = std::thread::spawn(move || {
        let (mut read, mut rounds) = (0, 0);
        while rounds < 100 {
            let until = log.durable().0;
            let found = behind(&log, 0).expect("nothing is recycled");
            assert!(found.len() >= read && (until == 0 || !found.is_empty()));
            read = found.len();
            rounds += 1;
        }
    });
    for _ in 0..150 {
        for session in 0..3 {
            let epoch = server.epoch;
            model.write(&mut server.sessions[session], epoch, 2, 700);
        }
        server.tick(&mut model);
    }
    reader.join().expect("every epoch was whole");
    let until = server.log.durable().0;
    assert_eq!(behind(&server.log, 0), Some(written(&model, 0, until)));
}

/// Checkpoints make all but the present segment obsolete. Followers find the newest of them.
#[test]
fn obsolete_segments_are_held_up_to_a_bound() {
    const HELD: u64 = 4;
    let (disk, mut model) = (disk(), Model::default());
    let mut server = run(&as_disk(&disk), &mut model, 1, 5, 0).unwrap();
    server.log.set_hold(HELD * SEGMENT_BYTES);
    let mut gone = 0;
    for round in 0..60 {
        let epoch = server.epoch;
        model.write(&mut server.sessions[0], epoch, 2, 1000);
        server.tick(&mut model);
        let until = server.log.durable().0;
        if round % 10 == 9 {
            model.checkpoint(&server.log, server.epoch);
            server
                .log
                .recycle_below(LogEpoch(server.epoch))
                .expect("it recycles");
            let found = |after: &u64| behind(&server.log, *after).is_some();
            let oldest = (0..=until).find(found).expect("something is kept");
            let all = written(&model, oldest, until);
            assert_eq!(behind(&server.log, oldest), Some(all));
            let held = server.log.statistics().held_bytes;
            assert!(held <= HELD * SEGMENT_BYTES, "{held}");
            assert!(oldest + 9 < until && held > 0, "{oldest} of {until}");
            gone += usize::from(oldest > 0);
            check_crashes(&disk, &model, "held");
        }
    }
    assert!(gone > 2, "{gone}");
    server.log.set_hold(0);
    server.log.recycle_below(LogEpoch::NONE).expect("all go");
    assert_eq!(server.log.statistics().held_bytes, 0);
    assert!(behind(&server.log, 0).is_none());
}

/// What is held is space of the log.
#[test]
fn a_full_disk_takes_what_is_held() {
    let (disk, mut model) = (disk(), Model::default());
    let mut server = run(&as_disk(&disk), &mut model, 2, 5, 0).unwrap();
    server.log.set_hold(u64::MAX);
    disk.set_capacity(Some(12 * SEGMENT_BYTES));
    for round in 0..200 {
        for session in 0..2 {
            let epoch = server.epoch;
            model.write(&mut server.sessions[session], epoch, 2, 1000);
        }
        server.tick(&mut model);
        assert!(server.log.is_open(), "{round}: {:?}", server.log.state());
        if round % 10 == 9 {
            model.checkpoint(&server.log, server.epoch);
            let recycled = server.log.recycle_below(LogEpoch(server.epoch));
            recycled.expect("it recycles");
            assert!(server.log.statistics().held_bytes > 0);
            check_crashes(&disk, &model, "held");
        }
    }
}
