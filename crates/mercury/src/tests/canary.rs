//! Planted faults, and the interleaving in which each one shows: what a delayed operation must not
//! believe is shown to be refused, and believed once the fault is planted.

use pando_sync::epoch::Guard;

use super::*;
use crate::bucket::Tag;
use crate::canary::Fault;
use crate::context::Length;
use crate::resize::{advance, move_bucket};

/// A tree of [`KEYS`] keys whose table has just begun to grow, with its sessions.
struct Half {
    clock: Arc<EpochClock>,
    engine: Arc<Mercury>,
    tree: TreeId,
    session: MercurySession,
    keys: u64,
}

impl Half {
    fn new(fault: Option<Fault>) -> Self {
        let (clock, engine) = engine();
        let (tree, mut session) = (engine.create_tree(), engine.session().unwrap());
        let mut keys = 0;
        while gauges(&engine)["resizing_tables"] < 1.0 || keys < 300 {
            put(&mut session, tree, &key(keys), keys);
            keys += 1;
        }
        if let Some(fault) = fault {
            engine.directory.find(tree.0).unwrap().canary.plant(fault);
        }
        Self {
            clock,
            engine,
            tree,
            session,
            keys,
        }
    }

    /// Moves the bucket of `name`, and no more: the counter of moved buckets does not tell yet.
    fn move_bucket_of(&self, name: &[u8]) {
        let mut context = self.engine.context().unwrap();
        context.pinned(|guard, context| {
            let tree = self.engine.directory.get(self.tree.0, guard).unwrap();
            let table = tree.table(guard);
            let next = table.next(guard).expect("it grows");
            let index = self.engine.hash(name) as usize & table.mask();
            assert!(index >= table.moved());
            move_bucket(&self.engine, tree, (table, index), next, guard, context);
        });
        self.engine.close(&context);
    }

    /// A key whose bucket has not moved.
    fn unmoved(&self) -> Vec<u8> {
        let mut context = self.engine.context().unwrap();
        let found = context.pinned(|guard, _| {
            let tree = self.engine.directory.get(self.tree.0, guard).unwrap();
            let table = tree.table(guard);
            // Not of the last bucket: hashes are keyed at random, and it may be empty.
            let bucket = |name: &Vec<u8>| self.engine.hash(name) as usize & table.mask();
            let last = (0..self.keys).map(key).max_by_key(bucket);
            last.expect("some key is there")
        });
        self.engine.close(&context);
        found
    }
}

/// What a key holds that was written after its bucket had moved.
fn written_after_the_move(fault: Option<Fault>) -> Option<u64> {
    let mut half = Half::new(None);
    let name = half.unmoved();
    half.move_bucket_of(&name);
    if let Some(fault) = fault {
        half.engine
            .directory
            .find(half.tree.0)
            .unwrap()
            .canary
            .plant(fault);
    }
    put(&mut half.session, half.tree, &name, 99_999);
    let found = get(&mut half.session, half.tree, &name);
    // The broken tree is not to be freed twice over.
    if fault.is_some() {
        std::mem::forget(half);
    }
    found
}

#[test]
fn a_moved_bucket_is_noticed_and_a_missing_check_is_caught() {
    assert_eq!(written_after_the_move(None), Some(99_999), "HR2");
    assert_ne!(
        written_after_the_move(Some(Fault::IgnoreMoved)),
        Some(99_999)
    );
    assert_ne!(
        written_after_the_move(Some(Fault::ReadWithoutCheck)),
        Some(99_999)
    );
}

