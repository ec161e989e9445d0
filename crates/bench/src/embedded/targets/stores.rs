//! Embedded stores that are more than a map, with persistence off: `redb` on its memory backend.

use pando_engine::Direction;
use redb::{Database, ReadOnlyTable, ReadableDatabase, TableDefinition};

use super::{Target, Worker, key_figure};

const TABLE: TableDefinition<&[u8], u64> = TableDefinition::new("keys");

/// Writes of one transaction: `redb` commits per transaction, so a lone put would measure commits.
const TRANSACTION: usize = 1000;

const BROKEN: &str = "redb works in memory";

/// The crate `redb`.
pub(crate) struct Redb(Database);

/// One thread's transactions: puts are gathered, reads see what was committed.
pub(crate) struct RedbWorker<'t> {
    database: &'t Database,
    puts: Vec<(Box<[u8]>, u64)>,
    table: Option<ReadOnlyTable<&'static [u8], u64>>,
}

impl Target for Redb {
    type Worker<'t> = RedbWorker<'t>;

    fn new() -> Self {
        let backend = redb::backends::InMemoryBackend::new();
        let database = Database::builder()
            .set_cache_size(4 << 30)
            .create_with_backend(backend)
            .expect(BROKEN);
        let write = database.begin_write().expect(BROKEN);
        write.open_table(TABLE).expect(BROKEN);
        write.commit().expect(BROKEN);
        Self(database)
    }

    fn worker(&self) -> RedbWorker<'_> {
        RedbWorker {
            database: &self.0,
            puts: Vec::with_capacity(TRANSACTION),
            table: None,
        }
    }
}

impl RedbWorker<'_> {
    fn commit(&mut self) {
        if self.puts.is_empty() {
            return;
        }
        let mut write = self.database.begin_write().expect(BROKEN);
        write
            .set_durability(redb::Durability::None)
            .expect("no savepoints");
        {
            let mut table = write.open_table(TABLE).expect(BROKEN);
            for (key, value) in self.puts.drain(..) {
                table.insert(&*key, value).expect(BROKEN);
            }
        }
        write.commit().expect(BROKEN);
        self.table = None;
    }

    fn table(&mut self) -> &ReadOnlyTable<&'static [u8], u64> {
        self.commit();
        let database = self.database;
        self.table.get_or_insert_with(|| {
            let read = database.begin_read().expect(BROKEN);
            read.open_table(TABLE).expect(BROKEN)
        })
    }
}

impl Drop for RedbWorker<'_> {
    fn drop(&mut self) {
        self.commit();
    }
}

impl Worker for RedbWorker<'_> {
    fn put(&mut self, key: &[u8], value: u64) {
        self.puts.push((key.into(), value));
        if self.puts.len() == TRANSACTION {
            self.commit();
        }
    }

    fn get(&mut self, key: &[u8]) -> Option<u64> {
        let found = self.table().get(key).expect(BROKEN);
        found.map(|value| value.value())
    }

    fn scan(&mut self, start: &[u8], limit: usize, direction: Direction) -> Option<u64> {
        let table = self.table();
        let sum = |sum: u64, entry: Result<_, redb::StorageError>| {
            let (key, value): (
                redb::AccessGuard<'_, &'static [u8]>,
                redb::AccessGuard<'_, u64>,
            ) = entry.expect(BROKEN);
            sum.wrapping_add(value.value())
                .wrapping_add(key_figure(key.value()))
        };
        Some(match direction {
            Direction::Forward => table
                .range::<&[u8]>(start..)
                .expect(BROKEN)
                .take(limit)
                .fold(0, sum),
            Direction::Backward => table
                .range::<&[u8]>(..=start)
                .expect(BROKEN)
                .rev()
                .take(limit)
                .fold(0, sum),
        })
    }
}
