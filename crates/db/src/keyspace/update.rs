//! The one write path (K2 one-write-path).

use pando_durability::log::LogSession;
use pando_engine::{
    BodyRef, CommitHook, Deadline, Decision, FieldsDraft, HashRef, Key, NewValue, Point, RowTag,
    Shown, TreeId, TypeTag, ValueRef, ValueVersion,
};

use super::{Judge, Keyspace, hash_of, is_expired};
use crate::clock::Milliseconds;
use crate::durable::hook::{Later, Recorder};
use crate::effects::{Leftover, leaves};
use crate::error::CommandError;
use crate::expiry::{Of, Replaced};
use crate::limits;
use crate::lines::{Awaited, Place};
use crate::statistics::add;

/// What a commit did.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Committed {
    Written,
    Removed,
}

/// What the engine reported about the commit of one update.
#[derive(Default)]
struct Effects {
    committed: Option<Committed>,
    deadline_changed: bool,
    /// The same for the earliest deadline of its fields.
    field_deadline_changed: bool,
    /// What clients may wait for.
    awaited: Awaited,
    replaced: Option<Deadline>,
    replaced_of_field: Option<Deadline>,
    now: Milliseconds,
    expired: bool,
    /// The access mark of a value that was removed or has expired.
    old_mark: u8,
}

impl Effects {
    /// Whether what follows takes locks of the expiry index, or of those who wait.
    #[inline]
    fn takes_locks(&self) -> bool {
        self.deadline_changed || self.field_deadline_changed || self.awaited.any()
    }
}

/// What the hook of one update leaves.
struct Outcome {
    effects: Effects,
    later: Option<Later>,
}

impl Outcome {
    #[inline]
    fn new(now: Milliseconds) -> Self {
        Self {
            effects: Effects {
                now,
                ..Effects::default()
            },
            later: None,
        }
    }
}

/// Records what an update commits, and writes its log record.
struct Hook<'l> {
    effects: &'l mut Effects,
    recorder: Recorder<'l>,
}

impl<'l> Hook<'l> {
    #[inline]
    fn new(outcome: &'l mut Outcome, log: Option<&'l mut LogSession>) -> Self {
        Self {
            effects: &mut outcome.effects,
            recorder: Recorder::new(log, &mut outcome.later),
        }
    }

    /// After the update.
    #[inline]
    fn finish(self, key: Key<'_>) {
        self.recorder.finish(key);
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
        // E3 hook-once, E2 versions-grow.
        debug_assert!(self.effects.committed.is_none());
        debug_assert!(old.is_none_or(|old| old.version < version));
        debug_assert!(new.is_none_or(|new| new.version == version));
        self.recorder.committed(key, old, new, version);
        let effects = &mut *self.effects;
        if let (Some(old), Some(new)) = (&old, &new)
            && is_plain(old)
            && is_plain(new)
        {
            effects.committed = Some(Committed::Written);
            return;
        }
        let replaced = old.and_then(|value| value.attributes.deadline);
        let deadline = new.and_then(|value| value.attributes.deadline);
        effects.committed = Some(if new.is_some() {
            Committed::Written
        } else {
            Committed::Removed
        });
        effects.deadline_changed = replaced != deadline;
        let of_field = |value: Option<ValueRef<'_>>| value.and_then(|it| Of::Field.deadline(&it));
        effects.replaced_of_field = of_field(old);
        effects.field_deadline_changed = effects.replaced_of_field != of_field(new);
        effects.awaited = Awaited::by_change(old.as_ref(), new.as_ref());
        effects.replaced = replaced;
        effects.expired = old.is_some_and(|old| is_expired(&old, effects.now));
        if new.is_none() || effects.expired {
            effects.old_mark = old.map_or(0, |value| value.mark.get());
        }
    }
}

/// Whether a value is a string without a deadline: nobody waits for such.
#[inline]
fn is_plain(value: &ValueRef<'_>) -> bool {
    matches!(value.body, BodyRef::String(_)) && value.attributes.deadline.is_none()
}

/// Whether a value is a large row that may be changed in place.
fn is_large(value: &ValueRef<'_>) -> bool {
    matches!(
        value.body,
        BodyRef::Row(
            RowTag::List | RowTag::Set | RowTag::Hash | RowTag::SortedSet,
            HashRef::Wide(_)
        )
    )
}

