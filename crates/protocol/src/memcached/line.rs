//! One request: the words of its line, and the data after a storage command.

use crate::{ArgumentRange, Request};

/// A decoded request. Argument 0 of the underlying [`Request`] is the block of data with its line
/// end, empty if there is none; the words of the line follow.
#[derive(Clone, Copy, Debug)]
pub struct Line<'r> {
    request: Request<'r>,
}

/// The command named by the first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verb {
    /// `get`, and `bget`, its old name.
    Get,
    /// `get` with cas tokens.
    Gets,
    /// `get` that also sets the expiry.
    Gat,
    /// `gat` with cas tokens.
    Gats,
    /// Stores.
    Set,
    /// Stores if the item is absent.
    Add,
    /// Stores if the item exists.
    Replace,
    /// Appends to the item.
    Append,
    /// Prepends to the item.
    Prepend,
    /// Stores if nobody has since.
    Cas,
    /// Adds to a number.
    Incr,
    /// Subtracts from a number.
    Decr,
    /// Removes.
    Delete,
    /// Sets the expiry.
    Touch,
    /// Removes everything, now or later.
    FlushAll,
    /// Would set the log level.
    Verbosity,
    /// Statistics.
    Stats,
    /// The version.
    Version,
    /// Ends the connection.
    Quit,
    /// Sets the memory limit.
    CacheMemlimit,
    /// Would stop the server.
    Shutdown,
    /// Does nothing: marks the end of quiet requests.
    MetaNoop,
    /// Reads an item or facts about it.
    MetaGet,
    /// Stores.
    MetaSet,
    /// Removes, or marks stale.
    MetaDelete,
    /// Adds to a number, or subtracts.
    MetaArithmetic,
    /// All facts about an item, for people.
    MetaDebug,
    /// Not a command.
    Unknown,
}

impl Verb {
    /// Every real command, in the order of their numbers.
    pub const ALL: [Self; 27] = [
        Self::Get,
        Self::Gets,
        Self::Gat,
        Self::Gats,
        Self::Set,
        Self::Add,
        Self::Replace,
        Self::Append,
        Self::Prepend,
        Self::Cas,
        Self::Incr,
        Self::Decr,
        Self::Delete,
        Self::Touch,
        Self::FlushAll,
        Self::Verbosity,
        Self::Stats,
        Self::Version,
        Self::Quit,
        Self::CacheMemlimit,
        Self::Shutdown,
        Self::MetaNoop,
        Self::MetaGet,
        Self::MetaSet,
        Self::MetaDelete,
        Self::MetaArithmetic,
        Self::MetaDebug,
    ];

    /// The command named by a line's first word.
    #[must_use]
    #[inline]
    pub fn of(name: &[u8]) -> Self {
        match name {
            b"get" | b"bget" => Self::Get,
            b"gets" => Self::Gets,
            b"mg" => Self::MetaGet,
            b"ms" => Self::MetaSet,
            b"set" => Self::Set,
            b"gat" => Self::Gat,
            b"gats" => Self::Gats,
            b"add" => Self::Add,
            b"replace" => Self::Replace,
            b"append" => Self::Append,
            b"prepend" => Self::Prepend,
            b"cas" => Self::Cas,
            b"incr" => Self::Incr,
            b"decr" => Self::Decr,
            b"delete" => Self::Delete,
            b"touch" => Self::Touch,
            b"flush_all" => Self::FlushAll,
            b"verbosity" => Self::Verbosity,
            b"stats" => Self::Stats,
            b"version" => Self::Version,
            b"quit" => Self::Quit,
            b"cache_memlimit" => Self::CacheMemlimit,
            b"shutdown" => Self::Shutdown,
            b"mn" => Self::MetaNoop,
            b"md" => Self::MetaDelete,
            b"ma" => Self::MetaArithmetic,
            b"me" => Self::MetaDebug,
            _ => Self::Unknown,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Gets => "gets",
            Self::Gat => "gat",
            Self::Gats => "gats",
            Self::Set => "set",
            Self::Add => "add",
            Self::Replace => "replace",
            Self::Append => "append",
            Self::Prepend => "prepend",
            Self::Cas => "cas",
            Self::Incr => "incr",
            Self::Decr => "decr",
            Self::Delete => "delete",
            Self::Touch => "touch",
            Self::FlushAll => "flush_all",
            Self::Verbosity => "verbosity",
            Self::Stats => "stats",
            Self::Version => "version",
            Self::Quit => "quit",
            Self::CacheMemlimit => "cache_memlimit",
            Self::Shutdown => "shutdown",
            Self::MetaNoop => "mn",
            Self::MetaGet => "mg",
            Self::MetaSet => "ms",
            Self::MetaDelete => "md",
            Self::MetaArithmetic => "ma",
            Self::MetaDebug => "me",
            Self::Unknown => "unknown",
        }
    }

