//! Eviction: which keys go when memory is short, and how much is done about it at a time.
//!
//! There is no list of keys by use. Each value has an access mark (`access`), and each session a
//! *hand* that sweeps through the keys, lowers marks and takes keys whose mark is low (`judge`).
//! The `volatile` policies sweep through the expiry index instead, so that
//! their work does not grow with the keys that never expire; `volatile-ttl` takes the first
//! entries of some of the index's shards. A key is removed by an update that looks at it once
//! more, through the one write path (K2), under the session's own gate.
//!
//! | field | writer | ordering | reader |
//! |---|---|---|---|
//! | `Eviction::policy` | CONFIG SET | `Relaxed` | every command, maintenance |
//! | `Eviction::reserve` | maintenance | `Relaxed` | writers |
//! | `Eviction::ceiling` | CONFIG SET, maintenance | `Relaxed` | writers |
//! | `Eviction::pace` | see `pace` | `Relaxed` | hands |
//! | `Eviction::requests` | see `requests` | | |
//! | `Eviction::emptier` | see `emptying` | a mutex | the same |
//! | `Evictor` | its session | none needed | the same |
//!
//! **How much.** What is evicted comes back when pins end and tombstones go, so it does not show in
//! the memory in use at once. Keys are evicted as long as the memory in use, without what is on its
//! way back, lies above the *line*: the limit, less some headroom and what is on its way back
//! usually (the reserve). So the memory in use stays below the limit itself.
//!
//! Free blocks here and there count as in use beyond an allowance (`pando_memory::pool`), and to
//! evict any key makes one more of them. So where only they are in the way, memory is emptied, and
//! a command evicts no more than about what it takes itself.
//!
//! Invariants:
//! - **EV1** One call of [`evict`] removes at most `limits::EVICT_KEYS_MAX` keys, looks at
//!   `limits::EVICT_STEPS_MAX` and passes `limits::EMPTY_STEPS_MAX` more, or a few more than these;
//!   a command makes at most `limits::EVICT_ROUNDS_MAX` calls, its gate passed on between.
//! - **EV2** A key is evicted only if the policy may take it when it is removed: with a deadline
//!   under a `volatile` policy, and not used since its mark was read.
//! - **EV3** Nothing is evicted while writes are paused, or while the log takes none.

mod access;
mod ages;
mod emptying;
mod judge;
mod pace;
mod requests;

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use pando_engine::mark::MARK_MAX;
use pando_engine::{Deadline, Hand, Key, Point, TreeId, ValueRef};

pub(crate) use access::{Access, Touch, Tracking};
pub(crate) use ages::Ages;
pub use ages::{Accesses, LastAccess};
pub(crate) use requests::Fit;

use emptying::{Emptier, empty};
use judge::{Judge, Verdict};
use pace::Pace;
use requests::Requests;

use crate::clock::Milliseconds;
use crate::database::Database;
use crate::expiry::ExpiryHand;
use crate::keyspace::{Keyspace, is_expired};
use crate::limits;
use crate::session::SessionState;

/// Which keys are removed when memory is short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum EvictionPolicy {
    /// None: writes are refused.
    #[default]
    NoEviction,
    /// Those that were not used lately.
    AllKeysLru,
    /// Those that are not used often.
    AllKeysLfu,
    /// Any.
    AllKeysRandom,
    /// Those with a deadline that were not used lately.
    VolatileLru,
    /// Those with a deadline that are not used often.
    VolatileLfu,
    /// Any with a deadline.
    VolatileRandom,
    /// Those whose deadline is near.
    VolatileTtl,
}

impl EvictionPolicy {
    /// Every policy.
    pub const ALL: [Self; 8] = [
        Self::NoEviction,
        Self::AllKeysLru,
        Self::AllKeysLfu,
        Self::AllKeysRandom,
        Self::VolatileLru,
        Self::VolatileLfu,
        Self::VolatileRandom,
        Self::VolatileTtl,
    ];

