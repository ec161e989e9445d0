//! `mg`: an item, or facts about it; and `me`.
//!
//! Most requests change nothing and are answered from where the item is. Setting an expiry (`T`),
//! making an absent item (`N`) or telling one client to renew it (`R`, a stale item) is an update.
//! The winner gets `W`, everybody else `Z` until the item is written; `X` says that the item is
//! stale. While a pause or a full log prevents recording the winner, `mg` without these flags
//! continues and sends nobody `W`.

use std::num::NonZero;

use pando_engine::{
    Attributes, Body, Deadline, Decision, NewValue, StringRef, ValueRef, ValueVersion,
};
use pando_protocol::memcached::meta::{self, KeyBuffer, Meta};
use pando_protocol::memcached::{KEY_BYTES_MAX, Line, Reply, Verb};

use super::super::item::{Expiry, is_claimed, is_stale, reply_data, seconds_left, string_of};
use super::super::token::Tokens;
use super::super::{Handled, Refusal};
use super::{Facts, answer};
use crate::clock::Milliseconds;
use crate::commands::detached::Detached;
use crate::encoding::CLAIMED;
use crate::keyspace::Keyspace;
use crate::memory::{Accesses, LastAccess};
use crate::statistics::Figure;

/// The outcome of a look at the item.
enum Look {
    Answered,
    Absent,
    /// It is answered by an update.
    Changes,
}

/// `mg key flags…`
pub(in super::super) fn get(
    keyspace: &mut Keyspace<'_>,
    line: Line<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let mut buffer: KeyBuffer = [0; KEY_BYTES_MAX];
    let meta = Meta::parse(Verb::MetaGet, line, &mut buffer)?;
    let now = keyspace.now();
    if meta.unnoted {
        keyspace.leave_marks();
    }
    let accesses = meta.asks_access.then(|| keyspace.accesses());
    let tokens = Tokens::of(keyspace);
    let database = keyspace.database;
    let look = if meta.exptime.is_some() {
        Look::Changes
    } else {
        keyspace.read(meta.key, |value| {
            let Some(value) = value else {
                return Ok::<_, &'static str>(Look::Absent);
            };
            if wins(&value.attributes, value.attributes.deadline, &meta, now)
                && database.takes_writes()
            {
                return Ok(Look::Changes);
            }
            let string = string_of(value)?;
            let facts = facts_of(&value, string, tokens, accesses, now);
            show(
                reply,
                &meta,
                &facts,
                string,
                state_of(&value.attributes, false),
            );
            Ok(Look::Answered)
        })?
    };
    let found = match look {
        Look::Answered => true,
        Look::Absent if meta.vivify.is_none() => false,
        Look::Absent | Look::Changes => change(keyspace, &meta, reply, now)?,
    };
    if !found && !meta.quiet {
        answer(reply, "EN", &meta, &Facts::default(), "");
    }
    if meta.exptime.is_some() {
        keyspace.count_read(found);
    }
    // As in memcached: an existing item that gets an expiry was touched, all else was a get.
    let counters = keyspace.memcached_counters();
    if found && meta.exptime.is_some() {
        counters.count(Figure::CmdTouch);
        counters.count(Figure::TouchHits);
    } else {
        counters.count(Figure::CmdGet);
        counters.count(if found {
            Figure::GetHits
        } else {
            Figure::GetMisses
        });
    }
    Ok(())
}

/// Whether this request should be told to renew the item, which expires at `deadline`.
fn wins(
    attributes: &Attributes,
    deadline: Option<Deadline>,
    meta: &Meta<'_>,
    now: Milliseconds,
) -> bool {
    if is_claimed(attributes) {
        return false;
    }
    let runs_out = meta.recache.is_some_and(|seconds| {
        deadline.is_some_and(|deadline| seconds_left(Some(deadline), now) < seconds)
    });
    runs_out || is_stale(attributes)
}

fn state_of(attributes: &Attributes, won: bool) -> &'static str {
    match (is_stale(attributes), is_claimed(attributes), won) {
        (false, _, true) => " W",
        (true, _, true) => " X W",
        (false, true, false) => " Z",
        (true, true, false) => " Z X",
        // Nobody can be told to renew it now.
        (true, false, false) => " X",
        (false, false, false) => "",
    }
}

fn facts_of(
    value: &ValueRef<'_>,
    string: StringRef<'_>,
    tokens: Tokens,
    accesses: Option<Accesses<'_>>,
    now: Milliseconds,
) -> Facts {
    Facts {
        bytes: Some(string.len()),
        flags: Some(value.attributes.flags),
        cas: Some(tokens.of_value(value)),
        seconds_left: Some(seconds_left(value.attributes.deadline, now)),
        access: accesses.map(|accesses| accesses.of(value)),
    }
}

/// Replies with the facts, and the value if requested.
#[inline]
fn show(reply: &mut Reply<'_>, meta: &Meta<'_>, facts: &Facts, string: StringRef<'_>, state: &str) {
    if meta.value {
        reply.raw(b"VA ");
        reply.number(string.len() as u64);
        answer(reply, "", meta, facts, state);
        reply_data(reply, string);
    } else {
        answer(reply, "HD", meta, facts, state);
    }
}

