//! Commands on sorted sets.

use crate::command::argument::{
    Argument, block, double, integer, key, one_of, pattern, string, word,
};
use crate::command::execution::GateNeed;
use crate::command::id::family;
use crate::command::keys::{KeyAccess, KeyEffect, KeySpec};
use crate::command::spec::{Category, Change, CommandSpec, Flag, Group, changed};

family! {
    /// Commands on sorted sets.
    SortedCommand in Keyspace(Sorted) {
        Bzmpop,
        Bzpopmax,
        Bzpopmin,
        Zadd,
        Zcard,
        Zcount,
        Zdiff,
        Zdiffstore,
        Zincrby,
        Zinter,
        Zintercard,
        Zinterstore,
        Zlexcount,
        Zmpop,
        Zmscore,
        Zpopmax,
        Zpopmin,
        Zrandmember,
        Zrange,
        Zrangebylex,
        Zrangebyscore,
        Zrangestore,
        Zrank,
        Zrem,
        Zremrangebylex,
        Zremrangebyrank,
        Zremrangebyscore,
        Zrevrange,
        Zrevrangebylex,
        Zrevrangebyscore,
        Zrevrank,
        Zscan,
        Zscore,
        Zunion,
        Zunionstore,
    }
}

const READS: &[Flag] = &[Flag::Readonly];
const READS_FAST: &[Flag] = &[Flag::Readonly, Flag::Fast];
const ADDS: &[Flag] = &[Flag::Write, Flag::DenyOom, Flag::Fast];
const REMOVES: &[Flag] = &[Flag::Write];
const REMOVES_FAST: &[Flag] = &[Flag::Write, Flag::Fast];
const WAITS: &[Flag] = &[Flag::Write, Flag::Noscript, Flag::Blocking, Flag::Fast];
const WAITS_FOR_COUNTED: &[Flag] = &[Flag::Write, Flag::Blocking, Flag::MovableKeys];

const ASKED: &[KeySpec] = &[KeySpec::one(1, KeyAccess::ReadOnly, &[])];
const RETURNED: &[KeySpec] = &[KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access])];
const UPDATED: &[KeySpec] = &[KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Update])];
const INCREASED: &[KeySpec] = &[KeySpec::one(
    1,
    KeyAccess::ReadWrite,
    &[KeyEffect::Access, KeyEffect::Update],
)];
const SHORTENED: &[KeySpec] = &[KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Delete])];
const TAKEN: &[KeyEffect] = &[KeyEffect::Access, KeyEffect::Delete];
const POPPED: &[KeySpec] = &[KeySpec::one(1, KeyAccess::ReadWrite, TAKEN)];

const SCORES: &[Argument] = &[key("key", 0), double("min"), double("max")];
const MEMBERS: &[Argument] = &[key("key", 0), string("min"), string("max")];
const WITHSCORES: Argument = word("withscores", "WITHSCORES").optional();
const LIMIT: Argument = block("limit", &[integer("offset"), integer("count")])
    .token("LIMIT")
    .optional();
const WEIGHTS: Argument = integer("weight").token("WEIGHTS").multiple().optional();
const AGGREGATE: Argument = one_of(
    "aggregate",
    &[word("sum", "SUM"), word("min", "MIN"), word("max", "MAX")],
)
.token("AGGREGATE")
.optional();
const SORTBY: Argument = one_of(
    "sortby",
    &[word("byscore", "BYSCORE"), word("bylex", "BYLEX")],
)
.since("6.2.0")
.optional();
const REV: Argument = word("rev", "REV").since("6.2.0").optional();

/// A command of this family; what all have in common.
const fn spec(
    command: SortedCommand,
    name: &'static str,
    arity: i8,
    flags: &[Flag],
    keys: &'static [KeySpec],
) -> CommandSpec {
    CommandSpec::new(command.id(), name, arity)
        .flags(flags)
        .categories(&[Category::Sortedset])
        .keys(keys)
}

