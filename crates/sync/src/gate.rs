//! Gates: one lock per session, so that a session excludes nobody and one session can exclude all.
//!
//! Mercury's thread-locks (§3.3 of its paper), used for multi-key atomicity. A session holds its
//! own gate while it runs a batch, which costs one uncontended exchange on its own cache line. A
//! command that must be atomic across keys takes every gate, in index order.
//!
//! | field | writer | ordering | reader |
//! |---|---|---|---|
//! | `every[i]` | session `i`, or the taker of all | mutex | the same |
//! | `turnstile` | the taker of all | mutex | a session that saw `waiting` |
//! | `waiting` | the taker of all, before the turnstile | `Relaxed` | every session before its gate |
//! | `queued` | a session whose gate is not free | `Relaxed` | `are_wanted` |
//! | `used` | `open`, never lowered | `Relaxed`, then the turnstile is passed | the taker of all |
//!
//! Invariants:
//! - **G1 all-exclude-one** The holder of all gates runs alone among gate holders: every holder of
//!   a single gate holds one of them.
//! - **G2 gates-in-order** Gates are taken in index order by one taker at a time (the turnstile),
//!   and a session waits for nothing while it holds its own, so there is no cycle of waits.
//! - **G3** A session that sees `waiting` queues behind the turnstile, so a taker waits for at most
//!   one batch per session, or one request of a batch that takes long (G5). A stale reading costs
//!   fairness for one batch, never exclusion, so `Relaxed` is enough.
//! - **G4 entered-is-used** A gate that is entered is below `used`: a taker of all saw the higher
//!   `used` if it reached the turnstile after `open` had passed it, and was done if before. So
//!   there are only as many gates to take as sessions were ever open at a time, not as many as
//!   there could be.
//! - **G5** A thread that holds one gate or all for long asks [`Gates::are_wanted`] from time to
//!   time and releases them. A stale answer costs a moment, so `Relaxed` is enough.
//!
//! Deliberately absent: sleeping, I/O or allocation under a single gate (the caller's duty).

use std::sync::TryLockError;

use crate::Padded;
use crate::shim::modelled::{Mutex, MutexGuard, lock};
use crate::shim::{AtomicUsize, Ordering};

/// The gates of all sessions.
#[derive(Debug)]
pub struct Gates {
    every: Box<[Padded<Mutex<()>>]>,
    /// On a line apart from what every request reads.
    turnstile: Padded<Mutex<()>>,
    waiting: AtomicUsize,
    queued: AtomicUsize,
    used: AtomicUsize,
}

/// A session's own gate, held.
#[derive(Debug)]
#[must_use]
pub struct GateGuard<'g> {
    _gate: MutexGuard<'g, ()>,
}

/// Every gate, held.
#[derive(Debug)]
#[must_use]
pub struct AllGates<'g> {
    _gates: Vec<MutexGuard<'g, ()>>,
    _turnstile: MutexGuard<'g, ()>,
}

impl Gates {
    /// Gates for `sessions_max` sessions.
    #[must_use]
    pub fn new(sessions_max: usize) -> Self {
        Self {
            every: (0..sessions_max).map(|_| Padded(Mutex::new(()))).collect(),
            turnstile: Padded(Mutex::new(())),
            waiting: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
        }
    }

    /// Makes [`Self::enter_all`] take the gate of session `index`; called at least once before the
    /// gate is entered. The caller holds no gate.
    pub fn open(&self, index: usize) {
        assert!(index < self.every.len());
        self.used.fetch_max(index + 1, Ordering::Relaxed);
        // G4: a taker of all gates without this one is done.
        drop(lock(&self.turnstile.0));
    }

