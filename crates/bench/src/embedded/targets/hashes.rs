//! Hash maps of the registry: point operations only.

use rustc_hash::FxBuildHasher;

use super::{Target, Worker};

/// The crate `dashmap`.
pub(crate) struct DashMap(dashmap::DashMap<Box<[u8]>, u64, FxBuildHasher>);

impl Target for DashMap {
    type Worker<'t> = &'t DashMap;

    fn new() -> Self {
        Self(dashmap::DashMap::default())
    }

    fn worker(&self) -> &DashMap {
        self
    }
}

impl Worker for &DashMap {
    fn put(&mut self, key: &[u8], value: u64) {
        self.0.insert(key.into(), value);
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        self.0.get(key).map(|value| *value)
    }
}

/// The crate `papaya`.
pub(crate) struct PapayaMap(papaya::HashMap<Box<[u8]>, u64, FxBuildHasher>);

impl Target for PapayaMap {
    type Worker<'t> = &'t PapayaMap;

    fn new() -> Self {
        Self(papaya::HashMap::default())
    }

    fn worker(&self) -> &PapayaMap {
        self
    }
}

impl Worker for &PapayaMap {
    fn put(&mut self, key: &[u8], value: u64) {
        self.0.pin().insert(key.into(), value);
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        self.0.pin().get(key).copied()
    }
}

/// The hash map of the crate `scc`.
pub(crate) struct SccMap(scc::HashMap<Box<[u8]>, u64, FxBuildHasher>);

impl Target for SccMap {
    type Worker<'t> = &'t SccMap;

    fn new() -> Self {
        Self(scc::HashMap::default())
    }

    fn worker(&self) -> &SccMap {
        self
    }
}

impl Worker for &SccMap {
    fn put(&mut self, key: &[u8], value: u64) {
        self.0.upsert_sync(key.into(), value);
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        self.0.read_sync(key, |_, value| *value)
    }
}
