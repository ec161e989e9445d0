//! Subcommands of SNAPSHOT.

use crate::command::argument::{integer, one_of, string, word};
use crate::command::execution::{GateNeed, Rule};
use crate::command::spec::{Category, CommandSpec, Flag, Group};

use super::ConnectionCommand;

pub(super) static SNAPSHOT: &[CommandSpec] = &[
    CommandSpec::new(ConnectionCommand::Snapshot.id(), "snapshot|create", -3)
        .flags(&[Flag::Noscript, Flag::NoMulti])
        .categories(&[])
        .gates(GateNeed::All)
        .group(Group::Server, "0.1.0")
        .summary(
            "Makes a snapshot of all databases. With HOLD it stays when memory is short, with \
             PERSIST also when the server ends. Of the engine minuet with data on disk, each stays \
             as with PERSIST.",
        )
        .complexity("O(D) for D databases, whatever they hold.")
        .arguments(&[
            string("name"),
            integer("seconds").token("TTL").optional(),
            word("hold", "HOLD").optional(),
            word("persist", "PERSIST").optional(),
        ]),
    CommandSpec::new(ConnectionCommand::Snapshot.id(), "snapshot|drop", 3)
        .flags(&[Flag::Noscript, Flag::NoMulti])
        .categories(&[])
        .gates(GateNeed::All)
        .group(Group::Server, "0.1.0")
        .summary("Drops a snapshot, or all of them, and returns how many have gone.")
        .complexity("O(D) for D databases; memory is given back afterwards.")
        .arguments(&[one_of("which", &[string("name"), word("all", "ALL")])]),
    CommandSpec::new(ConnectionCommand::Snapshot.id(), "snapshot|help", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "0.1.0")
        .summary("Lists the subcommands.")
        .complexity("O(1)"),
    CommandSpec::new(ConnectionCommand::Snapshot.id(), "snapshot|info", 3)
        .categories(&[])
        .tips(&["nondeterministic_output"])
        .group(Group::Server, "0.1.0")
        .summary("Tells of a snapshot its age, its keys and what it keeps in memory.")
        .complexity("O(D) for D databases.")
        .arguments(&[string("name")]),
    CommandSpec::new(ConnectionCommand::Snapshot.id(), "snapshot|list", 2)
        .categories(&[])
        .group(Group::Server, "0.1.0")
        .summary("Lists the snapshots, oldest first: name, time of creation in ms, log epoch.")
        .complexity("O(S) for S snapshots."),
    CommandSpec::new(ConnectionCommand::Snapshot.id(), "snapshot|read", -4)
        .flags(&[Flag::Readonly])
        .categories(&[])
        .rules(&[Rule::Sliced])
        .group(Group::Server, "0.1.0")
        .summary(
            "Runs a command that only reads in a snapshot, whatever the connection uses. RECENT is \
             a snapshot of now, which others who wait for one share, or at most \
             snapshot-staleness old.",
        )
        .complexity("That of the command. RECENT may make a snapshot: O(D) for D databases.")
        .arguments(&[
            one_of("which", &[string("name"), word("recent", "RECENT")]),
            string("command"),
            string("arg").optional().multiple(),
        ]),
    CommandSpec::new(ConnectionCommand::Snapshot.id(), "snapshot|rollback", -3)
        .flags(&[Flag::Write, Flag::Admin, Flag::Noscript, Flag::NoMulti])
        .categories(&[])
        .gates(GateNeed::All)
        .rules(&[Rule::Sliced])
        .group(Group::Server, "0.1.0")
        .summary(
            "Makes all databases what they were in a snapshot. Of the engine cdds: in one made \
             with PERSIST; newer ones are lost, which needs FORCE. Of the engine minuet: those of \
             the branch in use, in any snapshot; none are lost, and FORCE changes nothing.",
        )
        .complexity(
            "O(N) for N watched keys, whatever has changed since. Of minuet that of BRANCH RESET.",
        )
        .arguments(&[string("name"), word("force", "FORCE").optional()]),
    CommandSpec::new(ConnectionCommand::Snapshot.id(), "snapshot|use", 3)
        .flags(&[Flag::Noscript, Flag::NoMulti, Flag::Fast])
        .categories(&[Category::Connection])
        .group(Group::Server, "0.1.0")
        .summary(
            "Lets this connection read a snapshot from now on, or the present again. RECENT is a \
             snapshot as of READ RECENT: its name, time and log epoch are returned, and it goes \
             when no connection uses it, or uses it for longer than snapshot-lease without a \
             command.",
        )
        .complexity("O(1). RECENT may make a snapshot: O(D) for D databases.")
        .arguments(&[one_of(
            "which",
            &[
                string("name"),
                word("recent", "RECENT"),
                word("none", "NONE"),
            ],
        )]),
];
