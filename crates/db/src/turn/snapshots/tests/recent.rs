//! Snapshots that are lent, to whom, and for how long.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use pando_protocol::command;
use pando_protocol::{Reply, RequestBuffer, RespVersion};

use super::shells;
use crate::clock::Milliseconds;
use crate::commands::testing::{NoHost, Shell, words};
use crate::durable::testing::{self, Fault};
use crate::{Client, EngineKind, Options, Progress, Session, Turn, limits};

/// The name that a reply begins with.
fn name(entry: &str) -> String {
    let name = entry.split(' ').nth(2);
    name.expect("name, time, epoch").to_owned()
}

fn maintain(shell: &mut Shell) {
    while shell.session.maintain() {}
}

/// Shells without the background thread.
fn quiet() -> impl Iterator<Item = Shell> {
    shells().inspect(|shell| shell.database.close())
}

#[test]
fn a_recent_snapshot_stays_while_it_is_used() {
    for mut shell in quiet() {
        let mut other = shell.connect();
        shell.line("SET k 1");
        let used = name(&shell.line("SNAPSHOT USE RECENT"));
        assert!(used.starts_with("RECENT@"), "{used}");
        other.check(&[("SET k 2", "+OK")]);
        maintain(&mut other);
        shell.check(&[
            ("GET k", "$1 1"),
            (
                "SET k 3",
                "-READONLY You can't write against a snapshot; SNAPSHOT USE NONE returns to the \
                 present",
            ),
        ]);
        // It can be found by its name, too.
        other.check(&[
            (&format!("SNAPSHOT READ {used} GET k"), "$1 1"),
            (&format!("SNAPSHOT USE {used}"), "+OK"),
            ("GET k", "$1 1"),
        ]);
        shell.check(&[("SNAPSHOT USE NONE", "+OK"), ("GET k", "$1 2")]);
        maintain(&mut shell);
        other.check(&[("GET k", "$1 1"), ("SNAPSHOT USE NONE", "+OK")]);
        maintain(&mut shell);
        shell.check(&[("SNAPSHOT LIST", "*0")]);
    }
}

#[test]
fn a_recent_snapshot_goes_with_its_connection() {
    for mut shell in quiet() {
        let mut other = shell.connect();
        other.line("SNAPSHOT USE RECENT");
        assert_eq!(shell.database.snapshot_figures().leases, 1);
        drop(other);
        maintain(&mut shell);
        let figures = shell.database.snapshot_figures();
        assert_eq!((figures.snapshots, figures.leases), (0, 0));
    }
}

#[test]
fn an_idle_reader_loses_its_lease_and_is_told_so() {
    for mut shell in quiet() {
        let mut other = shell.connect();
        shell.database.set_snapshot_lease(Milliseconds(1000));
        shell.line("SET k 1");
        shell.line("SNAPSHOT USE RECENT");
        for _ in 0..3 {
            // Whoever works renews it.
            shell.pass_ms(700);
            maintain(&mut other);
            shell.check(&[("GET k", "$1 1")]);
        }
        let figures = shell.database.snapshot_figures();
        assert!(figures.lowest_leased > pando_engine::LogEpoch::NONE);
        assert_eq!(figures.lowest_leased, figures.lowest);
        shell.pass_ms(1000);
        maintain(&mut other);
        let ended = "-NOSNAPSHOT the lease of the snapshot has ended: nothing was read in it for \
                     longer than snapshot-lease; SNAPSHOT USE NONE returns to the present";
        shell.check(&[
            ("GET k", ended),
            ("KEYS *", ended),
            ("SNAPSHOT LIST", "*0"),
            ("SNAPSHOT USE NONE", "+OK"),
            ("GET k", "$1 1"),
        ]);
    }
}

#[test]
fn without_a_limit_an_idle_reader_keeps_its_lease() {
    for mut shell in quiet() {
        shell.database.set_snapshot_lease(Milliseconds(0));
        shell.line("SNAPSHOT USE RECENT");
        shell.pass_ms(10 * limits::LEASE_MS);
        maintain(&mut shell);
        shell.check(&[("GET k", "$-1")]);
    }
}

#[test]
fn a_named_snapshot_outlives_the_leases_of_its_readers() {
    for mut shell in quiet() {
        shell.check(&[("SET k 1", "+OK")]);
        shell.line("SNAPSHOT CREATE s");
        shell.check(&[("SNAPSHOT USE s", "+OK")]);
        shell.pass_ms(limits::LEASE_MS);
        maintain(&mut shell);
        assert_eq!(shell.database.snapshot_figures().leases, 0);
        shell.check(&[("GET k", "$1 1")]);
        assert_eq!(shell.database.snapshot_figures().leases, 1);
        shell.check(&[
            ("SNAPSHOT DROP s", ":1"),
            (
                "GET k",
                "-NOSNAPSHOT the snapshot has gone; SNAPSHOT USE NONE returns to the present",
            ),
        ]);
    }
}

