//! Items: expiry in memcached's form, and the item state of the meta commands.
//!
//! An item is the string at a key: the client's flags are the value's attribute, its cas token
//! stands for the value's version, its expiry is the deadline. Two bits of the attributes' encoding
//! byte hold what `md I`, `ms I` and `mg N`, `R` need (see `commands::encoding`).

use pando_engine::{Attributes, Deadline, StringRef, ValueRef};
use pando_protocol::memcached::{Reply, error};

use crate::clock::Milliseconds;
use crate::encoding::{CLAIMED, STALE};

/// More seconds than this are a time, not a duration.
const SPAN_SECONDS_MAX: i64 = 60 * 60 * 24 * 30;

/// The meaning of an expiry time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    Never,
    At(Deadline),
    /// At once.
    Past,
}

impl Expiry {
    /// The meaning of `exptime`: 0 never, below 0 at once, up to 30 days from now, else a time.
    #[inline]
    pub(crate) fn of(exptime: i64, now: Milliseconds) -> Self {
        if exptime == 0 {
            return Self::Never;
        }
        let Ok(seconds) = u64::try_from(exptime) else {
            return Self::Past;
        };
        let base = if exptime <= SPAN_SECONDS_MAX {
            now
        } else {
            Milliseconds::ZERO
        };
        let at = base.saturating_add(Milliseconds(seconds.saturating_mul(1000)));
        if at > now {
            Self::At(Deadline(at.0))
        } else {
            Self::Past
        }
    }

    /// The deadline of an item being stored; `None` also for `Past`.
    pub(crate) fn deadline(self) -> Option<Deadline> {
        match self {
            Self::At(deadline) => Some(deadline),
            Self::Never | Self::Past => None,
        }
    }
}

/// Whether an expiry time is a time, and before this one.
pub(crate) fn is_before(exptime: i64, time: Milliseconds) -> bool {
    exptime > SPAN_SECONDS_MAX && exptime as u64 <= time.0 / 1000
}

/// Seconds until a deadline, rounded; −1 is never.
pub(crate) fn seconds_left(deadline: Option<Deadline>, now: Milliseconds) -> i64 {
    deadline.map_or(-1, |at| (at.left(now).0 + 500) as i64 / 1000)
}

pub(crate) fn is_stale(attributes: &Attributes) -> bool {
    attributes.encoding & STALE != 0
}

pub(crate) fn is_claimed(attributes: &Attributes) -> bool {
    attributes.encoding & CLAIMED != 0
}

/// The string of a value; memcached has no other type.
#[inline]
pub(crate) fn string_of(value: ValueRef<'_>) -> Result<StringRef<'_>, &'static str> {
    match value.body {
        pando_engine::BodyRef::String(string) => Ok(string),
        pando_engine::BodyRef::Row(..) => Err(error::IS_A_HASH),
    }
}

/// The data of an item with its line end.
#[inline]
pub(crate) fn reply_data(reply: &mut Reply<'_>, string: StringRef<'_>) {
    match string {
        StringRef::Flat(bytes) => reply.raw(bytes),
        StringRef::Chunked(_) => string.for_each_piece(0..string.len(), |piece| reply.raw(piece)),
    }
    reply.end();
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Milliseconds = Milliseconds(1_700_000_000_000);

    #[test]
    fn thirty_days_are_a_span_and_more_are_a_time() {
        let at = |milliseconds| Expiry::At(Deadline(milliseconds));
        for (exptime, expiry) in [
            (0, Expiry::Never),
            (-1, Expiry::Past),
            (i64::MIN, Expiry::Past),
            (1, at((NOW + Milliseconds(1000)).0)),
            (2_592_000, at((NOW + Milliseconds(2_592_000_000)).0)),
            (2_592_001, Expiry::Past),
            (1_700_000_000, Expiry::Past),
            (1_700_000_001, at((NOW + Milliseconds(1000)).0)),
            (i64::MAX, at(u64::MAX)),
        ] {
            assert_eq!(Expiry::of(exptime, NOW), expiry, "{exptime}");
        }
    }

    #[test]
    fn seconds_are_rounded() {
        let left = |milliseconds| seconds_left(Some(Deadline((NOW + milliseconds).0)), NOW);
        assert_eq!((left(Milliseconds(1499)), left(Milliseconds(1500))), (1, 2));
        assert_eq!(seconds_left(None, NOW), -1);
    }
}
