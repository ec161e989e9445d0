//! Reading in a snapshot, and the uncommon read paths that present reads share with it.
//!
//! A read in a snapshot judges deadlines by the snapshot's time, sets no access mark (the turn
//! ensures that), finds nothing that needs removal, and reveals nothing later than the snapshot's
//! epoch (AK4 sync-waits).

use pando_engine::{Key, ReadAt, TreeId, ValueRef};

use super::{Keyspace, is_expired};
use crate::limits;
use crate::snapshots::NamedSnapshot;
use crate::statistics::add;
use crate::view::Moment;

impl Keyspace<'_> {
    /// The same database in an existing snapshot.
    pub(crate) fn in_snapshot(self, snapshot: &NamedSnapshot) -> Self {
        Self {
            view: snapshot.view(self.database_index()),
            ..self
        }
    }

    /// [`Self::look`] in a snapshot; separate so that others do not pay for it.
    #[cold]
    pub(super) fn look_at_moment<R>(
        &mut self,
        key: &[u8],
        moment: Moment,
        read: impl FnOnce(Option<ValueRef<'_>>) -> R,
    ) -> R {
        self.session.observe(moment.snapshot.epoch());
        let key = self.view.key(key);
        let store = &mut self.session.store;
        store.get_at(moment.snapshot, key, |value| read(shown(value, moment)))
    }

    /// [`Self::read_many`] in a snapshot, or for a client of `sync`.
    #[cold]
    pub(super) fn read_many_specially(
        &mut self,
        keys: &[&[u8]],
        mut read: impl FnMut(usize, Option<ValueRef<'_>>),
    ) {
        let Some(moment) = self.view.moment() else {
            for (index, key) in keys.iter().enumerate() {
                self.read(key, |value| read(index, value));
            }
            return;
        };
        self.session.observe(moment.snapshot.epoch());
        let mut batch = [const { Key::new(TreeId(0), b"") }; limits::WARM_KEYS_MAX];
        for (slot, bytes) in batch.iter_mut().zip(keys) {
            *slot = self.view.key(bytes);
        }
        let (mut found, batch) = (0, &batch[..keys.len()]);
        let store = &mut self.session.store;
        store.get_many_at(moment.snapshot, batch, |index, value| {
            let value = shown(value, moment);
            found += u64::from(value.is_some());
            read(index, value);
        });
        let counters = &self.session.counters;
        add(&counters.hits, found);
        add(&counters.misses, keys.len() as u64 - found);
    }
}

/// The value, unless its deadline had passed (K1 expired-hidden).
fn shown(value: Option<ValueRef<'_>>, moment: Moment) -> Option<ValueRef<'_>> {
    value.filter(|value| !is_expired(value, moment.time))
}
