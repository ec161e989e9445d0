//! `/metrics` is read back with a small parser of the exposition format that trusts nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;

use pando_db::EngineKind;

use super::Metrics;
use crate::config::{Config, Target};
use crate::replication::Request;
use crate::shared::Shared;
use crate::testing::Shell;

/// Series by name and labels.
#[derive(Debug, Default)]
struct Parsed {
    samples: BTreeMap<String, f64>,
    kinds: BTreeMap<String, String>,
}

fn is_name(text: &str) -> bool {
    let first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || byte == b':';
    text.bytes().next().is_some_and(first)
        && text
            .bytes()
            .all(|byte| first(byte) || byte.is_ascii_digit())
}

/// Name and labels of a sample line, with what stands after them.
fn series(line: &str) -> (&str, Vec<(String, String)>, &str) {
    let end = line.find(['{', ' ']).expect("a sample has a value");
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").expect("a label has a quoted value");
            assert!(is_name(label), "{line}");
            let mut value = String::new();
            let mut characters = after.char_indices();
            let end = loop {
                match characters.next().expect("a label's value ends") {
                    (at, '"') => break at,
                    (_, '\\') => value.push(match characters.next().expect("an escape").1 {
                        'n' => '\n',
                        escaped @ ('\\' | '"') => escaped,
                        other => panic!("unknown escape {other}: {line}"),
                    }),
                    (_, character) => value.push(character),
                }
            };
            labels.push((label.to_owned(), value));
            rest = &after[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').expect("labels end with a brace");
    }
    (name, labels, rest)
}

fn parse(text: &str) -> Parsed {
    assert!(text.ends_with('\n'), "the last line ends");
    let (mut parsed, mut family) = (Parsed::default(), String::new());
    let mut helped = String::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("a help text");
            assert!(is_name(name) && !help.is_empty(), "{line}");
            name.clone_into(&mut helped);
            continue;
        }
        if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a type");
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            let first = parsed
                .kinds
                .insert(name.to_owned(), kind.to_owned())
                .is_none();
            assert!(first, "a family is declared once: {line}");
            assert_eq!(
                name, helped,
                "a family is explained before its type is told"
            );
            let is_counter = kind == "counter";
            assert_eq!(name.ends_with("_total"), is_counter, "{line}");
            assert!(has_base_units(name), "seconds and bytes only: {line}");
            name.clone_into(&mut family);
            continue;
        }
        let (name, labels, value) = series(line);
        let value: f64 = value
            .strip_prefix(' ')
            .expect("a blank")
            .parse()
            .expect("a number");
        let suffix = name
            .strip_prefix(family.as_str())
            .expect("samples follow their family");
        let histogram = parsed.kinds[&family] == "histogram";
        let suffixes: &[&str] = if histogram {
            &["_bucket", "_sum", "_count"]
        } else {
            &[""]
        };
        assert!(is_name(name) && suffixes.contains(&suffix), "{line}");
        assert_eq!(
            suffix == "_bucket",
            labels.iter().any(|(label, _)| label == "le"),
            "{line}"
        );
        assert!(value.is_finite() && value >= 0.0, "{line}");
        let key = format!("{name}{labels:?}");
        assert!(
            parsed.samples.insert(key, value).is_none(),
            "a series stands once: {line}"
        );
    }
    check_histograms(text);
    parsed
}

fn has_base_units(name: &str) -> bool {
    let others = [
        "ms",
        "us",
        "ns",
        "milliseconds",
        "microseconds",
        "nanoseconds",
        "minutes",
        "hours",
        "kb",
        "mb",
        "kilobytes",
        "megabytes",
        "percent",
    ];
    !name.split('_').any(|word| others.contains(&word))
}

