//! What is newer than memcached 1.6.18: tokens that clients choose (`E`), items that an append
//! makes (`N`), the size of what was stored (`s`).

use super::*;
use crate::EngineKind;

fn shells() -> impl Iterator<Item = Shell> {
    [
        EngineKind::Masstree,
        EngineKind::Mercury,
        EngineKind::Reference,
    ]
    .into_iter()
    .map(|engine| {
        Shell::with_options(Options {
            engine,
            ..Options::default()
        })
    })
}

#[test]
fn a_chosen_token_is_told_and_compared() {
    for mut shell in shells() {
        check(
            &mut shell,
            &[
                ("ms k 2 E100 c|hi", "HD c100|"),
                ("mg k c v", "VA 2 c100|hi|"),
                ("gets k", "VALUE k 0 2 100|hi|END|"),
                ("gets k k", "VALUE k 0 2 100|hi|VALUE k 0 2 100|hi|END|"),
                ("ms k 1 C99|x", "EX|"),
                ("cas k 0 0 1 99|x", "EXISTS|"),
                ("ms k 2 C100 E200 c|ho", "HD c200|"),
                ("ms k 1 MA E201 c s|!", "HD c201 s3|"),
                ("ms k 1 MP E202 c s|?", "HD c202 s4|"),
                ("ms k 1 ME E5|x", "NS|"),
                ("mg k c", "HD c202|"),
                ("ms k 1 MR C202 E203 c|x", "HD c203|"),
                ("ms none 1 ME E7 c|x", "HD c7|"),
                ("cas k 0 0 1 203|y", "STORED|"),
                ("cas k 0 0 1 203|z", "EXISTS|"),
                (
                    "ms k 1 E18446744073709551615 c|z",
                    "HD c18446744073709551615|",
                ),
                ("md k C18446744073709551615", "HD|"),
                ("md none C6", "EX|"),
                ("md none C7", "HD|"),
            ],
        );
    }
}

#[test]
fn numbers_and_markings_take_a_chosen_token() {
    for mut shell in shells() {
        check(
            &mut shell,
            &[
                ("ma n N0 J5 E10 c v", "VA 1 c10|5|"),
                ("ma n C9", "EX|"),
                ("ma n C10 E11 c v", "VA 1 c11|6|"),
                ("ma n C11 E12 D100 c v", "VA 3 c12|106|"),
                ("md n I E20", "HD|"),
                ("mg n c", "HD c20 X W|"),
                // Older than the item's: stored, and the item stays stale.
                ("ms n 1 I C19 E21 c|7", "HD c21|"),
                ("mg n c v", "VA 1 c21 Z X|7|"),
                ("ms n 1 I C22|8", "EX|"),
                ("md n x", "HD|"),
                ("mg n c s", "HD c21 s0 Z X|"),
                ("md n x E22", "HD|"),
                ("mg n c", "HD c22 Z X|"),
            ],
        );
    }
}

/// A look at an item that changes it; what changes its expiry alone leaves the token.
#[test]
fn looks_and_touches_of_a_chosen_token() {
    for mut shell in shells() {
        check(
            &mut shell,
            &[
                ("mg k N30 E5 c", "HD c5 W|"),
                ("mg k N30 E6 c", "HD c5 Z|"),
                ("mg k E6 c", "HD c5 Z|"),
                ("touch k 100", "TOUCHED|"),
                ("gats 200 k", "VALUE k 0 0 5||END|"),
                ("mg k T50 c t", "HD c5 t50 Z|"),
                ("mg k T60 E6 c t", "HD c6 t60 Z|"),
                ("gets k", "VALUE k 0 0 6||END|"),
            ],
        );
        shell.check(&[("PERSIST k", ":1"), ("RENAME k moved", "+OK")]);
        check(&mut shell, &[("mg moved c t", "HD c6 t-1 Z|")]);
    }
}

#[test]
fn the_next_change_replaces_a_chosen_token() {
    for mut shell in shells() {
        for change in [
            "set k 0 0 1|x",
            "replace k 0 0 1|x",
            "append k 0 0 1|x",
            "incr k 1",
            "incr k 999",
            "cas k 0 0 1 77|x",
            "ms k 1|x",
            "ms k 1 MA|x",
            "ms k 1 E0|x",
            "ma k",
            "md k I",
        ] {
            check(&mut shell, &[("ms k 1 E77 c|1", "HD c77|")]);
            ask(&mut shell, &format!("{change}|"));
            let now = token(&mut shell, "k");
            assert!(now != "77" && now != "0", "{change}: {now}");
        }
        for line in ["SET k 1", "APPEND k 1", "INCR k", "SETBIT k 1 1"] {
            check(&mut shell, &[("ms k 1 E77 c|1", "HD c77|")]);
            shell.line(line);
            assert_ne!(token(&mut shell, "k"), "77", "{line}");
        }
    }
}

#[test]
fn an_append_makes_an_item_that_is_asked_for() {
    for mut shell in shells() {
        check(
            &mut shell,
            &[
                ("ms k 2 MA|hi", "NS|"),
                ("ms k 2 MA N30 T90 F5 s c E3|hi", "HD s2 c3|"),
                ("mg k v t f", "VA 2 t30 f5|hi|"),
                ("ms k 1 MA N90 s|!", "HD s3|"),
                ("mg k v t f", "VA 3 t30 f5|hi!|"),
                ("ms p 2 MP N0 s|hi", "HD s2|"),
                ("ms p 1 MP N0 s|!", "HD s3|"),
                ("mg p v t", "VA 3 t-1|!hi|"),
                ("ms gone 1 MA N-1|x", "HD|"),
                ("mg gone v", "EN|"),
                ("ms none 1 N30 MR s|x", "NS|"),
                ("ms other 1 N30 s|x", "HD s1|"),
                ("mg other t", "HD t-1|"),
            ],
        );
    }
}

/// Who makes a number and is quiet hears nothing.
#[test]
fn a_quiet_maker_of_a_number_hears_nothing() {
    let mut shell = Shell::new();
    check(
        &mut shell,
        &[("ma n N0 q", ""), ("ma n q", ""), ("ma n v", "VA 1|2|")],
    );
}
