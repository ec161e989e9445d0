//! The meaning of a command line: run a server, work on its files, or print a text.
//!
//! The configuration makes the flags; here they become subcommands. Completions and the manual page
//! are made from the same commands as `--help`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::ValueParser;
use clap::{Arg, ArgMatches, Command};
use clap_complete::Shell;

use crate::config::{self, Config, ConfigError, Setting};
use crate::offline::Offline;
use crate::reshard::Reshard;
use crate::running::Running;

/// The help on the flags of a subcommand.
const OFFLINE_HELP: &str = "\
No server may be using the data directory. The flags and the configuration file are those of the \
server, so that the same ones can be given; what does not concern the files is ignored.";

/// The same for `dump`.
const DUMP_HELP: &str = "\
Without --from, no server may be using the data directory. With it, a server that runs is dumped \
as it was at one moment, while it serves others; it is given the password of --requirepass. The \
flags and the configuration file are those of the server, so that the same ones can be given; what \
does not concern the dump is ignored.";

/// The same for `reshard`.
const RESHARD_HELP: &str = "\
The servers of both rings must run; they are given the password of --requirepass. Clients go on \
meanwhile. If it is killed, or a server is, the same command goes on; with the two rings exchanged \
it goes back. docs/SHARDING.md says more. The flags and the configuration file are those of the \
server, so that the same ones can be given; what does not concern it is ignored.";

/// Settings that concern the files; `--help` of the subcommands shows these.
const OF_FILES: [&str; 8] = [
    "dir",
    "log-dir",
    "checkpoint-dir",
    "log-segment-size",
    "engine",
    "threads",
    "databases",
    "loglevel",
];

/// See the module's header.
#[derive(Debug)]
pub enum Invocation {
    /// A server.
    Serve(Box<Config>),
    /// Work on a data directory that no server is using, or a dump of a running server.
    Offline(Offline, Box<Config>),
    /// A text for the standard output.
    Print(Vec<u8>),
}

impl Invocation {
    /// Parses a command line; the first of `arguments` is the program's name.
    pub fn from_command_line<A: Into<OsString> + Clone>(
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Self, ConfigError> {
        let settings: Vec<_> = Setting::all().collect();
        let matches = command(&settings).try_get_matches_from(arguments)?;
        let serve = |config| Self::Serve(Box::new(config));
        let (offline, matches) = match matches.subcommand() {
            None => return config::read(&matches).map(serve),
            Some(("memcached", matches)) => return config::memcached::read(matches).map(serve),
            Some(("completions", matches)) => {
                let shell = matches.get_one("shell").copied();
                return Ok(Self::Print(completions(shell.unwrap_or(Shell::Bash))));
            }
            Some(("man", matches)) => {
                let subcommand = matches.get_one::<String>("subcommand");
                return Ok(Self::Print(manual(subcommand.map(String::as_str))));
            }
            Some(("check", matches)) => (Offline::Check, matches),
            Some(("reshard", matches)) => (Offline::Reshard(reshard(matches)), matches),
            Some(("dump", matches)) => (Offline::Dump(running(matches)), matches),
            Some((_, matches)) => {
                let stream = matches.get_one::<PathBuf>("stream");
                (Offline::Load(stream.cloned()), matches)
            }
        };
        Ok(Self::Offline(offline, Box::new(config::read(matches)?)))
    }
}

/// What `pando reshard` is to move.
fn reshard(matches: &ArgMatches) -> Reshard {
    let path = |name| {
        matches
            .get_one::<PathBuf>(name)
            .cloned()
            .unwrap_or_default()
    };
    Reshard {
        old: path("ring"),
        new: path("to"),
        dry_run: matches.get_flag("dry-run"),
        rate: matches.get_one("rate").copied(),
    }
}

/// The server that `pando dump` is to read, if it is a running one.
fn running(matches: &ArgMatches) -> Option<Running> {
    let text = |name| matches.get_one::<String>(name).cloned();
    text("from").map(|address| Running {
        address,
        snapshot: text("snapshot"),
    })
}

/// HOST:PORT.
fn address(text: &str) -> Result<String, &'static str> {
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && is_port(port) => Ok(text.to_owned()),
        _ => Err("HOST:PORT is expected, as in localhost:6379 or [::1]:6379"),
    }
}

