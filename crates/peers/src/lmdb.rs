//! LMDB: each operation is a transaction.
//!
//! Durable: committed as LMDB commits by default, with a sync, which a tmpfs makes cheap. Pages are
//! written through the map, the faster of its two ways here.

use std::path::Path;

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions};

use crate::store::{Outcome, Store};

pub(crate) struct Lmdb {
    env: Env,
    pairs: Database<Bytes, Bytes>,
}

impl Lmdb {
    pub(crate) fn create(directory: &Path, bytes: u64, durable: bool) -> Outcome<Self> {
        let mut flags = EnvFlags::WRITE_MAP;
        if !durable {
            flags |= EnvFlags::NO_SYNC | EnvFlags::NO_META_SYNC;
        }
        let mut options = EnvOpenOptions::new();
        options.map_size((bytes * 2).next_multiple_of(1 << 20) as usize);
        // SAFETY: without a sync a crash may damage the file, which goes with this process.
        let options = unsafe { options.flags(flags) };
        // SAFETY: nobody else opens, or changes, a file in this directory.
        let env = unsafe { options.open(directory) }?;
        let mut write = env.write_txn()?;
        let pairs = env.create_database(&mut write, None)?;
        write.commit()?;
        Ok(Self { env, pairs })
    }
}

impl Store for Lmdb {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        let mut write = self.env.write_txn()?;
        self.pairs.put(&mut write, key, value)?;
        Ok(write.commit()?)
    }

    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> Outcome<bool> {
        let read = self.env.read_txn()?;
        let value = self.pairs.get(&read, key)?;
        into.extend_from_slice(value.unwrap_or_default());
        Ok(value.is_some())
    }

    fn delete(&mut self, key: &[u8]) -> Outcome<()> {
        let mut write = self.env.write_txn()?;
        self.pairs.delete(&mut write, key)?;
        Ok(write.commit()?)
    }
}
