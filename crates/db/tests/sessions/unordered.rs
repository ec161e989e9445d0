//! An engine without key order: what lists keys works, what needs order says who has it.

use std::collections::BTreeSet;

use pando_db::EngineKind;

use crate::connection::{Connection, maintain, open};

fn numbered(connection: &mut Connection, count: usize) {
    for number in 0..count {
        connection.line(&format!("SET k{number:04} {number}"));
    }
}

/// The keys that SCAN shows from its beginning to its end, and how many replies that took.
fn scanned(connection: &mut Connection, options: &str) -> (BTreeSet<String>, usize) {
    let (mut cursor, mut keys, mut replies) = ("0".to_owned(), BTreeSet::new(), 0);
    loop {
        let reply = connection.line(&format!("SCAN {cursor} {options}"));
        let mut words = reply
            .split(' ')
            .filter(|word| !word.starts_with(['*', '$']));
        words.next().expect("a cursor").clone_into(&mut cursor);
        keys.extend(words.filter(|word| !word.is_empty()).map(str::to_owned));
        replies += 1;
        if cursor == "0" {
            return (keys, replies);
        }
    }
}

#[test]
fn ordered_commands_name_the_engines_that_have_them() {
    let (database, _) = open(EngineKind::Mercury);
    let mut connection = Connection::new(&database);
    numbered(&mut connection, 3);
    let ordered = EngineKind::ordered_names();
    let error = format!(
        "-ERR engine mercury keeps keys in no order, which this command needs; {ordered} do"
    );
    for line in ["KRANGE - +", "KPREFIX k", "KCOUNT - +", "KRANGEDEL - +"] {
        assert_eq!(connection.line(line).trim(), error, "{line}");
    }
    assert_eq!(connection.line("DBSIZE"), ":3");
}

#[test]
fn every_ordered_engine_is_named_and_no_other() {
    let names = EngineKind::ordered_names();
    for engine in EngineKind::ALL {
        assert_eq!(names.contains(engine.name()), engine.is_ordered());
    }
}

#[test]
fn keys_are_listed_counted_and_picked() {
    let (database, clock) = open(EngineKind::Mercury);
    let mut connection = Connection::new(&database);
    assert_eq!(scanned(&mut connection, ""), (BTreeSet::new(), 1));
    assert_eq!(connection.line("RANDOMKEY"), "$-1");
    numbered(&mut connection, 500);
    connection.line("HSET h f v");
    for number in (0..500).step_by(10) {
        connection.line(&format!("PEXPIRE k{number:04} 5"));
    }
    clock.pass_ms(10);
    // Expired keys are hidden before they are removed, and after.
    for removed in [false, true] {
        if removed {
            maintain(&database);
            assert_eq!(connection.line("DBSIZE"), ":451");
        }
        let (keys, replies) = scanned(&mut connection, "COUNT 20");
        assert_eq!(keys.len(), 451);
        assert!((10..40).contains(&replies), "{replies}");
        assert_eq!(scanned(&mut connection, "MATCH k03*").0.len(), 90);
        assert_eq!(scanned(&mut connection, "TYPE hash").0.len(), 1);
        assert!(connection.line("KEYS k00*").starts_with("*90 "));
        let picked: BTreeSet<_> = (0..200).map(|_| connection.line("RANDOMKEY")).collect();
        assert!(picked.len() > 50 && !picked.contains("$5 k0010"));
    }
}

/// A cursor has no state: it can be used again, and one that was never given out is a place too.
#[test]
fn cursors_are_stateless() {
    let (database, _) = open(EngineKind::Mercury);
    let mut connection = Connection::new(&database);
    numbered(&mut connection, 200);
    let first = connection.line("SCAN 0 COUNT 5");
    let cursor = first.split(' ').nth(2).expect("a cursor").to_owned();
    let again = |connection: &mut Connection| connection.line(&format!("SCAN {cursor} COUNT 5"));
    assert_eq!(
        again(&mut connection),
        again(&mut Connection::new(&database))
    );
    assert!(
        connection
            .line("SCAN 18446744073709551615")
            .starts_with("*2 ")
    );
}
