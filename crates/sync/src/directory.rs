//! Maps numbers to what they name (an engine's trees), without a lock on the path of operations.
//!
//! Numbers are never reused, so the table is two levels of zeroed pages that the system supplies on
//! first touch.
//!
//! | field | writer, under | readers |
//! |---|---|---|
//! | `segments[high]`, their slots | `create`, `restore`, `remove`: the mutex `owned` | `get`, `Acquire`, pinned |
//! | `owned` | `create`, `restore`, `remove`: its mutex | `find`, `each` |
//!
//! Invariant:
//! - **MD1** What `get` returned lives until the pin ends, because `remove` hands it to the caller,
//!   who keeps it until the epoch has passed.

use std::collections::HashMap;
use std::fmt;
use std::ptr;
use std::sync::Arc;

use crate::epoch::Guard;
use crate::shim::modelled::{Mutex, MutexGuard, lock};
use crate::shim::{AtomicPtr, MODEL, Ordering};

/// Models have few numbers; this takes them beyond one segment.
const NUMBER_BITS: u32 = if MODEL { 4 } else { u32::BITS };
const SEGMENT_BITS: u32 = if MODEL { 2 } else { 16 };
const SEGMENT_SLOTS: usize = 1 << SEGMENT_BITS;

type Segment<T> = [AtomicPtr<T>];

/// Numbered things that many threads look up and few create.
pub struct Directory<T> {
    segments: Box<[AtomicPtr<AtomicPtr<T>>]>,
    owned: Mutex<Owned<T>>,
    /// A planted bug: an item is published before it is completely visible.
    #[cfg(all(test, loom))]
    hasty: bool,
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

/// The model checkers' atomics are not zeroed memory.
#[cfg(any(loom, shuttle))]
fn zeroed<T>(count: usize) -> Box<[AtomicPtr<T>]> {
    (0..count)
        .map(|_| AtomicPtr::new(ptr::null_mut()))
        .collect()
}

#[cfg(not(any(loom, shuttle)))]
fn zeroed<T>(count: usize) -> Box<[AtomicPtr<T>]> {
    let zeroed = Box::new_zeroed_slice(count);
    // SAFETY: all-zero bytes are a null pointer.
    unsafe { zeroed.assume_init() }
}

impl<T: Send + Sync> Directory<T> {
    /// An empty directory.
    #[must_use]
    pub fn new() -> Self {
        Self {
            segments: zeroed(1 << (NUMBER_BITS - SEGMENT_BITS)),
            owned: Mutex::new(Owned {
                next: 0,
                all: HashMap::new(),
            }),
            #[cfg(all(test, loom))]
            hasty: false,
        }
    }

    fn owned(&self) -> MutexGuard<'_, Owned<T>> {
        lock(&self.owned)
    }

    #[inline]
    fn segment(&self, number: u32) -> Option<&Segment<T>> {
        // Acquire pairs with `create`: the segment is seen zeroed.
        let segment = self.segments[(number >> SEGMENT_BITS) as usize].load(Ordering::Acquire);
        if segment.is_null() {
            return None;
        }
        // SAFETY: a segment has this length and lives as long as the directory.
        Some(unsafe { std::slice::from_raw_parts(segment, SEGMENT_SLOTS) })
    }

