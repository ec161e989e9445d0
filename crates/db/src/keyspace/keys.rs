//! Listing keys, in key order where the engine keeps one.

use std::ops::{Bound, ControlFlow};

use pando_engine::{Direction, Point, ReadAt, ValueRef};

use super::{Judge, Keyspace};
use crate::cursors::ScanPosition;
use crate::error::CommandError;
use crate::options::EngineKind;
use crate::store::{Listing, OrderedSession, WalkingSession};
use crate::view::View;

impl Keyspace<'_> {
    /// The keys of this database, listed as its engine allows.
    pub fn keys(&mut self) -> Keys<'_> {
        let (view, now) = (self.view, self.now());
        self.observe_all();
        let judge = Judge::of(view, now, &self.session.alive);
        match self.session.store.listing() {
            Listing::Ordered(session) => {
                let keys = OrderedKeys {
                    session,
                    view,
                    judge,
                };
                Keys::Ordered(keys)
            }
            Listing::Walking(session) => {
                let keys = WalkingKeys {
                    session,
                    view,
                    judge,
                };
                Keys::Walking(keys)
            }
        }
    }

    /// The keys of this database in order, or the error that names the ordered engines.
    pub fn ordered_keys(&mut self) -> Result<OrderedKeys<'_>, CommandError> {
        let engine = self.options().engine;
        match self.keys() {
            Keys::Ordered(keys) => Ok(keys),
            Keys::Walking(_) => Err(CommandError::Unordered {
                engine: engine.name(),
                ordered: EngineKind::ordered_names(),
            }),
        }
    }

    /// A cursor, never 0, from which a scan continues at `position`.
    pub(crate) fn pause_at(&mut self, position: ScanPosition) -> u64 {
        let cursor = self.database.cursors.free_number(self.random());
        self.give_out(cursor, position);
        cursor
    }

    /// See [`crate::cursors::Cursors::give_out`].
    pub(crate) fn give_out(&mut self, cursor: u64, position: ScanPosition) {
        match &mut self.session.effects {
            Some(run) => run.cursors.push((cursor, position)),
            None => self.database.cursors.give_out(cursor, position),
        }
    }

    /// Shows a random key, expired ones as `None` values, to `read`.
    pub fn sample<R>(
        &mut self,
        read: impl FnOnce(Option<(&[u8], Option<ValueRef<'_>>)>) -> R,
    ) -> R {
        let (random, now, view) = (self.random(), self.now(), self.view);
        self.observe_all();
        let judge = Judge::of(view, now, &self.session.alive);
        let read = |found: Option<(&[u8], ValueRef<'_>)>| {
            let is_live = |value: &ValueRef<'_>| !judge.hides(value);
            read(found.map(|(key, value)| (key, Some(value).filter(is_live))))
        };
        let store = &mut self.session.store;
        match view.moment() {
            None => store.sample(view.tree(), random, read),
            Some(moment) => store.sample_at(moment.snapshot, view.tree(), random, read),
        }
    }
}

/// The keys of a database.
#[derive(Debug)]
pub enum Keys<'k> {
    /// In their order.
    Ordered(OrderedKeys<'k>),
    /// In none.
    Walking(WalkingKeys<'k>),
}

/// The keys of a database on an engine that keeps them in order.
#[derive(Debug)]
pub struct OrderedKeys<'k> {
    session: OrderedSession<'k>,
    view: View,
    judge: Judge<'k>,
}

/// The keys of a database on an engine that does not.
#[derive(Debug)]
pub struct WalkingKeys<'k> {
    session: WalkingSession<'k>,
    view: View,
    judge: Judge<'k>,
}

impl Keys<'_> {
    /// Shows entries from the beginning in the engine's order, until `visit` breaks; expired ones
    /// too (as `None`). Counts neither hits nor misses.
    pub fn each(&mut self, mut visit: impl FnMut(&[u8], Option<ValueRef<'_>>) -> ControlFlow<()>) {
        match self {
            Self::Ordered(keys) => keys.scan_all(Bound::Unbounded, Direction::Forward, visit),
            Self::Walking(keys) => {
                let (mut cursor, mut flow) = (0, ControlFlow::Continue(()));
                loop {
                    cursor = keys.step(cursor, |key, value| {
                        if flow.is_continue() {
                            flow = visit(key, value);
                        }
                    });
                    if cursor == 0 || flow.is_break() {
                        return;
                    }
                }
            }
        }
    }
}

impl OrderedKeys<'_> {
    /// Shows the entries from `from` on in key order until `visit` breaks, including expired ones
    /// and removed ones that are still remembered (both as `None`), so a caller can bound its work
    /// by entries looked at. Counts neither hits nor misses.
    pub fn scan_all(
        &mut self,
        from: Bound<&[u8]>,
        direction: Direction,
        mut visit: impl FnMut(&[u8], Option<ValueRef<'_>>) -> ControlFlow<()>,
    ) {
        let judge = self.judge;
        let is_live = |value: &ValueRef<'_>| !judge.hides(value);
        let visit = |key: &[u8], value: Option<ValueRef<'_>>| visit(key, value.filter(is_live));
        let (tree, session) = (self.view.tree(), &mut self.session);
        match self.view.moment() {
            None => session.scan_all(tree, from, direction, visit),
            Some(moment) => session.scan_all_at(moment.snapshot, tree, from, direction, visit),
        }
    }
}

impl WalkingKeys<'_> {
    /// Shows some entries, expired ones too (as `None`), and returns the cursor to continue from, 0
    /// at the end; see [`pando_engine::Walk::walk`]. Counts neither hits nor misses.
    pub fn step(&mut self, cursor: u64, mut visit: impl FnMut(&[u8], Option<ValueRef<'_>>)) -> u64 {
        let judge = self.judge;
        let visit = |key: &[u8], value: ValueRef<'_>| {
            let is_live = |value: &ValueRef<'_>| !judge.hides(value);
            visit(key, Some(value).filter(is_live));
        };
        let (tree, session) = (self.view.tree(), &mut self.session);
        match self.view.moment() {
            None => session.walk(tree, cursor, visit),
            Some(moment) => session.walk_at(moment.snapshot, tree, cursor, visit),
        }
    }
}
