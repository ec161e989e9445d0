//! A self-driven clock: memory comes back though nobody moves a horizon or maintains.

use super::*;

fn key(number: u32) -> Vec<u8> {
    // Some end in the first layer, some share slices.
    match number % 3 {
        0 => number.to_be_bytes().to_vec(),
        1 => format!("{:06}", number / 9)
            .repeat(2 + number as usize % 4)
            .into_bytes(),
        _ => format!("shared slices {number}").into_bytes(),
    }
}

#[test]
fn removals_leave_nothing_though_nobody_moves_the_horizon() {
    const KEYS: u32 = 3_000;
    let (_, engine) = engine_on(EpochClock::self_driven());
    let tree = engine.create_tree();
    let mut session = engine.session().unwrap();
    let mut keys: Vec<_> = (0..KEYS).map(key).collect();
    keys.sort();
    keys.dedup();
    let mut random = fastrand::Rng::with_seed(7);
    let mut versions: HashMap<Vec<u8>, ValueVersion> = HashMap::new();
    let mut newer = |key: &[u8], version: ValueVersion| {
        let last = versions.insert(key.to_vec(), version);
        assert!(last.is_none_or(|last| last < version), "E2: {key:?}");
    };
    for _ in 0..4 {
        random.shuffle(&mut keys);
        for key in &keys {
            newer(key, put(&mut session, tree, key, key));
            if random.u8(..4) == 0 {
                newer(key, remove(&mut session, tree, key).expect("it was there"));
                assert_eq!(get(&mut session, tree, key), None);
                newer(key, put(&mut session, tree, key, b"again"));
            }
        }
        random.shuffle(&mut keys);
        for key in &keys {
            newer(key, remove(&mut session, tree, key).expect("it was there"));
            assert_eq!(remove(&mut session, tree, key), None);
        }
        let left = gauges(&engine);
        for name in ["keys", "tombstones", "entries", "layers", "young_nodes"] {
            assert_eq!(left[name], 0, "{name}: {left:?}");
        }
        assert_eq!(left["border_nodes"], 1, "{left:?}");
        // What the last few removals have retired, and the one node.
        assert!(left["live_bytes"] < 128 << 10, "{left:?}");
    }
}

#[test]
fn a_dropped_tree_goes_while_others_are_written() {
    let (_, engine) = engine_on(EpochClock::self_driven());
    let (dropped, tree) = (engine.create_tree(), engine.create_tree());
    let mut session = engine.session().unwrap();
    for number in 0..5_000 {
        put(&mut session, dropped, &key(number), b"value");
    }
    engine.drop_tree(dropped);
    for number in 0..40_000_u32 {
        put(&mut session, tree, &(number % 64).to_be_bytes(), b"value");
    }
    let left = gauges(&engine);
    assert_eq!((left["dropped_trees"], left["layers"]), (0, 0), "{left:?}");
}

#[test]
fn memory_goes_back_to_the_system_though_nobody_maintains() {
    let (_, engine) = engine_on(EpochClock::self_driven());
    let tree = engine.create_tree();
    let mut session = engine.session().unwrap();
    let mut numbers: Vec<_> = (0..100_000).collect();
    for number in &numbers {
        put(&mut session, tree, &key(*number), b"value of a key");
    }
    let full = gauges(&engine)["mapped_bytes"];
    fastrand::Rng::with_seed(3).shuffle(&mut numbers);
    for number in &numbers {
        remove(&mut session, tree, &key(*number));
    }
    drop(session);
    let left = gauges(&engine)["mapped_bytes"];
    assert!(left <= full / 2 && left <= 4 << 20, "{left} of {full}");
}
