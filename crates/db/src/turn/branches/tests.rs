//! BRANCH, as clients see it.

mod merges;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::commands::testing::{START_MS, Shell, words};
use crate::{EngineKind, Options, Progress, limits, maintenance};

fn shell() -> Shell {
    Shell::with_options(Options {
        engine: EngineKind::Minuet,
        ..Options::default()
    })
}

/// A client of branch `name`, made from what the shell uses.
fn on_branch(shell: &mut Shell, name: &str) -> Shell {
    let reply = shell.line(&format!("BRANCH CREATE {name}"));
    assert!(reply.ends_with(":0"), "it does not last: {reply}");
    let mut other = shell.connect();
    other.check(&[(&format!("BRANCH USE {name}"), "+OK")]);
    other
}

const GONE: &str = "-NOBRANCH the branch has gone; BRANCH USE MAIN returns to the first one";

#[test]
fn what_is_written_on_a_branch_is_seen_there_alone() {
    let mut main = shell();
    main.check(&[
        ("SET k main", "+OK"),
        ("HSET h f 1 g 2", ":2"),
        ("RPUSH l a b", ":2"),
        ("SELECT 3", "+OK"),
        ("SET three main", "+OK"),
        ("SELECT 0", "+OK"),
    ]);
    let mut trial = on_branch(&mut main, "trial");
    trial.check(&[
        ("GET k", "$4 main"),
        ("DBSIZE", ":3"),
        ("SET k trial", "+OK"),
        ("HINCRBY h f 10", ":11"),
        ("LPOP l", "$1 a"),
        ("DEL nothing", ":0"),
        ("SELECT 3", "+OK"),
        ("GET three", "$4 main"),
        ("RENAME three drei", "+OK"),
        ("MOVE drei 0", ":1"),
        ("SELECT 0", "+OK"),
        ("DBSIZE", ":4"),
    ]);
    main.check(&[
        ("GET k", "$4 main"),
        ("HGET h f", "$1 1"),
        ("LLEN l", ":2"),
        ("DBSIZE", ":3"),
        ("BRANCH READ trial GET k", "$5 trial"),
        ("BRANCH READ trial DBSIZE", ":4"),
        (
            "BRANCH READ trial SET k v",
            "-ERR BRANCH READ runs no commands but those that only read",
        ),
        ("SET later main", "+OK"),
    ]);
    trial.check(&[
        ("EXISTS later", ":0"),
        ("BRANCH READ MAIN EXISTS later", ":1"),
        ("FLUSHDB", "+OK"),
        ("DBSIZE", ":0"),
        ("BRANCH READ MAIN DBSIZE", ":4"),
        ("SET new 1", "+OK"),
        ("SWAPDB 0 1", "+OK"),
        ("DBSIZE", ":0"),
        ("SELECT 1", "+OK"),
        ("GET new", "$1 1"),
        ("FLUSHALL", "+OK"),
        ("DBSIZE", ":0"),
        ("BRANCH USE main", "+OK"),
        ("SELECT 0", "+OK"),
        ("DBSIZE", ":4"),
    ]);
}

