//! HSCAN, SSCAN and ZSCAN: walk the members of a collection, some per call.
//!
//! Members come in byte order, only over the range of the pattern's literal prefix. A collection
//! that Redis would hold as a listpack (or intset) is returned whole, as there. In any other, a
//! call looks at COUNT members and leaves a cursor that names the last of them (see `cursors.rs`).
//! The walk continues after that member whether it still exists or not, so a member that is present
//! throughout is shown exactly once.

use pando_engine::ValueRef;
use pando_protocol::{Reply, Request, number, pattern};

use crate::clock::Milliseconds;
use crate::cursors::{self, ScanPosition};
use crate::encoding::{HASHTABLE, SKIPLIST};
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// Members that a scan without COUNT looks at.
const COUNT: usize = 10;

/// What a command scans: members, with something to show beside them.
pub(super) trait Scanned {
    /// What is shown beside a member.
    type Beside<'h>: Copy;

    /// Whether it can be left out by NOVALUES.
    const HAS_VALUES: bool;

    /// The members at or after `start` in byte order; all of them, in any order, of a collection
    /// that is returned whole.
    fn members<'h>(
        value: ValueRef<'h>,
        start: &[u8],
        now: Milliseconds,
    ) -> Result<impl Iterator<Item = (&'h [u8], Self::Beside<'h>)>, CommandError>;

    /// Its bytes in a reply, about.
    fn bytes(beside: Self::Beside<'_>) -> usize;

    /// How many elements of a reply it is.
    const ELEMENTS: usize;

    /// Writes it.
    fn write(beside: Self::Beside<'_>, reply: &mut Reply<'_>);
}

/// The command: key cursor [MATCH pattern] [COUNT count] [NOVALUES]
pub(super) fn scan<S: Scanned>(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let key = request.arg(1);
    let cursor = cursors::parse(request.arg(2))?;
    let (cursors, view) = (&keyspace.database.cursors, keyspace.view);
    let bytes_max = keyspace.options().reply_bytes_max;
    let (random, now) = (keyspace.random(), keyspace.now());
    let mut paused = None;
    let handled = keyspace.read(key, |value| {
        let Some(value) = value else {
            write::<S>(reply, 0, &[], true);
            return Ok(Progress::Done);
        };
        drop(S::members(value, b"", now)?);
        // As in Redis, the options do not matter without a value.
        let options = Options::parse(request, S::HAS_VALUES)?;
        let mut walk = Walk::<S> {
            now,
            found: Vec::new(),
            paused_behind: None,
        };
        let mut next = 0;
        if matches!(value.attributes.encoding, HASHTABLE | SKIPLIST) {
            let behind = match cursor {
                0 => None,
                cursor => Some(cursors.field_of(cursor, view, key)?),
            };
            walk.advance(value, &options, behind.as_deref(), options.count, bytes_max)?;
            if let Some(last) = walk.paused_behind {
                next = cursors.free_number(random);
                let (key, field) = (key.into(), last.into());
                paused = Some((next, ScanPosition::Field { view, key, field }));
            }
        } else {
            walk.whole(value, &options)?;
        }
        write::<S>(reply, next, &walk.found, options.values);
        Ok(Progress::Done)
    });
    if let Some((cursor, place)) = paused {
        keyspace.give_out(cursor, place);
    }
    handled
}

fn write<S: Scanned>(
    reply: &mut Reply<'_>,
    cursor: u64,
    found: &[(&[u8], S::Beside<'_>)],
    values: bool,
) {
    let elements = 1 + if values { S::ELEMENTS } else { 0 };
    reply.array(2);
    reply.bulk(cursor.to_string());
    reply.array(found.len() * elements);
    for (member, beside) in found {
        reply.bulk(member);
        if values {
            S::write(*beside, reply);
        }
    }
}

struct Options<'r> {
    count: usize,
    /// No pattern shows every member.
    pattern: Option<&'r [u8]>,
    /// The common prefix of every member shown.
    prefix: Vec<u8>,
    /// Whether values are shown.
    values: bool,
}

impl<'r> Options<'r> {
    fn parse(request: Request<'r>, has_values: bool) -> Result<Self, CommandError> {
        let mut options = Self {
            count: COUNT,
            pattern: None,
            prefix: Vec::new(),
            values: true,
        };
        let mut index = 3;
        while index < request.len() {
            if request.is(index, "NOVALUES") {
                if !has_values {
                    return Err(CommandError::NoValuesOfHashes);
                }
                options.values = false;
                index += 1;
                continue;
            }
            let argument = request.get(index + 1).ok_or(CommandError::Syntax)?;
            if request.is(index, "COUNT") {
                let count = number::parse_i64(argument).ok_or(CommandError::NotAnInteger)?;
                options.count = usize::try_from(count).map_err(|_| CommandError::Syntax)?;
                if options.count == 0 {
                    return Err(CommandError::Syntax);
                }
            } else if request.is(index, "MATCH") {
                // A lone star also shows the empty member, which no pattern matches.
                options.pattern = (argument != b"*").then_some(argument);
                options.prefix = pattern::literal_prefix(argument);
            } else {
                return Err(CommandError::Syntax);
            }
            index += 2;
        }
        Ok(options)
    }

    fn shows(&self, member: &[u8]) -> bool {
        self.pattern
            .is_none_or(|pattern| pattern::matches(pattern, member))
    }
}

/// What a call found.
struct Walk<'h, S: Scanned> {
    now: Milliseconds,
    found: Vec<(&'h [u8], S::Beside<'h>)>,
    /// The last member looked at, if there are more.
    paused_behind: Option<&'h [u8]>,
}

impl<'h, S: Scanned> Walk<'h, S> {
    /// Looks at all members.
    fn whole(&mut self, value: ValueRef<'h>, options: &Options<'_>) -> Result<(), CommandError> {
        let members = S::members(value, b"", self.now)?;
        self.found = members
            .filter(|(member, _)| options.shows(member))
            .collect();
        Ok(())
    }

    /// Looks at up to `members_max` members after `behind`, or until `bytes_max` bytes are found.
    fn advance(
        &mut self,
        value: ValueRef<'h>,
        options: &Options<'_>,
        behind: Option<&[u8]>,
        members_max: usize,
        bytes_max: usize,
    ) -> Result<(), CommandError> {
        let start = behind.unwrap_or_default().max(&options.prefix);
        let members = S::members(value, start, self.now)?;
        let members = members.skip_while(|(member, _)| Some(*member) == behind);
        let (mut looked, mut bytes, mut last) = (0, 0, None);
        for (member, beside) in
            members.take_while(|(member, _)| member.starts_with(&options.prefix))
        {
            if looked == members_max || bytes >= bytes_max {
                self.paused_behind = last;
                return Ok(());
            }
            looked += 1;
            last = Some(member);
            if options.shows(member) {
                bytes += member.len() + S::bytes(beside);
                self.found.push((member, beside));
            }
        }
        Ok(())
    }
}
