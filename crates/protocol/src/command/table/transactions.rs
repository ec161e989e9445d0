//! Commands that make several commands one.

use crate::command::CommandId;
use crate::command::argument::key;
use crate::command::keys::{KeyAccess, KeySpec};
use crate::command::spec::{Category, CommandSpec, Flag, Group};

/// In the order of [`CommandId`].
pub(super) static COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(CommandId::Discard, "discard", 1)
        .flags(&[
            Flag::Noscript,
            Flag::Loading,
            Flag::Stale,
            Flag::Fast,
            Flag::AllowBusy,
        ])
        .categories(&[Category::Transaction])
        .group(Group::Transactions, "2.0.0")
        .summary("Forgets the commands queued since MULTI and ends the transaction.")
        .complexity("O(N) for N queued commands."),
    CommandSpec::new(CommandId::Exec, "exec", 1)
        .flags(&[
            Flag::Noscript,
            Flag::Loading,
            Flag::Stale,
            Flag::SkipSlowlog,
        ])
        .categories(&[Category::Transaction])
        .group(Group::Transactions, "1.2.0")
        .summary("Runs the commands queued since MULTI as one, unless a watched key has changed.")
        .complexity("That of the queued commands together."),
    CommandSpec::new(CommandId::Multi, "multi", 1)
        .flags(&[
            Flag::Noscript,
            Flag::Loading,
            Flag::Stale,
            Flag::Fast,
            Flag::AllowBusy,
        ])
        .categories(&[Category::Transaction])
        .group(Group::Transactions, "1.2.0")
        .summary("Begins a transaction: commands are queued until EXEC.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Unwatch, "unwatch", 1)
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
    CommandSpec::new(CommandId::Watch, "watch", -2)
        .flags(&[
            Flag::Noscript,
            Flag::Loading,
            Flag::Stale,
            Flag::Fast,
            Flag::AllowBusy,
        ])
        .categories(&[Category::Transaction])
        .keys(&[KeySpec::rest(1, KeyAccess::ReadOnly, &[])])
        .group(Group::Transactions, "2.2.0")
        .summary("Makes the next EXEC depend on these keys staying unchanged.")
        .complexity("One lookup per key.")
        .arguments(&[key("key", 0).multiple()]),
];