/// Buckets are cumulative, in order, and the last one holds all.
fn check_histograms(text: &str) {
    let mut last: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    let mut counted = BTreeSet::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, mut labels, value) = series(line);
        let value: f64 = value.trim().parse().unwrap();
        if let Some(family) = name.strip_suffix("_bucket") {
            let place = labels.iter().position(|(label, _)| label == "le").unwrap();
            let le = labels
                .remove(place)
                .1
                .replace("+Inf", "inf")
                .parse::<f64>()
                .unwrap();
            let bucket = last
                .entry(format!("{family}{labels:?}"))
                .or_insert((0.0, 0.0));
            assert!(le > bucket.0 && value >= bucket.1, "{line}");
            *bucket = (le, value);
        } else if let Some(family) = name.strip_suffix("_count") {
            let key = format!("{family}{labels:?}");
            assert_eq!(last[&key], (f64::INFINITY, value), "{line}");
            counted.insert(key);
        }
    }
    assert_eq!(last.len(), counted.len());
}

/// Each of these is a fault that a scraper, or `promtool check metrics`, takes offence at.
#[test]
fn faulty_pages_are_caught() {
    let page = "# HELP a_total A.\n# TYPE a_total counter\na_total{b=\"c\"} 1\n";
    let histogram = "# HELP h_seconds H.\n# TYPE h_seconds histogram\n\
                     h_seconds_bucket{le=\"1\"} 2\nh_seconds_bucket{le=\"+Inf\"} 3\n\
                     h_seconds_sum 4\nh_seconds_count 3\n";
    let is_sound = |page: &str| std::panic::catch_unwind(|| parse(page)).is_ok();
    assert!(is_sound(page) && is_sound(histogram));
    for (sound, part, fault) in [
        (page, "counter", "gauge"),
        (page, "# HELP a_total A.\n", ""),
        (page, "# HELP a_total", "# HELP b_total"),
        (page, "# TYPE a_total counter\n", ""),
        (page, "a_total{", "a{"),
        (page, "} 1\n", "} 1\na_total{b=\"c\"} 1\n"),
        (page, "} 1\n", "} NaN\n"),
        (page, "} 1\n", "} 1"),
        (page, "\"c\"", "\"\\c\""),
        (histogram, "+Inf", "5"),
        (histogram, "} 2", "} 4"),
        (histogram, "count 3", "count 2"),
        (histogram, "h_seconds_count 3\n", ""),
        (histogram, "h_seconds", "h_ms"),
    ] {
        assert!(sound.contains(part));
        assert!(!is_sound(&sound.replace(part, fault)), "{part} → {fault}");
    }
}

/// A page of a server that is kept on disk and has taken a checkpoint.
fn kept_page(name: &str) -> String {
    let directory = format!("pando-metrics-{name}-{}", std::process::id());
    let directory = std::env::temp_dir().join(directory);
    let mut shell = Shell::kept_in(&directory);
    for line in [
        "SET k v",
        "GET k",
        "HSET h f v",
        "PEXPIRE k 100000",
        "NOSUCH",
    ] {
        shell.ask(line);
    }
    let shared = Arc::clone(&shell.shared);
    std::thread::scope(|scope| {
        let keeper = scope.spawn(|| shared.keeper.run(&shared));
        let taken = shared.keeper.take_last();
        shared.keeper.stop(&shared.database);
        keeper.join().expect("the keeper ends");
        taken.expect("a checkpoint");
    });
    let page = super::page(&shared);
    shared.database.close();
    shared.database.close_log().expect("the log is written");
    drop((shell, shared));
    std::fs::remove_dir_all(&directory).expect("it is ours");
    page
}

