//! BRANCH MERGE and BRANCH RESET of more keys than are changed in one step: another branch is
//! built, which ours becomes.
//!
//! ```text
//! Begin ──► Apply ──► Freeze ──► CatchUp ──► Finish ── answered
//!             │          ▲          │
//!             │          └──────────┘ much has changed meanwhile
//!             └── only counted, or a conflict fails it ── answered
//! ```
//! | stage | gates | what |
//! |---|---|---|
//! | `Begin` | all | a *hidden* branch is made from ours; theirs, ours and where they part are kept as they are now |
//! | `Apply` | own, in slices | what is merged of each key is written to the hidden branch |
//! | `Freeze` | all | ours is kept as it is now |
//! | `CatchUp` | own, in slices | keys that have changed on ours since it was last kept are merged anew |
//! | `Finish` | all | the same for the last of them; then ours becomes the hidden branch |
//!
//! What the hidden branch has for a key is what merging theirs into ours, as it was kept last, has
//! for it (LM2). So at the end it has what a small merge would write there, and ours becomes it by
//! one record of the log: its point is the end of the epoch, so all that was written to either
//! comes before it, and all that is written from then on behind it.
//!
//! A reset is a merge of what the snapshot shows since the two parted where ours is now: every key
//! becomes what it is there. Where nothing of ours but its pages is others', no branch is built:
//! one that is made from the snapshot has them (`Turn::become_snapshot`).
//!
//! A hidden branch is a branch to the engine, the log and checkpoints. Clients do not see it. One
//! that nobody goes on with, since its client has left, its merge failed or the process ended, is
//! dropped by maintenance.
//!
//! - **LM1 ours-by-one-record** What is merged is seen, and recovered, when the one record counts
//!   that makes ours the hidden branch, and not before.
//! - **LM2 merged-as-kept** Of every key, the hidden branch has what the merge of theirs and of
//!   ours as it was last kept has, once a round is over.
//! - **LM3 versions-go-on** The epoch ends before ours becomes the hidden branch, so versions drawn
//!   later are above all that either had. What clients watch in its databases breaks, and so do cas
//!   tokens: the versions of the two may be the same for different values.
//!
//! Deliberately absent: several at a time; databases that ours exchanges or empties meanwhile. What
//! was emptied or swapped before, on any side, is compared as it is now (`durable::forks`).

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_engine::{Deadline, Key, LogEpoch, NewValue, Point, TreeId, ValueRef, ValueVersion};
use pando_minuet::BranchId;
use pando_minuet::engine::{From, Minuet};
use pando_minuet::limits::DESCENDANTS_MAX;
use pando_protocol::Reply;
use pando_protocol::command::GateNeed;
use pando_sync::lock;

use super::diff::{Side, differing};
use super::merge::{Answer, How, Merged, Naming, merge_key, write};
use super::tally::Tally;
use super::{Named, Turn, of_engine};
use crate::branches::NamedBranch;
use crate::clock::Microseconds;
use crate::database::Database;
use crate::durable::catalog::Event;
#[cfg(test)]
use crate::durable::testing::{Fault, is};
use crate::error::CommandError;
use crate::expiry::Of;
use crate::keyspace::Keyspace;
use crate::limits;
use crate::progress::Slice;
use crate::session_state::SessionState;
use crate::snapshots::NamedSnapshot;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begin,
    Apply,
    Freeze,
    CatchUp,
    Finish,
}

/// What ours is to be.
#[derive(Debug)]
pub(super) enum Aim {
    /// What it is, with what was done to this branch.
    Merged(BranchId),
    /// What a snapshot shows.
    Reset(Arc<NamedSnapshot>, Answer),
}

/// Trees that show versions as they are kept, closed when it is dropped.
#[derive(Debug)]
struct Kept {
    engine: Arc<Minuet>,
    /// Where the two part; none where they have nothing in common. Of a reset, that is ours.
    bases: Option<Vec<Option<TreeId>>>,
    theirs: Vec<TreeId>,
    ours: Vec<TreeId>,
    /// Ours as it was kept later, once it was.
    newer: Vec<TreeId>,
}

impl Kept {
    /// Ours is what it was kept as later.
    fn renew(&mut self) {
        let newer = std::mem::take(&mut self.newer);
        for old in std::mem::replace(&mut self.ours, newer) {
            self.engine.close_base(old);
        }
    }

