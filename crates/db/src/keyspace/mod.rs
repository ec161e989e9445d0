//! The selected database as a command sees it: keys that have not expired, one clock reading.
//!
//! Reading is here, the one write path in `update`, listing in `keys`.
//!
//! Invariants:
//! - **K1 expired-hidden** A value whose deadline has passed, or all of whose fields are past
//!   theirs, is shown to no read and to no update's closure. An update that would keep such a key
//!   removes it instead.
//! - **K2 one-write-path** Every write goes through [`Keyspace::update`]: it counts the commit and
//!   updates the expiry index before it returns.

mod keys;
mod past;
mod update;

use std::ops::Range;
use std::sync::atomic::Ordering;

use pando_engine::{
    BodyRef, Deadline, FieldsRef, HashRef, Key, Point, Pressure, Probe, RowTag, StringRef, TreeId,
    TypeTag, ValueRef, ValueVersion,
};

use pando_protocol::Request;

pub(crate) use keys::{Keys, OrderedKeys, WalkingKeys};

use crate::alive::Alive;
use crate::clock::{Microseconds, Milliseconds};
use crate::database::Database;
use crate::encoding::Thresholds;
use crate::error::CommandError;
use crate::lines::{InLine, Line, Place};
use crate::memory::Accesses;
use crate::options::Options;
use crate::session_state::SessionState;
use crate::statistics::{MemcachedCounters, SessionCounters, add};
use crate::view::View;

/// One database, for the duration of one command.
#[derive(Debug)]
pub struct Keyspace<'t> {
    pub(crate) database: &'t Database,
    pub(crate) session: &'t mut SessionState,
    pub(crate) index: usize,
    pub(crate) view: View,
}

/// Whether a value is past its deadline, or all fields of a hash are past theirs.
#[inline]
pub(crate) fn is_expired(value: &ValueRef<'_>, now: Milliseconds) -> bool {
    let has_passed = |deadline: Deadline| deadline.has_passed(now);
    value.attributes.deadline.is_some_and(has_passed) || has_no_field(value, now)
}

#[inline]
fn has_no_field(value: &ValueRef<'_>, now: Milliseconds) -> bool {
    match value.body {
        BodyRef::Row(tag @ RowTag::TimedHash, row) => FieldsRef::new(tag, row, now).is_empty(),
        _ => false,
    }
}

/// Judges the deadlines of what a command of the present sees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judge<'r> {
    now: Milliseconds,
    /// Where what is alive is noted.
    alive: Option<&'r Alive>,
}

impl<'r> Judge<'r> {
    /// Of what a view shows; a snapshot stays as it is.
    #[inline]
    fn of(view: View, now: Milliseconds, alive: &'r Alive) -> Self {
        let is_noted = alive.is_noted() && view.moment().is_none();
        let alive = is_noted.then_some(alive);
        Self { now, alive }
    }

    /// [`is_expired`]. What is alive is noted for AV1 alive-when-it-counts.
    #[inline]
    fn hides(self, value: &ValueRef<'_>) -> bool {
        let is_expired = is_expired(value, self.now);
        if let Some(alive) = self.alive
            && !is_expired
        {
            alive.note(value, self.now);
        }
        is_expired
    }
}

impl SessionCounters {
    /// Whether a value may be shown (K1); counts one that is past its deadline.
    #[inline]
    fn shows(&self, value: &ValueRef<'_>, judge: Judge<'_>) -> bool {
        let expired = judge.hides(value);
        if expired {
            add(&self.expired_met, 1);
        }
        !expired
    }
}

impl<'t> Keyspace<'t> {
    pub(crate) fn new(database: &'t Database, session: &'t mut SessionState, index: usize) -> Self {
        Self {
            view: View::present(database.tree(index)),
            database,
            session,
            index,
        }
    }

    /// The number of this database.
    #[must_use]
    pub fn database_index(&self) -> usize {
        self.index % self.databases()
    }

