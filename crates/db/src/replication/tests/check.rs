//! Checks: what differs is named, and nothing else is.

use fastrand::Rng;

use super::super::{CheckStep, CheckWish, Difference, Verdict};
use super::{Fault, Pair, follow, shell, with, write};
use crate::commands::testing::Shell;
use crate::{EngineKind, Refusal};

/// Runs a check to its end, with whatever happens in between.
fn check(pair: &mut Pair, mut meanwhile: impl FnMut(&mut Pair)) -> Verdict {
    pair.settle().expect("it follows");
    let begin = |pair: &mut Pair, wish| {
        let source = pair.source.as_mut().expect("there is one");
        source.check(wish);
    };
    begin(pair, CheckWish::Begin);
    for _ in 0..100_000 {
        meanwhile(pair);
        pair.up.database.end_epoch();
        pair.send();
        pair.deliver().expect("it follows");
        if let CheckStep::Ask(wish) = pair.replica.check() {
            begin(pair, wish);
        }
        match pair.replica.verdict() {
            None | Some(Verdict::Running) => {}
            Some(verdict) => {
                let verdict = verdict.clone();
                pair.settle().expect("it follows");
                assert_eq!(snapshots(&mut pair.up), 0, "CK2 no-trace");
                assert_eq!(snapshots(&mut pair.down), 0, "CK2 no-trace");
                return verdict;
            }
        }
    }
    panic!("the check does not end");
}

fn snapshots(shell: &mut Shell) -> usize {
    shell.database.snapshot_figures().snapshots
}

const ENGINES: [[EngineKind; 2]; 4] = [
    [EngineKind::Masstree, EngineKind::Masstree],
    [EngineKind::Masstree, EngineKind::Mercury],
    [EngineKind::Mercury, EngineKind::Reference],
    [EngineKind::Reference, EngineKind::Masstree],
];

fn pair(engines: [EngineKind; 2], random: &mut Rng) -> Pair {
    let [up, down] = engines.map(shell);
    let mut pair = Pair::new(up, down);
    for _ in 0..600 {
        write(&mut pair.up, random);
    }
    pair
}

/// CK1 same-moment: writes while it runs are no differences.
#[test]
fn what_is_the_same_is_found_to_be_under_load() {
    for seed in 0..12 {
        let mut random = Rng::with_seed(seed);
        let mut pair = pair(ENGINES[seed as usize % 4], &mut random);
        let load = |pair: &mut Pair| {
            if random.u32(0..4) > 0 {
                write(&mut pair.up, &mut random);
            }
        };
        let verdict = check(&mut pair, load);
        assert!(
            matches!(verdict, Verdict::Same { .. }),
            "seed {seed}: {verdict:?}"
        );
    }
}

/// The canary of CK1 same-moment.
#[test]
fn a_check_at_another_moment_finds_what_is_on_its_way() {
    let mut random = Rng::with_seed(7);
    let mut pair = pair(ENGINES[0], &mut random);
    let mut writes = 0;
    let verdict = with(Fault::CheckedEarly, || {
        check(&mut pair, |pair| {
            // Before the source can send it.
            if writes == 0 {
                pair.up.line("SET k0 on-its-way");
                let source = pair.source.as_mut().expect("there is one");
                source.check(CheckWish::Begin);
            }
            writes += 1;
        })
    });
    assert!(matches!(verdict, Verdict::Differs(_)), "{verdict:?}");
}

/// What somebody has written on the replica, or what it has lost.
#[test]
fn the_first_key_that_differs_is_named() {
    let planted = [
        ("SET zz other", "zz", (true, true)),
        ("DEL zz", "zz", (true, false)),
        ("SET aa extra", "aa", (false, true)),
        ("APPEND zz x", "zz", (true, true)),
        ("PEXPIRE zz 1000000", "zz", (true, true)),
        ("HSET hh f 2", "hh", (true, true)),
        ("HDEL hh g", "hh", (true, true)),
        ("RPUSH ll c", "ll", (true, true)),
        ("SADD ss c", "ss", (true, true)),
        ("ZADD sz 3 a", "sz", (true, true)),
        ("XADD xx 2 f v", "xx", (true, true)),
        ("XGROUP CREATE xx g 0", "xx", (true, true)),
        ("SETRANGE big 60000 x", "big", (true, true)),
    ];
    for (index, (line, key, present)) in planted.into_iter().enumerate() {
        let mut random = Rng::with_seed(index as u64);
        let mut pair = pair(ENGINES[index % 4], &mut random);
        pair.up.line("SELECT 1");
        for line in [
            "SET zz value",
            "HSET hh f 1 g 2",
            "RPUSH ll a b",
            "SADD ss a b",
            "ZADD sz 1 a 2 b",
            "XADD xx 1 f v",
            "SETRANGE big 100000 end",
        ] {
            pair.up.line(line);
        }
        pair.settle().expect("it follows");
        follow(&pair.down, true, Refusal::Nothing);
        pair.down.line("SELECT 1");
        pair.down.line(line);
        let verdict = check(&mut pair, |_| {});
        let Verdict::Differs(difference) = verdict else {
            panic!("{line}: {verdict:?}");
        };
        let expected = Difference {
            branch: Vec::new(),
            database: 1,
            key: key.into(),
            present,
            epoch: difference.epoch,
        };
        assert_eq!(difference, expected, "{line}");
    }
}

/// Branches are compared, too, unless the replica's engine has none.
#[test]
fn a_difference_on_a_branch_is_named_with_it() {
    let mut random = Rng::with_seed(3);
    let mut pair = pair([EngineKind::Minuet; 2], &mut random);
    for line in ["BRANCH CREATE trial", "BRANCH USE trial", "SET zz value"] {
        assert!(!pair.up.line(line).starts_with('-'));
    }
    let verdict = check(&mut pair, |pair| _ = pair.up.line("INCR count"));
    assert!(matches!(verdict, Verdict::Same { .. }), "{verdict:?}");
    follow(&pair.down, true, Refusal::Nothing);
    pair.down.line("BRANCH USE trial");
    pair.down.line("SET zz other");
    let Verdict::Differs(difference) = check(&mut pair, |_| {}) else {
        panic!("a difference is not found");
    };
    let Difference { branch, key, .. } = difference;
    assert_eq!((&branch[..], &key[..]), (&b"trial"[..], &b"zz"[..]));
    let mut pair = Pair::new(pair.up, shell(EngineKind::Masstree));
    let verdict = check(&mut pair, |_| {});
    assert!(matches!(verdict, Verdict::Same { .. }), "{verdict:?}");
}

/// Of many differences, each is one; a link that ends ends the check.
#[test]
fn a_check_ends_with_its_link() {
    let mut random = Rng::with_seed(1);
    let mut pair = pair(ENGINES[0], &mut random);
    pair.settle().expect("it follows");
    follow(&pair.down, true, Refusal::Nothing);
    for key in 0..2000 {
        pair.down.line(&format!("SET only-here{key} v"));
    }
    let verdict = check(&mut pair, |_| {});
    let Verdict::Differs(Difference { key, present, .. }) = verdict else {
        panic!("{verdict:?}");
    };
    assert!(key.starts_with(b"only-here") && present == (false, true));
    let source = pair.source.as_mut().expect("there is one");
    source.check(CheckWish::Begin);
    pair.settle().expect("it follows");
    assert_eq!(snapshots(&mut pair.down), 1);
    pair.cut();
    assert_eq!(
        pair.replica.verdict(),
        Some(&Verdict::Failed("the link has ended"))
    );
    assert_eq!((snapshots(&mut pair.up), snapshots(&mut pair.down)), (0, 0));
}
