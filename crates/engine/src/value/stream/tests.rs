//! Streams against a model, and columns of unknown origin.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::value::{Body, BodyRef, HashDraft, RowTag};

fn row_of<'b>(body: &'b Body<'_>) -> HashRef<'b> {
    match body.as_ref() {
        BodyRef::Row(RowTag::Stream, row) => row,
        other => panic!("{other:?}"),
    }
}

fn stream_of<'b>(body: &'b Body<'_>) -> StreamRef<'b> {
    StreamRef::new(row_of(body))
}

fn all<T>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    items.into_iter().collect()
}

/// A group as the model has it.
#[derive(Default)]
struct Group {
    /// Names, and when they were seen.
    consumers: BTreeMap<Vec<u8>, u64>,
    /// The consumer's name, and how often it was delivered.
    pending: BTreeMap<StreamId, (Vec<u8>, u64)>,
}

#[derive(Default)]
struct Model {
    entries: BTreeMap<StreamId, Vec<u8>>,
    groups: BTreeMap<Vec<u8>, Group>,
    added: u64,
    last: StreamId,
}

#[derive(Clone, Debug)]
enum Change {
    Add(u8),
    Remove(u16),
    Trim(u8),
    Group(u8),
    RemoveGroup(u8),
    /// Of a group, for a consumer, so many entries from a place on.
    Deliver(u8, u8, u8, u16),
    Acknowledge(u8, u16),
    RemoveConsumer(u8, u8),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => any::<u8>().prop_map(Change::Add),
        2 => any::<u16>().prop_map(Change::Remove),
        1 => (0..20_u8).prop_map(Change::Trim),
        1 => (0..4_u8).prop_map(Change::Group),
        1 => (0..12_u8).prop_map(Change::RemoveGroup),
        4 => (0..4_u8, 0..4_u8, 0..40_u8, any::<u16>())
            .prop_map(|(group, consumer, count, at)| Change::Deliver(group, consumer, count, at)),
        3 => (0..4_u8, any::<u16>()).prop_map(|(group, at)| Change::Acknowledge(group, at)),
        1 => (0..4_u8, 0..4_u8).prop_map(|(group, name)| Change::RemoveConsumer(group, name)),
    ]
}

fn name(number: u8) -> Vec<u8> {
    // One is a part of another.
    vec![b'n'; usize::from(number)]
}

fn nth(model: &Model, at: u16) -> Option<StreamId> {
    let count = model.entries.len().max(1);
    model.entries.keys().nth(usize::from(at) % count).copied()
}

fn apply(draft: &mut StreamDraft<'_>, model: &mut Model, change: &Change, now_ms: u64) {
    match *change {
        Change::Add(size) => {
            let id = model.last.next().expect("there are more");
            let id = StreamId {
                ms: id.ms + u64::from(size) / 64,
                ..id
            };
            let value = vec![size; usize::from(size)];
            draft.push(id, [&b"field"[..], &value]);
            model.entries.insert(id, value);
            model.added += 1;
            model.last = id;
        }
        Change::Remove(at) => {
            let id = nth(model, at).unwrap_or(StreamId::MAX);
            assert_eq!(draft.remove(id), model.entries.remove(&id).is_some());
        }
        Change::Trim(count) => {
            draft.remove_first(count.into());
            for _ in 0..count {
                model.entries.pop_first();
            }
        }
        Change::Group(number) => {
            let name = name(number);
            if draft.as_ref().group(&name).is_none() {
                draft.add_group(&name, StreamId::MIN, None);
            }
            model.groups.entry(name).or_default();
        }
        Change::RemoveGroup(number) => {
            let name = name(number);
            assert_eq!(
                draft.remove_group(&name),
                model.groups.remove(&name).is_some()
            );
        }
        Change::Deliver(..) | Change::Acknowledge(..) | Change::RemoveConsumer(..) => {
            apply_to_group(draft, model, change, now_ms);
        }
    }
}

