//! The COMMAND container: information about the server's commands.
//!
//! Shapes are those of Redis 7.0, down to the kind of every string. Commands come in table order,
//! which Redis leaves open.

use super::{
    Argument, Category, CommandSpec, Flag, KeyAccess, KeySpec, Refusal, Rule, all,
    keys::{has_its_keys, told_keys},
    lookup, resolve,
    unbuilt::{unbuilt, unbuilt_subcommand, unbuilt_subcommands},
};
use crate::{Reply, Request, pattern};

/// Answers a request of the COMMAND container.
pub fn answer(request: Request<'_>, reply: &mut Reply<'_>) {
    let spec = match resolve(request) {
        Ok(spec) => spec,
        Err(refusal) => return reply.error(refusal.text(request)),
    };
    match spec.name {
        "command|count" => reply.count(all().len()),
        "command|docs" => docs(request, reply),
        "command|getkeys" => get_keys(request, false, reply),
        "command|getkeysandflags" => get_keys(request, true, reply),
        "command|help" => super::lookup(b"command")
            .into_iter()
            .for_each(|spec| help(spec, reply)),
        "command|list" => list(request, reply),
        _ => info(request, reply),
    }
}

/// What is told of the command or (after a bar) subcommand with this name, in any case.
fn find_told(name: &[u8]) -> Option<&'static CommandSpec> {
    find(name).or_else(|| unbuilt(name))
}

/// The command or (after a bar) subcommand with this name, in any case.
fn find(name: &[u8]) -> Option<&'static CommandSpec> {
    match name.iter().position(|byte| *byte == b'|') {
        None => lookup(name),
        Some(bar) => lookup(&name[..bar])?.subcommand(&name[bar + 1..]),
    }
}

/// COMMAND and COMMAND INFO: of all commands, or of those named.
fn info(request: Request<'_>, reply: &mut Reply<'_>) {
    if request.len() <= 2 {
        reply.array(all().len());
        all().for_each(|spec| describe(spec, reply));
        return;
    }
    reply.array(request.len() - 2);
    for name in request.args_from(2) {
        match find_told(name) {
            Some(spec) => describe(spec, reply),
            None => reply.null(),
        }
    }
}

fn describe(spec: &CommandSpec, reply: &mut Reply<'_>) {
    let (first, last, step) = key_range(spec.keys);
    reply.array(10);
    reply.bulk(spec.name);
    reply.integer(i64::from(spec.arity));
    reply.set(spec.flags.len());
    spec.flags.iter().for_each(|flag| reply.simple(flag.text()));
    reply.integer(first);
    reply.integer(last);
    reply.integer(step);
    reply.set(spec.categories.len());
    for category in spec.categories.iter() {
        reply.simple(category.text());
    }
    reply.set(spec.tips.len());
    spec.tips.iter().for_each(|tip| reply.bulk(tip));
    reply.set(spec.keys.len());
    spec.keys.iter().for_each(|keys| describe_keys(keys, reply));
    if spec.subcommands.is_empty() {
        reply.set(0);
    } else {
        let subcommands = told_subcommands(spec);
        reply.array(subcommands.clone().count());
        subcommands.for_each(|spec| describe(spec, reply));
    }
}

/// The subcommands of a command, and those that are not built.
fn told_subcommands(
    spec: &CommandSpec,
) -> impl Iterator<Item = &'static CommandSpec> + Clone + use<> {
    spec.subcommands.iter().chain(unbuilt_subcommands(spec))
}

/// First key, last key and step in the form from before key specifications, which has no word for
/// counted keys, nor for keys elsewhere.
fn key_range(specs: &[KeySpec]) -> (i64, i64, i64) {
    let specs = || {
        let fixed = |keys: &&KeySpec| !keys.counted && !keys.elsewhere && keys.keyword.is_none();
        specs.iter().filter(fixed)
    };
    let Some(first) = specs().map(|keys| i64::from(keys.first)).min() else {
        return (0, 0, 0);
    };
    let last = |keys: &KeySpec| match i64::from(keys.last) {
        to_the_end @ ..0 => to_the_end,
        last => i64::from(keys.first) + last,
    };
    let last = if specs().any(|keys| keys.last < 0) {
        specs().map(last).min()
    } else {
        specs().map(last).max()
    };
    let step = specs().map(|keys| i64::from(keys.step)).max();
    (first, last.unwrap_or(0), step.unwrap_or(0))
}

