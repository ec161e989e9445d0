//! What has changed since a replica stood somewhere, where the epochs since are no longer kept.
//!
//! After §5.3 of the CDDS paper, in which a primary keeps a version for each replica's position. A
//! kept version keeps every value that is replaced, and must be there before anybody knows that it
//! will be needed: here nothing is kept but the names of removed keys, by an engine that has a pool
//! (`cdds/src/engine/removed.rs`), and serves whatever position is not older than they are.
//!
//! ```text
//! begin: a snapshot ─► values of later epochs than the position ─┬─► parts … ─► difference
//!                  └─► names of keys removed since, that are not in it ─┘      (with the mapping)
//! ```
//!
//! The replica keeps the parts, and repeats all of it as one epoch when it ends: the newest that is
//! in the snapshot. What came behind it is in the ring. If there is too much for one change, a full
//! copy begins instead.
//!
//! Invariants:
//! - **FD1 all-differs** A key that the replica does not have as it is in the snapshot is in the
//!   difference: its value is of a later epoch than the position (V1 version-draw), or it was
//!   removed in one, and named (CQ1 named-with). Names that went meanwhile end it (CQ2 known-gap).
//! - **FD2 one-change** A reader of the replica sees all of it or nothing, as of an epoch
//!   (FW5 whole-epochs-shown).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_cdds::{Cdds, NamesRead};
use pando_durability::log::{FollowedEpoch, put_group};
use pando_engine::{Key, LogEpoch, ReadAt, TreeId, ValueRef, ValueVersion};

use super::ReplicationError;
use super::message::put_part_head;
use super::scan::{Scan, Scanned, Takes, freeze, let_go};
use crate::clock::Milliseconds;
use crate::database::Database;
use crate::durable::record;
use crate::limits;
use crate::session::Session;
use crate::snapshots::NamedSnapshot;

/// How long its snapshot lives if nothing ends it.
const LIVES: Milliseconds = Milliseconds(3_600_000);

/// A step of a difference.
#[derive(Debug)]
pub(super) enum Step {
    /// A message was written.
    Part,
    /// Nothing was, and there is more to look at.
    Worked,
    /// All parts were: so many, and what ends it.
    All(u64, FollowedEpoch),
    /// It is too large for one change, or what it needs has gone.
    Fails,
}

/// Names of removed keys, or the snapshot, went meanwhile.
struct Gone;

/// See the module's header.
#[derive(Debug)]
pub(super) struct Difference {
    /// Where the replica stands.
    after: LogEpoch,
    /// What it becomes: the newest epoch in the snapshot that has anything.
    epoch: LogEpoch,
    snapshot: Arc<NamedSnapshot>,
    changes: u64,
    trees: Vec<TreeId>,
    scan: Option<Scan>,
    names: Option<NamesRead>,
    parts: u64,
    entries: usize,
    bytes: usize,
}

/// The records of values that have changed.
struct Changed<'r> {
    after: LogEpoch,
    tree: TreeId,
    entries: usize,
    records: &'r mut Vec<u8>,
}

impl Takes for Changed<'_> {
    fn begin(&mut self, tree: TreeId) {
        self.tree = tree;
    }

    fn wants(&self, value: ValueRef<'_>) -> bool {
        value.version.epoch() > self.after
    }

    fn take(&mut self, key: &[u8], value: ValueRef<'_>) {
        record::put_write(self.records, Key::new(self.tree, key), None, value);
        self.entries += 1;
    }

    fn is_full(&self) -> bool {
        self.records.len() >= limits::DIFFERENCE_PART_BYTES
    }
}

/// The engine that knows what has changed since an epoch, if it does.
pub(super) fn knows(database: &Database, after: LogEpoch) -> Option<&Arc<Cdds>> {
    let engine = database.store.pooled()?;
    let since = engine.removed_since()?;
    #[cfg(test)]
    let since = if super::tests::is(super::tests::Fault::NamesGone) {
        LogEpoch::NONE
    } else {
        since
    };
    (since <= after).then_some(engine)
}

impl Difference {
    /// What has changed since the end of an epoch, if that is known. The caller has no open turn.
    pub(super) fn begin(session: &mut Session, after: LogEpoch) -> Option<Self> {
        let mut turn = session.turn();
        turn.hold_all();
        let database = turn.database();
        knows(database, after)?;
        let snapshot = freeze(&mut turn, "replica-difference", LIVES).ok()?;
        let mut trees = database.mapping();
        trees.truncate(database.databases());
        let epoch = database.acknowledgement.ring().newest();
        assert!(epoch > after, "what is behind {after} was in the ring");
        Some(Self {
            after,
            epoch,
            changes: database.mapping.changes.load(Ordering::Relaxed),
            scan: Some(Scan::of(trees.clone(), Some(snapshot.moment))),
            trees,
            snapshot,
            names: Some(NamesRead::behind(after)),
            parts: 0,
            entries: 0,
            bytes: 0,
        })
    }

