//! What is measured: engines of this project through their contract, and peers from the registry.
//!
//! An engine stores the server's value type, version included; its values are read byte by byte. A
//! peer stores a `u64`, as its users would. Hash maps get a quick hasher (`rustc-hash`) instead of
//! the standard library's.

mod hashes;
mod pando;
mod stores;
mod trees;

use std::fmt;
use std::str::FromStr;

use pando_engine::Direction;

pub(crate) use hashes::{DashMap, DashMapInline, PapayaMap, SccMap};
pub(crate) use pando::{
    Masstree, MasstreeSmall, MercuryBucket, MercuryMutex, MercuryOptimistic, MercuryRwLock, Minuet,
    MinuetPast, Reference,
};
pub(crate) use stores::Redb;
pub(crate) use trees::{BTreeLock, CongeeTree, MasstreeCrate, SccTree, SkipList};

use super::keys::KeyShape;

/// The targets by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TargetName {
    Masstree,
    MasstreeSmall,
    Reference,
    BTreeLock,
    MasstreeCrate,
    SkipList,
    SccTree,
    Congee,
    DashMap,
    DashMapInline,
    PapayaMap,
    SccMap,
    Redb,
    MercuryOptimistic,
    MercuryBucket,
    MercuryMutex,
    MercuryRwLock,
    Minuet,
    MinuetPast,
}

impl TargetName {
    const ALL: [(Self, &'static str); 19] = [
        (Self::Masstree, "pando-masstree"),
        (Self::MasstreeSmall, "pando-masstree-small-pages"),
        (Self::Reference, "pando-reference"),
        (Self::BTreeLock, "btree-lock"),
        (Self::MasstreeCrate, "masstree-crate"),
        (Self::SkipList, "crossbeam-skiplist"),
        (Self::SccTree, "scc-tree"),
        (Self::Congee, "congee"),
        (Self::DashMap, "dashmap"),
        (Self::DashMapInline, "dashmap-inline-keys"),
        (Self::PapayaMap, "papaya"),
        (Self::SccMap, "scc-hash"),
        (Self::Redb, "redb"),
        (Self::MercuryOptimistic, "pando-mercury"),
        (Self::MercuryBucket, "mercury-bucket-locks"),
        (Self::MercuryMutex, "mercury-mutexes"),
        (Self::MercuryRwLock, "mercury-rwlocks"),
        (Self::Minuet, "pando-minuet"),
        (Self::MinuetPast, "pando-minuet-snapshot"),
    ];

    /// Whether the target takes keys of this shape.
    pub(crate) fn takes(self, shape: KeyShape) -> bool {
        self != Self::Congee || matches!(shape, KeyShape::Fixed | KeyShape::Digits)
    }

    /// The targets' names.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        Self::ALL.iter().map(|(_, name)| *name)
    }
}

/// Evaluates `$body` with `$type` naming the type of the target that `$name` names.
macro_rules! on_target {
    ($name:expr, $type:ident => $body:expr) => {{
        use $crate::embedded::targets as all;
        macro_rules! arm {
            ($which:ident) => {{
                type $type = all::$which;
                $body
            }};
        }
        match $name {
            all::TargetName::Masstree => arm!(Masstree),
            all::TargetName::MasstreeSmall => arm!(MasstreeSmall),
            all::TargetName::Reference => arm!(Reference),
            all::TargetName::BTreeLock => arm!(BTreeLock),
            all::TargetName::MasstreeCrate => arm!(MasstreeCrate),
            all::TargetName::SkipList => arm!(SkipList),
            all::TargetName::SccTree => arm!(SccTree),
            all::TargetName::Congee => arm!(CongeeTree),
            all::TargetName::DashMap => arm!(DashMap),
            all::TargetName::DashMapInline => arm!(DashMapInline),
            all::TargetName::PapayaMap => arm!(PapayaMap),
            all::TargetName::SccMap => arm!(SccMap),
            all::TargetName::Redb => arm!(Redb),
            all::TargetName::MercuryOptimistic => arm!(MercuryOptimistic),
            all::TargetName::MercuryBucket => arm!(MercuryBucket),
            all::TargetName::MercuryMutex => arm!(MercuryMutex),
            all::TargetName::MercuryRwLock => arm!(MercuryRwLock),
            all::TargetName::Minuet => arm!(Minuet),
            all::TargetName::MinuetPast => arm!(MinuetPast),
        }
    }};
}
pub(crate) use on_target;

impl fmt::Display for TargetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL
            .iter()
            .find(|(target, _)| target == self)
            .map_or("", |(_, name)| name);
        f.pad(name)
    }
}

impl FromStr for TargetName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names: Vec<_> = Self::names().collect();
        Self::ALL
            .iter()
            .find(|(_, name)| *name == text)
            .map(|(target, _)| *target)
            .ok_or_else(|| format!("no target {text}; there are {}", names.join(", ")))
    }
}

/// A map under measurement, shared by threads.
pub(crate) trait Target: Sync {
    /// What one thread works through.
    type Worker<'t>: Worker
    where
        Self: 't;

    fn new() -> Self;
    fn worker(&self) -> Self::Worker<'_>;

    /// What a gauge of this name counts, where there is one.
    fn count_of(&self, _gauge: &str) -> Option<f64> {
        None
    }
}

/// What a scan sums of a key: its length and its last byte, so that the key itself is read.
fn key_figure(key: &[u8]) -> u64 {
    key.len() as u64 + u64::from(key.last().copied().unwrap_or(0))
}

/// One thread's access. Sums of values and keys' figures are returned so that nothing is optimised
/// away.
pub(crate) trait Worker {
    fn put(&mut self, key: &[u8], value: u64);
    fn get(&mut self, key: &[u8]) -> Option<u64>;

    /// Removes a key that is there; targets that are not measured at it do nothing.
    fn remove(&mut self, _key: &[u8]) {}

    /// Begins a batch of operations, for targets whose guard may cover many.
    fn pin(&mut self) {}

    /// Ends what [`Self::pin`] began.
    fn unpin(&mut self) {}

    /// Sum of the values of `keys`; interleaved where the target can.
    fn get_batch(&mut self, keys: &[&[u8]]) -> u64 {
        keys.iter()
            .fold(0, |sum, key| sum.wrapping_add(self.get(key).unwrap_or(0)))
    }

    /// Sum over up to `limit` entries from `start` on: values and keys' figures. `None` when the
    /// target has no order, or none in this direction.
    fn scan(&mut self, _start: &[u8], _limit: usize, _direction: Direction) -> Option<u64> {
        None
    }
}