#[test]
fn branches_have_names() {
    let mut main = shell();
    let mut trial = on_branch(&mut main, "trial");
    let exists = "-ERR a branch or a snapshot of this name exists already";
    let unknown = "-NOBRANCH no branch has this name";
    let word = "-ERR no branch is named ALL, NONE or RECENT, as no snapshot is";
    main.line("SNAPSHOT CREATE s");
    main.check(&[
        ("BRANCH CREATE trial", exists),
        ("BRANCH CREATE Main", exists),
        ("BRANCH CREATE Recent", word),
        ("BRANCH RENAME trial none", word),
        ("BRANCH CREATE s", exists),
        ("SNAPSHOT CREATE trial", exists),
        (
            "BRANCH CREATE x FROM nothing",
            "-NOBRANCH neither a branch nor a snapshot has this name",
        ),
        ("BRANCH CREATE x OF trial", "-ERR syntax error"),
        (
            "BRANCH CREATE \"a b\"",
            "-ERR names of branches cannot be empty or contain spaces or special characters",
        ),
        ("BRANCH USE nothing", unknown),
        ("BRANCH DROP nothing", unknown),
        ("BRANCH INFO nothing", unknown),
        ("BRANCH READ nothing GET k", unknown),
        ("BRANCH RENAME trial s", exists),
        ("BRANCH RENAME trial tried", "+OK"),
        ("BRANCH USE trial", unknown),
        ("BRANCH RENAME main MAIN2", "+OK"),
        ("BRANCH MAIN", "$5 MAIN2"),
        ("BRANCH RENAME main main", "+OK"),
        (
            "BRANCH DROP main",
            "-ERR the first branch stays: it is what other engines have of it",
        ),
        ("BRANCH MAIN tried", "+OK"),
        (
            "BRANCH DROP tried",
            "-ERR new connections use this branch; BRANCH MAIN chooses another",
        ),
        ("BRANCH MAIN main", "+OK"),
    ]);
    let made = format!("*2 *3 $4 main :{START_MS} :0 *3 $5 tried :{START_MS} :0");
    main.check(&[
        ("BRANCH LIST", &made),
        ("BRANCH DROP tried", "+OK"),
        (
            "BRANCH CREATE later FROM s",
            &format!("*3 $5 later :{START_MS} :0"),
        ),
    ]);
    trial.check(&[
        ("GET k", GONE),
        ("SET k v", GONE),
        ("WATCH k", GONE),
        ("PING", "+PONG"),
        ("BRANCH USE later", "+OK"),
        ("SET k v", "+OK"),
        (
            "BRANCH INFO later",
            &format!(
                "*16 $4 name $5 later $4 from $1 s $10 created-ms :{START_MS} $6 age-ms :0 \
             $8 mainline :0 \
             $7 persist :0 $4 keys :1 $11 descendants :4"
            ),
        ),
    ]);
}

#[test]
fn other_engines_say_which_one_has_branches() {
    for engine in [
        EngineKind::Masstree,
        EngineKind::Mercury,
        EngineKind::Reference,
    ] {
        let mut shell = Shell::with_options(Options {
            engine,
            ..Options::default()
        });
        let name = engine.name();
        let none = format!("-ERR the engine {name} has no branches: they need --engine minuet");
        for line in [
            "CREATE x",
            "USE x",
            "LIST",
            "INFO x",
            "DROP x",
            "RENAME x y",
            "MAIN",
        ] {
            shell.check(&[(&format!("BRANCH {line}"), &none)]);
        }
        assert!(shell.line("BRANCH HELP").starts_with('*'));
    }
}

#[test]
fn what_a_connection_uses_is_its_own_state() {
    let mut main = shell();
    let mut trial = on_branch(&mut main, "trial");
    main.line("SNAPSHOT CREATE s");
    trial.check(&[
        ("SET k trial", "+OK"),
        ("SNAPSHOT USE s", "+OK"),
        ("GET k", "$-1"),
        ("SNAPSHOT USE NONE", "+OK"),
        ("GET k", "$5 trial"),
        ("SNAPSHOT USE s", "+OK"),
        ("BRANCH USE trial", "+OK"),
        ("SET k again", "+OK"),
        ("MULTI", "+OK"),
        (
            "BRANCH USE main",
            "-ERR Command not allowed inside a transaction",
        ),
        (
            "EXEC",
            "-EXECABORT Transaction discarded because of previous errors.",
        ),
        ("MULTI", "+OK"),
        ("GET k", "+QUEUED"),
        ("BRANCH READ main EXISTS k", "+QUEUED"),
        ("SET k multi", "+QUEUED"),
        ("EXEC", "*3 $5 again :0 +OK"),
    ]);
    trial.line("SNAPSHOT CREATE there");
    trial.check(&[("SET k later", "+OK")]);
    main.check(&[
        ("EXISTS k", ":0"),
        ("SNAPSHOT READ there GET k", "$5 multi"),
        (
            "BRANCH CREATE of FROM there",
            &format!("*3 $2 of :{START_MS} :0"),
        ),
        ("BRANCH READ of GET k", "$5 multi"),
        ("BRANCH DROP trial", "+OK"),
        ("SNAPSHOT READ there GET k", "$5 multi"),
        ("SNAPSHOT DROP there", ":1"),
        ("BRANCH READ of GET k", "$5 multi"),
    ]);
}

