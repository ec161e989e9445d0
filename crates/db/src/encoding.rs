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
//! | 2 | `HASHTABLE` | a hash that has outgrown a listpack, for the rest of its life | `hashtable` |
//! | 3 | `TEXT` | INCRBYFLOAT | `embstr` or `raw`, never `int` |
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

use pando_engine::{BodyRef, StringRef, ValueRef};
use pando_protocol::number;

/// The form follows from the content.
pub(crate) const DERIVED: u8 = 0;

/// A string that was changed in place.
pub(crate) const RAW: u8 = 1;

/// A hash that Redis would have converted from a listpack.
pub(crate) const HASHTABLE: u8 = 2;

/// A string that is not taken for an integer.
pub(crate) const TEXT: u8 = 3;

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

/// Whether a field converts its hash, whatever the number of fields.
pub(crate) fn is_long(field: &[u8], value_bytes: usize) -> bool {
    field.len() > LISTPACK_ITEM_BYTES_MAX || value_bytes > LISTPACK_ITEM_BYTES_MAX
}

/// The answer of OBJECT ENCODING.
pub(crate) fn name(value: &ValueRef<'_>) -> &'static str {
    let encoding = value.attributes.encoding & !STATE;
    match value.body {
        BodyRef::Hash(_) if encoding == HASHTABLE => "hashtable",
        BodyRef::Hash(_) => "listpack",
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
