//! Entry points of fuzzers: each takes any bytes and panics only on a fault of ours.
//!
//! `cargo fuzz` calls them on demand (see `fuzz/` at the root of the repository), a seeded loop in
//! `cargo test` always. Compiled for these two only.

use pando_engine::BodyRef;

use crate::dump::{self, Bounds, Decoded, HashForm, PayloadError};

const BOUNDS: Bounds = Bounds {
    value_bytes_max: 1 << 20,
    field_bytes_max: 1 << 16,
    total_bytes_max: 1 << 20,
};

/// Takes `input` for the payload of a RESTORE, as it is and with a footer that makes it count.
/// What is accepted must come back whole from our own DUMP of it.
pub fn restore(input: &[u8]) {
    check_payload(input);
    let mut sealed = input.to_vec();
    dump::seal(&mut sealed);
    check_payload(&sealed);
}

/// Takes `input` for log records: each is built and applied, or refused.
pub fn records(input: &[u8]) {
    crate::durable::record::fuzz(input);
}

/// Whether the payload is accepted.
fn check_payload(payload: &[u8]) -> bool {
    let Ok(Decoded { body, .. }) = dump::decode(payload, BOUNDS) else {
        return false;
    };
    for form in [HashForm::Table, HashForm::Listpack] {
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
        (BodyRef::Hash(one), BodyRef::Hash(other)) => {
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

    /// Payloads of every kind, without their footers.
    const SEEDS: &[&[u8]] = &[
        b"\x00\x05hello",
        b"\x00\xC1\x7f\xff",
        b"\x00\xC3\x09\x40\x64\x01aa\xe0\x57\x00\x01aa",
        b"\x04\x02\xC0\x07\x01y\x01a\xC3\x09\x40\x41\x01xx\xe0\x34\x00\x01xx",
        b"\x09\x0d\x02\x01a\x01\x021zz\x01b\x00\x00\xff",
        b"\x0d\x17\x17\0\0\0\x12\0\0\0\x04\0\0\x01a\x03\xf2\x02\x01b\x03\xc0\xd4\xfe\xff",
        b"\x10\x12\x12\0\0\0\x04\0\x81a\x02\x01\x01\x81b\x02\xdf\xff\x02\xff",
    ];

    #[test]
    fn no_payload_breaks_restore() {
        let seed = crate::commands::testing::seed();
        let mut random = fastrand::Rng::with_seed(seed);
        for round in 0..30_000 {
            let mut input = SEEDS[round % SEEDS.len()].to_vec();
            for _ in 0..random.usize(..4) {
                let at = random.usize(..input.len());
                match random.u8(..4) {
                    0 => input[at] = random.u8(..),
                    1 => input[at] ^= 1 << random.u8(..8),
                    2 => input.insert(at, random.u8(..)),
                    _ => input.truncate(at.max(1)),
                }
            }
            restore(&input);
        }
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
