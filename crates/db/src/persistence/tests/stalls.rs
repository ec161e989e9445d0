//! What a power cut takes of what was acknowledged to clients of `interval`, on a disk that stands
//! still, with epochs that end late and replies that are sent late.
//!
//! Time is simulated. The disk's writes wait until the schedule lets them go, one by one; epochs
//! end when it says so; a reply is sent when it says so, if the database agrees, or else when its
//! epoch is durable, as workers do. What was sent and is not found after the cut was sent within
//! [`LATE`] before the last reply that tells of what was not on disk yet.

use crate::clock::Milliseconds;
use std::thread::yield_now;

use pando_durability::limits::LATE;

use super::*;
use crate::durable::testing::{self, Fault};

/// Schedules that are tried.
const SEEDS: u64 = 80;

/// How the names of the log's segments begin.
const SEGMENTS: &str = "log-0";

/// The reply to a write.
#[derive(Clone, Copy, Debug)]
struct Write {
    key: usize,
    epoch: LogEpoch,
    /// When it is sent, if it may be.
    due_ms: u64,
    /// What the database said when the request ran, for a worker that asks no more.
    may_at_once: bool,
    held: bool,
}

/// A server under a schedule.
struct World {
    shells: Vec<Shell>,
    disk: SimulatedDisk,
    rng: fastrand::Rng,
    now_ms: u64,
    next_key: usize,
    unsent: Vec<Write>,
    /// The keys that clients know of, since when, and whether they were on disk then.
    sent: Vec<(usize, u64, bool)>,
    /// Whether replies are judged when the request runs: a planted bug.
    judges_early: bool,
    held: usize,
}

fn open(disk: SimulatedDisk, threads: bool) -> Shell {
    let setup = Setup {
        logs: 1,
        ..Setup::default()
    };
    let options = Options {
        databases: 1,
        durability: Some(DurabilityOptions {
            disk: Arc::new(disk),
            threads,
            segment_bytes: 512 * 1024,
            ..setup.durability(&SimulatedDisk::new())
        }),
        ..Options::default()
    };
    Shell::on_disk(options, START_MS).expect("the disk is whole")
}

impl World {
    fn new(disk: &SimulatedDisk, seed: u64, judges_early: bool) -> Self {
        let first = open(disk.clone(), true);
        let shells = vec![first.connect(), first];
        let world = Self {
            shells,
            disk: disk.clone(),
            rng: fastrand::Rng::with_seed(seed),
            now_ms: 0,
            next_key: 0,
            unsent: Vec::new(),
            sent: Vec::new(),
            judges_early,
            held: 0,
        };
        // The start's own records. From here on replies wait for no room (AK5 interval-waits).
        world.end_epoch();
        while world.log().statistics().free_files == 0 {
            yield_now();
        }
        world
    }

    fn database(&self) -> &Database {
        &self.shells[0].database
    }

    fn log(&self) -> &pando_durability::log::Log {
        self.database().log().expect("there is one")
    }

    /// Ends an epoch, which the logger writes as far as the disk lets it.
    fn end_epoch(&self) {
        let database = self.database();
        drop(
            database
                .acknowledgement
                .tick(&database.gates, Milliseconds(self.now_ms)),
        );
        self.settle();
    }

    /// Waits until the logger has nothing to do, or has to wait.
    fn settle(&self) {
        let is_written = || {
            let statistics = self.log().statistics();
            statistics.durable == statistics.closed
        };
        while !is_written() && !self.disk.stalls().holds_a_write() {
            yield_now();
        }
    }

    fn write(&mut self) {
        let shell = self.rng.usize(..self.shells.len());
        let late_ms = match self.rng.u8(..8) {
            0 => self.rng.u64(..700),
            1 => self.rng.u64(..100),
            _ => 0,
        };
        for _ in 0..=self.rng.u8(..3) {
            let key = self.next_key;
            self.next_key += 1;
            self.shells[shell].check(&[(&format!("SET k{key} v"), "+OK")]);
            let client = self.shells[shell].client();
            let (epoch, awaits) = (client.unacknowledged(), client.awaits());
            client.acknowledged();
            assert!(
                epoch > LogEpoch::NONE && awaits == LogEpoch::NONE,
                "there is room for it"
            );
            self.unsent.push(Write {
                key,
                epoch,
                due_ms: self.now_ms + late_ms,
                may_at_once: self.database().may_acknowledge(epoch),
                held: false,
            });
        }
    }

