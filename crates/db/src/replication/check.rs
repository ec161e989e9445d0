//! Whether a replica has what the followed database has: digests of both at the same moment.
//!
//! The source makes a snapshot, sends every epoch that is in it, and then says so. The replica has
//! just what is in the snapshot then, and makes one of its own. Both go through their trees slice
//! by slice, while they are served, and add up a digest of each entry by the bucket that its key
//! belongs to. So the order of keys does not matter, nor the engine. The source sends its digests.
//! Where they differ, both list the keys of some of those buckets, and the first that differs is
//! named. Then the snapshots go.
//!
//! ```text
//! Source: begin ─► check ─► … slices … ─► digests ─────► … slices … ─► listing
//! Replica:            └► … slices … ─► same, or asks for a listing ────► the first difference
//! ```
//!
//! A digest covers the branch, the database, the key and what clients see of the value: its
//! content, deadline, flags and token. It knows nothing of an engine's forms or versions.
//!
//! Invariants:
//! - **CK1 same-moment** Both snapshots have the same epochs of the followed database: the source
//!   says so behind the last one in its own, and the replica makes its own before it repeats
//!   another.
//! - **CK2 no-trace** A snapshot of a check is dropped when the check ends, whatever ends it; at
//!   the latest by its time to live.
//!
//! Deliberately absent: repair. `REPLICAOF` with a full copy is one.

use std::collections::HashMap;
use std::sync::Arc;

use pando_engine::{BodyRef, LogEpoch, StringRef, TreeId, ValueRef};
use pando_minuet::engine;

use super::message::{Listed, put_check, put_digests, put_listing};
use super::scan::{Scan, Scanned, Takes, freeze, let_go};
use crate::clock::Milliseconds;
use crate::database::Database;
use crate::durable::value::columns_that_follow;
use crate::error::CommandError;
use crate::limits::{CHECK_BUCKETS, CHECK_LISTED_MAX, COPY_SLICE_BYTES};
use crate::session::Session;
use crate::snapshots::NamedSnapshot;

/// How long a snapshot of a check lives if nothing ends it.
const LIVES: Milliseconds = Milliseconds(6 * 3_600_000);

/// What a replica asks its source for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckWish {
    /// A check.
    Begin,
    /// The entries of these buckets; none: it has what it needs.
    List(Vec<u32>),
}

/// What a replica did for a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckStep {
    /// Nothing: no check runs, or it waits for the source.
    Idle,
    /// A slice; there is more.
    Worked,
    /// The source must be told this.
    Ask(CheckWish),
}

/// How a check went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Running,
    /// Both have the same.
    Same {
        /// Keys in all databases.
        keys: u64,
        /// The epoch of the source up to which they were compared.
        epoch: LogEpoch,
    },
    /// They differ.
    Differs(Difference),
    /// It could not be finished.
    Failed(&'static str),
}

/// The first key that differs, of those that were looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The name of its branch; empty of the first one.
    pub branch: Vec<u8>,
    /// The number of its database.
    pub database: u64,
    /// The key.
    pub key: Vec<u8>,
    /// Whether the source has it, and the replica.
    pub present: (bool, bool),
    /// The epoch of the source up to which they were compared.
    pub epoch: LogEpoch,
}

/// Adds up bytes: FNV-1a, and a mixer at the end.
#[derive(Clone, Copy, Debug)]
struct Digest(u64);

impl Digest {
    const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn number(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    fn string(&mut self, string: StringRef<'_>) {
        self.number(string.len() as u64);
        string.for_each_piece(0..string.len(), |piece| self.bytes(piece));
    }

    fn value(&mut self, value: ValueRef<'_>) {
        let attributes = value.attributes;
        self.number(value.tag() as u64);
        self.number(attributes.deadline.map_or(0, |deadline| deadline.0));
        self.number(u64::from(attributes.flags));
        self.number(attributes.token.map_or(0, std::num::NonZero::get));
        match value.body {
            BodyRef::String(string) => self.string(string),
            BodyRef::Row(_, row) => {
                let follows = columns_that_follow(value.body);
                for (column, content) in row.iter().filter(|(column, _)| !follows(column)) {
                    self.number(1);
                    self.string(StringRef::Flat(column));
                    self.string(content);
                }
                self.number(0);
            }
        }
    }

    /// Every bit depends on every byte.
    fn mixed(self) -> u64 {
        let mut mixed = self.0;
        for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53_u64] {
            mixed = (mixed ^ (mixed >> 33)).wrapping_mul(factor);
        }
        mixed ^ (mixed >> 33)
    }
}

