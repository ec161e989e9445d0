//! Replaying the log: groups in the order of epochs, each key's records in the order of versions.
//!
//! One thread merges the groups of all logs epoch by epoch, cuts them into batches, and sorts each
//! batch's records by the hash of their keys into as many lists as there are workers. A worker puts
//! its lists back, batch by batch, each in the order of versions; so all records of one key meet in
//! one worker and in order, whatever log they come from.
//!
//! A checkpoint is a fuzzy picture: it may hold a key as it was at any moment from its start to its
//! end. So up to the end's epoch, a record that is not newer than what stands there is passed over,
//! and a change of a key that is not there is passed over too, if a removal or a whole value of the
//! key follows by then: the key was removed before the checkpoint came by. Behind the end, a change
//! that finds no predecessor is corruption.
//!
//! Invariants:
//! - **RP1** Records of one key are put back in the order of their versions.
//! - **RP2** A change is applied to the version that it names, and to nothing else.
//! - **RP3** A tree that has left the mapping is dropped after all records before it were put back;
//!   its number does not come again.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::BuildHasher;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Barrier};

use pando_durability::log::{LogCut, LogReader};
use pando_engine::{Key, NewValue, Point, Probe, Restored, SessionLimit, TreeId, ValueVersion};

use super::bytes::{Input, Malformed, malformed};
use super::options::{DurabilityOptions, Stage};
use super::record::{self, Record, Written};
use super::recover::RecoveryError;
use super::value::ValueView;
use crate::expiry::ExpiryIndex;
use crate::limits;
use crate::store::{Store, StoreSession};

const NO_PREDECESSOR: &str = "the value that a change belongs to is not there";

/// The mapping of database numbers while it is recovered, and the trees that have left it.
#[derive(Debug, Default)]
pub(super) struct Trees {
    mapped: Vec<TreeId>,
    changes: u64,
    known: HashSet<TreeId>,
    dropped: HashSet<TreeId>,
}

impl Trees {
    /// The mapping as of its change number `changes`; returns the trees that have left it. Their
    /// records count until [`Self::forget`]: within an epoch, logs are in no order, and a change in
    /// one may have its predecessor in another that is read later.
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

    /// Records of these trees count no more: all of the epoch in which they left were met.
    fn forget(&mut self, left: &[TreeId]) {
        self.dropped.extend(left);
    }

    /// Whether records of the tree count; it is made if it was not met before.
    fn know(&mut self, store: &Store, tree: TreeId) -> bool {
        if self.dropped.contains(&tree) {
            return false;
        }
        if self.known.insert(tree) {
            store.restore_tree(tree);
        }
        true
    }

    /// Drops what no database leads to, and makes trees for databases that have none.
    pub(super) fn settle(&mut self, store: &Store, expiry: &ExpiryIndex, databases: usize) {
        for tree in &self.known {
            if !self.mapped.contains(tree) && !self.dropped.contains(tree) {
                store.drop_tree(*tree);
                expiry.drop_tree(*tree);
            }
        }
        while self.mapped.len() < databases {
            self.mapped.push(store.create_tree());
            self.changes += 1;
        }
    }

    /// The trees by database number, and how often the mapping has changed.
    pub(super) fn into_parts(self) -> (Vec<TreeId>, u64) {
        (self.mapped, self.changes)
    }
}

/// Puts values back and keeps the expiry index.
pub(super) struct Restorer<'a> {
    session: StoreSession,
    expiry: &'a ExpiryIndex,
}

impl<'a> Restorer<'a> {
    pub(super) fn new(store: &Store, expiry: &'a ExpiryIndex) -> Result<Self, SessionLimit> {
        let session = store.session()?;
        Ok(Self { session, expiry })
    }

