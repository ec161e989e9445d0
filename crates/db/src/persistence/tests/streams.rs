//! Dump and load.

use super::*;
use crate::persistence::{DumpWriter, StreamError};

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

/// The string at the beginning of `bytes` as a reply has it, taken out of them.
fn take_string(bytes: &mut Vec<u8>) -> Vec<u8> {
    let end = bytes
        .iter()
        .position(|byte| *byte == b'\n')
        .expect("a line");
    let length = str::from_utf8(&bytes[1..end - 1]).expect("text");
    let length: usize = length.parse().expect("a length");
    let string = bytes[end + 1..][..length].to_vec();
    bytes.drain(..end + 1 + length + 2);
    string
}

/// What KDUMP returns of all databases, portion by portion, as a dump; and how many portions.
fn collect(shell: &mut Shell, mut between: impl FnMut(&mut Shell)) -> (Vec<u8>, usize) {
    let (mut stream, mut portions) = (Vec::new(), 0);
    let mut writer = DumpWriter::begin(&mut stream).expect("a vector takes all");
    for database in 0..4 {
        shell.line(&format!("SELECT {database}"));
        let mut cursor = b"0".to_vec();
        loop {
            let (mut reply, _) = shell.begin([b"KDUMP", &cursor[..]]);
            assert!(reply.starts_with(b"*3\r\n"), "{}", reply.escape_ascii());
            reply.drain(..4);
            cursor = take_string(&mut reply);
            let pieces = usize::from(!reply.starts_with(b":1\r\n*0"));
            let head = format!(":1\r\n*{pieces}\r\n");
            assert!(reply.starts_with(head.as_bytes()));
            reply.drain(..head.len());
            if pieces == 1 {
                let entries = take_string(&mut reply);
                writer.write_sent(1, &entries).expect("they are whole");
            }
            assert!(reply.is_empty());
            portions += 1;
            if cursor == b"0" {
                break;
            }
            between(shell);
        }
    }
    writer.finish().expect("a vector takes all");
    (stream, portions)
}

fn loaded(stream: &[u8]) -> Shell {
    let mut other = Shell::with_options(Options {
        databases: 4,
        ..Options::default()
    });
    other.session.load(&mut &stream[..]).expect("it is whole");
    other
}

#[test]
fn portions_in_a_snapshot_are_a_dump_of_its_moment() {
    for engine in EngineKind::in_memory() {
        let mut shell = Shell::with_options(Options {
            databases: 4,
            engine,
            ..Options::default()
        });
        for number in 0..20_000 {
            let database = number % 3;
            let mut turn = shell.session.turn();
            let key = format!("key:{number}");
            let mut value = NewValue::new(Body::string(key.as_bytes()));
            value.attributes.flags = number % 5;
            value.attributes.deadline =
                (number % 7 == 0).then_some(pando_engine::Deadline(1 << 45));
            value.attributes.token = std::num::NonZero::new(u64::from(number % 11));
            let written = turn
                .keyspace(database as usize)
                .update(key.as_bytes(), |_| {
                    Decision::Write(crate::commands::again(&value))
                });
            written.expect("there is room");
        }
        shell.line("SELECT 3");
        shell.line("SETRANGE long 3000000 x");
        shell.line("HSET h f v g w");
        let mut expected = picture(&shell.database);
        // The names of branches are not in a dump.
        expected.retain(|(index, _), _| *index < shell.database.databases());
        shell.line("SNAPSHOT CREATE s");
        shell.line("SNAPSHOT USE s");
        let mut other = shell.connect();
        let mut number = 0;
        let (stream, portions) = collect(&mut shell, |_| {
            for _ in 0..500 {
                other.line(&format!("SELECT {}", number % 4));
                other.line(&format!("SET key:{} changed", number % 20_000));
                other.line(&format!("SET new:{number} x"));
                other.line(&format!("DEL key:{}", (number * 7) % 20_000));
                number += 1;
            }
            other.line("SELECT 3");
            other.line("HSET h f changed");
        });
        assert!(portions > 6, "{engine:?}: {portions}");
        // A hole costs nothing, unless large values are in one piece.
        let bytes_max = if engine == EngineKind::Minuet {
            5_000_000
        } else {
            2_000_000
        };
        assert!(stream.len() < bytes_max, "{}", stream.len());
        assert!(picture(&loaded(&stream).database) == expected, "{engine:?}");
    }
}

#[test]
fn what_was_not_sent_whole_is_refused() {
    let mut shell = filled();
    let (stream, _) = collect(&mut shell, |_| ());
    assert_eq!(picture(&loaded(&stream).database), picture(&shell.database));
    let mut writer = DumpWriter::begin(Vec::new()).expect("a vector takes all");
    let whole = b"\x06\0\0\0\0\0\0\0\0\x01a\x01\x01x";
    writer.write_sent(1, whole).expect("it is whole");
    assert!(matches!(
        writer.write_sent(2, whole),
        Err(StreamError::SentFormat { got: 2, .. })
    ));
    for cut in 1..whole.len() {
        let refused = writer.write_sent(1, &whole[..cut]);
        assert!(matches!(refused, Err(StreamError::Sent(_))), "{cut}");
    }
    assert_eq!(writer.entries(), 1);
    for (engine, cursor) in [
        (EngineKind::Masstree, "5"),
        (EngineKind::Masstree, "x"),
        (EngineKind::Masstree, "[a"),
        (EngineKind::Mercury, "(a"),
        (EngineKind::Mercury, "x"),
    ] {
        let mut shell = Shell::with_options(Options {
            engine,
            ..Options::default()
        });
        shell.check(&[(&format!("KDUMP {cursor}"), "-ERR invalid cursor")]);
    }
}