    /// The sides of a merge of a database, given ours.
    fn sides(&self, database: usize, ours: TreeId) -> Option<[Side; 3]> {
        let base = self
            .bases
            .as_ref()
            .map_or(Some(ours), |bases| bases[database])?;
        Some([base, self.theirs[database], ours].map(Side::of_tree))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let bases = self.bases.iter().flatten().flatten();
        let all = bases
            .chain(&self.theirs)
            .chain(&self.ours)
            .chain(&self.newer);
        for tree in all {
            self.engine.close_base(*tree);
        }
    }
}

/// See the module's header.
#[derive(Debug)]
pub(super) struct Build {
    aim: Aim,
    /// Which one ours is.
    id: BranchId,
    how: How,
    /// The time by which deadlines are judged, so that a key is merged anew as it was before.
    now: Microseconds,
    stage: Stage,
    /// The database that is next, and the key in it.
    at: (usize, Vec<u8>),
    kept: Option<Kept>,
    /// The trees of ours.
    trees: Vec<TreeId>,
    /// How often ours had been reset when this began.
    resets: u64,
    hidden: Option<NamedBranch>,
    /// What ours has merged then.
    marks: Vec<u64>,
    /// Somebody goes on with the hidden branch.
    alive: Arc<()>,
    tally: Tally,
    /// Databases of the hidden branch that were written.
    written: BTreeSet<usize>,
    /// Keys of the first branch some of whose deadlines are others in the hidden one, or were.
    timed: BTreeSet<(usize, Vec<u8>)>,
    rounds: usize,
    /// Keys that were merged anew in this round.
    changed: usize,
}

/// Keys that are compared in a slice, about.
fn slice_keys() -> usize {
    #[cfg(test)]
    if let Some(keys) = small::bounds() {
        return keys.slice;
    }
    limits::MERGE_KEYS_PER_SLICE
}

/// Keys that may be merged anew under all gates.
fn near_keys() -> usize {
    #[cfg(test)]
    if let Some(keys) = small::bounds() {
        return keys.near;
    }
    limits::MERGE_NEAR_KEYS
}

impl Build {
    pub(super) fn new(aim: Aim, id: BranchId, options: (How, Naming), now: Microseconds) -> Self {
        let (how, naming) = options;
        Self {
            aim,
            id,
            how,
            now,
            stage: Stage::Begin,
            at: (0, Vec::new()),
            kept: None,
            trees: Vec::new(),
            resets: 0,
            hidden: None,
            marks: Vec::new(),
            alive: Arc::new(()),
            tally: Tally::new(naming),
            written: BTreeSet::new(),
            timed: BTreeSet::new(),
            rounds: 0,
            changed: 0,
        }
    }

    fn kept(&self) -> &Kept {
        self.kept.as_ref().expect("it has begun")
    }

