//! Hashes through drafts: forms, and equality with a sorted map.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::{BodyRef, HashBody};

fn hash_of<'b>(body: &'b Body<'_>) -> HashRef<'b> {
    match body.as_ref() {
        BodyRef::Row(_, hash) => hash,
        BodyRef::String(_) => panic!("a string"),
    }
}

fn draft_of(fields: usize, value: &[u8]) -> HashDraft<'static> {
    let mut draft = HashDraft::new(None);
    for field in 0..fields {
        assert!(draft.set(format!("field{field}").as_bytes(), value));
    }
    draft
}

#[test]
fn a_hash_is_packed_up_to_the_bound_and_again_below_half_of_it() {
    // A field takes 4 bytes of offsets, 6 or 7 of name and 20 of value.
    let body = draft_of(130, &[7; 20]).finish();
    let Body::Row(_, HashBody::Packed(row)) = &body else {
        panic!("{body:?}")
    };
    assert!(row.as_bytes().len() <= PACKED_ROW_BYTES_MAX);

    let body = draft_of(140, &[7; 20]).finish();
    assert!(matches!(body, Body::Row(_, HashBody::Wide(_))), "{body:?}");
    let mut draft = HashDraft::new(Some(hash_of(&body)));
    for field in 70..140 {
        assert!(draft.remove(format!("field{field}").as_bytes()));
    }
    let body = draft.finish();
    assert!(
        matches!(body, Body::Row(_, HashBody::Wide(_))),
        "just above half: {body:?}"
    );
    let mut draft = HashDraft::new(Some(hash_of(&body)));
    for field in 60..70 {
        assert!(draft.remove(format!("field{field}").as_bytes()));
    }
    let body = draft.finish();
    assert!(
        matches!(body, Body::Row(_, HashBody::Packed(_))),
        "{body:?}"
    );
    assert_eq!(hash_of(&body).len(), 60);
}

proptest! {
    /// In any order, with names that come twice, over nothing and over what is there, packed and
    /// too long for it.
    #[test]
    fn fields_that_are_set_together_are_those_that_are_set_one_by_one(
        before in vec((0_u8..30, 0..20_usize), 0..4),
        fields in vec((any::<u8>(), 0..60_usize, any::<u8>()), 0..120),
        in_order in any::<bool>(),
    ) {
        let mut fields: Vec<_> = fields
            .iter()
            .map(|(name, length, byte)| (format!("{name}").into_bytes(), vec![*byte; *length]))
            .collect();
        if in_order {
            fields.sort();
        }
        let fields: Vec<_> = fields.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        let start = || {
            let mut draft = HashDraft::new(None);
            for (name, length) in &before {
                draft.set(format!("{name}").as_bytes(), &vec![b'b'; *length]);
            }
            draft
        };
        let (mut together, mut singly) = (start(), start());
        let new = fields.iter().filter(|(field, value)| singly.set(field, value)).count();
        prop_assert_eq!(together.set_all(&fields), new);
        let bytes = |draft: HashDraft<'_>| match draft.finish() {
            Body::Row(_, HashBody::Packed(row)) => row.as_bytes().to_vec(),
            Body::Row(_, HashBody::Wide(row)) => {
                let row = HashRef::Wide(&row);
                let flat = |(name, value): (&[u8], StringRef<'_>)| {
                    [name, b"=", value.as_flat().expect("a short one")].concat()
                };
                row.iter().flat_map(flat).collect()
            }
            Body::String(_) => panic!("a string"),
        };
        prop_assert_eq!(bytes(together), bytes(singly));
    }
}

#[test]
fn a_chunked_column_makes_a_hash_wide_as_long_as_it_stays() {
    let mut draft = draft_of(2, b"small");
    draft.set(b"large", &vec![1; COLUMN_FLAT_BYTES_MAX + 1]);
    let body = draft.finish();
    assert!(matches!(body, Body::Row(_, HashBody::Wide(_))));
    let value = hash_of(&body).get(b"large").unwrap();
    assert!(matches!(value, StringRef::Chunked(_)));

    // APPEND to a column: its chunks are shared with the version before.
    let mut draft = HashDraft::new(Some(hash_of(&body)));
    assert!(!draft.set_body(b"large", value.with_write(value.len(), b"more")));
    assert_eq!(
        draft.get(b"large").unwrap().len(),
        COLUMN_FLAT_BYTES_MAX + 5
    );
    assert!(!draft.set_body(b"field0", StringBody::owned(b"owned".to_vec())));
    assert!(draft.get(b"field0").unwrap() == &b"owned"[..]);
    assert!(!draft.set(b"large", b"small"));
    assert!(matches!(draft.finish(), Body::Row(_, HashBody::Packed(_))));
}

