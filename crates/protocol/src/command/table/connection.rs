//! Commands about the connection itself.

use crate::command::CommandId;
use crate::command::argument::{block, integer, one_of, string, word};
use crate::command::spec::{Category, CommandSpec, Flag, Group, changed};

/// In the order of [`CommandId`].
pub(super) static COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(CommandId::Auth, "auth", -2)
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
    CommandSpec::new(CommandId::Client, "client", -2)
        .categories(&[])
        .group(Group::Connection, "2.4.0")
        .summary("Holds the commands about client connections.")
        .complexity("Depends on the subcommand.")
        .subcommands(CLIENT),
    CommandSpec::new(CommandId::Echo, "echo", 2)
        .flags(&[Flag::Loading, Flag::Stale, Flag::Fast])
        .categories(&[Category::Connection])
        .group(Group::Connection, "1.0.0")
        .summary("Returns its argument.")
        .complexity("O(N) for N bytes.")
        .arguments(&[string("message")]),
    CommandSpec::new(CommandId::Hello, "hello", -1)
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
    CommandSpec::new(CommandId::Ping, "ping", -1)
        .flags(&[Flag::Fast])
        .categories(&[Category::Connection])
        .tips(&["request_policy:all_shards", "response_policy:all_succeeded"])
        .group(Group::Connection, "1.0.0")
        .summary("Answers PONG, or its argument.")
        .complexity("O(1)")
        .arguments(&[string("message").optional()]),
    CommandSpec::new(CommandId::Quit, "quit", -1)
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
        .summary("Closes the connection after the replies before it.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Reset, "reset", 1)
        .flags(&[
            Flag::Noscript,
            Flag::Loading,
            Flag::Stale,
            Flag::Fast,
            Flag::NoAuth,
            Flag::AllowBusy,
        ])
        .categories(&[Category::Connection])
        .group(Group::Connection, "6.2.0")
        .summary("Puts the connection back into the state of a new one.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Select, "select", 2)
        .flags(&[Flag::Loading, Flag::Stale, Flag::Fast])
        .categories(&[Category::Connection])
        .group(Group::Connection, "1.0.0")
        .summary("Chooses the database that this connection's commands work on.")
        .complexity("O(1)")
        .arguments(&[integer("index")]),
];

static CLIENT: &[CommandSpec] = &[
    CommandSpec::new(CommandId::Client, "client|caching", 3)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .group(Group::Connection, "6.0.0")
        .summary("Says whether the keys of the next command are tracked.")
        .complexity("O(1)")
        .arguments(&[one_of("mode", &[word("yes", "YES"), word("no", "NO")])]),
    CommandSpec::new(CommandId::Client, "client|durability", -2)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .group(Group::Connection, "0.1.0")
        .summary("Says when requests of this connection are answered, or sets it.")
        .complexity("O(1)")
        .arguments(&[one_of(
            "mode",
            &[
                word("none", "NONE"),
                word("interval", "INTERVAL"),
                word("sync", "SYNC"),
            ],
        )
        .optional()]),
    CommandSpec::new(CommandId::Client, "client|getname", 2)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .group(Group::Connection, "2.6.9")
        .summary("Returns the name of this connection.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Client, "client|getredir", 2)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .group(Group::Connection, "6.0.0")
        .summary("Returns which connection is told of this one's tracked keys.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Client, "client|help", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .group(Group::Connection, "5.0.0")
        .summary("Lists the subcommands.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Client, "client|id", 2)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .group(Group::Connection, "5.0.0")
        .summary("Returns the number of this connection, unique while the server runs.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Client, "client|info", 2)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .tips(&["nondeterministic_output"])
        .group(Group::Connection, "6.2.0")
        .summary("Describes this connection.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Client, "client|kill", -3)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
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
    CommandSpec::new(CommandId::Client, "client|list", -2)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .tips(&["nondeterministic_output"])
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
    CommandSpec::new(CommandId::Client, "client|no-evict", 3)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .group(Group::Connection, "7.0.0")
        .summary("Exempts this connection from being closed to free memory.")
        .complexity("O(1)")
        .arguments(&[one_of("enabled", &[word("on", "ON"), word("off", "OFF")])]),
    CommandSpec::new(CommandId::Client, "client|no-touch", 3)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .group(Group::Connection, "7.2.0")
        .summary("Lets this connection read without renewing the access marks of keys.")
        .complexity("O(1)")
        .arguments(&[one_of("enabled", &[word("on", "ON"), word("off", "OFF")])]),
    CommandSpec::new(CommandId::Client, "client|pause", -3)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
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
    CommandSpec::new(CommandId::Client, "client|reply", 3)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .group(Group::Connection, "3.2.0")
        .summary("Turns replies on this connection off, on, or off for one command.")
        .complexity("O(1)")
        .arguments(&[one_of(
            "on_off_skip",
            &[word("on", "ON"), word("off", "OFF"), word("skip", "SKIP")],
        )]),
    CommandSpec::new(CommandId::Client, "client|setinfo", 4)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
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
    CommandSpec::new(CommandId::Client, "client|setname", 3)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .group(Group::Connection, "2.6.9")
        .summary("Gives this connection a name that CLIENT LIST shows.")
        .complexity("O(1)")
        .arguments(&[string("connection-name")]),
    CommandSpec::new(CommandId::Client, "client|tracking", -3)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .group(Group::Connection, "6.0.0")
        .summary("Turns the tracking of keys on (refused) or off.")
        .complexity("O(1)")
        .arguments(&[one_of("status", &[word("on", "ON"), word("off", "OFF")])]),
    CommandSpec::new(CommandId::Client, "client|trackinginfo", 2)
        .flags(&[Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .group(Group::Connection, "6.2.0")
        .summary("Returns how keys are tracked for this connection.")
        .complexity("O(1)"),
    CommandSpec::new(CommandId::Client, "client|unblock", -3)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
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
    CommandSpec::new(CommandId::Client, "client|unpause", 2)
        .flags(&[Flag::Admin, Flag::Noscript, Flag::Loading, Flag::Stale])
        .categories(&[Category::Connection])
        .group(Group::Connection, "6.2.0")
        .summary("Ends CLIENT PAUSE.")
        .complexity("O(C) for C waiting connections."),
];