    /// Runs `work` in the hidden branch's database, or in ours if there is none, at the time by
    /// which this merge judges deadlines.
    fn within<R>(
        &mut self,
        (database, session): (&Database, &mut SessionState),
        work: impl FnOnce(&mut Self, &mut Keyspace<'_>) -> R,
    ) -> R {
        let id = self.hidden.as_ref().map_or(self.id, |hidden| hidden.id);
        let now = std::mem::replace(&mut session.now, self.now);
        let index = database.base_of(id) + self.at.0;
        let result = work(self, &mut Keyspace::new(database, session, index));
        session.now = now;
        result
    }

    /// Fails if this server takes no writes now.
    fn check_writes(&self, database: &Database) -> Result<(), CommandError> {
        if database.role.refuses(true) {
            Err(database.role.error())
        } else if self.how.is_dry {
            Ok(())
        } else if !database.acknowledgement.accepts_writes() {
            Err(CommandError::LogFull)
        } else if !database.has_memory() {
            Err(CommandError::OutOfMemory)
        } else if self.stage == Stage::Finish && database.paused_until(true).is_some() {
            Err(CommandError::MergePaused)
        } else {
            Ok(())
        }
    }

    /// The work of a turn that holds all gates; returns whether it is over.
    fn advance_whole(&mut self, turn: &mut Turn<'_>) -> Result<bool, CommandError> {
        self.check_writes(turn.database)?;
        match self.stage {
            Stage::Begin => {
                self.begin(turn)?;
                self.stage = Stage::Apply;
            }
            Stage::Freeze => {
                self.freeze(turn.database)?;
                (self.stage, self.changed) = (Stage::CatchUp, 0);
                self.rounds += 1;
            }
            Stage::Finish => {
                self.finish(turn)?;
                return Ok(true);
            }
            Stage::Apply | Stage::CatchUp => unreachable!("they run under a gate of their own"),
        }
        Ok(false)
    }

    /// The work of a slice; returns whether it is over.
    fn advance(
        &mut self,
        (database, session): (&Database, &mut SessionState),
    ) -> Result<bool, CommandError> {
        self.check_writes(database)?;
        if self.at.0 < self.trees.len() {
            match self.stage {
                Stage::CatchUp => self.catch_up((database, session))?,
                _ => self.apply((database, session))?,
            }
            return Ok(false);
        }
        let is_counted = self.stage == Stage::Apply && self.how.is_dry;
        if self.stage == Stage::CatchUp {
            self.end_round();
        }
        self.at = (0, Vec::new());
        let is_near = self.changed <= near_keys() || self.rounds >= limits::MERGE_ROUNDS_MAX;
        self.stage = match self.stage {
            Stage::CatchUp if is_near => Stage::Finish,
            _ => Stage::Freeze,
        };
        Ok(is_counted || self.tally.fails(self.how))
    }

    /// Ours is merged as it was kept last (LM2 merged-as-kept).
    fn end_round(&mut self) {
        self.kept.as_mut().expect("it has begun").renew();
    }

    fn begin(&mut self, turn: &mut Turn<'_>) -> Result<(), CommandError> {
        let database = turn.database;
        let gone = CommandError::BranchChanged;
        let ours = database.branches.get(self.id).ok_or(gone)?;
        let trees = |base: usize| -> Vec<TreeId> {
            let indexes = base..base + database.databases();
            indexes.map(|index| database.tree(index)).collect()
        };
        let base = database.base_of(self.id);
        self.trees = trees(base);
        self.resets = ours.resets;
        let engine = Arc::clone(turn.branching()?);
        if !self.how.is_dry {
            let mut merging = lock(&database.branches.merging);
            if merging.strong_count() > 0 {
                return Err(CommandError::MergeUnderWay);
            }
            *merging = Arc::downgrade(&self.alive);
            drop(merging);
            turn.check_log()?;
        }
        let mut merges = None;
        let (bases, theirs) = match &self.aim {
            Aim::Merged(theirs) => {
                let there = database.base_of(*theirs);
                let gone = CommandError::BranchChanged;
                let branch = database.branches.get(*theirs).ok_or(gone)?;
                let parts = turn.part([&branch, &ours])?;
                merges = Some(branch);
                let theirs = engine.open_now(From::Branch(*theirs), &trees(there));
                (Some(parts.bases), theirs)
            }
            Aim::Reset(snapshot, _) => {
                let list = database.snapshots.list();
                if !list.iter().any(|other| other.moment == snapshot.moment) {
                    return Err(CommandError::NoSnapshot);
                }
                let version = From::Snapshot(snapshot.moment.snapshot);
                let there: Vec<TreeId> = snapshot.trees().take(self.trees.len()).collect();
                (None, engine.open_now(version, &there))
            }
        };
        self.kept = Some(Kept {
            ours: engine.open_now(From::Branch(self.id), &self.trees),
            engine,
            bases,
            theirs,
            newer: Vec::new(),
        });
        if !self.how.is_dry {
            if let Some(theirs) = merges {
                self.marks = turn.mark(&theirs)?;
                // What was noted is of this epoch, which ends as the other one is made.
                turn.end_group();
                turn.hold_all();
            }
            self.hidden = Some(turn.make_hidden(&Named::Branch(ours))?);
        }
        Ok(())
    }

    /// Ours, if it is as it was when the merge began, but for its keys.
    fn ours(&self, database: &Database) -> Result<NamedBranch, CommandError> {
        let ours = database.branches.get(self.id);
        let ours = ours.ok_or(CommandError::BranchChanged)?;
        let base = database.base_of(ours.id);
        let same = |(index, tree): (usize, &TreeId)| database.tree(base + index) == *tree;
        if ours.resets == self.resets && self.trees.iter().enumerate().all(same) {
            Ok(ours)
        } else {
            Err(CommandError::BranchChanged)
        }
    }

    fn freeze(&mut self, database: &Database) -> Result<(), CommandError> {
        let ours = self.ours(database)?;
        let kept = self.kept.as_mut().expect("it has begun");
        kept.newer = kept.engine.open_now(From::Branch(ours.id), &self.trees);
        Ok(())
    }

    /// Goes on behind `next` in a database, or in the next one.
    fn go_on(&mut self, next: Option<Vec<u8>>) {
        self.at = match next {
            Some(next) => (self.at.0, next),
            None => (self.at.0 + 1, Vec::new()),
        };
    }

    fn apply(&mut self, place: (&Database, &mut SessionState)) -> Result<(), CommandError> {
        let (database, kept) = (self.at.0, self.kept());
        let Some(sides) = kept.sides(database, kept.ours[database]) else {
            self.go_on(None);
            return Ok(());
        };
        self.within(place, |build, keyspace| {
            let places = [sides[0], sides[1]];
            let found = differing(keyspace, places, b"", &build.at.1, slice_keys());
            for key in &found.keys {
                let merged = merge_key(keyspace, sides, key, build.how.on_conflict);
                build.tally.add(database, key, &merged);
                if build.hidden.is_some()
                    && !build.tally.fails(build.how)
                    && let Merged::Write { value, .. } = merged
                {
                    build.put(keyspace, sides[2], key, value.as_ref())?;
                }
            }
            build.go_on(found.next);
            Ok(())
        })
    }

    /// Merges anew what has changed on ours.
    fn catch_up(&mut self, place: (&Database, &mut SessionState)) -> Result<(), CommandError> {
        let (database, kept) = (self.at.0, self.kept());
        let [then, now] = [kept.ours[database], kept.newer[database]];
        let merge = [then, now].map(|ours| kept.sides(database, ours));
        let [then, now] = [then, now].map(Side::of_tree);
        self.within(place, |build, keyspace| {
            let found = differing(keyspace, [then, now], b"", &build.at.1, slice_keys());
            for key in &found.keys {
                let [before, after] = merge.map(|sides| match sides {
                    Some(sides) => merge_key(keyspace, sides, key, build.how.on_conflict),
                    None => Merged::Nothing,
                });
                build.tally.take_back(database, key, &before);
                build.tally.add(database, key, &after);
                let value = match after {
                    Merged::Write { value, .. } => value,
                    Merged::Nothing | Merged::Conflict(_) => now.value(keyspace, key),
                };
                #[cfg(test)]
                if is(Fault::NoCatchUp) {
                    continue;
                }
                build.put(keyspace, now, key, value.as_ref())?;
            }
            build.changed += found.keys.len();
            build.go_on(found.next);
            Ok(())
        })
    }

    /// Writes a key of the hidden branch.
    fn put(
        &mut self,
        keyspace: &mut Keyspace<'_>,
        ours: Side,
        key: &[u8],
        value: Option<&NewValue<'static>>,
    ) -> Result<(), CommandError> {
        let database = self.at.0;
        if self.id == BranchId::FIRST {
            // Its keys with deadlines are in the index.
            let place = ours.view.key(key);
            let old = keyspace.session.store.get(place, deadlines);
            let version = ValueVersion::from_bits(0);
            let new = deadlines(value.map(|value| value.view(version)));
            if old.iter().chain(&new).any(Option::is_some) {
                self.timed.insert((database, key.to_vec()));
            }
            let keys_max = limits::MERGED_KEYS_MAX;
            if self.timed.len() > keys_max {
                return Err(CommandError::TooManyDeadlinesDiffer { keys_max });
            }
        }
        self.written.insert(database);
        write(keyspace, key, value)
    }

    /// Writes the answer if it is over.
    fn answer(&self, advanced: Result<bool, CommandError>, reply: &mut Reply<'_>) -> bool {
        match advanced {
            Ok(false) => return false,
            Ok(true) => match &self.aim {
                Aim::Merged(_) => self.tally.answer(self.how, reply),
                Aim::Reset(_, answer) => answer.write(Some(self.tally.merged), reply),
            },
            Err(error) => reply.error(error.text()),
        }
        true
    }

    fn finish(&mut self, turn: &mut Turn<'_>) -> Result<(), CommandError> {
        self.freeze(turn.database)?;
        self.changed = 0;
        while self.at.0 < self.trees.len() {
            self.catch_up((turn.database, turn.session))?;
            if self.changed > limits::MERGED_KEYS_MAX {
                let keys_max = limits::MERGED_KEYS_MAX;
                return Err(CommandError::MergeOvertaken { keys_max });
            }
            turn.reuse_memory();
        }
        self.end_round();
        if self.tally.fails(self.how) {
            return Ok(());
        }
        let ours = self.ours(turn.database)?;
        // What was written is in a group of its own, in this epoch, which ends now.
        turn.end_group();
        turn.hold_all();
        turn.become_hidden(&ours, self)
    }
}

/// Of the key, and of its fields.
type Deadlines = [Option<Deadline>; 2];

fn deadlines(value: Option<ValueRef<'_>>) -> Deadlines {
    Of::BOTH.map(|of| value.as_ref().and_then(|value| of.deadline(value)))
}

impl Slice for Build {
    fn step(&mut self, keyspace: &mut Keyspace<'_>, reply: &mut Reply<'_>) -> bool {
        let advanced = self.advance((keyspace.database, keyspace.session));
        self.answer(advanced, reply)
    }

