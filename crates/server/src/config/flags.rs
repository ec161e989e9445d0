//! The command line: one flag for each setting, made from the table.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, Command};

use super::Config;
use super::error::{ConfigError, Origin};
use super::file::Reading;
use super::setting::Setting;

const ABOUT: &str = "An ordered in-memory database on one shared tree, for clients of Redis";

const AFTER_HELP: &str = "\
pando check, pando dump and pando load work on the data directory while no server uses it: they \
check its files, write its keys to the standard output, read such a stream from the standard input.

Every flag is also a line of the configuration file (name value), and a parameter of CONFIG GET; \
names that Redis has are understood too. Flags win over the file. Amounts of memory take the units \
b, k, kb, m, mb, g and gb.";

impl Config {
    /// The configuration that a command line asks for: defaults, then the file, then flags. The
    /// first of `arguments` is the program's name.
    pub fn from_command_line<A: Into<OsString> + Clone>(
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Self, ConfigError> {
        let matches = command().try_get_matches_from(arguments)?;
        let mut reading = Reading::default();
        if let Some(path) = matches.get_one::<PathBuf>("config") {
            reading.file(path);
        }
        for setting in Setting::all() {
            if let Some(values) = matches.get_many::<String>(setting.name) {
                let value = values.map(String::as_str).collect::<Vec<_>>().join(" ");
                reading.set(setting.name.as_bytes(), value.as_bytes(), Origin::Flag);
            }
        }
        reading.finish()
    }
}

/// The command line's syntax.
fn command() -> Command {
    let defaults = Config::default();
    let config = Arg::new("config")
        .long("config")
        .value_name("FILE")
        .value_parser(ValueParser::path_buf())
        .help("Configuration file");
    let mut command = Command::new("pando")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .after_help(AFTER_HELP)
        .arg(config);
    for setting in Setting::all() {
        let default = String::from_utf8_lossy(&setting.get(&defaults)).into_owned();
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
        let mut argument = Arg::new(setting.name)
            .long(setting.flag())
            .value_name(if setting.list { "VALUES" } else { "VALUE" })
            .allow_hyphen_values(true)
            .action(action)
            .hide(setting.foreign)
            .help(format!("{} [default: {shown}]", setting.meaning));
        if setting.own_name.is_some() {
            argument = argument.alias(setting.name);
        }
        command = command.arg(argument);
    }
    command
}
