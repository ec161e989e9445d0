//! The syntax of a command as a tree, from which COMMAND DOCS and the documentation page are made.

/// The kind of argument at a place of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentKind {
    /// Any bytes.
    String,
    /// A decimal integer.
    Integer,
    /// A decimal fraction.
    Double,
    /// A key.
    Key,
    /// A glob pattern.
    Pattern,
    /// Seconds or milliseconds since the Unix epoch.
    UnixTime,
    /// A word of its own.
    PureToken,
    /// One of the parts.
    OneOf,
    /// All of the parts, in turn.
    Block,
}

impl ArgumentKind {
    /// The word for it in COMMAND DOCS.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            ArgumentKind::String => "string",
            ArgumentKind::Integer => "integer",
            ArgumentKind::Double => "double",
            ArgumentKind::Key => "key",
            ArgumentKind::Pattern => "pattern",
            ArgumentKind::UnixTime => "unix-time",
            ArgumentKind::PureToken => "pure-token",
            ArgumentKind::OneOf => "oneof",
            ArgumentKind::Block => "block",
        }
    }
}

/// One node of a command's syntax.
#[derive(Debug)]
pub struct Argument {
    /// What the documentation calls it.
    pub name: &'static str,
    /// Its kind.
    pub kind: ArgumentKind,
    /// Of a key, the index of its key specification.
    pub key_spec: Option<u8>,
    /// The word that precedes it, or that it consists of.
    pub token: Option<&'static str>,
    /// The version that added it, if later than the command.
    pub since: Option<&'static str>,
    /// The version that made it obsolete.
    pub deprecated_since: Option<&'static str>,
    /// Whether it may be left out.
    pub optional: bool,
    /// Whether it may be repeated.
    pub multiple: bool,
    /// Whether its token is repeated with it.
    pub multiple_token: bool,
    /// Of a choice or block, what it consists of.
    pub parts: &'static [Argument],
}

const fn argument(name: &'static str, kind: ArgumentKind) -> Argument {
    Argument {
        name,
        kind,
        key_spec: None,
        token: None,
        since: None,
        deprecated_since: None,
        optional: false,
        multiple: false,
        multiple_token: false,
        parts: &[],
    }
}

pub(super) const fn string(name: &'static str) -> Argument {
    argument(name, ArgumentKind::String)
}

pub(super) const fn integer(name: &'static str) -> Argument {
    argument(name, ArgumentKind::Integer)
}

pub(super) const fn double(name: &'static str) -> Argument {
    argument(name, ArgumentKind::Double)
}

pub(super) const fn pattern(name: &'static str) -> Argument {
    argument(name, ArgumentKind::Pattern)
}

pub(super) const fn unix_time(name: &'static str) -> Argument {
    argument(name, ArgumentKind::UnixTime)
}

pub(super) const fn key(name: &'static str, key_spec: u8) -> Argument {
    let mut key = argument(name, ArgumentKind::Key);
    key.key_spec = Some(key_spec);
    key
}

pub(super) const fn word(name: &'static str, token: &'static str) -> Argument {
    argument(name, ArgumentKind::PureToken).token(token)
}

pub(super) const fn one_of(name: &'static str, parts: &'static [Argument]) -> Argument {
    let mut choice = argument(name, ArgumentKind::OneOf);
    choice.parts = parts;
    choice
}

pub(super) const fn block(name: &'static str, parts: &'static [Argument]) -> Argument {
    let mut block = argument(name, ArgumentKind::Block);
    block.parts = parts;
    block
}

impl Argument {
    pub(super) const fn token(mut self, token: &'static str) -> Self {
        self.token = Some(token);
        self
    }

    pub(super) const fn since(mut self, version: &'static str) -> Self {
        self.since = Some(version);
        self
    }

    pub(super) const fn deprecated_since(mut self, version: &'static str) -> Self {
        self.deprecated_since = Some(version);
        self
    }

    pub(super) const fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    pub(super) const fn multiple(mut self) -> Self {
        self.multiple = true;
        self
    }

    pub(super) const fn multiple_token(mut self) -> Self {
        self.multiple = true;
        self.multiple_token = true;
        self
    }
}
