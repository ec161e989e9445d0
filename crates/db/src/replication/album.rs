//! A full copy with branches and lasting snapshots: an album of the followed database at one
//! moment, node by node, as a checkpoint has it.
//!
//! The source opens the album under all gates, at the end of an epoch, and sends the first node's
//! keys and then what differs in each other one from its parent. The epochs since stay in the ring,
//! or the log's files, until the album is over. The replica plants them into its own first branch,
//! in the same order, while it refuses everything (its data have gone before). None of it is
//! logged: a checkpoint is taken before the data are shown, and no epoch is repeated before.
//!
//! - **FA1 planted-whole** What was planted is there for clients, and for the next start, when all
//!   of it is in a checkpoint, or not at all: when a copy is given up, its branches go, and the
//!   databases are empty again. While that checkpoint is taken the log says that it has a copy, and
//!   when the copy is shown, that there is none without it. A start that finds the checkpoint, and
//!   the first of the two alone, writes the second before anything else: so what is written from
//!   then on is never put on top of an older checkpoint.
//!
//! Deliberately absent: a copy with branches beside the present data. The engine has one first
//! branch, of which all others come.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use pando_engine::limits::KEY_BYTES_MAX;
use pando_engine::{Key, LogEpoch, TreeId, ValueRef, ValueVersion};
use pando_minuet::engine::{Minuet, is_of_branch};

use super::ReplicationError;
use super::loading::{Given, restore_all};
use super::message::{put_forest, put_section_head};
use super::scan::{Scan, Scanned, Takes};
#[cfg(test)]
use super::tests::{Fault, is};
use crate::database::Database;
use crate::durable::bytes::{Input, Malformed, Sink, malformed};
use crate::durable::catalog::Forest;
use crate::durable::value;
use crate::grove::Grove;
use crate::limits;
use crate::persistence::{
    Album, ChangedKey, CheckpointFailure, CheckpointOptions, Pace, Planting, Sides, order,
};
use crate::session::Session;
use crate::snapshots::NamedSnapshot;
use crate::turn::Turn;

impl Database {
    /// Whether a copy of its keys alone would lack something of it.
    pub(super) fn is_forked(&self) -> bool {
        let (branches, snapshots) = (self.branches.all(), self.snapshots.list());
        self.store.branching().is_some()
            && (branches.len() > 1
                || branches.iter().any(|branch| *branch.name != *b"main")
                || snapshots.iter().any(|snapshot| snapshot.lasts))
    }
}

/// An album that is being sent.
#[derive(Debug)]
pub(super) struct AlbumCopy {
    forest: Option<Forest>,
    album: Album,
    /// Of the first node's trees, and their numbers in pages.
    roots: Scan,
    bases: HashMap<TreeId, TreeId>,
    /// What is to be compared after that.
    sections: VecDeque<(usize, TreeId)>,
    present: Option<Compared>,
    /// What was found.
    found: VecDeque<ChangedKey>,
}

/// What is being compared.
#[derive(Debug)]
struct Compared {
    section: (usize, TreeId),
    sides: Sides,
    /// Where to go on, if there is more.
    from: Option<Vec<u8>>,
}

/// A message of a section.
struct Section<'o> {
    out: &'o mut Vec<u8>,
    bases: &'o HashMap<TreeId, TreeId>,
}

impl Takes for Section<'_> {
    fn begin(&mut self, tree: TreeId) {
        put_section_head(self.out, (0, self.bases[&tree]));
    }

    fn take(&mut self, key: &[u8], value: ValueRef<'_>) {
        put_entry(self.out, (key, value.version), Some(value));
    }

    fn is_full(&self) -> bool {
        self.out.len() >= limits::COPY_SLICE_BYTES
    }
}

fn put_entry(
    out: &mut Vec<u8>,
    (key, version): (&[u8], ValueVersion),
    value: Option<ValueRef<'_>>,
) {
    out.string(key);
    out.put(&version.to_bits().to_le_bytes());
    out.put(&[u8::from(value.is_some())]);
    if let Some(value) = value {
        value::put_value(out, value);
    }
}

