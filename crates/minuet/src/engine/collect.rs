//! When pages are collected: a round over all slots behind snapshots that went, and then and when
//! while pages are copied.

use super::{State, sound};
use crate::{Collected, Collector};

/// Changes by transactions after which a round begins, at least.
const MOVES_MIN: u64 = 4096;

#[derive(Debug)]
pub(super) struct Collecting {
    collector: Collector,
    /// A round is due.
    due: bool,
    under_way: bool,
    moves: u64,
    /// What `moves` was when the last round began.
    moves_then: u64,
}

impl Collecting {
    pub(super) fn new(memnodes: u16) -> Self {
        Self {
            // Nobody has leases: snapshots that are read have names.
            collector: Collector::new(memnodes, u64::MAX),
            due: false,
            under_way: false,
            moves: 0,
            moves_then: 0,
        }
    }

    pub(super) fn collected(&self) -> Collected {
        self.collector.collected()
    }

    /// Changes that were transactions.
    pub(super) fn moves(&self) -> u64 {
        self.moves
    }

    /// A change is a transaction: it may copy pages.
    pub(super) fn note_move(&mut self) {
        self.moves += 1;
    }

    /// A snapshot went.
    pub(super) fn note_released(&mut self) {
        self.due = true;
    }
}

impl State {
    /// Takes up to `steps` steps of a round, if one is due; returns how many. A round that is under
    /// way goes on to its end.
    pub(super) fn collect(&mut self, steps: usize) -> usize {
        let mut done = 0;
        while done < steps {
            let Collecting {
                due,
                under_way,
                moves,
                moves_then,
                collector,
            } = &mut self.collecting;
            // Without snapshots since the start, no page was ever copied.
            let is_copying = self.tip.snapshot.0 > 1 && *moves - *moves_then >= MOVES_MIN;
            if !*under_way && !*due && !is_copying {
                break;
            }
            if !*under_way {
                (*under_way, *due, *moves_then) = (true, false, *moves);
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
