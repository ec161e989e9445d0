//! The draft of a stream's next version.

use super::columns::{
    CONSUMER, HEAD, NAME, PENDING, PENDING_FOR, entry_name, group_name, name_in, push_stream_string,
};
use super::{StreamConsumer, StreamGroup, StreamHead, StreamId, StreamPending, StreamRef};
use crate::value::{Body, HashDraft, RowTag, StringBody};

/// The next version of a stream, under construction; see [`HashDraft`].
#[derive(Debug)]
pub struct StreamDraft<'o> {
    row: HashDraft<'o>,
    head: StreamHead,
}

impl<'o> StreamDraft<'o> {
    /// Begins with what is in `old`.
    #[must_use]
    pub fn new(old: Option<StreamRef<'o>>) -> Self {
        let head = old.map(StreamRef::head);
        let mut draft = Self {
            row: HashDraft::new(old.map(|old| old.0)),
            head: head.unwrap_or_default(),
        };
        if head.is_none() {
            // DT1 head
            draft.put_head();
        }
        draft
    }

    /// The stream with the changes so far.
    #[must_use]
    pub fn as_ref(&self) -> StreamRef<'_> {
        StreamRef(self.row.as_ref())
    }

    /// See [`StreamHead`].
    #[must_use]
    pub fn head(&self) -> StreamHead {
        self.head
    }

    fn put_head(&mut self) {
        self.row.set(&[HEAD], &self.head.to_bytes());
    }

    /// Replaces what is kept about all entries.
    pub fn set_head(&mut self, head: StreamHead) {
        let next = self.head.next;
        self.head = StreamHead { next, ..head };
        self.put_head();
    }

    /// Appends an entry of these fields and values, behind the last id. O(log entries + bytes).
    ///
    /// An id that is not above the last one is a broken invariant of the caller.
    pub fn push<'s>(&mut self, id: StreamId, strings: impl IntoIterator<Item = &'s [u8]>) {
        let mut entry = Vec::new();
        for string in strings {
            push_stream_string(&mut entry, string);
        }
        self.push_entry(id, StringBody::borrowed(&entry));
    }

    /// Appends an entry that is written already ([`push_stream_string`]); see [`Self::push`].
    pub fn push_entry(&mut self, id: StreamId, entry: StringBody<'_>) {
        assert!(id > self.head.last, "DT1");
        self.head.last = id;
        self.head.added = self.head.added.saturating_add(1);
        self.put_head();
        self.row.set_body(&entry_name(id), entry);
    }

    /// Removes an entry; returns whether it was there. O(log entries).
    pub fn remove(&mut self, id: StreamId) -> bool {
        self.row.remove(&entry_name(id))
    }

    /// Removes so many entries from the first on. O(log entries) for each.
    pub fn remove_first(&mut self, count: usize) {
        for _ in 0..count {
            let Some(first) = self.as_ref().first() else {
                return;
            };
            self.remove(first);
        }
    }

    fn number(&mut self) -> u64 {
        let number = self.head.next;
        self.head.next += 1;
        self.put_head();
        number
    }

    /// Makes a group, whose name is not in use and short enough. O(log entries).
    pub fn add_group(&mut self, name: &[u8], last: StreamId, read: Option<u64>) -> StreamGroup {
        let number = self.number();
        let group = StreamGroup { number, last, read };
        self.set_group(name, group);
        group
    }

    /// Replaces what is kept about a group. O(log entries).
    pub fn set_group(&mut self, name: &[u8], group: StreamGroup) {
        self.row.set(&group_name(name), &group.to_bytes());
    }

    /// Removes a group with its consumers and all that is pending in it; returns whether it was
    /// there. O(log entries) for each of these.
    pub fn remove_group(&mut self, name: &[u8]) -> bool {
        let Some(group) = self.as_ref().group(name) else {
            return false;
        };
        let consumers = self.as_ref().consumers(group);
        let consumers: Vec<_> = consumers
            .map(|(name, consumer)| (name.to_vec(), consumer))
            .collect();
        for (name, consumer) in consumers {
            self.remove_consumer(group, &name, consumer);
        }
        self.row.remove(&group_name(name))
    }

    /// The consumer of this name, which is seen now; makes it if it is not there. The name is short
    /// enough. O(log entries).
    pub fn see_consumer(
        &mut self,
        group: StreamGroup,
        name: &[u8],
        seen_ms: u64,
    ) -> StreamConsumer {
        let number = if let Some(consumer) = self.as_ref().consumer(group, name) {
            consumer.number
        } else {
            let number = self.number();
            // DT3 names-of-consumers
            self.row.set(&name_in(NAME, number, b""), name);
            number
        };
        let consumer = StreamConsumer { number, seen_ms };
        let column = name_in(CONSUMER, group.number, name);
        self.row.set(&column, &consumer.to_bytes());
        consumer
    }

    /// Removes a consumer and what is pending for it. O(log entries) for each of these.
    pub fn remove_consumer(
        &mut self,
        group: StreamGroup,
        name: &[u8],
        consumer: StreamConsumer,
    ) -> usize {
        let pending = self.as_ref().pending_for(consumer, StreamId::MIN);
        let pending: Vec<_> = pending.collect();
        for id in &pending {
            self.remove_pending(group, *id);
        }
        self.row.remove(&name_in(NAME, consumer.number, b""));
        self.row.remove(&name_in(CONSUMER, group.number, name));
        pending.len()
    }

    /// Makes an entry pending in a group, or changes that (DT2 both-sides). O(log entries).
    pub fn set_pending(&mut self, group: StreamGroup, id: StreamId, pending: StreamPending) {
        let bytes = id.to_bytes();
        let old = self.as_ref().pending_at(group, id);
        if old.is_none_or(|old| old.consumer != pending.consumer) {
            if let Some(old) = old {
                self.row.remove(&name_in(PENDING_FOR, old.consumer, &bytes));
            }
            self.row
                .set(&name_in(PENDING_FOR, pending.consumer, &bytes), b"");
        }
        let name = name_in(PENDING, group.number, &bytes);
        self.row.set(&name, &pending.to_bytes());
    }

    /// An entry is no longer pending in a group; returns whether it was (DT2 both-sides). O(log
    /// entries).
    pub fn remove_pending(&mut self, group: StreamGroup, id: StreamId) -> bool {
        let Some(pending) = self.as_ref().pending_at(group, id) else {
            return false;
        };
        let bytes = id.to_bytes();
        self.row
            .remove(&name_in(PENDING_FOR, pending.consumer, &bytes));
        self.row.remove(&name_in(PENDING, group.number, &bytes))
    }

    /// The finished body, in the form for its size (D1 smallest-form).
    #[must_use]
    pub fn finish(self) -> Body<'static> {
        self.row.finish_as(RowTag::Stream)
    }
}