/// What a pass over the trees finds.
#[derive(Debug)]
struct Found {
    /// What each tree is of: the databases of the first branch have their numbers, those of another
    /// one numbers from its own times that of databases on.
    numbers: HashMap<TreeId, u64>,
    database: u64,
    keys: u64,
    /// One for each bucket; empty in a pass that lists.
    digests: Vec<u64>,
    /// The buckets that are listed, in order.
    buckets: Vec<u32>,
    entries: Vec<Listed>,
    bytes: usize,
}

impl Takes for Found {
    fn begin(&mut self, tree: TreeId) {
        self.database = self.numbers[&tree];
        self.bytes = 0;
    }

    fn take(&mut self, key: &[u8], value: ValueRef<'_>) {
        let mut digest = Digest::new();
        digest.number(self.database);
        digest.string(StringRef::Flat(key));
        let bucket = digest.mixed() as usize % CHECK_BUCKETS;
        self.bytes += key.len() + value.heap_bytes();
        if self.digests.is_empty() && self.buckets.binary_search(&(bucket as u32)).is_err() {
            return;
        }
        digest.value(value);
        let digest = digest.mixed();
        match self.digests.get_mut(bucket) {
            Some(sum) => {
                *sum = sum.wrapping_add(digest);
                self.keys += 1;
            }
            None => self.entries.push(Listed {
                database: self.database,
                key: key.to_vec(),
                digest,
            }),
        }
    }

    fn is_full(&self) -> bool {
        self.bytes >= COPY_SLICE_BYTES
    }
}

/// A snapshot, branches as they were then, and a pass over both.
#[derive(Debug)]
struct Survey {
    snapshot: Arc<NamedSnapshot>,
    /// The trees of the snapshot.
    trees: Vec<TreeId>,
    /// Trees that show those of branches.
    kept: Vec<TreeId>,
    scans: [Scan; 2],
    found: Found,
}

impl Survey {
    /// Of branches, too, if the other side has any. The caller has no open turn.
    fn begin(session: &mut Session, of_branches: bool) -> Result<Self, CommandError> {
        let mut turn = session.turn();
        turn.hold_all();
        let snapshot = freeze(&mut turn, "replica-check", LIVES)?;
        let databases = turn.database().databases();
        let trees = snapshot.databases.iter().take(databases);
        let trees: Vec<TreeId> = trees.map(|frozen| frozen.tree).collect();
        let mut numbers: HashMap<_, _> = trees.iter().copied().zip(0..).collect();
        let mut kept = Vec::new();
        if let Some(engine) = turn.database().store.branching().filter(|_| of_branches) {
            for branch in turn.database().branches.all().into_iter().skip(1) {
                let first = branch.number.wrapping_mul(databases as u64);
                let version = engine::From::Branch(branch.id);
                let shown = engine.open_now(version, &branch.trees);
                numbers.extend(shown.iter().copied().zip(first..));
                kept.extend(shown);
            }
        }
        Ok(Self {
            scans: scans(&trees, &kept, &snapshot),
            trees,
            kept,
            snapshot,
            found: Found {
                numbers,
                database: 0,
                keys: 0,
                digests: vec![0; CHECK_BUCKETS],
                buckets: Vec::new(),
                entries: Vec::new(),
                bytes: 0,
            },
        })
    }

    fn next(&mut self, session: &mut Session) -> Scanned {
        let [first, others] = &mut self.scans;
        match first.next(session, &mut self.found) {
            Scanned::All => others.next(session, &mut self.found),
            scanned => scanned,
        }
    }