    /// Whether it stores the data after its line.
    #[must_use]
    #[inline]
    pub const fn stores(self) -> bool {
        matches!(
            self,
            Self::Set
                | Self::Add
                | Self::Replace
                | Self::Append
                | Self::Prepend
                | Self::Cas
                | Self::MetaSet
        )
    }

    /// Whether it may change the keyspace, whatever its words; for `mg`, [`Line::writes`] decides.
    #[inline]
    const fn writes(self) -> bool {
        self.stores()
            || matches!(
                self,
                Self::Gat
                    | Self::Gats
                    | Self::Incr
                    | Self::Decr
                    | Self::Delete
                    | Self::Touch
                    | Self::FlushAll
                    | Self::MetaDelete
                    | Self::MetaArithmetic
            )
    }

    /// The index of the first key; further keys follow if the command takes several.
    #[must_use]
    #[inline]
    pub const fn first_key(self) -> Option<usize> {
        match self {
            Self::Gat | Self::Gats => Some(2),
            Self::FlushAll
            | Self::Verbosity
            | Self::Stats
            | Self::Version
            | Self::Quit
            | Self::CacheMemlimit
            | Self::Shutdown
            | Self::MetaNoop
            | Self::Unknown => None,
            _ => Some(1),
        }
    }
}

impl<'r> Line<'r> {
    /// A line found by [`super::Decoder`].
    #[must_use]
    #[inline]
    pub const fn new(request: Request<'r>) -> Self {
        Self { request }
    }

    /// Makes a line from a buffer and ranges: the data's first.
    #[must_use]
    #[inline]
    pub const fn of_ranges(buffer: &'r [u8], ranges: &'r [ArgumentRange]) -> Self {
        Self::new(Request::new(buffer, ranges))
    }

    /// The command.
    #[must_use]
    #[inline]
    pub fn verb(&self) -> Verb {
        self.word(0).map_or(Verb::Unknown, Verb::of)
    }

    /// Whether its last word is one of HTTP.
    #[must_use]
    pub fn is_http(&self) -> bool {
        let last = self.words_from(0).last();
        last.is_some_and(|word| word.starts_with(b"HTTP/"))
    }

    /// The number of words, including the command.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.request.len() - 1
    }

    /// Whether it has no words.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A word; 0 is the command.
    #[must_use]
    #[inline]
    pub fn word(&self, index: usize) -> Option<&'r [u8]> {
        self.request.get(index + 1)
    }

    /// The words from `first` on.
    #[inline]
    pub fn words_from(
        &self,
        first: usize,
    ) -> impl ExactSizeIterator<Item = &'r [u8]> + Clone + use<'r> {
        self.request.args_from(first + 1)
    }

    /// Whether it may change the keyspace: a request of `verb`, which is this line's. An `mg` does
    /// if it sets an expiry (`T`), makes an item (`N`) or renews one (`R`).
    #[must_use]
    #[inline]
    pub fn writes(&self, verb: Verb) -> bool {
        match verb {
            Verb::MetaGet => {
                let mut flags = self.words_from(2);
                flags.any(|flag| matches!(flag.first(), Some(b'T' | b'N' | b'R')))
            }
            _ => verb.writes(),
        }
    }

    /// Whether the last word asks for no reply.
    #[must_use]
    #[inline]
    pub fn is_noreply(&self) -> bool {
        self.request.arg(self.len()) == b"noreply"
    }

    /// The data without their line end: `None` when the command line announced none that are
    /// accepted, an error when they are not followed by a line end.
    #[must_use]
    #[inline]
    pub fn data(&self) -> Option<Result<&'r [u8], &'static str>> {
        match self.request.arg(0) {
            [] => None,
            [data @ .., b'\r', b'\n'] => Some(Ok(data)),
            _ => Some(Err(super::error::BAD_DATA)),
        }
    }

    /// Bytes of its words and data.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> usize {
        self.request.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_at_an_item_writes_only_with_flags() {
        for (words, writes) in [
            ("get k", false),
            ("gat 0 k", true),
            ("touch k 0", true),
            ("delete k", true),
            ("flush_all", true),
            ("set k", true),
            ("ms k", true),
            ("ma k", true),
            ("me T", false),
            ("mg", false),
            ("mg T", false),
            ("mg k v t s f c h l", false),
            ("mg k v T0", true),
            ("mg k N30 v", true),
            ("mg k R30", true),
        ] {
            let words = std::iter::once("").chain(words.split(' '));
            let buffer = crate::RequestBuffer::from_args(words);
            let line = Line::new(buffer.as_request());
            assert_eq!(line.writes(line.verb()), writes, "{:?}", line.word(0));
        }
    }

    #[test]
    fn every_verb_has_its_name_and_number() {
        for (number, verb) in Verb::ALL.into_iter().enumerate() {
            assert_eq!(Verb::of(verb.name().as_bytes()), verb);
            assert_eq!(verb as usize, number);
        }
        assert_eq!(Verb::Unknown as usize, Verb::ALL.len());
        assert_eq!(Verb::of(b"GET"), Verb::Unknown);
        assert_eq!(Verb::of(b"bget"), Verb::Get);
    }
}
