//! What one session contributes to every operation, what it asks for ahead, and how it retires
//! entries and lines.

use std::ptr::NonNull;

use pando_block::{BlockRef, HEADER_BYTES, Keep};
use pando_engine::{BodyRef, HashRef, ValueRef};
use pando_sync::prefetch::{LINE_BYTES, prefetch_lines};

use crate::bucket::{Line, reclaim_line};
use crate::canary::Fault;
use crate::counters::Counters;
use crate::tree::Tree;

/// One session's side of the engine.
pub(crate) type Context = pando_chassis::Context<Counters, Length>;

/// Most bytes of an entry that [`Length::ask`] asks for beyond its first line; the hardware
/// prefetcher covers the next ones.
const AHEAD_BYTES_MAX: usize = 256;

/// How long the small row was that a session met last; 0 after another value. So much is asked for
/// of the next entry as soon as its address is known: only its first line says how long it is, and
/// to wait for that first would be one wait more.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Length {
    /// At most [`AHEAD_BYTES_MAX`].
    bytes: usize,
}

impl Length {
    #[inline]
    pub(crate) fn of(value: Option<ValueRef<'_>>) -> Self {
        let bytes = match value.map(|value| value.body) {
            Some(BodyRef::Row(_, HashRef::Packed(row))) => HEADER_BYTES + row.len(),
            _ => 0,
        };
        Self {
            bytes: bytes.min(AHEAD_BYTES_MAX),
        }
    }

    /// Prefetches what follows an entry's first line: a hint.
    #[inline]
    pub(crate) fn ask(self, entry: *const u8) {
        prefetch_lines(entry.wrapping_add(LINE_BYTES), self.bytes);
    }
}

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