    /// Takes the gate of session `index`, which is open.
    pub fn enter(&self, index: usize) -> GateGuard<'_> {
        // G4: or a taker of all gates would pass this one over.
        debug_assert!(index < self.used.load(Ordering::Relaxed));
        if self.waiting.load(Ordering::Relaxed) > 0 {
            // G3: a taker of all gates holds the turnstile until it is done.
            drop(self.wait_for(&self.turnstile.0));
        }
        GateGuard {
            _gate: self.wait_for(&self.every[index].0),
        }
    }

    /// A session's lock of one of the mutexes; its holder can see whether others wait for it.
    fn wait_for<'g>(&self, mutex: &'g Mutex<()>) -> MutexGuard<'g, ()> {
        try_lock(mutex).unwrap_or_else(|| {
            self.queued.fetch_add(1, Ordering::Relaxed);
            let guard = lock(mutex);
            self.queued.fetch_sub(1, Ordering::Relaxed);
            guard
        })
    }

    /// Whether somebody waits for all gates, or for one while all are held (G5).
    #[inline]
    pub fn are_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0 || self.queued.load(Ordering::Relaxed) > 0
    }

    /// Gives waiters a moment: a thread that is still waking up would be too late for gates that
    /// are taken again at once. The caller holds none.
    #[cfg(not(loom))]
    pub fn let_pass(&self) {
        /// The waiter may have no core to run on, or wait for somebody else.
        const YIELDS_MAX: usize = 1000;
        for _ in 0..YIELDS_MAX {
            if !self.are_wanted() {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Takes every open gate. The caller holds none.
    pub fn enter_all(&self) -> AllGates<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.take_all(lock(&self.turnstile.0))
    }

    /// Like [`Self::enter_all`], unless somebody is taking all gates or holds them. Waits for the
    /// holders of single gates.
    pub fn try_enter_all(&self) -> Option<AllGates<'_>> {
        let turnstile = try_lock(&self.turnstile.0)?;
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Some(self.take_all(turnstile))
    }

    /// Whether somebody holds all gates, or is taking them: what code that needs them can assert.
    #[must_use]
    pub fn are_all_taken(&self) -> bool {
        try_lock(&self.turnstile.0).is_none()
    }

    /// Like [`Self::enter_all`], unless anybody holds a gate or is taking all: does not wait.
    pub fn try_enter_all_free(&self) -> Option<AllGates<'_>> {
        let turnstile = try_lock(&self.turnstile.0)?;
        let used = &self.every[..self.used.load(Ordering::Relaxed)];
        // The gates taken before the busy one are released with the iterator.
        let gates: Option<Vec<_>> = used.iter().map(|gate| try_lock(&gate.0)).collect();
        Some(AllGates {
            _gates: gates?,
            _turnstile: turnstile,
        })
    }

    fn take_all<'g>(&'g self, turnstile: MutexGuard<'g, ()>) -> AllGates<'g> {
        let used = &self.every[..self.used.load(Ordering::Relaxed)];
        let gates = used.iter().map(|gate| lock(&gate.0)).collect();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        AllGates {
            _gates: gates,
            _turnstile: turnstile,
        }
    }
}

