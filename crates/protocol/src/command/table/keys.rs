//! Commands on keys, whatever their values are.

use crate::command::argument::{
    Argument, block, integer, key, one_of, pattern, string, unix_time, word,
};
use crate::command::execution::{GateNeed, Rule};
use crate::command::id::family;
use crate::command::keys::{KeyAccess, KeyEffect, KeySpec};
use crate::command::spec::{Category, CommandSpec, Flag, Group, changed};

family! {
    /// Commands on keys, whatever their values are.
    KeyCommand in Keyspace(Key) {
        Copy,
        Del,
        Dump,
        Exists,
        Expire,
        Expireat,
        Expiretime,
        Kdump,
        Keys,
        Move,
        Object,
        Persist,
        Pexpire,
        Pexpireat,
        Pexpiretime,
        Pttl,
        Randomkey,
        Rename,
        Renamenx,
        Restore,
        Scan,
        Sort,
        SortRo,
        Touch,
        Ttl,
        Type,
        Unlink,
    }
}

const SORTS: &[Category] = &[
    Category::Set,
    Category::Sortedset,
    Category::List,
    Category::Dangerous,
];
const SORTED: KeySpec = KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access]);
const NAMED: KeySpec = KeySpec::named_by_values(KeyAccess::ReadOnly, &[KeyEffect::Access])
    .note("What BY and GET name depends on the elements");
const SORTING: &str = "O(N log N) for N elements, one lookup for each and each pattern.";
const SORT_BY: Argument = pattern("by-pattern").token("BY").optional();
const SORT_LIMIT: Argument = block("limit", &[integer("offset"), integer("count")])
    .token("LIMIT")
    .optional();
const SORT_GET: Argument = pattern("get-pattern")
    .token("GET")
    .optional()
    .multiple_token();
const SORT_ORDER: Argument =
    one_of("order", &[word("asc", "ASC"), word("desc", "DESC")]).optional();

