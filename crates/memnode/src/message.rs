//! What a memnode is asked, and what it answers.
//!
//! Messages may be lost, delayed, repeated and reordered. Each request may be sent again,
//! unchanged, until it is answered.

use crate::{
    Compare, Items, MemnodeId, MinitransactionId, Piece, Sequence, Slot, SlotState, Write,
};

/// A request to a memnode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Runs a minitransaction that this memnode alone takes part in.
    Execute {
        /// Its name. If nothing is written, it is not looked at.
        id: MinitransactionId,
        /// The coordinator will send nothing more for lower numbers of its own.
        settled: u64,
        /// What it does.
        items: Items,
        /// Ticks for which it waits for locks.
        wait: u16,
    },
    /// The first phase at one of several participants: locks, compares, reads, and votes.
    Prepare {
        /// Its name.
        id: MinitransactionId,
        /// As in `Execute`.
        settled: u64,
        /// All who take part. Whoever settles it in the coordinator's place asks them.
        participants: Vec<MemnodeId>,
        /// What it does here.
        items: Items,
        /// As in `Execute`. Who waits at several memnodes asks them one by one, in their order, so
        /// that no two wait for each other.
        wait: u16,
    },
    /// The second phase: writes what was prepared, or drops it.
    Decide {
        /// Which.
        id: MinitransactionId,
        /// Whether all participants voted for it.
        commit: bool,
    },
    /// How does a minitransaction stand here? If this memnode has not voted, it now votes against.
    Settle {
        /// Which.
        id: MinitransactionId,
    },
    /// Which minitransactions are prepared?
    InDoubt,
    /// Lives of a host's coordinator below `below` are over: refuses what they have not been voted
    /// for, and lists what is in doubt.
    Retire {
        /// Which host's.
        host: u32,
        /// The first life that is not over.
        below: u32,
    },
    /// The same, and nothing of theirs is in doubt anywhere: forgets how it ended.
    Forget {
        /// As in `Retire`. All memnodes have answered that, and all that they listed is decided.
        host: u32,
        /// As in `Retire`.
        below: u32,
    },
    /// Which slots are in use? A hint, past all locks: who acts on it compares sequences.
    List {
        /// The first slot that is looked at.
        from: Slot,
        /// How many are looked at.
        count: u32,
        /// How many bytes of each are wanted.
        prefix: u32,
    },
    /// Which slots are free?
    Reserve {
        /// How many are wanted.
        count: u32,
    },
}

/// How a minitransaction, or its first phase, ended at a memnode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was run, or the vote is for it. These are the slots that were read, in their order.
    Done(Vec<SlotState>),
    /// The comparisons with these indexes do not hold.
    Failed(Vec<u32>),
    /// A lock is busy. If it is held by another, this is who.
    Busy(Option<InDoubt>),
    /// It was settled in its coordinator's place, or refused before it came.
    Aborted,
    /// It exceeds a bound, or does not fit the slots that it writes.
    Invalid,
}

/// A prepared minitransaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InDoubt {
    /// Which.
    pub id: MinitransactionId,
    /// Who took part.
    pub participants: Vec<MemnodeId>,
}

/// What a participant knows of a minitransaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It voted for it, and does not know the decision.
    Prepared,
    /// It was committed.
    Committed,
    /// It was aborted, or this memnode voted against it.
    Aborted,
    /// Its coordinator has seen it through at all participants.
    Settled,
}

/// An answer of a memnode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To `Execute` and `Prepare`.
    Outcome(Outcome),
    /// To `Execute` and `Prepare`: a copy of a request whose coordinator has long had its answer,
    /// or is retired.
    Stale,
    /// To `Decide`.
    Decided,
    /// To `Settle`.
    Standing(Standing),
    /// To `InDoubt`, `Retire` and `Forget`: of all coordinators, or those.
    InDoubt(Vec<InDoubt>),
    /// To `List`.
    Listed {
        /// Slots in use, with their first bytes.
        slots: Vec<(Slot, SlotState)>,
        /// Where to go on, if there are slots beyond.
        next: Option<Slot>,
    },
    /// To `Reserve`.
    Reserved {
        /// Free slots and their sequences, possibly fewer than asked for.
        slots: Vec<(Slot, Sequence)>,
        /// Slots in use here.
        used: u64,
    },
}

