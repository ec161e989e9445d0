//! Commands on lists.

use crate::command::argument::{Argument, double, integer, key, one_of, string, word};
use crate::command::execution::GateNeed;
use crate::command::id::family;
use crate::command::keys::{KeyAccess, KeyEffect, KeySpec};
use crate::command::spec::{Category, CommandSpec, Flag, Group, changed};

family! {
    /// Commands on lists.
    ListCommand in Keyspace(List) {
        Blmove,
        Blmpop,
        Blpop,
        Brpop,
        Brpoplpush,
        Lindex,
        Linsert,
        Llen,
        Lmove,
        Lmpop,
        Lpop,
        Lpos,
        Lpush,
        Lpushx,
        Lrange,
        Lrem,
        Lset,
        Ltrim,
        Rpop,
        Rpoplpush,
        Rpush,
        Rpushx,
    }
}

const READS: &[Flag] = &[Flag::Readonly];
const READS_FAST: &[Flag] = &[Flag::Readonly, Flag::Fast];
const ADDS: &[Flag] = &[Flag::Write, Flag::DenyOom];
const ADDS_FAST: &[Flag] = &[Flag::Write, Flag::DenyOom, Flag::Fast];
const REMOVES: &[Flag] = &[Flag::Write];
const REMOVES_FAST: &[Flag] = &[Flag::Write, Flag::Fast];
const WAITS: &[Flag] = &[Flag::Write, Flag::Noscript, Flag::Blocking];
const WAITS_FOR_COUNTED: &[Flag] = &[Flag::Write, Flag::Blocking, Flag::MovableKeys];
const WAITS_TO_ADD: &[Flag] = &[Flag::Write, Flag::DenyOom, Flag::Noscript, Flag::Blocking];

const ASKED: &[KeySpec] = &[KeySpec::one(1, KeyAccess::ReadOnly, &[])];
const RETURNED: &[KeySpec] = &[KeySpec::one(1, KeyAccess::ReadOnly, &[KeyEffect::Access])];
const PUSHED: &[KeySpec] = &[KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Insert])];
const CHANGED: &[KeySpec] = &[KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Update])];
const SHORTENED: &[KeySpec] = &[KeySpec::one(1, KeyAccess::ReadWrite, &[KeyEffect::Delete])];
const TAKEN: &[KeyEffect] = &[KeyEffect::Access, KeyEffect::Delete];
const POPPED: &[KeySpec] = &[KeySpec::one(1, KeyAccess::ReadWrite, TAKEN)];
const MOVED: &[KeySpec] = &[
    KeySpec::one(1, KeyAccess::ReadWrite, TAKEN),
    KeySpec::one(2, KeyAccess::ReadWrite, &[KeyEffect::Insert]),
];

const FROM: Argument = one_of("wherefrom", &[word("left", "LEFT"), word("right", "RIGHT")]);
const TO: Argument = one_of("whereto", &[word("left", "LEFT"), word("right", "RIGHT")]);
const WHERE: Argument = one_of("where", &[word("left", "LEFT"), word("right", "RIGHT")]);
const COUNT: Argument = integer("count").token("COUNT").optional();
const MANY: Argument = key("key", 0).multiple();
const ELEMENTS: &[Argument] = &[key("key", 0), string("element").multiple()];
const POP: &[Argument] = &[key("key", 0), integer("count").optional().since("6.2.0")];

/// A command of this family; what all have in common.
const fn spec(
    command: ListCommand,
    name: &'static str,
    arity: i8,
    flags: &[Flag],
    keys: &'static [KeySpec],
) -> CommandSpec {
    CommandSpec::new(command.id(), name, arity)
        .flags(flags)
        .categories(&[Category::List])
        .keys(keys)
}

const ONE_KEY: &str = "It takes from one key, the first that has a list";
const LOG_ONE: &str = "O(log N) in a list of N elements.";
const LOG_EACH: &str = "O(log N) for each element in a list of N.";
const LOG_BOTH: &str = "O(log N) in lists of N elements.";
const ALL: &str = "O(N) in a list of N elements.";

