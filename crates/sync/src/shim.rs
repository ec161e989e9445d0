//! The atomics of this workspace's concurrent code: std's, loom's under `--cfg loom`, which tries
//! every interleaving of a small model, or shuttle's under `--cfg shuttle`, which draws schedules
//! of a larger one at random.
//!
//! The crates with models, and those whose code runs within them, import their atomics, fences and
//! waiting only from here; a test enforces it (`MODELLED_CRATES` in the server's `tidy`). In models
//! a wait yields to the scheduler; elsewhere it spins briefly and then yields the processor, since
//! the owner of a lock may have been descheduled.

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

/// Locks that a model checks, or that are held across the atomics above in a model.
pub mod modelled {
    #[cfg(loom)]
    pub use loom::sync::{Condvar, Mutex, MutexGuard};
    #[cfg(shuttle)]
    pub use shuttle::sync::{Condvar, Mutex, MutexGuard};
    #[cfg(not(any(loom, shuttle)))]
    pub use std::sync::{Condvar, Mutex, MutexGuard};

    #[cfg(not(any(loom, shuttle)))]
    pub use crate::lock;

    /// Like [`crate::lock`].
    #[cfg(any(loom, shuttle))]
    pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Atomics that no model interleaves, in any build: counters, gauges, and state outside all models.
pub mod unmodelled {
    pub use std::sync::atomic::{
        AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        compiler_fence, fence,
    };
}

/// Locks that may be held across the atomics above. Loom models hold none across them.
#[cfg(shuttle)]
pub use shuttle::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(shuttle))]
pub use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(not(shuttle))]
pub use crate::lock;
#[cfg(shuttle)]
pub use modelled::lock;

/// The threads of a model of random schedules, or the system's.
#[cfg(shuttle)]
pub use shuttle::thread;
#[cfg(not(shuttle))]
pub use std::thread;

/// Whether this build is for a model, whose nodes are small so that structures change often.
pub const MODEL: bool = cfg!(any(loom, shuttle));

/// A place where a model of random schedules lets other threads go ahead: before an access to
/// memory whose words cannot be the atomics above, as they lie in a file. Nothing elsewhere.
#[inline]
pub fn step() {
    #[cfg(shuttle)]
    AtomicBool::new(false).load(Ordering::Relaxed);
}

/// Pauses of the processor in the first wait and in the last one before it yields the processor, as
/// powers of two; each wait is twice as long as the one before.
#[cfg(not(any(loom, shuttle)))]
const BRIEF: (u32, u32) = (0, 5);
/// The same for locks. A taken lock is tried again after at least half a microsecond: meanwhile its
/// owner, which has the lines in its cache, may take it several times.
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

    /// Waits a little; longer with every call.
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
