//! The contract that every engine keeps, and the values that all of them store.
//!
//! An engine is a set of *trees*, each a map from byte-string keys to [`ValueRef`]s. This crate
//! defines the operations of an engine ([`Engine`], [`Point`], [`Ordered`], [`Walk`]), keys, values
//! and versions. It also holds the reference engine (a `BTreeMap` behind a lock) and the
//! conformance suite that every engine runs.
//!
//! Deliberately absent: protocols, wall clocks, logs, expiry. An engine stores deadlines and never
//! looks at them.

#![forbid(unsafe_code)]

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod contract;
mod emptying;
mod graves;
mod images;
pub mod key;
pub mod limits;
mod pinned;
mod reference;
mod restore;
mod snapshot;
mod sweep;
mod transactional;
mod value;
mod version;

pub use contract::{
    CommitHook, Decision, Direction, Engine, Gauge, NoHook, Ordered, Point, Pressure, Probe,
    SessionLimit, Walk,
};
pub use emptying::{Emptying, Relocate};
pub use graves::Graves;
pub use images::KeptImages;
pub use key::{Key, TreeId};
pub use pinned::Pinned;
pub use reference::{ReferenceEngine, ReferenceOptions, ReferenceSession};
pub use restore::{Restore, Restored};
pub use snapshot::{
    Images, OrderedAt, ReadAt, Snapshot, SnapshotLimit, Snapshots, WalkAt, sample_at,
};
pub use sweep::{Hand, sweep_in_order};
pub use transactional::{Outcome, Refused, Transactional};
pub use value::mark;
pub use value::{
    AccessMark, Amendment, Attributes, Body, BodyRef, Chunked, Deadline, FieldFinder, FieldsDraft,
    FieldsIter, FieldsRef, FlatString, HashBody, HashDraft, HashIter, HashRef, ListChange,
    ListDraft, ListEnds, ListIter, ListRef, NewValue, PackedRow, RowTag, STREAM_NAME_BYTES_MAX,
    Shown, SortedDraft, SortedIter, SortedRef, StreamConsumer, StreamDraft, StreamGroup,
    StreamHead, StreamId, StreamPending, StreamRef, StreamStrings, StringBody, StringRef, TypeTag,
    ValueRef, WideRow, push_stream_string,
};
pub use version::{EpochClock, LogEpoch, ValueVersion};
