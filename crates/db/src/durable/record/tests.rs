//! Golden bytes; that old value and change make the new value; what records cost; broken bytes.

use std::num::NonZero;

use pando_engine::{
    Attributes, Body, Chunked, Deadline, HashDraft, NewValue, RowTag, SortedDraft, SortedRef,
};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const KEY: Key<'static> = Key::new(TreeId(300), b"key");

fn version(bits: u64) -> ValueVersion {
    ValueVersion::from_bits(bits)
}

fn record_of(old: Option<&NewValue<'_>>, new: &NewValue<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let old = old.map(|old| old.view(version(0x0102)));
    put_write(&mut bytes, KEY, old, new.view(version(0x0105)));
    bytes
}

/// What recovery makes of a record.
fn replay<'a>(bytes: &'a [u8], old: Option<&NewValue<'_>>) -> NewValue<'a> {
    let mut input = Input(bytes);
    let record = take(&mut input).expect("it was written");
    assert!(input.is_empty());
    match record {
        Record::Put(written, view) => {
            assert_eq!((written.key, written.version), (KEY, version(0x0105)));
            view.build().expect("it was written")
        }
        Record::Change {
            written,
            predecessor,
            change,
        } => {
            assert_eq!((written.key, written.version), (KEY, version(0x0105)));
            assert_eq!(predecessor, version(0x0102));
            let old = old.expect("a change has a predecessor");
            change.apply(old.view(predecessor)).expect("it was written")
        }
        other => panic!("{other:?}"),
    }
}

fn same(one: &NewValue<'_>, other: &NewValue<'_>) -> bool {
    one.attributes == other.attributes
        && match (one.body.as_ref(), other.body.as_ref()) {
            (BodyRef::String(one), BodyRef::String(other)) => one == &*other.to_cow(),
            (BodyRef::Row(_, one), BodyRef::Row(_, other)) => {
                one.len() == other.len()
                    && one
                        .iter()
                        .zip(other.iter())
                        .all(|(one, other)| one.0 == other.0 && one.1 == &*other.1.to_cow())
            }
            _ => false,
        }
}

fn hash(fields: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> NewValue<'static> {
    let mut draft = HashDraft::new(None);
    for (field, value) in fields {
        draft.set(&field, &value);
    }
    NewValue::new(draft.finish())
}

#[test]
fn golden_bytes() {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let small = NewValue::new(Body::string(b"value"));
    assert_eq!(
        text(&record_of(None, &small)),
        r"\x01\xac\x02\x05\x01\x00\x00\x00\x00\x00\x00\x03key\x01\x05value"
    );
    let attributes = Attributes {
        deadline: Some(Deadline(0x0a0b)),
        flags: 7,
        encoding: 2,
        token: None,
    };
    let fields = hash([(b"f".to_vec(), b"v".to_vec())]).with(attributes);
    assert_eq!(
        text(&record_of(None, &fields)),
        [
            r"\x01\xac\x02\x05\x01\x00\x00\x00\x00\x00\x00\x03key",
            r"r\x0b\n\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x02",
            r"\x08\x01\x00\x01\x00\x02\x00fv",
        ]
        .concat()
    );
    let chosen = NewValue::new(Body::string(b"v")).with(Attributes {
        token: NonZero::new(0x0c0d),
        ..Attributes::default()
    });
    assert_eq!(
        text(&record_of(None, &chosen)),
        [
            r"\x01\xac\x02\x05\x01\x00\x00\x00\x00\x00\x00\x03key",
            r"\x81\x01\r\x0c\x00\x00\x00\x00\x00\x00\x01v",
        ]
        .concat()
    );
    let old = NewValue::new(Body::string_owned(vec![b'o'; 1000]));
    let mut bytes = vec![b'o'; 1000];
    bytes[500] = b'n';
    let new = NewValue::new(Body::string_owned(bytes));
    assert_eq!(
        text(&record_of(Some(&old), &new)),
        r"\x02\xac\x02\x05\x01\x00\x00\x00\x00\x00\x00\x03\x03key\t\xe8\x07\x01\xf4\x03n\x00"
    );
    let mut bytes = Vec::new();
    put_remove(&mut bytes, KEY, version(9));
    assert_eq!(
        text(&bytes),
        r"\x03\xac\x02\t\x00\x00\x00\x00\x00\x00\x00\x03key"
    );
    bytes.clear();
    put_mapping(&mut bytes, 5, [TreeId(1), TreeId(200)].into_iter());
    assert_eq!(text(&bytes), r"\x04\x05\x02\x01\xc8\x01");
    let fields = |count: u32, last: &[u8]| {
        let mut fields: Vec<_> = (0..count)
            .map(|number| (format!("f{number:04}").into_bytes(), vec![b'v'; 20]))
            .collect();
        fields.last_mut().expect("there are some").1 = last.to_vec();
        hash(fields)
    };
    assert_eq!(
        text(&record_of(Some(&fields(30, b"o")), &fields(30, b"n"))),
        r"\x02\xac\x02\x05\x01\x00\x00\x00\x00\x00\x00\x03\x03key\n\x01\x05f0029\x01n\x00"
    );
}

