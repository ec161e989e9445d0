//! `set`, `add`, `replace`, `append`, `prepend`, `cas`, and what `ms` shares with them.

use std::num::NonZero;

use pando_engine::{Attributes, Decision, NewValue, StringBody, ValueRef, ValueVersion};
use pando_protocol::memcached::arguments::Store;
use pando_protocol::memcached::{Line, Reply, Verb, error};

use super::item::{Expiry, is_claimed, string_of};
use super::token::Tokens;
use super::{Handled, Refusal};
use crate::commands::detached::Detached;
use crate::encoding::{CLAIMED, RAW, STALE};
use crate::keyspace::Keyspace;
use crate::statistics::Figure;

/// On what condition and where something is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
}

/// What to store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Storing<'r> {
    pub(super) key: &'r [u8],
    pub(super) data: &'r [u8],
    pub(super) flags: u32,
    pub(super) expiry: Expiry,
    pub(super) mode: Mode,
    /// If there is nothing to add to, an item with this expiry is made.
    pub(super) vivify: Option<Expiry>,
    /// The token of the stored item, if the client chose one.
    pub(super) token: Option<NonZero<u64>>,
    /// The token that the item must have.
    pub(super) cas: Option<u64>,
    /// An older token is accepted too, and marks the item stale.
    pub(super) invalidate: bool,
}

/// The outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// With this version, `None` if it expired at once, and this many bytes.
    Yes(Option<ValueVersion>, usize),
    /// A condition of the mode does not hold.
    No,
    /// The token differs.
    Exists,
    /// There is no item with any token.
    NotFound,
}

/// A storage command of the text protocol.
#[inline]
pub(super) fn store(
    keyspace: &mut Keyspace<'_>,
    verb: Verb,
    line: Line<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let store = Store::parse(verb, line)?;
    let data = take_data(keyspace, store.key, verb == Verb::Set, line)?;
    let storing = Storing {
        key: store.key,
        data,
        flags: store.flags,
        expiry: Expiry::of(store.exptime, keyspace.now()),
        mode: match verb {
            Verb::Add => Mode::Add,
            Verb::Replace => Mode::Replace,
            Verb::Append => Mode::Append,
            Verb::Prepend => Mode::Prepend,
            _ => Mode::Set,
        },
        vivify: None,
        token: None,
        cas: store.cas,
        invalidate: false,
    };
    reply.line(match storing.run(keyspace)? {
        Stored::Yes(..) => "STORED",
        Stored::No => "NOT_STORED",
        Stored::Exists => "EXISTS",
        Stored::NotFound => "NOT_FOUND",
    });
    Ok(())
}

/// The data after a line. If they are too long, or there is no memory for them, a command that
/// `sets` removes the key, so that nobody reads what its writer thinks is gone.
#[inline]
pub(super) fn take_data<'r>(
    keyspace: &mut Keyspace<'_>,
    key: &[u8],
    sets: bool,
    line: Line<'r>,
) -> Result<&'r [u8], Refusal> {
    let Some(data) = line.data() else {
        keyspace.memcached_counters().count(Figure::StoreTooLarge);
        if sets {
            keyspace.remove(key);
        }
        return Err(error::TOO_LARGE.into());
    };
    if keyspace.refuses_growth() {
        keyspace.memcached_counters().count(Figure::StoreNoMemory);
        if sets {
            keyspace.remove(key);
        }
        return Err(error::OUT_OF_MEMORY.into());
    }
    // As in memcached, data that is not accepted is not a `cmd_set`.
    keyspace.memcached_counters().count(Figure::CmdSet);
    Ok(data?)
}