    fn gates(&self) -> GateNeed {
        match self.stage {
            Stage::Begin | Stage::Freeze | Stage::Finish => GateNeed::All,
            Stage::Apply | Stage::CatchUp => GateNeed::Own,
        }
    }

    fn again(&self) -> Box<dyn Slice> {
        unreachable!("runs of the engine that has branches are not repeated");
    }
}

impl Turn<'_> {
    /// The next slice of a large merge, under all gates; returns whether it was the last one.
    pub(in crate::turn) fn build_branch(
        &mut self,
        work: &mut dyn Slice,
        reply: &mut Reply<'_>,
    ) -> bool {
        let build = (work as &mut dyn Any).downcast_mut::<Build>();
        let build = build.expect("no other work needs all gates");
        let advanced = build.advance_whole(self);
        build.answer(advanced, reply)
    }

    /// A branch becomes the hidden one that was built for it (LM1 ours-by-one-record). The turn
    /// holds all gates, and has written nothing so far.
    fn become_hidden(&mut self, ours: &NamedBranch, build: &mut Build) -> Result<(), CommandError> {
        let database = self.database;
        let hidden = build.hidden.take().expect("it was built");
        let is_first = ours.id == BranchId::FIRST;
        let lineage = if is_first {
            // What follows the first branch takes a full copy: it may have no other branch.
            let lineage = database.prepare_history();
            Some(lineage.map_err(|_| CommandError::LogFull)?)
        } else {
            None
        };
        // LM3 versions-go-on.
        let point = self.end_epoch();
        if let Some(lineage) = lineage {
            *lock(&database.lineage) = lineage;
            let ring = database.acknowledgement.ring();
            if ring.is_on() {
                ring.turn_on(database.closed_epoch());
            }
        }
        let timed = std::mem::take(&mut build.timed);
        let old = self.deadlines_of(&timed, &build.trees);
        let base = database.base_of(ours.id);
        let written: Vec<usize> = build.written.iter().map(|index| base + index).collect();
        self.adopt((ours, &hidden), &build.trees, (&written, point))?;
        match &build.aim {
            Aim::Merged(_) => self.add_merged(ours.number, &build.marks),
            Aim::Reset(to, _) => self.unmerge(ours.number, to)?,
        }
        for ((index, key), old) in timed.iter().zip(old) {
            for (of, old) in Of::BOTH.into_iter().zip(old) {
                let key = Key::new(build.trees[*index], key);
                self.session.reconcile(&database.expiry, key, (of, old));
            }
        }
        Ok(())
    }

