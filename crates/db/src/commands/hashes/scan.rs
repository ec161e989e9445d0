//! HSCAN: walks the fields of a hash, some per call.
//!
//! Fields come in byte order, only over the range of the pattern's literal prefix. A hash that
//! Redis would hold as a listpack is returned whole, as there. In any other hash, a call looks at
//! COUNT fields and leaves a cursor that names the last of them (see `cursors.rs`). The walk
//! continues after that field whether it still exists or not, so a field that is present throughout
//! is shown exactly once.

use pando_engine::{HashRef, StringRef};
use pando_protocol::{Reply, Request, number, pattern};

use crate::commands::detached::reply_bulk;
use crate::cursors::{self, ScanPosition};
use crate::encoding::HASHTABLE;
use crate::error::CommandError;
use crate::keyspace::{Keyspace, hash_of};
use crate::progress::{Handled, Progress};

/// Fields that an HSCAN without COUNT looks at.
const COUNT: usize = 10;

/// HSCAN key cursor [MATCH pattern] [COUNT count] [NOVALUES]
pub(super) fn scan(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let key = request.arg(1);
    let cursor = cursors::parse(request.arg(2))?;
    let (cursors, view) = (&keyspace.database.cursors, keyspace.view);
    let bytes_max = keyspace.options().reply_bytes_max;
    let random = keyspace.random();
    let mut paused = None;
    let handled = keyspace.read(key, |value| {
        let Some(value) = value else {
            write(reply, 0, &[], true);
            return Ok(Progress::Done);
        };
        let hash = hash_of(value)?;
        // As in Redis, the options do not matter without a hash.
        let options = Options::parse(request)?;
        let mut walk = Walk::default();
        let mut next = 0;
        if value.attributes.encoding == HASHTABLE {
            let behind = match cursor {
                0 => None,
                cursor => Some(cursors.field_of(cursor, view, key)?),
            };
            walk.advance(hash, &options, behind.as_deref(), options.count, bytes_max);
            if let Some(last) = walk.paused_behind {
                next = cursors.free_number(random);
                let (key, field) = (key.into(), last.into());
                paused = Some((next, ScanPosition::Field { view, key, field }));
            }
        } else {
            walk.advance(hash, &options, None, usize::MAX, usize::MAX);
        }
        write(reply, next, &walk.found, options.values);
        Ok(Progress::Done)
    });
    if let Some((cursor, place)) = paused {
        keyspace.give_out(cursor, place);
    }
    handled
}

fn write(reply: &mut Reply<'_>, cursor: u64, found: &[(&[u8], StringRef<'_>)], values: bool) {
    reply.array(2);
    reply.bulk(cursor.to_string());
    reply.array(found.len() * if values { 2 } else { 1 });
    for (field, value) in found {
        reply.bulk(field);
        if values {
            reply_bulk(reply, *value);
        }
    }
}

struct Options<'r> {
    count: usize,
    /// No pattern shows every field.
    pattern: Option<&'r [u8]>,
    /// The common prefix of every field shown.
    prefix: Vec<u8>,
    /// Whether values are shown.
    values: bool,
}

impl<'r> Options<'r> {
    fn parse(request: Request<'r>) -> Result<Self, CommandError> {
        let mut options = Self {
            count: COUNT,
            pattern: None,
            prefix: Vec::new(),
            values: true,
        };
        let mut index = 3;
        while index < request.len() {
            if request.is(index, "NOVALUES") {
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
                // A lone star also shows the empty field, which no pattern matches.
                options.pattern = (argument != b"*").then_some(argument);
                options.prefix = pattern::literal_prefix(argument);
            } else {
                return Err(CommandError::Syntax);
            }
            index += 2;
        }
        Ok(options)
    }

    fn shows(&self, field: &[u8]) -> bool {
        self.pattern
            .is_none_or(|pattern| pattern::matches(pattern, field))
    }
}

/// What a call found.
#[derive(Default)]
struct Walk<'h> {
    found: Vec<(&'h [u8], StringRef<'h>)>,
    /// The last field looked at, if there are more.
    paused_behind: Option<&'h [u8]>,
}

impl<'h> Walk<'h> {
    /// Looks at up to `fields_max` fields after `behind`, or until `bytes_max` bytes are found.
    fn advance(
        &mut self,
        hash: HashRef<'h>,
        options: &Options<'_>,
        behind: Option<&[u8]>,
        fields_max: usize,
        bytes_max: usize,
    ) {
        let start = behind.unwrap_or_default().max(&options.prefix);
        let fields = hash
            .iter_from(start)
            .skip_while(|(field, _)| Some(*field) == behind);
        let (mut looked, mut bytes, mut last) = (0, 0, None);
        for (field, value) in fields.take_while(|(field, _)| field.starts_with(&options.prefix)) {
            if looked == fields_max || bytes >= bytes_max {
                self.paused_behind = last;
                return;
            }
            looked += 1;
            last = Some(field);
            if options.shows(field) {
                bytes += field.len() + value.len();
                self.found.push((field, value));
            }
        }
    }
}
