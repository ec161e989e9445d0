//! The following side: takes the messages of one source.
//!
//! | state | on | becomes |
//! |---|---|---|
//! | any | `Hello` with a full copy | `Loading`; in place, behind `empty` |
//! | `Following`, `Nothing` | `Hello` behind the position that it named | `Following` |
//! | `Loading` | `Entries`, `Epoch` | `Loading` |
//! | `Loading` | `Forest` | `Planting`, behind `empty` |
//! | `Planting` | `Section` | `Planting` |
//! | `Planting` | `Done` | `Following`, by `reveal` |
//! | `Loading` | `Done` | `Following`, by `swap` |
//! | `Following` | `Epoch`, or `Part`s and a `Difference` | `Following`, by `repeat` |
//! | `Following` | `TakeOver` | `Following`, until it is dropped |
//! | `Following` | an epoch, but the log takes no writes | `Following`, at the same position |
//! | any | another error | `Nothing`, its data as they are |

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use pando_engine::{LogEpoch, SessionLimit, TreeId};
use pando_ring::Placement;
use pando_sync::lock;

use super::album::{self, Planted};
use super::check::{CheckStep, Checking, Verdict};
use super::difference::Parts;
use super::loading::Loading;
use super::message::{self, Beat, Begins, EpochSent, Hello, Message};
use super::repeat::{Appliers, Records};
use super::tidying::Tidying;
use super::{Position, ReplicationError};
use crate::clock::{Microseconds, Milliseconds};
use crate::database::Database;
use crate::durable::catalog::{Event, Forest};
use crate::durable::lineage::Lineage;
use crate::durable::standing::Standing;
use crate::placing::Placed;
use crate::pool;
use crate::remapping;
use crate::session::Session;

/// What a replica tells its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    /// The epoch of the source up to which its clients see everything.
    pub applied: LogEpoch,
    /// The epoch up to which everything is durable here; none without a log of files.
    pub durable: LogEpoch,
}

#[derive(Debug)]
enum State {
    Nothing,
    Loading(Loading),
    /// With the trees of the databases there.
    Planting(Box<Planted>, Vec<TreeId>),
    Following,
}

/// What a full copy has brought.
#[derive(Clone, Copy, Debug)]
enum Comes<'a> {
    /// Trees that no database has yet, with no branch but the first.
    Beside(&'a [TreeId]),
    /// What is in the databases' trees and in branches already, and in a checkpoint of this start
    /// where anything is on disk.
    Planted { checkpoint: Option<LogEpoch> },
}

/// See the module's header.
#[derive(Debug)]
pub struct Replica {
    session: Session,
    state: State,
    /// Of this history it has everything up to this epoch, which is [`Self::at`] once the first
    /// epoch of a stream is here.
    history: u128,
    position: LogEpoch,
    /// The last epoch of the stream. Where a source has other epochs than the position's, this is
    /// one of its own.
    at: LogEpoch,
    /// The followed database's tree of each database.
    trees: Vec<TreeId>,
    /// Where the database stands in its own history, if it has nothing else.
    own: Option<Position>,
    /// How the stream of its source begins. Until that is known, [`Self::at`] is an epoch of the
    /// source before, whose numbers may be others.
    begins: Option<Begins>,
    /// It may replace any data, by a copy of whatever there is.
    forced: bool,
    /// A full copy takes the place of the present data from its beginning on.
    in_place: bool,
    /// Its source has handed over to it.
    takes_over: bool,
    /// Epochs there, and the epoch here with what they brought, until that is durable.
    awaited: VecDeque<(LogEpoch, LogEpoch)>,
    durable: LogEpoch,
    /// The newest wall clock and offset there that it has been told, and its own offset.
    told: Told,
    /// A check that runs, and how the last one went.
    checking: Option<Checking>,
    verdict: Option<Verdict>,
    /// Of a difference that comes.
    parts: Parts,
    /// What an epoch is repeated with.
    records: Records,
    appliers: Appliers,
    tidying: Tidying,
}

/// What a replica knows of how far its source is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The source's clock in its last message.
    pub wall_ms: Milliseconds,
    /// Bytes of the source's epochs.
    pub offset: u64,
    /// Bytes of these that are applied here.
    pub applied: u64,
}