/// What an update found.
struct Found {
    string: Detached<'static>,
    facts: Facts,
    state: &'static str,
    /// The token that a client has chosen for it.
    token: Option<NonZero<u64>>,
    /// There was none before.
    made: bool,
}

/// Replies by an update; returns whether there is an item.
fn change(
    keyspace: &mut Keyspace<'_>,
    meta: &Meta<'_>,
    reply: &mut Reply<'_>,
    now: Milliseconds,
) -> Result<bool, Refusal> {
    let accesses = meta.asks_access.then(|| keyspace.accesses());
    let tokens = Tokens::of(keyspace);
    // As in memcached, an item that cannot be made for lack of memory is a miss.
    let full = meta.vivify.is_some() && keyspace.refuses_growth();
    let mut found = Ok(None);
    let drawn = keyspace.update(meta.key, |old| {
        let Some(old) = old else {
            if full {
                found = Ok(None);
                return Decision::Keep;
            }
            let (decision, made) = vivify(meta, now);
            found = Ok(made);
            return decision;
        };
        let string = match string_of(old) {
            Ok(string) => string,
            Err(text) => {
                found = Err(text);
                return Decision::Keep;
            }
        };
        let mut attributes = old.attributes;
        let expiry = meta.exptime.map(|exptime| Expiry::of(exptime, now));
        if let Some(expiry) = expiry {
            attributes.deadline = expiry.deadline();
        }
        let deadline = if meta.touched_first {
            attributes.deadline
        } else {
            old.attributes.deadline
        };
        let won = wins(&old.attributes, deadline, meta, now);
        let state = state_of(&attributes, won);
        if (expiry.is_some() || won) && meta.new_cas.is_some() {
            attributes.token = meta.new_cas;
        }
        let facts = Facts {
            seconds_left: Some(seconds_left(attributes.deadline, now)),
            ..facts_of(&old, string, tokens, accesses, now)
        };
        found = Ok(Some(Found {
            string: Detached::take(string),
            facts,
            state,
            token: attributes.token,
            made: false,
        }));
        if won {
            attributes.encoding |= CLAIMED;
        }
        if expiry == Some(Expiry::Past) {
            Decision::Remove
        } else if attributes == old.attributes {
            Decision::Keep
        } else {
            Decision::Write(old.hand_over().with(attributes))
        }
    })?;
    let Some(mut found) = found? else {
        return Ok(false);
    };
    if let Some(version) = drawn {
        found.facts.cas = Some(tokens.token(version, found.token));
    }
    if found.made {
        keyspace.memcached_counters().count(Figure::TotalItems);
    }
    let string = found.string.as_ref();
    show(reply, meta, &found.facts, string, found.state);
    Ok(true)
}

/// Makes the item that `N` requests: empty, and claimed by the requester.
fn vivify(meta: &Meta<'_>, now: Milliseconds) -> (Decision<'static>, Option<Found>) {
    let Some(exptime) = meta.vivify else {
        return (Decision::Keep, None);
    };
    let expiry = Expiry::of(exptime, now);
    let attributes = Attributes {
        deadline: expiry.deadline(),
        encoding: CLAIMED,
        token: meta.new_cas,
        ..Attributes::default()
    };
    let decision = if expiry == Expiry::Past {
        Decision::Keep
    } else {
        Decision::Write(NewValue::new(Body::string(b"")).with(attributes))
    };
    let facts = Facts {
        bytes: Some(0),
        flags: Some(0),
        cas: Some(0),
        seconds_left: Some(seconds_left(attributes.deadline, now)),
        access: Some(LastAccess {
            idle_seconds: 0,
            is_read: false,
        }),
    };
    let found = Found {
        string: Detached::new(&b""[..]),
        facts,
        state: " W",
        token: meta.new_cas,
        made: true,
    };
    (decision, Some(found))
}

/// `me key`: everything, for people.
pub(in super::super) fn debug(
    keyspace: &mut Keyspace<'_>,
    line: Line<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let mut buffer: KeyBuffer = [0; KEY_BYTES_MAX];
    let key = meta::debug(line, &mut buffer)?;
    let (now, accesses) = (keyspace.now(), keyspace.accesses());
    let tokens = Tokens::of(keyspace);
    let shown = line.word(1).unwrap_or_default();
    keyspace.look(key, |value| {
        let Some(value) = value else {
            reply.line("EN");
            return;
        };
        let bytes =
            size_of::<ValueVersion>() + size_of::<Attributes>() + key.len() + value.heap_bytes();
        reply.raw(b"ME ");
        reply.raw(shown);
        reply.raw(b" exp=");
        reply.signed(seconds_left(value.attributes.deadline, now));
        let access = accesses.of(&value);
        reply.raw(b" la=");
        reply.number(access.idle_seconds);
        reply.raw(b" cas=");
        reply.number(tokens.of_value(&value));
        reply.raw(if access.is_read {
            b" fetch=yes"
        } else {
            b" fetch=no"
        });
        reply.raw(b" cls=0 size=");
        reply.number(bytes as u64);
        reply.end();
    });
    Ok(())
}
