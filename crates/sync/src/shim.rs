//! The atomics of this workspace's concurrent code: std's, loom's under `--cfg loom`, which tries
//! every interleaving of a small model, or shuttle's under `--cfg shuttle`, which draws schedules
//! of a larger one at random.
//!
//! The crates with models (`sync`, `masstree`, `mercury`, `durability`) import their atomics,
//! fences and waiting from here and nowhere else; a test sees to it. In models a wait yields to
//! the scheduler; elsewhere it spins briefly and then gives the processor away, because the owner
//! of a lock may have been descheduled.

#[cfg(loom)]
pub use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(shuttle)]
pub use shuttle::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(not(any(loom, shuttle)))]
pub use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence,
};

/// Locks that are part of what a model checks, or held across the atomics above in one.
pub mod modelled {
    #[cfg(loom)]
    pub use loom::sync::{Condvar, Mutex, MutexGuard};
    #[cfg(shuttle)]
    pub use shuttle::sync::{Condvar, Mutex, MutexGuard};
    #[cfg(not(any(loom, shuttle)))]
    pub use std::sync::{Condvar, Mutex, MutexGuard};

    #[cfg(not(any(loom, shuttle)))]
    pub use crate::lock;

    /// As [`crate::lock`].
    #[cfg(any(loom, shuttle))]
    pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Atomics that no model interleaves, in any build: counters, gauges, and what no model has.
pub mod unmodelled {
    pub use std::sync::atomic::{
        AtomicBool, AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering,
    };
}

/// A mutex that may be held across the atomics above. Models for loom hold none across them.
#[cfg(shuttle)]
pub use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(shuttle))]
pub use std::sync::{Mutex, MutexGuard};

#[cfg(not(shuttle))]
pub use crate::lock;
#[cfg(shuttle)]
pub use modelled::lock;

/// Whether this build is for a model, whose nodes are small so that structures change often.
pub const MODEL: bool = cfg!(any(loom, shuttle));

/// Pauses of the processor in the first wait and in the last one before the processor is given
/// away, as powers of two; each wait is twice as long as the one before it.
#[cfg(not(any(loom, shuttle)))]
const BRIEF: (u32, u32) = (0, 5);
/// The same for locks. A lock that was found taken is asked for again after half a microsecond at
/// least: meanwhile its owner, who has the lines in his cache, may take it several times.
#[cfg(not(any(loom, shuttle)))]
const PATIENT: (u32, u32) = (6, 8);

/// One wait for another thread's short critical section.
#[derive(Debug)]
pub struct Spin {
    #[cfg(not(any(loom, shuttle)))]
    next: u32,
    #[cfg(not(any(loom, shuttle)))]
    last: u32,
}

impl Default for Spin {
    fn default() -> Self {
        Self::new()
    }
}

impl Spin {
    /// A wait that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self {
            #[cfg(not(any(loom, shuttle)))]
            next: BRIEF.0,
            #[cfg(not(any(loom, shuttle)))]
            last: BRIEF.1,
        }
    }

    /// A wait for a lock, whose hand-over costs more than a critical section: a long one.
    #[must_use]
    pub fn patient() -> Self {
        Self {
            #[cfg(not(any(loom, shuttle)))]
            next: PATIENT.0,
            #[cfg(not(any(loom, shuttle)))]
            last: PATIENT.1,
        }
    }

    /// Waits a little; longer the more often it was called.
    #[inline]
    pub fn wait(&mut self) {
        #[cfg(loom)]
        loom::thread::yield_now();
        #[cfg(shuttle)]
        shuttle::thread::yield_now();
        #[cfg(not(any(loom, shuttle)))]
        {
            if self.next <= self.last {
                for _ in 0..1_u32 << self.next {
                    std::hint::spin_loop();
                }
                self.next += 1;
            } else {
                std::thread::yield_now();
            }
        }
    }
}
