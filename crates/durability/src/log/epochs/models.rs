//! Models for loom: waiters, the epoch thread, loggers and those who ask whether something is late,
//! every interleaving up to a bound of preemptions. A forgotten waiter sleeps for ever, which loom
//! reports as a deadlock. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p pando-durability --release --lib models`.

use std::sync::Arc as StdArc;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex as Unmodelled, PoisonError};
use std::time::Duration;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use pando_sync::{LogEpoch, Microseconds};

use super::{Due, Epochs};
use crate::limits::LATE;

/// Preemptions per execution.
const PREEMPTIONS_MAX: usize = 3;

/// Fewer executions than this mean that the model did not see the atomics.
const EXECUTIONS_MIN: usize = 10;

/// Longer than any test: the models have no clock.
const NEVER: Duration = Duration::from_hours(24);

/// Planted bugs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A waiter checks whether the epoch is durable before it announces its wish.
    LooksFirst,
    /// Nothing orders an announcement before the check that follows it.
    NoFence,
    /// The epoch thread is not told when nothing is in flight any more.
    NobodyNotified,
    /// The time of the last write of an epoch stands, not that of the first.
    LastWrites,
    /// Whoever asks what is late looks at what is in flight, then at what is open.
    ClosedFirst,
    /// Nothing orders the time of what is in flight before the end of the open epoch.
    NoRelease,
}

/// Epochs, and where waiters sleep, like a worker's mailbox or the database's.
struct World {
    epochs: Epochs,
    woken: Mutex<u64>,
    condition: Condvar,
}

impl World {
    /// What callbacks do ([`crate::log::Log::on_durable`]).
    fn wake_all(&self) {
        *self.woken.lock().unwrap() += 1;
        self.condition.notify_all();
    }

    /// Waits like a reply: announces, checks, sleeps until it is woken, checks again.
    fn wait(&self, epoch: u64) {
        if self.epochs.fault == Some(Fault::LooksFirst) {
            return self.wait_without_looking(epoch);
        }
        if self.epochs.want(LogEpoch(epoch)) {
            return;
        }
        let mut woken = self.woken.lock().unwrap();
        while self.epochs.durable() < LogEpoch(epoch) {
            let before = *woken;
            while *woken == before {
                woken = self.condition.wait(woken).unwrap();
            }
        }
    }

    fn wait_without_looking(&self, epoch: u64) {
        let durable = self.epochs.durable() >= LogEpoch(epoch);
        let _too_late = self.epochs.want(LogEpoch(epoch));
        let mut woken = self.woken.lock().unwrap();
        while !durable && *woken == 0 {
            woken = self.condition.wait(woken).unwrap();
        }
    }

    fn close(&self, epoch: u64, participants: usize) {
        let mut state = self.epochs.lock();
        let awaited = self.epochs.close(&mut state, LogEpoch(epoch), participants);
        drop(state);
        if awaited {
            self.wake_all();
        }
    }

    /// A logger has written its mark.
    fn mark(&self, epoch: u64) {
        if self.epochs.marked(LogEpoch(epoch)) {
            self.wake_all();
        }
    }
}

fn model(fault: Option<Fault>, run: impl Fn(Arc<World>) + Send + Sync + 'static) {
    // A backtrace needs more stack than loom's threads have.
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    let executions = StdArc::new(AtomicUsize::new(0));
    let counted = StdArc::clone(&executions);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut epochs = Epochs::new(LogEpoch(0), LogEpoch(0));
        epochs.fault = fault;
        run(Arc::new(World {
            epochs,
            woken: Mutex::new(0),
            condition: Condvar::new(),
        }));
    });
    let executions = executions.load(std::sync::atomic::Ordering::Relaxed);
    assert!(executions >= EXECUTIONS_MIN, "{executions}");
    println!("{executions} executions");
}

