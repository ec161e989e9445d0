//! Emptying memory: engines that can move values, so that fragmented memory serves other sizes.
//!
//! Free blocks serve values of their own size only. An engine with this capability picks memory
//! that holds few values; its user passes all values once and moves those that lie there:
//!
//! 1. [`Relocate::begin_emptying`] says whether some memory is being emptied, and picks it.
//! 2. [`Relocate::sweep_emptying`] shows the values that lie there, tree by tree.
//! 3. [`Relocate::relocate`] moves each of them.
//! 4. [`Relocate::end_emptying`], after the last tree, gives back what is not empty.
//!
//! Invariant (the conformance suite checks it):
//! - **EM1 unnoticed-moves** A move changes neither bytes nor version nor access mark, calls no
//!   hook and loses no update.
//!
//! Deliberately absent: when to empty, and which trees there are; the engine's user decides.

use crate::{Engine, Hand, Key, Point, TreeId, ValueRef};

/// An engine whose memory can be emptied.
pub trait Emptying: Engine<Session: Relocate> {
    /// Bytes that count as used and hold nothing: free blocks here and there, which serve values of
    /// their own size only, until [`Relocate::begin_emptying`] and what follows free them. O(1).
    fn idle_bytes(&self) -> usize;
}

/// A session that moves values out of memory that is being emptied.
pub trait Relocate: Point {
    /// Whether memory is being emptied: its values are to be moved or removed, so that it can serve
    /// values of other sizes or go back to the system. Begins to empty some if enough is free here
    /// and there; `short`: memory is short, so that less is enough. O(sessions) when it is not yet
    /// begun, O(memory / 32 KiB) when it begins.
    fn begin_emptying(&mut self, short: bool) -> bool;

    /// Says that all values of all trees were passed by [`Self::sweep_emptying`] since memory was
    /// begun to be emptied: what is not empty is used again.
    fn end_emptying(&mut self);

    /// Like [`Point::sweep`], but shows only values in memory that is being emptied; `steps` are
    /// values passed.
    fn sweep_emptying(
        &mut self,
        tree: TreeId,
        hand: &mut Hand,
        steps: usize,
        visit: impl FnMut(&[u8], ValueRef<'_>),
    ) -> bool;

    /// Moves the key's value out of memory that is being emptied, if it lies there and there is
    /// room elsewhere without taking more memory from the system; whether it did. The value keeps
    /// its version and mark; nobody can tell (EM1 unnoticed-moves).
    fn relocate(&mut self, key: Key<'_>) -> bool;
}