#[test]
fn the_first_change_of_a_small_hash_copies_it_and_the_others_do_not() {
    let body = draft_of(10, &[7; 100]).finish();
    let HashRef::Packed(old) = hash_of(&body) else {
        panic!("a small hash")
    };
    let block = |draft: &HashDraft<'_>| match draft.as_ref() {
        HashRef::Packed(block) => block.as_ptr(),
        HashRef::Wide(_) => panic!("a small hash"),
    };
    let mut draft = HashDraft::new(Some(HashRef::Packed(old)));
    assert!(!draft.remove(b"absent"));
    assert_eq!(block(&draft), old.as_ptr(), "nothing has changed");
    draft.set(b"field3", &[8; 100]);
    let copy = block(&draft);
    assert_ne!(copy, old.as_ptr());
    draft.set(b"field9", &[9; 100]);
    draft.set(b"field0", &[9; 50]);
    draft.remove(b"field1");
    assert_eq!(block(&draft), copy, "changed in place");
    let Body::Row(_, HashBody::Packed(new)) = draft.finish() else {
        panic!("a small hash")
    };
    assert_eq!(new.as_bytes().as_ptr(), copy, "handed over");
}

#[test]
fn a_draft_that_empties_is_empty() {
    let mut draft = draft_of(1, b"value");
    assert!(draft.remove(b"field0") && draft.is_empty());
    let mut draft = HashDraft::new(None);
    draft.set(b"large", &[1; 5_000]);
    assert!(!draft.remove(b"other") && draft.remove(b"large") && draft.is_empty());
    assert_eq!(draft.as_ref().iter().count(), 0);
}

fn field() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(0..3_u8, 0..4), vec(any::<u8>(), 0..30)]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![20 => 0..40_usize, 4 => 0..900_usize, 1 => 0..20_000_usize];
    (length, any::<u8>()).prop_map(|(length, byte)| vec![byte; length])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A history of commands, each of several changes to the version before.
    #[test]
    fn hashes_are_sorted_maps(
        commands in vec(vec((field(), prop::option::weighted(0.6, value())), 1..12), 1..30),
        rank in 0..100_usize,
    ) {
        let mut model = BTreeMap::new();
        let mut current = HashDraft::new(None).finish();
        let mut versions = Vec::new();
        for changes in commands {
            let mut draft = HashDraft::new(Some(hash_of(&current)));
            for (field, change) in changes {
                if let Some(value) = change {
                    prop_assert_eq!(draft.set(&field, &value), !model.contains_key(&field));
                    model.insert(field, value);
                } else {
                    prop_assert_eq!(draft.remove(&field), model.remove(&field).is_some());
                }
                prop_assert_eq!(draft.len(), model.len());
            }
            current = draft.finish();
            versions.push((hash_of(&current).hand_over(), model.clone()));
        }
        for (body, model) in &versions {
            let hash = body.as_ref();
            prop_assert_eq!(hash.len(), model.len());
            prop_assert!(same(hash.iter(), model.iter()), "every version stays");
            let copy = hash.to_body();
            prop_assert!(same(copy.as_ref().iter(), model.iter()));
            prop_assert!(same(hash.iter_from_rank(rank), model.iter().skip(rank)));
            let (found, expected) = (hash.nth(rank), model.iter().nth(rank));
            prop_assert_eq!(found.map(|(field, _)| field), expected.map(|(field, _)| &field[..]));
            let mut skipped = hash.iter();
            skipped.nth(rank);
            prop_assert!(same(skipped, model.iter().skip(rank + 1)));
        }
        let hash = hash_of(&current);
        for start in model.keys().chain([&vec![1, 1], &vec![], &vec![0xff; 40]]) {
            let expected = model.range::<Vec<u8>, _>(start..);
            prop_assert!(same(hash.iter_from(start), expected));
            let value = hash.get(start).map(StringRef::to_cow);
            prop_assert_eq!(value.as_deref(), model.get(start).map(|value| &value[..]));
            let mut near = rank;
            for _ in 0..2 {
                let value = hash.get_near(start, &mut near).map(StringRef::to_cow);
                prop_assert_eq!(value.as_deref(), model.get(start).map(|value| &value[..]));
            }
        }
        let packed = match hash {
            HashRef::Packed(block) => block.len(),
            HashRef::Wide(_) => {
                let mut whole = HashDraft::new(None);
                for (field, value) in &model {
                    whole.set(field, value);
                }
                match whole.finish() {
                    Body::Row(_, HashBody::Packed(row)) => row.as_bytes().len(),
                    _ => PACKED_ROW_BYTES_MAX,
                }
            }
        };
        let wide = matches!(hash, HashRef::Wide(_));
        prop_assert!(!wide || packed > PACKED_ROW_BYTES_MAX / 2, "{packed} bytes are wide (D1)");
    }
}

fn same<'m>(
    found: HashIter<'_>,
    expected: impl Iterator<Item = (&'m Vec<u8>, &'m Vec<u8>)>,
) -> bool {
    let expected: Vec<_> = expected.collect();
    found.len() == expected.len()
        && found
            .zip(expected)
            .all(|(found, (field, value))| found.0 == field && found.1 == value.as_slice())
}
