//! What one session brings to every operation: its pin, its pool, its counters.

use std::ptr::NonNull;
use std::sync::Arc;

use pando_memory::pool::Pool;
use pando_sync::Padded;
use pando_sync::epoch::{Guard, Participant};

use crate::bucket::{Line, reclaim_line};
use crate::canary::Fault;
use crate::counters::Counters;
use crate::entry::{EntryRef, reclaim_entry, reclaim_moved};
use crate::tree::Tree;

/// One session's side of the engine.
pub(crate) struct Context {
    pub(crate) participant: Participant<Pool>,
    pub(crate) pool: Pool,
    pub(crate) counters: Arc<Padded<Counters>>,
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

    /// Retires an entry that the caller has just replaced or taken out of `tree`.
    pub(crate) fn retire_entry(&mut self, tree: &Tree, entry: EntryRef<'_>) {
        self.retire_bytes(tree, entry, entry.bytes());
    }

    /// Retires the entry of a key that the caller has just removed: nothing of its body lives on.
    pub(crate) fn retire_removed(&mut self, tree: &Tree, entry: EntryRef<'_>) {
        self.retire_bytes(tree, entry, entry.bytes() + entry.object_bytes());
    }

    fn retire_bytes(&mut self, tree: &Tree, entry: EntryRef<'_>, bytes: usize) {
        if tree.canary.is(Fault::FreeEarly) {
            // SAFETY: none: this is the planted fault.
            unsafe { reclaim_entry(entry.address(), &mut self.pool) };
            return;
        }
        let pointer = entry.address();
        // SAFETY: the caller has removed the only way to the entry (HB3) and holds a pin.
        unsafe { self.participant.retire(pointer, bytes, reclaim_entry) };
    }

    /// Retires an entry whose key and body the caller has just moved to another place.
    pub(crate) fn retire_moved(&mut self, entry: EntryRef<'_>) {
        let (pointer, bytes) = (entry.address(), entry.bytes());
        // SAFETY: as in `retire_bytes`; the body's owner is the entry in its place (HE2).
        unsafe { self.participant.retire(pointer, bytes, reclaim_moved) };
    }

    /// Retires a line that the caller has just unlinked.
    pub(crate) fn retire_line(&mut self, line: NonNull<Line>) {
        self.counters.overflow_lines.add(-1);
        let bytes = size_of::<Line>();
        // SAFETY: the caller has removed the only link to the line (HB4) and holds a pin.
        unsafe { self.participant.retire(line.cast(), bytes, reclaim_line) };
    }
}
