//! Commands on the database's state of a connection: its database, its transaction, its watches.

use crate::command::argument::{integer, key};
use crate::command::execution::{GateNeed, Rule};
use crate::command::id::family;
use crate::command::keys::{KeyAccess, KeySpec};
use crate::command::spec::{Category, CommandSpec, Flag, Group};

use super::branches::BRANCH;
use super::snapshots::SNAPSHOT;

family! {
    /// Commands on the database's state of a connection.
    ConnectionCommand in Connection {
        Branch,
        Discard,
        Exec,
        Multi,
        Select,
        Snapshot,
        Unwatch,
        Watch,
    }
}

/// In the order of [`ConnectionCommand`].
pub(super) static COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(ConnectionCommand::Branch.id(), "branch", -2)
        .categories(&[])
        .group(Group::Server, "0.1.0")
        .summary("Holds the commands about branches: databases that go their own way.")
        .complexity("Depends on the subcommand.")
        .subcommands(BRANCH),
    CommandSpec::new(ConnectionCommand::Discard.id(), "discard", 1)
        .flags(&[
            Flag::Noscript,
            Flag::Loading,
            Flag::Stale,
            Flag::Fast,
            Flag::AllowBusy,
        ])
        .categories(&[Category::Transaction])
        .rules(&[Rule::Unqueued, Rule::EndsTransaction])
        .group(Group::Transactions, "2.0.0")
        .summary("Forgets the commands queued since MULTI and ends the transaction.")
        .complexity("O(N) for N queued commands."),
    CommandSpec::new(ConnectionCommand::Exec.id(), "exec", 1)
        .flags(&[
            Flag::Noscript,
            Flag::Loading,
            Flag::Stale,
            Flag::SkipSlowlog,
        ])
        .categories(&[Category::Transaction])
        .gates(GateNeed::None)
        .rules(&[Rule::Unqueued])
        .group(Group::Transactions, "1.2.0")
        .summary("Runs the commands queued since MULTI as one, unless a watched key has changed.")
        .complexity("That of the queued commands together."),
    CommandSpec::new(ConnectionCommand::Multi.id(), "multi", 1)
        .flags(&[
            Flag::Noscript,
            Flag::Loading,
            Flag::Stale,
            Flag::Fast,
            Flag::AllowBusy,
        ])
        .categories(&[Category::Transaction])
        .rules(&[Rule::Unqueued])
        .group(Group::Transactions, "1.2.0")
        .summary("Begins a transaction: commands are queued until EXEC.")
        .complexity("O(1)"),
    CommandSpec::new(ConnectionCommand::Select.id(), "select", 2)
        .flags(&[Flag::Loading, Flag::Stale, Flag::Fast])
        .categories(&[Category::Connection])
        .group(Group::Connection, "1.0.0")
        .summary("Chooses the database that this connection's commands work on.")
        .complexity("O(1)")
        .arguments(&[integer("index")]),
    CommandSpec::new(ConnectionCommand::Snapshot.id(), "snapshot", -2)
        .categories(&[])
        .group(Group::Server, "0.1.0")
        .summary("Holds the commands about snapshots: the keyspace as it was at a moment.")
        .complexity("Depends on the subcommand.")
        .subcommands(SNAPSHOT),
    CommandSpec::new(ConnectionCommand::Unwatch.id(), "unwatch", 1)
        .flags(&[
            Flag::Noscript,
            Flag::Loading,
            Flag::Stale,
            Flag::Fast,
            Flag::AllowBusy,
        ])
        .categories(&[Category::Transaction])
        .group(Group::Transactions, "2.2.0")
        .summary("Forgets all watched keys.")
        .complexity("O(W) for W watched keys."),
    CommandSpec::new(ConnectionCommand::Watch.id(), "watch", -2)
        .flags(&[
            Flag::Noscript,
            Flag::Loading,
            Flag::Stale,
            Flag::Fast,
            Flag::AllowBusy,
        ])
        .categories(&[Category::Transaction])
        .keys(&[KeySpec::rest(1, KeyAccess::ReadOnly, &[])])
        .rules(&[Rule::Unqueued])
        .group(Group::Transactions, "2.2.0")
        .summary("Makes the next EXEC depend on these keys staying unchanged.")
        .complexity("One lookup per key.")
        .arguments(&[key("key", 0).multiple()]),
];
