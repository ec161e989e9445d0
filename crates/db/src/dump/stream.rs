//! Streams, of kinds 15, 19 and 21. The parts marked 19 are in kinds 19 and 21.
//!
//! | part | |
//! |---|---|
//! | a count | of nodes |
//! | for each two strings | its first id, 16 bytes big-endian, and a listpack |
//! | a length, an id | of the stream: entries, the last id |
//! | 19: three parts | the first id, the highest id that was removed, how many entries were added |
//! | a count | of groups |
//! | for each a string, an id | its name, the last id that it has had |
//! | 19: a length | how many entries it has read |
//! | a count | of its pending entries |
//! | for each 16 and 8 bytes, a length | the id, when and how often it was delivered |
//! | a count | of its consumers |
//! | for each a string, 8 bytes | its name, when it was last seen |
//! | 21: 8 bytes | when it was last active |
//! | a count, 16 bytes each | ids of what is pending for it |
//!
//! An id is two lengths, unless it is said otherwise; times are little-endian milliseconds. A node:
//!
//! | elements | |
//! |---|---|
//! | 4 or more | entries, removed entries, number of fields, the fields, 0 |
//! | for each entry | flags, time and number less those of the node's id |
//! | without the second flag | number of fields |
//! | | fields and values in turn; with the second flag, values of the node's fields |
//! | | how many elements the entry has, but for this one |
//!
//! The first flag is that of an entry that was removed. We write kind 19.

use std::collections::BTreeMap;

use pando_engine::{
    Body, STREAM_NAME_BYTES_MAX, StreamConsumer, StreamDraft, StreamGroup, StreamId, StreamPending,
    StreamRef, StreamStrings, StringBody, push_stream_string,
};
use pando_protocol::number;

use super::listpack::{Element, Walk, Writer};
use super::rdb::{self, Reader};
use super::{Bounds, PayloadError, check_length, kind};

const REMOVED: i64 = 1;
const SAME_FIELDS: i64 = 2;

/// Most entries of a node that is written, and bytes of its entries, as Redis cuts streams by
/// default.
const NODE_ENTRIES_MAX: usize = 100;
const NODE_BYTES_MAX: usize = 4096;

/// How a group says that it does not know how many entries it has read.
const UNKNOWN: u64 = u64::MAX;

fn write_id(out: &mut Vec<u8>, id: StreamId) {
    rdb::write_length(out, id.ms);
    rdb::write_length(out, id.seq);
}

/// Appends a stream, without its kind.
pub(super) fn write(out: &mut Vec<u8>, stream: StreamRef<'_>) {
    write_nodes(out, stream);
    let head = stream.head();
    rdb::write_length(out, stream.len() as u64);
    write_id(out, head.last);
    write_id(out, stream.first().unwrap_or_default());
    write_id(out, head.removed);
    rdb::write_length(out, head.added);
    rdb::write_length(out, stream.group_count() as u64);
    for (name, group) in stream.groups() {
        rdb::write_string(out, name);
        write_id(out, group.last);
        rdb::write_length(out, group.read.unwrap_or(UNKNOWN));
        rdb::write_length(out, stream.pending_count(group) as u64);
        for (id, pending) in stream.pending(group, StreamId::MIN) {
            out.extend_from_slice(&id.to_bytes());
            out.extend_from_slice(&pending.delivered_ms.to_le_bytes());
            rdb::write_length(out, pending.deliveries);
        }
        rdb::write_length(out, stream.consumer_count(group) as u64);
        for (name, consumer) in stream.consumers(group) {
            rdb::write_string(out, name);
            out.extend_from_slice(&consumer.seen_ms.to_le_bytes());
            rdb::write_length(out, stream.pending_count_for(consumer) as u64);
            for id in stream.pending_for(consumer, StreamId::MIN) {
                out.extend_from_slice(&id.to_bytes());
            }
        }
    }
}

fn write_nodes(out: &mut Vec<u8>, stream: StreamRef<'_>) {
    let (mut nodes, mut count) = (Vec::new(), 0);
    let mut node: Vec<(StreamId, Vec<u8>)> = Vec::new();
    let mut bytes = 0;
    for (id, entry) in stream.iter_from_rank(0) {
        let is_full = node.len() == NODE_ENTRIES_MAX || bytes + entry.len() > NODE_BYTES_MAX;
        if is_full && !node.is_empty() {
            write_node(&mut nodes, &node);
            node.clear();
            (count, bytes) = (count + 1, 0);
        }
        bytes += entry.len();
        node.push((id, entry.to_cow().into_owned()));
    }
    if !node.is_empty() {
        write_node(&mut nodes, &node);
        count += 1;
    }
    rdb::write_length(out, count);
    out.extend_from_slice(&nodes);
}