/// In the order of [`KeyCommand`].
pub(super) static COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(KeyCommand::Copy.id(), "copy", -3)
        .flags(&[Flag::Write, Flag::DenyOom])
        .categories(&[Category::Keyspace])
        .keys(&[
            KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access]),
            KeySpec::one(2, KeyAccess::Overwrite, &[KeyEffect::Update]),
        ])
        .gates(GateNeed::All)
        .group(Group::Generic, "6.2.0")
        .summary("Copies the value of a key to another key.")
        .complexity("O(N) for N bytes of the value.")
        .arguments(&[
            key("source", 0),
            key("destination", 1),
            integer("destination-db").token("DB").optional(),
            word("replace", "REPLACE").optional(),
        ]),
    CommandSpec::new(KeyCommand::Del.id(), "del", -2)
        .flags(&[Flag::Write])
        .categories(&[Category::Keyspace])
        .keys(&[KeySpec::rest(1, KeyAccess::Remove, &[KeyEffect::Delete])])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .rules(&[Rule::OnlyRemoves])
        .key_by_key("Each key is removed whether or not others are there")
        .group(Group::Generic, "1.0.0")
        .summary("Removes keys.")
        .complexity("One lookup per key; memory is given back afterwards.")
        .arguments(&[key("key", 0).multiple()]),
    CommandSpec::new(KeyCommand::Dump.id(), "dump", 2)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Keyspace])
        .keys(&[KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access])])
        .tips(&["nondeterministic_output"])
        .group(Group::Generic, "2.6.0")
        .summary("Returns a value in the portable form that RESTORE takes.")
        .complexity("O(N) for N bytes of the value.")
        .arguments(&[key("key", 0)]),
    CommandSpec::new(KeyCommand::Exists.id(), "exists", -2)
        .flags(&[Flag::Readonly, Flag::Fast])
        .categories(&[Category::Keyspace])
        .keys(&[KeySpec::rest(1, KeyAccess::ReadOnly, &[])])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .rules(&[Rule::Quiet])
        .group(Group::Generic, "1.0.0")
        .summary("Counts how many of the keys exist, repeated ones repeatedly.")
        .complexity("One lookup per key.")
        .history(&[changed("3.0.3", "Took several keys.")])
        .arguments(&[key("key", 0).multiple()]),
    CommandSpec::new(KeyCommand::Expire.id(), "expire", -3)
        .flags(&[Flag::Write, Flag::Fast])
        .categories(&[Category::Keyspace])
        .keys(&[KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Update])])
        .group(Group::Generic, "1.0.0")
        .summary("Makes a key expire after some seconds.")
        .complexity("One lookup.")
        .history(&[changed("7.0.0", "Took `NX`, `XX`, `GT` and `LT`.")])
        .arguments(&[
            key("key", 0),
            integer("seconds"),
            one_of(
                "condition",
                &[
                    word("nx", "NX"),
                    word("xx", "XX"),
                    word("gt", "GT"),
                    word("lt", "LT"),
                ],
            )
            .since("7.0.0")
            .optional(),
        ]),
    CommandSpec::new(KeyCommand::Expireat.id(), "expireat", -3)
        .flags(&[Flag::Write, Flag::Fast])
        .categories(&[Category::Keyspace])
        .keys(&[KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Update])])
        .group(Group::Generic, "1.2.0")
        .summary("Makes a key expire at a time given in seconds.")
        .complexity("One lookup.")
        .history(&[changed("7.0.0", "Took `NX`, `XX`, `GT` and `LT`.")])
        .arguments(&[
            key("key", 0),
            unix_time("unix-time-seconds"),
            one_of(
                "condition",
                &[
                    word("nx", "NX"),
                    word("xx", "XX"),
                    word("gt", "GT"),
                    word("lt", "LT"),
                ],
            )
            .since("7.0.0")
            .optional(),
        ]),
    CommandSpec::new(KeyCommand::Expiretime.id(), "expiretime", 2)
        .flags(&[Flag::Readonly, Flag::Fast])
        .categories(&[Category::Keyspace])
        .keys(&[KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access])])
        .rules(&[Rule::Quiet])
        .group(Group::Generic, "7.0.0")
        .summary("Returns when a key expires, in seconds since the Unix epoch.")
        .complexity("One lookup.")
        .arguments(&[key("key", 0)]),
    CommandSpec::new(KeyCommand::Kdump.id(), "kdump", 2)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Keyspace, Category::Dangerous])
        .tips(&["nondeterministic_output", "request_policy:special"])
        .group(Group::Generic, "0.1.0")
        .summary("Returns a portion of the database's keys with all that `pando load` needs.")
        .complexity("O(N) for N bytes of the portion.")
        .arguments(&[string("cursor")]),
    CommandSpec::new(KeyCommand::Keys.id(), "keys", 2)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Keyspace, Category::Dangerous])
        .tips(&["request_policy:all_shards", "nondeterministic_output_order"])
        .rules(&[Rule::Sliced])
        .group(Group::Generic, "1.0.0")
        .summary("Returns all keys that match a pattern.")
        .complexity("O(N) for N keys with the pattern's literal prefix.")
        .arguments(&[pattern("pattern")]),
    CommandSpec::new(KeyCommand::Move.id(), "move", 3)
        .flags(&[Flag::Write, Flag::Fast])
        .categories(&[Category::Keyspace])
        .keys(&[KeySpec::one(
            1,
            KeyAccess::ReadWrite,
            &[KeyEffect::Access, KeyEffect::Update],
        )])
        .gates(GateNeed::All)
        .group(Group::Generic, "1.0.0")
        .summary("Moves a key to another database.")
        .complexity("Two lookups.")
        .arguments(&[key("key", 0), integer("db")]),
    CommandSpec::new(KeyCommand::Object.id(), "object", -2)
        .categories(&[])
        .rules(&[Rule::Quiet])
        .group(Group::Generic, "2.2.3")
        .summary("Holds the commands that look inside values.")
        .complexity("Depends on the subcommand.")
        .subcommands(OBJECT),
    CommandSpec::new(KeyCommand::Persist.id(), "persist", 2)
        .flags(&[Flag::Write, Flag::Fast])
        .categories(&[Category::Keyspace])
        .keys(&[KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Update])])
        .group(Group::Generic, "2.2.0")
        .summary("Lets a key no longer expire.")
        .complexity("One lookup.")
        .arguments(&[key("key", 0)]),
    CommandSpec::new(KeyCommand::Pexpire.id(), "pexpire", -3)
        .flags(&[Flag::Write, Flag::Fast])
        .categories(&[Category::Keyspace])
        .keys(&[KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Update])])
        .group(Group::Generic, "2.6.0")
        .summary("Makes a key expire after some milliseconds.")
        .complexity("One lookup.")
        .history(&[changed("7.0.0", "Took `NX`, `XX`, `GT` and `LT`.")])
        .arguments(&[
            key("key", 0),
            integer("milliseconds"),
            one_of(
                "condition",
                &[
                    word("nx", "NX"),
                    word("xx", "XX"),
                    word("gt", "GT"),
                    word("lt", "LT"),
                ],
            )
            .since("7.0.0")
            .optional(),
        ]),
    CommandSpec::new(KeyCommand::Pexpireat.id(), "pexpireat", -3)
        .flags(&[Flag::Write, Flag::Fast])
        .categories(&[Category::Keyspace])
        .keys(&[KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Update])])
        .group(Group::Generic, "2.6.0")
        .summary("Makes a key expire at a time given in milliseconds.")
        .complexity("One lookup.")
        .history(&[changed("7.0.0", "Took `NX`, `XX`, `GT` and `LT`.")])
        .arguments(&[
            key("key", 0),
            unix_time("unix-time-milliseconds"),
            one_of(
                "condition",
                &[
                    word("nx", "NX"),
                    word("xx", "XX"),
                    word("gt", "GT"),
                    word("lt", "LT"),
                ],
            )
            .since("7.0.0")
            .optional(),
        ]),
    CommandSpec::new(KeyCommand::Pexpiretime.id(), "pexpiretime", 2)
        .flags(&[Flag::Readonly, Flag::Fast])
        .categories(&[Category::Keyspace])
        .keys(&[KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access])])
        .rules(&[Rule::Quiet])
        .group(Group::Generic, "7.0.0")
        .summary("Returns when a key expires, in milliseconds since the Unix epoch.")
        .complexity("One lookup.")
        .arguments(&[key("key", 0)]),
    CommandSpec::new(KeyCommand::Pttl.id(), "pttl", 2)
        .flags(&[Flag::Readonly, Flag::Fast])
        .categories(&[Category::Keyspace])
        .keys(&[KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access])])
        .tips(&["nondeterministic_output"])
        .rules(&[Rule::Quiet])
        .group(Group::Generic, "2.6.0")
        .summary("Returns the milliseconds until a key expires.")
        .complexity("One lookup.")
        .history(&[changed("2.8.0", "A missing key answers -2.")])
        .arguments(&[key("key", 0)]),
    CommandSpec::new(KeyCommand::Randomkey.id(), "randomkey", 1)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Keyspace])
        .tips(&["request_policy:all_shards", "nondeterministic_output"])
        .rules(&[Rule::Sliced])
        .group(Group::Generic, "1.0.0")
        .summary("Returns some key of the selected database.")
        .complexity("One lookup; O(N) for N keys where nearly all have expired."),
    CommandSpec::new(KeyCommand::Rename.id(), "rename", 3)
        .flags(&[Flag::Write])
        .categories(&[Category::Keyspace])
        .keys(&[
            KeySpec::one(
                1,
                KeyAccess::ReadWrite,
                &[KeyEffect::Access, KeyEffect::Delete],
            ),
            KeySpec::one(2, KeyAccess::Overwrite, &[KeyEffect::Update]),
        ])
        .gates(GateNeed::All)
        .group(Group::Generic, "1.0.0")
        .summary("Gives a value another key, replacing what was there.")
        .complexity("O(N) for N bytes of the value.")
        .arguments(&[key("key", 0), key("newkey", 1)]),
    CommandSpec::new(KeyCommand::Renamenx.id(), "renamenx", 3)
        .flags(&[Flag::Write, Flag::Fast])
        .categories(&[Category::Keyspace])
        .keys(&[
            KeySpec::one(
                1,
                KeyAccess::ReadWrite,
                &[KeyEffect::Access, KeyEffect::Delete],
            ),
            KeySpec::one(2, KeyAccess::Overwrite, &[KeyEffect::Insert]),
        ])
        .gates(GateNeed::All)
        .group(Group::Generic, "1.0.0")
        .summary("Gives a value another key, unless something is there.")
        .complexity("O(N) for N bytes of the value.")
        .history(&[changed("3.2.0", "Equal names are no error.")])
        .arguments(&[key("key", 0), key("newkey", 1)]),
    CommandSpec::new(KeyCommand::Restore.id(), "restore", -4)
        .flags(&[Flag::Write, Flag::DenyOom])
        .categories(&[Category::Keyspace, Category::Dangerous])
        .keys(&[KeySpec::one(1, KeyAccess::Overwrite, &[KeyEffect::Update])])
        .group(Group::Generic, "2.6.0")
        .summary("Makes a key from a value that DUMP has returned.")
        .complexity("O(N) for N bytes of the value.")
        .history(&[
            changed("3.0.0", "Took `REPLACE`."),
            changed("5.0.0", "Took `ABSTTL`, `IDLETIME` and `FREQ`."),
        ])
        .arguments(&[
            key("key", 0),
            integer("ttl"),
            string("serialized-value"),
            word("replace", "REPLACE").since("3.0.0").optional(),
            word("absttl", "ABSTTL").since("5.0.0").optional(),
            integer("seconds")
                .token("IDLETIME")
                .since("5.0.0")
                .optional(),
            integer("frequency").token("FREQ").since("5.0.0").optional(),
        ]),
    CommandSpec::new(KeyCommand::Scan.id(), "scan", -2)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Keyspace])
        .tips(&["nondeterministic_output", "request_policy:special"])
        .rules(&[Rule::Sliced])
        .group(Group::Generic, "2.8.0")
        .summary("Walks through the keys of the selected database, some at a call.")
        .complexity("O(1) a call, O(N) for all N keys.")
        .history(&[changed("6.0.0", "Took `TYPE`.")])
        .arguments(&[
            integer("cursor"),
            pattern("pattern").token("MATCH").optional(),
            integer("count").token("COUNT").optional(),
            string("type").token("TYPE").since("6.0.0").optional(),
        ]),
    CommandSpec::new(KeyCommand::Sort.id(), "sort", -2)
        .flags(&[Flag::Write, Flag::DenyOom, Flag::MovableKeys])
        .categories(SORTS)
        .keys(&[
            SORTED,
            NAMED,
            KeySpec::after(
                "STORE",
                &[("BY", 1), ("GET", 1), ("LIMIT", 2)],
                2,
                KeyAccess::Overwrite,
                &[KeyEffect::Update],
            )
            .elsewhere()
            .note("The key behind STORE, which may be anywhere among the options"),
        ])
        .rules(&[Rule::Sliced])
        .key_by_key("It writes one key, when it has read the others")
        .group(Group::Generic, "1.0.0")
        .summary("Sorts the elements of a list or set, or what keys named after them hold.")
        .complexity(SORTING)
        .arguments(&[
            key("key", 0),
            SORT_BY,
            SORT_LIMIT,
            SORT_GET,
            SORT_ORDER,
            word("sorting", "ALPHA").optional(),
            key("destination", 2).token("STORE").optional(),
        ]),
    CommandSpec::new(KeyCommand::SortRo.id(), "sort_ro", -2)
        .flags(&[Flag::Readonly, Flag::MovableKeys])
        .categories(SORTS)
        .keys(&[SORTED, NAMED])
        .rules(&[Rule::Sliced])
        .group(Group::Generic, "7.0.0")
        .summary("Is SORT without STORE.")
        .complexity(SORTING)
        .arguments(&[
            key("key", 0),
            SORT_BY,
            SORT_LIMIT,
            SORT_GET,
            SORT_ORDER,
            word("sorting", "ALPHA").optional(),
        ]),
    CommandSpec::new(KeyCommand::Touch.id(), "touch", -2)
        .flags(&[Flag::Readonly, Flag::Fast])
        .categories(&[Category::Keyspace])
        .keys(&[KeySpec::rest(1, KeyAccess::ReadOnly, &[])])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .rules(&[Rule::CountsUse])
        .group(Group::Generic, "3.2.1")
        .summary("Renews the access marks of keys and counts those that exist.")
        .complexity("One lookup per key.")
        .arguments(&[key("key", 0).multiple()]),
    CommandSpec::new(KeyCommand::Ttl.id(), "ttl", 2)
        .flags(&[Flag::Readonly, Flag::Fast])
        .categories(&[Category::Keyspace])
        .keys(&[KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access])])
        .tips(&["nondeterministic_output"])
        .rules(&[Rule::Quiet])
        .group(Group::Generic, "1.0.0")
        .summary("Returns the seconds until a key expires.")
        .complexity("One lookup.")
        .history(&[changed("2.8.0", "A missing key answers -2.")])
        .arguments(&[key("key", 0)]),
    CommandSpec::new(KeyCommand::Type.id(), "type", 2)
        .flags(&[Flag::Readonly, Flag::Fast])
        .categories(&[Category::Keyspace])
        .keys(&[KeySpec::one(1, KeyAccess::ReadOnly, &[])])
        .rules(&[Rule::Quiet])
        .group(Group::Generic, "1.0.0")
        .summary("Returns the type of a value.")
        .complexity("One lookup.")
        .arguments(&[key("key", 0)]),
    CommandSpec::new(KeyCommand::Unlink.id(), "unlink", -2)
        .flags(&[Flag::Write, Flag::Fast])
        .categories(&[Category::Keyspace])
        .keys(&[KeySpec::rest(1, KeyAccess::Remove, &[KeyEffect::Delete])])
        .tips(&["request_policy:multi_shard", "response_policy:agg_sum"])
        .rules(&[Rule::OnlyRemoves])
        .key_by_key("Each key is removed whether or not others are there")
        .group(Group::Generic, "4.0.0")
        .summary("Removes keys.")
        .complexity("One lookup per key; memory is given back afterwards.")
        .arguments(&[key("key", 0).multiple()]),
];

