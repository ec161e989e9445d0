//! What can be wrong with a setting, and where it was found.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

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
    /// CONFIG SET.
    Command,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("command line"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Command => f.write_str("CONFIG SET"),
        }
    }
}

/// What is wrong with one setting.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettingError {
    /// The value cannot be this.
    #[error("{setting}: got {got:?}, expected {expected}")]
    Value {
        /// The setting's name.
        setting: &'static str,
        /// What was given.
        got: String,
        /// What may be given.
        expected: String,
    },
    /// Too many or too few values.
    #[error("{setting}: got {got} values, expected {expected}")]
    Count {
        /// The setting's name.
        setting: &'static str,
        /// How many were given.
        got: usize,
        /// How many may be given.
        expected: &'static str,
    },
    /// No setting has this name.
    #[error("unknown setting {got:?}, expected one of those that --help lists")]
    Unknown {
        /// What was given.
        got: String,
    },
    /// The setting stands in no relation to another one that works.
    #[error("{setting}: expected {expected}")]
    Relation {
        /// The setting's name.
        setting: &'static str,
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
        #[source]
        error: SettingError,
    },
    /// A quoted word in the file does not end, or goes on after its quote.
    #[error("{origin}: unbalanced quotes, expected a word, \"a word\" or 'a word'")]
    Quotes {
        /// Where it stands.
        origin: Origin,
    },
    /// The file cannot be read.
    #[error("cannot read configuration file {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        error: std::io::Error,
    },
    /// The relations between the settings are wrong.
    #[error("configuration: {0}")]
    Relation(#[source] SettingError),
    /// The flags are wrong, or ask for help or the version.
    #[error(transparent)]
    Flags(#[from] clap::Error),
}