fn write_node(out: &mut Vec<u8>, node: &[(StreamId, Vec<u8>)]) {
    let (first, entry) = &node[0];
    let fields_of = |entry| StreamStrings::new(entry).step_by(2);
    let fields = || fields_of(entry);
    let mut writer = Writer::new();
    writer.push_integer(node.len() as i64);
    writer.push_integer(0);
    writer.push_integer(fields().count() as i64);
    fields().for_each(|field| writer.push(field));
    writer.push_integer(0);
    for (id, entry) in node {
        let is_same = fields_of(entry).eq(fields());
        writer.push_integer(if is_same { SAME_FIELDS } else { 0 });
        writer.push_integer(id.ms.wrapping_sub(first.ms) as i64);
        writer.push_integer(id.seq.wrapping_sub(first.seq) as i64);
        let mut elements = 3;
        if !is_same {
            writer.push_integer(fields_of(entry).count() as i64);
            elements += 1;
        }
        for (index, string) in StreamStrings::new(entry).enumerate() {
            if !is_same || index % 2 == 1 {
                writer.push(string);
                elements += 1;
            }
        }
        writer.push_integer(elements);
    }
    rdb::write_string(out, &first.to_bytes());
    rdb::write_string(out, &writer.finish());
}

/// Reads a stream of this kind.
pub(super) fn read(
    reader: &mut Reader<'_>,
    bounds: Bounds,
    kind: u8,
) -> Result<Body<'static>, PayloadError> {
    let mut draft = StreamDraft::new(None);
    let mut room = bounds.total_bytes_max;
    for _ in 0..reader.length()? {
        let malformed = malformed(reader);
        let first = reader.string()?;
        let first = (&*first).try_into().map_err(|_| malformed)?;
        let node = reader.string()?;
        read_node(
            &mut draft,
            StreamId::from_bytes(first),
            &node,
            (bounds, &mut room),
        )?;
    }
    let malformed = malformed(reader);
    let length = reader.length()?;
    let mut head = draft.head();
    (head.last, head.added) = (id(reader)?, length);
    if length != draft.as_ref().len() as u64 || head.last < draft.head().last {
        return Err(malformed);
    }
    if kind != kind::STREAM {
        // The first id is known.
        id(reader)?;
        head.removed = id(reader)?;
        head.added = reader.length()?;
    }
    draft.set_head(head);
    for _ in 0..reader.length()? {
        read_group(reader, &mut draft, bounds, kind)?;
    }
    Ok(draft.finish())
}

fn malformed(reader: &Reader<'_>) -> PayloadError {
    PayloadError::Malformed {
        offset: reader.offset(),
    }
}

fn id(reader: &mut Reader<'_>) -> Result<StreamId, PayloadError> {
    Ok(StreamId {
        ms: reader.length()?,
        seq: reader.length()?,
    })
}

/// The elements of a node.
struct Node<'b>(Walk<'b>);

impl<'b> Node<'b> {
    fn malformed(&self) -> PayloadError {
        PayloadError::Malformed {
            offset: self.0.offset(),
        }
    }

    fn element(&mut self) -> Result<Element<'b>, PayloadError> {
        let malformed = self.malformed();
        self.0.next()?.ok_or(malformed)
    }

    /// The next element, unless it is the end.
    fn integer_or_end(&mut self) -> Result<Option<i64>, PayloadError> {
        let malformed = self.malformed();
        match self.0.next()? {
            None => Ok(None),
            Some(Element::Integer(value)) => Ok(Some(value)),
            Some(Element::String(text)) => number::parse_i64(text).map(Some).ok_or(malformed),
        }
    }

    fn integer(&mut self) -> Result<i64, PayloadError> {
        let malformed = self.malformed();
        self.integer_or_end()?.ok_or(malformed)
    }
}

