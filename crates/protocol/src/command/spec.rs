//! One command's table entry, and the words it is made of.
//!
//! A [`CommandSpec`] is built in a `const`: its builder methods are `const fn`, so the whole table
//! lives in read-only memory and costs nothing at start.
//!
//! Deliberately absent: handlers. The table says what a command is, not how it is executed.

use super::CommandId;
use super::argument::Argument;
use super::execution::{GateNeed, Rule, Rules};
use super::keys::KeySpec;

/// Declares an enum of words and the set type over it.
macro_rules! words {
    (
        $(#[$word_meta:meta])* $word:ident, $(#[$set_meta:meta])* $set:ident:
        $($(#[$meta:meta])* $variant:ident = $text:literal,)*
    ) => {
        $(#[$word_meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum $word {
            $($(#[$meta])* $variant,)*
        }

        impl $word {
            /// All words, in the order of replies.
            pub const ALL: &'static [$word] = &[$($word::$variant,)*];

            /// The word as replies write it.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $($word::$variant => $text,)*
                }
            }
        }

        $(#[$set_meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $set(u32);

        impl $set {
            /// The set of these words.
            #[must_use]
            pub const fn of(words: &[$word]) -> Self {
                let (mut set, mut index) = (0, 0);
                while index < words.len() {
                    set |= 1 << words[index] as u32;
                    index += 1;
                }
                Self(set)
            }

            /// Whether the word is in the set.
            #[must_use]
            #[inline]
            pub const fn has(self, word: $word) -> bool {
                self.0 & (1 << word as u32) != 0
            }

            /// Both sets together.
            #[must_use]
            pub const fn union(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// How many words are in the set.
            #[must_use]
            pub const fn len(self) -> usize {
                self.0.count_ones() as usize
            }

            /// Whether no word is in the set.
            #[must_use]
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// The words of the set, in the order of replies.
            pub fn iter(self) -> impl Iterator<Item = $word> + Clone {
                $word::ALL.iter().copied().filter(move |word| self.has(*word))
            }
        }
    };
}
pub(super) use words;

words! {
    /// One thing that the server must know about a command before running it.
    Flag,
    /// A set of [`Flag`]s.
    Flags:
    /// May change the dataset.
    Write = "write",
    /// Reads the dataset and never changes it.
    Readonly = "readonly",
    /// May take more memory: refused when the memory limit is reached.
    DenyOom = "denyoom",
    /// For administrators.
    Admin = "admin",
    /// About channels.
    Pubsub = "pubsub",
    /// Refused in scripts.
    Noscript = "noscript",
    /// May wait for something.
    Blocking = "blocking",
    /// Answered while the dataset is being recovered.
    Loading = "loading",
    /// Answered by a replica that has lost its primary.
    Stale = "stale",
    /// Not shown by MONITOR.
    SkipMonitor = "skip_monitor",
    /// Not recorded by SLOWLOG.
    SkipSlowlog = "skip_slowlog",
    /// Answered for a slot that is on its way here.
    Asking = "asking",
    /// Constant or logarithmic in time.
    Fast = "fast",
    /// Answered before the client has authenticated.
    NoAuth = "no_auth",
    /// May be sent without keys although it can have some.
    NoMandatoryKeys = "no_mandatory_keys",
    /// Refused while the dataset is being replaced in the background.
    NoAsyncLoading = "no_async_loading",
    /// Refused inside MULTI.
    NoMulti = "no_multi",
    /// Answered while a script runs for long.
    AllowBusy = "allow_busy",
    /// Its keys are not at places that follow from the number of arguments.
    MovableKeys = "movablekeys",
}

words! {
    /// A family of commands that an access rule may name.
    Category,
    /// A set of [`Category`]s.
    Categories:
    /// Commands about keys whatever their type.
    Keyspace = "@keyspace",
    /// Commands that read data.
    Read = "@read",
    /// Commands that write data.
    Write = "@write",
    /// Commands about sets.
    Set = "@set",
    /// Commands about sorted sets.
    Sortedset = "@sortedset",
    /// Commands about lists.
    List = "@list",
    /// Commands about hashes.
    Hash = "@hash",
    /// Commands about strings.
    String = "@string",
    /// Commands about bits of strings.
    Bitmap = "@bitmap",
    /// Commands about cardinality estimators.
    Hyperloglog = "@hyperloglog",
    /// Commands about places.
    Geo = "@geo",
    /// Commands about streams.
    Stream = "@stream",
    /// Commands about channels.
    Pubsub = "@pubsub",
    /// Commands for administrators.
    Admin = "@admin",
    /// Commands that are constant or logarithmic in time.
    Fast = "@fast",
    /// All other commands.
    Slow = "@slow",
    /// Commands that may wait.
    Blocking = "@blocking",
    /// Commands that can harm a server in use.
    Dangerous = "@dangerous",
    /// Commands about the connection itself.
    Connection = "@connection",
    /// Commands about transactions.
    Transaction = "@transaction",
    /// Commands about scripts.
    Scripting = "@scripting",
}

/// The documentation chapter of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each variant is the chapter of its name")]
pub enum Group {
    Bitmap,
    Cluster,
    Connection,
    Generic,
    Geo,
    Hash,
    Hyperloglog,
    List,
    Ordered,
    Scripting,
    Server,
    Set,
    Sortedset,
    Stream,
    String,
    Transactions,
}

impl Group {
    /// The chapter's name as COMMAND DOCS writes it.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Group::Bitmap => "bitmap",
            Group::Cluster => "cluster",
            Group::Connection => "connection",
            Group::Generic => "generic",
            Group::Geo => "geo",
            Group::Hash => "hash",
            Group::Hyperloglog => "hyperloglog",
            Group::List => "list",
            Group::Ordered => "ordered",
            Group::Scripting => "scripting",
            Group::Server => "server",
            Group::Set => "set",
            Group::Sortedset => "sorted-set",
            Group::Stream => "stream",
            Group::String => "string",
            Group::Transactions => "transactions",
        }
    }
}

/// Since when a command is obsolete, and what replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deprecation {
    /// The version of Redis.
    pub since: &'static str,
    /// Its replacement.
    pub replaced_by: &'static str,
}

/// What a version changed in a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The version of Redis.
    pub since: &'static str,
    /// The change, in one sentence.
    pub text: &'static str,
}

/// The table's entry of one command or subcommand.
#[derive(Debug)]
pub struct CommandSpec {
    /// Its identifier; a subcommand has its container's.
    pub id: CommandId,
    /// See [`Self::number()`].
    pub(super) number: u8,
    /// Its name in lower case; a subcommand's with its container: `client|list`.
    pub name: &'static str,
    /// Number of arguments, including the name (and the subcommand's); negative: at least that
    /// many.
    pub arity: i8,
    /// What the server must know before running it.
    pub flags: Flags,
    /// Its families.
    pub categories: Categories,
    /// Where its keys are.
    pub keys: &'static [KeySpec],
    /// The gates that it runs under.
    pub gates: GateNeed,
    /// What else a turn must know before running it.
    pub rules: Rules,
    /// For a write to several keys that does not run under all gates: why that is enough.
    pub key_by_key: Option<&'static str>,
    /// Hints to clients and proxies.
    pub tips: &'static [&'static str],
    /// Its chapter.
    pub group: Group,
    /// The version of Redis that brought it; of Pando's own commands, the version of Pando.
    pub since: &'static str,
    /// What it does, in one line.
    pub summary: &'static str,
    /// What it costs.
    pub complexity: &'static str,
    /// Whether it is obsolete.
    pub deprecated: Option<Deprecation>,
    /// Changes by version, oldest first.
    pub history: &'static [Change],
    /// Its syntax after the name.
    pub arguments: &'static [Argument],
    /// A container's subcommands.
    pub subcommands: &'static [CommandSpec],
}

