//! Bits that flip at rest, files that are cut or gone: refused, or of no account; never served.

use std::path::PathBuf;

use super::harness::*;
use crate::disk::{CallKind, Disk, Fault, SimulatedDisk};
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

#[test]
fn a_torn_tail_is_cut_off_whatever_is_in_it() {
    // The power ends in the last write, of which everything reaches the disk.
    let (disk, mut model) = (disk(), Model::default());
    let mut server = run(&as_disk(&disk), &mut model, 1, 6, 5).unwrap();
    let last = disk
        .calls()
        .iter()
        .rposition(|call| call.kind == CallKind::Write)
        .unwrap();
    let path = disk.calls()[last].path.clone();
    let before = scan(&as_disk(&disk.copy()))
        .unwrap()
        .segments()
        .last()
        .unwrap()
        .end;
    disk.fail_at(disk.call_count(), Fault::PowerLoss);
    let epoch = server.epoch;
    model.write(&mut server.sessions[0], epoch, 3, 100);
    server.tick(&mut model);
    assert!(model.acknowledged < epoch);
    let disk = disk.crash(1);
    let found = recover(&as_disk(&disk), &model).unwrap();
    assert_eq!(found.cut.cutoff(), epoch, "whole, so it counts");
    let from = before.next_multiple_of(4096);
    let mut torn = 0;
    for offset in (from..from + 4096).step_by(5) {
        disk.flip(&path, offset, 3);
        let found = recover(&as_disk(&disk), &model).unwrap();
        model.verdict(&found).unwrap();
        torn += usize::from(found.cut.cutoff() < epoch);
        disk.flip(&path, offset, 3);
    }
    assert!((80..160).contains(&torn), "{torn}");
}

#[test]
fn files_may_be_cut_short_or_gone() {
    let (disk, model) = written(true, 2);
    let files: Vec<(PathBuf, u64)> = log_files(&disk);
    let mut refusals = 0;
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
        assert!(refused(&gone, &model, say), "{}", say());
    }
    assert!(refusals > files.len() * 3);
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
