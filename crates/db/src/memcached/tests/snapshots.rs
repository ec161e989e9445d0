//! What memcached's commands do to snapshots, which they do not read themselves.

use super::*;
use crate::EngineKind;

/// Requests that change `k`, a number with flags 5.
const CHANGES: &[&str] = &[
    "set k 0 0 1|x|",
    "set k 0 0 1 noreply|x|",
    "set k 0 -1 1|x|",
    "replace k 0 0 1|x|",
    "append k 0 0 1|x|",
    "prepend k 0 0 1|x|",
    "incr k 1|",
    "decr k 1|",
    "touch k 100|",
    "gat 100 k|",
    "gats -1 k|",
    "delete k|",
    "ms k 1|x|",
    "ms k 1 MA|x|",
    "mn|ma k|",
    "md k|",
    "md k I T30|",
    "mg k v T30|",
    "flush_all|",
];

fn on_every_engine(test: impl Fn(&mut Shell)) {
    for engine in EngineKind::ALL {
        println!("{}", engine.name());
        let options = Options {
            engine,
            ..Options::default()
        };
        let mut shell = Shell::with_options(options);
        shell.database.close();
        test(&mut shell);
    }
}

/// Each change leaves the snapshot before it whole, which memcached clients do not see.
#[test]
fn changes_leave_snapshots_whole() {
    on_every_engine(|shell| {
        for change in CHANGES {
            ask(shell, "set k 5 0 2|41|set large 0 0 5|large|");
            assert!(shell.line("SNAPSHOT CREATE a").starts_with('*'));
            let mut user = Client::new(9, true);
            ask_as(shell, &mut user, change);
            ask(shell, "set large 0 0 3|now|");
            shell.check(&[
                ("SNAPSHOT READ a GET k", "$2 41"),
                ("SNAPSHOT READ a PTTL k", ":-1"),
                ("SNAPSHOT READ a GET large", "$5 large"),
                ("SNAPSHOT DROP a", ":1"),
            ]);
            assert_eq!(ask(shell, "get large|"), "VALUE large 0 3|now|END|");
        }
    });
}

/// With no room for images of a held snapshot, changes are refused that need one, and nothing goes.
#[test]
fn changes_that_need_an_image_are_refused_when_there_is_no_room() {
    on_every_engine(|shell| {
        ask(shell, "set k 5 0 2|41|set other 0 0 1|x|");
        shell.line("SNAPSHOT CREATE held HOLD");
        ask(shell, "set other 0 0 1|y|");
        shell.database.set_snapshot_bytes_max(1);
        let mut session = shell.database.session().expect("a session is free");
        while session.maintain() {}
        let all_but_flushing = CHANGES.split_last().expect("flush_all").1;
        for change in all_but_flushing {
            let answer = ask(shell, change);
            let is_silent = change.contains("noreply");
            let refused = answer.starts_with("SERVER_ERROR") || answer.starts_with("MN|SERVER_ERR");
            assert!(is_silent || refused, "{change}: {answer}");
            assert_eq!(ask(shell, "get k|"), "VALUE k 5 2|41|END|", "{change}");
        }
        assert_eq!(
            ask(shell, "set new 0 0 1|x|incr other 1|"),
            "STORED|CLIENT_ERROR cannot increment or decrement non-numeric value|"
        );
        assert_eq!(ask(shell, "flush_all|get k|"), "OK|END|");
        shell.check(&[
            ("SNAPSHOT READ held GET k", "$2 41"),
            ("SNAPSHOT DROP held", ":1"),
        ]);
        while session.maintain() {}
        assert_eq!(ask(shell, "set k 0 0 1|x|set k 0 0 1|y|"), "STORED|STORED|");
    });
}
