//! Replies of the commands on sorted sets, their encodings, and random sequences against a model.

use std::collections::BTreeMap;

use crate::commands::testing::{Shell, seed};

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

const LIMIT_BY_RANK: &str =
    "-ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
const SCORES_BY_MEMBER: &str =
    "-ERR syntax error, WITHSCORES not supported in combination with BYLEX";

#[test]
fn members_have_scores_and_ranks() {
    Shell::new().check(&[
        ("ZADD z 1 a 2 b 2 a", ":2"),
        ("TYPE z", "+zset"),
        ("ZADD z CH 3 a 2 b", ":1"),
        ("ZADD z NX 9 a 1 c", ":1"),
        ("ZADD z XX CH 2.5 c 1 d", ":1"),
        ("ZADD z GT 1 a 4 b", ":0"),
        (
            "ZRANGE z 0 -1 WITHSCORES",
            "*6 $1 c $3 2.5 $1 a $1 3 $1 b $1 4",
        ),
        ("ZADD z LT CH 0 b 100 a", ":1"),
        ("ZADD z INCR 1.5 b", "$3 1.5"),
        ("ZADD z NX INCR 1 b", "$-1"),
        ("ZINCRBY z -1 b", "$3 0.5"),
        ("ZCARD z", ":3"),
        ("ZSCORE z b", "$3 0.5"),
        ("ZSCORE z x", "$-1"),
        ("ZMSCORE z a x", "*2 $1 3 $-1"),
        ("ZRANK z a", ":2"),
        ("ZREVRANK z a", ":0"),
        ("ZRANK z a WITHSCORE", "*2 :2 $1 3"),
        ("ZRANK z x WITHSCORE", "*-1"),
        ("ZRANK z x", "$-1"),
        ("ZRANK z a x", "-ERR syntax error"),
        ("ZREM z a x", ":1"),
        ("ZREM z b c", ":2"),
        ("EXISTS z", ":0"),
        ("ZADD z inf a", ":1"),
        (
            "ZINCRBY z -inf a",
            "-ERR resulting score is not a number (NaN)",
        ),
        ("ZADD z nan a", "-ERR value is not a valid float"),
        ("ZADD z -0 b", ":1"),
        ("ZSCORE z b", "$1 0"),
        ("ZADD z CH 0 b", ":0"),
        (
            "ZADD z 1",
            "-ERR wrong number of arguments for 'zadd' command",
        ),
        ("ZADD z NX 1", "-ERR syntax error"),
        (
            "ZADD z NX XX 1 a",
            "-ERR XX and NX options at the same time are not compatible",
        ),
        (
            "ZADD z GT LT 1 a",
            "-ERR GT, LT, and/or NX options at the same time are not compatible",
        ),
        (
            "ZADD z INCR 1 a 2 b",
            "-ERR INCR option supports a single increment-element pair",
        ),
        ("SET s x", "+OK"),
        ("ZADD s 1 a", WRONG_TYPE),
        ("ZADD s XX x a", "-ERR value is not a valid float"),
        ("GET z", WRONG_TYPE),
        ("SADD z a", WRONG_TYPE),
    ]);
}

