//! `pando memcached`: a server that takes memcached's flags and behaves as memcached does with
//! them.
//!
//! Flags become settings: only the port for memcached clients is open, keys are in memory only, in
//! a hash table, and the least recently used ones are evicted when memory is full. As in memcached,
//! all addresses are listened on unless some are named. A flag that tunes something absent here
//! (slabs, large pages, …) is accepted and ignored; one that would change what clients see is
//! refused. Every server setting is a flag here too, unless memcached has a flag of that name, and
//! wins.

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::Config;
use super::error::{ConfigError, Origin};
use super::file::Reading;
use super::flags::read_flags;
use crate::process;

const ABOUT: &str = "Serves memcached clients only, with memcached's flags";

const AFTER_HELP: &str = "\
Where memcached has more flags, those that tune what is not here are accepted and mean nothing: \
-C -D -f -k -L -n -r -R -W and most of -o. So is -u, unless root runs the server. The other flags \
of pando are understood too, but for --port, which is memcached's here.

Other hosts are refused unless -l names addresses, or --protected-mode no is given.";

/// What a flag's value sets, or why it sets nothing.
#[derive(Clone, Copy)]
enum Meaning {
    /// A setting, after a change of notation.
    Setting(&'static str, fn(&str) -> String),
    /// Nothing: it tunes something absent here.
    Nothing,
    /// It is refused.
    Refused(&'static str),
}

use Meaning::{Nothing, Refused, Setting};

struct Flag {
    short: char,
    long: &'static str,
    /// Whether it takes a value.
    valued: bool,
    help: &'static str,
    meaning: Meaning,
}

const fn valued(short: char, long: &'static str, help: &'static str, meaning: Meaning) -> Flag {
    Flag {
        short,
        long,
        valued: true,
        help,
        meaning,
    }
}

const fn switch(short: char, long: &'static str, help: &'static str, meaning: Meaning) -> Flag {
    Flag {
        short,
        long,
        valued: false,
        help,
        meaning,
    }
}

/// memcached's flags; those without a help text are hidden.
const FLAGS: &[Flag] = &[
    valued(
        'p',
        "port",
        "TCP port; 0 is none, -1 any free one [default: 11211]",
        Setting("memcached-port", port),
    ),
    valued(
        'U',
        "udp-port",
        "UDP port of the first worker, the others' follow; 0 is none [default: 0]",
        Setting("memcached-udp-port", port),
    ),
    valued(
        's',
        "unix-socket",
        "Path of a Unix socket; no port is listened on then",
        Setting("memcached-socket", str::to_owned),
    ),
    valued(
        'a',
        "unix-mask",
        "Permissions of the Unix socket, octal [default: 700]",
        Setting("unixsocketperm", str::to_owned),
    ),
    valued(
        'l',
        "listen",
        "Addresses to listen on, separated by commas [default: all]",
        Setting("bind", addresses),
    ),
    valued(
        'm',
        "memory-limit",
        "Megabytes of memory in all beyond which items are evicted [default: 64]",
        Setting("maxmemory", megabytes),
    ),
    switch(
        'M',
        "disable-evictions",
        "Refuse to store when memory is full",
        Setting("maxmemory-policy", |_| "noeviction".into()),
    ),
    valued(
        'c',
        "conn-limit",
        "Connections at a time [default: 1024]",
        Setting("maxclients", str::to_owned),
    ),
    valued(
        't',
        "threads",
        "Workers [default: 4]",
        Setting("threads", str::to_owned),
    ),
    valued(
        'b',
        "listen-backlog",
        "Connections that the kernel holds before they are accepted [default: 1024]",
        Setting("tcp-backlog", str::to_owned),
    ),
    valued(
        'I',
        "max-item-size",
        "Most data of an item; k and m are units of 1024 [default: 1m]",
        Setting("memcached-item-bytes-max", item_bytes),
    ),
    valued(
        'P',
        "pidfile",
        "File that holds the number of the process",
        Setting("pidfile", str::to_owned),
    ),
    valued('u', "user", "", Nothing),
    switch('k', "lock-memory", "", Nothing),
    switch('L', "enable-largepages", "", Nothing),
    switch('r', "enable-coredumps", "", Nothing),
    switch('C', "disable-cas", "", Nothing),
    switch('W', "disable-watch", "", Nothing),
    valued('f', "slab-growth-factor", "", Nothing),
    valued('n', "slab-min-size", "", Nothing),
    valued('R', "max-reqs-per-event", "", Nothing),
    valued('D', "stat-delimiter", "", Nothing),
    valued('o', "extended", "", Nothing),
    valued('B', "protocol", "", Nothing),
    switch(
        'd',
        "daemon",
        "",
        Refused("the server stays in the foreground, start it with & or by systemd"),
    ),
    switch(
        'A',
        "enable-shutdown",
        "",
        Refused("a signal stops the server"),
    ),
    switch(
        'F',
        "disable-flush-all",
        "",
        Refused("flush_all is always there"),
    ),
    switch(
        'X',
        "disable-dumping",
        "",
        Refused("dumping is as the server has it"),
    ),
    switch(
        'S',
        "enable-sasl",
        "",
        Refused("--requirepass sets a password"),
    ),
    valued(
        'Y',
        "auth-file",
        "",
        Refused("--requirepass sets a password"),
    ),
    valued(
        'e',
        "memory-file",
        "",
        Refused("memory is not kept in a file"),
    ),
    switch(
        'Z',
        "enable-ssl",
        "",
        Refused("the server does not speak TLS"),
    ),
];

/// memcached's defaults, as settings.
const DEFAULTS: &[(&str, &str)] = &[
    ("port", "off"),
    ("memcached-port", "11211"),
    ("bind", "* -::*"),
    ("durability", "none"),
    ("engine", "mercury"),
    ("maxmemory", "64mb"),
    ("maxmemory-policy", "allkeys-lru"),
    ("maxclients", "1024"),
    ("threads", "4"),
    ("tcp-backlog", "1024"),
    ("databases", "1"),
    ("loglevel", "warning"),
];

/// The subcommand, beside flags for settings.
pub(crate) fn command(flags: impl Iterator<Item = Arg>) -> Command {
    let mut command = Command::new("memcached")
        .about(ABOUT)
        .version(env!("CARGO_PKG_VERSION"))
        .after_help(AFTER_HELP);
    for flag in FLAGS {
        let argument = Arg::new(flag.long)
            .short(flag.short)
            .long(flag.long)
            .allow_hyphen_values(flag.valued)
            .hide(flag.help.is_empty())
            .help(flag.help);
        command = command.arg(if flag.valued {
            argument.value_name("VALUE").action(ArgAction::Append)
        } else {
            argument.action(ArgAction::SetTrue)
        });
    }
    let verbose = Arg::new("verbose")
        .short('v')
        .long("verbose")
        .action(ArgAction::Count)
        .help("Log more; twice, and three times, still more");
    let is_free = |flag: &Arg| {
        !is_memcacheds(flag.get_id().as_str()) && !flag.get_long().is_some_and(is_memcacheds)
    };
    let flags = flags.filter(is_free).map(|flag| flag.hide(true));
    command.arg(verbose).args(flags)
}

/// Whether a name is one of memcached's flags.
fn is_memcacheds(name: &str) -> bool {
    FLAGS.iter().any(|flag| flag.long == name)
}

/// The configuration from these flags.
pub(crate) fn read(matches: &ArgMatches) -> Result<Config, ConfigError> {
    let mut reading = Reading::default();
    let mut set = |name: &str, value: &str| {
        reading.set(name.as_bytes(), value.as_bytes(), Origin::Flag);
    };
    for (name, value) in DEFAULTS {
        set(name, value);
    }
    let given =
        |long: &str| matches.value_source(long) == Some(clap::parser::ValueSource::CommandLine);
    if given("unix-socket") {
        set("memcached-port", "off");
        set("unixsocketperm", "700");
    }
    if given("listen") {
        set("protected-mode", "no");
    }
    set("loglevel", verbosity(matches.get_count("verbose")));
    for flag in FLAGS.iter().filter(|flag| given(flag.long)) {
        let value = if flag.valued {
            let values = matches.get_many::<String>(flag.long).into_iter().flatten();
            values.map(String::as_str).collect::<Vec<_>>().join(",")
        } else {
            String::new()
        };
        match flag.meaning {
            // With a Unix socket, a port means nothing, as in memcached.
            Setting("memcached-port", _) if given("unix-socket") => {}
            Setting(name, notation) => {
                reading.set(name.as_bytes(), notation(&value).as_bytes(), Origin::Flag);
            }
            Nothing => {
                if let Some(why) = refused(flag.long, &value) {
                    reading.refuse(refusal(flag, &value, why));
                }
            }
            Refused(why) => reading.refuse(refusal(flag, &value, why)),
        }
    }
    if let Some(seconds) = idle_timeout(matches) {
        reading.set(b"timeout", seconds.as_bytes(), Origin::Flag);
    }
    read_flags(&mut reading, matches, |name| !is_memcacheds(name));
    reading.finish()
}

fn refusal(flag: &Flag, value: &str, why: &'static str) -> ConfigError {
    let flag = format!("--{} {value}", flag.long).trim_end().to_owned();
    ConfigError::Unsupported { flag, why }
}

/// Why a value of a mostly ignored flag is refused.
fn refused(long: &str, value: &str) -> Option<&'static str> {
    match long {
        "protocol" if !matches!(value, "ascii" | "auto") => {
            Some("the binary protocol is not spoken")
        }
        "user" if value != "root" && process::is_root() => {
            Some("whoever starts the server chooses its user (User= of systemd, or su)")
        }
        "extended" if value.split(',').any(|option| option.starts_with("ext_")) => {
            Some("items are kept in memory only")
        }
        _ => None,
    }
}

/// `-o idle_timeout=SECONDS`.
fn idle_timeout(matches: &ArgMatches) -> Option<&str> {
    let options = matches.get_many::<String>("extended")?;
    let mut options = options.flat_map(|options| options.split(','));
    options.find_map(|option| option.strip_prefix("idle_timeout="))
}

fn verbosity(count: u8) -> &'static str {
    match count {
        0 => "warning",
        1 => "notice",
        2 => "verbose",
        _ => "debug",
    }
}

