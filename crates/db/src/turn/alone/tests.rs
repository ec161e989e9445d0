//! Values that are put where others were, and who is kept out for that.

use pando_engine::{Body, Decision, NewValue};

use crate::commands::testing::{Shell, client};
use crate::limits;

/// How many values the engine has put where others were.
fn overwritten(shell: &Shell) -> u64 {
    let mut found = None;
    shell.database.gauges(&mut |gauge| {
        if gauge.name == "overwritten_total" {
            found = Some(gauge.value as u64);
        }
    });
    found.expect("the engine counts them")
}

/// A value takes the place of one as long, unless somebody needs that.
#[test]
fn values_are_overwritten_where_nobody_sees_them() {
    let mut shell = Shell::new();
    shell.check(&[("MSET a 1111 b 2222 d 3", "+OK")]);
    let before = overwritten(&shell);
    shell.check(&[
        ("MSET a 3333 b 4444", "+OK"),
        ("MSET a 5555 b 66666", "+OK"),
        ("MGET a b", "*2 $4 5555 $5 66666"),
    ]);
    assert_eq!(overwritten(&shell), before + 3);
    let mut other = client(&shell, 2);
    other.check(&[("WATCH a", "+OK"), ("MULTI", "+OK"), ("GET a", "+QUEUED")]);
    shell.check(&[("MSET a 7777 d 4", "+OK")]);
    other.check(&[("EXEC", "*-1")]);
    // A deadline that goes is noted under a lock; what follows has a block of its own.
    shell.check(&[
        ("EXPIRE a 100", ":1"),
        ("MSET a 8888 d 5", "+OK"),
        ("TTL a", ":-1"),
    ]);
    assert_eq!(overwritten(&shell), before + 5);
    shell.line("SNAPSHOT CREATE s");
    shell.check(&[
        ("MSET a 9999 d 6", "+OK"),
        ("SNAPSHOT READ s MGET a d", "*2 $4 8888 $1 5"),
        ("MGET a d", "*2 $4 9999 $1 6"),
    ]);
    assert_eq!(overwritten(&shell), before + 5);
}

/// Others are kept out for short requests if they were idle for long.
#[test]
fn short_requests_keep_others_out() {
    let mut shell = Shell::new();
    shell.check(&[("SET a 1111", "+OK")]);
    for _ in 1..limits::ALONE_IDLE_MIN {
        assert!(!shell.turn().keep_out(), "not for long");
    }
    let before = overwritten(&shell);
    let mut turn = shell.turn();
    assert!(turn.keep_out());
    let key = turn.keyspace(0).update(b"a", |_| {
        Decision::Write(NewValue::new(Body::string(b"2222")))
    });
    assert!(key.is_ok());
    drop(turn);
    assert_eq!(overwritten(&shell), before + 1);
    let mut other = client(&shell, 2);
    let pinned = other.turn();
    assert!(!shell.turn().keep_out(), "another one is pinned");
    drop(pinned);
    assert!(!shell.turn().keep_out(), "it was, lately");
    assert_eq!(shell.line("GET a"), "$4 2222");
}
