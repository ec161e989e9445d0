//! Trees of particular shapes.

use super::*;
use pando_engine::Restore;

#[test]
fn ten_keys_of_one_slice_stay_in_one_border_node() {
    let (_, engine) = engine();
    let mut session = engine.session().unwrap();
    let tree = engine.create_tree();
    // Padded with zeros, all of these have the same slice.
    let keys: Vec<Vec<u8>> = (0..=9).map(|length| vec![0; length]).collect();
    for key in &keys {
        put(&mut session, tree, key, key);
    }
    for other in 1..200_u8 {
        put(&mut session, tree, &[other], b"x");
        put(&mut session, tree, &[0, 0, 0, 0, 0, 0, 0, other], b"y");
    }
    for key in &keys {
        assert_eq!(get(&mut session, tree, key).as_ref(), Some(key));
    }
    let first = scan(&mut session, tree, Bound::Unbounded, Direction::Forward, 10);
    let first: Vec<_> = first.into_iter().map(|(key, _)| key).collect();
    assert_eq!(first, keys, "shortest first");
}

#[test]
fn an_eight_byte_key_is_told_from_its_seven_bytes_and_a_zero() {
    let (_, engine) = engine();
    let mut session = engine.session().unwrap();
    let tree = engine.create_tree();
    put(&mut session, tree, b"ABCDEFG", b"seven");
    put(&mut session, tree, b"ABCDEFG\0", b"eight");
    assert_eq!(get(&mut session, tree, b"ABCDEFG").unwrap(), b"seven");
    assert_eq!(get(&mut session, tree, b"ABCDEFG\0").unwrap(), b"eight");
}

#[test]
fn sequential_inserts_fill_nodes_at_either_edge() {
    for descending in [false, true] {
        let (_, engine) = engine();
        let mut session = engine.session().unwrap();
        let tree = engine.create_tree();
        for number in 0..30_000_u32 {
            let number = if descending {
                u32::MAX - number
            } else {
                number
            };
            put(&mut session, tree, &number.to_be_bytes(), b"value");
        }
        let figures = gauges(&engine);
        let full = 30_000 / 15 + 1;
        assert!(figures["border_nodes"] <= full, "{figures:?}");
        assert!(figures["interior_nodes"] <= full / 13, "{figures:?}");
    }
}

/// Runs that are restored in turns by several sessions, each between others, fill their nodes; what
/// is put between them afterwards finds its place.
#[test]
fn restored_runs_fill_nodes_wherever_they_lie() {
    const RUNS: u32 = 40;
    const RUN_KEYS: u32 = 1_500;
    // In one layer, and below a common prefix in a deeper one.
    for prefix in [&b""[..], b"a prefix of more than two slices"] {
        let key = |number: u32| [prefix, &(number * 2).to_be_bytes()].concat();
        let (_, engine) = engine();
        let tree = engine.create_tree();
        let mut sessions: Vec<_> = (0..2).map(|_| engine.session().unwrap()).collect();
        let mut restore = |session: usize, number: u32| {
            let (key, version) = (key(number), ValueVersion::from_bits(1));
            let value = NewValue::new(Body::string(&key));
            assert!(sessions[session].restore(Key::new(tree, &key), version, Some(value)));
        };
        for pair in (0..RUNS).step_by(2) {
            // Not in the order of the runs.
            let (one, other) = (pair * 7 % RUNS, (pair + 1) * 7 % RUNS);
            for at in 0..RUN_KEYS {
                restore(0, one * RUN_KEYS + at);
                restore(1, other * RUN_KEYS + at);
            }
        }
        let figures = gauges(&engine);
        // A run begins and ends within a node, and may cut another's last one.
        let most = i64::from(RUNS * RUN_KEYS / 15 + RUNS * 2 + 1);
        assert!(figures["border_nodes"] <= most as _, "{figures:?}");
        let mut session = engine.session().unwrap();
        for number in (0..RUNS * RUN_KEYS).step_by(11) {
            let mut between = key(number);
            *between.last_mut().expect("it is not empty") += 1;
            put(&mut session, tree, &between, &between);
        }
        let found = scan(
            &mut session,
            tree,
            Bound::Unbounded,
            Direction::Forward,
            usize::MAX,
        );
        assert_eq!(
            found.len() as u32,
            RUNS * RUN_KEYS + (RUNS * RUN_KEYS).div_ceil(11)
        );
        assert!(found.iter().all(|(key, value)| key == value));
        assert!(found.is_sorted());
        for (key, _) in found.iter().step_by(7) {
            assert_eq!(get(&mut session, tree, key).as_ref(), Some(key));
        }
    }
}

