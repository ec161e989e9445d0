//! The columns of a stream: their names and values.
//!
//! It is a row of seven kinds of columns, told apart by the first byte of their names:
//!
//! | name | value |
//! |---|---|
//! | `a` | the head: last id, highest removed id, how many entries were added, next number |
//! | `c` group, consumer's name | the consumer: number, when it was last seen |
//! | `g` group's name | the group: number, last id that it had, how many entries that makes (or -1) |
//! | `n` consumer | the consumer's name |
//! | `o` consumer, id | nothing: the entry is pending for this consumer |
//! | `p` group, id | pending in the group: consumer, when it was delivered, how often |
//! | `x` id | an entry: fields and values in turn, each behind its length |
//!
//! Groups and consumers are numbers of 8 bytes that are not used again, so their names cost once
//! and no name is a part of another. In names, numbers and ids are big-endian: each kind is in the
//! order of its ids. Entries come last, so that appending fills leaves. How many entries there are,
//! or how many are pending in a group or for a consumer, is a difference of ranks. In values,
//! numbers are little-endian; a length is 7 bits a byte, low part first, the high bit set in all
//! but the last byte.

use crate::limits::FIELD_BYTES_MAX;

pub(super) const HEAD: u8 = b'a';
pub(super) const CONSUMER: u8 = b'c';
pub(super) const GROUP: u8 = b'g';
pub(super) const NAME: u8 = b'n';
pub(super) const PENDING_FOR: u8 = b'o';
pub(super) const PENDING: u8 = b'p';
pub(super) const ENTRY: u8 = b'x';

pub(super) const NUMBER_BYTES: usize = size_of::<u64>();
pub(super) const ID_BYTES: usize = 2 * NUMBER_BYTES;
pub(super) const HEAD_BYTES: usize = 2 * ID_BYTES + 2 * NUMBER_BYTES;
pub(super) const GROUP_BYTES: usize = NUMBER_BYTES + ID_BYTES + NUMBER_BYTES;
pub(super) const CONSUMER_BYTES: usize = 2 * NUMBER_BYTES;
pub(super) const PENDING_BYTES: usize = 3 * NUMBER_BYTES;

/// Longest name of a group or of a consumer, in bytes.
pub const STREAM_NAME_BYTES_MAX: usize = FIELD_BYTES_MAX - 1 - NUMBER_BYTES;

/// Where an entry is in its stream: a time in milliseconds, and a number within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Milliseconds since the Unix epoch, as a rule.
    pub ms: u64,
    /// Which one of these milliseconds' entries.
    pub seq: u64,
}

impl StreamId {
    /// Before the first one that an entry may have.
    pub const MIN: Self = Self { ms: 0, seq: 0 };
    /// The last one.
    pub const MAX: Self = Self {
        ms: u64::MAX,
        seq: u64::MAX,
    };

    /// The one after it.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        let Self { ms, seq } = self;
        match seq.checked_add(1) {
            Some(seq) => Some(Self { ms, seq }),
            None => ms.checked_add(1).map(|ms| Self { ms, seq: 0 }),
        }
    }

    /// The one before it.
    #[must_use]
    pub fn previous(self) -> Option<Self> {
        let Self { ms, seq } = self;
        match seq.checked_sub(1) {
            Some(seq) => Some(Self { ms, seq }),
            None => ms.checked_sub(1).map(|ms| Self { ms, seq: u64::MAX }),
        }
    }

    /// Its bytes, which sort as ids do.
    #[must_use]
    pub fn to_bytes(self) -> [u8; ID_BYTES] {
        let mut bytes = [0; ID_BYTES];
        bytes[..NUMBER_BYTES].copy_from_slice(&self.ms.to_be_bytes());
        bytes[NUMBER_BYTES..].copy_from_slice(&self.seq.to_be_bytes());
        bytes
    }

    /// The id that has these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; ID_BYTES]) -> Self {
        let number = u128::from_be_bytes(bytes);
        Self {
            ms: (number >> u64::BITS) as u64,
            seq: number as u64,
        }
    }
}

/// What a stream keeps about all its entries, those included that it no longer has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamHead {
    /// The highest id that it ever had, or was set to.
    pub last: StreamId,
    /// The highest id that was removed on its own.
    pub removed: StreamId,
    /// How many entries were ever added.
    pub added: u64,
    /// The number of the next group or consumer.
    pub(super) next: u64,
}

/// A group of consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamGroup {
    pub(super) number: u64,
    /// The highest id that it has had.
    pub last: StreamId,
    /// How many entries that makes since the stream's first one, if that is known.
    pub read: Option<u64>,
}

/// A consumer of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConsumer {
    pub(super) number: u64,
    /// When it was last seen, in milliseconds since the Unix epoch.
    pub seen_ms: u64,
}

/// An entry that was delivered and not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamPending {
    pub(super) consumer: u64,
    /// When it was last delivered, in milliseconds since the Unix epoch.
    pub delivered_ms: u64,
    /// How often.
    pub deliveries: u64,
}