    /// The name that `maxmemory-policy` takes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoEviction => "noeviction",
            Self::AllKeysLru => "allkeys-lru",
            Self::AllKeysLfu => "allkeys-lfu",
            Self::AllKeysRandom => "allkeys-random",
            Self::VolatileLru => "volatile-lru",
            Self::VolatileLfu => "volatile-lfu",
            Self::VolatileRandom => "volatile-random",
            Self::VolatileTtl => "volatile-ttl",
        }
    }

    /// The policy of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// Whether it is known under this policy if a value was read since it was written.
    #[must_use]
    pub fn knows_unread(self) -> bool {
        self.tracking() == Tracking::Lately
    }

    fn is_volatile(self) -> bool {
        matches!(
            self,
            Self::VolatileLru | Self::VolatileLfu | Self::VolatileRandom | Self::VolatileTtl
        )
    }

    pub(crate) fn tracking(self) -> Tracking {
        match self {
            Self::AllKeysLru | Self::VolatileLru => Tracking::Lately,
            Self::AllKeysLfu | Self::VolatileLfu => Tracking::Often,
            _ => Tracking::Nothing,
        }
    }
}

/// What all sessions share of eviction.
#[derive(Debug, Default)]
pub(crate) struct Eviction {
    policy: AtomicU8,
    /// Bytes that are on their way back usually.
    reserve: AtomicUsize,
    /// Where writes are refused while the memory in use comes down to a lower limit.
    ceiling: AtomicUsize,
    ages: Ages,
    pace: Pace,
    requests: Requests,
    emptier: Mutex<Emptier>,
}

impl Database {
    /// Which keys are removed when memory is short.
    #[must_use]
    pub fn eviction_policy(&self) -> EvictionPolicy {
        EvictionPolicy::ALL[usize::from(self.eviction.policy.load(Ordering::Relaxed))]
    }

    /// Sets [`Self::eviction_policy`]. Marks of another meaning take some time to adjust.
    pub fn set_eviction_policy(&self, policy: EvictionPolicy) {
        self.eviction.policy.store(policy as u8, Ordering::Relaxed);
        self.approach_limit();
    }

    /// A lower limit than the memory in use is reached step by step, writes going on meanwhile.
    pub(crate) fn approach_limit(&self) {
        let used = (self.options.memory)();
        self.eviction.ceiling.store(used, Ordering::Relaxed);
    }

    /// How old values are, for marks.
    #[inline]
    pub(crate) fn ages(&self) -> &Ages {
        &self.eviction.ages
    }

    /// How fast marks go down.
    fn pace(&self) -> &Pace {
        &self.eviction.pace
    }

    /// Lets marks go down as time passes, once an epoch.
    pub(crate) fn allow_decay(&self, now_ms: Milliseconds) {
        self.pace().tick(self.keys(), now_ms);
    }

    /// Keys of all databases.
    fn keys(&self) -> u64 {
        let databases = 0..self.databases();
        databases
            .map(|index| self.store.len(self.tree(index)))
            .sum()
    }