#[test]
fn long_common_prefixes_make_chains_of_layers_and_removal_folds_them() {
    let (clock, engine) = engine();
    let mut session = engine.session().unwrap();
    let tree = engine.create_tree();
    let prefix = vec![b'x'; 1000];
    let keys: Vec<Vec<u8>> = (0..3_u8)
        .map(|tail| [&prefix[..], &[tail; 300]].concat())
        .collect();
    for key in &keys {
        put(&mut session, tree, key, b"value");
    }
    assert_eq!(gauges(&engine)["layers"], 125);
    for key in &keys[1..] {
        remove(&mut session, tree, key);
    }
    purge(&clock, &mut session);
    let figures = gauges(&engine);
    assert_eq!((figures["layers"], figures["layer_folds_total"]), (0, 125));
    assert_eq!(get(&mut session, tree, &keys[0]).unwrap(), b"value");
    assert_eq!(get(&mut session, tree, &keys[1]), None);
    put(&mut session, tree, &keys[1], b"again");
    assert_eq!(gauges(&engine)["layers"], 125);
}

#[test]
fn keys_of_64_kib_and_values_of_megabytes_are_ordinary() {
    let (clock, engine) = engine();
    let mut session = engine.session().unwrap();
    let tree = engine.create_tree();
    let mut keys = vec![vec![7; 65_536]; 3];
    keys[1][65_535] = 8;
    keys[2][300] = 8;
    let value = vec![9; 3 << 20];
    for key in &keys {
        put(&mut session, tree, key, &value);
        // A second version takes the long suffix over.
        put(&mut session, tree, key, &value);
    }
    for key in &keys {
        assert!(get(&mut session, tree, key).unwrap() == value);
    }
    for direction in [Direction::Forward, Direction::Backward] {
        let mut seen: Vec<_> = scan(&mut session, tree, Bound::Unbounded, direction, 9)
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        if direction == Direction::Backward {
            seen.reverse();
        }
        assert!(seen == keys);
    }
    for key in &keys {
        remove(&mut session, tree, key);
    }
    purge(&clock, &mut session);
    assert_eq!(gauges(&engine)["entries"], 0);
}

#[test]
fn a_freed_first_slot_is_reused_and_the_lower_bound_stays() {
    let (clock, engine) = engine();
    let mut session = engine.session().unwrap();
    let tree = engine.create_tree();
    let key = |number: u32| (number * 10).to_be_bytes();
    for number in 0..64 {
        put(&mut session, tree, &key(number), b"value");
    }
    // Empty most of every node but its last keys, then fill the gaps with other slices.
    for number in (0..64).filter(|number| number % 8 != 7) {
        remove(&mut session, tree, &key(number));
    }
    purge(&clock, &mut session);
    for number in 0..640_u32 {
        put(&mut session, tree, &number.to_be_bytes(), b"other");
    }
    for number in 0..640_u32 {
        assert!(
            get(&mut session, tree, &number.to_be_bytes()).is_some(),
            "{number}"
        );
    }
    assert_eq!(
        scan(
            &mut session,
            tree,
            Bound::Unbounded,
            Direction::Backward,
            999
        )
        .len(),
        640
    );
}

#[test]
fn nodes_emptied_in_any_order_leave_the_tree() {
    for order in 0..4 {
        let (clock, engine) = engine();
        let mut session = engine.session().unwrap();
        let tree = engine.create_tree();
        let mut numbers: Vec<u32> = (0..5_000).collect();
        for number in &numbers {
            put(&mut session, tree, &number.to_be_bytes(), b"value");
        }
        match order {
            0 => {}
            1 => numbers.reverse(),
            2 => fastrand::Rng::with_seed(7).shuffle(&mut numbers),
            // From the middle of the tree outwards: first children go before their siblings.
            _ => numbers.sort_by_key(|number| number.abs_diff(2_500)),
        }
        for (index, number) in numbers.iter().enumerate() {
            remove(&mut session, tree, &number.to_be_bytes());
            if index % 100 == 0 {
                purge(&clock, &mut session);
                let left = numbers.len() - index - 1;
                let seen = scan(
                    &mut session,
                    tree,
                    Bound::Unbounded,
                    Direction::Forward,
                    9_999,
                );
                assert_eq!(seen.len(), left, "order {order}");
                // Inserts find their way past every moved separator.
                put(&mut session, tree, &number.to_be_bytes(), b"again");
                assert!(get(&mut session, tree, &number.to_be_bytes()).is_some());
                remove(&mut session, tree, &number.to_be_bytes());
            }
        }
        purge(&clock, &mut session);
        let figures = gauges(&engine);
        assert_eq!(
            (figures["border_nodes"], figures["entries"]),
            (1, 0),
            "order {order}"
        );
    }
}

