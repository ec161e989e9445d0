//! Which slots are handed out.
//!
//! Departs from the paper, whose allocator is a data structure changed by dynamic transactions
//! (§2.3). Here a reservation is a hint: it says which slots are free, and its memory is volatile.
//! What allocates is the commit, which compares the free slot's sequence and writes it. So a crash
//! of whoever reserved leaks nothing, two holders of one hint cannot both commit, and the
//! comparison is what makes an address unique (MN2 addresses-once).

use std::collections::{BTreeSet, VecDeque};

use crate::slots::Slots;
use crate::{Limits, Sequence, Slot};

/// Free slots and reservations. Rebuilt from the slots after a restart.
#[derive(Clone, Debug)]
pub(crate) struct Allocator {
    /// Free slots below `fresh` that nobody holds a hint of.
    free: BTreeSet<Slot>,
    /// The lowest slot that was never handed out.
    fresh: u64,
    /// Hints, the oldest first. A slot in it may have been allocated since.
    reserved: VecDeque<Slot>,
    /// Slots that are not free, fixed ones aside.
    used: u64,
}

impl Allocator {
    pub(crate) fn new(slots: &Slots, limits: &Limits) -> Self {
        let mut allocator = Self {
            free: BTreeSet::new(),
            fresh: limits.slots_fixed,
            reserved: VecDeque::new(),
            used: 0,
        };
        for (slot, seen) in slots.iter().skip(limits.slots_fixed as usize) {
            allocator.fresh = slot.0 + 1;
            if seen.state().is_free() {
                allocator.free.insert(slot);
            } else {
                allocator.used += 1;
            }
        }
        allocator
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Slots below this one may be written: fixed ones, those handed out, and, for hints from
    /// before a restart, as many more as there may be hints.
    pub(crate) fn writable_below(&self, limits: &Limits) -> u64 {
        let hinted = limits.reservations_max as u64;
        self.fresh.saturating_add(hinted).min(limits.slots_max)
    }

    /// Hands out up to `count` free slots, the lowest first.
    pub(crate) fn reserve(
        &mut self,
        count: u32,
        slots: &Slots,
        limits: &Limits,
    ) -> Vec<(Slot, Sequence)> {
        let count = (count as usize).min(limits.reservations_max);
        // First, so that fresh slots never lie further above those in use than hints are kept:
        // after a restart, that is as far as hints reach (see `writable_below`).
        while self.reserved.len() + count > limits.reservations_max {
            self.forget_oldest(slots);
        }
        let mut handed = Vec::new();
        while handed.len() < count {
            let slot = if let Some(slot) = self.free.pop_first() {
                slot
            } else if self.fresh < limits.slots_max {
                self.fresh += 1;
                Slot(self.fresh - 1)
            } else {
                break;
            };
            self.reserved.push_back(slot);
            handed.push((slot, slots.get(slot).sequence));
        }
        handed
    }

    fn forget_oldest(&mut self, slots: &Slots) {
        if let Some(slot) = self.reserved.pop_front()
            && slots.get(slot).is_free()
        {
            self.free.insert(slot);
        }
    }

    /// Notes that a slot became used or free.
    pub(crate) fn note(&mut self, slot: Slot, was_free: bool, is_free: bool, limits: &Limits) {
        if slot.0 < limits.slots_fixed || was_free == is_free {
            return;
        }
        if is_free {
            self.used -= 1;
            self.free.insert(slot);
        } else {
            self.used += 1;
            self.free.remove(&slot);
            // A slot above the highest that was handed out: by a hint from before a restart.
            while self.fresh <= slot.0 {
                if self.fresh < slot.0 {
                    self.free.insert(Slot(self.fresh));
                }
                self.fresh += 1;
            }
        }
    }
}
