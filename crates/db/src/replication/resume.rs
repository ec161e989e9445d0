//! Where a stream can begin: what of this database's log a replica has, by the position that it
//! names.
//!
//! | the position is | the stream |
//! |---|---|
//! | one of these data ([`Place::Here`]) | goes on behind it, with all epochs or a difference |
//! | one that this database has followed through | goes on where this database stood there |
//! | a later one of either | is a full copy: the replica was ahead |
//! | anything else | is a full copy |
//!
//! *Followed through*: the former primary of a promoted replica, and the replicas beside it, name
//! positions in the history that all of them have. Each group that this database repeated says
//! where it stood then (FW7 standing-is-logged). So the first epoch that is sent is the one with
//! the last such group that the replica has too, without this group and those before it.

use std::sync::Arc;
use std::time::Instant;

use pando_durability::log::{FiledEpochs, FollowedEpoch, Log, Next, put_group, records};
use pando_engine::{LogEpoch, TreeId};
use pando_sync::lock;

use super::{Position, difference};
use crate::database::Database;
use crate::durable::bytes::Input;
use crate::durable::lineage::Place;
use crate::durable::record::{self, Record};
use crate::durable::standing::Standing;
use crate::limits;

/// Why a replica takes a full copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyReason {
    /// It names no position.
    New,
    /// It has what this server has not: its data go back to what is here.
    Ahead,
    /// Its position is in a history that is not known here.
    Unknown,
    /// What follows its position is no longer kept.
    TooFarBehind,
    /// Databases were exchanged or emptied since, before they were known by their present trees.
    Remapped,
}

/// Where a stream goes on.
#[derive(Debug)]
pub(super) struct Start {
    /// The last epoch of this database that the replica has.
    pub(super) cursor: LogEpoch,
    /// What is to be read from files first.
    pub(super) filed: Option<FiledEpochs>,
    /// What is sent before that: an epoch of which the replica has some groups.
    pub(super) first: Option<FollowedEpoch>,
    /// The tree of each database, if the replica knows others.
    pub(super) trees: Option<Vec<TreeId>>,
    /// Not all epochs behind it are kept, but what has changed is known.
    pub(super) differs: bool,
}

/// Where the stream for a replica at `position` goes on.
pub(super) fn resume(database: &Database, position: Position) -> Result<Start, CopyReason> {
    let newest = database.closed_epoch();
    let at = (position.history, position.epoch);
    let place = lock(&database.lineage).place(at, newest);
    #[cfg(test)]
    let place = if super::tests::is(super::tests::Fault::StaleHistory) {
        Place::Here
    } else {
        place
    };
    match place {
        Place::Here => {
            let ring = database.acknowledgement.ring();
            let (mut filed, mut differs) = (None, false);
            if ring.next(position.epoch, LogEpoch::NONE) == Next::Gone {
                filed = read_behind(database, position.epoch);
                differs = filed.is_none();
                if differs && difference::knows(database, position.epoch).is_none() {
                    return Err(CopyReason::TooFarBehind);
                }
            }
            Ok(Start {
                cursor: position.epoch,
                filed,
                first: None,
                trees: None,
                differs,
            })
        }
        Place::Before => Err(CopyReason::Ahead),
        Place::Elsewhere => resume_followed(database, position),
    }
}

/// What follows an epoch in the log's files, if they reach back to it, and so far that the ring has
/// the rest.
pub(super) fn read_behind(database: &Database, epoch: LogEpoch) -> Option<FiledEpochs> {
    wait_for_files(database);
    let filed = database
        .acknowledgement
        .files()?
        .epochs_behind(epoch)
        .ok()?;
    (filed.start() == epoch && !filed.is_empty()).then_some(filed)
}