/// One that reads several sets.
const fn of_several(command: SortedCommand, name: &'static str) -> CommandSpec {
    const KEYS: &[KeySpec] = &[KeySpec::counted(
        1,
        KeyAccess::ReadOnly,
        &[KeyEffect::Access],
    )];
    let flags = &[Flag::Readonly, Flag::MovableKeys];
    spec(command, name, -3, flags, KEYS)
        .group(Group::Sortedset, "6.2.0")
        .complexity("O(N log N) for N members of all sets.")
}

/// One that reads several sets and stores the result.
const fn storing(command: SortedCommand, name: &'static str) -> CommandSpec {
    const KEYS: &[KeySpec] = &[
        KeySpec::one(1, KeyAccess::Overwrite, &[KeyEffect::Update]),
        KeySpec::counted(2, KeyAccess::ReadOnly, &[KeyEffect::Access]),
    ];
    let flags = &[Flag::Write, Flag::DenyOom, Flag::MovableKeys];
    spec(command, name, -4, flags, KEYS)
        .gates(GateNeed::All)
        .group(Group::Sortedset, "2.0.0")
        .complexity("O(N log N) for N members of all sets.")
}

const MANY: Argument = key("key", 0).multiple();
const MANY_STORED: Argument = key("key", 1).multiple();
const ONE_KEY: &str = "It takes from one key, the first that has a sorted set";
const LOG_EACH: &str = "O(log M) for each member in a set of M members.";
const LOG_ONE: &str = "O(log M) in a set of M members.";
const LOG_RANGE: &str = "O(log M + N) for N members of a set of M.";

/// BZPOPMAX or BZPOPMIN.
const fn waiting(command: SortedCommand, name: &'static str) -> CommandSpec {
    const KEYS: &[KeySpec] = &[KeySpec::all_but_last(1, KeyAccess::ReadWrite, TAKEN)];
    const HISTORY: &[Change] = &[changed("6.0.0", "The timeout may be a fraction.")];
    const ARGUMENTS: &[Argument] = &[MANY, double("timeout")];
    spec(command, name, -3, WAITS, KEYS)
        .key_by_key(ONE_KEY)
        .group(Group::Sortedset, "5.0.0")
        .complexity("O(K + log M) in a set of M members, for K keys.")
        .history(HISTORY)
        .arguments(ARGUMENTS)
}

