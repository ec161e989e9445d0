//! The positions of the hands that sweep the keys when memory is short.

use std::collections::VecDeque;

use pando_engine::{Deadline, Hand, TreeId};

use super::EvictionPolicy;
use super::lru_lfu::Judge;
use crate::expiry::ExpiryHand;

/// A key that may be evicted, if it is unchanged.
#[derive(Debug)]
pub(crate) struct Victim {
    pub(crate) tree: TreeId,
    pub(crate) key: Box<[u8]>,
    /// It was not used since if its mark is at most this.
    pub(crate) mark_max: u8,
    /// The deadline that it must have.
    pub(crate) deadline: Option<Deadline>,
}

/// The eviction state of one session; `eviction` works on it.
#[derive(Debug, Default)]
pub(crate) struct Evictor {
    /// The database that the hand is in.
    pub(crate) index: usize,
    pub(crate) hand: Hand,
    pub(crate) expiry_hand: ExpiryHand,
    pub(crate) judge: Judge,
    pub(crate) victims: VecDeque<Victim>,
    /// The policy that chose them.
    pub(crate) policy: EvictionPolicy,
}

/// The position of the hand that empties memory; `eviction` works on it.
#[derive(Debug, Default)]
pub(crate) struct Emptier {
    /// Memory is being emptied, as far as this hand knows.
    pub(crate) active: bool,
    /// The index of the tree that the hand is in, among all that hold values.
    pub(crate) index: usize,
    pub(crate) hand: Hand,
}
