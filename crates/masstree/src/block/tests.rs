//! Blocks of every form, as they are written and read.

use pando_engine::LogEpoch;
use pando_memory::pool::{Arena, Pages};

use super::*;

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
            deadline: None,
        },
        Attributes {
            flags: 0,
            encoding: 1,
            deadline: Some(Deadline(1)),
        },
    ];
    for attributes in all {
        for suffix_bytes in [0, 1, 2, 64, 255, 256, 5000, 60_000] {
            for body_bytes in [0, 1, 8, 4096, 16_384, 70_000] {
                let key = vec![b'k'; suffix_bytes];
                let bytes = vec![b'v'; body_bytes];
                let new = NewValue::new(Body::Bytes(&bytes)).with(attributes);
                let suffix = Suffix::store(&mut pool, &key);
                let block = BlockRef::build(&mut pool, guard, version(), suffix, Some(new));
                assert_eq!(block.suffix(), key);
                let value = block.value().unwrap();
                assert_eq!((value.version, value.attributes), (version(), attributes));
                let BodyRef::String(string) = value.body else {
                    panic!("a string")
                };
                assert_eq!(string.as_flat(), Some(&bytes[..]));
                // SAFETY: nobody else knows the block.
                unsafe { reclaim_block::<false, false>(block.0, &mut pool) };
            }
        }
    }
    assert_eq!(arena.usage().live_blocks, 0);
}

#[test]
fn a_plain_value_pays_for_nothing_else() {
    assert_eq!(Shape::new(Kind::Bytes as u32, 2, 8).bytes(), 22);
}

#[test]
fn a_rebuilt_block_takes_a_large_body_over() {
    let arena = Arena::new(Pages::Small);
    let mut pool = arena.pool();
    // SAFETY: every block of this test is reclaimed at its end.
    let guard = unsafe { Guard::new() };
    let bytes = vec![b'v'; 100_000];
    let new = NewValue::new(Body::string(&bytes));
    let suffix = Suffix::store(&mut pool, &[b'k'; 300]);
    let old = BlockRef::build(&mut pool, guard, version(), suffix, Some(new));
    let suffix = Suffix::store(&mut pool, &[b'k'; 5]);
    let block = old.rebuild(&mut pool, suffix);
    // SAFETY: nobody else knows the block, whose body the new one holds.
    unsafe { reclaim_block::<true, false>(old.0, &mut pool) };
    let BodyRef::String(string) = block.value().unwrap().body else {
        panic!("a string")
    };
    assert!(string == &bytes[..]);
    assert_eq!(block.suffix(), b"kkkkk");
    // SAFETY: as above.
    unsafe { reclaim_block::<false, false>(block.0, &mut pool) };
    assert_eq!(arena.usage().live_blocks, 0);
}

#[test]
fn a_tombstone_has_a_version_and_a_suffix_only() {
    let arena = Arena::new(Pages::Small);
    let mut pool = arena.pool();
    // SAFETY: the block is not used after it is reclaimed.
    let guard = unsafe { Guard::new() };
    let block = BlockRef::build(&mut pool, guard, version(), Suffix::Inline(b"x"), None);
    assert!(block.is_tombstone() && block.value().is_none());
    assert_eq!((block.suffix(), block.bytes()), (&b"x"[..], 13));
    // SAFETY: nobody else knows the block.
    unsafe { reclaim_block::<false, false>(block.0, &mut pool) };
}