#[test]
fn watches_are_of_their_branch_and_a_reset_breaks_them() {
    let mut main = shell();
    main.check(&[("SET k 1", "+OK"), ("SET other 1", "+OK")]);
    main.line("SNAPSHOT CREATE s");
    let mut trial = on_branch(&mut main, "trial");
    trial.check(&[
        ("SET k 2", "+OK"),
        ("SET new 1 EX 100", "+OK"),
        ("WATCH k", "+OK"),
    ]);
    main.check(&[("SET k main", "+OK")]);
    trial.check(&[("MULTI", "+OK"), ("EXEC", "*0"), ("WATCH k", "+OK")]);
    main.check(&[("BRANCH RESET trial TO s", ":2")]);
    trial.check(&[
        ("MULTI", "+OK"),
        ("EXEC", "*-1"),
        ("GET k", "$1 1"),
        ("EXISTS new", ":0"),
        ("DBSIZE", ":2"),
        ("WATCH other", "+OK"),
    ]);
    main.check(&[
        ("BRANCH RESET main TO s", ":1"),
        ("GET k", "$1 1"),
        (
            "BRANCH RESET main TO trial",
            "-NOSNAPSHOT no snapshot has this name",
        ),
        ("BRANCH DROP trial", "+OK"),
    ]);
    trial.check(&[("MULTI", "+OK"), ("EXEC", "*-1")]);
}

/// A reset puts back what was before a flush, and a value that returns has a new version.
#[test]
fn a_reset_undoes_a_flush_and_raises_versions() {
    let mut main = shell();
    main.check(&[
        ("SET a 1", "+OK"),
        ("SET b 2 PX 1000", "+OK"),
        ("HSET h f 1", ":1"),
    ]);
    main.line("SNAPSHOT CREATE s");
    let mut other = main.connect();
    other.check(&[("WATCH a", "+OK")]);
    main.check(&[
        ("FLUSHALL", "+OK"),
        ("SET c 3", "+OK"),
        ("BRANCH RESET main TO s", ":4"),
        ("MGET a b c", "*3 $1 1 $1 2 $-1"),
        ("PTTL b", ":1000"),
        ("HGETALL h", "*2 $1 f $1 1"),
        ("BRANCH RESET main TO s", ":0"),
    ]);
    other.check(&[("MULTI", "+OK"), ("EXEC", "*-1")]);
}

#[test]
fn differences_are_listed_in_pieces() {
    let mut main = shell();
    for key in 0..40 {
        main.line(&format!("SET key:{key:02} {key}"));
    }
    let mut trial = on_branch(&mut main, "trial");
    trial.check(&[
        ("DEL key:03", ":1"),
        ("SET key:07 other", "+OK"),
        ("SET key:08 8", "+OK"),
        ("SET key:99 new", "+OK"),
        ("HSET h f 1", ":1"),
    ]);
    main.check(&[
        (
            "BRANCH DIFF MAIN trial",
            "*2 $-1 *4 *2 $1 h $5 added *2 $6 key:03 $7 removed *2 $6 key:07 $7 changed *2 $6 \
             key:99 $5 added",
        ),
        (
            "BRANCH DIFF trial MAIN PREFIX key: LIMIT 1",
            "*2 $6 key:07 *1 *2 $6 key:03 $5 added",
        ),
        (
            "BRANCH DIFF trial MAIN PREFIX key: LIMIT 1 FROM key:07",
            "*2 $6 key:99 *1 *2 $6 key:07 $7 changed",
        ),
        (
            "BRANCH DIFF trial MAIN PREFIX key: FROM key:99",
            "*2 $-1 *1 *2 $6 key:99 $7 removed",
        ),
        ("BRANCH DIFF MAIN trial COUNT", ":4"),
        ("BRANCH DIFF MAIN trial PREFIX key:0 COUNT", ":2"),
        ("BRANCH DIFF MAIN MAIN COUNT", ":0"),
        (
            "BRANCH DIFF MAIN trial LIMIT 0",
            "-ERR value is out of range, must be positive",
        ),
        ("BRANCH DIFF MAIN trial LIMIT", "-ERR syntax error"),
        (
            "BRANCH DIFF MAIN nothing",
            "-NOBRANCH neither a branch nor a snapshot has this name",
        ),
    ]);
    trial.check(&[("FLUSHDB", "+OK"), ("SET key:00 0", "+OK")]);
    main.check(&[("BRANCH DIFF MAIN trial COUNT", ":39")]);
    main.line("SNAPSHOT CREATE s");
    main.check(&[("SET key:00 x", "+OK"), ("BRANCH DIFF s MAIN COUNT", ":1")]);
}

