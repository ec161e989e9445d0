//! WATCH: EXEC runs only if no watched key has changed, however the change came about and whether
//! or not it was undone.
//!
//! `maintain` steps let tombstones and log epochs pass between WATCH and EXEC: what is remembered
//! of a key that came and went must not depend on them (invariant W1 absent-unchanged of the
//! database's watches).

use crate::connection::{Connection, maintain, on_every_engine, open};
use crate::script::run;
use pando_db::limits;

#[test]
fn an_untouched_key_lets_exec_run() {
    run("a: SET k 1 -> +OK
        a: WATCH k none -> +OK
        b: GET k -> $1 1
        b: SET other 1 -> +OK
        b: DEL none -> :0
        maintain
        a: MULTI -> +OK
        a: SET k 2 -> +QUEUED
        a: EXEC -> *1 +OK");
}

#[test]
fn a_changed_key_stops_exec() {
    run("a: SET k 1 -> +OK
        a: WATCH k -> +OK
        b: SET k 2 -> +OK
        a: MULTI -> +OK
        a: SET k 3 -> +QUEUED
        a: EXEC -> *-1
        a: GET k -> $1 2
        a: MULTI -> +OK
        a: SET k 4 -> +QUEUED
        a: EXEC -> *1 +OK");
}

#[test]
fn a_key_changed_back_stops_exec() {
    run("a: SET k 1 -> +OK
        a: WATCH k -> +OK
        b: SET k 2 -> +OK
        b: SET k 1 -> +OK
        maintain
        a: MULTI -> +OK
        a: EXEC -> *-1");
}

#[test]
fn the_watcher_s_own_change_stops_exec() {
    run("a: WATCH k -> +OK
        a: SET k 1 -> +OK
        a: MULTI -> +OK
        a: GET k -> +QUEUED
        a: EXEC -> *-1");
}

#[test]
fn a_removed_key_stops_exec() {
    run("a: SET k 1 -> +OK
        a: WATCH k -> +OK
        b: DEL k -> :1
        maintain
        a: MULTI -> +OK
        a: EXEC -> *-1");
}

#[test]
fn a_key_removed_and_set_again_stops_exec() {
    run("a: SET k 1 -> +OK
        a: WATCH k -> +OK
        b: DEL k -> :1
        maintain
        b: SET k 1 -> +OK
        maintain
        a: MULTI -> +OK
        a: EXEC -> *-1");
}

#[test]
fn a_key_that_appears_stops_exec() {
    run("a: WATCH k -> +OK
        b: SET k 1 -> +OK
        a: MULTI -> +OK
        a: EXEC -> *-1");
}

/// W1 absent-unchanged: the tombstone stays while somebody watches.
#[test]
fn a_key_that_came_and_went_stops_exec() {
    run("a: WATCH k -> +OK
        b: SET k 1 -> +OK
        b: DEL k -> :1
        maintain
        maintain
        maintain
        a: MULTI -> +OK
        a: EXEC -> *-1");
}

/// An earlier removal is no change, whether or not its tombstone stands.
#[test]
fn a_key_removed_before_is_absent() {
    run("b: SET k 1 -> +OK
        b: DEL k -> :1
        a: WATCH k -> +OK
        maintain
        maintain
        a: MULTI -> +OK
        a: EXEC -> *0
        maintain
        maintain
        a: WATCH k -> +OK
        maintain
        maintain
        a: MULTI -> +OK
        a: EXEC -> *0
        a: WATCH k -> +OK
        b: SET k 1 -> +OK
        b: DEL k -> :1
        a: MULTI -> +OK
        a: EXEC -> *-1");
}

#[test]
fn a_key_that_expires_stops_exec() {
    run("a: SET k 1 PX 100 -> +OK
        a: WATCH k -> +OK
        pass 150
        a: MULTI -> +OK
        a: EXEC -> *-1
        a: SET k 1 PX 100 -> +OK
        a: WATCH k -> +OK
        pass 150
        maintain
        a: MULTI -> +OK
        a: EXEC -> *-1
        a: SET k 1 PX 100 -> +OK
        a: WATCH k -> +OK
        pass 150
        b: GET k -> $-1
        a: MULTI -> +OK
        a: EXEC -> *-1");
}

/// A key that was expired already does not change by being removed.
#[test]
fn a_key_expired_when_watched_may_go() {
    run("a: SET k 1 PX 100 -> +OK
        pass 150
        a: WATCH k -> +OK
        a: MULTI -> +OK
        a: EXEC -> *0
        a: WATCH k -> +OK
        maintain
        maintain
        a: MULTI -> +OK
        a: EXEC -> *0");
}

#[test]
fn a_key_expired_when_watched_may_not_come_back() {
    run("a: SET k 1 PX 100 -> +OK
        pass 150
        a: WATCH k -> +OK
        b: SET k 2 -> +OK
        a: MULTI -> +OK
        a: EXEC -> *-1
        a: SET j 1 PX 100 -> +OK
        pass 150
        a: WATCH j -> +OK
        maintain
        b: SET j 2 -> +OK
        maintain
        a: MULTI -> +OK
        a: EXEC -> *-1");
}

#[test]
fn a_deadline_is_a_change() {
    run("a: SET k 1 -> +OK
        a: WATCH k -> +OK
        b: EXPIRE k 100 -> :1
        a: MULTI -> +OK
        a: EXEC -> *-1
        a: WATCH k -> +OK
        b: PERSIST k -> :1
        a: MULTI -> +OK
        a: EXEC -> *-1
        a: WATCH k -> +OK
        b: PERSIST k -> :0
        a: MULTI -> +OK
        a: EXEC -> *0");
}

#[test]
fn fields_are_part_of_their_key() {
    run("a: HSET h f 1 g 2 -> :2
        a: WATCH h -> +OK
        b: HSET h g 2 -> :0
        a: MULTI -> +OK
        a: EXEC -> *-1
        a: WATCH h -> +OK
        b: HDEL h none -> :0
        b: HSETNX h f 3 -> :0
        a: MULTI -> +OK
        a: EXEC -> *0
        a: WATCH h -> +OK
        b: HDEL h f g -> :2
        a: MULTI -> +OK
        a: EXEC -> *-1");
}

#[test]
fn flushdb_changes_what_it_removes() {
    run("a: SET k 1 -> +OK
        a: WATCH k -> +OK
        b: FLUSHDB -> +OK
        maintain
        a: MULTI -> +OK
        a: EXEC -> *-1
        a: WATCH k -> +OK
        b: FLUSHALL -> +OK
        a: MULTI -> +OK
        a: EXEC -> *0
        a: SET k 1 -> +OK
        a: WATCH k -> +OK
        b: SELECT 1 -> +OK
        b: FLUSHDB -> +OK
        a: MULTI -> +OK
        a: EXEC -> *0
        a: WATCH k -> +OK
        b: FLUSHALL -> +OK
        b: SELECT 0 -> +OK
        b: SET k 1 -> +OK
        a: MULTI -> +OK
        a: EXEC -> *-1");
}

#[test]
fn swapdb_changes_what_it_exchanges() {
    run("a: SET k 1 -> +OK
        a: WATCH k -> +OK
        b: SWAPDB 0 1 -> +OK
        a: MULTI -> +OK
        a: EXEC -> *-1
        a: WATCH k -> +OK
        b: SWAPDB 0 1 -> +OK
        a: MULTI -> +OK
        a: EXEC -> *-1
        a: DEL k -> :1
        a: WATCH k -> +OK
        b: SWAPDB 0 1 -> +OK
        a: MULTI -> +OK
        a: EXEC -> *0
        a: SET k 1 -> +OK
        a: WATCH k -> +OK
        b: SWAPDB 2 3 -> +OK
        a: MULTI -> +OK
        a: EXEC -> *0");
}

/// A watch is of a key in a database, not of whatever is selected at EXEC.
#[test]
fn a_watch_stays_in_its_database() {
    run("a: SET k 1 -> +OK
        a: WATCH k -> +OK
        b: SELECT 1 -> +OK
        b: SET k 2 -> +OK
        a: MULTI -> +OK
        a: EXEC -> *0
        a: WATCH k -> +OK
        a: SELECT 1 -> +OK
        b: SET k 3 -> +OK
        a: MULTI -> +OK
        a: EXEC -> *0
        a: SELECT 0 -> +OK
        a: WATCH k -> +OK
        a: SELECT 1 -> +OK
        b: SELECT 0 -> +OK
        b: SET k 4 -> +OK
        a: MULTI -> +OK
        a: EXEC -> *-1");
}

#[test]
fn commands_on_several_keys_change_each() {
    run("a: MSET k 1 j 1 -> +OK
        a: WATCH j -> +OK
        b: MSET k 2 j 2 -> +OK
        a: MULTI -> +OK
        a: EXEC -> *-1
        a: WATCH j -> +OK
        b: RENAME k j -> +OK
        a: MULTI -> +OK
        a: EXEC -> *-1
        a: WATCH k -> +OK
        b: COPY j k -> :1
        a: MULTI -> +OK
        a: EXEC -> *-1
        a: WATCH k -> +OK
        b: MOVE k 1 -> :1
        a: MULTI -> +OK
        a: EXEC -> *-1");
}

#[test]
fn one_changed_key_of_many_is_enough() {
    run("a: WATCH a b c -> +OK
        a: WATCH d -> +OK
        b: SET c 1 -> +OK
        a: MULTI -> +OK
        a: EXEC -> *-1");
}

/// What was seen first counts.
#[test]
fn watching_again_forgives_nothing() {
    run("a: SET k 1 -> +OK
        a: WATCH k -> +OK
        b: SET k 2 -> +OK
        a: WATCH k -> +OK
        a: MULTI -> +OK
        a: EXEC -> *-1");
}

#[test]
fn unwatch_discard_and_exec_end_the_watch() {
    run("a: WATCH k -> +OK
        b: SET k 1 -> +OK
        a: UNWATCH -> +OK
        a: MULTI -> +OK
        a: EXEC -> *0
        a: WATCH k -> +OK
        a: MULTI -> +OK
        a: DISCARD -> +OK
        b: SET k 2 -> +OK
        a: MULTI -> +OK
        a: EXEC -> *0
        a: WATCH k -> +OK
        a: MULTI -> +OK
        a: EXEC -> *0
        b: SET k 3 -> +OK
        a: MULTI -> +OK
        a: EXEC -> *0
        a: WATCH k -> +OK
        b: SET k 4 -> +OK
        a: MULTI -> +OK
        a: GET -> -ERR wrong number of arguments for 'get' command
        a: EXEC -> -EXECABORT Transaction discarded because of previous errors.
        a: MULTI -> +OK
        a: EXEC -> *0");
}

#[test]
fn a_broken_watch_answers_null_in_resp3() {
    on_every_engine(|engine| {
        let (database, _) = open(engine);
        let mut connection = Connection::new(&database);
        connection.speak_resp3();
        for (line, reply) in [
            ("WATCH k", "+OK"),
            ("SET k 1", "+OK"),
            ("MULTI", "+OK"),
            ("EXEC", "_"),
        ] {
            assert_eq!(connection.line(line), reply);
        }
    });
}

/// W2 bounded-patience: a watch that was held too long cannot be told from a broken one, and the
/// tombstones that it needed are let go.
#[test]
fn a_watch_of_an_absent_key_has_an_end() {
    on_every_engine(|engine| {
        let (database, _) = open(engine);
        let (mut watcher, mut writer) = (Connection::new(&database), Connection::new(&database));
        watcher.line("WATCH absent");
        writer.line("SET k 1");
        writer.line("DEL k");
        let tombstones = || {
            let mut count = None;
            database.gauges(&mut |gauge| {
                if gauge.name == "tombstones" {
                    count = Some(gauge.value as u64);
                }
            });
            count.expect("the engine counts its tombstones")
        };
        let age_max = limits::WATCH_AGE_MAX_MS / limits::EPOCH_INTERVAL_MS;
        for _ in 1..age_max {
            maintain(&database);
        }
        assert!(tombstones() > 0, "the watch still holds them");
        for _ in 0..4 {
            maintain(&database);
        }
        assert_eq!(tombstones(), 0, "the watch holds them no longer");
        watcher.line("MULTI");
        assert_eq!(watcher.line("EXEC"), "*-1");
        assert_eq!(watcher.watched_keys(), 0);
    });
}