/// Ends the epoch, and waits until what was written is in files; without them does no more. A full
/// copy would wait for the same disk (FW3 durable-above), so only one that has failed, or that
/// takes very long, costs one.
fn wait_for_files(database: &Database) {
    database.end_epoch();
    let Some(durable) = &database.durable else {
        return;
    };
    let written = durable.log.newest_written();
    let began = Instant::now();
    while !database.want_durable(written)
        && database.acknowledgement.accepts_writes()
        && began.elapsed() < limits::FILES_PATIENCE
    {
        durable.wait_for_durable(limits::FILES_PATIENCE / 1000);
    }
}

/// A group of this database's log that says where it stood.
#[derive(Clone, Debug)]
struct Stood {
    standing: Standing,
    /// The epoch with the group, and the one before it.
    epoch: LogEpoch,
    previous: LogEpoch,
}

/// What is looked for: the last group that the replica has too.
struct Search {
    position: Position,
    last: Option<Stood>,
    /// The first that stood anywhere behind it.
    next: Option<Standing>,
    /// Whether this database has stood behind the position.
    passed: bool,
    /// The newest epoch in which databases got other trees.
    mapped: LogEpoch,
}

impl Search {
    /// Looks at an epoch, which is behind those before.
    fn look(&mut self, epoch: &FollowedEpoch) -> bool {
        let mut found: Vec<Standing> = Vec::new();
        let whole = each_group(&epoch.groups, |_, standing, maps| {
            found.extend(standing);
            if maps {
                self.mapped = epoch.epoch;
            }
        });
        // Groups of several sessions are in no order.
        found.sort_by_key(|standing| standing.changes);
        for standing in found {
            let Position { history, epoch: at } = self.position;
            let same = standing.history == history && standing.epoch > LogEpoch::NONE;
            if same && standing.epoch <= at {
                self.next = None;
                self.last = Some(Stood {
                    standing,
                    epoch: epoch.epoch,
                    previous: epoch.previous,
                });
            } else {
                self.passed |= same;
                self.next.get_or_insert(standing);
            }
        }
        whole
    }

    /// The group, if the position is there or nothing is between the two.
    fn result(self) -> Result<(Stood, LogEpoch), CopyReason> {
        let Position { history, epoch } = self.position;
        let Some(last) = self.last else {
            return Err(if self.passed {
                CopyReason::TooFarBehind
            } else {
                CopyReason::Unknown
            });
        };
        let is_there = last.standing.epoch == epoch;
        let passes = |next: &Standing| next.history == history && next.epoch > epoch;
        if is_there || self.next.as_ref().is_some_and(passes) {
            Ok((last, self.mapped))
        } else {
            Err(CopyReason::Ahead)
        }
    }
}

