//! A self-driven clock: removed keys free their memory without maintenance.

use super::*;

fn figures(engine: &Mercury) -> HashMap<&'static str, i64> {
    let mut all = HashMap::new();
    engine.gauges(&mut |gauge| {
        all.insert(gauge.name, gauge.value as i64);
    });
    all
}

#[test]
fn removals_leave_nothing_though_nobody_moves_the_horizon() {
    const KEYS: u64 = 40_000;
    let clock = Arc::new(EpochClock::self_driven());
    let options = Options {
        pages: Pages::Small,
        ..Options::default()
    };
    let Ok(engine) = Mercury::open(clock, options);
    let tree = engine.create_tree();
    let mut session = engine.session().unwrap();
    let mut versions: HashMap<u64, ValueVersion> = HashMap::new();
    let mut newer = |number: u64, version: ValueVersion| {
        let last = versions.insert(number, version);
        assert!(last.is_none_or(|last| last < version), "E2: {number}");
    };
    for round in 0..3 {
        for number in 0..KEYS {
            newer(number, put(&mut session, tree, &key(number), number));
            if number % 5 == round {
                let removed = remove(&mut session, tree, &key(number));
                newer(number, removed.expect("it was there"));
                assert_eq!(get(&mut session, tree, &key(number)), None);
                newer(number, put(&mut session, tree, &key(number), number));
            }
        }
        let full = figures(&engine)["live_bytes"];
        for number in 0..KEYS {
            let removed = remove(&mut session, tree, &key(number));
            newer(number, removed.expect("it was there"));
            assert_eq!(remove(&mut session, tree, &key(number)), None);
        }
        let left = figures(&engine);
        assert_eq!((left["keys"], left["tombstones"]), (0, 0), "{left:?}");
        assert!(left["live_bytes"] < full / 16, "{left:?}");
    }
}