    /// Puts values of one tree back whose keys ascend and were not there before.
    pub(super) fn load(&mut self, tree: TreeId, run: &mut Vec<Restored<'_>>) {
        let mut deadlines = Vec::new();
        for restored in &*run {
            if let Some(deadline) = restored.value.attributes.deadline {
                deadlines.push((Key::new(tree, restored.key), deadline));
            }
        }
        self.session.restore_run(tree, run);
        for (key, deadline) in deadlines {
            self.expiry.reconcile(key, None, || Some(deadline));
        }
    }

    /// Puts back what is newer than what stands at the key.
    pub(super) fn put(&mut self, key: Key<'_>, version: ValueVersion, value: Option<NewValue<'_>>) {
        let replaced = match self.session.probe(key) {
            Probe::Present { deadline, .. } => deadline,
            Probe::Absent | Probe::Removed(_) => None,
        };
        let deadline = value.as_ref().and_then(|value| value.attributes.deadline);
        let restored = self.session.restore(key, version, value);
        if restored && replaced != deadline {
            self.expiry.reconcile(key, replaced, || deadline);
        }
    }

    /// Gives the memory of replaced values back.
    pub(super) fn tidy(&mut self) {
        self.session.maintain(0);
    }
}

/// One worker's state.
struct Worker<'a> {
    #[cfg(test)]
    fault: super::testing::Fault,
    restorer: Restorer<'a>,
    /// Keys with a change that found nothing, up to the end of the checkpoint, and the first one.
    orphans: Orphans,
    fuzzy_until: u64,
}

impl Worker<'_> {
    /// Puts back what a record says (RP2).
    fn apply(&mut self, record: &Record<'_>, origin: &Origin) -> Result<(), Malformed> {
        match *record {
            Record::Put(written, view) => {
                self.adopt(written.key);
                self.restorer
                    .put(written.key, written.version, Some(view.build()?));
            }
            Record::Remove(written) => {
                self.adopt(written.key);
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
                        && self.fault == super::testing::Fault::PredecessorUnchecked =>
                {
                    self.change(written, change)?;
                }
                Probe::Present { version, .. } | Probe::Removed(version)
                    if version >= written.version => {}
                Probe::Present { version, .. } if version == predecessor => {
                    self.change(written, change)?;
                }
                #[cfg(test)]
                Probe::Absent if self.fault == super::testing::Fault::OrphansRefused => {
                    return malformed(NO_PREDECESSOR);
                }
                Probe::Absent if origin.epoch <= self.fuzzy_until => {
                    self.orphans
                        .entry((written.key.tree, written.key.bytes.into()))
                        .or_insert_with(|| origin.clone());
                }
                _ => return malformed(NO_PREDECESSOR),
            },
            Record::Mapping { .. } => {}
        }
        Ok(())
    }

    /// Changes what stands at a key.
    fn change(&mut self, written: Written<'_>, change: ValueView<'_>) -> Result<(), Malformed> {
        let new = self.restorer.session.get(written.key, |old| match old {
            Some(old) => change.apply(old),
            None => malformed(NO_PREDECESSOR),
        })?;
        self.restorer.put(written.key, written.version, Some(new));
        Ok(())
    }

    /// The key has a value or a removal of its own.
    fn adopt(&mut self, key: Key<'_>) {
        if !self.orphans.is_empty() {
            self.orphans.remove(&(key.tree, key.bytes.into()));
        }
    }
}

/// Where a group was read, for messages.
#[derive(Clone)]
struct Origin {
    path: PathBuf,
    offset: u64,
    epoch: u64,
}

/// A record in a batch.
#[derive(Clone, Copy)]
struct Item {
    version: ValueVersion,
    at: usize,
    end: usize,
    group: u32,
}

/// Groups of whole epochs.
struct Batch {
    bytes: Vec<u8>,
    groups: Vec<(Range<usize>, Origin)>,
    /// A list of records for each worker.
    lists: Vec<Vec<Item>>,
}

/// What a worker is told.
enum Task {
    Batch(Arc<Batch>),
    /// All that came before is to be done when all workers are here.
    Meet(Arc<Barrier>),
}

