//! Acknowledgement: when a log epoch ends, and for which epoch a reply waits.
//!
//! An epoch ends *under all gates*: [`Acknowledgement::tick`] takes them, advances the clock and
//! closes the epoch that was current. So no turn sees two epochs, and everything one command writes
//! carries the same one.
//!
//! A thread that waits for the disk may write the epoch itself ([`Acknowledgement::want`]). On a
//! fast disk that saves two switches between threads.
//!
//! A command that holds all gates for long (a long EXEC) does not stop the clock. After
//! [`limits::TICK_PATIENCE_MS`] the epoch ends while the command runs, and the command's group
//! belongs to the epoch that is current when it finishes. Where an engine writes its data without a
//! log, the epoch waits for the command instead.
//!
//! | field | writer | under | reader |
//! |---|---|---|---|
//! | `clock` | the ticking thread | all gates, or `whole` while a command runs under all gates | commits |
//! | `whole` | commands under all gates, the ticking thread | its mutex | the same |
//! | `full` | a turn that finds the log full | its mutex | the same |
//! | `straddle` | a command under all gates, at its end | `Release` | clients of `sync`, `Acquire` |
//!
//! Invariants:
//! - **AK1 one-epoch-per-turn** A session that holds its own gate sees one epoch, from taking the
//!   gate to releasing it.
//! - **AK2 group-of-its-end** Everything a command under all gates writes belongs, as one group, to
//!   the epoch that is current when the command ends. If it began in an earlier epoch, `straddle`
//!   is at least its last epoch before anybody can see what it wrote.
//! - **AK3 handed-over** A session hands over what it has logged before an epoch it belongs to is
//!   closed: at the end of a turn, before all gates are taken, at the end of a command under all
//!   gates.
//! - **AK4 sync-waits** A reply to a client of `sync` waits for every epoch it could have observed:
//!   that of its own write, of a value or tombstone it read, of its database's last change of tree,
//!   and `straddle`; the current one for ranges and answers about whole databases.
//! - **AK5 interval-waits** A reply to a client of `interval` waits for the epoch of its write if
//!   the log is not known to have room for it (LT1 acknowledged-fits of the log's state): until the
//!   disk has room, a crash would lose that write.
//! - **AK6 late-disk-waits** The reply also waits for that epoch while a write is not durable that
//!   could have been acknowledged long before ([`crate::Database::may_acknowledge`]): a crash would
//!   lose more than was promised. This is checked when the reply is sent, not when the request
//!   runs. In between a turn may take long, its thread may not run, the client may not read.
//!
//! Deliberately absent: disks. An `EpochLog` makes closed epochs durable; the epoch thread
//! (`maintenance`) ends them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pando_durability::log::{Log, Ring};
use pando_engine::{EpochClock, LogEpoch};
use pando_sync::{Gates, lock};

use crate::clock::{Clock, Microseconds, Milliseconds};
use crate::epoch_log::{EpochLog, Sealed};
use crate::limits;

/// When a client's requests are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// At once; what a crash loses is not bounded.
    None,
    /// At once; a crash loses at most 200 ms of what was acknowledged (AK6).
    #[default]
    Interval,
    /// When everything that the reply could reveal is on disk.
    Sync,
}

impl Durability {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::None, Self::Interval, Self::Sync];

    /// The name that `--durability` and CLIENT DURABILITY take.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Interval => "interval",
            Self::Sync => "sync",
        }
    }

    /// The mode of this name, whatever its case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|mode| mode.name().eq_ignore_ascii_case(name))
    }
}

/// What the replies of a client wait for besides this database's disk: the disks of so many
/// databases that follow it. The host counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replicated {
    /// So many.
    pub replicas: u8,
    /// For how long at most; the reply is an error then.
    pub timeout: Option<Milliseconds>,
}

impl Replicated {
    /// How many, and until when a reply that is ready at `now_ns` waits: for ever is `u64::MAX`.
    #[must_use]
    pub fn due_ns(&self, now_ns: u64) -> (u8, u64) {
        let due = |limit: Milliseconds| now_ns.saturating_add(limit.0.saturating_mul(1_000_000));
        (self.replicas, self.timeout.map_or(u64::MAX, due))
    }
}