/// Large differences run in slices; a branch that goes meanwhile is an error.
#[test]
fn a_branch_that_goes_amid_a_comparison_is_an_error() {
    let mut main = shell();
    let mut trial = on_branch(&mut main, "trial");
    let mut fill = vec!["MSET".to_owned()];
    for key in 0..3000 {
        fill.extend([format!("k{key}"), "v".to_owned()]);
    }
    trial.run(fill);
    let diff = ["BRANCH", "DIFF", "MAIN", "trial", "COUNT"];
    let (reply, slices) = main.run_counting_slices(diff);
    assert_eq!((&reply[..], slices > 4), (&b":3000\r\n"[..], true));
    let mut other = main.connect();
    let (reply, _) = main.run_between_slices(diff, |slice| {
        if slice == 3 {
            other.check(&[("BRANCH DROP trial", "+OK")]);
        }
    });
    let changed = "-ERR the branch was emptied, or has gone, while it was compared\r\n";
    assert_eq!(String::from_utf8_lossy(&reply), changed);
}

/// A model: what is written on branches that are made from each other, applied by merges with
/// THEIRS, and by resets, is what the differences say.
#[test]
fn a_difference_that_is_applied_leaves_none() {
    let mut random = fastrand::Rng::with_seed(crate::commands::testing::seed());
    for _ in 0..6 {
        let mut main = shell();
        let write = |shell: &mut Shell, random: &mut fastrand::Rng| {
            for _ in 0..random.usize(1..60) {
                let key = random.u8(..50);
                let value = "v".repeat([1, 5, 700, 9000][random.usize(..4)]);
                let long = if random.u8(..8) == 0 {
                    "k".repeat(260)
                } else {
                    String::new()
                };
                match random.u8(..4) {
                    0 => _ = shell.run(["DEL", &format!("{long}s{key}"), &format!("h{key}")]),
                    1 => {
                        _ = shell.run([
                            "HSET",
                            &format!("h{key}"),
                            &format!("f{}", key % 7),
                            &value,
                        ]);
                    }
                    _ => _ = shell.run(["SET", &format!("{long}s{key}"), &value]),
                }
            }
        };
        write(&mut main, &mut random);
        let mut one = on_branch(&mut main, "one");
        write(&mut one, &mut random);
        write(&mut main, &mut random);
        one.line("SNAPSHOT CREATE s");
        let mut two = on_branch(&mut one, "two");
        write(&mut two, &mut random);
        write(&mut one, &mut random);
        main.line("BRANCH MERGE two INTO one ON CONFLICT THEIRS");
        main.line("BRANCH MERGE one INTO two ON CONFLICT THEIRS");
        main.check(&[("BRANCH DIFF one two COUNT", ":0")]);
        let size = one.line("DBSIZE");
        two.check(&[("DBSIZE", &size)]);
        main.line("BRANCH RESET one TO s");
        main.check(&[("BRANCH DIFF one s COUNT", ":0")]);
        main.line("BRANCH RESET main TO s");
        main.check(&[("BRANCH DIFF one main COUNT", ":0")]);
        let size = one.line("DBSIZE");
        main.check(&[("DBSIZE", &size)]);
    }
}

