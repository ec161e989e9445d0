//! A thread's reads, beside the writer and without a lock.

use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use pando_pmem::Pmem;
use pando_sync::epoch::Participant;
use pando_sync::shim::Spin;

use crate::Direction;
use crate::ahead::Spot;
use crate::record::Record;
use crate::shared::{Look, Shared};
use crate::tree::{Error, Snapshot};

/// What a thread reads a tree with, while another one changes it. It sees what was put and removed
/// at once, committed or not.
///
/// Cost of a read: a pin (a store and a fence), and for each node on the way two loads more than
/// without a writer. It writes nothing that others read but its own line.
pub struct Reader<M> {
    shared: Arc<Shared<M>>,
    participant: Participant<()>,
}

impl<M: Pmem> fmt::Debug for Reader<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Reader")
            .field("participant", &self.participant)
            .finish_non_exhaustive()
    }
}

/// The outermost or an inner pin of a reader.
pub(crate) struct Pinned<'r, M> {
    pub(crate) shared: &'r Shared<M>,
    participant: &'r mut Participant<()>,
}

impl<M> Drop for Pinned<'_, M> {
    fn drop(&mut self) {
        self.participant.unpin(&mut ());
    }
}

impl<M: Pmem> Reader<M> {
    /// None when there are as many readers as there can be.
    pub(crate) fn new(shared: Arc<Shared<M>>) -> Option<Self> {
        let participant = shared.collector.register()?;
        Some(Self {
            shared,
            participant,
        })
    }

    /// Its number among readers.
    pub(crate) fn index(&self) -> usize {
        self.participant.index()
    }

    /// Holds off the reuse of whatever the reads from now on meet, until [`Self::unpin`]. Pins
    /// nest; a read outside of one takes its own. A thread that is pinned neither waits nor rolls
    /// the tree back.
    pub fn pin(&mut self) {
        let mut spin = Spin::new();
        loop {
            let was_pinned = self.participant.is_pinned();
            self.participant.pin();
            if was_pinned || !self.shared.is_closed() {
                return;
            }
            // CL5 closed.
            self.participant.unpin(&mut ());
            spin.wait();
        }
    }

    /// Ends [`Self::pin`].
    pub fn unpin(&mut self) {
        self.participant.unpin(&mut ());
    }

    /// A pin that ends when it is dropped.
    #[inline]
    pub(crate) fn pinned(&mut self) -> Pinned<'_, M> {
        self.pin();
        Pinned {
            shared: &self.shared,
            participant: &mut self.participant,
        }
    }

    /// Shows the value of a key to `read`. O(log n) nodes.
    pub fn get<R>(
        &mut self,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, Error> {
        self.show(key, |record| read(record.map(Record::value)))
    }

    /// The same, with all that there is of it.
    pub(crate) fn show<R>(
        &mut self,
        key: &[u8],
        read: impl FnOnce(Option<Record<'_>>) -> R,
    ) -> Result<R, Error> {
        let pinned = self.pinned();
        let record = pinned.shared.record_of(key, Look::PRESENT)?;
        Ok(read(record))
    }

    /// Finds the ways to some keys ahead, for whoever is pinned then ([`Shared::record_ahead`]).
    pub(crate) fn warm<'k>(
        &mut self,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        spots: &mut Vec<Option<Spot>>,
    ) {
        self.pinned().shared.warm(keys, spots);
    }

    /// Shows the value that a key had at a snapshot; fails if it is released meanwhile.
    pub fn get_at<R>(
        &mut self,
        at: Snapshot,
        key: &[u8],
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, Error> {
        self.show_at(at, key, |record| read(record.map(Record::value)))
    }

    /// The same, with all that there is of it.
    pub(crate) fn show_at<R>(
        &mut self,
        at: Snapshot,
        key: &[u8],
        read: impl FnOnce(Option<Record<'_>>) -> R,
    ) -> Result<R, Error> {
        let pinned = self.pinned();
        let view = pinned.shared.view_of(at.epoch())?;
        let record = pinned.shared.record_of(key, Look::past(view))?;
        Ok(read(record))
    }

    /// Shows keys and values from `from` on, until `visit` breaks or the tree ends: every key that
    /// is there from the beginning to the end, in order, each once. Pinned all the while.
    pub fn scan(
        &mut self,
        from: Bound<&[u8]>,
        direction: Direction,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.run(None, from, direction, |record| {
            visit(record.key(), record.value())
        })
    }

    /// The same at a snapshot.
    pub fn scan_at(
        &mut self,
        at: Snapshot,
        from: Bound<&[u8]>,
        direction: Direction,
        mut visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.run(Some(at), from, direction, |record| {
            visit(record.key(), record.value())
        })
    }

    pub(crate) fn run(
        &mut self,
        at: Option<Snapshot>,
        from: Bound<&[u8]>,
        direction: Direction,
        visit: impl FnMut(Record<'_>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let pinned = self.pinned();
        let look = match at {
            None => Look::PRESENT,
            Some(at) => Look::past(pinned.shared.view_of(at.epoch())?),
        };
        pinned.shared.scan(look, from, direction, visit)
    }
}
