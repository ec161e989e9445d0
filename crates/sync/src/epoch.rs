//! Epoch-based reclamation: pin, retire, collect, with the retired bytes counted.
//!
//! Follows the idea of Masstree §4.6.1 (read-copy update by epochs). It is our own rather than a
//! general crate's for three reasons: retired memory must return to the *retiring session's* pool
//! (the context `C`), retired bytes must be known exactly, and one pin per batch needs no
//! thread-local lookup. This module is the seam: nothing else knows how it works.
//!
//! | field | writer | ordering | readers |
//! |---|---|---|---|
//! | `epoch` | any collector, by one; `CLOSED`, who wants to be alone | CAS, `AcqRel`; `SeqCst` | pins and collectors |
//! | `Slot::state` (0, or epoch·2+1) | its participant | store, then `SeqCst` fence; idle: `Release` | collectors, `Relaxed` then `Acquire` fence |
//! | `Slot::claimed` | registering and leaving participants | `AcqRel` | registration |
//! | `Slot::retired_bytes` | its participant | `Relaxed` | gauges, collections |
//! | `halves` | any collector, from all `retired_bytes` | `Relaxed` | `halves_of_bound` |
//!
//! Invariants:
//! - **R1** While a participant is pinned at epoch e, the epoch is at most e + 1.
//! - **R2** What a participant pinned at e retires is stamped e + 1: no participant that pins at e
//!   + 2 or later can reach it, since by then the retiring pin has ended.
//! - **R3** What is stamped s is reclaimed when the epoch is at least s + 2: by R1 every
//!   participant that could reach it has ended its pin.
//! - **R4 alone** While an [`Alone`] lasts, no participant is pinned but the one that it was given
//!   to. What the others did under pins before happened before it, and what it does happens before
//!   what they do under later pins.
//!
//! A participant that stays pinned stops the epoch, so everything retired after it is kept.
//! [`Collector::halves_of_bound`] reports how much that is, so that callers collect, then slow down
//! writers, then refuse writes. Reads continue.
//!
//! Deliberately absent: thread-locals, background threads, a cap on what one collection frees (with
//! a cap, reclamation lags behind heavy removal).

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};

use crate::Padded;
use crate::limbo::{Limbo, is_oversized};
use crate::sharing;
use crate::shim::{
    AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Mutex, Ordering, Spin, fence, lock,
};

/// Retired bytes of one participant after which the end of a pin tries to collect, or an eighth of
/// the bound if that is less.
const COLLECT_BYTES: usize = 1 << 20;

/// Retirements after which it collects in any case: each counts as at least that share of the
/// bytes.
const COLLECT_COUNT: usize = 128;

/// In `epoch` while somebody is alone, or finds out whether it is: pins wait (R4 alone).
const CLOSED: u64 = 1 << 63;

/// The epoch in this word.
#[inline]
const fn epoch_in(word: u64) -> u64 {
    word & !CLOSED
}

/// An epoch of reclamation, unrelated to any other epoch of this workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReclaimEpoch(u64);

/// Proof that the calling participant is pinned for as long as `'g` lasts.
#[derive(Clone, Copy, Debug)]
pub struct Guard<'g>(PhantomData<fn(&'g ()) -> &'g ()>);

impl Guard<'_> {
    /// # Safety
    /// A pin is held for as long as anything with this lifetime is used.
    #[must_use]
    pub unsafe fn new() -> Self {
        Self(PhantomData)
    }
}

/// Returns what a pointer owns to the context of the collecting participant.
pub type Reclaim<C> = unsafe fn(NonNull<u8>, &mut C);

struct Retired<C> {
    pointer: NonNull<u8>,
    bytes: usize,
    stamp: ReclaimEpoch,
    reclaim: Reclaim<C>,
}

// SAFETY: a retired pointer is owned only by the limbo list that holds it; `retire` requires
// something that may be reclaimed on any thread.
unsafe impl<C> Send for Retired<C> {}

#[derive(Default)]
struct Slot {
    state: AtomicU64,
    claimed: AtomicBool,
    retired_bytes: AtomicUsize,
}

