//! An epoch of the followed database, repeated here under all gates.
//!
//! Records that write keys are repeated in the order of their versions, in runs that are warmed
//! first, as a batch of requests is. They are parsed twice: once for their order, and to see that
//! all can be read; then when they are repeated. So each takes a place, and not all of what is
//! parsed.
//!
//! Where an epoch has many and there are processors, several *appliers* repeat it: each is a thread
//! with a session of its own, and a share of the keys. They write where the session that holds the
//! gates lets them, and what they log becomes part of that session's group:
//!
//! ```text
//! hold_all ─► mapping ─┬─ share 0: this session ───────────┬─► one group ─► gates released
//!                      ├─ share 1: a helper's, lent gates ─┤
//!                      └─ …                                ┘
//! ```
//!
//! Invariant:
//! - **RA1 key-in-one-share** All records of a key in an epoch are repeated by one applier, in the
//!   order of their versions, and logged in that order.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_engine::{Decision, Point, TreeId, ValueVersion};
use pando_minuet::engine::is_of_branch;

use crate::database::Database;
use crate::durable::bytes::{Input, Malformed, malformed};
use crate::durable::catalog::CatalogChange;
use crate::durable::record::{self, Head, Record};
use crate::limits;
use crate::remapping;
use crate::session::Session;
use crate::turn::Turn;

use super::loading::join;

/// A record that writes a key.
#[derive(Clone, Copy, Debug)]
struct Noted {
    version: ValueVersion,
    /// Where it begins.
    at: u32,
    /// Of its key.
    hash: u32,
}

/// The records of an epoch. Its memory is used again.
#[derive(Debug, Default)]
pub(super) struct Records {
    bytes: Vec<u8>,
    order: Vec<Noted>,
    /// What becomes of branches and lasting snapshots, in order.
    changes: Vec<CatalogChange>,
    /// Whether there are records of branches but the first.
    of_branches: bool,
    /// The indexes of their trees, after so many changes.
    indexes: (u64, HashMap<TreeId, usize>),
}

/// Those who repeat with a replica's own session.
#[derive(Debug)]
pub(super) struct Appliers {
    /// Other sessions, opened when they are needed first.
    helpers: Vec<Session>,
    /// How many there may be still.
    openable: usize,
    /// Records for each applier, at least.
    records_min: usize,
}

impl Appliers {
    /// Appliers beside `session`.
    pub(super) fn new(session: &Session) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            helpers: Vec::new(),
            openable: if session.may_write_beside() {
                processors.min(limits::APPLIERS_MAX) - 1
            } else {
                0
            },
            records_min: limits::APPLY_RECORDS_MIN,
        }
    }

    /// So many appliers, for few records.
    #[cfg(test)]
    pub(super) fn be_many(&mut self, appliers: usize) {
        (self.openable, self.records_min) = (appliers - 1, 1);
    }

    /// Opens sessions for so many records. The caller has no open turn.
    pub(super) fn prepare(&mut self, database: &Arc<Database>, records: &Records) {
        if self.openable > 0 && records.order.len() >= 2 * self.records_min {
            let open = || database.session().ok();
            let opened = std::iter::from_fn(open).take(std::mem::take(&mut self.openable));
            self.helpers.extend(opened);
        }
    }

    /// Lets each reclaim what it has replaced. The caller has no open turn.
    pub(super) fn tidy(&mut self) {
        self.helpers.iter_mut().for_each(Session::tidy);
    }
}

impl Records {
    /// Takes the groups of an epoch, and those of it that came before; returns its mapping of
    /// databases, if it has one.
    pub(super) fn fill(
        &mut self,
        before: &[u8],
        groups: &[u8],
    ) -> Result<Option<Vec<TreeId>>, Malformed> {
        self.bytes.clear();
        self.order.clear();
        self.changes.clear();
        self.of_branches = false;
        join(before, &mut self.bytes)?;
        join(groups, &mut self.bytes)?;
        if u32::try_from(self.bytes.len()).is_err() {
            return malformed("an epoch is longer than any that is sent");
        }
        let mut newest: Option<(u64, Vec<TreeId>)> = None;
        let mut input = Input(&self.bytes);
        while !input.is_empty() {
            let before = input;
            if let Some(written) = record::pass(&mut input)? {
                let at = self.bytes.len() - before.0.len();
                self.of_branches |= is_of_branch(written.key.tree);
                self.order.push(Noted {
                    version: written.version,
                    at: at as u32,
                    hash: hash(written.key.bytes, at),
                });
                continue;
            }
            match record::take(&mut before.clone())? {
                Record::Mapping { changes, trees }
                    if newest.as_ref().is_none_or(|(newest, _)| changes >= *newest) =>
                {
                    newest = Some((changes, trees));
                }
                Record::Catalog(change) => self.changes.push(change),
                _ => {}
            }
        }
        self.changes.sort_by_key(|change| change.changes);
        // They come as one run of each session there.
        self.order.sort_by_key(|noted| noted.version);
        Ok(newest.map(|(_, trees)| trees))
    }

    /// Gives back memory beyond what most epochs take.
    pub(super) fn shrink(&mut self) {
        self.bytes.shrink_to(limits::APPLY_KEPT_BYTES);
        let most = limits::APPLY_KEPT_BYTES / size_of::<Noted>();
        self.order.clear();
        self.order.shrink_to(most);
    }

