//! Locking data that stays sound when a thread panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose content is consistent between any two statements, so that a panic under the
/// lock does not make it suspect.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
