//! `incr`, `decr`, `delete` and `touch`, and the arithmetic of `ma`.

use std::num::NonZero;

use pando_engine::{Attributes, Body, Decision, NewValue, ValueRef};
use pando_protocol::memcached::arguments::{self, Arithmetic, Touch};
use pando_protocol::memcached::{Line, Reply, Verb, error, number};
use pando_protocol::number::IntegerText;

use super::item::{Expiry, string_of};
use super::{Handled, get};
use crate::encoding::STATE;
use crate::keyspace::Keyspace;
use crate::statistics::Figure;

/// `incr key delta` and `decr`.
pub(super) fn arithmetic(
    keyspace: &mut Keyspace<'_>,
    verb: Verb,
    line: Line<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let Arithmetic { key, delta } = Arithmetic::parse(line)?;
    let up = verb == Verb::Incr;
    let full = keyspace.refuses_growth();
    let mut done = Ok(None);
    keyspace.update(key, |old| {
        let Some(old) = old else {
            done = Ok(None);
            return Decision::Keep;
        };
        match moved(old, up, delta, full, None) {
            Ok(moved) => {
                done = Ok(Some((moved.number, moved.is_longer)));
                Decision::Write(moved.value)
            }
            Err(text) => {
                done = Err(text);
                Decision::Keep
            }
        }
    })?;
    let number = done?;
    keyspace
        .memcached_counters()
        .count(match (up, number.is_some()) {
            (true, true) => Figure::IncrHits,
            (true, false) => Figure::IncrMisses,
            (false, true) => Figure::DecrHits,
            (false, false) => Figure::DecrMisses,
        });
    match number {
        Some((number, is_longer)) => {
            if is_longer {
                keyspace.memcached_counters().count(Figure::TotalItems);
            }
            reply.number(number);
            reply.end();
        }
        None => reply.line("NOT_FOUND"),
    }
    Ok(())
}

/// An item with a changed number.
pub(super) struct Moved {
    pub(super) value: NewValue<'static>,
    pub(super) number: u64,
    /// A new item: its number is longer than the old one's.
    pub(super) is_longer: bool,
}

/// Changes the item's number by `delta`: upwards wrapping at 64 bits, downwards stopping at 0. As
/// in memcached, a number that became shorter keeps its bytes, padded with spaces, and the item its
/// state; one that became longer begins a new item, unless memory is `full`. A client may have
/// chosen its `token`.
pub(super) fn moved(
    old: ValueRef<'_>,
    up: bool,
    delta: u64,
    full: bool,
    token: Option<NonZero<u64>>,
) -> Result<Moved, &'static str> {
    let bytes = string_of(old)?.as_flat().ok_or(error::NON_NUMERIC)?;
    let number = number::stored(bytes).ok_or(error::NON_NUMERIC)?;
    let number = if up {
        number.wrapping_add(delta)
    } else {
        number.saturating_sub(delta)
    };
    let mut text = IntegerText::of_unsigned(number).as_bytes().to_vec();
    let is_longer = text.len() > bytes.len();
    let state = if is_longer {
        if full {
            return Err(error::NO_MEMORY_FOR_NUMBER);
        }
        0
    } else {
        text.resize(bytes.len(), b' ');
        old.attributes.encoding & STATE
    };
    let attributes = Attributes {
        encoding: state,
        token,
        ..old.attributes
    };
    Ok(Moved {
        value: NewValue::new(Body::string_owned(text)).with(attributes),
        number,
        is_longer,
    })
}

/// `delete key`.
pub(super) fn delete(
    keyspace: &mut Keyspace<'_>,
    line: Line<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let key = arguments::delete(line)?;
    let mut there = false;
    keyspace.update(key, |old| {
        there = old.is_some();
        Decision::Remove
    })?;
    let counters = keyspace.memcached_counters();
    counters.count(if there {
        Figure::DeleteHits
    } else {
        Figure::DeleteMisses
    });
    reply.line(if there { "DELETED" } else { "NOT_FOUND" });
    Ok(())
}

/// `touch key exptime`.
pub(super) fn touch(keyspace: &mut Keyspace<'_>, line: Line<'_>, reply: &mut Reply<'_>) -> Handled {
    let Touch { key, exptime } = Touch::parse(line)?;
    let expiry = Expiry::of(exptime, keyspace.now());
    let there = get::touch(keyspace, key, expiry, |_| Ok(()))?.is_some();
    let counters = keyspace.memcached_counters();
    counters.count(Figure::CmdTouch);
    counters.count(if there {
        Figure::TouchHits
    } else {
        Figure::TouchMisses
    });
    reply.line(if there { "TOUCHED" } else { "NOT_FOUND" });
    Ok(())
}