    /// The epoch that must be followable before it ends (FW3 durable-above).
    pub(super) fn epoch(&self) -> LogEpoch {
        self.epoch
    }

    /// Looks at the next slice; a part is appended to `out`. The caller has no open turn.
    pub(super) fn next(&mut self, session: &mut Session, out: &mut Vec<u8>) -> Step {
        let mut records = Vec::new();
        if let Some(scan) = &mut self.scan {
            let mut changed = Changed {
                after: self.after,
                tree: TreeId(0),
                entries: 0,
                records: &mut records,
            };
            let scanned = scan.next(session, &mut changed);
            self.entries += changed.entries;
            match scanned {
                Scanned::Some => {}
                Scanned::All => self.scan = None,
                Scanned::Gone => return Step::Fails,
            }
        } else if let Some(from) = self.names {
            match self.removed(session, from, &mut records) {
                Ok(next) => self.names = next,
                Err(Gone) => return Step::Fails,
            }
        } else {
            return Step::All(self.parts, self.last(session));
        }
        self.bytes += records.len();
        let too_much = self.entries > limits::DIFFERENCE_ENTRIES_MAX
            || self.bytes > limits::DIFFERENCE_BYTES_MAX;
        if too_much {
            return Step::Fails;
        }
        if records.is_empty() {
            return Step::Worked;
        }
        put_part_head(out, self.parts);
        put_group(out, &records);
        self.parts += 1;
        Step::Part
    }

    /// Notes the removal of keys that are not in the snapshot; where their names go on.
    fn removed(
        &mut self,
        session: &mut Session,
        from: NamesRead,
        records: &mut Vec<u8>,
    ) -> Result<Option<NamesRead>, Gone> {
        let mut names = Vec::new();
        let engine = session.database().store.pooled().ok_or(Gone)?;
        let next = engine.removed(from, |key| {
            #[cfg(test)]
            if super::tests::is(super::tests::Fault::RemovedForgotten) {
                return;
            }
            if self.trees.contains(&key.tree) {
                names.push((key.tree, key.bytes.to_vec()));
            }
        });
        let mut turn = session.turn();
        let snapshots = &turn.database().snapshots;
        let moment = self.snapshot.moment;
        let seen = &mut turn.session_mut().snapshots;
        seen.at(snapshots, moment).map_err(|_| Gone)?;
        let version = ValueVersion::after(None, self.epoch);
        for (tree, key) in &names {
            let key = Key::new(*tree, key);
            let store = &mut turn.session_mut().store;
            if store.get_at(moment.snapshot, key, |value| value.is_none()) {
                record::put_remove(records, key, version);
                self.entries += 1;
            }
        }
        drop(turn);
        // FD1 all-differs: no name that was to be shown had gone by then.
        knows(session.database(), self.after).ok_or(Gone)?;
        Ok(next)
    }

    /// What ends it: the mapping.
    fn last(&self, session: &Session) -> FollowedEpoch {
        let (mut mapping, mut groups) = (Vec::new(), Vec::new());
        record::put_mapping(&mut mapping, self.changes, self.trees.iter().copied());
        put_group(&mut groups, &mapping);
        let database = session.database();
        FollowedEpoch {
            epoch: self.epoch,
            previous: self.after,
            wall_ms: database.options.clock.now().milliseconds(),
            offset: database.acknowledgement.ring().offset(self.epoch),
            groups,
        }
    }

    /// Lets its snapshot go. The caller has no open turn.
    pub(super) fn end(&self, session: &mut Session) {
        let mut turn = session.turn();
        turn.hold_all();
        let_go(&mut turn, &self.snapshot);
    }
}

/// The parts of a difference that are here.
#[derive(Debug, Default)]
pub(super) struct Parts {
    number: u64,
    groups: Vec<u8>,
}

impl Parts {
    /// How many there are.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn groups(&self) -> &[u8] {
        &self.groups
    }

    /// Keeps one until all are here (FD2 one-change).
    pub(super) fn keep(&mut self, number: u64, groups: &[u8]) -> Result<(), ReplicationError> {
        let bytes = self.groups.len() + groups.len();
        if number != self.number || bytes > limits::REPLICATION_MESSAGE_BYTES_MAX {
            return Err(ReplicationError::OutOfTurn("a part of a difference"));
        }
        self.number += 1;
        self.groups.extend_from_slice(groups);
        Ok(())
    }
}
