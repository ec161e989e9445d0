//! What commands that wait for keys have in common: their timeout, and how they say what they wait
//! for.

use std::ops::Range;

use pando_engine::TypeTag;
use pando_protocol::{Request, number};

use crate::clock::Microseconds;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{KeyWait, Progress, StreamWait, Wait};

const MILLISECONDS_PER_SECOND: f64 = 1000.0;

/// Until when a command waits that begins now, by its timeout in seconds; 0 is for ever.
pub(crate) fn until(
    keyspace: &Keyspace<'_>,
    seconds: &[u8],
) -> Result<Option<Microseconds>, CommandError> {
    let seconds = number::parse_f64(seconds).or_else(|| beyond_doubles(seconds));
    let seconds = seconds.ok_or(CommandError::TimeoutNotAFloat)?;
    let milliseconds = (seconds * MILLISECONDS_PER_SECOND).ceil();
    // As in Redis 7.0, where a number beyond the range becomes the least one.
    if !(0.0..i64::MAX as f64).contains(&milliseconds) {
        return Err(CommandError::TimeoutNegative);
    }
    Ok(from_now(keyspace, milliseconds as u64))
}

/// A decimal that is too large for a double, but is a number.
fn beyond_doubles(text: &[u8]) -> Option<f64> {
    let value = std::str::from_utf8(text).ok()?.parse().ok()?;
    Some(value).filter(|value: &f64| value.is_infinite())
}

/// The same by a timeout in milliseconds.
pub(crate) fn until_ms(
    keyspace: &Keyspace<'_>,
    milliseconds: &[u8],
) -> Result<Option<Microseconds>, CommandError> {
    let milliseconds = number::parse_i64(milliseconds);
    let milliseconds = milliseconds.ok_or(CommandError::TimeoutNotAnInteger)?;
    let milliseconds = u64::try_from(milliseconds).map_err(|_| CommandError::TimeoutNegative)?;
    Ok(from_now(keyspace, milliseconds))
}

fn from_now(keyspace: &Keyspace<'_>, milliseconds: u64) -> Option<Microseconds> {
    let now = keyspace.now_exactly();
    let microseconds = milliseconds.saturating_mul(1000);
    (microseconds > 0).then(|| Microseconds(now.0.saturating_add(microseconds)))
}

/// These indexes of keys, in the order in which a command takes from them
/// (BL4 first-written-first).
pub(crate) fn in_order(
    keyspace: &Keyspace<'_>,
    request: Request<'_>,
    keys: Range<usize>,
) -> impl Iterator<Item = usize> + use<> {
    let first = keyspace.called_to(request, keys.clone());
    first.into_iter().chain(keys)
}

/// The command waits for a value of this type at one of the keys that these arguments name. Nothing
/// was written or replied. `is_single`: see [`KeyWait::is_single`].
pub(crate) fn for_keys(
    tag: TypeTag,
    keys: Range<usize>,
    until: Option<Microseconds>,
    is_single: bool,
) -> Progress {
    Progress::Waits(Wait::Keys(KeyWait {
        tag,
        keys,
        until,
        is_single,
        streams: None,
    }))
}

/// The command waits for entries of one of the streams that these arguments name: behind these ids,
/// or such that this group has not had.
pub(crate) fn for_entries(
    keys: Range<usize>,
    until: Option<Microseconds>,
    streams: StreamWait,
) -> Progress {
    Progress::Waits(Wait::Keys(KeyWait {
        tag: TypeTag::Stream,
        keys,
        until,
        is_single: false,
        streams: Some(streams),
    }))
}
