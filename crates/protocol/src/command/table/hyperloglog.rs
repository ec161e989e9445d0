//! Commands on sketches of `HyperLogLog`, which are strings.

use crate::command::argument::{key, string};
use crate::command::execution::{GateNeed, Rule};
use crate::command::id::family;
use crate::command::keys::{KeyAccess, KeyEffect, KeySpec};
use crate::command::spec::{Category, CommandSpec, Flag, Group};

family! {
    /// Commands on sketches of `HyperLogLog`, which are strings.
    HyperloglogCommand in Keyspace(Hyperloglog) {
        Pfadd,
        Pfcount,
        Pfdebug,
        Pfmerge,
        Pfselftest,
    }
}

/// In the order of [`HyperloglogCommand`].
pub(super) static COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(HyperloglogCommand::Pfadd.id(), "pfadd", -2)
        .flags(&[Flag::Write, Flag::DenyOom, Flag::Fast])
        .categories(&[Category::Hyperloglog])
        .keys(&[KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Insert])])
        .group(Group::Hyperloglog, "2.8.9")
        .summary("Adds elements to a HyperLogLog; answers whether its count may have changed.")
        .complexity("O(1) for each element.")
        .arguments(&[key("key", 0), string("element").optional().multiple()]),
    CommandSpec::new(HyperloglogCommand::Pfcount.id(), "pfcount", -2)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Hyperloglog])
        .keys(
            &[KeySpec::rest(1, KeyAccess::ReadWrite, &[KeyEffect::Access])
                .note("Stores the count of a single key beside its registers, where it may write")],
        )
        .group(Group::Hyperloglog, "2.8.9")
        .summary("Estimates how many distinct elements were added to HyperLogLogs.")
        .complexity("O(1) if one key has not changed, else O(N) for N keys of 16,384 registers.")
        .arguments(&[key("key", 0).multiple()]),
    CommandSpec::new(HyperloglogCommand::Pfdebug.id(), "pfdebug", 3)
        .flags(&[Flag::Write, Flag::DenyOom, Flag::Admin])
        .categories(&[Category::Hyperloglog])
        .keys(&[KeySpec::one(2, KeyAccess::ReadWrite, &[KeyEffect::Access])])
        .rules(&[Rule::ForTests])
        .group(Group::Hyperloglog, "2.8.9")
        .summary("Shows a HyperLogLog's form, runs or registers, or makes it dense.")
        .complexity("O(1): at most 16,384 registers.")
        .arguments(&[string("subcommand"), key("key", 0)]),
    CommandSpec::new(HyperloglogCommand::Pfmerge.id(), "pfmerge", -2)
        .flags(&[Flag::Write, Flag::DenyOom])
        .categories(&[Category::Hyperloglog])
        .keys(&[
            KeySpec::one(
                1,
                KeyAccess::ReadWrite,
                &[KeyEffect::Access, KeyEffect::Insert],
            ),
            KeySpec::rest(2, KeyAccess::ReadOnly, &[KeyEffect::Access]),
        ])
        .gates(GateNeed::All)
        .group(Group::Hyperloglog, "2.8.9")
        .summary("Merges HyperLogLogs into the first one.")
        .complexity("O(N) for N keys: 16,384 registers each.")
        .arguments(&[key("destkey", 0), key("sourcekey", 1).optional().multiple()]),
    CommandSpec::new(HyperloglogCommand::Pfselftest.id(), "pfselftest", 1)
        .flags(&[Flag::Admin])
        .categories(&[Category::Hyperloglog])
        .rules(&[Rule::ForTests])
        .group(Group::Hyperloglog, "2.8.9")
        .summary("Compares the two forms of a HyperLogLog with each other.")
        .complexity("O(1): thousands of elements."),
];