#[test]
fn a_dropped_tree_reads_empty_and_gives_its_memory_back() {
    let (_, engine) = engine();
    let mut session = engine.session().unwrap();
    let (tree, other) = (engine.create_tree(), engine.create_tree());
    put(&mut session, other, b"kept", b"value");
    for number in 0..2_000_u32 {
        put(
            &mut session,
            tree,
            format!("common prefix {number}").as_bytes(),
            &[7; 100],
        );
    }
    engine.drop_tree(tree);
    assert_eq!(get(&mut session, tree, b"common prefix 7"), None);
    assert!(
        session
            .update(Key::new(tree, b"x"), &mut NoHook, |_| Decision::Remove)
            .is_none()
    );
    assert_eq!(engine.len(tree), 0);
    while session.maintain(16) > 0 {}
    let figures = gauges(&engine);
    assert_eq!(
        (
            figures["entries"],
            figures["border_nodes"],
            figures["layers"]
        ),
        (1, 1, 0)
    );
    assert_eq!(get(&mut session, other, b"kept").unwrap(), b"value");
}

#[test]
fn retired_bytes_wait_for_a_stalled_reader_and_pressure_says_so() {
    let clock = Arc::new(EpochClock::starting_at(LogEpoch(1)));
    let options = Options {
        pages: Pages::Small,
        retired_bytes_max: 1 << 20,
        ..Options::default()
    };
    let Ok(engine) = Masstree::open(clock, options);
    let (mut reader, mut writer) = (engine.session().unwrap(), engine.session().unwrap());
    let tree = engine.create_tree();
    reader.pin();
    let mut seen = vec![engine.pressure()];
    for _ in 0..200 {
        put(&mut writer, tree, b"key", &[7; 10_000]);
        seen.push(engine.pressure());
    }
    seen.dedup();
    assert_eq!(seen, [Pressure::None, Pressure::Slow, Pressure::Refuse]);
    assert!(get(&mut reader, tree, b"key").is_some(), "reads go on");
    reader.unpin();
    writer.maintain(1);
    assert_eq!(engine.pressure(), Pressure::None);
    assert_eq!(gauges(&engine)["retired_bytes"], 0);
}

#[test]
fn a_long_key_is_counted_when_it_is_retired() {
    let (clock, engine) = engine();
    let (mut reader, mut writer) = (engine.session().unwrap(), engine.session().unwrap());
    let tree = engine.create_tree();
    let key = vec![b'k'; 60_000];
    put(&mut writer, tree, &key, b"value");
    reader.pin();
    remove(&mut writer, tree, &key);
    let removed = gauges(&engine)["retired_bytes"];
    assert!(removed < 1000, "{removed}: the tombstone has the key");
    clock.tick();
    clock.set_horizon(clock.current());
    writer.maintain(10);
    let purged = gauges(&engine)["retired_bytes"];
    assert!(purged > 59_000, "{purged}");
    reader.unpin();
    writer.maintain(10);
    assert_eq!(gauges(&engine)["retired_bytes"], 0);
}