    /// Makes a hidden branch.
    fn make_hidden(&mut self, origin: &Named) -> Result<NamedBranch, CommandError> {
        let number = self.database.branches.changes.load(Ordering::Relaxed) + 1;
        let name = [limits::HIDDEN_PREFIX, number.to_string().as_bytes()].concat();
        self.make_branch((&name, DESCENDANTS_MAX), origin, None)
    }

    /// Whether a branch can become what a snapshot shows without a look at any key: nothing else is
    /// known of its keys, its databases have the trees that they had, and a branch can be made from
    /// the snapshot.
    pub(super) fn may_become(&self, ours: &NamedBranch, snapshot: &NamedSnapshot) -> bool {
        let Some(engine) = self.database.store.branching() else {
            return false;
        };
        let mut pairs = ours.trees.iter().copied().zip(snapshot.trees());
        ours.id != BranchId::FIRST
            && (snapshot.lasts || !self.database.keeps_branches())
            && pairs.all(|(now, then)| engine.base_of(now) == engine.base_of(then))
    }

    /// A branch that [`Self::may_become`] it becomes what a snapshot shows, at the cost of making a
    /// branch. The turn holds all gates, and has written nothing so far.
    pub(super) fn become_snapshot(
        &mut self,
        ours: &NamedBranch,
        snapshot: &Named,
    ) -> Result<(), CommandError> {
        let hidden = self.make_hidden(snapshot)?;
        // What was noted is of this epoch, which ends now (LM3 versions-go-on). Should the next one
        // not last, maintenance drops the hidden branch.
        self.end_group();
        self.hold_all();
        let point = self.end_epoch();
        let base = self.database.base_of(ours.id);
        let all: Vec<usize> = (base..base + ours.trees.len()).collect();
        self.adopt((ours, &hidden), &ours.trees, (&all, point))
    }