impl StreamPending {
    /// An entry that was delivered to this consumer.
    #[must_use]
    pub fn new(consumer: StreamConsumer, delivered_ms: u64, deliveries: u64) -> Self {
        Self {
            consumer: consumer.number,
            delivered_ms,
            deliveries,
        }
    }

    /// Whether it is pending for this consumer.
    #[must_use]
    pub fn is_of(&self, consumer: StreamConsumer) -> bool {
        self.consumer == consumer.number
    }
}

/// Reads what [`numbers`] has written; a missing part reads as `None`.
struct Parts<'a>(&'a [u8]);

impl Parts<'_> {
    fn number(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*bytes))
    }

    fn id(&mut self) -> Option<StreamId> {
        let (ms, seq) = (self.number()?, self.number()?);
        Some(StreamId { ms, seq })
    }
}

/// Numbers one after the other.
fn numbers<const BYTES: usize>(numbers: &[u64]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let (places, rest) = bytes.as_chunks_mut();
    debug_assert!(places.len() == numbers.len() && rest.is_empty());
    for (place, number) in places.iter_mut().zip(numbers) {
        *place = number.to_le_bytes();
    }
    bytes
}

impl StreamHead {
    pub(super) fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let Self {
            last,
            removed,
            added,
            next,
        } = self;
        numbers(&[last.ms, last.seq, removed.ms, removed.seq, added, next])
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut parts = Parts(bytes);
        Some(Self {
            last: parts.id()?,
            removed: parts.id()?,
            added: parts.number()?,
            next: parts.number()?,
        })
    }
}

/// How a group says that it does not know how many entries it has read.
const UNKNOWN: u64 = u64::MAX;

impl StreamGroup {
    pub(super) fn to_bytes(self) -> [u8; GROUP_BYTES] {
        let read = self.read.unwrap_or(UNKNOWN);
        numbers(&[self.number, self.last.ms, self.last.seq, read])
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut parts = Parts(bytes);
        Some(Self {
            number: parts.number()?,
            last: parts.id()?,
            read: Some(parts.number()?).filter(|read| *read != UNKNOWN),
        })
    }
}

impl StreamConsumer {
    pub(super) fn to_bytes(self) -> [u8; CONSUMER_BYTES] {
        numbers(&[self.number, self.seen_ms])
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut parts = Parts(bytes);
        Some(Self {
            number: parts.number()?,
            seen_ms: parts.number()?,
        })
    }
}

impl StreamPending {
    pub(super) fn to_bytes(self) -> [u8; PENDING_BYTES] {
        numbers(&[self.consumer, self.delivered_ms, self.deliveries])
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut parts = Parts(bytes);
        Some(Self {
            consumer: parts.number()?,
            delivered_ms: parts.number()?,
            deliveries: parts.number()?,
        })
    }
}

pub(super) fn entry_name(id: StreamId) -> [u8; 1 + ID_BYTES] {
    let mut name = [ENTRY; 1 + ID_BYTES];
    name[1..].copy_from_slice(&id.to_bytes());
    name
}

/// A name of this kind, of something that belongs to a group or consumer.
pub(super) fn name_in(kind: u8, number: u64, rest: &[u8]) -> Vec<u8> {
    let mut name = Vec::with_capacity(1 + NUMBER_BYTES + rest.len());
    name.push(kind);
    name.extend_from_slice(&number.to_be_bytes());
    name.extend_from_slice(rest);
    name
}

pub(super) fn group_name(name: &[u8]) -> Vec<u8> {
    [&[GROUP], name].concat()
}

/// The id at the end of a name.
pub(super) fn id_of(name: &[u8]) -> Option<StreamId> {
    name.last_chunk().copied().map(StreamId::from_bytes)
}

/// Appends a field or a value to an entry.
pub fn push_stream_string(entry: &mut Vec<u8>, string: &[u8]) {
    let mut length = string.len();
    while length >= 0x80 {
        entry.push(length as u8 | 0x80);
        length >>= 7;
    }
    entry.push(length as u8);
    entry.extend_from_slice(string);
}

/// The fields and values of an entry, in turn.
#[derive(Clone, Debug)]
pub struct StreamStrings<'a>(&'a [u8]);

impl<'a> StreamStrings<'a> {
    /// Those of an entry with this content.
    #[must_use]
    pub fn new(entry: &'a [u8]) -> Self {
        Self(entry)
    }
}

impl<'a> Iterator for StreamStrings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (mut length, mut shift) = (0_usize, 0);
        loop {
            let (byte, rest) = self.0.split_first()?;
            // Longer than any entry.
            if shift > 28 {
                return None;
            }
            length |= usize::from(byte & 0x7F) << shift;
            shift += 7;
            self.0 = rest;
            if byte & 0x80 == 0 {
                break;
            }
        }
        let (string, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(string)
    }
}

/// Whether these bytes are an entry: fields with values, at least one.
pub(super) fn is_entry(bytes: &[u8]) -> bool {
    let mut strings = StreamStrings::new(bytes);
    let count = strings.by_ref().count();
    count > 0 && count.is_multiple_of(2) && strings.0.is_empty()
}
