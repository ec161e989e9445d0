//! Tables that grow and shrink, and what is left of them.

use std::cell::Cell;

use super::*;
use crate::bucket::Tagged;
use crate::canary::Fault;

const KEYS: u64 = 20_000;

fn assert_holds(session: &mut MercurySession, tree: TreeId, numbers: std::ops::Range<u64>) {
    for number in numbers {
        assert_eq!(get(session, tree, &key(number)), Some(number), "{number}");
    }
}

#[test]
fn a_table_follows_its_keys_up_and_down() {
    let (clock, engine) = engine();
    let (tree, mut session) = (engine.create_tree(), engine.session().unwrap());
    for number in 0..KEYS {
        put(&mut session, tree, &key(number), number);
    }
    settle(&clock, &mut session);
    assert_holds(&mut session, tree, 0..KEYS);
    let full = gauges(&engine);
    assert!((2.0..=5.5).contains(&full["mean_fill"]), "{full:?}");
    assert!((1.0..=1.2).contains(&full["mean_chain"]), "{full:?}");
    assert!(full["growths_total"] >= 9.0 && full["resizing_tables"] < 1.0);
    for number in 100..KEYS {
        remove(&mut session, tree, &key(number));
    }
    assert_eq!(engine.len(tree), 100);
    settle(&clock, &mut session);
    assert_holds(&mut session, tree, 0..100);
    let empty = gauges(&engine);
    assert!(
        empty["buckets"] <= 64.0 && empty["tombstones"] < 1.0,
        "{empty:?}"
    );
    assert!(empty["shrinks_total"] >= 6.0 && empty["resizing_tables"] < 1.0);
    assert!(empty["table_bytes"] <= 64.0 * 64.0, "old tables are gone");
    assert_eq!(walked(&mut session, tree).len(), 100);
}

/// Shrinking is as eager as growing: whatever is removed, a bucket holds 1.25 entries at least. And
/// neither is done by turns: a table that has just shrunk takes more keys, or loses some, without
/// being resized.
#[test]
fn a_table_is_neither_sparse_for_long_nor_resized_by_turns() {
    let (clock, engine) = engine();
    let (tree, mut session) = (engine.create_tree(), engine.session().unwrap());
    for number in 0..KEYS {
        put(&mut session, tree, &key(number), number);
    }
    settle(&clock, &mut session);
    let resizes = || {
        let figures = gauges(&engine);
        figures["growths_total"] + figures["shrinks_total"]
    };
    let (mut left, mut shrunk) = (KEYS, 0);
    while left > 50 {
        let (before, to) = (resizes(), left * 7 / 8);
        for number in to..left {
            remove(&mut session, tree, &key(number));
        }
        settle(&clock, &mut session);
        let sparse = gauges(&engine)["mean_fill"];
        assert!(sparse >= 1.25, "{to} keys: {sparse} a bucket");
        left = to;
        if resizes() - before < 1.0 {
            continue;
        }
        shrunk += 1;
        let before = resizes();
        for _ in 0..3 {
            for number in left..left + left / 2 {
                put(&mut session, tree, &key(number), number);
            }
            for number in left - left / 4..left + left / 2 {
                remove(&mut session, tree, &key(number));
            }
            settle(&clock, &mut session);
            for number in left - left / 4..left {
                put(&mut session, tree, &key(number), number);
            }
        }
        assert!(resizes() - before < 1.0, "{left} keys");
        assert_holds(&mut session, tree, 0..left);
    }
    assert!(shrunk >= 7, "{shrunk}");
}

/// Keys that go while a table grows leave nobody to shrink it but the resize's end.
#[test]
fn a_table_that_has_lost_its_keys_while_it_grew_shrinks_at_its_end() {
    let (clock, engine) = engine();
    let (tree, mut session) = (engine.create_tree(), engine.session().unwrap());
    let mut number = 0;
    while gauges(&engine)["resizing_tables"] < 1.0 || number < 5_000 {
        put(&mut session, tree, &key(number), number);
        number += 1;
    }
    for number in 0..number {
        remove(&mut session, tree, &key(number));
    }
    settle(&clock, &mut session);
    let empty = gauges(&engine);
    assert!(
        empty["buckets"] as usize <= crate::limits::BUCKETS_MIN,
        "{empty:?}"
    );
}

/// No step of a resize takes long: one insert moves a bounded number of buckets.
#[test]
fn an_insert_moves_a_bounded_number_of_buckets() {
    let (_, engine) = engine();
    let (tree, mut session) = (engine.create_tree(), engine.session().unwrap());
    let mut moved = 0.0;
    for number in 0..5_000 {
        put(&mut session, tree, &key(number), number);
        let now = gauges(&engine)["moves_total"];
        assert!(now - moved <= crate::limits::HELP_BUCKETS as f64);
        moved = now;
    }
    assert!(moved > 500.0);
}

/// Operations of every kind in each state that a resize passes through.
#[test]
fn everything_works_half_way_through_a_resize() {
    let (clock, engine) = engine();
    let (tree, mut session) = (engine.create_tree(), engine.session().unwrap());
    let mut number = 0;
    while gauges(&engine)["resizing_tables"] < 1.0 || number < 2_000 {
        put(&mut session, tree, &key(number), number);
        number += 1;
    }
    let count = number;
    let mut steps = 0;
    loop {
        assert_holds(&mut session, tree, 0..count);
        assert_eq!(walked(&mut session, tree).len() as u64, count);
        let fresh = b"fresh";
        assert_eq!(get(&mut session, tree, fresh), None);
        put(&mut session, tree, fresh, 1);
        put(&mut session, tree, fresh, 2);
        assert_eq!(get(&mut session, tree, fresh), Some(2));
        remove(&mut session, tree, fresh);
        settle_one(&clock, &mut session);
        if gauges(&engine)["resizing_tables"] < 1.0 {
            break;
        }
        steps += 1;
    }
    assert!(steps > 2, "the test saw states between");
}

