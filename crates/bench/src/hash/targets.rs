//! What is measured: the engine Mercury through its contract, and hash maps of the registry.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use foldhash::fast::RandomState;
use pando_engine::{
    Body, BodyRef, Decision, Engine, EpochClock, Key, LogEpoch, NewValue, NoHook, Point, TreeId,
    ValueRef,
};
use pando_mercury::{Mercury as MercuryEngine, MercurySession};

use super::number_of;
use crate::locking::Locking;

/// The targets by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetName {
    Mercury,
    MercuryBucket,
    MercuryMutex,
    MercuryRwLock,
    DashMap,
    Papaya,
    Scc,
}

const NAMES: [(TargetName, &str); 7] = [
    (TargetName::Mercury, "mercury"),
    (TargetName::MercuryBucket, "mercury-ttas"),
    (TargetName::MercuryMutex, "mercury-mutex"),
    (TargetName::MercuryRwLock, "mercury-rwlock"),
    (TargetName::DashMap, "dashmap"),
    (TargetName::Papaya, "papaya"),
    (TargetName::Scc, "scc"),
];

#[cfg(test)]
impl TargetName {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        NAMES.into_iter().map(|(target, _)| target)
    }
}

impl fmt::Display for TargetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = NAMES.iter().find(|(target, _)| target == self);
        f.write_str(found.map_or("", |(_, name)| name))
    }
}

impl FromStr for TargetName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(_, name)| *name == text);
        found.map(|(target, _)| *target).ok_or_else(|| {
            let names = NAMES.map(|(_, name)| name);
            format!("no target {text}; there are {}", names.join(", "))
        })
    }
}

/// A map under measurement, shared by threads.
pub(crate) trait Target: Sync {
    /// What one thread works through.
    type Worker<'t>: Worker
    where
        Self: 't;

    fn worker(&self) -> Self::Worker<'_>;

    /// Says what else there is to say when its cells are done.
    fn finish(&self) {}
}

/// One thread's access. A get returns the number in the value.
pub(crate) trait Worker {
    fn put(&mut self, key: &[u8], value: &[u8]);
    fn get(&mut self, key: &[u8]) -> u64;

    /// Sum over the numbers of `keys`; interleaved where the target can.
    fn get_batch(&mut self, keys: &[&[u8]]) -> u64 {
        keys.iter()
            .fold(0, |sum, key| sum.wrapping_add(self.get(key)))
    }

    /// Puts all pairs; interleaved where the target can.
    fn put_batch(&mut self, pairs: &[(&[u8], &[u8])]) {
        for (key, value) in pairs {
            self.put(key, value);
        }
    }

    /// Called between a few hundred operations, as a server's turns end and begin.
    fn turn(&mut self) {}

    /// Ends what loading has left to do.
    fn settle(&mut self) {}
}

/// The engine, under one of the kinds of locks that its paper compares.
pub(crate) struct Mercury<L> {
    pub(super) engine: Arc<MercuryEngine>,
    pub(super) tree: TreeId,
    locks: L,
}

impl<L: Locking> Default for Mercury<L> {
    fn default() -> Self {
        let engine = MercuryEngine::new(Arc::new(EpochClock::starting_at(LogEpoch(1))));
        let tree = engine.create_tree();
        Self {
            engine,
            tree,
            locks: L::default(),
        }
    }
}

impl<L: Locking> Target for Mercury<L> {
    type Worker<'t> = MercuryWorker<'t, L>;

    fn worker(&self) -> MercuryWorker<'_, L> {
        let session = self.engine.session().expect("fewer threads than sessions");
        MercuryWorker {
            session,
            locks: &self.locks,
            tree: self.tree,
            pinned: false,
        }
    }

    fn finish(&self) {
        let model = self.engine.line_model(self.tree);
        println!("modelled bucket lines {}", model.bucket_lines);
        println!("modelled entry lines {}", model.entry_lines);
        println!("modelled lines {}", model.bucket_lines + model.entry_lines);
    }
}

pub(crate) struct MercuryWorker<'t, L> {
    session: MercurySession,
    locks: &'t L,
    tree: TreeId,
    pinned: bool,
}

