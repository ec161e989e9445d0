//! Commands that the host runs: connections, settings, the state of the server.

use crate::command::argument::{block, double, integer, key, one_of, string, word};
use crate::command::execution::{GateNeed, Rule};
use crate::command::id::family;
use crate::command::keys::{KeyAccess, KeyEffect, KeySpec, Keyword};
use crate::command::spec::{Category, CommandSpec, Flag, Group, changed};

use super::containers::{
    ACL, CLIENT, CLUSTER, CONFIG, FUNCTION, LATENCY, MEMORY, MODULE, REPLICA, RESHARD, SLOWLOG,
};

family! {
    /// Commands that the host of the database runs.
    HostCommand in Host {
        Acl,
        Auth,
        Bgrewriteaof,
        Bgsave,
        Client,
        Cluster,
        Config,
        Debug,
        Failover,
        Function,
        Hello,
        Info,
        Lastsave,
        Latency,
        Lolwut,
        Memory,
        Migrate,
        Module,
        Monitor,
        Preplicate,
        Quit,
        Replica,
        Replicaof,
        Reset,
        Reshard,
        Role,
        Save,
        Shutdown,
        Slaveof,
        Slowlog,
        Wait,
        Waitaof,
    }
}

/// What MIGRATE does to a key.
const MOVED: &[KeyEffect] = &[KeyEffect::Access, KeyEffect::Delete];