    /// Sends what is due and may be sent.
    fn send(&mut self) {
        for mut write in std::mem::take(&mut self.unsent) {
            let is_due = write.due_ms <= self.now_ms;
            if is_due && !write.held {
                let may = if self.judges_early {
                    write.may_at_once
                } else {
                    self.database().may_acknowledge(write.epoch)
                };
                write.held = !may;
                self.held += usize::from(write.held);
            }
            let on_disk = write.epoch <= self.database().durable();
            if is_due && (!write.held || on_disk) {
                self.sent.push((write.key, self.now_ms, on_disk));
            } else {
                self.unsent.push(write);
            }
        }
    }

    /// Runs until the power is cut: a second or so.
    fn run(&mut self) {
        let end_ms = self.rng.u64(200..1500);
        let (mut next_tick_ms, mut next_change_ms) = (25, self.rng.u64(..200));
        while self.now_ms < end_ms {
            let step_ms = self.rng.u64(1..12);
            self.now_ms += step_ms;
            self.shells[0].pass_ms(step_ms);
            if self.now_ms >= next_change_ms {
                let permits = [None, Some(0), Some(0), Some(1), Some(2)];
                let permits = permits[self.rng.usize(..permits.len())];
                self.disk.stalls().permit(SEGMENTS, permits);
                self.settle();
                next_change_ms = self.now_ms + self.rng.u64(5..400);
            }
            if self.rng.u8(..4) > 0 {
                self.write();
            }
            self.send();
            if self.now_ms >= next_tick_ms {
                self.end_epoch();
                let is_late = self.rng.u8(..8) == 0;
                next_tick_ms = self.now_ms + if is_late { self.rng.u64(25..700) } else { 25 };
            }
        }
    }
}

/// What a schedule's cut took.
#[derive(Debug, PartialEq, Eq)]
struct Loss {
    sent: usize,
    held: usize,
    lost: usize,
    /// From the first reply that was lost to the last one whose write was not on disk.
    span_ms: u64,
}

fn cut(seed: u64, judges_early: bool) -> Loss {
    let disk = SimulatedDisk::new();
    let mut world = World::new(&disk, seed, judges_early);
    world.run();
    let after = disk.crash(seed);
    disk.stalls().permit(SEGMENTS, None);
    let World { sent, held, .. } = world;
    let mut shell = open(after, false);
    let mut lost = sent.clone();
    lost.retain(|(key, ..)| shell.line(&format!("EXISTS k{key}")) == ":0");
    assert!(lost.iter().all(|(.., on_disk)| !on_disk), "LG1");
    let risked = sent.iter().filter(|(.., on_disk)| !on_disk);
    let last_ms = risked.map(|(_, at_ms, _)| *at_ms).max();
    let first_ms = lost.iter().map(|(_, at_ms, _)| *at_ms).min();
    Loss {
        sent: sent.len(),
        held,
        lost: lost.len(),
        span_ms: first_ms.map_or(0, |first_ms| last_ms.unwrap_or(first_ms) - first_ms),
    }
}

#[test]
fn ak6_a_cut_takes_the_last_200_ms_of_what_was_acknowledged() {
    let losses: Vec<Loss> = (0..SEEDS).map(|seed| cut(seed, false)).collect();
    for (seed, loss) in losses.iter().enumerate() {
        assert!(loss.span_ms <= LATE.0, "seed {seed}: {loss:?}");
    }
    assert_eq!(losses[7], cut(7, false), "a schedule is one");
    // It is no promise if nothing is ever lost, nor if everything waits.
    let count = |which: fn(&Loss) -> usize| losses.iter().map(which).sum::<usize>();
    let (sent, held, lost) = (
        count(|it| it.sent),
        count(|it| it.held),
        count(|it| it.lost),
    );
    assert!(
        lost > 100 && held > 100 && sent > held,
        "{sent} {held} {lost}"
    );
    let longest = losses.iter().map(|loss| loss.span_ms).max();
    assert!(longest > Some(LATE.0 / 2), "{longest:?}");
}

/// The planted bugs, each of which lets a longer span go.
#[test]
fn ak6_what_is_judged_wrongly_is_noticed() {
    let is_noticed = |fault, early| {
        testing::with(fault, || {
            (0..SEEDS).any(|seed| cut(seed, early).span_ms > 200)
        })
    };
    assert!(is_noticed(Fault::AgeForgotten, false), "no age at all");
    assert!(
        is_noticed(Fault::OpenEpochsYoung, false),
        "closed epochs alone"
    );
    assert!(
        is_noticed(Fault::Nothing, true),
        "judged when the request runs"
    );
}