impl CommandSpec {
    /// A command without flags, keys, documentation and subcommands.
    pub(super) const fn new(id: CommandId, name: &'static str, arity: i8) -> Self {
        Self {
            id,
            number: id.number(),
            name,
            arity,
            flags: Flags::of(&[]),
            categories: Categories::of(&[]),
            keys: &[],
            gates: GateNeed::Own,
            rules: Rules::of(&[]),
            key_by_key: None,
            tips: &[],
            group: Group::Generic,
            since: "",
            summary: "",
            complexity: "",
            deprecated: None,
            history: &[],
            arguments: &[],
            subcommands: &[],
        }
    }

    /// Sets the flags, and adds the categories that they imply.
    pub(super) const fn flags(mut self, flags: &[Flag]) -> Self {
        self.flags = Flags::of(flags);
        self
    }

    /// Sets the categories: the given ones and those that the flags imply. Call after `flags`.
    pub(super) const fn categories(mut self, categories: &[Category]) -> Self {
        let mut set = Categories::of(categories);
        if self.flags.has(Flag::Write) {
            set = set.union(Categories::of(&[Category::Write]));
        }
        if self.flags.has(Flag::Readonly) {
            set = set.union(Categories::of(&[Category::Read]));
        }
        if self.flags.has(Flag::Admin) {
            set = set.union(Categories::of(&[Category::Admin, Category::Dangerous]));
        }
        if self.flags.has(Flag::Blocking) {
            set = set.union(Categories::of(&[Category::Blocking]));
        }
        let speed = if self.flags.has(Flag::Fast) {
            Category::Fast
        } else {
            Category::Slow
        };
        self.categories = set.union(Categories::of(&[speed]));
        self
    }

