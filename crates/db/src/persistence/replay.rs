//! Replaying the log: wave by wave in epoch order, each key's records in version order.
//!
//! A wave is a range of epochs (the log's [`pando_durability::log::WaveSize`]). All threads read
//! its pieces, whatever log they belong to, and sort the records by the hash of their keys into
//! partitions. When all are read, all threads restore partitions, each in version order. So all
//! records of a key meet in one partition, no thread waits for another except at the end of either
//! step, and only one wave has to be held in memory.
//!
//! A checkpoint is fuzzy: it may hold a key as it was at any moment from its start to its end. So
//! up to the end's epoch, a record that is not newer than the present state is skipped. A change of
//! an absent key is skipped too, if a removal or a whole value of the key follows by then: the key
//! was removed before the checkpoint reached it. After the end, a change without its predecessor is
//! corruption.
//!
//! - **RP1** Records of one key are restored in version order.
//! - **RP2** A change is applied to the version that it names, and to nothing else.
//! - **RP3** A tree that has left the mapping is dropped after all records before that were
//!   restored, unless a snapshot shows it; its number does not come again.
//! - **RP4 changes-at-their-points** A change of branches or snapshots is made again when all
//!   records of epochs up to its point were restored, and none of a later one. So a wave is
//!   restored in as many steps as it has points.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use pando_durability::log::{Group, LogCut, LogReader, WaveSize};
use pando_engine::{
    Deadline, Key, LogEpoch, NewValue, Point, Probe, Restore, Restored, SessionLimit, TreeId,
    ValueVersion,
};
use pando_minuet::engine::is_of_branch;
use pando_sync::lock;

use super::grove::Refusal;
use super::recover::RecoveryError;
use crate::durable::bytes::{Input, Malformed, malformed};
use crate::durable::catalog::CatalogChange;
use crate::durable::options::{DurabilityOptions, Stage};
use crate::durable::record::{self, Record, Written};
use crate::durable::standing::Standing;
use crate::durable::value::ValueView;
use crate::expiry::{ExpiryIndex, Of};
use crate::grove::Grove;
use crate::limits;
use crate::store::{Store, StoreSession};

const NO_PREDECESSOR: &str = "the value that a change belongs to is not there";

/// The mapping of database numbers during recovery, the trees that have left it, and branches.
#[derive(Debug)]
pub(super) struct Trees {
    pub(super) grove: Grove,
    mapped: Vec<TreeId>,
    changes: u64,
    /// Where the database stands in another's history.
    standing: Standing,
    /// Whether it has trees that are not on disk.
    grown: bool,
    known: HashSet<TreeId>,
    dropped: HashSet<TreeId>,
}

impl Trees {
    pub(super) fn new(grove: Grove) -> Self {
        Self {
            grove,
            mapped: Vec::new(),
            changes: 0,
            standing: Standing::default(),
            grown: false,
            known: HashSet::new(),
            dropped: HashSet::new(),
        }
    }

    /// The trees by database number.
    pub(super) fn mapped(&self) -> &[TreeId] {
        &self.mapped
    }

    /// Whether a database of any branch has a tree.
    fn is_mapped(&self, tree: TreeId) -> bool {
        self.mapped.contains(&tree) || self.grove.shows(tree)
    }

    /// The mapping as of its change number `changes`; returns the trees that have left it.
    pub(super) fn map(&mut self, store: &Store, changes: u64, trees: Vec<TreeId>) -> Vec<TreeId> {
        if changes < self.changes || (changes == self.changes && !self.mapped.is_empty()) {
            return Vec::new();
        }
        for tree in &trees {
            self.know(store, *tree);
        }
        let mut left = std::mem::replace(&mut self.mapped, trees);
        left.retain(|tree| !self.mapped.contains(tree));
        self.changes = changes;
        left
    }

