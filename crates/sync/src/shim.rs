//! The atomics of this workspace's concurrent code: std's, or loom's under `--cfg loom`.
//!
//! Code that is to be model-checked imports its atomics, fences and waiting from here and nowhere
//! else. Under loom a wait yields to the model's scheduler; elsewhere it spins briefly and then
//! gives the processor away, because the owner of a lock may have been descheduled.

#[cfg(loom)]
pub use loom::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(not(loom))]
pub use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence,
};

/// Busy-waits before the processor is given away.
#[cfg(not(loom))]
const SPINS_MAX: u32 = 64;

/// One wait for another thread's short critical section.
#[derive(Debug, Default)]
pub struct Spin {
    #[cfg(not(loom))]
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
        #[cfg(not(loom))]
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