/// Bytes of a message's kind, and of each count in it.
const KIND_BYTES: usize = 1;
const COUNT_BYTES: usize = 4;
const SLOT_BYTES: usize = size_of::<Slot>();
const SEQUENCE_BYTES: usize = size_of::<Sequence>();
const MINITRANSACTION_BYTES: usize = 16;

fn of_memnodes(memnodes: &[MemnodeId]) -> usize {
    COUNT_BYTES + size_of_val(memnodes)
}

fn of_doubts(doubts: &[InDoubt]) -> usize {
    let doubts = doubts.iter();
    let each = doubts.map(|doubt| MINITRANSACTION_BYTES + of_memnodes(&doubt.participants));
    COUNT_BYTES + each.sum::<usize>()
}

fn of_state(state: &SlotState) -> usize {
    SEQUENCE_BYTES + COUNT_BYTES + state.bytes.len()
}

impl Items {
    fn message_bytes(&self) -> usize {
        let compares = self.compares.iter().map(|compare| match compare {
            Compare::Sequence(..) => KIND_BYTES + SLOT_BYTES + SEQUENCE_BYTES,
            Compare::Bytes(_, bytes) => KIND_BYTES + SLOT_BYTES + COUNT_BYTES + bytes.len(),
        });
        let writes = self.writes.iter().map(|write| {
            let what = match write {
                Write::Whole(_, bytes) => COUNT_BYTES + bytes.len(),
                Write::Patch(_, pieces) => {
                    let pieces = pieces.iter().map(|piece| match piece {
                        Piece::Bytes { bytes, .. } => KIND_BYTES + 2 * COUNT_BYTES + bytes.len(),
                        Piece::Move { .. } => KIND_BYTES + 3 * COUNT_BYTES,
                    });
                    COUNT_BYTES + pieces.sum::<usize>()
                }
                Write::Add { .. } => COUNT_BYTES + size_of::<u64>(),
                Write::Free(_) => 0,
            };
            KIND_BYTES + SLOT_BYTES + what
        });
        let reads = SLOT_BYTES * self.reads.len();
        3 * COUNT_BYTES + compares.sum::<usize>() + reads + writes.sum::<usize>()
    }
}

impl Request {
    /// Its length in a plain encoding: numbers as wide as they are, counts of four bytes. O(items).
    pub fn message_bytes(&self) -> usize {
        let settled = size_of::<u64>() + size_of::<u16>();
        KIND_BYTES
            + match self {
                Self::Execute { items, .. } => {
                    MINITRANSACTION_BYTES + settled + items.message_bytes()
                }
                Self::Prepare {
                    participants,
                    items,
                    ..
                } => {
                    let participants = of_memnodes(participants);
                    MINITRANSACTION_BYTES + settled + participants + items.message_bytes()
                }
                Self::Decide { .. } => MINITRANSACTION_BYTES + KIND_BYTES,
                Self::Settle { .. } => MINITRANSACTION_BYTES,
                Self::InDoubt => 0,
                Self::Retire { .. } | Self::Forget { .. } => 2 * size_of::<u32>(),
                Self::List { .. } => SLOT_BYTES + 2 * COUNT_BYTES,
                Self::Reserve { .. } => COUNT_BYTES,
            }
    }
}

impl Reply {
    /// As [`Request::message_bytes`].
    pub fn message_bytes(&self) -> usize {
        KIND_BYTES
            + match self {
                Self::Outcome(Outcome::Done(states)) => {
                    KIND_BYTES + COUNT_BYTES + states.iter().map(of_state).sum::<usize>()
                }
                Self::Outcome(Outcome::Failed(failed)) => {
                    KIND_BYTES + COUNT_BYTES + size_of_val(&failed[..])
                }
                Self::Outcome(Outcome::Busy(by)) => KIND_BYTES + of_doubts(by.as_slice()),
                Self::Outcome(Outcome::Aborted | Outcome::Invalid) | Self::Standing(_) => {
                    KIND_BYTES
                }
                Self::Stale | Self::Decided => 0,
                Self::InDoubt(doubts) => of_doubts(doubts),
                Self::Listed { slots, .. } => {
                    let slots = slots.iter().map(|(_, state)| SLOT_BYTES + of_state(state));
                    COUNT_BYTES + slots.sum::<usize>() + KIND_BYTES + SLOT_BYTES
                }
                Self::Reserved { slots, .. } => {
                    COUNT_BYTES + slots.len() * (SLOT_BYTES + SEQUENCE_BYTES) + size_of::<u64>()
                }
            }
    }
}
