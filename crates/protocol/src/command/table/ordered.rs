//! Commands on ranges of keys, which Redis does not have.

use crate::command::CommandId;
use crate::command::argument::{block, integer, one_of, string, word};
use crate::command::spec::{Category, CommandSpec, Flag, Group};

/// In the order of [`CommandId`].
pub(super) static COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(CommandId::Kcount, "kcount", -3)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Keyspace])
        .group(Group::Ordered, "0.1.0")
        .summary("Counts the keys between two bounds.")
        .complexity("O(N) for N keys counted, after one lookup.")
        .arguments(&[
            string("start"),
            string("stop"),
            integer("count").token("LIMIT").optional(),
        ]),
    CommandSpec::new(CommandId::Kprefix, "kprefix", -2)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Keyspace])
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
    CommandSpec::new(CommandId::Krange, "krange", -3)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Keyspace])
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
    CommandSpec::new(CommandId::Krangedel, "krangedel", -3)
        .flags(&[Flag::Write])
        .categories(&[Category::Keyspace, Category::Dangerous])
        .group(Group::Ordered, "0.1.0")
        .summary("Removes the keys between two bounds, each by itself.")
        .complexity("O(N) for N keys removed, after one lookup.")
        .arguments(&[
            string("start"),
            string("stop"),
            integer("count").token("LIMIT").optional(),
        ]),
];
