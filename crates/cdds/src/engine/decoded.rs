//! Wide rows as they are read: nodes in ordinary memory, made of the bytes of a record.
//!
//! A wide row lies in its record as one run of bytes (`value.rs`), and is read through a tree. The
//! tree of the last reader or writer is kept beside the pool, so that a read of a few fields, and
//! the reading part of a change, look at few nodes: who finds none makes it of the record, after a
//! restart or when it had to go.
//!
//! - **CV1 same-version** A row is found by its key, in its tree, and its version, which two values
//!   of a key never have (V1 version-draw), unless a group was taken back with the first of them:
//!   so what is stored takes the place of what is kept under its name, and what a reader has made
//!   does not: it may be of the value that was taken back.
//! - **CV2 bounded** The rows' nodes take no more than a share of the pool, those that two rows
//!   share counted twice. What was used longest ago goes first. They are memory in use like any
//!   other of the process, and all go before a write is refused for want of it.
//!
//! Rows share nodes with successive versions alone, as in any engine (D2 successors-share): the row
//! that a writer stores is kept as it is.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use pando_engine::{Body, BodyRef, HashRef, TreeId, ValueRef, ValueVersion};
use pando_sync::lock;

use crate::canary::{self, Fault};

/// A row that somebody may be reading.
pub(super) type DecodedRow = Arc<Body<'static>>;

/// The rows that are kept. Its mutex is innermost, and held for a few steps.
#[derive(Debug)]
pub(super) struct Decoded {
    bytes_max: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// By key and version (CV1 same-version).
    rows: HashMap<Arc<[u8]>, Row>,
    /// Names of rows by when they were used last.
    used: BTreeMap<u64, Arc<[u8]>>,
    /// Of the last use.
    moment: u64,
    bytes: usize,
    /// Of trees that were dropped; maintenance drops them.
    gone: Vec<DecodedRow>,
}

#[derive(Debug)]
struct Row {
    nodes: DecodedRow,
    used: u64,
    bytes: usize,
}

/// The rows as somebody reads them.
#[derive(Clone, Copy)]
pub(super) struct Rows<'d> {
    decoded: &'d Decoded,
    keeps: bool,
}

fn name(place: &[u8], version: ValueVersion) -> Arc<[u8]> {
    [place, &version.to_bits().to_le_bytes()].concat().into()
}

impl Decoded {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            kept: Mutex::default(),
        }
    }

    /// For whoever reads values for their own sake.
    pub(super) fn rows(&self) -> Rows<'_> {
        Rows {
            decoded: self,
            keeps: true,
        }
    }

    /// For whoever passes by: it adds nothing to what is kept.
    pub(super) fn passing(&self) -> Rows<'_> {
        Rows {
            keeps: false,
            ..self.rows()
        }
    }

    /// Keeps a wide row that is being stored; does nothing with other values.
    pub(super) fn keep(&self, place: &[u8], value: &ValueRef<'_>) {
        if let BodyRef::Row(tag, row @ HashRef::Wide(_)) = value.body {
            let row = Arc::new(Body::Row(tag, row.hand_over()));
            self.keep_named(name(place, value.version), &row, true);
        }
    }

    fn keep_named(&self, name: Arc<[u8]>, row: &DecodedRow, is_stored: bool) {
        let bytes = row.as_ref().as_ref().heap_bytes() + name.len();
        let mut kept = lock(&self.kept);
        let takes_place = is_stored && !canary::has(Fault::RowOutlived);
        if !takes_place && kept.rows.contains_key(&name) {
            return;
        }
        let mut gone = vec![kept.remove(&name)];
        if bytes <= self.bytes_max {
            while kept.bytes + bytes > self.bytes_max {
                gone.push(kept.remove_oldest());
            }
            kept.add(name, Arc::clone(row), bytes);
        }
        drop(kept);
        // Their nodes are freed behind the lock.
        drop(gone);
    }

    /// A value that was a key's is no longer.
    pub(super) fn forget(&self, place: &[u8], version: ValueVersion) {
        let gone = lock(&self.kept).remove(&name(place, version));
        drop(gone);
    }

    /// A tree was dropped. Its rows have very many nodes, perhaps, and go with [`Self::settle`].
    pub(super) fn forget_tree(&self, tree: TreeId) {
        let mut kept = lock(&self.kept);
        let first = tree.0.to_be_bytes();
        let names = kept.rows.keys().filter(|name| name.starts_with(&first));
        for name in names.cloned().collect::<Vec<_>>() {
            let gone = kept.remove(&name);
            kept.gone.extend(gone);
        }
    }

    /// Drops what belonged to trees that were dropped.
    pub(super) fn settle(&self) {
        let gone = std::mem::take(&mut lock(&self.kept).gone);
        drop(gone);
    }

    /// Whether there was anything.
    pub(super) fn forget_all(&self) -> bool {
        let gone = std::mem::take(&mut *lock(&self.kept));
        gone.bytes > 0
    }

    pub(super) fn bytes(&self) -> usize {
        lock(&self.kept).bytes
    }
}