fn read_node(
    draft: &mut StreamDraft<'_>,
    first: StreamId,
    node: &[u8],
    (bounds, room): (Bounds, &mut usize),
) -> Result<(), PayloadError> {
    let mut node = Node(Walk::new(node)?);
    let (count, removed) = (node.integer()?, node.integer()?);
    // Kept in the form in which entries have them.
    let (mut fields, fields_count) = (Vec::new(), node.integer()?);
    for _ in 0..fields_count {
        node.element()?.push_to(&mut fields);
    }
    if node.integer()? != 0 {
        return Err(node.malformed());
    }
    let (mut found, mut gone) = (0, 0);
    let mut entry = Vec::new();
    while let Some(flags) = node.integer_or_end()? {
        let malformed = node.malformed();
        let id = StreamId {
            ms: first.ms.wrapping_add(node.integer()? as u64),
            seq: first.seq.wrapping_add(node.integer()? as u64),
        };
        entry.clear();
        let elements = if flags & SAME_FIELDS != 0 {
            for field in StreamStrings::new(&fields) {
                push_stream_string(&mut entry, field);
                node.element()?.push_to(&mut entry);
                check_length(&entry, bounds.value_bytes_max)?;
            }
            fields_count.saturating_add(3)
        } else {
            let count = node.integer()?;
            for _ in 0..count.saturating_mul(2) {
                node.element()?.push_to(&mut entry);
            }
            count.saturating_mul(2).saturating_add(4)
        };
        if node.integer()? != elements || entry.is_empty() {
            return Err(malformed);
        }
        // Entries repeat the fields that a node has once (DU1 payload-bounded).
        check_length(&entry, *room)?;
        *room -= entry.len();
        if flags & REMOVED != 0 {
            gone += 1;
            continue;
        }
        found += 1;
        if id <= draft.head().last {
            return Err(malformed);
        }
        check_length(&entry, bounds.value_bytes_max)?;
        draft.push_entry(id, StringBody::borrowed(&entry));
    }
    if (found, gone) == (count, removed) {
        Ok(())
    } else {
        Err(node.malformed())
    }
}

/// When and how often an entry was delivered, and whether its consumer is known.
struct Delivered {
    at_ms: u64,
    deliveries: u64,
    is_owned: bool,
}

fn read_group(
    reader: &mut Reader<'_>,
    draft: &mut StreamDraft<'_>,
    bounds: Bounds,
    kind: u8,
) -> Result<(), PayloadError> {
    let malformed = malformed(reader);
    let name = name(reader, bounds)?;
    let last = id(reader)?;
    let read = if kind == kind::STREAM {
        draft.as_ref().added_up_to(last)
    } else {
        Some(reader.length()?).filter(|read| i64::try_from(*read).is_ok())
    };
    if draft.as_ref().group(&name).is_some() {
        return Err(malformed);
    }
    let group = draft.add_group(&name, last, read);
    let mut pending = BTreeMap::new();
    for _ in 0..reader.length()? {
        let id = StreamId::from_bytes(reader.array()?);
        let delivered = Delivered {
            at_ms: u64::from_le_bytes(reader.array()?),
            deliveries: reader.length()?,
            is_owned: false,
        };
        if pending.insert(id, delivered).is_some() {
            return Err(malformed);
        }
    }
    for _ in 0..reader.length()? {
        read_consumer(reader, draft, (group, &mut pending), (bounds, kind))?;
    }
    if pending.values().all(|delivered| delivered.is_owned) {
        Ok(())
    } else {
        Err(malformed)
    }
}

fn read_consumer(
    reader: &mut Reader<'_>,
    draft: &mut StreamDraft<'_>,
    (group, pending): (StreamGroup, &mut BTreeMap<StreamId, Delivered>),
    (bounds, kind): (Bounds, u8),
) -> Result<(), PayloadError> {
    let malformed = malformed(reader);
    let name = name(reader, bounds)?;
    let seen_ms = u64::from_le_bytes(reader.array()?);
    if kind == kind::STREAM_ACTIVE {
        reader.take(size_of::<u64>() as u64)?;
    }
    if draft.as_ref().consumer(group, &name).is_some() {
        return Err(malformed);
    }
    let consumer: StreamConsumer = draft.see_consumer(group, &name, seen_ms);
    for _ in 0..reader.length()? {
        let id = StreamId::from_bytes(reader.array()?);
        let delivered = pending.get_mut(&id).filter(|delivered| !delivered.is_owned);
        let delivered = delivered.ok_or(malformed)?;
        delivered.is_owned = true;
        let (at_ms, deliveries) = (delivered.at_ms, delivered.deliveries);
        draft.set_pending(group, id, StreamPending::new(consumer, at_ms, deliveries));
    }
    Ok(())
}

/// The name of a group or a consumer.
fn name(reader: &mut Reader<'_>, bounds: Bounds) -> Result<Vec<u8>, PayloadError> {
    let name = reader.string()?;
    check_length(&name, bounds.field_bytes_max.min(STREAM_NAME_BYTES_MAX))?;
    Ok(name.into_owned())
}