/// The epoch clock and its driver; see the module's header.
#[derive(Debug)]
pub(crate) struct Acknowledgement {
    clock: Arc<EpochClock>,
    log: Option<EpochLog>,
    /// The newest epochs, for followers.
    ring: Arc<Ring>,
    whole: Mutex<Whole>,
    /// Signals that a tick requested from another thread is done, or that it is time to retry.
    ticked: Condvar,
    straddle: AtomicU64,
    /// Which time it is that the log is full, and when that was noticed.
    full: Mutex<(u64, Microseconds)>,
}

/// What is in progress under all gates.
#[derive(Debug, Default)]
struct Whole {
    /// A command is running; its group has not ended.
    running: bool,
    /// The holder of all gates must tick before releasing them.
    tick_wanted: bool,
}

impl Acknowledgement {
    pub(crate) fn new(clock: Arc<EpochClock>, log: Option<EpochLog>) -> Self {
        Self {
            clock,
            log,
            ring: Arc::new(Ring::new(limits::RING_BYTES)),
            whole: Mutex::default(),
            ticked: Condvar::new(),
            straddle: AtomicU64::new(0),
            full: Mutex::default(),
        }
    }

    /// Makes epochs durable, if anything does.
    pub(crate) fn log(&self) -> Option<&EpochLog> {
        self.log.as_ref()
    }

    /// The newest epochs, for followers.
    #[inline]
    pub(crate) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Ends epochs until the current one is above `epoch`, within a command under all gates that
    /// has written nothing so far.
    pub(crate) fn rise_above(&self, epoch: LogEpoch, now: Milliseconds) {
        let mut whole = lock(&self.whole);
        debug_assert!(whole.running, "a command under all gates");
        if self.clock.current() <= epoch {
            drop(self.close(now));
            self.clock.rise_to(epoch.next());
        }
        if std::mem::take(&mut whole.tick_wanted) {
            self.ticked.notify_all();
        }
    }

    /// The log of files, if there is one.
    #[inline]
    pub(crate) fn files(&self) -> Option<&Log> {
        self.log.as_ref().and_then(EpochLog::files)
    }

    /// The last epoch that is durable with all before it; without a log, the current one.
    #[inline]
    pub(crate) fn durable(&self) -> LogEpoch {
        self.log
            .as_ref()
            .map_or_else(|| self.clock.current(), EpochLog::durable)
    }

    /// The latest epoch of a group that may look older than it is (AK2).
    pub(crate) fn straddle(&self) -> LogEpoch {
        // Acquire pairs with `end_whole`. A thread that saw the group's writes has taken a gate
        // after it.
        LogEpoch(self.straddle.load(Ordering::Acquire))
    }

    /// Ends the current epoch. The caller holds no gate, before or after.
    pub(crate) fn tick(&self, gates: &Gates, now: Milliseconds) -> Sealed<'_> {
        /// How long to wait when somebody is taking all gates and has not begun yet.
        const PAUSE: Duration = Duration::from_millis(1);
        let patience = Duration::from_millis(limits::TICK_PATIENCE_MS);
        let asked = Instant::now();
        let waits = self.log.as_ref().is_some_and(EpochLog::waits_for_commands);
        let may_straddle = !waits;
        let mut whole = lock(&self.whole);
        whole.tick_wanted = true;
        while whole.tick_wanted {
            drop(whole);
            if let Some(all) = gates.try_enter_all() {
                let mut whole = lock(&self.whole);
                let wanted = std::mem::take(&mut whole.tick_wanted);
                let sealed = if wanted {
                    self.close(now)
                } else {
                    Sealed::default()
                };
                drop(whole);
                drop(all);
                return sealed;
            }
            whole = lock(&self.whole);
            if whole.running && may_straddle && asked.elapsed() >= patience {
                // Concurrently with the command: it cannot end its group while `whole` is locked
                // (AK2), and no other session is in a turn.
                whole.tick_wanted = false;
                return self.close(now);
            } else if whole.tick_wanted {
                let wait = if whole.running && may_straddle {
                    patience.saturating_sub(asked.elapsed())
                } else if whole.running {
                    patience
                } else {
                    PAUSE
                };
                let waited = self.ticked.wait_timeout(whole, wait);
                whole = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
        Sealed::default()
    }

    /// Requests that `epoch` become durable. The caller may have to write it itself, if the disk is
    /// fast and no gate is held: this thread then neither waits for others nor switches. Returns
    /// whether the epoch is durable; if not, the caller is notified as `EpochLog::want` describes.
    pub(crate) fn want(&self, epoch: LogEpoch, gates: &Gates, clock: &dyn Clock) -> bool {
        let Some(log) = &self.log else { return true };
        if log.durable() >= epoch {
            return true;
        }
        if log.is_quick() {
            if let Some(all) = gates.try_enter_all_free() {
                let mut whole = lock(&self.whole);
                let asked = std::mem::take(&mut whole.tick_wanted);
                let sealed = self.close(clock.now().milliseconds());
                drop(whole);
                drop(all);
                if asked {
                    self.ticked.notify_all();
                }
                sealed.flush();
            }
            if log.durable() >= epoch {
                return true;
            }
        }
        log.want(epoch)
    }

    /// Advances the clock and closes the epoch that was current. The caller holds `whole`, and
    /// either all gates or none of the others do.
    fn close(&self, now: Milliseconds) -> Sealed<'_> {
        let next = self.clock.tick();
        // Before the log has it: what is durable there is here.
        self.ring.close(next.previous(), now);
        let log = self.log.as_ref();
        log.map_or_else(Sealed::default, |log| log.close_epoch(next.previous(), now))
    }