    /// Repeats them behind what becomes of branches, and the mapping. The turn holds all gates.
    pub(super) fn repeat(
        &mut self,
        turn: &mut Turn<'_>,
        trees: &mut [TreeId],
        mapped: Option<Vec<TreeId>>,
        appliers: &mut Appliers,
    ) -> Result<(), Malformed> {
        let database = turn.database();
        if database.store.branching().is_some() {
            #[cfg(test)]
            if super::tests::is(super::tests::Fault::ChangesMissed) {
                self.changes.clear();
            }
            turn.repeat_changes(&self.changes)?;
            let changes = database.branches.changes.load(Ordering::Relaxed);
            if self.of_branches && self.indexes.0 != changes {
                self.indexes = (changes, database.branches.indexes(database.databases()));
            }
        }
        if let Some(mapped) = mapped {
            remap(turn.database(), turn, trees, mapped)?;
        }
        let (this, trees) = (&*self, &*trees);
        let shares = this.order.len() / appliers.records_min;
        let helpers = appliers.helpers.len().min(shares.saturating_sub(1));
        let helpers = &mut appliers.helpers[..helpers];
        if let Some(log) = &mut turn.session_mut().log {
            // What is logged here is as long, within a few bytes a record.
            log.reserve(this.bytes.len() + this.bytes.len() / 8);
        }
        if helpers.is_empty() {
            return this.repeat_share(turn, trees, |_| true);
        }
        let shares = helpers.len() as u32 + 1;
        let (logs, now) = (turn.session_mut().log.is_some(), turn.session_mut().now);
        let repeated = std::thread::scope(|scope| {
            let started = helpers.iter_mut().zip(1..).map(|(helper, share)| {
                scope.spawn(move || {
                    let mut turn = helper.turn_beside(logs, now);
                    this.repeat_share(&mut turn, trees, |hash| hash % shares == share)
                })
            });
            let started: Vec<_> = started.collect();
            let own = this.repeat_share(turn, trees, |hash| hash % shares == 0);
            // While this one waits, the others reuse what they replace.
            turn.session_mut().store.unpin();
            started.into_iter().fold(own, |all, one| {
                all.and(one.join().expect("an applier does not panic"))
            })
        });
        turn.session_mut().store.pin();
        for helper in helpers {
            helper.give_log(turn.session_mut());
        }
        repeated
    }

    /// Repeats what belongs to a share of the keys, in order.
    fn repeat_share(
        &self,
        turn: &mut Turn<'_>,
        trees: &[TreeId],
        is_in: impl Fn(u32) -> bool,
    ) -> Result<(), Malformed> {
        let mut heads = Vec::with_capacity(limits::WARM_KEYS_MAX);
        for noted in self.order.iter().filter(|noted| is_in(noted.hash)) {
            let Some(head) = Head::take(&mut Input(&self.bytes[noted.at as usize..]))? else {
                continue;
            };
            // Not every tree there is shown.
            let tree = head.written.key.tree;
            let index = if is_of_branch(tree) {
                self.indexes.1.get(&tree).copied()
            } else {
                trees.iter().position(|one| *one == tree)
            };
            let Some(index) = index else {
                continue;
            };
            heads.push((index, head));
            if heads.len() == limits::WARM_KEYS_MAX {
                repeat_run(turn, &heads)?;
                heads.clear();
            }
        }
        repeat_run(turn, &heads)
    }
}

/// Which share a key is in (RA1 key-in-one-share).
#[inline]
fn hash(key: &[u8], at: usize) -> u32 {
    #[cfg(test)]
    if super::tests::is(super::tests::Fault::SharesMixed) {
        return at as u32;
    }
    let _ = at;
    // The low bits of a checksum of decimal numbers follow their last digits.
    crc32c::crc32c(key).wrapping_mul(0x9e37_79b1) >> 16
}

/// Gives the databases the trees that they have there: exchanges those that have moved, empties
/// those that are new.
fn remap(
    database: &Database,
    turn: &mut Turn<'_>,
    trees: &mut [TreeId],
    mut mapped: Vec<TreeId>,
) -> Result<(), Malformed> {
    // Databases beyond the configured number are kept there, and not shown.
    mapped.truncate(trees.len());
    if mapped.len() != trees.len() {
        return malformed("a mapping has too few databases");
    }
    for (index, there) in mapped.iter().enumerate() {
        let from = trees.iter().position(|tree| tree == there);
        if let Some(from) = from.filter(|from| *from != index) {
            remapping::swap(database, turn.session_mut(), index, from);
            trees.swap(index, from);
        }
    }
    for (index, tree) in mapped.into_iter().enumerate() {
        if trees[index] != tree {
            remapping::replace(database, turn.session_mut(), index);
            trees[index] = tree;
        }
    }
    Ok(())
}

fn repeat_run(turn: &mut Turn<'_>, heads: &[(usize, Head<'_>)]) -> Result<(), Malformed> {
    let keys = heads.iter();
    turn.warm(keys.map(|(index, head)| Some((*index, head.written.key.bytes))));
    for (at, (index, head)) in heads.iter().enumerate() {
        #[cfg(test)]
        if super::tests::is(super::tests::Fault::HalfVisible) {
            turn.hold_own();
            super::tests::look();
            turn.hold_all();
        }
        let mut failed = None;
        turn.recall(at);
        let mut keyspace = turn.keyspace(*index);
        keyspace.repeat(head.written.key.bytes, |old| match head.outcome(old) {
            Ok(Some(new)) => Decision::Write(new),
            Ok(None) if old.is_some() => Decision::Remove,
            Ok(None) => Decision::Keep,
            Err(error) => {
                failed = Some(error);
                Decision::Keep
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
    }
    turn.reuse_memory();
    Ok(())
}
