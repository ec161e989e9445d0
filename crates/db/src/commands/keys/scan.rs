//! SCAN KEYS RANDOMKEY: walking the keys of the selected database.
//!
//! On an ordered engine keys come in key order, only over the range of the pattern's literal
//! prefix, and a cursor names a position in a table. On an unordered one, keys come in the engine's
//! order, and a cursor is the engine's own number. SCAN may then show a key twice while the engine
//! moves keys, as in Redis; KEYS leaves out repetitions.
//!
//! A walk looks at a bounded number of entries at a time, including expired and filtered ones, and
//! lets other commands run in between. It stays in the tree that it began in, whatever the
//! database's number means later.

use std::collections::HashSet;
use std::mem;
use std::ops::{Bound, ControlFlow};

use pando_engine::limits::SAMPLE_PASSED_MAX;
use pando_engine::{Direction, ValueRef};
use pando_protocol::{Reply, Request, RespVersion, number, pattern};

use super::type_name;
use crate::cursors;
use crate::error::CommandError;
use crate::keyspace::{Keys, Keyspace, OrderedKeys, WalkingKeys};
use crate::limits;
use crate::progress::{Handled, Progress, Slice};
use crate::view::View;

/// Entries that a SCAN without COUNT looks at.
const COUNT: usize = 10;

/// Which entries a walk shows.
#[derive(Clone, Debug, Default)]
struct Filter {
    /// No pattern shows every key.
    pattern: Option<Box<[u8]>>,
    /// The common prefix of every key shown.
    prefix: Vec<u8>,
    /// A type's name, as given.
    type_name: Option<Box<[u8]>>,
}

impl Filter {
    fn matching(&mut self, pattern: &[u8]) {
        // A lone star also shows the empty key, which no pattern matches.
        let shows_all = pattern == b"*";
        self.pattern = (!shows_all).then(|| pattern.into());
        self.prefix = pattern::literal_prefix(pattern);
    }

    fn shows(&self, key: &[u8], value: ValueRef<'_>) -> bool {
        let of_type = |name: &[u8]| name.eq_ignore_ascii_case(type_name(value.tag()).as_bytes());
        self.pattern
            .as_deref()
            .is_none_or(|pattern| pattern::matches(pattern, key))
            && self.type_name.as_deref().is_none_or(of_type)
    }
}

/// Where a walk continues.
#[derive(Clone, Debug)]
enum WalkPosition {
    /// At the beginning.
    Start,
    /// After the last entry looked at, in key order.
    Behind(Box<[u8]>),
    /// At a cursor of the engine's, not 0.
    Cursor(u64),
}

/// A walk and what it has found.
#[derive(Clone, Debug)]
struct Walk {
    view: View,
    filter: Filter,
    position: WalkPosition,
    /// The keys found so far, if an engine may show one twice and that matters.
    shown: Option<HashSet<Box<[u8]>>>,
    /// The keys found, encoded.
    found: Vec<u8>,
    count: usize,
    /// As many are wanted.
    count_max: usize,
}

/// How a walk ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// There is nothing left.
    Complete,
    /// As many entries as allowed were looked at.
    Paused,
}

impl Walk {
    fn new(keyspace: &Keyspace<'_>, filter: Filter, position: WalkPosition) -> Self {
        Self {
            view: keyspace.view,
            filter,
            position,
            shown: None,
            found: Vec::new(),
            count: 0,
            count_max: usize::MAX,
        }
    }

    /// Looks at up to `entries_max` entries, or until `bytes_max` bytes are found.
    fn advance(
        &mut self,
        keyspace: &mut Keyspace<'_>,
        entries_max: usize,
        bytes_max: usize,
    ) -> End {
        keyspace.view = self.view;
        match keyspace.keys() {
            Keys::Ordered(keys) => self.advance_in_order(keys, entries_max, bytes_max),
            Keys::Walking(keys) => self.advance_by_cursor(keys, entries_max, bytes_max),
        }
    }

