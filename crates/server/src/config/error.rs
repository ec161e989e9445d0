//! Errors of settings, and where they were found.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

use super::value;

/// Where a setting was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A command-line flag.
    Flag,
    /// A line of a configuration file, counted from 1.
    File {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("command line"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
        }
    }
}

/// The valid values of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// `yes` or `no`.
    Switch,
    /// A host and a port, or nothing.
    Target,
    /// A decimal integer in this range.
    Integer {
        /// The least value.
        least: i64,
        /// The greatest value.
        most: i64,
    },
    /// Bytes with a unit, in this range.
    Memory {
        /// The least value in bytes.
        least: u64,
        /// The greatest value in bytes.
        most: u64,
    },
    /// Bytes with a unit, or a percentage.
    MemoryShare,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Octal permissions.
    Mode,
    /// A port, or `off`.
    PortOrOff,
    /// IP addresses.
    Addresses,
    /// Percentiles.
    Percentiles,
    /// Groups of four words: class, hard limit, soft limit, seconds.
    OutputLimits(WrongLimits),
    /// Text without NUL.
    Text,
    /// A path.
    Path,
    /// The only values that change nothing.
    Only {
        /// Those values.
        values: &'static [&'static str],
        /// Why there is no other.
        why: &'static str,
    },
    /// Pairs of numbers: seconds and changes.
    SavePoints,
    /// A title of the process: known variables in braces, and not empty without the program's name.
    Title,
    /// Three scores of the out-of-memory killer.
    KillerScores(WrongScores),
}

/// What is wrong with scores of the out-of-memory killer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongScores {
    /// Not three, each behind one blank.
    Count,
    /// One that is no number from -2000 to 2000.
    Score,
}

/// What is wrong with output limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongLimits {
    /// Not groups of four.
    Count,
    /// A class other than normal, replica (slave) and pubsub.
    Class,
    /// A limit that is not an amount of memory, or not a number of seconds.
    Limit,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch => f.write_str("yes or no"),
            Self::Target => f.write_str("a host and a port, or an empty value"),
            Self::Integer {
                least: i64::MIN,
                most: i64::MAX,
            } => f.write_str("an integer"),
            Self::Integer { least, most } => write!(f, "an integer from {least} to {most}"),
            Self::MemoryShare => {
                f.write_str("bytes, with or without a unit (b, k, kb, m, mb, g, gb), or 0% to 100%")
            }
            Self::Memory {
                least: 0,
                most: u64::MAX,
            } => f.write_str("bytes, with or without a unit (b, k, kb, m, mb, g, gb)"),
            Self::Memory { least, most } => write!(
                f,
                "{least} to {most} bytes, with or without a unit (b, k, kb, m, mb, g, gb)"
            ),
            Self::OneOf(words) => write!(f, "one of {}", words.join(", ")),
            Self::Mode => f.write_str("octal permissions from 0 to 777"),
            Self::PortOrOff => f.write_str("a port from 0 to 65535, or off"),
            Self::Addresses => f.write_str("IP addresses, * or ::*, each perhaps after a -"),
            Self::Percentiles => f.write_str("numbers from 0 to 100"),
            Self::OutputLimits(_) => {
                f.write_str("groups of: normal, replica or pubsub, bytes, bytes, seconds")
            }
            Self::Text => f.write_str("one value without a NUL byte"),
            Self::Path => f.write_str("a path"),
            Self::Only { values, why } => {
                let shown = |value: &&'static str| match *value {
                    "" => "an empty value",
                    value => value,
                };
                let values: Vec<_> = values.iter().map(shown).collect();
                write!(f, "{}: {why}", values.join(" or "))
            }
            Self::SavePoints => f.write_str("pairs of seconds and changes, or an empty value"),
            Self::Title => f.write_str("a title with {title} and other variables of Redis"),
            Self::KillerScores(_) => f.write_str("three integers from -2000 to 2000"),
        }
    }
}

