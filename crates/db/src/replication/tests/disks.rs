//! A replica on a simulated disk whose power ends: what recovery finds is what the replica showed
//! at some moment, no earlier than the last that it called durable.

use pando_durability::disk::Fault as DiskFault;

use super::*;
use crate::LogEpoch;
use crate::commands::testing::START_MS;
use crate::durable::testing;
use crate::persistence::{CheckpointFailure, CheckpointOptions};

fn on_disk(disk: &SimulatedDisk, engine: EngineKind) -> Shell {
    let options = options_on(disk, engine);
    Shell::on_disk(options, START_MS).expect("what is on disk can be recovered")
}

/// A replica, and what it showed when.
struct Watched {
    pair: Pair,
    shown: Vec<(LogEpoch, Vec<String>)>,
    durable: LogEpoch,
    checkpoints: usize,
}

impl Watched {
    fn step(&mut self, random: &mut Rng) -> Result<(), ReplicationError> {
        let pair = &mut self.pair;
        match random.u32(0..100) {
            0..=39 => write(&mut pair.up, random),
            40..=49 => pair.up.database.end_epoch(),
            50..=59 => pair.down.database.end_epoch(),
            60..=75 => {
                pair.send();
            }
            76..=94 => {
                pair.deliver()?;
                let position = pair.replica.position().map(|position| position.epoch);
                let content = content(&mut pair.down);
                self.shown.push((position.unwrap_or_default(), content));
            }
            95 => pair.cut(),
            96 => match pair.down.database.checkpoint(&CheckpointOptions::default()) {
                Ok(_) => self.checkpoints += 1,
                Err(CheckpointFailure::Loading) => assert!(pair.replica.is_loading()),
                Err(_) => {}
            },
            _ => {
                let (known, _) = pair.replica.acknowledged();
                self.durable = self.durable.max(known.durable);
            }
        }
        Ok(())
    }
}

/// One run, with the end of power at this call of the disk; returns the calls, and whether the
/// replica had followed by then.
fn run(seed: u64, call: usize) -> (usize, bool) {
    let mut random = Rng::with_seed(seed);
    let engine = [EngineKind::Masstree, EngineKind::Mercury][seed as usize % 2];
    let disk = SimulatedDisk::new();
    let mut down = on_disk(&disk, engine);
    down.check(&[("SET own data", "+OK"), ("HSET own2 f v", ":1")]);
    down.database.end_epoch();
    let first = content(&mut down);
    disk.fail_at(disk.call_count() + call, DiskFault::PowerLoss);
    let up = shell(EngineKind::Masstree);
    let mut watched = Watched {
        pair: Pair::new(up, down),
        shown: vec![(LogEpoch::NONE, first)],
        durable: LogEpoch::NONE,
        checkpoints: 0,
    };
    if seed.is_multiple_of(3) {
        watched.pair.replica.apply_with(3);
    }
    watched.pair.replica.set_in_place(seed % 4 == 1);
    for _ in 0..400 {
        if watched.step(&mut random).is_err() || !disk.has_power() {
            break;
        }
    }
    let Watched {
        shown,
        durable,
        pair: Pair { up, .. },
        ..
    } = watched;
    let calls = disk.call_count();
    let mut down = on_disk(&disk.crash(seed ^ call as u64), engine);
    let found = content(&mut down);
    let floor = shown.iter().rposition(|(at, _)| *at == durable);
    let floor = floor.filter(|_| durable > LogEpoch::NONE).unwrap_or(0);
    let after = shown[floor..].iter().any(|(_, shown)| *shown == found);
    assert!(
        after,
        "seed {seed}, call {call}: {floor} of {}",
        shown.len()
    );
    // FW7 standing-is-logged: it goes on from there.
    let mut pair = Pair::new(up, down);
    pair.settle()
        .unwrap_or_else(|error| panic!("seed {seed}, call {call}: {error}"));
    let goes_on = pair.copies == 0;
    assert!(
        goes_on || durable == LogEpoch::NONE,
        "seed {seed}, call {call}"
    );
    assert_eq!(
        content(&mut pair.up),
        content(&mut pair.down),
        "seed {seed}, call {call}"
    );
    (calls, durable > LogEpoch::NONE)
}

/// FW4 log-has-copy, FW5 whole-epochs-shown.
#[test]
fn a_crash_of_a_replica_leaves_what_it_showed() {
    let mut followed = 0;
    for seed in 0..12 {
        let (calls, follows) = run(seed, usize::MAX >> 1);
        followed += usize::from(follows);
        let mut random = Rng::with_seed(seed);
        for _ in 0..4 {
            run(seed, random.usize(0..calls));
        }
    }
    assert!(followed > 6, "{followed} have followed");
}

/// FW4 log-has-copy, with its canary: a checkpoint does not know of trees that are being loaded.
#[test]
fn no_checkpoint_is_taken_while_a_copy_is_loaded() {
    for fault in [
        testing::Fault::Nothing,
        testing::Fault::CheckpointWhileLoading,
    ] {
        let disk = SimulatedDisk::new();
        let down = on_disk(&disk, EngineKind::Masstree);
        let mut pair = Pair::new(shell(EngineKind::Masstree), down);
        for key in 0..3000 {
            pair.up.line(&format!("SET k{key} {key}"));
        }
        for _ in 0..3 {
            assert!(pair.send());
            pair.deliver().expect("it loads");
        }
        pair.down.database.end_epoch();
        let options = CheckpointOptions::default();
        let taken = testing::with(fault, || pair.down.database.checkpoint(&options));
        assert_eq!(taken.is_ok(), fault != testing::Fault::Nothing);
        pair.settle().expect("it follows");
        pair.down.database.end_epoch();
        assert_eq!(
            pair.down.database.durable(),
            pair.down.database.closed_epoch()
        );
        let mut found = on_disk(&disk.crash(7), EngineKind::Masstree);
        let is_same = content(&mut found) == content(&mut pair.up);
        assert_eq!(is_same, fault == testing::Fault::Nothing, "{fault:?}");
    }
}