    /// Makes a branch, whose databases have these trees and of which some were written, a hidden
    /// one as it was at the end of the epoch `point`, the last one. The turn holds all gates.
    pub(super) fn adopt(
        &mut self,
        (ours, hidden): (&NamedBranch, &NamedBranch),
        trees: &[TreeId],
        (written, point): (&[usize], LogEpoch),
    ) -> Result<(), CommandError> {
        let (database, engine) = (self.database, Arc::clone(self.branching()?));
        let is_first = ours.id == BranchId::FIRST;
        let pairs = trees.iter().copied().zip(hidden.trees.clone());
        database.change_trees(self.session, written, || {
            let adopted = engine.adopt_branch(ours.id, &hidden.name, pairs);
            adopted.map_err(of_engine).expect("a branch that is there");
            let mut list = database.branches.write();
            list.remove(hidden.id);
            list.change(ours.id, |ours| ours.forks.clone_from(&hidden.forks));
            drop(list);
            for index in written.iter().filter(|_| is_first) {
                database.set_tree(*index, database.tree(*index));
            }
        });
        for tree in &hidden.trees {
            database.expiry.drop_tree(*tree);
        }
        // Tokens of the two may be the same.
        let rollbacks = &database.snapshots.rollbacks;
        rollbacks.fetch_add(1, Ordering::Relaxed);
        let adopted = Event::Adopted {
            branch: ours.number,
            hidden: hidden.number,
            trees: trees.to_vec(),
        };
        #[cfg(test)]
        let point = if is(Fault::AdoptedEarly) {
            point.previous()
        } else {
            point
        };
        #[cfg(test)]
        if is(Fault::AdoptionForgotten) {
            return Ok(());
        }
        database.note_change(self.session, point, adopted);
        Ok(())
    }

    /// The deadlines of these keys of these trees.
    fn deadlines_of(
        &mut self,
        keys: &BTreeSet<(usize, Vec<u8>)>,
        trees: &[TreeId],
    ) -> Vec<Deadlines> {
        let of_key = |(index, key): &(usize, Vec<u8>)| {
            let key = Key::new(trees[*index], key);
            self.session.store.get(key, deadlines)
        };
        keys.iter().map(of_key).collect()
    }

    /// Drops hidden branches that nobody goes on with, and marks that are not needed; returns
    /// whether there was one.
    pub(crate) fn drop_unfinished(&mut self) -> bool {
        let database = self.database;
        let unfinished = || {
            let is_left = lock(&database.branches.merging).strong_count() == 0;
            if !is_left {
                return Vec::new();
            }
            let mut all = database.branches.hidden();
            all.extend(database.stale_marks());
            all
        };
        if unfinished().is_empty() || !database.takes_writes() {
            return false;
        }
        self.hold_all();
        let all = unfinished();
        for branch in &all {
            let dropped = self.drop_named(branch);
            dropped.expect("the engine has branches");
        }
        self.let_go();
        !all.is_empty()
    }
}

/// Bounds by which few keys make a large merge.
#[cfg(test)]
pub(crate) mod small {
    use std::cell::Cell;

    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Bounds {
        /// Keys that are merged in one step.
        pub(crate) keys: usize,
        pub(crate) slice: usize,
        pub(crate) near: usize,
    }

    thread_local! {
        static BOUNDS: Cell<Option<Bounds>> = const { Cell::new(None) };
    }

    pub(crate) fn bounds() -> Option<Bounds> {
        BOUNDS.get()
    }

    /// Sets them on this thread.
    pub(crate) fn set(bounds: Option<Bounds>) {
        BOUNDS.set(bounds);
    }
}

#[cfg(test)]
mod tests;
