//! The memory limit: what counts, which keys may be evicted, how their use is marked.
//!
//! | field | writer | ordering | reader |
//! |---|---|---|---|
//! | `MemoryLimit::bytes_max` | CONFIG SET | `Relaxed` | writes |
//! | `MemoryLimit::policy` | CONFIG SET | `Relaxed` | every command, maintenance |
//! | `MemoryLimit::reserve` | maintenance | `Relaxed` | writers |
//! | `MemoryLimit::ceiling` | CONFIG SET, maintenance | `Relaxed` | writers |
//! | `MemoryLimit::pace` | see `decay` | `Relaxed` | hands |
//! | `MemoryLimit::requests` | see `requests` | | |
//! | `MemoryLimit::emptier` | see `eviction/emptying.rs` | a mutex | the same |
//! | `Evictor` | its session | none needed | the same |
//!
//! Deliberately absent: keys. `eviction` chooses and removes them.

mod access;
mod ages;
mod decay;
mod hands;
mod lru_lfu;
mod policy;
mod requests;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

pub(crate) use access::{Access, Touch, Tracking};
pub(crate) use ages::Ages;
pub use ages::{Accesses, LastAccess};
pub(crate) use decay::DecayPace;
pub(crate) use hands::{Emptier, Evictor, Victim};
pub(crate) use lru_lfu::{Judge, Verdict};
pub use policy::EvictionPolicy;
pub(crate) use requests::{Fit, Requests};

use crate::clock::Milliseconds;
use crate::limits;
use crate::options::MemoryMeter;

/// The state of the limit that all sessions share.
#[derive(Debug)]
pub(crate) struct MemoryLimit {
    meter: MemoryMeter,
    /// 0 is no limit.
    bytes_max: AtomicUsize,
    policy: AtomicU8,
    /// The usual amount of bytes about to be reclaimed.
    reserve: AtomicUsize,
    /// Where writes are refused while the memory in use shrinks to a lower limit.
    ceiling: AtomicUsize,
    pub(crate) ages: Ages,
    pub(crate) pace: DecayPace,
    pub(crate) requests: Requests,
    pub(crate) emptier: Mutex<Emptier>,
}

impl MemoryLimit {
    pub(crate) fn new(meter: MemoryMeter) -> Self {
        Self {
            meter,
            bytes_max: AtomicUsize::new(0),
            policy: AtomicU8::new(EvictionPolicy::NoEviction as u8),
            reserve: AtomicUsize::new(0),
            ceiling: AtomicUsize::new(0),
            ages: Ages::default(),
            pace: DecayPace::default(),
            requests: Requests::default(),
            emptier: Mutex::default(),
        }
    }

    /// Bytes beyond which keys are evicted or writes refused; 0 is no limit.
    #[inline]
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max.load(Ordering::Relaxed)
    }

    /// Sets [`Self::bytes_max`].
    pub(crate) fn set_bytes_max(&self, bytes: usize) {
        self.bytes_max.store(bytes, Ordering::Relaxed);
        self.approach();
    }

    /// Which keys are removed when memory is short.
    #[inline]
    pub(crate) fn policy(&self) -> EvictionPolicy {
        EvictionPolicy::ALL[usize::from(self.policy.load(Ordering::Relaxed))]
    }

    /// Sets [`Self::policy`].
    pub(crate) fn set_policy(&self, policy: EvictionPolicy) {
        self.policy.store(policy as u8, Ordering::Relaxed);
        self.approach();
    }

    /// A lower limit than the memory in use is reached step by step, while writes continue.
    fn approach(&self) {
        self.ceiling.store(self.allocated(), Ordering::Relaxed);
    }

    /// The meter's reading.
    #[inline]
    pub(crate) fn allocated(&self) -> usize {
        (self.meter)()
    }

    /// The memory in use, without what requests in progress hold beyond their bound.
    pub(crate) fn in_use(&self) -> usize {
        self.allocated()
            .saturating_sub(self.requests.excess_bytes())
    }

    /// Whether more memory is in use than allowed.
    pub(crate) fn is_exceeded(&self) -> bool {
        let bytes_max = self.bytes_max();
        bytes_max > 0 && self.in_use() > bytes_max
    }

    /// Whether the memory in use is close to the limit.
    pub(crate) fn is_near(&self) -> bool {
        let bytes_max = self.bytes_max();
        self.in_use() > bytes_max - bytes_max / limits::EVICT_EXCESS_SHARE
    }

    /// Whether writes that need memory are refused, after eviction has done what it can.
    pub(crate) fn is_beyond_ceiling(&self) -> bool {
        let bytes_max = self.bytes_max();
        let ceiling = self.ceiling.load(Ordering::Relaxed).max(bytes_max);
        self.in_use() > ceiling + bytes_max / limits::EVICT_EXCESS_SHARE
    }

    /// The bytes below which eviction keeps the memory in use; `None` when the policy evicts
    /// nothing.
    pub(crate) fn line(&self) -> Option<usize> {
        let bytes_max = self.bytes_max();
        if bytes_max == 0 || self.policy() == EvictionPolicy::NoEviction {
            return None;
        }
        let headroom = (bytes_max / limits::EVICT_HEADROOM_SHARE).min(limits::EVICT_HEADROOM_MAX);
        let reserve = self.reserve.load(Ordering::Relaxed);
        Some(bytes_max - headroom - reserve.min(bytes_max / 4))
    }

    /// Whether the memory in use is at most `line`.
    pub(crate) fn is_below(&self, line: usize) -> bool {
        self.allocated() <= line || self.in_use() <= line
    }

    /// Updates the reserve and the ceiling, once per epoch, given how many bytes are about to be
    /// reclaimed; `None`: nothing is evicted.
    pub(crate) fn adjust(&self, reclaimable_bytes: Option<usize>) {
        let Some(now) = reclaimable_bytes else {
            self.reserve.store(0, Ordering::Relaxed);
            return;
        };
        let before = self.reserve.load(Ordering::Relaxed);
        self.reserve
            .store(now.max(before - before / 8), Ordering::Relaxed);
        self.ceiling.fetch_min(self.allocated(), Ordering::Relaxed);
    }

    /// Tells when values were last used.
    pub(crate) fn accesses(&self, now_ms: Milliseconds) -> Accesses<'_> {
        Accesses {
            ages: &self.ages,
            tracking: self.policy().tracking(),
            now_ms,
        }
    }

    /// Bytes of memory that one request may take before it runs (RQ2 one-request-fits).
    #[inline]
    pub(crate) fn request_bytes_max(&self) -> usize {
        let own = match self.requests.bytes_max() {
            0 => usize::MAX,
            bytes_max => bytes_max - bytes_max / limits::REQUEST_SLACK_SHARE,
        };
        own.min(self.fit_bytes_max())
    }

    /// Most bytes that values can have in total to fit beside what the process needs without any
    /// key.
    pub(crate) fn fit_bytes_max(&self) -> usize {
        match self.bytes_max() {
            0 => usize::MAX,
            bytes_max => {
                let rest = bytes_max - bytes_max / limits::UNFIT_SHARE;
                rest.max(limits::FIT_BYTES_MAX_LEAST)
            }
        }
    }
}
