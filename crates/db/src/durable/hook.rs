//! What a commit writes to its session's log.
//!
//! A small value is encoded under the engine's lock, into space reserved beforehand. Of a large one
//! the hook keeps what is needed to find the changes, O(1), and the record is encoded after the
//! lock is released: versions give its order, and its group ends later.

use pando_durability::log::LogSession;
use pando_engine::{Key, NewValue, TreeId, ValueRef, ValueVersion};

use super::record;
#[cfg(test)]
use super::testing::{self, Fault, is};

/// A record that is encoded after the commit.
#[derive(Debug)]
pub(crate) struct Later {
    old: Option<(ValueVersion, NewValue<'static>)>,
    new: NewValue<'static>,
    version: ValueVersion,
}

/// Writes the record of one update.
#[derive(Debug)]
pub(crate) struct Recorder<'l> {
    log: Option<&'l mut LogSession>,
    /// The caller's, since it is large and few updates need it.
    later: &'l mut Option<Later>,
}

impl<'l> Recorder<'l> {
    /// Before the update: does nothing without a log.
    #[inline]
    pub(crate) fn new(mut log: Option<&'l mut LogSession>, later: &'l mut Option<Later>) -> Self {
        if let Some(log) = &mut log {
            log.reserve(record::SMALL_RECORD_BYTES_MAX);
        }
        Self { log, later }
    }

    /// In the commit hook (E3 hook-once of the engine crate).
    #[inline]
    pub(crate) fn committed(
        &mut self,
        key: Key<'_>,
        old: Option<ValueRef<'_>>,
        new: Option<ValueRef<'_>>,
        version: ValueVersion,
    ) {
        let Some(log) = &mut self.log else { return };
        #[cfg(test)]
        if testing::skips_this_commit() || new.is_none() && is(Fault::RemovalForgotten) {
            return;
        }
        match new {
            None => log.append(|out| in_place(out, |out| record::put_remove(out, key, version))),
            Some(new) if record::is_small(new) => {
                // A large value that became small is written whole.
                let old = old.filter(|old| record::is_small(*old));
                log.append(|out| in_place(out, |out| record::put_write(out, key, old, new)));
            }
            Some(new) => {
                *self.later = Some(Later {
                    old: old.map(|old| (old.version, old.hand_over())),
                    new: new.hand_over(),
                    version,
                });
            }
        }
    }

    /// After the update, without the engine's lock.
    #[inline]
    pub(crate) fn finish(self, key: Key<'_>) {
        if let (Some(later), Some(log)) = (self.later, self.log) {
            write_later(log, key, later);
        }
    }
}

/// Writes a record under the engine's lock: in the place that was reserved for it.
#[inline]
fn in_place(out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) {
    let (start, capacity) = (out.len(), out.capacity());
    put(out);
    debug_assert!(out.len() - start <= record::SMALL_RECORD_BYTES_MAX);
    debug_assert_eq!(out.capacity(), capacity);
}

#[cold]
fn write_later(log: &mut LogSession, key: Key<'_>, later: &Later) {
    let old = later.old.as_ref();
    let old = old.map(|(version, value)| value.view(*version));
    let new = later.new.view(later.version);
    log.append(|out| record::put_write(out, key, old, new));
}

/// Writes the record of a change of the mapping of database numbers.
pub(crate) fn record_mapping(
    log: &mut LogSession,
    changes: u64,
    trees: impl ExactSizeIterator<Item = TreeId>,
) {
    #[cfg(test)]
    if is(Fault::MappingForgotten) {
        return;
    }
    log.append(|out| record::put_mapping(out, changes, trees));
}