/// The shared side: the epoch and one slot per participant.
pub struct Collector<C> {
    epoch: Padded<AtomicU64>,
    slots: Box<[Padded<Slot>]>,
    slots_used: AtomicUsize,
    retired_bytes_max: usize,
    halves: Padded<AtomicU8>,
    orphans: Mutex<Limbo<Retired<C>>>,
    orphan_bytes: AtomicUsize,
    /// A planted fault: pins stay at the epoch they loaded first.
    #[cfg(all(test, loom))]
    trusting: bool,
    /// A planted fault: who wants to be alone looks for others before it keeps them out.
    #[cfg(all(test, loom))]
    hasty: bool,
}

impl<C> fmt::Debug for Collector<C> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Collector")
            .field("epoch", &self.epoch.0)
            .field("retired_bytes", &self.retired_bytes())
            .finish_non_exhaustive()
    }
}

impl<C> Collector<C> {
    /// A collector for at most `participants_max` participants at a time, which are to keep less
    /// than `retired_bytes_max` bytes retired.
    #[must_use]
    pub fn new(participants_max: usize, retired_bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            epoch: Padded(AtomicU64::new(1)),
            slots: (0..sharing::participants_max(participants_max))
                .map(|_| Padded::default())
                .collect(),
            slots_used: AtomicUsize::new(0),
            retired_bytes_max,
            halves: Padded(AtomicU8::new(0)),
            orphans: Mutex::new(Limbo::new()),
            orphan_bytes: AtomicUsize::new(0),
            #[cfg(all(test, loom))]
            trusting: false,
            #[cfg(all(test, loom))]
            hasty: false,
        })
    }

    /// Whether the fault of that name is planted.
    fn is_hasty(&self) -> bool {
        #[cfg(all(test, loom))]
        return self.hasty;
        #[cfg(not(all(test, loom)))]
        false
    }

    /// Whether the fault of that name is planted.
    #[inline]
    fn trusts_first_load(&self) -> bool {
        #[cfg(all(test, loom))]
        return self.trusting;
        #[cfg(not(all(test, loom)))]
        false
    }

    /// Registers a participant; `None` when every slot is taken. O(participants).
    pub fn register(self: &Arc<Self>) -> Option<Participant<C>> {
        let free = |slot: &Padded<Slot>| {
            // AcqRel pairs with the Release in `Participant::drop`: the slot was left idle.
            slot.claimed
                .compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        let index = self.slots.iter().position(free)?;
        self.slots_used.fetch_max(index + 1, Ordering::SeqCst);
        Some(Participant {
            collector: Arc::clone(self),
            index,
            pins: 0,
            epoch: ReclaimEpoch(0),
            limbo: Limbo::new(),
            limbo_bytes: 0,
            since_collect: 0,
            collect_bytes: COLLECT_BYTES.min(self.retired_bytes_max / 8),
            collect_due: false,
        })
    }

    /// Bytes retired and not yet reclaimed. O(participants).
    #[must_use]
    pub fn retired_bytes(&self) -> usize {
        let used = self.slots_used.load(Ordering::Acquire);
        let held = self.slots[..used]
            .iter()
            .map(|slot| slot.retired_bytes.load(Ordering::Relaxed));
        held.sum::<usize>() + self.orphan_bytes.load(Ordering::Relaxed)
    }

    /// The bound of [`Self::retired_bytes`].
    #[must_use]
    pub fn retired_bytes_max(&self) -> usize {
        self.retired_bytes_max
    }

    /// How many halves of the bound the retired bytes filled at the last collection; 2 when they
    /// reached it. O(1), one load of a line that changes only with this value.
    #[inline]
    #[must_use]
    pub fn halves_of_bound(&self) -> u8 {
        self.halves.load(Ordering::Relaxed)
    }

    /// Updates the value from what all participants hold back. O(participants).
    fn note_halves(&self) {
        let retired = self.retired_bytes();
        let halves = if retired >= self.retired_bytes_max {
            2
        } else {
            u8::from(retired >= self.retired_bytes_max / 2)
        };
        if halves != self.halves_of_bound() {
            self.halves.store(halves, Ordering::Relaxed);
        }
    }

    /// How many epochs the slowest pinned participant is behind: 0 or 1. A lasting 1 is a stall.
    #[must_use]
    pub fn lag(&self) -> u64 {
        let epoch = epoch_in(self.epoch.load(Ordering::Relaxed));
        let used = self.slots_used.load(Ordering::Acquire);
        let states = self.slots[..used]
            .iter()
            .map(|slot| slot.state.load(Ordering::Relaxed))
            .filter(|state| *state != 0);
        states
            .map(|state| epoch.saturating_sub(state >> 1))
            .max()
            .unwrap_or(0)
    }

    /// A stamp for something that the caller, without being pinned, has just made unreachable.
    #[must_use]
    pub fn stamp(&self) -> ReclaimEpoch {
        // SeqCst fence pairs with the one in `pin`: a thread that pins after it sees the unlinking.
        fence(Ordering::SeqCst);
        ReclaimEpoch(epoch_in(self.epoch.load(Ordering::Relaxed)) + 1)
    }

    /// Whether nobody can reach what was given this stamp any more (R3).
    #[must_use]
    pub fn has_passed(&self, stamp: ReclaimEpoch) -> bool {
        // Acquire pairs with `try_advance`: the last readers' accesses happened before.
        epoch_in(self.epoch.load(Ordering::Acquire)) >= stamp.0 + 2
    }

    /// Advances the epoch if every pinned participant has reached it. O(participants).
    pub fn try_advance(&self) -> bool {
        let epoch = self.epoch.load(Ordering::Relaxed);
        if epoch & CLOSED != 0 {
            return false;
        }
        // SeqCst fence pairs with the one in `pin`: either the pin is seen below, or the pinned
        // participant sees every unlinking that happened before this fence.
        fence(Ordering::SeqCst);
        let used = self.slots_used.load(Ordering::SeqCst);
        for slot in &self.slots[..used] {
            let state = slot.state.load(Ordering::Relaxed);
            if state != 0 && state >> 1 != epoch {
                return false;
            }
        }
        // Acquire fence pairs with the Release in `unpin`.
        fence(Ordering::Acquire);
        self.epoch
            .compare_exchange(epoch, epoch + 1, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Whether no slot but this one is that of a pinned participant. O(participants).
    fn are_others_idle(&self, index: usize) -> bool {
        let used = self.slots_used.load(Ordering::SeqCst);
        let mut others = self.slots[..used].iter().enumerate();
        let idle =
            others.all(|(other, slot)| other == index || slot.state.load(Ordering::Relaxed) == 0);
        // Acquire fence pairs with the Release in `unpin`.
        fence(Ordering::Acquire);
        idle
    }

    /// Waits until nobody is alone, with a slot that is seen as idle meanwhile; returns the epoch.
    #[cold]
    fn wait_while_closed(&self, slot: &Slot) -> u64 {
        // Release: as in `unpin`. Nothing was read under this pin.
        slot.state.store(0, Ordering::Release);
        let mut spin = Spin::new();
        loop {
            let word = self.epoch.load(Ordering::Relaxed);
            if word & CLOSED == 0 {
                return word;
            }
            spin.wait();
        }
    }

    fn reclaim_passed(&self, limbo: &mut Limbo<Retired<C>>, context: &mut C) -> (usize, usize) {
        let (mut count, mut bytes) = (0, 0);
        while let Some(first) = limbo.first() {
            if !self.has_passed(first.stamp) {
                break;
            }
            let (pointer, reclaim) = (first.pointer, first.reclaim);
            count += 1;
            bytes += first.bytes;
            limbo.drop_first();
            // SAFETY: nobody can reach it (R3); `retire` promised that this call reclaims it.
            unsafe { reclaim(pointer, context) };
        }
        (count, bytes)
    }

    /// Reclaims what departed participants have retired. Returns how many were reclaimed.
    pub fn collect_orphans(&self, context: &mut C) -> usize {
        if self.orphan_bytes.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let mut orphans = lock(&self.orphans);
        let (count, bytes) = self.reclaim_passed(&mut orphans, context);
        let before = self.orphan_bytes.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes);
        self.note_halves();
        count
    }

    /// Reclaims everything at once: no participants are left.
    pub fn reclaim_all(&mut self, context: &mut C) {
        let orphans = self
            .orphans
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for retired in orphans.drain() {
            // SAFETY: `&mut self` proves that no participant, hence no pin, is left.
            unsafe { (retired.reclaim)(retired.pointer, context) };
        }
        self.orphan_bytes.store(0, Ordering::Relaxed);
    }
}

/// For as long as it lasts, one participant is alone (R4 alone).
pub struct Alone<C>(Arc<Collector<C>>);

impl<C> fmt::Debug for Alone<C> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Alone").finish_non_exhaustive()
    }
}