#[test]
fn what_is_kept_on_disk_is_told() {
    let page = kept_page("told");
    let parsed = parse(&page);
    let value = |series: &str| parsed.samples[series];
    let is = |series: &str, expected: f64| (value(series) - expected).abs() < f64::EPSILON;
    assert!(is(r#"pando_log_state[("state", "open")]"#, 1.0));
    assert!(is(r#"pando_log_state[("state", "full")]"#, 0.0));
    assert!(is("pando_checkpoints_total[]", 1.0) && is("pando_checkpoint_failures_total[]", 0.0));
    assert!(is("pando_checkpoint_last_keys[]", 2.0) && is("pando_checkpoint_last_failed[]", 0.0));
    for series in [
        "pando_checkpoint_last_bytes[]",
        "pando_checkpoint_last_duration_seconds[]",
        "pando_log_written_bytes_total[]",
        "pando_log_sync_seconds_sum[]",
        "pando_log_durable_epoch[]",
    ] {
        assert!(value(series) > 0.0, "{series}");
    }
    assert!(value("pando_log_sync_seconds_count[]") >= 1.0);
    assert!(value("pando_log_open_epoch[]") > value("pando_log_durable_epoch[]"));
    let age = value("pando_log_oldest_write_seconds[]");
    assert!((0.0..60.0).contains(&age), "{age}");
    assert!(value("pando_checkpoint_last_timestamp_seconds[]") > 1.7e9);
    let of_directories = |name: &str| -> f64 {
        let of = |series: &&String| series.starts_with(&format!("{name}[(\"directory\""));
        parsed
            .samples
            .keys()
            .filter(of)
            .map(|series| value(series))
            .sum()
    };
    let (free, size) = (
        of_directories("pando_directory_free_bytes"),
        of_directories("pando_directory_size_bytes"),
    );
    assert!(size > 0.0 && free <= size);
    if let Some(sound) = promtool(&["check", "metrics"], &page) {
        assert!(sound, "promtool finds fault with the page");
    }
}

#[test]
fn replicas_and_the_link_are_told() {
    let shell = Shell::new(Config::default());
    let replication = &shell.shared.replication;
    let is = |page: &Parsed, series: &str, expected: f64| {
        (page.samples[series] - expected).abs() < f64::EPSILON
    };
    let alone = parse(&super::page(&shell.shared));
    assert!(!alone.samples.contains_key("pando_link_up[]"));
    assert!(is(&alone, "pando_replicas[]", 0.0));

    let request = Request {
        client: 1,
        worker: 0,
        run_id: "replica".to_owned(),
        host: "10.0.0.7".to_owned(),
        port: 6380,
        keeps_log: false,
        has_branches: false,
        position: None,
    };
    assert!(replication.accept("own", request).is_ok());
    let target = Target {
        host: "10.0.0.1".to_owned(),
        port: 6379,
    };
    let database = &shell.shared.database;
    let begun = replication.begin(database, Some(target), shell.shared.refusal_of(true));
    assert!(begun.is_ok());
    let page = parse(&super::page(&shell.shared));
    let of_replica = |name: &str| format!(r#"{name}[("replica", "10.0.0.7:6380")]"#);
    assert!(is(&page, "pando_replicas[]", 1.0) && is(&page, "pando_link_up[]", 0.0));
    assert!(is(&page, &of_replica("pando_replica_lag_bytes"), 0.0));
    assert!(page.samples[&of_replica("pando_replica_silence_seconds")] < 60.0);
}

/// Whether `promtool` is content; `None` where it is not installed.
fn promtool(arguments: &[&str], input: &str) -> Option<bool> {
    let spawned = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .spawn();
    let Ok(mut process) = spawned else {
        println!("skipped: promtool is not installed");
        return None;
    };
    let mut stdin = process.stdin.take().expect("it was asked for");
    stdin.write_all(input.as_bytes()).expect("it reads");
    drop(stdin);
    Some(process.wait().expect("it ends").success())
}

#[test]
fn what_the_examples_ask_for_is_there() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/monitoring");
    let pooled = Shell::new(Config {
        engine: EngineKind::Cdds,
        ..Config::default()
    });
    let pages = [kept_page("asked"), super::page(&pooled.shared)].map(|page| parse(&page));
    let names = |page: &Parsed| {
        let series = page.samples.keys();
        let samples = series.filter_map(|series| series.split('[').next().map(str::to_owned));
        samples
            .chain(page.kinds.keys().cloned())
            .collect::<Vec<_>>()
    };
    let names: BTreeSet<String> = pages.iter().flat_map(names).collect();
    for (file, least) in [
        ("alerts.yml", 10),
        ("dashboard.json", 25),
        ("README.md", 10),
    ] {
        let text = std::fs::read_to_string(format!("{directory}/{file}")).expect("it is there");
        let mut found = 0;
        for (start, _) in text.match_indices("pando_") {
            let is_part = |character: char| !character.is_ascii_alphanumeric() && character != '_';
            let name = text[start..].split(is_part).next().expect("a first part");
            assert!(names.contains(name), "{file} asks for {name}");
            found += 1;
        }
        assert!(found >= least, "{file}: {found}");
    }
    let rules = format!("{directory}/alerts.yml");
    if let Some(sound) = promtool(&["check", "rules", &rules], "") {
        assert!(sound, "promtool finds fault with the rules");
    }
}

fn serve(shared: &Arc<Shared>) -> (Metrics, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let metrics = Metrics::start(shared, vec![listener]).unwrap();
    let address = metrics.addresses()[0];
    (metrics, address)
}

fn request(address: SocketAddr, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[test]
fn the_page_is_well_formed_and_counts() {
    let mut shell = Shell::new(Config::default());
    for line in [
        "SET k v",
        "GET k",
        "GET k",
        "GET",
        "INCR k",
        "CLIENT ID",
        "NOSUCH \"\\",
        "SNAPSHOT CREATE s",
        "SET k w",
    ] {
        shell.ask(line);
    }
    let (_metrics, address) = serve(&shell.shared);
    let (head, body) = request(address, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())));
    let parsed = parse(&body);
    let value = |series: &str| parsed.samples[series] as u64;
    assert_eq!(value(r#"pando_commands_total[("command", "get")]"#), 2);
    assert_eq!(
        value(r#"pando_command_rejections_total[("command", "get")]"#),
        1
    );
    assert_eq!(
        value(r#"pando_command_failures_total[("command", "incr")]"#),
        1
    );
    assert_eq!(
        value(r#"pando_commands_total[("command", "client|id")]"#),
        1
    );
    assert_eq!(
        value(r#"pando_command_latency_seconds_count[("command", "get")]"#),
        2
    );
    assert_eq!(value(r#"pando_errors_total[("code", "ERR")]"#), 3);
    assert_eq!(value(r#"pando_keys[("database", "0")]"#), 1);
    assert_eq!(value("pando_snapshots[]"), 1);
    assert_eq!(value("pando_snapshot_images[]"), 1);
    assert!(value("pando_snapshot_image_bytes[]") > 0);
    assert!(value("pando_oldest_snapshot_seconds[]") < 60);
    assert_eq!(value("pando_batch_requests_sum[]"), 7);
    assert_eq!(value("pando_connections[]"), 1);
    assert_eq!(value("pando_keyspace_hits_total[]"), 2);

    // CONFIG RESETSTAT does not turn counters back.
    shell.ask("CONFIG RESETSTAT");
    let again = parse(&super::page(&shell.shared));
    assert_eq!(
        again.samples[r#"pando_commands_total[("command", "get")]"#] as u64,
        2
    );
}

#[test]
fn other_requests_are_answered_briefly() {
    let shell = Shell::new(Config::default());
    let (metrics, address) = serve(&shell.shared);
    for (text, expected) in [
        ("GET / HTTP/1.1\r\n\r\n", "404"),
        ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
        ("PING\r\n\r\n", "400"),
    ] {
        let (head, _) = request(address, text);
        assert_eq!(head.split(' ').nth(1), Some(expected), "{text}");
    }
    let (head, body) = request(address, "HEAD /metrics HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && body.is_empty());
    drop(metrics);
    assert!(
        TcpStream::connect(address).is_err(),
        "a dropped server listens no more"
    );
}

#[test]
fn a_request_has_a_bound() {
    let shell = Shell::new(Config::default());
    let (_metrics, address) = serve(&shell.shared);
    let mut stream = TcpStream::connect(address).unwrap();
    let endless = vec![b'x'; 64 * 1024];
    // The server may close before it was sent all.
    let _ = stream.write_all(&endless);
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    assert!(reply.is_empty() || reply.starts_with(b"HTTP/1.1 431"));
    let (head, _) = request(address, "GET /metrics HTTP/1.1\r\n\r\n");
    assert!(
        head.starts_with("HTTP/1.1 200"),
        "others are served meanwhile"
    );
}