/// DR1 cost-of-change: what a record takes follows from what changed.
#[test]
fn small_changes_of_large_values_have_small_records() {
    let large = NewValue::new(Body::string_owned(vec![7; 3_000_000]));
    let BodyRef::String(string) = large.body.as_ref() else {
        panic!("a string")
    };
    let appended = NewValue::new(string.with_write(3_000_000, b"more"));
    assert!(record_of(Some(&large), &appended).len() < 60);
    let written = NewValue::new(string.with_write(1_234_567, b"some"));
    assert!(record_of(Some(&large), &written).len() < 60);
    let far = NewValue::new(string.with_write(400_000_000, b"x"));
    assert!(record_of(Some(&large), &far).len() < 17_000);
    let attributes = large.view(version(1)).hand_over().with(Attributes {
        deadline: Some(Deadline(1)),
        ..Attributes::default()
    });
    assert!(record_of(Some(&large), &attributes).len() < 40);
    // A hole costs nothing, in a whole value either.
    let flat = NewValue::new(Body::string(b"short"));
    let BodyRef::String(string) = flat.body.as_ref() else {
        panic!("a string")
    };
    let sparse = NewValue::new(string.with_write(400_000_000, b"x"));
    assert!(record_of(None, &sparse).len() < 20_000);

    let field = |number: usize| (format!("field{number:08}").into_bytes(), vec![b'v'; 30]);
    let wide = hash((0..100_000).map(field));
    let BodyRef::Row(_, row) = wide.body.as_ref() else {
        panic!("a hash")
    };
    let mut draft = HashDraft::new(Some(row));
    draft.set(b"field00050000", b"other");
    draft.set(b"field00050000x", b"new");
    draft.remove(b"field00070000");
    let changed = NewValue::new(draft.finish());
    let bytes = record_of(Some(&wide), &changed);
    assert!(bytes.len() < 100, "{}", bytes.len());
    assert!(same(&replay(&bytes, Some(&wide)), &changed));
    // Nothing that both share is looked at: it takes a small part of the time that the whole does.
    // The least of several times, as a busy machine adds to most of them.
    let took = |before| {
        let start = std::time::Instant::now();
        record_of(before, &changed);
        start.elapsed()
    };
    let whole = took(None);
    let difference = (0..1_000).map(|_| took(Some(&wide))).min().unwrap();
    assert!(difference < whole / 50, "{difference:?}, {whole:?}");
}

/// A member's new score is one column in a record, and a whole sorted set is written in one order.
#[test]
fn sorted_sets_are_written_in_one_order() {
    let set_of = |value: &NewValue<'_>| -> Vec<(Vec<u8>, f64)> {
        let BodyRef::Row(RowTag::SortedSet, row) = value.body.as_ref() else {
            panic!("a sorted set")
        };
        let entries = SortedRef::new(row).iter_from_rank(0);
        entries
            .map(|(member, score)| (member.to_vec(), score))
            .collect()
    };
    let mut large = SortedDraft::new(None);
    for number in 0..5_000_u32 {
        large.set(format!("member{number}").as_bytes(), f64::from(number % 70));
    }
    let large = NewValue::new(large.finish());
    let whole = record_of(None, &large);
    assert!(whole.len() < 5_000 * 24, "{}", whole.len());
    assert_eq!(set_of(&replay(&whole, None)), set_of(&large));

    let BodyRef::Row(_, row) = large.body.as_ref() else {
        panic!("a sorted set")
    };
    let mut draft = SortedDraft::new(Some(SortedRef::new(row)));
    draft.set(b"member7", 1e9);
    draft.remove(b"member8");
    draft.set(b"new", -1.0);
    let changed = NewValue::new(draft.finish());
    let bytes = record_of(Some(&large), &changed);
    assert!(bytes.len() < 90, "{}", bytes.len());
    assert_eq!(set_of(&replay(&bytes, Some(&large))), set_of(&changed));

    // Columns of another form, and scores that are none.
    for column in [
        "\u{1}\u{1}x\0",
        "\u{1}\u{2}ma\u{2}xx",
        "\u{1}\u{a}s\u{7f}\u{7f}1234567\0",
    ] {
        let mut foreign = Vec::new();
        put_head(&mut foreign, PUT, KEY, version(0x0105));
        foreign.string(b"key");
        value::put_attributes(
            &mut foreign,
            TypeTag::SortedSet,
            true,
            Attributes::default(),
        );
        foreign.extend_from_slice(column.as_bytes());
        foreign.push(0);
        let taken = take(&mut Input(&foreign));
        assert_eq!(taken.is_err(), !column.contains("123"), "{column:?}");
    }
}

/// One edit of a value.
#[derive(Clone, Debug)]
enum Edit {
    Write(usize, usize, u8),
    Set(u16, usize, u8),
    Remove(u16),
    Whole(usize, u8),
    Fields(u16, usize),
    Attributes(Option<u64>, u32, u8, u64),
}

