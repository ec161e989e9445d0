//! `md`: removes, or marks stale; `ma`: arithmetic.

use pando_engine::{Attributes, Body, Deadline, Decision, NewValue};
use pando_protocol::memcached::meta::{KeyBuffer, Meta};
use pando_protocol::memcached::{KEY_BYTES_MAX, Line, Reply, Verb, error};
use pando_protocol::number::IntegerText;

use super::super::Handled;
use super::super::change::moved;
use super::super::item::{Expiry, seconds_left, string_of};
use super::super::token::Tokens;
use super::{Facts, answer};
use crate::encoding::{CLAIMED, STALE};
use crate::keyspace::Keyspace;
use crate::statistics::Figure;

/// What happened to an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    Absent,
    /// Its token differs.
    Exists,
}

/// `md key flags…`
pub(in super::super) fn delete(
    keyspace: &mut Keyspace<'_>,
    line: Line<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let mut buffer: KeyBuffer = [0; KEY_BYTES_MAX];
    let meta = Meta::parse(Verb::MetaDelete, line, &mut buffer)?;
    let (now, tokens) = (keyspace.now(), Tokens::of(keyspace));
    let expiry = meta.exptime.map(|exptime| Expiry::of(exptime, now));
    let mut outcome = Ok(Outcome::Absent);
    keyspace.update(meta.key, |old| {
        let Some(old) = old else {
            outcome = Ok(Outcome::Absent);
            return Decision::Keep;
        };
        if is_other(meta.cas, tokens.of_value(&old)) {
            outcome = Ok(Outcome::Exists);
            return Decision::Keep;
        }
        outcome = Ok(Outcome::Done);
        if !meta.invalidate && !meta.empty {
            return Decision::Remove;
        }
        if let Err(text) = string_of(old) {
            outcome = Err(text);
            return Decision::Keep;
        }
        let mut attributes = old.attributes;
        // As in memcached, an item that is only emptied keeps its token.
        if meta.invalidate || meta.new_cas.is_some() {
            attributes.token = meta.new_cas;
        }
        if meta.invalidate {
            attributes.encoding = (attributes.encoding & !CLAIMED) | STALE;
            match expiry {
                Some(Expiry::Past) => return Decision::Remove,
                Some(expiry) => attributes.deadline = expiry.deadline(),
                None => {}
            }
        }
        if meta.empty {
            attributes.flags = 0;
            let value = NewValue::new(Body::string(b""));
            return Decision::Write(value.with(attributes));
        }
        Decision::Write(old.hand_over().with(attributes))
    })?;
    let outcome = outcome?;
    let counters = keyspace.memcached_counters();
    // As in memcached, an item that is kept is no hit, and one with another token a miss.
    match outcome {
        Outcome::Done if meta.invalidate || meta.empty => {}
        Outcome::Done => counters.count(Figure::DeleteHits),
        Outcome::Absent | Outcome::Exists => counters.count(Figure::DeleteMisses),
    }
    let code = match outcome {
        Outcome::Done => "HD",
        Outcome::Absent => "NF",
        Outcome::Exists => "EX",
    };
    if !(meta.quiet && outcome == Outcome::Done) {
        answer(reply, code, &meta, &Facts::default(), "");
    }
    Ok(())
}

fn is_other(asked: Option<u64>, token: u64) -> bool {
    asked.is_some_and(|asked| asked != token)
}