impl AlbumCopy {
    /// All branches and lasting snapshots as they are. The turn holds all gates, and has ended the
    /// epoch.
    pub(super) fn open(turn: &Turn<'_>) -> Self {
        let (forest, album) = turn.database().open_album(true);
        let (forest, album) = forest.zip(album).expect("the engine has branches");
        let bases: HashMap<_, _> = album.bases().collect();
        let in_order = order(&forest);
        let sections = in_order.into_iter().flat_map(|node| {
            let others = album.others.iter().copied();
            others.filter(move |(of, _)| *of == node)
        });
        #[cfg(test)]
        let fewer = usize::from(is(Fault::SectionsMissed));
        #[cfg(not(test))]
        let fewer = 0;
        let mut sections: VecDeque<_> = sections.collect();
        sections.truncate(sections.len().saturating_sub(fewer));
        Self {
            sections,
            forest: Some(forest),
            roots: Scan::of(album.bases().map(|(tree, _)| tree).collect(), None),
            album,
            bases,
            present: None,
            found: VecDeque::new(),
        }
    }

    /// Appends the next message to `out`; `false`: there is none.
    pub(super) fn next(&mut self, session: &mut Session, out: &mut Vec<u8>) -> bool {
        if let Some(forest) = self.forest.take() {
            put_forest(out, &forest);
            return true;
        }
        let bases = &self.bases;
        if self.roots.next(session, &mut Section { out, bases }) == Scanned::Some {
            return true;
        }
        loop {
            if let (Some(compared), false) = (&self.present, self.found.is_empty()) {
                put_section_head(out, compared.section);
                while out.len() < limits::COPY_SLICE_BYTES
                    && let Some((key, version, value)) = self.found.pop_front()
                {
                    let value = value.as_ref().map(|value| value.view(version));
                    put_entry(out, (&key, version), value);
                }
                return true;
            }
            if let Some(compared) = &mut self.present
                && let Some(from) = &compared.from
            {
                let mut turn = session.turn();
                let store = &mut turn.session_mut().store;
                let (found, next) = compared.sides.changed(store, from);
                drop(turn);
                self.found.extend(found);
                compared.from = next;
            } else if let Some(section) = self.sections.pop_front() {
                self.present = Some(Compared {
                    section,
                    sides: self.album.sides(section),
                    from: Some(Vec::new()),
                });
            } else {
                return false;
            }
        }
    }
}

/// An album that comes.
#[derive(Debug)]
pub(super) struct Planted {
    planting: Planting,
    engine: Arc<Minuet>,
    /// The numbers here of trees of the first branch there, and of what those have in pages.
    here: HashMap<TreeId, TreeId>,
}

/// The number here of a tree there.
fn number(here: &mut HashMap<TreeId, TreeId>, engine: &Minuet, there: TreeId) -> TreeId {
    if is_of_branch(there) {
        return there;
    }
    *here.entry(there).or_insert_with(|| engine.reserve_base())
}

impl Planted {
    /// Begins with a forest of a database whose databases have the trees `there`. The first branch
    /// is empty here, and the only one.
    pub(super) fn begin(
        session: &mut Session,
        mut forest: Forest,
        there: &[TreeId],
    ) -> Result<Self, ReplicationError> {
        let database = Arc::clone(session.database());
        let Some(engine) = database.store.branching().map(Arc::clone) else {
            return Err(ReplicationError::OutOfTurn("branches"));
        };
        if forest.nodes.is_empty() {
            return Err(Malformed {
                what: "an album has nothing",
            }
            .into());
        }
        let mapped: Vec<TreeId> = database.mapping.iter().collect();
        let mut here: HashMap<_, _> = there.iter().copied().zip(mapped.iter().copied()).collect();
        forest.renumber(|tree| number(&mut here, &engine, tree));
        let mut turn = session.turn();
        turn.hold_all();
        // Snapshots get epochs in which nothing else happens.
        let open = database.epochs.current();
        let last = LogEpoch(open.0 + forest.snapshots.len() as u64);
        let now = database.options.clock.now().milliseconds();
        database.acknowledgement.rise_above(last, now);
        for (snapshot, epoch) in forest.snapshots.iter_mut().zip(open.0 + 1..) {
            snapshot.epoch = LogEpoch(epoch);
        }
        let planting = Planting::new(forest, Arc::clone(&engine), &mapped)?;
        Ok(Self {
            planting,
            engine,
            here,
        })
    }

