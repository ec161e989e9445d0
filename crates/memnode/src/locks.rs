//! Locks of prepared minitransactions, slot by slot. Nobody waits here: a lock is free or busy.

use std::collections::BTreeMap;

use crate::{Items, MinitransactionId, Slot};

#[derive(Clone, Debug)]
struct Lock {
    exclusive: bool,
    holders: Vec<MinitransactionId>,
}

/// Who holds which slots.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locks {
    held: BTreeMap<Slot, Lock>,
}

impl Locks {
    /// Somebody whose locks keep `items` from running.
    pub(crate) fn conflict(&self, items: &Items) -> Option<MinitransactionId> {
        let exclusive = |slot| self.held.get(&slot).filter(|lock: &&Lock| lock.exclusive);
        let shared = items.shared().find_map(exclusive);
        let lock = shared.or_else(|| items.exclusive().find_map(|slot| self.held.get(&slot)));
        lock.map(|lock| lock.holders[0])
    }

    /// Locks what `items` touch. There must be no conflict.
    pub(crate) fn acquire(&mut self, id: MinitransactionId, items: &Items) {
        for slot in items.exclusive() {
            let lock = Lock {
                exclusive: true,
                holders: vec![id],
            };
            let before = self.held.insert(slot, lock);
            assert!(before.is_none(), "{slot:?} is locked twice");
        }
        for slot in items.shared() {
            let lock = self.held.entry(slot).or_insert_with(|| Lock {
                exclusive: false,
                holders: Vec::new(),
            });
            if !lock.holders.contains(&id) {
                assert!(!lock.exclusive, "{slot:?} is locked by another");
                lock.holders.push(id);
            }
        }
    }

    /// Releases what `id` locked for `items`.
    pub(crate) fn release(&mut self, id: MinitransactionId, items: &Items) {
        for slot in items.exclusive().chain(items.shared()) {
            if let Some(lock) = self.held.get_mut(&slot) {
                lock.holders.retain(|holder| *holder != id);
                if lock.holders.is_empty() {
                    self.held.remove(&slot);
                }
            }
        }
    }

    /// Whether nothing is locked.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

/// Whether the two cannot hold their locks together.
pub(crate) fn exclude(one: &Items, other: &Items) -> bool {
    let touches = |items: &Items, slot: Slot| {
        items
            .exclusive()
            .chain(items.shared())
            .any(|touched| touched == slot)
    };
    one.exclusive().any(|slot| touches(other, slot))
        || other.exclusive().any(|slot| touches(one, slot))
}
