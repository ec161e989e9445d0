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

use std::sync::atomic::{AtomicU64, Ordering};

use pando_engine::{BodyRef, HashRef, ListRef, RowTag, StringRef, TypeTag, ValueRef};
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

/// A memcached item that is known to be out of date.
pub(crate) const STALE: u8 = 1 << 6;

/// A memcached item that somebody is about to renew.
pub(crate) const CLAIMED: u8 = 1 << 7;

/// The bits that are memcached's.
pub(crate) const STATE: u8 = STALE | CLAIMED;

/// Most bytes of a string that Redis holds in one block with its header.
const EMBEDDED_BYTES_MAX: usize = 44;

/// At which sizes Redis changes the form of a value: the settings `hash-max-listpack-entries` and
/// so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field is the setting of its name")]
pub struct Thresholds {
    pub hash_max_listpack_entries: u64,
    pub hash_max_listpack_value: u64,
    pub list_max_listpack_size: i64,
    pub set_max_intset_entries: u64,
    pub set_max_listpack_entries: u64,
    pub set_max_listpack_value: u64,
    pub zset_max_listpack_entries: u64,
    pub zset_max_listpack_value: u64,
}

impl Default for Thresholds {
    /// Those of Redis.
    fn default() -> Self {
        Self {
            hash_max_listpack_entries: 512,
            hash_max_listpack_value: 64,
            list_max_listpack_size: -2,
            set_max_intset_entries: 512,
            set_max_listpack_entries: 128,
            set_max_listpack_value: 64,
            zset_max_listpack_entries: 128,
            zset_max_listpack_value: 64,
        }
    }
}

impl Thresholds {
    /// Whether a field converts its hash, whatever the number of fields.
    pub(crate) fn is_long_field(&self, field: &[u8], value_bytes: usize) -> bool {
        field.len().max(value_bytes) as u64 > self.hash_max_listpack_value
    }
}

/// [`Thresholds`] that CONFIG SET changes while others read them. Each is read on its own: they say
/// nothing about each other, so Relaxed is enough.
#[derive(Debug)]
pub(crate) struct SharedThresholds([AtomicU64; 8]);

impl SharedThresholds {
    pub(crate) fn new(thresholds: Thresholds) -> Self {
        let shared = Self(std::array::from_fn(|_| AtomicU64::new(0)));
        shared.set(thresholds);
        shared
    }

    pub(crate) fn get(&self) -> Thresholds {
        let [
            hash_max_listpack_entries,
            hash_max_listpack_value,
            list_max_listpack_size,
            set_max_intset_entries,
            set_max_listpack_entries,
            set_max_listpack_value,
            zset_max_listpack_entries,
            zset_max_listpack_value,
        ] = self.0.each_ref().map(|value| value.load(Ordering::Relaxed));
        Thresholds {
            hash_max_listpack_entries,
            hash_max_listpack_value,
            list_max_listpack_size: list_max_listpack_size.cast_signed(),
            set_max_intset_entries,
            set_max_listpack_entries,
            set_max_listpack_value,
            zset_max_listpack_entries,
            zset_max_listpack_value,
        }
    }

    pub(crate) fn set(&self, thresholds: Thresholds) {
        let values = [
            thresholds.hash_max_listpack_entries,
            thresholds.hash_max_listpack_value,
            thresholds.list_max_listpack_size.cast_unsigned(),
            thresholds.set_max_intset_entries,
            thresholds.set_max_listpack_entries,
            thresholds.set_max_listpack_value,
            thresholds.zset_max_listpack_entries,
            thresholds.zset_max_listpack_value,
        ];
        for (shared, value) in self.0.iter().zip(values) {
            shared.store(value, Ordering::Relaxed);
        }
    }
}

/// The form of a set to which members are added, as Redis (7.2 and later) converts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SetForm(u8);

impl SetForm {
    /// Of a set that is there, before one command adds up to `count` members.
    pub(crate) fn of(encoding: u8, count: usize, thresholds: &Thresholds) -> Self {
        let entries_max = match encoding {
            INTSET => thresholds.set_max_intset_entries,
            HASHTABLE => u64::MAX,
            _ => thresholds.set_max_listpack_entries,
        };
        let stays = count as u64 <= entries_max;
        Self(if stays { encoding } else { HASHTABLE })
    }

    /// Of a new set, by its first member and how many are added with it.
    pub(crate) fn first(member: &[u8], count: usize, thresholds: &Thresholds) -> Self {
        let count = count as u64;
        let is_integer = number::parse_i64(member).is_some();
        Self(
            if is_integer && count <= thresholds.set_max_intset_entries {
                INTSET
            } else if count <= thresholds.set_max_listpack_entries {
                DERIVED
            } else {
                HASHTABLE
            },
        )
    }

