//! The configuration's rules: precedence, units, quoting, errors that say where and what.

use std::path::Path;

use super::*;
use crate::config::file::{self, Reading};
use crate::config::rewrite::rewritten;

fn from_file(text: &str) -> Result<Config, String> {
    let mut reading = Reading::default();
    reading.lines(Path::new("pando.conf"), text.as_bytes(), 0);
    reading.finish().map_err(|error| error.to_string())
}

fn from_flags(flags: &[&str]) -> Result<Config, String> {
    let arguments = std::iter::once(&"pando").chain(flags);
    Config::from_command_line(arguments).map_err(|error| error.to_string())
}

#[test]
fn every_setting_reads_back_what_it_prints() {
    let defaults = Config::default();
    for setting in Setting::all() {
        let mut config = defaults.clone();
        let value = setting.get(&defaults);
        setting.set(&mut config, &value).unwrap();
        for other in Setting::all() {
            assert_eq!(other.get(&config), other.get(&defaults), "{}", setting.name);
        }
        assert!(Setting::find(setting.flag().to_uppercase().as_bytes()).is_some());
    }
}

#[test]
fn names_are_used_once() {
    let mut names: Vec<_> = Setting::all().map(|setting| setting.name).collect();
    names.extend(Setting::all().filter_map(|setting| setting.own_name));
    names.extend(["config", "file", "include", "help", "version"]);
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn flags_and_lines_mean_the_same() {
    let flags = [
        "--port",
        "0",
        "--max-memory",
        "2gb",
        "--maxclients",
        "7",
        "--bind",
        "::1 -10.0.0.1",
        "--bind",
        "*",
        "--slowlog-log-slower-than",
        "-1",
        "--unixsocket",
        "pando.sock",
        "--metrics-port",
        "9121",
        "--client-output-buffer-limit",
        "normal 1mb 1k 3",
        "--retired-bytes-max",
        "64mb",
    ];
    let file = "\
        port 0\n\
        maxmemory 2gb\n\
        MaxClients 7\n\
        bind ::1 -10.0.0.1 *\n\
        slowlog-log-slower-than -1\n\
        unix-socket \"pando.sock\"\n\
        metrics-port 9121\n\
        client-output-buffer-limit normal 1mb 1k 3\n\
        retired-bytes-max 64mb\n";
    let (flags, file) = (from_flags(&flags).unwrap(), from_file(file).unwrap());
    assert_eq!(flags, file);
    assert_eq!(flags.max_memory, 2 << 30);
    assert_eq!(flags.database_options().retired_bytes_max, 64 << 20);
    assert_eq!(flags.output_limits.normal.hard_bytes, 1 << 20);
    assert_eq!(flags.output_limits.normal.soft_bytes, 1000);
    assert_eq!(flags.output_limits.replica, OutputLimits::default().replica);
    assert!(flags.bind[1].optional && flags.bind[2].ip.is_unspecified());
}

#[test]
fn flags_win_over_the_file() {
    let path = std::env::temp_dir().join(format!("pando-config-{}.conf", std::process::id()));
    std::fs::write(&path, "port 1000\ndatabases 3\n").unwrap();
    let path_text = path.to_str().unwrap();
    let config = from_flags(&["--config", path_text, "--port", "2000"]).unwrap();
    assert_eq!((config.port, config.databases), (Some(2000), 3));
    assert_eq!(config.file.as_deref(), Some(path.as_path()));

    let changed = Config {
        databases: 4,
        ..config
    };
    rewrite(&changed, &path).unwrap();
    let after = std::fs::read_to_string(&path).unwrap();
    assert_eq!(after, "port 2000\ndatabases 4\n");
    std::fs::remove_file(&path).unwrap();
}

/// Files, and what is said of them.
const WRONG_FILES: &[(&str, &str)] = &[
    (
        "# fine\n\nport x",
        "pando.conf:3: port: got \"x\", expected a port from 0 to 65535, or off",
    ),
    (
        "maxmemory 5tb",
        "pando.conf:1: maxmemory: got \"5tb\", expected bytes, with or without a unit (b, k, \
             kb, m, mb, g, gb)",
    ),
    (
        "key-bytes-max 1mb",
        "pando.conf:1: key-bytes-max: got \"1mb\", expected 1 to 65536 bytes, with or without \
             a unit (b, k, kb, m, mb, g, gb)",
    ),
    (
        "retired-bytes-max 64kb",
        "pando.conf:1: retired-bytes-max: got \"64kb\", expected 1048576 to 1099511627776 \
             bytes, with or without a unit (b, k, kb, m, mb, g, gb)",
    ),
    (
        "prot 1",
        "pando.conf:1: unknown setting \"prot\", expected one of those that --help lists",
    ),
    (
        "requirepass \"a",
        "pando.conf:1: got unbalanced quotes, expected a word, \"a word\" or 'a word'",
    ),
    (
        "appendonly perhaps",
        "pando.conf:1: appendonly: got \"perhaps\", expected yes or no",
    ),
    (
        "save 900",
        "pando.conf:1: save: got \"900\", expected pairs of seconds and changes, or an empty \
             value",
    ),
    (
        "replicaof 10.0.0.1 0",
        "pando.conf:1: replicaof: got \"10.0.0.1 0\", expected a host and a port, or an empty \
             value",
    ),
    (
        "daemonize yes",
        "configuration: daemonize: got \"yes\", expected no: the server stays in the \
             foreground, start it with & or by systemd",
    ),
    (
        "include /nosuch/pando.conf",
        "pando.conf:1: cannot read /nosuch/pando.conf: No such file or directory (os error 2)",
    ),
    (
        "port 1 2",
        "pando.conf:1: port: got \"1 2\", expected a port from 0 to 65535, or off",
    ),
    (
        "bind localhost",
        "pando.conf:1: bind: got \"localhost\", expected IP addresses, * or ::*, each perhaps \
             after a -",
    ),
    (
        "unixsocketperm 799",
        "pando.conf:1: unixsocketperm: got \"799\", expected octal permissions from 0 to 777",
    ),
];

#[test]
fn errors_say_where_and_what() {
    for (text, expected) in WRONG_FILES {
        assert_eq!(from_file(text).unwrap_err(), *expected);
    }
    assert_eq!(
        from_flags(&["--threads", "0"]).unwrap_err(),
        "command line: threads: got \"0\", expected an integer from 1 to 512"
    );
    assert_eq!(
        from_flags(&[
            "--proto-max-bulk-len",
            "1mb",
            "--memcached-item-bytes-max",
            "2mb"
        ])
        .unwrap_err(),
        "configuration: memcached-item-bytes-max: got \"2097152\", expected at most \
         proto-max-bulk-len"
    );
    assert!(
        from_flags(&["--nosuch", "1"])
            .unwrap_err()
            .contains("--nosuch")
    );
    let missing = from_flags(&["--config", "/nosuch/pando.conf"]).unwrap_err();
    assert!(missing.starts_with("cannot read configuration file /nosuch/pando.conf: "));
}

/// What stands in a configuration file as distributions ship it for Redis 7.0.
const STOCK: &str = include_str!("stock.conf");

#[test]
fn a_stock_file_of_redis_starts_the_server() {
    let config = from_file(STOCK).unwrap();
    assert_eq!(config.durability, Durability::Interval);
    assert_eq!(config.output_limits, OutputLimits::default());
    assert_eq!(
        config.log_file.as_deref(),
        Some(Path::new("/var/log/redis/redis.log"))
    );
    assert_eq!(
        config.pid_file.as_deref(),
        Some(Path::new("/run/redis/redis.pid"))
    );
    let [kept, inert] = config.remarks.as_slice() else {
        panic!("{:?}", config.remarks);
    };
    assert!(
        kept.starts_with("appendonly no: the log is kept all the same"),
        "{kept}"
    );
    assert!(
        inert.starts_with("settings that mean nothing here: acllog-max-len, "),
        "{inert}"
    );
    for name in ["hz", "rdbchecksum", "stop-writes-on-bgsave-error"] {
        assert!(inert.contains(name), "{name} is missing in {inert}");
    }
    for own in ["port", "protected-mode", "slowlog-max-len", "save"] {
        assert!(!inert.contains(&format!(" {own}")), "{own} is in {inert}");
    }
    // What is written back is what was read, but for what follows from other lines.
    let expected = STOCK
        .replace("\nclient-output-buffer-limit replica 256mb 64mb 60", "")
        .replace("\nclient-output-buffer-limit pubsub 32mb 8mb 60", "")
        .replace("\nappendonly no", "\nappendonly yes")
        + "# Generated by CONFIG REWRITE\ndurability interval\n";
    let after = rewritten(&config, STOCK.as_bytes());
    assert_eq!(String::from_utf8(after).unwrap(), expected);
}

#[test]
fn every_error_is_told_at_once() {
    let text = "prot 1\nport x\n# fine\nhz 20\nrename-command CONFIG \"\"\nsave \"\n";
    let told = from_file(text).unwrap_err();
    let told: Vec<&str> = told.lines().collect();
    let begins = [
        "pando.conf:1: unknown",
        "pando.conf:2: port:",
        "pando.conf:5: rename-command:",
    ];
    assert_eq!(told.len(), 4, "{told:?}");
    for (told, begin) in told.iter().zip(begins) {
        assert!(told.starts_with(begin), "{told}");
    }
    assert!(told[3].starts_with("pando.conf:6: got unbalanced quotes"));
    // A file that is none ends in time.
    let nonsense = "x\n".repeat(10_000);
    let told = from_file(&nonsense).unwrap_err();
    assert_eq!(told.lines().count(), crate::limits::CONFIG_ERRORS_MAX);
}

#[test]
fn redis_words_for_durability_are_understood() {
    use Durability::{Interval, None, Sync};
    for (text, expected, told) in [
        ("appendonly yes", Interval, ""),
        ("appendonly yes\nappendfsync always", Sync, ""),
        ("appendfsync always", Sync, ""),
        (
            "appendonly yes\nappendfsync everysec\nsave \"\"",
            Interval,
            "",
        ),
        (
            "appendfsync no\nappendonly yes",
            Interval,
            "appendfsync no: the log is written",
        ),
        ("appendonly no\nsave \"\"", None, ""),
        ("save \"\"", None, ""),
        ("save \"\"\nappendfsync always", None, ""),
        ("appendonly no", Interval, "appendonly no: the log is kept"),
        (
            "appendonly no\nappendfsync always",
            Interval,
            "appendonly no: the log is kept",
        ),
        (
            "save 3600 1 300 100\nappendonly no",
            Interval,
            "appendonly no: the log is kept",
        ),
        ("save 900 1", Interval, ""),
        (
            "appendonly no\nsave \"\"\nsave 60 1",
            Interval,
            "appendonly no: the log is kept",
        ),
        (
            "durability sync\nappendonly no\nsave \"\"",
            Sync,
            "durability sync holds",
        ),
        ("durability none\nappendonly no\nsave \"\"", None, ""),
        ("hz 10", Interval, "settings that mean nothing here: hz"),
    ] {
        let config = from_file(text).unwrap();
        assert_eq!(config.durability, expected, "{text:?}");
        let remarks = config.remarks.join("\n");
        let as_expected = remarks.is_empty() == told.is_empty() && remarks.starts_with(told);
        assert!(as_expected, "{text:?}: {remarks}");
    }
    let config = from_file("save 3600 1\nsave 300 100 60 10000").unwrap();
    assert_eq!(
        config.save_points.as_deref(),
        Some("3600 1 300 100 60 10000")
    );
    let config = from_flags(&["--save", "", "--appendonly", "no"]).unwrap();
    assert_eq!(config.durability, None);
}

/// A folder of one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let path = std::env::temp_dir().join(format!("pando-{name}-{}", std::process::id()));
        std::fs::create_dir_all(path.join("conf.d")).unwrap();
        for (name, text) in files {
            let text = text.replace("HERE", path.to_str().unwrap());
            std::fs::write(path.join(name), text).unwrap();
        }
        Self(path)
    }

    fn read(&self, name: &str) -> Result<Config, String> {
        let mut reading = Reading::default();
        reading.file(&self.0.join(name));
        reading.finish().map_err(|error| error.to_string())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn files_include_others() {
    let folder = Folder::new(
        "includes",
        &[
            (
                "main",
                "port 1\ninclude HERE/conf.d/*.conf\ndatabases 5\ninclude HERE/no*such\n",
            ),
            ("conf.d/b.conf", "timeout 2\nmaxclients 7\n"),
            ("conf.d/a.conf", "port 2\ntimeout 1\ndatabases 3\n"),
            ("conf.d/.hidden.conf", "nonsense\n"),
            ("conf.d/other", "nonsense\n"),
            (
                "wrong",
                "hz x\ninclude HERE/conf.d/other HERE/none\nport x\n",
            ),
            ("loop", "include HERE/loop\n"),
            ("tree", "include HERE/tree\ninclude HERE/tree\n"),
        ],
    );
    let config = folder.read("main").unwrap();
    let read = (
        config.port,
        config.timeout_s,
        config.databases,
        config.clients_max,
    );
    assert_eq!(read, (Some(2), 2, 5, 7));

    let told = folder.read("wrong").unwrap_err();
    let here = folder.0.display();
    let told: Vec<&str> = told.lines().collect();
    assert!(
        told[0].starts_with(&format!("{here}/wrong:1: hz:")),
        "{told:?}"
    );
    assert!(
        told[1].starts_with(&format!("{here}/conf.d/other:1: unknown")),
        "{told:?}"
    );
    assert!(
        told[2].starts_with(&format!("{here}/wrong:2: cannot read {here}/none")),
        "{told:?}"
    );
    assert!(
        told[3].starts_with(&format!("{here}/wrong:3: port:")),
        "{told:?}"
    );

    let told = folder.read("loop").unwrap_err();
    assert!(
        told.contains("more than 16 files within each other"),
        "{told}"
    );
    let told = folder.read("tree").unwrap_err();
    assert_eq!(told.lines().count(), crate::limits::CONFIG_ERRORS_MAX);
}

/// Lines that somebody has damaged: read without a panic, and refused with a line number or read.
#[test]
fn damaged_files_are_read_or_refused() {
    let mut random = fastrand::Rng::with_seed(1);
    let lines: Vec<&[u8]> = STOCK.as_bytes().split(|byte| *byte == b'\n').collect();
    for round in 0..2000 {
        let mut text = Vec::new();
        for _ in 0..random.usize(1..6) {
            text.extend_from_slice(lines[random.usize(..lines.len())]);
            text.push(b'\n');
        }
        for _ in 0..random.usize(0..4) {
            let at = random.usize(..text.len());
            match random.u8(0..3) {
                0 => text[at] = random.u8(..),
                1 => text.insert(at, b"\"'\\x*\0 "[random.usize(..7)]),
                _ => drop(text.remove(at)),
            }
            text.push(b'\n');
        }
        let mut reading = Reading::default();
        reading.lines(Path::new("damaged"), &text, 0);
        match reading.finish() {
            Ok(config) => drop(rewritten(&config, &text)),
            Err(error) => {
                let told = error.to_string();
                let placed = |line: &str| {
                    line.starts_with("damaged:") || line.starts_with("configuration: ")
                };
                assert!(told.lines().all(placed), "round {round}: {told}");
            }
        }
    }
}

#[test]
fn words_are_quoted_as_in_redis_conf() {
    let words = |line: &str| {
        file::split(line.as_bytes()).map(|words| {
            words
                .iter()
                .map(|word| word.escape_ascii().to_string())
                .collect::<Vec<_>>()
        })
    };
    let some = |expected: &[&str]| Some(expected.iter().map(ToString::to_string).collect());
    assert_eq!(words("  a  b\t# c"), some(&["a", "b", "#", "c"]));
    assert_eq!(words(" # a \"b"), some(&[]));
    assert_eq!(
        words(r#"a "b \x41\n\q\"" '' 'c\'d\n'"#),
        some(&["a", "b A\\nq\\\"", "", "c\\'d\\\\n"])
    );
    assert_eq!(words("a\"b c\" d"), some(&["ab c", "d"]));
    assert_eq!(words("a \"b\"c"), None);
    assert_eq!(words("a 'b"), None);
    assert_eq!(words("a \"b\\"), None);
}

#[test]
fn quoting_is_undone_by_splitting() {
    for byte in 0..=u8::MAX {
        for value in [vec![byte], vec![b'x', byte, b' '], Vec::new()] {
            let line = format!("requirepass {}", value::quote(&value));
            assert_eq!(file::split(line.as_bytes()).unwrap()[1], value);
        }
    }
}

#[test]
fn a_rewrite_keeps_comments_and_appends_what_changed() {
    let before = b"# top\nport 1\n\n  # in between\nTimeout 5\nport 2\nsave \"\"\nbind 127.0.0.1";
    let config = Config {
        port: Some(3),
        timeout_s: 6,
        password: b"a \"b".to_vec(),
        ..Config::default()
    };
    let after = rewritten(&config, before);
    let expected = "# top\nport 3\n\n  # in between\nTimeout 6\nsave \"\"\nbind 127.0.0.1 -::1\n\
                    # Generated by CONFIG REWRITE\ndurability interval\n\
                    requirepass \"a \\\"b\"\n";
    assert_eq!(String::from_utf8(after.clone()).unwrap(), expected);
    // A second rewrite adds nothing, and the result reads back as the configuration.
    assert_eq!(rewritten(&config, &after), after);
    let read_back = from_file(std::str::from_utf8(&after).unwrap()).unwrap();
    assert_eq!(read_back.password, config.password);
    // An empty save by itself would say that nothing is kept.
    assert_eq!(read_back.durability, Durability::Interval);
    assert_eq!(rewritten(&Config::default(), b""), b"");
}

#[test]
fn the_page_about_settings_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/SETTINGS.md");
    let written = std::fs::read_to_string(path).expect("docs/SETTINGS.md is there");
    assert!(
        written == reference(),
        "docs/SETTINGS.md differs from the table of settings; make it again:\n\
         cargo run -q -p pando-server --example settings > docs/SETTINGS.md"
    );
}