/// A group that was read and belongs to a later epoch.
struct Head {
    records: Vec<u8>,
    origin: Origin,
}

/// The groups of all logs, merged by epoch.
struct Merge {
    logs: VecDeque<(LogReader, Head)>,
}

fn next_head(log: &mut LogReader) -> Result<Option<Head>, RecoveryError> {
    let group = log.next_group().map_err(|error| RecoveryError::Log {
        error,
        notes: Vec::new(),
    })?;
    Ok(group.map(|group| Head {
        records: group.records.to_vec(),
        origin: Origin {
            path: group.path.to_path_buf(),
            offset: group.offset,
            epoch: group.epoch,
        },
    }))
}

impl Merge {
    fn new(logs: Vec<LogReader>) -> Result<Self, RecoveryError> {
        let mut merge = Self {
            logs: VecDeque::new(),
        };
        for mut log in logs {
            if let Some(head) = next_head(&mut log)? {
                merge.logs.push_back((log, head));
            }
        }
        Ok(merge)
    }

    /// Whole epochs, about as many as a batch holds; `None` at the end.
    fn next_batch(&mut self, workers: usize) -> Result<Option<Batch>, RecoveryError> {
        let mut batch = Batch {
            bytes: Vec::new(),
            groups: Vec::new(),
            lists: vec![Vec::new(); workers],
        };
        while batch.bytes.len() < limits::REPLAY_BATCH_BYTES {
            let Some(epoch) = self.logs.iter().map(|(_, head)| head.origin.epoch).min() else {
                break;
            };
            for _ in 0..self.logs.len() {
                let (mut log, head) = self.logs.pop_front().expect("there are so many");
                let mut head = Some(head);
                while let Some(group) = head.take_if(|head| head.origin.epoch == epoch) {
                    let start = batch.bytes.len();
                    batch.bytes.extend_from_slice(&group.records);
                    batch.groups.push((start..batch.bytes.len(), group.origin));
                    head = next_head(&mut log)?;
                }
                if let Some(head) = head {
                    self.logs.push_back((log, head));
                }
            }
        }
        Ok((!batch.groups.is_empty()).then_some(batch))
    }
}

fn refused(origin: &Origin, error: Malformed) -> RecoveryError {
    RecoveryError::Record {
        path: origin.path.clone(),
        offset: origin.offset,
        epoch: origin.epoch,
        what: error.what,
    }
}

