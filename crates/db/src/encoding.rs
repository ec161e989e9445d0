//! What OBJECT ENCODING reports of a value, and what a writer must record for it.
//!
//! Redis names the form in which it holds a value. Usually the form follows from the content. Where
//! it follows from the value's history (Redis never converts one back), the writer sets
//! [`Attributes::encoding`] to one of these:
//!
//! | byte | name | set by | says |
//! |---|---|---|---|
//! | 0 | `DERIVED` | any other write | `int`, `embstr` or `raw` by the bytes; `listpack` |
//! | 1 | `RAW` | writes inside a string (APPEND, SETRANGE, SETBIT, BITFIELD), BITOP | `raw` |
//! | 2 | `HASHTABLE` | a hash or set that has outgrown a listpack, for the rest of its life | `hashtable` |
//! | 3 | `TEXT` | INCRBYFLOAT | `embstr` or `raw`, never `int` |
//! | 4 | `SKIPLIST` | a sorted set that has outgrown a listpack, for the rest of its life | `skiplist` |
//! | 5 | `INTSET` | a set to which nothing but integers was ever added | `intset` |
//! | 6 | `QUICKLIST` | a list that has outgrown a listpack | `quicklist` |
//!
//! Two more bits are memcached's, of strings only. A RESP command that writes a string clears them;
//! one that changes only its expiry keeps them:
//!
//! | bit | name | says |
//! |---|---|---|
//! | 6 | `STALE` | `md I` has marked the item stale |
//! | 7 | `CLAIMED` | some client was told to renew the item (`W`) |
//!
//! The bytes are stored with the value everywhere, so numbers never get a new meaning.
//!
//! [`Attributes::encoding`]: pando_engine::Attributes::encoding

use pando_engine::{BodyRef, HashRef, RowTag, StringRef, ValueRef};
use pando_protocol::number;

/// The form follows from the content.
pub(crate) const DERIVED: u8 = 0;

/// A string that was changed in place.
pub(crate) const RAW: u8 = 1;

/// A hash or set that Redis would have converted from a listpack.
pub(crate) const HASHTABLE: u8 = 2;

/// A string that is not taken for an integer.
pub(crate) const TEXT: u8 = 3;

/// A sorted set that Redis would have converted from a listpack.
pub(crate) const SKIPLIST: u8 = 4;

/// A set of integers.
pub(crate) const INTSET: u8 = 5;

/// A list that is longer than one listpack.
pub(crate) const QUICKLIST: u8 = 6;

/// A memcached item that is known to be out of date.
pub(crate) const STALE: u8 = 1 << 6;

/// A memcached item that somebody is about to renew.
pub(crate) const CLAIMED: u8 = 1 << 7;

/// The bits that are memcached's.
pub(crate) const STATE: u8 = STALE | CLAIMED;

/// Most bytes of a string that Redis holds in one block with its header.
const EMBEDDED_BYTES_MAX: usize = 44;

/// Redis' `hash-max-listpack-entries`: with more fields a hash is converted.
pub(crate) const LISTPACK_ENTRIES_MAX: usize = 512;

/// Redis' `hash-max-listpack-value`: with a longer name or value, in bytes, a hash is converted.
pub(crate) const LISTPACK_ITEM_BYTES_MAX: usize = 64;

/// Redis' `set-max-intset-entries`: with more members a set of integers is converted.
pub(crate) const INTSET_ENTRIES_MAX: usize = 512;

/// Redis' `set-max-listpack-entries`: with more members a set is converted.
pub(crate) const SET_LISTPACK_ENTRIES_MAX: usize = 128;

/// Whether a field converts its hash, whatever the number of fields.
pub(crate) fn is_long(field: &[u8], value_bytes: usize) -> bool {
    field.len() > LISTPACK_ITEM_BYTES_MAX || value_bytes > LISTPACK_ITEM_BYTES_MAX
}

/// What a set records that was made of these members at once: Redis reads or stores it so.
pub(crate) fn of_set(set: HashRef<'_>) -> u8 {
    let is_integer = |(member, _): (&[u8], _)| number::parse_i64(member).is_some();
    if set.len() <= INTSET_ENTRIES_MAX && set.iter().all(is_integer) {
        INTSET
    } else if set.len() <= SET_LISTPACK_ENTRIES_MAX
        && set.iter().all(|(member, _)| !is_long(member, 0))
    {
        DERIVED
    } else {
        HASHTABLE
    }
}

/// The answer of OBJECT ENCODING.
pub(crate) fn name(value: &ValueRef<'_>) -> &'static str {
    let encoding = value.attributes.encoding & !STATE;
    match value.body {
        BodyRef::Row(RowTag::Stream, _) => "stream",
        BodyRef::Row(..) => match encoding {
            HASHTABLE => "hashtable",
            SKIPLIST => "skiplist",
            INTSET => "intset",
            QUICKLIST => "quicklist",
            _ => "listpack",
        },
        BodyRef::String(_) if encoding == RAW => "raw",
        BodyRef::String(StringRef::Flat(bytes)) if bytes.len() <= EMBEDDED_BYTES_MAX => {
            if encoding == DERIVED && number::parse_i64(bytes).is_some() {
                "int"
            } else {
                "embstr"
            }
        }
        BodyRef::String(string) if string.len() <= EMBEDDED_BYTES_MAX => "embstr",
        BodyRef::String(_) => "raw",
    }
}

#[cfg(test)]
mod tests {
    use pando_engine::{Attributes, Body, LogEpoch, NewValue, ValueVersion};

    use super::*;

    fn name_of(bytes: &[u8], encoding: u8) -> &'static str {
        let attributes = Attributes {
            encoding,
            ..Attributes::default()
        };
        let value = NewValue::new(Body::string(bytes)).with(attributes);
        name(&value.view(ValueVersion::first_of(LogEpoch(1))))
    }

    #[test]
    fn the_form_follows_from_bytes_and_history() {
        let embedded = [b'x'; EMBEDDED_BYTES_MAX];
        let long = [b'x'; EMBEDDED_BYTES_MAX + 1];
        for (bytes, encoding, expected) in [
            (&b"5"[..], DERIVED, "int"),
            (b"-9223372036854775808", DERIVED, "int"),
            (b"9223372036854775808", DERIVED, "embstr"),
            (b"05", DERIVED, "embstr"),
            (b"", DERIVED, "embstr"),
            (&embedded, DERIVED, "embstr"),
            (&long, DERIVED, "raw"),
            (b"5", RAW, "raw"),
            (b"5", TEXT, "embstr"),
            (&long, TEXT, "raw"),
        ] {
            assert_eq!(
                name_of(bytes, encoding),
                expected,
                "{}",
                bytes.escape_ascii()
            );
        }
    }
}
