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
        let engine = shell.database.options().engine;
        let copies = engine == EngineKind::Reference;
        let merges = matches!(engine, EngineKind::Masstree | EngineKind::Mercury);
        assert_eq!(merges, refused > 0, "copies and views need no merge");
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

/// A lower number than there are snapshots takes none away.
#[test]
fn there_may_be_fewer() {
    for mut shell in shells() {
        let refused = |most: usize| {
            format!("-ERR there are {most} snapshots already, as many as are allowed; drop one")
        };
        shell.line("SNAPSHOT CREATE a");
        shell.line("SNAPSHOT CREATE b");
        for most in [2, 1, 0] {
            shell.database.set_snapshots_max(most);
            shell.check(&[("SNAPSHOT CREATE c", &refused(most))]);
        }
        shell.check(&[
            ("SNAPSHOT READ a DBSIZE", ":0"),
            ("SNAPSHOT DROP ALL", ":2"),
        ]);
        shell.check(&[("SNAPSHOT CREATE c", &refused(0))]);
    }
}

/// Trees that were emptied stay as long as a snapshot shows them, and no longer.
#[test]
fn flushed_trees_go_with_the_last_snapshot() {
    let trees = |shell: &Shell| {
        let mut count = 0;
        shell.database.gauges(&mut |gauge| {
            if gauge.name == "trees" {
                count = gauge.value as usize;
            }
        });
        count
    };
    for mut shell in shells() {
        let before = trees(&shell);
        shell.line("SET k 1");
        shell.line("SNAPSHOT CREATE a");
        shell.check(&[("FLUSHALL", "+OK"), ("SET k 2", "+OK")]);
        shell.line("SNAPSHOT CREATE b");
        shell.check(&[
            ("FLUSHALL", "+OK"),
            ("SNAPSHOT READ a GET k", "$1 1"),
            ("SNAPSHOT READ b GET k", "$1 2"),
            ("SNAPSHOT DROP b", ":1"),
            ("SNAPSHOT READ a GET k", "$1 1"),
            ("SNAPSHOT DROP a", ":1"),
        ]);
        let mut session = shell.database.session().expect("a session is free");
        while session.maintain() {}
        assert_eq!(
            trees(&shell),
            before,
            "{}",
            shell.database.options().engine.name()
        );
    }
}

/// A snapshot with a time to live goes when it is over, held or not.
#[test]
fn a_snapshot_goes_when_its_time_is_over() {
    for mut shell in shells() {
        shell.database.close();
        shell.line("SET k 1");
        shell.line("SNAPSHOT CREATE short TTL 2 HOLD");
        shell.line("SNAPSHOT CREATE long TTL 5");
        shell.line("SNAPSHOT CREATE endless");
        shell.line("SET k 2");
        let mut session = shell.database.session().expect("a session is free");
        let names = |shell: &mut Shell| {
            let list = shell.line("SNAPSHOT LIST");
            ["short", "long", "endless"].map(|name| list.contains(name))
        };
        let mut pass = |shell: &mut Shell, milliseconds| {
            shell.pass_ms(milliseconds);
            while session.maintain() {}
            names(shell)
        };
        assert_eq!(pass(&mut shell, 1999), [true; 3]);
        assert_eq!(pass(&mut shell, 1), [false, true, true]);
        assert_eq!(pass(&mut shell, 3000), [false, false, true]);
        assert_eq!(pass(&mut shell, 1_000_000_000), [false, false, true]);
        shell.check(&[("SNAPSHOT READ endless GET k", "$1 1")]);
    }
}

/// Past the bound of images the oldest snapshots go, and no more of them than must.
#[test]
fn images_are_bounded_by_the_oldest_snapshots() {
    for mut shell in shells() {
        shell.database.close();
        if !keeps_images(&mut shell) {
            continue;
        }
        shell.database.set_snapshot_bytes_max(64 * 1024);
        let mut session = shell.database.session().expect("a session is free");
        for round in 0..20 {
            shell.line(&format!("SNAPSHOT CREATE s{round}"));
            for key in 0..30 {
                shell.line(&format!("SET key{key} {}", "v".repeat(1000)));
            }
            while session.maintain() {}
            assert!(shell.database.images().bytes <= 64 * 1024);
            let newest = shell.line(&format!("SNAPSHOT READ s{round} DBSIZE"));
            assert_eq!(newest, if round == 0 { ":0" } else { ":30" });
        }
        let list = shell.line("SNAPSHOT LIST");
        assert!(
            !list.contains("$2 s0 ") && list.contains("$3 s18 "),
            "{list}"
        );
    }
}

/// Held snapshots stay: what would need an image is refused, everything else is not.
#[test]
fn writes_that_need_an_image_of_a_held_snapshot_are_refused() {
    let refused = "-OOM command not allowed: a held snapshot needs what it would change, and \
                   snapshots take all the memory that they may";
    for mut shell in shells() {
        shell.database.close();
        if !keeps_images(&mut shell) {
            continue;
        }
        shell.check(&[
            ("SET other 1", "+OK"),
            ("SET k 1", "+OK"),
            ("HSET h f v", ":1"),
        ]);
        shell.line("SNAPSHOT CREATE held HOLD");
        shell.line(&format!("SET other {}", "v".repeat(1000)));
        shell.database.set_snapshot_bytes_max(1);
        let mut session = shell.database.session().expect("a session is free");
        while session.maintain() {}
        let aborted = format!(
            "-EXECABORT Transaction discarded because of: {}",
            &refused[1..]
        );
        shell.check(&[
            ("SET k 2", refused),
            ("DEL k", refused),
            ("MSET new 1 k 2", refused),
            ("EXISTS new", ":0"),
            ("RENAME k k2", refused),
            ("BITOP NOT h other", refused),
            ("KRANGEDEL - +", refused),
            ("MULTI", "+OK"),
            ("SET new 1", "+QUEUED"),
            ("SET k 2", "+QUEUED"),
            ("EXEC", &aborted),
            // The same key in another database, seen from there and from here.
            ("MULTI", "+OK"),
            ("SELECT 1", "+QUEUED"),
            ("SET k 2", "+QUEUED"),
            ("EXEC", "*2 +OK +OK"),
            ("MULTI", "+OK"),
            ("SELECT 0", "+QUEUED"),
            ("SET k 2", "+QUEUED"),
            ("EXEC", &aborted),
            ("MULTI", "+OK"),
            ("SWAPDB 0 1", "+QUEUED"),
            ("SET k 2", "+QUEUED"),
            ("EXEC", &aborted),
            ("SELECT 0", "+OK"),
            ("EXISTS new", ":0"),
            ("SET new 1", "+OK"),
            ("SET new 2", "+OK"),
            ("SET other 3", "+OK"),
            ("BITOP NOT new k", ":1"),
            ("GET k", "$1 1"),
            ("HGET h f", "$1 v"),
        ]);
        shell.check(&[("FLUSHALL", "+OK"), ("SNAPSHOT READ held GET k", "$1 1")]);
        shell.check(&[("SNAPSHOT DROP held", ":1")]);
        while session.maintain() {}
        shell.check(&[("SET k 2", "+OK"), ("SET k 3", "+OK"), ("DEL k", ":1")]);
    }
}

/// Whether the engine counts images, which plain copies are not.
fn keeps_images(shell: &mut Shell) -> bool {
    shell.line("SET image 1");
    shell.line("SNAPSHOT CREATE trial");
    shell.line("SET image 2");
    let keeps = shell.database.images().count > 0;
    shell.check(&[("SNAPSHOT DROP trial", ":1"), ("DEL image", ":1")]);
    keeps
}
