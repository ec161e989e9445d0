//! Values: attributes, a type tag, and a string or a row of named columns.
//!
//! A reader sees a [`ValueRef`]; a writer hands the engine a [`NewValue`]. A Redis string is one
//! unnamed column ([`StringRef`]), a hash is named columns in byte order of their names
//! ([`HashRef`]). Small values are one block, copied on change (Masstree paper §4.7); columns above
//! [`crate::limits::COLUMN_FLAT_BYTES_MAX`] are [`Chunked`], hashes above
//! [`crate::limits::PACKED_ROW_BYTES_MAX`] are [`WideRow`]s. Both are persistent (path-copying)
//! trees: a change copies O(log n) nodes and shares the rest with the version it replaces, so the
//! cost of an operation does not grow with the parts it does not touch.
//!
//! Invariants:
//! - **D1 smallest-form** A body is written in its smallest form: flat up to the flat bound, packed
//!   up to the packed bound. (A value that shrinks may stay chunked or wide down to half of the
//!   bound.) Constructors choose the form; engines refuse a value that is too long for its form.
//! - **D2 successors-share** Nodes of a chunked column or wide row are shared only between
//!   versions of one value, on whatever branches, or with the one value that took them over
//!   (RENAME). COPY copies.

mod amendment;
mod chunked;
mod cost;
mod fields;
mod handle;
mod hash;
mod list;
pub mod mark;
mod row;
mod shown;
mod sorted;
mod stream;
mod string;
mod wide;

use std::borrow::Cow;
use std::mem;
use std::num::NonZero;

use pando_sync::Milliseconds;

use crate::ValueVersion;
use crate::limits::COLUMN_FLAT_BYTES_MAX;

pub use amendment::Amendment;
pub use chunked::Chunked;
pub use fields::{FieldsDraft, FieldsIter, FieldsRef};
pub use hash::{FieldFinder, HashBody, HashDraft, HashIter, HashRef};
pub use list::{ListChange, ListDraft, ListEnds, ListIter, ListRef};
pub use mark::AccessMark;
pub use row::PackedRow;
pub use shown::Shown;
pub use sorted::{SortedDraft, SortedIter, SortedRef};
pub use stream::{
    STREAM_NAME_BYTES_MAX, StreamConsumer, StreamDraft, StreamGroup, StreamHead, StreamId,
    StreamPending, StreamRef, StreamStrings, push_stream_string,
};
pub use string::{FlatString, StringBody, StringRef};
pub use wide::WideRow;

/// A moment after which a value is expired: milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Deadline(pub u64);

impl Deadline {
    /// Whether what has it is expired.
    #[inline]
    #[must_use]
    pub const fn has_passed(self, now: Milliseconds) -> bool {
        self.0 <= now.0
    }

    /// How long it is until then; none when it has passed.
    #[must_use]
    pub const fn left(self, now: Milliseconds) -> Milliseconds {
        Milliseconds(self.0).saturating_sub(now)
    }
}

/// The type of a value, whatever its form. The log, checkpoints and dumps store its number in three
/// bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TypeTag {
    /// A byte string.
    String = 1,
    /// Named columns.
    Hash = 2,
    /// Elements by position.
    List = 3,
    /// Members.
    Set = 4,
    /// Members with scores.
    SortedSet = 5,
    /// Entries by id, and groups of consumers.
    Stream = 6,
    /// Fields of which some have, or had, a deadline.
    TimedHash = 7,
}

/// The type of a value that is a row: how its columns are to be read. Everything below the commands
/// (engines, the log, checkpoints) treats rows of all types alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RowTag {
    /// Fields with their values.
    Hash = TypeTag::Hash as u8,
    /// See [`TypeTag::List`].
    List = TypeTag::List as u8,
    /// Members, as names without values.
    Set = TypeTag::Set as u8,
    /// See [`SortedRef`].
    SortedSet = TypeTag::SortedSet as u8,
    /// See [`StreamRef`].
    Stream = TypeTag::Stream as u8,
    /// See [`FieldsRef`].
    TimedHash = TypeTag::TimedHash as u8,
}

impl TypeTag {
    /// The type of this number.
    #[must_use]
    pub const fn of_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::String),
            _ => match RowTag::of_number(number) {
                Some(row) => Some(row.tag()),
                None => None,
            },
        }
    }
}

impl RowTag {
    /// The type of rows of this number.
    #[must_use]
    pub const fn of_number(number: u8) -> Option<Self> {
        Some(match number {
            2 => Self::Hash,
            3 => Self::List,
            4 => Self::Set,
            5 => Self::SortedSet,
            6 => Self::Stream,
            7 => Self::TimedHash,
            _ => return None,
        })
    }

    /// The type of such values.
    #[must_use]
    pub const fn tag(self) -> TypeTag {
        match self {
            Self::Hash => TypeTag::Hash,
            Self::List => TypeTag::List,
            Self::Set => TypeTag::Set,
            Self::SortedSet => TypeTag::SortedSet,
            Self::Stream => TypeTag::Stream,
            Self::TimedHash => TypeTag::TimedHash,
        }
    }
}

