//! What clients can do to others by way of snapshots: memory, work and marks.

use super::*;
use crate::EvictionPolicy;

/// What the database takes for snapshots and trees that are on their way out.
fn leftovers(shell: &Shell) -> (u64, usize, usize) {
    let (mut trees, mut dropped) = (0, 0);
    shell.database.gauges(&mut |gauge| match gauge.name {
        "trees" => trees = gauge.value as usize,
        "dropped_trees" => dropped = gauge.value as usize,
        _ => {}
    });
    (shell.database.images().count, trees, dropped)
}

/// Lets everything be done that is left to do: what sessions have retired is theirs to free.
fn settle(shell: &mut Shell, session: &mut crate::Session) {
    for _ in 0..10 {
        while session.maintain() || shell.session.maintain() {}
    }
}

/// Made and dropped without end beside an older one: what waits to be merged is bounded, the error
/// says what is the matter, and the older one stands.
#[test]
fn snapshots_made_and_dropped_without_end_are_refused_and_merged() {
    let on_their_way = "-ERR the memory of very many dropped snapshots is not free yet; try again";
    for mut shell in shells() {
        shell.database.close();
        let before = leftovers(&shell);
        for key in 0..10 {
            shell.line(&format!("SET k{key} first"));
        }
        shell.line("SNAPSHOT CREATE old");
        let mut refused = 0;
        for round in 0..200 {
            let reply = shell.line("SNAPSHOT CREATE new");
            if reply.starts_with('*') {
                shell.line(&format!("SET k{} {round}", round % 10));
                shell.check(&[("SNAPSHOT DROP new", ":1")]);
            } else {
                assert_eq!(reply, on_their_way);
                refused += 1;
            }
        }
        let copies = shell.database.options().engine == EngineKind::Reference;
        assert_eq!(copies, refused == 0, "plain copies need no merge");
        for key in 0..10 {
            let read = format!("SNAPSHOT READ old GET k{key}");
            shell.check(&[(&read, "$5 first")]);
        }
        let mut session = shell.database.session().expect("a session is free");
        while session.maintain() {}
        assert!(shell.line("SNAPSHOT CREATE new").starts_with('*'));
        let images = leftovers(&shell).0;
        assert_eq!(images, if copies { 20 } else { 10 }, "one of each key");
        shell.check(&[
            ("SNAPSHOT READ old MGET k0 k9", "*2 $5 first $5 first"),
            ("SNAPSHOT DROP ALL", ":2"),
            ("FLUSHALL", "+OK"),
        ]);
        settle(&mut shell, &mut session);
        assert_eq!(leftovers(&shell), before);
    }
}

/// What a snapshot kept comes back when it goes, be it the only one, the oldest or the newest.
#[test]
fn memory_of_a_dropped_snapshot_comes_back() {
    for mut shell in shells() {
        shell.database.close();
        let mut session = shell.database.session().expect("a session is free");
        let before = leftovers(&shell);
        let names = ["a", "b", "c"];
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            for (round, name) in names.iter().enumerate() {
                for key in 0..300 {
                    shell.line(&format!("SET k{key} {round}{}", "v".repeat(key * 10)));
                }
                shell.line(&format!("SNAPSHOT CREATE {name}"));
            }
            shell.line("FLUSHALL");
            for (gone, index) in order.into_iter().enumerate() {
                for (round, name) in names.iter().enumerate() {
                    let read = shell.line(&format!("SNAPSHOT READ {name} GETRANGE k299 0 0"));
                    let is_gone = order[..gone].contains(&round);
                    assert_eq!(
                        read,
                        if is_gone {
                            NONE.to_owned()
                        } else {
                            format!("$1 {round}")
                        }
                    );
                }
                shell.line(&format!("SNAPSHOT DROP {}", names[index]));
                while session.maintain() {}
            }
            settle(&mut shell, &mut session);
            assert_eq!(leftovers(&shell), before, "{order:?}");
            assert_eq!(shell.database.store.reclaimable_bytes(), 0);
        }
    }
}

/// A read of many slices in an EXEC shows its snapshot throughout, and the present after it.
#[test]
fn a_long_read_in_an_exec_stays_in_its_snapshot() {
    for mut shell in shells() {
        let keys = 2 * limits::SLICE_ENTRIES_MAX + 1;
        for key in 0..keys {
            shell.store(format!("{key:06}").as_bytes(), b"v");
        }
        shell.line("SNAPSHOT CREATE a");
        shell.check(&[
            ("FLUSHALL", "+OK"),
            ("MULTI", "+OK"),
            ("SET only 1", "+QUEUED"),
            ("SNAPSHOT READ a KEYS *", "+QUEUED"),
            ("KEYS *", "+QUEUED"),
            ("SNAPSHOT READ a DBSIZE", "+QUEUED"),
            ("DBSIZE", "+QUEUED"),
        ]);
        let reply = shell.run(["EXEC"]);
        let reply = String::from_utf8(reply).expect("text");
        assert!(reply.starts_with(&format!("*5\r\n+OK\r\n*{keys}\r\n")));
        let rest = format!("*1\r\n$4\r\nonly\r\n:{keys}\r\n:1\r\n");
        assert!(reply.ends_with(&rest), "{}", &reply[reply.len() - 60..]);
    }
}

/// Reads in a snapshot keep no key from eviction.
#[test]
fn reads_in_a_snapshot_do_not_mark_the_present() {
    for mut shell in shells() {
        let policy = EvictionPolicy::AllKeysLfu;
        shell.database.set_eviction_policy(policy);
        shell.check(&[("SET k 1", "+OK"), ("SET other 1", "+OK")]);
        shell.line("SNAPSHOT CREATE a");
        let before = shell.line("OBJECT FREQ k");
        shell.line("SNAPSHOT USE a");
        for _ in 0..300 {
            shell.check(&[
                ("GET k", "$1 1"),
                ("MGET k other", "*2 $1 1 $1 1"),
                ("TOUCH k", ":1"),
                ("SNAPSHOT READ a STRLEN k", ":1"),
            ]);
        }
        shell.line("SNAPSHOT USE NONE");
        assert_eq!(shell.line("OBJECT FREQ k"), before);
        for _ in 0..300 {
            shell.line("GET k");
        }
        assert_ne!(
            shell.line("OBJECT FREQ k"),
            before,
            "as reads at present do"
        );
    }
}

/// RANDOMKEY finds the one key of a snapshot among very many that came later.
#[test]
fn a_random_key_is_one_of_the_snapshot() {
    for mut shell in shells() {
        shell.check(&[("SET old 1", "+OK"), ("SET due 1 PX 5", "+OK")]);
        shell.pass_ms(6);
        shell.line("SNAPSHOT CREATE a");
        for key in 0..3000 {
            shell.store(format!("new{key}").as_bytes(), b"v");
        }
        shell.check(&[("SNAPSHOT READ a RANDOMKEY", "$3 old"), ("DEL old", ":1")]);
        shell.check(&[("SNAPSHOT READ a RANDOMKEY", "$3 old")]);
    }
}
