//! Entry points of fuzzers: each takes any bytes and panics only if our code is wrong.
//!
//! `cargo fuzz` calls them on demand (see `fuzz/` at the root of the repository); a seeded loop in
//! `cargo test` always does. Compiled for these two only.

use pando_engine::{BodyRef, RowTag, StreamRef};

use crate::dump::file::{DumpFile, Found};
use crate::dump::{self, Bounds, Decoded, Form, PayloadError};
use crate::entries::{self, DumpPosition};
use crate::replication::message;
use crate::{Framer, Joiner};

const BOUNDS: Bounds = Bounds {
    value_bytes_max: 1 << 20,
    field_bytes_max: 1 << 16,
    total_bytes_max: 1 << 20,
};

/// Decodes `input` as the payload of a RESTORE, as it is and with a valid footer. Our own DUMP must
/// return an accepted value whole.
pub fn restore(input: &[u8]) {
    check_payload(input);
    let mut sealed = input.to_vec();
    dump::seal(&mut sealed);
    check_payload(&sealed);
}

/// Reads `input` as a frame from a primary, and as the message in one.
pub fn replication(input: &[u8]) {
    let mut joiner = Joiner::default();
    if let Ok(Some(message)) = joiner.take(input) {
        message::fuzz(message);
    }
    message::fuzz(input);
    let mut frames = 0;
    Framer::default().frames(
        (input, &[]),
        |_| Vec::new(),
        |frame, _| {
            frames += 1;
            let whole = Joiner::default().take(&frame).is_ok();
            assert_eq!(whole, frames == 1, "a frame is valid in its place");
            true
        },
    );
}

/// Reads `input` as a dump file of Redis, as it is and as the records of a valid file. The cost is
/// bounded by the input.
pub fn dump_file(input: &[u8]) {
    read_file(input);
    read_file(&file_of(input));
}

/// A file of these records, with a checksum.
fn file_of(records: &[u8]) -> Vec<u8> {
    let mut file = [b"REDIS0012", records, b"\xff"].concat();
    let checksum = dump::checksum(&file);
    file.extend_from_slice(&checksum.to_le_bytes());
    file
}

/// How many entries a file has and how many of them were skipped; `None` for one that is refused.
fn read_file(mut input: &[u8]) -> Option<(usize, Vec<&'static str>)> {
    let bytes = input.len();
    let mut file = DumpFile::open(b"", &mut input, BOUNDS).ok()?;
    let (mut entries, mut passed) = (0, Vec::new());
    loop {
        match file.next().ok()? {
            Found::Entry(entry) => {
                assert!(entry.bytes <= bytes && entry.key.len() <= BOUNDS.value_bytes_max);
                entries += 1;
            }
            Found::Passed(name) => passed.push(name),
            Found::End => return Some((entries, passed)),
        }
    }
}

/// Parses `input` as log records: each is built and applied, or refused.
pub fn records(input: &[u8]) {
    crate::durable::record::fuzz(input);
}

/// Parses `input` as the entries that KDUMP returns, and as its cursor. Every counted entry can be
/// parsed and built, or refused.
pub fn entries(input: &[u8]) {
    for is_ordered in [false, true] {
        if let Ok(position) = DumpPosition::parse(input, is_ordered) {
            assert_eq!(
                DumpPosition::parse(&position.text(), is_ordered).ok(),
                Some(position)
            );
        }
    }
    let Ok(count) = entries::count(input) else {
        return;
    };
    let (mut rest, mut found) = (input, 0);
    while let Ok(Some(entry)) = entries::first(rest) {
        let _ = entry.value.build();
        rest = &rest[entry.bytes..];
        found += 1;
    }
    assert!(rest.is_empty() && found == count, "{input:?}");
}

/// Whether the payload is accepted.
fn check_payload(payload: &[u8]) -> bool {
    let Ok(Decoded { body, .. }) = dump::decode(payload, BOUNDS) else {
        return false;
    };
    for form in [Form::Table, Form::Packed] {
        let again = dump::encode(body.as_ref(), form);
        match dump::decode(&again, BOUNDS) {
            Ok(again) => assert!(same(body.as_ref(), again.body.as_ref()), "{payload:?}"),
            // A packed block counts its framing as well.
            Err(PayloadError::TooLong { .. }) => {}
            Err(error) => panic!("{error}: {payload:?}"),
        }
    }
    true
}