static OBJECT: &[CommandSpec] = &[
    CommandSpec::new(KeyCommand::Object.id(), "object|encoding", 3)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Keyspace])
        .keys(&[KeySpec::one(2, KeyAccess::ReadOnly, &[])])
        .tips(&["nondeterministic_output"])
        .rules(&[Rule::Quiet])
        .group(Group::Generic, "2.2.3")
        .summary("Returns the name of the form in which a value is stored.")
        .complexity("One lookup.")
        .arguments(&[key("key", 0)]),
    CommandSpec::new(KeyCommand::Object.id(), "object|freq", 3)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Keyspace])
        .keys(&[KeySpec::one(2, KeyAccess::ReadOnly, &[])])
        .tips(&["nondeterministic_output"])
        .rules(&[Rule::Quiet])
        .group(Group::Generic, "4.0.0")
        .summary("Returns how often a key was used lately, on a logarithmic scale.")
        .complexity("One lookup.")
        .arguments(&[key("key", 0)]),
    CommandSpec::new(KeyCommand::Object.id(), "object|help", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[Category::Keyspace])
        .rules(&[Rule::Quiet])
        .group(Group::Generic, "6.2.0")
        .summary("Lists the subcommands.")
        .complexity("O(1)"),
    CommandSpec::new(KeyCommand::Object.id(), "object|idletime", 3)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Keyspace])
        .keys(&[KeySpec::one(2, KeyAccess::ReadOnly, &[])])
        .tips(&["nondeterministic_output"])
        .rules(&[Rule::Quiet])
        .group(Group::Generic, "2.2.3")
        .summary("Returns the seconds since a key was last used.")
        .complexity("One lookup.")
        .arguments(&[key("key", 0)]),
    CommandSpec::new(KeyCommand::Object.id(), "object|refcount", 3)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Keyspace])
        .keys(&[KeySpec::one(2, KeyAccess::ReadOnly, &[])])
        .tips(&["nondeterministic_output"])
        .rules(&[Rule::Quiet])
        .group(Group::Generic, "2.2.3")
        .summary("Returns how many references a value has.")
        .complexity("One lookup.")
        .arguments(&[key("key", 0)]),
];
