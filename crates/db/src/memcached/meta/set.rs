//! `ms`: stores.

use pando_protocol::memcached::meta::{KeyBuffer, Meta};
use pando_protocol::memcached::{KEY_BYTES_MAX, Line, Reply, Verb};

use super::super::Handled;
use super::super::item::Expiry;
use super::super::store::{Mode, Stored, Storing, take_data};
use super::super::token::Tokens;
use super::{Facts, answer};
use crate::keyspace::Keyspace;

/// `ms key bytes flags…`
pub(in super::super) fn set(
    keyspace: &mut Keyspace<'_>,
    line: Line<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let mut buffer: KeyBuffer = [0; KEY_BYTES_MAX];
    let meta = Meta::parse(Verb::MetaSet, line, &mut buffer)?;
    // As in memcached, whatever the mode.
    let data = take_data(keyspace, meta.key, true, line)?;
    let now = keyspace.now();
    let storing = Storing {
        key: meta.key,
        data,
        flags: meta.client_flags,
        expiry: Expiry::of(meta.exptime.unwrap_or(0), now),
        mode: match meta.mode {
            Some(b'E') => Mode::Add,
            Some(b'A') => Mode::Append,
            Some(b'P') => Mode::Prepend,
            Some(b'R') => Mode::Replace,
            _ => Mode::Set,
        },
        vivify: meta.vivify.map(|exptime| Expiry::of(exptime, now)),
        token: meta.new_cas,
        cas: meta.cas,
        invalidate: meta.invalidate,
    };
    let stored = storing.run(keyspace)?;
    let (code, version, bytes) = match stored {
        Stored::Yes(version, bytes) => ("HD", version, Some(bytes)),
        Stored::No => ("NS", None, None),
        Stored::Exists => ("EX", None, None),
        Stored::NotFound => ("NF", None, None),
    };
    if !(meta.quiet && code == "HD") {
        let tokens = Tokens::of(keyspace);
        let facts = Facts {
            bytes,
            cas: Some(version.map_or(0, |version| tokens.token(version, meta.new_cas))),
            ..Facts::default()
        };
        answer(reply, code, &meta, &facts, "");
    }
    Ok(())
}
