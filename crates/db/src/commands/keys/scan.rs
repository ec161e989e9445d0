//! SCAN KEYS: a walk through the keys of the selected database.
//!
//! Keys come in order, from the literal prefix of the pattern on and no further than it reaches. A
//! walk looks at a bounded number of entries at a time, expired and filtered ones included, and
//! lets other commands run in between. It stays in the tree that it began in, whatever becomes of
//! the database's number meanwhile.

use std::ops::{Bound, ControlFlow};

use pando_engine::{Direction, TreeId, ValueRef};
use pando_protocol::{Reply, Request, RespVersion, number, pattern};

use super::type_name;
use crate::commands::{Handled, Slice};
use crate::cursors;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::limits;

/// Entries that a SCAN without COUNT looks at.
const COUNT: usize = 10;

/// Which entries a walk shows.
#[derive(Debug, Default)]
struct Filter {
    /// No pattern shows every key.
    pattern: Option<Box<[u8]>>,
    /// What every key that is shown begins with.
    prefix: Vec<u8>,
    /// A type's name, as given.
    type_name: Option<Box<[u8]>>,
}

impl Filter {
    fn matching(&mut self, pattern: &[u8]) {
        // A lone star shows the empty key too, which no pattern matches.
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

/// A walk and what it has found.
#[derive(Debug)]
struct Walk {
    tree: TreeId,
    filter: Filter,
    /// The last entry looked at.
    behind: Option<Box<[u8]>>,
    /// The keys found, encoded.
    found: Vec<u8>,
    count: usize,
}

/// How a walk ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// There is nothing beyond.
    Complete,
    /// As many entries as allowed were looked at.
    Paused,
}

impl Walk {
    fn new(keyspace: &Keyspace<'_>, filter: Filter, behind: Option<Box<[u8]>>) -> Self {
        Self {
            tree: keyspace.tree,
            filter,
            behind,
            found: Vec::new(),
            count: 0,
        }
    }

    /// Looks at up to `entries_max` entries, or until `bytes_max` bytes are found.
    fn advance(
        &mut self,
        keyspace: &mut Keyspace<'_>,
        mut entries_max: usize,
        bytes_max: usize,
    ) -> End {
        keyspace.tree = self.tree;
        let Self {
            filter,
            behind,
            found,
            count,
            ..
        } = self;
        let resumed = behind.take();
        let from = match resumed.as_deref() {
            Some(behind) if *behind >= *filter.prefix => Bound::Excluded(behind),
            _ => Bound::Included(&*filter.prefix),
        };
        let (mut looked, mut end) = (0, End::Complete);
        keyspace.scan_all(from, Direction::Forward, |key, value| {
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
            if found.len() >= bytes_max {
                entries_max = looked;
            }
            if looked == entries_max {
                *behind = Some(key.into());
            }
            ControlFlow::Continue(())
        });
        end
    }

    /// Writes the keys found.
    fn write(&self, reply: &mut Reply<'_>) {
        reply.array(self.count);
        reply.raw(&self.found);
    }
}

/// SCAN at work.
#[derive(Debug)]
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
        let behind = self.walk.behind.as_deref().filter(|_| end == End::Paused);
        let cursors = &keyspace.database.cursors;
        let cursor = behind.map_or(0, |behind| cursors.pause_behind_key(self.walk.tree, behind));
        reply.array(2);
        reply.bulk(cursor.to_string());
        self.walk.write(reply);
        true
    }
}

/// Some keys, and the cursor from which to go on; 0 when all were seen. Looks at COUNT entries.
pub(super) fn scan(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let cursor = cursors::parse(request.arg(1))?;
    let (mut entries, mut filter) = (COUNT, Filter::default());
    for at in (2..request.len()).step_by(2) {
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
    let behind = match cursor {
        0 => None,
        cursor => Some(keyspace.database.cursors.key_of(cursor, keyspace.tree)?),
    };
    let walk = Walk::new(keyspace, filter, behind);
    super::begin(Scan { walk, entries }, keyspace, reply)
}

/// KEYS at work.
#[derive(Debug)]
struct Keys(Walk);

impl Slice for Keys {
    fn step(&mut self, keyspace: &mut Keyspace<'_>, reply: &mut Reply<'_>) -> bool {
        let end = self
            .0
            .advance(keyspace, limits::SLICE_ENTRIES_MAX, usize::MAX);
        if end == End::Complete {
            self.0.write(reply);
        }
        end == End::Complete
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
    let walk = Walk::new(keyspace, filter, None);
    super::begin(Keys(walk), keyspace, reply)
}