    /// What tells when values were used last.
    pub(crate) fn accesses(&self, now_ms: Milliseconds) -> Accesses<'_> {
        Accesses {
            ages: self.ages(),
            tracking: self.eviction_policy().tracking(),
            now_ms,
        }
    }

    /// The bytes that eviction keeps the memory in use below; `None` when nothing is evicted.
    fn eviction_line(&self) -> Option<usize> {
        let max_memory = self.max_memory();
        if max_memory == 0
            || self.eviction_policy() == EvictionPolicy::NoEviction
            || !self.takes_writes()
        {
            return None;
        }
        let headroom = (max_memory / limits::EVICT_HEADROOM_SHARE).min(limits::EVICT_HEADROOM_MAX);
        let reserve = self.eviction.reserve.load(Ordering::Relaxed);
        Some(max_memory - headroom - reserve.min(max_memory / 4))
    }

    /// Whether a command that needs memory may run without more ado.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.max_memory() == 0 || self.is_below_line()
    }

    fn is_below_line(&self) -> bool {
        match self.eviction_line() {
            Some(line) => (self.options.memory)() <= line || self.memory_in_use() <= line,
            None => !self.is_out_of_memory(),
        }
    }

    /// The memory in use, without what requests that are under way hold beyond their bound.
    pub(crate) fn memory_in_use(&self) -> usize {
        let excess = self.eviction.requests.excess_bytes();
        (self.options.memory)().saturating_sub(excess)
    }

    /// Whether the memory in use comes near the limit.
    fn is_near_limit(&self) -> bool {
        let max_memory = self.max_memory();
        self.memory_in_use() > max_memory - max_memory / limits::EVICT_EXCESS_SHARE
    }

    /// Whether keys are evicted when memory is short.
    pub(crate) fn evicts(&self) -> bool {
        self.eviction_line().is_some()
    }

    /// Whether keys are to be evicted.
    pub(crate) fn is_short(&self) -> bool {
        self.excess_beside(0) > 0
    }

    /// Whether keys are to be evicted even if all memory could be used that is free here and there.
    fn is_full(&self) -> bool {
        self.excess_beside(self.store.idle_bytes()) > 0
    }

    /// Bytes that are to be evicted, `idle_bytes` being none of them.
    fn excess_beside(&self, idle_bytes: usize) -> usize {
        let Some(line) = self.eviction_line() else {
            return 0;
        };
        // In this order: what comes back in between counts as evicted, not as in use.
        let reclaimable = self.store.reclaimable_bytes();
        let used = self.memory_in_use();
        used.saturating_sub(reclaimable + idle_bytes)
            .saturating_sub(line)
    }

    /// Whether writes that need memory are refused, [`evict`] having done what it can.
    pub(crate) fn is_beyond_ceiling(&self) -> bool {
        let max_memory = self.max_memory();
        let ceiling = self
            .eviction
            .ceiling
            .load(Ordering::Relaxed)
            .max(max_memory);
        self.memory_in_use() > ceiling + max_memory / limits::EVICT_EXCESS_SHARE
    }

    /// Whether writes that need memory are refused, what can be evicted having been.
    pub(crate) fn refuses_writes(&self) -> bool {
        if self.evicts() {
            self.is_beyond_ceiling()
        } else {
            self.is_out_of_memory()
        }
    }

    /// Keeps the reserve and the ceiling up to date, once an epoch.
    pub(crate) fn adjust_eviction(&self) {
        let reserve = &self.eviction.reserve;
        if self.eviction_line().is_none() {
            reserve.store(0, Ordering::Relaxed);
            return;
        }
        let before = reserve.load(Ordering::Relaxed);
        let now = self.store.reclaimable_bytes();
        reserve.store(now.max(before - before / 8), Ordering::Relaxed);
        let used = (self.options.memory)();
        self.eviction.ceiling.fetch_min(used, Ordering::Relaxed);
    }

    /// Bytes of tombstones that WATCH may hold back: less when there is a bound of memory.
    pub(crate) fn watch_buried_bytes_max(&self) -> u64 {
        let most = match (self.eviction_line(), self.max_memory()) {
            (Some(line), _) => line / 128,
            (None, 0) => return limits::WATCH_BURIED_BYTES_MAX,
            (None, max_memory) => max_memory / 16,
        };
        limits::WATCH_BURIED_BYTES_MAX.min(most as u64)
    }
}

/// A key that may be evicted, if it still is what it was.
#[derive(Debug)]
struct Victim {
    tree: TreeId,
    key: Box<[u8]>,
    /// It was not used since if its mark is at most this.
    mark_max: u8,
    /// The deadline that it must have.
    deadline: Option<Deadline>,
}

/// What one session remembers of its evictions.
#[derive(Debug, Default)]
pub(crate) struct Evictor {
    /// The database that the hand is in.
    index: usize,
    hand: Hand,
    expiry_hand: ExpiryHand,
    judge: Judge,
    victims: VecDeque<Victim>,
    /// The policy that chose them.
    policy: EvictionPolicy,
}

/// What a call of [`evict`] has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evicted {
    /// Keys removed.
    pub(crate) keys: usize,
    /// Values passed, or more, in search of memory that is being emptied.
    pub(crate) emptying_steps: usize,
    /// Memory is short and the policy finds no key to remove.
    pub(crate) exhausted: bool,
}

/// Evicts up to `limits::EVICT_KEYS_MAX` keys, as long as memory is short, for a command that needs
/// some. The caller holds a gate (EV1).
pub(crate) fn evict(database: &Database, session: &mut SessionState) -> Evicted {
    evict_up_to(database, session, limits::EVICT_SCATTERED_KEYS_MAX)
}

/// The same for maintenance, which takes no memory itself.
pub(crate) fn evict_ahead(database: &Database, session: &mut SessionState) -> Evicted {
    evict_up_to(database, session, 0)
}

