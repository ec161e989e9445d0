//! The atomics of this workspace's concurrent code: std's, loom's under `--cfg loom`, which tries
//! every interleaving of a small model, or shuttle's under `--cfg shuttle`, which draws schedules
//! of a larger one at random.
//!
//! Code that is to be model-checked imports its atomics, fences and waiting from here and nowhere
//! else. In models a wait yields to the scheduler; elsewhere it spins briefly and then
//! gives the processor away, because the owner of a lock may have been descheduled.

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

/// A mutex that may be held across the atomics above. Models for loom hold none across them.
#[cfg(shuttle)]
pub use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(shuttle))]
pub use std::sync::{Mutex, MutexGuard};

/// Whether this build is for a model, whose nodes are small so that structures change often.
pub const MODEL: bool = cfg!(any(loom, shuttle));

/// Busy-waits before the processor is given away.
#[cfg(not(any(loom, shuttle)))]
const SPINS_MAX: u32 = 64;

/// One wait for another thread's short critical section.
#[derive(Debug, Default)]
pub struct Spin {
    #[cfg(not(any(loom, shuttle)))]
    spins: u32,
}

impl Spin {
    /// A wait that has not begun.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
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
            if self.spins < SPINS_MAX {
                self.spins += 1;
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}
