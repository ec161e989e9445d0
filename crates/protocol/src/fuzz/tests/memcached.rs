//! The memcached target on seeded input, and a decoder that must be caught.

use super::super::memcached::{Cutter, LIMITS, LineDecoder, datagrams_with, lines_with};
use super::*;
use crate::memcached::{DecodeError, Decoder as Lines, datagram};

fn a_line(rng: &mut Rng, out: &mut Vec<u8>) {
    const WORDS: [&str; 20] = [
        "get",
        "gets",
        "gat",
        "set",
        "cas",
        "append",
        "incr",
        "delete",
        "touch",
        "flush_all",
        "mg",
        "ms",
        "md",
        "ma",
        "me",
        "mn",
        "stats",
        "k",
        "0",
        "",
    ];
    const FLAGS: &[u8] = b"bcCDEFIJkMNOPqRsTtuvxz0!";
    match rng.u8(..8) {
        0 => {
            let data = bytes_of(rng, b"a\r\n 1", 45);
            let verb = rng.choice(["set", "add", "append", "prepend"]).unwrap();
            let noreply = rng.choice(["", " noreply", " x"]).unwrap();
            let head = format!("{verb} k 0 {} {}{noreply}\r\n", rng.i32(-2..99), data.len());
            out.extend_from_slice(head.as_bytes());
            out.extend_from_slice(&data);
            out.extend_from_slice(b"\r\n");
        }
        1 | 2 => {
            let verb = rng.choice(["mg", "ms", "md", "ma"]).unwrap();
            let key = bytes_of(rng, b"YWE=+", 8);
            out.extend_from_slice(verb.as_bytes());
            out.push(b' ');
            out.extend_from_slice(&key);
            let bytes = rng.usize(..45);
            if verb == "ms" {
                out.extend_from_slice(format!(" {bytes}").as_bytes());
            }
            for _ in 0..rng.usize(..20) {
                out.push(b' ');
                out.push(*rng.choice(FLAGS).unwrap());
                out.extend(bytes_of(rng, b"0159-+AE", 3));
            }
            out.extend_from_slice(b"\r\n");
            if verb == "ms" {
                out.extend_from_slice(&vec![b'd'; bytes]);
                out.extend_from_slice(b"\r\n");
            }
        }
        3 => {
            out.extend_from_slice(b"get");
            for _ in 0..rng.usize(..60) {
                out.extend_from_slice(b" key");
                out.extend(bytes_of(rng, b"0 ", 10));
            }
            out.extend_from_slice(b"\r\n");
        }
        _ => {
            for _ in 0..rng.usize(..7) {
                out.extend_from_slice(rng.choice(WORDS).unwrap().as_bytes());
                out.push(b' ');
            }
            out.extend_from_slice(rng.choice(["\r\n", "\n"]).unwrap().as_bytes());
        }
    }
}

fn stream(rng: &mut Rng) -> Vec<u8> {
    let mut out = rng.u32(..).to_le_bytes().to_vec();
    for _ in 0..rng.usize(1..8) {
        a_line(rng, &mut out);
    }
    mutate(rng, &mut out);
    out
}

#[test]
fn memcached_requests_hold_on_seeded_inputs() {
    run(memcached_requests, stream, 20_000);
}

fn frame(rng: &mut Rng) -> Vec<u8> {
    let mut out = Vec::new();
    for field in [rng.u16(..), rng.u16(..2), rng.u16(..3), rng.u16(..)] {
        out.extend(field.to_be_bytes());
    }
    if rng.bool() {
        out.truncate(rng.usize(..9));
    }
    for _ in 0..rng.usize(..4) {
        a_line(rng, &mut out);
    }
    out
}

#[test]
fn memcached_datagrams_hold_on_seeded_inputs() {
    run(memcached_datagrams, frame, 5_000);
}

#[test]
fn datagrams_that_are_cut_wrongly_are_caught() {
    const WRONG: [Cutter; 3] = [
        // Loses the last byte of a full datagram.
        |id, reply| {
            let cut = datagram::reply(id, reply);
            cut.map(|(header, payload)| [&header, &payload[..payload.len().min(1391)]].concat())
                .collect()
        },
        // Numbers them from behind.
        |id, reply| {
            let mut sent: Vec<Vec<u8>> = datagram::reply(id, reply)
                .map(|(header, payload)| [&header, payload].concat())
                .collect();
            sent.reverse();
            sent
        },
        // Forgets how many there are.
        |id, reply| {
            datagram::reply(id, reply)
                .map(|(header, payload)| [&header[..4], &[0, 1, 0, 0], payload].concat())
                .collect()
        },
    ];
    for (flaw, cut) in WRONG.into_iter().enumerate() {
        let caught = (0..2000).any(|seed| {
            let input = frame(&mut Rng::with_seed(seed));
            catch_unwind(AssertUnwindSafe(|| datagrams_with(&input, cut))).is_err()
        });
        assert!(caught, "{flaw}");
    }
}

/// A decoder that goes wrong when a request arrives in pieces.
struct Canary {
    decoder: Lines,
    flaw: Flaw,
    suspended: bool,
}

#[derive(Clone, Copy, Debug)]
enum Flaw {
    /// Parses data as a line if they arrive after the command line.
    ForgetsTheData,
    /// Ends a resumed request a byte early.
    EndsEarly,
    /// Loses the rest of what is to be thrown away.
    ForgetsToSkip,
}

impl LineDecoder for Canary {
    fn next(
        &mut self,
        input: &[u8],
        from: usize,
        arguments: &mut Vec<ArgumentRange>,
    ) -> Result<Decoded, DecodeError> {
        let decoded = self.decoder.next(input, from, arguments);
        let unfinished =
            matches!(decoded, Ok(Decoded::Incomplete { start, .. }) if start < input.len());
        let resumed = std::mem::replace(&mut self.suspended, unfinished);
        match (self.flaw, decoded) {
            (
                Flaw::ForgetsTheData,
                Ok(Decoded::Incomplete {
                    start,
                    bytes_missing,
                }),
            ) if resumed => {
                self.decoder = Lines::new(LIMITS);
                let start = (start + 1).min(input.len());
                Ok(Decoded::Incomplete {
                    start,
                    bytes_missing,
                })
            }
            (Flaw::EndsEarly, Ok(Decoded::Request { arguments, end })) if resumed && end > 1 => {
                Ok(Decoded::Request {
                    arguments,
                    end: end - 1,
                })
            }
            (Flaw::ForgetsToSkip, Ok(Decoded::Incomplete { start, .. })) if start > from => {
                self.decoder = Lines::new(LIMITS);
                decoded
            }
            _ => decoded,
        }
    }
}

#[test]
fn a_line_decoder_that_splits_wrongly_is_caught() {
    for flaw in [Flaw::ForgetsTheData, Flaw::EndsEarly, Flaw::ForgetsToSkip] {
        let caught = (0..2000).any(|seed| {
            let input = stream(&mut Rng::with_seed(seed));
            let decoder = || Canary {
                decoder: Lines::new(LIMITS),
                flaw,
                suspended: false,
            };
            catch_unwind(AssertUnwindSafe(|| lines_with(&input, decoder))).is_err()
        });
        assert!(caught, "{flaw:?}");
    }
}
