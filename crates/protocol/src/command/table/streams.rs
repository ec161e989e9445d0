//! Commands on streams.

use crate::command::argument::{Argument, block, integer, key, one_of, string, unix_time, word};
use crate::command::execution::GateNeed;
use crate::command::id::family;
use crate::command::keys::{KeyAccess, KeyEffect, KeySpec, Keyword};
use crate::command::spec::{Category, CommandSpec, Flag, Group, changed};

family! {
    /// Commands on streams.
    StreamCommand in Keyspace(Stream) {
        Xack,
        Xadd,
        Xautoclaim,
        Xclaim,
        Xdel,
        Xgroup,
        Xinfo,
        Xlen,
        Xpending,
        Xrange,
        Xread,
        Xreadgroup,
        Xrevrange,
        Xsetid,
        Xtrim,
    }
}

const READS: &[Flag] = &[Flag::Readonly];
const READS_FAST: &[Flag] = &[Flag::Readonly, Flag::Fast];
const ADDS: &[Flag] = &[Flag::Write, Flag::DenyOom];
const ADDS_FAST: &[Flag] = &[Flag::Write, Flag::DenyOom, Flag::Fast];
const REMOVES: &[Flag] = &[Flag::Write];
const REMOVES_FAST: &[Flag] = &[Flag::Write, Flag::Fast];

const ASKED: &[KeySpec] = &[KeySpec::one(1, KeyAccess::ReadOnly, &[])];
const RETURNED: &[KeySpec] = &[KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access])];
const CHANGED: &[KeySpec] = &[KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Update])];
const SHORTENED: &[KeySpec] = &[KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Delete])];
const DESCRIBED: &[KeySpec] = &[KeySpec::one(2, KeyAccess::ReadOnly, &[KeyEffect::Access])];
const ADDED_TO: &[KeySpec] = &[KeySpec::one(2, KeyAccess::ReadWrite, &[KeyEffect::Insert])];
const SET_IN: &[KeySpec] = &[KeySpec::one(2, KeyAccess::ReadWrite, &[KeyEffect::Update])];
const REMOVED_FROM: &[KeySpec] = &[KeySpec::one(2, KeyAccess::ReadWrite, &[KeyEffect::Delete])];

/// Where COMMAND INFO says that one may look for the keys of XREAD.
const STREAMS_FROM_1: Keyword = Keyword {
    word: "STREAMS",
    told_from: 1,
    divisor: 2,
    others: &[],
};
const STREAMS_FROM_4: Keyword = Keyword {
    told_from: 4,
    ..STREAMS_FROM_1
};

const KEY: Argument = key("key", 0);
const GROUP: Argument = string("group");
const CONSUMER: Argument = string("consumer");
const COUNT: Argument = integer("count").token("COUNT").optional();
const BLOCK: Argument = integer("milliseconds").token("BLOCK").optional();
const NEW_OR_ID: Argument = one_of("id-selector", &[string("id"), word("new-id", "$")]);
const ENTRIES_READ: Argument = integer("entriesread")
    .token("ENTRIESREAD")
    .since("7.0.0")
    .optional();
const TRIM: Argument = block(
    "trim",
    &[
        one_of(
            "strategy",
            &[
                word("maxlen", "MAXLEN"),
                word("minid", "MINID").since("6.2.0"),
            ],
        ),
        one_of(
            "operator",
            &[word("equal", "="), word("approximately", "~")],
        )
        .optional(),
        string("threshold"),
        integer("count").token("LIMIT").since("6.2.0").optional(),
    ],
);
const STREAMS: Argument = block(
    "streams",
    &[key("key", 0).multiple(), string("id").multiple()],
)
.token("STREAMS");

/// A command of this family; what all have in common.
const fn spec(
    command: StreamCommand,
    name: &'static str,
    arity: i8,
    flags: &[Flag],
    keys: &'static [KeySpec],
) -> CommandSpec {
    CommandSpec::new(command.id(), name, arity)
        .flags(flags)
        .categories(&[Category::Stream])
        .keys(keys)
}

