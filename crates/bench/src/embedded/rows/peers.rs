//! Rows on embedded peers: one block per row, columns of equal size by number.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::Bound;
use std::sync::RwLock;

use crossbeam_skiplist::SkipMap;
use rustc_hash::FxBuildHasher;

use super::{RowWorker, Rows, figure};

type Block = Box<[u8]>;

const SOUND: &str = "no panic under the lock";

/// Writes one column of a row.
fn set(row: &mut [u8], column: usize, value: &[u8]) {
    let start = column * value.len();
    row[start..start + value.len()].copy_from_slice(value);
}

/// The row with one column changed.
fn replaced(row: &[u8], column: usize, value: &[u8]) -> Block {
    let mut copy: Block = row.into();
    set(&mut copy, column, value);
    copy
}

/// Reads all columns of a row.
#[inline]
fn sum(row: &[u8], column_bytes: usize) -> u64 {
    let columns = row.chunks_exact(column_bytes);
    columns.map(figure).fold(0, u64::wrapping_add)
}

/// Reads a row or its first column.
#[inline]
fn read(row: &[u8], column_bytes: usize, one_column: bool) -> u64 {
    if one_column {
        figure(&row[..column_bytes])
    } else {
        sum(row, column_bytes)
    }
}

/// The standard library's ordered map behind a lock; updates in place.
pub(super) struct LockedRows {
    map: RwLock<BTreeMap<Block, Block>>,
    column_bytes: usize,
}

impl Rows for LockedRows {
    type Worker<'t> = &'t LockedRows;

    fn new(_: usize, column_bytes: usize) -> Self {
        Self {
            map: RwLock::default(),
            column_bytes,
        }
    }

    fn worker(&self) -> &LockedRows {
        self
    }
}

impl RowWorker for &LockedRows {
    fn insert(&mut self, key: &[u8], row: &[u8]) {
        self.map
            .write()
            .expect(SOUND)
            .insert(key.into(), row.into());
    }

    fn update(&mut self, key: &[u8], column: usize, value: &[u8]) {
        if let Some(row) = self.map.write().expect(SOUND).get_mut(key) {
            set(row, column, value);
        }
    }

    fn read(&mut self, key: &[u8]) -> Option<u64> {
        self.map
            .read()
            .expect(SOUND)
            .get(key)
            .map(|row| sum(row, self.column_bytes))
    }

    fn scan(&mut self, start: &[u8], limit: usize, one_column: bool) -> Option<usize> {
        let map = self.map.read().expect(SOUND);
        let rows = map.range::<[u8], _>((Bound::Included(start), Bound::Unbounded));
        let (mut found, mut total) = (0, 0_u64);
        for (_, row) in rows.take(limit) {
            total = total.wrapping_add(read(row, self.column_bytes, one_column));
            found += 1;
        }
        black_box(total);
        Some(found)
    }
}

/// `crossbeam-skiplist`; a lock per row, because an insert over an entry removes that one first and
/// readers find neither for a moment.
pub(super) struct SkipRows {
    map: SkipMap<Block, RwLock<Block>>,
    column_bytes: usize,
}

/// Holds the guard for a turn.
pub(super) struct SkipWorker<'t> {
    rows: &'t SkipRows,
    guard: crossbeam_epoch::Guard,
}

impl Rows for SkipRows {
    type Worker<'t> = SkipWorker<'t>;

    fn new(_: usize, column_bytes: usize) -> Self {
        Self {
            map: SkipMap::default(),
            column_bytes,
        }
    }

    fn worker(&self) -> SkipWorker<'_> {
        SkipWorker {
            rows: self,
            guard: crossbeam_epoch::pin(),
        }
    }
}