    /// Records the mappings and trees of a wave; returns the trees that have left the mapping,
    /// whose records no longer count when this wave is restored (RP3).
    fn meet(&mut self, store: &Store, wave: &mut Wave) -> Vec<TreeId> {
        let mut mappings = Vec::new();
        for piece in &mut wave.pieces {
            mappings.append(&mut piece.mappings);
            for standing in piece.standings.drain(..) {
                self.stand(standing);
            }
            for tree in piece.trees.iter().filter(|tree| !is_of_branch(**tree)) {
                self.know(store, *tree);
            }
        }
        mappings.sort_unstable_by_key(|(changes, _)| *changes);
        let mappings = mappings.into_iter();
        let left: Vec<TreeId> = mappings
            .flat_map(|(changes, trees)| self.map(store, changes, trees))
            .collect();
        self.dropped.extend(&left);
        left
    }

    /// Notes where the database stands; the newest counts.
    pub(super) fn stand(&mut self, standing: Standing) {
        self.standing = std::mem::take(&mut self.standing).newer(standing);
    }

    /// Where the database stands.
    pub(super) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Creates a tree that was not met before.
    fn know(&mut self, store: &Store, tree: TreeId) {
        if self.known.insert(tree) {
            store.restore_tree(tree);
        }
    }

    /// Drops trees that no database has, and creates trees for databases that have none.
    pub(super) fn settle(&mut self, store: &Store, expiry: &ExpiryIndex, databases: usize) {
        for tree in &self.known {
            let is_dropped = self.dropped.contains(tree);
            if !self.mapped.contains(tree) && !is_dropped && !self.grove.shows(*tree) {
                store.drop_tree(*tree);
                expiry.drop_tree(*tree);
            }
        }
        while self.mapped.len() < databases {
            self.mapped.push(store.create_tree());
            self.changes += 1;
            self.grown = true;
        }
    }

    /// The trees by database number, how often the mapping has changed, whether it differs from
    /// that on disk, and the branches.
    pub(super) fn into_parts(self) -> (Vec<TreeId>, u64, bool, Grove) {
        (self.mapped, self.changes, self.grown, self.grove)
    }
}

/// Restores values and maintains the expiry index.
pub(super) struct Restorer<'a> {
    session: StoreSession,
    expiry: &'a ExpiryIndex,
}

impl<'a> Restorer<'a> {
    pub(super) fn new(store: &Store, expiry: &'a ExpiryIndex) -> Result<Self, SessionLimit> {
        let session = store.session()?;
        Ok(Self { session, expiry })
    }

    /// Restores values of one tree, with ascending keys that did not exist before.
    pub(super) fn load(&mut self, tree: TreeId, run: &mut Vec<Restored<'_>>) {
        let mut deadlines = Vec::new();
        for restored in &*run {
            for of in Of::BOTH {
                if let Some(deadline) = deadline_of(&restored.value, of) {
                    deadlines.push((Key::new(tree, restored.key), of, deadline));
                }
            }
        }
        self.session.restore_run(tree, run);
        for (key, of, deadline) in deadlines {
            let index = self.expiry.by(of);
            index.reconcile(key, None, || Some(deadline));
        }
    }

    /// Restores what is newer than the key's present state.
    pub(super) fn put(&mut self, key: Key<'_>, version: ValueVersion, value: Option<NewValue<'_>>) {
        restore(&mut self.session, self.expiry, (key, version), value);
    }

    /// Reclaims the memory of replaced values.
    pub(super) fn tidy(&mut self) {
        self.session.maintain(0);
    }
}

/// Restores what is newer than the key's present state, a removal if there is no value.
pub(crate) fn restore(
    session: &mut StoreSession,
    expiry: &ExpiryIndex,
    (key, version): (Key<'_>, ValueVersion),
    value: Option<NewValue<'_>>,
) {
    let replaced = match session.probe(key) {
        Probe::Present { deadline, .. } => deadline,
        Probe::Absent | Probe::Removed(_) => None,
    };
    let replaced_of_field = if expiry.fields.is_unused() {
        None
    } else {
        session.get(key, |old| old.and_then(|old| Of::Field.deadline(&old)))
    };
    let changes = [(Of::Key, replaced), (Of::Field, replaced_of_field)].map(|(of, replaced)| {
        let deadline = value.as_ref().and_then(|value| deadline_of(value, of));
        (of, replaced, deadline)
    });
    if !session.restore(key, version, value) {
        return;
    }
    for (of, replaced, deadline) in changes {
        if replaced != deadline {
            expiry.by(of).reconcile(key, replaced, || deadline);
        }
    }
}

/// A deadline of a value that is to be restored.
fn deadline_of(value: &NewValue<'_>, of: Of) -> Option<Deadline> {
    of.deadline(&value.view(ValueVersion::from_bits(0)))
}

/// One thread's state.
struct Worker<'a> {
    #[cfg(test)]
    fault: crate::durable::testing::Fault,
    restorer: Restorer<'a>,
    fuzzy_until: LogEpoch,
}

