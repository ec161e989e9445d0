//! Commands on hashes.

use crate::command::argument::{
    Argument, block, double, integer, key, one_of, pattern, string, unix_time, word,
};
use crate::command::id::family;
use crate::command::keys::{KeyAccess, KeyEffect, KeySpec};
use crate::command::spec::{Category, CommandSpec, Flag, Group, changed};

family! {
    /// Commands on hashes.
    HashCommand in Keyspace(Hash) {
        Hdel,
        Hexists,
        Hexpire,
        Hexpireat,
        Hexpiretime,
        Hget,
        Hgetall,
        Hgetdel,
        Hgetex,
        Hincrby,
        Hincrbyfloat,
        Hkeys,
        Hlen,
        Hmget,
        Hmset,
        Hpersist,
        Hpexpire,
        Hpexpireat,
        Hpexpiretime,
        Hpttl,
        Hrandfield,
        Hscan,
        Hset,
        Hsetex,
        Hsetnx,
        Hstrlen,
        Httl,
        Hvals,
    }
}

const EACH: &str = "O(log F) for each field in a hash of F fields.";
const FIELDS: Argument = block(
    "fields",
    &[integer("numfields"), string("field").multiple()],
)
.token("FIELDS");
const CONDITION: Argument = one_of(
    "condition",
    &[
        word("nx", "NX"),
        word("xx", "XX"),
        word("gt", "GT"),
        word("lt", "LT"),
    ],
)
.optional();

/// HEXPIRE or one like it.
const fn expires(command: HashCommand, name: &'static str) -> CommandSpec {
    const KEYS: &[KeySpec] = &[KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Update])];
    CommandSpec::new(command.id(), name, -6)
        .flags(&[Flag::Write, Flag::DenyOom, Flag::Fast])
        .categories(&[Category::Hash])
        .keys(KEYS)
        .group(Group::Hash, "7.4.0")
        .complexity("O(log F) for each field in a hash of F fields; O(F) for its first deadline.")
}

/// HTTL or one like it.
const fn remains(command: HashCommand, name: &'static str) -> CommandSpec {
    const KEYS: &[KeySpec] = &[KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access])];
    const ARGUMENTS: &[Argument] = &[key("key", 0), FIELDS];
    const TIPS: &[&str] = &["nondeterministic_output"];
    CommandSpec::new(command.id(), name, -5)
        .flags(&[Flag::Readonly, Flag::Fast])
        .categories(&[Category::Hash])
        .keys(KEYS)
        .tips(TIPS)
        .group(Group::Hash, "7.4.0")
        .complexity(EACH)
        .arguments(ARGUMENTS)
}