impl RowWorker for SkipWorker<'_> {
    fn turn(&mut self) {
        self.guard.repin();
    }

    fn insert(&mut self, key: &[u8], row: &[u8]) {
        self.rows.map.insert(key.into(), RwLock::new(row.into()));
    }

    fn update(&mut self, key: &[u8], column: usize, value: &[u8]) {
        if let Some(entry) = self.rows.map.get(key) {
            set(&mut entry.value().write().expect(SOUND), column, value);
        }
    }

    fn read(&mut self, key: &[u8]) -> Option<u64> {
        let entry = self.rows.map.get(key)?;
        Some(sum(
            &entry.value().read().expect(SOUND),
            self.rows.column_bytes,
        ))
    }

    fn scan(&mut self, start: &[u8], limit: usize, one_column: bool) -> Option<usize> {
        let rows = self
            .rows
            .map
            .range::<[u8], _>((Bound::Included(start), Bound::Unbounded));
        let (mut found, mut total) = (0, 0);
        for entry in rows.take(limit) {
            let row = entry.value().read().expect(SOUND);
            total = u64::wrapping_add(total, read(&row, self.rows.column_bytes, one_column));
            found += 1;
        }
        black_box(total);
        Some(found)
    }
}

/// `dashmap`; updates in place.
pub(super) struct DashRows {
    map: dashmap::DashMap<Block, Block, FxBuildHasher>,
    column_bytes: usize,
}

impl Rows for DashRows {
    type Worker<'t> = &'t DashRows;

    fn new(_: usize, column_bytes: usize) -> Self {
        Self {
            map: dashmap::DashMap::default(),
            column_bytes,
        }
    }

    fn worker(&self) -> &DashRows {
        self
    }
}

impl RowWorker for &DashRows {
    fn insert(&mut self, key: &[u8], row: &[u8]) {
        self.map.insert(key.into(), row.into());
    }

    fn update(&mut self, key: &[u8], column: usize, value: &[u8]) {
        if let Some(mut row) = self.map.get_mut(key) {
            set(&mut row, column, value);
        }
    }

    fn read(&mut self, key: &[u8]) -> Option<u64> {
        self.map.get(key).map(|row| sum(&row, self.column_bytes))
    }
}

/// `papaya`, its guard held for a turn; an update replaces the row.
pub(super) struct PapayaRows {
    map: papaya::HashMap<Block, Block, FxBuildHasher>,
    column_bytes: usize,
}

pub(super) struct PapayaWorker<'t> {
    map: &'t papaya::HashMap<Block, Block, FxBuildHasher>,
    guard: papaya::LocalGuard<'t>,
    column_bytes: usize,
}

impl Rows for PapayaRows {
    type Worker<'t> = PapayaWorker<'t>;

    fn new(_: usize, column_bytes: usize) -> Self {
        Self {
            map: papaya::HashMap::default(),
            column_bytes,
        }
    }

    fn worker(&self) -> PapayaWorker<'_> {
        PapayaWorker {
            map: &self.map,
            guard: self.map.guard(),
            column_bytes: self.column_bytes,
        }
    }
}

impl RowWorker for PapayaWorker<'_> {
    fn turn(&mut self) {
        self.guard = self.map.guard();
    }

    fn insert(&mut self, key: &[u8], row: &[u8]) {
        self.map.insert(key.into(), row.into(), &self.guard);
    }

    fn update(&mut self, key: &[u8], column: usize, value: &[u8]) {
        let change = |row: &Block| replaced(row, column, value);
        self.map.update(key.into(), change, &self.guard);
    }

    fn read(&mut self, key: &[u8]) -> Option<u64> {
        let row = self.map.get(key, &self.guard)?;
        Some(sum(row, self.column_bytes))
    }
}

/// The hash map of `scc`; updates in place.
pub(super) struct SccRows {
    map: scc::HashMap<Block, Block, FxBuildHasher>,
    column_bytes: usize,
}

impl Rows for SccRows {
    type Worker<'t> = &'t SccRows;

    fn new(_: usize, column_bytes: usize) -> Self {
        Self {
            map: scc::HashMap::default(),
            column_bytes,
        }
    }

    fn worker(&self) -> &SccRows {
        self
    }
}

impl RowWorker for &SccRows {
    fn insert(&mut self, key: &[u8], row: &[u8]) {
        self.map.upsert_sync(key.into(), row.into());
    }

    fn update(&mut self, key: &[u8], column: usize, value: &[u8]) {
        self.map.update_sync(key, |_, row| set(row, column, value));
    }

    fn read(&mut self, key: &[u8]) -> Option<u64> {
        let column_bytes = self.column_bytes;
        self.map.read_sync(key, |_, row| sum(row, column_bytes))
    }
}
