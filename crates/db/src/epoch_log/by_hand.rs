//! A stand-in for the log, whose disk is the test: the test says what is durable.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use pando_engine::LogEpoch;
use pando_sync::lock;

type Wake = Box<dyn Fn(LogEpoch) + Send + Sync>;

/// A log that keeps nothing. The database is opened by
/// [`Database::open_by_hand`](crate::Database::open_by_hand).
#[derive(Default)]
pub struct HandLog {
    closed: AtomicU64,
    durable: AtomicU64,
    wanted: AtomicU64,
    wake: OnceLock<Wake>,
    quick: AtomicBool,
    write_ns: AtomicU64,
    open_writes: AtomicBool,
    on_write_ns: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl fmt::Debug for HandLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandLog").finish_non_exhaustive()
    }
}

/// A test's controls.
impl HandLog {
    /// Makes closed epochs durable; waiters are woken.
    pub fn sync(&self) {
        let closed = self.closed();
        self.durable.store(closed.0, Ordering::SeqCst);
        if let Some(wake) = self.wake.get() {
            wake(closed);
        }
    }

    /// Makes all future epochs durable, too.
    pub fn sync_for_ever(&self) {
        self.durable.store(u64::MAX >> 1, Ordering::SeqCst);
    }

    /// The last epoch that was closed.
    pub fn closed(&self) -> LogEpoch {
        LogEpoch(self.closed.load(Ordering::SeqCst))
    }

    /// The last epoch that somebody has waited for.
    pub fn wanted(&self) -> LogEpoch {
        LogEpoch(self.wanted.load(Ordering::SeqCst))
    }

    /// The same; resets it.
    pub fn take_wanted(&self) -> LogEpoch {
        LogEpoch(self.wanted.swap(0, Ordering::SeqCst))
    }

    /// Waiters write: closed epochs are durable at once.
    pub fn set_quick(&self) {
        self.quick.store(true, Ordering::SeqCst);
    }

    /// Sets the duration of a write.
    pub fn set_write_ns(&self, write_ns: u64) {
        self.write_ns.store(write_ns, Ordering::SeqCst);
    }

    /// Makes epochs always have something handed over, so that they end.
    pub fn set_open_writes(&self) {
        self.open_writes.store(true, Ordering::SeqCst);
    }

    /// Runs this before the next caller learns how long a write takes.
    pub fn on_write_ns(&self, act: impl FnOnce() + Send + 'static) {
        *lock(&self.on_write_ns) = Some(Box::new(act));
    }
}

/// The database's side.
impl HandLog {
    pub(super) fn close_epoch(&self, epoch: LogEpoch) {
        let before = self.closed.swap(epoch.0, Ordering::SeqCst);
        assert_eq!(before + 1, epoch.0, "epochs are closed in their order");
        if self.is_quick() {
            self.durable.store(epoch.0, Ordering::SeqCst);
        }
    }

    pub(super) fn durable(&self) -> LogEpoch {
        LogEpoch(self.durable.load(Ordering::SeqCst))
    }

    pub(super) fn want(&self, epoch: LogEpoch) -> bool {
        self.wanted.fetch_max(epoch.0, Ordering::SeqCst);
        self.durable() >= epoch
    }

    pub(super) fn on_durable(&self, wake: Wake) {
        assert!(self.wake.set(wake).is_ok(), "the log tells one listener");
    }

    pub(super) fn is_quick(&self) -> bool {
        self.quick.load(Ordering::SeqCst)
    }

    pub(super) fn write_ns(&self) -> u64 {
        let act = lock(&self.on_write_ns).take();
        if let Some(act) = act {
            act();
        }
        self.write_ns.load(Ordering::SeqCst)
    }

    pub(super) fn has_open_writes(&self) -> bool {
        self.open_writes.load(Ordering::SeqCst)
    }
}
