//! How a value lies in an entry of a leaf, or in a body.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | bits 0 to 2 the form; 3 a deadline, 4 flags, 5 an encoding, 6 a cas token, 7 a type follow |
//! | 1 | the access mark |
//! | 8 | the deadline, if any |
//! | 4 | memcached's flags, if any |
//! | 1 | what OBJECT ENCODING remembers, if anything |
//! | 8 | memcached's cas token, if a client chose it |
//! | 1 | the type of a row that is no hash |
//! | | the content |
//!
//! | form | content |
//! |---|---|
//! | 0 | a flat string |
//! | 1 | a packed row |
//! | 2 | none: a chunked string or a wide row, whose nodes lie beside the body ([`Nodes`]) |
//! | 6 | in an entry: the address of the head of a large value, which has this layout too |
//! | 7 | in an entry: the address of the head of a bundle (`bundle`) |
//!
//! The version is the entry's. All numbers are little-endian.
//!
//! Nodes are immutable and counted, and a value shares with the one that it replaces what they have
//! in common, whichever versions of the tree have them: so a change of a large value costs what it
//! changes, and so does a read (`pando_engine`'s values, D2 successors-share).

use std::any::Any;
use std::num::NonZero;

use pando_engine::mark::with_mark;
use pando_engine::{
    AccessMark, Attributes, Body, BodyRef, Deadline, HashRef, NewValue, RowTag, StringRef,
    ValueRef, ValueVersion, mark::MARK_MAX,
};
use pando_memnode::{Address, Beside};
use pando_sync::shim::unmodelled::AtomicU32;

use crate::page::{decode_address, encode_address};

const STRING: u8 = 0;
const PACKED: u8 = 1;
const NODES: u8 = 2;
const LARGE: u8 = 6;
const BUNDLE: u8 = 7;
const FORM: u8 = 0b111;

const HAS_DEADLINE: u8 = 1 << 3;
const HAS_FLAGS: u8 = 1 << 4;
const HAS_ENCODING: u8 = 1 << 5;
const HAS_TOKEN: u8 = 1 << 6;
const HAS_TYPE: u8 = 1 << 7;

/// Where the access mark is.
pub(super) const MARK: usize = 1;
/// Bytes before what may be absent.
const HEADER_BYTES: usize = 2;

/// The longest value that is in its entry.
pub(super) const INLINE_BYTES: usize = super::PAGE_BYTES_MIN / 8;

/// Bytes of [`Drafted`] that are kept from one write to the next.
const BYTES_KEPT: usize = 1 << 16;

/// What an entry of a leaf holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stored<'s> {
    /// The value itself.
    Inline(&'s [u8]),
    /// The head of a large value.
    Large(Address),
    /// The head of a bundle.
    Bundle(Address),
}

impl<'s> Stored<'s> {
    /// Reads what an entry holds.
    pub(super) fn of(bytes: &'s [u8]) -> Self {
        match bytes[0] & FORM {
            LARGE => Self::Large(decode_address(&bytes[HEADER_BYTES..])),
            BUNDLE => Self::Bundle(decode_address(&bytes[HEADER_BYTES..])),
            _ => Self::Inline(bytes),
        }
    }

    /// The head that it leads to.
    pub(super) fn head(self) -> Option<Address> {
        match self {
            Self::Inline(_) => None,
            Self::Large(head) | Self::Bundle(head) => Some(head),
        }
    }
}

/// What an entry holds for a large value.
pub(super) fn large(head: Address, mark: u8) -> Vec<u8> {
    [&[LARGE, mark][..], &encode_address(head)].concat()
}

/// What an entry holds for a bundle.
pub(super) fn bundle(head: Address) -> Vec<u8> {
    [&[BUNDLE, 0][..], &encode_address(head)].concat()
}