    /// Lists these buckets in another pass.
    fn list(&mut self, buckets: &[u32]) {
        self.found.digests.clear();
        self.found.buckets = buckets.to_vec();
        self.found.buckets.sort_unstable();
        self.scans = scans(&self.trees, &self.kept, &self.snapshot);
    }

    /// CK2 no-trace. The caller has no open turn.
    fn end(&self, session: &mut Session) {
        let mut turn = session.turn();
        turn.hold_all();
        let database = turn.database();
        if let Some(engine) = database.store.branching() {
            self.kept.iter().for_each(|tree| engine.close_base(*tree));
        }
        let_go(&mut turn, &self.snapshot);
    }
}

fn scans(trees: &[TreeId], kept: &[TreeId], snapshot: &NamedSnapshot) -> [Scan; 2] {
    let past = Some(snapshot.moment);
    [
        Scan::of(trees.to_vec(), past),
        Scan::of(kept.to_vec(), None),
    ]
}

/// The source's side of a check.
#[derive(Debug)]
pub(super) struct Checked {
    /// None if no snapshot could be made.
    survey: Option<Survey>,
    /// What is to be sent next: the position, then what a pass finds.
    told: bool,
    passes: bool,
}

impl Checked {
    /// Of a replica that has branches, or not. The caller has no open turn.
    pub(super) fn begin(session: &mut Session, of_branches: bool) -> Self {
        Self {
            survey: Survey::begin(session, of_branches).ok(),
            told: false,
            passes: true,
        }
    }

    /// The last epoch that is in the snapshot.
    pub(super) fn epoch(&self) -> LogEpoch {
        let survey = self.survey.as_ref();
        survey.map_or(LogEpoch::NONE, |survey| survey.snapshot.epoch())
    }

    /// The epoch that must be followable before the replica can be told.
    pub(super) fn awaits(&self) -> Option<LogEpoch> {
        (!self.told).then(|| self.epoch())
    }

    /// Whether the replica, at `cursor`, has more than the snapshot, and was not told yet where to
    /// make its own: nowhere would both be of the same moment (CK1 same-moment).
    pub(super) fn is_passed(&self, cursor: LogEpoch) -> bool {
        self.survey.is_some() && !self.told && cursor > self.epoch()
    }

    /// Begins a pass that lists.
    pub(super) fn list(&mut self, buckets: &[u32]) {
        if let Some(survey) = &mut self.survey {
            survey.list(buckets);
            self.passes = true;
        }
    }

    /// The next step; `behind` is the last epoch sent if all of the snapshot's were. It writes a
    /// message if one is due, and returns whether there is more to do.
    pub(super) fn next(
        &mut self,
        session: &mut Session,
        behind: Option<LogEpoch>,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(position) = behind.filter(|_| !self.told) else {
            return self.told && self.passes && self.pass(session, out);
        };
        self.told = true;
        put_check(out, position);
        true
    }

    fn pass(&mut self, session: &mut Session, out: &mut Vec<u8>) -> bool {
        let scanned = match &mut self.survey {
            Some(survey) => survey.next(session),
            None => Scanned::Gone,
        };
        match (scanned, &self.survey) {
            (Scanned::Some, _) => return true,
            (Scanned::All, Some(survey)) if survey.found.buckets.is_empty() => {
                put_digests(out, survey.found.keys, &survey.found.digests);
            }
            (Scanned::All, Some(survey)) => put_listing(out, &survey.found.entries),
            _ => put_digests(out, 0, &[]),
        }
        self.passes = false;
        false
    }

    /// The caller has no open turn.
    pub(super) fn end(self, session: &mut Session) {
        if let Some(survey) = self.survey {
            survey.end(session);
        }
    }
}

/// The replica's side of a check.
#[derive(Debug)]
pub(super) struct Checking {
    survey: Survey,
    epoch: LogEpoch,
    /// The present pass is over.
    passed: bool,
    theirs: Option<(u64, Vec<u64>)>,
    listing: Option<Vec<Listed>>,
    verdict: Option<Verdict>,
}

