//! Eviction: which keys are evicted when memory is short, and how much at a time.
//!
//! There is no list of keys by use. Each value has an access mark (`memory/access.rs`). Each
//! session has a *hand* that sweeps the keys, lowers marks and takes keys whose mark is low
//! (`memory/lru_lfu.rs`). The `volatile` policies sweep the expiry index instead, so their work
//! does not grow with keys that never expire; `volatile-ttl` takes the first entries of some of the
//! index's shards. A key is removed by an update that checks it again, through the one write path
//! (K2 one-write-path), under the session's own gate.
//!
//! **How much.** Evicted memory is reclaimed when pins end and tombstones are purged, so the memory
//! in use does not shrink at once. Keys are evicted while the memory in use, without what is about
//! to be reclaimed, is above the *line*: the limit, less some headroom and the usual amount about
//! to be reclaimed (the reserve). So the memory in use stays below the limit itself.
//!
//! Scattered free blocks count as in use beyond an allowance (`pando_memory::pool`), and evicting
//! any key adds one. So where only they are in the way, memory is emptied, and a command evicts no
//! more than about what it takes itself.
//!
//! Invariants:
//! - **EV1 bounded-eviction** One call of [`evict`] removes at most `limits::EVICT_KEYS_MAX` keys,
//!   looks at `limits::EVICT_STEPS_MAX` and passes `limits::EMPTY_STEPS_MAX` more, or a few more
//!   than these. A command makes at most `limits::EVICT_ROUNDS_MAX` calls and releases its gate in
//!   between.
//! - **EV2 policy-at-removal** A key is evicted only if the policy allows it at its removal: with a
//!   deadline under a `volatile` policy, and not used since its mark was read.
//! - **EV3 no-eviction-unlogged** Nothing is evicted while writes are paused, or while the log
//!   takes none.
//! - **EV4 no-eviction-branched** Nothing is evicted while there are branches: they share pages, so
//!   the key would stay in the others, and its removal would copy pages. Writes are refused, and
//!   told so.

mod emptying;

use pando_engine::mark::MARK_MAX;
use pando_engine::{Deadline, Hand, Key, Point, TreeId, ValueRef};

use emptying::empty;

use crate::database::Database;
use crate::expiry::{EntryKey, ExpiryHand};
use crate::keyspace::{Keyspace, is_expired};
use crate::limits;
use crate::memory::{EvictionPolicy, Evictor, Judge, Verdict, Victim};
use crate::session_state::SessionState;

/// What a call of [`evict`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evicted {
    /// Keys removed.
    pub(crate) keys: usize,
    /// Values passed in search of memory that is being emptied, or more.
    pub(crate) emptying_steps: usize,
    /// Memory is short and the policy finds no key to remove.
    pub(crate) exhausted: bool,
}

/// Evicts up to `limits::EVICT_KEYS_MAX` keys, while memory is short, for a command that needs
/// some. The caller holds a gate (EV1).
pub(crate) fn evict(database: &Database, session: &mut SessionState) -> Evicted {
    evict_up_to(database, session, limits::EVICT_SCATTERED_KEYS_MAX)
}

/// The same for maintenance, which takes no memory itself.
pub(crate) fn evict_ahead(database: &Database, session: &mut SessionState) -> Evicted {
    evict_up_to(database, session, 0)
}

/// `scattered_max`: keys to evict wherever they are although memory is not full.
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
            let may_come = policy.is_volatile() && database.is_listing_deadlines();
            evicted.exhausted = evicted.keys == 0 && steps > 0 && !may_come;
            break;
        };
        evicted.keys += usize::from(victim.evict(database, session, policy));
        steps = steps.saturating_sub(1);
    }
    session.evictor = evictor;
    // EV1.
    assert!(evicted.keys <= limits::EVICT_KEYS_MAX);
    evicted
}

/// Moves values out of memory that is being emptied; returns how many were passed. The caller holds
/// a gate.
pub(crate) fn tidy(database: &Database, session: &mut SessionState) -> usize {
    let short = database.max_memory() > 0 && !database.evicts() && database.memory.is_near();
    empty(database, session, short)
}

impl Victim {
    /// Removes the key if it may still be evicted (EV2); returns whether it did.
    fn evict(
        &self,
        database: &Database,
        session: &mut SessionState,
        policy: EvictionPolicy,
    ) -> bool {
        let may_go = |value: &ValueRef<'_>| {
            !database.store.keeps(value.version)
                && value.mark.get() <= self.mark_max
                && (!policy.is_volatile() || value.attributes.deadline.is_some())
                && (self.deadline.is_none() || self.deadline == value.attributes.deadline)
        };
        Keyspace::new(database, session, 0).evict(self.tree, &self.key, may_go)
    }
}

impl Evictor {
    /// A hand that begins somewhere, so that the hands of many sessions are spread.
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

    /// Moves the hand to a random key of the tree.
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
        if self.policy.is_volatile() {
            // X3 filled-behind.
            database.fill_expiry_index(session);
        }
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
                let found = database.expiry.keys.soonest(&mut session.random);
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

    /// Passes keys until it finds some that were not used; the least used one it met if the steps
    /// end first.
    fn sweep_keys(&mut self, database: &Database, session: &mut SessionState, steps: &mut usize) {
        let (now, tracking) = (session.now.milliseconds(), self.policy.tracking());
        let mut coldest = Coldest::default();
        while self.victims.is_empty() && *steps > 0 {
            let Some(tree) = self.next_tree(database) else {
                break;
            };
            let (victims, judge, pace) =
                (&mut self.victims, &mut self.judge, &database.memory.pace);
            let mut visited = 0;
            let visit = |key: &[u8], value: ValueRef<'_>| {
                visited += 1;
                if database.store.keeps(value.version) {
                    return;
                }
                let mark = value.mark.get();
                match judge.pass(tracking, mark, pace) {
                    Verdict::Pass(mark) if !is_expired(&value, now) => {
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

    /// The same among keys with a deadline.
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
            let entries = database.expiry.keys.sweep(&mut self.expiry_hand, window);
            *steps = steps.saturating_sub(entries.len().max(1));
            if entries.is_empty() {
                break;
            }
            for (tree, _, key) in entries {
                let judge = &mut self.judge;
                let pass = |value: Option<ValueRef<'_>>| {
                    let needs_no_image =
                        |value: &ValueRef<'_>| !database.store.keeps(value.version);
                    let mark = value.filter(needs_no_image).map(|value| value.mark)?;
                    let before = mark.get();
                    let verdict = judge.pass(tracking, before, &database.memory.pace);
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

    /// A key that is evicted because of its deadline, however often it is used.
    fn expiring((tree, deadline, key): (TreeId, Deadline, EntryKey)) -> Self {
        Self {
            tree,
            key: key.into_vec().into(),
            mark_max: MARK_MAX,
            deadline: Some(deadline),
        }
    }
}

#[cfg(test)]
mod tests;