    fn advance_in_order(
        &mut self,
        mut keys: OrderedKeys<'_>,
        mut entries_max: usize,
        bytes_max: usize,
    ) -> End {
        let position = mem::replace(&mut self.position, WalkPosition::Start);
        let Self {
            filter,
            position: next,
            found,
            count,
            count_max,
            ..
        } = self;
        let from = match &position {
            WalkPosition::Behind(behind) if **behind >= *filter.prefix => {
                Bound::Excluded(&**behind)
            }
            _ => Bound::Included(&*filter.prefix),
        };
        let (mut looked, mut end) = (0, End::Complete);
        keys.scan_all(from, Direction::Forward, |key, value| {
            if !key.starts_with(&filter.prefix) {
                return ControlFlow::Break(());
            }
            if looked == entries_max {
                end = End::Paused;
                return ControlFlow::Break(());
            }
            looked += 1;
            if value.is_some_and(|value| filter.shows(key, value)) {
                Reply::new(found, RespVersion::Resp2).bulk(key);
                *count += 1;
            }
            if found.len() >= bytes_max || count == count_max {
                entries_max = looked;
            }
            if looked == entries_max {
                *next = WalkPosition::Behind(key.into());
            }
            ControlFlow::Continue(())
        });
        end
    }

    /// Steps are as large as the engine makes them, so it looks at a few entries more.
    fn advance_by_cursor(
        &mut self,
        mut keys: WalkingKeys<'_>,
        entries_max: usize,
        bytes_max: usize,
    ) -> End {
        let mut cursor = match self.position {
            WalkPosition::Cursor(cursor) => cursor,
            WalkPosition::Start | WalkPosition::Behind(_) => 0,
        };
        let (mut looked, mut steps) = (0, 0);
        while looked < entries_max
            && self.count < self.count_max
            && steps < limits::SLICE_ENTRIES_MAX
        {
            cursor = keys.step(cursor, |key, value| {
                looked += 1;
                let shown = self.count < self.count_max
                    && value.is_some_and(|value| self.filter.shows(key, value));
                let new = |keys: &mut HashSet<Box<[u8]>>| keys.insert(key.into());
                if shown && self.shown.as_mut().is_none_or(new) {
                    Reply::new(&mut self.found, RespVersion::Resp2).bulk(key);
                    self.count += 1;
                }
            });
            steps += 1;
            if cursor == 0 {
                return End::Complete;
            }
            if self.found.len() >= bytes_max {
                break;
            }
        }
        self.position = WalkPosition::Cursor(cursor);
        End::Paused
    }

    /// Writes the keys found.
    fn write(&self, reply: &mut Reply<'_>) {
        reply.array(self.count);
        reply.raw(&self.found);
    }
}

/// A SCAN in progress.
#[derive(Clone, Debug)]
struct Scan {
    walk: Walk,
    /// Entries that may still be looked at.
    entries: usize,
}

impl Slice for Scan {
    fn step(&mut self, keyspace: &mut Keyspace<'_>, reply: &mut Reply<'_>) -> bool {
        let portion = self.entries.min(limits::SLICE_ENTRIES_MAX);
        let bytes_max = keyspace.options().reply_bytes_max;
        let end = self.walk.advance(keyspace, portion, bytes_max);
        self.entries -= portion;
        let full = self.walk.found.len() >= bytes_max;
        if end == End::Paused && self.entries > 0 && !full {
            return false;
        }
        let cursor = match &self.walk.position {
            _ if end == End::Complete => 0,
            WalkPosition::Start => 0,
            WalkPosition::Behind(behind) => {
                let (view, key) = (self.walk.view, behind.clone());
                keyspace.pause_at(cursors::ScanPosition::Key { view, key })
            }
            WalkPosition::Cursor(cursor) => *cursor,
        };
        reply.array(2);
        reply.bulk(cursor.to_string());
        self.walk.write(reply);
        true
    }

    fn again(&self) -> Box<dyn Slice> {
        Box::new(self.clone())
    }
}