impl<C> Drop for Alone<C> {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `pin`: who pins next sees what was done alone.
        self.0.epoch.fetch_and(!CLOSED, Ordering::Release);
    }
}

/// One session's side: its pin and what it has retired.
pub struct Participant<C> {
    collector: Arc<Collector<C>>,
    index: usize,
    pins: usize,
    epoch: ReclaimEpoch,
    limbo: Limbo<Retired<C>>,
    limbo_bytes: usize,
    /// Retired bytes since the last collection, each retirement counted as at least a share of
    /// `collect_bytes`, and the threshold for the next one.
    since_collect: usize,
    collect_bytes: usize,
    /// Whether enough was retired for the end of a pin to collect: all that a reader checks.
    collect_due: bool,
}

impl<C> fmt::Debug for Participant<C> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Participant")
            .field("index", &self.index)
            .field("pins", &self.pins)
            .field("limbo_bytes", &self.limbo_bytes)
            .finish_non_exhaustive()
    }
}

impl<C> Participant<C> {
    /// The number of this participant's slot, unique among current participants.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// The shared side.
    #[must_use]
    pub fn collector(&self) -> &Arc<Collector<C>> {
        &self.collector
    }

    /// Whether a pin is held.
    #[inline]
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.pins > 0
    }

    /// Holds off reclamation of everything that can be reached from now on. Pins nest. The
    /// outermost costs one store, one fence and two loads, repeated while the epoch advances
    /// meanwhile; it writes nothing shared but the participant's own line.
    #[inline]
    pub fn pin(&mut self) {
        self.pins += 1;
        if self.pins > 1 {
            return;
        }
        let collector = &*self.collector;
        let slot = &collector.slots[self.index];
        debug_assert!(slot.claimed.load(Ordering::Relaxed));
        let mut epoch = collector.epoch.load(Ordering::Relaxed);
        loop {
            if epoch & CLOSED != 0 {
                epoch = collector.wait_while_closed(slot);
            }
            slot.state.store(epoch << 1 | 1, Ordering::Relaxed);
            sharing::pin_fence();
            // Acquire pairs with the Release in `Alone::drop` (R4 alone).
            let now = collector.epoch.load(Ordering::Acquire);
            // It may have advanced, more than once, before the slot was seen (R1).
            if now == epoch || collector.trusts_first_load() {
                break;
            }
            epoch = now;
        }
        self.epoch = ReclaimEpoch(epoch);
    }

    /// Makes this participant, which is pinned, the only one that is, unless others are pinned now:
    /// from now on, pins wait. So the caller can change what only pinned participants reach, and
    /// hurries. O(participants); waits for nothing.
    #[must_use]
    pub fn try_alone(&self) -> Option<Alone<C>> {
        debug_assert!(self.is_pinned());
        let collector = &self.collector;
        if collector.is_hasty() {
            let idle = collector.are_others_idle(self.index);
            collector.epoch.fetch_or(CLOSED, Ordering::SeqCst);
            let alone = Alone(Arc::clone(collector));
            return idle.then_some(alone);
        }
        // Most often they are not: then nobody's line of the epoch is taken.
        if !collector.are_others_idle(self.index) {
            return None;
        }
        if collector.epoch.fetch_or(CLOSED, Ordering::SeqCst) & CLOSED != 0 {
            // Another one tries to be alone, and will find this one.
            return None;
        }
        let alone = Alone(Arc::clone(collector));
        // SeqCst fence pairs with the one in `pin`: either the pin is seen below, or the pinned
        // participant sees that it has to wait.
        fence(Ordering::SeqCst);
        collector.are_others_idle(self.index).then_some(alone)
    }

    /// Ends [`Self::pin`]; collects when enough was retired.
    #[inline]
    pub fn unpin(&mut self, context: &mut C) {
        debug_assert!(self.pins > 0, "unpinned more often than pinned");
        self.pins -= 1;
        if self.pins > 0 {
            return;
        }
        // R1.
        debug_assert!(
            epoch_in(self.collector.epoch.load(Ordering::Relaxed)) <= self.epoch.0 + 1
                || self.collector.trusts_first_load()
        );
        // Release pairs with the Acquire fence in `try_advance`: this pin's reads are over.
        self.collector.slots[self.index]
            .state
            .store(0, Ordering::Release);
        if self.collect_due {
            self.collect(context);
        }
    }

    /// Retires something that has just become unreachable for new pins.
    ///
    /// # Safety
    /// The participant is pinned; nobody who pins from now on can reach `pointer`; nobody else
    /// retires it; `reclaim` may be called with it once, on any thread.
    #[inline]
    pub unsafe fn retire(&mut self, pointer: NonNull<u8>, bytes: usize, reclaim: Reclaim<C>) {
        debug_assert!(self.is_pinned(), "R2 needs a pin");
        let stamp = ReclaimEpoch(self.epoch.0 + 1);
        // Collection stops at the first stamp that has not passed.
        debug_assert!(self.limbo.last().is_none_or(|last| last.stamp <= stamp));
        self.limbo.push(Retired {
            pointer,
            bytes,
            stamp,
            reclaim,
        });
        self.since_collect += bytes.max(self.collect_bytes / COLLECT_COUNT);
        self.collect_due = self.since_collect >= self.collect_bytes;
        self.set_limbo_bytes(self.limbo_bytes + bytes);
    }

    /// Advances the epoch if possible and reclaims what has passed; returns how many. The
    /// participant may be pinned, but then its own pin also holds the epoch.
    pub fn collect(&mut self, context: &mut C) -> usize {
        self.since_collect = 0;
        self.collect_due = false;
        self.collector.try_advance();
        let (count, bytes) = self.collector.reclaim_passed(&mut self.limbo, context);
        self.limbo.shrink();
        self.set_limbo_bytes(self.limbo_bytes - bytes);
        debug_assert!(self.limbo_bytes == 0 || !self.limbo.is_empty());
        self.collector.note_halves();
        count
    }

    fn set_limbo_bytes(&mut self, bytes: usize) {
        self.limbo_bytes = bytes;
        self.collector.slots[self.index]
            .retired_bytes
            .store(bytes, Ordering::Relaxed);
    }
}

