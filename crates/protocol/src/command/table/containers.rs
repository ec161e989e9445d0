//! Subcommands of the server's containers.

use crate::command::argument::{block, integer, key, one_of, pattern, string, word};
use crate::command::execution::{GateNeed, Rule};
use crate::command::keys::{KeyAccess, KeySpec};
use crate::command::spec::{Category, CommandSpec, Flag, Group, changed};

use super::{DatabaseCommand, HostCommand};

pub(super) static ACL: &[CommandSpec] = &[
    CommandSpec::new(HostCommand::Acl.id(), "acl|cat", -2)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "6.0.0")
        .summary("Lists the families of commands, or the commands of one.")
        .complexity("O(N) for N commands.")
        .arguments(&[string("categoryname").optional()]),
    CommandSpec::new(HostCommand::Acl.id(), "acl|getuser", 3)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "6.0.0")
        .summary("Returns the rules of a user.")
        .complexity("O(1)")
        .arguments(&[string("username")]),
    CommandSpec::new(HostCommand::Acl.id(), "acl|help", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "6.0.0")
        .summary("Lists the subcommands.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Acl.id(), "acl|list", 2)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "6.0.0")
        .summary("Lists the rules of all users as text.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Acl.id(), "acl|users", 2)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "6.0.0")
        .summary("Lists the names of all users.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Acl.id(), "acl|whoami", 2)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "6.0.0")
        .summary("Returns the user of this connection.")
        .complexity("O(1)"),
];

pub(super) static CLIENT: &[CommandSpec] = &[
    CommandSpec::new(HostCommand::Client.id(), "client|caching", 3)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .rules(&[Rule::IgnoresPause])
        .group(Group::Connection, "6.0.0")
        .summary("Says whether the keys of the next command are tracked.")
        .complexity("O(1)")
        .arguments(&[one_of("mode", &[word("yes", "YES"), word("no", "NO")])]),
    CommandSpec::new(HostCommand::Client.id(), "client|durability", -2)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .rules(&[Rule::IgnoresPause])
        .group(Group::Connection, "0.1.0")
        .summary("Says when requests of this connection are answered, or sets it.")
        .complexity("O(1)")
        .arguments(&[one_of(
            "mode",
            &[
                word("none", "NONE"),
                word("interval", "INTERVAL"),
                word("sync", "SYNC"),
                block(
                    "replicated",
                    &[
                        word("replicated", "REPLICATED"),
                        integer("replicas"),
                        block(
                            "limit",
                            &[word("timeout", "TIMEOUT"), integer("milliseconds")],
                        )
                        .optional(),
                    ],
                ),
            ],
        )
        .optional()]),
    CommandSpec::new(HostCommand::Client.id(), "client|getname", 2)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .rules(&[Rule::IgnoresPause])
        .group(Group::Connection, "2.6.9")
        .summary("Returns the name of this connection.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Client.id(), "client|getredir", 2)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .rules(&[Rule::IgnoresPause])
        .group(Group::Connection, "6.0.0")
        .summary("Returns which connection is told of this one's tracked keys.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Client.id(), "client|help", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .rules(&[Rule::IgnoresPause])
        .group(Group::Connection, "5.0.0")
        .summary("Lists the subcommands.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Client.id(), "client|id", 2)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .rules(&[Rule::IgnoresPause])
        .group(Group::Connection, "5.0.0")
        .summary("Returns the number of this connection, unique while the server runs.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Client.id(), "client|info", 2)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .tips(&["nondeterministic_output"])
        .rules(&[Rule::IgnoresPause])
        .group(Group::Connection, "6.2.0")
        .summary("Describes this connection.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Client.id(), "client|kill", -3)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .rules(&[Rule::IgnoresPause])
        .group(Group::Connection, "2.4.0")
        .summary("Closes the connections that match an address or filters.")
        .complexity("O(C) for C open connections.")
        .history(&[
            changed("2.8.12", "Took filters."),
            changed("5.0.0", "Took `replica` as a type."),
            changed("6.2.0", "Took `LADDR`."),
        ])
        .arguments(&[one_of(
            "filter",
            &[
                string("ip:port").deprecated_since("2.8.12"),
                one_of(
                    "new-format",
                    &[
                        integer("client-id").token("ID").since("2.8.12"),
                        one_of(
                            "client-type",
                            &[
                                word("normal", "NORMAL"),
                                word("master", "MASTER").since("3.2.0"),
                                word("slave", "SLAVE"),
                                word("replica", "REPLICA").since("5.0.0"),
                                word("pubsub", "PUBSUB"),
                            ],
                        )
                        .token("TYPE")
                        .since("2.8.12"),
                        string("username").token("USER"),
                        string("ip:port").token("ADDR"),
                        string("ip:port").token("LADDR").since("6.2.0"),
                        one_of("skipme", &[word("yes", "YES"), word("no", "NO")]).token("SKIPME"),
                    ],
                )
                .multiple(),
            ],
        )]),
    CommandSpec::new(HostCommand::Client.id(), "client|list", -2)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .tips(&["nondeterministic_output"])
        .rules(&[Rule::IgnoresPause])
        .group(Group::Connection, "2.4.0")
        .summary("Describes open connections, one a line.")
        .complexity("O(C) for C open connections.")
        .history(&[
            changed("5.0.0", "Took `TYPE`."),
            changed("6.2.0", "Took `ID`."),
        ])
        .arguments(&[
            one_of(
                "normal_master_replica_pubsub",
                &[
                    word("normal", "NORMAL"),
                    word("master", "MASTER"),
                    word("replica", "REPLICA"),
                    word("pubsub", "PUBSUB"),
                ],
            )
            .token("TYPE")
            .since("5.0.0")
            .optional(),
            block("id", &[integer("client-id").multiple()])
                .token("ID")
                .since("6.2.0")
                .optional(),
        ]),
    CommandSpec::new(HostCommand::Client.id(), "client|no-evict", 3)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .rules(&[Rule::IgnoresPause])
        .group(Group::Connection, "7.0.0")
        .summary("Exempts this connection from being closed to free memory.")
        .complexity("O(1)")
        .arguments(&[one_of("enabled", &[word("on", "ON"), word("off", "OFF")])]),
    CommandSpec::new(HostCommand::Client.id(), "client|no-touch", 3)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .rules(&[Rule::IgnoresPause])
        .group(Group::Connection, "7.2.0")
        .summary("Lets this connection read without renewing the access marks of keys.")
        .complexity("O(1)")
        .arguments(&[one_of("enabled", &[word("on", "ON"), word("off", "OFF")])]),
    CommandSpec::new(HostCommand::Client.id(), "client|pause", -3)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .rules(&[Rule::IgnoresPause])
        .group(Group::Connection, "2.9.50")
        .summary("Holds back commands, or only writes, of all clients for a while.")
        .complexity("O(1)")
        .history(&[changed("6.2.0", "Took `WRITE` and `ALL`.")])
        .arguments(&[
            integer("timeout"),
            one_of("mode", &[word("write", "WRITE"), word("all", "ALL")])
                .since("6.2.0")
                .optional(),
        ]),
    CommandSpec::new(HostCommand::Client.id(), "client|reply", 3)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .rules(&[Rule::IgnoresPause])
        .group(Group::Connection, "3.2.0")
        .summary("Turns replies on this connection off, on, or off for one command.")
        .complexity("O(1)")
        .arguments(&[one_of(
            "on_off_skip",
            &[word("on", "ON"), word("off", "OFF"), word("skip", "SKIP")],
        )]),
    CommandSpec::new(HostCommand::Client.id(), "client|setinfo", 4)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .rules(&[Rule::IgnoresPause])
        .group(Group::Connection, "7.2.0")
        .summary("Tells the server which client library speaks on this connection.")
        .complexity("O(1)")
        .arguments(&[one_of(
            "attr",
            &[
                string("libname").token("LIB-NAME"),
                string("libver").token("LIB-VER"),
            ],
        )]),
    CommandSpec::new(HostCommand::Client.id(), "client|setname", 3)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .rules(&[Rule::IgnoresPause])
        .group(Group::Connection, "2.6.9")
        .summary("Gives this connection a name that CLIENT LIST shows.")
        .complexity("O(1)")
        .arguments(&[string("connection-name")]),
    CommandSpec::new(HostCommand::Client.id(), "client|tracking", -3)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .rules(&[Rule::IgnoresPause])
        .group(Group::Connection, "6.0.0")
        .summary("Turns the tracking of keys on (refused) or off.")
        .complexity("O(1)")
        .arguments(&[one_of("status", &[word("on", "ON"), word("off", "OFF")])]),
    CommandSpec::new(HostCommand::Client.id(), "client|trackinginfo", 2)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .rules(&[Rule::IgnoresPause])
        .group(Group::Connection, "6.2.0")
        .summary("Returns how keys are tracked for this connection.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Client.id(), "client|unblock", -3)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .rules(&[Rule::IgnoresPause])
        .group(Group::Connection, "5.0.0")
        .summary("Lets a connection go on that waits for a key.")
        .complexity("O(1)")
        .arguments(&[
            integer("client-id"),
            one_of(
                "timeout_error",
                &[word("timeout", "TIMEOUT"), word("error", "ERROR")],
            )
            .optional(),
        ]),
    CommandSpec::new(HostCommand::Client.id(), "client|unpause", 2)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .rules(&[Rule::IgnoresPause])
        .group(Group::Connection, "6.2.0")
        .summary("Ends CLIENT PAUSE.")
        .complexity("O(C) for C waiting connections."),
];

pub(super) static CLUSTER: &[CommandSpec] = &[
    CommandSpec::new(HostCommand::Cluster.id(), "cluster|help", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Cluster, "5.0.0")
        .summary("Lists the subcommands.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Cluster.id(), "cluster|info", 2)
        .flags(&[Flag::Stale])
        .categories(&[])
        .tips(&["nondeterministic_output"])
        .group(Group::Cluster, "3.0.0")
        .summary("Reports the state of the cluster.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Cluster.id(), "cluster|myid", 2)
        .flags(&[Flag::Stale])
        .categories(&[])
        .group(Group::Cluster, "3.0.0")
        .summary("Returns the identifier of this node.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Cluster.id(), "cluster|nodes", 2)
        .flags(&[Flag::Stale])
        .categories(&[])
        .tips(&["nondeterministic_output"])
        .group(Group::Cluster, "3.0.0")
        .summary("Lists the nodes of the cluster as text.")
        .complexity("O(N) for N nodes."),
    CommandSpec::new(HostCommand::Cluster.id(), "cluster|shards", 2)
        .flags(&[Flag::Stale])
        .categories(&[])
        .tips(&["nondeterministic_output"])
        .group(Group::Cluster, "7.0.0")
        .summary("Lists the shards of the cluster with their nodes.")
        .complexity("O(N) for N nodes."),
    CommandSpec::new(HostCommand::Cluster.id(), "cluster|slots", 2)
        .flags(&[Flag::Stale])
        .categories(&[])
        .tips(&["nondeterministic_output"])
        .group(Group::Cluster, "3.0.0")
        .summary("Lists ranges of hash slots with their nodes.")
        .complexity("O(N) for N nodes.")
        .deprecated("7.0.0", "`CLUSTER SHARDS`"),
];

pub(super) static COMMAND: &[CommandSpec] = &[
    CommandSpec::new(DatabaseCommand::Command.id(), "command|count", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .group(Group::Server, "2.8.13")
        .summary("Returns how many commands the server has.")
        .complexity("O(1)"),
    CommandSpec::new(DatabaseCommand::Command.id(), "command|docs", -2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .tips(&["nondeterministic_output_order"])
        .group(Group::Server, "7.0.0")
        .summary("Returns the documentation of commands.")
        .complexity("O(N) for N names.")
        .arguments(&[string("command-name").optional().multiple()]),
    CommandSpec::new(DatabaseCommand::Command.id(), "command|getkeys", -4)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .group(Group::Server, "2.8.13")
        .summary("Returns the keys of a command line without running it.")
        .complexity("O(N) for N arguments.")
        .arguments(&[string("command"), string("arg").optional().multiple()]),
    CommandSpec::new(DatabaseCommand::Command.id(), "command|getkeysandflags", -4)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .group(Group::Server, "7.0.0")
        .summary("Returns the keys of a command line, each with what is done to it.")
        .complexity("O(N) for N arguments.")
        .arguments(&[string("command"), string("arg").optional().multiple()]),
    CommandSpec::new(DatabaseCommand::Command.id(), "command|help", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .group(Group::Server, "5.0.0")
        .summary("Lists the subcommands.")
        .complexity("O(1)"),
    CommandSpec::new(DatabaseCommand::Command.id(), "command|info", -2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .tips(&["nondeterministic_output_order"])
        .group(Group::Server, "2.8.13")
        .summary("Describes the named commands, or all.")
        .complexity("O(N) for N names.")
        .history(&[changed("7.0.0", "Without names it describes all commands.")])
        .arguments(&[string("command-name").optional().multiple()]),
    CommandSpec::new(DatabaseCommand::Command.id(), "command|list", -2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .tips(&["nondeterministic_output_order"])
        .group(Group::Server, "7.0.0")
        .summary("Lists the names of commands, filtered if asked.")
        .complexity("O(N) for N commands.")
        .arguments(&[one_of(
            "filterby",
            &[
                string("module-name").token("MODULE"),
                string("category").token("ACLCAT"),
                pattern("pattern").token("PATTERN"),
            ],
        )
        .token("FILTERBY")
        .optional()]),
];

pub(super) static CONFIG: &[CommandSpec] = &[
    CommandSpec::new(HostCommand::Config.id(), "config|get", -3)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .gates(GateNeed::None)
        .group(Group::Server, "2.0.0")
        .summary("Returns the settings whose names match the patterns.")
        .complexity("O(S·P) for S settings and P patterns.")
        .history(&[changed("7.0.0", "Took several patterns.")])
        .arguments(&[block("parameter", &[string("parameter")]).multiple()]),
    CommandSpec::new(HostCommand::Config.id(), "config|help", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[])
        .gates(GateNeed::None)
        .group(Group::Server, "5.0.0")
        .summary("Lists the subcommands.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Config.id(), "config|resetstat", 2)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .gates(GateNeed::None)
        .group(Group::Server, "2.0.0")
        .summary("Sets the counters of INFO back to zero.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Config.id(), "config|rewrite", 2)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .gates(GateNeed::None)
        .group(Group::Server, "2.8.0")
        .summary("Writes the settings now in force to the configuration file.")
        .complexity("O(S) for S settings."),
    CommandSpec::new(HostCommand::Config.id(), "config|set", -4)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .gates(GateNeed::None)
        .group(Group::Server, "2.0.0")
        .summary("Changes settings, all or none.")
        .complexity("O(P) for P settings given.")
        .history(&[changed("7.0.0", "Took several settings.")])
        .arguments(&[block("parameter_value", &[string("parameter"), string("value")]).multiple()]),
];

pub(super) static FUNCTION: &[CommandSpec] = &[
    CommandSpec::new(HostCommand::Function.id(), "function|flush", -2)
        .flags(&[Flag::Write, Flag::Noscript])
        .categories(&[Category::Scripting])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .group(Group::Scripting, "7.0.0")
        .summary("Removes all functions.")
        .complexity("O(1), as there are none.")
        .arguments(&[one_of("async", &[word("async", "ASYNC"), word("sync", "SYNC")]).optional()]),
    CommandSpec::new(HostCommand::Function.id(), "function|help", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[Category::Scripting])
        .group(Group::Scripting, "7.0.0")
        .summary("Lists the subcommands.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Function.id(), "function|list", -2)
        .flags(&[Flag::Noscript])
        .categories(&[Category::Scripting])
        .tips(&["nondeterministic_output_order"])
        .group(Group::Scripting, "7.0.0")
        .summary("Lists the stored functions, of which there are none.")
        .complexity("O(1)")
        .arguments(&[
            string("library-name-pattern")
                .token("LIBRARYNAME")
                .optional(),
            word("withcode", "WITHCODE").optional(),
        ]),
    CommandSpec::new(HostCommand::Function.id(), "function|stats", 2)
        .flags(&[Flag::Noscript, Flag::AllowBusy])
        .categories(&[Category::Scripting])
        .tips(&[
            "nondeterministic_output",
            "request_policy:all_shards",
            "response_policy:special",
        ])
        .group(Group::Scripting, "7.0.0")
        .summary("Returns what function runs, which is none.")
        .complexity("O(1)"),
];

pub(super) static LATENCY: &[CommandSpec] = &[
    CommandSpec::new(HostCommand::Latency.id(), "latency|doctor", 2)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .tips(&[
            "nondeterministic_output",
            "request_policy:all_nodes",
            "response_policy:special",
        ])
        .group(Group::Server, "2.8.13")
        .summary("Reports the latency spikes of all events as text.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Latency.id(), "latency|graph", 3)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .tips(&[
            "nondeterministic_output",
            "request_policy:all_nodes",
            "response_policy:special",
        ])
        .group(Group::Server, "2.8.13")
        .summary("Draws the latency spikes of an event as text.")
        .complexity("O(1)")
        .arguments(&[string("event")]),
    CommandSpec::new(HostCommand::Latency.id(), "latency|help", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "2.8.13")
        .summary("Lists the subcommands.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Latency.id(), "latency|histogram", -2)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .tips(&[
            "nondeterministic_output",
            "request_policy:all_nodes",
            "response_policy:special",
        ])
        .group(Group::Server, "7.0.0")
        .summary("Returns the distribution of execution times, by command.")
        .complexity("O(N) for N commands.")
        .arguments(&[string("command").optional().multiple()]),
    CommandSpec::new(HostCommand::Latency.id(), "latency|history", 3)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .tips(&[
            "nondeterministic_output",
            "request_policy:all_nodes",
            "response_policy:special",
        ])
        .group(Group::Server, "2.8.13")
        .summary("Returns the latency spikes of an event.")
        .complexity("O(1)")
        .arguments(&[string("event")]),
    CommandSpec::new(HostCommand::Latency.id(), "latency|latest", 2)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .tips(&[
            "nondeterministic_output",
            "request_policy:all_nodes",
            "response_policy:special",
        ])
        .group(Group::Server, "2.8.13")
        .summary("Returns the newest latency spike of each event.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Latency.id(), "latency|reset", -2)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .group(Group::Server, "2.8.13")
        .summary("Forgets the spikes of the named events, or of all.")
        .complexity("O(1)")
        .arguments(&[string("event").optional().multiple()]),
];

pub(super) static MEMORY: &[CommandSpec] = &[
    CommandSpec::new(HostCommand::Memory.id(), "memory|doctor", 2)
        .categories(&[])
        .tips(&[
            "nondeterministic_output",
            "request_policy:all_shards",
            "response_policy:special",
        ])
        .group(Group::Server, "4.0.0")
        .summary("Reports problems of memory as text.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Memory.id(), "memory|help", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "4.0.0")
        .summary("Lists the subcommands.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Memory.id(), "memory|malloc-stats", 2)
        .categories(&[])
        .tips(&[
            "nondeterministic_output",
            "request_policy:all_shards",
            "response_policy:special",
        ])
        .group(Group::Server, "4.0.0")
        .summary("Returns what the allocator says of itself.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Memory.id(), "memory|purge", 2)
        .categories(&[])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .group(Group::Server, "4.0.0")
        .summary("Asks the allocator to give memory back.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Memory.id(), "memory|stats", 2)
        .categories(&[])
        .tips(&[
            "nondeterministic_output",
            "request_policy:all_shards",
            "response_policy:special",
        ])
        .group(Group::Server, "4.0.0")
        .summary("Reports where memory goes.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Memory.id(), "memory|usage", -3)
        .flags(&[Flag::Readonly])
        .categories(&[])
        .keys(&[KeySpec::one(2, KeyAccess::ReadOnly, &[])])
        .group(Group::Server, "4.0.0")
        .summary("Returns the bytes that a key and its value take.")
        .complexity("O(1) after one lookup.")
        .arguments(&[key("key", 0), integer("count").token("SAMPLES").optional()]),
];

pub(super) static MODULE: &[CommandSpec] = &[
    CommandSpec::new(HostCommand::Module.id(), "module|help", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "5.0.0")
        .summary("Lists the subcommands.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Module.id(), "module|list", 2)
        .flags(&[Flag::Admin, Flag::Noscript])
        .categories(&[])
        .tips(&["nondeterministic_output_order"])
        .group(Group::Server, "4.0.0")
        .summary("Lists the loaded modules.")
        .complexity("O(1), as there are none."),
];

pub(super) static REPLICA: &[CommandSpec] = &[
    CommandSpec::new(HostCommand::Replica.id(), "replica|check", 2)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "0.1.0")
        .summary("Begins to compare this replica with its primary.")
        .complexity("O(N) on both servers, in the background; N is the number of keys."),
    CommandSpec::new(HostCommand::Replica.id(), "replica|help", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "0.1.0")
        .summary("Lists the subcommands.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Replica.id(), "replica|status", 2)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "0.1.0")
        .summary("Tells how the last comparison with the primary went, or goes.")
        .complexity("O(1)"),
];

/// What only the mover of keys says.
const MOVERS: &[Flag] = &[Flag::Admin, Flag::Noscript, Flag::NoMulti, Flag::Stale];

pub(super) static RESHARD: &[CommandSpec] = &[
    CommandSpec::new(HostCommand::Reshard.id(), "reshard|begin", 6)
        .flags(MOVERS)
        .categories(&[])
        .gates(GateNeed::None)
        .rules(&[Rule::IgnoresPause])
        .group(Group::Server, "0.1.0")
        .summary("Tells the server its name in two rings between which keys are about to move.")
        .complexity("A file is written to disk.")
        .arguments(&[
            string("mover"),
            string("node"),
            string("old-ring"),
            string("new-ring"),
        ]),
    CommandSpec::new(HostCommand::Reshard.id(), "reshard|changed", 5)
        .flags(MOVERS)
        .categories(&[])
        .gates(GateNeed::None)
        .rules(&[Rule::IgnoresPause])
        .group(Group::Server, "0.1.0")
        .summary("Takes keys that have changed here and leave, of one range of keys or of any.")
        .complexity("O(N) for N keys, and the number of ranges.")
        .arguments(&[string("mover"), string("range"), integer("count")]),
    CommandSpec::new(HostCommand::Reshard.id(), "reshard|drop", -4)
        .flags(&[Flag::Write, Flag::Admin, Flag::Noscript, Flag::NoMulti])
        .categories(&[])
        .group(Group::Server, "0.1.0")
        .summary("Removes keys that are not served here.")
        .complexity("O(N) for N keys.")
        .arguments(&[string("mover"), string("name").multiple()]),
    CommandSpec::new(HostCommand::Reshard.id(), "reshard|fetch", -4)
        .flags(MOVERS)
        .categories(&[])
        .rules(&[Rule::IgnoresPause])
        .group(Group::Server, "0.1.0")
        .summary("Returns whole values for RESHARD PUT, as many as fit a reply.")
        .complexity("O(N) for N bytes of the values.")
        .arguments(&[string("mover"), string("name").multiple()]),
    CommandSpec::new(HostCommand::Reshard.id(), "reshard|forget", -2)
        .flags(MOVERS)
        .categories(&[])
        .gates(GateNeed::None)
        .rules(&[Rule::IgnoresPause])
        .group(Group::Server, "0.1.0")
        .summary("Lets the server take every key again, whatever the rings said.")
        .complexity("A file is removed from disk.")
        .arguments(&[word("force", "FORCE").optional()]),
    CommandSpec::new(HostCommand::Reshard.id(), "reshard|help", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "0.1.0")
        .summary("Lists the subcommands.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Reshard.id(), "reshard|put", -5)
        .flags(&[
            Flag::Write,
            Flag::DenyOom,
            Flag::Admin,
            Flag::Noscript,
            Flag::NoMulti,
        ])
        .categories(&[])
        .group(Group::Server, "0.1.0")
        .summary("Gives keys that are not served here values; none removes the key.")
        .complexity("O(N) for N bytes of the values.")
        .arguments(&[
            string("mover"),
            block("name_value", &[string("name"), string("value")]).multiple(),
        ]),
    CommandSpec::new(HostCommand::Reshard.id(), "reshard|set", -5)
        .flags(MOVERS)
        .categories(&[])
        .gates(GateNeed::None)
        .rules(&[Rule::IgnoresPause])
        .group(Group::Server, "0.1.0")
        .summary("Fences ranges of keys, hands them over, or takes them, and keeps it on disk.")
        .complexity("A file is written to disk.")
        .arguments(&[
            string("mover"),
            one_of(
                "state",
                &[
                    word("old", "OLD"),
                    word("fenced", "FENCED"),
                    word("new", "NEW"),
                ],
            ),
            integer("range").multiple(),
        ]),
    CommandSpec::new(HostCommand::Reshard.id(), "reshard|status", 2)
        .flags(MOVERS)
        .categories(&[])
        .rules(&[Rule::IgnoresPause])
        .group(Group::Server, "0.1.0")
        .summary("Says which ranges of keys the server has, by which rings.")
        .complexity("O(N) for N bytes of the rings."),
];

pub(super) static SLOWLOG: &[CommandSpec] = &[
    CommandSpec::new(HostCommand::Slowlog.id(), "slowlog|get", -2)
        .flags(&[Flag::Admin, Flag::Loading, Flag::Stale])
        .categories(&[])
        .tips(&["request_policy:all_nodes", "nondeterministic_output"])
        .group(Group::Server, "2.2.12")
        .summary("Returns the newest entries of the log.")
        .complexity("O(N) for N entries.")
        .history(&[changed("4.0.0", "Entries name the client and its address.")])
        .arguments(&[integer("count").optional()]),
    CommandSpec::new(HostCommand::Slowlog.id(), "slowlog|help", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "6.2.0")
        .summary("Lists the subcommands.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Slowlog.id(), "slowlog|len", 2)
        .flags(&[Flag::Admin, Flag::Loading, Flag::Stale])
        .categories(&[])
        .tips(&[
            "request_policy:all_nodes",
            "response_policy:agg_sum",
            "nondeterministic_output",
        ])
        .group(Group::Server, "2.2.12")
        .summary("Returns how many entries the log has.")
        .complexity("O(1)"),
    CommandSpec::new(HostCommand::Slowlog.id(), "slowlog|reset", 2)
        .flags(&[Flag::Admin, Flag::Loading, Flag::Stale])
        .categories(&[])
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .group(Group::Server, "2.2.12")
        .summary("Empties the log.")
        .complexity("O(N) for N entries."),
];