impl Expected {
    /// CONFIG SET's reason for refusing `got`, in Redis' words where it has some.
    pub(crate) fn reason(&self, got: &str) -> String {
        match self {
            Self::Switch => "argument must be 'yes' or 'no'".into(),
            Self::Target => "argument must be a host and a port".into(),
            Self::Integer { .. } if value::parse_integer(got).is_none() => {
                "argument couldn't be parsed into an integer".into()
            }
            Self::Integer { least, most } => {
                format!("argument must be between {least} and {most} inclusive")
            }
            Self::MemoryShare => "argument must be a memory or percent value".into(),
            Self::Memory { .. } if value::parse_memory(got).is_none() => {
                "argument must be a memory value".into()
            }
            Self::Memory { least, most } => {
                format!("argument must be between {least} and {most} inclusive")
            }
            Self::OneOf(words) => {
                format!(
                    "argument(s) must be one of the following: {}",
                    words.join(", ")
                )
            }
            Self::Percentiles
                if got
                    .split_ascii_whitespace()
                    .any(|it| it.parse::<f64>().is_err()) =>
            {
                "Invalid latency-tracking-info-percentiles parameters".into()
            }
            Self::Percentiles => {
                "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]".into()
            }
            Self::OutputLimits(WrongLimits::Count) => {
                "Wrong number of arguments in buffer limit configuration.".into()
            }
            Self::OutputLimits(WrongLimits::Class) => {
                "Invalid client class specified in buffer limit configuration.".into()
            }
            Self::OutputLimits(WrongLimits::Limit) => {
                "Error in hard, soft or soft_seconds setting in buffer limit configuration.".into()
            }
            Self::SavePoints => "Invalid save parameters".into(),
            Self::Title => "template format is invalid or contains unknown variables".into(),
            Self::KillerScores(WrongScores::Count) => "wrong number of arguments".into(),
            Self::KillerScores(WrongScores::Score) => {
                "Invalid oom-score-adj-values, elements must be between -2000 and 2000.".into()
            }
            Self::Mode
            | Self::PortOrOff
            | Self::Addresses
            | Self::Text
            | Self::Path
            | Self::Only { .. } => {
                format!("expected {self}")
            }
        }
    }
}

/// What is wrong with one setting.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettingError {
    /// The value is invalid.
    #[error("{setting}: got {got:?}, expected {expected}")]
    Value {
        /// The setting's name.
        setting: &'static str,
        /// The given value.
        got: String,
        /// The valid values.
        expected: Expected,
    },
    /// No setting has this name.
    #[error("unknown setting {got:?}, expected one of those that --help lists")]
    Unknown {
        /// The given name.
        got: String,
    },
    /// Two settings contradict each other.
    #[error("{setting}: got {got:?}, expected {expected}")]
    Relation {
        /// The setting's name.
        setting: &'static str,
        /// Its value.
        got: String,
        /// The relation that must hold.
        expected: &'static str,
    },
}

/// Why there is no configuration.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// A setting is wrong.
    #[error("{origin}: {error}")]
    Setting {
        /// Where it was given.
        origin: Origin,
        /// What is wrong.
        error: SettingError,
    },
    /// A quoted word in the file does not end, or something touches its closing quote.
    #[error("{origin}: got unbalanced quotes, expected a word, \"a word\" or 'a word'")]
    Quotes {
        /// Where it stands.
        origin: Origin,
    },
    /// A line includes a file that cannot be read.
    #[error("{origin}: cannot read {}: {error}", path.display())]
    Include {
        /// Where it is included.
        origin: Origin,
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// Files include each other without end, or too many.
    #[error("{origin}: include: got more than {most} {what}: does a file include itself?")]
    Includes {
        /// Where the last one is included.
        origin: Origin,
        /// What there are too many of.
        what: &'static str,
        /// How many there may be.
        most: usize,
    },
    /// A memcached flag asks for something that does not exist here.
    #[error("{flag} is not supported: {why}")]
    Unsupported {
        /// The flag, with its value.
        flag: String,
        /// Why.
        why: &'static str,
    },
    /// Several errors, each on a line of its own.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Several(Vec<ConfigError>),
    /// The file cannot be read.
    #[error("cannot read configuration file {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// Two settings contradict each other.
    #[error("configuration: {0}")]
    Relation(#[from] SettingError),
    /// The flags are wrong, or ask for help or the version.
    #[error(transparent)]
    Flags(#[from] clap::Error),
}
