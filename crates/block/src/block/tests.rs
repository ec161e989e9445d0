//! Blocks of every form, as they are written and read.

use pando_engine::{Body, HashDraft, LogEpoch, NewValue};
use pando_memory::pool::{Arena, Pages};

use super::*;
use crate::key::INLINE_BYTES_MAX;

fn version() -> ValueVersion {
    ValueVersion::first_of(LogEpoch(7))
}

#[test]
fn every_combination_of_parts_reads_back_and_is_given_back() {
    let arena = Arena::new(Pages::Small);
    let mut pool = arena.pool();
    // SAFETY: every block of this test is reclaimed at the end of its turn.
    let guard = unsafe { Guard::new() };
    let all = [
        Attributes::default(),
        Attributes {
            deadline: Some(Deadline(99)),
            ..Attributes::default()
        },
        Attributes {
            flags: 5,
            encoding: 3,
            ..Attributes::default()
        },
        Attributes {
            flags: 5,
            ..Attributes::default()
        },
        Attributes {
            token: NonZero::new(u64::MAX),
            ..Attributes::default()
        },
        Attributes {
            flags: 5,
            encoding: 255,
            token: NonZero::new(1),
            deadline: Some(Deadline(u64::MAX)),
        },
        Attributes {
            flags: 0,
            encoding: 1,
            token: None,
            deadline: Some(Deadline(1)),
        },
    ];
    for attributes in all {
        for key_bytes in [0, 1, 2, 64, 255, 256, 5000, 60_000] {
            for body_bytes in [0, 1, 8, 4096, 16_384, 70_000] {
                let key = vec![b'k'; key_bytes];
                let bytes = vec![b'v'; body_bytes];
                let new = NewValue::new(Body::string(&bytes)).with(attributes);
                let key_part = KeyPart::store(&mut pool, &key);
                let block = BlockRef::build(&mut pool, guard, version(), key_part, Some(new));
                assert_eq!(block.key_part(), key);
                let value = block.value().unwrap();
                assert_eq!((value.version, value.attributes), (version(), attributes));
                let BodyRef::String(string) = value.body else {
                    panic!("a string")
                };
                assert!(string == &bytes[..]);
                // SAFETY: nobody else knows the block.
                unsafe { Keep::NOTHING.reclaimer()(block.0, &mut pool) };
            }
        }
    }
    assert_eq!(arena.usage().live_blocks, 0);
}

#[test]
fn a_small_hash_reads_back_with_options_and_without() {
    let arena = Arena::new(Pages::Small);
    let mut pool = arena.pool();
    // SAFETY: every block of this test is reclaimed at the end of its turn.
    let guard = unsafe { Guard::new() };
    let with_deadline = Attributes {
        deadline: Some(Deadline(99)),
        ..Attributes::default()
    };
    for (attributes, value_bytes) in [
        (Attributes::default(), 5),
        (Attributes::default(), 4090),
        (with_deadline, 5),
    ] {
        let mut draft = HashDraft::new(None);
        draft.set(b"f", &vec![b'v'; value_bytes]);
        let new = NewValue::new(draft.finish()).with(attributes);
        let key_part = KeyPart::inline(b"key");
        let block = BlockRef::build(&mut pool, guard, version(), key_part, Some(new));
        assert_eq!(
            block.is_short(),
            attributes == Attributes::default() && value_bytes == 5
        );
        assert!(block.has_key_part(b"key") && block.plain_parts().is_none());
        let value = block.value().unwrap();
        assert_eq!((value.version, value.attributes), (version(), attributes));
        let BodyRef::Row(_, hash) = value.body else {
            panic!("a hash")
        };
        let column = hash.get(b"f").and_then(StringRef::as_flat);
        assert_eq!(column, Some(&vec![b'v'; value_bytes][..]));
        // SAFETY: nobody else knows the block.
        unsafe { Keep::NOTHING.reclaimer()(block.0, &mut pool) };
    }
    assert_eq!(arena.usage().live_blocks, 0);
}

#[test]
fn a_plain_value_pays_for_nothing_else() {
    assert_eq!(Shape::new(Form::Flat as u32, 0, 2, 8).bytes(), 22);
}

#[test]
fn a_rebuilt_block_takes_a_large_body_over() {
    let arena = Arena::new(Pages::Small);
    let mut pool = arena.pool();
    // SAFETY: every block of this test is reclaimed at its end.
    let guard = unsafe { Guard::new() };
    let bytes = vec![b'v'; 100_000];
    let new = NewValue::new(Body::string(&bytes));
    let key_part = KeyPart::store(&mut pool, &[b'k'; 300]);
    let old = BlockRef::build(&mut pool, guard, version(), key_part, Some(new));
    let key_part = KeyPart::store(&mut pool, &[b'k'; 5]);
    let block = old.rebuild(&mut pool, key_part);
    let keep = Keep {
        body: true,
        key: false,
    };
    // SAFETY: nobody else knows the block, whose body the new one holds.
    unsafe { keep.reclaimer()(old.0, &mut pool) };
    let BodyRef::String(string) = block.value().unwrap().body else {
        panic!("a string")
    };
    assert!(string == &bytes[..]);
    assert_eq!(block.key_part(), b"kkkkk");
    // SAFETY: as above.
    unsafe { Keep::NOTHING.reclaimer()(block.0, &mut pool) };
    assert_eq!(arena.usage().live_blocks, 0);
}

