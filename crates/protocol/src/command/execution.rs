//! How a command is executed: the gates it runs under, and what else a turn must know about it.
//!
//! A command's [`Flag`]s are what clients see; these rules are for the database and its host.
//!
//! The table checks itself at compile time (`CommandSpec::check`): a write to several keys without
//! the right gates would lose its atomicity, and no reply would show it.
//!
//! | a command on the keyspace that | must |
//! |---|---|
//! | does anything | run under a gate |
//! | writes several keys, or keys that no argument names | run under all gates (of several keys, at least), or say why not |
//! | only removes | write, and take no memory |
//! | asks about keys without using them | not write |
//! | runs in slices | not run under all gates, which it would release in between |
//!
//! Deliberately absent: what the table cannot know. MOVE names one key and writes two: its entry
//! says by hand that it needs all gates. The host's command that Redis calls a write (FUNCTION
//! FLUSH) touches no key.

use super::keys::KeySpec;
use super::spec::words;
use super::{CommandId, CommandSpec, Flag};

/// The gates that a command runs under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum GateNeed {
    /// Its session's own: concurrently with commands of other sessions.
    Own,
    /// All: every other command sees the whole of it or nothing.
    All,
    /// Its session's own for a request that names one key, else all.
    Several,
    /// None at the start: the handler takes what it needs, and may wait for a disk until then.
    None,
}

words! {
    /// One thing that a turn must know about a command, besides its gates.
    Rule,
    /// A set of [`Rule`]s.
    Rules:
    /// Asks about a key and does not use its value: the key does not count as used.
    Quiet = "quiet",
    /// Counts its keys as used, even for a client that wants none to count.
    CountsUse = "counts-use",
    /// CLIENT PAUSE does not hold it back: it ends a connection's wait, or the pause.
    IgnoresPause = "ignores-pause",
    /// Runs inside MULTI instead of being queued.
    Unqueued = "unqueued",
    /// Ends a transaction without running it, and so needs no memory for the queue.
    EndsTransaction = "ends-transaction",
    /// Only removes keys: not refused for lack of memory, and accepted longer than others when the
    /// disk is full.
    OnlyRemoves = "only-removes",
    /// May run in slices, between which other commands run.
    Sliced = "sliced",
    /// Reads what EXEC can compare when it ends, besides keys that it names: a portion of a range,
    /// the number of keys.
    Comparable = "comparable",
    /// As quick as a fast command while its arguments are small, though Redis does not call it
    /// fast.
    BriefWhenSmall = "brief-when-small",
    /// For people who test the server, not for its users.
    ForTests = "for-tests",
}

impl CommandSpec {
    /// Fails compilation at a command, or subcommand, that contradicts itself.
    pub(super) const fn check(&self) {
        if let Some(fault) = self.fault() {
            panic!("{}", fault);
        }
        let mut index = 0;
        while index < self.subcommands.len() {
            self.subcommands[index].check();
            index += 1;
        }
    }

    /// The contradiction; see the module's header.
    const fn fault(&self) -> Option<&'static str> {
        let on_keyspace = matches!(self.id, CommandId::Keyspace(_));
        let writes = on_keyspace && self.flags.has(Flag::Write);
        let is_whole = matches!(self.gates, GateNeed::All | GateNeed::Several);
        let key_by_key = self.key_by_key.is_some();
        if writes && !self.has_one_key() && !is_whole && !key_by_key {
            return Some("a write to several keys runs under all gates, or says why not");
        }
        if key_by_key && (is_whole || !writes || self.has_one_key()) {
            return Some("only a write to several keys under its own gate says why");
        }
        if on_keyspace && matches!(self.gates, GateNeed::None) {
            return Some("a command on the keyspace runs under a gate");
        }
        if self.rules.has(Rule::OnlyRemoves) && (!writes || self.flags.has(Flag::DenyOom)) {
            return Some("a command that only removes writes, and takes no memory");
        }
        if self.rules.has(Rule::Quiet) && writes {
            return Some("a command that only asks does not write");
        }
        if on_keyspace && self.rules.has(Rule::Sliced) && !matches!(self.gates, GateNeed::Own) {
            return Some("a command on the keyspace in slices runs under its own gate");
        }
        None
    }

    /// Whether it takes no time worth a look at the clock, as long as its arguments are small.
    #[must_use]
    #[inline]
    pub const fn is_brief(&self) -> bool {
        self.flags.has(Flag::Fast) || self.rules.has(Rule::BriefWhenSmall)
    }

    /// Whether it names exactly one key, whatever its arguments.
    #[must_use]
    pub const fn has_one_key(&self) -> bool {
        self.keys.len() == 1 && self.keys[0].last == 0 && !self.keys[0].counted
    }

    /// Whether values may name keys that it reads.
    #[must_use]
    #[inline]
    pub fn has_keys_in_values(&self) -> bool {
        self.keys.iter().any(KeySpec::is_named_by_values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::lookup;

    fn spec(name: &str) -> CommandSpec {
        let spec = lookup(name.as_bytes()).expect("it is in the table");
        assert_eq!(spec.fault(), None, "{name}");
        CommandSpec { ..*spec }
    }

    #[test]
    fn a_forgotten_gate_is_found() {
        for name in [
            "mset",
            "msetnx",
            "rename",
            "renamenx",
            "copy",
            "bitop",
            "swapdb",
            "flushdb",
            "flushall",
            "xreadgroup",
        ] {
            for gates in [GateNeed::Own, GateNeed::None] {
                let planted = CommandSpec {
                    gates,
                    ..spec(name)
                };
                assert!(planted.fault().is_some(), "{name} under {gates:?}");
            }
        }
        for name in ["del", "unlink", "krangedel"] {
            let planted = CommandSpec {
                key_by_key: None,
                ..spec(name)
            };
            assert!(planted.fault().is_some(), "{name} without its reason");
        }
    }

    #[test]
    fn a_contradiction_is_found() {
        let rules = |name: &str, rule| CommandSpec {
            rules: Rules::of(&[rule]),
            ..spec(name)
        };
        for (planted, what) in [
            (rules("set", Rule::OnlyRemoves), "takes memory"),
            (rules("get", Rule::OnlyRemoves), "does not write"),
            (rules("incr", Rule::Quiet), "writes"),
            (rules("rename", Rule::Sliced), "needs all gates at once"),
            (
                CommandSpec {
                    key_by_key: Some("it reads one key"),
                    ..spec("set")
                },
                "a reason for nothing",
            ),
            (
                CommandSpec {
                    gates: GateNeed::None,
                    ..spec("get")
                },
                "no gate",
            ),
        ] {
            assert!(planted.fault().is_some(), "{}: {what}", planted.name);
        }
    }
}
