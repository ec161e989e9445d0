//! MULTI, EXEC and DISCARD: what is queued, what runs, what an error does.

use crate::script::run;

#[test]
fn queued_commands_run_at_exec() {
    run("a: MULTI -> +OK
        a: SET k 1 -> +QUEUED
        a: INCR k -> +QUEUED
        b: GET k -> $-1
        a: GET k -> +QUEUED
        a: EXEC -> *3 +OK :2 $1 2
        b: GET k -> $1 2
        a: GET k -> $1 2
        a: MULTI -> +OK
        a: EXEC -> *0");
}

#[test]
fn a_discarded_transaction_leaves_nothing() {
    run("a: MULTI -> +OK
        a: SET k 1 -> +QUEUED
        a: DISCARD -> +OK
        a: GET k -> $-1
        a: EXEC -> -ERR EXEC without MULTI
        a: DISCARD -> -ERR DISCARD without MULTI");
}

#[test]
fn transactions_do_not_nest() {
    run("a: MULTI -> +OK
        a: MULTI -> -ERR MULTI calls can not be nested
        a: WATCH k -> -ERR WATCH inside MULTI is not allowed
        a: SET k 1 -> +QUEUED
        a: EXEC -> -EXECABORT Transaction discarded because of previous errors.
        a: GET k -> $-1");
}

/// A command that is refused when it is queued ends the transaction, whatever the reason.
#[test]
fn a_refusal_while_queueing_aborts() {
    run("a: MULTI -> +OK
        a: SET k 1 -> +QUEUED
        a: NOSUCH k -> -ERR unknown command 'NOSUCH', with args beginning with: 'k'
        a: EXEC -> -EXECABORT Transaction discarded because of previous errors.
        a: GET k -> $-1
        a: MULTI -> +OK
        a: GET -> -ERR wrong number of arguments for 'get' command
        a: SET k 2 -> +QUEUED
        a: EXEC -> -EXECABORT Transaction discarded because of previous errors.
        a: GET k -> $-1
        a: EXEC -> -ERR EXEC without MULTI");
}

/// A command that fails when it runs does not stop the others.
#[test]
fn an_error_while_running_stops_nothing() {
    run("a: MULTI -> +OK
        a: SET k x -> +QUEUED
        a: INCR k -> +QUEUED
        a: HSET k f v -> +QUEUED
        a: APPEND k y -> +QUEUED
        a: EXEC -> *4 +OK -ERR value is not an integer or out of range \
         -WRONGTYPE Operation against a key holding the wrong kind of value :2
        a: GET k -> $2 xy");
}

#[test]
fn a_refusal_does_not_break_a_watch_of_others() {
    run("a: WATCH k -> +OK
        b: MULTI -> +OK
        b: SET k 1 -> +QUEUED
        b: GET -> -ERR wrong number of arguments for 'get' command
        b: EXEC -> -EXECABORT Transaction discarded because of previous errors.
        a: MULTI -> +OK
        a: PING -> +QUEUED
        a: EXEC -> *1 +PONG");
}

#[test]
fn a_transaction_may_select_and_swap_databases() {
    run("a: MULTI -> +OK
        a: SET k 0 -> +QUEUED
        a: SELECT 1 -> +QUEUED
        a: SET k 1 -> +QUEUED
        a: SWAPDB 0 1 -> +QUEUED
        a: GET k -> +QUEUED
        a: EXEC -> *5 +OK +OK +OK +OK $1 0
        a: GET k -> $1 0
        b: GET k -> $1 1");
}

#[test]
fn a_transaction_may_clear_what_it_works_on() {
    run("a: SET k 0 -> +OK
        a: MULTI -> +OK
        a: GET k -> +QUEUED
        a: FLUSHALL -> +QUEUED
        a: GET k -> +QUEUED
        a: SET k 1 -> +QUEUED
        a: DBSIZE -> +QUEUED
        a: EXEC -> *5 $1 0 +OK $-1 +OK :1");
}

#[test]
fn unwatch_inside_a_transaction_comes_too_late() {
    run("a: WATCH k -> +OK
        b: SET k 1 -> +OK
        a: MULTI -> +OK
        a: UNWATCH -> +QUEUED
        a: EXEC -> *-1");
}

#[test]
fn reset_drops_the_transaction() {
    run("a: SET k 0 -> +OK
        a: WATCH k -> +OK
        a: SELECT 3 -> +OK
        a: MULTI -> +OK
        a: SET k 1 -> +QUEUED
        a: RESET -> +RESET
        a: EXEC -> -ERR EXEC without MULTI
        a: GET k -> $1 0
        b: SET k 2 -> +OK
        a: MULTI -> +OK
        a: EXEC -> *0");
}

/// Two connections queue at the same time; each sees its own queue only.
#[test]
fn transactions_of_two_connections_are_apart() {
    run("a: MULTI -> +OK
        b: MULTI -> +OK
        a: INCR k -> +QUEUED
        b: INCR k -> +QUEUED
        b: INCR k -> +QUEUED
        a: EXEC -> *1 :1
        b: EXEC -> *2 :2 :3");
}