#[test]
fn a_tombstone_has_a_version_and_a_key_part_only() {
    let arena = Arena::new(Pages::Small);
    let mut pool = arena.pool();
    // SAFETY: the block is not used after it is reclaimed.
    let guard = unsafe { Guard::new() };
    let block = BlockRef::build(&mut pool, guard, version(), KeyPart::inline(b"x"), None);
    assert!(block.is_tombstone() && block.value().is_none());
    assert_eq!((block.key_part(), block.bytes()), (&b"x"[..], 13));
    // SAFETY: nobody else knows the block.
    unsafe { Keep::NOTHING.reclaimer()(block.0, &mut pool) };
}

#[test]
fn a_successor_takes_over_an_external_key_part() {
    let arena = Arena::new(Pages::Small);
    let mut pool = arena.pool();
    // SAFETY: the blocks are not used after they are reclaimed.
    let guard = unsafe { Guard::new() };
    for key_bytes in [3, INLINE_BYTES_MAX, INLINE_BYTES_MAX + 1, 5000] {
        let key = vec![b'k'; key_bytes];
        let stored = KeyPart::store(&mut pool, &key);
        let old = BlockRef::build(&mut pool, guard, version(), stored, None);
        let handed = old.hand_over_key_part();
        let next = BlockRef::build(&mut pool, guard, version(), handed, None);
        assert_eq!(handed.is_external(), key_bytes > INLINE_BYTES_MAX);
        let keep = Keep {
            body: false,
            key: handed.is_external(),
        };
        // SAFETY: nobody else knows the block, whose key part the new one holds.
        unsafe { keep.reclaimer()(old.0, &mut pool) };
        assert!(next.key_part() == key && next.has_key_part(&key));
        // SAFETY: nobody else knows the block.
        unsafe { Keep::NOTHING.reclaimer()(next.0, &mut pool) };
    }
    assert_eq!(arena.usage().live_blocks, 0);
}

#[test]
fn keys_of_every_short_length_are_compared_to_their_last_byte() {
    let arena = Arena::new(Pages::Small);
    let mut pool = arena.pool();
    // SAFETY: every block is reclaimed at the end of its turn.
    let guard = unsafe { Guard::new() };
    for key_bytes in 0..40 {
        let key: Vec<u8> = (0..key_bytes).collect();
        let new = NewValue::new(Body::string(b"value"));
        let part = KeyPart::inline(&key);
        let block = BlockRef::build(&mut pool, guard, version(), part, Some(new));
        assert!(block.has_key_part(&key));
        assert!(!block.has_key_part(&[&key[..], b"x"].concat()));
        for index in 0..key.len() {
            let mut other = key.clone();
            other[index] ^= 1;
            assert!(!block.has_key_part(&other), "byte {index} of {key_bytes}");
        }
        // SAFETY: nobody else knows the block.
        unsafe { Keep::NOTHING.reclaimer()(block.0, &mut pool) };
    }
}

/// Columns of one byte to a thousand, and of each length the first, a middle and the last one.
#[test]
fn an_amended_hash_reads_as_a_changed_one() {
    let arena = Arena::new(Pages::Small);
    let mut pool = arena.pool();
    // SAFETY: every block of this test is reclaimed at the end of its turn.
    let guard = unsafe { Guard::new() };
    for bytes in [0, 1, 20, 255, 256, 257, 1000] {
        for changed in 0..3 {
            let row = |value: u8| {
                let mut draft = HashDraft::new(None);
                for (column, name) in [b"a", b"b", b"c"].into_iter().enumerate() {
                    let value = if column == changed { value } else { b'0' };
                    draft.set(name, &vec![value; bytes]);
                }
                NewValue::new(draft.finish())
            };
            let key = KeyPart::inline(b"key");
            let old = BlockRef::build(&mut pool, guard, version(), key, Some(row(b'0')));
            let BodyRef::Row(_, hash) = old.value().unwrap().body else {
                panic!("a hash")
            };
            let value = vec![b'1'; bytes];
            let amendment = hash.amend(&[b'a' + changed as u8], &value).unwrap();
            let (next, shown) = old.amend(&mut pool, version(), &amendment);
            assert!(next.has_key_part(b"key"));
            for value in [shown, next.value().unwrap()] {
                let is_row = matches!(
                    (value.body, row(b'1').body.as_ref()),
                    (
                        BodyRef::Row(RowTag::Hash, HashRef::Packed(row)),
                        BodyRef::Row(RowTag::Hash, HashRef::Packed(expected)),
                    ) if row == expected
                );
                assert!(is_row, "{bytes} bytes, column {changed}");
            }
            for block in [old, next] {
                // SAFETY: nobody else knows the blocks.
                unsafe { Keep::NOTHING.reclaimer()(block.0, &mut pool) };
            }
        }
    }
    assert_eq!(arena.usage().live_blocks, 0);
}
