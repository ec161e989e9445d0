//! A full copy on its way in: trees beside those that the mapping shows.
//!
//! Entries and records come with the versions of the followed database, and keep them. The newest
//! version of a key wins, whatever the order. This database's clock is raised above every version
//! that comes, so the versions that it draws itself after the swap are later.
//!
//! A replica on disk logs what it loads; those that follow it need none of that, since its history
//! ends when the copy is shown. Recovery drops trees that the mapping does not show, so a
//! copy that was cut off leaves nothing (FW4 log-has-copy).

use std::collections::HashMap;

use pando_durability::log::records;
use pando_engine::limits::KEY_BYTES_MAX;
use pando_engine::{Key, LogEpoch, NewValue, Point, Probe, TreeId, ValueVersion};

use super::ReplicationError;
use super::message::Hello;
use crate::database::Database;
use crate::durable::bytes::{Input, Malformed, malformed};
use crate::durable::record::{self, Record};
use crate::durable::value::{self, ValueView};
use crate::persistence::restore;
use crate::session::Session;
use crate::session_state::SessionState;

/// See the module's header.
#[derive(Debug)]
pub(super) struct Loading {
    /// The trees that the followed database shows, by number.
    mapped: Vec<TreeId>,
    changes: u64,
    /// The tree here for each tree there that is or was mapped; those no longer mapped are dropped.
    here: HashMap<TreeId, TreeId>,
}