/// `scattered_max`: keys that go wherever they lie although memory is not full.
fn evict_up_to(database: &Database, session: &mut SessionState, scattered_max: usize) -> Evicted {
    let policy = database.eviction_policy();
    let mut evictor = std::mem::take(&mut session.evictor);
    if evictor.policy != policy {
        evictor = Evictor::somewhere(policy, database, session);
    }
    let mut evicted = Evicted::default();
    let mut steps = limits::EVICT_STEPS_MAX;
    if database.is_short() {
        evicted.emptying_steps = empty(database, session, true);
    }
    let goes_on = |keys: usize| database.is_full() || (keys < scattered_max && database.is_short());
    while evicted.keys < limits::EVICT_KEYS_MAX && steps > 0 && goes_on(evicted.keys) {
        if evictor.victims.is_empty() {
            evictor.choose(database, session, &mut steps);
        }
        let Some(victim) = evictor.victims.pop_front() else {
            // With steps left, the hand has not just met empty places.
            evicted.exhausted = evicted.keys == 0 && steps > 0;
            break;
        };
        evicted.keys += usize::from(victim.evict(database, session, policy));
        steps = steps.saturating_sub(1);
    }
    session.evictor = evictor;
    evicted
}

/// Moves values out of memory that is being emptied; returns how many were passed. The caller holds
/// a gate.
pub(crate) fn tidy(database: &Database, session: &mut SessionState) -> usize {
    let short = database.max_memory() > 0 && !database.evicts() && database.is_near_limit();
    empty(database, session, short)
}

impl Victim {
    /// Removes the key if it may still go (EV2); whether it did.
    fn evict(
        &self,
        database: &Database,
        session: &mut SessionState,
        policy: EvictionPolicy,
    ) -> bool {
        let may_go = |value: &ValueRef<'_>| {
            value.mark.get() <= self.mark_max
                && (!policy.is_volatile() || value.attributes.deadline.is_some())
                && (self.deadline.is_none() || self.deadline == value.attributes.deadline)
        };
        Keyspace::new(database, session, 0).evict(self.tree, &self.key, may_go)
    }
}

impl Evictor {
    /// One that begins somewhere, so that the hands of many sessions are spread.
    fn somewhere(policy: EvictionPolicy, database: &Database, session: &mut SessionState) -> Self {
        let mut evictor = Self {
            policy,
            judge: Judge::with_seed(session.random.u64(..)),
            expiry_hand: ExpiryHand::somewhere(&mut session.random),
            ..Self::default()
        };
        evictor.jump(database, session);
        evictor
    }

