//! Bits that flip at rest, files that are cut or gone: refused, or of no account; never served.

use std::path::PathBuf;

use pando_sync::LogEpoch;

use super::harness::*;
use crate::disk::{Disk, Fault, SimulatedDisk};
use crate::limits::BLOCK_BYTES;
use crate::log::LogError;

fn stride() -> u64 {
    let stride = std::env::var("PANDO_FLIP_STRIDE").ok();
    stride.map_or(137, |stride| stride.parse().expect("a stride"))
}

/// A log of two incarnations, with long groups among them.
fn written(close: bool, logs: usize) -> (SimulatedDisk, Model) {
    let (mut disk, mut model) = (disk(), Model::default());
    for seed in 20..22 {
        let server = run(&as_disk(&disk), &mut model, logs, seed, 6).unwrap();
        if close {
            server.log.close().unwrap();
        }
        drop(server);
        disk = disk.crash(0);
    }
    (disk, model)
}

/// Recovery refuses, or finds everything that it must. `true`: it refused.
fn refused(disk: &SimulatedDisk, model: &Model, say: impl Fn() -> String) -> bool {
    match recover(&as_disk(disk), model) {
        Ok(found) => {
            let verdict = model.verdict(&found);
            verdict.unwrap_or_else(|wrong| panic!("{}: {wrong}", say()));
            false
        }
        Err(LogError::Damaged { .. } | LogError::Foreign { .. } | LogError::Missing { .. }) => true,
        Err(error) => panic!("{}: {error}", say()),
    }
}

fn flip_everywhere(disk: &SimulatedDisk, model: &Model) -> (usize, usize) {
    let (mut flips, mut refusals) = (0, 0);
    for (path, bytes) in log_files(disk) {
        let mut offset = 0;
        while offset < bytes {
            let bit = (offset / 3) as u8 % 8;
            assert!(disk.flip(&path, offset, bit));
            let say = || format!("{}, offset {offset}, bit {bit}", path.display());
            refusals += usize::from(refused(disk, model, say));
            assert!(disk.flip(&path, offset, bit));
            flips += 1;
            offset += stride();
        }
    }
    (flips, refusals)
}

#[test]
fn lc1_a_bit_may_flip_anywhere_after_a_clean_end() {
    for logs in 1..3 {
        let (disk, model) = written(true, logs);
        let (flips, refusals) = flip_everywhere(&disk, &model);
        assert!(refusals > flips / 10, "{refusals} of {flips}");
    }
}

#[test]
fn lc1_a_bit_may_flip_anywhere_after_a_crash() {
    let (disk, mut model) = written(false, 2);
    // Nothing after the last epoch says that it was durable.
    let mut newest = model
        .epochs
        .keys()
        .rev()
        .filter(|epoch| !model.dropped.contains(epoch));
    model.acknowledged = *newest.nth(1).unwrap();
    let (flips, refusals) = flip_everywhere(&disk, &model);
    assert!(refusals > flips / 10, "{refusals} of {flips}");
}

/// A log that was written and is at rest when the power ends.
fn rested(logs: usize) -> (SimulatedDisk, Model) {
    let (disk, mut model) = (disk(), Model::default());
    let server = run(&as_disk(&disk), &mut model, logs, 28, 13).unwrap();
    server.log.rest();
    drop(server);
    (disk.crash(0), model)
}

#[test]
fn lc1_a_bit_may_flip_anywhere_after_a_rest() {
    for logs in 1..3 {
        let (disk, model) = rested(logs);
        let (flips, refusals) = flip_everywhere(&disk, &model);
        assert!(refusals > flips / 20, "{refusals} of {flips}");
    }
}

/// The last segment goes, and nothing but the proof in the one before says that it was there.
#[test]
fn lw4_a_segment_that_is_gone_is_noticed_after_a_crash() {
    for logs in 1..3 {
        let (disk, model) = rested(logs);
        let mut refusals = 0;
        for (path, _) in log_files(&disk) {
            let gone = disk.copy();
            gone.remove(&path).unwrap();
            let say = || format!("{} gone", path.display());
            refusals += usize::from(refused(&gone, &model, say));
        }
        assert!(refusals > 1, "{refusals}");
    }
    // Without the proof it would not be noticed: the check above can tell.
    let (disk, model) = rested(1);
    let segments = scan(&as_disk(&disk.copy())).unwrap().segments().to_vec();
    let [.., before, last] = &segments[..] else {
        panic!("{} segments", segments.len());
    };
    disk.remove(&last.path).unwrap();
    let mut bytes = disk.contents(&before.path).unwrap();
    let proof = (before.end as usize - 1) / BLOCK_BYTES * BLOCK_BYTES;
    bytes[proof..proof + BLOCK_BYTES].fill(0);
    disk.put(&before.path, &bytes);
    let found = recover(&as_disk(&disk), &model).unwrap();
    model.verdict(&found).unwrap_err();
}

