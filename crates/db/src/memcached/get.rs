//! `get`, `gets`, `gat` and `gats`.
//!
//! The reply to several keys is not copied whole for a client that may never read it. When the
//! reply is full, it stops after a key, and the request is executed again when there is space,
//! skipping the `answered` keys. Later keys show what is written meanwhile: as in memcached,
//! nothing is promised about several keys together.

use pando_engine::{Decision, ValueVersion};
use pando_protocol::memcached::{KEY_BYTES_MAX, Line, Reply, Verb, arguments, error};

use super::item::{Expiry, reply_data, string_of};
use super::token::Tokens;
use super::{Handled, Refusal};
use crate::commands::detached::Detached;
use crate::keyspace::Keyspace;
use crate::limits::WARM_KEYS_MAX;
use crate::statistics::Figure;

/// `get key…` and `gets`: the existing items, straight from the engine; keys in groups with
/// interleaved descents. A bad key refuses the whole command; a hash among several keys is a miss.
#[inline]
pub(super) fn get(
    keyspace: &mut Keyspace<'_>,
    verb: Verb,
    line: Line<'_>,
    answered: &mut usize,
    reply: &mut Reply<'_>,
) -> Handled {
    let mut rest = arguments::get(line)?;
    let tokens = (verb == Verb::Gets).then(|| Tokens::of(keyspace));
    let (mut hits, mut count) = (0, rest.len());
    if count == 1 {
        let key = check(rest.next().unwrap_or_default())?;
        hits += usize::from(keyspace.read(key, |value| show(reply, key, value, tokens, false))?);
    } else {
        let before = std::mem::take(answered);
        if before > 0 {
            rest.nth(before - 1);
        } else {
            // Before any is answered.
            for key in rest.clone() {
                check(key)?;
            }
        }
        count = 0;
        while rest.len() > 0 {
            if reply.is_full() {
                *answered = before + count;
                break;
            }
            let mut keys = [&[][..]; WARM_KEYS_MAX];
            let group = rest.len().min(WARM_KEYS_MAX);
            for (slot, key) in keys.iter_mut().zip(&mut rest) {
                *slot = key;
            }
            let keys = &keys[..group];
            let mut refusal = None;
            // Where the reply was full.
            let mut stopped_at = group;
            keyspace.read_many(keys, |index, value| {
                if index >= stopped_at {
                    return;
                }
                if reply.is_full() {
                    stopped_at = index;
                    return;
                }
                match show(reply, keys[index], value, tokens, true) {
                    Ok(hit) => hits += usize::from(hit),
                    Err(text) => refusal = Some(text),
                }
            });
            if let Some(text) = refusal {
                return Err(text.into());
            }
            count += stopped_at;
            if stopped_at < group {
                *answered = before + count;
                break;
            }
        }
    }
    if *answered == 0 {
        reply.line("END");
    }
    let counters = keyspace.memcached_counters();
    counters.count_many(Figure::CmdGet, count);
    counters.count_many(Figure::GetHits, hits);
    counters.count_many(Figure::GetMisses, count - hits);
    Ok(())
}

#[inline]
fn check(key: &[u8]) -> Result<&[u8], &'static str> {
    if key.len() > KEY_BYTES_MAX {
        return Err(error::BAD_FORMAT);
    }
    Ok(key)
}

/// Replies with one value, if there is one.
#[inline]
fn show(
    reply: &mut Reply<'_>,
    key: &[u8],
    value: Option<pando_engine::ValueRef<'_>>,
    tokens: Option<Tokens>,
    among_others: bool,
) -> Result<bool, &'static str> {
    let Some(value) = value else {
        return Ok(false);
    };
    if reply.is_over() {
        return Err(error::REPLY_TOO_LARGE);
    }
    let string = match string_of(value) {
        Ok(string) => string,
        // Among several keys it is a miss: the others are answered.
        Err(_) if among_others => return Ok(false),
        Err(text) => return Err(text),
    };
    let cas = tokens.map(|tokens| tokens.of_value(&value));
    reply.value(key, value.attributes.flags, string.len(), cas);
    reply_data(reply, string);
    Ok(true)
}

/// `gat exptime key…` and `gats`: the existing items, with a new expiry.
pub(super) fn get_and_touch(
    keyspace: &mut Keyspace<'_>,
    verb: Verb,
    line: Line<'_>,
    answered: &mut usize,
    reply: &mut Reply<'_>,
) -> Handled {
    let (exptime, keys) = arguments::gat(line)?;
    let expiry = Expiry::of(exptime, keyspace.now());
    let tokens = (verb == Verb::Gats).then(|| Tokens::of(keyspace));
    let among_others = keys.len() > 1;
    let before = std::mem::take(answered);
    for (index, key) in keys.enumerate().skip(before) {
        if index > before && reply.is_full() {
            *answered = index;
            return Ok(());
        }
        let key = check(key)?;
        let found = touch(keyspace, key, expiry, |value| {
            let string = string_of(value)?;
            Ok((value.attributes, Detached::take(string)))
        });
        let found = match found {
            Err(Refusal::Line(error::IS_A_HASH)) if among_others => None,
            found => found?,
        };
        keyspace.count_read(found.is_some());
        // As in memcached, this is not a `cmd_get`.
        let counters = keyspace.memcached_counters();
        counters.count(Figure::CmdTouch);
        if let Some(((attributes, string), version)) = found {
            counters.count(Figure::TouchHits);
            if reply.is_over() {
                return Err(error::REPLY_TOO_LARGE.into());
            }
            let string = string.as_ref();
            let cas = tokens.map(|tokens| tokens.token(version, attributes.token));
            reply.value(key, attributes.flags, string.len(), cas);
            reply_data(reply, string);
        } else {
            counters.count(Figure::TouchMisses);
        }
    }
    reply.line("END");
    Ok(())
}

/// Gives an item another expiry; `None` if there is none, else the result of `take`, and its
/// version afterwards. A token that a client chose stays.
pub(super) fn touch<R>(
    keyspace: &mut Keyspace<'_>,
    key: &[u8],
    expiry: Expiry,
    mut take: impl FnMut(pando_engine::ValueRef<'_>) -> Result<R, &'static str>,
) -> Result<Option<(R, ValueVersion)>, Refusal> {
    let mut found = None;
    let drawn = keyspace.update(key, |old| {
        let Some(value) = old else {
            found = None;
            return Decision::Keep;
        };
        let taken = take(value);
        let refused = taken.is_err();
        found = Some((taken, value.version));
        if refused {
            return Decision::Keep;
        }
        if expiry == Expiry::Past {
            return Decision::Remove;
        }
        if value.attributes.deadline == expiry.deadline() {
            return Decision::Keep;
        }
        let mut value = value.hand_over();
        value.attributes.deadline = expiry.deadline();
        Decision::Write(value)
    })?;
    match found {
        None => Ok(None),
        Some((Err(text), _)) => Err(text.into()),
        Some((Ok(taken), version)) => Ok(Some((taken, drawn.unwrap_or(version)))),
    }
}
