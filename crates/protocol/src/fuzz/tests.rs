//! The fuzz targets on seeded input, so that they are run by every `cargo test`.

use super::*;
use fastrand::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind};

mod memcached;

/// Runs `target` on `count` inputs; a failure names the seed of its input.
fn run(target: fn(&[u8]), make: impl Fn(&mut Rng) -> Vec<u8>, count: u64) {
    for seed in 0..count {
        let input = make(&mut Rng::with_seed(seed));
        let outcome = catch_unwind(AssertUnwindSafe(|| target(&input)));
        assert!(outcome.is_ok(), "seed {seed}: {}", input.escape_ascii());
    }
}

/// Overwrites, repeats or removes a few bytes, or leaves all as they are.
fn mutate(rng: &mut Rng, bytes: &mut Vec<u8>) {
    if rng.bool() {
        return;
    }
    for _ in 0..rng.usize(1..4) {
        if bytes.is_empty() {
            return;
        }
        let at = rng.usize(..bytes.len());
        match rng.u8(..4) {
            0 => bytes[at] = rng.u8(..),
            1 => bytes[at] = *rng.choice(b"\r\n*$-0123456789\"'\\ ").unwrap(),
            2 => drop(bytes.remove(at)),
            _ => {
                let end = (at + rng.usize(..20)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
}

fn bytes_of(rng: &mut Rng, alphabet: &[u8], len_max: usize) -> Vec<u8> {
    let len = rng.usize(..=len_max);
    (0..len).map(|_| *rng.choice(alphabet).unwrap()).collect()
}

fn a_request(rng: &mut Rng, out: &mut Vec<u8>) {
    const WORDS: [&str; 12] = [
        "GET", "set", "k", "", "COMMAND", "info", "getkeys", "CLIENT", "docs", "*", "list", "nope",
    ];
    match rng.u8(..10) {
        0 => out.extend_from_slice(
            rng.choice(["*0\r\n", "*-1\r\n", "\r\n", "\n"])
                .unwrap()
                .as_bytes(),
        ),
        1 | 2 => {
            out.extend(bytes_of(rng, b"aGk\"' \\x4\t\0", 70));
            out.extend_from_slice(b"\r\n");
        }
        _ => {
            let count = *rng.choice(&[1, 2, 3, 5, 11, 45]).unwrap();
            out.extend_from_slice(format!("*{count}\r\n").as_bytes());
            for _ in 0..count {
                let argument = match rng.u8(..20) {
                    0 => bytes_of(rng, b"a\r\n$*1", 310),
                    1 => vec![b'x'; 99],
                    _ => rng.choice(WORDS).unwrap().as_bytes().to_vec(),
                };
                out.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
                out.extend_from_slice(&argument);
                out.extend_from_slice(b"\r\n");
            }
        }
    }
}

fn request_stream(rng: &mut Rng) -> Vec<u8> {
    let mut out = rng.u32(..).to_le_bytes().to_vec();
    for _ in 0..rng.usize(1..6) {
        a_request(rng, &mut out);
    }
    mutate(rng, &mut out);
    out
}

fn a_reply(rng: &mut Rng, depth: usize, out: &mut Vec<u8>) {
    let kinds = if depth == 0 { 5 } else { 10 };
    match rng.usize(..kinds) {
        0 => out.extend_from_slice(b"+OK\r\n"),
        1 => out.extend_from_slice(format!(":{}\r\n", rng.i64(..)).as_bytes()),
        2 => out.extend_from_slice(
            rng.choice([
                "_\r\n", "#t\r\n", ",1.5\r\n", "$-1\r\n", "*-1\r\n", "(12\r\n",
            ])
            .unwrap()
            .as_bytes(),
        ),
        3 => out.extend_from_slice(b"=7\r\ntxt:abc\r\n"),
        4 => {
            let bytes = bytes_of(rng, b"a\r\n$1", 20);
            out.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
            out.extend_from_slice(&bytes);
            out.extend_from_slice(b"\r\n");
        }
        kind => {
            let (kind, per_item) = [("*", 1), ("~", 1), (">", 1), ("%", 2), ("|", 2)][kind - 5];
            let len = rng.usize(..4);
            out.extend_from_slice(format!("{kind}{len}\r\n").as_bytes());
            for _ in 0..len * per_item + usize::from(kind == "|") {
                a_reply(rng, depth - 1, out);
            }
        }
    }
}

#[test]
fn requests_hold_on_seeded_inputs() {
    run(requests, request_stream, 20_000);
    run(commands, |rng| request_stream(rng).split_off(4), 3_000);
}

#[test]
fn replies_hold_on_seeded_inputs() {
    let stream = |rng: &mut Rng| {
        let mut out = rng.u32(..).to_le_bytes().to_vec();
        for _ in 0..rng.usize(1..4) {
            a_reply(rng, 4, &mut out);
        }
        mutate(rng, &mut out);
        out
    };
    run(replies, stream, 20_000);
}

#[test]
fn patterns_and_numbers_hold_on_seeded_inputs() {
    let glob = |rng: &mut Rng| {
        let pattern = bytes_of(rng, b"abB*?[]^-\\", 10);
        let text = bytes_of(rng, b"abB-]\\", 10);
        [&[pattern.len() as u8], &*pattern, &*text].concat()
    };
    run(patterns, glob, 50_000);
    run(
        numbers,
        |rng| bytes_of(rng, b"0123456789.eE+-xXpPinf ", 25),
        100_000,
    );
    run(numbers, |rng| bytes_of(rng, b"0123456789", 21), 50_000);
}

/// A decoder that goes wrong when a request arrives in pieces.
struct Canary {
    decoder: Decoder,
    flaw: Flaw,
    suspended: bool,
}

#[derive(Clone, Copy, Debug)]
enum Flaw {
    /// Takes the ranges of a resumed request for relative to the piece before.
    ShiftsRanges,
    /// Forgets an unfinished request.
    ForgetsBytes,
    /// Ends a resumed request a byte early.
    EndsEarly,
    /// Finds another error than the whole input has.
    ChangesError,
    /// Takes what follows a request that is too long for another one.
    ForgetsToSkip,
}

impl RequestDecoder for Canary {
    fn next(
        &mut self,
        input: &mut [u8],
        from: usize,
        arguments: &mut Vec<ArgumentRange>,
    ) -> Result<Decoded, ProtocolError> {
        let first = arguments.len();
        let decoded = self.decoder.next(input, from, arguments);
        let resumed = std::mem::replace(
            &mut self.suspended,
            matches!(decoded, Ok(Decoded::Incomplete { start, .. }) if start < input.len()),
        );
        match (self.flaw, decoded) {
            (Flaw::ShiftsRanges, Ok(Decoded::Request { .. })) if resumed => {
                arguments[first].start -= 1;
                decoded
            }
            (Flaw::EndsEarly, Ok(Decoded::Request { arguments, end })) if resumed => {
                Ok(Decoded::Request {
                    arguments,
                    end: end - 1,
                })
            }
            (Flaw::ForgetsBytes, Ok(Decoded::Incomplete { bytes_missing, .. })) if resumed => {
                self.decoder = Decoder::new(LIMITS);
                Ok(Decoded::Incomplete {
                    start: input.len(),
                    bytes_missing,
                })
            }
            (Flaw::ForgetsToSkip, Ok(Decoded::TooLong { .. })) => {
                self.decoder = Decoder::new(LIMITS);
                decoded
            }
            (Flaw::ChangesError, Err(_)) if resumed => Err(ProtocolError::TooBigInline),
            _ => decoded,
        }
    }

    fn heap_bytes(&self) -> usize {
        self.decoder.heap_bytes()
    }
}

#[test]
fn a_decoder_that_splits_wrongly_is_caught() {
    for flaw in [
        Flaw::ShiftsRanges,
        Flaw::ForgetsBytes,
        Flaw::EndsEarly,
        Flaw::ChangesError,
    ] {
        let caught = (0..500).any(|seed| {
            let input = request_stream(&mut Rng::with_seed(seed));
            let decoder = |authenticated| {
                let mut decoder = Decoder::new(LIMITS);
                decoder.set_authenticated(authenticated);
                Canary {
                    decoder,
                    flaw,
                    suspended: false,
                }
            };
            catch_unwind(AssertUnwindSafe(|| requests_with(&input, decoder))).is_err()
        });
        assert!(caught, "{flaw:?}");
    }
}

#[test]
fn a_decoder_that_does_not_skip_what_it_has_refused_is_caught() {
    let caught = (0..500).any(|seed| {
        let input = request_stream(&mut Rng::with_seed(seed));
        let decoder = |request_bytes_max| Canary {
            decoder: Decoder::new(DecoderLimits {
                request_bytes_max,
                ..LIMITS
            }),
            flaw: Flaw::ForgetsToSkip,
            suspended: false,
        };
        catch_unwind(AssertUnwindSafe(|| bounded_requests_with(&input, decoder))).is_err()
    });
    assert!(caught);
}
