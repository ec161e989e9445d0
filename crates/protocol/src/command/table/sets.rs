//! Commands on sets.

use crate::command::argument::{Argument, integer, key, pattern, string};
use crate::command::execution::GateNeed;
use crate::command::id::family;
use crate::command::keys::{KeyAccess, KeyEffect, KeySpec};
use crate::command::spec::{Category, CommandSpec, Flag, Group, changed};

family! {
    /// Commands on sets.
    SetCommand in Keyspace(Set) {
        Sadd,
        Scard,
        Sdiff,
        Sdiffstore,
        Sinter,
        Sintercard,
        Sinterstore,
        Sismember,
        Smembers,
        Smismember,
        Smove,
        Spop,
        Srandmember,
        Srem,
        Sscan,
        Sunion,
        Sunionstore,
    }
}

/// A command of this family; what all have in common.
const fn spec(command: SetCommand, name: &'static str, arity: i8, flags: &[Flag]) -> CommandSpec {
    CommandSpec::new(command.id(), name, arity)
        .flags(flags)
        .categories(&[Category::Set])
        .group(Group::Set, "1.0.0")
}

/// One that reads several sets.
const fn of_several(command: SetCommand, name: &'static str) -> CommandSpec {
    const KEYS: &[KeySpec] = &[KeySpec::rest(1, KeyAccess::ReadOnly, &[KeyEffect::Access])];
    const ARGUMENTS: &[Argument] = &[key("key", 0).multiple()];
    spec(command, name, -2, &[Flag::Readonly])
        .keys(KEYS)
        .tips(&["nondeterministic_output_order"])
        .arguments(ARGUMENTS)
}

/// One that reads several sets and stores the result.
const fn storing(command: SetCommand, name: &'static str) -> CommandSpec {
    const KEYS: &[KeySpec] = &[
        KeySpec::one(1, KeyAccess::Overwrite, &[KeyEffect::Update]),
        KeySpec::rest(2, KeyAccess::ReadOnly, &[KeyEffect::Access]),
    ];
    const ARGUMENTS: &[Argument] = &[key("destination", 0), key("key", 1).multiple()];
    spec(command, name, -3, &[Flag::Write, Flag::DenyOom])
        .gates(GateNeed::All)
        .keys(KEYS)
        .arguments(ARGUMENTS)
}

const READS_ONE: &[KeySpec] = &[KeySpec::one(1, KeyAccess::ReadOnly, &[])];
const RETURNS_ONE: &[KeySpec] = &[KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access])];

