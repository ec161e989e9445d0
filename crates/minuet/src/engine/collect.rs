//! When pages are collected: a round over all slots when a snapshot went, and while pages are
//! copied one for each part of the slots that was copied. So garbage is bounded, and a copy pays
//! for the collection of a few slots.

use pando_memnode::Memnode;

use super::{State, sound};
use crate::limits::SWEPT_SLOTS;
use crate::{Collected, Collector};

/// A round begins when one of so many slots was copied.
const SLOTS_PER_COPY: usize = 64;
/// Copies after which a round begins, at least.
const COPIES_MIN: usize = 16;

#[derive(Debug)]
pub(super) struct Collecting {
    collector: Collector,
    /// A round is due.
    due: bool,
    under_way: bool,
    moves: u64,
    copies: u64,
    /// What `copies` was when the last round began.
    copies_then: u64,
}

impl Collecting {
    pub(super) fn new(memnodes: u16) -> Self {
        Self {
            // The tree has no leases: snapshots that are read have names.
            collector: Collector::new(memnodes, u64::MAX),
            due: false,
            under_way: false,
            moves: 0,
            copies: 0,
            copies_then: 0,
        }
    }

    pub(super) fn collected(&self) -> Collected {
        self.collector.collected()
    }

    /// Changes that were transactions.
    pub(super) fn moves(&self) -> u64 {
        self.moves
    }

    /// A change is a transaction. Perhaps it copies a leaf, or takes out a value, of an older tip.
    pub(super) fn note_move(&mut self, copies: bool) {
        self.moves += 1;
        self.copies += u64::from(copies);
    }

    /// A snapshot went.
    pub(super) fn note_released(&mut self) {
        self.due = true;
    }
}

impl State {
    /// Whether a round is under way, or due.
    pub(super) fn is_collection_due(&self) -> bool {
        let memnodes = self.database.memnodes().memnodes().iter();
        let slots: usize = memnodes.map(Memnode::slots_seen).sum();
        let many = (slots / SLOTS_PER_COPY).max(COPIES_MIN) as u64;
        let Collecting {
            due,
            under_way,
            copies,
            copies_then,
            ..
        } = self.collecting;
        self.albums.is_empty()
            && self.bases.is_empty()
            && (due || under_way || copies - copies_then >= many)
    }

    /// Takes steps of a round, if one is due: as many as look at up to `steps` slots, since
    /// everybody waits meanwhile, but at least one of `steps`. Returns how many. A round that is
    /// under way goes on to its end in the next portions. While an album is open nothing is
    /// collected (`album`), nor while a tree shows a version that may have no other reader
    /// (`bases`).
    pub(super) fn collect(&mut self, steps: usize) -> usize {
        let most = steps.min((steps / SWEPT_SLOTS as usize).max(1));
        let mut done = 0;
        while done < most && self.is_collection_due() {
            let Collecting {
                due,
                under_way,
                copies,
                copies_then,
                collector,
                ..
            } = &mut self.collecting;
            if !*under_way {
                (*under_way, *due, *copies_then) = (true, false, *copies);
            }
            let (step, rounds) = (collector.step().clone(), collector.collected().rounds);
            let outcome = sound(self.database.run(|transaction| step.run(transaction)));
            self.collecting.collector.done(0, outcome);
            self.collecting.under_way = self.collecting.collected().rounds == rounds;
            done += 1;
        }
        done
    }
}