/// An epoch becomes durable while somebody begins to wait for it.
fn one_waits(fault: Option<Fault>) {
    model(fault, |world| {
        world.close(1, 1);
        let logger = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.mark(1))
        };
        world.wait(1);
        logger.join().unwrap();
        assert_eq!(world.epochs.durable(), LogEpoch(1));
    });
}

#[test]
fn le3_who_waits_for_a_closed_epoch_is_woken() {
    one_waits(None);
}

/// The second waiter takes no lock: only the fence separates its announcement from its check.
fn two_wait(fault: Option<Fault>) {
    model(fault, |world| {
        world.close(1, 1);
        let logger = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.mark(1))
        };
        let other = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.wait(1))
        };
        world.wait(1);
        logger.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn le3_two_who_wait_are_woken() {
    two_wait(None);
}

#[test]
fn le3_who_waits_for_two_logs_is_woken() {
    model(None, |world| {
        world.close(1, 2);
        let logger = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.mark(1))
        };
        let other = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.wait(1))
        };
        world.mark(1);
        logger.join().unwrap();
        other.join().unwrap();
    });
}

/// The epoch thread sleeps while an epoch is in flight and the next one is wanted.
fn epoch_thread_is_woken(fault: Option<Fault>) {
    model(fault, |world| {
        world.close(1, 1);
        let ticker = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                assert_eq!(world.epochs.wait_until_due(NEVER), Due::Wanted);
                let state = world.epochs.lock();
                assert!(
                    state.in_flight.is_empty(),
                    "it gathers while one is in flight"
                );
                drop(state);
                // Nobody wrote anything: durable at once.
                world.close(2, 0);
            })
        };
        let logger = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.mark(1))
        };
        world.wait(2);
        assert_eq!(world.epochs.durable(), LogEpoch(2));
        ticker.join().unwrap();
        logger.join().unwrap();
    });
}

#[test]
fn le4_the_epoch_thread_is_woken_when_nothing_is_in_flight() {
    epoch_thread_is_woken(None);
}

/// Passes a planted bug to a process of its own: loom aborts one whose threads sleep for ever.
const PLANTED: &str = "PANDO_PLANTED_FAULT";

#[test]
fn planted_in_a_process_of_its_own() {
    match std::env::var(PLANTED).as_deref() {
        Ok("LooksFirst") => one_waits(Some(Fault::LooksFirst)),
        Ok("NoFence") => two_wait(Some(Fault::NoFence)),
        Ok("NobodyNotified") => epoch_thread_is_woken(Some(Fault::NobodyNotified)),
        Ok("LastWrites") => two_write(Some(Fault::LastWrites)),
        Ok("ClosedFirst") => two_write(Some(Fault::ClosedFirst)),
        Ok("NoRelease") => two_write(Some(Fault::NoRelease)),
        Ok(other) => panic!("{other} is no fault"),
        Err(_) => {}
    }
}

fn is_caught(fault: Fault, by: &str) {
    let planted = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--nocapture", "planted_in_a_process_of_its_own"])
        .env(PLANTED, format!("{fault:?}"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&planted.stderr);
    assert!(!planted.status.success(), "{fault:?} passes");
    assert!(said.contains(by), "{fault:?}: {said}");
}

#[test]
fn canary_who_is_forgotten_sleeps_for_good() {
    for fault in [Fault::LooksFirst, Fault::NoFence, Fault::NobodyNotified] {
        is_caught(fault, "deadlock");
    }
}

#[test]
fn canary_what_is_late_goes_unnoticed() {
    for fault in [Fault::LastWrites, Fault::ClosedFirst, Fault::NoRelease] {
        is_caught(fault, "LE5");
    }
}

#[test]
fn le1_le2_epochs_become_durable_in_order_with_all_their_marks() {
    model(None, |world| {
        world.close(1, 2);
        world.close(2, 1);
        let written = Arc::new([const { 0 }; 3].map(|_: u64| AtomicU64::new(0)));
        let write = |index: usize, epochs: &'static [u64]| {
            let (world, written) = (Arc::clone(&world), Arc::clone(&written));
            thread::spawn(move || {
                for (at, &epoch) in epochs.iter().enumerate() {
                    // Relaxed: what is durable says so itself.
                    written[index + at].store(1, Ordering::Relaxed);
                    world.mark(epoch);
                }
            })
        };
        let (one, other) = (write(0, &[1, 2]), write(2, &[1]));
        let mut last = LogEpoch::NONE;
        for _ in 0..2 {
            let durable = world.epochs.durable();
            assert!(durable >= last, "LE2");
            last = durable;
            let is_written = |index: usize| written[index].load(Ordering::Relaxed) == 1;
            assert!(
                durable < LogEpoch(1) || is_written(0) && is_written(2),
                "LE1"
            );
            assert!(durable < LogEpoch(2) || is_written(1), "LE1");
        }
        one.join().unwrap();
        other.join().unwrap();
        assert_eq!(world.epochs.durable(), LogEpoch(2));
    });
}