/// Keys with a change that found nothing, up to the end of the checkpoint, and the first one.
type Orphans = HashMap<(TreeId, Box<[u8]>), Origin>;

impl Worker<'_> {
    /// Restores a record (RP2).
    fn apply(
        &mut self,
        record: &Record<'_>,
        origin: &Origin,
        orphans: &mut Orphans,
    ) -> Result<(), Malformed> {
        match *record {
            Record::Put(written, view) => {
                adopt(orphans, written.key);
                self.restorer
                    .put(written.key, written.version, Some(view.build()?));
            }
            Record::Remove(written) => {
                adopt(orphans, written.key);
                self.restorer.put(written.key, written.version, None);
            }
            Record::Change {
                written,
                predecessor,
                change,
            } => match self.restorer.session.probe(written.key) {
                #[cfg(test)]
                Probe::Present { version, .. }
                    if version < written.version
                        && self.fault == crate::durable::testing::Fault::PredecessorUnchecked =>
                {
                    self.change(written, change)?;
                }
                Probe::Present { version, .. } | Probe::Removed(version)
                    if version >= written.version => {}
                Probe::Present { version, .. } if version == predecessor => {
                    self.change(written, change)?;
                }
                #[cfg(test)]
                Probe::Absent if self.fault == crate::durable::testing::Fault::OrphansRefused => {
                    return malformed(NO_PREDECESSOR);
                }
                Probe::Absent if origin.epoch <= self.fuzzy_until => {
                    let key = (written.key.tree, written.key.bytes.into());
                    orphans.entry(key).or_insert_with(|| origin.clone());
                }
                _ => return malformed(NO_PREDECESSOR),
            },
            Record::Mapping { .. } | Record::Standing(_) | Record::Catalog(_) => {}
        }
        Ok(())
    }

    /// Changes a key's value.
    fn change(&mut self, written: Written<'_>, change: ValueView<'_>) -> Result<(), Malformed> {
        let new = self.restorer.session.get(written.key, |old| match old {
            Some(old) => change.apply(old),
            None => malformed(NO_PREDECESSOR),
        })?;
        self.restorer.put(written.key, written.version, Some(new));
        debug_assert!(
            matches!(
                self.restorer.session.probe(written.key),
                Probe::Present { version, .. } if version == written.version
            ),
            "RP2"
        );
        Ok(())
    }

    /// Restores what a partition of a wave has between the point before this one and it (RP4).
    fn put_back(
        &mut self,
        wave: &Wave,
        partition: &mut Partition,
        (points, step): (&[LogEpoch], usize),
    ) -> Result<(), RecoveryError> {
        if step == 0 {
            #[cfg(test)]
            let points = match self.fault {
                crate::durable::testing::Fault::PointsIgnored => &[],
                _ => points,
            };
            partition.sort(wave, points);
            #[cfg(test)]
            if self.fault == crate::durable::testing::Fault::WaveBackwards {
                partition.items.reverse();
            }
        }
        let end = partition.items.partition_point(|sorted| sorted.0 <= step);
        #[cfg(test)]
        let end = match self.fault {
            crate::durable::testing::Fault::WaveBackwards => partition.items.len(),
            _ => end,
        };
        let items = std::mem::replace(&mut partition.done, end)..end;
        let items: Vec<(u32, Item)> = partition.items[items]
            .iter()
            .map(|(_, piece, item)| (*piece, *item))
            .collect();
        if step == points.len() {
            partition.items = Vec::new();
        }
        for items in items.chunks(limits::REPLAY_WARM_RECORDS) {
            let mut records = Vec::with_capacity(items.len());
            for (index, item) in items {
                let piece = &wave.pieces[*index as usize];
                let origin = &piece.origins[item.origin as usize];
                let mut input = Input(&piece.bytes[item.at..item.end]);
                let record = record::take(&mut input).map_err(|error| refused(origin, error))?;
                records.push((record, origin));
            }
            let keys = records.iter().filter_map(|(record, _)| record.written());
            let keys: Vec<_> = keys.map(|written| written.key).collect();
            self.restorer.session.warm(&keys);
            for (record, origin) in &records {
                self.apply(record, origin, &mut partition.orphans)
                    .map_err(|error| refused(origin, error))?;
            }
        }
        self.restorer.tidy();
        Ok(())
    }
}