/// In the order of [`ListCommand`].
pub(super) static COMMANDS: &[CommandSpec] = &[
    spec(ListCommand::Blmove, "blmove", 6, WAITS_TO_ADD, MOVED)
        .gates(GateNeed::All)
        .group(Group::List, "6.2.0")
        .summary("Moves an element from one list to another; waits for one.")
        .complexity(LOG_BOTH)
        .arguments(&[
            key("source", 0),
            key("destination", 1),
            FROM,
            TO,
            double("timeout"),
        ]),
    spec(
        ListCommand::Blmpop,
        "blmpop",
        -5,
        WAITS_FOR_COUNTED,
        &[KeySpec::counted(2, KeyAccess::ReadWrite, TAKEN)],
    )
    .key_by_key(ONE_KEY)
    .group(Group::List, "7.0.0")
    .summary("Takes elements from the first of several lists that is there; waits for one.")
    .complexity(LOG_EACH)
    .arguments(&[double("timeout"), integer("numkeys"), MANY, WHERE, COUNT]),
    spec(
        ListCommand::Blpop,
        "blpop",
        -3,
        WAITS,
        &[KeySpec::all_but_last(1, KeyAccess::ReadWrite, TAKEN)],
    )
    .key_by_key(ONE_KEY)
    .group(Group::List, "2.0.0")
    .summary("Takes the first element of the first list that is there; waits for one.")
    .complexity(LOG_ONE)
    .history(&[changed("6.0.0", "The timeout may be a fraction.")])
    .arguments(&[MANY, double("timeout")]),
    spec(
        ListCommand::Brpop,
        "brpop",
        -3,
        WAITS,
        &[KeySpec::all_but_last(1, KeyAccess::ReadWrite, TAKEN)],
    )
    .key_by_key(ONE_KEY)
    .group(Group::List, "2.0.0")
    .summary("Takes the last element of the first list that is there; waits for one.")
    .complexity(LOG_ONE)
    .history(&[changed("6.0.0", "The timeout may be a fraction.")])
    .arguments(&[MANY, double("timeout")]),
    spec(
        ListCommand::Brpoplpush,
        "brpoplpush",
        4,
        WAITS_TO_ADD,
        MOVED,
    )
    .gates(GateNeed::All)
    .group(Group::List, "2.2.0")
    .summary("Moves the last element of a list to the front of another; waits for one.")
    .complexity(LOG_BOTH)
    .deprecated("6.2.0", "`BLMOVE` with `RIGHT` and `LEFT`")
    .arguments(&[key("source", 0), key("destination", 1), double("timeout")]),
    spec(ListCommand::Lindex, "lindex", 3, READS, RETURNED)
        .group(Group::List, "1.0.0")
        .summary("Returns the element at an index.")
        .complexity(LOG_ONE)
        .arguments(&[key("key", 0), integer("index")]),
    spec(ListCommand::Linsert, "linsert", 5, ADDS, PUSHED)
        .group(Group::List, "2.2.0")
        .summary("Inserts an element before or behind another one.")
        .complexity("O(N) to find that one among N elements.")
        .arguments(&[
            key("key", 0),
            one_of("where", &[word("before", "BEFORE"), word("after", "AFTER")]),
            string("pivot"),
            string("element"),
        ]),
    spec(ListCommand::Llen, "llen", 2, READS_FAST, ASKED)
        .group(Group::List, "1.0.0")
        .summary("Returns how many elements a list has.")
        .complexity("O(1).")
        .arguments(&[key("key", 0)]),
    spec(ListCommand::Lmove, "lmove", 5, ADDS, MOVED)
        .gates(GateNeed::All)
        .group(Group::List, "6.2.0")
        .summary("Moves an element from one list to another.")
        .complexity(LOG_BOTH)
        .arguments(&[key("source", 0), key("destination", 1), FROM, TO]),
    spec(
        ListCommand::Lmpop,
        "lmpop",
        -4,
        &[Flag::Write, Flag::MovableKeys],
        &[KeySpec::counted(1, KeyAccess::ReadWrite, TAKEN)],
    )
    .key_by_key(ONE_KEY)
    .group(Group::List, "7.0.0")
    .summary("Takes elements from the first of several lists that is there.")
    .complexity(LOG_EACH)
    .arguments(&[integer("numkeys"), MANY, WHERE, COUNT]),
    spec(ListCommand::Lpop, "lpop", -2, REMOVES_FAST, POPPED)
        .group(Group::List, "1.0.0")
        .summary("Takes elements from the front of a list.")
        .complexity(LOG_EACH)
        .history(&[changed("6.2.0", "Took a count.")])
        .arguments(POP),
    spec(ListCommand::Lpos, "lpos", -3, READS, RETURNED)
        .group(Group::List, "6.0.6")
        .summary("Returns where an element is.")
        .complexity(ALL)
        .arguments(&[
            key("key", 0),
            string("element"),
            integer("rank").token("RANK").optional(),
            integer("num-matches").token("COUNT").optional(),
            integer("len").token("MAXLEN").optional(),
        ]),
    spec(ListCommand::Lpush, "lpush", -3, ADDS_FAST, PUSHED)
        .group(Group::List, "1.0.0")
        .summary("Adds elements at the front of a list.")
        .complexity(LOG_EACH)
        .history(&[changed("2.4.0", "Took several elements.")])
        .arguments(ELEMENTS),
    spec(ListCommand::Lpushx, "lpushx", -3, ADDS_FAST, PUSHED)
        .group(Group::List, "2.2.0")
        .summary("Adds elements at the front of a list that exists.")
        .complexity(LOG_EACH)
        .history(&[changed("4.0.0", "Took several elements.")])
        .arguments(ELEMENTS),
    spec(ListCommand::Lrange, "lrange", 4, READS, RETURNED)
        .group(Group::List, "1.0.0")
        .summary("Returns the elements between two indexes.")
        .complexity("O(log N + M) for M elements of a list of N.")
        .arguments(&[key("key", 0), integer("start"), integer("stop")]),
    spec(ListCommand::Lrem, "lrem", 4, REMOVES, SHORTENED)
        .group(Group::List, "1.0.0")
        .summary("Removes elements of a value.")
        .complexity("O(N + M log N) for M of N elements.")
        .arguments(&[key("key", 0), integer("count"), string("element")]),
    spec(ListCommand::Lset, "lset", 4, ADDS, CHANGED)
        .group(Group::List, "1.0.0")
        .summary("Replaces the element at an index.")
        .complexity(LOG_ONE)
        .arguments(&[key("key", 0), integer("index"), string("element")]),
    spec(ListCommand::Ltrim, "ltrim", 4, REMOVES, SHORTENED)
        .group(Group::List, "1.0.0")
        .summary("Removes the elements outside of two indexes.")
        .complexity("O(log N) for each of the removed, or of the left elements.")
        .arguments(&[key("key", 0), integer("start"), integer("stop")]),
    spec(ListCommand::Rpop, "rpop", -2, REMOVES_FAST, POPPED)
        .group(Group::List, "1.0.0")
        .summary("Takes elements from the end of a list.")
        .complexity(LOG_EACH)
        .history(&[changed("6.2.0", "Took a count.")])
        .arguments(POP),
    spec(ListCommand::Rpoplpush, "rpoplpush", 3, ADDS, MOVED)
        .gates(GateNeed::All)
        .group(Group::List, "1.2.0")
        .summary("Moves the last element of a list to the front of another.")
        .complexity(LOG_BOTH)
        .deprecated("6.2.0", "`LMOVE` with `RIGHT` and `LEFT`")
        .arguments(&[key("source", 0), key("destination", 1)]),
    spec(ListCommand::Rpush, "rpush", -3, ADDS_FAST, PUSHED)
        .group(Group::List, "1.0.0")
        .summary("Adds elements at the end of a list.")
        .complexity(LOG_EACH)
        .history(&[changed("2.4.0", "Took several elements.")])
        .arguments(ELEMENTS),
    spec(ListCommand::Rpushx, "rpushx", -3, ADDS_FAST, PUSHED)
        .group(Group::List, "2.2.0")
        .summary("Adds elements at the end of a list that exists.")
        .complexity(LOG_EACH)
        .history(&[changed("4.0.0", "Took several elements.")])
        .arguments(ELEMENTS),
];
