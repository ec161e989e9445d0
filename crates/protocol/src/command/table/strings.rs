//! Commands on strings.

use crate::command::argument::{block, double, integer, key, one_of, string, unix_time, word};
use crate::command::execution::{GateNeed, Rule};
use crate::command::id::family;
use crate::command::keys::{KeyAccess, KeyEffect, KeySpec};
use crate::command::spec::{Category, CommandSpec, Flag, Group, changed};

family! {
    /// Commands on strings.
    StringCommand in Keyspace(String) {
        Append,
        Decr,
        Decrby,
        Get,
        Getdel,
        Getex,
        Getrange,
        Getset,
        Incr,
        Incrby,
        Incrbyfloat,
        Lcs,
        Mget,
        Mset,
        Msetnx,
        Psetex,
        Set,
        Setex,
        Setnx,
        Setrange,
        Strlen,
        Substr,
    }
}

/// In the order of [`StringCommand`].
pub(super) static COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(StringCommand::Append.id(), "append", 3)
        .flags(&[Flag::Write, Flag::DenyOom, Flag::Fast])
        .categories(&[Category::String])
        .keys(&[KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Insert])])
        .group(Group::String, "2.0.0")
        .summary("Adds bytes to the end of a string.")
        .complexity("O(N) for N bytes added, after one lookup.")
        .arguments(&[key("key", 0), string("value")]),
    CommandSpec::new(StringCommand::Decr.id(), "decr", 2)
        .flags(&[Flag::Write, Flag::DenyOom, Flag::Fast])
        .categories(&[Category::String])
        .keys(&[KeySpec::one(
            1,
            KeyAccess::ReadWrite,
            &[KeyEffect::Access, KeyEffect::Update],
        )])
        .group(Group::String, "1.0.0")
        .summary("Subtracts one from an integer.")
        .complexity("One lookup.")
        .arguments(&[key("key", 0)]),
    CommandSpec::new(StringCommand::Decrby.id(), "decrby", 3)
        .flags(&[Flag::Write, Flag::DenyOom, Flag::Fast])
        .categories(&[Category::String])
        .keys(&[KeySpec::one(
            1,
            KeyAccess::ReadWrite,
            &[KeyEffect::Access, KeyEffect::Update],
        )])
        .group(Group::String, "1.0.0")
        .summary("Subtracts a number from an integer.")
        .complexity("One lookup.")
        .arguments(&[key("key", 0), integer("decrement")]),
    CommandSpec::new(StringCommand::Get.id(), "get", 2)
        .flags(&[Flag::Readonly, Flag::Fast])
        .categories(&[Category::String])
        .keys(&[KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access])])
        .group(Group::String, "1.0.0")
        .summary("Returns the string at a key.")
        .complexity("One lookup.")
        .arguments(&[key("key", 0)]),
    CommandSpec::new(StringCommand::Getdel.id(), "getdel", 2)
        .flags(&[Flag::Write, Flag::Fast])
        .categories(&[Category::String])
        .keys(&[KeySpec::one(
            1,
            KeyAccess::ReadWrite,
            &[KeyEffect::Access, KeyEffect::Delete],
        )])
        .group(Group::String, "6.2.0")
        .summary("Returns the string at a key and removes the key.")
        .complexity("One lookup.")
        .arguments(&[key("key", 0)]),
    CommandSpec::new(StringCommand::Getex.id(), "getex", -2)
        .flags(&[Flag::Write, Flag::Fast])
        .categories(&[Category::String])
        .keys(&[KeySpec::one(
            1,
            KeyAccess::ReadWrite,
            &[KeyEffect::Access, KeyEffect::Update],
        )
        .note("Changes the deadline")])
        .group(Group::String, "6.2.0")
        .summary("Returns the string at a key and changes when it expires.")
        .complexity("One lookup.")
        .arguments(&[
            key("key", 0),
            one_of(
                "expiration",
                &[
                    integer("seconds").token("EX"),
                    integer("milliseconds").token("PX"),
                    unix_time("unix-time-seconds").token("EXAT"),
                    unix_time("unix-time-milliseconds").token("PXAT"),
                    word("persist", "PERSIST"),
                ],
            )
            .optional(),
        ]),
    CommandSpec::new(StringCommand::Getrange.id(), "getrange", 4)
        .flags(&[Flag::Readonly])
        .categories(&[Category::String])
        .keys(&[KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access])])
        .group(Group::String, "2.4.0")
        .summary("Returns the bytes of a string between two offsets.")
        .complexity("O(N) for N bytes returned, after one lookup.")
        .arguments(&[key("key", 0), integer("start"), integer("end")]),
    CommandSpec::new(StringCommand::Getset.id(), "getset", 3)
        .flags(&[Flag::Write, Flag::DenyOom, Flag::Fast])
        .categories(&[Category::String])
        .keys(&[KeySpec::one(
            1,
            KeyAccess::ReadWrite,
            &[KeyEffect::Access, KeyEffect::Update],
        )])
        .group(Group::String, "1.0.0")
        .summary("Stores a string and returns the one before it.")
        .complexity("One lookup.")
        .deprecated("6.2.0", "`SET` with `GET`")
        .arguments(&[key("key", 0), string("value")]),
    CommandSpec::new(StringCommand::Incr.id(), "incr", 2)
        .flags(&[Flag::Write, Flag::DenyOom, Flag::Fast])
        .categories(&[Category::String])
        .keys(&[KeySpec::one(
            1,
            KeyAccess::ReadWrite,
            &[KeyEffect::Access, KeyEffect::Update],
        )])
        .group(Group::String, "1.0.0")
        .summary("Adds one to an integer.")
        .complexity("One lookup.")
        .arguments(&[key("key", 0)]),
    CommandSpec::new(StringCommand::Incrby.id(), "incrby", 3)
        .flags(&[Flag::Write, Flag::DenyOom, Flag::Fast])
        .categories(&[Category::String])
        .keys(&[KeySpec::one(
            1,
            KeyAccess::ReadWrite,
            &[KeyEffect::Access, KeyEffect::Update],
        )])
        .group(Group::String, "1.0.0")
        .summary("Adds a number to an integer.")
        .complexity("One lookup.")
        .arguments(&[key("key", 0), integer("increment")]),
    CommandSpec::new(StringCommand::Incrbyfloat.id(), "incrbyfloat", 3)
        .flags(&[Flag::Write, Flag::DenyOom, Flag::Fast])
        .categories(&[Category::String])
        .keys(&[KeySpec::one(
            1,
            KeyAccess::ReadWrite,
            &[KeyEffect::Access, KeyEffect::Update],
        )])
        .group(Group::String, "2.6.0")
        .summary("Adds a fraction to a number.")
        .complexity("One lookup.")
        .arguments(&[key("key", 0), double("increment")]),
    CommandSpec::new(StringCommand::Lcs.id(), "lcs", -3)
        .flags(&[Flag::Readonly])
        .categories(&[Category::String])
        .keys(&[KeySpec::two(1, KeyAccess::ReadOnly, &[KeyEffect::Access])])
        .group(Group::String, "7.0.0")
        .summary("Finds the longest common subsequence of two strings.")
        .complexity("O(N·M) for strings of N and M bytes.")
        .arguments(&[
            key("key1", 0),
            key("key2", 0),
            word("len", "LEN").optional(),
            word("idx", "IDX").optional(),
            integer("len").token("MINMATCHLEN").optional(),
            word("withmatchlen", "WITHMATCHLEN").optional(),
        ]),
    CommandSpec::new(StringCommand::Mget.id(), "mget", -2)
        .flags(&[Flag::Readonly, Flag::Fast])
        .categories(&[Category::String])
        .keys(&[KeySpec::rest(1, KeyAccess::ReadOnly, &[KeyEffect::Access])])
        .tips(&["request_policy:multi_shard"])
        .group(Group::String, "1.0.0")
        .summary("Returns the strings at several keys.")
        .complexity("One lookup per key.")
        .arguments(&[key("key", 0).multiple()]),
    CommandSpec::new(StringCommand::Mset.id(), "mset", -3)
        .flags(&[Flag::Write, Flag::DenyOom])
        .categories(&[Category::String])
        .keys(&[KeySpec::pairs(
            1,
            KeyAccess::Overwrite,
            &[KeyEffect::Update],
        )])
        .tips(&[
            "request_policy:multi_shard",
            "response_policy:all_succeeded",
        ])
        .gates(GateNeed::All)
        .group(Group::String, "1.0.1")
        .summary("Stores several strings as one change.")
        .complexity("One lookup per key.")
        .arguments(&[block("key_value", &[key("key", 0), string("value")]).multiple()]),
    CommandSpec::new(StringCommand::Msetnx.id(), "msetnx", -3)
        .flags(&[Flag::Write, Flag::DenyOom])
        .categories(&[Category::String])
        .keys(&[KeySpec::pairs(
            1,
            KeyAccess::Overwrite,
            &[KeyEffect::Insert],
        )])
        .tips(&["request_policy:multi_shard", "response_policy:agg_min"])
        .gates(GateNeed::All)
        .group(Group::String, "1.0.1")
        .summary("Stores several strings as one change, if none of the keys exists.")
        .complexity("One lookup per key.")
        .arguments(&[block("key_value", &[key("key", 0), string("value")]).multiple()]),
    CommandSpec::new(StringCommand::Psetex.id(), "psetex", 4)
        .flags(&[Flag::Write, Flag::DenyOom])
        .categories(&[Category::String])
        .keys(&[KeySpec::one(1, KeyAccess::Overwrite, &[KeyEffect::Update])])
        .rules(&[Rule::BriefWhenSmall])
        .group(Group::String, "2.6.0")
        .summary("Stores a string that expires after some milliseconds.")
        .complexity("One lookup.")
        .arguments(&[key("key", 0), integer("milliseconds"), string("value")]),
    CommandSpec::new(StringCommand::Set.id(), "set", -3)
        .flags(&[Flag::Write, Flag::DenyOom])
        .categories(&[Category::String])
        .keys(&[KeySpec::one(
            1,
            KeyAccess::ReadWrite,
            &[KeyEffect::Access, KeyEffect::Update],
        )
        .variable()
        .note("Reads the key only with `GET`")])
        .rules(&[Rule::BriefWhenSmall])
        .group(Group::String, "1.0.0")
        .summary("Stores a string, whatever the key held before.")
        .complexity("One lookup.")
        .history(&[
            changed("2.6.12", "Took `EX`, `PX`, `NX` and `XX`."),
            changed("6.0.0", "Took `KEEPTTL`."),
            changed("6.2.0", "Took `GET`, `EXAT` and `PXAT`."),
            changed("7.0.0", "`NX` and `GET` may stand together."),
        ])
        .arguments(&[
            key("key", 0),
            string("value"),
            one_of("condition", &[word("nx", "NX"), word("xx", "XX")])
                .since("2.6.12")
                .optional(),
            word("get", "GET").since("6.2.0").optional(),
            one_of(
                "expiration",
                &[
                    integer("seconds").token("EX").since("2.6.12"),
                    integer("milliseconds").token("PX").since("2.6.12"),
                    unix_time("unix-time-seconds").token("EXAT").since("6.2.0"),
                    unix_time("unix-time-milliseconds")
                        .token("PXAT")
                        .since("6.2.0"),
                    word("keepttl", "KEEPTTL").since("6.0.0"),
                ],
            )
            .optional(),
        ]),
    CommandSpec::new(StringCommand::Setex.id(), "setex", 4)
        .flags(&[Flag::Write, Flag::DenyOom])
        .categories(&[Category::String])
        .keys(&[KeySpec::one(1, KeyAccess::Overwrite, &[KeyEffect::Update])])
        .rules(&[Rule::BriefWhenSmall])
        .group(Group::String, "2.0.0")
        .summary("Stores a string that expires after some seconds.")
        .complexity("One lookup.")
        .arguments(&[key("key", 0), integer("seconds"), string("value")]),
    CommandSpec::new(StringCommand::Setnx.id(), "setnx", 3)
        .flags(&[Flag::Write, Flag::DenyOom, Flag::Fast])
        .categories(&[Category::String])
        .keys(&[KeySpec::one(1, KeyAccess::Overwrite, &[KeyEffect::Insert])])
        .group(Group::String, "1.0.0")
        .summary("Stores a string if the key does not exist.")
        .complexity("One lookup.")
        .arguments(&[key("key", 0), string("value")]),
    CommandSpec::new(StringCommand::Setrange.id(), "setrange", 4)
        .flags(&[Flag::Write, Flag::DenyOom])
        .categories(&[Category::String])
        .keys(&[KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Update])])
        .group(Group::String, "2.2.0")
        .summary("Overwrites bytes of a string from an offset on.")
        .complexity("O(N) for N bytes written, after one lookup.")
        .arguments(&[key("key", 0), integer("offset"), string("value")]),
    CommandSpec::new(StringCommand::Strlen.id(), "strlen", 2)
        .flags(&[Flag::Readonly, Flag::Fast])
        .categories(&[Category::String])
        .keys(&[KeySpec::one(1, KeyAccess::ReadOnly, &[])])
        .group(Group::String, "2.2.0")
        .summary("Returns the length of a string in bytes.")
        .complexity("One lookup.")
        .arguments(&[key("key", 0)]),
    CommandSpec::new(StringCommand::Substr.id(), "substr", 4)
        .flags(&[Flag::Readonly])
        .categories(&[Category::String])
        .keys(&[KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access])])
        .group(Group::String, "1.0.0")
        .summary("Returns the bytes of a string between two offsets.")
        .complexity("O(N) for N bytes returned, after one lookup.")
        .deprecated("2.0.0", "`GETRANGE`")
        .arguments(&[key("key", 0), integer("start"), integer("end")]),
];
