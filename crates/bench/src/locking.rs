//! The kinds of locks that Mercury's paper compares (§4.1), around the engine's session.
//!
//! Stripes are taken *in addition* to what an operation does anyway: they order everybody who works
//! on the same stripe, as memcached's item locks do, and cost what such a lock costs. Correctness
//! never rests on them.
//!
//! Deliberately absent: a variant without any lock, which the paper shows as an upper bound. Reads
//! of [`Optimistic`] are that.

use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError, RwLock};

use foldhash::fast::RandomState;
use pando_engine::{Decision, Key, NoHook, Point, ValueRef};
use pando_mercury::MercurySession;

/// Locks of a striped kind.
const STRIPES: usize = 4096;

/// What excludes what: the locks that all sessions of one engine share.
pub(crate) trait Locking: Default + Send + Sync + 'static {
    /// Whether operations may be interleaved: no lock is held beside the engine's.
    const INTERLEAVED: bool = false;

    /// Takes what a read of the key takes beside the engine's locks.
    fn hold_to_read(&self, key: Key<'_>) -> impl Sized;

    /// The same for a change.
    fn hold_to_write(&self, key: Key<'_>) -> impl Sized;

    /// A read under these locks.
    #[inline]
    fn get<R>(
        &self,
        session: &mut MercurySession,
        key: Key<'_>,
        read: impl FnOnce(Option<ValueRef<'_>>) -> R,
    ) -> R {
        let _held = self.hold_to_read(key);
        session.get(key, read)
    }

    /// A change under these locks.
    #[inline]
    fn update<'d>(
        &self,
        session: &mut MercurySession,
        key: Key<'_>,
        decide: impl Fn() -> Decision<'d>,
    ) {
        let _held = self.hold_to_write(key);
        session.update(key, &mut NoHook, |_| decide());
    }
}

/// Reads take no lock; writers take their bucket's: what the engine does.
#[derive(Default)]
pub(crate) struct Optimistic;

impl Locking for Optimistic {
    const INTERLEAVED: bool = true;

    fn hold_to_read(&self, _: Key<'_>) -> impl Sized {}

    fn hold_to_write(&self, _: Key<'_>) -> impl Sized {}
}

/// Reads take the bucket's test-and-test-and-set lock too, as in the paper.
#[derive(Default)]
pub(crate) struct BucketLocks;

impl Locking for BucketLocks {
    fn hold_to_read(&self, _: Key<'_>) -> impl Sized {}

    fn hold_to_write(&self, _: Key<'_>) -> impl Sized {}

    #[inline]
    fn get<R>(
        &self,
        session: &mut MercurySession,
        key: Key<'_>,
        read: impl FnOnce(Option<ValueRef<'_>>) -> R,
    ) -> R {
        session.get_locked(key, read)
    }
}

/// Locks by the hash of the key.
struct Stripes<L> {
    locks: Box<[L]>,
    hasher: RandomState,
}

impl<L: Default> Default for Stripes<L> {
    fn default() -> Self {
        Self {
            locks: (0..STRIPES).map(|_| L::default()).collect(),
            hasher: RandomState::default(),
        }
    }
}

impl<L> Stripes<L> {
    fn of(&self, key: Key<'_>) -> &L {
        &self.locks[self.hasher.hash_one(key.bytes) as usize % STRIPES]
    }
}

/// Every operation takes a striped `std::sync::Mutex`.
#[derive(Default)]
pub(crate) struct Mutexes(Stripes<Mutex<()>>);

impl Locking for Mutexes {
    fn hold_to_read(&self, key: Key<'_>) -> impl Sized {
        self.hold_to_write(key)
    }

    fn hold_to_write(&self, key: Key<'_>) -> impl Sized {
        let held = self.0.of(key).lock();
        held.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Every operation takes a striped `std::sync::RwLock`, reads shared.
#[derive(Default)]
pub(crate) struct RwLocks(Stripes<RwLock<()>>);

impl Locking for RwLocks {
    fn hold_to_read(&self, key: Key<'_>) -> impl Sized {
        let held = self.0.of(key).read();
        held.unwrap_or_else(PoisonError::into_inner)
    }

    fn hold_to_write(&self, key: Key<'_>) -> impl Sized {
        let held = self.0.of(key).write();
        held.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pando_engine::{Body, Engine, EpochClock, NewValue};
    use pando_mercury::Mercury;

    use super::*;

    fn answers<L: Locking>() -> Vec<bool> {
        let engine = Mercury::new(Arc::new(EpochClock::self_driven()));
        let tree = engine.create_tree();
        let mut session = engine.session().expect("a session is free");
        let locks = L::default();
        for number in 0..2_000_u32 {
            let write = || Decision::Write(NewValue::new(Body::string(b"value")));
            locks.update(&mut session, Key::new(tree, &number.to_be_bytes()), write);
        }
        for number in (0..2_000_u32).step_by(2) {
            let bytes = number.to_be_bytes();
            locks.update(&mut session, Key::new(tree, &bytes), || Decision::Remove);
        }
        let is_there = |number: u32| {
            let bytes = number.to_be_bytes();
            locks.get(&mut session, Key::new(tree, &bytes), |value| {
                value.is_some()
            })
        };
        (0..2_000).map(is_there).collect()
    }

    #[test]
    fn every_kind_of_lock_gives_the_same_answers() {
        let expected: Vec<_> = (0..2_000).map(|number| number % 2 == 1).collect();
        assert_eq!(answers::<Optimistic>(), expected);
        assert_eq!(answers::<BucketLocks>(), expected);
        assert_eq!(answers::<Mutexes>(), expected);
        assert_eq!(answers::<RwLocks>(), expected);
    }
}