impl Rows<'_> {
    /// The row of a key at a version: the one that is kept, or what `decode` makes of its bytes.
    pub(super) fn row(
        self,
        place: &[u8],
        version: ValueVersion,
        decode: impl FnOnce() -> Body<'static>,
    ) -> DecodedRow {
        let name = name(place, version);
        if let Some(row) = lock(&self.decoded.kept).use_again(&name) {
            return row;
        }
        let row = Arc::new(decode());
        if self.keeps {
            self.decoded.keep_named(name, &row, false);
        }
        row
    }
}

impl Kept {
    fn use_again(&mut self, name: &[u8]) -> Option<DecodedRow> {
        let row = self.rows.get_mut(name)?;
        let name = self.used.remove(&row.used).expect("CV2: each has one");
        self.moment += 1;
        row.used = self.moment;
        self.used.insert(self.moment, name);
        Some(Arc::clone(&row.nodes))
    }

    fn add(&mut self, name: Arc<[u8]>, nodes: DecodedRow, bytes: usize) {
        self.moment += 1;
        let used = self.moment;
        self.used.insert(used, Arc::clone(&name));
        self.bytes += bytes;
        let there = self.rows.insert(name, Row { nodes, used, bytes });
        debug_assert!(there.is_none(), "CV2: it was removed");
    }

    fn remove(&mut self, name: &[u8]) -> Option<DecodedRow> {
        let Row { nodes, used, bytes } = self.rows.remove(name)?;
        self.used.remove(&used);
        self.bytes -= bytes;
        Some(nodes)
    }

    fn remove_oldest(&mut self) -> Option<DecodedRow> {
        let (_, name) = self.used.first_key_value()?;
        let name = Arc::clone(name);
        self.remove(&name)
    }
}

#[cfg(test)]
mod tests {
    use pando_engine::{HashDraft, NewValue};

    use super::*;

    fn row(fields: usize) -> Body<'static> {
        let mut draft = HashDraft::new(None);
        for field in 0..fields {
            draft.set(&field.to_be_bytes(), &[7; 100]);
        }
        draft.finish()
    }

    fn version(number: u64) -> ValueVersion {
        ValueVersion::from_bits(number)
    }

    /// CV2 bounded.
    #[test]
    fn what_was_used_longest_ago_goes_first_and_the_bound_holds() {
        let bytes = row(1000).as_ref().heap_bytes();
        let decoded = Decoded::new(bytes * 7 / 2);
        let is_there = |number: u64| {
            let mut there = true;
            let _ = decoded.passing().row(b"key", version(number), || {
                there = false;
                row(1)
            });
            there
        };
        for number in 1..=3 {
            let _ = decoded.rows().row(b"key", version(number), || row(1000));
        }
        assert!(is_there(1), "it is used again");
        let _ = decoded.rows().row(b"key", version(4), || row(1000));
        assert_eq!([1, 2, 3, 4].map(is_there), [true, false, true, true]);
        assert!(decoded.bytes() <= bytes * 7 / 2);
        let _ = decoded.rows().row(b"key", version(5), || row(5000));
        assert!(!is_there(5), "a row beyond the bound is not kept");
        let stored = NewValue::new(row(1000));
        decoded.keep(b"key", &stored.view(version(4)));
        assert!(is_there(4) && decoded.bytes() <= bytes * 7 / 2);
        assert!(decoded.forget_all() && !decoded.forget_all());
        assert_eq!((decoded.bytes(), is_there(4)), (0, false));
    }

    #[test]
    fn rows_go_with_their_tree() {
        let decoded = Decoded::new(usize::MAX);
        let place = |tree: u32| [&tree.to_be_bytes()[..], b"key"].concat();
        for tree in [1, 2] {
            let _ = decoded.rows().row(&place(tree), version(1), || row(10));
        }
        decoded.forget_tree(TreeId(1));
        decoded.settle();
        let mut made = 0;
        for tree in [1, 2] {
            let _ = decoded.passing().row(&place(tree), version(1), || {
                made += tree;
                row(1)
            });
        }
        assert_eq!(made, 1);
    }
}