    /// The index of database 0 of the same branch.
    pub(crate) fn base(&self) -> usize {
        self.index - self.database_index()
    }

    /// The same session on another database. `index` is within [`Self::databases`].
    pub fn at(&mut self, index: usize) -> Keyspace<'_> {
        let index = self.base() + index;
        Keyspace::new(self.database, self.session, index)
    }

    /// How many databases there are.
    #[must_use]
    pub fn databases(&self) -> usize {
        self.database.databases()
    }

    /// The settings that the database was opened with.
    #[must_use]
    pub fn options(&self) -> &'t Options {
        &self.database.options
    }

    /// The time of this turn.
    #[must_use]
    pub fn now(&self) -> Milliseconds {
        self.view.now(self.session.now)
    }

    /// The time of this turn in microseconds since the Unix epoch.
    #[must_use]
    pub fn now_exactly(&self) -> Microseconds {
        self.session.now
    }

    /// At which sizes Redis changes the form of a value.
    #[must_use]
    pub fn thresholds(&self) -> Thresholds {
        self.database.thresholds.get()
    }

    /// A random number of this session's generator.
    pub fn random(&mut self) -> u64 {
        self.session.random.u64(..)
    }

    /// A random number below `bound`, which is not 0.
    pub fn random_below(&mut self, bound: usize) -> usize {
        self.session.random.usize(..bound)
    }

    /// Keys in this database, including expired ones that are not removed yet.
    #[must_use]
    pub fn len(&self) -> u64 {
        let (database, tree) = (self.database, self.view.tree());
        match self.view.moment() {
            None => self.session.store.len(&database.store, tree),
            Some(moment) => database.snapshots.keys(tree, moment),
        }
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

    /// Refuses a value of this many bytes if it can never fit.
    #[inline]
    pub(crate) fn check_fit(&self, bytes: usize) -> Result<(), CommandError> {
        self.session.fit.check(&self.database.memory, 0, bytes)
    }

    /// The same for a value that changes its size, for the closure of an update.
    pub(crate) fn fit(&self) -> impl Fn(usize, usize) -> Result<(), CommandError> + use<'t> {
        let (fit, database) = (self.session.fit, self.database);
        move |before, after| fit.check(&database.memory, before, after)
    }

    /// Shows the key's value (K1) and counts a hit or a miss.
    #[inline]
    pub fn read<R>(&mut self, key: &[u8], read: impl FnOnce(Option<ValueRef<'_>>) -> R) -> R {
        let touch = self.session.touch(&self.database.memory.ages);
        let (result, hit) = self.look(key, |value| {
            let result = read(value);
            // Afterwards: the reader may ask when the value was last used.
            if let Some(value) = &value {
                touch.note(value);
            }
            (result, value.is_some())
        });
        self.count_read(hit);
        result
    }

    /// Makes the current command leave access marks unchanged, as with CLIENT NO-TOUCH.
    pub(crate) fn leave_marks(&mut self) {
        self.session.access.quiet = true;
    }

    /// Counts a hit or a miss, like [`Self::read`], for an update that also reads.
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

    /// Whether the current command may take something from a key: nobody who waits for a value of
    /// this type is ahead of it (BL1 present-to-the-first). If it has waited itself, a value of
    /// another type is none (BL4 first-written-first).
    pub(crate) fn is_first(&mut self, tag: TypeTag, key: &[u8]) -> bool {
        self.is_first_at(|| Place::new(self.index, tag, key))
            && (!self.has_waited()
                || self.look(key, |value| value.is_none_or(|value| value.tag() == tag)))
    }

    /// Of the keys that these arguments name, the one for which the current command was woken.
    pub(crate) fn called_to(&self, request: Request<'_>, mut keys: Range<usize>) -> Option<usize> {
        let key = self.session.called_to.as_deref()?;
        keys.find(|index| request.arg(*index) == key)
    }

    /// The same for what a group has not had of a stream.
    pub(crate) fn is_first_of_group(&self, key: &[u8], group: &[u8]) -> bool {
        let place = || Place::new(self.index, TypeTag::Stream, key);
        self.is_first_at(|| place().with(Line::Group(group.into())))
    }

    /// Whether the current command has waited for its keys.
    pub(crate) fn has_waited(&self) -> bool {
        matches!(self.session.in_line, InLine::At(_))
    }

    fn is_first_at(&self, place: impl FnOnce() -> Place) -> bool {
        let waiting = &self.database.lines.waiting;
        let ticket = match self.session.in_line {
            InLine::Aside => return true,
            InLine::New => None,
            InLine::At(ticket) => Some(ticket),
        };
        waiting.is_empty() || waiting.is_first(&place(), ticket)
    }

    /// Shows the key's value (K1) and counts nothing.
    #[inline]
    pub fn look<R>(&mut self, key: &[u8], read: impl FnOnce(Option<ValueRef<'_>>) -> R) -> R {
        if key.len() > pando_engine::limits::KEY_BYTES_MAX {
            return read(None);
        }
        if let Some(moment) = self.view.moment() {
            return self.look_at_moment(key, moment, read);
        }
        let now = self.now();
        let key = self.view.key(key);
        let mut seen = None;
        let counters = &self.session.counters;
        let judge = Judge::of(self.view, now, &self.session.alive);
        let result = self.session.store.get(key, |value| {
            seen = value.as_ref().map(|value| value.version);
            read(value.filter(|value| counters.shows(value, judge)))
        });
        if self.session.observes {
            self.observe_key(key, seen);
        }
        result
    }

    /// Records what a reply may reveal of a key: the version that was there, expired or not, or the
    /// tombstone of what was (AK4 sync-waits).
    #[inline]
    fn observe_key(&mut self, key: Key<'_>, seen: Option<ValueVersion>) {
        let version = seen.or_else(|| self.version_missed(key));
        if let Some(version) = version {
            self.session.observe(version.epoch());
        }
        self.session.observe(self.database.changed_in(self.index));
    }

    /// What is known of a key where nothing was found.
    #[cold]
    fn version_missed(&mut self, key: Key<'_>) -> Option<ValueVersion> {
        match self.session.store.probe(key) {
            // Something newer than what was missed is at least as late.
            Probe::Present { version, .. } | Probe::Removed(version) => Some(version),
            // A tombstone is purged only when its epoch is durable; that of a removal by a command
            // under all gates is older than its group (AK2 group-of-its-end).
            Probe::Absent => {
                let straddle = self.database.acknowledgement.straddle();
                self.session.observe(straddle);
                None
            }
        }
    }

    /// Records that a reply may reveal anything ever written, or anything present when a snapshot
    /// was made (AK4 sync-waits).
    #[inline]
    pub(crate) fn observe_all(&mut self) {
        let epoch = match self.view.moment() {
            None => self.database.epochs.current(),
            Some(moment) => moment.snapshot.epoch(),
        };
        self.session.observe(epoch);
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
        read: impl FnOnce(Option<FieldsRef<'_>>) -> R,
    ) -> Result<R, CommandError> {
        let now = self.now();
        self.read(key, |value| {
            let hash = value.map(|value| hash_of(value, now)).transpose()?;
            Ok(read(hash))
        })
    }

    /// Shows the row of this type at the key; anything else is [`CommandError::WrongType`].
    #[inline]
    pub fn read_row<R>(
        &mut self,
        tag: RowTag,
        key: &[u8],
        read: impl FnOnce(Option<HashRef<'_>>) -> R,
    ) -> Result<R, CommandError> {
        self.read(key, |value| {
            let row = value.map(|value| row_of(tag, value)).transpose()?;
            Ok(read(row))
        })
    }

    /// Shows the values of up to [`crate::limits::WARM_KEYS_MAX`] keys one after another (K1), with
    /// interleaved descents, and counts hits and misses.
    pub fn read_many(&mut self, keys: &[&[u8]], mut read: impl FnMut(usize, Option<ValueRef<'_>>)) {
        if self.session.observes || self.view.moment().is_some() {
            return self.read_many_specially(keys, read);
        }
        let now = self.now();
        let mut found = 0;
        let mut batch = [const { Key::new(TreeId(0), b"") }; crate::limits::WARM_KEYS_MAX];
        for (slot, bytes) in batch.iter_mut().zip(keys) {
            *slot = self.view.key(bytes);
        }
        let batch = &batch[..keys.len()];
        let (session, ages) = (&mut *self.session, &self.database.memory.ages);
        let judge = Judge::of(self.view, now, &session.alive);
        session.store.get_many(batch, |index, value| {
            let value = value.filter(|value| session.counters.shows(value, judge));
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

    /// How often commands of this session met a key past its deadline.
    pub(crate) fn expired_met(&self) -> u64 {
        self.session.counters.expired_met.load(Ordering::Relaxed)
    }

    /// Whether writes that need memory are refused, as `Turn::ask_for_memory` found.
    pub(crate) fn refuses_growth(&self) -> bool {
        self.database.refuses_writes() || self.database.store.pressure() == Pressure::Refuse
    }

    /// Whether a command that reads may store what it computed beside the data: not in a snapshot,
    /// nor while writes are refused, or come from another database.
    pub(crate) fn may_write_for_a_reader(&self) -> bool {
        self.view.moment().is_none() && self.database.takes_writes() && !self.refuses_growth()
    }

    /// When values were last used: for OBJECT IDLETIME, and memcached's `h`, `l` and `la`. In a
    /// closure of [`Self::read`] or [`Self::update`] it gives the time before that use.
    #[must_use]
    pub fn accesses(&self) -> Accesses<'t> {
        self.database.accesses(self.now())
    }

    /// Whether the key exists; counts a hit or a miss.
    pub fn exists(&mut self, key: &[u8]) -> bool {
        self.read(key, |value| value.is_some())
    }

    /// Prefetches `keys` with interleaved descents, up to one that cannot be stored.
    pub fn warm(&mut self, keys: &[&[u8]]) {
        if keys.len() > 1 {
            let view = self.view;
            let storable = |key: &&&[u8]| key.len() <= pando_engine::limits::KEY_BYTES_MAX;
            let keys = keys.iter().take_while(storable);
            let keys: Vec<_> = keys.map(|bytes| view.key(bytes)).collect();
            self.session.store.warm(&keys);
        }
    }

    /// Lets the next operation, which is that of the key at `index` of those just warmed, reuse
    /// what was found on the way to it.
    #[inline]
    pub(crate) fn recall(&mut self, index: usize) {
        self.session.store.recall(index);
    }
}

/// The string in a value, or the error of a command that needs one.
#[inline]
pub(crate) fn string_of(value: ValueRef<'_>) -> Result<StringRef<'_>, CommandError> {
    match value.body {
        BodyRef::String(string) => Ok(string),
        BodyRef::Row(..) => Err(CommandError::WrongType),
    }
}

/// The hash in a value as it is now, or the error of a command that needs one.
#[inline]
pub(crate) fn hash_of(
    value: ValueRef<'_>,
    now: Milliseconds,
) -> Result<FieldsRef<'_>, CommandError> {
    match value.body {
        BodyRef::Row(tag @ (RowTag::Hash | RowTag::TimedHash), row) => {
            Ok(FieldsRef::new(tag, row, now))
        }
        _ => Err(CommandError::WrongType),
    }
}

/// The row of this type in a value, or the error of a command that needs one.
#[inline]
pub(crate) fn row_of(tag: RowTag, value: ValueRef<'_>) -> Result<HashRef<'_>, CommandError> {
    match value.body {
        BodyRef::Row(found, row) if found == tag => Ok(row),
        _ => Err(CommandError::WrongType),
    }
}
