//! Planted faults, and the interleaving in which each one shows: what a delayed reader must not
//! believe is shown to be refused, and believed once the fault is planted.

use pando_block::BlockRef;

use super::*;
use crate::canary::Fault;
use crate::counters::Counters;
use crate::find::{Found, find_border, look};
use crate::node::Guard;
use crate::slice::{CODE_SUFFIX, Cursor};

/// Runs `check` with a reader's pin on a fresh engine, its tree and a writer's session.
fn with_reader(
    check: impl FnOnce(&Masstree, &EpochClock, TreeId, &mut MasstreeSession, Guard<'_>),
) {
    let (clock, engine) = engine();
    let tree = engine.create_tree();
    let mut writer = engine.session().unwrap();
    let mut reader = engine.session().unwrap();
    reader.pin();
    // SAFETY: `reader` stays pinned until after `check` has returned.
    let guard = unsafe { Guard::new() };
    check(&engine, &clock, tree, &mut writer, guard);
    reader.unpin();
}

/// What a reader that was delayed between finding a key's slot and reading it believes the key to
/// be, when the key was removed and another one took the slot meanwhile.
fn reused_slot(fault: Option<Fault>) -> Option<Vec<u8>> {
    let mut believed = None;
    with_reader(|engine, clock, id, writer, guard| {
        let tree = engine.directory.get(id.0, guard).unwrap();
        if let Some(fault) = fault {
            tree.canary.plant(fault);
        }
        put(writer, id, b"first", b"first");
        let cursor = Cursor::new(b"first");
        let counters = Counters::default();
        let reached = find_border(tree.root(guard), cursor.slice(), &counters).unwrap();
        let permutation = reached.border.permutation();
        let position = reached
            .border
            .search(permutation, cursor.slice(), cursor.rank());
        let slot = permutation.slot(position.unwrap());
        remove(writer, id, b"first");
        purge(clock, writer);
        put(writer, id, b"other", b"other");
        if let Some((_, Found::Value(block))) =
            reached.border.read_slot(slot, reached.version, guard)
        {
            believed = block.value().map(bytes_of);
        }
    });
    believed
}

#[test]
fn a_reused_slot_is_noticed_and_a_missing_mark_is_caught() {
    assert_eq!(reused_slot(None), None, "M7");
    assert_eq!(
        reused_slot(Some(Fault::ReuseWithoutMark)).unwrap(),
        b"other",
        "the fault shows"
    );
}

/// What a reader sees of a value that it has found, when another as long is written meanwhile by a
/// session that keeps others out if it can.
fn overwritten(fault: Option<Fault>) -> Vec<u8> {
    let mut seen = Vec::new();
    with_reader(|engine, _, id, writer, guard| {
        let tree = engine.directory.get(id.0, guard).unwrap();
        if let Some(fault) = fault {
            tree.canary.plant(fault);
        }
        put(writer, id, b"key", b"first");
        let found = crate::get::get(tree, b"key", guard, &Counters::default());
        let block = found.unwrap();
        writer.pin();
        assert!(!writer.keep_out(), "another one is pinned");
        put(writer, id, b"key", b"other");
        writer.let_in();
        writer.unpin();
        seen = block.value().map(bytes_of).unwrap();
    });
    seen
}

#[test]
fn what_a_reader_has_found_is_not_overwritten() {
    assert_eq!(overwritten(None), b"first", "M8 changed-alone");
    let fault = Fault::OverwrittenBeside;
    assert_eq!(overwritten(Some(fault)), b"other", "the fault shows");
}

/// Whether a reader that was delayed between finding a key's node and searching it believes the key
/// to be absent, when the node has split meanwhile.
fn lost_by_split(fault: Option<Fault>) -> bool {
    let mut lost = false;
    with_reader(|engine, _, id, writer, guard| {
        let tree = engine.directory.get(id.0, guard).unwrap();
        if let Some(fault) = fault {
            tree.canary.plant(fault);
        }
        let key = |number: u8| [b'k', number * 10];
        // One full node before, so that the one that splits is no root, which loses its root bit.
        for number in 0..15 {
            put(writer, id, &[b'a', number], b"value");
        }
        for number in 0..15 {
            put(writer, id, &key(number), b"value");
        }
        let wanted = key(14);
        let cursor = Cursor::new(&wanted);
        let counters = Counters::default();
        let reached = find_border(tree.root(guard), cursor.slice(), &counters).unwrap();
        put(writer, id, &[b'k', 1], b"value");
        let read = reached
            .border
            .read(cursor.slice(), cursor.rank(), reached.version, guard);
        lost = matches!(read, Some(Found::Absent));
        assert!(get(writer, id, &wanted).is_some());
    });
    lost
}

#[test]
fn a_split_is_noticed_and_a_missing_mark_is_caught() {
    assert!(!lost_by_split(None), "a delayed reader retries");
    assert!(
        lost_by_split(Some(Fault::SplitWithoutMark)),
        "the fault shows"
    );
}

/// Whether a pinned reader's block is still whole after it was replaced.
fn replaced_block_is_whole(fault: Option<Fault>) -> bool {
    let mut whole = false;
    with_reader(|engine, _, id, writer, guard| {
        let tree = engine.directory.get(id.0, guard).unwrap();
        put(writer, id, b"key", b"old");
        let counters = Counters::default();
        let block: BlockRef<'_> = crate::get::get(tree, b"key", guard, &counters).unwrap();
        if let Some(fault) = fault {
            tree.canary.plant(fault);
        }
        put(writer, id, b"key", b"new");
        let read = std::panic::catch_unwind(|| block.value().map(bytes_of));
        whole = read.is_ok_and(|value| value.as_deref() == Some(b"old"));
    });
    whole
}

#[test]
fn a_pinned_reader_keeps_its_block_and_an_early_free_is_caught() {
    assert!(replaced_block_is_whole(None), "M1");
    assert!(
        !replaced_block_is_whole(Some(Fault::FreeEarly)),
        "poison is noticed"
    );
}

#[test]
fn an_entry_that_turns_into_a_layer_is_not_read_as_its_old_value() {
    with_reader(|engine, _, id, writer, guard| {
        let tree = engine.directory.get(id.0, guard).unwrap();
        put(writer, id, b"01234567AB", b"one");
        let counters = Counters::default();
        let slice = Cursor::new(b"01234567").slice();
        let reached = find_border(tree.root(guard), slice, &counters).unwrap();
        let before = reached.version;
        put(writer, id, b"01234567XY", b"two");
        // No version has changed (§4.6.3), and yet the entry is read as what it is.
        let read = reached.border.read(slice, CODE_SUFFIX, before, guard);
        assert!(matches!(read, Some(Found::Layer(_))));
        assert_eq!(get(writer, id, b"01234567AB").unwrap(), b"one");
    });
}

/// Whether a key that came after a warming pass had not found it is read.
fn new_key_is_recalled(fault: Option<Fault>) -> bool {
    let (_, engine) = engine();
    let id = engine.create_tree();
    let (mut writer, mut reader) = (engine.session().unwrap(), engine.session().unwrap());
    put(&mut writer, id, b"other", b"value");
    reader.pin();
    if let Some(fault) = fault {
        // SAFETY: `reader` stays pinned until after the guard's last use.
        let guard = unsafe { Guard::new() };
        let tree = engine.directory.get(id.0, guard).unwrap();
        tree.canary.plant(fault);
    }
    reader.warm(&[Key::new(id, b"new")]);
    put(&mut writer, id, b"new", b"value");
    reader.recall(0);
    let found = get(&mut reader, id, b"new").is_some();
    reader.unpin();
    found
}

#[test]
fn what_was_warmed_is_looked_at_again_and_a_missing_look_is_caught() {
    assert!(new_key_is_recalled(None), "the node has changed");
    assert!(
        !new_key_is_recalled(Some(Fault::RecallUnchecked)),
        "the fault shows"
    );
}

/// Loads one layer in batches, as a pipeline of writes does; whether its link then leads to its
/// root, so that no later descent climbs.
fn link_after_batches(fault: Option<Fault>) -> bool {
    let mut current = false;
    with_reader(|engine, _, id, writer, guard| {
        let tree = engine.directory.get(id.0, guard).unwrap();
        if let Some(fault) = fault {
            tree.canary.plant(fault);
        }
        let names: Vec<_> = (0..5_000).map(|n| format!("pipeline{n:08}")).collect();
        let named = |name: &'static str| Key::new(id, name.as_bytes());
        let keys: Vec<_> = names
            .iter()
            .map(|name| Key::new(id, name.as_bytes()))
            .collect();
        let mut load = |keys: &[Key<'_>]| {
            writer.update_many(keys, &mut NoHook, |_, _| {
                Decision::Write(NewValue::new(Body::string(b"value")))
            });
        };
        load(&keys);
        // The last of them may have split the root.
        load(&[named("pipeline00000007")]);
        let (counters, cursor) = (Counters::default(), Cursor::new(b"pipeline00000007"));
        let (_, found) = look(tree.root(guard), cursor, guard, &counters).unwrap();
        let Found::Layer(link) = found else {
            panic!("all keys share a slice");
        };
        let slice = cursor.deeper().slice();
        current = find_border(link, slice, &counters).unwrap().root == link;
    });
    current
}

#[test]
fn batches_bring_a_layer_s_link_up_to_date_and_a_link_that_is_left_is_caught() {
    assert!(link_after_batches(None), "no descent climbs");
    assert!(!link_after_batches(Some(Fault::OutgrownLinkKept)));
}