/// The number that `ma` creates if there is none.
fn first_number(meta: &Meta<'_>, deadline: Option<Deadline>) -> NewValue<'static> {
    let text = IntegerText::of_unsigned(meta.initial).as_bytes().to_vec();
    let attributes = Attributes {
        deadline,
        token: meta.new_cas,
        ..Attributes::default()
    };
    NewValue::new(Body::string_owned(text)).with(attributes)
}

/// `ma key flags…`
pub(in super::super) fn arithmetic(
    keyspace: &mut Keyspace<'_>,
    line: Line<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let mut buffer: KeyBuffer = [0; KEY_BYTES_MAX];
    let meta = Meta::parse(Verb::MetaArithmetic, line, &mut buffer)?;
    let (now, tokens) = (keyspace.now(), Tokens::of(keyspace));
    let up = !matches!(meta.mode, Some(b'D' | b'-'));
    let (mut outcome, mut made, mut is_longer) = (Ok(Outcome::Absent), false, false);
    let (mut number, mut deadline) = (0, None);
    let full = keyspace.refuses_growth();
    let drawn = keyspace.update(meta.key, |old| {
        (made, is_longer) = (false, false);
        let Some(old) = old else {
            let Some(exptime) = meta.vivify else {
                outcome = Ok(Outcome::Absent);
                return Decision::Keep;
            };
            if full {
                outcome = Err(error::NO_MEMORY_FOR_NEW);
                return Decision::Keep;
            }
            (outcome, made, number) = (Ok(Outcome::Done), true, meta.initial);
            let expiry = Expiry::of(exptime, now);
            deadline = expiry.deadline();
            if expiry == Expiry::Past {
                return Decision::Keep;
            }
            return Decision::Write(first_number(&meta, deadline));
        };
        // As in memcached, what cannot be a number is refused before the token is checked.
        let is_empty = string_of(old).is_ok_and(pando_engine::StringRef::is_empty);
        // As there, 0 is not a token here.
        let token = meta.cas.filter(|token| *token != 0 && !is_empty);
        if is_other(token, tokens.of_value(&old)) {
            outcome = Ok(Outcome::Exists);
            return Decision::Keep;
        }
        let moved = moved(old, up, meta.delta, full, meta.new_cas);
        outcome = moved.as_ref().map(|_| Outcome::Done).map_err(|text| *text);
        let Ok(moved) = moved else {
            return Decision::Keep;
        };
        (number, is_longer) = (moved.number, moved.is_longer);
        let mut value = moved.value;
        match meta.exptime.map(|exptime| Expiry::of(exptime, now)) {
            Some(Expiry::Past) => return Decision::Remove,
            Some(expiry) => value.attributes.deadline = expiry.deadline(),
            None => {}
        }
        deadline = value.attributes.deadline;
        Decision::Write(value)
    })?;
    let outcome = outcome?;
    count_moved(keyspace, outcome, up, made);
    if is_longer {
        keyspace.memcached_counters().count(Figure::TotalItems);
    }
    match outcome {
        Outcome::Absent => answer(reply, "NF", &meta, &Facts::default(), ""),
        Outcome::Exists => answer(reply, "EX", &meta, &Facts::default(), ""),
        Outcome::Done if meta.quiet => {}
        Outcome::Done => {
            let token = |version| tokens.token(version, meta.new_cas);
            let facts = Facts {
                cas: Some(drawn.map_or(0, token)),
                seconds_left: Some(seconds_left(deadline, now)),
                ..Facts::default()
            };
            show_number(reply, &meta, &facts, number);
        }
    }
    Ok(())
}

fn count_moved(keyspace: &Keyspace<'_>, outcome: Outcome, up: bool, made: bool) {
    let figure = match (outcome, up) {
        (Outcome::Done, _) if made => Figure::TotalItems,
        (Outcome::Done, true) => Figure::IncrHits,
        (Outcome::Done, false) => Figure::DecrHits,
        (Outcome::Absent, true) => Figure::IncrMisses,
        (Outcome::Absent, false) => Figure::DecrMisses,
        (Outcome::Exists, _) => return,
    };
    keyspace.memcached_counters().count(figure);
}

/// Replies with the facts, and the number if requested.
fn show_number(reply: &mut Reply<'_>, meta: &Meta<'_>, facts: &Facts, number: u64) {
    if !meta.value {
        answer(reply, "HD", meta, facts, "");
        return;
    }
    let text = IntegerText::of_unsigned(number);
    reply.raw(b"VA ");
    reply.number(text.as_bytes().len() as u64);
    answer(reply, "", meta, facts, "");
    reply.raw(text.as_bytes());
    reply.end();
}