fn edit() -> impl Strategy<Value = Edit> {
    let length = || prop_oneof![8 => 0..40_usize, 3 => 0..2_000_usize, 1 => 0..60_000_usize];
    prop_oneof![
        4 => (length(), length(), any::<u8>()).prop_map(|(at, length, seed)| {
            Edit::Write(at, length, seed)
        }),
        4 => (0..400_u16, length(), any::<u8>()).prop_map(|(field, length, seed)| {
            Edit::Set(field, length, seed)
        }),
        4 => (0..400_u16).prop_map(Edit::Remove),
        1 => (length(), any::<u8>()).prop_map(|(length, seed)| Edit::Whole(length, seed)),
        1 => (1..400_u16, 0..50_usize).prop_map(|(count, length)| Edit::Fields(count, length)),
        1 => (any::<Option<u64>>(), any::<u32>(), any::<u8>(), prop_oneof![Just(0), any::<u64>()])
            .prop_map(|(deadline, flags, encoding, token)| {
                Edit::Attributes(deadline, flags, encoding, token)
            }),
    ]
}

fn field(number: u16) -> Vec<u8> {
    format!("field{number:04}").into_bytes()
}

fn edited(old: &NewValue<'_>, edits: &[Edit]) -> NewValue<'static> {
    let mut value = old.view(version(1)).hand_over();
    for edit in edits {
        let attributes = value.attributes;
        let body = match (edit, value.body.as_ref()) {
            (Edit::Write(at, length, seed), BodyRef::String(string)) => {
                string.with_write(*at, &vec![*seed; *length]).into()
            }
            (Edit::Set(number, length, seed), BodyRef::Row(_, hash)) => {
                let mut draft = HashDraft::new(Some(hash));
                draft.set(&field(*number), &vec![*seed; *length]);
                draft.finish()
            }
            (Edit::Remove(number), BodyRef::Row(_, hash)) if hash.len() > 1 => {
                let mut draft = HashDraft::new(Some(hash));
                draft.remove(&field(*number));
                draft.finish()
            }
            (Edit::Whole(length, seed), _) => Body::string_owned(vec![*seed; *length]),
            (Edit::Fields(count, length), _) => {
                hash((0..*count).map(|number| (field(number), vec![1; *length]))).body
            }
            (Edit::Attributes(deadline, flags, encoding, token), _) => {
                value.attributes = Attributes {
                    deadline: deadline.map(Deadline),
                    flags: *flags,
                    encoding: *encoding,
                    token: NonZero::new(*token),
                };
                continue;
            }
            _ => continue,
        };
        value = NewValue::new(body).with(attributes);
    }
    value
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// DR2 change-rebuilds, along a chain of versions; and a whole value comes back.
    #[test]
    fn old_value_and_change_make_the_new_value(
        versions in vec(vec(edit(), 1..6), 1..12),
        start in edit(),
    ) {
        let mut old = edited(&NewValue::new(Body::string(b"start")), &[start]);
        for edits in versions {
            let new = edited(&old, &edits);
            let record = record_of(Some(&old), &new);
            prop_assert!(same(&replay(&record, Some(&old)), &new));
            prop_assert!(same(&replay(&record_of(None, &new), None), &new));
            if is_small(new.view(version(1))) && is_small(old.view(version(1))) {
                prop_assert!(record.len() <= SMALL_RECORD_BYTES_MAX);
            }
            old = new;
        }
    }

    #[test]
    fn broken_records_are_errors(
        edits in vec(edit(), 0..5),
        breaks in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let old = edited(&NewValue::new(Body::string(b"start")), &edits);
        let new = edited(&old, &[Edit::Set(3, 9, 9), Edit::Write(2, 2, 2)]);
        let mut bytes = record_of(Some(&old), &new);
        fuzz(&bytes[..cut.index(bytes.len() + 1)]);
        for (at, byte) in breaks {
            let at = at.index(bytes.len());
            bytes[at] ^= byte;
        }
        fuzz(&bytes);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        fuzz(&bytes);
        for kind in [PUT, CHANGE, REMOVE, MAPPING] {
            let mut record = vec![kind, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1, 1, b'k'];
            record.extend_from_slice(&bytes);
            fuzz(&record);
        }
    }
}

#[test]
fn a_change_of_another_type_is_refused() {
    let mut draft = HashDraft::new(None);
    for number in 0..100 {
        draft.set(&field(number), b"value");
    }
    let old = NewValue::new(draft.finish());
    let new = edited(&old, &[Edit::Set(5, 3, 3)]);
    let bytes = record_of(Some(&old), &new);
    let Ok(Record::Change { change, .. }) = take(&mut Input(&bytes)) else {
        panic!("a change")
    };
    let text = NewValue::new(Body::from(Chunked::from_bytes(&vec![1; 20_000])));
    assert!(change.apply(text.view(version(1))).is_err());
}
