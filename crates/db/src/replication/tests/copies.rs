//! Full copies: when one is taken, and what is shown while it comes.

use super::*;

/// A replica may have no other branch: when the first one becomes what a large merge has built,
/// what follows it takes a full copy, whether it is linked then or comes back later.
#[test]
fn a_large_merge_into_the_first_branch_is_copied() {
    let engines = [EngineKind::Minuet, EngineKind::Masstree];
    let mut pair = Pair::new(shell(engines[0]), shell(engines[1]));
    for key in 0..20 {
        pair.up.line(&format!("SET k{key} base"));
    }
    for is_linked in [true, false] {
        pair.settle().expect("it follows");
        let copies = pair.copies;
        assert_eq!(content(&mut pair.down), content(&mut pair.up));
        let name = format!("trial{is_linked}");
        pair.up.line(&format!("BRANCH CREATE {name}"));
        let mut trial = pair.up.connect();
        trial.line(&format!("BRANCH USE {name}"));
        for key in 0..20 {
            trial.line(&format!("SET k{key} {name}"));
        }
        if !is_linked {
            pair.cut();
        }
        small::set(Some(Bounds {
            keys: 3,
            slice: 4,
            near: 2,
        }));
        let merged = pair.up.line(&format!("BRANCH MERGE {name} INTO MAIN"));
        small::set(None);
        assert_eq!(merged, "*6 $6 merged :20 $9 conflicts :0 $4 keys *0");
        pair.up.check(&[("SET k3 after", "+OK")]);
        pair.settle().expect("it follows");
        assert_eq!(content(&mut pair.down), content(&mut pair.up));
        assert_eq!(pair.copies, copies + 1);
        pair.down
            .check(&[("GET k3", "$5 after"), ("DBSIZE", ":20")]);
    }
}

/// A copy that ends in the middle leaves the old data, and nothing beside it.
#[test]
fn a_copy_that_is_cut_off_leaves_the_old_data() {
    let mut pair = Pair::new(shell(EngineKind::Masstree), shell(EngineKind::Masstree));
    follow(&pair.down, false, Refusal::Nothing);
    pair.down
        .check(&[("SET old 1", "+OK"), ("EXPIRE old 1000", ":1")]);
    follow(&pair.down, true, Refusal::ReadOnly);
    for key in 0..5000 {
        pair.up.line(&format!("SET k{key} {key} EX 1000"));
    }
    for _ in 0..4 {
        assert!(pair.send());
        pair.deliver().expect("it loads");
    }
    assert!(pair.replica.is_loading());
    let shown = |pair: &mut Pair| pair.down.line("KEYS *");
    assert_eq!(shown(&mut pair), "*1 $3 old");
    pair.cut();
    assert_eq!(shown(&mut pair), "*1 $3 old");
    assert_eq!(pair.down.database.summary(0).0, 1);
    pair.down.session.maintain();
    pair.settle().expect("the next copy arrives");
    assert_eq!(content(&mut pair.up), content(&mut pair.down));
    assert_eq!(pair.down.database.expiring_keys(), 5000);
}

/// How far a replica is, in bytes of its source, also when they came by a copy or from elsewhere.
#[test]
fn a_replica_knows_how_far_it_is() {
    let mut pair = Pair::new(shell(EngineKind::Masstree), shell(EngineKind::Masstree));
    pair.up.database.keep_epochs().expect("a session is free");
    let beat = |pair: &mut Pair| {
        let mut message = Vec::new();
        let source = pair.source.as_ref().expect("it is followed");
        source.beat(&mut message);
        pair.replica.take(&message).expect("it has everything");
        pair.replica.told()
    };
    for key in 0..20 {
        pair.up.line(&format!("SET k{key} v"));
        pair.up.database.end_epoch();
        if key % 5 == 0 {
            pair.settle().expect("it follows");
            let (all, _) = pair.up.database.backlog();
            let told = beat(&mut pair);
            assert_eq!((told.applied, told.offset), (all, all), "{key}");
        }
        if key == 12 {
            // What comes next is a full copy.
            pair.cut();
            pair.replica = Replica::new(&pair.down.database).expect("a session is free");
            pair.connect(None);
        }
    }
}