/// What a model of lateness sees of time, writes and marks: in the order of the execution, and
/// without ordering the threads.
#[derive(Default)]
struct Witness {
    now: u64,
    /// The epochs of writes that were acknowledged, and when.
    acknowledged: Vec<(u64, u64)>,
    /// The newest epoch that is on disk.
    marked: u64,
}

type Seen = StdArc<Unmodelled<Witness>>;

fn look<R>(seen: &Seen, at: impl FnOnce(&mut Witness) -> R) -> R {
    let mut witness = seen.lock().unwrap_or_else(PoisonError::into_inner);
    witness.now += 1;
    at(&mut witness)
}

/// A session's gate: the current epoch, and whether something was written in it.
type Gate = Arc<Mutex<(u64, bool)>>;

/// Writes, acknowledges, and later judges another reply: what was acknowledged before that, in this
/// epoch or an earlier one, is on disk or said to be late.
fn write_and_judge(world: &World, gate: &Gate, seen: &Seen) {
    let mut held = gate.lock().unwrap();
    let epoch = held.0;
    let now = || Microseconds(look(seen, |seen| seen.now));
    world.epochs.note_write(now);
    held.1 = true;
    drop(held);
    let told = look(seen, |seen| {
        seen.acknowledged.push((epoch, seen.now));
        seen.acknowledged.clone()
    });
    for (written_in, at) in told.into_iter().filter(|&(other, _)| other <= epoch) {
        let just_late = Microseconds(at + 1) + LATE.into();
        let is_late = world.epochs.are_late(just_late);
        let is_marked = look(seen, |seen| seen.marked >= written_in);
        assert!(is_late || is_marked, "LE5: a write of epoch {written_in}");
    }
}

/// Two sessions write while an epoch is closed under their gates and becomes durable, and the next
/// is closed as well.
fn two_write(fault: Option<Fault>) {
    model(fault, |world| {
        let seen = Seen::default();
        let gates = [(); 2].map(|()| Gate::new(Mutex::new((1, false))));
        let writer = |index: usize| {
            let (world, gate, seen) = (Arc::clone(&world), Arc::clone(&gates[index]), seen.clone());
            thread::spawn(move || write_and_judge(&world, &gate, &seen))
        };
        let writers = [writer(0), writer(1)];
        for epoch in [1, 2] {
            let mut held = gates.each_ref().map(|gate| gate.lock().unwrap());
            let wrote = held.iter().any(|gate| gate.1);
            world.close(epoch, wrote.into());
            for gate in &mut held {
                **gate = (epoch + 1, false);
            }
            drop(held);
            if wrote && epoch == 1 {
                look(&seen, |seen| seen.marked = epoch);
                world.mark(epoch);
            }
        }
        for writer in writers {
            writer.join().unwrap();
        }
    });
}

#[test]
fn le5_a_write_that_is_not_durable_is_told_to_be_late() {
    two_write(None);
}
