//! What a database notes in the pool of an engine that keeps its data itself.
//!
//! | note | content, little-endian |
//! |---|---|
//! | `mapping` | 8 bytes: how often the mapping has changed; 4 for the tree of each database |
//!
//! A note comes back with the epoch in which it was written, as everything in the pool does.

use pando_cdds::Cdds;
use pando_engine::TreeId;

const MAPPING: &str = "mapping";

/// Notes the mapping of database numbers to trees. A full pool keeps room for it.
///
/// # Panics
/// When the pool is damaged, or what it keeps back is used up.
pub(crate) fn note_mapping(engine: &Cdds, changes: u64, trees: &[TreeId]) {
    let mut note = changes.to_le_bytes().to_vec();
    for tree in trees {
        note.extend_from_slice(&tree.0.to_le_bytes());
    }
    let noted = engine.set_note(MAPPING, &note);
    noted.unwrap_or_else(|error| panic!("the mapping cannot be kept: {error}"));
}

/// The mapping that was noted last: how often it has changed, and the trees.
pub(crate) fn noted_mapping(
    engine: &Cdds,
) -> Result<Option<(u64, Vec<TreeId>)>, pando_cdds::Error> {
    let note = engine.note(MAPPING)?;
    Ok(note.and_then(|note| {
        let (changes, trees) = note.split_first_chunk()?;
        let (trees, _) = trees.as_chunks();
        let trees = trees.iter().map(|tree| TreeId(u32::from_le_bytes(*tree)));
        Some((u64::from_le_bytes(*changes), trees.collect()))
    }))
}