/// The key has a value or a removal of its own.
fn adopt(orphans: &mut Orphans, key: Key<'_>) {
    if !orphans.is_empty() {
        orphans.remove(&(key.tree, key.bytes.into()));
    }
}

/// Where a group was read, for messages.
#[derive(Clone, Debug)]
struct Origin {
    path: Arc<Path>,
    offset: u64,
    epoch: LogEpoch,
}

impl Origin {
    fn is_of(&self, group: &Group<'_>) -> bool {
        self.offset == group.offset && self.epoch == group.epoch && *self.path == *group.path
    }
}

/// A record of a piece.
#[derive(Clone, Copy)]
struct Item {
    version: ValueVersion,
    at: usize,
    end: usize,
    origin: u32,
}

/// A piece of a wave, as it was read.
struct Piece {
    bytes: Vec<u8>,
    origins: Vec<Origin>,
    /// A list of records for each partition.
    lists: Vec<Vec<Item>>,
    /// The trees of the records.
    trees: HashSet<TreeId>,
    mappings: Vec<(u64, Vec<TreeId>)>,
    standings: Vec<Standing>,
    /// Changes of branches, and the places of their groups in `origins`.
    changes: Vec<(CatalogChange, usize)>,
}

impl Piece {
    /// Keeps a record that is of no key.
    fn note(&mut self, record: Record<'_>, origin: usize) {
        match record {
            Record::Mapping { changes, trees } => self.mappings.push((changes, trees)),
            Record::Standing(standing) => self.standings.push(standing),
            Record::Catalog(change) => self.changes.push((change, origin)),
            Record::Put(..) | Record::Change { .. } | Record::Remove(_) => {}
        }
    }
}

/// A wave, as it was read.
struct Wave {
    pieces: Vec<Piece>,
}

impl Wave {
    /// The changes of branches behind the first `before` ones, in order.
    fn take_changes(&mut self, before: u64) -> Vec<(CatalogChange, Origin)> {
        let mut changes: Vec<(CatalogChange, Origin)> = Vec::new();
        for piece in &mut self.pieces {
            for (change, origin) in piece.changes.drain(..) {
                if change.changes > before {
                    changes.push((change, piece.origins[origin].clone()));
                }
            }
        }
        changes.sort_by_key(|(change, _)| change.changes);
        changes
    }
}

/// Buffers of a partition, reused from wave to wave.
struct Partition {
    index: usize,
    orphans: Orphans,
    /// Its records of a wave: by the step to which they belong, then by version.
    items: Vec<(usize, u32, Item)>,
    /// Of these, how many were restored.
    done: usize,
}

impl Partition {
    /// Takes its records of a wave that is restored in steps, up to each of the points.
    fn sort(&mut self, wave: &Wave, points: &[LogEpoch]) {
        self.items.clear();
        self.done = 0;
        for (index, piece) in wave.pieces.iter().enumerate() {
            for item in &piece.lists[self.index] {
                let epoch = piece.origins[item.origin as usize].epoch;
                let step = points.partition_point(|point| *point < epoch);
                self.items.push((step, index as u32, *item));
            }
        }
        // RP1, since waves come in epoch order, and so do steps.
        self.items
            .sort_unstable_by_key(|(step, _, item)| (*step, item.version));
    }
}

/// How pieces are read.
struct Reading<'a> {
    partitions: usize,
    hasher: &'a RandomState,
    dropped: &'a HashSet<TreeId>,
}

