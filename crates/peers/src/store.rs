//! What a store does, and which there are.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use thiserror::Error;

use crate::{berkeley, lmdb, ours, rocks};

/// Why there are no figures.
#[derive(Debug, Error)]
pub(crate) enum StoreError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Pool(#[from] pando_pmem::PoolError),
    #[error(transparent)]
    Tree(#[from] pando_cdds::Error),
    #[error(transparent)]
    Lmdb(#[from] heed::Error),
    #[error("Berkeley DB: {call} fails with {code}")]
    Berkeley { call: &'static str, code: i32 },
    #[error("RocksDB: {0}")]
    Rocks(String),
    #[error("{library} is not here; Debian's package {package} has it: {error}")]
    Absent {
        library: &'static str,
        package: &'static str,
        error: libloading::Error,
    },
    #[error("{library} has the version {got}, expected {expected}")]
    Version {
        library: &'static str,
        got: String,
        expected: &'static str,
    },
    #[error("pair {number} is lost")]
    Lost { number: u32 },
    #[error("pair {number} has another value")]
    Wrong { number: u32 },
}

pub(crate) type Outcome<T> = Result<T, StoreError>;

/// Pairs, each of whose operations is durable when it returns, unless the store was created without
/// durability.
pub(crate) trait Store {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Outcome<()>;

    /// Appends the value to `into`; whether there is one.
    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> Outcome<bool>;

    fn delete(&mut self, key: &[u8]) -> Outcome<()>;

    /// Between two phases, outside of their time.
    fn pause(&mut self) -> Outcome<()> {
        Ok(())
    }
}

/// The stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    Pando,
    Berkeley,
    Lmdb,
    Rocks,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Pando, Self::Berkeley, Self::Lmdb, Self::Rocks];

    /// An empty store with room for so many bytes.
    pub(crate) fn create(
        self,
        scratch: &Scratch,
        bytes: u64,
        durable: bool,
    ) -> Outcome<Box<dyn Store>> {
        let directory = scratch.path();
        Ok(match self {
            Self::Pando if durable => Box::new(ours::durable(directory, bytes)?),
            Self::Pando => Box::new(ours::volatile(directory, bytes)?),
            Self::Berkeley => Box::new(berkeley::Berkeley::create(directory, bytes, durable)?),
            Self::Lmdb => Box::new(lmdb::Lmdb::create(directory, bytes, durable)?),
            Self::Rocks => Box::new(rocks::Rocks::create(directory, durable)?),
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Pando => "pando",
            Self::Berkeley => "berkeley",
            Self::Lmdb => "lmdb",
            Self::Rocks => "rocks",
        })
    }
}

/// A directory that goes with everything in it.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(below: &Path) -> Outcome<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("pando-peers-{}-{number}", std::process::id());
        let path = below.join(name);
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed stays, and is named after us.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The smoke run of all that are here.
    #[test]
    fn every_store_keeps_what_it_is_given() {
        let scratch_below = Path::new("/dev/shm");
        for kind in Kind::ALL {
            for durable in [true, false] {
                let scratch = Scratch::new(scratch_below).unwrap();
                let mut store = match kind.create(&scratch, 64 << 20, durable) {
                    Ok(store) => store,
                    // Theirs are Debian's, and are measured where they are.
                    Err(StoreError::Absent { .. }) => continue,
                    Err(error) => panic!("{kind}: {error}"),
                };
                let value = |n: usize| vec![n as u8; 100 + n * 20];
                let mut got = Vec::new();
                for n in 0..150 {
                    let key = format!("key {n}");
                    store.put(key.as_bytes(), b"old").unwrap();
                    store.put(key.as_bytes(), &value(n)).unwrap();
                }
                store.pause().unwrap();
                for n in 0..150 {
                    let key = format!("key {n}");
                    got.clear();
                    assert!(store.get(key.as_bytes(), &mut got).unwrap(), "{kind}");
                    assert_eq!(got, value(n), "{kind}");
                    store.delete(key.as_bytes()).unwrap();
                    got.clear();
                    assert!(!store.get(key.as_bytes(), &mut got).unwrap(), "{kind}");
                }
            }
        }
    }
}
