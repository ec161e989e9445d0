//! What happens to snapshots, and to writes that need an image for one, when memory is short.
//!
//! | what is short | what is dropped or refused |
//! |---|---|
//! | the memory that images may take | the oldest snapshot that is not held |
//! | the same, all being held | writes that need an image: [`CommandError::SnapshotsFull`] |
//! | memory as a whole | the oldest snapshot that is not held, before any key |
//!
//! A write needs an image if it replaces or removes a value that the newest snapshot shows. This is
//! checked before it begins, so a write to several keys is done whole or not at all. A value that
//! needs none then needs none later either: its replacement is newer than the snapshot.

use std::ops::Range;
use std::sync::Arc;

use pando_engine::{Point, Probe};
use pando_protocol::Request;
use pando_protocol::command::{
    CommandId, CommandSpec, ConnectionCommand, DatabaseCommand, KeyAccess, KeyCommand,
    KeyspaceCommand, OrderedCommand, key_uses,
};

use super::{Turn, is_exec};
use crate::client::Client;
use crate::commands::databases::database_index;
use crate::database::Database;
use crate::error::CommandError;
use crate::snapshots::NamedSnapshot;
use crate::view::View;

impl Turn<'_> {
    /// Refuses a write that may need an image when there is no memory for one. What MULTI queues is
    /// checked together when EXEC comes.
    #[cold]
    pub(super) fn check_images(
        &mut self,
        client: &Client,
        spec: &CommandSpec,
        request: Request<'_>,
    ) -> Result<(), CommandError> {
        self.hold_own();
        let Some(transaction) = &client.transaction else {
            return self.check_image(one(client.index()), spec, request);
        };
        if !is_exec(spec) {
            return Ok(());
        }
        let (mut indexes, mut swapped) = (one(client.index()), false);
        for (spec, request) in transaction.iter() {
            match spec.id {
                CommandId::Connection(ConnectionCommand::Select) => {
                    let databases = self.database.databases();
                    let chosen = database_index(databases, request.arg(1));
                    indexes = chosen.map_or(indexes, |chosen| one(client.base + chosen));
                }
                CommandId::Keyspace(KeyspaceCommand::Database(DatabaseCommand::Swapdb)) => {
                    swapped = true;
                }
                _ => {}
            }
            let written = if swapped {
                client.base..client.base + self.database.databases()
            } else {
                indexes.clone()
            };
            self.check_image(written, spec, request)?;
        }
        Ok(())
    }

    /// The same for one request that writes in these databases.
    fn check_image(
        &mut self,
        mut indexes: Range<usize>,
        spec: &CommandSpec,
        request: Request<'_>,
    ) -> Result<(), CommandError> {
        use KeyspaceCommand as K;
        match spec.id {
            // Its keys are unknown before it has gone through them.
            CommandId::Keyspace(K::Ordered(OrderedCommand::Krangedel)) => {
                return Err(CommandError::SnapshotsFull);
            }
            // Another database may be written.
            CommandId::Keyspace(K::Key(KeyCommand::Copy | KeyCommand::Move)) => {
                indexes = 0..self.database.databases();
            }
            _ => {}
        }
        let written = key_uses(spec, request).filter(|key| key.access != KeyAccess::ReadOnly);
        for key in written {
            for index in indexes.clone() {
                self.check_image_of(index, request.arg(key.index))?;
            }
        }
        Ok(())
    }

    /// The same for one key.
    pub(crate) fn check_image_of(&mut self, index: usize, key: &[u8]) -> Result<(), CommandError> {
        if key.len() > pando_engine::limits::KEY_BYTES_MAX {
            return Ok(());
        }
        let key = View::present(self.database.tree(index)).key(key);
        match self.session.store.probe(key) {
            Probe::Present { version, .. } if self.database.store.keeps(version) => {
                Err(CommandError::SnapshotsFull)
            }
            _ => Ok(()),
        }
    }

    /// Drops the oldest snapshot that is not held, if memory is short; returns whether it did.
    pub(crate) fn give_up_snapshot(&mut self) -> bool {
        let is_short = self.database.is_short() || self.database.is_out_of_memory();
        is_short && self.drop_if(|database| database.snapshots.oldest_loose())
    }

    /// Drops a snapshot that has expired, or one because of the memory that images take; returns
    /// whether it did.
    pub(crate) fn drop_overdue_snapshot(&mut self) -> bool {
        self.drop_if(Database::overdue_snapshot)
    }

    /// Drops the snapshot that `choose` finds, chosen again under all gates.
    fn drop_if(&mut self, choose: impl Fn(&Database) -> Option<Arc<NamedSnapshot>>) -> bool {
        let database = self.database;
        if choose(database).is_none() {
            return false;
        }
        self.hold_all();
        let chosen = choose(database);
        if let Some(snapshot) = &chosen {
            database.drop_snapshot(self.session, snapshot);
        }
        self.let_go();
        chosen.is_some()
    }

    /// Unlinks what the engine has merged, while no session is in a turn.
    pub(crate) fn settle_snapshots(&mut self) -> bool {
        let is_unsettled = self.database.store.is_unsettled();
        if is_unsettled {
            self.hold_all();
            self.database.store.settle();
            self.let_go();
        }
        is_unsettled
    }
}

/// One database of all.
fn one(index: usize) -> Range<usize> {
    index..index + 1
}
