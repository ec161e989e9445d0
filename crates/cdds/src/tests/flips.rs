//! Bits that flip: what is damaged is named, by whoever reads it or by the visit after a crash, and
//! shown to nobody.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use pando_pmem::{Offset, Pmem, Pool, PoolError, Simulated};

use super::{create, open};
use crate::canary::{self, Fault};
use crate::node::{View, bytes_of};
use crate::shared::Look;
use crate::tree::{Error, Tree};
use crate::{Direction, Table};

fn key(number: u32) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

/// A tree of some levels, each of whose pairs has its key as value.
fn grown(keys: u32) -> Tree<Simulated> {
    let mut tree = create(Simulated::new(1 << 18));
    for number in 0..keys {
        tree.put(&key(number), &key(number)).unwrap();
        tree.commit().unwrap();
    }
    tree
}

/// The same words but for one bit of the byte at `at`, or of one behind it.
fn flipped(words: &[u64], at: Offset, bit: u64) -> Simulated {
    let mut words = words.to_vec();
    let bit = 8 * at.get() + bit;
    words[(bit / 64) as usize] ^= 1 << (bit % 64);
    Simulated::from(words)
}

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn contents(tree: &Tree<Simulated>, direction: Direction) -> Result<Map, Error> {
    let mut map = Map::new();
    tree.scan(Bound::Unbounded, direction, |key, value| {
        map.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    })?;
    Ok(map)
}

fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::DamagedNode { .. } | Error::Damaged { .. })
}

