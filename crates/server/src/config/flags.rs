//! Flags: one for each setting, made from the table.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::Config;
use super::error::{ConfigError, Origin};
use super::file::Reading;
use super::setting::Setting;

const ABOUT: &str = "An ordered in-memory database on one shared tree, for clients of Redis";

const AFTER_HELP: &str = "\
Every flag is also a line of the configuration file (name value), and a parameter of CONFIG GET; \
names that Redis has are understood too, in a redis.conf and as flags. Flags win over the file. \
Amounts of memory take the units b, k, kb, m, mb, g and gb.";

impl Config {
    /// The server's configuration from a command line: defaults, then the file, then flags. The
    /// first of `arguments` is the program's name.
    pub fn from_command_line<A: Into<OsString> + Clone>(
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Self, ConfigError> {
        read(&command(Setting::all().map(flag)).try_get_matches_from(arguments)?)
    }
}

/// The command line of the server, with these flags.
pub(crate) fn command(flags: impl Iterator<Item = Arg>) -> Command {
    // FILE is Redis' way to name it; the flag is an alternative.
    let named = file().long("config").conflicts_with("file");
    Command::new("pando")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .after_help(AFTER_HELP)
        .arg(file().id("file"))
        .arg(named)
        .args(flags)
}

/// The configuration file.
pub(crate) fn file() -> Arg {
    Arg::new("config")
        .value_name("FILE")
        .value_parser(ValueParser::path_buf())
        .help("Configuration file, as of Redis; - is the standard input")
}

/// The flag of a setting.
pub(crate) fn flag(setting: &'static Setting) -> Arg {
    let default = String::from_utf8_lossy(&setting.get(&Config::default())).into_owned();
    let shown = if default.is_empty() {
        "none".to_owned()
    } else {
        default
    };
    let action = if setting.list {
        ArgAction::Append
    } else {
        ArgAction::Set
    };
    let argument = Arg::new(setting.name)
        .long(setting.flag())
        .value_name(if setting.list { "VALUES" } else { "VALUE" })
        .allow_hyphen_values(true)
        .action(action)
        .hide(setting.foreign)
        .help(format!("{} [default: {shown}]", setting.meaning));
    match setting.own_name {
        Some(_) => argument.alias(setting.name),
        None => argument,
    }
}

/// The configuration from a file and flags.
pub(crate) fn read(matches: &ArgMatches) -> Result<Config, ConfigError> {
    let mut reading = Reading::default();
    for name in ["config", "file"] {
        if let Ok(Some(path)) = matches.try_get_one::<PathBuf>(name) {
            reading.file(path);
        }
    }
    read_flags(&mut reading, matches, |_| true);
    reading.finish()
}

/// Takes the settings given as flags, those of `names` only.
pub(super) fn read_flags(
    reading: &mut Reading,
    matches: &ArgMatches,
    names: impl Fn(&str) -> bool,
) {
    for setting in Setting::all().filter(|setting| names(setting.name)) {
        if let Ok(Some(values)) = matches.try_get_many::<String>(setting.name) {
            let value = values.map(String::as_str).collect::<Vec<_>>().join(" ");
            reading.set(setting.name.as_bytes(), value.as_bytes(), Origin::Flag);
        }
    }
}
