//! Subcommands of BRANCH.

use crate::command::argument::{block, integer, one_of, string, word};
use crate::command::execution::{GateNeed, Rule};
use crate::command::spec::{Category, CommandSpec, Flag, Group};

use super::ConnectionCommand;

pub(super) static BRANCH: &[CommandSpec] = &[
    CommandSpec::new(ConnectionCommand::Branch.id(), "branch|create", -3)
        .flags(&[Flag::DenyOom, Flag::Noscript, Flag::NoMulti])
        .categories(&[])
        .gates(GateNeed::All)
        .group(Group::Server, "0.1.0")
        .summary(
            "Makes a branch of all databases, from the one in use, another or a snapshot. It lasts \
             where data are kept on disk. Its pages name up to 4 copies of themselves, or as many \
             as DESCENDANTS says, 2 at least. Needs --engine minuet, as all of these do.",
        )
        .complexity("O(D) for D databases, whatever they hold.")
        .arguments(&[
            string("name"),
            string("origin").token("FROM").optional(),
            integer("bound").token("DESCENDANTS").optional(),
        ]),
    CommandSpec::new(ConnectionCommand::Branch.id(), "branch|diff", -4)
        .flags(&[Flag::Readonly])
        .categories(&[])
        .rules(&[Rule::Sliced])
        .group(Group::Server, "0.1.0")
        .summary(
            "Lists the keys of the selected database that were added, removed or changed from one \
             branch or snapshot to another, behind where to go on FROM; or counts them.",
        )
        .complexity("O(C) for C pages that have changed since the two parted.")
        .arguments(&[
            string("a"),
            string("b"),
            string("prefix").token("PREFIX").optional(),
            string("key").token("FROM").optional(),
            integer("limit").token("LIMIT").optional(),
            word("count", "COUNT").optional(),
        ]),
    CommandSpec::new(ConnectionCommand::Branch.id(), "branch|drop", 3)
        .flags(&[Flag::Noscript, Flag::NoMulti])
        .categories(&[])
        .gates(GateNeed::All)
        .group(Group::Server, "0.1.0")
        .summary("Drops a branch, not the first one, nor the one that new connections use.")
        .complexity("O(D) for D databases; memory is given back afterwards.")
        .arguments(&[string("name")]),
    CommandSpec::new(ConnectionCommand::Branch.id(), "branch|help", 2)
        .flags(&[Flag::Loading, Flag::Stale])
        .categories(&[])
        .group(Group::Server, "0.1.0")
        .summary("Lists the subcommands.")
        .complexity("O(1)"),
    CommandSpec::new(ConnectionCommand::Branch.id(), "branch|info", 3)
        .categories(&[])
        .tips(&["nondeterministic_output"])
        .group(Group::Server, "0.1.0")
        .summary("Tells of a branch what it was made from, its age, whether it lasts, its keys.")
        .complexity("O(D) for D databases.")
        .arguments(&[string("name")]),
    CommandSpec::new(ConnectionCommand::Branch.id(), "branch|list", 2)
        .categories(&[])
        .group(Group::Server, "0.1.0")
        .summary("Lists the branches: name, time of creation in ms, 1 if it outlasts the server.")
        .complexity("O(B) for B branches."),
    CommandSpec::new(ConnectionCommand::Branch.id(), "branch|main", -2)
        .flags(&[Flag::Noscript, Flag::NoMulti])
        .categories(&[])
        .gates(GateNeed::All)
        .group(Group::Server, "0.1.0")
        .summary(
            "Names the branch that new connections use, or chooses it. As a name of a branch, MAIN \
             is the first one, unless another has that name: also when the first was renamed, and \
             when this command has chosen another.",
        )
        .complexity("O(1)")
        .arguments(&[string("name").optional()]),
    CommandSpec::new(ConnectionCommand::Branch.id(), "branch|merge", -5)
        .flags(&[Flag::Write, Flag::DenyOom, Flag::Noscript, Flag::NoMulti])
        .categories(&[])
        .gates(GateNeed::All)
        .rules(&[Rule::Sliced])
        .group(Group::Server, "0.1.0")
        .summary(
            "Does to one branch what was done to another since they parted, or were merged last \
             in either direction, key by key and field by field, all of it or nothing. Returns \
             how many keys were merged, how many conflict, and of these the first 100 keys and \
             fields together, or as many as LIMIT says, up to 65,536, in order: each its \
             database, its key, and the names of the fields of which both have changed the value \
             or the deadline; none if both have changed a value that is no hash, or the key's own \
             deadline. AFTER the last key goes on. As in git, what was merged once is not merged \
             again: what b has deleted or changed since stays, until BRANCH RESET or SNAPSHOT \
             ROLLBACK undoes the merge.",
        )
        .complexity(
            "O(C) for C pages that have changed since the two parted or were merged last. Above \
             262,144 keys in slices between other requests, and at the end all at once: this \
             breaks the WATCHes and cas tokens of the databases that change, one runs at a time, \
             what is written to b meanwhile is merged too, a conflict fails it that was there \
             when it began or came since, and b is not emptied or swapped meanwhile; DRY RUN \
             tells of the moment when it began. Into the first branch, up to 262,144 of the keys \
             have deadlines, and replicas take a full copy.",
        )
        .arguments(&[
            string("a"),
            string("b").token("INTO"),
            one_of(
                "conflict",
                &[
                    word("fail", "FAIL"),
                    word("ours", "OURS"),
                    word("theirs", "THEIRS"),
                ],
            )
            .token("ON CONFLICT")
            .optional(),
            word("dry", "DRY RUN").optional(),
            integer("limit").token("LIMIT").optional(),
            block("after", &[integer("database"), string("key")])
                .token("AFTER")
                .optional(),
        ]),
    CommandSpec::new(ConnectionCommand::Branch.id(), "branch|read", -4)
        .flags(&[Flag::Readonly])
        .categories(&[])
        .rules(&[Rule::Sliced])
        .group(Group::Server, "0.1.0")
        .summary("Runs a command that only reads on a branch, whatever the connection uses.")
        .complexity("That of the command.")
        .arguments(&[
            string("name"),
            string("command"),
            string("arg").optional().multiple(),
        ]),
    CommandSpec::new(ConnectionCommand::Branch.id(), "branch|rename", 4)
        .flags(&[Flag::Noscript, Flag::NoMulti])
        .categories(&[])
        .gates(GateNeed::All)
        .group(Group::Server, "0.1.0")
        .summary("Gives a branch another name.")
        .complexity("O(1)")
        .arguments(&[string("name"), string("new")]),
    CommandSpec::new(ConnectionCommand::Branch.id(), "branch|reset", 5)
        .flags(&[Flag::Write, Flag::DenyOom, Flag::Noscript, Flag::NoMulti])
        .categories(&[])
        .gates(GateNeed::All)
        .group(Group::Server, "0.1.0")
        .summary("Makes a branch what a snapshot shows, and returns how many keys differed.")
        .complexity(
            "O(C) for C pages that have changed between the two. Where more than 4,096 keys \
             differ, a branch but the first becomes what the snapshot shows in one step, whatever \
             that is, and nil is returned, since nobody has counted. The first one, a branch that \
             was emptied or swapped since, or a snapshot that a replica on disk has made for \
             itself, needs slices where more than 262,144 keys differ, as a merge does. Both \
             break the WATCHes and cas tokens of the databases.",
        )
        .rules(&[Rule::Sliced])
        .arguments(&[string("name"), string("snapshot").token("TO")]),
    CommandSpec::new(ConnectionCommand::Branch.id(), "branch|use", 3)
        .flags(&[Flag::Noscript, Flag::NoMulti, Flag::Fast])
        .categories(&[Category::Connection])
        .group(Group::Server, "0.1.0")
        .summary("Lets this connection work on a branch from now on, in the present.")
        .complexity("O(1)")
        .arguments(&[string("name")]),
];
