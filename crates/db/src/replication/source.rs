//! The followed side: makes the messages for one replica.
//!
//! ```text
//! greet ── a position behind which everything is kept ─────────────────► follow
//!    ├──── one behind which it is known what has changed ──► differ ───────┤
//!    └──── else ──► copy ── all entries sent ──► settle ── Done sent ───────┘
//! ```
//!
//! What follows a position is in the ring, or else in the log's files (`resume`), which are read
//! until the ring has the rest.
//!
//! `copy` sends entries and epochs in turn, so that the ring need not hold what happens during all
//! of it. `settle` sends everything up to the epoch that was open when the last entry was read:
//! then the copy is what the database was in that epoch. Where there are branches, and the replica
//! can have them, `album` takes the place of both.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pando_durability::log::{FiledEpochs, FollowedEpoch, Next};
use pando_engine::{LogEpoch, SessionLimit, TreeId};
use pando_sync::lock;

use super::Position;
use super::album::AlbumCopy;
use super::check::{CheckWish, Checked};
use super::difference::{Difference, Step};
use super::message::{
    Begins, Hello, put_beat, put_difference, put_done, put_epoch_head, put_placement, put_take_over,
};
use super::resume::{self, CopyReason, Start};
use super::scan::{Entries, Scan, Scanned};
use super::tidying::Tidying;
use crate::clock::Milliseconds;
use crate::database::Database;
use crate::session::Session;

/// What [`Source::next`] has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// A message.
    Message,
    /// The beginning of a message; the groups of this epoch are the rest.
    Epoch(Arc<FollowedEpoch>),
    /// Nothing, but there is more to do: a check goes on.
    Worked,
    /// Nothing: the replica has been sent everything that it may see.
    Nothing,
    /// Nothing: what the replica needs next is no longer kept. It must ask anew.
    Gone,
}

#[derive(Debug)]
enum Stage {
    Greet {
        /// Why a full copy follows, if one does.
        reason: Option<CopyReason>,
        /// The trees that the replica is to take.
        trees: Option<Vec<TreeId>>,
        /// What comes first.
        difference: Option<Box<Difference>>,
    },
    Differ(Box<Difference>),
    Copy {
        scan: Scan,
        entries_next: bool,
    },
    Settle {
        until: LogEpoch,
    },
    /// Of the end of this epoch.
    Album(Box<AlbumCopy>, LogEpoch),
    /// All of it was sent.
    AlbumSent {
        until: LogEpoch,
    },
    Follow,
}

/// See the module's header.
#[derive(Debug)]
pub struct Source {
    session: Session,
    /// The database's history when it began: with another one, what follows belongs to other data.
    history: u128,
    stage: Stage,
    /// What is sent before anything else: an epoch of which the replica has some groups.
    first: Option<FollowedEpoch>,
    /// What is read from files before the ring.
    filed: Option<FiledEpochs>,
    /// The last epoch that was sent, or where the stream began.
    cursor: LogEpoch,
    /// A check of the replica (CK1 same-moment).
    checked: Option<Checked>,
    /// The change of the placement that was sent last.
    placed: Option<u64>,
    tidying: Tidying,
    differences: u64,
    /// Where the replica has branches: how often those here had changed when a copy without them
    /// began.
    branched: Option<u64>,
}