/// What a writer sets beside the body; an engine stores it and never looks at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// When the value expires, if ever.
    pub deadline: Option<Deadline>,
    /// memcached's client flags.
    pub flags: u32,
    /// What OBJECT ENCODING remembers of the value's history (see `db`), 0 by default.
    pub encoding: u8,
    /// memcached's cas token, if a client chose it; otherwise it is derived from the version.
    pub token: Option<NonZero<u64>>,
}

/// A value as a reader sees it: whole and of one version (E5 whole-values).
#[derive(Clone, Copy, Debug)]
pub struct ValueRef<'a> {
    /// Drawn at commit.
    pub version: ValueVersion,
    /// Chosen by the writer.
    pub attributes: Attributes,
    /// The content.
    pub body: BodyRef<'a>,
    /// Where accesses are noted.
    pub mark: AccessMark<'a>,
}

/// The content of a value.
#[derive(Clone, Copy, Debug)]
pub enum BodyRef<'a> {
    /// A string.
    String(StringRef<'a>),
    /// A row of this type.
    Row(RowTag, HashRef<'a>),
}

/// A value to be stored.
#[derive(Debug)]
pub struct NewValue<'d> {
    /// Stored as given.
    pub attributes: Attributes,
    /// The content.
    pub body: Body<'d>,
    /// The initial access mark.
    pub mark: u8,
}

/// The content of a value to be stored, by its type; each type knows its forms.
#[derive(Debug)]
pub enum Body<'d> {
    /// A string.
    String(StringBody<'d>),
    /// A row of this type, made by a draft such as [`HashDraft`].
    Row(RowTag, HashBody),
}

impl BodyRef<'_> {
    /// Its heap bytes, including what it shares with other versions. O(1).
    #[must_use]
    pub fn heap_bytes(self) -> usize {
        match self {
            Self::String(string) => string.heap_bytes(),
            Self::Row(_, row) => row.heap_bytes(),
        }
    }

    /// The same content for the value that takes it over (D2 successors-share). O(1) for a large
    /// one, else O(size).
    #[must_use]
    pub fn hand_over(self) -> Body<'static> {
        match self {
            Self::String(string) => string.hand_over().into(),
            Self::Row(tag, row) => Body::Row(tag, row.hand_over()),
        }
    }
}

impl ValueRef<'_> {
    /// The type.
    #[must_use]
    pub const fn tag(&self) -> TypeTag {
        match self.body {
            BodyRef::String(_) => TypeTag::String,
            BodyRef::Row(tag, _) => tag.tag(),
        }
    }

    /// Heap bytes of the content, including what it shares with other versions. O(1).
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.body.heap_bytes()
    }

    /// Heap bytes that become garbage when `next`, its successor, replaces this value: for a large
    /// value, what the two do not share; for a small one none, since it is in the engine's block.
    /// O(nodes that are not shared).
    #[must_use]
    pub fn bytes_beyond(&self, next: Option<&ValueRef<'_>>) -> usize {
        let next = next.map(|next| &next.body);
        match (&self.body, next) {
            (
                BodyRef::String(StringRef::Chunked(old)),
                Some(BodyRef::String(StringRef::Chunked(next))),
            ) => old.bytes_beyond(next),
            (BodyRef::Row(_, HashRef::Wide(old)), Some(BodyRef::Row(_, HashRef::Wide(next)))) => {
                old.bytes_beyond(next)
            }
            (BodyRef::String(StringRef::Chunked(old)), _) => old.heap_bytes(),
            (BodyRef::Row(_, HashRef::Wide(old)), _) => old.heap_bytes(),
            (BodyRef::String(StringRef::Flat(_)) | BodyRef::Row(_, HashRef::Packed(_)), _) => 0,
        }
    }

    /// The same value for the key that takes it over, or with other attributes (D2): RENAME,
    /// EXPIRE. O(1) for a large value, else O(size).
    #[must_use]
    pub fn hand_over(&self) -> NewValue<'static> {
        NewValue {
            attributes: self.attributes,
            body: self.body.hand_over(),
            mark: self.mark.get(),
        }
    }

    /// A second handle on the value, for an engine that stores it beside this one; flat content is
    /// borrowed. O(1) for a large value and a flat one, else O(size).
    #[must_use]
    pub fn again(&self) -> NewValue<'_> {
        match self.body {
            BodyRef::String(StringRef::Flat(bytes)) => NewValue {
                attributes: self.attributes,
                body: Body::string(bytes),
                mark: self.mark.get(),
            },
            _ => self.hand_over(),
        }
    }

    /// A copy that shares nothing with this value (COPY). O(size).
    #[must_use]
    pub fn deep_copy(&self) -> NewValue<'static> {
        let body = match self.body {
            BodyRef::String(string) => string.to_body().into(),
            BodyRef::Row(tag, row) => Body::Row(tag, row.to_body()),
        };
        NewValue {
            attributes: self.attributes,
            body,
            mark: 0,
        }
    }
}

