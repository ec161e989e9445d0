//! From numbers to what they name (an engine's trees), without a lock on the way of operations.
//!
//! Numbers are never used again, so that the table is two levels of zeroed pages that the system
//! gives on first touch.
//!
//! | field | writer, under | readers |
//! |---|---|---|
//! | `segments[high]`, their slots | `create`, `restore`, `remove`: the mutex `owned` | `get`, `Acquire`, pinned |
//! | `owned` | `create`, `restore`, `remove`: its mutex | `find`, `each` |
//!
//! Invariant:
//! - **MD1** What `get` has returned lives until the pin ends, because `remove` hands it to the
//!   caller, who keeps it until the epoch has passed.

use std::collections::HashMap;
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::epoch::Guard;

const SEGMENT_BITS: u32 = 16;
const SEGMENT_SLOTS: usize = 1 << SEGMENT_BITS;

type Segment<T> = [AtomicPtr<T>];

/// Numbered things that many threads look up and few make.
pub struct Directory<T> {
    segments: Box<[AtomicPtr<AtomicPtr<T>>]>,
    owned: Mutex<Owned<T>>,
}

struct Owned<T> {
    next: u32,
    all: HashMap<u32, Arc<T>>,
}

impl<T> fmt::Debug for Directory<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Directory").finish_non_exhaustive()
    }
}

fn zeroed<T>(count: usize) -> Box<[AtomicPtr<T>]> {
    let zeroed = Box::new_zeroed_slice(count);
    // SAFETY: all-zero bytes are a null pointer.
    unsafe { zeroed.assume_init() }
}

impl<T: Send + Sync> Directory<T> {
    /// A directory of nothing.
    #[must_use]
    pub fn new() -> Self {
        Self {
            segments: zeroed(1 << (u32::BITS - SEGMENT_BITS)),
            owned: Mutex::new(Owned {
                next: 0,
                all: HashMap::new(),
            }),
        }
    }

    fn owned(&self) -> MutexGuard<'_, Owned<T>> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn segment(&self, number: u32) -> Option<&Segment<T>> {
        // Acquire pairs with `create`: the segment is seen zeroed.
        let segment = self.segments[(number >> SEGMENT_BITS) as usize].load(Ordering::Acquire);
        if segment.is_null() {
            return None;
        }
        // SAFETY: a segment has this length and lives as long as the directory.
        Some(unsafe { std::slice::from_raw_parts(segment, SEGMENT_SLOTS) })
    }

    /// What has this number, if it exists. O(1), two loads.
    #[inline]
    pub fn get<'g>(&self, number: u32, _: Guard<'g>) -> Option<&'g T> {
        let slot = &self.segment(number)?[number as usize % SEGMENT_SLOTS];
        // Acquire pairs with `create`: what it points to is seen initialised.
        let found = slot.load(Ordering::Acquire);
        // SAFETY: null, or something that lives until the pin ends (MD1).
        unsafe { found.as_ref() }
    }

    /// Puts something in; it is made for its number.
    pub fn create(&self, make: impl FnOnce(u32) -> T) -> u32 {
        let mut owned = self.owned();
        let number = owned.next;
        self.put(&mut owned, number, make(number));
        number
    }

    /// Puts something in under this number, if nothing has it; whether it was put.
    pub fn restore(&self, number: u32, make: impl FnOnce(u32) -> T) -> bool {
        let mut owned = self.owned();
        let absent = !owned.all.contains_key(&number);
        if absent {
            self.put(&mut owned, number, make(number));
        }
        absent
    }

    fn put(&self, owned: &mut Owned<T>, number: u32, made: T) {
        let next = number.checked_add(1).expect("the numbers are used up");
        owned.next = owned.next.max(next);
        if self.segment(number).is_none() {
            let segment: Box<[AtomicPtr<T>]> = zeroed(SEGMENT_SLOTS);
            let segment = Box::into_raw(segment).cast::<AtomicPtr<T>>();
            // Release pairs with `segment`.
            self.segments[(number >> SEGMENT_BITS) as usize].store(segment, Ordering::Release);
        }
        let made = Arc::new(made);
        let pointer = Arc::as_ptr(&made).cast_mut();
        owned.all.insert(number, made);
        let segment = self.segment(number).expect("just made");
        // Release pairs with `get`.
        segment[number as usize % SEGMENT_SLOTS].store(pointer, Ordering::Release);
    }

    /// Takes something out; the caller keeps it until the epoch has passed (MD1).
    pub fn remove(&self, number: u32) -> Option<Arc<T>> {
        let owned = self.owned().all.remove(&number)?;
        let segment = self.segment(number).expect("what exists has a segment");
        segment[number as usize % SEGMENT_SLOTS].store(ptr::null_mut(), Ordering::Release);
        Some(owned)
    }

    /// Shows everything, with its number.
    pub fn each(&self, mut visit: impl FnMut(u32, &Arc<T>)) {
        let owned = self.owned();
        owned
            .all
            .iter()
            .for_each(|(number, one)| visit(*number, one));
    }

    /// What has this number, for callers without a pin.
    #[must_use]
    pub fn find(&self, number: u32) -> Option<Arc<T>> {
        self.owned().all.get(&number).cloned()
    }
}

impl<T: Send + Sync> Default for Directory<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for Directory<T> {
    fn drop(&mut self) {
        for segment in &mut self.segments {
            let first = *segment.get_mut();
            if !first.is_null() {
                let segment = ptr::slice_from_raw_parts_mut(first, SEGMENT_SLOTS);
                // SAFETY: made by `create` from a box of this length, dropped once.
                drop(unsafe { Box::from_raw(segment) });
            }
        }
    }
}
