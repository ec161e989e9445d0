//! What COMMAND and ACL tell of commands of Redis 7.0 that are not built yet: clients and proxies
//! ask where the keys are before they send anything.
//!
//! The server refuses them all; they are in no family and have no number of their own.

use super::DatabaseCommand;
use crate::command::keys::{KeyAccess, KeyEffect, KeySpec};
use crate::command::spec::{Categories, Category, CommandSpec, Flag};

const READ_KEYS: &[KeySpec] = &[KeySpec::counted(
    2,
    KeyAccess::ReadOnly,
    &[KeyEffect::Access],
)];
const WRITE_KEYS: &[KeySpec] = &[KeySpec::counted(
    2,
    KeyAccess::ReadWrite,
    &[KeyEffect::Access, KeyEffect::Update],
)];

/// An entry with these flags and exactly these categories.
const fn told(
    name: &'static str,
    arity: i8,
    flags: &[Flag],
    categories: &[Category],
) -> CommandSpec {
    let mut spec = CommandSpec::new(DatabaseCommand::Command.id(), name, arity).flags(flags);
    spec.categories = Categories::of(categories);
    spec
}

/// Commands, with their subcommands; and subcommands of containers that are built.
pub(in crate::command) static UNBUILT: &[CommandSpec] = &[
    // Messages.
    told(
        "psubscribe",
        -2,
        &[Flag::Pubsub, Flag::Noscript, Flag::Loading, Flag::Stale],
        &[Category::Pubsub, Category::Slow],
    ),
    told(
        "publish",
        3,
        &[Flag::Pubsub, Flag::Loading, Flag::Stale, Flag::Fast],
        &[Category::Pubsub, Category::Fast],
    ),
    told("pubsub", -2, &[], &[Category::Slow]).subcommands(&[
        told(
            "pubsub|channels",
            -2,
            &[Flag::Pubsub, Flag::Loading, Flag::Stale],
            &[Category::Pubsub, Category::Slow],
        ),
        told(
            "pubsub|help",
            2,
            &[Flag::Loading, Flag::Stale],
            &[Category::Slow],
        ),
        told(
            "pubsub|numpat",
            2,
            &[Flag::Pubsub, Flag::Loading, Flag::Stale],
            &[Category::Pubsub, Category::Slow],
        ),
        told(
            "pubsub|numsub",
            -2,
            &[Flag::Pubsub, Flag::Loading, Flag::Stale],
            &[Category::Pubsub, Category::Slow],
        ),
        told(
            "pubsub|shardchannels",
            -2,
            &[Flag::Pubsub, Flag::Loading, Flag::Stale],
            &[Category::Pubsub, Category::Slow],
        ),
        told(
            "pubsub|shardnumsub",
            -2,
            &[Flag::Pubsub, Flag::Loading, Flag::Stale],
            &[Category::Pubsub, Category::Slow],
        ),
    ]),
    told(
        "punsubscribe",
        -1,
        &[Flag::Pubsub, Flag::Noscript, Flag::Loading, Flag::Stale],
        &[Category::Pubsub, Category::Slow],
    ),
    told(
        "spublish",
        3,
        &[Flag::Pubsub, Flag::Loading, Flag::Stale, Flag::Fast],
        &[Category::Pubsub, Category::Fast],
    )
    .keys(&[KeySpec::one(1, KeyAccess::NotKey, &[])]),
    told(
        "ssubscribe",
        -2,
        &[Flag::Pubsub, Flag::Noscript, Flag::Loading, Flag::Stale],
        &[Category::Pubsub, Category::Slow],
    )
    .keys(&[KeySpec::rest(1, KeyAccess::NotKey, &[])]),
    told(
        "subscribe",
        -2,
        &[Flag::Pubsub, Flag::Noscript, Flag::Loading, Flag::Stale],
        &[Category::Pubsub, Category::Slow],
    ),
    told(
        "sunsubscribe",
        -1,
        &[Flag::Pubsub, Flag::Noscript, Flag::Loading, Flag::Stale],
        &[Category::Pubsub, Category::Slow],
    )
    .keys(&[KeySpec::rest(1, KeyAccess::NotKey, &[])]),
    told(
        "unsubscribe",
        -1,
        &[Flag::Pubsub, Flag::Noscript, Flag::Loading, Flag::Stale],
        &[Category::Pubsub, Category::Slow],
    ),
    // Scripts.
    told(
        "eval",
        -3,
        &[
            Flag::Noscript,
            Flag::Stale,
            Flag::SkipMonitor,
            Flag::NoMandatoryKeys,
            Flag::MovableKeys,
        ],
        &[Category::Slow, Category::Scripting],
    )
    .keys(WRITE_KEYS),
    told(
        "eval_ro",
        -3,
        &[
            Flag::Readonly,
            Flag::Noscript,
            Flag::Stale,
            Flag::SkipMonitor,
            Flag::NoMandatoryKeys,
            Flag::MovableKeys,
        ],
        &[Category::Slow, Category::Scripting],
    )
    .keys(READ_KEYS),
    told(
        "evalsha",
        -3,
        &[
            Flag::Noscript,
            Flag::Stale,
            Flag::SkipMonitor,
            Flag::NoMandatoryKeys,
            Flag::MovableKeys,
        ],
        &[Category::Slow, Category::Scripting],
    )
    .keys(WRITE_KEYS),
    told(
        "evalsha_ro",
        -3,
        &[
            Flag::Readonly,
            Flag::Noscript,
            Flag::Stale,
            Flag::SkipMonitor,
            Flag::NoMandatoryKeys,
            Flag::MovableKeys,
        ],
        &[Category::Slow, Category::Scripting],
    )
    .keys(READ_KEYS),
    told(
        "fcall",
        -3,
        &[
            Flag::Noscript,
            Flag::Stale,
            Flag::SkipMonitor,
            Flag::NoMandatoryKeys,
            Flag::MovableKeys,
        ],
        &[Category::Slow, Category::Scripting],
    )
    .keys(WRITE_KEYS),
    told(
        "fcall_ro",
        -3,
        &[
            Flag::Readonly,
            Flag::Noscript,
            Flag::Stale,
            Flag::SkipMonitor,
            Flag::NoMandatoryKeys,
            Flag::MovableKeys,
        ],
        &[Category::Slow, Category::Scripting],
    )
    .keys(READ_KEYS),
    told(
        "function|delete",
        3,
        &[Flag::Write, Flag::Noscript],
        &[Category::Write, Category::Slow, Category::Scripting],
    )
    .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    told(
        "function|dump",
        2,
        &[Flag::Noscript],
        &[Category::Slow, Category::Scripting],
    ),
    told(
        "function|kill",
        2,
        &[Flag::Noscript, Flag::AllowBusy],
        &[Category::Slow, Category::Scripting],
    )
    .tips(&["request_policy:all_shards", "response_policy:one_succeeded"]),
    told(
        "function|load",
        -3,
        &[Flag::Write, Flag::DenyOom, Flag::Noscript],
        &[Category::Write, Category::Slow, Category::Scripting],
    )
    .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    told(
        "function|restore",
        -3,
        &[Flag::Write, Flag::DenyOom, Flag::Noscript],
        &[Category::Write, Category::Slow, Category::Scripting],
    )
    .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    told("script", -2, &[], &[Category::Slow]).subcommands(&[
        told(
            "script|debug",
            3,
            &[Flag::Noscript],
            &[Category::Slow, Category::Scripting],
        ),
        told(
            "script|exists",
            -3,
            &[Flag::Noscript],
            &[Category::Slow, Category::Scripting],
        )
        .tips(&[
            "request_policy:all_shards",
            "response_policy:agg_logical_and",
        ]),
        told(
            "script|flush",
            -2,
            &[Flag::Noscript],
            &[Category::Slow, Category::Scripting],
        )
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
        told(
            "script|help",
            2,
            &[Flag::Loading, Flag::Stale],
            &[Category::Slow, Category::Scripting],
        ),
        told(
            "script|kill",
            2,
            &[Flag::Noscript, Flag::AllowBusy],
            &[Category::Slow, Category::Scripting],
        )
        .tips(&["request_policy:all_shards", "response_policy:one_succeeded"]),
        told(
            "script|load",
            3,
            &[Flag::Noscript, Flag::Stale],
            &[Category::Slow, Category::Scripting],
        )
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    ]),
    // Users.
    told(
        "acl|deluser",
        -3,
        &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    ),
    told(
        "acl|dryrun",
        -4,
        &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    ),
    told(
        "acl|genpass",
        -2,
        &[Flag::Noscript, Flag::Loading, Flag::Stale],
        &[Category::Slow],
    ),
    told(
        "acl|load",
        2,
        &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    ),
    told(
        "acl|log",
        -2,
        &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    ),
    told(
        "acl|save",
        2,
        &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    ),
    told(
        "acl|setuser",
        -3,
        &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    ),
    // Replication, cluster, modules.
    told(
        "asking",
        1,
        &[Flag::Fast],
        &[Category::Fast, Category::Connection],
    ),
    told(
        "cluster|addslots",
        -3,
        &[Flag::Admin, Flag::Stale, Flag::NoAsyncLoading],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    ),
    told(
        "cluster|addslotsrange",
        -4,
        &[Flag::Admin, Flag::Stale, Flag::NoAsyncLoading],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    ),
    told(
        "cluster|bumpepoch",
        2,
        &[Flag::Admin, Flag::Stale, Flag::NoAsyncLoading],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    )
    .tips(&["nondeterministic_output"]),
    told(
        "cluster|count-failure-reports",
        3,
        &[Flag::Admin, Flag::Stale],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    )
    .tips(&["nondeterministic_output"]),
    told(
        "cluster|countkeysinslot",
        3,
        &[Flag::Stale],
        &[Category::Slow],
    ),
    told(
        "cluster|delslots",
        -3,
        &[Flag::Admin, Flag::Stale, Flag::NoAsyncLoading],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    ),
    told(
        "cluster|delslotsrange",
        -4,
        &[Flag::Admin, Flag::Stale, Flag::NoAsyncLoading],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    ),
    told(
        "cluster|failover",
        -2,
        &[Flag::Admin, Flag::Stale, Flag::NoAsyncLoading],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    ),
    told(
        "cluster|flushslots",
        2,
        &[Flag::Admin, Flag::Stale, Flag::NoAsyncLoading],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    ),
    told(
        "cluster|forget",
        3,
        &[Flag::Admin, Flag::Stale, Flag::NoAsyncLoading],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    ),
    told(
        "cluster|getkeysinslot",
        4,
        &[Flag::Stale],
        &[Category::Slow],
    )
    .tips(&["nondeterministic_output"]),
    told("cluster|keyslot", 3, &[Flag::Stale], &[Category::Slow]),
    told("cluster|links", 2, &[Flag::Stale], &[Category::Slow]).tips(&["nondeterministic_output"]),
    told(
        "cluster|meet",
        -4,
        &[Flag::Admin, Flag::Stale, Flag::NoAsyncLoading],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    ),
    told(
        "cluster|replicas",
        3,
        &[Flag::Admin, Flag::Stale],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    )
    .tips(&["nondeterministic_output"]),
    told(
        "cluster|replicate",
        3,
        &[Flag::Admin, Flag::Stale, Flag::NoAsyncLoading],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    ),
    told(
        "cluster|reset",
        -2,
        &[Flag::Admin, Flag::Noscript, Flag::Stale],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    ),
    told(
        "cluster|saveconfig",
        2,
        &[Flag::Admin, Flag::Stale, Flag::NoAsyncLoading],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    ),
    told(
        "cluster|set-config-epoch",
        3,
        &[Flag::Admin, Flag::Stale, Flag::NoAsyncLoading],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    ),
    told(
        "cluster|setslot",
        -4,
        &[Flag::Admin, Flag::Stale, Flag::NoAsyncLoading],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    ),
    told(
        "cluster|slaves",
        3,
        &[Flag::Admin, Flag::Stale],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    )
    .tips(&["nondeterministic_output"]),
    told(
        "module|load",
        -3,
        &[Flag::Admin, Flag::Noscript, Flag::NoAsyncLoading],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    ),
    told(
        "module|loadex",
        -3,
        &[Flag::Admin, Flag::Noscript, Flag::NoAsyncLoading],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    ),
    told(
        "module|unload",
        3,
        &[Flag::Admin, Flag::Noscript, Flag::NoAsyncLoading],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    ),
    told(
        "psync",
        -3,
        &[
            Flag::Admin,
            Flag::Noscript,
            Flag::NoAsyncLoading,
            Flag::NoMulti,
        ],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    ),
    told(
        "readonly",
        1,
        &[Flag::Loading, Flag::Stale, Flag::Fast],
        &[Category::Fast, Category::Connection],
    ),
    told(
        "readwrite",
        1,
        &[Flag::Loading, Flag::Stale, Flag::Fast],
        &[Category::Fast, Category::Connection],
    ),
    told(
        "replconf",
        -1,
        &[
            Flag::Admin,
            Flag::Noscript,
            Flag::Loading,
            Flag::Stale,
            Flag::AllowBusy,
        ],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    ),
    told(
        "restore-asking",
        -4,
        &[Flag::Write, Flag::DenyOom, Flag::Asking],
        &[
            Category::Keyspace,
            Category::Write,
            Category::Slow,
            Category::Dangerous,
        ],
    )
    .keys(&[KeySpec::one(1, KeyAccess::Overwrite, &[KeyEffect::Update])]),
    told(
        "sync",
        1,
        &[
            Flag::Admin,
            Flag::Noscript,
            Flag::NoAsyncLoading,
            Flag::NoMulti,
        ],
        &[Category::Admin, Category::Slow, Category::Dangerous],
    ),
];