impl Reading<'_> {
    fn read(&self, mut log: LogReader) -> Result<Piece, RecoveryError> {
        let mut piece = Piece {
            bytes: Vec::new(),
            origins: Vec::new(),
            lists: vec![Vec::new(); self.partitions],
            trees: HashSet::new(),
            mappings: Vec::new(),
            standings: Vec::new(),
            changes: Vec::new(),
        };
        let log_error = |error| RecoveryError::Log {
            error,
            notes: Vec::new(),
        };
        while let Some(group) = log.next_group().map_err(log_error)? {
            self.take(&mut piece, group)?;
        }
        Ok(piece)
    }

    /// Sorts a group's records into the piece's lists.
    fn take(&self, piece: &mut Piece, group: Group<'_>) -> Result<(), RecoveryError> {
        let last = piece.origins.last();
        if !last.is_some_and(|last| last.is_of(&group)) {
            let path = match last {
                Some(last) if *last.path == *group.path => Arc::clone(&last.path),
                _ => Arc::from(group.path),
            };
            piece.origins.push(Origin {
                path,
                offset: group.offset,
                epoch: group.epoch,
            });
        }
        let origin = piece.origins.len() - 1;
        piece.bytes.extend_from_slice(group.records);
        let end = piece.bytes.len();
        let mut input = Input(group.records);
        while !input.is_empty() {
            let at = end - input.0.len();
            let record =
                record::take(&mut input).map_err(|error| refused(&piece.origins[origin], error))?;
            let Some(Written { key, version }) = record.written() else {
                piece.note(record, origin);
                continue;
            };
            if self.dropped.contains(&key.tree) {
                continue;
            }
            piece.trees.insert(key.tree);
            let partition = self.hasher.hash_one((key.tree, key.bytes)) as usize;
            piece.lists[partition % self.partitions].push(Item {
                version,
                at,
                end: end - input.0.len(),
                origin: origin as u32,
            });
        }
        Ok(())
    }
}

fn refused(origin: &Origin, error: Malformed) -> RecoveryError {
    RecoveryError::Record {
        path: origin.path.to_path_buf(),
        offset: origin.offset,
        epoch: origin.epoch,
        what: error.what,
    }
}

/// Runs `work` on all of `states` concurrently, each on its own thread.
fn at_once<S: Send, T: Send>(
    states: &mut [S],
    work: impl Fn(&mut S) -> Result<T, RecoveryError> + Sync,
) -> Result<Vec<T>, RecoveryError> {
    let (first, others) = states
        .split_first_mut()
        .expect("there is a thread at least");
    let work = &work;
    std::thread::scope(|scope| {
        let others: Vec<_> = others
            .iter_mut()
            .map(|state| scope.spawn(move || work(state)))
            .collect();
        let mut results = vec![work(first)];
        for other in others {
            results.push(other.join().expect("a replaying thread does not panic"));
        }
        results.into_iter().collect()
    })
}

/// One replay.
struct Replay<'a> {
    workers: Vec<Worker<'a>>,
    partitions: Vec<Mutex<Partition>>,
    hasher: RandomState,
}

impl<'a> Replay<'a> {
    fn new(
        store: &Store,
        expiry: &'a ExpiryIndex,
        threads: usize,
        fuzzy_until: LogEpoch,
    ) -> Result<Self, RecoveryError> {
        let worker = |_| {
            Ok(Worker {
                #[cfg(test)]
                fault: crate::durable::testing::fault(),
                restorer: Restorer::new(store, expiry)?,
                fuzzy_until,
            })
        };
        let partition = |index| {
            Mutex::new(Partition {
                index,
                orphans: Orphans::new(),
                items: Vec::new(),
                done: 0,
            })
        };
        Ok(Self {
            workers: (0..threads)
                .map(worker)
                .collect::<Result<_, SessionLimit>>()?,
            partitions: (0..threads * limits::REPLAY_PARTITIONS)
                .map(partition)
                .collect(),
            hasher: RandomState::new(),
        })
    }

    fn read(
        &mut self,
        pieces: Vec<LogReader>,
        dropped: &HashSet<TreeId>,
    ) -> Result<Wave, RecoveryError> {
        let pieces = Mutex::new(pieces.into_iter());
        let reading = Reading {
            partitions: self.partitions.len(),
            hasher: &self.hasher,
            dropped,
        };
        let read = at_once(&mut self.workers, |_| {
            let mut read = Vec::new();
            loop {
                let piece = lock(&pieces).next();
                let Some(piece) = piece else {
                    return Ok(read);
                };
                read.push(reading.read(piece)?);
            }
        })?;
        Ok(Wave {
            pieces: read.into_iter().flatten().collect(),
        })
    }