/// In the order of [`SetCommand`].
pub(super) static COMMANDS: &[CommandSpec] = &[
    spec(
        SetCommand::Sadd,
        "sadd",
        -3,
        &[Flag::Write, Flag::DenyOom, Flag::Fast],
    )
    .keys(&[KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Insert])])
    .summary("Adds members to a set.")
    .complexity("O(log M) for each member in a set of M members.")
    .history(&[changed("2.4.0", "Took several members.")])
    .arguments(&[key("key", 0), string("member").multiple()]),
    spec(SetCommand::Scard, "scard", 2, &[Flag::Readonly, Flag::Fast])
        .keys(READS_ONE)
        .summary("Returns the number of members of a set.")
        .complexity("One lookup.")
        .arguments(&[key("key", 0)]),
    of_several(SetCommand::Sdiff, "sdiff")
        .summary("Returns the members of the first set that no other set has.")
        .complexity("O(N log M) for N members of the first set."),
    storing(SetCommand::Sdiffstore, "sdiffstore")
        .summary("Stores the members of the first set that no other set has.")
        .complexity("O(N log M) for N members of the first set."),
    of_several(SetCommand::Sinter, "sinter")
        .summary("Returns the members that all sets have.")
        .complexity("O(N log M) for N members of the smallest set."),
    spec(
        SetCommand::Sintercard,
        "sintercard",
        -3,
        &[Flag::Readonly, Flag::MovableKeys],
    )
    .keys(&[KeySpec::counted(
        1,
        KeyAccess::ReadOnly,
        &[KeyEffect::Access],
    )])
    .group(Group::Set, "7.0.0")
    .summary("Returns how many members all sets have.")
    .complexity("O(N log M) for N members of the smallest set.")
    .arguments(&[
        integer("numkeys"),
        key("key", 0).multiple(),
        integer("limit").token("LIMIT").optional(),
    ]),
    storing(SetCommand::Sinterstore, "sinterstore")
        .keys(&[
            KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Update]),
            KeySpec::rest(2, KeyAccess::ReadOnly, &[KeyEffect::Access]),
        ])
        .summary("Stores the members that all sets have.")
        .complexity("O(N log M) for N members of the smallest set."),
    spec(
        SetCommand::Sismember,
        "sismember",
        3,
        &[Flag::Readonly, Flag::Fast],
    )
    .keys(READS_ONE)
    .summary("Tells whether a set has a member.")
    .complexity("O(log M) in a set of M members.")
    .arguments(&[key("key", 0), string("member")]),
    spec(SetCommand::Smembers, "smembers", 2, &[Flag::Readonly])
        .keys(RETURNS_ONE)
        .tips(&["nondeterministic_output_order"])
        .summary("Returns all members of a set.")
        .complexity("O(M) for M members.")
        .arguments(&[key("key", 0)]),
    spec(
        SetCommand::Smismember,
        "smismember",
        -3,
        &[Flag::Readonly, Flag::Fast],
    )
    .keys(RETURNS_ONE)
    .group(Group::Set, "6.2.0")
    .summary("Tells which of several members a set has.")
    .complexity("O(log M) for each member in a set of M members.")
    .arguments(&[key("key", 0), string("member").multiple()]),
    spec(SetCommand::Smove, "smove", 4, &[Flag::Write, Flag::Fast])
        .gates(GateNeed::All)
        .keys(&[
            KeySpec::one(
                1,
                KeyAccess::ReadWrite,
                &[KeyEffect::Access, KeyEffect::Delete],
            ),
            KeySpec::one(2, KeyAccess::ReadWrite, &[KeyEffect::Insert]),
        ])
        .summary("Moves a member from one set to another.")
        .complexity("O(log M) in sets of M members.")
        .arguments(&[key("source", 0), key("destination", 1), string("member")]),
    spec(SetCommand::Spop, "spop", -2, &[Flag::Write, Flag::Fast])
        .keys(&[KeySpec::one(
            1,
            KeyAccess::ReadWrite,
            &[KeyEffect::Access, KeyEffect::Delete],
        )])
        .tips(&["nondeterministic_output"])
        .summary("Removes random members of a set and returns them.")
        .complexity("O(log M) for each member in a set of M members.")
        .history(&[changed("3.2.0", "Took a count.")])
        .arguments(&[key("key", 0), integer("count").since("3.2.0").optional()]),
    spec(
        SetCommand::Srandmember,
        "srandmember",
        -2,
        &[Flag::Readonly],
    )
    .keys(RETURNS_ONE)
    .tips(&["nondeterministic_output"])
    .summary("Returns random members of a set.")
    .complexity("O(log M) for each member in a set of M members.")
    .history(&[changed("2.6.0", "Took a count.")])
    .arguments(&[key("key", 0), integer("count").since("2.6.0").optional()]),
    spec(SetCommand::Srem, "srem", -3, &[Flag::Write, Flag::Fast])
        .keys(&[KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Delete])])
        .summary("Removes members of a set.")
        .complexity("O(log M) for each member in a set of M members.")
        .history(&[changed("2.4.0", "Took several members.")])
        .arguments(&[key("key", 0), string("member").multiple()]),
    spec(SetCommand::Sscan, "sscan", -3, &[Flag::Readonly])
        .keys(RETURNS_ONE)
        .tips(&["nondeterministic_output"])
        .group(Group::Set, "2.8.0")
        .summary("Walks through the members of a set, some at a call.")
        .complexity("O(log M) a call and O(1) for each member looked at.")
        .arguments(&[
            key("key", 0),
            integer("cursor"),
            pattern("pattern").token("MATCH").optional(),
            integer("count").token("COUNT").optional(),
        ]),
    of_several(SetCommand::Sunion, "sunion")
        .summary("Returns the members that any of the sets has.")
        .complexity("O(N log N) for N members of all sets."),
    storing(SetCommand::Sunionstore, "sunionstore")
        .summary("Stores the members that any of the sets has.")
        .complexity("O(N log N) for N members of all sets."),
];