/// One step of maintenance beside the tombstone of the test.
fn settle_one(clock: &EpochClock, session: &mut MercurySession) {
    clock.set_horizon(clock.tick());
    session.maintain(40);
}

#[test]
fn a_tree_that_is_dropped_while_it_grows_is_freed() {
    let (clock, engine) = engine();
    let mut session = engine.session().unwrap();
    for _ in 0..3 {
        let tree = engine.create_tree();
        let mut number = 0;
        while gauges(&engine)["resizing_tables"] < 1.0 || number < 1_000 {
            put(&mut session, tree, &key(number), number);
            number += 1;
        }
        engine.drop_tree(tree);
        assert_eq!(walked(&mut session, tree).len(), 0);
        settle(&clock, &mut session);
        let left = gauges(&engine);
        let all = [
            "keys",
            "live_bytes",
            "buckets",
            "overflow_lines",
            "dropped_trees",
        ];
        assert!(all.iter().all(|name| left[name] < 1.0), "{left:?}");
    }
}

/// What the header of `entry` says of 8-byte keys and values.
#[test]
fn a_small_entry_takes_a_block_of_32_bytes() {
    let (_, engine) = engine();
    let (tree, mut session) = (engine.create_tree(), engine.session().unwrap());
    for number in 0..1_000_u64 {
        put(&mut session, tree, &number.to_be_bytes(), number);
    }
    let figures = gauges(&engine);
    let entries = figures["live_bytes"] - figures["overflow_lines"] * 64.0;
    // The lines of tables that have moved are retired and still counted.
    assert!((32_000.0..36_000.0).contains(&entries), "{figures:?}");
    let model = engine.line_model(tree);
    assert_eq!(model.keys, 1_000);
    assert!(
        model.bucket_lines < 1.2 && model.entry_lines < 1.01,
        "{model:?}"
    );
}

#[test]
fn a_read_under_the_lock_gives_the_same_answers() {
    let (clock, engine) = engine();
    let (tree, mut session) = (engine.create_tree(), engine.session().unwrap());
    for number in 0..2_000 {
        put(&mut session, tree, &key(number), number);
    }
    for number in (0..2_000).step_by(2) {
        remove(&mut session, tree, &key(number));
    }
    settle(&clock, &mut session);
    for number in 0..2_000 {
        let bytes = key(number);
        let is_there = session.get_locked(Key::new(tree, &bytes), |value| value.is_some());
        assert_eq!(is_there, get(&mut session, tree, &bytes).is_some());
    }
}

/// Slots whose growth bits are not their key's, at the sizes that a table passes through on its way
/// up and down, whether the key was put there or moved there.
fn slots_with_wrong_growth_bits(fault: Option<Fault>) -> usize {
    let (clock, engine) = engine();
    let wrong = Cell::new(0);
    let (tree, mut session) = (engine.create_tree(), engine.session().unwrap());
    let check = || {
        let mut context = engine.context().unwrap();
        let slots = context.pinned(|guard, _| {
            let found = engine.directory.get(tree.0, guard).unwrap();
            let table = found.table(guard);
            let mut slots = 0;
            for index in 0..table.buckets() {
                table.bucket(index).lock(guard).each(|_, tagged| {
                    // SAFETY: the bucket is locked and has not moved (HB1 owner-writes): nothing is
                    // resized.
                    let entry = unsafe { tagged.entry(guard) };
                    let hash = engine.hash(entry.key_part());
                    assert_eq!(hash as usize & table.mask(), index);
                    let right = Tagged::new(hash, table.growth_shift(), entry);
                    wrong.set(wrong.get() + usize::from(tagged != right));
                    slots += 1;
                });
            }
            slots
        });
        engine.close(&context);
        slots
    };
    let mut number = 0;
    while number < KEYS {
        let to = KEYS.min(number * 3 / 2 + 20);
        for number in number..to {
            put(&mut session, tree, &key(number), number);
        }
        number = to;
        settle(&clock, &mut session);
        assert_eq!(check(), number);
    }
    if let Some(fault) = fault {
        engine.directory.find(tree.0).unwrap().canary.plant(fault);
    }
    while number > 10 {
        let to = number / 2;
        for number in to..number {
            remove(&mut session, tree, &key(number));
        }
        number = to;
        settle(&clock, &mut session);
        assert_eq!(check(), number);
    }
    wrong.get()
}

#[test]
fn slots_keep_the_growth_bits_of_their_keys_and_wrong_ones_are_caught() {
    assert_eq!(slots_with_wrong_growth_bits(None), 0, "HR5");
    assert!(slots_with_wrong_growth_bits(Some(Fault::WrongGrowthBits)) > 0);
}

/// A sample among nothing but tombstones gives up, however many there are.
#[test]
fn a_sample_passes_a_bounded_number_of_buckets() {
    let (_clock, engine) = engine();
    let tree = engine.create_tree();
    let mut session = engine.session().unwrap();
    for number in 0..KEYS {
        put(&mut session, tree, &key(number), number);
    }
    for number in 1..KEYS {
        remove(&mut session, tree, &key(number));
    }
    let mut random = fastrand::Rng::with_seed(3);
    let given_up = (0..200)
        .filter(|_| session.sample(tree, random.u64(..), |found| found.is_none()))
        .count();
    assert!(given_up > 100, "{given_up} of 200");
}
