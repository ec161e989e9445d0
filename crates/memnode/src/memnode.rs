//! The state machine.
//!
//! | state | outlives a restart | what it is |
//! |---|---|---|
//! | `slots` | yes | bytes and sequences |
//! | `ledger` | yes | votes, outcomes, how far each coordinator is |
//! | `locks` | rebuilt from the votes | what prepared minitransactions touch |
//! | `allocator` | rebuilt from the slots | free slots, hints |
//! | `waiting` | no | who waits for locks; they ask again |
//!
//! The host makes what a request changed durable before it sends the replies.
//!
//! Invariants:
//! - **MN1 sequences-increase** Each write gives its slot a higher sequence, over free and reuse.
//! - **MN2 addresses-once** A free slot becomes used by a minitransaction that compares its
//!   sequence; that sequence is the generation of the address.
//! - **MN3 votes-bind** A vote for a minitransaction is in the ledger, and its locks are held,
//!   until its decision comes.
//! - **MN4 first-answer** A minitransaction that may write runs at most once: a retry gets the
//!   first answer, and when the coordinator has settled it, `Stale`.
//! - **MN5 one-decision** It commits if and only if all participants voted for it. A participant
//!   that is asked how it stands before it has voted votes against it first.
//!   A life of a coordinator that is retired gets no vote any more, and what it has not been voted
//!   for runs nowhere.
//! - **MN6 waiting-bounded** A minitransaction waits for its ticks at most, and who waits goes
//!   before later minitransactions that would hold the same locks.
//!
//! A minitransaction in one phase takes no lock: it runs within one call.

use std::sync::OnceLock;

use crate::allocator::Allocator;
use crate::ledger::{Ended, Known, Ledger, Prepared};
use crate::limits::{LISTED_MAX, PARTICIPANTS_MAX, RESERVED_MAX};
use crate::locks::{self, Locks};
use crate::slots::{Beside, Slots};
use crate::{
    Bytes, Compare, Items, Latch, Limits, MemnodeId, MinitransactionId, Outcome, Reply, Request,
    Seen, Sequence, Slot, SlotState, Standing, Write,
};

/// A minitransaction at this memnode: what it does, and who takes part in it.
#[derive(Clone, Debug)]
struct Entry {
    id: MinitransactionId,
    items: Items,
    /// None if it runs in one phase.
    participants: Option<Vec<MemnodeId>>,
}

impl Entry {
    /// Whether it leaves no trace: it may run again, and recovery never asks for it.
    fn is_transient(&self) -> bool {
        self.participants.is_none() && self.items.is_read_only()
    }
}

#[derive(Clone, Debug)]
struct Waiting {
    token: u64,
    entry: Entry,
    ticks: u16,
}

/// A memnode; see the module's header. A request costs O(log n) for each of its items, and a copy
/// of each slot that it changes while somebody holds its bytes.
#[derive(Clone, Debug)]
pub struct Memnode {
    limits: Limits,
    slots: Slots,
    ledger: Ledger,
    locks: Locks,
    allocator: Allocator,
    waiting: Vec<Waiting>,
}

impl Memnode {
    /// A memnode whose slots are all free.
    pub fn new(limits: Limits) -> Self {
        Self::of(limits, Slots::default())
    }

    /// The same, of a host that shares it among threads: slots whose bytes are such have latches
    /// (SL1 latched-by-bytes).
    pub fn latching(limits: Limits, is_latched: fn(&[u8]) -> bool) -> Self {
        Self::of(limits, Slots::new(Some(is_latched)))
    }

    fn of(limits: Limits, slots: Slots) -> Self {
        Self {
            allocator: Allocator::new(&slots, &limits),
            limits,
            slots,
            ledger: Ledger::default(),
            locks: Locks::default(),
            waiting: Vec::new(),
        }
    }