/// The syntax of the command line, with a flag for each of these settings.
fn command(settings: &[&'static Setting]) -> Command {
    let stream = Arg::new("stream")
        .value_name("FILE")
        .value_parser(ValueParser::path_buf())
        .help("File to load; by default the standard input");
    let shell = Arg::new("shell")
        .required(true)
        .value_parser(clap::value_parser!(Shell))
        .help("Shell to generate completions for");
    let page = Arg::new("subcommand")
        .value_name("COMMAND")
        .value_parser(["check", "dump", "load", "memcached", "reshard"])
        .help("Subcommand whose page to print; by default that of pando");
    let from = Arg::new("from")
        .long("from")
        .value_name("HOST:PORT")
        .value_parser(address)
        .help("Running server to dump; by default the data directory is dumped");
    let snapshot = Arg::new("snapshot")
        .long("snapshot")
        .value_name("NAME")
        .requires("from")
        .help("Snapshot of that server to dump; by default one is created and dropped again");
    let offline = |name: &'static str, about: &'static str| {
        let flags = settings.iter().map(|setting| {
            let hidden = !OF_FILES.contains(&setting.name);
            config::flag(setting).hide(hidden)
        });
        Command::new(name)
            .about(about)
            .after_help(OFFLINE_HELP)
            .arg(config::file().long("config"))
            .args(flags)
    };
    let flags = || settings.iter().map(|setting| config::flag(setting));
    config::command(flags())
        .args_conflicts_with_subcommands(true)
        .subcommand(offline(
            "check",
            "Read every file of a data directory and say what is there",
        ))
        .subcommand(
            offline("dump", "Write every key to the standard output, for load")
                .after_help(DUMP_HELP)
                .mut_arg("requirepass", |flag| flag.hide(false))
                .args([from, snapshot]),
        )
        .subcommand(
            offline(
                "load",
                "Read such a stream, or a dump file of Redis, into a data directory",
            )
            .arg(stream),
        )
        .subcommand(reshard_command(flags()))
        .subcommand(config::memcached::command(flags()))
        .subcommand(
            Command::new("completions")
                .about("Print shell completions")
                .arg(shell),
        )
        .subcommand(
            Command::new("man")
                .about("Print the manual page of pando or of a subcommand, for man -l -")
                .arg(page),
        )
}

/// The syntax of `pando reshard`.
fn reshard_command(flags: impl Iterator<Item = Arg>) -> Command {
    let ring = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("FILE")
            .required(true)
            .value_parser(ValueParser::path_buf())
            .help(help)
    };
    Command::new("reshard")
        .about("Move what a changed ring moves between running servers")
        .after_help(RESHARD_HELP)
        .arg(config::file().long("config"))
        .args(flags.map(|flag| flag.hide(true)))
        .mut_arg("requirepass", |flag| flag.hide(false))
        .args([
            ring("ring", "Ring file by which keys are placed now"),
            ring("to", "Ring file by which they are to be placed"),
            Arg::new("dry-run")
                .long("dry-run")
                .action(clap::ArgAction::SetTrue)
                .help("Only count the keys that would move"),
            Arg::new("rate")
                .long("rate")
                .value_name("KEYS")
                .value_parser(clap::value_parser!(u64).range(1..))
                .help("Copy and remove no more keys than this in a second"),
        ])
}

/// The command line as documents show it: without Redis-only settings.
fn documented() -> Command {
    let settings: Vec<_> = Setting::all().filter(|setting| !setting.foreign).collect();
    command(&settings)
}

fn completions(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut documented(), "pando", &mut text);
    text
}

