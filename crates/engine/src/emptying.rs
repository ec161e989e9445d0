//! Emptying memory: engines that can move values, so that fragmented memory can serve other sizes.
//!
//! A free block serves only values of its own size. An engine with this capability picks memory
//! that holds few values; its user sweeps all values once and moves those that are in it:
//!
//! 1. [`Relocate::begin_emptying`] picks memory to empty, or says that there is none.
//! 2. [`Relocate::sweep_emptying`] shows the values in that memory, tree by tree.
//! 3. [`Relocate::relocate`] moves each of them.
//! 4. [`Relocate::end_emptying`], after the last tree, puts back into use what did not become
//!    empty.
//!
//! Invariant (the conformance suite checks it):
//! - **EM1 unnoticed-moves** A move changes neither bytes nor version nor access mark, calls no
//!   hook and loses no update.
//!
//! Deliberately absent: when to empty, and which trees exist; the engine's user decides.

use crate::{Engine, Hand, Key, Point, TreeId, ValueRef};

/// An engine whose memory can be emptied.
pub trait Emptying: Engine<Session: Relocate> {
    /// Bytes in scattered free blocks, which count as used but serve only values of their own size
    /// until [`Relocate::begin_emptying`] and the steps after it free them. O(1).
    fn idle_bytes(&self) -> usize;
}

/// A session that can move values out of memory that is being emptied.
pub trait Relocate: Point {
    /// Whether memory is being emptied: its values are to be moved or removed, so that it can serve
    /// values of other sizes or return to the system. Begins to empty some if enough scattered
    /// memory is free; with `short`, when memory is short, less is enough. O(sessions) when nothing
    /// has begun, O(memory / 32 KiB) when it begins.
    fn begin_emptying(&mut self, short: bool) -> bool;

    /// Reports that [`Self::sweep_emptying`] has passed all values of all trees since emptying
    /// began. Memory that is not empty is put back into use.
    fn end_emptying(&mut self);

    /// Like [`Point::sweep`], but shows only values in memory that is being emptied. `steps` counts
    /// the values passed.
    fn sweep_emptying(
        &mut self,
        tree: TreeId,
        hand: &mut Hand,
        steps: usize,
        visit: impl FnMut(&[u8], ValueRef<'_>),
    ) -> bool;

    /// Moves the key's value out of memory that is being emptied, if it is there and fits elsewhere
    /// without taking more memory from the system. Returns whether it moved. The value keeps its
    /// version and mark; nobody can tell (EM1 unnoticed-moves).
    fn relocate(&mut self, key: Key<'_>) -> bool;
}
