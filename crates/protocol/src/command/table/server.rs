//! Commands about the server: its settings, its state, its dataset as a whole.

use super::containers::{
    ACL, CLUSTER, COMMAND, CONFIG, FUNCTION, LATENCY, MEMORY, MODULE, SLOWLOG,
};
use crate::command::CommandId;
use crate::command::argument::{block, double, integer, one_of, string, word};
use crate::command::spec::{Category, CommandSpec, Flag, Group, changed};

/// In the order of [`CommandId`].
pub(super) static COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(CommandId::Acl, "acl", -2)
        .categories(&[])
        .group(Group::Server, "6.0.0")
        .summary("Holds the commands about access rules.")
        .complexity("Depends on the subcommand.")
        .subcommands(ACL),
    CommandSpec::new(CommandId::Bgsave, "bgsave", -1)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::NoAsyncLoading])
        .categories(&[])
        .group(Group::Server, "1.0.0")
        .summary("Asks for a save of the dataset in the background.")
        .complexity("O(1) to ask.")
        .history(&[changed("3.2.2", "Took `SCHEDULE`.")])
        .arguments(&[word("schedule", "SCHEDULE").since("3.2.2").optional()]),
    CommandSpec::new(CommandId::Cluster, "cluster", -2)
        .categories(&[])
        .group(Group::Cluster, "3.0.0")
        .summary("Holds the commands about a cluster.")
        .complexity("Depends on the subcommand.")
        .subcommands(CLUSTER),
    CommandSpec::new(CommandId::Command, "command", -1)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .tips(&["nondeterministic_output_order"])
        .group(Group::Server, "2.8.13")
        .summary("Describes every command of the server.")
        .complexity("O(N) for N commands.")
        .subcommands(COMMAND),
    CommandSpec::new(CommandId::Config, "config", -2)
        .categories(&[])
        .group(Group::Server, "2.0.0")
        .summary("Holds the commands about the server's settings.")
        .complexity("Depends on the subcommand.")
        .subcommands(CONFIG),
    CommandSpec::new(CommandId::Dbsize, "dbsize", 1)
        .flags(&[Flag::Readonly, Flag::Fast])
        .categories(&[Category::Keyspace])
        .tips(&["request_policy:all_shards", "response_policy:agg_sum"])
        .group(Group::Server, "1.0.0")
        .summary("Returns the number of keys in the selected database.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Debug, "debug", -2)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "1.0.0")
        .summary("Holds the commands that tests use.")
        .complexity("Depends on the subcommand.")
        .arguments(&[one_of(
            "subcommand",
            &[
                double("seconds").token("SLEEP"),
                integer("enabled").token("SET-ACTIVE-EXPIRE"),
            ],
        )]),
    CommandSpec::new(CommandId::Flushall, "flushall", -1)
        .flags(&[Flag::Write])
        .categories(&[Category::Keyspace, Category::Dangerous])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
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
    CommandSpec::new(CommandId::Flushdb, "flushdb", -1)
        .flags(&[Flag::Write])
        .categories(&[Category::Keyspace, Category::Dangerous])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
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
    CommandSpec::new(CommandId::Function, "function", -2)
        .categories(&[])
        .group(Group::Scripting, "7.0.0")
        .summary("Holds the commands about stored functions.")
        .complexity("Depends on the subcommand.")
        .subcommands(FUNCTION),
    CommandSpec::new(CommandId::Info, "info", -1)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[Category::Dangerous])
        .tips(&[
            "nondeterministic_output",
            "request_policy:all_shards",
            "response_policy:special",
        ])
        .group(Group::Server, "1.0.0")
        .summary("Reports the server's state and figures as text, by sections.")
        .complexity("O(1)")
        .history(&[changed("7.0.0", "Took several sections.")])
        .arguments(&[string("section").optional().multiple()]),
    CommandSpec::new(CommandId::Lastsave, "lastsave", 1)
        .flags(&[Flag::Loading, Flag::Stale, Flag::Fast])
        .categories(&[Category::Admin, Category::Dangerous])
        .tips(&["nondeterministic_output"])
        .group(Group::Server, "1.0.0")
        .summary("Returns when the dataset was last saved, in seconds since the Unix epoch.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Latency, "latency", -2)
        .categories(&[])
        .group(Group::Server, "2.8.13")
        .summary("Holds the commands about observed latencies.")
        .complexity("Depends on the subcommand.")
        .subcommands(LATENCY),
    CommandSpec::new(CommandId::Memory, "memory", -2)
        .categories(&[])
        .group(Group::Server, "4.0.0")
        .summary("Holds the commands about memory.")
        .complexity("Depends on the subcommand.")
        .subcommands(MEMORY),
    CommandSpec::new(CommandId::Module, "module", -2)
        .categories(&[])
        .group(Group::Server, "4.0.0")
        .summary("Holds the commands about loadable modules.")
        .complexity("Depends on the subcommand.")
        .subcommands(MODULE),
    CommandSpec::new(CommandId::Monitor, "monitor", 1)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "1.0.0")
        .summary("Streams every command that the server executes to this connection.")
        .complexity("O(1) for each command and monitor."),
    CommandSpec::new(CommandId::Replicaof, "replicaof", 3)
        .flags(&[
            Flag::Admin,
            Flag::Noscript,
            Flag::Stale,
            Flag::NoAsyncLoading,
        ])
        .categories(&[])
        .group(Group::Server, "5.0.0")
        .summary("Makes this server follow another one, or none.")
        .complexity("O(1)")
        .arguments(&[one_of(
            "args",
            &[
                block("host-port", &[string("host"), integer("port")]),
                block("no-one", &[word("no", "NO"), word("one", "ONE")]),
            ],
        )]),
    CommandSpec::new(CommandId::Role, "role", 1)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale, Flag::Fast])
        .categories(&[Category::Admin, Category::Dangerous])
        .group(Group::Server, "2.8.12")
        .summary("Returns this server's part in replication.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Save, "save", 1)
        .flags(&[
            Flag::Admin,
            Flag::Noscript,
            Flag::NoAsyncLoading,
            Flag::NoMulti,
        ])
        .categories(&[])
        .group(Group::Server, "1.0.0")
        .summary("Saves the dataset and answers when it is done.")
        .complexity("O(N) for N keys."),
    CommandSpec::new(CommandId::Shutdown, "shutdown", -1)
        .flags(&[
            Flag::Admin,
            Flag::Noscript,
            Flag::Loading,
            Flag::Stale,
            Flag::NoMulti,
            Flag::AllowBusy,
        ])
        .categories(&[])
        .group(Group::Server, "1.0.0")
        .summary("Stops the server.")
        .complexity("O(N) for N keys when it saves, else O(1).")
        .history(&[changed("7.0.0", "Took `NOW`, `FORCE` and `ABORT`.")])
        .arguments(&[
            one_of(
                "nosave_save",
                &[word("nosave", "NOSAVE"), word("save", "SAVE")],
            )
            .optional(),
            word("now", "NOW").since("7.0.0").optional(),
            word("force", "FORCE").since("7.0.0").optional(),
            word("abort", "ABORT").since("7.0.0").optional(),
        ]),
    CommandSpec::new(CommandId::Slaveof, "slaveof", 3)
        .flags(&[
            Flag::Admin,
            Flag::Noscript,
            Flag::Stale,
            Flag::NoAsyncLoading,
        ])
        .categories(&[])
        .group(Group::Server, "1.0.0")
        .summary("Makes this server follow another one, or none.")
        .complexity("O(1)")
        .deprecated("5.0.0", "`REPLICAOF`")
        .arguments(&[one_of(
            "args",
            &[
                block("host-port", &[string("host"), integer("port")]),
                block("no-one", &[word("no", "NO"), word("one", "ONE")]),
            ],
        )]),
    CommandSpec::new(CommandId::Slowlog, "slowlog", -2)
        .categories(&[])
        .group(Group::Server, "2.2.12")
        .summary("Holds the commands about the log of slow commands.")
        .complexity("Depends on the subcommand.")
        .subcommands(SLOWLOG),
    CommandSpec::new(CommandId::Swapdb, "swapdb", 3)
        .flags(&[Flag::Write, Flag::Fast])
        .categories(&[Category::Keyspace, Category::Dangerous])
        .group(Group::Server, "4.0.0")
        .summary("Exchanges the contents of two databases.")
        .complexity("O(W) for W watched keys of both.")
        .arguments(&[integer("index1"), integer("index2")]),
    CommandSpec::new(CommandId::Time, "time", 1)
        .flags(&[Flag::Loading, Flag::Stale, Flag::Fast])
        .categories(&[])
        .tips(&["nondeterministic_output"])
        .group(Group::Server, "2.6.0")
        .summary("Returns the server's clock in seconds and microseconds.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Wait, "wait", 3)
        .flags(&[Flag::Noscript])
        .categories(&[Category::Connection])
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .group(Group::Generic, "3.0.0")
        .summary("Waits until replicas have what this connection wrote.")
        .complexity("O(1)")
        .arguments(&[integer("numreplicas"), integer("timeout")]),
    CommandSpec::new(CommandId::Waitaof, "waitaof", 4)
        .flags(&[Flag::Noscript])
        .categories(&[Category::Connection])
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .group(Group::Generic, "7.2.0")
        .summary("Waits until what this connection wrote is on disk.")
        .complexity("O(1)")
        .arguments(&[
            integer("numlocal"),
            integer("numreplicas"),
            integer("timeout"),
        ]),
    CommandSpec::new(CommandId::Bgrewriteaof, "bgrewriteaof", 1)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::NoAsyncLoading])
        .categories(&[])
        .group(Group::Server, "1.0.0")
        .summary("Asks for the log to be compacted in the background.")
        .complexity("O(1) to ask."),
];
