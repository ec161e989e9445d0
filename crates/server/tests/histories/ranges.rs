//! Walks through the keyspace beside writers: in order, without duplicates, past every key that is
//! there throughout.

use std::collections::BTreeSet;

use pando_protocol::resp::Value;

use crate::server::{Connection, Server, elements, text, with_every_engine};

/// Keys of each kind; a walk takes many pages.
const KEYS: usize = 300;
const PAGE: usize = 40;
const WRITERS: usize = 2;

/// A key that is there throughout. Keys that come and go lie between these, before and after them.
fn lasting(number: usize) -> String {
    format!("key:{number:04}:lasting")
}

fn passing(number: usize) -> String {
    format!("key:{number:04}:passing")
}

/// Every value begins with its key.
fn value(key: &str, number: u32) -> String {
    format!("{key}={number}")
}

fn fill(server: &Server) {
    let mut connection = server.connect();
    for number in 0..KEYS {
        let key = lasting(number);
        connection.ok(format!("SET {key} {}", value(&key, 0)));
    }
}

/// Lets keys come and go, and changes those that stay.
fn churn(server: &Server, count: usize, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut connection = server.connect();
    for _ in 0..count {
        let number = random.usize(..KEYS);
        let (stays, passes, new) = (lasting(number), passing(number), random.u32(..));
        match random.u8(..5) {
            0 => connection.ok(format!("SET {stays} {}", value(&stays, new))),
            1 | 2 => connection.ok(format!("SET {passes} {}", value(&passes, new))),
            3 => drop(connection.call(format!("DEL {passes}"))),
            // Neighbours in one go, so that pages' ends are hit.
            _ => {
                let lines: Vec<_> = (number..KEYS.min(number + 8))
                    .map(|number| format!("DEL {}", passing(number)))
                    .collect();
                connection.send(&lines);
                for _ in &lines {
                    connection.receive();
                }
            }
        }
    }
}

/// What is wrong with the keys that a walk has met, in the order in which it should have met them.
fn complaint(met: &[String]) -> Option<String> {
    let pairs = met.iter().zip(met.iter().skip(1));
    if let Some((first, second)) = pairs.into_iter().find(|(first, second)| first >= second) {
        return Some(format!("{first} before {second}"));
    }
    let known: BTreeSet<_> = (0..KEYS)
        .flat_map(|number| [lasting(number), passing(number)])
        .collect();
    if let Some(key) = met.iter().find(|key| !known.contains(*key)) {
        return Some(format!("{key} is nobody's"));
    }
    let met: BTreeSet<_> = met.iter().collect();
    let missing = (0..KEYS).map(lasting).find(|key| !met.contains(key));
    missing.map(|key| format!("{key} is missing"))
}

/// Walks through all pages of a range; `page` is the command that begins at a bound.
fn walk(
    connection: &mut Connection,
    first: Option<&str>,
    page: impl Fn(Option<&str>) -> String,
) -> Vec<(String, String)> {
    let mut met = Vec::new();
    let mut from = first.map(str::to_owned);
    loop {
        let mut parts = elements(connection.call(page(from.as_deref())));
        let items = elements(parts.pop().expect("items"));
        assert!(
            items.len() <= 2 * PAGE,
            "a page of {} entries",
            items.len() / 2
        );
        let mut items = items.into_iter().map(|item| text(item).expect("a text"));
        while let (Some(key), Some(value)) = (items.next(), items.next()) {
            met.push((key, value));
        }
        from = text(parts.pop().expect("where it goes on"));
        if from.is_none() {
            return met;
        }
    }
}

/// The keys of entries whose values belong to them.
fn keys(entries: Vec<(String, String)>) -> Vec<String> {
    let keys = entries.into_iter().map(|(key, value)| {
        assert!(value.starts_with(&format!("{key}=")), "{value} at {key}");
        key
    });
    keys.collect()
}

#[track_caller]
fn check(what: &str, met: &[String]) {
    if let Some(complaint) = complaint(met) {
        panic!("{what}: {complaint}");
    }
}

fn forwards(connection: &mut Connection) {
    let page = |from: Option<&str>| format!("KRANGE {} + LIMIT {PAGE}", from.unwrap_or("-"));
    check("KRANGE", &keys(walk(connection, None, page)));
}

