//! Commands on whole databases, and those without a key.

use crate::command::argument::{integer, one_of, string, word};
use crate::command::execution::{GateNeed, Rule};
use crate::command::id::family;
use crate::command::spec::{Category, CommandSpec, Flag, Group, changed};

use super::containers::COMMAND;

family! {
    /// Commands on whole databases, and those without a key.
    DatabaseCommand in Keyspace(Database) {
        Command,
        Dbsize,
        Echo,
        Flushall,
        Flushdb,
        Ping,
        Swapdb,
        Time,
    }
}

/// In the order of [`DatabaseCommand`].
pub(super) static COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(DatabaseCommand::Command.id(), "command", -1)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .tips(&["nondeterministic_output_order"])
        .group(Group::Server, "2.8.13")
        .summary("Describes every command of the server.")
        .complexity("O(N) for N commands.")
        .subcommands(COMMAND),
    CommandSpec::new(DatabaseCommand::Dbsize.id(), "dbsize", 1)
        .flags(&[Flag::Readonly, Flag::Fast])
        .categories(&[Category::Keyspace])
        .rules(&[Rule::Comparable])
        .tips(&["request_policy:all_shards", "response_policy:agg_sum"])
        .group(Group::Server, "1.0.0")
        .summary("Returns the number of keys in the selected database.")
        .complexity("O(1)"),
    CommandSpec::new(DatabaseCommand::Echo.id(), "echo", 2)
        .flags(&[Flag::Loading, Flag::Stale, Flag::Fast])
        .categories(&[Category::Connection])
        .group(Group::Connection, "1.0.0")
        .summary("Returns its argument.")
        .complexity("O(N) for N bytes.")
        .arguments(&[string("message")]),
    CommandSpec::new(DatabaseCommand::Flushall.id(), "flushall", -1)
        .flags(&[Flag::Write])
        .categories(&[Category::Keyspace, Category::Dangerous])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .gates(GateNeed::All)
        .rules(&[Rule::OnlyRemoves])
        .group(Group::Server, "1.0.0")
        .summary("Removes every key of every database.")
        .complexity("O(D) for D databases; memory is given back afterwards.")
        .history(&[
            changed("4.0.0", "Took `ASYNC`."),
            changed("6.2.0", "Took `SYNC`."),
        ])
        .arguments(&[one_of(
            "async",
            &[
                word("async", "ASYNC").since("4.0.0"),
                word("sync", "SYNC").since("6.2.0"),
            ],
        )
        .optional()]),
    CommandSpec::new(DatabaseCommand::Flushdb.id(), "flushdb", -1)
        .flags(&[Flag::Write])
        .categories(&[Category::Keyspace, Category::Dangerous])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .gates(GateNeed::All)
        .rules(&[Rule::OnlyRemoves])
        .group(Group::Server, "1.0.0")
        .summary("Removes every key of the selected database.")
        .complexity("O(1); memory is given back afterwards.")
        .history(&[
            changed("4.0.0", "Took `ASYNC`."),
            changed("6.2.0", "Took `SYNC`."),
        ])
        .arguments(&[one_of(
            "async",
            &[
                word("async", "ASYNC").since("4.0.0"),
                word("sync", "SYNC").since("6.2.0"),
            ],
        )
        .optional()]),
    CommandSpec::new(DatabaseCommand::Ping.id(), "ping", -1)
        .flags(&[Flag::Fast])
        .categories(&[Category::Connection])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .group(Group::Connection, "1.0.0")
        .summary("Answers PONG, or its argument.")
        .complexity("O(1)")
        .arguments(&[string("message").optional()]),
    CommandSpec::new(DatabaseCommand::Swapdb.id(), "swapdb", 3)
        .flags(&[Flag::Write, Flag::Fast])
        .categories(&[Category::Keyspace, Category::Dangerous])
        .gates(GateNeed::All)
        .group(Group::Server, "4.0.0")
        .summary("Exchanges the contents of two databases.")
        .complexity("O(W) for W watched keys of both.")
        .arguments(&[integer("index1"), integer("index2")]),
    CommandSpec::new(DatabaseCommand::Time.id(), "time", 1)
        .flags(&[Flag::Loading, Flag::Stale, Flag::Fast])
        .categories(&[])
        .tips(&["nondeterministic_output"])
        .group(Group::Server, "2.6.0")
        .summary("Returns the server's clock in seconds and microseconds.")
        .complexity("O(1)"),
];