/// Calls `look` with each group: its records, the standing in it, and whether it changes the
/// mapping of databases. `false`: something cannot be read.
fn each_group(groups: &[u8], mut look: impl FnMut(&[u8], Option<Standing>, bool)) -> bool {
    records(groups, |bytes| {
        let (mut stood, mut maps) = (None, false);
        let mut input = Input(bytes);
        while !input.is_empty() {
            match record::take(&mut input) {
                Ok(Record::Standing(standing)) => stood = Some(standing),
                Ok(Record::Mapping { .. }) => maps = true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
        look(bytes, stood, maps);
        true
    })
}

fn resume_followed(database: &Database, position: Position) -> Result<Start, CopyReason> {
    let trees: Vec<TreeId> = database.mapping.iter().collect();
    wait_for_files(database);
    let mut search = Search {
        position,
        last: None,
        next: None,
        passed: false,
        mapped: LogEpoch::NONE,
    };
    let began = lock(&database.lineage).begins();
    let searched = match database.acknowledgement.files() {
        Some(log) => search_files(log, began, &mut search),
        None => search_ring(database, &mut search),
    };
    searched.ok_or(CopyReason::TooFarBehind)?;
    let (stood, mapped) = search.result()?;
    let changed = (0..database.databases()).map(|index| database.mapping.changed_in(index));
    if changed.fold(mapped, LogEpoch::max) > stood.epoch {
        return Err(CopyReason::Remapped);
    }
    let mut filed = None;
    let first = match database.acknowledgement.files() {
        Some(_) => {
            let mut behind = read_behind(database, stood.previous);
            let first = behind.as_mut().map(FiledEpochs::next_epoch);
            filed = behind.filter(|rest| !rest.is_empty());
            first.and_then(Result::ok).flatten()
        }
        None => match ring_behind(database, stood.previous) {
            Next::Epoch(epoch) => Some(copy_of(&epoch)),
            _ => None,
        },
    };
    let mut first = first.filter(|first| first.epoch == stood.epoch);
    let first = first.as_mut().ok_or(CopyReason::TooFarBehind)?;
    first.groups = groups_behind(&first.groups, stood.standing.changes)?;
    let has_all = first.groups.is_empty();
    Ok(Start {
        cursor: if has_all { stood.epoch } else { stood.previous },
        filed,
        first: (!has_all).then(|| copy_of(first)),
        trees: Some(trees),
        differs: false,
    })
}

fn search_files(log: &Log, began: LogEpoch, search: &mut Search) -> Option<()> {
    let mut filed = log.epochs_behind(began).ok()?;
    while let Some(epoch) = filed.next_epoch().ok()? {
        search.look(&epoch).then_some(())?;
    }
    Some(())
}

fn ring_behind(database: &Database, epoch: LogEpoch) -> Next {
    let ring = database.acknowledgement.ring();
    ring.next(epoch, database.followable())
}

fn search_ring(database: &Database, search: &mut Search) -> Option<()> {
    let mut at = database.acknowledgement.ring().start();
    loop {
        match ring_behind(database, at) {
            Next::Epoch(epoch) => {
                search.look(&epoch).then_some(())?;
                at = epoch.epoch;
            }
            Next::Nothing => return Some(()),
            Next::Gone => return None,
        }
    }
}

fn copy_of(epoch: &FollowedEpoch) -> FollowedEpoch {
    FollowedEpoch {
        groups: epoch.groups.clone(),
        ..*epoch
    }
}

/// The groups without those that stood no further than after so many changes. One that changes the
/// mapping of databases must not be left: which trees they had then is not known.
fn groups_behind(groups: &[u8], changes: u64) -> Result<Vec<u8>, CopyReason> {
    let mut left = Vec::new();
    let mut remapped = false;
    each_group(groups, |bytes, standing, maps| {
        let has = standing.is_some_and(|standing| standing.changes <= changes);
        #[cfg(test)]
        let has = has && !super::tests::is(super::tests::Fault::GroupsRepeated);
        if !has {
            remapped |= maps;
            put_group(&mut left, bytes);
        }
    });
    if remapped {
        Err(CopyReason::Remapped)
    } else {
        Ok(left)
    }
}

impl Database {
    /// Where this database stands in its own history, when nobody writes: another one may have
    /// followed it up to there. The caller has no open turn.
    pub(super) fn own_position(&self) -> Option<Position> {
        self.end_epoch();
        let ring = self.acknowledgement.ring();
        let epoch = match self.acknowledgement.files() {
            Some(log) => log.newest_written(),
            None if ring.is_on() => ring.newest(),
            None => return None,
        };
        (epoch > LogEpoch::NONE).then(|| Position {
            history: lock(&self.lineage).owner(epoch),
            epoch,
        })
    }

    /// Keeps epochs in memory from now on, for those who follow. The caller has no open turn.
    pub(super) fn keep_epochs(self: &Arc<Self>) -> Result<(), pando_engine::SessionLimit> {
        let ring = self.acknowledgement.ring();
        if ring.is_on() {
            return Ok(());
        }
        let mut session = self.session()?;
        let mut turn = session.turn();
        turn.hold_all();
        if !ring.is_on() {
            let now = self.options.clock.now().milliseconds();
            let open = self.epochs.current();
            self.acknowledgement.rise_above(open, now);
            let files = self.acknowledgement.files();
            ring.turn_on(files.map_or_else(|| self.closed_epoch(), Log::newest_written));
        }
        Ok(())
    }
}