    /// Restores what a wave has between the point before one and it (RP4).
    fn put_back(
        &mut self,
        wave: &Wave,
        (points, step): (&[LogEpoch], usize),
    ) -> Result<(), RecoveryError> {
        let (next, partitions) = (AtomicUsize::new(0), &self.partitions);
        at_once(&mut self.workers, |worker| {
            while let Some(partition) = partitions.get(next.fetch_add(1, Ordering::Relaxed)) {
                worker.put_back(wave, &mut lock(partition), (points, step))?;
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Restores a wave, and makes its changes of branches. `left` are the trees that no database
    /// has behind it.
    fn put_back_wave(
        &mut self,
        wave: &mut Wave,
        (store, expiry): (&Store, &ExpiryIndex),
        trees: &mut Trees,
        left: &[TreeId],
    ) -> Result<(), RecoveryError> {
        let changes = wave.take_changes(trees.grove.changes);
        let mut points: Vec<LogEpoch> = changes.iter().map(|(change, _)| change.point).collect();
        points.dedup();
        if !points.is_sorted() {
            let origin = &changes[0].1;
            let what = "branches changed in an order that no server has";
            return Err(refused(origin, Malformed { what }));
        }
        let mut changes = changes.into_iter().peekable();
        for step in 0..=points.len() {
            let mut now = Vec::new();
            while let Some(change) = changes
                .next_if(|(change, _)| points.get(step).is_some_and(|point| change.point == *point))
            {
                now.push(change);
            }
            for (change, origin) in &now {
                trees
                    .grove
                    .prepare(change)
                    .map_err(|error| refused(origin, error))?;
            }
            self.put_back(wave, (&points, step))?;
            for (change, origin) in now {
                let mapped = &trees.mapped;
                let is_mapped = |tree| mapped.contains(&tree) || left.contains(&tree);
                let made = trees.grove.apply(change, (store, expiry), is_mapped);
                made.map_err(|refusal| match refusal {
                    Refusal::Engine => RecoveryError::Branches,
                    Refusal::Malformed(error) => refused(&origin, error),
                })?;
            }
        }
        Ok(())
    }
}

/// Replays the log; returns how many records there were.
pub(super) fn replay(
    store: &Store,
    expiry: &ExpiryIndex,
    durability: &DurabilityOptions,
    cut: &LogCut,
    fuzzy_until: LogEpoch,
    trees: &mut Trees,
) -> Result<u64, RecoveryError> {
    let threads = durability.recovery_threads.max(1);
    let mut replay = Replay::new(store, expiry, threads, fuzzy_until)?;
    let size = WaveSize {
        wave_bytes: (limits::REPLAY_WAVE_BYTES * threads) as u64,
        piece_bytes: limits::REPLAY_PIECE_BYTES as u64,
    };
    let (mut records, mut done) = (0, 0);
    for pieces in cut.waves(size) {
        let bytes: u64 = pieces.iter().map(LogReader::bytes).sum();
        let mut wave = replay.read(pieces, &trees.dropped)?;
        let left = trees.meet(store, &mut wave);
        replay.put_back_wave(&mut wave, (store, expiry), trees, &left)?;
        for tree in left {
            // The mapping is not asked for a tree that has left it.
            if !trees.grove.shows(tree) {
                store.drop_tree(tree);
            }
            expiry.drop_tree(tree);
        }
        let lists = wave.pieces.iter().flat_map(|piece| &piece.lists);
        records += lists.map(|list| list.len() as u64).sum::<u64>();
        done += bytes;
        durability.tell(Stage::Replay, done.min(cut.bytes()), cut.bytes());
    }
    let orphans = replay.partitions.into_iter().flat_map(|partition| {
        let partition = partition.into_inner();
        partition.expect("no thread has panicked").orphans
    });
    let mut orphans = orphans.filter(|((tree, _), _)| trees.is_mapped(*tree));
    match orphans.next() {
        Some((_, origin)) => Err(refused(
            &origin,
            Malformed {
                what: NO_PREDECESSOR,
            },
        )),
        None => Ok(records),
    }
}