fn number(value: Option<ValueRef<'_>>) -> u64 {
    match value.map(|value| value.body) {
        Some(BodyRef::String(string)) => string.as_flat().map_or(0, number_of),
        _ => 0,
    }
}

impl<L: Locking> Worker for MercuryWorker<'_, L> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) {
        let write = || Decision::Write(NewValue::new(Body::string(value)));
        let key = Key::new(self.tree, key);
        self.locks.update(&mut self.session, key, write);
    }

    #[inline]
    fn get(&mut self, key: &[u8]) -> u64 {
        let key = Key::new(self.tree, key);
        self.locks.get(&mut self.session, key, number)
    }

    fn get_batch(&mut self, keys: &[&[u8]]) -> u64 {
        if !L::INTERLEAVED {
            return keys
                .iter()
                .fold(0, |sum, key| sum.wrapping_add(self.get(key)));
        }
        let mut named = [Key::new(self.tree, b""); super::BATCH];
        for (named, key) in named.iter_mut().zip(keys) {
            named.bytes = key;
        }
        let mut sum = 0_u64;
        self.session.get_many(&named[..keys.len()], |_, value| {
            sum = sum.wrapping_add(number(value));
        });
        sum
    }

    fn put_batch(&mut self, pairs: &[(&[u8], &[u8])]) {
        if !L::INTERLEAVED {
            return pairs.iter().for_each(|(key, value)| self.put(key, value));
        }
        let mut named = [Key::new(self.tree, b""); super::BATCH];
        for (named, (key, _)) in named.iter_mut().zip(pairs) {
            named.bytes = key;
        }
        self.session
            .update_many(&named[..pairs.len()], &mut NoHook, |index, _| {
                Decision::Write(NewValue::new(Body::string(pairs[index].1)))
            });
    }

    fn turn(&mut self) {
        if self.pinned {
            self.session.unpin();
        }
        self.session.pin();
        self.pinned = true;
    }

    fn settle(&mut self) {
        while self.session.maintain(4096) > 0 {}
    }
}

/// The crate `dashmap`.
#[derive(Default)]
pub(crate) struct DashMap(dashmap::DashMap<Box<[u8]>, Box<[u8]>, RandomState>);

impl Target for DashMap {
    type Worker<'t> = &'t DashMap;

    fn worker(&self) -> &DashMap {
        self
    }
}

impl Worker for &DashMap {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        // A key that is there need not be allocated again.
        if let Some(mut old) = self.0.get_mut(key) {
            *old = value.into();
            return;
        }
        self.0.insert(key.into(), value.into());
    }

    fn get(&mut self, key: &[u8]) -> u64 {
        self.0.get(key).map_or(0, |value| number_of(&value))
    }
}

/// The crate `papaya`, its guard held for a turn.
#[derive(Default)]
pub(crate) struct PapayaMap(papaya::HashMap<Box<[u8]>, Box<[u8]>, RandomState>);

pub(crate) struct PapayaWorker<'t> {
    map: &'t PapayaMap,
    guard: papaya::LocalGuard<'t>,
}

impl Target for PapayaMap {
    type Worker<'t> = PapayaWorker<'t>;

    fn worker(&self) -> PapayaWorker<'_> {
        PapayaWorker {
            map: self,
            guard: self.0.guard(),
        }
    }
}

impl Worker for PapayaWorker<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.map.0.insert(key.into(), value.into(), &self.guard);
    }

    fn get(&mut self, key: &[u8]) -> u64 {
        let found = self.map.0.get(key, &self.guard);
        found.map_or(0, |value| number_of(value))
    }

    fn turn(&mut self) {
        self.guard = self.map.0.guard();
    }
}

/// The hash map of the crate `scc`.
#[derive(Default)]
pub(crate) struct SccMap(scc::HashMap<Box<[u8]>, Box<[u8]>, RandomState>);

impl Target for SccMap {
    type Worker<'t> = &'t SccMap;

    fn worker(&self) -> &SccMap {
        self
    }
}

impl Worker for &SccMap {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        let found = self.0.update_sync(key, |_, old| *old = value.into());
        if found.is_none() {
            self.0.upsert_sync(key.into(), value.into());
        }
    }

    fn get(&mut self, key: &[u8]) -> u64 {
        self.0
            .read_sync(key, |_, value| number_of(value))
            .unwrap_or(0)
    }
}
