//! A stream as a reader sees it: a row, the columns of which [`columns`] describes. [`draft`]
//! builds its next version.
//!
//! Invariants:
//! - **DT1 head** A stream has its head, so it has a column even when it has no entry. No entry is
//!   above the last id.
//! - **DT2 both-sides** An entry is pending in a group if and only if it is pending for one
//!   consumer of it.
//! - **DT3 names-of-consumers** A consumer's column and that of its name exist together.

mod columns;
mod draft;

use std::ops::{Range, RangeInclusive};

use super::{HashRef, StringRef};
use columns::{
    CONSUMER, CONSUMER_BYTES, ENTRY, GROUP, GROUP_BYTES, HEAD, HEAD_BYTES, ID_BYTES, NAME,
    NUMBER_BYTES, PENDING, PENDING_BYTES, PENDING_FOR, entry_name, group_name, id_of, is_entry,
    name_in,
};

pub use columns::{
    STREAM_NAME_BYTES_MAX, StreamConsumer, StreamGroup, StreamHead, StreamId, StreamPending,
    StreamStrings, push_stream_string,
};
pub use draft::StreamDraft;

/// A stream: entries by id, and groups of consumers.
///
/// ```
/// use pando_engine::{BodyRef, StreamDraft, StreamId, StreamRef, StreamStrings};
///
/// let mut draft = StreamDraft::new(None);
/// draft.push(StreamId { ms: 5, seq: 0 }, [&b"temperature"[..], b"21"]);
/// let body = draft.finish();
/// let BodyRef::Row(_, row) = body.as_ref() else {
///     unreachable!("a row was made")
/// };
/// let stream = StreamRef::new(row);
/// assert_eq!(stream.head().last, StreamId { ms: 5, seq: 0 });
/// let (_, entry) = stream.iter_from_rank(0).next().expect("it was added");
/// let entry = entry.to_cow();
/// assert_eq!(StreamStrings::new(&entry).nth(1), Some(&b"21"[..]));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct StreamRef<'a>(HashRef<'a>);

impl<'a> StreamRef<'a> {
    /// The stream that is this row.
    #[must_use]
    pub fn new(row: HashRef<'a>) -> Self {
        Self(row)
    }

    /// Whether columns of unknown origin are those of a stream. O(columns).
    #[must_use]
    pub fn is_sound(row: HashRef<'_>) -> bool {
        let columns = row.iter().all(|(name, value)| match value {
            StringRef::Flat(value) => Self::is_column(name, value),
            StringRef::Chunked(_) => match name.first() {
                Some(&ENTRY) => Self::is_name(name) && is_entry(&value.to_cow()),
                _ => Self::is_large_column(name),
            },
        });
        columns && row.get(&[HEAD]).is_some()
    }

    /// Whether this may be a column of a stream.
    #[must_use]
    pub fn is_column(name: &[u8], value: &[u8]) -> bool {
        Self::is_name(name)
            && match name[0] {
                HEAD => value.len() == HEAD_BYTES,
                CONSUMER => value.len() == CONSUMER_BYTES,
                GROUP => value.len() == GROUP_BYTES,
                NAME => value.len() <= STREAM_NAME_BYTES_MAX,
                PENDING_FOR => value.is_empty(),
                PENDING => value.len() == PENDING_BYTES,
                _ => is_entry(value),
            }
    }

    /// Whether this may be the name of a column whose value is too long to be flat.
    #[must_use]
    pub fn is_large_column(name: &[u8]) -> bool {
        Self::is_name(name) && matches!(name[0], ENTRY | NAME)
    }

    /// Whether this may be the name of a column of a stream.
    #[must_use]
    pub fn is_name(name: &[u8]) -> bool {
        let Some((kind, rest)) = name.split_first() else {
            return false;
        };
        match *kind {
            HEAD => rest.is_empty(),
            CONSUMER => rest.len() >= NUMBER_BYTES,
            GROUP => true,
            NAME => rest.len() == NUMBER_BYTES,
            PENDING_FOR | PENDING => rest.len() == NUMBER_BYTES + ID_BYTES,
            ENTRY => rest.len() == ID_BYTES,
            _ => false,
        }
    }

