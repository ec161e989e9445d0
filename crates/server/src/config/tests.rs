//! The configuration's rules: precedence, units, quoting, errors that say where and what.

use std::path::Path;

use super::*;
use crate::config::file;
use crate::config::rewrite::rewritten;

fn from_file(text: &str) -> Result<Config, String> {
    let mut config = Config::default();
    file::parse(&mut config, Path::new("pando.conf"), text.as_bytes())
        .map_err(|error| error.to_string())?;
    Ok(config)
}

fn from_flags(flags: &[&str]) -> Result<Config, String> {
    let arguments = std::iter::once(&"pando").chain(flags);
    Config::from_command_line(arguments).map_err(|error| error.to_string())
}

#[test]
fn every_setting_reads_back_what_it_prints() {
    let defaults = Config::default();
    for setting in SETTINGS {
        let mut config = defaults.clone();
        let value = setting.get(&defaults);
        setting.set(&mut config, &value).unwrap();
        assert_eq!(config, defaults, "{}", setting.name);
        assert!(Setting::find(setting.flag().to_uppercase().as_bytes()).is_some());
    }
}

#[test]
fn names_are_used_once() {
    let mut names: Vec<_> = SETTINGS.iter().map(|setting| setting.name).collect();
    names.extend(SETTINGS.iter().filter_map(|setting| setting.own_name));
    names.push("config");
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
    assert_eq!((config.port, config.databases), (2000, 3));
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

#[test]
fn errors_say_where_and_what() {
    for (text, expected) in [
        (
            "# fine\n\nport x",
            "pando.conf:3: port: got \"x\", expected an integer from 0 to 65535",
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
            "appendonly no",
            "pando.conf:1: appendonly: got \"no\", expected yes: durability says whether there is \
             a log",
        ),
        (
            "save 900 1",
            "pando.conf:1: save: got \"900 1\", expected an empty value: checkpoint-log-size and \
             checkpoint-interval say when to write one",
        ),
        (
            "port 1 2",
            "pando.conf:1: port: got \"1 2\", expected an integer from 0 to 65535",
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
    ] {
        assert_eq!(from_file(text).unwrap_err(), expected);
    }
    assert_eq!(
        from_flags(&["--threads", "0"]).unwrap_err(),
        "command line: threads: got \"0\", expected an integer from 1 to 512"
    );
    assert_eq!(
        from_flags(&["--client-query-buffer-limit", "1mb"]).unwrap_err(),
        "configuration: proto-max-bulk-len: got \"536870912\", expected at most \
         client-query-buffer-limit"
    );
    assert!(
        from_flags(&["--nosuch", "1"])
            .unwrap_err()
            .contains("--nosuch")
    );
    let missing = from_flags(&["--config", "/nosuch/pando.conf"]).unwrap_err();
    assert!(missing.starts_with("cannot read configuration file /nosuch/pando.conf: "));
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
        port: 3,
        timeout_s: 6,
        password: b"a \"b".to_vec(),
        ..Config::default()
    };
    let after = rewritten(&config, before);
    let expected = "# top\nport 3\n\n  # in between\nTimeout 6\nsave \"\"\nbind 127.0.0.1 -::1\n\
                    # Generated by CONFIG REWRITE\nrequirepass \"a \\\"b\"\n";
    assert_eq!(String::from_utf8(after.clone()).unwrap(), expected);
    // A second rewrite adds nothing, and the result reads back as the configuration.
    assert_eq!(rewritten(&config, &after), after);
    let mut read_back = Config::default();
    file::parse(&mut read_back, Path::new("x"), &after).unwrap();
    assert_eq!(read_back, config);
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
