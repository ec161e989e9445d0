//! What a merge has done so far, and what it answers.

use std::collections::BTreeMap;

use pando_protocol::Reply;

use super::fields::Fields;
use super::merge::{How, Merged, Naming, OnConflict};

/// What was merged so far.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) merged: usize,
    pub(super) conflicts: usize,
    /// The first of them, behind `naming.after`, each with its fields.
    named: BTreeMap<(usize, Vec<u8>), Fields>,
    /// How many keys and fields that is.
    names: usize,
    naming: Naming,
}

impl Tally {
    pub(super) fn new(naming: Naming) -> Self {
        Self {
            merged: 0,
            conflicts: 0,
            named: BTreeMap::new(),
            names: 0,
            naming,
        }
    }

    /// Counts what becomes of a key.
    pub(super) fn add(&mut self, database: usize, key: &[u8], merged: &Merged) {
        self.merged += usize::from(matches!(merged, Merged::Write { .. }));
        let Some(fields) = merged.conflict() else {
            return;
        };
        self.conflicts += 1;
        let place = (database, key.to_vec());
        let Naming { limit, after } = &self.naming;
        if after.as_ref().is_some_and(|after| place <= *after) {
            return;
        }
        let comes_before = |(last, _): (&(usize, Vec<u8>), &Fields)| place < *last;
        if self.names < *limit || self.named.last_key_value().is_some_and(comes_before) {
            // A key counts with its first field.
            let fields: Fields = fields.iter().take(*limit).cloned().collect();
            self.names += names(&fields);
            self.named.insert(place, fields);
        }
        while self.names > *limit
            && (self.named.len() > 1 || *limit == 0)
            && let Some((_, fields)) = self.named.pop_last()
        {
            self.names -= names(&fields);
        }
    }

    /// It becomes something else.
    pub(super) fn take_back(&mut self, database: usize, key: &[u8], merged: &Merged) {
        self.merged -= usize::from(matches!(merged, Merged::Write { .. }));
        if merged.conflict().is_some() {
            self.conflicts -= 1;
            let fields = self.named.remove(&(database, key.to_vec()));
            self.names -= fields.map_or(0, |fields| names(&fields));
        }
    }

    /// Whether it comes to nothing.
    pub(super) fn fails(&self, how: How) -> bool {
        how.on_conflict == OnConflict::Fail && self.conflicts > 0
    }

    pub(super) fn answer(&self, how: How, reply: &mut Reply<'_>) {
        reply.map(3);
        reply.bulk("merged");
        reply.count(if self.fails(how) { 0 } else { self.merged });
        reply.bulk("conflicts");
        reply.count(self.conflicts);
        reply.bulk("keys");
        reply.array(self.named.len());
        for ((database, key), fields) in &self.named {
            reply.array(3);
            reply.integer(*database as i64);
            reply.bulk(key);
            reply.array(fields.len());
            for field in fields {
                reply.bulk(field);
            }
        }
    }
}

/// What a conflict counts among those that are named: its fields, or itself.
fn names(fields: &Fields) -> usize {
    fields.len().max(1)
}