    /// What is there after a crash: what is volatile is lost or built anew.
    #[must_use]
    pub fn restarted(self) -> Self {
        let mut locks = Locks::default();
        for (id, prepared) in self.ledger.prepared() {
            locks.acquire(*id, &prepared.items);
        }
        Self {
            allocator: Allocator::new(&self.slots, &self.limits),
            locks,
            waiting: Vec::new(),
            ..self
        }
    }

    /// Handles a request. Replies carry the token of the request that they answer; one that waits
    /// is answered in a later call.
    pub fn handle(&mut self, token: u64, request: Request, replies: &mut Vec<(u64, Reply)>) {
        let reply = match request {
            Request::Execute {
                id,
                settled,
                items,
                wait,
            } => {
                let settled = self.ledger.settle_below(id.coordinator, settled);
                let entry = Entry {
                    id,
                    items,
                    participants: None,
                };
                self.enter(token, entry, settled, wait)
            }
            Request::Prepare {
                id,
                settled,
                participants,
                items,
                wait,
            } => {
                let settled = self.ledger.settle_below(id.coordinator, settled);
                let entry = Entry {
                    id,
                    items,
                    participants: Some(participants),
                };
                self.enter(token, entry, settled, wait)
            }
            Request::Decide { id, commit } => {
                self.decide(id, commit, replies);
                Some(Reply::Decided)
            }
            Request::Settle { id } => Some(Reply::Standing(self.settle(id, replies))),
            Request::InDoubt => {
                let ids = self.ledger.prepared().map(|(id, _)| *id);
                Some(Reply::InDoubt(
                    ids.filter_map(|id| self.ledger.in_doubt(id)).collect(),
                ))
            }
            Request::Retire { host, below } => {
                self.ledger.retire(host, below);
                self.refuse_waiting(replies);
                Some(self.in_doubt_of(host, below))
            }
            Request::Forget { host, below } => {
                self.ledger.forget(host, below);
                self.refuse_waiting(replies);
                Some(self.in_doubt_of(host, below))
            }
            Request::List {
                from,
                count,
                prefix,
            } => {
                let (slots, next) = self.slots.list(from, count.min(LISTED_MAX), prefix);
                Some(Reply::Listed { slots, next })
            }
            Request::Reserve { count } => {
                let count = count.min(RESERVED_MAX);
                let slots = self.allocator.reserve(count, &self.slots, &self.limits);
                Some(Reply::Reserved {
                    slots,
                    used: self.allocator.used(),
                })
            }
        };
        replies.extend(reply.map(|reply| (token, reply)));
    }

    fn in_doubt_of(&self, host: u32, below: u32) -> Reply {
        Reply::InDoubt(self.ledger.in_doubt_of(host, below).collect())
    }

    /// Sends away those who wait and are retired.
    fn refuse_waiting(&mut self, replies: &mut Vec<(u64, Reply)>) {
        let is_retired =
            |waiting: &mut Waiting| self.ledger.is_retired(waiting.entry.id.coordinator);
        let refused = self.waiting.extract_if(.., is_retired);
        replies.extend(refused.map(|waiting| (waiting.token, Reply::Stale)));
        self.wake(replies);
    }

    /// A tick of the host's clock has passed: who has waited long enough is told that locks are
    /// busy.
    pub fn tick(&mut self, replies: &mut Vec<(u64, Reply)>) {
        for waiting in &mut self.waiting {
            waiting.ticks -= 1;
        }
        let mut index = 0;
        while index < self.waiting.len() {
            if self.waiting[index].ticks > 0 {
                index += 1;
                continue;
            }
            let waited = self.waiting.remove(index);
            let outcome = Outcome::Busy(self.holder(&waited.entry.items));
            self.answered(&waited.entry, &outcome);
            replies.push((waited.token, Reply::Outcome(outcome)));
        }
        self.wake(replies);
    }

    /// What a slot holds: for hosts that show or check memnodes, past all locks.
    pub fn slot(&self, slot: Slot) -> SlotState {
        self.slots.get(slot)
    }

    /// The slots that were ever written, from slot 0 on.
    pub fn slots_seen(&self) -> usize {
        self.slots.count()
    }

