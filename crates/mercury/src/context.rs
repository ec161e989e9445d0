//! What one session brings to every operation: its pin, its pool, its counters.

use std::ptr::NonNull;
use std::sync::Arc;

use pando_block::{BlockRef, Keep};
use pando_memory::pool::Pool;
use pando_sync::Padded;
use pando_sync::epoch::{Guard, Participant};

use crate::bucket::{Line, reclaim_line};
use crate::canary::Fault;
use crate::counters::Counters;
use crate::tree::Tree;

/// One session's side of the engine.
pub(crate) struct Context {
    pub(crate) participant: Participant<Pool>,
    pub(crate) pool: Pool,
    pub(crate) counters: Arc<Padded<Counters>>,
    /// Commits since the session maintained its engine by itself.
    pub(crate) commits: usize,
}

impl Context {
    /// The session's number, which picks its shard of key counts.
    pub(crate) fn number(&self) -> usize {
        self.participant.index()
    }

    /// Runs `operate` under a pin, the session's own one if it holds one already.
    #[inline]
    pub(crate) fn pinned<R>(
        &mut self,
        operate: impl for<'g> FnOnce(Guard<'g>, &mut Self) -> R,
    ) -> R {
        struct Unpin<'a>(&'a mut Context);
        impl Drop for Unpin<'_> {
            fn drop(&mut self) {
                self.0.participant.unpin(&mut self.0.pool);
            }
        }
        self.participant.pin();
        let pinned = Unpin(self);
        // SAFETY: the pin is held until `pinned` is dropped, after `operate` has returned; `'g` is
        // chosen by this call and cannot be named outside of it.
        let guard = unsafe { Guard::new() };
        operate(guard, &mut *pinned.0)
    }

    /// Retires an entry that the caller has just taken out of `tree`.
    pub(crate) fn retire_entry(&mut self, tree: &Tree, entry: BlockRef<'_>) {
        self.retire_bytes(tree, entry, entry.bytes());
    }

    /// Retires an entry that the caller has just replaced by `next`. What the body of a large value
    /// does not share with its successor's is counted too.
    #[inline]
    pub(crate) fn retire_replaced(
        &mut self,
        tree: &Tree,
        (entry, next): (BlockRef<'_>, BlockRef<'_>),
    ) {
        self.retire_bytes(tree, entry, entry.bytes() + entry.bytes_beyond(next));
    }

    fn retire_bytes(&mut self, tree: &Tree, entry: BlockRef<'_>, bytes: usize) {
        let (pointer, reclaim) = (entry.address(), Keep::NOTHING.reclaimer());
        if tree.canary.is(Fault::FreeEarly) {
            // SAFETY: none: this is the planted fault.
            unsafe { reclaim(pointer, &mut self.pool) };
            return;
        }
        // SAFETY: the caller has removed the only way to the entry (HB3) and holds a pin.
        unsafe { self.participant.retire(pointer, bytes, reclaim) };
    }

    /// Retires an entry whose key and body the caller has just moved to another place.
    pub(crate) fn retire_moved(&mut self, entry: BlockRef<'_>) {
        let (pointer, bytes) = (entry.address(), entry.bytes());
        let reclaim = Keep::ALL.reclaimer();
        // SAFETY: as in `retire_bytes`; the body's owner is the entry in its place (VB2).
        unsafe { self.participant.retire(pointer, bytes, reclaim) };
    }

    /// Retires a line that the caller has just unlinked.
    pub(crate) fn retire_line(&mut self, line: NonNull<Line>) {
        self.counters.overflow_lines.add(-1);
        let bytes = size_of::<Line>();
        // SAFETY: the caller has removed the only link to the line (HB4) and holds a pin.
        unsafe { self.participant.retire(line.cast(), bytes, reclaim_line) };
    }
}
