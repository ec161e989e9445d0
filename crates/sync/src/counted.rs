//! Counted references to a value on the heap: as `std::sync::Arc`, without weak references. So
//! whoever asks whether a reference is the only one reads the count and locks no line for it, and
//! the count takes one word.
//!
//! | field | writer | reader |
//! |---|---|---|
//! | `count` | `clone`, by one more, `Relaxed`; `drop`, by one less, `Release` | `get_mut` and the last `drop`, `Acquire` |
//! | `value` | whoever holds the only reference and borrows it mutably | everyone who holds one |
//!
//! Invariants:
//! - **CV1 counted** `count` is the number of references, at least one. Another one is made of one
//!   that is held, so it does not rise while the only one is borrowed mutably.
//! - **CV2 last-frees** The value lives until the last reference is dropped, which frees it.
//!
//! Deliberately absent: weak references, values without a known size.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

#[cfg(not(all(test, loom)))]
use crate::shim::unmodelled::{AtomicUsize, Ordering, fence};
#[cfg(all(test, loom))]
use crate::shim::{AtomicUsize, Ordering, fence};

/// See the module's header.
///
/// ```
/// use pando_sync::Counted;
///
/// let mut one = Counted::new(7);
/// let other = one.clone();
/// assert!(one.is_shared() && one.get_mut().is_none());
/// drop(other);
/// *one.get_mut().expect("it is the only one") += 1;
/// assert_eq!(*one, 8);
/// ```
pub struct Counted<T> {
    place: NonNull<Place<T>>,
    owns: PhantomData<Place<T>>,
}

/// Bytes on the heap beside those of the value, if its alignment is that of a word.
pub const COUNT_BYTES: usize = size_of::<usize>();

struct Place<T> {
    count: AtomicUsize,
    value: T,
}

// SAFETY: a reference shows the value to the thread that has it, and the last one drops it there.
unsafe impl<T: Send + Sync> Send for Counted<T> {}
// SAFETY: the same, since another reference can be made of one that is shared.
unsafe impl<T: Send + Sync> Sync for Counted<T> {}

impl<T> Counted<T> {
    /// The first reference to a value.
    #[must_use]
    pub fn new(value: T) -> Self {
        let count = AtomicUsize::new(1);
        let place = Box::leak(Box::new(Place { count, value }));
        Self {
            place: NonNull::from(place),
            owns: PhantomData,
        }
    }

    #[inline]
    fn place(&self) -> &Place<T> {
        // SAFETY: it lives while this reference does (CV2 last-frees).
        unsafe { self.place.as_ref() }
    }

    /// Whether both refer to the same value.
    #[inline]
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.place == other.place
    }

    /// Whether there is another reference: a hint, where others come and go meanwhile.
    #[inline]
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.place().count.load(Ordering::Relaxed) > 1
    }

    /// The value, if this is the only reference.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut T> {
        // Acquire pairs with the Release in `drop`: what others did with the value was before.
        self.get_mut_ordered(Ordering::Acquire)
    }

    #[inline]
    fn get_mut_ordered(&mut self, order: Ordering) -> Option<&mut T> {
        if self.place().count.load(order) != 1 {
            return None;
        }
        // SAFETY: no other reference exists, and none is made of this one while it is borrowed
        // (CV1 counted).
        Some(unsafe { &mut self.place.as_mut().value })
    }
}

impl<T> Deref for Counted<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.place().value
    }
}

impl<T> Clone for Counted<T> {
    #[inline]
    fn clone(&self) -> Self {
        // Relaxed: who gives the new reference to another thread orders that.
        let before = self.place().count.fetch_add(1, Ordering::Relaxed);
        // CV1 counted: references that were forgotten could make it wrap.
        assert!(isize::try_from(before).is_ok(), "too many references");
        Self {
            place: self.place,
            owns: PhantomData,
        }
    }
}

impl<T> Drop for Counted<T> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the Acquire in `get_mut`, and with the fence below in the last `drop`.
        if self.place().count.fetch_sub(1, Ordering::Release) == 1 {
            // Acquire: what others did with the value was before.
            fence(Ordering::Acquire);
            // SAFETY: it came from a box, and no reference is left (CV2 last-frees).
            drop(unsafe { Box::from_raw(self.place.as_ptr()) });
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Counted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Counts how often it is dropped.
    struct Noted<'n>(&'n AtomicUsize);

    impl Drop for Noted<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn cv2_the_last_reference_drops_the_value() {
        let drops = AtomicUsize::new(0);
        let one = Counted::new(Noted(&drops));
        let other = one.clone();
        assert!(one.is_same(&other) && !one.is_same(&Counted::new(Noted(&AtomicUsize::new(0)))));
        drop(one);
        assert_eq!(drops.load(Ordering::Relaxed), 0);
        assert!(!other.is_shared());
        drop(other);
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn cv1_only_one_reference_changes_the_value() {
        let drops = AtomicUsize::new(0);
        let mut one = Counted::new((Noted(&drops), 0_u64));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let other = one.clone();
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        let mut another = other.clone();
                        assert!(another.get_mut().is_none(), "`other` is one, too");
                    }
                });
            }
        });
        one.get_mut().expect("the others have gone").1 += 1;
        assert_eq!((one.1, drops.load(Ordering::Relaxed)), (1, 0));
    }
}

#[cfg(all(test, loom))]
mod models {
    use std::thread::panicking;

    use loom::cell::UnsafeCell;
    use loom::thread;

    use super::*;

    /// Loom notices when it is read and written, or dropped, without an order.
    struct Watched(UnsafeCell<u32>);

    // SAFETY: the model reports accesses that race.
    unsafe impl Sync for Watched {}
    // SAFETY: as above.
    unsafe impl Send for Watched {}

    impl Watched {
        fn read(&self) -> u32 {
            // SAFETY: loom checks it.
            self.0.with(|value| unsafe { *value })
        }

        fn write(&mut self) {
            // SAFETY: loom checks it.
            self.0.with_mut(|value| unsafe { *value += 1 });
        }
    }

    impl Drop for Watched {
        fn drop(&mut self) {
            // A model that has failed drops it, too.
            if !panicking() {
                self.write();
            }
        }
    }

    fn change_beside_a_reader(order: Ordering) {
        loom::model(move || {
            let mut one = Counted::new(Watched(UnsafeCell::new(0)));
            let other = one.clone();
            let reader = thread::spawn(move || {
                let another = other.clone();
                assert_eq!(another.read(), 0);
            });
            if let Some(value) = one.get_mut_ordered(order) {
                value.write();
            }
            reader.join().expect("it reads");
        });
    }

    #[test]
    fn cv1_what_others_read_was_before_the_change() {
        change_beside_a_reader(Ordering::Acquire);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn canary_without_acquire_it_was_not() {
        change_beside_a_reader(Ordering::Relaxed);
    }

    #[test]
    fn cv2_what_others_read_was_before_the_drop() {
        loom::model(|| {
            let one = Counted::new(Watched(UnsafeCell::new(0)));
            let other = one.clone();
            let reader = thread::spawn(move || assert_eq!(other.read(), 0));
            assert_eq!(one.read(), 0);
            drop(one);
            reader.join().expect("it reads");
        });
    }
}