/// The nodes of a chunked string or a wide row.
#[derive(Debug)]
pub(super) struct Nodes(Body<'static>);

impl Nodes {
    /// Those of a value, if it has any; it and these are handles on the same. O(1).
    fn of(value: &ValueRef<'_>) -> Option<Self> {
        match value.body {
            BodyRef::String(StringRef::Flat(_)) | BodyRef::Row(_, HashRef::Packed(_)) => None,
            BodyRef::String(StringRef::Chunked(_)) | BodyRef::Row(_, HashRef::Wide(_)) => {
                Some(Self(value.body.hand_over()))
            }
        }
    }

    /// Their bytes, with those that they share. O(1).
    fn heap_bytes(&self) -> usize {
        self.0.as_ref().heap_bytes()
    }

    /// As they lie beside a body.
    pub(super) fn beside(&self) -> Beside {
        Beside::Other(Box::new(Box::new(Self(self.0.as_ref().hand_over()))))
    }

    /// Those that lie beside a body.
    pub(super) fn of_beside(beside: &Beside) -> Option<&Self> {
        match beside {
            Beside::Other(nodes) => <dyn Any>::downcast_ref(&***nodes),
            Beside::Bytes(_) => None,
        }
    }
}

/// A value as it is stored: bytes, and nodes if they do not have it whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Coded<'s> {
    pub(super) bytes: &'s [u8],
    pub(super) nodes: Option<&'s Nodes>,
}

impl Coded<'_> {
    /// Whether it is no entry's, but a large value.
    pub(super) fn is_large(self) -> bool {
        self.bytes.len() > INLINE_BYTES || self.nodes.is_some()
    }

    /// How long it is, with its nodes.
    pub(super) fn len(self) -> usize {
        self.bytes.len() + self.nodes.map_or(0, Nodes::heap_bytes)
    }
}

/// A value that is being written, as it will be stored.
#[derive(Debug, Default)]
pub(super) struct Drafted {
    pub(super) bytes: Vec<u8>,
    nodes: Option<Nodes>,
}

impl Drafted {
    /// A bundle.
    pub(super) fn of_row(row: Body<'static>) -> Self {
        let mut drafted = Self::default();
        drafted.write(ValueVersion::from_bits(0), &NewValue::new(row));
        drafted
    }

    /// Writes a value that a key gets.
    pub(super) fn write(&mut self, version: ValueVersion, new: &NewValue<'_>) {
        let value = new.view(version);
        self.bytes.clear();
        self.nodes = Nodes::of(&value);
        encode(&mut self.bytes, &value, new.mark.min(MARK_MAX));
    }

    #[inline]
    pub(super) fn coded(&self) -> Coded<'_> {
        Coded {
            bytes: &self.bytes,
            nodes: self.nodes.as_ref(),
        }
    }

    /// Keeps nothing of the value, and little of the room that it took.
    pub(super) fn clear(&mut self) {
        self.nodes = None;
        if self.bytes.capacity() > BYTES_KEPT {
            self.bytes = Vec::new();
        }
    }
}

/// Writes a value as it is stored, without its nodes.
fn encode(out: &mut Vec<u8>, value: &ValueRef<'_>, mark: u8) {
    let Attributes {
        deadline,
        flags,
        encoding,
        token,
    } = value.attributes;
    let form = match value.body {
        BodyRef::String(StringRef::Flat(_)) => STRING,
        BodyRef::Row(_, HashRef::Packed(_)) => PACKED,
        BodyRef::String(StringRef::Chunked(_)) | BodyRef::Row(_, HashRef::Wide(_)) => NODES,
    };
    let row = match value.body {
        BodyRef::String(_) | BodyRef::Row(RowTag::Hash, _) => None,
        BodyRef::Row(tag, _) => Some(tag),
    };
    let has = |bit, is_there| if is_there { bit } else { 0 };
    let meta = form
        | has(HAS_DEADLINE, deadline.is_some())
        | has(HAS_FLAGS, flags != 0)
        | has(HAS_ENCODING, encoding != 0)
        | has(HAS_TOKEN, token.is_some())
        | has(HAS_TYPE, row.is_some());
    out.extend_from_slice(&[meta, mark]);
    if let Some(deadline) = deadline {
        out.extend_from_slice(&deadline.0.to_le_bytes());
    }
    if flags != 0 {
        out.extend_from_slice(&flags.to_le_bytes());
    }
    if encoding != 0 {
        out.push(encoding);
    }
    if let Some(token) = token {
        out.extend_from_slice(&token.get().to_le_bytes());
    }
    if let Some(tag) = row {
        out.push(tag as u8);
    }
    match value.body {
        BodyRef::String(StringRef::Flat(bytes)) | BodyRef::Row(_, HashRef::Packed(bytes)) => {
            out.extend_from_slice(bytes);
        }
        BodyRef::String(StringRef::Chunked(_)) | BodyRef::Row(_, HashRef::Wide(_)) => {}
    }
}