/// A gate guards no data, so a panic under it leaves nothing inconsistent.
fn try_lock(mutex: &Mutex<()>) -> Option<MutexGuard<'_, ()>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// G1: two writes under all gates are seen both or not at all under one gate.
    #[test]
    fn all_gates_exclude_every_single_gate() {
        loom::model(|| {
            let gates = Arc::new(Gates::new(2));
            gates.open(1);
            let pair = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
            let reader = {
                let (gates, pair) = (Arc::clone(&gates), Arc::clone(&pair));
                loom::thread::spawn(move || {
                    let _gate = gates.enter(1);
                    let first = pair.0.load(Ordering::Relaxed);
                    let second = pair.1.load(Ordering::Relaxed);
                    assert_eq!(first, second);
                })
            };
            {
                let _all = gates.enter_all();
                pair.0.store(1, Ordering::Relaxed);
                pair.1.store(1, Ordering::Relaxed);
            }
            reader.join().unwrap();
        });
    }

    /// G1: the same if nobody held a gate when they were taken; otherwise nothing is taken.
    #[test]
    fn free_gates_exclude_every_single_gate() {
        loom::model(|| {
            let gates = Arc::new(Gates::new(2));
            gates.open(1);
            let inside = Arc::new(AtomicUsize::new(0));
            let session = {
                let (gates, inside) = (Arc::clone(&gates), Arc::clone(&inside));
                loom::thread::spawn(move || {
                    let _gate = gates.enter(1);
                    assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                    inside.fetch_sub(1, Ordering::Relaxed);
                })
            };
            if let Some(_all) = gates.try_enter_all_free() {
                assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                inside.fetch_sub(1, Ordering::Relaxed);
            }
            session.join().unwrap();
            assert!(gates.try_enter_all_free().is_some());
        });
    }

    /// G4: a session that opens its gate while another takes all is still excluded.
    #[test]
    fn a_gate_that_opens_is_taken_or_comes_later() {
        loom::model(|| {
            let gates = Arc::new(Gates::new(1));
            let inside = Arc::new(AtomicUsize::new(0));
            let session = {
                let (gates, inside) = (Arc::clone(&gates), Arc::clone(&inside));
                loom::thread::spawn(move || {
                    gates.open(0);
                    let _gate = gates.enter(0);
                    assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                    inside.fetch_sub(1, Ordering::Relaxed);
                })
            };
            {
                let _all = gates.enter_all();
                assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                inside.fetch_sub(1, Ordering::Relaxed);
            }
            session.join().unwrap();
        });
    }

    /// G2: two takers of all gates and a session make progress in every interleaving.
    #[test]
    fn two_takers_do_not_deadlock() {
        loom::model(|| {
            let gates = Arc::new(Gates::new(2));
            gates.open(0);
            gates.open(1);
            let other = {
                let gates = Arc::clone(&gates);
                loom::thread::spawn(move || drop(gates.enter_all()))
            };
            drop(gates.enter(0));
            drop(gates.enter_all());
            other.join().unwrap();
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::cell::UnsafeCell;

    use super::*;

    struct Pair(UnsafeCell<(u64, u64)>);

    // SAFETY: the test writes under all gates and reads under one, which is what it checks (G1).
    unsafe impl Sync for Pair {}

    #[test]
    fn all_gates_are_not_waited_for_when_somebody_has_them() {
        let gates = Gates::new(2);
        gates.open(1);
        let all = gates.enter_all();
        assert!(gates.try_enter_all().is_none());
        drop(all);
        let all = gates.try_enter_all();
        assert!(all.is_some() && gates.try_enter_all().is_none());
        drop(all);
        drop(gates.enter(1));
    }

    #[test]
    fn free_gates_are_taken_all_or_none() {
        let gates = Gates::new(3);
        gates.open(2);
        let one = gates.enter(1);
        assert!(gates.try_enter_all_free().is_none());
        drop(gates.enter(0));
        drop(one);
        let all = gates.try_enter_all_free();
        assert!(all.is_some() && gates.try_enter_all_free().is_none());
        assert!(gates.try_enter_all().is_none());
        drop(all);
        drop(gates.enter_all());
    }

    #[test]
    fn a_single_gate_never_sees_half_of_what_all_gates_wrote() {
        let gates = Gates::new(4);
        let pair = Pair(UnsafeCell::new((0, 0)));
        std::thread::scope(|scope| {
            for index in 0..3 {
                let (gates, pair) = (&gates, &pair);
                scope.spawn(move || {
                    gates.open(index);
                    for _ in 0..20_000 {
                        let _gate = gates.enter(index);
                        // SAFETY: writers hold all gates, this thread holds one (G1).
                        let (first, second) = unsafe { *pair.0.get() };
                        assert_eq!(first, second);
                    }
                });
            }
            let (gates, pair) = (&gates, &pair);
            scope.spawn(move || {
                for round in 0..2_000 {
                    let _all = gates.enter_all();
                    // SAFETY: every gate is held, so nobody else looks (G1).
                    unsafe { *pair.0.get() = (round, round) };
                }
            });
        });
    }
}
