//! The connections of one worker, by slot and by client.
//!
//! A slot is the poller's token; it is reused after its connection has gone. A report meant for the
//! previous connection does no harm: reading finds nothing.

use std::collections::HashMap;

use super::connection::Connection;

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    slots: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    by_client: HashMap<u64, usize>,
}

impl Connections {
    /// Adds a connection; returns its slot.
    pub(crate) fn insert(&mut self, connection: Box<Connection>) -> usize {
        let client = connection.client.id;
        let slot = if let Some(slot) = self.free.pop() {
            self.slots[slot] = Some(connection);
            slot
        } else {
            self.slots.push(Some(connection));
            self.slots.len() - 1
        };
        let before = self.by_client.insert(client, slot);
        assert!(before.is_none(), "one connection per client");
        debug_assert_eq!(self.by_client.len() + self.free.len(), self.slots.len());
        slot
    }

    /// Removes a connection.
    pub(crate) fn remove(&mut self, slot: usize) -> Option<Box<Connection>> {
        let connection = self.slots.get_mut(slot)?.take()?;
        let removed = self.by_client.remove(&connection.client.id);
        assert_eq!(removed, Some(slot));
        self.free.push(slot);
        Some(connection)
    }

    /// The connection in a slot.
    #[inline]
    pub(crate) fn get(&self, slot: usize) -> Option<&Connection> {
        self.slots.get(slot)?.as_deref()
    }

    /// The connection in a slot.
    #[inline]
    pub(crate) fn get_mut(&mut self, slot: usize) -> Option<&mut Connection> {
        self.slots.get_mut(slot)?.as_deref_mut()
    }

    /// The slot of a client.
    pub(crate) fn slot_of(&self, client: u64) -> Option<usize> {
        self.by_client.get(&client).copied()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.by_client.len()
    }

    /// Slots that have been used: every connection's is below this.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }
}