/// A copy in place: the old data go before the new ones come, and nobody sees that.
#[test]
fn a_copy_in_place_lets_the_old_data_go_first() {
    const LOADING: &str =
        "-LOADING a full copy of the primary is on its way into this server, in place";
    for engine in [EngineKind::Masstree, EngineKind::Mercury] {
        let mut pair = Pair::new(shell(engine), shell(engine));
        follow(&pair.down, false, Refusal::Nothing);
        pair.down
            .check(&[("SET old 1", "+OK"), ("EXPIRE old 1000", ":1")]);
        follow(&pair.down, true, Refusal::ReadOnly);
        for key in 0..5000 {
            pair.up.line(&format!("SET k{key} {key}"));
        }
        let load = |pair: &mut Pair| {
            pair.replica.set_in_place(true);
            for _ in 0..4 {
                assert!(pair.send());
                pair.deliver().expect("it loads");
            }
            assert!(pair.replica.is_loading());
        };
        load(&mut pair);
        assert_eq!(pair.down.database.summary(0).0, 0, "they are gone");
        assert_eq!(pair.down.database.expiring_keys(), 0);
        pair.down
            .check(&[("GET old", LOADING), ("SET k 1", LOADING)]);
        pair.down.database.set_refusal(Refusal::Nothing);
        pair.down.check(&[("DBSIZE", LOADING)]);
        pair.down.database.set_refusal(Refusal::ReadOnly);
        // It has nothing to feed others with.
        let mut below = Source::new(&pair.down.database, None, true).expect("a session is free");
        assert_eq!(below.next(&mut Vec::new()), Sent::Gone);
        pair.cut();
        pair.down.check(&[("GET old", LOADING)]);
        pair.settle().expect("the next copy arrives");
        assert_eq!(content(&mut pair.up), content(&mut pair.down));
        pair.down.check(&[("GET k7", "$1 7")]);
        // Promoted in the middle of a copy, it has nothing.
        pair.cut();
        pair.replica = Replica::new(&pair.down.database).expect("a session is free");
        pair.connect(None);
        load(&mut pair);
        pair.cut();
        follow(&pair.down, false, Refusal::Nothing);
        pair.down.check(&[("GET k7", "$-1"), ("SET k7 1", "+OK")]);
    }
}

/// Data are not lost to a primary that came up with nothing, unless they came from that one.
#[test]
fn a_primary_that_began_empty_replaces_only_what_is_its_own() {
    let mut own = shell(EngineKind::Masstree);
    own.line("SET own data");
    let mut pair = Pair::new(shell(EngineKind::Masstree), own);
    let source = Source::new(&pair.up.database, None, true);
    pair.source = Some(source.expect("a session is free"));
    assert!(pair.send());
    assert!(matches!(pair.deliver(), Err(ReplicationError::Empty)));
    assert_eq!(pair.down.line("GET own"), "$4 data");
    pair.cut();
    pair.settle().expect("it is forced");
    pair.up.line("SET k v");
    pair.settle().expect("it follows");
    for _ in 0..2 {
        // A copy of the same is not forced.
        pair.cut();
        let source = Source::new(&pair.up.database, None, true);
        pair.source = Some(source.expect("a session is free"));
        pair.settle().expect("these data came from there");
        assert_eq!(content(&mut pair.up), content(&mut pair.down));
    }
}

/// FW7 standing-is-logged: what a replica repeats anew after its own writes would be wrong.
#[test]
fn a_database_that_has_written_itself_takes_a_full_copy() {
    let mut pair = Pair::new(shell(EngineKind::Masstree), shell(EngineKind::Masstree));
    pair.up.line("SET k 1");
    pair.settle().expect("it follows");
    let again = |pair: &mut Pair| {
        pair.cut();
        pair.replica = Replica::new(&pair.down.database).expect("a session is free");
    };
    again(&mut pair);
    pair.settle().expect("it has only repeated, and goes on");
    assert_eq!(pair.copies, 1);
    follow(&pair.down, false, Refusal::Nothing);
    pair.down.line("SET own 1");
    follow(&pair.down, true, Refusal::ReadOnly);
    again(&mut pair);
    pair.settle().expect("it follows");
    assert_eq!(pair.copies, 2);
    assert_eq!(content(&mut pair.up), content(&mut pair.down));
}
