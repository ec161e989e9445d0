//! Random operations on adversarial keys, compared with a `BTreeMap`.

use std::collections::BTreeMap;

use super::*;

/// A key that collides with others in every way that layers and slices distinguish.
pub(super) fn random_key(random: &mut fastrand::Rng) -> Vec<u8> {
    let prefix: usize = [0, 0, 0, 7, 8, 9, 15, 16, 17, 40, 200][random.usize(..11)];
    let mut key = vec![b'p'; prefix];
    if prefix > 0 && random.u8(..4) == 0 {
        let at = random.usize(..prefix);
        key[at] = random.u8(..3);
    }
    for _ in 0..random.usize(..12) {
        key.push([0, 0, 1, b'a', b'b', 0xff][random.usize(..6)]);
    }
    key
}

pub(super) fn compare(
    session: &mut MasstreeSession,
    tree: TreeId,
    map: &BTreeMap<Vec<u8>, Vec<u8>>,
    random: &mut fastrand::Rng,
    seed: u64,
) {
    let key = random_key(random);
    for included in [true, false] {
        let limit = random.usize(1..40);
        let from = if included {
            Bound::Included(&key[..])
        } else {
            Bound::Excluded(&key[..])
        };
        let forward: Vec<_> = map
            .range::<[u8], _>((from, Bound::Unbounded))
            .take(limit)
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let seen = scan(session, tree, from, Direction::Forward, limit);
        assert_eq!(seen, forward, "seed {seed} forward from {key:?}");
        let backward: Vec<_> = map
            .range::<[u8], _>((Bound::Unbounded, from))
            .rev()
            .take(limit)
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let seen = scan(session, tree, from, Direction::Backward, limit);
        assert_eq!(seen, backward, "seed {seed} backward from {key:?}");
    }
}

/// Compares what a batch of random keys shows, in the order of the keys.
fn compare_batch(
    session: &mut MasstreeSession,
    tree: TreeId,
    map: &BTreeMap<Vec<u8>, Vec<u8>>,
    random: &mut fastrand::Rng,
    seed: u64,
) {
    let keys: Vec<_> = (0..100).map(|_| random_key(random)).collect();
    let keys: Vec<_> = keys.iter().map(|key| Key::new(tree, key)).collect();
    let mut seen = 0;
    session.get_many(&keys, |index, value| {
        assert_eq!(index, seen, "in order");
        seen += 1;
        let expected = map.get(keys[index].bytes).cloned();
        assert_eq!(
            value.map(bytes_of),
            expected,
            "seed {seed}: {:?}",
            keys[index]
        );
    });
    assert_eq!(seen, keys.len());
}

fn run(seed: u64, operations: usize) {
    let (clock, engine) = engine();
    let mut session = engine.session().unwrap();
    let tree = engine.create_tree();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut map = BTreeMap::new();
    let mut versions: BTreeMap<Vec<u8>, ValueVersion> = BTreeMap::new();
    for operation in 0..operations {
        // Phases of growth and of decay, so that whole layers come and go.
        let growing = operation / 500 % 2 == 0;
        let key = random_key(&mut random);
        let version = if random.u8(..8) < if growing { 6 } else { 2 } {
            let value = vec![random.u8(..); random.usize(..20)];
            let version = put(&mut session, tree, &key, &value);
            map.insert(key.clone(), value);
            Some(version)
        } else {
            let version = remove(&mut session, tree, &key);
            assert_eq!(version.is_some(), map.remove(&key).is_some(), "seed {seed}");
            version
        };
        if let Some(version) = version {
            let before = versions.insert(key.clone(), version);
            assert!(
                before.is_none_or(|before| before < version),
                "seed {seed}: E2"
            );
        }
        let probe = random_key(&mut random);
        assert_eq!(
            get(&mut session, tree, &probe),
            map.get(&probe).cloned(),
            "seed {seed}"
        );
        if random.u8(..16) == 0 {
            compare(&mut session, tree, &map, &mut random, seed);
        }
        if random.u8(..64) == 0 {
            compare_batch(&mut session, tree, &map, &mut random, seed);
            purge(&clock, &mut session);
        }
    }
    compare_batch(&mut session, tree, &map, &mut random, seed);
    assert_eq!(engine.len(tree), map.len() as u64);
    for _ in 0..100 {
        session.sample(tree, random.u64(..), |found| {
            let found = found.map(|(key, value)| (key.to_vec(), bytes_of(value)));
            let known = found
                .as_ref()
                .map(|(key, _)| map.get_key_value(key).is_some());
            assert_eq!(known, (!map.is_empty()).then_some(true), "seed {seed}");
        });
    }
    for key in map.keys() {
        assert!(remove(&mut session, tree, key).is_some());
    }
    purge(&clock, &mut session);
    let left = gauges(&engine);
    for name in ["keys", "tombstones", "entries", "layers", "young_nodes"] {
        assert_eq!(
            left[name], 0,
            "seed {seed}: {name} after removing everything"
        );
    }
    assert_eq!(left["border_nodes"], 1, "seed {seed}: M5");
    assert_eq!(left["retired_bytes"], 0, "seed {seed}");
}

#[test]
fn random_operations_match_an_ordered_map() {
    for seed in 0..6 {
        run(seed, 2000);
    }
}