/// What comes for a key.
#[derive(Clone, Copy)]
pub(super) enum Given<'a> {
    Whole(ValueView<'a>),
    /// What changes of the value of this version.
    Changed(ValueVersion, ValueView<'a>),
    Removed,
}

impl Loading {
    pub(super) fn begin(database: &Database, hello: &Hello) -> Result<Self, Malformed> {
        let mut loading = Self {
            mapped: Vec::new(),
            changes: 0,
            here: HashMap::new(),
        };
        loading.map(database, hello.changes, hello.trees.clone())?;
        Ok(loading)
    }

    /// The trees that the followed database shows.
    pub(super) fn there(&self) -> &[TreeId] {
        &self.mapped
    }

    /// The mapping there, and the trees here in the same order.
    pub(super) fn finish(self) -> (Vec<TreeId>, Vec<TreeId>) {
        let here = self.mapped.iter().map(|tree| self.here[tree]).collect();
        (self.mapped, here)
    }

    /// Drops what was loaded.
    pub(super) fn give_up(self, database: &Database) {
        for tree in &self.mapped {
            drop_tree(database, self.here[tree]);
        }
    }

    fn map(
        &mut self,
        database: &Database,
        changes: u64,
        mut trees: Vec<TreeId>,
    ) -> Result<(), Malformed> {
        if changes < self.changes || changes == self.changes && !self.mapped.is_empty() {
            return Ok(());
        }
        // Databases beyond the configured number are kept there, and not shown.
        trees.truncate(database.databases());
        if trees.len() != database.databases() {
            return malformed("a mapping has too few databases");
        }
        self.changes = changes;
        for tree in &trees {
            let make = || database.store.create_tree();
            self.here.entry(*tree).or_insert_with(make);
        }
        for left in std::mem::replace(&mut self.mapped, trees) {
            if !self.mapped.contains(&left) {
                drop_tree(database, self.here[&left]);
            }
        }
        Ok(())
    }

    /// The tree here, if the copy still has it.
    fn tree(&self, there: TreeId) -> Option<TreeId> {
        let mapped = self.mapped.contains(&there);
        mapped.then(|| self.here[&there])
    }

    /// Takes entries of a tree.
    pub(super) fn take_entries(
        &mut self,
        session: &mut Session,
        there: TreeId,
        entries: &[u8],
    ) -> Result<(), ReplicationError> {
        let Some(tree) = self.tree(there) else {
            return Ok(());
        };
        let mut parsed = Vec::new();
        let mut input = Input(entries);
        while !input.is_empty() {
            let key = Key::new(tree, input.string(KEY_BYTES_MAX)?);
            let version = ValueVersion::from_bits(input.fixed()?);
            parsed.push((key, version, Given::Whole(value::take_value(&mut input)?)));
        }
        restore_all(session, parsed, true)
    }

    /// Takes the groups of an epoch.
    pub(super) fn take_epoch(
        &mut self,
        session: &mut Session,
        groups: &[u8],
    ) -> Result<(), ReplicationError> {
        let mut bytes = Vec::new();
        join(groups, &mut bytes)?;
        let mut found = Vec::new();
        let mut mappings = Vec::new();
        let mut input = Input(&bytes);
        while !input.is_empty() {
            match record::take(&mut input)? {
                Record::Put(written, view) => found.push((written, Given::Whole(view))),
                Record::Remove(written) => found.push((written, Given::Removed)),
                Record::Change {
                    written,
                    predecessor,
                    change,
                } => found.push((written, Given::Changed(predecessor, change))),
                Record::Mapping { changes, trees } => mappings.push((changes, trees)),
                Record::Standing(_) | Record::Catalog(_) => {}
            }
        }
        mappings.sort_unstable_by_key(|(changes, _)| *changes);
        for (changes, trees) in mappings {
            self.map(session.database(), changes, trees)?;
        }
        found.sort_by_key(|(written, _)| written.version);
        let here = found.into_iter().filter_map(|(written, change)| {
            let tree = self.tree(written.key.tree)?;
            let key = Key::new(tree, written.key.bytes);
            Some((key, written.version, change))
        });
        let here: Vec<_> = here.collect();
        restore_all(session, here, true)
    }
}

/// Appends the records of an epoch's groups to `bytes`.
pub(super) fn join(groups: &[u8], bytes: &mut Vec<u8>) -> Result<(), Malformed> {
    bytes.reserve(groups.len());
    let whole = records(groups, |records| {
        bytes.extend_from_slice(records);
        true
    });
    if whole {
        Ok(())
    } else {
        malformed("the groups of an epoch are cut")
    }
}

fn drop_tree(database: &Database, tree: TreeId) {
    database.store.drop_tree(tree);
    database.expiry.drop_tree(tree);
}

/// Restores changes, in order, in turns of bounded length; `logs`: a log on disk gets them.
pub(super) fn restore_all(
    session: &mut Session,
    changes: Vec<(Key<'_>, ValueVersion, Given<'_>)>,
    logs: bool,
) -> Result<(), ReplicationError> {
    let newest = changes.iter().map(|(_, version, _)| version.epoch()).max();
    raise(session, newest.unwrap_or_default());
    let database = std::sync::Arc::clone(session.database());
    let mut changes = changes.into_iter().peekable();
    while changes.peek().is_some() {
        if !database.acknowledgement.accepts_writes() {
            return Err(ReplicationError::Log);
        }
        let mut turn = session.turn();
        for (key, version, change) in changes.by_ref().take(crate::limits::COPY_SLICE_ENTRIES) {
            let place = (&*database, turn.session_mut());
            restore_one(place, (key, version), change, logs)?;
        }
        if let Some(refusal) = turn.session_mut().take_refusal() {
            return Err(refusal.into());
        }
    }
    session.tidy();
    Ok(())
}

/// Raises the clock above an epoch, if it is not.
fn raise(session: &mut Session, newest: LogEpoch) {
    let database = std::sync::Arc::clone(session.database());
    if database.epochs.current() > newest {
        return;
    }
    let mut turn = session.turn();
    turn.hold_all();
    let now = database.options.clock.now().milliseconds();
    database.acknowledgement.rise_above(newest, now);
}

fn restore_one(
    (database, session): (&Database, &mut SessionState),
    (key, version): (Key<'_>, ValueVersion),
    change: Given<'_>,
    logs: bool,
) -> Result<(), Malformed> {
    let present = session.store.probe(key);
    let has = match present {
        Probe::Present { version, .. } | Probe::Removed(version) => Some(version),
        Probe::Absent => None,
    };
    if has.is_some_and(|has| has >= version) {
        return Ok(());
    }
    let new: Option<NewValue<'_>> = match change {
        Given::Whole(view) => Some(view.build()?),
        Given::Removed => None,
        Given::Changed(predecessor, view) => match present {
            Probe::Present { version, .. } if version == predecessor => {
                let changed = session.store.get(key, |old| old.map(|old| view.apply(old)));
                match changed {
                    Some(changed) => Some(changed?),
                    None => return malformed("a value that is there cannot be read"),
                }
            }
            // The scan has not reached the key yet, and will bring this version or a later one.
            Probe::Absent => return Ok(()),
            _ => return malformed("the value that a change belongs to is not there"),
        },
    };
    if let Some(log) = &mut session.log
        && logs
        && database.acknowledgement.files().is_some()
    {
        match &new {
            Some(new) => log.append(|out| record::put_write(out, key, None, new.view(version))),
            None => log.append(|out| record::put_remove(out, key, version)),
        }
    }
    restore(&mut session.store, &database.expiry, (key, version), new);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::Shell;

    /// Its databases beyond ours are its own affair.
    #[test]
    fn a_mapping_of_more_databases_shows_as_many_as_there_are_here() {
        let shell = Shell::new();
        let databases = shell.database.databases() as u32;
        let trees = |numbers: std::ops::Range<u32>| numbers.map(TreeId).collect::<Vec<_>>();
        let mut loading = Loading {
            mapped: Vec::new(),
            changes: 0,
            here: HashMap::new(),
        };
        let map = |loading: &mut Loading, changes, trees| {
            loading.map(&shell.database, changes, trees).is_ok()
        };
        assert!(map(&mut loading, 1, trees(0..databases)));
        assert!(map(&mut loading, 2, trees(1..databases + 3)));
        assert!(!map(&mut loading, 3, trees(0..databases - 1)));
        let (there, here) = loading.finish();
        assert_eq!(there, trees(1..databases + 1));
        assert_eq!(here.len(), shell.database.databases());
    }
}
