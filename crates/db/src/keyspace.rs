//! The selected database as a command sees it: keys that have not expired, one clock reading.
//!
//! Invariants:
//! - **K1** A value whose deadline has passed is shown to no read and to no update's closure; an
//!   update that keeps such a key removes it instead.
//! - **K2** Every write goes through [`Keyspace::update`] (the one write path): it counts the
//!   commit and brings the expiry index up to date before it returns.

use std::ops::{Bound, ControlFlow};
use std::sync::atomic::Ordering;

use pando_durability::log::LogSession;
use pando_engine::{
    Attributes, BodyRef, CommitHook, Deadline, Decision, Direction, HashRef, Key, Point, Pressure,
    Probe, StringRef, TreeId, ValueRef, ValueVersion,
};

use crate::clock::Milliseconds;
use crate::database::Database;
use crate::durable::hook::Recorder;
use crate::error::CommandError;
use crate::eviction::Accesses;
use crate::limits;
use crate::memcached::MemcachedCounters;
use crate::options::EngineKind;
use crate::session::SessionState;
use crate::statistics::{SessionCounters, add};
use crate::store::{Listing, OrderedSession, WalkingSession};

/// One database, for the time of one command.
#[derive(Debug)]
pub struct Keyspace<'t> {
    pub(crate) database: &'t Database,
    pub(crate) session: &'t mut SessionState,
    pub(crate) index: usize,
    pub(crate) tree: TreeId,
}

/// Whether a value is past its deadline.
#[inline]
pub(crate) fn is_expired(attributes: &Attributes, now: Milliseconds) -> bool {
    attributes
        .deadline
        .is_some_and(|deadline| deadline.0 <= now)
}

impl SessionCounters {
    /// Whether a value is to be shown (K1); one past its deadline is counted.
    #[inline]
    fn shows(&self, value: &ValueRef<'_>, now: Milliseconds) -> bool {
        let expired = is_expired(&value.attributes, now);
        if expired {
            add(&self.expired_met, 1);
        }
        !expired
    }
}

/// What a commit did.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Committed {
    Written,
    Removed,
}

/// What the engine told about the commit of one update.
#[derive(Default)]
struct Effects {
    committed: Option<Committed>,
    deadline_changed: bool,
    replaced: Option<Deadline>,
    now: Milliseconds,
    expired: bool,
    /// The access mark of what was removed or has expired.
    old_mark: u8,
}

/// Notes what an update commits, and writes its log record.
struct Hook<'l> {
    effects: Effects,
    recorder: Recorder<'l>,
}

impl<'l> Hook<'l> {
    #[inline]
    fn new(now: Milliseconds, log: Option<&'l mut LogSession>) -> Self {
        Self {
            effects: Effects {
                now,
                ..Effects::default()
            },
            recorder: Recorder::new(log),
        }
    }

    /// After the update.
    #[inline]
    fn finish(self, key: Key<'_>) -> Effects {
        self.recorder.finish(key);
        self.effects
    }
}

impl CommitHook for Hook<'_> {
    #[inline]
    fn committed(
        &mut self,
        key: Key<'_>,
        old: Option<ValueRef<'_>>,
        new: Option<ValueRef<'_>>,
        version: ValueVersion,
    ) {
        self.recorder.committed(key, old, new, version);
        let effects = &mut self.effects;
        let replaced = old.and_then(|value| value.attributes.deadline);
        let deadline = new.and_then(|value| value.attributes.deadline);
        effects.committed = Some(if new.is_some() {
            Committed::Written
        } else {
            Committed::Removed
        });
        effects.deadline_changed = replaced != deadline;
        effects.replaced = replaced;
        effects.expired = replaced.is_some_and(|at| at.0 <= effects.now);
        if new.is_none() || effects.expired {
            effects.old_mark = old.map_or(0, |value| value.mark.get());
        }
    }
}