/// Takes the next bytes off.
fn take<const N: usize>(stored: &mut &[u8]) -> [u8; N] {
    let (taken, rest) = stored.split_first_chunk().expect("a whole value");
    *stored = rest;
    *taken
}

/// The attributes of a stored value, and what follows them.
fn attributes_of(stored: &[u8]) -> (Attributes, &[u8]) {
    let meta = stored[0];
    let mut rest = &stored[HEADER_BYTES..];
    let mut attributes = Attributes::default();
    if meta & (HAS_DEADLINE | HAS_FLAGS | HAS_ENCODING | HAS_TOKEN) == 0 {
        return (attributes, rest);
    }
    if meta & HAS_DEADLINE != 0 {
        attributes.deadline = Some(Deadline(u64::from_le_bytes(take(&mut rest))));
    }
    if meta & HAS_FLAGS != 0 {
        attributes.flags = u32::from_le_bytes(take(&mut rest));
    }
    if meta & HAS_ENCODING != 0 {
        attributes.encoding = take::<1>(&mut rest)[0];
    }
    if meta & HAS_TOKEN != 0 {
        attributes.token = NonZero::new(u64::from_le_bytes(take(&mut rest)));
    }
    (attributes, rest)
}

/// The deadline of a stored value.
pub(super) fn deadline_of(stored: &[u8]) -> Option<Deadline> {
    attributes_of(stored).0.deadline
}

/// Shows a stored value to `read`, with its mark. Returns what `read` returns, and the mark that it
/// left, if that is another. O(1).
pub(super) fn show<R>(
    stored: Coded<'_>,
    version: u64,
    mark: u8,
    read: impl FnOnce(ValueRef<'_>) -> R,
) -> (R, Option<u8>) {
    let Coded { bytes, nodes } = stored;
    let (attributes, mut content) = attributes_of(bytes);
    let tag = if bytes[0] & HAS_TYPE == 0 {
        RowTag::Hash
    } else {
        RowTag::of_number(take::<1>(&mut content)[0]).expect("the type of a row")
    };
    let body = match bytes[0] & FORM {
        STRING => BodyRef::String(StringRef::Flat(content)),
        PACKED => BodyRef::Row(tag, HashRef::Packed(content)),
        _ => nodes.expect("a large value's nodes").0.as_ref(),
    };
    let word = AtomicU32::new(with_mark(0, mark));
    let shown = read(ValueRef {
        version: ValueVersion::from_bits(version),
        attributes,
        body,
        mark: AccessMark::of(&word),
    });
    let left = AccessMark::of(&word).get();
    (shown, (left != mark).then_some(left))
}

/// The row that a bundle is.
pub(super) fn row_in(bundle: Coded<'_>) -> HashRef<'_> {
    let nodes = bundle.nodes.map(|nodes| nodes.0.as_ref());
    match nodes {
        Some(BodyRef::Row(_, row)) => row,
        Some(BodyRef::String(_)) => unreachable!("a bundle is a row"),
        None => HashRef::Packed(&bundle.bytes[HEADER_BYTES..]),
    }
}
