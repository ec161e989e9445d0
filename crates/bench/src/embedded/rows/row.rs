//! Rows on an engine of this project: hashes, as the server stores them.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use pando_engine::{
    BodyRef, Decision, Direction, Engine, EpochClock, FieldFinder, HashDraft, HashRef, Key,
    LogEpoch, NewValue, NoHook, Ordered, Point, StringRef, TreeId, ValueRef,
};

use super::{RowWorker, Rows, figure};
use crate::workload::column_name;

/// One tree of an engine.
pub(super) struct EngineRows<E> {
    engine: Arc<E>,
    tree: TreeId,
    columns: usize,
}

/// A session.
pub(super) struct EngineWorker<S> {
    session: S,
    pinned: bool,
    tree: TreeId,
    /// The columns' names, which a program knows.
    names: Vec<Vec<u8>>,
}

impl<E: Engine> EngineRows<E> {
    fn make(columns: usize) -> Self {
        let engine = E::open(
            Arc::new(EpochClock::starting_at(LogEpoch(1))),
            E::Options::default(),
        );
        let engine = engine.expect("default options suit everywhere");
        let tree = engine.create_tree();
        Self {
            engine,
            tree,
            columns,
        }
    }

    fn open(&self) -> EngineWorker<E::Session> {
        EngineWorker {
            session: self.engine.session().expect("fewer threads than sessions"),
            pinned: false,
            tree: self.tree,
            names: (0..self.columns).map(name_of).collect(),
        }
    }
}

impl<E: Engine> Rows for EngineRows<E>
where
    E::Session: Ordered,
{
    type Worker<'t> = EngineWorker<E::Session>;

    fn new(columns: usize, _: usize) -> Self {
        Self::make(columns)
    }

    fn worker(&self) -> EngineWorker<E::Session> {
        self.open()
    }
}

/// Rows of an engine without order.
pub(super) struct HashRows<E>(EngineRows<E>);

/// A session of it.
pub(super) struct HashRowWorker<S>(EngineWorker<S>);

impl<E: Engine> Rows for HashRows<E> {
    type Worker<'t> = HashRowWorker<E::Session>;

    fn new(columns: usize, _: usize) -> Self {
        Self(EngineRows::make(columns))
    }

    fn worker(&self) -> HashRowWorker<E::Session> {
        HashRowWorker(self.0.open())
    }
}

impl<S: Point> RowWorker for HashRowWorker<S> {
    fn turn(&mut self) {
        self.0.begin_turn();
    }

    fn insert(&mut self, key: &[u8], row: &[u8]) {
        self.0.insert_row(key, row);
    }

    fn update(&mut self, key: &[u8], column: usize, value: &[u8]) {
        self.0.update_column(key, column, value);
    }

    fn read(&mut self, key: &[u8]) -> Option<u64> {
        self.0.read_row(key)
    }
}

fn name_of(column: usize) -> Vec<u8> {
    let mut name = Vec::new();
    column_name(column, &mut name);
    name
}

fn hash(value: ValueRef<'_>) -> Option<HashRef<'_>> {
    match value.body {
        BodyRef::Row(_, hash) => Some(hash),
        BodyRef::String(_) => None,
    }
}

fn sum_of(column: Option<StringRef<'_>>) -> u64 {
    column.and_then(StringRef::as_flat).map_or(0, figure)
}

fn sum_of_row(row: HashRef<'_>) -> u64 {
    row.iter()
        .fold(0, |sum, (_, column)| sum_of(Some(column)).wrapping_add(sum))
}

impl<S: Point> EngineWorker<S> {
    fn begin_turn(&mut self) {
        if self.pinned {
            self.session.unpin();
        }
        self.session.pin();
        self.pinned = true;
    }

    fn insert_row(&mut self, key: &[u8], row: &[u8]) {
        let names = &self.names;
        let column_bytes = row.len() / names.len();
        let key = Key::new(self.tree, key);
        let columns = names.iter().zip(row.chunks(column_bytes));
        let columns: Vec<_> = columns.map(|(name, value)| (&name[..], value)).collect();
        self.session.update(key, &mut NoHook, |_| {
            let mut draft = HashDraft::new(None);
            draft.set_all(&columns);
            Decision::Write(NewValue::new(draft.finish()))
        });
    }

    fn update_column(&mut self, key: &[u8], column: usize, value: &[u8]) {
        let name = &self.names[column];
        let key = Key::new(self.tree, key);
        self.session.update(key, &mut NoHook, |old| {
            let old = old.and_then(hash);
            if let Some(amendment) = old.and_then(|row| row.amend(name, value)) {
                return Decision::Amend(amendment);
            }
            let mut draft = HashDraft::new(old);
            draft.set(name, value);
            Decision::Write(NewValue::new(draft.finish()))
        });
    }

    fn read_row(&mut self, key: &[u8]) -> Option<u64> {
        self.session.get(Key::new(self.tree, key), |value| {
            value.and_then(hash).map(sum_of_row)
        })
    }
}

impl<S: Ordered> RowWorker for EngineWorker<S> {
    fn turn(&mut self) {
        self.begin_turn();
    }

    fn insert(&mut self, key: &[u8], row: &[u8]) {
        self.insert_row(key, row);
    }

    fn update(&mut self, key: &[u8], column: usize, value: &[u8]) {
        self.update_column(key, column, value);
    }

    fn read(&mut self, key: &[u8]) -> Option<u64> {
        self.read_row(key)
    }

    fn scan(&mut self, start: &[u8], limit: usize, one_column: bool) -> Option<usize> {
        let (mut found, mut total) = (0, 0_u64);
        let mut field = FieldFinder::new(&self.names[0]);
        self.session.scan(
            self.tree,
            Bound::Included(start),
            Direction::Forward,
            |_, value| {
                let row = hash(value);
                let read = if one_column {
                    sum_of(row.and_then(|row| field.find(row)))
                } else {
                    row.map_or(0, sum_of_row)
                };
                total = total.wrapping_add(read);
                found += 1;
                if found == limit {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
        );
        std::hint::black_box(total);
        Some(found)
    }
}