#[test]
fn ranges_are_by_rank_score_or_member() {
    Shell::new().check(&[
        ("ZADD z 1 a 2 b 2 c 3 d", ":4"),
        ("ZRANGE z 1 2", "*2 $1 b $1 c"),
        ("ZRANGE z -2 -1 REV", "*2 $1 b $1 a"),
        ("ZRANGE z 3 1", "*0"),
        ("ZREVRANGE z 0 1 WITHSCORES", "*4 $1 d $1 3 $1 c $1 2"),
        ("ZRANGEBYSCORE z 2 3", "*3 $1 b $1 c $1 d"),
        ("ZRANGEBYSCORE z (2 +inf", "*1 $1 d"),
        ("ZRANGEBYSCORE z -inf (2", "*1 $1 a"),
        ("ZRANGEBYSCORE z (2 (2", "*0"),
        ("ZRANGEBYSCORE z 2 3 LIMIT 1 1", "*1 $1 c"),
        ("ZRANGEBYSCORE z 2 3 LIMIT -1 1", "*0"),
        ("ZRANGEBYSCORE z 2 3 LIMIT 1 -7", "*2 $1 c $1 d"),
        ("ZREVRANGEBYSCORE z 3 2 LIMIT 1 2", "*2 $1 c $1 b"),
        (
            "ZRANGE z 3 2 BYSCORE REV WITHSCORES LIMIT 0 1",
            "*2 $1 d $1 3",
        ),
        ("ZRANGE z 0 1 LIMIT 0 1", LIMIT_BY_RANK),
        ("ZRANGE z [a [b BYLEX WITHSCORES", SCORES_BY_MEMBER),
        ("ZRANGE z a b BYSCORE", "-ERR min or max is not a float"),
        ("ZCOUNT z \" \" 2", "-ERR min or max is not a float"),
        ("ZCOUNT z 2 \"( \"", "-ERR min or max is not a float"),
        (
            "ZRANGE z a b BYLEX",
            "-ERR min or max not valid string range item",
        ),
        (
            "ZRANGE z a b",
            "-ERR value is not an integer or out of range",
        ),
        ("ZCOUNT z 2 2", ":2"),
        ("ZCOUNT z 3 1", ":0"),
        ("ZADD l 0 a 0 b 0 c 0 d", ":4"),
        ("ZRANGEBYLEX l [b (d", "*2 $1 b $1 c"),
        ("ZRANGEBYLEX l - (b", "*1 $1 a"),
        ("ZREVRANGEBYLEX l + [c LIMIT 0 1", "*1 $1 d"),
        ("ZRANGEBYLEX l + -", "*0"),
        ("ZLEXCOUNT l (a +", ":3"),
        ("ZRANGESTORE s z (1 3 BYSCORE LIMIT 1 9", ":2"),
        ("ZRANGE s 0 -1", "*2 $1 c $1 d"),
        ("ZRANGESTORE s z 9 9", ":0"),
        ("EXISTS s", ":0"),
        ("ZREMRANGEBYRANK z 0 0", ":1"),
        ("ZREMRANGEBYSCORE z 2 (3", ":2"),
        ("ZREMRANGEBYLEX l [b [c", ":2"),
        ("ZRANGE l 0 -1", "*2 $1 a $1 d"),
        ("ZREMRANGEBYLEX l - +", ":2"),
        ("EXISTS l", ":0"),
    ]);
}