/// Whichever bit of a record flips: its key is refused by name, or is as it was.
#[test]
fn a_record_with_a_flipped_bit_is_named_and_not_shown() {
    let mut tree = create(Simulated::new(1 << 17));
    for number in 0..20 {
        tree.put(format!("key {number}").as_bytes(), b"a value")
            .unwrap();
    }
    tree.commit().unwrap();
    let record = tree.record_of(b"key 7", tree.present()).unwrap().unwrap();
    let (at, value) = (record.at_offset(), record.value().to_vec());
    let words = tree.pool.memory().words();
    let mut refused = 0;
    // Behind its 24 bytes nothing is its.
    for bit in 0..8 * 24 {
        match open(flipped(&words, at, bit)).get(b"key 7") {
            Ok(found) => assert_eq!(found, Some(&value[..]), "bit {bit}"),
            Err(Error::Damaged { at: named }) => {
                assert_eq!(named, at);
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    // All but the mark, and what no field has.
    assert_eq!(
        refused,
        8 * 24 - 17,
        "every bit of lengths, checksum, key and value"
    );
}

/// Whichever bit of a node flips: the visit after a crash names the node, or what there is stays as
/// it was.
fn visit_flipped(fault: Option<Fault>) {
    canary::plant(fault);
    let mut tree = grown(60);
    // It is lost, and gives the visit a reason.
    tree.put(b"lost", b"in the crash").unwrap();
    let root = tree.root_node(tree.present()).expect("a root");
    let child = root.sorted(tree.present())[1].entry.child;
    let (slots, words) = (tree.slots, tree.pool.memory().words());
    let found = |tree: &Tree<Simulated>| contents(tree, Direction::Forward);
    let before = found(&open(Simulated::from(words.clone()))).unwrap();
    let mut named = 0;
    for at in [root.at, child] {
        for bit in 0..8 * bytes_of(tree.node(at).level, slots) {
            let mut tree = open(flipped(&words, at, bit));
            let visited = loop {
                match tree.clean(1) {
                    Ok(true) if tree.pool.voids().is_empty() => break Ok(()),
                    Ok(true) => drop(tree.commit().unwrap()),
                    Ok(false) => break Ok(()),
                    Err(error) => break Err(error),
                }
            };
            match visited {
                Ok(()) => assert_eq!(found(&tree).unwrap(), before, "bit {bit} of {at}"),
                Err(Error::DamagedNode { at: place }) => {
                    assert!(place == at || at == child && place == root.at, "{place}");
                    named += 1;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(named > 2000, "{named} are named");
    canary::plant(None);
}

#[test]
fn a_node_with_a_flipped_bit_is_named_by_the_visit_after_a_crash() {
    visit_flipped(None);
}

#[test]
#[should_panic(expected = "bit")]
fn a_visit_that_asks_for_no_checksum_is_noticed() {
    visit_flipped(Some(Fault::SealUnasked));
}

/// Whichever bit of a key's slot flips: its reader is told, and so is whoever scans, puts, or
/// copies the leaf. Nobody takes the slot.
#[test]
fn a_slot_with_a_flipped_bit_is_named_and_used_by_nobody() {
    let tree = grown(60);
    let own = key(7);
    let leaf = tree.shared.leaf_of(&own, Look::ALONE, |_| ());
    let leaf = leaf.unwrap().expect("it has a leaf");
    let found = leaf.find(&own, tree.present()).expect("it is there");
    let (leaf, slot, words) = (
        leaf.at,
        leaf.slot_at(found.slot),
        tree.pool.memory().words(),
    );
    for bit in 0..8 * 32 {
        let mut tree = open(flipped(&words, slot, bit));
        let named = |result: Result<(), Error>, who: &str| match result {
            Err(Error::DamagedNode { at }) => assert_eq!(at, leaf, "{who}, bit {bit}"),
            other => panic!("{who}, bit {bit}: {other:?}"),
        };
        for direction in [Direction::Forward, Direction::Backward] {
            named(contents(&tree, direction).map(drop), "a scan");
        }
        named(tree.get(&own).map(drop), "a reader");
        named(tree.put(&own, b"new"), "a writer");
        named(tree.remove(&own).map(drop), "who removes");
        // Sooner or later they need its slot, or split its leaf.
        let refused = (0..40).find_map(|number| {
            let put = tree.put(format!("key 7{number}").as_bytes(), b"other");
            tree.commit().unwrap();
            put.err()
        });
        named(refused.map_or(Ok(()), Err), "a split");
        let word = tree.pool.memory().load(slot.plus(bit / 64 * 8));
        let untouched = Simulated::from(words.clone());
        let was = untouched.load(slot.plus(bit / 64 * 8));
        assert_eq!(word, was ^ 1 << (bit % 64), "the slot was used");
    }
}

/// Whichever bit of a node flips, whoever reads finds what a key has had, or nothing, or an error
/// that names a place: what cannot be a node is not followed.
#[test]
fn a_node_with_a_flipped_bit_leads_nobody_astray() {
    let tree = grown(60);
    let root = tree.root_node(tree.present()).expect("a root");
    let child = root.sorted(tree.present())[1].entry.child;
    let places = [tree.shared.anchor, root.at, child];
    let (words, slots) = (tree.pool.memory().words(), tree.slots);
    let is_own = |key: &[u8], value: &[u8]| assert_eq!(key, value);
    let mut refused = 0;
    for bit in places
        .iter()
        .flat_map(|at| (0..8 * bytes_of(1, slots)).map(|bit| at.get() * 8 + bit))
    {
        let mut tree = open(flipped(&words, Offset::new(0), bit));
        let mut reader = tree.reader().expect("few readers");
        let mut judge = |result: Result<(), Error>| {
            refused += u32::from(result.is_err_and(|error| {
                assert!(is_refusal(&error), "{error}");
                true
            }));
        };
        for number in 0..60 {
            let key = key(number);
            let shown = |value: Option<&[u8]>| value.map_or((), |value| is_own(&key, value));
            // The second time by frames.
            judge(reader.get(&key, shown));
            judge(reader.get(&key, shown));
        }
        for direction in [Direction::Forward, Direction::Backward] {
            judge(tree.scan(Bound::Unbounded, direction, |key, value| {
                is_own(key, value);
                ControlFlow::Continue(())
            }));
        }
        judge(tree.pick(View::PRESENT, (b"", b"z"), bit).map(drop));
        judge(tree.cuts((b"", b"z"), 4).map(drop));
        judge(tree.put(b"key 7", b"key 7"));
        judge(tree.remove(b"key 8").map(drop));
    }
    assert!(refused > 1000, "{refused} are refused");
}

/// Whichever bit of the words that lead to a tree flips: it is not opened, and the word is named.
#[test]
fn a_root_with_a_flipped_bit_is_named() {
    let mut tree = grown(3);
    let kept = tree.retain().unwrap();
    let (words, pool) = (tree.pool.memory().words(), &tree.pool);
    for word in [0, 1, 4] {
        for bit in 0..64 {
            let memory = flipped(&words, pool.root(word), bit);
            let pool = Pool::open(memory, pool.shape().node_bytes).unwrap();
            let named = pool.root(if word == 1 { 0 } else { word });
            match Tree::open(Arc::new(pool)) {
                Err(Error::Pool(PoolError::Damaged { at, .. })) => assert_eq!(at, named),
                other => panic!("word {word}, bit {bit}: {other:?}"),
            }
        }
    }
    let tree = open(Simulated::from(words));
    assert_eq!(tree.snapshots().collect::<Vec<_>>(), [kept]);
}

/// A table whose directory has several pages, each of whose pairs has its key as value.
fn grown_table() -> Table<Simulated> {
    let memory = Simulated::new(1 << 20);
    let pool = Pool::create(memory, Table::<Simulated>::shape()).unwrap();
    let mut table = Table::open(Arc::new(pool)).unwrap();
    for number in 0..400 {
        table.put(&key(number), &key(number)).unwrap();
    }
    table.commit().unwrap();
    table
}

fn open_table(memory: Simulated) -> Result<Table<Simulated>, Error> {
    let node_bytes = Table::<Simulated>::shape().node_bytes;
    Table::open(Arc::new(Pool::open(memory, node_bytes).unwrap()))
}

/// Whichever bit of a bucket's slot flips: who looks for its key is told, and so is who shows all.
#[test]
fn a_bucket_with_a_flipped_bit_is_named() {
    let table = grown_table();
    let slot = table.slot_of(&key(7)).expect("it is there");
    let words = table.pool().memory().words();
    for bit in 0..8 * 32 {
        let mut table = open_table(flipped(&words, slot, bit)).unwrap();
        let own = key(7);
        let results = [
            table.get(&own).map(drop),
            table.for_each(None, |_, _| ()),
            table.put(&own, b"new"),
            table.remove(&own).map(drop),
        ];
        for result in results {
            let is_named = matches!(result, Err(Error::DamagedNode { .. }));
            assert!(is_named, "bit {bit}: {result:?}");
        }
    }
}

/// Whichever bit of the directory's pairs flips, those of arrays, pages and buckets: what it leads
/// to is refused by name, and all else is as it was.
fn look_beyond_flipped_pairs(fault: Option<Fault>) {
    canary::plant(fault);
    let table = grown_table();
    let (pairs, words) = (table.pairs(), table.pool().memory().words());
    assert!(pairs.len() > 20, "arrays, pages and buckets");
    for (pair, bit) in { pairs.iter() }.flat_map(|pair| (0..128).map(move |bit| (*pair, bit))) {
        let is_named = |error: &Error| matches!(error, Error::DamagedNode { at } if *at == pair);
        let mut table = match open_table(flipped(&words, pair, bit)) {
            Ok(table) => table,
            Err(error) => {
                assert!(is_named(&error), "bit {bit} of {pair}: {error}");
                continue;
            }
        };
        let mut named = 0;
        let mut judge = |result: Result<bool, Error>| match result {
            Ok(is_so) => assert!(is_so, "bit {bit} of {pair}: another answer"),
            Err(error) => {
                assert!(is_named(&error), "bit {bit} of {pair}: {error}");
                named += 1;
            }
        };
        for key in (0..400).step_by(3).map(key) {
            judge(table.get(&key).map(|value| value == Some(&key[..])));
        }
        let mut shown = 0;
        let all = table.for_each(None, |_, _| shown += 1);
        judge(all.map(|()| shown == 400));
        judge(table.remove(&key(1)));
        assert!(named > 0, "bit {bit} of {pair} is not found");
    }
    canary::plant(None);
}

#[test]
fn a_directory_with_a_flipped_bit_is_named_and_not_followed() {
    look_beyond_flipped_pairs(None);
}

/// Which look notices it first plays no part.
#[test]
fn a_directory_that_asks_for_no_checksum_is_noticed() {
    let fault = Some(Fault::SealUnasked);
    let noticed = std::panic::catch_unwind(|| look_beyond_flipped_pairs(fault));
    canary::plant(None);
    assert!(noticed.is_err(), "CN5 sealed");
}