    /// Ends every epoch in which anything was written, within a command under all gates that has
    /// written nothing so far; returns the last one ended.
    pub(crate) fn end_epoch_within(&self, now: Milliseconds) -> LogEpoch {
        let mut whole = lock(&self.whole);
        debug_assert!(whole.running, "a command under all gates");
        // Loggers write it, as at the end of the command. Keys may borrow from the next epochs.
        drop(self.close(now));
        while !self.clock.is_above_all() {
            drop(self.close(now));
        }
        if std::mem::take(&mut whole.tick_wanted) {
            self.ticked.notify_all();
        }
        debug_assert!(self.clock.is_above_all());
        LogEpoch(self.clock.current().0 - 1)
    }

    /// Whether writes may be executed: the log takes them, or there is none.
    #[inline]
    pub(crate) fn accepts_writes(&self) -> bool {
        self.log.as_ref().is_none_or(|log| log.accepts(false))
    }

    /// The same for commands that only remove.
    pub(crate) fn accepts_removals(&self) -> bool {
        self.log.as_ref().is_none_or(|log| log.accepts(true))
    }

    /// For how long the log has been full, if it is and may have room again.
    pub(crate) fn is_full_for(&self, now: Microseconds) -> Option<Microseconds> {
        let times = self.log.as_ref()?.times_full()?;
        let mut full = lock(&self.full);
        if full.0 != times {
            *full = (times, now);
        }
        Some(now.saturating_sub(full.1))
    }

    /// Begins a command under all gates, which the caller holds; what its session logged before is
    /// handed over (AK3). Returns the current epoch.
    pub(crate) fn begin_whole(&self) -> LogEpoch {
        let mut whole = lock(&self.whole);
        assert!(!whole.running, "one command at a time holds all gates");
        whole.running = true;
        self.clock.current()
    }

    /// Ends the command that began in epoch `begun`: `end_group` gets an epoch, makes a group of it
    /// from what was logged, and hands it over. The caller still holds all gates.
    pub(crate) fn end_whole(
        &self,
        begun: LogEpoch,
        now: Milliseconds,
        end_group: impl FnOnce(LogEpoch),
    ) -> LogEpoch {
        let mut whole = lock(&self.whole);
        let epoch = self.clock.current();
        assert!(whole.running && begun <= epoch);
        end_group(epoch);
        if epoch != begun {
            // Release pairs with `straddle`; a reader of the writes first takes a gate, which also
            // orders it (AK2).
            self.straddle.fetch_max(epoch.0, Ordering::Release);
        }
        whole.running = false;
        if whole.tick_wanted {
            whole.tick_wanted = false;
            // Loggers write it: this thread has requests to execute.
            drop(self.close(now));
            self.ticked.notify_all();
        }
        epoch
    }
}

#[cfg(test)]
mod tests;
