//! Commands on hashes.

use crate::command::argument::{block, double, integer, key, pattern, string, word};
use crate::command::id::family;
use crate::command::keys::{KeyAccess, KeyEffect, KeySpec};
use crate::command::spec::{Category, CommandSpec, Flag, Group, changed};

family! {
    /// Commands on hashes.
    HashCommand in Keyspace(Hash) {
        Hdel,
        Hexists,
        Hget,
        Hgetall,
        Hincrby,
        Hincrbyfloat,
        Hkeys,
        Hlen,
        Hmget,
        Hmset,
        Hrandfield,
        Hscan,
        Hset,
        Hsetnx,
        Hstrlen,
        Hvals,
    }
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
