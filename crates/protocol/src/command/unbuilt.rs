//! Redis commands that are not built yet, by topic.
//!
//! Their error begins like that of an unknown command: clients look for these words to find out
//! what a server can do. It then says that the name is not a typo.
//!
//! COMMAND and ACL tell of those of Redis 7.0 all the same ([`told`]).
//!
//! Deliberately absent: modules' commands.

use super::table::UNBUILT;
use super::{CommandSpec, all};

/// Chapters, and the names in each, in lower case and in order.
pub(super) const CHAPTERS: &[(&str, &str)] = &[
    ("Streams", "xackdel xcfgset xdelex"),
    (
        "Vectors",
        "vadd vcard vdim vemb vgetattr vinfo vismember vlinks vrandmember vrange vrem \
         vsetattr vsim",
    ),
    ("Strings", "delex digest msetex"),
    ("Keys", "restore-asking"),
    (
        "Messages",
        "psubscribe publish pubsub punsubscribe spublish ssubscribe subscribe sunsubscribe \
         unsubscribe",
    ),
    (
        "Scripts",
        "eval eval_ro evalsha evalsha_ro fcall fcall_ro script",
    ),
    (
        "Replication and cluster",
        "asking psync readonly readwrite replconf sync",
    ),
];

/// Whether Redis has a command of this name that this server does not have yet.
pub fn is_unbuilt(name: &[u8]) -> bool {
    let is = |unbuilt: &str| unbuilt.as_bytes().eq_ignore_ascii_case(name);
    CHAPTERS.iter().any(|(_, names)| names.split(' ').any(is))
}

/// What is told of a command or (after a bar) subcommand that is not built, in any case.
pub(super) fn unbuilt(name: &[u8]) -> Option<&'static CommandSpec> {
    let mut specs = UNBUILT.iter().flat_map(with_subcommands);
    specs.find(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name))
}

/// The subcommands of a container that are not built, but told of.
pub(super) fn unbuilt_subcommands(
    container: &CommandSpec,
) -> impl Iterator<Item = &'static CommandSpec> + Clone + use<> {
    let name = container.name;
    let is_of = move |spec: &&CommandSpec| {
        let of = spec.name.split_once('|');
        of.is_some_and(|(of, _)| of == name)
    };
    UNBUILT.iter().filter(is_of)
}

/// The one of this name, in any case.
pub(super) fn unbuilt_subcommand(
    container: &CommandSpec,
    name: &[u8],
) -> Option<&'static CommandSpec> {
    let is = |spec: &&CommandSpec| spec.own_name().as_bytes().eq_ignore_ascii_case(name);
    unbuilt_subcommands(container).find(is)
}

/// All commands and subcommands, and those that are not built but known.
pub fn told() -> impl Iterator<Item = &'static CommandSpec> + Clone {
    all().chain(UNBUILT).flat_map(with_subcommands)
}

fn with_subcommands(
    spec: &'static CommandSpec,
) -> impl Iterator<Item = &'static CommandSpec> + Clone {
    std::iter::once(spec).chain(spec.subcommands)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::lookup;

    #[test]
    fn what_is_unbuilt_is_not_built() {
        for (chapter, names) in CHAPTERS {
            assert!(names.split(' ').is_sorted(), "{chapter}");
            for name in names.split(' ') {
                assert!(lookup(name.as_bytes()).is_none(), "{name}");
            }
        }
        assert!(is_unbuilt(b"PSubscribe") && is_unbuilt(b"restore-asking"));
        for known in [&b"get"[..], b"nosuch", b"", b"psubscribe publish", b"z"] {
            assert!(!is_unbuilt(known));
        }
    }
}