#[test]
fn a_branch_of_a_branch_a_thousand_deep_is_read_and_dropped() {
    let mut shell = shell();
    shell.check(&[("SET first 1", "+OK")]);
    for depth in 0..1000 {
        shell.line(&format!("BRANCH CREATE b{depth}"));
        shell.check(&[
            (&format!("BRANCH USE b{depth}"), "+OK"),
            ("INCR depth", &format!(":{}", depth + 1)),
        ]);
    }
    shell.check(&[
        ("GET first", "$1 1"),
        ("BRANCH READ b499 GET depth", "$3 500"),
        ("BRANCH READ MAIN EXISTS depth", ":0"),
        ("BRANCH DIFF b10 b999 COUNT", ":1"),
        (
            "BRANCH MERGE b999 INTO MAIN",
            "*6 $6 merged :1 $9 conflicts :0 $4 keys *0",
        ),
        ("BRANCH USE MAIN", "+OK"),
        ("GET depth", "$4 1000"),
    ]);
    for depth in (0..1000).rev() {
        shell.check(&[(&format!("BRANCH DROP b{depth}"), "+OK")]);
    }
    assert_eq!(shell.database.branches(), Some(1));
}

/// Ten thousand branches are made, listed, used and dropped; past the bound one more is refused;
/// what they took is given back.
#[test]
fn ten_thousand_branches_are_made_and_dropped() {
    let mut main = Shell::with_options(Options {
        engine: EngineKind::Minuet,
        databases: 2,
        ..Options::default()
    });
    main.check(&[("MSET a 1 b 1", "+OK")]);
    let collected = |shell: &Shell| {
        let mut found = 0.0;
        shell.database.gauges(&mut |gauge| {
            if gauge.name == "collected_pages_total" {
                found = gauge.value;
            }
        });
        found as usize
    };
    let count = pando_minuet::limits::BRANCHES_MAX - 1;
    assert!(count > 10_000);
    for number in 0..count {
        let reply = main.line(&format!("BRANCH CREATE b{number}"));
        assert!(reply.starts_with("*3 "), "{number}: {reply}");
    }
    let refused = "-ERR there are too many branches; drop one";
    main.check(&[("BRANCH CREATE more", refused)]);
    let list = main.line("BRANCH LIST");
    assert!(list.starts_with(&format!("*{} *3 $4 main ", count + 1)));
    let last = format!("b{}", count - 1);
    main.check(&[
        (&format!("BRANCH USE {last}"), "+OK"),
        ("SET a 2", "+OK"),
        (
            &format!("BRANCH DIFF b0 {last}"),
            "*2 $-1 *1 *2 $1 a $7 changed",
        ),
        (&format!("BRANCH READ b{} GET a", count / 2), "$1 1"),
        ("BRANCH USE MAIN", "+OK"),
        ("GET a", "$1 1"),
    ]);
    for number in 0..count {
        main.check(&[(&format!("BRANCH DROP b{number}"), "+OK")]);
    }
    assert_eq!(main.database.branches(), Some(1));
    // Of each, its root and that of the version which it was made from.
    let database = Arc::clone(&main.database);
    let mut session = database.open_session().expect("a session is free");
    for _ in 0..10_000 {
        if collected(&main) < 2 * count {
            maintenance::round(&database, &mut session);
        }
    }
    database.close_session(&session);
    assert!(collected(&main) >= 2 * count, "{}", collected(&main));
}

#[test]
fn a_branch_has_a_bound_of_descendant_sets() {
    let mut main = shell();
    main.check(&[(
        "BRANCH CREATE again DESCENDANTS 2",
        &format!("*3 $5 again :{START_MS} :0"),
    )]);
    let info = main.line("BRANCH INFO again");
    assert!(info.ends_with(" $11 descendants :2"), "{info}");
    main.check(&[
        (
            "BRANCH CREATE no DESCENDANTS 5",
            "-ERR descendant sets have 2 to 4 ids at most",
        ),
        (
            "BRANCH CREATE no DESCENDANTS 1 FROM main",
            "-ERR descendant sets have 2 to 4 ids at most",
        ),
        (
            "BRANCH CREATE no DESCENDANTS x",
            "-ERR value is not an integer or out of range",
        ),
        ("BRANCH CREATE no DESCENDANTS", "-ERR syntax error"),
        ("BRANCH CREATE no FROM main FROM main", "-ERR syntax error"),
    ]);
}