fn describe_keys(keys: &KeySpec, reply: &mut Reply<'_>) {
    reply.map(3 + usize::from(keys.note.is_some()));
    if let Some(note) = keys.note {
        reply.bulk("notes");
        reply.bulk(note);
    }
    reply.bulk("flags");
    let incomplete = keys.keyword.is_some_and(|keyword| keyword.told_from < 0);
    reply.set(1 + keys.effects.len() + usize::from(keys.variable) + usize::from(incomplete));
    reply.simple(keys.access.text());
    for effect in keys.effects.iter() {
        reply.simple(effect.text());
    }
    if keys.variable {
        reply.simple("variable_flags");
    }
    if incomplete {
        reply.simple("incomplete");
    }
    reply.bulk("begin_search");
    if keys.elsewhere {
        search(reply, "unknown", &[]);
        reply.bulk("find_keys");
        return search(reply, "unknown", &[]);
    }
    match keys.keyword {
        None => search(reply, "index", &[("index", i64::from(keys.first))]),
        Some(keyword) => {
            reply.map(2);
            reply.bulk("type");
            reply.bulk("keyword");
            reply.bulk("spec");
            reply.map(2);
            reply.bulk("keyword");
            reply.bulk(keyword.word);
            reply.bulk("startfrom");
            reply.integer(keyword.told_from.into());
        }
    }
    reply.bulk("find_keys");
    let (last, step) = (i64::from(keys.last), i64::from(keys.step));
    if keys.counted {
        let fields = [("keynumidx", 0), ("firstkey", 1), ("keystep", step)];
        return search(reply, "keynum", &fields);
    }
    let half = keys.keyword.is_some_and(|keyword| keyword.divisor > 1);
    let limit = if half { 2 } else { 0 };
    search(
        reply,
        "range",
        &[("lastkey", last), ("keystep", step), ("limit", limit)],
    );
}

fn search(reply: &mut Reply<'_>, kind: &str, fields: &[(&str, i64)]) {
    reply.map(2);
    reply.bulk("type");
    reply.bulk(kind);
    reply.bulk("spec");
    reply.map(fields.len());
    for (name, value) in fields {
        reply.bulk(name);
        reply.integer(*value);
    }
}

/// COMMAND DOCS: of all commands, or of those named that exist.
fn docs(request: Request<'_>, reply: &mut Reply<'_>) {
    if request.len() == 2 {
        reply.map(all().len());
        all().for_each(|spec| document(spec, reply));
        return;
    }
    let found = request.args_from(2).filter_map(find);
    reply.map(found.clone().count());
    found.for_each(|spec| document(spec, reply));
}

fn document(spec: &CommandSpec, reply: &mut Reply<'_>) {
    let is_system = spec.rules.has(Rule::ForTests);
    let texts = [
        ("summary", spec.summary),
        ("since", spec.since),
        ("group", spec.group.text()),
        ("complexity", spec.complexity),
    ];
    // Of what is not built, nothing but the name is told.
    let is_built = !spec.summary.is_empty();
    let lines = if is_built { texts.len() } else { 1 }
        + usize::from(is_system || spec.deprecated.is_some())
        + if spec.deprecated.is_some() { 2 } else { 0 }
        + usize::from(!spec.history.is_empty())
        + usize::from(!spec.arguments.is_empty())
        + usize::from(!spec.subcommands.is_empty());
    reply.bulk(spec.name);
    reply.map(lines);
    if is_built {
        for (name, text) in texts {
            reply.bulk(name);
            reply.bulk(text);
        }
    } else {
        reply.bulk("summary");
        reply.bulk("Is not supported yet.");
    }
    if is_system || spec.deprecated.is_some() {
        reply.bulk("doc_flags");
        reply.set(1);
        reply.simple(if is_system { "syscmd" } else { "deprecated" });
    }
    if let Some(deprecation) = spec.deprecated {
        reply.bulk("deprecated_since");
        reply.bulk(deprecation.since);
        reply.bulk("replaced_by");
        reply.bulk(deprecation.replaced_by);
    }
    if !spec.history.is_empty() {
        reply.bulk("history");
        reply.set(spec.history.len());
        for change in spec.history {
            reply.array(2);
            reply.bulk(change.since);
            reply.bulk(change.text);
        }
    }
    if !spec.arguments.is_empty() {
        reply.bulk("arguments");
        document_arguments(spec.arguments, reply);
    }
    if !spec.subcommands.is_empty() {
        let subcommands = told_subcommands(spec);
        reply.bulk("subcommands");
        reply.map(subcommands.clone().count());
        subcommands.for_each(|spec| document(spec, reply));
    }
}