/// A command in slices has a lease of its own, which each slice renews.
#[test]
fn a_long_scan_renews_its_lease_and_one_that_outlives_it_ends_with_an_error() {
    for mut shell in quiet() {
        let keys = 3 * limits::SLICE_ENTRIES_MAX;
        for key in 0..keys {
            shell.store(format!("k{key}").as_bytes(), b"v");
        }
        let mut other = shell.connect();
        shell.database.set_snapshot_lease(Milliseconds(1000));
        let mut pass = |milliseconds| {
            other.pass_ms(milliseconds);
            other.line("SET k9999 new");
            maintain(&mut other);
        };
        let request = ["SNAPSHOT", "READ", "RECENT", "KEYS", "k*"];
        let (reply, slices) = shell.run_between_slices(request, |_| pass(700));
        assert!(slices > 1, "{slices}");
        assert!(reply.starts_with(format!("*{keys}\r\n").as_bytes()));
        let (reply, _) = shell.run_between_slices(request, |_| pass(1000));
        let reply = String::from_utf8_lossy(&reply);
        assert!(reply.starts_with("-NOSNAPSHOT the lease"), "{reply}");
        shell.check(&[("SNAPSHOT LIST", "*0")]);
    }
}

#[test]
fn who_asks_later_gets_a_later_snapshot_unless_it_may_be_stale() {
    for mut shell in quiet() {
        let mut other = shell.connect();
        shell.line("SET k 1");
        let first = name(&other.line("SNAPSHOT USE RECENT"));
        shell.line("SET k 2");
        shell.check(&[("SNAPSHOT READ RECENT GET k", "$1 2")]);
        shell.database.set_snapshot_staleness(Milliseconds(100));
        let second = name(&other.line("SNAPSHOT USE RECENT"));
        assert_ne!(first, second);
        shell.line("SET k 3");
        shell.pass_ms(99);
        maintain(&mut other);
        assert_eq!(name(&shell.line("SNAPSHOT USE RECENT")), second);
        shell.check(&[("GET k", "$1 2"), ("SNAPSHOT USE NONE", "+OK")]);
        shell.pass_ms(1);
        shell.check(&[("SNAPSHOT READ RECENT GET k", "$1 3")]);
        // One that nobody uses stays as long as it may be borrowed.
        other.check(&[("SNAPSHOT USE NONE", "+OK")]);
        maintain(&mut shell);
        assert_eq!(shell.database.snapshot_figures().snapshots, 1);
        shell.pass_ms(100);
        maintain(&mut shell);
        shell.check(&[("SNAPSHOT LIST", "*0")]);
    }
}

#[test]
fn there_are_only_as_many_as_are_used() {
    for mut shell in quiet() {
        for _ in 0..2 * limits::SNAPSHOTS_MAX {
            shell.check(&[("SNAPSHOT READ RECENT EXISTS k", ":0")]);
            assert_eq!(shell.database.snapshot_figures().snapshots, 1);
        }
    }
}

#[test]
fn names_are_not_those_of_snapshots_that_are_lent() {
    let mut shell = Shell::new();
    let refused = "-ERR a snapshot must have a name, and not one of ALL, NONE and RECENT";
    for name in ["recent", "Recent@7", "NONE"] {
        assert_eq!(shell.line(&format!("SNAPSHOT CREATE {name}")), refused);
    }
    assert!(shell.line("SNAPSHOT CREATE recently").contains("recently"));
}

#[test]
fn a_transaction_is_lent_none() {
    for mut shell in quiet() {
        let refused = "-ERR Command not allowed inside a transaction";
        assert_eq!(shell.line("MULTI"), "+OK");
        let use_one = shell.line("SNAPSHOT USE RECENT");
        let read_one = shell.line("SNAPSHOT READ RECENT GET k");
        assert_eq!((&*use_one, &*read_one), (refused, refused));
        assert!(shell.line("EXEC").starts_with("-EXECABORT"));
    }
}

#[test]
fn each_branch_has_recent_snapshots_of_its_own() {
    let mut shell = Shell::with_options(Options {
        engine: EngineKind::Minuet,
        ..Options::default()
    });
    shell.database.set_snapshot_staleness(Milliseconds(1000));
    shell.line("SET k main");
    shell.line("BRANCH CREATE trial");
    let mut other = shell.connect();
    other.check(&[("BRANCH USE trial", "+OK"), ("SET k trial", "+OK")]);
    shell.check(&[("SNAPSHOT READ RECENT GET k", "$4 main")]);
    other.check(&[("SNAPSHOT READ RECENT GET k", "$5 trial")]);
    let lent = name(&other.line("SNAPSHOT USE RECENT"));
    other.check(&[("GET k", "$5 trial")]);
    shell.check(&[
        (&format!("SNAPSHOT READ {lent} GET k"), "$5 trial"),
        ("BRANCH DROP trial", "+OK"),
    ]);
    // What a snapshot shows stays when its branch goes.
    other.check(&[
        ("GET k", "$5 trial"),
        (
            "SNAPSHOT READ RECENT GET k",
            "-NOBRANCH the branch has gone; BRANCH USE MAIN returns to the first one",
        ),
    ]);
}