const LOG_ONE: &str = "O(log N) in a stream of N entries.";
const LOG_EACH: &str = "O(log N) for each entry in a stream of N.";
const LOG_AND_RETURNED: &str = "O(log N + M) in a stream of N entries, M of which are returned.";
const VARIES: &[&str] = &["nondeterministic_output"];

/// In the order of [`StreamCommand`].
pub(super) static COMMANDS: &[CommandSpec] = &[
    spec(StreamCommand::Xack, "xack", -4, REMOVES_FAST, CHANGED)
        .group(Group::Stream, "5.0.0")
        .summary("Takes entries from those that are pending in a group.")
        .complexity(LOG_EACH)
        .arguments(&[KEY, GROUP, string("id").multiple()]),
    spec(StreamCommand::Xadd, "xadd", -5, ADDS_FAST, CHANGED)
        .tips(VARIES)
        .group(Group::Stream, "5.0.0")
        .summary("Adds an entry; returns its id.")
        .complexity("O(log N) in a stream of N entries, and that for each entry that is trimmed.")
        .history(&[
            changed("6.2.0", "Took `NOMKSTREAM`, `MINID` and `LIMIT`."),
            changed("7.0.0", "Took ids of the form `<ms>-*`."),
        ])
        .arguments(&[
            KEY,
            word("nomkstream", "NOMKSTREAM").since("6.2.0").optional(),
            TRIM.optional(),
            one_of("id-selector", &[word("auto-id", "*"), string("id")]),
            block("data", &[string("field"), string("value")]).multiple(),
        ]),
    spec(
        StreamCommand::Xautoclaim,
        "xautoclaim",
        -6,
        REMOVES_FAST,
        SHORTENED,
    )
    .tips(VARIES)
    .group(Group::Stream, "6.2.0")
    .summary("Gives a consumer what has been pending for long in a group.")
    .complexity(LOG_EACH)
    .history(&[changed(
        "7.0.0",
        "Removes entries from those pending that were deleted.",
    )])
    .arguments(&[
        KEY,
        GROUP,
        CONSUMER,
        string("min-idle-time"),
        string("start"),
        COUNT,
        word("justid", "JUSTID").optional(),
    ]),
    spec(StreamCommand::Xclaim, "xclaim", -6, REMOVES_FAST, CHANGED)
        .tips(VARIES)
        .group(Group::Stream, "5.0.0")
        .summary("Gives a consumer entries that are pending in a group.")
        .complexity(LOG_EACH)
        .arguments(&[
            KEY,
            GROUP,
            CONSUMER,
            string("min-idle-time"),
            string("id").multiple(),
            integer("ms").token("IDLE").optional(),
            unix_time("unix-time-milliseconds").token("TIME").optional(),
            integer("count").token("RETRYCOUNT").optional(),
            word("force", "FORCE").optional(),
            word("justid", "JUSTID").optional(),
            string("lastid").token("LASTID").optional(),
        ]),
    spec(StreamCommand::Xdel, "xdel", -3, REMOVES_FAST, SHORTENED)
        .group(Group::Stream, "5.0.0")
        .summary("Removes entries; returns how many there were.")
        .complexity(LOG_EACH)
        .arguments(&[KEY, string("id").multiple()]),
    CommandSpec::new(StreamCommand::Xgroup.id(), "xgroup", -2)
        .categories(&[])
        .group(Group::Stream, "5.0.0")
        .summary("Holds the commands about groups of consumers.")
        .complexity("Depends on the subcommand.")
        .subcommands(XGROUP),
    CommandSpec::new(StreamCommand::Xinfo.id(), "xinfo", -2)
        .categories(&[])
        .group(Group::Stream, "5.0.0")
        .summary("Holds the commands that describe streams.")
        .complexity("Depends on the subcommand.")
        .subcommands(XINFO),
    spec(StreamCommand::Xlen, "xlen", 2, READS_FAST, ASKED)
        .group(Group::Stream, "5.0.0")
        .summary("Returns how many entries a stream has.")
        .complexity(LOG_ONE)
        .arguments(&[KEY]),
    spec(StreamCommand::Xpending, "xpending", -3, READS, RETURNED)
        .tips(VARIES)
        .group(Group::Stream, "5.0.0")
        .summary("Returns what is pending in a group, as a summary or one by one.")
        .complexity("O(log N + M), where N are pending and M are returned or passed over.")
        .history(&[changed(
            "6.2.0",
            "Took `IDLE` and bounds that are excluded.",
        )])
        .arguments(&[
            KEY,
            GROUP,
            block(
                "filters",
                &[
                    integer("min-idle-time")
                        .token("IDLE")
                        .since("6.2.0")
                        .optional(),
                    string("start"),
                    string("end"),
                    integer("count"),
                    CONSUMER.optional(),
                ],
            )
            .optional(),
        ]),
    spec(StreamCommand::Xrange, "xrange", -4, READS, RETURNED)
        .group(Group::Stream, "5.0.0")
        .summary("Returns the entries between two ids.")
        .complexity(LOG_AND_RETURNED)
        .history(&[changed("6.2.0", "Took bounds that are excluded.")])
        .arguments(&[KEY, string("start"), string("end"), COUNT]),
    spec(
        StreamCommand::Xread,
        "xread",
        -4,
        &[Flag::Readonly, Flag::Blocking, Flag::MovableKeys],
        &[KeySpec::behind(
            STREAMS_FROM_1,
            1,
            KeyAccess::ReadOnly,
            &[KeyEffect::Access],
        )],
    )
    .group(Group::Stream, "5.0.0")
    .summary("Returns the entries of several streams behind ids; waits for one if asked to.")
    .complexity(LOG_AND_RETURNED)
    .arguments(&[COUNT, BLOCK, STREAMS]),
    spec(
        StreamCommand::Xreadgroup,
        "xreadgroup",
        -7,
        &[Flag::Write, Flag::Blocking, Flag::MovableKeys],
        &[KeySpec::behind(
            STREAMS_FROM_4,
            4,
            KeyAccess::ReadOnly,
            &[KeyEffect::Access],
        )],
    )
    .gates(GateNeed::Several)
    .group(Group::Stream, "5.0.0")
    .summary("Returns entries that a group has not had, or a consumer's pending ones.")
    .complexity("O(log N) for each entry that is returned of a stream of N.")
    .arguments(&[
        block("group-block", &[GROUP, CONSUMER]).token("GROUP"),
        COUNT,
        BLOCK,
        word("noack", "NOACK").optional(),
        STREAMS,
    ]),
    spec(StreamCommand::Xrevrange, "xrevrange", -4, READS, RETURNED)
        .group(Group::Stream, "5.0.0")
        .summary("Returns the entries between two ids, the last one first.")
        .complexity(LOG_AND_RETURNED)
        .history(&[changed("6.2.0", "Took bounds that are excluded.")])
        .arguments(&[KEY, string("end"), string("start"), COUNT]),
    spec(StreamCommand::Xsetid, "xsetid", -3, ADDS_FAST, CHANGED)
        .group(Group::Stream, "5.0.0")
        .summary("Sets the last id of a stream, and its counters.")
        .complexity(LOG_ONE)
        .history(&[changed("7.0.0", "Took `ENTRIESADDED` and `MAXDELETEDID`.")])
        .arguments(&[
            KEY,
            string("last-id"),
            integer("entries-added")
                .token("ENTRIESADDED")
                .since("7.0.0")
                .optional(),
            string("max-deleted-id")
                .token("MAXDELETEDID")
                .since("7.0.0")
                .optional(),
        ]),
    spec(StreamCommand::Xtrim, "xtrim", -4, REMOVES, SHORTENED)
        .tips(VARIES)
        .group(Group::Stream, "5.0.0")
        .summary("Removes the first entries of a stream; returns how many.")
        .complexity(LOG_EACH)
        .history(&[changed("6.2.0", "Took `MINID` and `LIMIT`.")])
        .arguments(&[KEY, TRIM]),
];

