//! Models for loom: waiters, the epoch thread and loggers, every interleaving up to a bound of
//! preemptions. A forgotten waiter sleeps for ever, which loom reports as a deadlock. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p pando-durability --release --lib models`.

use std::sync::Arc as StdArc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use pando_sync::LogEpoch;

use super::{Due, Epochs};

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
        Ok(other) => panic!("{other} is no fault"),
        Err(_) => {}
    }
}

#[test]
fn canary_who_is_forgotten_sleeps_for_good() {
    for fault in [Fault::LooksFirst, Fault::NoFence, Fault::NobodyNotified] {
        let planted = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--nocapture", "planted_in_a_process_of_its_own"])
            .env(PLANTED, format!("{fault:?}"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&planted.stderr);
        assert!(!planted.status.success(), "{fault:?} passes");
        assert!(said.contains("deadlock"), "{fault:?}: {said}");
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