impl Source {
    /// Messages for a replica that is at `position`, if it has one: it goes on from there if it
    /// can. `has_branches` says whether its engine has. The caller has no open turn. Reads the
    /// log's files if what follows the position is only there: O(log) then.
    pub fn new(
        database: &Arc<Database>,
        position: Option<Position>,
        has_branches: bool,
    ) -> Result<Self, SessionLimit> {
        let mut session = database.session()?;
        database.keep_epochs()?;
        let history = lock(&database.lineage).present();
        let mut start = position.map_or(Err(CopyReason::New), |it| resume::resume(database, it));
        let mut difference = None;
        if let Ok(Start {
            cursor,
            differs: true,
            ..
        }) = start
        {
            difference = Difference::begin(&mut session, cursor).map(Box::new);
            if difference.is_none() {
                start = Err(CopyReason::TooFarBehind);
            }
        }
        let reason = start.as_ref().err().copied();
        let start = start.unwrap_or_else(|_| Start {
            cursor: database.acknowledgement.ring().newest(),
            filed: None,
            first: None,
            trees: None,
            differs: false,
        });
        Ok(Self {
            session,
            history,
            stage: Stage::Greet {
                reason,
                trees: start.trees,
                difference,
            },
            first: start.first,
            filed: start.filed,
            cursor: start.cursor,
            checked: None,
            placed: None,
            tidying: Tidying::default(),
            differences: 0,
            branched: has_branches.then(|| changes_of_branches(database)),
        })
    }

    /// Why it sends a full copy, if it begins with one.
    #[must_use]
    pub fn copies(&self) -> Option<CopyReason> {
        match self.stage {
            Stage::Greet { reason, .. } => reason,
            _ => None,
        }
    }

    /// How many differences it has sent.
    #[must_use]
    pub fn differences(&self) -> u64 {
        self.differences
    }

    /// The last epoch that was sent.
    #[must_use]
    pub fn cursor(&self) -> LogEpoch {
        self.cursor
    }

    /// Whether a full copy is being sent.
    #[must_use]
    pub fn is_copying(&self) -> bool {
        match self.stage {
            Stage::Greet { reason, .. } => reason.is_some(),
            Stage::Copy { .. }
            | Stage::Settle { .. }
            | Stage::Album(..)
            | Stage::AlbumSent { .. } => true,
            Stage::Differ(_) | Stage::Follow => false,
        }
    }

    /// Appends the next message to `out`.
    pub fn next(&mut self, out: &mut Vec<u8>) -> Sent {
        if self.place(out) {
            return Sent::Message;
        }
        loop {
            match &mut self.stage {
                // It has nothing to show until its own copy is in.
                Stage::Greet { .. } if self.session.database().awaits_copy() => {
                    return Sent::Gone;
                }
                Stage::Greet { .. } => {
                    self.greet(out);
                    return Sent::Message;
                }
                Stage::Differ(_) => return self.differ(out),
                Stage::Copy { scan, entries_next } => {
                    if std::mem::replace(entries_next, true) {
                        *entries_next = false;
                        if scan.next(&mut self.session, &mut Entries(out)) == Scanned::Some {
                            return Sent::Message;
                        }
                        let until = self.session.database().epochs.current();
                        self.stage = Stage::Settle { until };
                    } else {
                        match self.next_epoch(out) {
                            Sent::Nothing => {}
                            sent => return sent,
                        }
                    }
                }
                Stage::Settle { until } => {
                    let until = *until;
                    // In this order: what was closed by then is in the ring.
                    let settled = self.session.database().followable() >= until;
                    match self.next_epoch(out) {
                        Sent::Nothing if settled => {
                            put_done(out, self.cursor);
                            self.stage = Stage::Follow;
                            return Sent::Message;
                        }
                        sent => return sent,
                    }
                }
                Stage::Album(album, until) => {
                    let until = *until;
                    if album.next(&mut self.session, out) {
                        return Sent::Message;
                    }
                    self.stage = Stage::AlbumSent { until };
                }
                Stage::AlbumSent { until } => {
                    let database = self.session.database();
                    if lock(&database.lineage).present() != self.history {
                        return Sent::Gone;
                    }
                    // FW3 durable-above.
                    if database.followable() < *until {
                        return Sent::Nothing;
                    }
                    put_done(out, self.cursor);
                    self.stage = Stage::Follow;
                    return Sent::Message;
                }
                Stage::Follow => return self.follow(out),
            }
        }
    }

