//! Commands on the bits of strings.

use crate::command::argument::{block, integer, key, one_of, string, word};
use crate::command::execution::{GateNeed, Rule};
use crate::command::id::family;
use crate::command::keys::{KeyAccess, KeyEffect, KeySpec};
use crate::command::spec::{Category, CommandSpec, Flag, Group, changed};

family! {
    /// Commands on the bits of strings.
    BitmapCommand in Keyspace(Bitmap) {
        Bitcount,
        Bitfield,
        BitfieldRo,
        Bitop,
        Bitpos,
        Getbit,
        Setbit,
    }
}

/// In the order of [`BitmapCommand`].
pub(super) static COMMANDS: &[CommandSpec] = &[
    CommandSpec::new(BitmapCommand::Bitcount.id(), "bitcount", -2)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Bitmap])
        .keys(&[KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access])])
        .rules(&[Rule::Sliced])
        .group(Group::Bitmap, "2.6.0")
        .summary("Counts the set bits of a string, or of a part of it.")
        .complexity("O(N) for N bytes looked at.")
        .history(&[changed("7.0.0", "Took `BYTE` and `BIT`.")])
        .arguments(&[
            key("key", 0),
            block(
                "index",
                &[
                    integer("start"),
                    integer("end"),
                    one_of("index_unit", &[word("byte", "BYTE"), word("bit", "BIT")])
                        .since("7.0.0")
                        .optional(),
                ],
            )
            .optional(),
        ]),
    CommandSpec::new(BitmapCommand::Bitfield.id(), "bitfield", -2)
        .flags(&[Flag::Write, Flag::DenyOom])
        .categories(&[Category::Bitmap])
        .keys(&[KeySpec::one(
            1,
            KeyAccess::ReadWrite,
            &[KeyEffect::Access, KeyEffect::Update],
        )
        .variable()
        .note("Changes the key only with `SET` or `INCRBY`")])
        .group(Group::Bitmap, "3.2.0")
        .summary("Reads, sets and increments integers of any width inside a string.")
        .complexity("One lookup, and O(1) for each operation.")
        .arguments(&[
            key("key", 0),
            one_of(
                "operation",
                &[
                    block("encoding_offset", &[string("encoding"), integer("offset")]).token("GET"),
                    block(
                        "write",
                        &[
                            one_of(
                                "wrap_sat_fail",
                                &[
                                    word("wrap", "WRAP"),
                                    word("sat", "SAT"),
                                    word("fail", "FAIL"),
                                ],
                            )
                            .token("OVERFLOW")
                            .optional(),
                            one_of(
                                "write_operation",
                                &[
                                    block(
                                        "encoding_offset_value",
                                        &[string("encoding"), integer("offset"), integer("value")],
                                    )
                                    .token("SET"),
                                    block(
                                        "encoding_offset_increment",
                                        &[
                                            string("encoding"),
                                            integer("offset"),
                                            integer("increment"),
                                        ],
                                    )
                                    .token("INCRBY"),
                                ],
                            ),
                        ],
                    ),
                ],
            )
            .optional()
            .multiple(),
        ]),
    CommandSpec::new(BitmapCommand::BitfieldRo.id(), "bitfield_ro", -2)
        .flags(&[Flag::Readonly, Flag::Fast])
        .categories(&[Category::Bitmap])
        .keys(&[KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access])])
        .group(Group::Bitmap, "6.0.0")
        .summary("Reads integers of any width inside a string.")
        .complexity("One lookup, and O(1) for each operation.")
        .arguments(&[
            key("key", 0),
            block("encoding_offset", &[string("encoding"), integer("offset")])
                .token("GET")
                .optional()
                .multiple_token(),
        ]),
    CommandSpec::new(BitmapCommand::Bitop.id(), "bitop", -4)
        .flags(&[Flag::Write, Flag::DenyOom])
        .categories(&[Category::Bitmap])
        .keys(&[
            KeySpec::one(2, KeyAccess::Overwrite, &[KeyEffect::Update]),
            KeySpec::rest(3, KeyAccess::ReadOnly, &[KeyEffect::Access]),
        ])
        .gates(GateNeed::All)
        .group(Group::Bitmap, "2.6.0")
        .summary("Combines strings bit by bit and stores the result.")
        .complexity("O(N) for N bytes of all sources.")
        .arguments(&[
            string("operation"),
            key("destkey", 0),
            key("key", 1).multiple(),
        ]),
    CommandSpec::new(BitmapCommand::Bitpos.id(), "bitpos", -3)
        .flags(&[Flag::Readonly])
        .categories(&[Category::Bitmap])
        .keys(&[KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access])])
        .rules(&[Rule::Sliced])
        .group(Group::Bitmap, "2.8.7")
        .summary("Finds the first bit of a string that is set, or clear.")
        .complexity("O(N) for N bytes looked at.")
        .history(&[changed("7.0.0", "Took `BYTE` and `BIT`.")])
        .arguments(&[
            key("key", 0),
            integer("bit"),
            block(
                "index",
                &[
                    integer("start"),
                    block(
                        "end_index",
                        &[
                            integer("end"),
                            one_of("index_unit", &[word("byte", "BYTE"), word("bit", "BIT")])
                                .since("7.0.0")
                                .optional(),
                        ],
                    )
                    .optional(),
                ],
            )
            .optional(),
        ]),
    CommandSpec::new(BitmapCommand::Getbit.id(), "getbit", 3)
        .flags(&[Flag::Readonly, Flag::Fast])
        .categories(&[Category::Bitmap])
        .keys(&[KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access])])
        .group(Group::Bitmap, "2.2.0")
        .summary("Returns one bit of a string.")
        .complexity("One lookup.")
        .arguments(&[key("key", 0), integer("offset")]),
    CommandSpec::new(BitmapCommand::Setbit.id(), "setbit", 4)
        .flags(&[Flag::Write, Flag::DenyOom])
        .categories(&[Category::Bitmap])
        .keys(&[KeySpec::one(
            1,
            KeyAccess::ReadWrite,
            &[KeyEffect::Access, KeyEffect::Update],
        )])
        .group(Group::Bitmap, "2.2.0")
        .summary("Changes one bit of a string and returns the old one.")
        .complexity("One lookup.")
        .arguments(&[key("key", 0), integer("offset"), integer("value")]),
];