/// In the order of [`SortedCommand`].
pub(super) static COMMANDS: &[CommandSpec] = &[
    spec(
        SortedCommand::Bzmpop,
        "bzmpop",
        -5,
        WAITS_FOR_COUNTED,
        &[KeySpec::counted(2, KeyAccess::ReadWrite, TAKEN)],
    )
    .key_by_key(ONE_KEY)
    .group(Group::Sortedset, "7.0.0")
    .summary("Takes members out of the first of several sorted sets that is there; waits for one.")
    .complexity("O(K + N log M) for N members of the set and K keys.")
    .arguments(&[
        double("timeout"),
        integer("numkeys"),
        MANY,
        one_of("where", &[word("min", "MIN"), word("max", "MAX")]),
        integer("count").token("COUNT").optional(),
    ]),
    waiting(SortedCommand::Bzpopmax, "bzpopmax")
        .summary("Takes the highest member of the first sorted set that is there; waits for one."),
    waiting(SortedCommand::Bzpopmin, "bzpopmin")
        .summary("Takes the lowest member of the first sorted set that is there; waits for one."),
    spec(SortedCommand::Zadd, "zadd", -4, ADDS, UPDATED)
        .group(Group::Sortedset, "1.2.0")
        .summary("Adds members to a sorted set, or changes their scores.")
        .complexity(LOG_EACH)
        .history(&[
            changed("2.4.0", "Took several members."),
            changed("3.0.2", "Took `XX`, `NX`, `CH` and `INCR`."),
            changed("6.2.0", "Took `GT` and `LT`."),
        ])
        .arguments(&[
            key("key", 0),
            one_of("condition", &[word("nx", "NX"), word("xx", "XX")])
                .since("3.0.2")
                .optional(),
            one_of("comparison", &[word("gt", "GT"), word("lt", "LT")])
                .since("6.2.0")
                .optional(),
            word("change", "CH").since("3.0.2").optional(),
            word("increment", "INCR").since("3.0.2").optional(),
            block("data", &[double("score"), string("member")]).multiple(),
        ]),
    spec(SortedCommand::Zcard, "zcard", 2, READS_FAST, ASKED)
        .group(Group::Sortedset, "1.2.0")
        .summary("Returns the number of members of a sorted set.")
        .complexity("One lookup.")
        .arguments(&[key("key", 0)]),
    spec(SortedCommand::Zcount, "zcount", 4, READS_FAST, RETURNED)
        .group(Group::Sortedset, "2.0.0")
        .summary("Returns how many members have a score between two bounds.")
        .complexity(LOG_ONE)
        .arguments(SCORES),
    of_several(SortedCommand::Zdiff, "zdiff")
        .summary("Returns the members of the first set that no other set has.")
        .arguments(&[integer("numkeys"), MANY, WITHSCORES]),
    storing(SortedCommand::Zdiffstore, "zdiffstore")
        .group(Group::Sortedset, "6.2.0")
        .summary("Stores the members of the first set that no other set has.")
        .arguments(&[key("destination", 0), integer("numkeys"), MANY_STORED]),
    spec(SortedCommand::Zincrby, "zincrby", 4, ADDS, INCREASED)
        .group(Group::Sortedset, "1.2.0")
        .summary("Adds a number to the score of a member.")
        .complexity(LOG_ONE)
        .arguments(&[key("key", 0), integer("increment"), string("member")]),
    of_several(SortedCommand::Zinter, "zinter")
        .summary("Returns the members that all sets have, their scores combined.")
        .arguments(&[integer("numkeys"), MANY, WEIGHTS, AGGREGATE, WITHSCORES]),
    of_several(SortedCommand::Zintercard, "zintercard")
        .group(Group::Sortedset, "7.0.0")
        .summary("Returns how many members all sets have.")
        .arguments(&[
            integer("numkeys"),
            MANY,
            integer("limit").token("LIMIT").optional(),
        ]),
    storing(SortedCommand::Zinterstore, "zinterstore")
        .summary("Stores the members that all sets have, their scores combined.")
        .arguments(&[
            key("destination", 0),
            integer("numkeys"),
            MANY_STORED,
            WEIGHTS,
            AGGREGATE,
        ]),
    spec(
        SortedCommand::Zlexcount,
        "zlexcount",
        4,
        READS_FAST,
        RETURNED,
    )
    .group(Group::Sortedset, "2.8.9")
    .summary("Returns how many members are between two others, if all have one score.")
    .complexity("O(log² M) in a set of M members.")
    .arguments(MEMBERS),
    spec(
        SortedCommand::Zmpop,
        "zmpop",
        -4,
        &[Flag::Write, Flag::MovableKeys],
        &[KeySpec::counted(1, KeyAccess::ReadWrite, TAKEN)],
    )
    .gates(GateNeed::All)
    .group(Group::Sortedset, "7.0.0")
    .summary("Takes members out of the first of several sorted sets that is there.")
    .complexity("O(K + N log M) for N members of the set and K keys.")
    .arguments(&[
        integer("numkeys"),
        MANY,
        one_of("where", &[word("min", "MIN"), word("max", "MAX")]),
        integer("count").token("COUNT").optional(),
    ]),
    spec(SortedCommand::Zmscore, "zmscore", -3, READS_FAST, RETURNED)
        .group(Group::Sortedset, "6.2.0")
        .summary("Returns the scores of several members.")
        .complexity(LOG_EACH)
        .arguments(&[key("key", 0), string("member").multiple()]),
    spec(SortedCommand::Zpopmax, "zpopmax", -2, REMOVES_FAST, POPPED)
        .group(Group::Sortedset, "5.0.0")
        .summary("Takes out the members with the highest scores.")
        .complexity(LOG_EACH)
        .arguments(&[key("key", 0), integer("count").optional()]),
    spec(SortedCommand::Zpopmin, "zpopmin", -2, REMOVES_FAST, POPPED)
        .group(Group::Sortedset, "5.0.0")
        .summary("Takes out the members with the lowest scores.")
        .complexity(LOG_EACH)
        .arguments(&[key("key", 0), integer("count").optional()]),
    spec(
        SortedCommand::Zrandmember,
        "zrandmember",
        -2,
        READS,
        RETURNED,
    )
    .tips(&["nondeterministic_output"])
    .group(Group::Sortedset, "6.2.0")
    .summary("Returns random members of a sorted set.")
    .complexity(LOG_EACH)
    .arguments(&[
        key("key", 0),
        block("options", &[integer("count"), WITHSCORES]).optional(),
    ]),
    spec(SortedCommand::Zrange, "zrange", -4, READS, RETURNED)
        .group(Group::Sortedset, "1.2.0")
        .summary("Returns the members between two ranks, scores or members.")
        .complexity(LOG_RANGE)
        .history(&[changed(
            "6.2.0",
            "Took `REV`, `BYSCORE`, `BYLEX` and `LIMIT`.",
        )])
        .arguments(&[
            key("key", 0),
            string("start"),
            string("stop"),
            SORTBY,
            REV,
            LIMIT,
            WITHSCORES,
        ]),
    spec(
        SortedCommand::Zrangebylex,
        "zrangebylex",
        -4,
        READS,
        RETURNED,
    )
    .group(Group::Sortedset, "2.8.9")
    .summary("Returns the members between two others, if all have one score.")
    .complexity(LOG_RANGE)
    .deprecated("6.2.0", "`ZRANGE` with `BYLEX`")
    .arguments(&[key("key", 0), string("min"), string("max"), LIMIT]),
    spec(
        SortedCommand::Zrangebyscore,
        "zrangebyscore",
        -4,
        READS,
        RETURNED,
    )
    .group(Group::Sortedset, "1.0.5")
    .summary("Returns the members whose scores are between two bounds.")
    .complexity(LOG_RANGE)
    .deprecated("6.2.0", "`ZRANGE` with `BYSCORE`")
    .arguments(&[
        key("key", 0),
        double("min"),
        double("max"),
        WITHSCORES,
        LIMIT,
    ]),
    spec(
        SortedCommand::Zrangestore,
        "zrangestore",
        -5,
        &[Flag::Write, Flag::DenyOom],
        &[
            KeySpec::one(1, KeyAccess::Overwrite, &[KeyEffect::Update]),
            KeySpec::one(2, KeyAccess::ReadOnly, &[KeyEffect::Access]),
        ],
    )
    .gates(GateNeed::All)
    .group(Group::Sortedset, "6.2.0")
    .summary("Stores the members between two ranks, scores or members.")
    .complexity("O(log M + N log N) for N members of a set of M.")
    .arguments(&[
        key("dst", 0),
        key("src", 1),
        string("min"),
        string("max"),
        SORTBY,
        REV,
        LIMIT,
    ]),
    spec(SortedCommand::Zrank, "zrank", -3, READS_FAST, RETURNED)
        .group(Group::Sortedset, "2.0.0")
        .summary("Returns the rank of a member, from the lowest score.")
        .complexity(LOG_ONE)
        .history(&[changed("7.2.0", "Took `WITHSCORE`.")])
        .arguments(&[
            key("key", 0),
            string("member"),
            word("withscore", "WITHSCORE").since("7.2.0").optional(),
        ]),
    spec(SortedCommand::Zrem, "zrem", -3, REMOVES_FAST, SHORTENED)
        .group(Group::Sortedset, "1.2.0")
        .summary("Removes members of a sorted set.")
        .complexity(LOG_EACH)
        .history(&[changed("2.4.0", "Took several members.")])
        .arguments(&[key("key", 0), string("member").multiple()]),
    spec(
        SortedCommand::Zremrangebylex,
        "zremrangebylex",
        4,
        REMOVES,
        SHORTENED,
    )
    .group(Group::Sortedset, "2.8.9")
    .summary("Removes the members between two others, if all have one score.")
    .complexity(LOG_EACH)
    .arguments(MEMBERS),
    spec(
        SortedCommand::Zremrangebyrank,
        "zremrangebyrank",
        4,
        REMOVES,
        SHORTENED,
    )
    .group(Group::Sortedset, "2.0.0")
    .summary("Removes the members between two ranks.")
    .complexity(LOG_EACH)
    .arguments(&[key("key", 0), integer("start"), integer("stop")]),
    spec(
        SortedCommand::Zremrangebyscore,
        "zremrangebyscore",
        4,
        REMOVES,
        SHORTENED,
    )
    .group(Group::Sortedset, "1.2.0")
    .summary("Removes the members whose scores are between two bounds.")
    .complexity(LOG_EACH)
    .arguments(SCORES),
    spec(SortedCommand::Zrevrange, "zrevrange", -4, READS, RETURNED)
        .group(Group::Sortedset, "1.2.0")
        .summary("Returns the members between two ranks, from the highest score.")
        .complexity(LOG_RANGE)
        .deprecated("6.2.0", "`ZRANGE` with `REV`")
        .arguments(&[key("key", 0), integer("start"), integer("stop"), WITHSCORES]),
    spec(
        SortedCommand::Zrevrangebylex,
        "zrevrangebylex",
        -4,
        READS,
        RETURNED,
    )
    .group(Group::Sortedset, "2.8.9")
    .summary("Returns the members between two others in falling order, if all have one score.")
    .complexity(LOG_RANGE)
    .deprecated("6.2.0", "`ZRANGE` with `REV` and `BYLEX`")
    .arguments(&[key("key", 0), string("max"), string("min"), LIMIT]),
    spec(
        SortedCommand::Zrevrangebyscore,
        "zrevrangebyscore",
        -4,
        READS,
        RETURNED,
    )
    .group(Group::Sortedset, "2.2.0")
    .summary("Returns the members whose scores are between two bounds, from the highest.")
    .complexity(LOG_RANGE)
    .deprecated("6.2.0", "`ZRANGE` with `REV` and `BYSCORE`")
    .arguments(&[
        key("key", 0),
        double("max"),
        double("min"),
        WITHSCORES,
        LIMIT,
    ]),
    spec(
        SortedCommand::Zrevrank,
        "zrevrank",
        -3,
        READS_FAST,
        RETURNED,
    )
    .group(Group::Sortedset, "2.0.0")
    .summary("Returns the rank of a member, from the highest score.")
    .complexity(LOG_ONE)
    .history(&[changed("7.2.0", "Took `WITHSCORE`.")])
    .arguments(&[
        key("key", 0),
        string("member"),
        word("withscore", "WITHSCORE").since("7.2.0").optional(),
    ]),
    spec(SortedCommand::Zscan, "zscan", -3, READS, RETURNED)
        .tips(&["nondeterministic_output"])
        .group(Group::Sortedset, "2.8.0")
        .summary("Walks through the members of a sorted set, some at a call.")
        .complexity("O(log M) a call and O(1) for each member looked at.")
        .arguments(&[
            key("key", 0),
            integer("cursor"),
            pattern("pattern").token("MATCH").optional(),
            integer("count").token("COUNT").optional(),
        ]),
    spec(SortedCommand::Zscore, "zscore", 3, READS_FAST, RETURNED)
        .group(Group::Sortedset, "1.2.0")
        .summary("Returns the score of a member.")
        .complexity(LOG_ONE)
        .arguments(&[key("key", 0), string("member")]),
    of_several(SortedCommand::Zunion, "zunion")
        .summary("Returns the members that any of the sets has, their scores combined.")
        .arguments(&[integer("numkeys"), MANY, WEIGHTS, AGGREGATE, WITHSCORES]),
    storing(SortedCommand::Zunionstore, "zunionstore")
        .summary("Stores the members that any of the sets has, their scores combined.")
        .arguments(&[
            key("destination", 0),
            integer("numkeys"),
            MANY_STORED,
            WEIGHTS,
            AGGREGATE,
        ]),
];
