//! The histories of a database in a file of their own, once somebody has followed it.
//!
//! | when | what is written |
//! |---|---|
//! | somebody follows for the first time | the present history |
//! | the database is opened again | its former ones, and a new one |
//! | data from elsewhere are about to be shown | a history without former ones |
//!
//! With a pool, they are a note in it.
//!
//! The file counts only beside a log whose newest incarnation is the one that it names. So an
//! opening that could not write it, or that came to files without it, leaves nothing that a later
//! one mistakes for its own.

use std::io;
use std::sync::Arc;

use pando_durability::log::LogCut;
use pando_sync::lock;

use super::small_file;
use crate::database::Database;
use crate::durable::Durable;
use crate::durable::lineage::Lineage;
use crate::durable::options::DurabilityOptions;
use crate::{limits, pool};

const NAME: &str = "histories.pando";

/// The histories of a database of which this much of the log was found, and whether the file has
/// them. Whatever is wrong with the file costs replicas a full copy, and nothing else.
pub(super) fn reopen(
    durability: &DurabilityOptions,
    cut: &LogCut,
    notes: &mut Vec<String>,
) -> (Lineage, bool) {
    let unknown = (Lineage::begun(cut.cutoff()), false);
    let (disk, directory) = (&*durability.disk, &durability.data_directory);
    let path = directory.join(NAME);
    let complain = |why: &dyn std::fmt::Display| {
        format!(
            "{}: {why}. Replicas of this server take full copies",
            path.display()
        )
    };
    let bytes = match small_file::read(disk, &path, limits::HISTORIES_BYTES_MAX) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return unknown,
        Err(error) => {
            notes.push(complain(&error));
            return unknown;
        }
    };
    let Some((lineage, incarnation)) = Lineage::parse(&bytes) else {
        notes.push(complain(&"the file cannot be read"));
        return unknown;
    };
    if incarnation != cut.newest_incarnation() {
        notes.push(complain(&"it is from another time than the log"));
        return unknown;
    }
    let lineage = lineage.reopened(cut.cutoff());
    let text = lineage.encode(incarnation + 1);
    match small_file::replace(disk, directory, NAME, &text) {
        Ok(()) => (lineage, true),
        Err(error) => {
            notes.push(complain(&error));
            unknown
        }
    }
}

impl Durable {
    fn write_histories(&self, lineage: &Lineage) -> io::Result<()> {
        let text = lineage.encode(self.log.incarnation());
        let (disk, directory) = (&*self.options.disk, &self.options.data_directory);
        small_file::replace(disk, directory, NAME, &text)
    }
}

impl Database {
    /// Keeps its histories on disk, where there is one, so that replicas can go on where they stood
    /// after a restart. To be called before somebody is told where they stand.
    pub fn keep_histories(self: &Arc<Self>) -> io::Result<()> {
        let Some(durable) = &self.durable else {
            return self.keep_in_pool();
        };
        let mut kept = lock(&durable.histories_kept);
        if !*kept {
            durable.write_histories(&lock(&self.lineage))?;
            *kept = true;
        }
        Ok(())
    }

    /// The same, where a pool has the data: it also remembers which keys are removed. The caller
    /// has no open turn.
    fn keep_in_pool(self: &Arc<Self>) -> io::Result<()> {
        let Some(engine) = self.store.pooled() else {
            return Ok(());
        };
        let mut session = self.session().map_err(io::Error::other)?;
        let mut turn = session.turn();
        turn.hold_all();
        let noted = pool::noted_histories(engine).map_err(io::Error::other)?;
        let lineage = lock(&self.lineage).clone();
        let is_noted = noted.is_some_and(|noted| noted.encode(0) == lineage.encode(0));
        if is_noted && engine.removed_since().is_some() {
            return Ok(());
        }
        turn.end_epoch();
        pool::note_histories(engine, &lineage);
        let remembers = engine.remember_removed(self.closed_epoch());
        remembers.map_err(io::Error::other)
    }

    /// Prepares a history for data that come from elsewhere: with it on disk, a crash before or
    /// after the change leaves nobody's position of what was here before.
    pub(crate) fn prepare_history(&self) -> io::Result<Lineage> {
        let lineage = lock(&self.lineage).replaced(self.epochs.current());
        if let Some(durable) = &self.durable {
            let mut kept = lock(&durable.histories_kept);
            durable.write_histories(&lineage)?;
            *kept = true;
        }
        Ok(lineage)
    }
}