/// A client that waits for a key of a branch is woken and told when the branch goes, and one that
/// leaves amid a transaction on a branch leaves nothing.
#[test]
fn clients_that_wait_or_leave_amid_a_branch() {
    let mut main = shell();
    let woken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&woken);
    main.database
        .on_ready(move |_| _ = counted.fetch_add(1, Ordering::Relaxed));
    let mut trial = on_branch(&mut main, "trial");
    let mut waiting = main.connect();
    waiting.client().id = 2;
    waiting.check(&[("BRANCH USE trial", "+OK")]);
    let blocks = |shell: &mut Shell| {
        let (reply, progress) = shell.begin(words("BLPOP l 0"));
        (
            String::from_utf8(reply).unwrap(),
            matches!(progress, Progress::Waits(_)),
        )
    };
    assert_eq!(blocks(&mut waiting), (String::new(), true));
    // The same key on another branch is another.
    main.check(&[("RPUSH l main", ":1")]);
    assert_eq!(woken.load(Ordering::Relaxed), 0);
    trial.check(&[("WATCH k", "+OK"), ("MULTI", "+OK"), ("SET k v", "+QUEUED")]);
    assert!(main.database.watch_horizon.is_held());
    main.database.forget(trial.client());
    drop(trial);
    assert!(!main.database.watch_horizon.is_held());
    main.check(&[
        ("BRANCH READ trial EXISTS k", ":0"),
        ("BRANCH DROP trial", "+OK"),
    ]);
    assert_eq!(woken.load(Ordering::Relaxed), 1);
    assert_eq!(blocks(&mut waiting), (format!("{GONE}\r\n"), false));
    assert_eq!(main.database.lines.waiting.len(), 0);
    main.check(&[("LLEN l", ":1")]);
}

/// New connections use the mainline, and RESET returns to it.
#[test]
fn the_mainline_is_what_new_connections_use() {
    let mut main = shell();
    on_branch(&mut main, "trial").check(&[("SET k trial", "+OK"), ("BRANCH MAIN trial", "+OK")]);
    let mut new = main.connect();
    let database = Arc::clone(&main.database);
    database.admit(new.client());
    new.check(&[
        ("GET k", "$5 trial"),
        ("BRANCH USE main", "+OK"),
        ("GET k", "$-1"),
    ]);
    main.check(&[("GET k", "$-1"), ("BRANCH MAIN", "$5 trial")]);
}

/// They are in no index of the branch: the expirer meets them as it goes through its keys.
#[test]
fn what_a_branch_has_from_another_expires_there_too() {
    let mut main = shell();
    for key in 0..3 * limits::EXPIRE_LOOKS_MAX {
        let deadline = if key % 2 == 0 { " PX 10" } else { "" };
        main.line(&format!("SET {key:05} v{deadline}"));
    }
    main.check(&[
        ("SELECT 9", "+OK"),
        ("SET nine v PX 10", "+OK"),
        ("HSET h f 1 g 2", ":2"),
        ("HPEXPIRE h 10 FIELDS 1 f", "*1 :1"),
        ("SELECT 0", "+OK"),
    ]);
    let mut trial = on_branch(&mut main, "trial");
    let mut later = on_branch(&mut trial, "later");
    let kept = 3 * limits::EXPIRE_LOOKS_MAX / 2;
    trial.check(&[("SET 00000 v", "+OK")]);
    main.database.set_active_expire(true);
    main.pass_ms(10);
    let mut session = main.database.session().expect("a session is free");
    for _ in 0..2 * (4 + 1) {
        session.maintain();
    }
    for (shell, keys) in [
        (&mut main, kept),
        (&mut trial, kept + 1),
        (&mut later, kept),
    ] {
        shell.check(&[
            ("DBSIZE", &format!(":{keys}")),
            ("SELECT 9", "+OK"),
            ("DBSIZE", ":1"),
            ("HLEN h", ":1"),
            ("SELECT 0", "+OK"),
        ]);
    }
}
