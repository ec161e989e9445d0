//! Commands that run in slices keep their promise beside writers: every key that exists throughout
//! is returned, none twice, and none that never existed.

use std::collections::BTreeSet;

use pando_db::limits;

use crate::connection::{
    Answer, Connection, on_every_engine, on_every_ordered_engine, open, seed, words,
};

/// Keys that nobody touches; with the others they fill several slices.
const STABLE: usize = 3 * limits::SLICE_ENTRIES_MAX;
/// Keys that come and go.
const PASSING: usize = limits::SLICE_ENTRIES_MAX;

fn stable(key: usize) -> String {
    // Spread among the passing ones.
    format!("k{:08}stable", key * 37 % 1_000_003)
}

fn passing(key: usize) -> String {
    format!("k{:08}passing", key * 101 % 1_000_003)
}

/// A database with all stable keys and about half of the passing ones.
fn fill(connection: &mut Connection, random: &mut fastrand::Rng) {
    let mut names: Vec<_> = (0..STABLE).map(stable).collect();
    names.extend((0..PASSING).filter(|_| random.bool()).map(passing));
    for names in names.chunks(500) {
        let pairs = names.iter().flat_map(|name| [name.as_str(), "v"]);
        assert_eq!(connection.run(["MSET"].into_iter().chain(pairs)), "+OK");
    }
}

/// Runs `line` slice by slice; before each slice another connection writes. Returns the reply and
/// the number of slices.
fn run_beside_writer(
    reader: &mut Connection,
    line: &str,
    mut write: impl FnMut(),
) -> (String, usize) {
    let Answer::Slices(mut command) = reader.send(words(line)) else {
        panic!("{line} has no slices");
    };
    for slices in 1.. {
        write();
        if let Some(reply) = reader.slice(&mut command) {
            return (reply, slices);
        }
    }
    unreachable!("a command ends")
}

/// Some passing keys come, some go.
fn churn(connection: &mut Connection, random: &mut fastrand::Rng) {
    for _ in 0..300 {
        let name = passing(random.usize(..PASSING));
        let line = if random.bool() {
            format!("SET {name} v")
        } else {
            format!("DEL {name}")
        };
        connection.line(&line);
    }
}

/// What is wrong with a listing, if anything.
fn complaint(listed: &[&str]) -> Option<String> {
    let distinct: BTreeSet<_> = listed.iter().copied().collect();
    if distinct.len() != listed.len() {
        return Some("a key is listed twice".to_owned());
    }
    let missing = (0..STABLE)
        .map(stable)
        .find(|name| !distinct.contains(name.as_str()));
    if let Some(name) = missing {
        return Some(format!("{name} was there throughout"));
    }
    let all: BTreeSet<_> = (0..STABLE)
        .map(stable)
        .chain((0..PASSING).map(passing))
        .collect();
    let invented = distinct.into_iter().find(|name| !all.contains(*name));
    invented.map(|name| format!("{name} was never there"))
}

#[test]
fn canary_a_wrong_listing_is_found() {
    let names: Vec<_> = (0..STABLE).map(stable).collect();
    let listed: Vec<_> = names.iter().map(String::as_str).collect();
    assert_eq!(complaint(&listed), None);
    assert!(complaint(&listed[1..]).is_some());
    assert!(complaint(&[&listed[..], &listed[..1]].concat()).is_some());
    assert!(complaint(&[&listed[..], &["other"]].concat()).is_some());
}

#[test]
fn keys_lists_what_is_there_throughout() {
    on_every_engine(|engine| {
        let seed = seed();
        let mut random = fastrand::Rng::with_seed(seed);
        let (database, _) = open(engine);
        let (mut reader, mut writer) = (Connection::new(&database), Connection::new(&database));
        fill(&mut writer, &mut random);
        for pattern in ["*", "k*"] {
            let write = || churn(&mut writer, &mut random);
            let (reply, slices) = run_beside_writer(&mut reader, &format!("KEYS {pattern}"), write);
            let listed: Vec<_> = reply
                .split(' ')
                .filter(|word| word.starts_with('k'))
                .collect();
            assert!(slices > 2, "{slices} slices");
            assert_eq!(complaint(&listed), None);
            assert!(reply.starts_with(&format!("*{} ", listed.len())));
        }
    });
}

#[test]
fn kcount_counts_what_is_there_throughout() {
    on_every_ordered_engine(|engine| {
        let seed = seed();
        let mut random = fastrand::Rng::with_seed(seed);
        let (database, _) = open(engine);
        let (mut reader, mut writer) = (Connection::new(&database), Connection::new(&database));
        fill(&mut writer, &mut random);
        let write = || churn(&mut writer, &mut random);
        let (reply, slices) = run_beside_writer(&mut reader, "KCOUNT - +", write);
        let count: usize = reply[1..].parse().expect("a count");
        assert!(slices > 2, "{slices} slices");
        assert!((STABLE..=STABLE + PASSING).contains(&count), "{count}");
    });
}

#[test]
fn krangedel_removes_what_is_there_throughout() {
    on_every_ordered_engine(|engine| {
        let seed = seed();
        let mut random = fastrand::Rng::with_seed(seed);
        let (database, _) = open(engine);
        let (mut reader, mut writer) = (Connection::new(&database), Connection::new(&database));
        fill(&mut writer, &mut random);
        writer.line("MSET j outside l outside");
        let write = || churn(&mut writer, &mut random);
        let (reply, slices) =
            run_beside_writer(&mut reader, "KRANGEDEL [k (l LIMIT 1000000", write);
        assert!(slices > 2, "{slices} slices");
        assert!(reply.starts_with("*2 $-1 :"), "{reply}");
        for name in (0..STABLE).map(stable) {
            assert_eq!(reader.run(["GET", &name]), "$-1", "{name}");
        }
        assert_eq!(reader.line("MGET j l"), "*2 $7 outside $7 outside");
    });
}

/// FLUSHDB between two slices: what went is not listed as if it had stayed, and the command ends.
#[test]
fn a_listing_survives_a_flush() {
    on_every_engine(|engine| {
        let mut random = fastrand::Rng::with_seed(1);
        let (database, _) = open(engine);
        let (mut reader, mut writer) = (Connection::new(&database), Connection::new(&database));
        fill(&mut writer, &mut random);
        let mut flushes = 0;
        let (reply, _) = run_beside_writer(&mut reader, "KEYS *", || {
            flushes += 1;
            if flushes == 2 {
                writer.line("FLUSHDB");
            }
        });
        let listed = reply
            .split(' ')
            .filter(|word| word.starts_with('k'))
            .count();
        // What the slices before it have found stays in the reply.
        // An engine without order goes by whole buckets.
        let two_slices = 2 * limits::SLICE_ENTRIES_MAX;
        assert!((two_slices..two_slices + 100).contains(&listed), "{listed}");
    });
}