fn apply_to_group(draft: &mut StreamDraft<'_>, model: &mut Model, change: &Change, now_ms: u64) {
    match *change {
        Change::Deliver(group, consumer, count, at) => {
            let (group_name, consumer_name) = (name(group), name(consumer));
            let Some(group) = model.groups.get_mut(&group_name) else {
                return;
            };
            let found = draft.as_ref().group(&group_name).expect("it is there");
            let consumer = draft.see_consumer(found, &consumer_name, now_ms);
            group.consumers.insert(consumer_name.clone(), now_ms);
            let ids = model
                .entries
                .keys()
                .skip(usize::from(at) % 200)
                .take(count.into());
            for id in ids {
                draft.set_pending(found, *id, StreamPending::new(consumer, now_ms, 3));
                group.pending.insert(*id, (consumer_name.clone(), 3));
            }
        }
        Change::Acknowledge(group, at) => {
            let name = name(group);
            let Some(group) = model.groups.get_mut(&name) else {
                return;
            };
            let found = draft.as_ref().group(&name).expect("it is there");
            let count = group.pending.len().max(1);
            let id = group.pending.keys().nth(usize::from(at) % count).copied();
            let id = id.unwrap_or(StreamId::MIN);
            assert_eq!(
                draft.remove_pending(found, id),
                group.pending.remove(&id).is_some()
            );
        }
        Change::RemoveConsumer(group, consumer) => {
            let (group_name, consumer_name) = (name(group), name(consumer));
            let Some(group) = model.groups.get_mut(&group_name) else {
                return;
            };
            let found = draft.as_ref().group(&group_name).expect("it is there");
            let consumer = draft.as_ref().consumer(found, &consumer_name);
            assert_eq!(
                consumer.is_some(),
                group.consumers.remove(&consumer_name).is_some()
            );
            if let Some(consumer) = consumer {
                let removed = draft.remove_consumer(found, &consumer_name, consumer);
                let before = group.pending.len();
                group
                    .pending
                    .retain(|_, (owner, _)| *owner != consumer_name);
                assert_eq!(removed, before - group.pending.len());
            }
        }
        _ => unreachable!("it is about the stream"),
    }
}

fn check(stream: StreamRef<'_>, model: &Model) {
    assert_eq!(stream.len(), model.entries.len());
    assert_eq!(
        (stream.head().last, stream.head().added),
        (model.last, model.added)
    );
    let entries: Vec<_> = stream
        .iter_from_rank(0)
        .map(|(id, entry)| {
            let entry = entry.to_cow();
            let strings: Vec<_> = StreamStrings::new(&entry).map(<[u8]>::to_vec).collect();
            assert_eq!(strings[0], b"field");
            (id, strings[1].clone())
        })
        .collect();
    assert_eq!(entries, all(model.entries.clone()));
    for (rank, (id, _)) in entries.iter().enumerate() {
        assert_eq!(stream.rank(*id), rank);
        assert_eq!(
            (stream.ranks(*id..=*id).start, stream.ranks(*id..=*id).len()),
            (rank, 1)
        );
        assert!(stream.get(*id).is_some());
    }
    assert_eq!(stream.final_id(), entries.last().map(|(id, _)| *id));
    let groups: Vec<_> = stream.groups().map(|(name, _)| name.to_vec()).collect();
    assert_eq!(groups, all(model.groups.keys().cloned()));
    assert_eq!(stream.group_count(), groups.len());
    for (name, group) in &model.groups {
        check_group(stream, stream.group(name).expect("it is there"), group);
    }
}

