//! What one session contributes to every operation, and how it retires entries and lines.

use std::ptr::NonNull;

use pando_block::{BlockRef, Keep};

use crate::bucket::{Line, reclaim_line};
use crate::canary::Fault;
use crate::counters::Counters;
use crate::tree::Tree;

/// One session's side of the engine.
pub(crate) type Context = pando_chassis::Context<Counters>;

/// Retiring what was taken out of a table.
pub(crate) trait Retire {
    /// Retires an entry that the caller has just taken out of `tree`.
    fn retire_entry(&mut self, tree: &Tree, entry: BlockRef<'_>);

    /// Retires an entry that the caller has just replaced by `next`. Also counts what the body of a
    /// large value does not share with its successor's.
    fn retire_replaced(&mut self, tree: &Tree, entries: (BlockRef<'_>, BlockRef<'_>));

    /// Retires an entry whose key and body the caller has just moved to another place.
    fn retire_moved(&mut self, entry: BlockRef<'_>);

    /// Retires a line that the caller has just unlinked.
    fn retire_line(&mut self, line: NonNull<Line>);
}

impl Retire for Context {
    #[inline]
    fn retire_entry(&mut self, tree: &Tree, entry: BlockRef<'_>) {
        retire_bytes(self, tree, entry, entry.bytes());
    }

    #[inline]
    fn retire_replaced(&mut self, tree: &Tree, (entry, next): (BlockRef<'_>, BlockRef<'_>)) {
        retire_bytes(self, tree, entry, entry.bytes() + entry.bytes_beyond(next));
    }

    fn retire_moved(&mut self, entry: BlockRef<'_>) {
        let (pointer, bytes) = (entry.address(), entry.bytes());
        let reclaim = Keep::ALL.reclaimer();
        // SAFETY: as in `retire_bytes`; the body's owner is the entry in its place (VB2 one-owner).
        unsafe { self.retire(pointer, bytes, reclaim) };
    }

    fn retire_line(&mut self, line: NonNull<Line>) {
        self.counters.overflow_lines.add(-1);
        let bytes = size_of::<Line>();
        // SAFETY: the caller has removed the only link to the line (HB4 lines-outlive-pins) and
        // holds a pin.
        unsafe { self.retire(line.cast(), bytes, reclaim_line) };
    }
}

#[inline]
fn retire_bytes(context: &mut Context, tree: &Tree, entry: BlockRef<'_>, bytes: usize) {
    let (pointer, reclaim) = (entry.address(), Keep::NOTHING.reclaimer());
    if tree.canary.is(Fault::FreeEarly) {
        // SAFETY: none: this is the planted fault.
        unsafe { reclaim(pointer, &mut context.pool) };
        return;
    }
    // SAFETY: the caller has removed the only way to the entry (HB3 control-first) and holds a pin.
    unsafe { context.retire(pointer, bytes, reclaim) };
}
