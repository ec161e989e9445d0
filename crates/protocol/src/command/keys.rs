//! Where the keys of a command are, and which arguments of a request are keys.
//!
//! Keys are at places that follow from the number of arguments, or from an argument that says how
//! many there are; what a command does to a key may depend on options ([`KeySpec::variable`]).

use std::ops::Range;
use std::slice;

use super::spec::words;
use super::{BitmapCommand, CommandId, CommandSpec, KeyspaceCommand, StringCommand};
use crate::{Request, number};

/// What a command may do to a key as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAccess {
    /// Reads the value or its metadata.
    ReadOnly,
    /// Reads and changes the value.
    ReadWrite,
    /// Replaces the value without looking at it.
    Overwrite,
    /// Removes the key.
    Remove,
    /// Is not a key, though it chooses the server as one does: a channel.
    NotKey,
}

impl KeyAccess {
    /// The word for it in COMMAND INFO.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            KeyAccess::ReadOnly => "RO",
            KeyAccess::ReadWrite => "RW",
            KeyAccess::Overwrite => "OW",
            KeyAccess::Remove => "RM",
            KeyAccess::NotKey => "not_key",
        }
    }
}

words! {
    /// What a command may do to the data at a key.
    KeyEffect,
    /// A set of [`KeyEffect`]s.
    KeyEffects:
    /// Returns, copies or computes with the data.
    Access = "access",
    /// Changes the data.
    Update = "update",
    /// Adds data, never changing any that is there.
    Insert = "insert",
    /// Removes data.
    Delete = "delete",
}

/// Where a series of keys is in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// Index of the first key; the command's name has index 0.
    pub first: u8,
    /// Index of the last key, relative to the first; -1 is the end of the request, -2 the last
    /// argument but one.
    pub last: i8,
    /// From one key to the next.
    pub step: u8,
    /// Whether the argument at `first` is the number of the keys that follow it.
    pub counted: bool,
    /// If the keys follow a word: then `first` is where the word is looked for.
    pub keyword: Option<Keyword>,
    /// Whether COMMAND INFO does not say where they are. Without a word to look for, they are no
    /// arguments at all.
    pub elsewhere: bool,
    /// What may be done to the keys.
    pub access: KeyAccess,
    /// What may be done to their data.
    pub effects: KeyEffects,
    /// Whether the options of a request determine access and effects.
    pub variable: bool,
    /// An explanation for COMMAND INFO.
    pub note: Option<&'static str>,
}

/// A word that keys follow: to the end of the request, which then has no other keys, or one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keyword {
    /// In upper case.
    pub word: &'static str,
    /// Where COMMAND INFO says that one may look for it; -2 is the last argument but one.
    pub told_from: i8,
    /// 2: only the first half of what follows is keys.
    pub divisor: u8,
    /// Other words, in upper case, with the number of their arguments, none of which is the word.
    pub others: &'static [(&'static str, usize)],
}

impl Keyword {
    /// The index behind the last such word from `first` on.
    fn last_argument(&self, request: Request<'_>, first: usize) -> Option<usize> {
        let (mut index, mut found) = (first, None);
        while index + 1 < request.len() {
            if request.is(index, self.word) {
                found = Some(index + 1);
            }
            let other = self.others.iter().find(|other| request.is(index, other.0));
            index += 1 + other.map_or(0, |(_, arguments)| *arguments);
        }
        found
    }
}

impl KeySpec {
    const fn new(first: u8, last: i8, step: u8, access: KeyAccess, effects: &[KeyEffect]) -> Self {
        // The name is no key, and the walk over the keys goes on.
        assert!(first > 0 && step > 0);
        Self {
            first,
            last,
            step,
            counted: false,
            keyword: None,
            elsewhere: false,
            access,
            effects: KeyEffects::of(effects),
            variable: false,
            note: None,
        }
    }

    /// One key.
    pub(super) const fn one(first: u8, access: KeyAccess, effects: &[KeyEffect]) -> Self {
        Self::new(first, 0, 1, access, effects)
    }

    /// Two keys side by side.
    pub(super) const fn two(first: u8, access: KeyAccess, effects: &[KeyEffect]) -> Self {
        Self::new(first, 1, 1, access, effects)
    }

    /// All arguments from `first` on.
    pub(super) const fn rest(first: u8, access: KeyAccess, effects: &[KeyEffect]) -> Self {
        Self::new(first, -1, 1, access, effects)
    }

    /// All arguments from `first` on but the last one.
    pub(super) const fn all_but_last(first: u8, access: KeyAccess, effects: &[KeyEffect]) -> Self {
        Self::new(first, -2, 1, access, effects)
    }