/// The manual page of a subcommand, or that of all.
fn manual(subcommand: Option<&str>) -> Vec<u8> {
    let mut command = documented();
    // From here on a subcommand knows its full name.
    command.build();
    let found = subcommand.and_then(|name| command.find_subcommand(name));
    let page = clap_mangen::Man::new(found.unwrap_or(&command).clone());
    let mut text = Vec::new();
    let rendered = page.render(&mut text);
    rendered.expect("memory takes what is written");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invoke(arguments: &[&str]) -> Result<Invocation, String> {
        let arguments = std::iter::once(&"pando").chain(arguments);
        Invocation::from_command_line(arguments).map_err(|error| error.to_string())
    }

    fn printed(arguments: &[&str]) -> String {
        match invoke(arguments) {
            Ok(Invocation::Print(text)) => String::from_utf8(text).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_syntax_is_sound() {
        let settings: Vec<_> = Setting::all().collect();
        command(&settings).debug_assert();
        documented().debug_assert();
    }

    #[test]
    fn help_is_of_the_subcommand() {
        for (arguments, there, not_there) in [
            (
                &["help"][..],
                &["--maxclients", "memcached", "check"][..],
                "--hz",
            ),
            (
                &["check", "--help"],
                &["pando check", "--data-dir"],
                "--maxclients",
            ),
            (&["help", "load"], &["pando load", "[FILE]"], "--maxclients"),
            (
                &["memcached", "-h"],
                &["--memory-limit", "-I,"],
                "--max-memory",
            ),
        ] {
            let told = invoke(arguments).unwrap_err();
            for part in there {
                assert!(told.contains(part), "{part} is missing in {told}");
            }
            assert!(!told.contains(not_there), "{not_there} is in {told}");
        }
    }

    #[test]
    fn files_go_to_who_reads_them() {
        let load = invoke(&["load", "dump", "--data-dir", "d"]);
        let Ok(Invocation::Offline(Offline::Load(Some(stream)), config)) = load else {
            panic!("{load:?}");
        };
        assert_eq!(
            (stream.to_str(), config.data_dir.to_str()),
            (Some("dump"), Some("d"))
        );
        assert!(invoke(&["--port", "1", "check"]).is_err());
        let told = invoke(&["no-such-command"]).unwrap_err();
        assert!(told.contains("no-such-command"), "{told}");
    }

    #[test]
    fn a_running_server_is_dumped_by_its_address() {
        let dumped = |arguments: &[&str]| match invoke(arguments)? {
            Invocation::Offline(Offline::Dump(running), config) => Ok((running, config.password)),
            other => panic!("{other:?}"),
        };
        let of = |address: &str, snapshot: Option<&str>| {
            Some(Running {
                address: address.into(),
                snapshot: snapshot.map(Into::into),
            })
        };
        assert_eq!(dumped(&["dump"]), Ok((None, vec![])));
        let all = "dump --from [::1]:7000 --snapshot monday --requirepass secret";
        let all: Vec<&str> = all.split(' ').collect();
        let expected = (of("[::1]:7000", Some("monday")), b"secret".to_vec());
        assert_eq!(dumped(&all), Ok(expected));
        assert_eq!(
            dumped(&["dump", "--from=h:1"]),
            Ok((of("h:1", None), vec![]))
        );
        for (arguments, told) in [
            (
                &["dump", "--from", "localhost"][..],
                "HOST:PORT is expected",
            ),
            (&["dump", "--from", ":6379"], "HOST:PORT is expected"),
            (&["dump", "--from", "h:66000"], "HOST:PORT is expected"),
            (&["dump", "--snapshot", "monday"], "--from"),
        ] {
            let error: String = dumped(arguments).unwrap_err();
            assert!(error.contains(told), "{arguments:?}: {error}");
        }
        let help = invoke(&["help", "dump"]).unwrap_err();
        for part in [
            "--from <HOST:PORT>",
            "--snapshot <NAME>",
            "--requirepass",
            "--data-dir",
        ] {
            assert!(help.contains(part), "{part}: {help}");
        }
    }

    #[test]
    fn completions_and_the_manual_know_every_flag() {
        let settings = || Setting::all().filter(|setting| !setting.foreign);
        for text in [
            printed(&["completions", "bash"]),
            printed(&["completions", "zsh"]),
            printed(&["completions", "fish"]),
            printed(&["man"]).replace("\\-", "-"),
        ] {
            for setting in settings() {
                assert!(text.contains(setting.flag()), "{}", setting.flag());
            }
            assert!(!text.contains("rdbchecksum"));
        }
        assert!(invoke(&["completions", "cmd"]).is_err());
        let page = printed(&["man", "dump"]).replace("\\-", "-");
        for part in [
            "pando-dump",
            "--from",
            "--snapshot",
            "--requirepass",
            "--data-dir",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert!(!page.contains("--maxclients"), "{page}");
        assert!(invoke(&["man", "nosuch"]).is_err());
    }
}