/// Some keys, and the cursor to continue from; 0 when all were seen. Looks at COUNT entries.
pub(super) fn scan(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let cursor = cursors::parse(request.arg(1))?;
    let (mut entries, mut filter) = (COUNT, Filter::default());
    for at in (2..request.len()).step_by(2) {
        if request.is(at, "NOVALUES") {
            return Err(CommandError::NoValuesOfHashes);
        }
        let argument = request.get(at + 1).ok_or(CommandError::Syntax)?;
        if request.is(at, "COUNT") {
            let count = number::parse_i64(argument).ok_or(CommandError::NotAnInteger)?;
            let count = usize::try_from(count).ok().filter(|count| *count > 0);
            entries = count.ok_or(CommandError::Syntax)?;
        } else if request.is(at, "MATCH") {
            filter.matching(argument);
        } else if request.is(at, "TYPE") {
            filter.type_name = Some(argument.into());
        } else {
            return Err(CommandError::Syntax);
        }
    }
    let position = match cursor {
        0 => WalkPosition::Start,
        cursor if keyspace.options().engine.is_ordered() => {
            WalkPosition::Behind(keyspace.database.cursors.key_of(cursor, keyspace.view)?)
        }
        cursor => WalkPosition::Cursor(cursor),
    };
    let walk = Walk::new(keyspace, filter, position);
    super::begin(Scan { walk, entries }, keyspace, reply)
}

/// A KEYS in progress.
#[derive(Clone, Debug)]
struct AllKeys(Walk);

impl Slice for AllKeys {
    fn step(&mut self, keyspace: &mut Keyspace<'_>, reply: &mut Reply<'_>) -> bool {
        let end = self
            .0
            .advance(keyspace, limits::SLICE_ENTRIES_MAX, usize::MAX);
        if end == End::Complete {
            self.0.write(reply);
        }
        end == End::Complete
    }

    fn again(&self) -> Box<dyn Slice> {
        Box::new(self.clone())
    }
}

/// All keys that match a pattern.
pub(super) fn keys(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let mut filter = Filter::default();
    filter.matching(request.arg(1));
    let mut walk = Walk::new(keyspace, filter, WalkPosition::Start);
    if !keyspace.options().engine.is_ordered() {
        walk.shown = Some(HashSet::new());
    }
    super::begin(AllKeys(walk), keyspace, reply)
}

/// How often RANDOMKEY draws before it looks at every key: as much work as a slice, if no draw
/// finds one.
const DRAWS_MAX: usize = limits::SLICE_ENTRIES_MAX / SAMPLE_PASSED_MAX;

/// RANDOMKEY when hardly any key is alive: the first live one.
#[derive(Clone, Debug)]
struct AnyKey(Walk);

impl Slice for AnyKey {
    fn step(&mut self, keyspace: &mut Keyspace<'_>, reply: &mut Reply<'_>) -> bool {
        let end = self
            .0
            .advance(keyspace, limits::SLICE_ENTRIES_MAX, usize::MAX);
        match (self.0.count, end) {
            (0, End::Paused) => return false,
            (0, End::Complete) => reply.null(),
            _ => reply.raw(&self.0.found),
        }
        true
    }

    fn again(&self) -> Box<dyn Slice> {
        Box::new(self.clone())
    }
}

/// A random key, null only if none is alive. Removed and expired keys may spoil all draws; then the
/// keys are walked.
pub(super) fn random_key(keyspace: &mut Keyspace<'_>, reply: &mut Reply<'_>) -> Handled {
    for _ in 0..DRAWS_MAX {
        let drawn = keyspace.sample(|found| {
            found.is_some_and(|(key, value)| value.map(|_| reply.bulk(key)).is_some())
        });
        if drawn {
            return Ok(Progress::Done);
        }
        if keyspace.is_empty() {
            break;
        }
    }
    let mut walk = Walk::new(keyspace, Filter::default(), WalkPosition::Start);
    walk.count_max = 1;
    super::begin(AnyKey(walk), keyspace, reply)
}