fn check_group(stream: StreamRef<'_>, found: StreamGroup, group: &Group) {
    let consumers: Vec<_> = stream
        .consumers(found)
        .map(|(name, consumer)| (name.to_vec(), consumer.seen_ms))
        .collect();
    assert_eq!(consumers, all(group.consumers.clone()));
    assert_eq!(stream.consumer_count(found), consumers.len());
    let pending: Vec<_> = stream
        .pending(found, StreamId::MIN)
        .map(|(id, pending)| (id, (stream.name_of(pending), pending.deliveries)))
        .collect();
    assert_eq!(pending, all(group.pending.clone()));
    assert_eq!(stream.pending_count(found), pending.len());
    assert_eq!(
        stream.last_pending(found),
        pending.last().map(|(id, _)| *id)
    );
    // DT2 both-sides
    for name in group.consumers.keys() {
        let consumer = stream.consumer(found, name).expect("it is there");
        let own: Vec<_> = stream.pending_for(consumer, StreamId::MIN).collect();
        let expected = group.pending.iter().filter(|(_, (owner, _))| owner == name);
        assert_eq!(own, all(expected.map(|(id, _)| *id)));
        assert_eq!(stream.pending_count_for(consumer), own.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Histories across the bound between small and large streams, and back; what a change changed
    /// is repeated elsewhere, column by column.
    #[test]
    fn streams_are_maps_with_groups(histories in vec(vec(change(), 1..200), 1..6)) {
        let mut model = Model::default();
        let mut current = StreamDraft::new(None).finish();
        let mut replica = StreamDraft::new(None).finish();
        for (now_ms, changes) in (1..).zip(histories) {
            let before = current;
            let mut draft = StreamDraft::new(Some(stream_of(&before)));
            for change in &changes {
                apply(&mut draft, &mut model, change, now_ms);
            }
            current = draft.finish();
            let mut other = HashDraft::new(Some(row_of(&replica)));
            row_of(&current).changed_since(row_of(&before), &mut |name, value| match value {
                Some(value) => _ = other.set_body(name, value.to_body()),
                None => _ = other.remove(name),
            });
            replica = other.finish_as(RowTag::Stream);
            for body in [&current, &replica] {
                prop_assert!(StreamRef::is_sound(row_of(body)));
                check(stream_of(body), &model);
            }
        }
    }
}

#[test]
fn ids_go_to_both_ends() {
    for id in [
        StreamId::MIN,
        StreamId {
            ms: 7,
            seq: u64::MAX,
        },
        StreamId::MAX,
    ] {
        assert_eq!(StreamId::from_bytes(id.to_bytes()), id);
        assert_eq!(
            id.next().and_then(StreamId::previous),
            id.next().map(|_| id)
        );
        assert_eq!(
            id.previous().and_then(StreamId::next),
            id.previous().map(|_| id)
        );
    }
    assert_eq!(StreamId::MAX.next(), None);
    assert_eq!(StreamId::MIN.previous(), None);
    let carried = StreamId {
        ms: 7,
        seq: u64::MAX,
    }
    .next();
    assert_eq!(carried, Some(StreamId { ms: 8, seq: 0 }));
}

#[test]
fn readers_look_again_when_there_is_something_for_them() {
    let id = |ms| StreamId { ms, seq: 0 };
    let strings = || [&b"field"[..], b"value"];
    let mut draft = StreamDraft::new(None);
    draft.push(id(1), strings());
    let group = draft.add_group(b"g", StreamId::MIN, None);
    let before = draft.finish();
    let after = |change: &dyn Fn(&mut StreamDraft<'_>)| {
        let mut draft = StreamDraft::new(Some(stream_of(&before)));
        change(&mut draft);
        let after = draft.finish();
        StreamRef::differ_to_readers(Some(stream_of(&before)), Some(stream_of(&after)))
    };
    assert!(after(&|draft| draft.push(id(2), strings())));
    assert!(after(&|draft| _ = draft.remove_group(b"g")));
    assert!(after(&|draft| {
        draft.remove_group(b"g");
        draft.add_group(b"h", StreamId::MIN, None);
    }));
    assert!(!after(&|draft| _ = draft.remove(id(1))));
    assert!(!after(&|draft| draft.set_group(b"g", group)));
    assert!(StreamRef::differ_to_readers(None, Some(stream_of(&before))));
    assert!(StreamRef::differ_to_readers(Some(stream_of(&before)), None));
}

#[test]
fn foreign_columns_are_refused() {
    let head = StreamHead::default().to_bytes();
    let entry = entry_name(StreamId::MIN);
    for (columns, sound) in [
        (&[(&b"a"[..], &head[..])][..], true),
        (&[(b"a", &head), (&entry, b"\x01f\x01v")], true),
        (&[(&entry, b"\x01f\x01v")], false),
        (&[(b"a", &head[1..])], false),
        (&[(b"a", &head), (b"b", b"")], false),
        (&[(b"a", &head), (&entry[1..], b"")], false),
        (&[(b"a", &head), (&entry, b"")], false),
        (&[(b"a", &head), (&entry, b"\x01f")], false),
        (&[(b"a", &head), (&entry, b"\x01f\x02v")], false),
        (
            &[(b"a", &head), (&entry, b"\x01f\xff\xff\xff\xff\xff\xffv")],
            false,
        ),
        (&[(b"a", &head), (b"gname", b"short")], false),
        (&[(b"a", &head), (b"p1234567", b"")], false),
    ] {
        let mut draft = HashDraft::new(None);
        for (name, value) in columns {
            draft.set(name, value);
        }
        let body = draft.finish_as(RowTag::Stream);
        assert_eq!(StreamRef::is_sound(row_of(&body)), sound, "{columns:?}");
    }
}
