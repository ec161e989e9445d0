//! Waiting lines: who waits for something to appear at one of several places, in the order in which
//! they came.
//!
//! ```text
//!            the waiter                            whoever publishes something
//! enter ─► look ─► nothing: sleep                  publish ─► announce ─► wake the first in line
//!   arm ─► look ─► found: take it, leave
//!     ▲                  │ woken
//!     └──────────────────┘
//! ```
//!
//! | field | written | under | read |
//! |---|---|---|---|
//! | `waiting` | `enter`, `leave` | the mutex | `announce`, `is_first`: `Relaxed`, after a fence |
//! | `state` | all | the mutex | all |
//!
//! Invariants:
//! - **WQ1 no-lost-wake** Nobody sleeps at the head of a line whose place has something, unless it
//!   was woken after it looked last. `enter` counts itself, then looks; `announce` publishes, then
//!   reads the count. A sequentially consistent fence in between on both sides: at least one of
//!   them sees the other. Later wakes are ordered by the mutex: either `announce` finds the waiter
//!   asleep, or the waiter has looked after it (`arm`).
//! - **WQ2 first-come** Only the first in line at a place is woken for it, and only it may take
//!   what is there ([`WaitingLines::is_first`]). Whoever leaves the head of a line looks whether
//!   there is more for the next one, and announces it if so.
//! - **WQ3 woken-once** A waiter that was woken is not woken again before it has armed.
//!
//! Deliberately absent: places and what they hold; sleeping and waking, which are the callers'.

use std::collections::{BTreeMap, BTreeSet};

use crate::shim::modelled::{Mutex, lock};
use crate::shim::{AtomicUsize, Ordering, fence};

/// A waiter's number; lower ones came earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

#[derive(Debug)]
struct Waiter<P> {
    /// Whom to wake.
    owner: u64,
    places: Vec<P>,
    woken: bool,
    /// The place for which it was woken last.
    called_to: Option<P>,
}

#[derive(Debug)]
struct State<P> {
    next: u64,
    lines: BTreeMap<P, BTreeSet<Ticket>>,
    waiters: BTreeMap<Ticket, Waiter<P>>,
}

/// See the module's header.
#[derive(Debug)]
pub struct WaitingLines<P> {
    waiting: AtomicUsize,
    state: Mutex<State<P>>,
}

impl<P: Ord + Clone> Default for WaitingLines<P> {
    fn default() -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            state: Mutex::new(State {
                next: 0,
                lines: BTreeMap::new(),
                waiters: BTreeMap::new(),
            }),
        }
    }
}

impl<P: Ord + Clone> WaitingLines<P> {
    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Joins the lines at these places. The caller then looks at them (WQ1).
    pub fn enter(&self, owner: u64, places: Vec<P>) -> Ticket {
        let ticket = {
            let mut state = lock(&self.state);
            let ticket = Ticket(state.next);
            state.next += 1;
            for place in &places {
                let line = state.lines.entry(place.clone()).or_default();
                line.insert(ticket);
            }
            let waiter = Waiter {
                owner,
                places,
                woken: false,
                called_to: None,
            };
            state.waiters.insert(ticket, waiter);
            self.waiting.fetch_add(1, Ordering::Relaxed);
            ticket
        };
        // Pairs with the fence in `announce` (WQ1).
        fence(Ordering::SeqCst);
        ticket
    }

    /// The waiter is about to look, and wants to be woken for what comes later. Returns the place
    /// for which it was woken last: of those that have something, the one that had it first.
    pub fn arm(&self, ticket: Ticket) -> Option<P> {
        let mut state = lock(&self.state);
        let waiter = state.waiters.get_mut(&ticket)?;
        waiter.woken = false;
        waiter.called_to.clone()
    }

    /// Whether nobody is ahead of this waiter at a place (WQ2); `None` is who has not entered yet.
    #[must_use]
    pub fn is_first(&self, place: &P, ticket: Option<Ticket>) -> bool {
        if self.is_empty() {
            return true;
        }
        let state = lock(&self.state);
        let first = state.lines.get(place).and_then(BTreeSet::first);
        first.is_none_or(|first| ticket == Some(*first))
    }

