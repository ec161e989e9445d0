//! The command reference, a page of Markdown made from the table.

use std::fmt::{self, Write};

use super::{Category, CommandSpec, Flag, Group, KeySpec, all, unbuilt};

/// The beginning of the page.
const INTRODUCTION: &str = "\
# Commands

Every command that the server knows, by chapters. This page is made from the command table; after a
change there, make it again:

    cargo run -q -p pando-protocol --example commands > docs/COMMANDS.md

A line of syntax has words in upper case as they are written, `[ ]` around what may be left out, `|`
between choices and `...` behind what may be repeated. \"One lookup\" is what finding one key costs
the engine: a descent of the tree, or a probe of the table. Versions are those of Redis that first
had the command, or an option of it, unless they say otherwise.
";

/// The chapters, in page order, with what their commands have in common.
const CHAPTERS: [(Group, &str, &str); 16] = [
    (Group::Connection, "Connection", ""),
    (Group::Generic, "Keys", ""),
    (Group::String, "Strings", ""),
    (Group::Bitmap, "Bits of strings", ""),
    (Group::Hyperloglog, "HyperLogLog", ""),
    (Group::Hash, "Hashes", ""),
    (Group::List, "Lists", ""),
    (Group::Set, "Sets", ""),
    (Group::Sortedset, "Sorted sets", ""),
    (Group::Geo, "Places", ""),
    (Group::Stream, "Streams", ""),
    (Group::Ordered, "Ranges of keys", ORDERED),
    (Group::Transactions, "Transactions", ""),
    (Group::Server, "Server", ""),
    (Group::Cluster, "Cluster", ""),
    (Group::Scripting, "Functions", ""),
];

const ORDERED: &str = "\
Keys are in the order of their bytes. A bound is written as in ZRANGEBYLEX: `[key` with the key,
`(key` without it, `-` before the first key, `+` behind the last one; `[` alone is the empty key.
With REV the higher bound comes first and keys come in falling order.

KRANGE and KPREFIX answer an array of two: *next* and *items*. *next* is the bound to go on from
(`start` of KRANGE, `FROM` of KPREFIX), or null when the range is at its end. *items* are keys with
their values, in RESP2 flat and in RESP3 as pairs: of a string its bytes, of a hash its fields and
values, of a list its elements, of a set its members, of a sorted set its members and scores; with
FIELDS an array of the values of these fields, null where there is none; with KEYS there are keys
only. LIMIT is 1,000 if it is not given, and a bound: a reply also ends where it would become too
long, or has passed over thousands of keys that have expired or were removed, with *next* set.
KRANGEDEL answers *next* and how many keys it removed.
";

/// The text before the names of absent commands.
const UNBUILT: &str = "
## Not supported yet

Redis has these too. The error that answers them begins as for any unknown command, and then says
so: `ERR unknown command 'EVAL': not supported yet, with args beginning with: ...`. COMMAND INFO,
COMMAND GETKEYS and ACL CAT know those of Redis 7.0 all the same, since proxies ask where keys are.

";

/// The page.
#[must_use]
pub fn reference() -> String {
    let mut page = INTRODUCTION.to_owned();
    write_page(&mut page).expect("a string takes all that is written");
    page
}

fn write_page(page: &mut String) -> fmt::Result {
    for (group, title, introduction) in CHAPTERS {
        let mut commands: Vec<_> = all().filter(|spec| spec.group == group).collect();
        commands.sort_by_key(|spec| spec.name);
        writeln!(page, "\n## {title}\n")?;
        if !introduction.is_empty() {
            writeln!(page, "{introduction}")?;
        }
        for spec in &commands {
            let name = title_of(spec);
            writeln!(page, "- [{name}](#{}): {}", anchor(&name), spec.summary)?;
        }
        for spec in commands {
            write_command(page, spec, "###")?;
            for spec in spec.subcommands {
                write_command(page, spec, "####")?;
            }
        }
    }
    page.write_str(UNBUILT)?;
    for (chapter, names) in unbuilt::CHAPTERS {
        let names = names.to_ascii_uppercase().replace(' ', ", ");
        writeln!(page, "- {chapter}: {names}")?;
    }
    Ok(())
}

fn title_of(spec: &CommandSpec) -> String {
    spec.name.replace('|', " ").to_ascii_uppercase()
}

/// The anchor that Markdown gives a heading.
fn anchor(title: &str) -> String {
    title.replace(' ', "-").to_ascii_lowercase()
}

fn write_command(page: &mut String, spec: &CommandSpec, heading: &str) -> fmt::Result {
    writeln!(page, "\n{heading} {}\n", title_of(spec))?;
    if spec.subcommands.is_empty() || !spec.accepts(2) || spec.accepts(1) {
        writeln!(page, "    {}\n", spec.syntax())?;
    }
    writeln!(page, "{}\n", spec.summary)?;
    writeln!(page, "- Cost: {}", spec.complexity)?;
    let product = if spec.since.starts_with("0.") {
        "Pando"
    } else {
        "Redis"
    };
    writeln!(page, "- Since: {product} {}", spec.since)?;
    if let Some(deprecation) = spec.deprecated {
        let (since, other) = (deprecation.since, deprecation.replaced_by);
        writeln!(page, "- Outdated since {since}: use {other}")?;
    }
    for change in spec.history {
        writeln!(page, "- {}: {}", change.since, change.text)?;
    }
    for keys in spec.keys {
        write_keys(page, keys)?;
    }
    let flags: Vec<_> = spec.flags.iter().map(Flag::text).collect();
    if !flags.is_empty() {
        writeln!(page, "- Flags: {}", flags.join(", "))?;
    }
    let categories: Vec<_> = spec.categories.iter().map(Category::text).collect();
    writeln!(page, "- Categories: {}", categories.join(", "))
}

fn write_keys(page: &mut String, keys: &KeySpec) -> fmt::Result {
    let first = keys.first;
    match (keys.last, keys.step) {
        _ if keys.elsewhere => write!(page, "- Keys: at other places")?,
        _ if keys.counted => {
            write!(page, "- Keys: as many as argument {first} says, behind it")?;
        }
        (0, _) => write!(page, "- Key: argument {first}")?,
        (-2, _) => write!(page, "- Keys: arguments from {first} on but the last")?,
        (-1, 1) => write!(page, "- Keys: arguments from {first} on")?,
        (-1, step) => write!(page, "- Keys: every {step}nd argument from {first} on")?,
        (last, _) => {
            let last = i16::from(first) + i16::from(last);
            write!(page, "- Keys: arguments {first} to {last}")?;
        }
    }
    write!(page, " ({}", keys.access.text())?;
    for effect in keys.effects.iter() {
        write!(page, ", {}", effect.text())?;
    }
    match keys.note {
        Some(note) => writeln!(page, "). {note}."),
        None => writeln!(page, ")"),
    }
}