    /// A member was added to `before` others.
    pub(crate) fn add(&mut self, member: &[u8], before: usize, thresholds: &Thresholds) {
        let before = before as u64;
        let fits_listpack = before < thresholds.set_max_listpack_entries
            && member.len() as u64 <= thresholds.set_max_listpack_value;
        self.0 = match self.0 {
            INTSET if number::parse_i64(member).is_some() => {
                if before < thresholds.set_max_intset_entries {
                    INTSET
                } else {
                    HASHTABLE
                }
            }
            DERIVED | INTSET if fits_listpack => DERIVED,
            _ => HASHTABLE,
        };
    }

    /// What the set records.
    pub(crate) fn encoding(self) -> u8 {
        self.0
    }
}

/// What a set records that was made of these members at once: Redis reads or stores it so.
pub(crate) fn of_set(set: HashRef<'_>, thresholds: &Thresholds) -> u8 {
    let len = set.len() as u64;
    let members = || set.iter().map(|(member, _)| member);
    if len <= thresholds.set_max_intset_entries
        && members().all(|member| number::parse_i64(member).is_some())
    {
        INTSET
    } else if len <= thresholds.set_max_listpack_entries
        && members().all(|member| member.len() as u64 <= thresholds.set_max_listpack_value)
    {
        DERIVED
    } else {
        HASHTABLE
    }
}

/// Whether a sorted set of `before` members is converted before this one is added.
pub(crate) fn converts_sorted(member: &[u8], before: usize, thresholds: &Thresholds) -> bool {
    before as u64 >= thresholds.zset_max_listpack_entries
        || member.len() as u64 > thresholds.zset_max_listpack_value
}

/// A score as Redis holds it in a listpack: as an integer if it is one of up to 62 bits.
pub(crate) fn packed_score(score: f64) -> String {
    const INTEGER_MAX: f64 = (i64::MAX / 2) as f64;
    if score.fract() == 0.0 && score.abs() <= INTEGER_MAX {
        (score as i64).to_string()
    } else {
        number::format_f64(score)
    }
}

/// What a sorted set records that was made of these members at once, each with its index.
pub(crate) fn of_sorted<'m>(
    mut members: impl Iterator<Item = (&'m [u8], usize)>,
    thresholds: &Thresholds,
) -> u8 {
    let converts = |(member, index)| converts_sorted(member, index, thresholds);
    if members.any(converts) {
        SKIPLIST
    } else {
        DERIVED
    }
}

/// The answer of OBJECT ENCODING for a list: whether its elements fit one listpack. O(elements), up
/// to the bound.
pub(crate) fn of_list(list: ListRef<'_>, thresholds: &Thresholds) -> &'static str {
    const FRAME_BYTES: u64 = 7;
    let (elements_max, bytes_max) = match thresholds.list_max_listpack_size {
        0.. => (
            thresholds.list_max_listpack_size.cast_unsigned().max(1),
            8 * 1024,
        ),
        size => (u64::MAX, 2048 << size.unsigned_abs().min(5)),
    };
    let mut elements = list.iter_from(0);
    let mut bytes = FRAME_BYTES;
    let fits = list.len() as u64 <= elements_max
        && elements.all(|element| {
            bytes += packed_bytes(element);
            bytes <= bytes_max
        });
    if fits { "listpack" } else { "quicklist" }
}

/// What an element takes in a listpack.
fn packed_bytes(element: StringRef<'_>) -> u64 {
    let number = element.as_flat().and_then(number::parse_i64);
    let bytes = element.len() as u64;
    match number {
        Some(0..128) => 2,
        Some(-4096..4096) => 3,
        Some(number) if i16::try_from(number).is_ok() => 4,
        Some(number) if (-(1 << 23)..1 << 23).contains(&number) => 5,
        Some(number) if i32::try_from(number).is_ok() => 6,
        Some(_) => 10,
        None if bytes < 64 => bytes + 2,
        None if bytes < 4096 => bytes + 4,
        None => bytes + 8,
    }
}

/// The answer of OBJECT ENCODING, but of lists: see [`of_list`].
pub(crate) fn name(value: &ValueRef<'_>) -> &'static str {
    let encoding = value.attributes.encoding & !STATE;
    match value.body {
        BodyRef::Row(RowTag::Stream, _) => "stream",
        BodyRef::Row(..) => match encoding {
            HASHTABLE => "hashtable",
            SKIPLIST => "skiplist",
            INTSET => "intset",
            _ if value.tag() == TypeTag::TimedHash => "listpackex",
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