impl Checking {
    /// The caller has no open turn, and has repeated everything up to an epoch.
    pub(super) fn begin(session: &mut Session, epoch: LogEpoch) -> Result<Self, CommandError> {
        Ok(Self {
            survey: Survey::begin(session, true)?,
            epoch,
            passed: false,
            theirs: None,
            listing: None,
            verdict: None,
        })
    }

    pub(super) fn take_digests(&mut self, keys: u64, digests: Vec<u64>) {
        if digests.len() == CHECK_BUCKETS {
            self.theirs = Some((keys, digests));
        } else {
            self.verdict = Some(Verdict::Failed("the primary has given it up"));
        }
    }

    pub(super) fn take_listing(&mut self, entries: Vec<Listed>) {
        self.listing = Some(entries);
    }

    pub(super) fn verdict(&mut self) -> Option<Verdict> {
        self.verdict.take()
    }

    /// The next step.
    pub(super) fn next(&mut self, session: &mut Session) -> CheckStep {
        if self.verdict.is_some() {
            return CheckStep::Ask(CheckWish::List(Vec::new()));
        }
        if !self.passed {
            match self.survey.next(session) {
                Scanned::Some => {}
                Scanned::All => self.passed = true,
                Scanned::Gone => {
                    let gone = "its snapshot was dropped here, for want of memory";
                    self.verdict = Some(Verdict::Failed(gone));
                    return CheckStep::Ask(CheckWish::List(Vec::new()));
                }
            }
            return CheckStep::Worked;
        }
        if let Some((keys, theirs)) = self.theirs.take() {
            return CheckStep::Ask(CheckWish::List(self.compare(keys, &theirs)));
        }
        if let Some(theirs) = self.listing.take() {
            self.verdict = Some(self.first_difference(session.database(), theirs));
            return CheckStep::Ask(CheckWish::List(Vec::new()));
        }
        CheckStep::Idle
    }

    /// Compares the digests; returns the buckets to look into.
    fn compare(&mut self, keys: u64, theirs: &[u64]) -> Vec<u32> {
        let ours = self.survey.found.digests.iter();
        let pairs = ours.zip(theirs).enumerate();
        let differ = pairs.filter(|(_, (one, other))| one != other);
        let differ = differ.map(|(bucket, _)| bucket as u32);
        let differ: Vec<u32> = differ.take(CHECK_LISTED_MAX).collect();
        if differ.is_empty() {
            let epoch = self.epoch;
            self.verdict = Some(Verdict::Same { keys, epoch });
        } else {
            self.survey.list(&differ);
            self.passed = false;
        }
        differ
    }

    /// The first in the order of databases and keys that is not on both sides.
    fn first_difference(&mut self, here: &Database, mut theirs: Vec<Listed>) -> Verdict {
        let mut ours = std::mem::take(&mut self.survey.found.entries);
        theirs.sort_unstable();
        ours.sort_unstable();
        let same = |(one, other): &(&Listed, &Listed)| one == other;
        let at = theirs.iter().zip(&ours).take_while(same).count();
        let place = |entries: &[Listed]| {
            let entry = entries.get(at)?;
            Some((entry.database, entry.key.clone()))
        };
        let sides = [place(&theirs), place(&ours)];
        let first = sides.iter().flatten().min().cloned();
        let Some((database, key)) = first else {
            return Verdict::Failed("digests differ, and entries do not");
        };
        let present = sides.map(|side| side.is_some_and(|it| it == (database, key.clone())));
        let databases = here.databases() as u64;
        let branch = here.branches.numbered(database / databases);
        let branch = branch.filter(|branch| branch.number > 0);
        Verdict::Differs(Difference {
            present: present.into(),
            branch: branch.map_or(Vec::new(), |branch| branch.name.into()),
            database: database % databases,
            key,
            epoch: self.epoch,
        })
    }

    /// The caller has no open turn.
    pub(super) fn end(self, session: &mut Session) {
        self.survey.end(session);
    }
}