/// Frees most of the capacity of a queue that was long and no longer is. Amortised O(1).
pub fn shrink_queue<T>(queue: &mut VecDeque<T>) {
    if is_oversized(queue.capacity(), queue.len()) {
        queue.shrink_to(queue.capacity() / 4);
    }
}

impl<C> Drop for Participant<C> {
    fn drop(&mut self) {
        let collector = &self.collector;
        debug_assert!(self.pins == 0 || std::thread::panicking());
        if !self.limbo.is_empty() {
            let mut orphans = lock(&collector.orphans);
            orphans.extend(self.limbo.drain());
            // Two lists in a row: restore the stamp order that collection relies on.
            orphans.as_mut_slice().sort_by_key(|retired| retired.stamp);
            collector
                .orphan_bytes
                .fetch_add(self.limbo_bytes, Ordering::Relaxed);
        }
        let slot = &collector.slots[self.index];
        slot.retired_bytes.store(0, Ordering::Relaxed);
        // Release pairs with the Acquire fence in `try_advance`, as in `unpin`.
        slot.state.store(0, Ordering::Release);
        // Release pairs with `register`.
        slot.claimed.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    unsafe fn count_one(_: NonNull<u8>, reclaimed: &mut usize) {
        *reclaimed += 1;
    }

    fn retire_one(participant: &mut Participant<usize>) {
        participant.pin();
        // SAFETY: the dangling pointer is never followed.
        unsafe { participant.retire(NonNull::dangling(), 100, count_one) };
        let mut none = 0;
        participant.unpin(&mut none);
    }

    #[test]
    fn what_is_retired_waits_for_every_pin_that_could_reach_it() {
        let collector = Collector::new(2, 1 << 20);
        let mut writer = collector.register().unwrap();
        let mut reader = collector.register().unwrap();
        assert!(collector.register().is_none());
        let mut reclaimed = 0;
        reader.pin();
        retire_one(&mut writer);
        for _ in 0..8 {
            writer.collect(&mut reclaimed);
        }
        assert_eq!(
            (reclaimed, collector.retired_bytes(), collector.lag()),
            (0, 100, 1)
        );
        reader.unpin(&mut 0);
        for _ in 0..4 {
            writer.collect(&mut reclaimed);
        }
        assert_eq!((reclaimed, collector.retired_bytes()), (1, 0));
    }

    #[test]
    fn one_is_alone_only_while_nobody_else_is_pinned() {
        let collector = Collector::new(2, 1 << 20);
        let mut writer = collector.register().unwrap();
        let mut reader = collector.register().unwrap();
        writer.pin();
        reader.pin();
        assert!(writer.try_alone().is_none());
        reader.unpin(&mut 0);
        let alone = writer.try_alone().expect("nobody else is pinned");
        assert!(!collector.try_advance());
        let pinned = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                reader.pin();
                pinned.store(true, Ordering::Release);
                reader.unpin(&mut 0);
            });
            std::thread::yield_now();
            assert!(
                !pinned.load(Ordering::Acquire),
                "pinned beside one that is alone"
            );
            drop(alone);
        });
        assert!(pinned.load(Ordering::Acquire));
        assert!(collector.try_advance());
        assert!(writer.try_alone().is_some());
        writer.unpin(&mut 0);
    }

    #[test]
    fn a_left_participants_garbage_is_reclaimed_by_others() {
        let mut collector = Collector::new(2, 150);
        let mut writer = collector.register().unwrap();
        let mut reader = collector.register().unwrap();
        reader.pin();
        // So low a bound makes every pin's end collect.
        retire_one(&mut writer);
        assert_eq!(collector.halves_of_bound(), 1);
        retire_one(&mut writer);
        assert_eq!(collector.halves_of_bound(), 2);
        drop(writer);
        let mut reclaimed = 0;
        assert_eq!(collector.collect_orphans(&mut reclaimed), 0);
        reader.unpin(&mut reclaimed);
        drop(reader);
        for _ in 0..3 {
            collector.try_advance();
            collector.collect_orphans(&mut reclaimed);
        }
        assert_eq!((reclaimed, collector.halves_of_bound()), (2, 0));
        Arc::get_mut(&mut collector)
            .unwrap()
            .reclaim_all(&mut reclaimed);
        assert_eq!((reclaimed, collector.retired_bytes()), (2, 0));
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;

    unsafe fn poison(pointer: NonNull<u8>, _: &mut ()) {
        // SAFETY: the test passes a reference that outlives the collector.
        let cell = unsafe { pointer.cast::<AtomicU64>().as_ref() };
        cell.store(0, Ordering::Relaxed);
    }

    #[test]
    fn a_pinned_reader_never_sees_what_was_reclaimed() {
        loom::model(|| {
            let cells: &'static [AtomicU64; 2] =
                Box::leak(Box::new([AtomicU64::new(7), AtomicU64::new(7)]));
            let current = loom::sync::Arc::new(AtomicUsize::new(0));
            let collector = Collector::new(2, 1 << 20);
            let mut reader = collector.register().unwrap();
            let mut writer = collector.register().unwrap();
            let shared = loom::sync::Arc::clone(&current);
            let reading = loom::thread::spawn(move || {
                reader.pin();
                let index = shared.load(Ordering::Acquire);
                assert_eq!(
                    cells[index].load(Ordering::Relaxed),
                    7,
                    "reclaimed while pinned"
                );
                reader.unpin(&mut ());
            });
            writer.pin();
            current.store(1, Ordering::Release);
            let old = NonNull::from(&cells[0]).cast();
            // SAFETY: the store above made the first cell unreachable; reclaimed once.
            unsafe { writer.retire(old, 8, poison) };
            writer.unpin(&mut ());
            for _ in 0..3 {
                writer.collect(&mut ());
            }
            reading.join().unwrap();
        });
    }

    struct Cell(loom::cell::UnsafeCell<u64>);

    // SAFETY: the model reports accesses that race.
    unsafe impl Sync for Cell {}
    // SAFETY: as above.
    unsafe impl Send for Cell {}

    /// Two threads that read under a pin, and then change what they read if they are alone.
    fn two_try_to_be_alone(hasty: bool) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(move || {
            let cell = loom::sync::Arc::new(Cell(loom::cell::UnsafeCell::new(0)));
            let mut collector = Collector::<()>::new(2, 1 << 20);
            Arc::get_mut(&mut collector).unwrap().hasty = hasty;
            let mut one = collector.register().unwrap();
            let mut other = collector.register().unwrap();
            let shared = loom::sync::Arc::clone(&cell);
            let change = |participant: &mut Participant<()>, cell: &Cell| {
                participant.pin();
                // SAFETY: the model reports accesses that race; R4 alone says that none do.
                let before = cell.0.with(|it| unsafe { *it });
                if let Some(alone) = participant.try_alone() {
                    // SAFETY: as above.
                    cell.0.with_mut(|it| unsafe { *it = before + 1 });
                    drop(alone);
                }
                participant.unpin(&mut ());
            };
            let beside = loom::thread::spawn(move || change(&mut other, &shared));
            change(&mut one, &cell);
            beside.join().unwrap();
        });
    }

    #[test]
    fn who_is_alone_changes_what_nobody_reads() {
        two_try_to_be_alone(false);
    }

    #[test]
    #[should_panic = "Causality violation"]
    fn looking_before_others_are_kept_out_is_caught() {
        two_try_to_be_alone(true);
    }

    /// A writer's pin is delayed while the epoch advances twice; a reader that pins in between
    /// meets what the writer retires afterwards.
    fn a_pin_is_held_up(trusting: bool) {
        let mut model = loom::model::Builder::new();
        // The fault shows with two: within the pin, and within the read.
        model.preemption_bound = Some(2);
        model.check(move || {
            let cells: &'static [AtomicU64; 2] =
                Box::leak(Box::new([AtomicU64::new(7), AtomicU64::new(7)]));
            let current = loom::sync::Arc::new(AtomicUsize::new(0));
            let mut collector = Collector::new(2, 1 << 20);
            Arc::get_mut(&mut collector).unwrap().trusting = trusting;
            let mut reader = collector.register().unwrap();
            let mut writer = collector.register().unwrap();
            let shared = loom::sync::Arc::clone(&current);
            let writing = loom::thread::spawn(move || {
                writer.pin();
                shared.store(1, Ordering::Release);
                let old = NonNull::from(&cells[0]).cast();
                // SAFETY: as above.
                unsafe { writer.retire(old, 8, poison) };
                writer.unpin(&mut ());
                writer.collect(&mut ());
            });
            reader.collect(&mut ());
            reader.collect(&mut ());
            reader.pin();
            let index = current.load(Ordering::Acquire);
            let seen = cells[index].load(Ordering::Relaxed);
            assert_eq!(seen, 7, "reclaimed while pinned");
            reader.unpin(&mut ());
            writing.join().unwrap();
        });
    }

    #[test]
    fn a_pin_that_was_held_up_stamps_late_enough() {
        a_pin_is_held_up(false);
    }

    #[test]
    #[should_panic = "reclaimed while pinned"]
    fn a_pin_at_a_stale_epoch_is_caught() {
        a_pin_is_held_up(true);
    }
}