#[test]
fn what_versions_of_a_large_value_hold_alone_is_counted_as_retired() {
    let (_, engine) = engine();
    let (mut reader, mut writer) = (engine.session().unwrap(), engine.session().unwrap());
    let tree = engine.create_tree();
    let key = Key::new(tree, b"large");
    let large = Chunked::from_bytes(&vec![1; 4 << 20]);
    let whole = large.heap_bytes() as i64;
    writer.update(key, &mut NoHook, |_| {
        Decision::Write(NewValue::new(Body::from(large.hand_over())))
    });
    drop(large);
    reader.pin();
    for offset in [0, 1 << 20, 2 << 20] {
        writer.update(key, &mut NoHook, |old| {
            let Some(BodyRef::String(StringRef::Chunked(old))) = old.map(|old| old.body) else {
                panic!("a large string was put");
            };
            Decision::Write(NewValue::new(Body::from(old.with_write(offset, b"x"))))
        });
    }
    let changed = gauges(&engine)["retired_bytes"];
    assert!(
        changed > 3 * 1024 && changed < whole / 4,
        "{changed} of {whole}: paths only"
    );
    remove(&mut writer, tree, b"large");
    let all = gauges(&engine)["retired_bytes"];
    assert!(
        all >= whole + changed && all < whole + changed + 1024,
        "{all}"
    );
    reader.unpin();
    purge(&engine.clock, &mut writer);
    assert_eq!(gauges(&engine)["retired_bytes"], 0);
}

#[test]
fn the_depth_of_batches_is_counted() {
    let (_, engine) = engine();
    let mut session = engine.session().unwrap();
    let tree = engine.create_tree();
    for keys in [1, 2, 3, 8, 16, 17, 32, 33] {
        session.get_many(&vec![Key::new(tree, b"key"); keys], |_, _| ());
    }
    let figures = gauges(&engine);
    let names = [
        "batches_up_to_2_total",
        "batches_up_to_8_total",
        "batches_up_to_16_total",
    ];
    // 33 keys are a batch of 32 and one of 1.
    assert_eq!(names.map(|name| figures[name]), [3, 5, 6]);
    assert_eq!(
        (figures["batches_total"], figures["batch_keys_total"]),
        (9, 112)
    );
}

/// A caller bounds its work by what it is shown, and a sweep by what it passes.
#[test]
fn what_was_removed_is_shown_to_who_asks_for_it() {
    let (clock, engine) = engine();
    let tree = engine.create_tree();
    let mut session = engine.session().unwrap();
    let mut random = fastrand::Rng::with_seed(5);
    let mut keys = BTreeMap::new();
    for _ in 0..2000 {
        let key = super::oracle::random_key(&mut random);
        put(&mut session, tree, &key, b"v");
        keys.insert(key, true);
    }
    for (key, there) in &mut keys {
        if random.u8(..4) > 0 {
            remove(&mut session, tree, key);
            *there = false;
        }
    }
    for direction in [Direction::Forward, Direction::Backward] {
        let mut expected: Vec<_> = keys
            .iter()
            .map(|(key, there)| (key.clone(), *there))
            .collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        // A portion at a time, each from behind the last one shown, removed or not.
        let mut seen: Vec<(Vec<u8>, bool)> = Vec::new();
        loop {
            let before = seen.len();
            let last = seen.last().map(|(key, _)| key.clone());
            let from = last.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            session.scan_all(tree, from, direction, |key, value| {
                seen.push((key.to_vec(), value.is_some()));
                if seen.len() == before + 7 {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
            if seen.len() == before {
                break;
            }
        }
        assert!(seen == expected, "{direction:?}");
    }
    let (mut hand, mut calls, mut swept) = (Hand::default(), 1, 0);
    while !session.sweep(tree, &mut hand, 10, |_, _| swept += 1) {
        calls += 1;
    }
    let there = keys.values().filter(|there| **there).count();
    assert_eq!((calls, swept), (keys.len() / 10 + 1, there));
    purge(&clock, &mut session);
    let mut left = 0;
    session.scan_all(tree, Bound::Unbounded, Direction::Forward, |_, _| {
        left += 1;
        ControlFlow::Continue(())
    });
    assert_eq!(left, there);
}

/// A sample among nothing but tombstones gives up, however many there are.
#[test]
fn a_sample_passes_a_bounded_number_of_tombstones() {
    let (_clock, engine) = engine();
    let tree = engine.create_tree();
    let mut session = engine.session().unwrap();
    for number in 0..4000_u32 {
        put(&mut session, tree, &number.to_be_bytes(), b"v");
    }
    for number in 0..3999_u32 {
        remove(&mut session, tree, &number.to_be_bytes());
    }
    let mut random = fastrand::Rng::with_seed(3);
    let given_up = (0..200)
        .filter(|_| session.sample(tree, random.u64(..), |found| found.is_none()))
        .count();
    assert!(given_up > 100, "{given_up} of 200");
}