    /// The next step of a difference.
    fn differ(&mut self, out: &mut Vec<u8>) -> Sent {
        let Stage::Differ(difference) = &mut self.stage else {
            unreachable!("a difference is being sent");
        };
        let step = difference.next(&mut self.session, out);
        let epoch = difference.epoch();
        let database = self.session.database();
        let lineage = lock(&database.lineage);
        if lineage.present() != self.history {
            return Sent::Gone;
        }
        match step {
            Step::Part => return Sent::Message,
            Step::Worked => return Sent::Worked,
            // FW3 durable-above.
            Step::All(..) if database.followable() < epoch => return Sent::Nothing,
            Step::All(parts, sent) => {
                put_difference(out, parts, lineage.owner(epoch), &sent);
                drop(lineage);
                self.end_difference(Stage::Follow);
                self.cursor = epoch;
                self.differences += 1;
            }
            Step::Fails => {
                drop(lineage);
                self.copy_instead();
                return self.next(out);
            }
        }
        Sent::Message
    }

    /// What the replica needs is not known any more, or is too much.
    fn copy_instead(&mut self) {
        self.end_difference(Stage::Greet {
            reason: Some(CopyReason::TooFarBehind),
            trees: None,
            difference: None,
        });
        self.cursor = self.session.database().acknowledgement.ring().newest();
    }

    fn end_difference(&mut self, stage: Stage) {
        if let Stage::Differ(difference) = std::mem::replace(&mut self.stage, stage) {
            difference.end(&mut self.session);
        }
    }

    /// Whether branches have changed in an epoch that is to be sent amid a copy: one that was made
    /// from what is half copied cannot be made there.
    fn is_overtaken(&self) -> bool {
        let changes = changes_of_branches(self.session.database());
        let copies = matches!(self.stage, Stage::Copy { .. } | Stage::Settle { .. });
        #[cfg(test)]
        let copies = copies && !super::tests::is(super::tests::Fault::Overtaken);
        copies && self.branched.is_some_and(|before| before != changes)
    }

    fn greet(&mut self, out: &mut Vec<u8>) {
        let Stage::Greet {
            reason: copies,
            trees: adopt,
            difference,
        } = std::mem::replace(&mut self.stage, Stage::Follow)
        else {
            unreachable!("a stream begins");
        };
        let database = Arc::clone(self.session.database());
        let mut turn = self.session.turn();
        let mut album = None;
        if copies.is_some() && self.branched.is_some() {
            turn.hold_all();
            if database.is_forked() {
                let until = turn.end_epoch();
                album = Some(Stage::Album(Box::new(AlbumCopy::open(&turn)), until));
                self.cursor = database.acknowledgement.ring().newest();
            }
            self.branched = Some(changes_of_branches(&database));
        }
        let mut trees = database.mapping();
        trees.truncate(database.databases());
        let changes = database.mapping.changes.load(Ordering::Relaxed);
        drop(turn);
        let begins = match copies {
            Some(CopyReason::Ahead) => Begins::CopyForAhead,
            Some(_) => Begins::Copy,
            None if adopt.is_some() => Begins::BehindOther,
            None => Begins::Behind,
        };
        let came_from = lock(&database.standing).history;
        let changes_placed = database.placement_changes();
        let placed = database.placed().is_some();
        if !placed {
            // The hello says so.
            self.placed = Some(changes_placed);
        }
        let lineage = lock(&database.lineage);
        let hello = Hello {
            history: lineage.owner(self.cursor),
            begins,
            began_empty: database.began_empty,
            placed,
            position: self.cursor,
            changes,
            trees: adopt.unwrap_or_else(|| trees.clone()),
            former: lineage.ancestors(came_from),
        };
        drop(lineage);
        hello.put(out);
        self.stage = if let Some(album) = album {
            album
        } else if begins.copies() {
            Stage::Copy {
                scan: Scan::of(trees, None),
                entries_next: true,
            }
        } else {
            difference.map_or(Stage::Follow, Stage::Differ)
        };
    }