fn document_arguments(arguments: &[Argument], reply: &mut Reply<'_>) {
    reply.array(arguments.len());
    for argument in arguments {
        let flags = [
            (argument.optional, "optional"),
            (argument.multiple, "multiple"),
            (argument.multiple_token, "multiple_token"),
        ];
        let flags = flags.iter().filter(|(set, _)| *set);
        let has_flags = flags.clone().next().is_some();
        let texts = [
            ("token", argument.token),
            ("since", argument.since),
            ("deprecated_since", argument.deprecated_since),
        ];
        let texts = texts
            .iter()
            .filter_map(|(name, text)| Some((name, (*text)?)));
        let lines = 2
            + usize::from(argument.key_spec.is_some())
            + texts.clone().count()
            + usize::from(has_flags)
            + usize::from(!argument.parts.is_empty());
        reply.map(lines);
        reply.bulk("name");
        reply.bulk(argument.name);
        reply.bulk("type");
        reply.bulk(argument.kind.text());
        if let Some(index) = argument.key_spec {
            reply.bulk("key_spec_index");
            reply.integer(i64::from(index));
        }
        for (name, text) in texts {
            reply.bulk(name);
            reply.bulk(text);
        }
        if has_flags {
            reply.bulk("flags");
            reply.set(flags.clone().count());
            flags.for_each(|(_, flag)| reply.simple(flag));
        }
        if !argument.parts.is_empty() {
            reply.bulk("arguments");
            document_arguments(argument.parts, reply);
        }
    }
}

/// COMMAND LIST: the names of all commands and subcommands, or of those that match a filter.
fn list(request: Request<'_>, reply: &mut Reply<'_>) {
    let every = all().flat_map(|spec| std::iter::once(spec).chain(spec.subcommands));
    if request.len() == 2 {
        return names(every, reply);
    }
    if request.len() != 5 || !request.is(2, "FILTERBY") {
        return reply.error("ERR syntax error");
    }
    let filter = request.arg(4);
    if request.is(3, "MODULE") {
        // There are no modules, so no command belongs to one.
        names(std::iter::empty(), reply);
    } else if request.is(3, "ACLCAT") {
        let category = Category::ALL
            .iter()
            .find(|category| category.text().as_bytes()[1..].eq_ignore_ascii_case(filter));
        let in_category =
            |spec: &&CommandSpec| category.is_some_and(|category| spec.categories.has(*category));
        names(every.filter(in_category), reply);
    } else if request.is(3, "PATTERN") {
        let matches =
            |spec: &&CommandSpec| pattern::matches_ignoring_case(filter, spec.name.as_bytes());
        names(every.filter(matches), reply);
    } else {
        reply.error("ERR syntax error");
    }
}

fn names(specs: impl Iterator<Item = &'static CommandSpec> + Clone, reply: &mut Reply<'_>) {
    reply.array(specs.clone().count());
    specs.for_each(|spec| reply.bulk(spec.name));
}

/// COMMAND GETKEYS and COMMAND GETKEYSANDFLAGS: the keys of the command line that follows.
fn get_keys(request: Request<'_>, with_flags: bool, reply: &mut Reply<'_>) {
    let line = request.tail(2);
    let spec = match resolve(line) {
        Ok(spec) | Err(Refusal::WrongArity(spec) | Refusal::WrongArityOfUnbuilt(spec)) => {
            Some(spec)
        }
        Err(Refusal::UnknownSubcommand(container)) => {
            unbuilt_subcommand(container, line.get(1).unwrap_or_default())
        }
        Err(_) => unbuilt(line.arg(0)),
    };
    let Some(spec) = spec else {
        return reply.error("ERR Invalid command specified");
    };
    if spec
        .keys
        .iter()
        .all(|keys| keys.access == KeyAccess::NotKey)
    {
        return reply.error("ERR The command has no key arguments");
    }
    if !spec.accepts(line.len()) {
        return reply.error("ERR Invalid number of arguments specified for command");
    }
    if !has_its_keys(spec, line) {
        if spec.flags.has(Flag::NoMandatoryKeys) {
            return reply.array(0);
        }
        return reply.error("ERR Invalid arguments specified for command");
    }
    let keys = told_keys(spec, line);
    reply.array(keys.len());
    for key in keys {
        if with_flags {
            reply.array(2);
        }
        reply.bulk(line.arg(key.index));
        if with_flags {
            reply.set(1 + key.effects.len());
            reply.simple(key.access.text());
            for effect in key.effects.iter() {
                reply.simple(effect.text());
            }
        }
    }
}

/// COMMAND HELP, from the table.
fn help(container: &CommandSpec, reply: &mut Reply<'_>) {
    reply.array(1 + 2 * container.subcommands.len());
    reply.simple("COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    for spec in container.subcommands {
        let syntax = spec.syntax();
        let own = syntax.split_once(' ').map_or(&*syntax, |(_, own)| own);
        reply.simple(own);
        reply.simple(&format!("    {}", spec.summary));
    }
}

#[cfg(test)]
mod tests;