impl Storing<'_> {
    /// Does it.
    #[inline]
    pub(super) fn run(&self, keyspace: &mut Keyspace<'_>) -> Result<Stored, Refusal> {
        let value = Detached::new(self.data);
        let item_bytes_max = keyspace.options().item_bytes_max;
        let item_bytes_max = item_bytes_max.min(keyspace.database.memory.fit_bytes_max());
        let asked = self.cas.map(|token| (token, Tokens::of(keyspace)));
        let mut done = Ok(Stored::No);
        let drawn = keyspace.update(self.key, |old| {
            match self.decide(old, &value, item_bytes_max, asked) {
                Ok((decision, stored)) => {
                    done = Ok(stored);
                    decision
                }
                Err(text) => {
                    done = Err(text);
                    Decision::Keep
                }
            }
        })?;
        let done = match done? {
            Stored::Yes(_, bytes) => Stored::Yes(drawn, bytes),
            other => other,
        };
        let counters = keyspace.memcached_counters();
        if matches!(done, Stored::Yes(..)) {
            counters.count(Figure::TotalItems);
        }
        // As in memcached, the token is not counted if something is added to the item.
        if self.cas.is_some() && matches!(self.mode, Mode::Set | Mode::Replace) {
            counters.count(match done {
                Stored::Yes(..) => Figure::CasHits,
                Stored::NotFound => Figure::CasMisses,
                _ => Figure::CasBadval,
            });
        }
        Ok(done)
    }

    fn decide<'d>(
        &self,
        old: Option<ValueRef<'_>>,
        value: &'d Detached<'_>,
        item_bytes_max: usize,
        asked: Option<(u64, Tokens)>,
    ) -> Result<(Decision<'d>, Stored), &'static str> {
        let kept = |stored| Ok((Decision::Keep, stored));
        let mut attributes = Attributes {
            deadline: self.expiry.deadline(),
            flags: self.flags,
            token: self.token,
            ..Attributes::default()
        };
        let stored = Stored::Yes(None, self.data.len());
        let Some(old) = old else {
            return match (self.mode, self.cas) {
                // As in memcached, `add` ignores the token of an absent item.
                (Mode::Set, None) | (Mode::Add, _) => {
                    Ok((write(self.expiry, value.body(), attributes), stored))
                }
                (Mode::Append | Mode::Prepend, _) if let Some(expiry) = self.vivify => {
                    attributes.deadline = expiry.deadline();
                    Ok((write(expiry, value.body(), attributes), stored))
                }
                (Mode::Set | Mode::Replace, Some(_)) => kept(Stored::NotFound),
                _ => kept(Stored::No),
            };
        };
        if self.mode == Mode::Add {
            return kept(Stored::No);
        }
        // As in memcached, 0 is not a token when something is added to the item.
        let adds = matches!(self.mode, Mode::Append | Mode::Prepend);
        if let Some((token, tokens)) = asked
            && token != tokens.of_value(&old)
            && (token != 0 || !adds)
        {
            let passes = self.invalidate && !adds && token != 0;
            if !passes || token > tokens.of_value(&old) {
                return kept(Stored::Exists);
            }
            // The item was invalidated since. The reader's result is still useful, for as long as
            // the old one was, until a newer one comes.
            attributes.deadline = old.attributes.deadline;
            attributes.encoding |= STALE;
            if is_claimed(&old.attributes) {
                attributes.encoding |= CLAIMED;
            }
            let value = NewValue::new(value.body()).with(attributes);
            return Ok((Decision::Write(value), stored));
        }
        if matches!(self.mode, Mode::Set | Mode::Replace) {
            return Ok((write(self.expiry, value.body(), attributes), stored));
        }
        let string = string_of(old)?;
        let bytes = string.len() + self.data.len();
        if bytes > item_bytes_max {
            return kept(Stored::No);
        }
        let body = if self.mode == Mode::Append {
            string.with_write(string.len(), self.data)
        } else {
            let mut joined = Vec::with_capacity(bytes);
            joined.extend_from_slice(self.data);
            string.for_each_piece(0..string.len(), |piece| joined.extend_from_slice(piece));
            StringBody::owned(joined)
        };
        let attributes = Attributes {
            encoding: RAW,
            token: self.token,
            ..old.attributes
        };
        let value = NewValue::new(body).with(attributes);
        Ok((Decision::Write(value), Stored::Yes(None, bytes)))
    }
}

/// Stores, or removes if it has already expired.
#[inline]
fn write(expiry: Expiry, body: StringBody<'_>, attributes: Attributes) -> Decision<'_> {
    if expiry == Expiry::Past {
        Decision::Remove
    } else {
        Decision::Write(NewValue::new(body).with(attributes))
    }
}