fn backwards(connection: &mut Connection) {
    let page = |from: Option<&str>| format!("KRANGE {} - REV LIMIT {PAGE}", from.unwrap_or("+"));
    let mut met = keys(walk(connection, None, page));
    met.reverse();
    check("KRANGE REV", &met);
}

fn by_prefix(connection: &mut Connection) {
    let page = |from: Option<&str>| match from {
        Some(from) => format!("KPREFIX key: FROM {from} LIMIT {PAGE}"),
        None => format!("KPREFIX key: LIMIT {PAGE}"),
    };
    check("KPREFIX", &keys(walk(connection, None, page)));
}

/// What SCAN shows from its beginning to its end.
fn scanned(connection: &mut Connection) -> Vec<String> {
    let (mut cursor, mut met) = ("0".to_owned(), Vec::new());
    loop {
        let mut parts = elements(connection.call(format!("SCAN {cursor} COUNT {PAGE}")));
        let page = elements(parts.pop().expect("keys"));
        met.extend(page.into_iter().map(|key| text(key).expect("a key")));
        cursor = text(parts.pop().expect("a cursor")).expect("a cursor");
        if cursor == "0" {
            return met;
        }
    }
}

fn by_scan(connection: &mut Connection) {
    check("SCAN", &scanned(connection));
}

/// As Redis says of SCAN: in no order, and some keys twice while the table grows.
fn by_cursor(connection: &mut Connection) {
    let mut met = scanned(connection);
    met.sort_unstable();
    met.dedup();
    check("SCAN", &met);
}

/// The keys in no order, at a moment of the server's choice for each slice.
fn by_keys(connection: &mut Connection) {
    let met = elements(connection.call("KEYS key:*"));
    let mut met: Vec<_> = met
        .into_iter()
        .map(|key| text(key).expect("a key"))
        .collect();
    met.sort_unstable();
    check("KEYS", &met);
}

#[test]
fn walks_beside_writers_miss_and_repeat_nothing() {
    let seed = crate::seed();
    with_every_engine(|server| {
        fill(server);
        let write = || {
            std::thread::scope(|scope| {
                for writer in 0..WRITERS as u64 {
                    scope.spawn(move || churn(server, crate::rounds(3000), seed ^ writer));
                }
            });
        };
        let walks: &[fn(&mut Connection)] = if server.is_ordered() {
            &[forwards, backwards, by_prefix, by_scan, by_keys]
        } else {
            &[by_cursor, by_keys]
        };
        let readers = walks.iter().map(|walk| {
            let mut connection = server.connect();
            Box::new(move || walk(&mut connection)) as Box<dyn FnMut() + Send + '_>
        });
        crate::beside(write, readers.collect());
    });
}

#[test]
fn canary_a_wrong_walk_is_noticed() {
    let right: Vec<_> = (0..KEYS).map(lasting).collect();
    assert_eq!(complaint(&right), None);
    let change = |change: fn(&mut Vec<String>)| {
        let mut met = right.clone();
        change(&mut met);
        complaint(&met).expect("a complaint")
    };
    assert_eq!(
        change(|met| drop(met.remove(7))),
        "key:0007:lasting is missing"
    );
    assert_eq!(
        change(|met| met.insert(7, lasting(7))),
        "key:0007:lasting before key:0007:lasting"
    );
    assert_eq!(
        change(|met| met.swap(7, 8)),
        "key:0008:lasting before key:0007:lasting"
    );
    assert_eq!(change(|met| met.push("x".to_owned())), "x is nobody's");
}

/// A page is a page of the server: it says where to go on, and ends.
#[test]
fn canary_pages_are_many() {
    let server = Server::start(pando_db::EngineKind::default());
    fill(&server);
    let reply = elements(
        server
            .connect()
            .call(format!("KRANGE - + LIMIT {PAGE} KEYS")),
    );
    assert_eq!(
        text(reply[0].clone()),
        Some(format!("({}", lasting(PAGE - 1)))
    );
    assert!(matches!(&reply[1], Value::Array(keys) if keys.len() == PAGE));
}