/// In the order of [`HashCommand`].
pub(super) static COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(HashCommand::Hdel.id(), "hdel", -3)
        .flags(&[Flag::Write, Flag::Fast])
        .categories(&[Category::Hash])
        .keys(&[KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Delete])])
        .group(Group::Hash, "2.0.0")
        .summary("Removes fields of a hash.")
        .complexity("O(log F) for each field in a hash of F fields.")
        .history(&[changed("2.4.0", "Took several fields.")])
        .arguments(&[key("key", 0), string("field").multiple()]),
    CommandSpec::new(HashCommand::Hexists.id(), "hexists", 3)
        .flags(&[Flag::Readonly, Flag::Fast])
        .categories(&[Category::Hash])
        .keys(&[KeySpec::one(1, KeyAccess::ReadOnly, &[])])
        .group(Group::Hash, "2.0.0")
        .summary("Tells whether a hash has a field.")
        .complexity("O(log F) in a hash of F fields.")
        .arguments(&[key("key", 0), string("field")]),
    expires(HashCommand::Hexpire, "hexpire")
        .summary("Makes fields of a hash expire after some seconds.")
        .arguments(&[key("key", 0), integer("seconds"), CONDITION, FIELDS]),
    expires(HashCommand::Hexpireat, "hexpireat")
        .summary("Makes fields of a hash expire at a time given in seconds.")
        .arguments(&[
            key("key", 0),
            unix_time("unix-time-seconds"),
            CONDITION,
            FIELDS,
        ]),
    remains(HashCommand::Hexpiretime, "hexpiretime")
        .summary("Returns when fields of a hash expire, in seconds."),
    CommandSpec::new(HashCommand::Hget.id(), "hget", 3)
        .flags(&[Flag::Readonly, Flag::Fast])
        .categories(&[Category::Hash])
        .keys(&[KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access])])
        .group(Group::Hash, "2.0.0")
        .summary("Returns the value of a field.")
        .complexity("O(log F) in a hash of F fields.")
        .arguments(&[key("key", 0), string("field")]),
    CommandSpec::new(HashCommand::Hgetall.id(), "hgetall", 2)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Hash])
        .keys(&[KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access])])
        .tips(&["nondeterministic_output_order"])
        .group(Group::Hash, "2.0.0")
        .summary("Returns all fields and values of a hash.")
        .complexity("O(F) for F fields.")
        .arguments(&[key("key", 0)]),
    CommandSpec::new(HashCommand::Hgetdel.id(), "hgetdel", -5)
        .flags(&[Flag::Write, Flag::Fast])
        .categories(&[Category::Hash])
        .keys(&[KeySpec::one(
            1,
            KeyAccess::ReadWrite,
            &[KeyEffect::Access, KeyEffect::Delete],
        )])
        .group(Group::Hash, "8.0.0")
        .summary("Returns the values of fields and removes them.")
        .complexity(EACH)
        .arguments(&[key("key", 0), FIELDS]),
    CommandSpec::new(HashCommand::Hgetex.id(), "hgetex", -5)
        .flags(&[Flag::Write, Flag::Fast])
        .categories(&[Category::Hash])
        .keys(&[KeySpec::one(
            1,
            KeyAccess::ReadWrite,
            &[KeyEffect::Access, KeyEffect::Update],
        )
        .note("RW and UPDATE because it changes the TTL")])
        .group(Group::Hash, "8.0.0")
        .summary("Returns the values of fields, and changes when they expire.")
        .complexity(EACH)
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
            FIELDS,
        ]),
    CommandSpec::new(HashCommand::Hincrby.id(), "hincrby", 4)
        .flags(&[Flag::Write, Flag::DenyOom, Flag::Fast])
        .categories(&[Category::Hash])
        .keys(&[KeySpec::one(
            1,
            KeyAccess::ReadWrite,
            &[KeyEffect::Access, KeyEffect::Update],
        )])
        .group(Group::Hash, "2.0.0")
        .summary("Adds a number to an integer in a field.")
        .complexity("O(log F) in a hash of F fields.")
        .arguments(&[key("key", 0), string("field"), integer("increment")]),
    CommandSpec::new(HashCommand::Hincrbyfloat.id(), "hincrbyfloat", 4)
        .flags(&[Flag::Write, Flag::DenyOom, Flag::Fast])
        .categories(&[Category::Hash])
        .keys(&[KeySpec::one(
            1,
            KeyAccess::ReadWrite,
            &[KeyEffect::Access, KeyEffect::Update],
        )])
        .group(Group::Hash, "2.6.0")
        .summary("Adds a fraction to a number in a field.")
        .complexity("O(log F) in a hash of F fields.")
        .arguments(&[key("key", 0), string("field"), double("increment")]),
    CommandSpec::new(HashCommand::Hkeys.id(), "hkeys", 2)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Hash])
        .keys(&[KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access])])
        .tips(&["nondeterministic_output_order"])
        .group(Group::Hash, "2.0.0")
        .summary("Returns all fields of a hash.")
        .complexity("O(F) for F fields.")
        .arguments(&[key("key", 0)]),
    CommandSpec::new(HashCommand::Hlen.id(), "hlen", 2)
        .flags(&[Flag::Readonly, Flag::Fast])
        .categories(&[Category::Hash])
        .keys(&[KeySpec::one(1, KeyAccess::ReadOnly, &[])])
        .group(Group::Hash, "2.0.0")
        .summary("Returns the number of fields of a hash.")
        .complexity("One lookup.")
        .arguments(&[key("key", 0)]),
    CommandSpec::new(HashCommand::Hmget.id(), "hmget", -3)
        .flags(&[Flag::Readonly, Flag::Fast])
        .categories(&[Category::Hash])
        .keys(&[KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access])])
        .group(Group::Hash, "2.0.0")
        .summary("Returns the values of several fields.")
        .complexity("O(log F) for each field in a hash of F fields.")
        .arguments(&[key("key", 0), string("field").multiple()]),
    CommandSpec::new(HashCommand::Hmset.id(), "hmset", -4)
        .flags(&[Flag::Write, Flag::DenyOom, Flag::Fast])
        .categories(&[Category::Hash])
        .keys(&[KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Update])])
        .group(Group::Hash, "2.0.0")
        .summary("Sets several fields of a hash as one change.")
        .complexity("O(log F) for each field in a hash of F fields.")
        .deprecated("4.0.0", "`HSET` with several fields")
        .arguments(&[
            key("key", 0),
            block("field_value", &[string("field"), string("value")]).multiple(),
        ]),
    CommandSpec::new(HashCommand::Hpersist.id(), "hpersist", -5)
        .flags(&[Flag::Write, Flag::Fast])
        .categories(&[Category::Hash])
        .keys(&[KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Update])])
        .group(Group::Hash, "7.4.0")
        .summary("Makes fields of a hash stay for good.")
        .complexity(EACH)
        .arguments(&[key("key", 0), FIELDS]),
    expires(HashCommand::Hpexpire, "hpexpire")
        .summary("Makes fields of a hash expire after some milliseconds.")
        .arguments(&[key("key", 0), integer("milliseconds"), CONDITION, FIELDS]),
    expires(HashCommand::Hpexpireat, "hpexpireat")
        .summary("Makes fields of a hash expire at a time given in milliseconds.")
        .arguments(&[
            key("key", 0),
            unix_time("unix-time-milliseconds"),
            CONDITION,
            FIELDS,
        ]),
    remains(HashCommand::Hpexpiretime, "hpexpiretime")
        .summary("Returns when fields of a hash expire, in milliseconds."),
    remains(HashCommand::Hpttl, "hpttl")
        .summary("Returns the milliseconds until fields of a hash expire."),
    CommandSpec::new(HashCommand::Hrandfield.id(), "hrandfield", -2)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Hash])
        .keys(&[KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access])])
        .tips(&["nondeterministic_output"])
        .group(Group::Hash, "6.2.0")
        .summary("Returns random fields of a hash.")
        .complexity("O(log F) for each field returned.")
        .arguments(&[
            key("key", 0),
            block(
                "options",
                &[
                    integer("count"),
                    word("withvalues", "WITHVALUES").optional(),
                ],
            )
            .optional(),
        ]),
    CommandSpec::new(HashCommand::Hscan.id(), "hscan", -3)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Hash])
        .keys(&[KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access])])
        .tips(&["nondeterministic_output"])
        .group(Group::Hash, "2.8.0")
        .summary("Walks through the fields of a hash, some at a call.")
        .complexity("O(log F) a call, O(F) for all fields.")
        .arguments(&[
            key("key", 0),
            integer("cursor"),
            pattern("pattern").token("MATCH").optional(),
            integer("count").token("COUNT").optional(),
            word("novalues", "NOVALUES").since("7.4.0").optional(),
        ]),
    CommandSpec::new(HashCommand::Hset.id(), "hset", -4)
        .flags(&[Flag::Write, Flag::DenyOom, Flag::Fast])
        .categories(&[Category::Hash])
        .keys(&[KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Update])])
        .group(Group::Hash, "2.0.0")
        .summary("Sets fields of a hash as one change and counts the new ones.")
        .complexity("O(log F) for each field in a hash of F fields.")
        .history(&[changed("4.0.0", "Took several fields and values.")])
        .arguments(&[
            key("key", 0),
            block("field_value", &[string("field"), string("value")]).multiple(),
        ]),
    CommandSpec::new(HashCommand::Hsetex.id(), "hsetex", -6)
        .flags(&[Flag::Write, Flag::DenyOom, Flag::Fast])
        .categories(&[Category::Hash])
        .keys(&[KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Update])])
        .group(Group::Hash, "8.0.0")
        .summary("Sets fields of a hash as one change, and when they expire.")
        .complexity(EACH)
        .arguments(&[
            key("key", 0),
            one_of("condition", &[word("fnx", "FNX"), word("fxx", "FXX")]).optional(),
            one_of(
                "expiration",
                &[
                    integer("seconds").token("EX"),
                    integer("milliseconds").token("PX"),
                    unix_time("unix-time-seconds").token("EXAT"),
                    unix_time("unix-time-milliseconds").token("PXAT"),
                    word("keepttl", "KEEPTTL"),
                ],
            )
            .optional(),
            block(
                "fields",
                &[
                    integer("numfields"),
                    block("data", &[string("field"), string("value")]).multiple(),
                ],
            )
            .token("FIELDS"),
        ]),
    CommandSpec::new(HashCommand::Hsetnx.id(), "hsetnx", 4)
        .flags(&[Flag::Write, Flag::DenyOom, Flag::Fast])
        .categories(&[Category::Hash])
        .keys(&[KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Insert])])
        .group(Group::Hash, "2.0.0")
        .summary("Sets a field of a hash if it does not exist.")
        .complexity("O(log F) in a hash of F fields.")
        .arguments(&[key("key", 0), string("field"), string("value")]),
    CommandSpec::new(HashCommand::Hstrlen.id(), "hstrlen", 3)
        .flags(&[Flag::Readonly, Flag::Fast])
        .categories(&[Category::Hash])
        .keys(&[KeySpec::one(1, KeyAccess::ReadOnly, &[])])
        .group(Group::Hash, "3.2.0")
        .summary("Returns the length of a field's value in bytes.")
        .complexity("O(log F) in a hash of F fields.")
        .arguments(&[key("key", 0), string("field")]),
    remains(HashCommand::Httl, "httl")
        .summary("Returns the seconds until fields of a hash expire."),
    CommandSpec::new(HashCommand::Hvals.id(), "hvals", 2)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Hash])
        .keys(&[KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access])])
        .tips(&["nondeterministic_output_order"])
        .group(Group::Hash, "2.0.0")
        .summary("Returns all values of a hash.")
        .complexity("O(F) for F fields.")
        .arguments(&[key("key", 0)]),
];