/// In the order of [`HostCommand`].
pub(super) static COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(HostCommand::Acl.id(), "acl", -2)
        .categories(&[])
        .group(Group::Server, "6.0.0")
        .summary("Holds the commands about access rules.")
        .complexity("Depends on the subcommand.")
        .subcommands(ACL),
    CommandSpec::new(HostCommand::Auth.id(), "auth", -2)
        .flags(&[
            Flag::Noscript,
            Flag::Loading,
            Flag::Stale,
            Flag::Fast,
            Flag::NoAuth,
            Flag::AllowBusy,
        ])
        .categories(&[Category::Connection])
        .group(Group::Connection, "1.0.0")
        .summary("Authenticates the connection as a user.")
        .complexity("O(1)")
        .history(&[changed("6.0.0", "Took a user name beside the password.")])
        .arguments(&[
            string("username").since("6.0.0").optional(),
            string("password"),
        ]),
    CommandSpec::new(HostCommand::Bgrewriteaof.id(), "bgrewriteaof", 1)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::NoAsyncLoading])
        .categories(&[])
        .gates(GateNeed::None)
        .group(Group::Server, "1.0.0")
        .summary("Asks for the log to be compacted in the background.")
        .complexity("O(1) to ask."),
    CommandSpec::new(HostCommand::Bgsave.id(), "bgsave", -1)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::NoAsyncLoading])
        .categories(&[])
        .gates(GateNeed::None)
        .group(Group::Server, "1.0.0")
        .summary("Asks for a save of the dataset in the background.")
        .complexity("O(1) to ask.")
        .history(&[changed("3.2.2", "Took `SCHEDULE`.")])
        .arguments(&[word("schedule", "SCHEDULE").since("3.2.2").optional()]),
    CommandSpec::new(HostCommand::Client.id(), "client", -2)
        .categories(&[])
        .rules(&[Rule::IgnoresPause])
        .group(Group::Connection, "2.4.0")
        .summary("Holds the commands about client connections.")
        .complexity("Depends on the subcommand.")
        .subcommands(CLIENT),
    CommandSpec::new(HostCommand::Cluster.id(), "cluster", -2)
        .categories(&[])
        .group(Group::Cluster, "3.0.0")
        .summary("Holds the commands about a cluster.")
        .complexity("Depends on the subcommand.")
        .subcommands(CLUSTER),
    CommandSpec::new(HostCommand::Config.id(), "config", -2)
        .categories(&[])
        .gates(GateNeed::None)
        .group(Group::Server, "2.0.0")
        .summary("Holds the commands about the server's settings.")
        .complexity("Depends on the subcommand.")
        .subcommands(CONFIG),
    CommandSpec::new(HostCommand::Debug.id(), "debug", -2)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .rules(&[Rule::ForTests])
        .group(Group::Server, "1.0.0")
        .summary("Holds the commands that tests use.")
        .complexity("Depends on the subcommand.")
        .arguments(&[one_of(
            "subcommand",
            &[
                double("seconds").token("SLEEP"),
                integer("enabled").token("SET-ACTIVE-EXPIRE"),
                string("message").token("ERROR"),
                string("key").token("OBJECT"),
                integer("bytes").token("QUICKLIST-PACKED-THRESHOLD"),
            ],
        )]),
    CommandSpec::new(HostCommand::Failover.id(), "failover", -1)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Stale])
        .categories(&[])
        .gates(GateNeed::None)
        .group(Group::Server, "6.2.0")
        .summary("Hands over to a replica that has everything.")
        .complexity("O(1)")
        .arguments(&[
            block(
                "target",
                &[word("to", "TO"), string("host"), integer("port")],
            )
            .optional(),
            word("abort", "ABORT").optional(),
            block(
                "timeout",
                &[word("timeout", "TIMEOUT"), integer("milliseconds")],
            )
            .optional(),
        ]),
    CommandSpec::new(HostCommand::Function.id(), "function", -2)
        .categories(&[])
        .group(Group::Scripting, "7.0.0")
        .summary("Holds the commands about stored functions.")
        .complexity("Depends on the subcommand.")
        .subcommands(FUNCTION),
    CommandSpec::new(HostCommand::Hello.id(), "hello", -1)
        .flags(&[
            Flag::Noscript,
            Flag::Loading,
            Flag::Stale,
            Flag::Fast,
            Flag::NoAuth,
            Flag::AllowBusy,
        ])
        .categories(&[Category::Connection])
        .group(Group::Connection, "6.0.0")
        .summary("Chooses the protocol version, and may authenticate and name the connection.")
        .complexity("O(1)")
        .history(&[changed("6.2.0", "The version may be left out.")])
        .arguments(&[block(
            "arguments",
            &[
                integer("protover"),
                block(
                    "username_password",
                    &[string("username"), string("password")],
                )
                .token("AUTH")
                .optional(),
                string("clientname").token("SETNAME").optional(),
            ],
        )
        .optional()]),
    CommandSpec::new(HostCommand::Info.id(), "info", -1)
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
    CommandSpec::new(HostCommand::Lastsave.id(), "lastsave", 1)
        .flags(&[Flag::Loading, Flag::Stale, Flag::Fast])
        .categories(&[Category::Admin, Category::Dangerous])
        .tips(&["nondeterministic_output"])
        .group(Group::Server, "1.0.0")
        .summary("Returns when the dataset was last saved, in seconds since the Unix epoch.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Latency.id(), "latency", -2)
        .categories(&[])
        .group(Group::Server, "2.8.13")
        .summary("Holds the commands about observed latencies.")
        .complexity("Depends on the subcommand.")
        .subcommands(LATENCY),
    CommandSpec::new(HostCommand::Lolwut.id(), "lolwut", -1)
        .flags(&[Flag::Readonly, Flag::Fast])
        .categories(&[])
        .group(Group::Server, "5.0.0")
        .summary("Says what this is, and its version.")
        .complexity("O(1)")
        .arguments(&[integer("version").token("VERSION").optional()]),
    CommandSpec::new(HostCommand::Memory.id(), "memory", -2)
        .categories(&[])
        .group(Group::Server, "4.0.0")
        .summary("Holds the commands about memory.")
        .complexity("Depends on the subcommand.")
        .subcommands(MEMORY),
    CommandSpec::new(HostCommand::Migrate.id(), "migrate", -6)
        .flags(&[Flag::Write, Flag::MovableKeys])
        .categories(&[Category::Keyspace, Category::Dangerous])
        .keys(&[
            KeySpec::one(3, KeyAccess::ReadWrite, MOVED),
            KeySpec::behind(
                Keyword {
                    word: "KEYS",
                    told_from: -2,
                    divisor: 1,
                    others: &[],
                },
                6,
                KeyAccess::ReadWrite,
                MOVED,
            ),
        ])
        .tips(&["nondeterministic_output"])
        .group(Group::Generic, "2.6.0")
        .summary("Moves keys to another server, of Pando or Redis.")
        .complexity("O(N) for N bytes of the values, here and there. Other clients do not wait.")
        .history(&[
            changed("3.0.0", "Took `COPY` and `REPLACE`."),
            changed("3.0.6", "Took `KEYS`."),
            changed("4.0.7", "Took `AUTH`."),
            changed("6.0.0", "Took `AUTH2`."),
        ])
        .arguments(&[
            string("host"),
            string("port"),
            one_of(
                "key-selector",
                &[key("key", 0), word("empty-string", "\"\"")],
            ),
            integer("destination-db"),
            integer("timeout"),
            word("copy", "COPY").optional(),
            word("replace", "REPLACE").optional(),
            one_of(
                "authentication",
                &[
                    string("auth").token("AUTH"),
                    block(
                        "auth2",
                        &[
                            word("auth2", "AUTH2"),
                            string("username"),
                            string("password"),
                        ],
                    ),
                ],
            )
            .optional(),
            key("keys", 0).token("KEYS").optional().multiple(),
        ]),
    CommandSpec::new(HostCommand::Module.id(), "module", -2)
        .categories(&[])
        .group(Group::Server, "4.0.0")
        .summary("Holds the commands about loadable modules.")
        .complexity("Depends on the subcommand.")
        .subcommands(MODULE),
    CommandSpec::new(HostCommand::Monitor.id(), "monitor", 1)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "1.0.0")
        .summary("Streams every command that the server executes to this connection.")
        .complexity("O(1) for each command and monitor."),
    CommandSpec::new(HostCommand::Preplicate.id(), "preplicate", -3)
        .flags(&[
            Flag::Admin,
            Flag::Noscript,
            Flag::Loading,
            Flag::Stale,
            Flag::NoMulti,
        ])
        .categories(&[])
        .gates(GateNeed::None)
        .rules(&[Rule::IgnoresPause])
        .group(Group::Server, "7.0.0")
        .summary("Is what a replica says to its primary.")
        .complexity("O(1)")
        .arguments(&[one_of(
            "args",
            &[
                block(
                    "begin",
                    &[
                        word("begin", "BEGIN"),
                        integer("format"),
                        string("run-id"),
                        integer("port"),
                        integer("keeps-log"),
                        integer("has-branches"),
                        block("position", &[string("history"), integer("epoch")]).optional(),
                    ],
                ),
                block(
                    "ack",
                    &[
                        word("ack", "ACK"),
                        integer("bytes"),
                        integer("applied"),
                        integer("durable"),
                        integer("offset"),
                    ],
                ),
                block(
                    "check",
                    &[
                        word("check", "CHECK"),
                        one_of(
                            "step",
                            &[
                                word("begin", "BEGIN"),
                                block(
                                    "list",
                                    &[
                                        word("list", "LIST"),
                                        integer("bucket").optional().multiple(),
                                    ],
                                ),
                            ],
                        ),
                    ],
                ),
            ],
        )]),
    CommandSpec::new(HostCommand::Quit.id(), "quit", -1)
        .flags(&[
            Flag::Noscript,
            Flag::Loading,
            Flag::Stale,
            Flag::Fast,
            Flag::NoAuth,
            Flag::AllowBusy,
        ])
        .categories(&[Category::Connection])
        .rules(&[Rule::Unqueued, Rule::EndsTransaction, Rule::IgnoresPause])
        .group(Group::Connection, "1.0.0")
        .summary("Closes the connection after the replies before it.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Replica.id(), "replica", -2)
        .categories(&[])
        .group(Group::Server, "0.1.0")
        .summary("Holds the commands about this server as a replica.")
        .complexity("Depends on the subcommand.")
        .subcommands(REPLICA),
    CommandSpec::new(HostCommand::Replicaof.id(), "replicaof", -3)
        .flags(&[
            Flag::Admin,
            Flag::Noscript,
            Flag::Stale,
            Flag::NoAsyncLoading,
        ])
        .categories(&[])
        .gates(GateNeed::None)
        .group(Group::Server, "5.0.0")
        .summary("Makes this server follow another one, or none.")
        .complexity("O(1)")
        .arguments(&[one_of(
            "args",
            &[
                block(
                    "host-port",
                    &[
                        string("host"),
                        integer("port"),
                        word("force", "FORCE").optional(),
                    ],
                ),
                block("no-one", &[word("no", "NO"), word("one", "ONE")]),
            ],
        )]),
    CommandSpec::new(HostCommand::Reset.id(), "reset", 1)
        .flags(&[
            Flag::Noscript,
            Flag::Loading,
            Flag::Stale,
            Flag::Fast,
            Flag::NoAuth,
            Flag::AllowBusy,
        ])
        .categories(&[Category::Connection])
        .rules(&[Rule::Unqueued, Rule::EndsTransaction, Rule::IgnoresPause])
        .group(Group::Connection, "6.2.0")
        .summary("Puts the connection back into the state of a new one.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Reshard.id(), "reshard", -2)
        .categories(&[])
        .group(Group::Server, "0.1.0")
        .summary("Holds the commands by which `pando reshard` moves keys between servers.")
        .complexity("Depends on the subcommand.")
        .subcommands(RESHARD),
    CommandSpec::new(HostCommand::Role.id(), "role", 1)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale, Flag::Fast])
        .categories(&[Category::Admin, Category::Dangerous])
        .group(Group::Server, "2.8.12")
        .summary("Returns this server's part in replication.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Save.id(), "save", 1)
        .flags(&[
            Flag::Admin,
            Flag::Noscript,
            Flag::NoAsyncLoading,
            Flag::NoMulti,
        ])
        .categories(&[])
        .gates(GateNeed::None)
        .group(Group::Server, "1.0.0")
        .summary("Saves the dataset and answers when it is done.")
        .complexity("O(N) for N keys."),
    CommandSpec::new(HostCommand::Shutdown.id(), "shutdown", -1)
        .flags(&[
            Flag::Admin,
            Flag::Noscript,
            Flag::Loading,
            Flag::Stale,
            Flag::NoMulti,
            Flag::AllowBusy,
        ])
        .categories(&[])
        .gates(GateNeed::None)
        .rules(&[Rule::IgnoresPause])
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
    CommandSpec::new(HostCommand::Slaveof.id(), "slaveof", 3)
        .flags(&[
            Flag::Admin,
            Flag::Noscript,
            Flag::Stale,
            Flag::NoAsyncLoading,
        ])
        .categories(&[])
        .gates(GateNeed::None)
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
    CommandSpec::new(HostCommand::Slowlog.id(), "slowlog", -2)
        .categories(&[])
        .group(Group::Server, "2.2.12")
        .summary("Holds the commands about the log of slow commands.")
        .complexity("Depends on the subcommand.")
        .subcommands(SLOWLOG),
    CommandSpec::new(HostCommand::Wait.id(), "wait", 3)
        .flags(&[Flag::Noscript])
        .categories(&[Category::Connection])
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .gates(GateNeed::None)
        .group(Group::Generic, "3.0.0")
        .summary("Waits until replicas have what this connection wrote.")
        .complexity("O(1)")
        .arguments(&[integer("numreplicas"), integer("timeout")]),
    CommandSpec::new(HostCommand::Waitaof.id(), "waitaof", 4)
        .flags(&[Flag::Noscript])
        .categories(&[Category::Connection])
        .tips(&["request_policy:all_shards", "response_policy:agg_min"])
        .gates(GateNeed::None)
        .group(Group::Generic, "7.2.0")
        .summary("Waits until what this connection wrote is on disk, here and at replicas.")
        .complexity("O(1)")
        .arguments(&[
            integer("numlocal"),
            integer("numreplicas"),
            integer("timeout"),
        ]),
];
