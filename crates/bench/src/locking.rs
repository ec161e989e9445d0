//! The kinds of locks that Mercury's paper compares (§4.1), around the engine's session.
//!
//! Stripes are taken *in addition* to what an operation does anyway: they order everybody who works
//! on the same stripe, as memcached's item locks do, and cost what such a lock costs. Correctness
//! never rests on them.
//!
//! Deliberately absent: a variant without any lock, which the paper shows as an upper bound. Reads
//! of [`Locking::Optimistic`] are that.

use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use foldhash::fast::RandomState;
use pando_engine::{Body, Decision, Key, NewValue, NoHook, Point, ValueRef};
use pando_mercury::MercurySession;

/// Locks of a striped kind.
const STRIPES: usize = 4096;

/// What excludes what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Locking {
    /// Reads take no lock; writers take their bucket's: what the engine does.
    Optimistic,
    /// Reads take the bucket's test-and-test-and-set lock too, as in the paper.
    Bucket,
    /// Every operation takes a striped `std::sync::Mutex`.
    Mutex,
    /// Every operation takes a striped `std::sync::RwLock`, reads shared.
    RwLock,
}

/// The locks that all sessions of one engine share.
#[derive(Debug)]
pub(crate) struct Locks {
    kind: Kind,
    hasher: RandomState,
}

#[derive(Debug)]
enum Kind {
    Optimistic,
    Bucket,
    Mutex(Box<[Mutex<()>]>),
    RwLock(Box<[RwLock<()>]>),
}

impl Locks {
    pub(crate) fn new(locking: Locking) -> Arc<Self> {
        let kind = match locking {
            Locking::Optimistic => Kind::Optimistic,
            Locking::Bucket => Kind::Bucket,
            Locking::Mutex => Kind::Mutex((0..STRIPES).map(|_| Mutex::default()).collect()),
            Locking::RwLock => Kind::RwLock((0..STRIPES).map(|_| RwLock::default()).collect()),
        };
        Arc::new(Self {
            kind,
            hasher: RandomState::default(),
        })
    }

    fn stripe(&self, key: Key<'_>) -> usize {
        self.hasher.hash_one(key.bytes) as usize % STRIPES
    }
}

/// A session under these locks.
pub(crate) struct LockedSession {
    pub(crate) session: MercurySession,
    locks: Arc<Locks>,
}

impl LockedSession {
    pub(crate) fn new(session: MercurySession, locks: &Arc<Locks>) -> Self {
        let locks = Arc::clone(locks);
        Self { session, locks }
    }

    /// Whether operations may be interleaved: no lock is held beside the engine's.
    pub(crate) fn is_optimistic(&self) -> bool {
        matches!(self.locks.kind, Kind::Optimistic)
    }

    #[inline]
    pub(crate) fn get<R>(
        &mut self,
        key: Key<'_>,
        read: impl FnOnce(Option<ValueRef<'_>>) -> R,
    ) -> R {
        match &self.locks.kind {
            Kind::Optimistic => self.session.get(key, read),
            Kind::Bucket => self.session.get_locked(key, read),
            Kind::Mutex(stripes) => {
                let held = stripes[self.locks.stripe(key)].lock();
                let _held = held.unwrap_or_else(PoisonError::into_inner);
                self.session.get(key, read)
            }
            Kind::RwLock(stripes) => {
                let held = stripes[self.locks.stripe(key)].read();
                let _held = held.unwrap_or_else(PoisonError::into_inner);
                self.session.get(key, read)
            }
        }
    }

    #[inline]
    pub(crate) fn put(&mut self, key: Key<'_>, bytes: &[u8]) {
        self.write(key, || Decision::Write(NewValue::new(Body::string(bytes))));
    }

    pub(crate) fn remove(&mut self, key: Key<'_>) {
        self.write(key, || Decision::Remove);
    }

    #[inline]
    fn write<'d>(&mut self, key: Key<'_>, decide: impl Fn() -> Decision<'d>) {
        let session = &mut self.session;
        let mut update = || session.update(key, &mut NoHook, |_| decide());
        match &self.locks.kind {
            Kind::Optimistic | Kind::Bucket => update(),
            Kind::Mutex(stripes) => {
                let held = stripes[self.locks.stripe(key)].lock();
                let _held = held.unwrap_or_else(PoisonError::into_inner);
                update()
            }
            Kind::RwLock(stripes) => {
                let held = stripes[self.locks.stripe(key)].write();
                let _held = held.unwrap_or_else(PoisonError::into_inner);
                update()
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pando_engine::{Engine, EpochClock};
    use pando_mercury::Mercury;

    use super::*;

    #[test]
    fn every_kind_of_lock_gives_the_same_answers() {
        for locking in [
            Locking::Optimistic,
            Locking::Bucket,
            Locking::Mutex,
            Locking::RwLock,
        ] {
            let engine = Mercury::new(Arc::new(EpochClock::self_driven()));
            let tree = engine.create_tree();
            let session = engine.session().expect("a session is free");
            let mut session = LockedSession::new(session, &Locks::new(locking));
            for number in 0..2_000_u32 {
                session.put(Key::new(tree, &number.to_be_bytes()), b"value");
            }
            for number in (0..2_000_u32).step_by(2) {
                session.remove(Key::new(tree, &number.to_be_bytes()));
            }
            for number in 0..2_000_u32 {
                let bytes = number.to_be_bytes();
                let is_there = session.get(Key::new(tree, &bytes), |value| value.is_some());
                assert_eq!(is_there, number % 2 == 1, "{locking:?}");
            }
        }
    }
}