    fn flat(self, name: &[u8]) -> Option<&'a [u8]> {
        self.0.get(name)?.as_flat()
    }

    /// How many columns have names from one on and below another. O(log entries).
    fn count_between(self, start: &[u8], end: &[u8]) -> usize {
        self.0.rank(end).saturating_sub(self.0.rank(start))
    }

    /// The columns of this kind that belong to a group or consumer, from a name's rest on.
    fn columns_in(
        self,
        kind: u8,
        number: u64,
        from: &[u8],
    ) -> impl Iterator<Item = (&'a [u8], StringRef<'a>)> + use<'a> {
        let prefix = name_in(kind, number, b"");
        let columns = self.0.iter_from(&name_in(kind, number, from));
        columns.take_while(move |(name, _)| name.starts_with(&prefix))
    }

    /// How many of these there are. O(log entries).
    fn count_in(self, kind: u8, number: u64) -> usize {
        let end = number
            .checked_add(1)
            .map_or_else(|| vec![kind + 1], |next| name_in(kind, next, b""));
        self.count_between(&name_in(kind, number, b""), &end)
    }

    /// See [`StreamHead`].
    #[must_use]
    pub fn head(self) -> StreamHead {
        let head = self.flat(&[HEAD]).and_then(StreamHead::parse);
        head.unwrap_or_default()
    }

    /// The rank in the row of the first entry.
    fn base(self) -> usize {
        self.0.rank(&[ENTRY])
    }

    /// How many entries there are. O(log entries).
    #[must_use]
    pub fn len(self) -> usize {
        self.0.len() - self.base()
    }

    /// Whether there are no entries; such a stream may be stored.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// How many entries are before this id. O(log entries).
    #[must_use]
    pub fn rank(self, id: StreamId) -> usize {
        self.0.rank(&entry_name(id)) - self.base()
    }

    /// The entry of an id. O(log entries).
    #[must_use]
    pub fn get(self, id: StreamId) -> Option<StringRef<'a>> {
        self.0.get(&entry_name(id))
    }

    /// The entry at a rank. O(log entries).
    #[must_use]
    pub fn nth(self, rank: usize) -> Option<(StreamId, StringRef<'a>)> {
        self.iter_from_rank(rank).next()
    }

    /// The first id of an entry. O(log entries).
    #[must_use]
    pub fn first(self) -> Option<StreamId> {
        self.nth(0).map(|(id, _)| id)
    }

    /// The last id of an entry. O(log entries).
    #[must_use]
    pub fn final_id(self) -> Option<StreamId> {
        let last = self.len().checked_sub(1)?;
        self.nth(last).map(|(id, _)| id)
    }

    /// Entries from a rank on. O(log entries) to begin.
    pub fn iter_from_rank(
        self,
        rank: usize,
    ) -> impl Iterator<Item = (StreamId, StringRef<'a>)> + use<'a> {
        let columns = self.0.iter_from_rank(self.base().saturating_add(rank));
        columns.map(|(name, entry)| (id_of(name).unwrap_or_default(), entry))
    }

    /// Groups in byte order of their names.
    pub fn groups(self) -> impl Iterator<Item = (&'a [u8], StreamGroup)> + use<'a> {
        let columns = self.0.iter_from(&[GROUP]);
        columns.map_while(|(name, value)| {
            let name = name.strip_prefix(&[GROUP])?;
            Some((name, StreamGroup::parse(value.as_flat()?)?))
        })
    }

    /// How many groups there are. O(log entries).
    #[must_use]
    pub fn group_count(self) -> usize {
        self.count_between(&[GROUP], &[GROUP + 1])
    }

    /// The group of this name. O(log entries).
    #[must_use]
    pub fn group(self, name: &[u8]) -> Option<StreamGroup> {
        if name.len() > STREAM_NAME_BYTES_MAX {
            return None;
        }
        StreamGroup::parse(self.flat(&group_name(name))?)
    }

    /// Consumers of a group in byte order of their names.
    pub fn consumers(
        self,
        group: StreamGroup,
    ) -> impl Iterator<Item = (&'a [u8], StreamConsumer)> + use<'a> {
        let columns = self.columns_in(CONSUMER, group.number, b"");
        columns.filter_map(|(name, value)| {
            let consumer = StreamConsumer::parse(value.as_flat()?)?;
            Some((name.get(1 + NUMBER_BYTES..)?, consumer))
        })
    }

    /// How many consumers a group has. O(log entries).
    #[must_use]
    pub fn consumer_count(self, group: StreamGroup) -> usize {
        self.count_in(CONSUMER, group.number)
    }

    /// The consumer of this name. O(log entries).
    #[must_use]
    pub fn consumer(self, group: StreamGroup, name: &[u8]) -> Option<StreamConsumer> {
        if name.len() > STREAM_NAME_BYTES_MAX {
            return None;
        }
        StreamConsumer::parse(self.flat(&name_in(CONSUMER, group.number, name))?)
    }

    /// The name of the consumer that has an entry. O(log entries + bytes).
    #[must_use]
    pub fn name_of(self, pending: StreamPending) -> Vec<u8> {
        let name = self.0.get(&name_in(NAME, pending.consumer, b""));
        name.map_or_else(Vec::new, |name| name.to_cow().into_owned())
    }

    /// What is pending in a group, from an id on. O(log entries) to begin.
    pub fn pending(
        self,
        group: StreamGroup,
        from: StreamId,
    ) -> impl Iterator<Item = (StreamId, StreamPending)> + use<'a> {
        let columns = self.columns_in(PENDING, group.number, &from.to_bytes());
        columns.filter_map(|(name, value)| {
            Some((id_of(name)?, StreamPending::parse(value.as_flat()?)?))
        })
    }

    /// How much is pending in a group. O(log entries).
    #[must_use]
    pub fn pending_count(self, group: StreamGroup) -> usize {
        self.count_in(PENDING, group.number)
    }

    /// The highest id that is pending in a group. O(log entries).
    #[must_use]
    pub fn last_pending(self, group: StreamGroup) -> Option<StreamId> {
        let count = self.pending_count(group).checked_sub(1)?;
        let first = self.0.rank(&name_in(PENDING, group.number, b""));
        self.0.nth(first + count).and_then(|(name, _)| id_of(name))
    }

    /// An entry that is pending in a group. O(log entries).
    #[must_use]
    pub fn pending_at(self, group: StreamGroup, id: StreamId) -> Option<StreamPending> {
        let name = name_in(PENDING, group.number, &id.to_bytes());
        StreamPending::parse(self.flat(&name)?)
    }

    /// The ids that are pending for a consumer, from one on. O(log entries) to begin.
    pub fn pending_for(
        self,
        consumer: StreamConsumer,
        from: StreamId,
    ) -> impl Iterator<Item = StreamId> + use<'a> {
        let columns = self.columns_in(PENDING_FOR, consumer.number, &from.to_bytes());
        columns.filter_map(|(name, _)| id_of(name))
    }

    /// How much is pending for a consumer. O(log entries).
    #[must_use]
    pub fn pending_count_for(self, consumer: StreamConsumer) -> usize {
        self.count_in(PENDING_FOR, consumer.number)
    }

    /// Whether an entry was removed on its own among those from this id on.
    fn has_gap_from(self, id: StreamId) -> bool {
        let removed = self.head().removed;
        removed != StreamId::MIN && id <= removed && self.first().is_some_and(|it| it <= removed)
    }

    /// How many entries a group has not had, if that is known. O(log entries).
    #[must_use]
    pub fn lag(self, group: StreamGroup) -> Option<u64> {
        let added = self.head().added;
        let read = match group.read {
            _ if added == 0 => Some(0),
            Some(read) if !self.has_gap_from(group.last) => Some(read),
            _ => self.added_up_to(group.last),
        };
        // As Redis has it, also where somebody has set wrong counts.
        read.map(|read| added.wrapping_sub(read))
    }

    /// The group has had everything up to this entry: its last id, and its count. O(log entries).
    pub fn pass(self, group: &mut StreamGroup, id: StreamId) {
        if id <= group.last {
            return;
        }
        group.read = match group.read {
            Some(read) if !self.has_gap_from(id) => Some(read.saturating_add(1)),
            read if self.head().added == 0 => read,
            _ => self.added_up_to(id),
        };
        group.last = id;
    }

    /// Whether whoever waits for an entry of one stream, or of one of its groups, may have to do
    /// with another at its place. O(log entries).
    #[must_use]
    pub fn differ_to_readers(old: Option<Self>, new: Option<Self>) -> bool {
        let (Some(old), Some(new)) = (old, new) else {
            return old.is_some() || new.is_some();
        };
        let about = |stream: Self| {
            let head = stream.head();
            // A number is given to each group.
            (head.last, head.next)
        };
        about(old) != about(new)
            || old.group_count() != new.group_count()
            || old.final_id() < new.final_id()
    }

    /// How many entries were added up to this id, if that is known.
    #[must_use]
    pub fn added_up_to(self, id: StreamId) -> Option<u64> {
        let head = self.head();
        if head.added == 0 {
            return Some(0);
        }
        let first = match self.first() {
            Some(first) if id < head.last => first,
            _ => return (id <= head.last).then_some(head.added),
        };
        // Nothing was removed behind the first one: those before it are the others.
        let before = head.added.saturating_sub(self.len() as u64);
        let is_whole = head.removed == StreamId::MIN || head.removed < first;
        (is_whole && id <= first).then(|| before + u64::from(id == first))
    }

    /// The ranks of the entries between two ids, both included. O(log entries).
    #[must_use]
    pub fn ranks(self, ids: RangeInclusive<StreamId>) -> Range<usize> {
        let start = self.rank(*ids.start());
        let end = match ids.end().next() {
            Some(next) => self.rank(next),
            None => self.len(),
        };
        start..end.max(start)
    }
}

#[cfg(test)]
mod tests;