impl<'d> NewValue<'d> {
    /// A value without attributes.
    #[inline]
    #[must_use]
    pub fn new(body: impl Into<Body<'d>>) -> Self {
        Self {
            attributes: Attributes::default(),
            body: body.into(),
            mark: 0,
        }
    }

    /// The same value with these attributes.
    #[must_use]
    pub fn with(mut self, attributes: Attributes) -> Self {
        self.attributes = attributes;
        self
    }

    /// Splits off the common case: a flat string of at most this many borrowed bytes without
    /// attributes, with its mark. Anything else is returned unchanged.
    #[inline]
    pub fn into_borrowed(self, bytes_max: usize) -> Result<(&'d [u8], u8), Self> {
        if self.attributes == Attributes::default()
            && let Body::String(StringBody::Flat(FlatString(Cow::Borrowed(bytes)))) = self.body
            && bytes.len() <= bytes_max
        {
            let mark = self.mark;
            // It owns nothing; dropping it would cost a call.
            mem::forget(self);
            return Ok((bytes, mark));
        }
        Err(self)
    }

    /// Drops it: what owns nothing, as most values do, without the call that this costs otherwise.
    #[inline]
    pub fn discard(self) {
        if let Body::String(StringBody::Flat(FlatString(Cow::Borrowed(_)))) = self.body {
            mem::forget(self);
        }
    }

    /// The value as a reader will see it once `version` is drawn.
    #[must_use]
    pub fn view(&self, version: ValueVersion) -> ValueRef<'_> {
        ValueRef {
            version,
            attributes: self.attributes,
            body: self.body.as_ref(),
            mark: AccessMark::NONE,
        }
    }

    /// The same value, borrowing nothing; a borrowed string is copied.
    #[must_use]
    pub fn into_stored(self) -> NewValue<'static> {
        NewValue {
            attributes: self.attributes,
            body: self.body.into_stored(),
            mark: self.mark,
        }
    }
}

impl<'d> Body<'d> {
    /// A string of these bytes, in the form for its length (D1). O(1) when flat, else one copy.
    ///
    /// ```
    /// use pando_engine::{Body, BodyRef, NewValue};
    ///
    /// let long = vec![b'x'; 20_000];
    /// let value = NewValue::new(Body::string(&long));
    /// let BodyRef::String(string) = value.body.as_ref() else {
    ///     unreachable!("a string was made")
    /// };
    /// assert!(string == &long[..] && string.as_flat().is_none());
    /// ```
    ///
    /// The flat form of a string cannot be constructed directly, so none is ever too long for it:
    ///
    /// ```compile_fail
    /// use pando_engine::{FlatString, StringBody};
    ///
    /// let body = StringBody::Flat(FlatString((&[b'x'; 20_000]).into()));
    /// ```
    #[inline]
    #[must_use]
    pub fn string(bytes: &'d [u8]) -> Self {
        Body::String(StringBody::borrowed(bytes))
    }

    /// A string of these bytes, taken over.
    #[inline]
    #[must_use]
    pub fn string_owned(bytes: Vec<u8>) -> Body<'static> {
        Body::String(StringBody::owned(bytes))
    }

    /// The same content, borrowing nothing and without spare capacity.
    ///
    /// # Panics
    /// Under the same condition as [`Self::check`].
    #[must_use]
    pub fn into_stored(self) -> Body<'static> {
        self.check();
        match self {
            Body::String(string) => Body::String(string.into_stored()),
            Body::Row(tag, HashBody::Packed(row)) => {
                Body::Row(tag, HashBody::Packed(row.into_stored()))
            }
            Body::Row(tag, row @ HashBody::Wide(_)) => Body::Row(tag, row),
        }
    }

    /// Checks what every engine requires of a body that it stores.
    ///
    /// # Panics
    /// When a string is too long for its form (D1), which is a fault of this crate.
    pub fn check(&self) {
        if let Body::String(StringBody::Flat(string)) = self {
            let bytes = string.len();
            assert!(bytes <= COLUMN_FLAT_BYTES_MAX, "D1: {bytes} flat bytes");
        }
    }

    /// The content as a reader will see it.
    #[must_use]
    pub fn as_ref(&self) -> BodyRef<'_> {
        match self {
            Body::String(string) => BodyRef::String(string.as_ref()),
            Body::Row(tag, row) => BodyRef::Row(*tag, row.as_ref()),
        }
    }
}

impl<'d> From<StringBody<'d>> for Body<'d> {
    fn from(string: StringBody<'d>) -> Self {
        Body::String(string)
    }
}

impl From<Chunked> for Body<'static> {
    fn from(column: Chunked) -> Self {
        Body::String(StringBody::Chunked(column))
    }
}