    /// Tells the replica which keys are here, unless it knows: before any epoch that was closed
    /// since that changed.
    fn place(&mut self, out: &mut Vec<u8>) -> bool {
        let database = self.session.database();
        let changes = database.placement_changes();
        if matches!(self.stage, Stage::Greet { .. }) || self.placed == Some(changes) {
            return false;
        }
        self.placed = Some(changes);
        let placed = database.placed();
        let file = placed.map(|placed| placed.placement.encode());
        put_placement(out, &file.unwrap_or_default());
        true
    }

    /// The replica asks for a check, or says what it needs of the one that runs.
    pub fn check(&mut self, wish: CheckWish) {
        match wish {
            CheckWish::Begin => {
                self.end_check();
                self.checked = Some(Checked::begin(&mut self.session, self.branched.is_some()));
            }
            CheckWish::List(buckets) => match &mut self.checked {
                Some(checked) if !buckets.is_empty() => checked.list(&buckets),
                _ => self.end_check(),
            },
        }
    }

    fn end_check(&mut self) {
        if let Some(checked) = self.checked.take() {
            checked.end(&mut self.session);
        }
    }

    /// The next epoch, or the next step of a check.
    fn follow(&mut self, out: &mut Vec<u8>) -> Sent {
        let mut works = false;
        // Files are read to their end, and epochs may close between two looks.
        let passed = |checked: &Checked| checked.is_passed(self.cursor);
        if self.filed.is_none() && self.checked.as_ref().is_some_and(passed) {
            self.check(CheckWish::Begin);
        }
        if let Some(checked) = &mut self.checked {
            let database = self.session.database();
            // In this order: what was closed by then is in the ring.
            let is_there = database.followable() >= checked.epoch();
            let ring = database.acknowledgement.ring();
            let has_all = is_there
                && self.filed.is_none()
                && self.first.is_none()
                && ring.next(self.cursor, checked.epoch()) == Next::Nothing;
            #[cfg(test)]
            let has_all = has_all || super::tests::is(super::tests::Fault::CheckedEarly);
            works = checked.next(&mut self.session, has_all.then_some(self.cursor), out);
            if !out.is_empty() {
                return Sent::Message;
            }
        }
        match self.next_epoch(out) {
            Sent::Nothing if works => Sent::Worked,
            Sent::Gone if self.begin_difference() => Sent::Worked,
            sent => sent,
        }
    }

    /// Goes on with a difference where an epoch is no longer kept; whether it can.
    fn begin_difference(&mut self) -> bool {
        self.end_check();
        if lock(&self.session.database().lineage).present() != self.history {
            return false;
        }
        let difference = Difference::begin(&mut self.session, self.cursor);
        let begun = difference.is_some();
        if let Some(difference) = difference {
            self.stage = Stage::Differ(Box::new(difference));
        }
        begun
    }

    fn next_epoch(&mut self, out: &mut Vec<u8>) -> Sent {
        if let Some(first) = self.first.take() {
            return self.send(first.into(), out);
        }
        loop {
            if let Some(filed) = &mut self.filed {
                let next = filed.next_epoch();
                let left = filed.bytes_left();
                match next {
                    Ok(Some(mut epoch)) => {
                        let (offset, _) = self.session.database().backlog();
                        epoch.offset = offset.saturating_sub(left);
                        return self.send(epoch.into(), out);
                    }
                    Ok(None) => self.filed = None,
                    Err(_) => return Sent::Gone,
                }
            }
            let database = self.session.database();
            let durable = database.followable();
            #[cfg(test)]
            let durable = if super::tests::is(super::tests::Fault::DurableIgnored) {
                database.closed_epoch()
            } else {
                durable
            };
            match database.acknowledgement.ring().next(self.cursor, durable) {
                Next::Nothing => return Sent::Nothing,
                Next::Epoch(epoch) => return self.send(epoch, out),
                Next::Gone => match resume::read_behind(database, self.cursor) {
                    Some(filed) => self.filed = Some(filed),
                    None => return Sent::Gone,
                },
            }
        }
    }

