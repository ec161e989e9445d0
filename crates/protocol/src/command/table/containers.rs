//! Subcommands of the server's containers.

use crate::command::CommandId;
use crate::command::argument::{block, integer, key, one_of, pattern, string, word};
use crate::command::keys::{KeyAccess, KeySpec};
use crate::command::spec::{Category, CommandSpec, Flag, Group, changed};

pub(super) static ACL: &[CommandSpec] = &[
    CommandSpec::new(CommandId::Acl, "acl|cat", -2)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "6.0.0")
        .summary("Lists the families of commands, or the commands of one.")
        .complexity("O(N) for N commands.")
        .arguments(&[string("categoryname").optional()]),
    CommandSpec::new(CommandId::Acl, "acl|getuser", 3)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "6.0.0")
        .summary("Returns the rules of a user.")
        .complexity("O(1)")
        .arguments(&[string("username")]),
    CommandSpec::new(CommandId::Acl, "acl|help", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "6.0.0")
        .summary("Lists the subcommands.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Acl, "acl|list", 2)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "6.0.0")
        .summary("Lists the rules of all users as text.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Acl, "acl|users", 2)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "6.0.0")
        .summary("Lists the names of all users.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Acl, "acl|whoami", 2)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "6.0.0")
        .summary("Returns the user of this connection.")
        .complexity("O(1)"),
];

pub(super) static CLUSTER: &[CommandSpec] = &[
    CommandSpec::new(CommandId::Cluster, "cluster|help", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Cluster, "5.0.0")
        .summary("Lists the subcommands.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Cluster, "cluster|info", 2)
        .flags(&[Flag::Stale])
        .categories(&[])
        .tips(&["nondeterministic_output"])
        .group(Group::Cluster, "3.0.0")
        .summary("Reports the state of the cluster.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Cluster, "cluster|myid", 2)
        .flags(&[Flag::Stale])
        .categories(&[])
        .group(Group::Cluster, "3.0.0")
        .summary("Returns the identifier of this node.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Cluster, "cluster|nodes", 2)
        .flags(&[Flag::Stale])
        .categories(&[])
        .tips(&["nondeterministic_output"])
        .group(Group::Cluster, "3.0.0")
        .summary("Lists the nodes of the cluster as text.")
        .complexity("O(N) for N nodes."),
    CommandSpec::new(CommandId::Cluster, "cluster|shards", 2)
        .flags(&[Flag::Stale])
        .categories(&[])
        .tips(&["nondeterministic_output"])
        .group(Group::Cluster, "7.0.0")
        .summary("Lists the shards of the cluster with their nodes.")
        .complexity("O(N) for N nodes."),
    CommandSpec::new(CommandId::Cluster, "cluster|slots", 2)
        .flags(&[Flag::Stale])
        .categories(&[])
        .tips(&["nondeterministic_output"])
        .group(Group::Cluster, "3.0.0")
        .summary("Lists ranges of hash slots with their nodes.")
        .complexity("O(N) for N nodes.")
        .deprecated("7.0.0", "`CLUSTER SHARDS`"),
];

pub(super) static COMMAND: &[CommandSpec] = &[
    CommandSpec::new(CommandId::Command, "command|count", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .group(Group::Server, "2.8.13")
        .summary("Returns how many commands the server has.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Command, "command|docs", -2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .tips(&["nondeterministic_output_order"])
        .group(Group::Server, "7.0.0")
        .summary("Returns the documentation of commands.")
        .complexity("O(N) for N names.")
        .arguments(&[string("command-name").optional().multiple()]),
    CommandSpec::new(CommandId::Command, "command|getkeys", -4)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .group(Group::Server, "2.8.13")
        .summary("Returns the keys of a command line without running it.")
        .complexity("O(N) for N arguments.")
        .arguments(&[string("command"), string("arg").optional().multiple()]),
    CommandSpec::new(CommandId::Command, "command|getkeysandflags", -4)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .group(Group::Server, "7.0.0")
        .summary("Returns the keys of a command line, each with what is done to it.")
        .complexity("O(N) for N arguments.")
        .arguments(&[string("command"), string("arg").optional().multiple()]),
    CommandSpec::new(CommandId::Command, "command|help", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .group(Group::Server, "5.0.0")
        .summary("Lists the subcommands.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Command, "command|info", -2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .tips(&["nondeterministic_output_order"])
        .group(Group::Server, "2.8.13")
        .summary("Describes the named commands, or all.")
        .complexity("O(N) for N names.")
        .history(&[changed("7.0.0", "Without names it describes all commands.")])
        .arguments(&[string("command-name").optional().multiple()]),
    CommandSpec::new(CommandId::Command, "command|list", -2)
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
    CommandSpec::new(CommandId::Config, "config|get", -3)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "2.0.0")
        .summary("Returns the settings whose names match the patterns.")
        .complexity("O(S·P) for S settings and P patterns.")
        .history(&[changed("7.0.0", "Took several patterns.")])
        .arguments(&[block("parameter", &[string("parameter")]).multiple()]),
    CommandSpec::new(CommandId::Config, "config|help", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "5.0.0")
        .summary("Lists the subcommands.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Config, "config|resetstat", 2)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "2.0.0")
        .summary("Sets the counters of INFO back to zero.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Config, "config|rewrite", 2)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "2.8.0")
        .summary("Writes the settings now in force to the configuration file.")
        .complexity("O(S) for S settings."),
    CommandSpec::new(CommandId::Config, "config|set", -4)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .group(Group::Server, "2.0.0")
        .summary("Changes settings, all or none.")
        .complexity("O(P) for P settings given.")
        .history(&[changed("7.0.0", "Took several settings.")])
        .arguments(&[block("parameter_value", &[string("parameter"), string("value")]).multiple()]),
];

pub(super) static FUNCTION: &[CommandSpec] = &[
    CommandSpec::new(CommandId::Function, "function|flush", -2)
        .flags(&[Flag::Write, Flag::Noscript])
        .categories(&[Category::Scripting])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .group(Group::Scripting, "7.0.0")
        .summary("Removes all functions.")
        .complexity("O(1), as there are none.")
        .arguments(&[one_of("async", &[word("async", "ASYNC"), word("sync", "SYNC")]).optional()]),
    CommandSpec::new(CommandId::Function, "function|help", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[Category::Scripting])
        .group(Group::Scripting, "7.0.0")
        .summary("Lists the subcommands.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Function, "function|list", -2)
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
    CommandSpec::new(CommandId::Function, "function|stats", 2)
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
    CommandSpec::new(CommandId::Latency, "latency|doctor", 2)
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
    CommandSpec::new(CommandId::Latency, "latency|graph", 3)
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
    CommandSpec::new(CommandId::Latency, "latency|help", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "2.8.13")
        .summary("Lists the subcommands.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Latency, "latency|histogram", -2)
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
    CommandSpec::new(CommandId::Latency, "latency|history", 3)
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
    CommandSpec::new(CommandId::Latency, "latency|latest", 2)
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
    CommandSpec::new(CommandId::Latency, "latency|reset", -2)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[])
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .group(Group::Server, "2.8.13")
        .summary("Forgets the spikes of the named events, or of all.")
        .complexity("O(1)")
        .arguments(&[string("event").optional().multiple()]),
];

pub(super) static MEMORY: &[CommandSpec] = &[
    CommandSpec::new(CommandId::Memory, "memory|doctor", 2)
        .categories(&[])
        .tips(&[
            "nondeterministic_output",
            "request_policy:all_shards",
            "response_policy:special",
        ])
        .group(Group::Server, "4.0.0")
        .summary("Reports problems of memory as text.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Memory, "memory|help", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "4.0.0")
        .summary("Lists the subcommands.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Memory, "memory|malloc-stats", 2)
        .categories(&[])
        .tips(&[
            "nondeterministic_output",
            "request_policy:all_shards",
            "response_policy:special",
        ])
        .group(Group::Server, "4.0.0")
        .summary("Returns what the allocator says of itself.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Memory, "memory|purge", 2)
        .categories(&[])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .group(Group::Server, "4.0.0")
        .summary("Asks the allocator to give memory back.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Memory, "memory|stats", 2)
        .categories(&[])
        .tips(&[
            "nondeterministic_output",
            "request_policy:all_shards",
            "response_policy:special",
        ])
        .group(Group::Server, "4.0.0")
        .summary("Reports where memory goes.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Memory, "memory|usage", -3)
        .flags(&[Flag::Readonly])
        .categories(&[])
        .keys(&[KeySpec::one(2, KeyAccess::ReadOnly, &[])])
        .group(Group::Server, "4.0.0")
        .summary("Returns the bytes that a key and its value take.")
        .complexity("O(1) after one lookup.")
        .arguments(&[key("key", 0), integer("count").token("SAMPLES").optional()]),
];

pub(super) static MODULE: &[CommandSpec] = &[
    CommandSpec::new(CommandId::Module, "module|help", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "5.0.0")
        .summary("Lists the subcommands.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Module, "module|list", 2)
        .flags(&[Flag::Admin, Flag::Noscript])
        .categories(&[])
        .tips(&["nondeterministic_output_order"])
        .group(Group::Server, "4.0.0")
        .summary("Lists the loaded modules.")
        .complexity("O(1), as there are none."),
];

pub(super) static SLOWLOG: &[CommandSpec] = &[
    CommandSpec::new(CommandId::Slowlog, "slowlog|get", -2)
        .flags(&[Flag::Admin, Flag::Loading, Flag::Stale])
        .categories(&[])
        .tips(&["request_policy:all_nodes", "nondeterministic_output"])
        .group(Group::Server, "2.2.12")
        .summary("Returns the newest entries of the log.")
        .complexity("O(N) for N entries.")
        .history(&[changed("4.0.0", "Entries name the client and its address.")])
        .arguments(&[integer("count").optional()]),
    CommandSpec::new(CommandId::Slowlog, "slowlog|help", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "6.2.0")
        .summary("Lists the subcommands.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Slowlog, "slowlog|len", 2)
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
    CommandSpec::new(CommandId::Slowlog, "slowlog|reset", 2)
        .flags(&[Flag::Admin, Flag::Loading, Flag::Stale])
        .categories(&[])
        .tips(&["request_policy:all_nodes", "response_policy:all_succeeded"])
        .group(Group::Server, "2.2.12")
        .summary("Empties the log.")
        .complexity("O(N) for N entries."),
];