#[test]
fn members_are_taken_out_from_both_ends() {
    Shell::new().check(&[
        ("ZADD z 1 a 2 b 3 c 4 d", ":4"),
        ("ZPOPMIN z", "*2 $1 a $1 1"),
        ("ZPOPMAX z 2", "*4 $1 d $1 4 $1 c $1 3"),
        ("ZPOPMIN z 0", "*0"),
        (
            "ZPOPMIN z -1",
            "-ERR value is out of range, must be positive",
        ),
        ("ZMPOP 2 x z MIN COUNT 5", "*2 $1 z *1 *2 $1 b $1 2"),
        ("ZMPOP 2 x z MAX", "*-1"),
        ("ZMPOP 0 z MAX", "-ERR numkeys should be greater than 0"),
        (
            "ZMPOP 1 z MAX COUNT 0",
            "-ERR count should be greater than 0",
        ),
        (
            "ZMPOP 1 z",
            "-ERR wrong number of arguments for 'zmpop' command",
        ),
        ("ZMPOP 1 z x", "-ERR syntax error"),
        ("ZPOPMIN z", "*0"),
        ("ZADD z 1 a 2 b 3 c 4 d", ":4"),
        ("BZPOPMIN x z 0", "*3 $1 z $1 a $1 1"),
        ("BZPOPMAX z x 0.5", "*3 $1 z $1 d $1 4"),
        (
            "BZMPOP 0 2 x z MAX COUNT 9",
            "*2 $1 z *2 *2 $1 c $1 3 *2 $1 b $1 2",
        ),
        ("BZPOPMIN z -1", "-ERR timeout is negative"),
        (
            "BZPOPMAX z x",
            "-ERR timeout is not a float or out of range",
        ),
        ("BZMPOP 0 1 z LEFT", "-ERR syntax error"),
        ("SET s x", "+OK"),
        (
            "BZPOPMIN s 0",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        ("MULTI", "+OK"),
        ("BZPOPMIN z 0", "+QUEUED"),
        ("BZMPOP 0 1 z MIN", "+QUEUED"),
        ("EXEC", "*2 *-1 *-1"),
        ("ZRANDMEMBER z", "$-1"),
        ("ZADD z 1 a", ":1"),
        ("ZRANDMEMBER z", "$1 a"),
        ("ZRANDMEMBER z -2 WITHSCORES", "*4 $1 a $1 1 $1 a $1 1"),
        ("ZRANDMEMBER z 5", "*1 $1 a"),
    ]);
}

#[test]
fn sorted_sets_are_made_of_sets() {
    Shell::new().check(&[
        ("ZADD a 1 x 2 y", ":2"),
        ("ZADD b 10 y 20 z", ":2"),
        ("SADD c y z", ":2"),
        (
            "ZUNION 2 a b WITHSCORES",
            "*6 $1 x $1 1 $1 y $2 12 $1 z $2 20",
        ),
        (
            "ZUNION 2 a b WEIGHTS 2 0.5 AGGREGATE MAX WITHSCORES",
            "*6 $1 x $1 2 $1 y $1 5 $1 z $2 10",
        ),
        ("ZINTER 3 a b c WITHSCORES", "*2 $1 y $2 13"),
        ("ZINTER 2 a b AGGREGATE MIN WITHSCORES", "*2 $1 y $1 2"),
        ("ZDIFF 2 a c WITHSCORES", "*2 $1 x $1 1"),
        ("ZINTERCARD 2 b c", ":2"),
        ("ZINTERCARD 2 b c LIMIT 1", ":1"),
        ("ZINTERCARD 2 b c LIMIT -1", "-ERR LIMIT can't be negative"),
        ("ZUNIONSTORE d 2 a b", ":3"),
        ("ZDIFFSTORE d 2 d a", ":1"),
        ("ZRANGE d 0 -1 WITHSCORES", "*2 $1 z $2 20"),
        ("ZINTERSTORE d 2 a absent", ":0"),
        ("EXISTS d", ":0"),
        (
            "ZUNION 0 a",
            "-ERR at least 1 input key is needed for 'zunion' command",
        ),
        ("ZUNION 3 a", "-ERR syntax error"),
        ("ZDIFF 1 a WEIGHTS 1", "-ERR syntax error"),
        ("ZUNION 1 a WEIGHTS x", "-ERR weight value is not a float"),
        ("SET s x", "+OK"),
        ("ZUNION 2 a s", WRONG_TYPE),
    ]);
}

#[test]
fn the_encoding_is_that_of_redis() {
    let mut shell = Shell::new();
    shell.check(&[
        ("ZADD z 1 a", ":1"),
        ("OBJECT ENCODING z", "$8 listpack"),
        ("ZUNIONSTORE y 1 z", ":1"),
        ("OBJECT ENCODING y", "$8 listpack"),
    ]);
    shell.line(&format!("ZADD z 1 {}", "x".repeat(65)));
    shell.check(
        &[
            ("OBJECT ENCODING z", "$8 skiplist"),
            ("ZPOPMAX z 2", "*4 $1 a"),
        ][..1],
    );
    for number in 0..128 {
        shell.line(&format!("ZADD y {number} m{number}"));
    }
    shell.check(&[
        ("OBJECT ENCODING y", "$8 skiplist"),
        ("ZREMRANGEBYRANK y 1 -1", ":128"),
        ("OBJECT ENCODING y", "$8 skiplist"),
    ]);
}

/// Across the bound between small and large sets, with a scan of all members at the end.
#[test]
fn sorted_sets_are_those_of_a_model() {
    let mut random = fastrand::Rng::with_seed(seed());
    let mut shell = Shell::new();
    let mut model: BTreeMap<String, i32> = BTreeMap::new();
    for round in 0..4000 {
        let member = format!("member{}", random.u32(..600));
        let score = random.i32(-50..50);
        match random.u32(..if round < 2000 { 8 } else { 16 }) {
            0..6 => {
                let new = model.insert(member.clone(), score).is_none();
                let line = format!("ZADD z {score} {member}");
                assert_eq!(shell.line(&line), format!(":{}", u8::from(new)));
            }
            6 => {
                let mut sorted: Vec<_> = model
                    .iter()
                    .map(|(member, score)| (*score, member))
                    .collect();
                sorted.sort_unstable();
                let rank = sorted.iter().position(|(_, found)| **found == member);
                let expected = rank.map_or("$-1".into(), |rank| format!(":{rank}"));
                assert_eq!(shell.line(&format!("ZRANK z {member}")), expected);
                let count = sorted
                    .iter()
                    .filter(|(found, _)| (score..score + 9).contains(found))
                    .count();
                let line = format!("ZCOUNT z {score} ({}", score + 9);
                assert_eq!(shell.line(&line), format!(":{count}"));
            }
            _ => {
                let there = model.remove(&member).is_some();
                assert_eq!(
                    shell.line(&format!("ZREM z {member}")),
                    format!(":{}", u8::from(there))
                );
            }
        }
    }
    let mut cursor = "0".to_owned();
    let mut found = BTreeMap::new();
    loop {
        let reply = shell.line(&format!("ZSCAN z {cursor} COUNT 50"));
        let words: Vec<&str> = reply
            .split(' ')
            .filter(|word| !word.starts_with(['*', '$']))
            .collect();
        for pair in words[1..].chunks(2) {
            let score = pair[1].parse().expect("a score");
            assert_eq!(found.insert(pair[0].to_owned(), score), None);
        }
        words[0].clone_into(&mut cursor);
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found, model);
}
