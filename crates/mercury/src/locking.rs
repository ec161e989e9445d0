//! The kinds of locks that the paper compares (§4.1), beside what this engine does by default.
//!
//! A stripe of [`Locking::Mutex`] or [`Locking::RwLock`] is taken around an operation *in addition*
//! to what the operation does anyway: it orders everybody who works on the same stripe, as
//! memcached's item locks do, and costs what such a lock costs. Correctness never rests on it.
//!
//! Deliberately absent: a variant without any lock, which the paper shows as an upper bound. Reads
//! of [`Locking::Optimistic`] are that.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::limits::LOCK_STRIPES;

/// What excludes what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locking {
    /// Reads take no lock; writers take their bucket's. The default.
    #[default]
    Optimistic,
    /// Reads take the bucket's test-and-test-and-set lock too, as in the paper.
    Bucket,
    /// Every operation takes a striped `std::sync::Mutex`.
    Mutex,
    /// Every operation takes a striped `std::sync::RwLock`, reads shared.
    RwLock,
}

/// The stripes, none unless they are asked for.
#[derive(Debug)]
pub(crate) enum Stripes {
    None,
    Mutex(Box<[Mutex<()>]>),
    RwLock(Box<[RwLock<()>]>),
}

/// A stripe that is held.
#[expect(dead_code, reason = "guards are held, not read")]
pub(crate) enum StripeGuard<'s> {
    None,
    Mutex(MutexGuard<'s, ()>),
    Shared(RwLockReadGuard<'s, ()>),
    Exclusive(RwLockWriteGuard<'s, ()>),
}

impl Stripes {
    pub(crate) fn new(locking: Locking) -> Self {
        match locking {
            Locking::Optimistic | Locking::Bucket => Self::None,
            Locking::Mutex => Self::Mutex((0..LOCK_STRIPES).map(|_| Mutex::default()).collect()),
            Locking::RwLock => Self::RwLock((0..LOCK_STRIPES).map(|_| RwLock::default()).collect()),
        }
    }

    /// Takes the stripe of `hash`; the guard says nothing about data, so poison is ignored.
    #[inline]
    pub(crate) fn read(&self, hash: u64) -> StripeGuard<'_> {
        match self {
            Self::None => StripeGuard::None,
            Self::RwLock(stripes) => {
                let stripe = stripes[hash as usize % LOCK_STRIPES].read();
                StripeGuard::Shared(stripe.unwrap_or_else(PoisonError::into_inner))
            }
            Self::Mutex(_) => self.write(hash),
        }
    }

    /// As [`Self::read`], for a writer.
    #[inline]
    pub(crate) fn write(&self, hash: u64) -> StripeGuard<'_> {
        match self {
            Self::None => StripeGuard::None,
            Self::Mutex(stripes) => {
                let stripe = stripes[hash as usize % LOCK_STRIPES].lock();
                StripeGuard::Mutex(stripe.unwrap_or_else(PoisonError::into_inner))
            }
            Self::RwLock(stripes) => {
                let stripe = stripes[hash as usize % LOCK_STRIPES].write();
                StripeGuard::Exclusive(stripe.unwrap_or_else(PoisonError::into_inner))
            }
        }
    }
}