static XGROUP: &[CommandSpec] = &[
    spec(StreamCommand::Xgroup, "xgroup|create", -5, ADDS, ADDED_TO)
        .group(Group::Stream, "5.0.0")
        .summary("Makes a group of consumers.")
        .complexity(LOG_ONE)
        .history(&[changed("7.0.0", "Took `ENTRIESREAD`.")])
        .arguments(&[
            KEY,
            GROUP,
            NEW_OR_ID,
            word("mkstream", "MKSTREAM").optional(),
            ENTRIES_READ,
        ]),
    spec(
        StreamCommand::Xgroup,
        "xgroup|createconsumer",
        5,
        ADDS,
        ADDED_TO,
    )
    .group(Group::Stream, "6.2.0")
    .summary("Makes a consumer in a group; returns how many were made.")
    .complexity(LOG_ONE)
    .arguments(&[KEY, GROUP, CONSUMER]),
    spec(
        StreamCommand::Xgroup,
        "xgroup|delconsumer",
        5,
        REMOVES,
        REMOVED_FROM,
    )
    .group(Group::Stream, "5.0.0")
    .summary("Removes a consumer; returns how many entries were pending for it.")
    .complexity("O(log N) for each entry that is pending for it.")
    .arguments(&[KEY, GROUP, CONSUMER]),
    spec(
        StreamCommand::Xgroup,
        "xgroup|destroy",
        4,
        REMOVES,
        REMOVED_FROM,
    )
    .group(Group::Stream, "5.0.0")
    .summary("Removes a group; returns how many there were.")
    .complexity("O(log N) for each of its consumers and pending entries.")
    .arguments(&[KEY, GROUP]),
    spec(
        StreamCommand::Xgroup,
        "xgroup|help",
        2,
        &[Flag::Loading, Flag::Stale],
        &[],
    )
    .group(Group::Stream, "5.0.0")
    .summary("Lists the subcommands.")
    .complexity("O(1)"),
    spec(StreamCommand::Xgroup, "xgroup|setid", -5, REMOVES, SET_IN)
        .group(Group::Stream, "5.0.0")
        .summary("Sets the last id that a group has had.")
        .complexity(LOG_ONE)
        .history(&[changed("7.0.0", "Took `ENTRIESREAD`.")])
        .arguments(&[KEY, GROUP, NEW_OR_ID, ENTRIES_READ]),
];

