//! The memory limit: what counts, which keys may be evicted, how their use is marked.
//!
//! | field | writer | ordering | reader |
//! |---|---|---|---|
//! | `MemoryLimit::bytes_max` | CONFIG SET | `Relaxed` | writes |
//! | `MemoryLimit::is_limited` | CONFIG SET | `Relaxed` | writes |
//! | `MemoryLimit::policy` | CONFIG SET | `Relaxed` | every command, maintenance |
//! | `MemoryLimit::reserve` | maintenance | `Relaxed` | writers |
//! | `MemoryLimit::ceiling` | CONFIG SET, maintenance | `Relaxed` | writers |
//! | `MemoryLimit::spare` | writers, maintenance | `Relaxed` | writers |
//! | `MemoryLimit::pace` | see `decay` | `Relaxed` | hands |
//! | `MemoryLimit::requests` | see `requests` | | |
//! | `MemoryLimit::emptier` | see `eviction/emptying.rs` | a mutex | the same |
//! | `Evictor` | its session | none needed | the same |
//!
//! An engine's pool counts as memory in use. It is a limit of its own besides: under a policy that
//! evicts, keys are evicted before it is full.
//!
//! Deliberately absent: keys. `eviction` chooses and removes them.

mod access;
mod ages;
mod decay;
mod hands;
mod lru_lfu;
mod policy;
mod requests;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use pando_cdds::Cdds;

pub(crate) use access::{Access, Touch, Tracking, mark_of_idle};
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
    pool: Option<Arc<Cdds>>,
    /// 0 is no limit.
    bytes_max: AtomicUsize,
    policy: AtomicU8,
    /// Whether there is a limit, or a pool from which keys are evicted.
    is_limited: AtomicBool,
    /// The usual amount of bytes about to be reclaimed.
    reserve: AtomicUsize,
    /// Where writes are refused while the memory in use shrinks to a lower limit.
    ceiling: AtomicUsize,
    /// Bytes of the pool to be left free although others are: a write has found no block.
    spare: AtomicUsize,
    pub(crate) ages: Ages,
    pub(crate) pace: DecayPace,
    pub(crate) requests: Requests,
    pub(crate) emptier: Mutex<Emptier>,
}

impl MemoryLimit {
    pub(crate) fn new(meter: MemoryMeter, pool: Option<Arc<Cdds>>) -> Self {
        Self {
            meter,
            pool,
            is_limited: AtomicBool::new(false),
            spare: AtomicUsize::new(0),
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
        let is_limited = self.bytes_max() > 0
            || self.pool.is_some() && self.policy() != EvictionPolicy::NoEviction;
        self.is_limited.store(is_limited, Ordering::Relaxed);
    }

    /// Whether writes have to ask for memory.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.is_limited.load(Ordering::Relaxed)
    }

    /// The meter's reading, and what the engine's pool holds.
    #[inline]
    pub(crate) fn allocated(&self) -> usize {
        (self.meter)() + self.pool_bytes()
    }

    /// Bytes of the engine's pool that are taken, or were and wait until nobody sees them.
    pub(crate) fn pool_bytes(&self) -> usize {
        self.pool.as_ref().map_or(0, |pool| {
            let tally = pool.tally();
            (tally.taken() + tally.waiting()) as usize
        })
    }

    /// Bytes that the pool holds beyond what eviction leaves in it.
    pub(crate) fn pool_excess(&self) -> usize {
        let Some(pool) = &self.pool else {
            return 0;
        };
        let bytes_max = pool.tally().bytes_max() as usize;
        let spare = bytes_max / limits::POOL_SPARE_SHARE + self.spare.load(Ordering::Relaxed);
        self.pool_bytes().saturating_sub(bytes_max - spare)
    }

    /// Whether the pool could hold so many bytes more, once what waits is free: in the place of
    /// all that there is if keys may go, else beside it.
    pub(crate) fn may_pool_hold(&self, bytes: usize, evicts: bool) -> bool {
        self.pool.as_ref().is_none_or(|pool| {
            let tally = pool.tally();
            let spare = tally.bytes_max() / limits::POOL_SPARE_SHARE as u64;
            let stays = if evicts { 0 } else { tally.taken() };
            stays + bytes as u64 <= tally.bytes_max() - spare
        })
    }

    /// A write has found no block in the pool: more is left free for a while. What is free may be
    /// blocks of other sizes.
    pub(crate) fn spare_more(&self) {
        if let Some(pool) = &self.pool {
            let bytes_max = pool.tally().bytes_max() as usize;
            let more = bytes_max / limits::POOL_SPARE_SHARE / 8;
            let most = bytes_max / limits::POOL_SPARE_SHARE_MAX;
            // Lost between two writers, it is made good by their next attempt.
            let spare = (self.spare.load(Ordering::Relaxed) + more).min(most);
            self.spare.store(spare, Ordering::Relaxed);
        }
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
        bytes_max > 0 && self.in_use() > ceiling + bytes_max / limits::EVICT_EXCESS_SHARE
    }

    /// The bytes below which eviction keeps the memory in use, `usize::MAX` where the pool alone is
    /// the limit; `None` when nothing is evicted.
    pub(crate) fn line(&self) -> Option<usize> {
        if !self.is_limited() || self.policy() == EvictionPolicy::NoEviction {
            return None;
        }
        let bytes_max = self.bytes_max();
        if bytes_max == 0 {
            return Some(usize::MAX);
        }
        let headroom = (bytes_max / limits::EVICT_HEADROOM_SHARE).min(limits::EVICT_HEADROOM_MAX);
        let reserve = self.reserve.load(Ordering::Relaxed);
        Some(bytes_max - headroom - reserve.min(bytes_max / 4))
    }

    /// Whether the memory in use is at most `line`, and the pool has room to spare.
    pub(crate) fn is_below(&self, line: usize) -> bool {
        (self.allocated() <= line || self.in_use() <= line) && self.pool_excess() == 0
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
        let spare = self.spare.load(Ordering::Relaxed);
        self.spare
            .store(spare - spare.div_ceil(64), Ordering::Relaxed);
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
        let pool = self.pool.as_ref().filter(|_| self.is_limited());
        let of_pool = pool.map_or(0, |pool| pool.tally().bytes_max() as usize);
        let limits = [self.bytes_max(), of_pool].into_iter();
        let fit = limits.filter(|bytes_max| *bytes_max > 0).map(|bytes_max| {
            let rest = bytes_max - bytes_max / limits::UNFIT_SHARE;
            rest.max(limits::FIT_BYTES_MAX_LEAST)
        });
        fit.min().unwrap_or(usize::MAX)
    }
}