    /// As many keys as the argument at `first` says, behind it.
    pub(super) const fn counted(first: u8, access: KeyAccess, effects: &[KeyEffect]) -> Self {
        let mut keys = Self::new(first, 0, 1, access, effects);
        keys.counted = true;
        keys
    }

    /// All arguments behind a word, which is at `first` or later. Of several such words, the first
    /// counts.
    pub(super) const fn behind(
        keyword: Keyword,
        first: u8,
        access: KeyAccess,
        effects: &[KeyEffect],
    ) -> Self {
        let mut keys = Self::new(first, -1, 1, access, effects);
        keys.keyword = Some(keyword);
        keys
    }

    /// The argument behind a word, which is at `first` or later and no argument of `others`. Of
    /// several such words, the last counts.
    pub(super) const fn after(
        word: &'static str,
        others: &'static [(&'static str, usize)],
        first: u8,
        access: KeyAccess,
        effects: &[KeyEffect],
    ) -> Self {
        let mut keys = Self::new(first, 0, 1, access, effects);
        keys.keyword = Some(Keyword {
            word,
            told_from: first as i8,
            divisor: 1,
            others,
        });
        keys
    }

    /// Keys that depend on what values contain.
    pub(super) const fn named_by_values(access: KeyAccess, effects: &[KeyEffect]) -> Self {
        Self::new(1, 0, 1, access, effects).elsewhere()
    }

    /// Whether it is [`Self::named_by_values`].
    #[inline]
    pub(super) fn is_named_by_values(&self) -> bool {
        self.elsewhere && self.keyword.is_none()
    }

    pub(super) const fn elsewhere(mut self) -> Self {
        self.elsewhere = true;
        self
    }

    /// Every second argument from `first` on.
    pub(super) const fn pairs(first: u8, access: KeyAccess, effects: &[KeyEffect]) -> Self {
        Self::new(first, -1, 2, access, effects)
    }

    pub(super) const fn variable(mut self) -> Self {
        self.variable = true;
        self
    }

    pub(super) const fn note(mut self, note: &'static str) -> Self {
        self.note = Some(note);
        self
    }

    /// The indexes of its keys in a request of `arguments` arguments.
    #[inline]
    fn span(&self, arguments: usize, said: Said) -> Range<usize> {
        let first = usize::from(self.first);
        let end = if let Some(keyword) = self.keyword {
            return match said.behind {
                Some((word, start)) if word == keyword.word && self.last < 0 => {
                    start..start + (arguments - start) / usize::from(keyword.divisor)
                }
                Some((word, at)) if word == keyword.word => at..at + 1,
                _ => 0..0,
            };
        } else if said.is_all || self.elsewhere {
            return 0..0;
        } else if self.counted {
            return first + 1..(first + 1).saturating_add(said.count).min(arguments);
        } else if self.last < 0 {
            // -1 is the last argument.
            arguments.saturating_sub(self.last.unsigned_abs() as usize - 1)
        } else {
            (first + self.last.unsigned_abs() as usize + 1).min(arguments)
        };
        first..end
    }
}

/// What a request itself says of its keys.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    /// How many counted ones there are; 0 when that makes no sense.
    count: usize,
    /// The keyword that counts, and the index behind it.
    behind: Option<(&'static str, usize)>,
    /// Whether all keys are behind it.
    is_all: bool,
}

impl Said {
    #[inline]
    fn of(specs: &[KeySpec], request: Request<'_>) -> Self {
        let mut said = Self::default();
        for keys in specs {
            let first = usize::from(keys.first);
            if let Some(keyword) = keys.keyword {
                let is = |index: &usize| request.is(*index, keyword.word);
                if keys.last < 0 {
                    let at = (first..request.len()).find(is);
                    said.behind = at.map(|index| (keyword.word, index + 1));
                    said.is_all = at.is_some();
                } else {
                    let at = keyword.last_argument(request, first);
                    let later = at.filter(|at| said.behind.is_none_or(|(_, other)| other < *at));
                    said.behind = later.map(|at| (keyword.word, at)).or(said.behind);
                }
            } else if keys.counted {
                let count = request.get(first).and_then(number::parse_u64);
                said.count = usize::try_from(count.unwrap_or(0)).unwrap_or(usize::MAX);
            }
        }
        said
    }
}

/// A key of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyUse {
    /// Index of the argument.
    pub index: usize,
    /// What this request may do to the key.
    pub access: KeyAccess,
    /// What this request may do to its data.
    pub effects: KeyEffects,
}

/// The indexes of the arguments of `request` that are keys, in order. `spec` is the request's
/// command, or the subcommand that [`super::resolve`] found.
#[inline]
pub fn keys(spec: &CommandSpec, request: Request<'_>) -> Keys {
    Keys {
        specs: spec.keys.iter(),
        arguments: request.len(),
        said: Said::of(spec.keys, request),
        next: 0,
        end: 0,
        step: 1,
    }
}

