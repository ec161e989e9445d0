//! OBJECT.

use pando_engine::{BodyRef, ListRef, RowTag, ValueRef};
use pando_protocol::{Reply, Request, number};

use crate::encoding::{self, Thresholds};
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::memory::Tracking;
use crate::progress::{Handled, Progress};

/// OBJECT REFCOUNT's reply for a value that Redis shares between all keys that have it.
const SHARED: i64 = i32::MAX as i64;

/// Redis shares the integers below this one.
const SHARED_INTEGERS: i64 = 10_000;

/// Bytes of a payload of DUMP around the value: its type, the version, the checksum.
const PAYLOAD_FRAME_BYTES: usize = 11;

/// Redis' clock of uses counts seconds in 24 bits.
const REDIS_CLOCK: u64 = 1 << 24;

/// The reply of OBJECT HELP.
const HELP: &[&str] = &[
    "OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "ENCODING <key>",
    "    The form in which Redis would hold the value.",
    "FREQ <key>",
    "    How often the key was used lately; needs an LFU policy.",
    "IDLETIME <key>",
    "    Seconds since the key was last used; under policies other than LRU, written.",
    "REFCOUNT <key>",
    "    The references that the value has.",
    "HELP",
    "    Prints this help.",
];

/// Describes a value as Redis would; null when it is absent.
pub(super) fn object(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    if request.is(1, "HELP") {
        reply.array(HELP.len());
        for line in HELP {
            reply.simple(line);
        }
        return Ok(Progress::Done);
    }
    let key = request.get(2).ok_or(CommandError::Syntax)?;
    let thresholds = keyspace.thresholds();
    let accesses = keyspace.accesses();
    let tracking = keyspace.database.eviction_policy().tracking();
    keyspace.read(key, |value| {
        let Some(value) = value else {
            reply.null();
            return Ok(Progress::Done);
        };
        if request.is(1, "ENCODING") {
            reply.bulk(encoding_name(&value, &thresholds));
        } else if request.is(1, "REFCOUNT") {
            reply.integer(reference_count(&value));
        } else if request.is(1, "IDLETIME") {
            if tracking == Tracking::Often {
                return Err(CommandError::LfuPolicy);
            }
            reply.integer(accesses.of(&value).idle_seconds as i64);
        } else if tracking == Tracking::Often {
            reply.integer(value.mark.get().into());
        } else {
            return Err(CommandError::NoLfuPolicy);
        }
        Ok(Progress::Done)
    })
}

/// What DEBUG OBJECT says of the value at a key; `None`: there is none. O(size). There is no one
/// address of a value; Redis' clock of uses is the second of the last one, as far as it is known.
pub fn describe_object(keyspace: &mut Keyspace<'_>, key: &[u8]) -> Option<String> {
    let (now, accesses) = (keyspace.now(), keyspace.accesses());
    let thresholds = keyspace.thresholds();
    keyspace.look(key, |value| {
        let value = value?;
        let idle_seconds = accesses.of(&value).idle_seconds;
        let used = now.0 / 1000 - idle_seconds.min(now.0 / 1000);
        let payload = super::dump::encode(&value, now);
        Some(format!(
            "Value at:0x0 refcount:{} encoding:{} serializedlength:{} lru:{} lru_seconds_idle:{}",
            reference_count(&value),
            encoding_name(&value, &thresholds),
            payload.len().saturating_sub(PAYLOAD_FRAME_BYTES),
            used % REDIS_CLOCK,
            idle_seconds,
        ))
    })
}

fn encoding_name(value: &ValueRef<'_>, thresholds: &Thresholds) -> &'static str {
    match value.body {
        BodyRef::Row(RowTag::List, row) => encoding::of_list(ListRef::new(row), thresholds),
        _ => encoding::name(value),
    }
}

fn reference_count(value: &ValueRef<'_>) -> i64 {
    let shared = match value.body {
        BodyRef::String(string) if encoding::name(value) == "int" => {
            let number = string.as_flat().and_then(number::parse_i64);
            number.is_some_and(|number| (0..SHARED_INTEGERS).contains(&number))
        }
        _ => false,
    };
    if shared { SHARED } else { 1 }
}
