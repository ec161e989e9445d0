//! Dump and load.

use super::*;
use crate::persistence::StreamError;

fn filled() -> Shell {
    let setup = Setup::default();
    let disk = SimulatedDisk::new();
    let mut harness = Harness::new(&setup, &disk, 11).expect("the disk is empty");
    for _ in 0..150 {
        harness.act();
    }
    harness.line("SET huge x");
    harness.line("SETRANGE huge 3000000 x");
    harness.shells.swap_remove(0)
}

#[test]
fn a_dump_is_loaded_into_another_database() {
    let mut shell = filled();
    let mut stream = Vec::new();
    let dumped = shell.session.dump(&mut stream).expect("a vector takes all");
    let mut other = Shell::with_options(Options {
        databases: 4,
        ..Options::default()
    });
    let loaded = other.session.load(&mut &stream[..]).expect("it is whole");
    assert_eq!(dumped, loaded.keys);
    let mut live = picture(&shell.database);
    let now = picture(&other.database);
    live.retain(|key, _| now.contains_key(key));
    assert_eq!(now, live);
    assert_eq!(now.len() as u64, dumped);
    // A hole costs nothing.
    assert!(stream.len() < 1_000_000, "{}", stream.len());

    let mut few = Shell::with_options(Options {
        databases: 1,
        ..Options::default()
    });
    let refused = few.session.load(&mut &stream[..]);
    assert!(matches!(refused, Err(StreamError::Database { .. }) | Ok(_)));
}

#[test]
fn golden_bytes() {
    let mut shell = Shell::with_options(Options::default());
    shell.line("SET a x");
    let mut stream = Vec::new();
    shell.session.dump(&mut stream).expect("a vector takes all");
    let golden = [
        &b"PANDODMP\x01\0\0\0"[..],
        b"\x0e\0\0\0\x27\x36\xe1\x5f",
        b"\x06\0\0\0\0\0\0\0\0\x01a\x01\x01x",
        b"\0\0\0\0\xad\xcf\x14\xc5\x01\0\0\0\0\0\0\0",
    ];
    assert_eq!(
        stream.escape_ascii().to_string(),
        golden.concat().escape_ascii().to_string()
    );
}

#[test]
fn broken_streams_are_refused() {
    let mut shell = filled();
    let mut stream = Vec::new();
    shell.session.dump(&mut stream).expect("a vector takes all");
    let load = |bytes: &[u8]| {
        let mut other = Shell::with_options(Options {
            databases: 4,
            ..Options::default()
        });
        other.session.load(&mut &bytes[..])
    };
    for cut in [0, 5, 12, 100, stream.len() / 2, stream.len() - 1] {
        assert!(load(&stream[..cut]).is_err(), "{cut}");
    }
    for offset in [
        3,
        9,
        13,
        17,
        40,
        stream.len() / 2,
        stream.len() - 12,
        stream.len() - 3,
    ] {
        let mut broken = stream.clone();
        broken[offset] ^= 4;
        assert!(load(&broken).is_err(), "{offset}");
    }
    assert!(matches!(load(b"something else"), Err(StreamError::Foreign)));
}