/// The index of the first argument of `request` that is a key.
#[must_use]
#[inline]
pub fn first_key(spec: &CommandSpec, request: Request<'_>) -> Option<usize> {
    let keys = spec.keys.first()?;
    if keys.keyword.is_some() {
        return self::keys(spec, request).next();
    }
    let first = usize::from(keys.first) + usize::from(keys.counted);
    (first < request.len()).then_some(first)
}

/// Whether the request names exactly one key.
#[must_use]
pub fn names_one_key(spec: &CommandSpec, request: Request<'_>) -> bool {
    let mut keys = keys(spec, request);
    keys.next().is_some() && keys.next().is_none()
}

/// Whether the request has a key, and as many as it says.
pub(super) fn has_its_keys(spec: &CommandSpec, request: Request<'_>) -> bool {
    let said = Said::of(spec.keys, request);
    let fits = |keys: &KeySpec| {
        let behind = request.len().saturating_sub(usize::from(keys.first) + 1);
        // A series to the end has one at least.
        let is_short = keys.last < 0 && keys.keyword.is_none() && !keys.elsewhere && !said.is_all;
        (!keys.counted || (1..=behind).contains(&said.count))
            && !(is_short && usize::from(keys.first) >= request.len())
    };
    spec.keys.iter().all(fits) && keys(spec, request).next().is_some()
}

/// The iterator that [`keys`] makes.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The series that have not begun.
    specs: slice::Iter<'static, KeySpec>,
    arguments: usize,
    said: Said,
    /// The series that has.
    next: usize,
    end: usize,
    step: usize,
}

impl Iterator for Keys {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.next >= self.end {
            let keys = self.specs.next()?;
            let span = keys.span(self.arguments, self.said);
            (self.next, self.end) = (span.start, span.end);
            self.step = usize::from(keys.step);
        }
        let index = self.next;
        self.next += self.step;
        Some(index)
    }
}

/// The keys of `request` with what it may do to each (COMMAND GETKEYSANDFLAGS).
pub fn key_uses(spec: &CommandSpec, request: Request<'_>) -> impl Iterator<Item = KeyUse> + use<> {
    let specs: &'static [KeySpec] = spec.keys;
    let (arguments, said) = (request.len(), Said::of(specs, request));
    let varied = specs
        .iter()
        .any(|keys| keys.variable)
        .then(|| vary(spec.id, request))
        .flatten();
    specs.iter().flat_map(move |keys| {
        let (access, effects) = match varied {
            Some(varied) if keys.variable => varied,
            _ => (keys.access, keys.effects),
        };
        let indexes = keys.span(arguments, said);
        indexes
            .step_by(usize::from(keys.step))
            .map(move |index| KeyUse {
                index,
                access,
                effects,
            })
    })
}

/// The same as COMMAND GETKEYS tells it: where each of several words names a key (STORE and
/// STOREDIST of GEORADIUS), all do, though the last one counts when the request runs.
pub(super) fn told_keys(spec: &CommandSpec, request: Request<'_>) -> Vec<KeyUse> {
    let is_alone = |keys: &KeySpec| {
        let has_no_others = |keyword: Keyword| keyword.others.is_empty();
        keys.last >= 0 && keys.keyword.is_some_and(has_no_others)
    };
    if !spec.keys.iter().any(is_alone) {
        return key_uses(spec, request).collect();
    }
    let uses = spec.keys.iter().flat_map(|keys| {
        let mut said = Said::default();
        if let Some(keyword) = keys.keyword {
            let mut words = usize::from(keys.first)..request.len();
            let at = words.find(|index| request.is(*index, keyword.word));
            let behind = at.map(|at| at + 1).filter(|at| *at < request.len());
            said.behind = behind.map(|at| (keyword.word, at));
        }
        let indexes = keys.span(request.len(), said);
        indexes.map(|index| KeyUse {
            index,
            access: keys.access,
            effects: keys.effects,
        })
    });
    uses.collect()
}

/// What the options of this request leave of its specification's access and effects; `None` is all
/// of it.
fn vary(id: CommandId, request: Request<'_>) -> Option<(KeyAccess, KeyEffects)> {
    use KeyspaceCommand as K;
    match id {
        CommandId::Keyspace(K::String(StringCommand::Set)) => {
            let reads = (3..request.len()).any(|index| request.is(index, "GET"));
            let update = KeyEffects::of(&[KeyEffect::Update]);
            (!reads).then_some((KeyAccess::Overwrite, update))
        }
        CommandId::Keyspace(K::Bitmap(BitmapCommand::Bitfield)) => {
            let access = KeyEffects::of(&[KeyEffect::Access]);
            (!bitfield_writes(request)).then_some((KeyAccess::ReadOnly, access))
        }
        _ => None,
    }
}