impl Replica {
    /// A replica that goes on where the database stands, if it does. The caller has no open turn,
    /// and has made the database follow ([`Database::set_follows`]).
    pub fn new(database: &Arc<Database>) -> Result<Self, SessionLimit> {
        let standing = lock(&database.standing).clone();
        let goes_on = goes_on(database, &standing);
        let session = database.session()?;
        let (state, own, trees) = if goes_on {
            (State::Following, None, standing.trees)
        } else {
            let own = database.own_position();
            (State::Nothing, own, database.mapping.iter().collect())
        };
        if database.acknowledgement.files().is_none() {
            // Whoever stood beside it may follow it later.
            database.keep_epochs()?;
        }
        Ok(Self {
            appliers: Appliers::new(&session),
            session,
            state,
            own,
            trees,
            begins: None,
            history: standing.history,
            position: standing.epoch,
            at: standing.epoch,
            forced: false,
            in_place: false,
            takes_over: false,
            awaited: VecDeque::new(),
            durable: LogEpoch::NONE,
            told: Told::default(),
            checking: None,
            verdict: None,
            parts: Parts::default(),
            records: Records::default(),
            tidying: Tidying::default(),
        })
    }

    /// Where it can go on without a full copy.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        match self.state {
            State::Following => Some(Position {
                history: self.history,
                epoch: self.position,
            }),
            State::Nothing => self.own,
            State::Loading(_) | State::Planting(..) => None,
        }
    }

    /// Lets the next full copy replace data that came from elsewhere, even if the followed database
    /// began empty.
    pub fn force(&mut self) {
        self.forced = true;
    }

    /// Lets full copies take the place of the present data: these go when a copy begins, and
    /// clients are answered with LOADING until it is in. Else both are in memory together.
    pub fn set_in_place(&mut self, in_place: bool) {
        self.in_place = in_place;
    }

    /// Whether its source has begun a full copy because this database has what is not there.
    #[must_use]
    pub fn was_ahead(&self) -> bool {
        self.begins == Some(Begins::CopyForAhead)
    }

    /// Whether its source has handed over: the database takes writes from now on.
    #[must_use]
    pub fn takes_over(&self) -> bool {
        self.takes_over
    }

    /// Whether a full copy is on its way in.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        matches!(self.state, State::Loading(_) | State::Planting(..))
    }

    /// How far its source is.
    #[must_use]
    pub fn told(&self) -> Told {
        self.told
    }

    /// Repeats even small epochs with so many appliers.
    #[cfg(test)]
    pub(super) fn apply_with(&mut self, appliers: usize) {
        self.appliers.be_many(appliers);
    }

    /// Takes a message. After an error its data stay as they were, or as of the epochs that were
    /// repeated, and it has no position: it needs a full copy. Only an epoch for which the log has
    /// no room may come again.
    pub fn take(&mut self, message: &[u8]) -> Result<(), ReplicationError> {
        let taken = message::take(message).and_then(|message| self.take_message(message));
        match &taken {
            Ok(()) => {}
            // Nothing of the epoch is here: it can come again.
            Err(ReplicationError::Log) if matches!(self.state, State::Following) => {}
            Err(_) => self.give_up(),
        }
        taken
    }

    /// Forgets a copy that was on its way in, because its source is gone. It acknowledges nothing
    /// until the next one begins.
    pub fn cut_off(&mut self) {
        self.begins = None;
        self.parts = Parts::default();
        if self.is_loading() {
            self.give_up();
        }
        // A source that went on elsewhere has named its own trees. If it sent no epoch, the
        // position is still one behind which others go on with theirs.
        let database = self.session.database();
        let standing = lock(&database.standing);
        self.trees = if goes_on(database, &standing) {
            standing.trees.clone()
        } else {
            database.mapping.iter().collect()
        };
        drop(standing);
        self.end_check(Some(Verdict::Failed("the link has ended")));
    }

    /// How the last check went, or goes.
    #[must_use]
    pub fn verdict(&self) -> Option<&Verdict> {
        self.verdict.as_ref()
    }

    /// The next step of a check, if one runs.
    pub fn check(&mut self) -> CheckStep {
        let Some(checking) = &mut self.checking else {
            return CheckStep::Idle;
        };
        let step = checking.next(&mut self.session);
        if let Some(verdict) = checking.verdict() {
            self.end_check(Some(verdict));
        }
        step
    }

    fn end_check(&mut self, verdict: Option<Verdict>) {
        if let Some(checking) = self.checking.take() {
            checking.end(&mut self.session);
            self.verdict = verdict;
        }
    }

    fn begin_check(&mut self, position: LogEpoch) {
        self.end_check(None);
        match Checking::begin(&mut self.session, position) {
            Ok(checking) => {
                self.checking = Some(checking);
                self.verdict = Some(Verdict::Running);
            }
            Err(_) => self.verdict = Some(Verdict::Failed("no snapshot can be made here")),
        }
    }

    fn give_up(&mut self) {
        self.parts = Parts::default();
        self.end_check(Some(Verdict::Failed("this server takes a full copy")));
        match std::mem::replace(&mut self.state, State::Nothing) {
            State::Loading(loading) => loading.give_up(self.session.database()),
            State::Planting(planted, _) => {
                planted.give_up(&mut self.session);
                // FA1 planted-whole.
                self.clear();
            }
            State::Nothing | State::Following => {}
        }
        self.mark_loading(false);
    }

    fn take_message(&mut self, message: Message<'_>) -> Result<(), ReplicationError> {
        match (message, &mut self.state) {
            (Message::Hello(hello), _) => self.greet(&hello),
            (Message::Entries { tree, entries }, State::Loading(loading)) => {
                loading.take_entries(&mut self.session, tree, entries)
            }
            (Message::Epoch(sent), State::Loading(loading)) => {
                chained(&sent, self.at)?;
                loading.take_epoch(&mut self.session, sent.groups)?;
                self.arrive(&sent);
                self.tell(sent.wall_ms, sent.offset);
                Ok(())
            }
            (Message::Epoch(sent), State::Following) => self.repeat(&sent, &[]),
            (Message::Part { number, groups }, State::Following) => self.take_part(number, groups),
            (Message::Difference { parts, sent }, State::Following) => {
                self.repeat_difference(parts, &sent)
            }
            (Message::Done { position }, State::Loading(_)) if position == self.at => self.swap(),
            (Message::Forest(forest), State::Loading(_)) => self.plant(*forest),
            (
                Message::Section {
                    node,
                    base,
                    entries,
                },
                State::Planting(planted, _),
            ) => planted.take_section(&mut self.session, (node, base), entries),
            (Message::Done { position }, State::Planting(..)) if position == self.at => {
                self.reveal()
            }
            (Message::Beat(beat), _) => self.beat(beat),
            (Message::TakeOver { position }, State::Following) if position == self.at => {
                self.takes_over = true;
                Ok(())
            }
            (Message::Check { position }, State::Following) if position == self.at => {
                self.begin_check(position);
                Ok(())
            }
            (Message::Digests { keys, digests }, _) => {
                if let Some(checking) = &mut self.checking {
                    checking.take_digests(keys, digests);
                }
                Ok(())
            }
            (Message::Listing(entries), _) => {
                if let Some(checking) = &mut self.checking {
                    checking.take_listing(entries);
                }
                Ok(())
            }
            (Message::Placement(file), _) => self.place(file),
            (Message::Check { .. }, _) => Err(ReplicationError::OutOfTurn("a check")),
            (Message::TakeOver { .. }, _) => Err(ReplicationError::OutOfTurn("to take over")),
            (Message::Entries { .. }, _) => Err(ReplicationError::OutOfTurn("entries")),
            (Message::Forest(_) | Message::Section { .. }, _) => {
                Err(ReplicationError::OutOfTurn("branches"))
            }
            (Message::Epoch(_), _) => Err(ReplicationError::OutOfTurn("an epoch")),
            (Message::Part { .. } | Message::Difference { .. }, _) => {
                Err(ReplicationError::OutOfTurn("a part of a difference"))
            }
            (Message::Done { .. }, _) => Err(ReplicationError::OutOfTurn("the end of a copy")),
        }
    }

    /// Hears of its source: where it is to be, and bytes of epochs there.
    fn beat(&mut self, beat: Beat) -> Result<(), ReplicationError> {
        let Beat {
            position,
            reached,
            offset,
            wall_ms,
        } = beat;
        let following = matches!(self.state, State::Following);
        if following && position != self.at {
            return Err(ReplicationError::Gap {
                got: position,
                previous: position,
                position: self.at,
            });
        }
        if following {
            // Also what came by a copy, or from a source before.
            self.told.applied = reached;
        }
        self.told.wall_ms = wall_ms;
        self.told.offset = offset;
        Ok(())
    }

    /// Knows which keys the source has, so that it refuses the same when it is promoted.
    fn place(&mut self, file: &[u8]) -> Result<(), ReplicationError> {
        let placement = match file {
            [] => None,
            file => Some(Placement::parse(file)?),
        };
        let present = self.session.database().placed();
        if present.map(|placed| placed.placement.encode())
            != placement.as_ref().map(Placement::encode)
        {
            self.session.turn().place(|_, _| {
                placement.map(|placement| Placed {
                    placement,
                    mover: None,
                    patience: Microseconds::ZERO,
                })
            });
        }
        Ok(())
    }

    fn arrive(&mut self, sent: &EpochSent<'_>) {
        (self.history, self.position, self.at) = (sent.history, sent.epoch, sent.epoch);
    }

    fn tell(&mut self, wall_ms: Milliseconds, applied: u64) {
        self.told.wall_ms = wall_ms;
        self.told.applied = applied;
        self.told.offset = self.told.offset.max(applied);
    }

    fn greet(&mut self, hello: &Hello) -> Result<(), ReplicationError> {
        let database = Arc::clone(self.session.database());
        if hello.trees.len() != database.databases() {
            return Err(ReplicationError::Databases {
                got: hello.trees.len(),
                expected: database.databases(),
            });
        }
        self.begins = Some(hello.begins);
        if !hello.placed {
            self.place(&[])?;
        }
        if !hello.begins.copies() {
            return self.go_on(hello);
        }
        if hello.began_empty && database.keys() > 0 && !self.forced && !self.shares(hello) {
            return Err(ReplicationError::Empty);
        }
        self.give_up();
        self.awaited.clear();
        self.durable = LogEpoch::NONE;
        if self.in_place {
            self.empty()?;
        }
        self.mark_loading(true);
        self.state = State::Loading(Loading::begin(&database, hello)?);
        self.own = None;
        (self.history, self.position) = (hello.history, hello.position);
        self.at = hello.position;
        Ok(())
    }

    /// Whether these data came from where that database's came from, or that one's from here.
    fn shares(&self, hello: &Hello) -> bool {
        let database = self.session.database();
        let came_from = lock(&database.standing).history;
        let lineage = lock(&database.lineage);
        let mut theirs = hello.former.iter().chain([&hello.history]);
        theirs.any(|history| *history == came_from || lineage.knows(*history))
    }

    /// Goes on behind the position that it named.
    fn go_on(&mut self, hello: &Hello) -> Result<(), ReplicationError> {
        let here = self.position();
        let adopts = hello.begins == Begins::BehindOther;
        let same = here.is_some_and(|here| adopts || here.epoch == hello.position);
        let Some(here) = here.filter(|_| same) else {
            return Err(ReplicationError::OutOfTurn("a position of another history"));
        };
        if adopts {
            self.trees.clone_from(&hello.trees);
        }
        self.state = State::Following;
        (self.history, self.position) = (here.history, here.epoch);
        self.at = hello.position;
        // What is here is durable with what is written now.
        self.awaited.clear();
        self.durable = LogEpoch::NONE;
        let open = self.session.database().epochs.current();
        self.awaited.push_back((self.at, open));
        Ok(())
    }

    /// FW4 log-has-copy: a checkpoint in progress ends before a copy begins, and none begins until
    /// it ends.
    fn mark_loading(&self, loading: bool) {
        if let Some(durable) = &self.session.database().durable {
            let _checkpoints = loading.then(|| lock(&durable.checkpoints));
            durable.loading.store(loading, Ordering::Relaxed);
        }
    }

    /// Shows the copy instead of the present data.
    fn swap(&mut self) -> Result<(), ReplicationError> {
        let lineage = self.prepare_history()?;
        let State::Loading(loading) = std::mem::replace(&mut self.state, State::Following) else {
            unreachable!("a copy is complete");
        };
        let (there, here) = loading.finish();
        let standing = Standing {
            changes: lock(&self.session.database().standing).changes + 1,
            history: self.history,
            epoch: self.position,
            trees: there.clone(),
        };
        let epoch = self.show(lineage, Comes::Beside(&here), standing, false);
        self.mark_loading(false);
        self.forced = false;
        self.trees = there;
        self.awaited.push_back((self.at, epoch));
        Ok(())
    }

    /// A copy with branches comes. It is planted where the present data are: there are no two first
    /// branches.
    fn plant(&mut self, forest: Forest) -> Result<(), ReplicationError> {
        let database = Arc::clone(self.session.database());
        if let State::Loading(loading) = std::mem::replace(&mut self.state, State::Nothing) {
            let there = loading.there().to_vec();
            loading.give_up(&database);
            if !database.awaits_copy() {
                self.empty()?;
            }
            let planted = Planted::begin(&mut self.session, forest, &there)?;
            self.state = State::Planting(Box::new(planted), there);
        }
        Ok(())
    }

    /// Shows what was planted.
    fn reveal(&mut self) -> Result<(), ReplicationError> {
        let State::Planting(planted, there) = std::mem::replace(&mut self.state, State::Nothing)
        else {
            unreachable!("a copy is complete");
        };
        let finished = planted.finish(&mut self.session);
        // A checkpoint from now on has all of it (FA1 planted-whole).
        self.mark_loading(false);
        let kept = finished.map_err(ReplicationError::from);
        let kept = kept.and_then(|()| album::keep(self.session.database()));
        let kept = kept.and_then(|began| Ok((began, self.prepare_history()?)));
        let (checkpoint, lineage) = kept.inspect_err(|_| self.clear())?;
        let standing = Standing {
            changes: lock(&self.session.database().standing).changes + 1,
            history: self.history,
            epoch: self.position,
            trees: there.clone(),
        };
        let epoch = self.show(lineage, Comes::Planted { checkpoint }, standing, false);
        self.state = State::Following;
        self.forced = false;
        self.trees = there;
        self.awaited.push_back((self.at, epoch));
        Ok(())
    }

    /// Lets the present data go before a copy comes, so that they are not in memory together.
    fn empty(&mut self) -> Result<(), ReplicationError> {
        let lineage = self.prepare_history()?;
        self.show_nothing(lineage);
        Ok(())
    }

    /// What was planted goes.
    fn clear(&mut self) {
        let present = || lock(&self.session.database().lineage).clone();
        let lineage = self.prepare_history().unwrap_or_else(|_| present());
        self.show_nothing(lineage);
    }

    fn show_nothing(&mut self, lineage: Lineage) {
        let database = Arc::clone(self.session.database());
        let trees = std::iter::repeat_with(|| database.store.create_tree());
        let trees: Vec<TreeId> = trees.take(database.databases()).collect();
        let standing = lock(&database.standing).left();
        self.show(lineage, Comes::Beside(&trees), standing, true);
    }

    /// The history of what the present data become. Whoever follows this database takes a full
    /// copy, too: what it has been is not what it becomes.
    fn prepare_history(&self) -> Result<Lineage, ReplicationError> {
        let lineage = self.session.database().prepare_history();
        lineage.map_err(|_| ReplicationError::Log)
    }

    /// Shows what comes instead of the present data, and says that these are `awaited` or here: one
    /// change, under all gates. Returns its epoch.
    fn show(
        &mut self,
        lineage: Lineage,
        comes: Comes<'_>,
        standing: Standing,
        awaited: bool,
    ) -> LogEpoch {
        let database = Arc::clone(self.session.database());
        let mut turn = self.session.turn();
        turn.hold_all();
        let now = database.options.clock.now().milliseconds();
        let open = database.epochs.current();
        database.acknowledgement.rise_above(open, now);
        if let Some(engine) = database.store.pooled() {
            pool::note_histories(engine, &lineage);
        }
        *lock(&database.lineage) = lineage;
        let ring = database.acknowledgement.ring();
        if ring.is_on() {
            ring.turn_on(database.closed_epoch());
        }
        let mut left = Vec::new();
        match comes {
            Comes::Beside(trees) => {
                #[cfg(test)]
                let forgets = !super::tests::is(super::tests::Fault::BranchesLeft);
                #[cfg(not(test))]
                let forgets = true;
                if forgets {
                    turn.forget_branches();
                }
                let all: Vec<usize> = (0..trees.len()).collect();
                let session = turn.session_mut();
                database.change_trees(session, &all, || {
                    let epoch = database.epochs.current();
                    for (index, tree) in trees.iter().enumerate() {
                        left.push(database.mapping.set(index, *tree, epoch));
                    }
                });
                remapping::record(&database, session);
            }
            Comes::Planted {
                checkpoint: Some(checkpoint),
            } => {
                let point = database.epochs.current();
                let planted = Event::Planted { checkpoint };
                database.note_change(turn.session_mut(), point, planted);
            }
            Comes::Planted { checkpoint: None } => {}
        }
        database.stand(turn.session_mut(), standing);
        database.role.set_awaits_copy(awaited);
        let epoch = turn.end_whole();
        for tree in left {
            remapping::drop_tree(&database, tree);
        }
        epoch
    }

    fn take_part(&mut self, number: u64, groups: &[u8]) -> Result<(), ReplicationError> {
        #[cfg(test)]
        if super::tests::is(super::tests::Fault::PartsShown) {
            let mut turn = self.session.turn();
            turn.hold_all();
            self.records.fill(&[], groups)?;
            let (records, appliers) = (&mut self.records, &mut self.appliers);
            records.repeat(&mut turn, &mut self.trees, None, appliers)?;
        }
        self.parts.keep(number, groups)
    }

    fn repeat_difference(
        &mut self,
        number: u64,
        sent: &EpochSent<'_>,
    ) -> Result<(), ReplicationError> {
        if number != self.parts.number() {
            return Err(ReplicationError::OutOfTurn("a difference"));
        }
        let parts = std::mem::take(&mut self.parts);
        let repeated = self.repeat(sent, parts.groups());
        if matches!(repeated, Err(ReplicationError::Log)) {
            // It comes again.
            self.parts = parts;
        }
        repeated
    }

    /// Repeats an epoch, whose first groups came before, under all gates
    /// (FW5 whole-epochs-shown).
    fn repeat(&mut self, sent: &EpochSent<'_>, before: &[u8]) -> Result<(), ReplicationError> {
        chained(sent, self.at)?;
        let mapped = self.records.fill(before, sent.groups)?;
        let database = Arc::clone(self.session.database());
        if !database.acknowledgement.accepts_writes() {
            return Err(ReplicationError::Log);
        }
        self.appliers.prepare(&database, &self.records);
        let mut turn = self.session.turn();
        turn.hold_all();
        let (records, appliers) = (&mut self.records, &mut self.appliers);
        let repeated = records.repeat(&mut turn, &mut self.trees, mapped, appliers);
        let mut repeated = repeated.map_err(ReplicationError::from);
        if let Some(refusal) = turn.session_mut().take_refusal() {
            repeated = repeated.and(Err(refusal.into()));
        }
        let before = lock(&database.standing).clone();
        let standing = match repeated {
            Ok(()) => Standing {
                changes: before.changes + 1,
                history: sent.history,
                epoch: sent.epoch,
                trees: self.trees.clone(),
            },
            // Part of it is there.
            Err(_) => before.left(),
        };
        database.stand(turn.session_mut(), standing);
        let epoch = turn.end_whole();
        self.records.shrink();
        repeated?;
        self.arrive(sent);
        self.awaited.push_back((sent.epoch, epoch));
        self.tell(sent.wall_ms, sent.offset);
        self.tidying.note_work();
        self.tidy();
        Ok(())
    }

    /// Reclaims memory, if it is time to: to be called now and then also when nothing comes. The
    /// caller has no open turn.
    pub fn tidy(&mut self) {
        if self.tidying.is_due(&*self.session.database().options.clock) {
            self.session.tidy();
            self.appliers.tidy();
        }
    }

    /// What its source should know now, and whether anything is still to become durable here.
    pub fn acknowledged(&mut self) -> (Acknowledged, bool) {
        if self.begins.is_none() {
            return (Acknowledged::default(), false);
        }
        let database = Arc::clone(self.session.database());
        let applied = match self.state {
            State::Following => self.at,
            _ => LogEpoch::NONE,
        };
        if !database.is_durable() {
            self.awaited.clear();
            let durable = LogEpoch::NONE;
            return (Acknowledged { applied, durable }, false);
        }
        if let Some(&(_, newest)) = self.awaited.back() {
            database.want_durable(newest);
        }
        let durable = database.durable();
        while let Some(&(there, here)) = self.awaited.front()
            && here <= durable
        {
            self.durable = there;
            self.awaited.pop_front();
        }
        let known = Acknowledged {
            applied,
            durable: self.durable,
        };
        (known, !self.awaited.is_empty())
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Whether a replica can go on where the database stands in another's history.
fn goes_on(database: &Database, standing: &Standing) -> bool {
    standing.epoch > LogEpoch::NONE && standing.trees.len() == database.databases()
}

fn chained(sent: &EpochSent<'_>, position: LogEpoch) -> Result<(), ReplicationError> {
    if sent.previous == position && sent.epoch > position {
        return Ok(());
    }
    #[cfg(test)]
    if super::tests::is(super::tests::Fault::ChainUnchecked) {
        return Ok(());
    }
    Err(ReplicationError::Gap {
        got: sent.epoch,
        previous: sent.previous,
        position,
    })
}