    /// The item with this number, if it exists. O(1), two loads.
    #[inline]
    pub fn get<'g>(&self, number: u32, _: Guard<'g>) -> Option<&'g T> {
        let slot = &self.segment(number)?[number as usize % SEGMENT_SLOTS];
        // Acquire pairs with `create`: what it points to is seen initialised.
        let found = slot.load(Ordering::Acquire);
        // SAFETY: null, or something that lives until the pin ends (MD1).
        unsafe { found.as_ref() }
    }

    /// Inserts an item, made for its number.
    pub fn create(&self, make: impl FnOnce(u32) -> T) -> u32 {
        let mut owned = self.owned();
        let number = owned.next;
        self.put(&mut owned, number, make(number));
        number
    }

    /// Inserts an item under this number, if nothing has it; returns whether it did.
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
        let before = owned.all.insert(number, made);
        assert!(before.is_none(), "readers may hold the one before");
        let segment = self.segment(number).expect("just made");
        // Release pairs with `get`.
        let publish = Ordering::Release;
        #[cfg(all(test, loom))]
        let publish = if self.hasty {
            Ordering::Relaxed
        } else {
            publish
        };
        segment[number as usize % SEGMENT_SLOTS].store(pointer, publish);
    }

    /// Removes an item; the caller keeps it until the epoch has passed (MD1).
    pub fn remove(&self, number: u32) -> Option<Arc<T>> {
        // Until the slot is empty: `restore` may want the number.
        let mut owned = self.owned();
        let removed = owned.all.remove(&number)?;
        let segment = self.segment(number).expect("what exists has a segment");
        let slot = &segment[number as usize % SEGMENT_SLOTS];
        assert!(ptr::eq(slot.load(Ordering::Relaxed), Arc::as_ptr(&removed)));
        slot.store(ptr::null_mut(), Ordering::Release);
        Some(removed)
    }

    /// Shows every item with its number.
    pub fn each(&self, mut visit: impl FnMut(u32, &Arc<T>)) {
        let owned = self.owned();
        owned
            .all
            .iter()
            .for_each(|(number, one)| visit(*number, one));
    }

    /// The item with this number, for callers without a pin.
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
        for segment in &self.segments {
            // Nobody else is left to order anything with.
            let first = segment.load(Ordering::Relaxed);
            if !first.is_null() {
                let segment = ptr::slice_from_raw_parts_mut(first, SEGMENT_SLOTS);
                // SAFETY: made by `create` from a box of this length, dropped once.
                drop(unsafe { Box::from_raw(segment) });
            }
        }
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::cell::UnsafeCell;
    use loom::thread;

    use super::*;
    use crate::epoch::{Collector, Participant};

    /// Written when made and when freed: loom reports a concurrent reader of either.
    struct Thing(UnsafeCell<u32>);

    // SAFETY: loom checks that nobody writes concurrently with a reader.
    unsafe impl Sync for Thing {}

    impl Thing {
        fn new(number: u32) -> Self {
            let thing = Self(UnsafeCell::new(0));
            // SAFETY: nobody else has it.
            thing.0.with_mut(|written| unsafe { *written = number });
            thing
        }
    }

    impl Drop for Thing {
        fn drop(&mut self) {
            // The panic that unwinds reports what was caught.
            if !std::thread::panicking() {
                // SAFETY: the dropping thread is alone with it; loom checks that.
                self.0.with_mut(|written| unsafe { *written = u32::MAX });
            }
        }
    }

    /// Under a pin: reads the number stored in the item with this number; they must be equal.
    fn look(directory: &Directory<Thing>, participant: &mut Participant<()>, number: u32) {
        participant.pin();
        // SAFETY: pinned until the end of the function.
        let guard = unsafe { Guard::new() };
        if let Some(thing) = directory.get(number, guard) {
            // SAFETY: nobody writes while the pin lasts (MD1), which loom checks.
            let seen = thing.0.with(|written| unsafe { *written });
            assert_eq!(seen, number);
        }
        participant.unpin(&mut ());
    }

    /// One thread looks while another one makes two items, the second in a segment of its own.
    fn made_beside_a_reader(hasty: bool) {
        loom::model(move || {
            let mut directory = Directory::new();
            directory.hasty = hasty;
            // So that the first item's slot is published, but not its segment with it.
            let first = directory.create(Thing::new) + 1;
            let directory = Arc::new(directory);
            let mut reader = Collector::new(1, 1).register().expect("a place is free");
            let shared = Arc::clone(&directory);
            let making = thread::spawn(move || {
                assert_eq!(shared.create(Thing::new), first);
                shared.restore(SEGMENT_SLOTS as u32, Thing::new);
            });
            look(&directory, &mut reader, first);
            look(&directory, &mut reader, SEGMENT_SLOTS as u32);
            making.join().expect("no panic");
        });
    }

    /// One thread looks while another one removes the item, and frees it when the epoch has passed.
    fn removed_beside_a_reader(kept: bool) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let directory = Arc::new(Directory::new());
            let number = directory.create(Thing::new);
            let collector = Collector::new(1, 1);
            let mut reader = collector.register().expect("a place is free");
            let shared = Arc::clone(&directory);
            let looking = thread::spawn(move || look(&shared, &mut reader, number));
            let removed = directory.remove(number).expect("it is there");
            let stamp = collector.stamp();
            for _ in 0..2 {
                collector.try_advance();
            }
            let mut removed = Some(removed);
            if !kept || collector.has_passed(stamp) {
                removed = None;
            }
            looking.join().expect("no panic");
            drop(removed);
        });
    }

    /// One thread removes an item, another one restores its number: what `restore` has put there is
    /// found, by readers too.
    #[test]
    fn what_is_restored_beside_a_removal_stays() {
        loom::model(|| {
            let directory = Arc::new(Directory::new());
            let number = directory.create(Thing::new);
            let mut reader = Collector::new(1, 1).register().expect("a place is free");
            let shared = Arc::clone(&directory);
            let removing = thread::spawn(move || shared.remove(number));
            let restored = directory.restore(number, Thing::new);
            let removed = removing.join().expect("no panic");
            reader.pin();
            // SAFETY: pinned until the end of the closure.
            let guard = unsafe { Guard::new() };
            assert_eq!(directory.get(number, guard).is_some(), restored);
            assert_eq!(directory.find(number).is_some(), restored);
            reader.unpin(&mut ());
            drop(removed);
        });
    }

    #[test]
    fn what_is_made_is_seen_whole() {
        made_beside_a_reader(false);
    }

    #[test]
    #[should_panic = "Causality violation"]
    fn what_is_published_too_early_is_caught() {
        made_beside_a_reader(true);
    }

    #[test]
    fn md1_what_is_removed_lives_until_the_pin_ends() {
        removed_beside_a_reader(true);
    }

    #[test]
    #[should_panic = "Causality violation"]
    fn what_is_freed_beside_a_reader_is_caught() {
        removed_beside_a_reader(false);
    }
}