/// memcached counts ports from 1: 0 is none, -1 any.
fn port(value: &str) -> String {
    match value {
        "0" => "off".into(),
        "-1" => "0".into(),
        port => port.into(),
    }
}

fn addresses(value: &str) -> String {
    value
        .replace("localhost", "127.0.0.1 -::1")
        .replace(',', " ")
}

fn megabytes(value: &str) -> String {
    format!("{value}mb")
}

/// In memcached, `k` and `m` are units of 1024.
fn item_bytes(value: &str) -> String {
    let lower = value.to_ascii_lowercase();
    if lower.ends_with(['k', 'm']) {
        lower + "b"
    } else {
        lower
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::flags::flag;
    use crate::config::setting::Setting;
    use pando_db::{Durability, EngineKind, EvictionPolicy};

    fn config(flags: &[&str]) -> Result<Config, String> {
        let flags = std::iter::once(&"memcached").chain(flags);
        let matches = command(Setting::all().map(flag)).try_get_matches_from(flags);
        let matches = matches.map_err(|error| error.to_string())?;
        read(&matches).map_err(|error| error.to_string())
    }

    #[test]
    fn without_flags_it_is_what_memcached_is() {
        let config = config(&[]).unwrap();
        assert_eq!((config.port, config.memcached_port), (None, Some(11211)));
        assert_eq!(config.memcached_udp_port, None);
        assert_eq!((config.max_memory, config.clients_max), (64 << 20, 1024));
        assert_eq!(config.eviction_policy, EvictionPolicy::AllKeysLru);
        assert_eq!(config.durability, Durability::None);
        assert_eq!(config.engine, EngineKind::Mercury);
        assert_eq!(
            (config.threads, config.memcached_item_bytes_max),
            (4, 1 << 20)
        );
        assert!(config.bind.iter().all(|bind| bind.ip.is_unspecified()));
        assert!(config.protected_mode);
        assert_eq!(config.remarks, Vec::<String>::new());
    }

    #[test]
    fn usual_flags_are_taken() {
        let flags = "-p 11999 -U 0 -m 1024 -c 4096 -t 8 -l 127.0.0.1,::1 -b 64 -I 2m -M -vv \
                     -P /run/m.pid -k -L -C -R 40 -f 1.1 -n 72 -o modern,idle_timeout=30 -B ascii";
        let short = config(&flags.split_whitespace().collect::<Vec<_>>()).unwrap();
        assert_eq!(
            (short.memcached_port, short.max_memory),
            (Some(11999), 1 << 30)
        );
        assert_eq!(
            (short.clients_max, short.threads, short.tcp_backlog),
            (4096, 8, 64)
        );
        assert_eq!(
            (short.bind.len(), short.memcached_item_bytes_max),
            (2, 2 << 20)
        );
        assert_eq!(short.eviction_policy, EvictionPolicy::NoEviction);
        assert_eq!(short.log_level.name(), "verbose");
        assert_eq!((short.timeout_s, short.protected_mode), (30, false));
        assert!(short.pid_file.is_some());

        let flags = "--port=11999 --udp-port=0 --memory-limit=1024 --conn-limit=4096 --threads=8 \
                     --listen=127.0.0.1 --listen=::1 --listen-backlog=64 --max-item-size=2m \
                     --disable-evictions --verbose --verbose --pidfile=/run/m.pid --lock-memory \
                     --extended=idle_timeout=30";
        let long = config(&flags.split_whitespace().collect::<Vec<_>>()).unwrap();
        assert_eq!(long, short);

        let socket = config(&["-s", "s", "-p", "5", "--protected-mode", "no"]).unwrap();
        assert_eq!(
            (socket.memcached_port, socket.unix_socket_mode),
            (None, 0o700)
        );
        assert!(socket.memcached_socket.is_some() && !socket.protected_mode);
        let any = config(&[
            "-m64",
            "-p-1",
            "--metrics-port",
            "0",
            "--engine",
            "masstree",
        ])
        .unwrap();
        assert_eq!((any.memcached_port, any.metrics_port), (Some(0), Some(0)));
        assert_eq!(any.engine, EngineKind::Masstree);
    }

    #[test]
    fn what_would_be_missed_is_refused_all_at_once() {
        let told = config(&[
            "-d",
            "-S",
            "-m",
            "x",
            "-B",
            "binary",
            "-o",
            "ext_path=/m:1G",
        ]);
        let told = told.unwrap_err();
        let told: Vec<&str> = told.lines().collect();
        assert_eq!(told.len(), 5, "{told:?}");
        for part in [
            "maxmemory:",
            "--daemon is",
            "--protocol binary is",
            "--extended ext_path",
        ] {
            assert!(
                told.iter().any(|line| line.contains(part)),
                "{part}: {told:?}"
            );
        }
        assert!(
            config(&["--no-such-flag"])
                .unwrap_err()
                .contains("--no-such-flag")
        );
        // Clients whose address may be forged get replies only up to a configured amount.
        assert!(
            config(&["-U", "11211"])
                .unwrap_err()
                .contains("memcached-udp-reply-ratio")
        );
        assert!(config(&["-U", "11211", "-l", "127.0.0.1"]).is_ok());
    }
}