static XINFO: &[CommandSpec] = &[
    spec(StreamCommand::Xinfo, "xinfo|consumers", 4, READS, DESCRIBED)
        .tips(VARIES)
        .group(Group::Stream, "5.0.0")
        .summary("Describes the consumers of a group.")
        .complexity("O(log N) for each consumer.")
        .arguments(&[KEY, GROUP]),
    spec(StreamCommand::Xinfo, "xinfo|groups", 3, READS, DESCRIBED)
        .group(Group::Stream, "5.0.0")
        .summary("Describes the groups of a stream.")
        .complexity("O(log N) for each group.")
        .history(&[changed("7.0.0", "Told `entries-read` and `lag`.")])
        .arguments(&[KEY]),
    spec(
        StreamCommand::Xinfo,
        "xinfo|help",
        2,
        &[Flag::Loading, Flag::Stale],
        &[],
    )
    .group(Group::Stream, "5.0.0")
    .summary("Lists the subcommands.")
    .complexity("O(1)"),
    spec(StreamCommand::Xinfo, "xinfo|stream", -3, READS, DESCRIBED)
        .group(Group::Stream, "5.0.0")
        .summary("Describes a stream, or returns it with its groups.")
        .complexity("O(log N), and with FULL O(M) for what is returned.")
        .history(&[
            changed("6.0.0", "Took `FULL`."),
            changed("7.0.0", "Told of deleted entries and how many were added."),
        ])
        .arguments(&[
            KEY,
            block(
                "full-block",
                &[
                    word("full", "FULL"),
                    integer("count").token("COUNT").optional(),
                ],
            )
            .since("6.0.0")
            .optional(),
        ]),
];