    /// Lets the hand go on at some key of all.
    fn jump(&mut self, database: &Database, session: &mut SessionState) {
        let len = |index: usize| database.store.len(database.tree(index));
        let mut rank = session.random.u64(..database.keys().max(1));
        let holds = |index: &usize| {
            let before = rank;
            rank = rank.saturating_sub(len(*index));
            before < len(*index)
        };
        let Some(index) = (0..database.databases()).find(holds) else {
            return;
        };
        let random = session.random.u64(..);
        let sample = |found: Option<(&[u8], ValueRef<'_>)>| found.map(|(key, _)| key.to_vec());
        self.index = index;
        self.hand = Hand {
            position: random,
            key: session.store.sample(database.tree(index), random, sample),
        };
    }

    /// Chooses victims, at the cost of some of `steps`; none if there are none.
    fn choose(&mut self, database: &Database, session: &mut SessionState, steps: &mut usize) {
        match self.policy {
            EvictionPolicy::NoEviction => {}
            EvictionPolicy::AllKeysLru
            | EvictionPolicy::AllKeysLfu
            | EvictionPolicy::AllKeysRandom => {
                self.sweep_keys(database, session, steps);
            }
            EvictionPolicy::VolatileLru
            | EvictionPolicy::VolatileLfu
            | EvictionPolicy::VolatileRandom => {
                self.sweep_expiring(database, session, steps);
            }
            EvictionPolicy::VolatileTtl => {
                let found = database.expiry.soonest(&mut session.random);
                self.victims.extend(found.map(Victim::expiring));
            }
        }
    }

    /// The tree that the hand is in, or the next one that holds keys.
    fn next_tree(&mut self, database: &Database) -> Option<TreeId> {
        let databases = database.databases();
        let mut indexes = (self.index..self.index + databases).map(|index| index % databases);
        let index = indexes.find(|index| database.store.len(database.tree(*index)) > 0)?;
        if index != self.index {
            self.index = index;
            self.hand = Hand::default();
        }
        Some(database.tree(index))
    }

    /// Lets the hand pass over keys until it finds some that were not used; the least used one that
    /// it met if the steps end before.
    fn sweep_keys(&mut self, database: &Database, session: &mut SessionState, steps: &mut usize) {
        let (now, tracking) = (session.now_us / 1000, self.policy.tracking());
        let mut coldest = Coldest::default();
        while self.victims.is_empty() && *steps > 0 {
            let Some(tree) = self.next_tree(database) else {
                break;
            };
            let (victims, judge, pace) = (&mut self.victims, &mut self.judge, database.pace());
            let mut visited = 0;
            let visit = |key: &[u8], value: ValueRef<'_>| {
                visited += 1;
                let mark = value.mark.get();
                match judge.pass(tracking, mark, pace) {
                    Verdict::Pass(mark) if !is_expired(&value.attributes, now) => {
                        value.mark.set(mark);
                        coldest.offer(mark, || Victim::swept(tree, key, mark));
                    }
                    _ => victims.push_back(Victim::swept(tree, key, mark)),
                }
            };
            let window = limits::EVICT_WINDOW.min(*steps);
            let ended = session.store.sweep(tree, &mut self.hand, window, visit);
            if ended {
                self.hand = Hand::default();
                self.index += 1;
            }
            *steps = steps.saturating_sub(visited.max(1));
            if self.judge.wants_another_place() {
                self.jump(database, session);
            }
        }
        if self.victims.is_empty() {
            self.victims.extend(coldest.victim);
        }
    }

    /// The same among the keys that have a deadline.
    fn sweep_expiring(
        &mut self,
        database: &Database,
        session: &mut SessionState,
        steps: &mut usize,
    ) {
        let tracking = self.policy.tracking();
        let mut coldest = Coldest::default();
        while self.victims.is_empty() && *steps > 0 {
            let window = limits::EVICT_WINDOW.min(*steps);
            let entries = database.expiry.sweep(&mut self.expiry_hand, window);
            *steps = steps.saturating_sub(entries.len().max(1));
            if entries.is_empty() {
                break;
            }
            for (tree, _, key) in entries {
                let judge = &mut self.judge;
                let pass = |value: Option<ValueRef<'_>>| {
                    let mark = value.map(|value| value.mark)?;
                    let before = mark.get();
                    let verdict = judge.pass(tracking, before, database.pace());
                    if let Verdict::Pass(after) = verdict {
                        mark.set(after);
                    }
                    Some((before, verdict))
                };
                match session.store.get(Key::new(tree, &key), pass) {
                    None => {}
                    Some((mark, Verdict::Take)) => {
                        self.victims.push_back(Victim::swept(tree, &key, mark));
                    }
                    Some((_, Verdict::Pass(mark))) => {
                        coldest.offer(mark, || Victim::swept(tree, &key, mark));
                    }
                }
            }
        }
        if self.victims.is_empty() {
            self.victims.extend(coldest.victim);
        }
    }
}

/// The least used key that a sweep has met.
#[derive(Default)]
struct Coldest {
    victim: Option<Victim>,
}

impl Coldest {
    fn offer(&mut self, mark: u8, victim: impl FnOnce() -> Victim) {
        if self
            .victim
            .as_ref()
            .is_none_or(|coldest| mark < coldest.mark_max)
        {
            self.victim = Some(victim());
        }
    }
}

impl Victim {
    fn swept(tree: TreeId, key: &[u8], mark_max: u8) -> Self {
        Self {
            tree,
            key: key.into(),
            mark_max,
            deadline: None,
        }
    }

    /// One that goes because of its deadline, however often it is used.
    fn expiring((tree, deadline, key): (TreeId, Deadline, Box<[u8]>)) -> Self {
        Self {
            tree,
            key,
            mark_max: MARK_MAX,
            deadline: Some(deadline),
        }
    }
}

#[cfg(test)]
mod tests;