impl Keyspace<'_> {
    /// The one write primitive (K1 expired-hidden, K2 one-write-path): `decide` sees the value and
    /// decides what happens to it. It is pure and may run more than once. Returns the version
    /// drawn, if anything changed.
    pub fn update<'d>(
        &mut self,
        key: &[u8],
        mut decide: impl FnMut(Option<ValueRef<'_>>) -> Decision<'d>,
    ) -> Result<Option<ValueVersion>, CommandError> {
        debug_assert!(self.view.moment().is_none(), "snapshots stay as they are");
        self.check_key(key)?;
        let key = self.view.key(key);
        let now = self.now();
        let (observes, touch) = (
            self.session.observes,
            self.session.touch(&self.database.memory.ages),
        );
        let leaves_large = self.session.leaves_large;
        let judge = Judge::of(self.view, now, &self.session.alive);
        let mut outcome = Outcome::new(now);
        let mut hook = Hook::new(&mut outcome, self.session.log.as_mut());
        let (mut seen, mut is_left) = (None, false);
        let version = self.session.store.update(key, &mut hook, |old| {
            if observes {
                seen = old.as_ref().map(|old| old.version);
            }
            match old {
                Some(value) if judge.hides(&value) => match decide(None) {
                    Decision::Keep => Decision::Remove,
                    decision => touch.decided(decision, None),
                },
                Some(value) if leaves_large && is_large(&value) => {
                    is_left = true;
                    Decision::Keep
                }
                old => touch.decided(decide(old), old.as_ref()),
            }
        });
        if is_left {
            return Err(CommandError::LargeRow);
        }
        hook.finish(key);
        self.conclude(key, &outcome.effects, version)?;
        if observes {
            self.observe_key(key, version.or(seen));
        }
        Ok(version)
    }

    /// [`Self::update`] for commands that change a large row in place where they may
    /// ([`Point::change`]): there is no log, whose record needs the row as it was. Not for a
    /// transaction, which observes.
    pub(crate) fn change<'d>(
        &mut self,
        key: &[u8],
        mut decide: impl FnMut(&mut Shown<'_>) -> Decision<'d>,
    ) -> Result<Option<ValueVersion>, CommandError> {
        if self.session.log.is_some() {
            return self.update(key, |old| decide(&mut Shown::seen(old)));
        }
        debug_assert!(self.view.moment().is_none() && !self.session.observes);
        self.check_key(key)?;
        let key = self.view.key(key);
        let now = self.now();
        let touch = self.session.touch(&self.database.memory.ages);
        let judge = Judge::of(self.view, now, &self.session.alive);
        let mut outcome = Outcome::new(now);
        let mut hook = Hook::new(&mut outcome, None);
        let version = self.session.store.change(key, &mut hook, |shown| {
            if shown.value().is_some_and(|value| judge.hides(&value)) {
                return match decide(&mut Shown::seen(None)) {
                    Decision::Keep => Decision::Remove,
                    decision => touch.decided(decision, None),
                };
            }
            let decision = decide(shown);
            touch.decided(decision, shown.value().as_ref())
        });
        hook.finish(key);
        self.conclude(key, &outcome.effects, version)?;
        Ok(version)
    }

    /// After an update.
    #[inline]
    fn conclude(
        &mut self,
        key: Key<'_>,
        effects: &Effects,
        version: Option<ValueVersion>,
    ) -> Result<(), CommandError> {
        debug_assert_eq!(version.is_some(), effects.committed.is_some());
        #[cfg(test)]
        self.split_group(key);
        self.settle(key, effects);
        if let Some(refusal) = self.session.take_refusal() {
            return Err(refusal.into());
        }
        if effects.expired {
            add(&self.session.counters.expired_met, 1);
        }
        Ok(())
    }

    /// [`Self::update`] for a closure that can refuse, and that returns a result with its decision;
    /// a refusal keeps the key.
    pub fn try_update<'d, R>(
        &mut self,
        key: &[u8],
        mut decide: impl FnMut(Option<ValueRef<'_>>) -> Result<(Decision<'d>, R), CommandError>,
    ) -> Result<R, CommandError> {
        // Apart: an error is large, and rare.
        let (mut result, mut refusal) = (None, None);
        self.update(key, |old| match decide(old) {
            Ok((decision, value)) => {
                result = Some(value);
                if refusal.is_some() {
                    refusal = None;
                }
                decision
            }
            Err(error) => {
                refusal = Some(error);
                Decision::Keep
            }
        })?;
        match refusal {
            None => Ok(result.expect("an update runs its closure")),
            Some(error) => Err(error),
        }
    }

    /// Removes the key; returns whether it existed.
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
            log.close_epoch(epoch, self.now());
        }
    }

    /// Work after a commit: counters and the expiry index.
    #[inline]
    fn settle(&mut self, key: Key<'_>, effects: &Effects) {
        let Some(committed) = effects.committed else {
            return;
        };
        add(&self.session.counters.commits, 1);
        self.session.note_commit();
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
        if effects.takes_locks() || self.session.placing.notes {
            // Who holds those may be waiting to be pinned.
            self.session.store.let_in();
        }
        if effects.deadline_changed {
            self.follow_deadline(key, (Of::Key, effects.replaced));
        }
        if effects.field_deadline_changed {
            self.follow_deadline(key, (Of::Field, effects.replaced_of_field));
        }
        for tag in effects.awaited.types() {
            self.announce(key, tag);
        }
        if self.session.placing.notes {
            self.note_for_mover(key);
        }
    }

    /// Tells a mover that the key has changed (PG2 told-before-fenced).
    #[inline(never)]
    fn note_for_mover(&self, key: Key<'_>) {
        // The evictor and the expirer name trees.
        let databases = self.database.databases();
        let mut all = std::iter::once(self.index).chain(0..databases);
        if let Some(placed) = &self.session.placing.placed
            && let Some(index) = all.find(|index| self.database.tree(*index) == key.tree)
        {
            placed.note(index % databases, key.bytes);
        }
    }

    /// Wakes who waits for the value that was written, or leaves it to the current run when that
    /// counts (BL2 announced-when-visible).
    fn announce(&mut self, key: Key<'_>, tag: TypeTag) {
        let place = || Place::new(self.index, tag, key.bytes);
        match &mut self.session.effects {
            Some(run) => run.written.push(place()),
            None => self.database.lines.announce(place),
        }
    }

    /// Updates the expiry index, or leaves it to the current run when that counts. Out of line:
    /// most commits change no deadline.
    #[inline(never)]
    fn follow_deadline(&mut self, key: Key<'_>, replaced: Replaced) {
        match &mut self.session.effects {
            Some(run) if !leaves(Leftover::Deadlines) => {
                run.deadlines.push((key.tree, key.bytes.into(), replaced));
            }
            _ => self.session.reconcile(&self.database.expiry, key, replaced),
        }
    }

    /// The expirer's update: removes the key if its deadline has passed (X2 entry-is-hint); returns
    /// whether it did.
    pub(crate) fn expire(&mut self, tree: TreeId, key: &[u8]) -> bool {
        self.remove_if(tree, key, |_| false).expired
    }

    /// The same for fields: removes some of those whose deadline has passed, and the key if none is
    /// left. The hash is in the index again if it has others.
    pub(crate) fn expire_fields(&mut self, tree: TreeId, key: &[u8]) {
        let now = self.now();
        let key = Key::new(tree, key);
        let mut outcome = Outcome::new(now);
        let mut hook = Hook::new(&mut outcome, self.session.log.as_mut());
        let mut purged = 0;
        self.session.store.update(key, &mut hook, |old| {
            purged = 0;
            let Some(old) = old else {
                return Decision::Keep;
            };
            if is_expired(&old, now) {
                return Decision::Remove;
            }
            let Ok(fields) = hash_of(old, now) else {
                return Decision::Keep;
            };
            let mut draft = FieldsDraft::new(Some(fields), now);
            purged = draft.purge(limits::EXPIRE_FIELDS_MAX);
            if purged == 0 {
                return Decision::Keep;
            }
            Decision::Write(NewValue::new(draft.finish()).with(old.attributes))
        });
        hook.finish(key);
        let effects = outcome.effects;
        self.settle(key, &effects);
        if effects.committed == Some(Committed::Written) {
            add(&self.session.counters.expired_fields, purged as u64);
            if !effects.field_deadline_changed {
                // Others have the same deadline, whose entry the expirer took.
                self.follow_deadline(key, (Of::Field, None));
            }
        }
    }

    /// The evictor's update: removes the key if its deadline has passed or if it `may_go`; returns
    /// whether it did.
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

    /// Whether the removed value is known not to have been read since it was written.
    fn is_unread(&self, effects: &Effects) -> bool {
        self.session.access.tracking.is_unread(effects.old_mark)
    }

    /// An update that comes from another database, which has judged deadlines: `decide` sees the
    /// value even if it has expired by the clock of this one (FW6 expired-is-there).
    pub(crate) fn repeat<'d>(
        &mut self,
        key: &[u8],
        decide: impl FnMut(Option<ValueRef<'_>>) -> Decision<'d>,
    ) {
        let key = self.view.key(key);
        let mut outcome = Outcome::new(self.now());
        let mut hook = Hook::new(&mut outcome, self.session.log.as_mut());
        self.session.store.update(key, &mut hook, decide);
        hook.finish(key);
        let effects = outcome.effects;
        self.settle(key, &effects);
    }

    fn remove_if(
        &mut self,
        tree: TreeId,
        key: &[u8],
        may_go: impl Fn(&ValueRef<'_>) -> bool,
    ) -> Effects {
        let now = self.now();
        let key = Key::new(tree, key);
        let mut outcome = Outcome::new(now);
        let mut hook = Hook::new(&mut outcome, self.session.log.as_mut());
        self.session.store.update(key, &mut hook, |old| match old {
            Some(value) if is_expired(&value, now) || may_go(&value) => Decision::Remove,
            _ => Decision::Keep,
        });
        hook.finish(key);
        let effects = outcome.effects;
        self.settle(key, &effects);
        effects
    }
}
