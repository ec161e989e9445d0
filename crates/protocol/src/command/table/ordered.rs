//! Commands on ranges of keys, which Redis does not have.

use crate::command::argument::{block, integer, one_of, string, word};
use crate::command::execution::Rule;
use crate::command::id::family;
use crate::command::spec::{Category, CommandSpec, Flag, Group};

family! {
    /// Commands on ranges of keys.
    OrderedCommand in Keyspace(Ordered) {
        Kcount,
        Kprefix,
        Krange,
        Krangedel,
    }
}

/// In the order of [`OrderedCommand`].
pub(super) static COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(OrderedCommand::Kcount.id(), "kcount", -3)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Keyspace])
        .rules(&[Rule::Sliced])
        .group(Group::Ordered, "0.1.0")
        .summary("Counts the keys between two bounds.")
        .complexity("O(N) for N keys counted, after one lookup.")
        .arguments(&[
            string("start"),
            string("stop"),
            integer("count").token("LIMIT").optional(),
        ]),
    CommandSpec::new(OrderedCommand::Kprefix.id(), "kprefix", -2)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Keyspace])
        .rules(&[Rule::Sliced, Rule::Comparable])
        .group(Group::Ordered, "0.1.0")
        .summary("Returns keys that begin with a prefix, in order, with their values.")
        .complexity("O(N) for N keys returned, after one lookup.")
        .arguments(&[
            string("prefix"),
            string("bound").token("FROM").optional(),
            word("rev", "REV").optional(),
            integer("count").token("LIMIT").optional(),
            one_of(
                "shape",
                &[
                    block(
                        "fields",
                        &[integer("numfields"), string("field").multiple()],
                    )
                    .token("FIELDS"),
                    word("keys", "KEYS"),
                ],
            )
            .optional(),
        ]),
    CommandSpec::new(OrderedCommand::Krange.id(), "krange", -3)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Keyspace])
        .rules(&[Rule::Sliced, Rule::Comparable])
        .group(Group::Ordered, "0.1.0")
        .summary("Returns keys between two bounds, in order, with their values.")
        .complexity("O(N) for N keys returned, after one lookup.")
        .arguments(&[
            string("start"),
            string("stop"),
            word("rev", "REV").optional(),
            integer("count").token("LIMIT").optional(),
            one_of(
                "shape",
                &[
                    block(
                        "fields",
                        &[integer("numfields"), string("field").multiple()],
                    )
                    .token("FIELDS"),
                    word("keys", "KEYS"),
                ],
            )
            .optional(),
        ]),
    CommandSpec::new(OrderedCommand::Krangedel.id(), "krangedel", -3)
        .flags(&[Flag::Write])
        .categories(&[Category::Keyspace, Category::Dangerous])
        .rules(&[Rule::OnlyRemoves, Rule::Sliced])
        .key_by_key("Its documentation says so, and it goes on in slices")
        .group(Group::Ordered, "0.1.0")
        .summary("Removes the keys between two bounds, each by itself.")
        .complexity("O(N) for N keys removed, after one lookup.")
        .arguments(&[
            string("start"),
            string("stop"),
            integer("count").token("LIMIT").optional(),
        ]),
];
