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

// What several have in common.
const ADMIN: &[Category] = &[Category::Admin, Category::Slow, Category::Dangerous];
const SCRIPTING: &[Category] = &[Category::Slow, Category::Scripting];
const WRITES_SCRIPTS: &[Category] = &[Category::Write, Category::Slow, Category::Scripting];
const PUBSUB: &[Category] = &[Category::Pubsub, Category::Slow];
const SLOW: &[Category] = &[Category::Slow];
const OF_CONNECTION: &[Category] = &[Category::Fast, Category::Connection];
const CLUSTER_CHANGE: &[Flag] = &[Flag::Admin, Flag::Stale, Flag::NoAsyncLoading];
const CLUSTER_LOOK: &[Flag] = &[Flag::Admin, Flag::Stale];
const SUBSCRIBES: &[Flag] = &[Flag::Pubsub, Flag::Noscript, Flag::Loading, Flag::Stale];
const ASKS_CHANNELS: &[Flag] = &[Flag::Pubsub, Flag::Loading, Flag::Stale];
const USERS: &[Flag] = &[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale];
const MODULES: &[Flag] = &[Flag::Admin, Flag::Noscript, Flag::NoAsyncLoading];
const RUNS: &[Flag] = &[
    Flag::Noscript,
    Flag::Stale,
    Flag::SkipMonitor,
    Flag::NoMandatoryKeys,
    Flag::MovableKeys,
];
const RUNS_READONLY: &[Flag] = &[
    Flag::Readonly,
    Flag::Noscript,
    Flag::Stale,
    Flag::SkipMonitor,
    Flag::NoMandatoryKeys,
    Flag::MovableKeys,
];

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
    told("psubscribe", -2, SUBSCRIBES, PUBSUB),
    told(
        "publish",
        3,
        &[Flag::Pubsub, Flag::Loading, Flag::Stale, Flag::Fast],
        &[Category::Pubsub, Category::Fast],
    ),
    told("pubsub", -2, &[], SLOW).subcommands(&[
        told("pubsub|channels", -2, ASKS_CHANNELS, PUBSUB),
        told("pubsub|help", 2, &[Flag::Loading, Flag::Stale], SLOW),
        told("pubsub|numpat", 2, ASKS_CHANNELS, PUBSUB),
        told("pubsub|numsub", -2, ASKS_CHANNELS, PUBSUB),
        told("pubsub|shardchannels", -2, ASKS_CHANNELS, PUBSUB),
        told("pubsub|shardnumsub", -2, ASKS_CHANNELS, PUBSUB),
    ]),
    told("punsubscribe", -1, SUBSCRIBES, PUBSUB),
    told(
        "spublish",
        3,
        &[Flag::Pubsub, Flag::Loading, Flag::Stale, Flag::Fast],
        &[Category::Pubsub, Category::Fast],
    )
    .keys(&[KeySpec::one(1, KeyAccess::NotKey, &[])]),
    told("ssubscribe", -2, SUBSCRIBES, PUBSUB).keys(&[KeySpec::rest(1, KeyAccess::NotKey, &[])]),
    told("subscribe", -2, SUBSCRIBES, PUBSUB),
    told("sunsubscribe", -1, SUBSCRIBES, PUBSUB).keys(&[KeySpec::rest(1, KeyAccess::NotKey, &[])]),
    told("unsubscribe", -1, SUBSCRIBES, PUBSUB),
    // Scripts.
    told("eval", -3, RUNS, SCRIPTING).keys(WRITE_KEYS),
    told("eval_ro", -3, RUNS_READONLY, SCRIPTING).keys(READ_KEYS),
    told("evalsha", -3, RUNS, SCRIPTING).keys(WRITE_KEYS),
    told("evalsha_ro", -3, RUNS_READONLY, SCRIPTING).keys(READ_KEYS),
    told("fcall", -3, RUNS, SCRIPTING).keys(WRITE_KEYS),
    told("fcall_ro", -3, RUNS_READONLY, SCRIPTING).keys(READ_KEYS),
    told(
        "function|delete",
        3,
        &[Flag::Write, Flag::Noscript],
        WRITES_SCRIPTS,
    )
    .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    told("function|dump", 2, &[Flag::Noscript], SCRIPTING),
    told(
        "function|kill",
        2,
        &[Flag::Noscript, Flag::AllowBusy],
        SCRIPTING,
    )
    .tips(&["request_policy:all_shards", "response_policy:one_succeeded"]),
    told(
        "function|load",
        -3,
        &[Flag::Write, Flag::DenyOom, Flag::Noscript],
        WRITES_SCRIPTS,
    )
    .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    told(
        "function|restore",
        -3,
        &[Flag::Write, Flag::DenyOom, Flag::Noscript],
        WRITES_SCRIPTS,
    )
    .tips(&["request_policy:all_shards", "response_policy:all_succeeded"]),
    told("script", -2, &[], SLOW).subcommands(&[
        told("script|debug", 3, &[Flag::Noscript], SCRIPTING),
        told("script|exists", -3, &[Flag::Noscript], SCRIPTING).tips(&[
            "request_policy:all_shards",
            "response_policy:agg_logical_and",
        ]),
        told("script|flush", -2, &[Flag::Noscript], SCRIPTING)
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
        told("script|help", 2, &[Flag::Loading, Flag::Stale], SCRIPTING),
        told(
            "script|kill",
            2,
            &[Flag::Noscript, Flag::AllowBusy],
            SCRIPTING,
        )
        .tips(&["request_policy:all_shards", "response_policy:one_succeeded"]),
        told("script|load", 3, &[Flag::Noscript, Flag::Stale], SCRIPTING)
            .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"]),
    ]),
    // Users.
    told("acl|deluser", -3, USERS, ADMIN),
    told("acl|dryrun", -4, USERS, ADMIN),
    told(
        "acl|genpass",
        -2,
        &[Flag::Noscript, Flag::Loading, Flag::Stale],
        SLOW,
    ),
    told("acl|load", 2, USERS, ADMIN),
    told("acl|log", -2, USERS, ADMIN),
    told("acl|save", 2, USERS, ADMIN),
    told("acl|setuser", -3, USERS, ADMIN),
    // Replication, cluster, modules.
    told("asking", 1, &[Flag::Fast], OF_CONNECTION),
    told("cluster|addslots", -3, CLUSTER_CHANGE, ADMIN),
    told("cluster|addslotsrange", -4, CLUSTER_CHANGE, ADMIN),
    told("cluster|bumpepoch", 2, CLUSTER_CHANGE, ADMIN).tips(&["nondeterministic_output"]),
    told("cluster|count-failure-reports", 3, CLUSTER_LOOK, ADMIN)
        .tips(&["nondeterministic_output"]),
    told("cluster|countkeysinslot", 3, &[Flag::Stale], SLOW),
    told("cluster|delslots", -3, CLUSTER_CHANGE, ADMIN),
    told("cluster|delslotsrange", -4, CLUSTER_CHANGE, ADMIN),
    told("cluster|failover", -2, CLUSTER_CHANGE, ADMIN),
    told("cluster|flushslots", 2, CLUSTER_CHANGE, ADMIN),
    told("cluster|forget", 3, CLUSTER_CHANGE, ADMIN),
    told("cluster|getkeysinslot", 4, &[Flag::Stale], SLOW).tips(&["nondeterministic_output"]),
    told("cluster|keyslot", 3, &[Flag::Stale], SLOW),
    told("cluster|links", 2, &[Flag::Stale], SLOW).tips(&["nondeterministic_output"]),
    told("cluster|meet", -4, CLUSTER_CHANGE, ADMIN),
    told("cluster|replicas", 3, CLUSTER_LOOK, ADMIN).tips(&["nondeterministic_output"]),
    told("cluster|replicate", 3, CLUSTER_CHANGE, ADMIN),
    told(
        "cluster|reset",
        -2,
        &[Flag::Admin, Flag::Noscript, Flag::Stale],
        ADMIN,
    ),
    told("cluster|saveconfig", 2, CLUSTER_CHANGE, ADMIN),
    told("cluster|set-config-epoch", 3, CLUSTER_CHANGE, ADMIN),
    told("cluster|setslot", -4, CLUSTER_CHANGE, ADMIN),
    told("cluster|slaves", 3, CLUSTER_LOOK, ADMIN).tips(&["nondeterministic_output"]),
    told("module|load", -3, MODULES, ADMIN),
    told("module|loadex", -3, MODULES, ADMIN),
    told("module|unload", 3, MODULES, ADMIN),
    told(
        "psync",
        -3,
        &[
            Flag::Admin,
            Flag::Noscript,
            Flag::NoAsyncLoading,
            Flag::NoMulti,
        ],
        ADMIN,
    ),
    told(
        "readonly",
        1,
        &[Flag::Loading, Flag::Stale, Flag::Fast],
        OF_CONNECTION,
    ),
    told(
        "readwrite",
        1,
        &[Flag::Loading, Flag::Stale, Flag::Fast],
        OF_CONNECTION,
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
        ADMIN,
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
        ADMIN,
    ),
];
