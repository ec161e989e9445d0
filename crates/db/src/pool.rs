//! What a database notes in the pool of an engine that keeps its data itself.
//!
//! | note | content, little-endian |
//! |---|---|
//! | `mapping` | 8 bytes: how often the mapping has changed; 4 for the tree of each database |
//! | `standing` | where it stands in the history of another one (`durable::standing`) |
//! | `histories` | its own, once somebody has followed it (`durable::lineage`) |
//!
//! A note comes back with the epoch in which it was written, as everything in the pool does.

use pando_cdds::{Cdds, Error};
use pando_engine::TreeId;

use crate::durable::bytes::Input;
use crate::durable::lineage::Lineage;
use crate::durable::standing::Standing;

#[cfg(test)]
mod tests;

const MAPPING: &str = "mapping";
const STANDING: &str = "standing";
const HISTORIES: &str = "histories";

/// Notes the mapping of database numbers to trees. A full pool keeps room for it.
///
/// # Panics
/// When the pool is damaged, or what it keeps back is used up.
pub(crate) fn note_mapping(engine: &Cdds, changes: u64, trees: &[TreeId]) {
    #[cfg(test)]
    if crate::durable::testing::is(crate::durable::testing::Fault::MappingForgotten) {
        return;
    }
    let mut note = changes.to_le_bytes().to_vec();
    for tree in trees {
        note.extend_from_slice(&tree.0.to_le_bytes());
    }
    let noted = engine.set_note(MAPPING, &note);
    noted.unwrap_or_else(|error| panic!("the mapping cannot be kept: {error}"));
}

/// The mapping that was noted last: how often it has changed, and the trees.
pub(crate) fn noted_mapping(engine: &Cdds) -> Result<Option<(u64, Vec<TreeId>)>, Error> {
    let note = engine.note(MAPPING)?;
    Ok(note.and_then(|note| {
        let (changes, trees) = note.split_first_chunk()?;
        let (trees, _) = trees.as_chunks();
        let trees = trees.iter().map(|tree| TreeId(u32::from_le_bytes(*tree)));
        Some((u64::from_le_bytes(*changes), trees.collect()))
    }))
}

/// Notes where the database stands. Without room it stands nowhere after a restart.
///
/// # Panics
/// When the pool is damaged.
pub(crate) fn note_standing(engine: &Cdds, standing: &Standing) {
    let mut note = Vec::new();
    standing.put(&mut note);
    set_or_forget(engine, STANDING, &note);
}

/// Where the database stood.
pub(crate) fn noted_standing(engine: &Cdds) -> Result<Standing, Error> {
    let note = engine.note(STANDING)?;
    let standing = note.and_then(|note| Standing::take(&mut Input(&note)).ok());
    Ok(standing.unwrap_or_default())
}

/// Notes the histories of the data. Without room, nobody goes on behind a restart.
///
/// # Panics
/// When the pool is damaged.
pub(crate) fn note_histories(engine: &Cdds, lineage: &Lineage) {
    // The pool is in no place but this: it needs no incarnation.
    set_or_forget(engine, HISTORIES, &lineage.encode(0));
}

/// The histories that were noted last, if any were.
pub(crate) fn noted_histories(engine: &Cdds) -> Result<Option<Lineage>, Error> {
    let note = engine.note(HISTORIES)?;
    let parsed = note.and_then(|note| Lineage::parse(&note));
    Ok(parsed.map(|(lineage, _)| lineage))
}

fn set_or_forget(engine: &Cdds, name: &str, note: &[u8]) {
    let noted = match engine.set_note(name, note) {
        Err(Error::Full(_)) => engine.forget_note(name),
        noted => noted,
    };
    noted.unwrap_or_else(|error| panic!("the pool is not to be trusted: {error}"));
}