/// Whether a BITFIELD request has an operation that writes; a malformed one counts as writing.
fn bitfield_writes(request: Request<'_>) -> bool {
    let mut index = 2;
    while index < request.len() {
        let rest = request.len() - index - 1;
        if request.is(index, "GET") && rest >= 2 {
            index += 3;
        } else if request.is(index, "OVERFLOW") && rest >= 1 {
            index += 2;
        } else {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RequestBuffer;
    use crate::command::resolve;

    fn uses(line: &str) -> String {
        let request = RequestBuffer::from_args(line.split(' '));
        let request = request.as_request();
        let spec = resolve(request).unwrap();
        let plain: Vec<_> = keys(spec, request).collect();
        let uses: Vec<_> = key_uses(spec, request).collect();
        assert_eq!(plain, uses.iter().map(|key| key.index).collect::<Vec<_>>());
        let mut text = String::new();
        for key in uses {
            text += std::str::from_utf8(request.arg(key.index)).unwrap();
            text += ":";
            text += key.access.text();
            for effect in key.effects.iter() {
                text += "+";
                text += effect.text();
            }
            text += " ";
        }
        text.trim_end().to_owned()
    }

    #[test]
    fn keys_are_found_where_they_stand() {
        for (line, keys) in [
            ("PING x", ""),
            ("GET k", "k:RO+access"),
            ("MSET a 1 b 2", "a:OW+update b:OW+update"),
            ("MSET a 1 b", "a:OW+update b:OW+update"),
            ("BITOP AND d a b", "d:OW+update a:RO+access b:RO+access"),
            ("COPY a b REPLACE", "a:RO+access b:OW+update"),
            ("LCS a b LEN", "a:RO+access b:RO+access"),
            ("WATCH a b", "a:RO b:RO"),
            ("DEL a b", "a:RM+delete b:RM+delete"),
            ("OBJECT ENCODING k", "k:RO"),
            ("OBJECT HELP", ""),
            ("MEMORY USAGE k SAMPLES 5", "k:RO"),
            ("KRANGE - +", ""),
            ("SINTERCARD 2 a b LIMIT 1", "a:RO+access b:RO+access"),
            ("MIGRATE h 1 a 0 9 COPY", "a:RW+access+delete"),
            (
                "MIGRATE h 1 x 0 9 COPY keys a b",
                "a:RW+access+delete b:RW+access+delete",
            ),
            ("GEORADIUS a 1 2 3 m", "a:RO+access"),
            ("GEORADIUS a 1 2 3 m STORE", "a:RO+access"),
            (
                "GEORADIUS a 1 2 3 m ASC store b COUNT 3",
                "a:RO+access b:OW+update",
            ),
            (
                "GEORADIUS a 1 2 3 m STOREDIST b STORE c",
                "a:RO+access c:OW+update",
            ),
            ("SINTERCARD 9 a b", "a:RO+access b:RO+access"),
            ("SINTERCARD x a b", ""),
            ("SORT a GET STORE x", "a:RO+access"),
            (
                "SORT a BY STORE LIMIT 0 STORE STORE b STORE c",
                "a:RO+access c:OW+update",
            ),
            ("BLPOP a b 0", "a:RW+access+delete b:RW+access+delete"),
            ("BLMPOP 0 1 a LEFT", "a:RW+access+delete"),
            ("SORT a BY w* GET # DESC", "a:RO+access"),
            (
                "SORT a STORE b limit 0 1 store c",
                "a:RO+access c:OW+update",
            ),
            ("SORT a STORE", "a:RO+access"),
            ("SORT_RO a STORE b", "a:RO+access"),
            ("XREAD COUNT 2 streams a b 0 0", "a:RO+access b:RO+access"),
            ("XREAD STREAMS streams 0", "streams:RO+access"),
            ("XREAD COUNT 2 BLOCK 1", ""),
            ("XREADGROUP GROUP g streams STREAMS a >", "a:RO+access"),
            ("XGROUP CREATE a g $", "a:RW+insert"),
        ] {
            assert_eq!(uses(line), keys, "{line}");
        }
    }

    #[test]
    fn options_decide_on_the_access() {
        for (line, keys) in [
            ("SET k v", "k:OW+update"),
            ("SET k GET", "k:OW+update"),
            ("SET k v nx get EX 10", "k:RW+access+update"),
            ("BITFIELD k", "k:RO+access"),
            ("BITFIELD k GET u8 0 OVERFLOW WRAP", "k:RO+access"),
            ("BITFIELD k SET u8 0 1", "k:RW+access+update"),
            ("BITFIELD k get u8", "k:RW+access+update"),
        ] {
            assert_eq!(uses(line), keys, "{line}");
        }
    }
}