    /// A slot, past all locks: for a host that is in one turn with its memnode, or has the slot's
    /// latch thereby.
    ///
    /// # Panics
    /// When the slot was never written.
    #[inline]
    pub fn see(&self, slot: Slot) -> Seen<'_> {
        self.slots.see(slot).expect("a slot that was written")
    }

    /// Where a slot's state is in memory, for a host that prefetches it; null if there is none.
    #[inline]
    pub fn place(&self, slot: Slot) -> *const u8 {
        self.slots.place(slot)
    }

    /// A place beside a slot without a latch for what a host derives from its bytes, or what they
    /// stand for, which is gone when these are changed (SL3 beside-of-present). None of a slot with
    /// a latch, or that was never written. No message carries it, no copy of the memnode has it.
    #[inline]
    pub fn beside(&self, slot: Slot) -> Option<&OnceLock<Beside>> {
        self.slots.beside(slot)
    }

    /// What lay beside slots that were written since the last call, but for bytes: a host in a turn
    /// drops it after that.
    pub fn take_gone(&mut self) -> Vec<Beside> {
        self.slots.take_gone()
    }

    /// Where a slot's bytes are in memory at this moment, if it has a latch, or the bytes beside
    /// it, for a host that prefetches it; perhaps null.
    pub fn content_place(&self, slot: Slot) -> *const u8 {
        self.slots.content_place(slot)
    }

    /// The latch of a slot, to change it as a minitransaction of one phase does; none if it has
    /// none.
    ///
    /// # Panics
    /// When anything is prepared: the slot might be locked.
    pub fn latch(&self, slot: Slot) -> Option<Latch<'_>> {
        assert!(self.locks.is_empty(), "nothing is prepared");
        self.slots.latch(slot)
    }

    /// Changes a slot in use, as a minitransaction of one phase does that compares what `edit`
    /// finds there: for a host that is in one turn with its memnode. Its length stays.
    ///
    /// # Panics
    /// When anything is prepared: the slot might be locked.
    pub fn edit<R>(&mut self, slot: Slot, edit: impl FnOnce(&mut [u8]) -> R) -> R {
        assert!(self.locks.is_empty(), "nothing is prepared");
        self.slots.edit(slot, edit)
    }

    /// The same, with the bytes beside it, if there are any: those stay, so `edit` makes them what
    /// they are to be (SL3 beside-of-present).
    ///
    /// # Panics
    /// As [`Self::edit`].
    pub fn edit_both<R>(
        &mut self,
        slot: Slot,
        edit: impl FnOnce(&mut [u8], Option<&mut Bytes>) -> R,
    ) -> R {
        assert!(self.locks.is_empty(), "nothing is prepared");
        self.slots.edit_both(slot, edit)
    }

    /// Writes a slot that was reserved, as a minitransaction of one phase does that compares its
    /// sequence: for a host that is in one turn with its memnode. Returns whether it was free, and
    /// in that state.
    ///
    /// # Panics
    /// When anything is prepared: the slot might be locked.
    pub fn fill(&mut self, slot: Slot, sequence: Sequence, bytes: impl FnOnce() -> Bytes) -> bool {
        assert!(self.locks.is_empty(), "nothing is prepared");
        let state = self.slots.get(slot);
        let is_as_reserved = state.is_free() && state.sequence == sequence;
        if is_as_reserved {
            self.write_one(&Write::Whole(slot, bytes()));
        }
        is_as_reserved
    }

    /// Changes a byte of a slot that no comparison covers: its sequence stays.
    pub fn mark(&mut self, slot: Slot, at: usize, byte: u8) {
        self.slots.mark(slot, at, byte);
    }

    /// The slots in use, fixed ones included.
    pub fn used_slots(&self) -> impl Iterator<Item = (Slot, Seen<'_>)> {
        let all = self.slots.iter();
        all.filter(|(_, seen)| !seen.state().is_free())
    }

    /// Whether a minitransaction took effect here, as far as its coordinator has not settled it.
    pub fn has_committed(&self, id: MinitransactionId) -> bool {
        match self.ledger.known(id) {
            Known::Ended(Ended::Answered(outcome)) => matches!(outcome, Outcome::Done(_)),
            Known::Ended(Ended::Committed(_)) => true,
            _ => false,
        }
    }

    /// Whether nothing is prepared, locked or waiting.
    pub fn is_quiet(&self) -> bool {
        let prepared = self.ledger.prepared().next().is_some();
        assert!(
            prepared || self.locks.is_empty(),
            "a lock without a vote (MN3)"
        );
        !prepared && self.waiting.is_empty()
    }

    /// A minitransaction comes, perhaps again.
    fn enter(&mut self, token: u64, entry: Entry, settled: u64, wait: u16) -> Option<Reply> {
        let transient = entry.is_transient();
        if !transient {
            match self.ledger.known(entry.id) {
                Known::Unknown => {}
                Known::Prepared(prepared) => {
                    return Some(Reply::Outcome(Outcome::Done(prepared.reads.clone())));
                }
                Known::Ended(Ended::Answered(outcome)) => {
                    return Some(Reply::Outcome(outcome.clone()));
                }
                Known::Ended(Ended::Committed(reads)) => {
                    return Some(Reply::Outcome(Outcome::Done(reads.clone())));
                }
                Known::Ended(Ended::Aborted) => return Some(Reply::Outcome(Outcome::Aborted)),
                Known::Settled | Known::Refused => return Some(Reply::Stale),
            }
            if let Some(waiting) = self.waiting.iter_mut().find(|w| w.entry.id == entry.id) {
                waiting.token = token;
                return None;
            }
            if entry.id.number >= settled.saturating_add(self.limits.outcomes_max) {
                // As if it was lost: it comes again, with a higher `settled`.
                return None;
            }
        }
        let outcome = self.attempt(&entry);
        let waits = wait > 0 && self.waiting.len() < self.limits.waiting_max;
        if matches!(outcome, Outcome::Busy(_)) && waits && !transient {
            self.waiting.push(Waiting {
                token,
                entry,
                ticks: wait,
            });
            return None;
        }
        self.answered(&entry, &outcome);
        Some(Reply::Outcome(outcome))
    }

    /// Records an answer that a retry must get again (MN4). A vote is recorded by itself.
    fn answered(&mut self, entry: &Entry, outcome: &Outcome) {
        let voted = entry.participants.is_some() && matches!(outcome, Outcome::Done(_));
        let transient = entry.is_transient();
        if !voted && !transient {
            self.ledger
                .record(entry.id, Ended::Answered(outcome.clone()));
        }
    }

    /// Runs or prepares a minitransaction, if its locks are free and its comparisons hold.
    fn attempt(&mut self, entry: &Entry) -> Outcome {
        if !self.is_valid(entry) {
            return Outcome::Invalid;
        }
        let prepares = entry.participants.is_some();
        let overtakes = |waiting: &Waiting| {
            waiting.entry.id != entry.id && locks::exclude(&waiting.entry.items, &entry.items)
        };
        let conflict = self.locks.conflict(&entry.items).is_some();
        // MN6: what would hold locks does not pass by those that wait for them.
        if conflict || (prepares && self.is_overtaking(entry, overtakes)) {
            return Outcome::Busy(self.holder(&entry.items));
        }
        let failed = self.failed(&entry.items.compares);
        if !failed.is_empty() {
            return Outcome::Failed(failed);
        }
        let fits = |write: &Write| write.fits(self.slots.bytes_len(write.slot()));
        if !entry.items.writes.iter().all(fits) {
            return Outcome::Invalid;
        }
        let reads: Vec<_> = entry
            .items
            .reads
            .iter()
            .map(|slot| self.slots.get(*slot))
            .collect();
        if let Some(participants) = &entry.participants {
            self.locks.acquire(entry.id, &entry.items);
            let prepared = Prepared {
                items: entry.items.clone(),
                participants: participants.clone(),
                reads: reads.clone(),
            };
            self.ledger.prepare(entry.id, prepared);
        } else {
            self.write(&entry.items);
        }
        Outcome::Done(reads)
    }

    /// Whether somebody who waits, and came before, would be passed by.
    fn is_overtaking(&self, entry: &Entry, overtakes: impl Fn(&Waiting) -> bool) -> bool {
        let before = self
            .waiting
            .iter()
            .take_while(|waiting| waiting.entry.id != entry.id);
        before.filter(|waiting| overtakes(waiting)).count() > 0
    }

    fn is_valid(&self, entry: &Entry) -> bool {
        let writable = self.allocator.writable_below(&self.limits);
        let participants = entry.participants.as_ref().map_or(0, Vec::len);
        participants <= PARTICIPANTS_MAX
            && entry.items.is_bounded(self.limits.slots_max)
            && entry.items.exclusive().all(|slot| slot.0 < writable)
    }

    fn failed(&self, compares: &[Compare]) -> Vec<u32> {
        let holds = |compare: &Compare| match compare {
            Compare::Sequence(slot, sequence) => self.slots.get(*slot).sequence == *sequence,
            Compare::Bytes(slot, bytes) => self.slots.get(*slot).bytes == *bytes,
        };
        let failed = compares
            .iter()
            .enumerate()
            .filter(|(_, compare)| !holds(compare));
        failed.map(|(index, _)| index as u32).collect()
    }

    fn holder(&self, items: &Items) -> Option<crate::InDoubt> {
        self.locks
            .conflict(items)
            .and_then(|id| self.ledger.in_doubt(id))
    }

    fn write(&mut self, items: &Items) {
        items.writes.iter().for_each(|write| self.write_one(write));
    }

    fn write_one(&mut self, write: &Write) {
        let was_free = self.slots.bytes_len(write.slot()) == 0;
        self.slots.apply(write);
        let is_free = self.slots.bytes_len(write.slot()) == 0;
        self.allocator
            .note(write.slot(), was_free, is_free, &self.limits);
    }

    /// The second phase. A decision that comes again changes nothing.
    fn decide(&mut self, id: MinitransactionId, commit: bool, replies: &mut Vec<(u64, Reply)>) {
        let Some(prepared) = self.ledger.unprepare(id) else {
            if !commit {
                self.settle(id, replies);
            }
            return;
        };
        self.locks.release(id, &prepared.items);
        if commit {
            self.write(&prepared.items);
        }
        let ended = if commit {
            Ended::Committed(prepared.reads)
        } else {
            Ended::Aborted
        };
        self.ledger.record(id, ended);
        self.wake(replies);
    }

    /// How it stands; without a vote, it is aborted here now (MN5).
    fn settle(&mut self, id: MinitransactionId, replies: &mut Vec<(u64, Reply)>) -> Standing {
        if let Some(standing) = self.ledger.standing(id) {
            return standing;
        }
        if let Some(index) = self
            .waiting
            .iter()
            .position(|waiting| waiting.entry.id == id)
        {
            let waited = self.waiting.remove(index);
            replies.push((waited.token, Reply::Outcome(Outcome::Aborted)));
            self.wake(replies);
        }
        self.ledger.record(id, Ended::Aborted);
        Standing::Aborted
    }

    /// Locks were released: tries those who wait, in their order.
    fn wake(&mut self, replies: &mut Vec<(u64, Reply)>) {
        let mut index = 0;
        while index < self.waiting.len() {
            let entry = self.waiting[index].entry.clone();
            let outcome = self.attempt(&entry);
            if matches!(outcome, Outcome::Busy(_)) {
                index += 1;
                continue;
            }
            let waited = self.waiting.remove(index);
            self.answered(&entry, &outcome);
            replies.push((waited.token, Reply::Outcome(outcome)));
        }
    }
}
