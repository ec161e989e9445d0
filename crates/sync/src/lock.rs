//! Locking what stays sound when a thread panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose contents are whole between any two statements: that a thread has panicked
/// while it held the lock says nothing against them.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
