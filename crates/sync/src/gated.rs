//! Data that sessions share, each under its own gate, and that one changes under all of them.
//!
//! A reader-writer lock whose readers share no line: entering costs an exchange on the session's
//! own one ([`Gates`]). Being alone costs one for each session that is open.
//!
//! | field | writer | reader |
//! |---|---|---|
//! | `data` | the holder of all gates | whoever holds a gate, shared |
//! | `free` | `open`, and entrances that go: its mutex | the same |
//!
//! - **GD1 entered-or-alone** Only an [`Entrance`] enters, and its gate is open: [`Gates::open`]
//!   has returned before there is one. So whoever is alone holds the gates of all entrances that
//!   could be inside (G1 all-exclude-one, G4 entered-is-used), and nobody has a reference to the
//!   data.
//!
//! Deliberately absent: waiting for anything else inside that may itself wait for being alone.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::gate::{AllGates, GateGuard, Gates};
use crate::shim::modelled::{Mutex, lock};

/// See the module's header.
///
/// ```
/// use pando_sync::Gated;
///
/// let gated = Gated::new(1, 7);
/// let entrance = gated.open().unwrap();
/// assert_eq!(*entrance.enter(), 7);
/// *gated.alone() += 1;
/// assert_eq!(*entrance.enter(), 8);
/// assert!(gated.open().is_none());
/// ```
pub struct Gated<T> {
    gates: Gates,
    free: Mutex<Vec<usize>>,
    data: UnsafeCell<T>,
    /// A planted fault: being alone excludes nobody.
    #[cfg(all(test, loom))]
    careless: bool,
}

// SAFETY: what is inside has shared references (`T: Sync`), what is alone a unique one, from any
// thread (`T: Send`), and never both at a time (GD1).
unsafe impl<T: Send + Sync> Sync for Gated<T> {}

/// A session's way in.
pub struct Entrance<T> {
    gated: Arc<Gated<T>>,
    index: usize,
}

/// A session is inside: nobody is alone.
#[must_use]
pub struct Inside<'g, T> {
    data: &'g T,
    _gate: GateGuard<'g>,
}

/// Nobody else is inside.
#[must_use]
pub struct Alone<'g, T> {
    data: &'g UnsafeCell<T>,
    /// None with the planted fault.
    _gates: Option<AllGates<'g>>,
}

impl<T> fmt::Debug for Gated<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Gated").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Entrance<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Entrance");
        shown.field("index", &self.index).finish_non_exhaustive()
    }
}

impl<T: fmt::Debug> fmt::Debug for Inside<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}

impl<T: fmt::Debug> fmt::Debug for Alone<'_, T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}

impl<T> Gated<T> {
    /// Data with up to `entrances_max` entrances at a time.
    pub fn new(entrances_max: usize, data: T) -> Arc<Self> {
        Arc::new(Self {
            gates: Gates::new(entrances_max),
            free: Mutex::new((0..entrances_max).rev().collect()),
            data: UnsafeCell::new(data),
            #[cfg(all(test, loom))]
            careless: false,
        })
    }

    /// A way in, unless all are taken. The caller is not inside.
    pub fn open(self: &Arc<Self>) -> Option<Entrance<T>> {
        let index = lock(&self.free).pop()?;
        self.gates.open(index);
        Some(Entrance {
            gated: Arc::clone(self),
            index,
        })
    }

    /// Waits until nobody is inside, and keeps everybody out. The caller is not inside.
    pub fn alone(&self) -> Alone<'_, T> {
        let gates = Some(self.gates.enter_all());
        #[cfg(all(test, loom))]
        let gates = gates.filter(|_| !self.careless);
        Alone {
            data: &self.data,
            _gates: gates,
        }
    }
}

impl<T> Entrance<T> {
    /// Goes inside; waits while somebody is alone. The caller is not inside.
    #[inline]
    pub fn enter(&self) -> Inside<'_, T> {
        let gate = self.gated.gates.enter(self.index);
        Inside {
            // SAFETY: this entrance's gate is open and held until this guard ends, so nobody is
            // alone (GD1), and references are shared.
            data: unsafe { &*self.gated.data.get() },
            _gate: gate,
        }
    }
}

impl<T> Drop for Entrance<T> {
    fn drop(&mut self) {
        lock(&self.gated.free).push(self.index);
    }
}

impl<T> Deref for Inside<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.data
    }
}

impl<T> Deref for Alone<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the gates of all entrances are held, so nobody has another unique one (GD1).
        unsafe { &*self.data.get() }
    }
}

impl<T> DerefMut for Alone<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the gates of all entrances are held, so nobody else has one (GD1), and this one
        // borrows the guard.
        unsafe { &mut *self.data.get() }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::shim::{AtomicUsize, Ordering};

    /// GD1: two writes of one that is alone are seen both or not at all, by a session that opens
    /// its entrance meanwhile and by one that has one.
    fn two_writes(careless: bool) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let pair = (AtomicUsize::new(0), AtomicUsize::new(0));
            let mut gated = Gated::new(2, pair);
            Arc::get_mut(&mut gated).unwrap().careless = careless;
            let first = gated.open().unwrap();
            let reader = {
                let gated = Arc::clone(&gated);
                loom::thread::spawn(move || {
                    for entrance in [first, gated.open().unwrap()] {
                        let inside = entrance.enter();
                        let one = inside.0.load(Ordering::Relaxed);
                        let other = inside.1.load(Ordering::Relaxed);
                        assert_eq!(one, other, "half of what one alone wrote");
                    }
                })
            };
            {
                let alone = gated.alone();
                alone.0.store(1, Ordering::Relaxed);
                alone.1.store(1, Ordering::Relaxed);
            }
            reader.join().unwrap();
        });
    }

    #[test]
    fn whoever_is_alone_excludes_all_entrances() {
        two_writes(false);
    }

    #[test]
    #[should_panic(expected = "half of what one alone wrote")]
    fn the_model_finds_one_that_is_not_alone() {
        two_writes(true);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::shim::{AtomicU64, Ordering};

    #[test]
    fn an_entrance_that_goes_can_be_opened_again() {
        let gated = Gated::new(2, ());
        let (one, other) = (gated.open().unwrap(), gated.open().unwrap());
        assert!(gated.open().is_none());
        drop(one);
        let again = gated.open().unwrap();
        drop((again.enter(), other.enter()));
        drop(gated.alone());
    }

    #[test]
    fn what_one_alone_changes_is_seen_whole() {
        const ROUNDS: u64 = 2_000;
        let gated = Gated::new(3, (vec![0; 3], AtomicU64::new(0)));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let gated = &gated;
                scope.spawn(move || {
                    let entrance = gated.open().unwrap();
                    for round in 0..ROUNDS {
                        let inside = entrance.enter();
                        assert!(inside.0.iter().all(|number| *number == inside.0[0]));
                        inside.1.fetch_add(1, Ordering::Relaxed);
                        drop(inside);
                        if round % 16 == 0 {
                            let mut alone = gated.alone();
                            let next = vec![alone.0[0] + 1; 3];
                            alone.0 = next;
                        }
                    }
                });
            }
        });
        let alone = gated.alone();
        assert_eq!(alone.1.load(Ordering::Relaxed), 3 * ROUNDS);
        assert_eq!(alone.0[0], 3 * ROUNDS / 16);
    }
}