impl<'t> Keyspace<'t> {
    pub(crate) fn new(database: &'t Database, session: &'t mut SessionState, index: usize) -> Self {
        let tree = database.tree(index);
        Self {
            database,
            session,
            index,
            tree,
        }
    }

    /// The number of this database.
    #[must_use]
    pub fn database_index(&self) -> usize {
        self.index
    }

    /// The same session on another database. `index` is within [`Self::databases`].
    pub fn at(&mut self, index: usize) -> Keyspace<'_> {
        Keyspace::new(self.database, self.session, index)
    }

    /// How many databases there are.
    #[must_use]
    pub fn databases(&self) -> usize {
        self.database.databases()
    }

    /// The settings that the database was opened with.
    #[must_use]
    pub fn options(&self) -> &'t crate::Options {
        &self.database.options
    }

    /// The time of this turn.
    #[must_use]
    pub fn now(&self) -> Milliseconds {
        self.session.now_us / 1000
    }

    /// The time of this turn in microseconds since the Unix epoch.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        self.session.now_us
    }

    /// A random number of this session's generator.
    pub fn random(&mut self) -> u64 {
        self.session.random.u64(..)
    }

    /// A random number below `bound`, which is not 0.
    pub fn random_below(&mut self, bound: usize) -> usize {
        self.session.random.usize(..bound)
    }

    /// Keys in this database, those included that have expired and are not removed yet.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.database.store.len(self.tree)
    }

    /// Whether [`Self::len`] is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Refuses a key that is too long for a write.
    pub fn check_key(&self, key: &[u8]) -> Result<(), CommandError> {
        let key_bytes_max = self.database.options.key_bytes_max;
        if key.len() <= key_bytes_max {
            Ok(())
        } else {
            Err(CommandError::KeyTooLong {
                key_bytes: key.len(),
                key_bytes_max,
            })
        }
    }

    /// Refuses a value of so many bytes if it can never fit.
    #[inline]
    pub(crate) fn check_fit(&self, bytes: usize) -> Result<(), CommandError> {
        self.session.fit.check(self.database, 0, bytes)
    }

    /// The same of a value that was so many bytes and becomes so many, for the closure of an
    /// update.
    pub(crate) fn fit(&self) -> impl Fn(usize, usize) -> Result<(), CommandError> + use<'t> {
        let (fit, database) = (self.session.fit, self.database);
        move |before, after| fit.check(database, before, after)
    }

    /// Shows the key's value (K1) and counts a hit or a miss.
    #[inline]
    pub fn read<R>(&mut self, key: &[u8], read: impl FnOnce(Option<ValueRef<'_>>) -> R) -> R {
        let touch = self.session.touch(self.database);
        let (result, hit) = self.look(key, |value| {
            let result = read(value);
            // Afterwards: the reader may ask when the value was used before.
            if let Some(value) = &value {
                touch.note(value);
            }
            (result, value.is_some())
        });
        self.count_read(hit);
        result
    }

    /// The command in work leaves access marks as they are, as with CLIENT NO-TOUCH.
    pub(crate) fn leave_marks(&mut self) {
        self.session.access.quiet = true;
    }

    /// Counts a hit or a miss: what [`Self::read`] does, for an update that also reads.
    #[inline]
    pub fn count_read(&self, hit: bool) {
        let counters = &self.session.counters;
        let counter = if hit {
            &counters.hits
        } else {
            &counters.misses
        };
        add(counter, 1);
    }

    /// Shows the key's value (K1) and counts nothing.
    #[inline]
    pub fn look<R>(&mut self, key: &[u8], read: impl FnOnce(Option<ValueRef<'_>>) -> R) -> R {
        if key.len() > pando_engine::limits::KEY_BYTES_MAX {
            return read(None);
        }
        if self.session.observes {
            return self.look_and_observe(key, read);
        }
        let now = self.now();
        let counters = &self.session.counters;
        self.session.store.get(Key::new(self.tree, key), |value| {
            read(value.filter(|value| counters.shows(value, now)))
        })
    }

    /// [`Self::look`] for a client of `sync`, apart so that others do not pay for it.
    #[cold]
    fn look_and_observe<R>(
        &mut self,
        key: &[u8],
        read: impl FnOnce(Option<ValueRef<'_>>) -> R,
    ) -> R {
        let now = self.now();
        let key = Key::new(self.tree, key);
        let mut seen = None;
        let counters = &self.session.counters;
        let result = self.session.store.get(key, |value| {
            seen = value.as_ref().map(|value| value.version);
            read(value.filter(|value| counters.shows(value, now)))
        });
        self.observe_key(key, seen);
        result
    }

    /// Notes what a reply may tell of a key: the version that stood there, expired or not, or the
    /// tombstone of what did (AK4).
    #[cold]
    fn observe_key(&mut self, key: Key<'_>, seen: Option<ValueVersion>) {
        let version = seen.or_else(|| match self.session.store.probe(key) {
            // Something newer than what was missed is at least as late.
            Probe::Present { version, .. } | Probe::Removed(version) => Some(version),
            // A tombstone goes only when its epoch is on disk; that of a removal by a command under
            // all gates is older than its group (AK2).
            Probe::Absent => {
                let straddle = self.database.acknowledgement.straddle();
                self.session.observe(straddle);
                None
            }
        });
        if let Some(version) = version {
            self.session.observe(version.epoch());
        }
        self.session
            .observe(self.database.tree_changed_in(self.index));
    }

    /// Notes that a reply may tell of anything that was ever written (AK4).
    #[inline]
    pub(crate) fn observe_all(&mut self) {
        let current = self.database.epochs.current();
        self.session.observe(current);
    }

    /// Shows the string at the key; a hash is [`CommandError::WrongType`].
    #[inline]
    pub fn read_string<R>(
        &mut self,
        key: &[u8],
        read: impl FnOnce(Option<StringRef<'_>>) -> R,
    ) -> Result<R, CommandError> {
        self.read(key, |value| Ok(read(value.map(string_of).transpose()?)))
    }

    /// Shows the hash at the key; a string is [`CommandError::WrongType`].
    #[inline]
    pub fn read_hash<R>(
        &mut self,
        key: &[u8],
        read: impl FnOnce(Option<HashRef<'_>>) -> R,
    ) -> Result<R, CommandError> {
        self.read(key, |value| Ok(read(value.map(hash_of).transpose()?)))
    }

    /// Shows the values of up to [`crate::limits::WARM_KEYS_MAX`] keys in turn (K1), their descents
    /// interleaved, and counts hits and misses.
    pub fn read_many(&mut self, keys: &[&[u8]], mut read: impl FnMut(usize, Option<ValueRef<'_>>)) {
        if self.session.observes {
            for (index, key) in keys.iter().enumerate() {
                self.read(key, |value| read(index, value));
            }
            return;
        }
        let now = self.now();
        let mut found = 0;
        let mut batch = [const { Key::new(TreeId(0), b"") }; crate::limits::WARM_KEYS_MAX];
        for (slot, bytes) in batch.iter_mut().zip(keys) {
            *slot = Key::new(self.tree, bytes);
        }
        let batch = &batch[..keys.len()];
        let (session, ages) = (&mut *self.session, self.database.ages());
        session.store.get_many(batch, |index, value| {
            let value = value.filter(|value| session.counters.shows(value, now));
            found += u64::from(value.is_some());
            read(index, value);
            if let Some(value) = &value {
                session.access.touch(ages, &mut session.random).note(value);
            }
        });
        let counters = &self.session.counters;
        add(&counters.hits, found);
        add(&counters.misses, keys.len() as u64 - found);
    }

    /// What this session has counted of memcached commands.
    #[inline]
    pub(crate) fn memcached_counters(&self) -> &MemcachedCounters {
        &self.session.counters.memcached
    }

    /// How often commands of this session have met a key past its deadline.
    pub(crate) fn expired_met(&self) -> u64 {
        self.session.counters.expired_met.load(Ordering::Relaxed)
    }

    /// Whether writes that need memory are refused; `Turn::room` was asked before.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.database.refuses_writes() || self.database.store.pressure() == Pressure::Refuse
    }

    /// What tells when a value was used last: OBJECT IDLETIME, and memcached's `h`, `l` and `la`. A
    /// closure of [`Self::read`] and of [`Self::update`] is told of the time before its own use.
    #[must_use]
    pub fn accesses(&self) -> Accesses<'t> {
        self.database.accesses(self.now())
    }

    /// Whether the key is there; counts a hit or a miss.
    pub fn exists(&mut self, key: &[u8]) -> bool {
        self.read(key, |value| value.is_some())
    }

    /// The one write primitive (K1, K2): `decide` is shown the value and says what becomes of it.
    /// It is pure and may run more than once. Returns the version drawn, if anything changed.
    pub fn update<'d>(
        &mut self,
        key: &[u8],
        mut decide: impl FnMut(Option<ValueRef<'_>>) -> Decision<'d>,
    ) -> Result<Option<ValueVersion>, CommandError> {
        self.check_key(key)?;
        let key = Key::new(self.tree, key);
        let now = self.now();
        let (observes, touch) = (self.session.observes, self.session.touch(self.database));
        let mut hook = Hook::new(now, self.session.log.as_mut());
        let mut seen = None;
        let version = self.session.store.update(key, &mut hook, |old| {
            if observes {
                seen = old.as_ref().map(|old| old.version);
            }
            match old {
                Some(value) if is_expired(&value.attributes, now) => match decide(None) {
                    Decision::Keep => Decision::Remove,
                    decision => touch.decided(decision, None),
                },
                old => touch.decided(decide(old), old.as_ref()),
            }
        });
        let effects = hook.finish(key);
        #[cfg(test)]
        self.split_group(key);
        self.settle(key, &effects);
        if effects.expired {
            add(&self.session.counters.expired_met, 1);
        }
        if observes {
            self.observe_key(key, version.or(seen));
        }
        Ok(version)
    }

    /// [`Self::update`] for a closure that can refuse, and that computes a result beside its
    /// decision; a refusal keeps the key.
    pub fn try_update<'d, R>(
        &mut self,
        key: &[u8],
        mut decide: impl FnMut(Option<ValueRef<'_>>) -> Result<(Decision<'d>, R), CommandError>,
    ) -> Result<R, CommandError> {
        let mut result = None;
        self.update(key, |old| match decide(old) {
            Ok((decision, value)) => {
                result = Some(Ok(value));
                decision
            }
            Err(error) => {
                result = Some(Err(error));
                Decision::Keep
            }
        })?;
        result.expect("an update runs its closure")
    }

    /// Removes the key; whether it was there.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        let mut there = false;
        let removed = self.update(key, |old| {
            there = old.is_some();
            if there {
                Decision::Remove
            } else {
                Decision::Keep
            }
        });
        removed.is_ok() && there
    }

    /// A planted bug: the epoch ends in the middle of a transaction.
    #[cfg(test)]
    fn split_group(&mut self, key: Key<'_>) {
        use crate::durable::testing::{Fault, is};
        if is(Fault::GroupSplit) && key.bytes.starts_with(b"account") {
            let epoch = self.database.epochs.current();
            self.session.end_group(epoch);
            self.session.hand_over(&*self.database.options.clock);
            self.database.epochs.tick();
            let log = self.database.log().expect("there is a log");
            log.close_epoch(epoch.0, self.now());
        }
    }

    /// What follows a commit: counters and the expiry index.
    #[inline]
    fn settle(&mut self, key: Key<'_>, effects: &Effects) {
        let Some(committed) = effects.committed else {
            return;
        };
        add(&self.session.counters.commits, 1);
        if committed == Committed::Removed {
            let bytes = key.bytes.len() + limits::TOMBSTONE_BYTES;
            add(&self.session.counters.buried_bytes, bytes as u64);
        }
        if effects.expired {
            add(&self.session.counters.expired, 1);
            if self.is_unread(effects) {
                add(&self.session.counters.expired_unread, 1);
            }
        }
        if effects.deadline_changed {
            let store = &mut self.session.store;
            self.database.expiry.reconcile(key, effects.replaced, || {
                store.get(key, |value| {
                    value.and_then(|value| value.attributes.deadline)
                })
            });
        }
    }

    /// Removes the key if its deadline has passed, the expirer's update (X2); whether it did.
    pub(crate) fn expire(&mut self, tree: TreeId, key: &[u8]) -> bool {
        self.remove_if(tree, key, |_| false).expired
    }

    /// Removes the key if its deadline has passed or if it `may_go`, the evictor's update; whether
    /// it did.
    pub(crate) fn evict(
        &mut self,
        tree: TreeId,
        key: &[u8],
        may_go: impl Fn(&ValueRef<'_>) -> bool,
    ) -> bool {
        let effects = self.remove_if(tree, key, may_go);
        if effects.committed.is_some() && !effects.expired {
            add(&self.session.counters.evicted, 1);
            if effects.replaced.is_some() {
                add(&self.session.counters.evicted_expiring, 1);
            }
            if self.is_unread(&effects) {
                add(&self.session.counters.evicted_unread, 1);
            }
        }
        effects.committed.is_some()
    }

    /// Whether what was removed is known not to have been read since it was written.
    fn is_unread(&self, effects: &Effects) -> bool {
        self.session.access.tracking.is_unread(effects.old_mark)
    }

    fn remove_if(
        &mut self,
        tree: TreeId,
        key: &[u8],
        may_go: impl Fn(&ValueRef<'_>) -> bool,
    ) -> Effects {
        let now = self.now();
        let key = Key::new(tree, key);
        let mut hook = Hook::new(now, self.session.log.as_mut());
        self.session.store.update(key, &mut hook, |old| match old {
            Some(value) if is_expired(&value.attributes, now) || may_go(&value) => Decision::Remove,
            _ => Decision::Keep,
        });
        let effects = hook.finish(key);
        self.settle(key, &effects);
        effects
    }

    /// The keys of this database, by what its engine can list them with.
    pub fn keys(&mut self) -> Keys<'_> {
        let (tree, now) = (self.tree, self.now());
        self.observe_all();
        match self.session.store.listing() {
            Listing::Ordered(session) => Keys::Ordered(OrderedKeys { session, tree, now }),
            Listing::Walking(session) => Keys::Walking(WalkingKeys { session, tree, now }),
        }
    }

    /// The keys of this database in their order, or the error that names the engines that keep one.
    pub fn ordered_keys(&mut self) -> Result<OrderedKeys<'_>, CommandError> {
        let engine = self.options().engine;
        match self.keys() {
            Keys::Ordered(keys) => Ok(keys),
            Keys::Walking(_) => Err(CommandError::Unordered {
                engine: engine.name(),
                ordered: EngineKind::ordered_names(),
            }),
        }
    }

    /// Shows some key picked at random, expired ones as `None` values, to `read`.
    pub fn sample<R>(
        &mut self,
        read: impl FnOnce(Option<(&[u8], Option<ValueRef<'_>>)>) -> R,
    ) -> R {
        let (random, now) = (self.random(), self.now());
        self.observe_all();
        self.session.store.sample(self.tree, random, |found| {
            read(found.map(|(key, value)| {
                (
                    key,
                    Some(value).filter(|value| !is_expired(&value.attributes, now)),
                )
            }))
        })
    }

    /// Fetches `keys` into the cache ahead of their use, their descents interleaved.
    pub fn warm(&mut self, keys: &[&[u8]]) {
        if keys.len() > 1 {
            let tree = self.tree;
            let storable = |key: &&&[u8]| key.len() <= pando_engine::limits::KEY_BYTES_MAX;
            let keys = keys.iter().filter(storable);
            let keys: Vec<_> = keys.map(|bytes| Key::new(tree, bytes)).collect();
            self.session.store.warm(&keys);
        }
    }
}

/// The keys of a database.
#[derive(Debug)]
pub enum Keys<'k> {
    /// In their order.
    Ordered(OrderedKeys<'k>),
    /// In none.
    Walking(WalkingKeys<'k>),
}

/// The keys of a database on an engine that keeps them in order.
#[derive(Debug)]
pub struct OrderedKeys<'k> {
    session: OrderedSession<'k>,
    tree: TreeId,
    now: Milliseconds,
}

/// The keys of a database on an engine that does not.
#[derive(Debug)]
pub struct WalkingKeys<'k> {
    session: WalkingSession<'k>,
    tree: TreeId,
    now: Milliseconds,
}

impl Keys<'_> {
    /// Shows entries from the beginning, whatever that is, until `visit` breaks; expired ones too
    /// (they are `None`). Counts neither hits nor misses.
    pub fn each(&mut self, mut visit: impl FnMut(&[u8], Option<ValueRef<'_>>) -> ControlFlow<()>) {
        match self {
            Self::Ordered(keys) => keys.scan_all(Bound::Unbounded, Direction::Forward, visit),
            Self::Walking(keys) => {
                let (mut cursor, mut flow) = (0, ControlFlow::Continue(()));
                loop {
                    cursor = keys.step(cursor, |key, value| {
                        if flow.is_continue() {
                            flow = visit(key, value);
                        }
                    });
                    if cursor == 0 || flow.is_break() {
                        return;
                    }
                }
            }
        }
    }
}

impl OrderedKeys<'_> {
    /// Shows the entries from `from` on in key order until `visit` breaks, expired ones too, and
    /// removed ones that are remembered (they are `None`), so that a caller can bound its work by
    /// entries looked at. Counts neither hits nor misses.
    pub fn scan_all(
        &mut self,
        from: Bound<&[u8]>,
        direction: Direction,
        mut visit: impl FnMut(&[u8], Option<ValueRef<'_>>) -> ControlFlow<()>,
    ) {
        let now = self.now;
        let is_live = |value: &ValueRef<'_>| !is_expired(&value.attributes, now);
        self.session
            .scan_all(self.tree, from, direction, |key, value| {
                visit(key, value.filter(is_live))
            });
    }
}

impl WalkingKeys<'_> {
    /// Shows some entries, expired ones too (they are `None`), and returns the cursor to go on
    /// from, 0 at the end; see [`pando_engine::Walk::walk`]. Counts neither hits nor misses.
    pub fn step(&mut self, cursor: u64, mut visit: impl FnMut(&[u8], Option<ValueRef<'_>>)) -> u64 {
        let now = self.now;
        self.session.walk(self.tree, cursor, |key, value| {
            visit(
                key,
                Some(value).filter(|value| !is_expired(&value.attributes, now)),
            );
        })
    }
}

/// The string of a value, or the error of a command that wants one.
#[inline]
pub(crate) fn string_of(value: ValueRef<'_>) -> Result<StringRef<'_>, CommandError> {
    match value.body {
        BodyRef::String(string) => Ok(string),
        BodyRef::Hash(_) => Err(CommandError::WrongType),
    }
}

/// The hash of a value, or the error of a command that wants one.
#[inline]
pub(crate) fn hash_of(value: ValueRef<'_>) -> Result<HashRef<'_>, CommandError> {
    match value.body {
        BodyRef::Hash(hash) => Ok(hash),
        BodyRef::String(_) => Err(CommandError::WrongType),
    }
}