    pub(super) const fn keys(mut self, keys: &'static [KeySpec]) -> Self {
        self.keys = keys;
        self
    }

    pub(super) const fn gates(mut self, gates: GateNeed) -> Self {
        self.gates = gates;
        self
    }

    pub(super) const fn rules(mut self, rules: &[Rule]) -> Self {
        self.rules = Rules::of(rules);
        self
    }

    /// Lets a write to several keys run under its own gate, for this reason.
    pub(super) const fn key_by_key(mut self, reason: &'static str) -> Self {
        self.key_by_key = Some(reason);
        self
    }

    pub(super) const fn tips(mut self, tips: &'static [&'static str]) -> Self {
        self.tips = tips;
        self
    }

    pub(super) const fn group(mut self, group: Group, since: &'static str) -> Self {
        self.group = group;
        self.since = since;
        self
    }

    pub(super) const fn summary(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    pub(super) const fn complexity(mut self, complexity: &'static str) -> Self {
        self.complexity = complexity;
        self
    }

    pub(super) const fn deprecated(
        mut self,
        since: &'static str,
        replaced_by: &'static str,
    ) -> Self {
        self.deprecated = Some(Deprecation { since, replaced_by });
        self
    }

    pub(super) const fn history(mut self, history: &'static [Change]) -> Self {
        self.history = history;
        self
    }

    pub(super) const fn arguments(mut self, arguments: &'static [Argument]) -> Self {
        self.arguments = arguments;
        self
    }

    pub(super) const fn subcommands(mut self, subcommands: &'static [CommandSpec]) -> Self {
        self.subcommands = subcommands;
        self
    }

    /// Whether a request of `arguments` arguments, including the name, has the right number.
    #[must_use]
    #[inline]
    pub const fn accepts(&self, arguments: usize) -> bool {
        if self.arity >= 0 {
            arguments == self.arity as usize
        } else {
            arguments >= self.arity.unsigned_abs() as usize
        }
    }

    /// The place of the command in [`super::all`]; a subcommand has its container's.
    #[must_use]
    #[inline]
    pub const fn number(&self) -> u8 {
        self.number
    }

    /// Its name without its container's: `list` of `client|list`.
    #[must_use]
    pub fn own_name(&self) -> &'static str {
        self.name
            .split_once('|')
            .map_or(self.name, |(_, own_name)| own_name)
    }

    /// The subcommand with this name, in any case. Linear in the container's subcommands.
    #[must_use]
    pub fn subcommand(&self, name: &[u8]) -> Option<&'static CommandSpec> {
        self.subcommands
            .iter()
            .find(|spec| spec.own_name().as_bytes().eq_ignore_ascii_case(name))
    }
}

pub(super) const fn changed(since: &'static str, text: &'static str) -> Change {
    Change { since, text }
}