    /// Takes entries of a node.
    pub(super) fn take_section(
        &mut self,
        session: &mut Session,
        (node, base): (usize, TreeId),
        entries: &[u8],
    ) -> Result<(), ReplicationError> {
        self.go_on(session, Some(node))?;
        let base = number(&mut self.here, &self.engine, base);
        let tree = self.planting.tree(base);
        let mut parsed = Vec::new();
        let mut input = Input(entries);
        while !input.is_empty() {
            let key = Key::new(tree, input.string(KEY_BYTES_MAX)?);
            let version = ValueVersion::from_bits(input.fixed()?);
            let given = match input.byte()? {
                0 => Given::Removed,
                _ => Given::Whole(value::take_value(&mut input)?),
            };
            parsed.push((key, version, given));
        }
        restore_all(session, parsed, false)
    }

    /// Goes on to a node, or to the end.
    fn go_on(&mut self, session: &mut Session, to: Option<usize>) -> Result<(), Malformed> {
        while self.planting.node() != to {
            let Some(node) = self.planting.node() else {
                return malformed("the nodes of an album are out of order");
            };
            // Branches would have the keys of what was here before.
            while node == 0 && self.engine.has_dropped_keys() {
                session.tidy();
            }
            let mut turn = session.turn();
            turn.hold_all();
            self.planting.go_on()?;
        }
        Ok(())
    }

    /// All is here: the branches and snapshots are those of the database.
    pub(super) fn finish(mut self, session: &mut Session) -> Result<(), Malformed> {
        if let Err(error) = self.go_on(session, None) {
            self.give_up(session);
            return Err(error);
        }
        let database = Arc::clone(session.database());
        let mut turn = session.turn();
        turn.hold_all();
        let (forest, branches) = self.planting.finish()?;
        let named = forest.branches.iter().map(|branch| &branch.name);
        let named: Vec<_> = named
            .chain(forest.snapshots.iter().map(|it| &it.name))
            .collect();
        for name in named {
            turn.give_way_to(name);
        }
        database.branches.replace(Grove {
            engine: Some(self.engine),
            checkpoint: LogEpoch::NONE,
            is_planted: false,
            changes: forest.changes,
            mainline: forest.mainline,
            branches,
            snapshots: BTreeMap::new(),
        });
        let mapped: Vec<TreeId> = database.mapping.iter().collect();
        for note in &forest.snapshots {
            database.snapshots.add(NamedSnapshot::noted(note, &mapped));
        }
        Ok(())
    }

    /// Drops what was planted; the first branch's databases have their part still.
    pub(super) fn give_up(self, session: &mut Session) {
        let mut turn = session.turn();
        turn.hold_all();
        self.planting.give_up();
    }
}

/// Takes a checkpoint with what was planted; returns where it began, of a database on disk.
pub(super) fn keep(database: &Database) -> Result<Option<LogEpoch>, ReplicationError> {
    #[cfg(test)]
    if is(Fault::Unplanted) {
        return Ok(None);
    }
    let options = CheckpointOptions {
        pace: Pace::FULL,
        ..CheckpointOptions::default()
    };
    loop {
        match database.checkpoint_of_copy(&options) {
            Ok(report) => return Ok(Some(report.start)),
            Err(CheckpointFailure::NotDurable) => return Ok(None),
            Err(CheckpointFailure::Busy) => {
                std::thread::sleep(limits::FILES_PATIENCE / 1000);
            }
            Err(_) => return Err(ReplicationError::Log),
        }
    }
}
