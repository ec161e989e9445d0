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

/// The crate `dashmap` with keys of up to 15 bytes in place, as a user of short keys would have it.
pub(crate) struct DashMapInline(dashmap::DashMap<InlineKey, u64, FxBuildHasher>);

/// The bytes, and how many there are.
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct InlineKey([u8; 15], u8);

impl InlineKey {
    fn new(key: &[u8]) -> Self {
        let mut bytes = [0; 15];
        bytes[..key.len()].copy_from_slice(key);
        Self(bytes, key.len() as u8)
    }
}

impl Target for DashMapInline {
    type Worker<'t> = &'t DashMapInline;

    fn new() -> Self {
        Self(dashmap::DashMap::default())
    }

    fn worker(&self) -> &DashMapInline {
        self
    }
}

impl Worker for &DashMapInline {
    fn put(&mut self, key: &[u8], value: u64) {
        self.0.insert(InlineKey::new(key), value);
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        self.0.get(&InlineKey::new(key)).map(|value| *value)
    }

    fn remove(&mut self, key: &[u8]) {
        self.0.remove(&InlineKey::new(key));
    }
}

impl Worker for &DashMap {
    fn put(&mut self, key: &[u8], value: u64) {
        self.0.insert(key.into(), value);
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        self.0.get(key).map(|value| *value)
    }

    fn remove(&mut self, key: &[u8]) {
        self.0.remove(key);
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