/// Replays the log; returns how many records there were.
pub(super) fn replay(
    store: &Store,
    expiry: &ExpiryIndex,
    durability: &DurabilityOptions,
    cut: &LogCut,
    fuzzy_until: u64,
    trees: &mut Trees,
) -> Result<u64, RecoveryError> {
    /// Batches that wait for a worker: the merging thread is ahead by so many.
    const BATCHES_AHEAD: usize = 2;
    let workers = durability.recovery_threads.max(1);
    let mut merge = Merge::new(cut.logs())?;
    let total = cut.bytes();
    std::thread::scope(|scope| {
        let mut senders: Vec<SyncSender<Task>> = Vec::new();
        let mut handles = Vec::new();
        for index in 0..workers {
            let (sender, tasks) = sync_channel(BATCHES_AHEAD);
            let worker = Worker {
                #[cfg(test)]
                fault: super::testing::fault(),
                restorer: Restorer::new(store, expiry)?,
                orphans: Orphans::new(),
                fuzzy_until,
            };
            senders.push(sender);
            handles.push(scope.spawn(move || work(worker, index, &tasks)));
        }
        let hasher = RandomState::new();
        let (mut records, mut done) = (0, 0);
        let mut failed = None;
        loop {
            let sorted = merge.next_batch(workers).and_then(|batch| {
                batch
                    .map(|batch| sort(batch, store, trees, &hasher))
                    .transpose()
            });
            let (batch, left) = match sorted {
                Ok(Some(sorted)) => sorted,
                Ok(None) => break,
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            };
            records += batch
                .lists
                .iter()
                .map(|list| list.len() as u64)
                .sum::<u64>();
            done += batch.bytes.len() as u64;
            durability.tell(Stage::Replay, done.min(total), total);
            let batch = Arc::new(batch);
            // A worker that has failed no longer listens; its error is found below.
            let tell =
                |task: &dyn Fn() -> Task| senders.iter().all(|sender| sender.send(task()).is_ok());
            let mut listening = tell(&|| Task::Batch(Arc::clone(&batch)));
            if listening && !left.is_empty() {
                let barrier = Arc::new(Barrier::new(workers + 1));
                listening = tell(&|| Task::Meet(Arc::clone(&barrier)));
                if listening {
                    barrier.wait();
                    for tree in left {
                        store.drop_tree(tree);
                        expiry.drop_tree(tree);
                    }
                }
            }
            if !listening {
                break;
            }
        }
        drop(senders);
        let mut orphans = Vec::new();
        for handle in handles {
            match handle.join().expect("a replaying thread does not panic") {
                Ok(left) => orphans.extend(left),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        orphans.retain(|((tree, _), _)| trees.mapped.contains(tree));
        if let Some((_, origin)) = orphans.first() {
            return Err(refused(
                origin,
                Malformed {
                    what: NO_PREDECESSOR,
                },
            ));
        }
        Ok(records)
    })
}

/// Sorts a batch's records into the workers' lists; returns the trees that have left the mapping.
fn sort(
    mut batch: Batch,
    store: &Store,
    trees: &mut Trees,
    hasher: &RandomState,
) -> Result<(Batch, Vec<TreeId>), RecoveryError> {
    let mut left = Vec::new();
    let workers = batch.lists.len();
    for (index, (range, origin)) in batch.groups.iter().enumerate() {
        let mut input = Input(&batch.bytes[range.clone()]);
        while !input.is_empty() {
            let at = range.end - input.0.len();
            let record = record::take(&mut input).map_err(|error| refused(origin, error))?;
            let written = match record {
                Record::Mapping {
                    changes,
                    trees: new,
                } => {
                    left.extend(trees.map(store, changes, new));
                    continue;
                }
                Record::Put(written, _)
                | Record::Remove(written)
                | Record::Change { written, .. } => written,
            };
            if trees.know(store, written.key.tree) {
                let list = hasher.hash_one((written.key.tree, written.key.bytes)) as usize;
                batch.lists[list % workers].push(Item {
                    version: written.version,
                    at,
                    end: range.end - input.0.len(),
                    group: index as u32,
                });
            }
        }
    }
    trees.forget(&left);
    Ok((batch, left))
}

type Orphans = HashMap<(TreeId, Box<[u8]>), Origin>;

fn work(
    mut worker: Worker<'_>,
    index: usize,
    tasks: &Receiver<Task>,
) -> Result<Orphans, RecoveryError> {
    let mut result = Ok(());
    // After a failure nothing more is applied, but meetings are kept: others wait there.
    while let Ok(task) = tasks.recv() {
        match task {
            Task::Batch(batch) if result.is_ok() => {
                result = put_back(&mut worker, &batch, index);
                worker.restorer.tidy();
            }
            Task::Batch(_) => {}
            Task::Meet(barrier) => {
                barrier.wait();
            }
        }
    }
    result.map(|()| worker.orphans)
}

fn put_back(worker: &mut Worker<'_>, batch: &Batch, index: usize) -> Result<(), RecoveryError> {
    let mut list = batch.lists[index].clone();
    // Stable, and within one epoch: RP1, since epochs come in order.
    list.sort_by_key(|item| item.version);
    for item in list {
        let origin = &batch.groups[item.group as usize].1;
        let mut input = Input(&batch.bytes[item.at..item.end]);
        record::take(&mut input)
            .and_then(|record| worker.apply(&record, origin))
            .map_err(|error| refused(origin, error))?;
    }
    Ok(())
}