/// Runs a line as a request of a batch that was read before the turn began.
fn run(turn: &mut Turn<'_>, client: &mut Client, line: &str) -> String {
    let request = RequestBuffer::from_args(words(line));
    let (request, mut out) = (request.as_request(), Vec::new());
    let mut reply = Reply::new(&mut out, RespVersion::Resp2);
    let resolved = command::resolve(request);
    let progress = turn.execute(client, resolved, request, &mut reply, &mut NoHost);
    assert!(matches!(progress, Progress::Done), "{progress:?}");
    String::from_utf8_lossy(&out).replace("\r\n", " ")
}

/// Whoever came before a snapshot was made shares it; not what a client sends behind something that
/// it was answered, nor behind what it sends with it.
#[test]
fn requests_that_came_together_share_a_snapshot() {
    for mut shell in quiet() {
        let (mut a, mut b) = (Client::new(1, true), Client::new(2, true));
        let mut turn = shell.session.turn();
        let mut at = 0;
        let mut batch = |client: &mut Client, lines: &[&str]| {
            turn.lead(at, true);
            let mut replies = Vec::new();
            for line in lines {
                turn.go_to(at);
                at += 1;
                replies.push(run(&mut turn, client, line));
            }
            replies
        };
        let first = batch(&mut a, &["SNAPSHOT USE RECENT"]);
        let second = batch(
            &mut b,
            &[
                "SNAPSHOT USE RECENT",
                "SNAPSHOT USE NONE",
                "SET k 1",
                "SNAPSHOT USE RECENT",
                "GET k",
            ],
        );
        assert_eq!(first[0], second[0]);
        assert_ne!(second[0], second[3]);
        assert_eq!(second[4], "$1 1 ");
        drop(turn);
        let (made, borrowed) = shell.database.lender.counts();
        assert_eq!((made, borrowed), (2, 1));
    }
}

/// Asks from several threads; each must see what was written before it asked.
#[test]
fn what_was_written_before_is_seen_whoever_has_made_the_snapshot() {
    const ROUNDS: u64 = 300;
    for shell in shells() {
        let written = Arc::new(AtomicU64::new(0));
        let barrier = Arc::new(Barrier::new(3));
        let session = || shell.database.session().expect("a session is free");
        let answer = |session: &mut Session, client: &mut Client, line: &str| {
            let mut turn = session.turn();
            turn.lead(0, true);
            turn.go_to(0);
            run(&mut turn, client, line)
        };
        std::thread::scope(|scope| {
            let (mut writer, begins) = (session(), Arc::clone(&barrier));
            let is_written = Arc::clone(&written);
            scope.spawn(move || {
                let mut client = Client::new(9, true);
                begins.wait();
                for number in 1..=ROUNDS {
                    answer(&mut writer, &mut client, &format!("SET k {number}"));
                    is_written.store(number, Ordering::SeqCst);
                }
            });
            for id in 1..3 {
                let (mut reader, begins) = (session(), Arc::clone(&barrier));
                let written = Arc::clone(&written);
                scope.spawn(move || {
                    let mut client = Client::new(id, true);
                    begins.wait();
                    for _ in 0..ROUNDS / 3 {
                        let least = written.load(Ordering::SeqCst);
                        let read = answer(&mut reader, &mut client, "SNAPSHOT READ RECENT GET k");
                        let number = read.split(' ').nth(1).and_then(|it| it.parse().ok());
                        assert!(number.unwrap_or(0) >= least, "{read} after {least}");
                    }
                });
            }
        });
    }
}

#[test]
fn nothing_planted_is_not_noticed() {
    let tests: [(Fault, fn()); 4] = [
        (
            Fault::LentBehind,
            requests_that_came_together_share_a_snapshot,
        ),
        (
            Fault::LentLate,
            who_asks_later_gets_a_later_snapshot_unless_it_may_be_stale,
        ),
        (
            Fault::LeaseIgnored,
            a_recent_snapshot_stays_while_it_is_used,
        ),
        (
            Fault::LeaseUnrenewed,
            an_idle_reader_loses_its_lease_and_is_told_so,
        ),
    ];
    for (fault, test) in tests {
        let found = catch_unwind(|| testing::with(fault, test));
        assert!(found.is_err(), "{fault:?} is not found");
    }
}