#[test]
fn a_rest_is_noted_once_and_where_something_was_written() {
    let (disk, mut model) = (disk(), Model::default());
    let found = recover(&as_disk(&disk), &model).unwrap();
    let mut server = Server::start(&as_disk(&disk), options(2), &found.cut, 0).unwrap();
    let writes = |server: &Server| server.log.statistics().writes;
    server.log.rest();
    assert_eq!(writes(&server), 0);
    let epoch = server.epoch;
    model.write(&mut server.sessions[0], epoch, 1, 10);
    server.log.rest();
    server.tick(&mut model);
    let before = writes(&server);
    for _ in 0..3 {
        server.log.rest();
        assert_eq!(writes(&server), before + 1, "the other log has no segment");
        server.tick(&mut model);
    }
}

#[test]
fn a_torn_tail_is_cut_off_whatever_is_in_it() {
    // The power ends in the last write, of which everything reaches the disk. There is room for it
    // in the last segment.
    let written = |seed| {
        let (disk, mut model) = (disk(), Model::default());
        let server = run(&as_disk(&disk), &mut model, 1, seed, 5).unwrap();
        let found = scan(&as_disk(&disk.copy())).unwrap();
        let last = found.segments().last()?.clone();
        (last.end + 3 * BLOCK_BYTES as u64 <= SEGMENT_BYTES).then_some((disk, model, server, last))
    };
    let (disk, mut model, mut server, last) = (0..20).find_map(written).expect("a segment");
    let (path, before) = (last.path, last.end);
    disk.fail_at(disk.call_count(), Fault::PowerLoss);
    let epoch = server.epoch;
    model.write(&mut server.sessions[0], epoch, 3, 100);
    server.tick(&mut model);
    assert!(model.acknowledged < epoch);
    let disk = disk.crash(1);
    let found = recover(&as_disk(&disk), &model).unwrap();
    assert_eq!(found.cut.cutoff(), LogEpoch(epoch), "whole, so it counts");
    let from = before.next_multiple_of(4096);
    let mut torn = 0;
    for offset in (from..from + 4096).step_by(5) {
        disk.flip(&path, offset, 3);
        let found = recover(&as_disk(&disk), &model).unwrap();
        model.verdict(&found).unwrap();
        torn += usize::from(found.cut.cutoff() < LogEpoch(epoch));
        disk.flip(&path, offset, 3);
    }
    assert!((80..160).contains(&torn), "{torn}");
}

#[test]
fn files_may_be_cut_short_or_gone() {
    let (disk, model) = written(true, 2);
    let files: Vec<(PathBuf, u64)> = log_files(&disk);
    let (mut refusals, mut gone_unnoticed) = (0, 0);
    for (path, bytes) in &files {
        let whole = disk.contents(path).unwrap();
        for end in (0..*bytes as usize).step_by(700) {
            let cut = disk.copy();
            cut.put(path, &whole[..end]);
            let say = || format!("{} cut to {end}", path.display());
            refusals += usize::from(refused(&cut, &model, say));
        }
        let gone = disk.copy();
        gone.remove(path).unwrap();
        let say = || format!("{} gone", path.display());
        gone_unnoticed += usize::from(!refused(&gone, &model, say));
    }
    assert!(refusals > files.len() * 3);
    // Those that hold a proof and nothing else.
    assert!(gone_unnoticed <= 3, "{gone_unnoticed} of {}", files.len());
}

#[test]
fn a_free_file_may_hold_anything() {
    let (disk, mut model) = written(true, 2);
    let files = disk.files();
    let segment = disk.contents(&log_files(&disk)[0].0).unwrap();
    for (path, _) in files {
        if path
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("free-")
        {
            disk.put(&path, &segment);
        }
    }
    let server = run(&as_disk(&disk), &mut model, 2, 33, 9).unwrap();
    server.log.close().unwrap();
    let found = recover(&as_disk(&disk.crash(0)), &model).unwrap();
    model.verdict(&found).unwrap();
}

#[test]
fn refusals_name_the_file_and_the_offset() {
    let (disk, model) = written(true, 1);
    let (path, _) = &log_files(&disk)[0];
    disk.flip(path, 4096 + 40, 0);
    let error = recover(&as_disk(&disk), &model).unwrap_err().to_string();
    let place = format!("{}: damaged at offset 4096", path.display());
    assert!(error.starts_with(&place), "{error}");
    assert!(error.contains("Restore the file"), "{error}");
}