    /// Leaves all lines; returns the places at which somebody else is now first. The caller looks
    /// whether there is something for them, and announces it (WQ2).
    pub fn leave(&self, ticket: Ticket) -> Vec<P> {
        let mut state = lock(&self.state);
        let Some(waiter) = state.waiters.remove(&ticket) else {
            return Vec::new();
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        let mut others = Vec::new();
        for place in waiter.places {
            let Some(line) = state.lines.get_mut(&place) else {
                continue;
            };
            let was_first = line.first() == Some(&ticket);
            line.remove(&ticket);
            if line.is_empty() {
                state.lines.remove(&place);
            } else if was_first {
                others.push(place);
            }
        }
        others
    }

    /// Something was published at a place: wakes the first in line, unless it was woken already
    /// (WQ3). One fence and one load when nobody waits.
    #[inline]
    pub fn announce(&self, place: impl FnOnce() -> P, wake: impl FnOnce(u64)) {
        if self.is_awaited() {
            self.wake_first(&place(), wake);
        }
    }

    /// Something was published that concerns several places, which follow each other in their
    /// order: wakes the first in line at each of them, from this one on. The places are found
    /// under the mutex, once: whoever enters a line of its own after that has counted itself after
    /// the publication, and sees it (WQ1).
    #[inline]
    pub fn announce_each(
        &self,
        from: impl FnOnce() -> P,
        concerns: impl Fn(&P, &P) -> bool,
        wake: impl Fn(u64),
    ) {
        if self.is_awaited() {
            let from = from();
            let places = {
                let state = lock(&self.state);
                let places = state.lines.range(from.clone()..).map(|(place, _)| place);
                let places = places.take_while(|place| concerns(&from, place));
                places.cloned().collect::<Vec<_>>()
            };
            for place in &places {
                self.wake_first(place, &wake);
            }
        }
    }

    /// Whether anybody may wait for what was just published.
    #[inline]
    fn is_awaited(&self) -> bool {
        // Pairs with the fence in `enter`: without it, the load could come before the publication,
        // and miss a waiter that has missed the publication (WQ1).
        #[cfg(not(all(test, loom)))]
        fence(Ordering::SeqCst);
        #[cfg(all(test, loom))]
        if !tests::is_fault_planted() {
            fence(Ordering::SeqCst);
        }
        self.waiting.load(Ordering::Relaxed) > 0
    }

    #[cold]
    fn wake_first(&self, place: &P, wake: impl FnOnce(u64)) {
        let owner = {
            let mut state = lock(&self.state);
            let State { lines, waiters, .. } = &mut *state;
            let first = lines.get(place).and_then(BTreeSet::first);
            let waiter = first.and_then(|first| waiters.get_mut(first));
            let asleep = waiter.filter(|waiter| !waiter.woken);
            asleep.map(|waiter| {
                waiter.woken = true;
                waiter.called_to = Some(place.clone());
                waiter.owner
            })
        };
        if let Some(owner) = owner {
            wake(owner);
        }
    }

    /// The places at which somebody waits, of those that `concerns`.
    #[must_use]
    pub fn places(&self, concerns: impl Fn(&P) -> bool) -> Vec<P> {
        if self.is_empty() {
            return Vec::new();
        }
        let state = lock(&self.state);
        state
            .lines
            .keys()
            .filter(|it| concerns(it))
            .cloned()
            .collect()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod unit {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn wq2_the_first_is_woken_and_then_the_next() {
        let lines = WaitingLines::<&str>::default();
        let woken = RefCell::new(Vec::new());
        let announce = |place| lines.announce(|| place, |owner| woken.borrow_mut().push(owner));
        announce("a");
        let first = lines.enter(1, vec!["a", "b"]);
        let second = lines.enter(2, vec!["a", "a"]);
        let third = lines.enter(3, vec!["b"]);
        assert!(lines.is_first(&"a", Some(first)) && lines.is_first(&"b", Some(first)));
        assert!(!lines.is_first(&"a", Some(second)) && !lines.is_first(&"b", None));
        announce("a");
        announce("a");
        announce("b");
        assert_eq!(*woken.borrow(), [1], "WQ3");
        assert_eq!(
            lines.arm(first),
            Some("a"),
            "a was the first to have something"
        );
        announce("b");
        assert_eq!(*woken.borrow(), [1, 1]);
        assert_eq!(lines.arm(first), Some("b"));
        assert_eq!(lines.leave(first), ["a", "b"]);
        assert!(lines.leave(first).is_empty());
        announce("a");
        announce("b");
        assert_eq!(*woken.borrow(), [1, 1, 2, 3]);
        assert_eq!(lines.places(|place| *place == "a"), ["a"]);
        assert!(lines.leave(second).is_empty() && lines.leave(third).is_empty());
        assert!(lines.is_empty() && lock(&lines.state).lines.is_empty());
    }

    #[test]
    fn each_line_of_a_kind_is_woken() {
        let lines = WaitingLines::<(char, u8)>::default();
        let places = [('a', 0), ('b', 0), ('b', 1), ('b', 1), ('b', 2), ('c', 0)];
        for (owner, place) in (0..).zip(places) {
            lines.enter(owner, vec![place]);
        }
        let woken = RefCell::new(Vec::new());
        let announce = |from| {
            let is_of = |from: &(char, u8), place: &(char, u8)| from.0 == place.0;
            lines.announce_each(|| from, is_of, |owner| woken.borrow_mut().push(owner));
        };
        announce(('b', 0));
        assert_eq!(*woken.borrow(), [1, 2, 4]);
        announce(('b', 0));
        announce(('d', 0));
        assert_eq!(*woken.borrow(), [1, 2, 4], "WQ3");
        announce(('c', 0));
        assert_eq!(*woken.borrow(), [1, 2, 4, 5]);
    }

    /// Pushers and takers on threads of their own: everything is taken, and nobody is left asleep
    /// while something is there. Without the wake of the next in line, takers would be.
    #[test]
    fn wq1_everything_is_taken_under_load() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        use std::sync::mpsc;

        const TAKERS: u64 = 8;
        const ITEMS: usize = 20_000;
        let lines = WaitingLines::<u8>::default();
        let (items, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..TAKERS).map(|_| mpsc::channel::<bool>()).unzip();
        let wake = |owner: u64| senders[owner as usize].send(true).expect("it listens");
        let take = |ticket| {
            lines.is_first(&0, ticket)
                && items
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| it.checked_sub(1))
                    .is_ok()
        };
        std::thread::scope(|scope| {
            for (owner, mail) in receivers.into_iter().enumerate() {
                let (lines, items, taken, take, wake) = (&lines, &items, &taken, &take, &wake);
                scope.spawn(move || {
                    loop {
                        if !take(None) {
                            let ticket = lines.enter(owner as u64, vec![0]);
                            while !take(Some(ticket)) {
                                if !mail.recv().expect("it is told") {
                                    lines.leave(ticket);
                                    return;
                                }
                                lines.arm(ticket);
                            }
                            for place in lines.leave(ticket) {
                                if items.load(Ordering::Relaxed) > 0 {
                                    lines.announce(|| place, wake);
                                }
                            }
                        }
                        taken.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..ITEMS / 2 {
                        items.fetch_add(1, Ordering::Relaxed);
                        lines.announce(|| 0, wake);
                    }
                });
            }
            let begun = std::time::Instant::now();
            while taken.load(Ordering::Relaxed) < ITEMS {
                assert!(
                    begun.elapsed().as_secs() < 60,
                    "WQ1: somebody sleeps for ever"
                );
                std::thread::yield_now();
            }
            for sender in &senders {
                sender.send(false).expect("it listens");
            }
        });
        assert!(lines.is_empty());
    }
}

#[cfg(all(test, loom))]
mod tests {
    use std::cell::Cell;

    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    thread_local! {
        static PLANTED: Cell<bool> = const { Cell::new(false) };
    }

    /// Whether `announce` forgets its fence.
    pub(super) fn is_fault_planted() -> bool {
        PLANTED.with(Cell::get)
    }

    #[derive(Default)]
    struct World {
        lines: WaitingLines<u8>,
        items: AtomicUsize,
        /// Which waiters were woken.
        woken: [AtomicUsize; 2],
    }

    impl World {
        fn take(&self, ticket: Ticket) -> bool {
            self.lines.is_first(&0, Some(ticket)) && {
                let items = self.items.load(Ordering::Relaxed);
                items > 0
                    && self
                        .items
                        .compare_exchange(items, items - 1, Ordering::Relaxed, Ordering::Relaxed)
                        .is_ok()
            }
        }

        fn push(&self) {
            self.items.fetch_add(1, Ordering::Relaxed);
            self.announce();
        }

        fn announce(&self) {
            let wake = |owner: u64| self.woken[owner as usize].store(1, Ordering::Relaxed);
            self.lines.announce(|| 0, wake);
        }

        fn leave(&self, ticket: Ticket) {
            if !self.lines.leave(ticket).is_empty() && self.items.load(Ordering::Relaxed) > 0 {
                self.announce();
            }
        }
    }

    fn one_waiter_and_a_push() {
        let world = Arc::new(World::default());
        let pusher = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                // A plain store, as an engine publishes a value.
                world.items.store(1, Ordering::Release);
                world.announce();
            })
        };
        let ticket = world.lines.enter(0, vec![0]);
        let taken = world.take(ticket);
        pusher.join().unwrap();
        let woken = world.woken[0].load(Ordering::Relaxed) == 1;
        assert!(taken || woken, "WQ1: it sleeps for ever");
    }

    #[test]
    fn wq1_a_push_is_seen_or_wakes() {
        loom::model(one_waiter_and_a_push);
    }

    /// The fault must be found: the pusher, which runs on a thread of the model, forgets its fence.
    #[test]
    #[should_panic(expected = "WQ1")]
    fn wq1_without_the_fence_a_wake_is_lost() {
        loom::model(|| {
            PLANTED.with(|it| it.set(true));
            one_waiter_and_a_push();
        });
    }

    #[test]
    fn wq2_two_waiters_share_two_pushes() {
        loom::model(|| {
            let world = Arc::new(World::default());
            let pusher = {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    world.push();
                    world.push();
                })
            };
            let tickets = [0, 1].map(|owner| world.lines.enter(owner, vec![0]));
            let mut served = [false; 2];
            for (served, ticket) in served.iter_mut().zip(tickets) {
                if world.take(ticket) {
                    *served = true;
                    world.leave(ticket);
                }
            }
            pusher.join().unwrap();
            // Now the woken ones look again, for as long as there are some.
            while let Some(owner) =
                (0..2).find(|owner| world.woken[*owner].swap(0, Ordering::Relaxed) == 1)
            {
                let ticket = tickets[owner];
                world.lines.arm(ticket);
                if !served[owner] && world.take(ticket) {
                    served[owner] = true;
                    world.leave(ticket);
                }
            }
            assert_eq!(served, [true; 2]);
            assert!(world.lines.is_empty());
        });
    }

    /// A stream: each reader has a line of its own, and sees how many entries there are.
    #[derive(Default)]
    struct Stream {
        lines: WaitingLines<(u8, u64)>,
        entries: AtomicUsize,
        woken: [AtomicUsize; 2],
    }

    impl Stream {
        /// A plain store, as an engine publishes a value; then every line is told.
        fn publish(&self, entries: usize) {
            self.entries.store(entries, Ordering::Release);
            let is_of = |from: &(u8, u64), place: &(u8, u64)| from.0 == place.0;
            let wake = |owner: u64| self.woken[owner as usize].store(1, Ordering::Relaxed);
            self.lines.announce_each(|| (0, 0), is_of, wake);
        }

        fn enter(&self, owner: u64) -> Ticket {
            self.lines.enter(owner, vec![(0, owner)])
        }

        fn has(&self, entries: usize) -> bool {
            self.entries.load(Ordering::Acquire) >= entries
        }

        /// Whether the reader was woken since it was asked last.
        fn was_woken(&self, owner: usize) -> bool {
            let woken = self.woken[owner].load(Ordering::Relaxed) == 1;
            if woken {
                self.woken[owner].store(0, Ordering::Relaxed);
            }
            woken
        }
    }

    fn two_readers_and_an_entry() {
        let stream = Arc::new(Stream::default());
        let spawn = |run: fn(&Stream) -> bool| {
            let stream = Arc::clone(&stream);
            thread::spawn(move || run(&stream))
        };
        let publisher = spawn(|stream| {
            stream.publish(1);
            true
        });
        let other = spawn(|stream| {
            stream.enter(1);
            stream.has(1)
        });
        stream.enter(0);
        let seen = [stream.has(1), other.join().unwrap()];
        publisher.join().unwrap();
        for (owner, seen) in seen.into_iter().enumerate() {
            assert!(seen || stream.was_woken(owner), "WQ1: it sleeps for ever");
        }
    }

    #[test]
    fn wq1_every_line_sees_an_entry_or_is_woken() {
        loom::model(two_readers_and_an_entry);
    }

    /// The fault must be found.
    #[test]
    #[should_panic(expected = "WQ1")]
    fn wq1_without_the_fence_a_line_is_not_woken() {
        loom::model(|| {
            PLANTED.with(|it| it.set(true));
            two_readers_and_an_entry();
        });
    }

    /// A reader that is woken for the first of two entries, and waits for the second.
    fn a_reader_waits_on(arms_first: bool) {
        let stream = Arc::new(Stream::default());
        let ticket = stream.enter(0);
        let publisher = {
            let stream = Arc::clone(&stream);
            thread::spawn(move || {
                stream.publish(1);
                stream.publish(2);
            })
        };
        let mut seen = false;
        if stream.was_woken(0) {
            if arms_first {
                stream.lines.arm(ticket);
            }
            seen = stream.has(2);
            if !arms_first {
                stream.lines.arm(ticket);
            }
        }
        publisher.join().unwrap();
        assert!(seen || stream.was_woken(0), "WQ1: it sleeps for ever");
    }

    #[test]
    fn wq3_who_arms_and_looks_is_woken_for_what_comes_later() {
        loom::model(|| a_reader_waits_on(true));
    }

    /// The fault must be found: it looks before it has armed.
    #[test]
    #[should_panic(expected = "WQ1")]
    fn wq3_who_looks_before_it_arms_loses_a_wake() {
        loom::model(|| a_reader_waits_on(false));
    }
}
