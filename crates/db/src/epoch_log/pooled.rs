//! Makes epochs durable where the data are: closing one commits the pool.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use pando_cdds::Cdds;
use pando_durability::log::Due;
use pando_engine::LogEpoch;
use pando_sync::lock;

use super::pace::{EPOCH_US, Pace};
use crate::clock::Clock;
use crate::limits;

type Wake = Box<dyn Fn(LogEpoch) + Send + Sync>;

/// The pool of an engine that needs no log.
///
/// | field | writer | reader |
/// |---|---|---|
/// | `durable` | who closes an epoch, under all gates: `Release` | who waits for one, `Acquire` |
/// | `refused` | the same: `Relaxed` | writes, `Relaxed` |
/// | `wanted` | who waits, the epoch thread: its mutex | the epoch thread |
pub(crate) struct PoolLog {
    engine: Arc<Cdds>,
    lasts: bool,
    clock: Arc<dyn Clock>,
    pace: Pace,
    durable: AtomicU64,
    /// The last commit found no room for what the engine counts.
    refused: AtomicBool,
    wanted: Mutex<LogEpoch>,
    came: Condvar,
    wakes: RwLock<Vec<Wake>>,
}

impl fmt::Debug for PoolLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolLog")
            .field("durable", &self.durable())
            .finish_non_exhaustive()
    }
}

impl PoolLog {
    /// Of an engine whose epochs are durable up to this one; `lasts` says whether the pool outlives
    /// the process.
    pub(crate) fn new(
        engine: Arc<Cdds>,
        clock: Arc<dyn Clock>,
        durable: LogEpoch,
        lasts: bool,
    ) -> Self {
        Self {
            engine,
            lasts,
            pace: Pace::new(limits::POOL_EPOCHS_SAVED, clock.monotonic()),
            clock,
            durable: AtomicU64::new(durable.0),
            refused: AtomicBool::new(false),
            wanted: Mutex::default(),
            came: Condvar::new(),
            wakes: RwLock::default(),
        }
    }

    /// Commits `epoch`. A pool without room for that stays as it is, and goes on when removals have
    /// made some.
    ///
    /// # Panics
    /// When the pool is not to be trusted any more: nothing that this process says would hold.
    pub(super) fn close_epoch(&self, epoch: LogEpoch) {
        self.pace.spend();
        let committed = if self.engine.has_open_writes() {
            self.engine.commit(epoch)
        } else {
            Ok(epoch)
        };
        match committed {
            Ok(_) => {
                // Release: who sees the epoch sees what was committed with it.
                self.durable.store(epoch.0, Ordering::Release);
                self.refused.store(false, Ordering::Relaxed);
            }
            Err(pando_cdds::Error::Full(_)) => self.refused.store(true, Ordering::Relaxed),
            Err(error) => panic!("the pool cannot be committed: {error}"),
        }
        for wake in self
            .wakes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
        {
            wake(self.durable());
        }
    }

    /// Whether an epoch may end because somebody waits for it (EP1 paced).
    pub(super) fn is_quick(&self) -> bool {
        self.pace.allows(|| self.clock.monotonic())
    }

    pub(super) fn durable(&self) -> LogEpoch {
        LogEpoch(self.durable.load(Ordering::Acquire))
    }

    pub(super) fn lasts(&self) -> bool {
        self.lasts
    }

    /// Whether the pool has room for what a commit writes.
    pub(super) fn accepts_writes(&self) -> bool {
        !self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn want(&self, epoch: LogEpoch) -> bool {
        if self.durable() >= epoch {
            return true;
        }
        let mut wanted = lock(&self.wanted);
        *wanted = wanted.max(epoch);
        self.came.notify_one();
        false
    }

    pub(super) fn on_durable(&self, wake: Wake) {
        let mut wakes = self.wakes.write().unwrap_or_else(PoisonError::into_inner);
        wakes.push(wake);
    }

    pub(super) fn wait_until_due(&self, limit: Duration) -> Due {
        let wanted = lock(&self.wanted);
        let waited = self
            .came
            .wait_timeout_while(wanted, limit, |wanted| *wanted <= self.durable());
        let (wanted, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let is_wanted = *wanted > self.durable();
        drop(wanted);
        if is_wanted {
            let due = Instant::now() + limit;
            while !self.is_quick() && Instant::now() < due {
                std::thread::sleep(Duration::from_micros(EPOCH_US));
            }
            Due::Wanted
        } else {
            Due::Elapsed
        }
    }

    pub(super) fn has_open_writes(&self) -> bool {
        self.engine.has_open_writes()
    }

    /// After the last epoch: the next opening takes nothing back.
    pub(crate) fn rest(&self) -> Result<(), pando_cdds::Error> {
        self.engine.rest()
    }
}