fn same(one: BodyRef<'_>, other: BodyRef<'_>) -> bool {
    match (one, other) {
        (BodyRef::String(one), BodyRef::String(other)) => one.to_cow() == other.to_cow(),
        // Numbers of groups and consumers are given in the order in which they are read.
        (BodyRef::Row(RowTag::Stream, row), BodyRef::Row(RowTag::Stream, _)) => {
            let payload = |body| dump::encode(body, Form::Table);
            StreamRef::is_sound(row) && payload(one) == payload(other)
        }
        (BodyRef::Row(_, one), BodyRef::Row(_, other)) => {
            let pairs = |(field, value): (&[u8], pando_engine::StringRef<'_>)| {
                (field.to_vec(), value.to_cow().into_owned())
            };
            one.iter().map(pairs).eq(other.iter().map(pairs))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Payloads of every kind of Redis 6 to 8, without their footers.
    const SEEDS: &[&[u8]] = &[
        b"\x00\x05hello",
        b"\x00\xC1\x7f\xff",
        b"\x00\xC3\x09\x40\x64\x01aa\xe0\x57\x00\x01aa",
        b"\x04\x02\xC0\x07\x01y\x01a\xC3\x09\x40\x41\x01xx\xe0\x34\x00\x01xx",
        b"\x09\x0d\x02\x01a\x01\x021zz\x01b\x00\x00\xff",
        b"\x0d\x17\x17\0\0\0\x12\0\0\0\x04\0\0\x01a\x03\xf2\x02\x01b\x03\xc0\xd4\xfe\xff",
        b"\x10\x12\x12\0\0\0\x04\0\x81a\x02\x01\x01\x81b\x02\xdf\xff\x02\xff",
        b"\x01\x03\x01a\xC0\x07\x01c",
        b"\x0a\x14\x14\0\0\0\x10\0\0\0\x03\0\0\x01a\x03\x01b\x03\x01c\xff",
        b"\x0e\x01\x14\x14\0\0\0\x10\0\0\0\x03\0\0\x01a\x03\x01b\x03\x01c\xff",
        b"\x12\x02\x02\x10\x10\0\0\0\x03\0\x81a\x02\x81b\x02\x81c\x02\xff\x01\x01d",
        b"\x16\x02\x44\x14\x01\x63\x01\x33\x00\x01\x61\x01\x31",
        b"\x17\x0e\x0e\0\0\0\x03\0\x81a\x02\x01\x01\x00\x01\xff",
        b"\x18\x14\x04\0\0\0\0\0\0\x03\x00\x01a\xc0\x01\x41\x01\x01b\xc0\x02\x01\x01c\xc0\x03",
        b"\x19\0\0\0\0\0\0\0\0\x0e\x0e\0\0\0\x03\0\x81a\x02\x01\x01\x00\x01\xff",
        b"\x02\x02\xC0\x07\x01a",
        b"\x0b\x0c\x02\0\0\0\x02\0\0\0\xff\xff\x07\0",
        b"\x14\x0a\x0a\0\0\0\x01\0\x81x\x02\xff",
        b"\x03\x02\x01a\x031.5\x01b\xfe",
        b"\x05\x01\x01a\0\0\0\0\0\0\xf0\x3f",
        b"\x0c\x13\x13\0\0\0\x0d\0\0\0\x02\0\0\x01a\x03\x031.5\xff",
        b"\x11\x0f\x0f\0\0\0\x02\0\x81a\x02\x831.5\x04\xff",
        b"\x0f\x01\x10\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x0188\0\0\0\x16\0\x02\x01\x01\x01\x01\
          \x01\x81f\x02\0\x01\x02\x01\0\x01\0\x01\x81v\x02\x04\x01\x03\x01\x01\x01\0\x01\x81x\
          \x02\x04\x01\0\x01\x02\x01\x01\x01\x01\x01\x81g\x02\x81w\x02\x06\x01\xff\x02\x03\x02\
          \x02\x01h\x01\x01\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01M\0\0\0\0\0\0\0\x02\x01\x01\
          cM\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\x01g\x01\x01\x01\0\0\0\0\0\
          \0\0\x01\0\0\0\0\0\0\0\x01M\0\0\0\0\0\0\0\x02\x01\x01cM\0\0\0\0\0\0\0\x01\0\0\0\0\0\
          \0\0\x01\0\0\0\0\0\0\0\x01",
        b"\x13\x01\x10\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x0188\0\0\0\x16\0\x02\x01\x01\x01\x01\
          \x01\x81f\x02\0\x01\x02\x01\0\x01\0\x01\x81v\x02\x04\x01\x03\x01\x01\x01\0\x01\x81x\
          \x02\x04\x01\0\x01\x02\x01\x01\x01\x01\x01\x81g\x02\x81w\x02\x06\x01\xff\x02\x03\x02\
          \x01\x01\x02\x01\x03\x02\x01h\x01\x01\x81\xff\xff\xff\xff\xff\xff\xff\xff\x01\0\0\0\
          \0\0\0\0\x01\0\0\0\0\0\0\0\x01M\0\0\0\0\0\0\0\x02\x01\x01cM\0\0\0\0\0\0\0\x01\0\0\0\
          \0\0\0\0\x01\0\0\0\0\0\0\0\x01\x01g\x01\x01\x01\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\
          \x01M\0\0\0\0\0\0\0\x02\x01\x01cM\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\
          \x01",
        b"\x15\x01\x10\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x0188\0\0\0\x16\0\x02\x01\x01\x01\x01\
          \x01\x81f\x02\0\x01\x02\x01\0\x01\0\x01\x81v\x02\x04\x01\x03\x01\x01\x01\0\x01\x81x\
          \x02\x04\x01\0\x01\x02\x01\x01\x01\x01\x01\x81g\x02\x81w\x02\x06\x01\xff\x02\x03\x02\
          \x01\x01\x02\x01\x03\x02\x01h\x01\x01\x81\xff\xff\xff\xff\xff\xff\xff\xff\x01\0\0\0\
          \0\0\0\0\x01\0\0\0\0\0\0\0\x01M\0\0\0\0\0\0\0\x02\x01\x01cM\0\0\0\0\0\0\0N\0\0\0\0\0\
          \0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\x01g\x01\x01\x01\x01\0\0\0\0\0\0\0\x01\
          \0\0\0\0\0\0\0\x01M\0\0\0\0\0\0\0\x02\x01\x01cM\0\0\0\0\0\0\0N\0\0\0\0\0\0\0\x01\0\0\
          \0\0\0\0\0\x01\0\0\0\0\0\0\0\x01",
    ];

    /// Passes these inputs to a target, each with a few bytes changed, added or cut off.
    fn damaged(inputs: &[&[u8]], target: fn(&[u8])) {
        let seed = crate::commands::testing::seed();
        let mut random = fastrand::Rng::with_seed(seed);
        for round in 0..30_000 {
            let mut input = inputs[round % inputs.len()].to_vec();
            for _ in 0..random.usize(..4) {
                let at = random.usize(..input.len());
                match random.u8(..4) {
                    0 => input[at] = random.u8(..),
                    1 => input[at] ^= 1 << random.u8(..8),
                    2 => input.insert(at, random.u8(..)),
                    _ => input.truncate(at.max(1)),
                }
            }
            target(&input);
        }
    }

    #[test]
    fn no_payload_breaks_restore() {
        damaged(SEEDS, restore);
    }

    #[test]
    fn no_message_of_a_primary_breaks_a_replica() {
        let mut epoch = vec![4, 3, 2, 1, 9, 8 << 2, 0, 0, 0];
        epoch.extend_from_slice(b"recordss");
        let hello = [&[1, 1, 0, 0, 0][..], &[7; 16], b"\x01\x03\x02\x01\x01\x02"].concat();
        let messages: [&[u8]; 5] = [
            &epoch,
            &hello,
            b"\x02\x01",
            b"\x03\x05",
            b"\x05\x01\x02\x03",
        ];
        damaged(&messages, replication);
    }

    /// Entries: strings, with attributes and in pieces; a packed row; and cursors.
    const ENTRIES: &[&[u8]] = &[
        b"\x06\0\0\0\0\0\0\0\0\x01a\x01\x01x",
        b"\x1b\0\0\0\0\0\0\0\x03\x01b\xf1\x07\0\0\0\0\0\0\0\x05\0\0\0\x01\x01\x09\0\0\0\0\0\0\0\0",
        b"\x0a\0\0\0\0\0\0\0\0\x01c\x09\x07\x02\x03xy\0",
        b"0",
        b"(key",
        b"18446744073709551615",
    ];

    #[test]
    fn no_entry_breaks_a_dump() {
        let sound = ENTRIES[..3].concat();
        assert_eq!(entries::count(&sound).ok(), Some(3));
        let inputs: Vec<&[u8]> = ENTRIES.iter().copied().chain([&sound[..]]).collect();
        damaged(&inputs, entries);
    }

    /// Every kind of record and value, each a key of its own.
    const RECORDS: &[&[u8]] = &[
        b"\xfa\x01a\xc0\x07\xfb\x02\x01\xfe\x03\xf4\x01\x02\x03\xf5\x04code",
        b"\xfc\x01\0\0\0\0\0\0\x7f\xf8\x05\xf9\x07\x00\x01k\x05hello",
        b"\xfd\xff\xff\xff\x7f\x00\x01k\xc1\x7f\xff",
        b"\x04\x01k\x02\xC0\x07\x01y\x01a\xC3\x09\x40\x41\x01xx\xe0\x34\x00\x01xx",
        b"\x09\x01k\x0d\x02\x01a\x01\x021zz\x01b\x00\x00\xff",
        b"\x10\x01k\x12\x12\0\0\0\x04\0\x81a\x02\x01\x01\x81b\x02\xdf\xff\x02\xff",
        b"\x18\x01k\0\0\0\0\0\0\0\0\x01\x00\x01a\x01b",
        b"\x19\x01k\0\0\0\0\0\0\0\0\
          \x0e\x0e\0\0\0\x03\0\x81a\x02\x01\x01\x00\x01\xff",
        b"\x18\x01k\0\0\0\0\0\0\0\0\x01\x01\x01a\x01b",
        b"\x01\x01l\x02\x01a\xc0\x01",
        b"\x02\x01s\x01\x01a",
        b"\x03\x01z\x02\x01a\x031.5\x01b\xfe",
        b"\x05\x01z\x01\x01a\0\0\0\0\0\0\xf0\x3f",
        b"\x07\x01m\x81\0\0\0\0\0\0\0\x01\x02\x05\x01\x06\x03\0\0\0\0\
          \x04\0\0\0\0\0\0\0\0\x05\x01s\x00",
        b"\xf7\x09\x02\x01\x05\x01s\x00",
        b"\x12\x01l\x01\x01\x01x",
        b"\x14\x01s\x0a\x0a\0\0\0\x01\0\x81x\x02\xff",
        b"\x0b\x01i\x0a\x02\0\0\0\x01\0\0\0\x07\0",
        b"\x15\x01x\x01\x10\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x0188\0\0\0\x16\0\x02\x01\x01\x01\x01\
          \x01\x81f\x02\0\x01\x02\x01\0\x01\0\x01\x81v\x02\x04\x01\x03\x01\x01\x01\0\x01\x81x\
          \x02\x04\x01\0\x01\x02\x01\x01\x01\x01\x01\x81g\x02\x81w\x02\x06\x01\xff\x02\x03\x02\
          \x01\x01\x02\x01\x03\x02\x01h\x01\x01\x81\xff\xff\xff\xff\xff\xff\xff\xff\x01\0\0\0\
          \0\0\0\0\x01\0\0\0\0\0\0\0\x01M\0\0\0\0\0\0\0\x02\x01\x01cM\0\0\0\0\0\0\0N\0\0\0\0\0\
          \0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x01\x01g\x01\x01\x01\x01\0\0\0\0\0\0\0\x01\
          \0\0\0\0\0\0\0\x01M\0\0\0\0\0\0\0\x02\x01\x01cM\0\0\0\0\0\0\0N\0\0\0\0\0\0\0\x01\0\0\
          \0\0\0\0\0\x01\0\0\0\0\0\0\0\x01",
    ];

    #[test]
    fn every_record_is_read_or_passed_over() {
        let records = RECORDS.concat();
        let (entries, passed) = read_file(&file_of(&records)).expect("it is sound");
        assert_eq!(entries, 16);
        let expected = ["library of functions", "module's value"];
        assert_eq!(passed, expected);
        // The checksum is looked at, and 0 means that there is none.
        let mut file = file_of(&records);
        file[20] ^= 1;
        assert_eq!(read_file(&file), None);
        let mut file = file_of(RECORDS[3]);
        let checksum = file.len() - 8;
        file[checksum..].fill(0);
        assert_eq!(read_file(&file), Some((1, Vec::new())));
        file[checksum] = 1;
        assert_eq!(read_file(&file), None);
        file[checksum] = 0;
        for end in 0..file.len() {
            assert_eq!(read_file(&file[..end]), None, "cut at {end}");
        }
        for bad in [
            &b"\x06\x01m\x01"[..],
            b"\x1e\x01k\x01v",
            b"\xf6\x01a",
            b"\xf7\x09\x06",
        ] {
            assert_eq!(read_file(&file_of(bad)), None, "{bad:?}");
        }
        assert_eq!(read_file(b"REDIS0013\xff\0\0\0\0\0\0\0\0"), None);
        assert_eq!(read_file(b"REDIS0003\xff"), Some((0, Vec::new())));
    }

    #[test]
    fn no_file_breaks_the_reader() {
        damaged(RECORDS, dump_file);
    }

    #[test]
    fn the_seeds_are_accepted() {
        for seed in SEEDS {
            let mut sealed = seed.to_vec();
            dump::seal(&mut sealed);
            assert!(check_payload(&sealed), "{seed:?}");
        }
    }
}