    /// Sends an epoch, unless the data are no longer those of its history.
    fn send(&mut self, epoch: Arc<FollowedEpoch>, out: &mut Vec<u8>) -> Sent {
        let lineage = lock(&self.session.database().lineage);
        #[cfg(test)]
        let gone = !super::tests::is(super::tests::Fault::CopyPassed);
        #[cfg(not(test))]
        let gone = true;
        if gone && lineage.present() != self.history || self.is_overtaken() {
            return Sent::Gone;
        }
        put_epoch_head(out, lineage.owner(epoch.epoch), &epoch);
        self.cursor = epoch.epoch;
        Sent::Epoch(epoch)
    }

    /// Appends a sign of life, which says up to where the replica must be.
    pub fn beat(&self, out: &mut Vec<u8>) {
        let database = self.session.database();
        let reached = database.acknowledgement.ring().offset(self.cursor);
        let (offset, _) = database.backlog();
        let now = database.options.clock.now().milliseconds();
        put_beat(out, self.cursor, (reached, offset), now);
    }

    /// Appends the last message: the replica has everything, and takes writes from now on. The
    /// caller has seen to it that nothing more is written here.
    pub fn take_over(&self, out: &mut Vec<u8>) {
        put_take_over(out, self.cursor);
    }

    /// [`Self::next`] with whole messages.
    #[cfg(test)]
    pub(super) fn next_whole(&mut self, out: &mut Vec<u8>) -> Sent {
        match self.next(out) {
            Sent::Epoch(epoch) => {
                out.extend_from_slice(&epoch.groups);
                Sent::Message
            }
            sent => sent,
        }
    }

    /// Ends the open epoch, if the one before it ended this long ago and anything is in it: to be
    /// called while this thread sends, or waits for the replica. Else what is written meanwhile
    /// would be one long epoch, of which the replica shows nothing before it has all.
    pub fn end_long_epoch(&self, limit: Duration) {
        let database = self.session.database();
        let ring = database.acknowledgement.ring();
        let now = database.options.clock.now().milliseconds();
        let lasted = |before: Milliseconds| now.0.abs_diff(before.0);
        let is_long = ring.newest_wall().map_or(u64::MAX, lasted) >= limit.as_millis() as u64;
        if is_long && !self.is_copying() && ring.has_open() {
            database.press();
        }
    }

    /// Waits until there may be something to send, for this long at most; makes sure that what is
    /// written becomes durable.
    pub fn wait(&mut self, limit: Duration) {
        let database = Arc::clone(self.session.database());
        let ring = database.acknowledgement.ring();
        ring.wait(self.cursor, limit);
        let newest = ring.newest();
        if newest > database.followable() {
            // Closed, and not durable.
            if !database.want_durable(newest) {
                database.wait_for_durable(limit);
            }
        } else if newest == self.cursor {
            let until = match self.stage {
                Stage::Settle { until } | Stage::AlbumSent { until } => Some(until),
                _ => self.checked.as_ref().and_then(Checked::awaits),
            };
            if until.is_some_and(|until| database.followable() < until) || ring.has_open() {
                database.press();
            }
        }
        self.tidying.note_work();
        if self.tidying.is_due(&*database.options.clock) {
            self.session.tidy();
        }
    }
}

/// How often branches and lasting snapshots have changed.
fn changes_of_branches(database: &Database) -> u64 {
    // Relaxed: whoever has an epoch from the ring sees the changes in it.
    database.branches.changes.load(Ordering::Relaxed)
}

impl Drop for Source {
    fn drop(&mut self) {
        self.end_check();
        self.end_difference(Stage::Follow);
        if let Stage::Greet {
            difference: Some(difference),
            ..
        } = &self.stage
        {
            difference.end(&mut self.session);
        }
    }
}
