//! The syntax of a command as one line: `SET key value [NX | XX]`.

use std::fmt::{self, Write};

use super::{Argument, ArgumentKind, CommandSpec};

impl CommandSpec {
    /// The syntax in one line: words in upper case are literal, `[ ]` encloses optional parts, `|`
    /// separates choices, `...` follows repeatable parts.
    #[must_use]
    pub fn syntax(&self) -> String {
        let mut line = self.name.replace('|', " ").to_ascii_uppercase();
        for argument in self.arguments {
            write!(line, " {}", Place(argument)).expect("a string takes all that is written");
        }
        line
    }
}

/// An argument with its brackets and repetition.
struct Place<'a>(&'a Argument);

/// One occurrence of an argument.
struct Once<'a>(&'a Argument);

/// An argument's content, without its token.
struct Content<'a>(&'a Argument);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let argument = self.0;
        if argument.optional {
            f.write_char('[')?;
        }
        Once(argument).fmt(f)?;
        if argument.multiple && argument.kind == ArgumentKind::OneOf {
            // Not repeated: such choices are long.
            f.write_str(" ...")?;
        } else if argument.multiple_token {
            write!(f, " [{} ...]", Once(argument))?;
        } else if argument.multiple {
            write!(f, " [{} ...]", Content(argument))?;
        }
        if argument.optional {
            f.write_char(']')?;
        }
        Ok(())
    }
}

impl fmt::Display for Once<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let argument = self.0;
        if let Some(token) = argument.token
            && argument.kind != ArgumentKind::PureToken
        {
            write!(f, "{token} ")?;
        }
        // Brackets of an optional argument already group a choice.
        let bare = argument.optional && argument.token.is_none() && !argument.multiple;
        if argument.kind == ArgumentKind::OneOf && !bare {
            write!(f, "<{}>", Content(argument))
        } else {
            Content(argument).fmt(f)
        }
    }
}

impl fmt::Display for Content<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let argument = self.0;
        let separator = match argument.kind {
            ArgumentKind::OneOf => " | ",
            ArgumentKind::Block => " ",
            ArgumentKind::PureToken => return f.write_str(argument.token.unwrap_or(argument.name)),
            _ => return f.write_str(argument.name),
        };
        for (index, part) in argument.parts.iter().enumerate() {
            if index > 0 {
                f.write_str(separator)?;
            }
            Place(part).fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::command::lookup;

    #[test]
    fn lines_read_like_the_manual() {
        for (name, syntax) in [
            ("ping", "PING [message]"),
            ("mset", "MSET key value [key value ...]"),
            ("del", "DEL key [key ...]"),
            (
                "set",
                "SET key value [NX | XX] [GET] [EX seconds | PX milliseconds | \
                 EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL]",
            ),
            ("bitcount", "BITCOUNT key [start end [BYTE | BIT]]"),
            (
                "bitfield_ro",
                "BITFIELD_RO key [GET encoding offset [GET encoding offset ...]]",
            ),
            (
                "bitfield",
                "BITFIELD key [<GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] \
                 <SET encoding offset value | INCRBY encoding offset increment>> ...]",
            ),
            (
                "krange",
                "KRANGE start stop [REV] [LIMIT count] [FIELDS numfields field [field ...] | KEYS]",
            ),
        ] {
            assert_eq!(lookup(name.as_bytes()).unwrap().syntax(), syntax);
        }
        let config = lookup(b"config").unwrap();
        let set = config.subcommand(b"set").unwrap();
        assert_eq!(
            set.syntax(),
            "CONFIG SET parameter value [parameter value ...]"
        );
    }
}