/// Whether a reader that was delayed between finding an entry and reading it finds it whole after
/// the key was written.
fn delayed_reader(fault: Option<Fault>) -> bool {
    let mut half = Half::new(fault);
    let name = half.unmoved();
    let mut reader = half.engine.session().unwrap();
    reader.pin();
    // SAFETY: `reader` stays pinned until the entry has been read.
    let guard = unsafe { Guard::new() };
    let tree = half.engine.directory.get(half.tree.0, guard).unwrap();
    let (_, bucket) = crate::find::locate(tree, half.engine.hash(&name), guard);
    let tag = Tag::of_hash(half.engine.hash(&name));
    let found = bucket.find(tag, &name, true, Length::default(), guard);
    let crate::bucket::Found::Entry(entry) = found else {
        panic!("the key is there");
    };
    put(&mut half.session, half.tree, &name, 5);
    let whole = std::panic::catch_unwind(|| entry.key_part() == name).unwrap_or(false);
    reader.unpin();
    whole
}

#[test]
fn a_replaced_entry_stays_whole_and_an_early_free_is_caught() {
    assert!(delayed_reader(None), "VB1");
    assert!(!delayed_reader(Some(Fault::FreeEarly)));
}

/// Keys that a walk misses although they were there throughout, when the table shrinks between its
/// steps, or grows.
fn missed_by_a_walk_across(grows: bool, fault: Option<Fault>) -> usize {
    let mut half = Half::new(fault);
    settle(&half.clock, &mut half.session);
    let (mut seen, mut cursor, mut steps) = (BTreeSet::new(), 0, 0);
    // Every tenth key stays.
    loop {
        cursor = half.session.walk(half.tree, cursor, |key, _| {
            seen.insert(key.to_vec());
        });
        if cursor == 0 {
            break;
        }
        steps += 1;
        if steps == 20 {
            for number in (0..half.keys * 10).filter(|number| number % 10 != 0) {
                if grows {
                    put(&mut half.session, half.tree, &key(number), number);
                } else if number < half.keys {
                    remove(&mut half.session, half.tree, &key(number));
                }
            }
            settle(&half.clock, &mut half.session);
        }
    }
    let stayed = (0..half.keys).step_by(10);
    stayed
        .filter(|number| !seen.contains(&key(*number)))
        .count()
}

#[test]
fn a_walk_goes_on_across_resizes_and_a_plain_cursor_is_caught() {
    for grows in [true, false] {
        assert_eq!(missed_by_a_walk_across(grows, None), 0, "HW1");
    }
    // Hashes are keyed at random: now and then every key that stays lies where even that finds it.
    let is_caught = |_| missed_by_a_walk_across(false, Some(Fault::PlainCursor)) > 0;
    assert!((0..10).any(is_caught));
}

/// Keys that a walk misses which were added to buckets that had moved.
fn missed_by_a_walk_half_way(fault: Option<Fault>) -> usize {
    let mut half = Half::new(fault);
    let mut context = half.engine.context().unwrap();
    context.pinned(|guard, context| {
        let tree = half.engine.directory.get(half.tree.0, guard).unwrap();
        advance(&half.engine, tree, 16, guard, context);
    });
    // Which keys are of buckets that have moved depends on the hashes, which are keyed at random.
    let added = context.pinned(|guard, _| {
        let tree = half.engine.directory.get(half.tree.0, guard).unwrap();
        let table = tree.table(guard);
        let bucket = |number: &u64| half.engine.hash(&key(*number)) as usize & table.mask();
        let of_moved = (half.keys..).filter(|number| bucket(number) < table.moved());
        of_moved.take(8).collect::<Vec<_>>()
    });
    half.engine.close(&context);
    drop(context);
    for number in &added {
        put(&mut half.session, half.tree, &key(*number), *number);
    }
    assert!(
        gauges(&half.engine)["resizing_tables"] > 0.0,
        "it still grows"
    );
    let seen = walked(&mut half.session, half.tree);
    (0..half.keys)
        .chain(added)
        .filter(|number| !seen.contains(&key(*number)))
        .count()
}

#[test]
fn a_walk_follows_moved_buckets_and_a_missing_check_is_caught() {
    assert_eq!(missed_by_a_walk_half_way(None), 0, "HW2");
    assert!(missed_by_a_walk_half_way(Some(Fault::WalkWithoutMoved)) > 0);
}
